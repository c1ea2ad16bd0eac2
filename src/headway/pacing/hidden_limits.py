"""Paces an account whose provider refuses calls by limits that it does not report.

Laws:
- Until the first refusal nothing is held back.
- Refusals of calls that were sent before the last refusal arrived are the same signal.
- After a refusal calls wait as long as the provider said or, tried ever less often, until one is
  let in; then they leave one by one until the next refusal. A try that is not refused at once was
  let in: its answer may begin long after. What was let in from one refusal to the next gives a
  rate. Buckets and windows of both kinds keep to it in the long run.
- When two rates in a row agree, of the resource for which they agree best, calls are paced by it.
- A rate that has not been confirmed for a while is pushed, slowly, then faster: limits rise too.
- Too many at once is another suspect where nothing was said of a wait: it is cleared when more were
  in flight and served, or when fewer were in flight and one was refused.
- Advice to wait is tried early, once, where a refusal is free. If a call is let in before the wait
  is over, or the end of the wait moves with the clock, the advice is inflated and not heeded.
"""

from __future__ import annotations

from math import inf, log
from typing import Final, Literal

from headway.base.values import Amounts, Demand

PROBE_S: Final = 1.0
PROBE_S_MAX: Final = 2.0
"""After refusals in a row the next try is 1 s, then every 2 s: a limit of 20 in 10 s takes 1.08 of
the bound; 1.25, with 7 s idle, where tries are 8 s apart."""
VENTURE_S: Final = 0.05
"""While no rate is known calls leave this far apart after a refusal: the next one stops all."""
INTERVAL_S_MIN: Final = 1.0
"""A rate is measured over at least this long."""
AGREES: Final = 0.3
"""Two rates agree whose logarithms differ by less."""
CHANGED: Final = 0.6
"""A rate that is off by more than this logarithm has changed."""
LOWERED: Final = 0.9
REACHED: Final = 0.85
"""A refusal lowers a rate to no less than this share of itself, and of what it was pushed to: the
mean since the last refusal counts the time in which less was tried. With the mean alone seven
hidden limits of ten take 2 % longer."""
LATER_S: Final = 0.1
"""Advice of a second or two that was heeded and refused again is prolonged by this much each time:
tries at a steady pace can meet a neighbour's bursts every time (22 tasks: 82 s instead of 25)."""
PUSH_AFTER_S: Final = 12.0
"""A rate is pushed by the cube of the time since the last refusal, in these units: with the square
a limit that was raised four times took 218 s in place of 144..."""
PUSH: Final = 0.02
"""...times this share."""
PUSH_SOONEST_S: Final = 3.0
"""A small bucket is pushed sooner: while it is full, refill is lost and no refusal tells."""
ALARMS_MAX: Final = 3
ALARM_MEMORY_S: Final = 60.0
"""How often too many at once is suspected wrongly before it is suspected no more for a while."""
UNVERIFIED_S: Final = 5.0
"""Advice that was never seen to be true is tried after this long, once."""
FIGURE: Final = 0.05
"""A wait is over when less than this share of it is left."""
TOLD_APART_S: Final = 2.0
"""Advice is told in whole seconds: what was told sooner than this after the first says nothing."""
RESOURCES: Final = ("requests", "input", "output", "reserved")
"""In the order of blame while nothing tells them apart; `reserved`: input and `max_tokens`."""
KnownRate = tuple[str, float, float]
"""A resource, its rate, and how much was let in at once."""
Suspect = Literal["rate", "crowd", "same"]
"""A rate was short; too many were in flight; or the refusal belongs to the signal before."""


class RetryAdvice:
    """Whether the provider's words on how long to wait are to be heeded."""

    def __init__(self) -> None:
        self.is_inflated = False
        self.is_honest = False
        self._said_s = -inf
        self._until_s = -inf
        self._wait_s = 0.0
        self._row = 0
        """Refusals in a row: no call was let in that was sent with the last one, or later."""
        self._refused_s = self._tried_s = -inf
        """When the last of them came, and when its call was sent."""

    def heeded_s(
        self, told_s: float | None, sent_s: float, may_try: bool, now: float
    ) -> float | None:
        """How long to wait after a refusal that says `told_s`; None if that says nothing."""
        row = self._row
        if sent_s > self._refused_s:
            self._refused_s, self._tried_s, self._row = now, sent_s, row + 1
        if told_s is None or self.is_inflated:
            return None
        since_s = now - self._said_s
        is_early = now < self._until_s - FIGURE * self._wait_s
        if self._said_s < sent_s and is_early and since_s >= TOLD_APART_S:
            # Refused before the wait was over: its end stays where it was, or moves with the clock.
            self.is_inflated = now + told_s - self._until_s > since_s / 2.0
            self.is_honest = not self.is_inflated
        if now + told_s > self._until_s and (self.is_honest or not is_early):
            self._said_s, self._until_s, self._wait_s = now, now + told_s, told_s
        if self.is_inflated:
            return None
        if told_s <= TOLD_APART_S:
            return told_s + LATER_S * row
        if self.is_honest or not may_try or told_s <= UNVERIFIED_S:
            return told_s
        return UNVERIFIED_S

    def accepted(self, sent_s: float) -> None:
        """A call was let in that was sent then."""
        if sent_s >= self._tried_s:
            self._row = 0
        if self._said_s < sent_s < self._until_s - FIGURE * self._wait_s - PROBE_S:
            self.is_inflated = True


class Refill:
    """One resource: what was let in since the last refusal, and the rates from one to the next."""

    def __init__(self) -> None:
        self.burst = 0.0
        """What was let in before the first refusal."""
        self.rate = 0.0
        self.doubt = inf
        """By how much the last two rates differ, as a logarithm."""
        self.spent = 0.0
        self.level = 0.0
        """What there is by the rate, at a time."""
        self.at_s = 0.0

    def fill(self, push: float, most: float, now: float) -> float:
        """What there is now; what exceeds the burst once seen is lost."""
        if now > self.at_s:
            self.level = min(most, self.level + self.rate * (1.0 + push) * (now - self.at_s))
            self.at_s = now
        return self.level

    def take(self, amount: float) -> None:
        self.spent += amount
        self.level -= amount

    def close(self, lasted_s: float, keeps: float) -> None:
        """A refusal, so long after the last. The rate falls at most to the share `keeps`."""
        rate = max(self.spent / lasted_s, keeps * self.rate)
        if rate > 0:
            off = abs(log(rate / self.rate)) if self.rate > 0 else inf
            self.doubt = off if self.doubt == inf else (self.doubt + off) / 2.0
            self.rate = rate


class HiddenLimits:
    """The rates of an account whose limits are hidden, and the resource that is short."""

    def __init__(self, now: float, known: KnownRate | None = None) -> None:
        self._refills = {name: Refill() for name in RESOURCES}
        self._blamed = ""
        """The resource that paces; nothing while no two rates agree."""
        self._since_s = inf
        """When the last interval began: at the end of the last refusal's wait."""
        self._refused_s = -inf
        self._began_s = -inf
        """When the first interval began: what was sent before is the burst."""
        self._short_s = -inf
        """When a rate was last short."""
        self._ready_s = -inf
        """Until when the provider asked to wait."""
        self._row = 0
        """Refusals since a call was let in."""
        self._tried_s = now
        self._widest = 0
        self._alarms = 0
        self._alarm_s = -inf
        self._crowded = False
        self.refusals = 0
        if known is not None:
            self._blamed, rate, burst = known
            refill = self._refills[self._blamed]
            refill.rate, refill.burst, refill.doubt = rate, burst, 0.0
            refill.level, refill.at_s = burst, now
            self._since_s = self._short_s = now

    @property
    def known(self) -> KnownRate | None:
        """What the next run may start with."""
        if not self._blamed:
            return None
        refill = self._refills[self._blamed]
        return self._blamed, refill.rate, refill.burst

    def when(self, demand: Demand, now: float) -> float:
        """The earliest time at which the call should be tried."""
        if self._since_s == inf:
            return now
        if now < self._ready_s:
            return self._ready_s
        if self._row and self._ready_s <= self._refused_s:
            return max(now, self._tried_s + (PROBE_S if self._row == 1 else PROBE_S_MAX))
        if not self._blamed:
            return max(now, self._tried_s + VENTURE_S)
        refill, need = self._refills[self._blamed], _need(self._blamed, demand)
        push = self._push(now)
        missing = need - refill.fill(push, max(need, refill.burst), now)
        return now if missing <= 0 else now + missing / (refill.rate * (1.0 + push))

    def _push(self, now: float) -> float:
        """By which share the rate that paces is exceeded."""
        refill = self._refills[self._blamed]
        patience_s = min(PUSH_AFTER_S, max(PUSH_SOONEST_S, 2.0 * refill.burst / refill.rate))
        return PUSH * ((now - self._short_s) / patience_s) ** 3

    def granted(self, demand: Demand, now: float) -> None:
        if self._tried_s > self._refused_s and now >= self._tried_s + PROBE_S:
            self._row = 0
        self._tried_s = now
        for name, refill in self._refills.items():
            refill.take(_need(name, demand))

    def returned(self, demand: Demand, sent_s: float) -> None:
        """A call did not run: refused, or never sent."""
        if sent_s > self._refused_s:
            for name, refill in self._refills.items():
                refill.take(-_need(name, demand))

    def accepted(self, sent_s: float, in_flight: int, now: float) -> Literal["crowd"] | None:
        """A response began: its call was let in. Says which suspicion that clears, if any."""
        wider = in_flight > self._widest
        self._widest = max(self._widest, in_flight)
        if sent_s <= self._refused_s:
            return None
        self._row = 0
        if not (wider and self._crowded):
            return None
        self._clear_crowd(now)
        return "crowd"

    def refused(
        self, demand: Demand, sent_s: float, in_flight: int, wait_s: float | None, now: float
    ) -> Suspect:
        """A refusal without a name: whom to blame."""
        self.refusals += 1
        if sent_s <= self._refused_s:
            return "same"
        self._refused_s = now
        if now - self._alarm_s > ALARM_MEMORY_S:
            self._alarms = 0
        is_crowd = in_flight >= self._widest and self._row == 0 and self._alarms < ALARMS_MAX
        if is_crowd and wait_s is None:
            self._crowded = True
            return "crowd"
        self._clear_crowd(now)
        keeps = max(LOWERED, REACHED * (1.0 + self._push(now))) if self._blamed else 0.0
        self._short_s = now
        if wait_s is not None:
            self._ready_s = now + wait_s
        self._row += 1
        ready_s = max(now, self._ready_s)
        self._close(ready_s, keeps)
        for name, refill in self._refills.items():
            # At the end of a wait there is just enough for this call; until then, nothing.
            refill.level, refill.at_s = 0.0 if wait_s is None else _need(name, demand), ready_s
        return "rate"

    def try_soon(self, now: float) -> None:
        """A call ended while advice was never seen to be true: another one may try soon."""
        tried_s = max(self._tried_s, self._refused_s)
        self._ready_s = min(self._ready_s, max(now, tried_s + PROBE_S))

    def _close(self, ready_s: float, keeps: float) -> None:
        """An interval ends when something was let in since the last refusal and it was long."""
        lasted_s = ready_s - self._since_s
        if self._since_s == inf:
            self._began_s = self._refused_s
            for refill in self._refills.values():
                refill.burst, refill.spent = refill.spent, 0.0
            self._since_s = ready_s
        elif lasted_s >= INTERVAL_S_MIN and self._refills["requests"].spent > 0:
            for name, refill in self._refills.items():
                refill.close(lasted_s, keeps if name == self._blamed else 0.0)
                refill.spent = 0.0
            self._since_s = ready_s
            best = min(RESOURCES, key=lambda name: round(self._refills[name].doubt, 1))
            doubt = self._refills[best].doubt
            if doubt <= AGREES:
                self._blamed = best
            elif self._blamed and self._refills[self._blamed].doubt > CHANGED:
                self._blamed = ""

    def _clear_crowd(self, now: float) -> None:
        """Too many at once was not the cause, if it was suspected."""
        if self._crowded:
            self._alarms += 1
            self._alarm_s = now
            self._crowded = False

    def settled(self, demand: Demand, sent_s: float, used: Amounts) -> None:
        """What the call really took replaces what was expected."""
        for name, expected in (("output", demand.expected), ("reserved", demand.ceiling)):
            more, refill = used.output_tokens - expected.output_tokens, self._refills[name]
            if sent_s <= self._began_s:
                refill.burst += more
            else:
                refill.take(more)


def _need(name: str, demand: Demand) -> float:
    if name == "requests":
        return 1.0
    if name == "reserved":
        return demand.expected.input_tokens + demand.ceiling.output_tokens
    return demand.expected.input_tokens if name == "input" else demand.expected.output_tokens
