"""Paces an account whose provider reports no limits.

Laws:
- Until the first refusal nothing is held back.
- Refusals of calls that were sent before the last refusal arrived are the same signal.
- At a refusal the short resource is (nearly) empty. What is let in between two refusals proves
  a rate from below, and the second refusal bounds it from above: the interval is a bracket.
- The resource whose brackets contradict each other least is blamed, and it alone paces.
- Too many at once is another suspect: it is cleared when more were in flight and served, or when
  fewer were in flight and one was refused.
- A bound that has not been confirmed for a while is pushed, slowly, then faster: limits rise too.
- A long drought that ends at once is a window: after it, nothing is held back again.
"""

from __future__ import annotations

from math import inf
from typing import Final, Literal

from headway.base.values import MINUTE_S, Amounts, Demand

PROBE_S: Final = 1.0
PROBE_S_MAX: Final = 8.0
"""After refusals in a row the next try is 1, 2, 4, then every 8 s."""

FADING: Final = 0.03
"""An older bracket is this much wider at each new one: limits drift."""

DROUGHT_S: Final = 6.0
"""So long without refill, at a limit that refilled before, and it is a window."""

INTERVAL_S_MIN: Final = 1.0

PUSH_AFTER_S: Final = 12.0
"""A bound is pushed by the square of the time since the last refusal, in these units..."""

PUSH: Final = 0.02
"""...times this share."""

PUSH_SOONEST_S: Final = 3.0
"""A small bucket is pushed sooner: while it is full, refill is lost and no refusal tells."""

ALARMS_MAX: Final = 3
ALARM_MEMORY_S: Final = 60.0
"""How often too many at once is suspected wrongly before it is suspected no more for a while."""

RESOURCES: Final = ("input", "reserved", "output", "requests")
"""In the order of blame while nothing tells them apart; `reserved`: input and `max_tokens`."""

Blame = Literal["rate", "crowd", "same"]
"""A rate was short; too many were in flight; or the refusal belongs to the signal before."""


class Bracket:
    """One resource's rate, between what was let in and what was refused."""

    def __init__(self) -> None:
        self.anchor_s = inf
        self.burst = 0.0
        self.low = 0.0
        self.high = inf
        self.contradictions = 0.0
        self._slack = 0.0
        self._spent = 0.0
        self._confirmed = 0.0

    def spend(self, amount: float) -> None:
        """Sent, and not known yet whether it was let in."""
        self._spent += amount

    def take_back(self, amount: float, sent_s: float) -> None:
        """It did not run; what was sent before the last refusal is forgotten already."""
        if sent_s > self.anchor_s or self.anchor_s == inf:
            self._spent -= amount

    def confirm(self, amount: float, sent_s: float) -> None:
        self._confirmed += amount
        elapsed = sent_s - self.anchor_s
        if elapsed > PROBE_S:
            self.low = max(self.low, (self._confirmed - self._slack) / elapsed)

    def refused(self, need: float, now: float) -> None:
        """The resource is taken to be empty now: close an interval, begin another."""
        elapsed = now - self.anchor_s
        if self.anchor_s == inf:
            self.burst = self._spent
        elif elapsed < INTERVAL_S_MIN:
            return
        else:
            upper = max((self._spent + need) / elapsed, need / MINUTE_S)
            self.high = min(self.high * (1 + FADING), upper)
            self.contradictions *= 1 - FADING
            if self.low > self.high:
                self.contradictions += min(1.0, self.low / self.high - 1.0)
                self.low = max(0.0, self._confirmed - self._slack) / elapsed
                self.high = upper
            self.low *= 1 - FADING
        self.anchor_s = now
        self._slack = need
        self._spent = self._confirmed = 0.0

    def when(self, need: float, push: float, now: float) -> float:
        """When the guessed rate has refilled enough. What exceeds the burst once seen is lost."""
        if self.high == inf:
            rate = max(2.0 * self.low, need / PROBE_S)
        else:
            rate = max((self.low + self.high) / 2.0 * (1.0 + push), self.low, need / MINUTE_S)
        level = rate * (now - self.anchor_s) - self._spent
        most = max(need, self.burst)
        # The guess moves: what it made of the past must not weigh more than one burst.
        lost = level - min(max(level, -most), most)
        self._spent += lost
        self._confirmed += lost
        level -= lost
        return now if level >= need else now + (need - level) / rate

    def doubt(self) -> tuple[float, float]:
        """How little this resource looks like the limited one: contradictions, then width."""
        return (round(self.contradictions, 1), self.high / self.low if self.low > 0 else inf)


class Blind:
    """All brackets of an account whose limits are hidden, and whom to blame."""

    def __init__(self, now: float) -> None:
        self._brackets = {name: Bracket() for name in RESOURCES}
        self._blamed = RESOURCES[0]
        self._refused_s = -inf
        self._row = 0
        self._tried_s = now
        self._last_ok_s = now
        self._widest = 0
        self._alarms = 0
        self._alarm_s = -inf
        self._crowded = False
        self.refusals = 0

    def when(self, demand: Demand, now: float) -> float:
        """The earliest time at which the call should be tried."""
        if self._row:
            return max(now, self._tried_s + min(PROBE_S_MAX, PROBE_S * 2.0 ** (self._row - 1)))
        bracket = self._brackets[self._blamed]
        if bracket.anchor_s == inf:
            return now
        patience_s = PUSH_AFTER_S
        if bracket.low > 0:
            patience_s = min(patience_s, max(PUSH_SOONEST_S, 2.0 * bracket.burst / bracket.low))
        push = PUSH * ((now - self._refused_s) / patience_s) ** 2
        return bracket.when(_need(self._blamed, demand), min(1.0, push), now)

    def granted(self, demand: Demand, now: float) -> None:
        self._tried_s = now
        for name, bracket in self._brackets.items():
            bracket.spend(_need(name, demand))

    def returned(self, demand: Demand, sent_s: float) -> None:
        """A call did not run: refused, or never sent."""
        for name, bracket in self._brackets.items():
            bracket.take_back(_need(name, demand), sent_s)

    def accepted(
        self, demand: Demand, sent_s: float, in_flight: int, now: float
    ) -> Literal["crowd", "burst"] | None:
        """A response began: its call was let in. Says which suspicion that clears, if any."""
        wider = in_flight > self._widest
        self._widest = max(self._widest, in_flight)
        if sent_s <= self._refused_s:
            return None
        drought = self._row >= 2 and sent_s - self._last_ok_s > DROUGHT_S
        self._row = 0
        self._last_ok_s = now
        if drought:
            self._brackets = {name: Bracket() for name in RESOURCES}
        for name, bracket in self._brackets.items():
            bracket.confirm(_need(name, demand), sent_s)
        cleared = wider and self._crowded
        if cleared:
            self._clear_crowd(now)
        if drought:
            return "burst"
        return "crowd" if cleared else None

    def refused(self, demand: Demand, sent_s: float, in_flight: int, now: float) -> Blame:
        """A refusal without a name: whom to blame."""
        self.refusals += 1
        if sent_s <= self._refused_s:
            return "same"
        self._refused_s = now
        if now - self._alarm_s > ALARM_MEMORY_S:
            self._alarms = 0
        if in_flight >= self._widest and self._row == 0 and self._alarms < ALARMS_MAX:
            self._crowded = True
            return "crowd"
        self._clear_crowd(now)
        self._row += 1
        for name, bracket in self._brackets.items():
            bracket.refused(_need(name, demand), now)
        self._blamed = min(RESOURCES, key=lambda name: self._brackets[name].doubt())
        return "rate"

    def _clear_crowd(self, now: float) -> None:
        """Too many at once was not the cause, if it was suspected."""
        if self._crowded:
            self._alarms += 1
            self._alarm_s = now
            self._crowded = False

    def settled(self, demand: Demand, used: Amounts) -> None:
        """What the call really took replaces what was expected."""
        self._brackets["output"].spend(used.output_tokens - demand.expected.output_tokens)
        self._brackets["reserved"].spend(used.output_tokens - demand.ceiling.output_tokens)


def _need(name: str, demand: Demand) -> float:
    if name == "requests":
        return 1.0
    if name == "reserved":
        return demand.expected.input_tokens + demand.ceiling.output_tokens
    return demand.expected.input_tokens if name == "input" else demand.expected.output_tokens
