"""What is delivered by width: a line at the provider is found, wherever it shows."""

from __future__ import annotations

import heapq
from math import inf
from statistics import median

import pytest
from msgspec import Struct, field

from headway.base.values import Amounts, Demand, Reading, Usage
from headway.pacing.account import QuotaConfig
from headway.pacing.headers import PLAIN
from headway.pacing.latency import (
    PAUSE_S,
    ROUND_LEAST,
    ROUND_MOVES,
    STEADY,
    STEADY_AGAIN,
    Congestion,
    Delivery,
)
from headway.pacing.quota import Quota
from headway.pacing.width import (
    ELASTIC,
    LEAP,
    LEAP_LATER,
    ROUND_GROWTH,
    ROUND_PIECES,
    Cap,
    Width,
)
from headway.sim.draw import uniform

ALONE_S = 0.02
FIRST_BYTE_S = 1.0
PIECE_TOKENS = 10.0
STILL_EVERY_S = 1.1


class _Rounds:
    """A clock that lets rounds of ten seconds pass at a width."""

    def __init__(self, width: Width) -> None:
        self.width = width
        self.now = self.integral = 0.0
        width.delivery.sent(1, 0.0, 0.0)

    def pass_one(self, in_flight: float, work_per_s: float) -> None:
        """So many in flight, so much work per second."""
        self.now += 10.0
        self.integral += 10.0 * in_flight
        ends = max(ROUND_LEAST, round(in_flight))
        for _ in range(ends):
            self.width.ended(work_per_s * 10.0 / ends, self.integral, self.now)


def _delivered(*rounds: tuple[float, float]) -> Delivery:
    """Rounds at an unlimited width, which nothing moves."""
    clock = _Rounds(Width(inf, Cap()))
    for in_flight, work_per_s in rounds:
        clock.pass_one(in_flight, work_per_s)
    return clock.width.delivery


def test_a_round_tells_the_mean_in_flight_and_the_work_per_second() -> None:
    delivery = Delivery()
    delivery.sent(1, 0.0, 5.0)
    delivery.sent(2, 7.0, 6.0)
    assert [delivery.ended(100.0, 40.0, 15.0) for _ in range(3)] == [None] * 3
    done = delivery.ended(100.0, 40.0, 15.0)
    assert done is not None
    assert (done.in_flight, done.work_per_s) == (4.0, 40.0)


def test_a_round_that_took_no_time_goes_on() -> None:
    delivery = Delivery()
    delivery.sent(1, 0.0, 5.0)
    assert all(delivery.ended(100.0, 0.0, 5.0) is None for _ in range(8))
    assert delivery.ended(100.0, 5.0, 10.0) is not None


def test_a_round_is_complete_as_well_when_every_answer_has_moved_for_a_while() -> None:
    delivery = Delivery()
    delivery.sent(1, 0.0, 0.0)
    moves = ROUND_MOVES * 6
    assert all(delivery.moved(10.0, 12.0, 2.0, 2.0) is None for _ in range(moves))
    done = delivery.moved(20.0, 24.0, 4.0, 2.0)
    assert done is not None
    assert (done.in_flight, done.work_per_s) == (6.0, (10.0 * moves + 20.0) / 4.0)
    assert all(delivery.moved(10.0, 48.0, 8.0, 2.0) is None for _ in range(moves - 1))
    assert delivery.moved(10.0, 48.0, 8.0, 2.0) is not None


def test_a_pause_is_no_part_of_a_round() -> None:
    delivery = Delivery()
    delivery.sent(1, 0.0, 0.0)
    for _ in range(3):
        delivery.ended(100.0, 40.0, 10.0)
    # One after the other is no pause, an hour is one.
    delivery.sent(1, 40.0, 10.0 + PAUSE_S)
    assert delivery.ended(100.0, 44.0, 20.0) is not None
    delivery.sent(1, 44.0, 3600.0)
    done = [delivery.ended(100.0, 84.0, 3610.0) for _ in range(4)][-1]
    assert done is not None
    assert (done.in_flight, done.work_per_s) == (4.0, 40.0)


def test_a_round_in_which_the_width_changed_does_not_count() -> None:
    clock = _Rounds(Width(inf, Cap()))
    delivery = clock.width.delivery
    clock.pass_one(4.0, 10.0)
    delivery.changed()
    clock.pass_one(6.0, 10.0)
    assert delivery.rounds == 1
    clock.pass_one(6.0, 10.0)
    assert delivery.rounds == 2


@pytest.mark.parametrize(
    ("rounds", "least", "most"),
    [
        (((4.0, 4.0), (6.0, 6.0), (9.0, 9.0)), 0.95, 1.05),
        (((6.0, 8.0), (9.0, 8.0), (13.0, 8.0)), -0.05, 0.15),
        (((6.0, 8.0), (9.0, 7.0), (13.0, 5.0)), -1.0, -0.3),
    ],
)
def test_elasticity_is_one_without_congestion_nothing_in_a_line_and_less_beyond_a_peak(
    rounds: tuple[tuple[float, float], ...], least: float, most: float
) -> None:
    delivery = _delivered(*rounds)
    assert least <= delivery.elasticity(9.0) <= most
    assert delivery.rounds == 3


def _unsteady() -> Congestion:
    congestion = Congestion()
    for draw in range(16):
        congestion.sample(4.0, ALONE_S * (0.3 if draw % 2 else 1.7))
    return congestion


def test_irregular_pieces_are_trusted_again_when_a_round_finds_them_quite_regular() -> None:
    congestion = _unsteady()
    assert not congestion.is_steady
    for turn in range(400):
        off = (STEADY + STEADY_AGAIN) / 2 * (1 if turn % 2 else -1)
        congestion.sample(4.0, ALONE_S * (1.0 + off))
    assert not congestion.is_steady
    congestion.trust_again()
    assert not congestion.is_steady
    for _ in range(400):
        congestion.sample(4.0, ALONE_S)
    assert not congestion.is_steady
    congestion.trust_again()
    assert congestion.is_steady


def test_pieces_that_were_held_up_now_and_then_are_regular_all_the_same() -> None:
    congestion = Congestion()
    for piece in range(200):
        # One in sixteen is three times as slow, and what it held up comes at once with the next.
        slower = {14: 3.0, 15: 0.3}.get(piece % 16, 1.0)
        congestion.sample(4.0 + piece % 3, ALONE_S * slower)
        assert congestion.is_steady


def test_where_pieces_are_irregular_the_width_goes_back_to_what_whole_answers_confirmed() -> None:
    width = Width(4.0, Cap())
    for _ in range(ROUND_PIECES):
        width.moved(4.0, 4, ALONE_S)
    assert width.allowed == 6.0
    width.congestion = _unsteady()
    assert width.moved(6.0, 6, ALONE_S)
    assert width.allowed == 4.0
    assert not width.moved(4.0, 4, ALONE_S)
    assert width.reason == "pieces of answers come irregularly"


def test_where_pieces_are_irregular_whole_answers_move_the_width() -> None:
    clock = _Rounds(Width(4.0, Cap()))
    clock.width.congestion = _unsteady()
    clock.pass_one(4.0, 4.0)
    assert clock.width.allowed == 4.0 * ROUND_GROWTH
    assert clock.width.reason == "throughput follows the width by 1.0"
    # The first round after a change does not count; then more at once do no more.
    for _ in range(2):
        clock.pass_one(6.0, 4.0)
    assert clock.width.allowed < 6.0


def test_a_width_that_is_not_used_is_not_moved_by_whole_answers() -> None:
    clock = _Rounds(Width(8.0, Cap()))
    clock.width.congestion = _unsteady()
    clock.pass_one(4.0, 4.0)
    assert clock.width.allowed == 8.0


def _steady(width: float) -> Width:
    """A width whose pieces tell the same time per token in any company."""
    made = Width(width, Cap())
    for in_flight in (4, 8, 16):
        for _ in range(4):
            made.congestion.sample(in_flight, ALONE_S)
    return made


def test_less_served_than_in_flight_is_a_line_and_the_width_falls_to_what_was_served() -> None:
    clock = _Rounds(_steady(16.0))
    clock.pass_one(16.0, 8.0 / ALONE_S)
    assert clock.width.allowed == pytest.approx(8.0)
    assert clock.width.reason == "more wait in line at the provider"


def test_a_provider_that_is_mostly_idle_has_no_line() -> None:
    clock = _Rounds(_steady(4.0))
    clock.pass_one(0.2, 0.2 / ALONE_S)
    assert clock.width.allowed == 4.0


def test_more_at_once_that_deliver_no_more_are_taken_back_where_pieces_show_nothing() -> None:
    clock = _Rounds(_steady(8.0))
    for in_flight in (7.0, 8.0, 9.0, 10.0, 10.0):
        clock.pass_one(in_flight, 8.0 / ALONE_S)
    assert clock.width.delivery.elasticity(9.0) < ELASTIC
    assert clock.width.allowed < 8.0


def test_pieces_lead_six_times_as_far_as_start_and_twice_as_far_as_a_round_confirmed() -> None:
    clock = _Rounds(_steady(4.0))
    width = clock.width
    for _ in range(40):
        allowed = width.allowed
        width.moved(allowed, round(allowed), ALONE_S)
    assert width.allowed == 4.0 * LEAP
    for _ in range(2):
        clock.pass_one(24.0, 24.0 / ALONE_S)
    for _ in range(40):
        allowed = width.allowed
        width.moved(allowed, round(allowed), ALONE_S)
    assert width.allowed == 24.0 * LEAP_LATER


def test_pieces_do_not_lead_where_whole_answers_speak_against_it() -> None:
    width = _steady(8.0)
    width.delivery = _delivered((6.0, 8.0), (9.0, 8.0), (13.0, 8.0))
    assert not any(width.moved(8.0, 8, ALONE_S) for _ in range(40))


def test_first_bytes_that_are_overdue_take_the_width_back_but_not_below_what_is_confirmed() -> None:
    width = _steady(16.0)
    assert not width.moved(10.0, 16, ALONE_S, 6)
    width = _steady(4.0)
    for _ in range(3 * ROUND_PIECES):
        width.moved(width.allowed, 100, ALONE_S)
    assert width.allowed == 13.5
    assert width.moved(8.0, 14, ALONE_S, 6)
    assert width.allowed == 8.0
    assert width.moved(2.0, 8, ALONE_S, 6)
    assert width.allowed == 4.0
    assert width.reason == "more wait in line at the provider"


class _Places(Struct):
    """A provider that serves so many at once at full speed and lets the others wait inside."""

    places: int
    noise: float = 0.0
    is_whole: bool = False
    headers_first: bool = False
    """Headers come at once with a place, and what they promise takes its time."""
    still_s: float = 0.0
    """The client stands still so long, once in a while: what comes meanwhile is seen afterwards."""
    _due: list[tuple[float, int, str, float]] = field(default_factory=list)
    _line: list[int] = field(default_factory=list)
    _busy: int = 0

    def take(self, call: int, now: float) -> None:
        if self._busy == self.places:
            self._line.append(call)
            return
        self._busy += 1
        tokens = 100.0 + 200.0 * uniform(5, 1, call)
        at_s = now + FIRST_BYTE_S * self._luck(call, 0.0)
        shown = PIECE_TOKENS
        if not self.is_whole:
            begins_s = now + 0.001 if self.headers_first else at_s
            heapq.heappush(self._due, (begins_s, call, "began", 0.0))
        while shown < tokens:
            at_s += PIECE_TOKENS * ALONE_S * self._luck(call, shown)
            heapq.heappush(self._due, (at_s, call, "moved", shown))
            shown += PIECE_TOKENS
        last_s = (tokens - shown + PIECE_TOKENS) * ALONE_S
        heapq.heappush(self._due, (at_s + last_s, call, "over", tokens))

    def _luck(self, call: int, shown: float) -> float:
        return 1.0 + self.noise * (uniform(5, 2, 1000 * call + int(shown)) - 0.5)

    def _seen_s(self, at_s: float) -> float:
        """When the client sees what happens at this time."""
        since_s = at_s % STILL_EVERY_S
        return at_s + max(0.0, self.still_s - since_s)

    def run(self, calls: int) -> tuple[float, list[float], int]:
        """How long it took, the width after each answer, and the most that were in flight."""
        quota, now, most = Quota(QuotaConfig(PLAIN), 0.0), 0.0, 0
        demand = Demand(Amounts(100, 200), Amounts(100, 400), "", is_whole=self.is_whole)
        for _ in range(calls):
            quota.ask(demand)
        widths: list[float] = []
        while len(widths) < calls:
            decision = quota.decide(now)
            for grant in decision.grants:
                self.take(grant.permit.id, now)
            most = max(most, quota.in_flight)
            if not self._due or decision.wake_s < self._due[0][0]:
                now = self._seen_s(decision.wake_s)
                continue
            at_s, call, kind, tokens = heapq.heappop(self._due)
            now = max(now, self._seen_s(at_s))
            if kind == "began":
                quota.first_byte(call, Reading(), now)
            elif kind == "moved":
                quota.progress(call, tokens, now)
            else:
                quota.settle(call, "used", Usage(Amounts(100, tokens)), now)
                widths.append(quota.belief.width.allowed)
                self._busy -= 1
                if self._line:
                    self.take(self._line.pop(0), at_s)
        return now, widths, most


BEST_S = FIRST_BYTE_S + 200.0 * ALONE_S
"""A call of mean length, alone."""


@pytest.mark.parametrize("provider", [
    _Places(8), _Places(8, noise=0.5), _Places(8, is_whole=True), _Places(8, headers_first=True),
    _Places(8, noise=1.0),
], ids=["regular", "irregular", "whole", "headers-first", "rough"])  # fmt: skip
def test_the_width_settles_near_the_places_of_a_provider_that_lets_the_others_wait_inside(
    provider: _Places,
) -> None:
    took_s, widths, most = provider.run(300)
    settled = widths[len(widths) // 3 :]
    assert 0.7 * 8 <= median(settled) <= 2.0 * 8
    assert most <= 6 * 4
    assert took_s <= 1.12 * 300 * BEST_S / 8


def test_a_provider_with_many_places_is_filled() -> None:
    took_s, widths, _ = _Places(32).run(1000)
    assert median(widths[500:]) >= 0.8 * 32
    assert took_s <= 1.15 * 1000 * BEST_S / 32


def test_a_client_that_stands_still_for_moments_fills_a_provider_all_the_same() -> None:
    took_s, widths, _ = _Places(32, still_s=0.45).run(300)
    assert widths[100] >= 0.8 * 32
    assert took_s <= 1.5 * 300 * BEST_S / 32
