"""What we believe of an account: its limits, its width, its speed, and what holds everybody back.

Laws:
- Every limit is asked first, every limit is charged after.
- What a user configured is true; what a response reports corrects what was learned; what is not
  reported is learned from outcomes.
- A fault teaches what it names and nothing else: a wrong request pauses nobody, a missing slot
  says nothing about tokens, an overload says nothing about the account.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf
from typing import Final, Literal

from headway.core.quota.blind import Blind
from headway.core.quota.dialect import ANTHROPIC, Dialect
from headway.core.quota.law import WIDTH_AT_START, Cap, Ramp, Width, WidthStatistics
from headway.core.quota.mirror import Mirror, MirrorStatistics
from headway.core.quota.outflow import Stream
from headway.core.quota.tempo import FIRST_BYTE_S, PER_TOKEN_S, Tempo, TempoStatistics
from headway.core.values import (
    MINUTE_S, Demand, Fault, Limit, LimitKind, LimitReading, Reading, SettledAs, Usage, Wait,
)  # fmt: skip

HOLD_S_MAX: Final = 60.0
"""No refusal without a named limit stops the account for longer: some of them lie."""

HOLD_UNVERIFIED_S: Final = 5.0
"""An unnamed wait is tried after this long, once, to see whether it is meant."""

OVERLOAD_S_MAX: Final = 30.0

SMOOTH_S: Final = 1.0
"""A smooth flow may bunch at most this many seconds of a limit."""

WINDOW_RESETS: Final = 2.0
"""A limit whose reset lies this many times later than refilling would take is a window."""

NEVER_AGAIN: Final = 40
"""So many vain tries put the next one years away: a configured cap is not tried at all."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What one run learned of an account and the next one starts with."""

    limits: tuple[Limit, ...] = ()
    width: float = WIDTH_AT_START
    cap: float = inf
    cap_probes: int = 0
    first_byte_s: float = FIRST_BYTE_S
    per_token_s: float = PER_TOKEN_S
    per_second: float = inf
    """Calls that may leave within one second, where a burst was refused."""


@dataclass(frozen=True, slots=True)
class QuotaConfig:
    """What is known or wanted before the first call."""

    dialect: Dialect = ANTHROPIC
    limits: tuple[Limit, ...] = ()
    share: float = 1.0
    """The user's ceiling: at most this share of every limit."""
    pace: Literal["fast", "smooth"] = "fast"
    """Fast spends a burst at once; smooth spaces calls evenly."""
    profile: Profile | None = None


@dataclass(frozen=True, slots=True)
class BeliefStatistics:
    """The account at an instant."""

    limits: tuple[MirrorStatistics, ...]
    width: WidthStatistics
    tempo: TempoStatistics
    held_until_s: float


@dataclass(slots=True)
class _Hold:
    """Why nobody may call, whatever the limits say."""

    until_s: float = -inf
    reason: str = ""
    verified: bool = False
    overloads: int = 0
    idle_refusals: int = 0
    windows: dict[float, tuple[float, float]] = field(default_factory=dict)
    """Usage windows known only by the share used: period to (share, reset)."""


class Belief:
    """One account and model group, as far as it is known."""

    __slots__ = ("_blind", "_config", "_hold", "mirrors", "ramp", "tempo", "width")

    def __init__(self, config: QuotaConfig, now: float) -> None:
        self._config = config
        self._hold = _Hold()
        self._blind: Blind | None = None
        self.ramp = Ramp((config.profile or Profile()).per_second)
        self.tempo = Tempo(now)
        profile = config.profile or Profile()
        self.tempo.first_byte_s = profile.first_byte_s
        self.tempo.per_token_s = profile.per_token_s
        limits = {limit.name: limit for limit in profile.limits + config.limits}
        gauge = limits.pop("concurrency", None)
        self.mirrors = [self._mirror(limit, now) for limit in limits.values()]
        if gauge is None:
            self.width = Width(profile.width, Cap(profile.cap, profile.cap_probes))
        else:
            allowed = max(1.0, float(int(gauge.amount * config.share)))
            start = profile.width if config.profile else allowed
            self.width = Width(min(start, allowed), Cap(allowed, NEVER_AGAIN))

    def __repr__(self) -> str:
        return f"<Belief {self.width!r} {self.mirrors!r}>"

    def wait(self, demand: Demand, stream: Stream, waiting: int, now: float) -> Wait | None:
        """What holds this call back, or None if it may be sent now."""
        hold = self._hold
        if now < hold.until_s:
            return Wait("account", hold.until_s, hold.reason)
        for period_s, (used, resets_s) in hold.windows.items():
            if used >= self._config.share and now < resets_s:
                return Wait(f"usage/{period_s:g}s", resets_s, f"usage window is {used:.0%} used")
        width = self.width.limit(self.tempo.in_flight, waiting, now)
        if self.tempo.in_flight >= width:
            until = self.width.cap.next_probe_s() if self.width.cap.limit <= width else inf
            return Wait("concurrency", max(now, until), f"{self.tempo.in_flight} in flight")
        departs_s = self.ramp.when(now)
        if departs_s > now:
            return Wait("burst", departs_s, "a burst was refused")
        latest: Wait | None = None
        for mirror in self.mirrors:
            until = mirror.when(demand, stream, now)
            if until > now and (latest is None or until > latest.until_s):
                latest = Wait(mirror.limit.name, until, "refilling")
        if latest is None and self._blind is not None:
            until = self._blind.when(demand, now)
            if until > now:
                return Wait("hidden limit", until, "rate learned from refusals")
        return latest

    def charge(self, demand: Demand, stream: Stream, now: float) -> tuple[float, ...]:
        """Take the call's share of everything; returns the levels for later comparison."""
        self.ramp.sent(now)
        if self._blind is not None:
            self._blind.granted(demand, now)
        elif not self.mirrors:
            self._blind = Blind(now)
            self._blind.granted(demand, now)
        return tuple([mirror.charge(demand, stream, now) for mirror in self.mirrors])

    def replan(self, before: Stream, after: Stream, now: float) -> None:
        """A stream is not where it was planned to be."""
        for mirror in self.mirrors:
            if mirror.outflow is not None:
                mirror.plan(before, after, now)

    def answered(self, demand: Demand, sent_s: float, company: int, now: float) -> None:
        """A first byte came: the call was let in, with `company` in flight, itself included."""
        self.tempo.first_byte(now - sent_s)
        self.width.cap.succeeded(company, now)
        self._hold.overloads = 0
        self._hold.idle_refusals = 0
        if self._blind is not None:
            cleared = self._blind.accepted(demand, sent_s, company, now)
            if cleared == "crowd":
                self.width.cap.lift()
            elif cleared == "burst":
                self.ramp = Ramp()

    def settle(self, demand: Demand, stream: Stream, usage: Usage, now: float) -> None:
        """The call ran."""
        for mirror in self.mirrors:
            mirror.settle(demand, stream, usage, now)
        if self._blind is not None:
            self._blind.settled(demand, usage.amounts)

    def give_back(self, demand: Demand, stream: Stream, how: SettledAs, now: float) -> None:
        """The call did not run. A refusal stays charged where the provider counts it."""
        self.ramp.returned()
        counted = how == "throttled" and self._config.dialect.refusals_count
        for mirror in self.mirrors:
            if not (counted and mirror.limit.resource == "requests"):
                mirror.give_back(demand, stream, now)

    def moved(self, in_flight_mean: float, streamed_s: float, tokens: float) -> bool:
        """A stream moved on: learn its speed in the company it had. True if the width changed."""
        per_token_s = self.tempo.moved(streamed_s, tokens)
        return self.width.moved(in_flight_mean, per_token_s, self.tempo.in_flight)

    def failed(
        self, demand: Demand, sent_s: float, fault: Fault, reading: Reading, now: float
    ) -> None:
        """A fault: whom it concerns, and what follows."""
        hold = self._hold
        if fault.kind in ("spend_cap", "billing"):
            hold.until_s, hold.reason = inf, f"{fault.kind}: {fault.detail}"
        elif fault.kind in ("overload", "timeout"):
            self.width.overloaded()
            if fault.kind == "overload":
                hold.overloads += 1
                told = fault.retry_after_s or 2.0 ** (hold.overloads - 1)
                hold.until_s, hold.reason = now + min(told, OVERLOAD_S_MAX), "provider overloaded"
        elif fault.kind == "concurrency":
            self._too_many(now)
        elif fault.kind == "rate":
            self._throttled(demand, sent_s, fault, reading, now)

    def observe(
        self, reading: Reading, levels: tuple[float, ...], at_s: float, now: float
    ) -> None:
        """Learn limits from a response; `levels` is what `charge` returned for its call."""
        for told in reading.limits:
            if told.utilization is not None and told.period_s is not None:
                resets_s = now + (told.reset_s or 0.0)
                self._hold.windows[told.period_s] = (told.utilization, resets_s)
                continue
            for index, mirror in enumerate(self.mirrors):
                if _same(mirror.limit, told):
                    snapshot = levels[index] if index < len(levels) else None
                    mirror.observe(told, snapshot, at_s, now)
                    break
            else:
                self._discover(told, at_s, now)

    def cost_s(self, demand: Demand) -> float:
        """Seconds for which the call takes the whole of the resource that it needs most of."""
        costs = [
            (mirror.need(demand) or demand.expected.output_tokens) / mirror.limit.rate_per_s
            for mirror in self.mirrors
        ]
        return max(costs, default=1.0)

    def profile(self) -> Profile:
        """What is worth keeping for the next run."""
        worth = self.width.congestion.worth()
        width = self.width.statistics().limit if worth == inf else worth
        return Profile(
            tuple(mirror.as_profile() for mirror in self.mirrors), width, self.width.cap.limit,
            self.width.cap.probes, self.tempo.first_byte_s, self.tempo.per_token_s,
            self.ramp.most,
        )  # fmt: skip

    def statistics(self) -> BeliefStatistics:
        return BeliefStatistics(
            tuple(mirror.statistics() for mirror in self.mirrors), self.width.statistics(),
            self.tempo.statistics(), self._hold.until_s,
        )  # fmt: skip

    def _mirror(self, limit: Limit, now: float) -> Mirror:
        config = self._config
        if config.pace == "smooth" and limit.kind == "bucket":
            limit = replace(limit, burst=limit.rate_per_s * SMOOTH_S)
        rounded = limit.resource in ("input", "output", "tokens")
        rounding = config.dialect.tokens_step / 2 if rounded else 0.0
        return Mirror(limit, config.dialect.charging, config.share, rounding, now)

    def _discover(self, told: LimitReading, at_s: float, now: float) -> None:
        """A limit that was not known: from now on it is followed."""
        if not told.limit or told.remaining is None:
            return
        period_s = told.period_s or MINUTE_S
        rate = told.limit / period_s
        kind: LimitKind = self._config.dialect.limit_kind or "bucket"
        refill_s = max(0.0, told.limit - told.remaining) / rate
        if told.reset_s and told.reset_s > WINDOW_RESETS * refill_s + WINDOW_RESETS:
            kind = "fixed"
        burst = None
        if kind == "bucket" and told.reset_s:
            burst = min(told.limit, told.remaining + rate * told.reset_s)
        mirror = self._mirror(Limit(told.resource, told.limit, period_s, kind, burst, "header"), now)
        mirror.adopt(told, at_s, now)
        if self._blind is not None and self._blind.refusals == 0:
            self._blind = None
        self.mirrors.append(mirror)

    def _too_many(self, now: float) -> None:
        """One more than the account takes at once. A free slot, not a clock, ends the wait."""
        in_flight = self.tempo.in_flight
        self.width.cap.refused(in_flight, now)
        if in_flight == 0:
            self._hold.idle_refusals += 1
            self._hold.until_s = now + min(HOLD_UNVERIFIED_S, 2.0**self._hold.idle_refusals / 4)
            self._hold.reason = "somebody else holds every slot"

    def _throttled(
        self, demand: Demand, sent_s: float, fault: Fault, reading: Reading, now: float
    ) -> None:
        """A limit per period was short: the one that was named, or one that we cannot see."""
        for mirror in self.mirrors:
            if mirror.limit.resource == fault.resource:
                told = next((r for r in reading.limits if _same(mirror.limit, r)), None)
                if mirror.refused(mirror.need(demand), told, fault.retry_after_s, now):
                    self.ramp.refused(now)
                    self._hold.until_s = now + min(fault.retry_after_s or 1.0, HOLD_S_MAX)
                    self._hold.reason = "a burst was refused"
                return
        if fault.retry_after_s is not None:
            hold = self._hold
            again = now - hold.until_s < 1.0
            hold.verified = hold.verified or again
            most = HOLD_S_MAX if hold.verified else HOLD_UNVERIFIED_S
            hold.until_s, hold.reason = now + min(fault.retry_after_s, most), "asked to wait"
            return
        if self._blind is None:
            self._blind = Blind(now)
        blame = self._blind.refused(demand, sent_s, self.tempo.in_flight, now)
        if blame == "crowd":
            self._too_many(now)
            self.width.cap.probe_soon(now)
        elif blame == "rate":
            self.ramp.refused(now)
            self.width.cap.lift()
        else:
            self.width.cap.lower(self.tempo.in_flight)


def _same(limit: Limit, told: LimitReading) -> bool:
    return limit.resource == told.resource and told.period_s in (None, limit.period_s)
