"""How long a run may wait, in the words of a command line."""

from __future__ import annotations

from datetime import datetime
from math import inf

import pytest

from headway.errors import BadValueError
from headway.run.launch import deadline_s, moment_s, span_s

NOON_S = datetime(2026, 11, 16, 12, 0, 0).timestamp()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("30s", 30), ("10m", 600), ("6h", 21600), ("1h30m", 5400), ("2d", 172800),
     ("0", 0), ("1.5H", 5400)],
)  # fmt: skip
def test_a_length_of_time_has_units(text: str, seconds: float) -> None:
    assert span_s(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "6 hours", "-1h", "1e3", "6hh", "999d", "٣h"])
def test_what_is_no_length_of_time_is_refused(text: str) -> None:
    with pytest.raises(BadValueError):
        span_s(text)


def test_a_time_of_day_is_the_next_one() -> None:
    assert moment_s("18:00", NOON_S) == NOON_S + 6 * 3600
    assert moment_s("6:30:15", NOON_S) == datetime(2026, 11, 17, 6, 30, 15).timestamp()
    assert moment_s("2026-11-20T08:00", NOON_S) == datetime(2026, 11, 20, 8).timestamp()
    assert moment_s("2026-11-16T18:00+00:00", NOON_S) == 1794852000.0


@pytest.mark.parametrize("text", ["25:00", "18:60", "noon", "", "2026-13-01T00:00"])
def test_what_is_no_time_of_day_is_refused(text: str) -> None:
    with pytest.raises(BadValueError, match="not a time of day"):
        moment_s(text, NOON_S)


def test_a_run_waits_as_long_as_it_takes_unless_it_is_told_otherwise() -> None:
    assert deadline_s(None, None, False, NOON_S) is None
    assert deadline_s("forever", None, False, NOON_S) == inf
    assert deadline_s("6h", None, False, NOON_S) == NOON_S + 21600
    assert deadline_s(None, "18:00", False, NOON_S) == NOON_S + 21600
    assert deadline_s(None, None, True, NOON_S) == -inf
    with pytest.raises(BadValueError, match="--wait and --no-wait"):
        deadline_s("6h", None, True, NOON_S)
