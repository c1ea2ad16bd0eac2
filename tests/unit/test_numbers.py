"""Numbers as people write them."""

from math import inf

import pytest

from headway.base.numbers import number_of, seconds_of, share_of, short


@pytest.mark.parametrize(
    ("text", "number"),
    [("22", 22), ("0.5", 0.5), ("100k", 1e5), ("2M", 2e6), ("100_000", 1e5), ("never", inf)],
)
def test_a_number_may_have_a_unit_or_no_end(text: str, number: float) -> None:
    assert number_of(text) == number


@pytest.mark.parametrize("text", ["", "k", "many", "1e999", "5Q", "nan%"])
def test_anything_else_is_no_number(text: str) -> None:
    assert number_of(text) is None


@pytest.mark.parametrize(("text", "share"), [("50%", 0.5), ("0.5", 0.5), ("100 %", 1.0)])
def test_a_share_is_a_percentage_or_a_fraction(text: str, share: float) -> None:
    assert share_of(text) == share


@pytest.mark.parametrize("text", ["0%", "-5%", "101%", "2", "half", "never"])
def test_a_share_is_above_nothing_and_at_most_everything(text: str) -> None:
    assert share_of(text) is None


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (500, "500"), (999.4, "999"), (999.7, "1k"), (1500, "1.5k"), (99_960, "100k"),
     (100_000, "100k"), (999_600, "1M"), (5e6, "5M"), (2_345_678, "2.35M"), (4e9, "4000M")],
)  # fmt: skip
def test_a_number_is_written_with_three_digits(number: float, text: str) -> None:
    assert short(number) == text


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90.0), ("10m", 600.0), ("1.5h", 5400.0), ("1d", 86400.0)]
)
def test_a_duration_has_a_unit(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "90", "s", "-5s", "1e3s", "soon", "1.2.3s"])
def test_a_number_without_a_unit_is_no_duration(text: str) -> None:
    assert seconds_of(text) is None
