"""What is delivered by width: a line at the provider is found, wherever it shows."""

from __future__ import annotations

import heapq
from statistics import median

import pytest
from msgspec import Struct, field

from headway.base.values import Amounts, Demand, Reading, Usage
from headway.pacing.account import QuotaConfig
from headway.pacing.headers import PLAIN
from headway.pacing.latency import (
    ROUND_LEAST,
    STEADY,
    STEADY_AGAIN,
    Congestion,
    Delivery,
)
from headway.pacing.quota import Quota
from headway.pacing.width import (
    Cap,
    Width,
)
from headway.sim.draw import uniform
from tests.unit.steps import cases, perform, value_of

ALONE_S = 0.02
FIRST_BYTE_S = 1.0
PIECE_TOKENS = 10.0
STILL_EVERY_S = 1.1


class Rounds:
    """A width, and a clock that lets rounds of ten seconds pass at it."""

    def __init__(self, width: float, pieces: str = "none") -> None:
        self.width = Width(width, Cap())
        self.now = self.integral = 0.0
        self.width.delivery.sent(1, 0.0, 0.0)
        if pieces == "irregular":
            self.disturb()
        for in_flight in (4, 8, 16) if pieces == "regular" else ():
            for _ in range(4):
                self.width.congestion.sample(in_flight, ALONE_S)

    @property
    def rounds(self) -> int:
        return len(self.width.delivery.rounds)

    def disturb(self) -> None:
        """Pieces of answers come irregularly."""
        self.width.congestion = Congestion()
        for draw in range(16):
            self.width.congestion.sample(4.0, ALONE_S * (0.3 if draw % 2 else 1.7))

    def passed(self, in_flight: float, work_per_s: float) -> None:
        """A round with so many in flight, and so much work per second."""
        self.now += 10.0
        self.integral += 10.0 * in_flight
        ends = max(ROUND_LEAST, round(in_flight))
        for _ in range(ends):
            self.width.ended(work_per_s * 10.0 / ends, self.integral, self.now)

    def lead(self, pieces: float, in_flight: float | None = None) -> None:
        """Pieces come as quickly as a call that is alone has them."""
        for _ in range(int(pieces)):
            allowed = self.width.allowed
            self.width.moved(allowed, int(in_flight or round(allowed)), ALONE_S)


CASES = """
round, mean in flight and work per second: Delivery
    sent 1 0 5; sent 2 7 6; 3x ended 100 40 15 = None; ended 100 40 15 = 4 at 40
round of no time goes on: Delivery
    sent 1 0 5; 8x ended 100 0 5 = None; ended 100 5 10 = 1 at 180
round of pieces, when every answer has moved for a while: Delivery
    sent 1 0 0; 48x moved 10 12 2 2 = None; moved 20 24 4 2 = 6 at 125; 47x moved 10 48 8 2 = None;
    moved 10 48 8 2 = 6 at 120
pause is no part of a round: Delivery
    sent 1 0 0; 3x ended 100 40 10 = None; sent 1 40 11; ended 100 44 20 = 2.2 at 20;
    sent 1 44 3600; 3x ended 100 84 3610 = None; ended 100 84 3610 = 4 at 40
round in which the width changed does not count: Rounds inf
    passed 4 10; width.delivery.changed; passed 6 10; rounds = 1; passed 6 10;
    rounds = 2
elasticity without rounds, or rounds near: Rounds inf
    width.delivery.elasticity 4 = 1; passed 4 8; passed 6 8; width.delivery.elasticity 60 = 1
elasticity without congestion: Rounds inf
    passed 4 4; passed 6 6; passed 9 9; width.delivery.elasticity 9 = 1
elasticity in a line: Rounds inf
    passed 6 8; passed 9 8; passed 13 8; width.delivery.elasticity 9 = 0.032346894
elasticity beyond a peak: Rounds inf
    passed 6 8; passed 9 7; passed 13 5; width.delivery.elasticity 9 = -0.551270386
width that is used and shows no peak grows each round: Rounds 4
    3x width.moved 4 4 0.02 = False; width.moved 4 4 0.02 = True; width.limit 0 100 0 = 6;
    width.reason = no slower with more at once
width that is not used does not grow: Rounds 4
    99x width.moved 2 4 0.02 = False; 99x width.moved 4 2 0.02 = False; width.allowed = 4
irregular pieces, back to what whole answers confirmed: Rounds 4
    lead 4; width.allowed = 6; disturb; width.moved 6 6 0.02 = True; width.allowed = 4;
    width.moved 4 4 0.02 = False; width.reason = pieces of answers come irregularly
irregular pieces, whole answers move the width: Rounds 4 irregular
    passed 4 4; width.allowed = 6; width.reason = throughput follows the width by 1.0; passed 6 4;
    width.allowed = 6; passed 6 4; width.allowed = 5.615526627
irregular pieces, a width that is not used: Rounds 8 irregular
    passed 4 4; width.allowed = 8
line at the provider: Rounds 16 regular
    passed 16 400; width.allowed = 8; width.reason = more wait in line at the provider
provider that is mostly idle has no line: Rounds 4 regular
    passed 0.2 10; width.allowed = 4
more at once that deliver no more are taken back: Rounds 8 regular
    passed 7 400; passed 8 400; passed 9 400; passed 10 400; passed 10 400;
    width.delivery.elasticity 9 = 0.09595378; width.allowed = 7.021955853
pieces lead six times as far as the start, then twice as far as a round confirmed: Rounds 4 regular
    lead 40; width.allowed = 24; 2x passed 24 1200; lead 40; width.allowed = 48
pieces do not lead where whole answers speak against it: Rounds inf regular
    passed 6 8; passed 9 8; passed 13 8; set width.allowed 8; lead 40; width.allowed = 8
overdue first bytes: Rounds 16 regular
    width.moved 10 16 0.02 6 = False
overdue first bytes, not below what is confirmed: Rounds 4 regular
    lead 12 100; width.allowed = 13.5; width.moved 8 14 0.02 6 = True; width.allowed = 8;
    width.moved 2 8 0.02 6 = True; width.allowed = 4;
    width.reason = more wait in line at the provider
"""


@pytest.mark.parametrize(("maker", "steps"), cases(CASES))
def test_the_width_follows_what_is_delivered(maker: str, steps: str) -> None:
    name, *given = maker.split()
    perform(Rounds(*map(value_of, given)) if name == "Rounds" else Delivery(), steps)


def test_irregular_pieces_are_trusted_again_when_a_round_finds_them_quite_regular() -> None:
    congestion = Rounds(4.0, "irregular").width.congestion
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
