"""How long replies will be: the prior, what is learned, and what calls in flight tell."""

from __future__ import annotations

from heapq import heappop, heappush
from math import exp, isnan, nan
from random import Random

import pytest
from msgspec import Struct

from headway.pacing.estimate import FLIGHTS_MAX, KINDS_MAX, OutputLength, _fitted


class Provider(Struct, frozen=True):
    """Replies of lognormal length at nearly one speed, `width` at a time."""

    width: int
    calls: int = 400
    median: float = 600.0
    spread: float = 0.8
    speeds: float = 0.2
    tells: bool = True

    @property
    def mean(self) -> float:
        return self.median * exp(self.spread**2 / 2)

    def run(self, seed: int, until: int) -> tuple[float, float]:
        """What is expected after `until` calls have ended, and their plain mean, over the truth."""
        draw = Random(seed)
        lengths = OutputLength()
        ends: list[tuple[float, int, float]] = []
        running: dict[int, tuple[float, float]] = {}
        ended: list[float] = []
        now = 0.0
        for call in range(self.calls):
            if call >= self.width:
                now = self._end_one(lengths, ends, running, ended)
            if len(ended) == until:
                break
            output, speed = (
                self.median * exp(draw.gauss(0, self.spread)),
                draw.gauss(0, self.speeds),
            )
            lengths.started(call, "review", 1000.0)
            running[call] = (now, exp(speed))
            heappush(ends, (now + output / exp(speed), call, output))
        while len(ended) < until:
            self._end_one(lengths, ends, running, ended)
        expected = lengths.expect("review", 1000.0, 1e30)
        return expected / self.mean, sum(ended) / len(ended) / self.mean

    def _end_one(
        self,
        lengths: OutputLength,
        ends: list[tuple[float, int, float]],
        running: dict[int, tuple[float, float]],
        ended: list[float],
    ) -> float:
        now, call, output = heappop(ends)
        del running[call]
        if self.tells:
            for other, (began, speed) in running.items():
                lengths.progressed(other, (now - began) * speed)
        lengths.ended(call, output)
        ended.append(output)
        return now


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def test_with_nothing_learned_a_reply_is_the_prior_or_the_ceiling() -> None:
    lengths = OutputLength()
    assert lengths.expect("review", 1000.0, 4096) == 500.0
    assert lengths.expect("review", 1000.0, 200) == 200.0


@pytest.mark.parametrize("width", [64, 400])
def test_early_finishers_do_not_mislead_while_streams_tell_their_progress(width: int) -> None:
    outcomes = [Provider(width).run(seed, until=40) for seed in range(12)]
    assert _mean([plain for _, plain in outcomes]) < 0.5, "a plain mean under-reserves by multiples"
    assert _mean([expected for expected, _ in outcomes]) == pytest.approx(1.0, abs=0.1)
    assert _mean([abs(expected - 1.0) for expected, _ in outcomes]) < 0.25


def test_calls_that_tell_no_progress_are_judged_by_those_that_started_later() -> None:
    outcomes = [Provider(64, tells=False).run(seed, until=40) for seed in range(12)]
    assert _mean([plain for _, plain in outcomes]) < 0.5
    assert _mean([expected for expected, _ in outcomes]) == pytest.approx(1.0, abs=0.25)


def test_in_the_long_run_the_estimate_is_right() -> None:
    outcomes = [Provider(32, tells=False).run(seed, until=400) for seed in range(12)]
    assert _mean([expected for expected, _ in outcomes]) == pytest.approx(1.0, abs=0.05)


def test_length_follows_input_where_it_does() -> None:
    lengths = OutputLength()
    draw = Random(3)
    for _ in range(300):
        size = draw.lognormvariate(7.0, 1.0)
        lengths.observe("translate", size, 1.1 * size * exp(draw.gauss(0, 0.2)))
    for size in (300.0, 1000.0, 5000.0):
        assert lengths.expect("translate", size, 1e30) == pytest.approx(1.12 * size, rel=0.1)


def test_a_change_of_length_is_followed() -> None:
    lengths = OutputLength()
    for output in [300.0] * 1000 + [1500.0] * 1500:
        lengths.observe("review", 1000.0, output)
    assert lengths.expect("review", 1000.0, 1e30) == pytest.approx(1500.0, rel=0.15)


def test_a_ceiling_cuts_the_mean() -> None:
    lengths = OutputLength()
    draw = Random(4)
    for _ in range(400):
        lengths.observe("review", 1000.0, draw.lognormvariate(6.0, 0.8))
    cut = [min(500.0, draw.lognormvariate(6.0, 0.8)) for _ in range(20_000)]
    assert lengths.expect("review", 1000.0, 500) == pytest.approx(_mean(cut), rel=0.05)
    assert lengths.expect("review", 1000.0, 0) == 0.0


def test_a_stream_that_outruns_the_estimate_raises_it_before_it_ends() -> None:
    lengths = OutputLength()
    for call in range(8):
        lengths.started(call, "review", 1000.0)
        lengths.progressed(call, 3000.0)
    assert lengths.expect("review", 1000.0, 1e30) > 3000.0


def test_streams_far_beyond_the_estimate_do_not_break_the_fit() -> None:
    lengths = OutputLength()
    for _ in range(50):
        lengths.observe("classify", 1000.0, 3.0)
    before = lengths.expect("classify", 1000.0, 1e30)
    for call in range(5):
        lengths.started(call, "classify", 1000.0)
        lengths.progressed(call, 1e9)
    assert 10.0 * before < lengths.expect("classify", 1000.0, 1e30) < 1e9


def test_only_a_call_that_started_later_tells_about_those_in_flight() -> None:
    earlier, later = OutputLength(), OutputLength()
    for lengths, order in ((earlier, (2, 1)), (later, (1, 2))):
        for call in order:
            lengths.started(call, "review", 1000.0)
        lengths.ended(2, 2000.0)
    told = later.expect("review", 1000.0, 1e30)
    assert told > earlier.expect("review", 1000.0, 1e30)


def test_the_longest_call_that_started_later_counts() -> None:
    orders = ([300.0, 900.0, 100.0], [900.0, 300.0, 100.0], [100.0, 300.0, 900.0])
    expected = []
    for outputs in orders:
        lengths = OutputLength()
        for call in range(4):
            lengths.started(call, "review", 1000.0)
        for call, output in enumerate(outputs, start=1):
            lengths.ended(call, output)
        expected.append(lengths.expect("review", 1000.0, 1e30))
    assert max(expected) / min(expected) < 1.02


def test_an_end_that_is_unknown_or_repeated_teaches_nothing() -> None:
    lengths = OutputLength()
    lengths.started(1, "review", 1000.0)
    lengths.ended(1, None)
    lengths.ended(1, 9000.0)
    lengths.ended(2, 9000.0)
    lengths.progressed(2, 9000.0)
    assert lengths.expect("review", 1000.0, 1e30) == pytest.approx(500.0)


def test_a_call_that_starts_again_is_one_call() -> None:
    lengths = OutputLength()
    lengths.started(1, "review", 1000.0)
    lengths.started(1, "classify", 1000.0)
    assert [len(known.flights) for known in lengths._kinds.values()] == [0, 1]


def test_kinds_are_bounded_and_a_forgotten_one_may_still_have_calls() -> None:
    lengths = OutputLength()
    lengths.started(1, "first", 1000.0)
    for number in range(KINDS_MAX):
        lengths.observe(f"kind {number}", 1000.0, 100.0)
    lengths.progressed(1, 10.0)
    lengths.ended(1, 50.0)
    assert len(lengths._kinds) == KINDS_MAX
    assert lengths.expect("first", 1000.0, 4096) == 500.0


def test_of_very_many_calls_in_flight_some_stand_for_all() -> None:
    expected = []
    for calls in (FLIGHTS_MAX // 2, 4 * FLIGHTS_MAX):
        lengths = OutputLength()
        for call in range(calls):
            lengths.started(call, "review", 1000.0)
            lengths.progressed(call, 200.0 + call * 1600.0 / calls)
        for call in range(0, calls, 8):
            lengths.ended(call, 200.0 + call * 1600.0 / calls)
        expected.append(lengths.expect("review", 1000.0, 1e30))
    assert expected[1] == pytest.approx(expected[0], rel=0.3)


def test_sums_that_are_no_numbers_end_the_fit() -> None:
    assert isnan(_fitted((1.0, 0.0, 0.0), [nan] * 6, [])[0])
