"""A provider that lets calls wait inside: at least as many are sent as it serves at once."""

from __future__ import annotations

import heapq
from statistics import median

import pytest
from msgspec import Struct, field

from headway.base.values import Amounts, Demand, Reading
from headway.pacing.account import AccountConfig
from headway.pacing.call import Call
from headway.pacing.calls import AccountCalls
from headway.pacing.headers import PLAIN
from headway.sim.draw import uniform

ALONE_S = 0.02
FIRST_BYTE_S = 1.0
PIECE_TOKENS = 10.0
STILL_EVERY_S = 1.1


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
        account, now, most = AccountCalls(AccountConfig(PLAIN), 0.0), 0.0, 0
        demand = Demand(Amounts(100, 200), Amounts(100, 400), "", is_whole=self.is_whole)
        known = [Call(("", number), demand=demand) for number in range(calls)]
        for one in known:
            account.ask(one)
        widths: list[float] = []
        while len(widths) < calls:
            decision = account.decide(now)
            for sent in decision.sent:
                self.take(sent.id[1], now)
            most = max(most, len(account.in_flight))
            if not self._due or decision.wake_s < self._due[0][0]:
                now = self._seen_s(decision.wake_s)
                continue
            at_s, call, kind, tokens = heapq.heappop(self._due)
            now = max(now, self._seen_s(at_s))
            if kind == "began":
                account.first_byte(known[call], Reading(), now)
            elif kind == "moved":
                account.progress(known[call], tokens, now)
            else:
                account.settle(known[call], "used", Amounts(100, tokens), now)
                widths.append(account.account.width.allowed)
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
def test_the_places_of_a_provider_that_lets_the_others_wait_inside_are_filled(
    provider: _Places,
) -> None:
    took_s, widths, most = provider.run(300)
    assert median(widths[len(widths) // 3 :]) >= 0.7 * 8
    assert took_s <= 1.12 * 300 * BEST_S / 8
    # The pieces of those that are served do not tell that others wait inside.
    assert most <= (7 * 8 if provider.is_whole else 300)


def test_a_provider_with_many_places_is_filled() -> None:
    took_s, widths, _ = _Places(32).run(1000)
    assert median(widths[500:]) >= 0.8 * 32
    assert took_s <= 1.15 * 1000 * BEST_S / 32


def test_a_client_that_stands_still_for_moments_fills_a_provider_all_the_same() -> None:
    took_s, widths, _ = _Places(32, still_s=0.45).run(300)
    assert widths[100] >= 0.8 * 32
    assert took_s <= 1.5 * 300 * BEST_S / 32
