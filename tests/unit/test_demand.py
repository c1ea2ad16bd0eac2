"""Tokens expected of an input, prices, and the size of a reply to declare."""

from __future__ import annotations

from random import Random

import pytest

from headway.base.numbers import REMEMBERED_MAX
from headway.base.values import Amounts, Tally
from headway.pacing.estimate import InputRatio, Price

SONNET = Price(
    input_microusd_per_mtok=3_000_000,
    output_microusd_per_mtok=15_000_000,
    cache_read_microusd_per_mtok=300_000,
)


def _taught(per_byte: float, per_message: float, calls: int = 20) -> InputRatio:
    """A ratio after some calls of all sizes, reported with 3 % of noise."""
    ratio = InputRatio()
    draw = Random(7)
    for _ in range(calls):
        size_bytes, messages = int(draw.lognormvariate(9.0, 1.0)), draw.randint(1, 9)
        tokens = (size_bytes * per_byte + messages * per_message) * draw.gauss(1.0, 0.03)
        ratio.observe("m", "english", size_bytes, tokens, messages)
    return ratio


def _error(ratio: InputRatio, per_byte: float, per_message: float) -> float:
    """Mean absolute error on other calls, as a share of their tokens."""
    draw = Random(8)
    errors = []
    for _ in range(100):
        size_bytes, messages = int(draw.lognormvariate(9.0, 1.0)), draw.randint(1, 9)
        tokens = size_bytes * per_byte + messages * per_message
        errors.append(abs(ratio.estimate("m", "english", size_bytes, messages) / tokens - 1.0))
    return sum(errors) / len(errors)


@pytest.mark.parametrize(
    ("kind", "tokens"),
    [("english", 254.0), ("code", 304.0), ("korean", 404.0), ("cjk", 404.0), ("?", 304.0)],
)
def test_an_input_of_unknown_ratio_is_estimated_by_its_kind(kind: str, tokens: float) -> None:
    assert InputRatio().estimate("m", kind, 1000) == tokens


@pytest.mark.parametrize("per_byte", [0.15, 0.25, 0.45])
@pytest.mark.parametrize("per_message", [0.0, 4.0, 30.0])
def test_after_twenty_calls_the_error_is_small(per_byte: float, per_message: float) -> None:
    assert _error(_taught(per_byte, per_message), per_byte, per_message) < 0.03


def test_one_strange_report_moves_the_estimate_a_little() -> None:
    for calls, moved in ((20, 0.06), (60, 0.02)):
        for factor in (100.0, 0.01):
            ratio = _taught(0.25, 4.0, calls)
            before = ratio.estimate("m", "english", 8000)
            ratio.observe("m", "english", 8000, factor * before)
            assert ratio.estimate("m", "english", 8000) == pytest.approx(before, rel=moved)


def test_a_lasting_change_moves_the_estimate_all_the_way() -> None:
    ratio = _taught(0.25, 4.0, calls=100)
    for _ in range(60):
        ratio.observe("m", "english", 8000, 4000.0)
    middle = ratio.estimate("m", "english", 8000)
    for _ in range(240):
        ratio.observe("m", "english", 8000, 4000.0)
    assert 2500.0 < middle < 4100.0
    assert ratio.estimate("m", "english", 8000) == pytest.approx(4000.0, rel=0.02)


@pytest.mark.parametrize(("size_bytes", "input_tokens"), [(0, 100.0), (1000, 0.5)])
def test_an_empty_report_teaches_nothing(size_bytes: int, input_tokens: float) -> None:
    ratio = InputRatio()
    ratio.observe("m", "english", size_bytes, input_tokens)
    assert not ratio._ratios


def test_the_kind_used_least_recently_is_forgotten_first() -> None:
    ratio = InputRatio()
    for number in range(REMEMBERED_MAX):
        ratio.observe(f"m{number}", "english", 1000, 250.0)
    ratio.observe("m0", "english", 1000, 250.0)
    ratio.observe("one more", "english", 1000, 250.0)
    models = [model for model, _ in ratio._ratios]
    assert len(models) == REMEMBERED_MAX
    assert "m1" not in models
    assert models[-2:] == ["m0", "one more"]


def test_tokens_read_from_the_cache_have_their_own_price_or_that_of_input() -> None:
    assert SONNET.cost_of(Tally(cache_read_tokens=1000)) == 300
    assert Price(3_000_000, 15_000_000).cost_of(Tally(cache_read_tokens=1000)) == 3000


def test_tokens_written_into_the_cache_have_prices_of_their_own_or_that_of_input() -> None:
    price = Price(3_000_000, 15_000_000, 300_000, 3_750_000, 6_000_000)
    assert price.cost_of(Tally(1100, cache_write_tokens=1000)) == 300 + 3750
    assert price.cost_of(Tally(1100, cache_write_tokens=1000, long_write_tokens=400)) == (
        300 + 600 * 3.75 + 400 * 6
    )
    assert SONNET.cost_of(Tally(1100, cache_write_tokens=1000, long_write_tokens=400)) == 3300
    assert price.most_microusd(Amounts(1100, 10), 1000) == 300 + 6000 + 150
