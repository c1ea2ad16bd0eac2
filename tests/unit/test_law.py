"""Laws that move a learned limit: what each does on success, refusal, congestion and silence."""

from __future__ import annotations

from math import inf

import pytest

from headway.pacing.latency import NEARLY_PEAK, Congestion
from headway.pacing.width import (
    TAIL_WAITING,
    WIDTH_AT_START,
    Cap,
    Width,
    width_cause,
)

ALONE_S = 0.02
"""Time per token of a call that is alone."""

CROWDED = (0.01, 0.0038)
"""Sigma and kappa of a provider whose throughput peaks at 16."""


def _time_s(width: float, sigma: float = 0.0, kappa: float = 0.0) -> float:
    return ALONE_S * (1.0 + sigma * (width - 1) + kappa * width * (width - 1))


def _sampled(widths: tuple[int, ...], sigma: float, kappa: float, each: int = 4) -> Congestion:
    congestion = Congestion()
    for width in widths:
        for _ in range(each):
            congestion.sample(width, _time_s(width, sigma, kappa))
    return congestion


def _crowded() -> Width:
    """A width that has seen the peak of a congested provider."""
    width = Width(WIDTH_AT_START, Cap())
    width.congestion = _sampled((1, 4, 8, 16, 32), *CROWDED)
    return width


def test_one_width_alone_says_nothing_about_others() -> None:
    assert _sampled((1,), *CROWDED, each=40).worth() == inf
    assert _sampled((8,), *CROWDED, each=40).worth() == inf


def test_the_peak_of_a_congested_provider_is_found() -> None:
    congestion = _sampled((1, 2, 4, 8, 16, 32), *CROWDED)
    assert congestion.peak() == pytest.approx(16.1, rel=0.1)


@pytest.mark.parametrize("width", [1.0, 3.0, 8.0, 32.0])
def test_throughput_is_what_the_provider_shows_at_that_width(width: float) -> None:
    congestion = _sampled((1, 2, 4, 8, 16, 32), 0.04, 0.004)
    expected = width / _time_s(width, 0.04, 0.004)
    assert congestion.throughput(width) == pytest.approx(expected, rel=0.1)


def test_the_width_worth_having_is_the_smallest_with_nearly_the_peak_throughput() -> None:
    congestion = _sampled((1, 4, 8, 16, 32), *CROWDED)
    worth, best = congestion.worth(), congestion.throughput(congestion.peak())
    assert worth < congestion.peak()
    assert congestion.throughput(worth) >= NEARLY_PEAK * best
    assert congestion.throughput(worth - 0.5) < NEARLY_PEAK * best


def test_a_width_is_the_account_s_or_the_provider_s_best_or_only_as_far_as_was_tried() -> None:
    width = Width(4.0, Cap(7.0))
    assert (width_cause(width, 4), width_cause(width, 7)) == ("untried", "concurrency")
    width.congestion = _sampled((1, 4, 8, 16, 32), *CROWDED)
    assert width_cause(width, 4) == "peak"
    width.overloaded(6, 0.0)
    assert width_cause(width, 3) == "concurrency"


@pytest.mark.parametrize("sigma", [0.0, 0.05])
def test_without_quadratic_growth_there_is_no_peak(sigma: float) -> None:
    assert _sampled((1, 2, 4, 8, 16), sigma, 0.0).worth() == inf


def test_pieces_that_take_next_to_none_of_the_time_say_nothing() -> None:
    crowded = _sampled((1, 4, 8, 16, 32), *CROWDED)
    worth = crowded.worth()
    assert worth < 32
    for _ in range(20):
        crowded.answered(3.0, 0.01)
    assert (crowded.tells, crowded.worth()) == (False, inf)
    for _ in range(20):
        crowded.answered(3.0, 3.0)
    assert (crowded.tells, crowded.worth()) == (True, worth)


@pytest.mark.parametrize(("streamed_s", "limit"), [(0.01, 2.0), (3.0, 1.0)])
def test_where_pieces_say_nothing_a_width_is_not_narrowed_by_them(
    streamed_s: float, limit: float
) -> None:
    width, now, integral = Width(2.0, Cap(most=2.0)), 0.0, 0.0
    width.congestion.answered(3.0, streamed_s)
    for turn in range(60):
        # Pieces are irregular, and by their tokens two at once deliver less than one.
        for draw in range(16):
            width.congestion.sample(2.0, 0.1 * (1 + 7 * (draw % 2)))
        company = 2.0 if turn % 2 else 1.2
        for _ in range(4):
            now += 1.5
            integral += 1.5 * company
            width.ended(50.0 / company, integral, now)
    assert round(width.limit(0, 100, now), 1) == limit


def test_growth_that_slows_down_is_taken_as_linear() -> None:
    congestion = Congestion()
    for width, time_s in ((1, 0.02), (4, 0.05), (16, 0.07)):
        for _ in range(4):
            congestion.sample(width, time_s)
    assert congestion.worth() == inf
    assert congestion.throughput(16.0) < 16.0 / 0.02


def test_a_peak_far_beyond_the_widest_sample_is_not_believed() -> None:
    assert _sampled((1, 2, 4), *CROWDED).peak() == inf
    assert _sampled((1, 2, 4, 8, 14), *CROWDED).peak() < inf


def test_a_long_stay_at_one_width_does_not_drown_the_others() -> None:
    congestion = _sampled((1, 4, 8, 32), *CROWDED)
    for _ in range(10_000):
        congestion.sample(16, _time_s(16, *CROWDED))
    assert congestion.peak() == pytest.approx(16.1, rel=0.1)


def test_a_provider_that_changed_is_learned_anew() -> None:
    congestion = _sampled((1, 4, 8, 16, 32), *CROWDED)
    for _ in range(100):
        for width in (1, 4, 8, 16, 32):
            congestion.sample(width, _time_s(width, 0.0, 0.04))
    assert congestion.peak() == pytest.approx(5.0, rel=0.1)


def test_what_was_seen_is_kept_for_the_next_run_and_counts_half() -> None:
    first = _sampled((1, 4, 8, 16, 32), *CROWDED, each=10)
    second = Congestion(first.curve())
    assert second.peak() == pytest.approx(first.peak(), rel=0.01)
    assert (second.samples, second.widest) == (25, 32.0)
    assert Congestion(Congestion().curve()).worth() == inf
    assert Width(4.0, Cap(), first.curve()).congestion.curve() == second.curve()


def test_a_width_explores_until_the_peak_shows_and_then_stays_there() -> None:
    width = Width(4.0, Cap())
    for _ in range(40):
        allowed = width.limit(0, 1000, 0.0)
        width.moved(allowed, int(allowed), _time_s(allowed, *CROWDED))
    # One round too many is allowed for; then it is where nearly the peak is.
    assert width.congestion.widest <= 64.0
    assert 10.0 <= width.limit(0, 1000, 0.0) <= 16.0
    assert width.reason.startswith("throughput peaks near")


def test_a_width_is_never_less_than_one() -> None:
    width = Width(1.0, Cap())
    width.congestion = _sampled((1, 2, 4), 0.0, 2.0)
    assert not width.moved(1.0, 1, ALONE_S)
    width.overloaded(0, 0.0)
    assert width.limit(0, 100, 0.0) == 1.0


@pytest.mark.parametrize(
    ("in_flight", "waiting", "cap", "limit"),
    [
        (14, 4, inf, 18.0),  # The last few go together where that costs little.
        (14, 16, inf, WIDTH_AT_START),  # Throughput would suffer.
        (0, TAIL_WAITING + 1, inf, WIDTH_AT_START),  # They are not the last.
        (14, 4, 15.0, WIDTH_AT_START),
    ],
)
def test_the_last_calls_of_a_run_may_crowd_in(
    in_flight: int, waiting: int, cap: float, limit: float
) -> None:
    width = _crowded()
    width.cap = Cap(cap)
    assert width.limit(in_flight, waiting, 0.0) == limit
    assert Width(4.0, Cap()).limit(3, 3, 0.0) == 4.0
