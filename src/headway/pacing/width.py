"""How many calls may be in flight: control laws.

Laws:
- A limit never grows while the run does not use it (Netflix concurrency-limits).
- Outcomes show how many are allowed (`Cap`), latency per unit of work how many are worth it
  (`Congestion`), and what is delivered decides (`Delivery`); `Width` takes the smallest.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import Final, Literal

from headway.pacing.latency import Congestion, Delivery

WIDTH_AT_START: Final = 4
"""Cold, nothing known: as many as the smallest accounts allow."""

USED: Final = 0.8
"""A width counts as used when at least this share of it is in flight."""

FULL: Final = 0.95
"""Less than this in flight: another limit holds calls back, and what is delivered follows that."""

ROUND_PIECES: Final = 4
ROUND_GROWTH: Final = 1.5
"""Pieces of answers that must be seen at a width before the next one is explored, and how much
wider that is. Doubling gains one per cent where nothing is congested and loses four where the
peak is at five; two pieces instead of four lose thirty."""

WHOLE_GROWTH: Final = 2.0
"""The same where answers come whole: a round is then as long as a call, and there are few."""

LEAP: Final = 6.0
LEAP_LATER: Final = 2.0
"""How many times the width confirmed by whole answers pieces may lead to, before the first round of
them and after: calls that were just sent may stand in a line, which no piece shows."""

QUEUED: Final = 0.1
"""More than this share of the calls in flight overdue: there is a line at the provider."""

CHANGE: Final = 0.1
"""A width that changes by less is the same width, as far as rounds are concerned."""

SERVED: Final = 0.75
"""Fewer than this share of the calls in flight were being served: the rest stood in a line."""

ELASTIC: Final = 0.2
"""More at once are worth it while throughput grows by at least this much of what the width does."""

STEP: Final = 0.7
STEP_LEAST: Final = 0.8
"""By how much the width follows an elasticity that is more or less than that, once a round."""

VENTURE_S: Final = 0.05
"""Beyond what was ever in flight, calls leave this far apart: a refusal stops those behind it."""

TAIL_SHARE: Final = 0.92
TAIL_WAITING: Final = 16
"""So few waiting calls are the last: they may crowd in at this share of the peak throughput."""

PROBE_FIRST_S: Final = 30.0
PROBE_GROWTH: Final = 2.0
"""A learned cap is tried again after 30 s, then 60 s, 120 s...: each failed try is a refusal."""

SUSPECT_S: Final = 2.0
"""A cap that no refusal named is tried again after so long, then twice as long, and so on."""

RAMP_LEAST: Final = 2.0
RAMP_CAUTION: Final = 0.9
RAMP_GROWTH: Final = 1.5
RAMP_GROW_S: Final = 10.0
RAMP_PATIENCE: Final = 3.0
"""After a refused burst: 90 % of what was let in, half as much more after 10 s, then 30 s, 90 s."""

RAMP_KNOWN: Final = 3
"""A ramp from a profile has been refused before: it is as patient as after so many refusals."""

RAMP_BURST: Final = 4
"""Fewer within a second are no burst: their refusal has another cause."""

RAMP_MEMORY: Final = 4096
"""Departures that are remembered: more than leave in any second."""


WidthCause = Literal["concurrency", "peak", "untried"]
"""The account takes no more at once; more at once are slower in all; so many were never tried."""


class Cap:
    """How many calls the account takes at once, learned from refusals and tried again rarely; never
    more than a user configured, `most`."""

    def __init__(
        self, limit: float = inf, probes: int = 0, now: float = 0.0, most: float = inf
    ) -> None:
        self.most = most
        self.limit = min(limit, most)
        self.probes = probes
        """How often it was tried in vain; kept in the profile, so that a new run asks rarely."""
        self.next_probe_s = now + self._delay_s() if self.limit < most else inf

    def refused(self, accepted: int, now: float) -> None:
        """The provider took `accepted` at once and not one more."""
        if accepted < self.limit - 1:
            self.probes = 0
        self.limit = max(1.0, float(accepted))
        self.next_probe_s = now + self._delay_s() if self.limit < self.most else inf
        self.probes += 1

    def lower(self, accepted: int) -> None:
        """A further refusal of the same signal: fewer were let in than thought."""
        if self.limit < self.most:
            self.limit = max(1.0, min(self.limit, float(accepted)))

    def probe_soon(self, now: float) -> None:
        """The cap is only suspected: early tries tell whether it is the cause."""
        if self.limit < self.most:
            self.next_probe_s = min(self.next_probe_s, now + SUSPECT_S * 2.0 ** (self.probes - 1))

    def lift(self) -> None:
        """The refusal turned out to have another cause."""
        self.limit = self.most
        self.next_probe_s = inf

    def allow(self, now: float) -> float:
        """The cap now: one more than learned when it is time to try."""
        return self.limit + 1 if now >= self.next_probe_s else self.limit

    def succeeded(self, in_flight: int, now: float) -> None:
        """More than the cap were in flight and served: the cap has risen."""
        if in_flight > self.limit:
            self.limit = float(in_flight)
            self.probes = 0
            self.next_probe_s = now + 1.0 if self.limit < self.most else inf

    def _delay_s(self) -> float:
        return PROBE_FIRST_S * PROBE_GROWTH**self.probes


class Ramp:
    """How many calls may leave within one second, once a provider has refused a burst: as many as
    were let in before, and more again, ever less often."""

    def __init__(self, most: float = inf, now: float = 0.0) -> None:
        self.most = most
        """Calls per second, kept in the profile."""
        self._sent: deque[float] = deque(maxlen=RAMP_MEMORY)
        self._refusals = 0 if most == inf else RAMP_KNOWN
        self._grow_s = inf if most == inf else now + self._patience_s()

    def sent(self, now: float) -> None:
        self._sent.append(now)

    def returned(self) -> None:
        """The last call was not let in: it does not count."""
        if self._sent:
            self._sent.pop()

    def refused(self, now: float) -> None:
        """Enough was left, and yet a call was refused: what was let in this second is the limit."""
        recent = sum(1 for at in self._sent if at > now - 1.0)
        if recent < RAMP_BURST:
            return
        if now >= self._grow_s or self._grow_s == inf:
            self._refusals += 1
        self.most = max(RAMP_LEAST, min(self.most, RAMP_CAUTION * recent))
        self._grow_s = now + self._patience_s()

    def when(self, now: float) -> float:
        """When one more may leave."""
        if self.most == inf:
            return now
        if now >= self._grow_s:
            self.most *= RAMP_GROWTH
            self._grow_s = now + self._patience_s()
        place = len(self._sent) - int(self.most)
        if place < 0:
            return now
        return max(now, self._sent[place] + 1.0)

    def _patience_s(self) -> float:
        return RAMP_GROW_S * RAMP_PATIENCE ** (self._refusals - 1)


class Width:
    """How many calls may be in flight: what the account allows, and what congestion makes worth it.

    When enough pieces of answers were seen at a width and no peak shows, it grows by half: a round
    takes a fraction of a second. Where pieces are irregular or calls stand in a line, what all
    calls deliver in a round of seconds moves it.
    """

    def __init__(
        self, start: float, cap: Cap, curve: tuple[tuple[int, float, float], ...] = ()
    ) -> None:
        self.allowed = start
        self._proven = start
        """The width by whole answers, to which it falls back where pieces cannot be trusted."""
        self._tried = start
        self._ventured_s = -inf
        self._seen = 0
        self.cap = cap
        self.strain = Cap()
        """What the provider bears at present. Unlike the account's cap it is not kept for later."""
        self.congestion = Congestion(curve)
        self.delivery = Delivery()
        self.reason = "start"

    def limit(self, in_flight: int, waiting: int, now: float) -> float:
        """How many may be in flight. The last few go together: a thin tail is slow."""
        cap = min(self.cap.allow(now), self.strain.allow(now))
        all_of_them = in_flight + waiting
        is_tail = waiting <= TAIL_WAITING and self.congestion.is_steady
        if is_tail and self.allowed < all_of_them <= cap:
            peak = self.congestion.peak()
            if all_of_them <= 2.0 * peak < inf:
                crowd = self.congestion.throughput(all_of_them)
                if crowd >= TAIL_SHARE * self.congestion.throughput(peak):
                    return float(all_of_them)
        return min(self.allowed, cap)

    def departs_s(self, in_flight: int, now: float) -> float:
        """When one more may leave, as far as it is more than ever were in flight."""
        return now if in_flight < self._tried else max(now, self._ventured_s + VENTURE_S)

    def sent(self, in_flight: int, now: float) -> None:
        """One more has left, so that this many are in flight."""
        if in_flight > self._tried:
            self._tried, self._ventured_s = float(in_flight), now

    def moved(
        self, served: float, in_flight: int, per_token_s: float, queued: int = 0,
        growth: float = ROUND_GROWTH,
    ) -> bool:  # fmt: skip
        """A piece of an answer came: learn, then go where the fitted curve says, or explore.

        `served` calls were served on average meanwhile; `queued` of those in flight seem to wait.
        """
        before = self.allowed
        self.congestion.sample(served, per_token_s)
        worth = self.congestion.worth()
        if not self.congestion.is_steady:
            if self.allowed > self._proven:
                self._move(self._proven, "pieces of answers come irregularly")
        elif worth < inf:
            self._move(max(1.0, float(round(worth))), f"throughput peaks near {worth:.0f}")
        elif queued > QUEUED * in_flight:
            rest = max(self._proven, float(in_flight - queued))
            if rest < self.allowed:
                self._move(rest, "more wait in line at the provider")
        elif min(served, in_flight) >= USED * self.allowed:
            self._seen += 1
            if self._seen >= ROUND_PIECES:
                self._seen = 0
                self._move(self._grown(growth), "no slower with more at once")
        return self.allowed != before

    def ended(self, work: float, integral: float, now: float) -> None:
        """An answer is complete, and so much of it was not counted before."""
        done = self.delivery.ended(work, integral, now)
        if done is not None:
            self.delivered(*done)

    def delivered(self, company: float, work_per_s: float) -> bool:
        """A round is complete: follow what was delivered. True if the width changed."""
        before, worth = self.allowed, self.congestion.worth()
        is_used, is_full = company >= USED * self.allowed, company >= FULL * self.allowed
        served = work_per_s * self.congestion.time_s(max(1.0, company))
        if not self.congestion.tells or not self.congestion.is_steady:
            if is_used:
                # Tokens are no measure of answers that mostly wait: those say no more than
                # whether a greater width is worth it.
                least = STEP_LEAST if self.congestion.tells else 1.0
                self._follow(company, ROUND_GROWTH, least)
            self.congestion.trust_again()
        elif worth == inf and is_full and served < SERVED * company:
            self._proven = max(1.0, served)
            self._move(self._proven, "more wait in line at the provider")
        elif worth == inf and is_full and self.delivery.elasticity(company) < ELASTIC:
            self._follow(company, 1.0)
        else:
            # Pieces lead, what is delivered confirms.
            self._proven = max(self._proven, company)
        return self.allowed != before

    def _follow(self, company: float, growth_max: float, least: float = STEP_LEAST) -> None:
        elastic = self.delivery.elasticity(company)
        step = min(growth_max, max(least, 1.0 + STEP * (elastic - ELASTIC)))
        self._proven = max(1.0, self.allowed * step)
        self._move(self._proven, f"throughput follows the width by {elastic:.1f}")

    def _grown(self, growth: float) -> float:
        """The next width, unless whole answers contradict it or have yet to confirm this one."""
        if self.delivery.elasticity(self.allowed) < ELASTIC:
            return self.allowed
        is_early = not self.delivery.rounds or growth >= WHOLE_GROWTH
        leap = LEAP if is_early else LEAP_LATER
        return max(self.allowed, min(self.allowed * growth, leap * self._proven))

    def _move(self, width: float, reason: str) -> None:
        if abs(width - self.allowed) > CHANGE * self.allowed:
            self.delivery.changed()
        self.allowed = width
        self.reason = reason

    def overloaded(self, in_flight: int, now: float) -> None:
        """A timeout or an overload: half as many, until tries show that more are served again."""
        self.allowed = max(1.0, self.allowed / 2)
        self.strain.refused(max(1, in_flight // 2), now)
        self.reason = "overload"

    def served(self, in_flight: int, now: float) -> None:
        """So many were in flight, and the newest of them is answered."""
        self.cap.succeeded(in_flight, now)
        self.strain.succeeded(in_flight, now)

    def next_probe_s(self, width: float) -> float:
        """When one more than `width` is tried, if a cap holds it there."""
        holding = [cap for cap in (self.cap, self.strain) if cap.limit <= width]
        return max((cap.next_probe_s for cap in holding), default=inf)


def width_cause(width: Width, in_flight: int) -> WidthCause:
    """What keeps one more from joining so many, where the width does."""
    if in_flight >= min(width.cap.limit, width.strain.limit):
        return "concurrency"
    return "peak" if width.congestion.peak() < inf else "untried"
