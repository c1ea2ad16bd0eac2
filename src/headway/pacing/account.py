"""What is known of one account: limits, width, latency, and pauses.

Laws:
- Every limit is checked first, every limit is charged after.
- What a user configured is true; readings correct what was learned; outcomes teach the rest.
- A fault teaches what it names and nothing else: a wrong request pauses no other call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from headway.base.values import (
    Amounts,
    Demand,
    Fault,
    Limit,
    LimitReading,
    Reading,
    SettledAs,
    Usage,
    Wait,
)
from headway.pacing.balance import WAIT_UNTOLD_S, Mirror, discover, is_about
from headway.pacing.headers import ANTHROPIC, Dialect
from headway.pacing.hidden_limits import Blind
from headway.pacing.latency import FIRST_BYTE_S, PER_TOKEN_S, Tempo
from headway.pacing.limits import Bucket, FixedWindow, PlannedStream
from headway.pacing.width import WIDTH_AT_START, Cap, Ramp, Width
from headway.pacing.windows import Allowances

HOLD_S_MAX: Final = 60.0
"""No refusal without a named limit stops the account for longer: some of them lie."""

UNVERIFIED_S: Final = 5.0
"""An unnamed wait is tried after this long, once, to see whether it is meant."""

OVERLOAD_S_MAX: Final = 30.0

AGAIN_S: Final = 1.0
"""A refusal this soon after a hold has ended confirms it."""


class Hold:
    """Why no call may be sent at all."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._closed = "" if share > 0 else "the ceiling leaves nothing of any limit"
        self._until_s = -inf
        self._reason = ""
        self._verified = False
        self._overloads = 0
        self._idle_refusals = 0

    def wait(self, now: float) -> Wait | None:
        """What holds all calls back now."""
        if self._closed:
            return Wait("account", inf, self._closed)
        if now < self._until_s:
            return Wait("account", self._until_s, self._reason)
        return None

    def close(self, reason: str) -> None:
        """Waiting does not help: no call is made any more."""
        self._closed = self._closed or reason

    def reopen(self) -> None:
        """The account may have been paid since: one call finds out."""
        if self._share > 0:
            self._closed = ""

    def overloaded(self, told_s: float | None, now: float) -> None:
        """The provider is out of capacity: longer each time, as long as it is told at most."""
        self._overloads += 1
        wait_s = told_s or 2.0 ** (self._overloads - 1)
        self._until_s, self._reason = now + min(wait_s, OVERLOAD_S_MAX), "provider overloaded"

    def crowded(self, in_flight: int, now: float) -> None:
        """One call too many. A free slot ends the wait; only without any of ours does a clock."""
        if in_flight > 0:
            return
        self._idle_refusals += 1
        self._until_s = now + min(UNVERIFIED_S, 2.0**self._idle_refusals / 4)
        self._reason = "somebody else holds every slot"

    def burst_refused(self, told_s: float | None, now: float) -> None:
        """Enough was left of the limit that was named."""
        self._until_s = now + min(told_s or WAIT_UNTOLD_S, HOLD_S_MAX)
        self._reason = "a burst was refused"

    def asked(self, told_s: float, now: float) -> None:
        """A wait for a limit that we cannot see. It is meant if trying early is refused again."""
        self._verified = self._verified or now - self._until_s < AGAIN_S
        most_s = HOLD_S_MAX if self._verified else UNVERIFIED_S
        self._until_s, self._reason = now + min(told_s, most_s), "asked to wait"

    def answered(self) -> None:
        """A call was let in: neither overloaded nor crowded out."""
        self._overloads = 0
        self._idle_refusals = 0


def standing(mirror: Mirror, now: float) -> LimitReading:
    """How a limit stands, as a reading; `utilization` is our own share under a user's ceiling."""
    limit, meter, ceiling, level = mirror.limit, mirror.meter, mirror.ceiling, mirror.level(now)
    reset_s = meter.boundary_s - now if isinstance(meter, FixedWindow) else None
    ours = None
    if ceiling is not None:
        ours = (ceiling.size - ceiling.level(now)) / max(1.0, limit.amount)
    return LimitReading(limit.resource, limit.period_s, limit.amount, level, reset_s, ours)


def restore(
    mirrors: Iterable[Mirror], levels: Sequence[LimitReading], at_s: float, now: float
) -> None:
    """Go on from where the limits stood at `at_s`. The mirrors are new."""
    for mirror in mirrors:
        for told in levels:
            if is_about(mirror.limit, told):
                _restore(mirror, told, at_s, now)


def _restore(mirror: Mirror, told: LimitReading, at_s: float, now: float) -> None:
    meter, limit, ceiling = mirror.meter, mirror.limit, mirror.ceiling
    amount, remaining = told.limit or 0.0, told.remaining or 0.0
    # Of a bucket without a ceiling it is not known what we took in a period.
    ours = 0.0
    if isinstance(meter, Bucket):
        meter.set_level(remaining + meter.rate_per_s * (now - at_s), now)
    else:
        if isinstance(meter, FixedWindow) and told.reset_s is not None:
            # Aligned as it was, even where that window is over by now.
            meter.boundary_s = at_s + told.reset_s
        ours = amount - remaining
        meter.charge(ours, at_s)
    if told.utilization is not None:
        ours = told.utilization * max(1.0, amount)
    if ceiling is not None and (limit.kind == "gauge" or now - at_s < limit.period_s):
        ceiling.charge(ours, now)


SMOOTH_S: Final = 1.0
"""A smooth flow may bunch at most this many seconds of a limit."""


class Profile(Struct, frozen=True):
    """What one run learned of an account and the next one starts with."""

    limits: tuple[Limit, ...] = ()
    width: float = WIDTH_AT_START
    cap: float = inf
    cap_probes: int = 0
    first_byte_s: float = FIRST_BYTE_S
    per_token_s: float = PER_TOKEN_S
    per_second: float = inf
    """Calls that may leave within one second, where a burst was refused."""
    curve: tuple[tuple[int, float, float], ...] = ()
    """Time per token by calls in flight: (width, weight, seconds)."""
    kept: tuple[str, ...] = ()
    """Names of limits of which reservations do not come back."""


class QuotaConfig(Struct, frozen=True):
    """What is known or wanted before the first call."""

    dialect: Dialect = ANTHROPIC
    limits: tuple[Limit, ...] = ()
    share: float = 1.0
    """The user's ceiling: at most this share of every limit."""
    pace: Literal["fast", "smooth"] = "fast"
    """Fast spends a burst at once; smooth spaces calls evenly."""
    profile: Profile | None = None


class Belief:
    """One account and model group, as far as it is known."""

    def __init__(self, config: QuotaConfig, now: float) -> None:
        profile = config.profile or Profile()
        self.config = config
        """Limits that are found follow the dialect that is in here by then."""
        self.hold = Hold(config.share)
        self.allowances = Allowances(config.share)
        self._blind: Blind | None = None
        self.ramp = Ramp(profile.per_second, now)
        self.tempo = Tempo(now)
        self.tempo.first_byte_s = profile.first_byte_s
        self.tempo.per_token_s = profile.per_token_s
        named = {limit.name for limit in config.limits}
        learned = [limit for limit in profile.limits if limit.name not in named]
        limits = [*learned, *config.limits]
        rates = [limit for limit in limits if limit.resource != "concurrency"]
        self.mirrors = [_mirror(limit, config, now) for limit in rates]
        slots = [limit.amount for limit in limits if limit.resource == "concurrency"]
        most = max(1.0, float(int(min(slots) * config.share))) if slots else inf
        start = profile.width if config.profile or not slots else most
        cap = Cap(profile.cap, profile.cap_probes, now, most)
        self.width = Width(min(start, most), cap, profile.curve)

    def wait(self, demand: Demand, stream: PlannedStream, waiting: int, now: float) -> Wait | None:
        """What holds this call back, or None if it may be sent now."""
        held = self.hold.wait(now) or self.allowances.wait(now)
        if held is not None:
            return held
        in_flight = self.tempo.in_flight
        width = self.width.limit(in_flight, waiting, now)
        if in_flight >= width:
            # A try that is due or under way ends with an answer, not with a time.
            probe_s = self.width.next_probe_s(width)
            until_s = probe_s if probe_s > now else inf
            return Wait("concurrency", until_s, f"{in_flight} in flight")
        ventures_s = self.width.departs_s(in_flight, now)
        if ventures_s > now:
            return Wait("concurrency", ventures_s, "more than were ever in flight")
        departs_s = self.ramp.when(now)
        if departs_s > now:
            return Wait("burst", departs_s, "a burst was refused")
        latest: Wait | None = None
        for mirror in self.mirrors:
            wait = mirror.wait(demand, stream, now)
            if wait is not None and (latest is None or wait.until_s > latest.until_s):
                latest = wait
        if latest is None and self._blind is not None:
            until_s = self._blind.when(demand, now)
            if until_s > now:
                return Wait("hidden limit", until_s, "rate learned from refusals")
        return latest

    def can_ever(self, demand: Demand) -> bool:
        """Whether the call can be admitted at all, however long it waits."""
        return all(mirror.can_ever(demand) for mirror in self.mirrors)

    def charge(self, demand: Demand, stream: PlannedStream, now: float) -> tuple[float, ...]:
        """Take the call's share of everything; returns the levels for later comparison."""
        self.ramp.sent(now)
        self.width.sent(self.tempo.in_flight + 1, now)
        if self._blind is None and not self.mirrors:
            self._blind = Blind(now)
        if self._blind is not None:
            self._blind.granted(demand, now)
        return tuple([mirror.charge(demand, stream, now) for mirror in self.mirrors])

    def replan(self, before: PlannedStream, after: PlannedStream, now: float) -> None:
        """A stream is not where it was planned to be."""
        for mirror in self.mirrors:
            mirror.plan(before, after, now)

    def answered(self, demand: Demand, sent_s: float, company: int, now: float) -> None:
        """A first byte came: the call was let in, with `company` in flight, itself included."""
        if not demand.is_whole:
            self.tempo.first_byte(now - sent_s)
        self.width.served(company, now)
        self.hold.answered()
        if self._blind is not None:
            cleared = self._blind.accepted(demand, sent_s, company, now)
            if cleared == "crowd":
                self.width.cap.lift()
            elif cleared == "burst":
                self.ramp = Ramp()

    def settle(
        self, demand: Demand, stream: PlannedStream, sent_s: float, usage: Usage, now: float
    ) -> None:
        self.allowances.settle(usage.amounts.input_tokens + usage.amounts.output_tokens)
        for mirror in self.mirrors:
            mirror.settle(demand, stream, sent_s, usage, now)
        if self._blind is not None:
            self._blind.settled(demand, usage.amounts)

    def give_back(
        self, demand: Demand, stream: PlannedStream, sent_s: float, how: SettledAs, now: float
    ) -> None:
        """The call did not run. A refusal stays charged where the provider counts it."""
        self.ramp.returned()
        if self._blind is not None:
            self._blind.returned(demand, sent_s)
        is_counted = how == "throttled" and self.config.dialect.refusals_count
        for mirror in self.mirrors:
            is_kept = is_counted and mirror.limit.resource == "requests"
            mirror.give_back(demand, stream, sent_s, is_kept, now)

    def failed(
        self, demand: Demand, sent_s: float, fault: Fault, reading: Reading, now: float
    ) -> None:
        """A fault: whom it concerns, and what follows."""
        if fault.kind in ("spend_cap", "billing"):
            self.hold.close(f"{fault.kind}: {fault.detail}")
        elif fault.kind in ("overload", "timeout"):
            self.width.overloaded(self.tempo.in_flight, now)
            if fault.kind == "overload":
                self.hold.overloaded(fault.retry_after_s, now)
        elif fault.kind == "concurrency":
            self.width.cap.refused(self.tempo.in_flight, now)
            self.hold.crowded(self.tempo.in_flight, now)
        elif fault.kind == "rate":
            self._throttled(demand, sent_s, fault, reading, now)

    def observe(
        self, reading: Reading, levels: tuple[float, ...], at_s: float, now: float
    ) -> list[Mirror]:
        """Learn from a response to a call charged at `levels`; returns limits not known before."""
        found: list[Mirror] = []
        for told in reading.limits:
            if self.allowances.observe(told, now):
                continue
            for index, mirror in enumerate(self.mirrors):
                if is_about(mirror.limit, told):
                    snapshot = levels[index] if index < len(levels) else None
                    mirror.observe(told, snapshot, at_s, now)
                    break
            else:
                limit = discover(told, self.config.dialect)
                if limit is not None:
                    mirror = _mirror(limit, self.config, now)
                    mirror.adopt(told, at_s, now)
                    self.mirrors.append(mirror)
                    found.append(mirror)
        if found and self._blind is not None and self._blind.refusals == 0:
            self._blind = None
        return found

    def cost_s(self, amounts: Amounts) -> float:
        """Seconds for which a call takes the whole of the resource that it needs most of."""
        costs = [one.toll.cost_s(amounts, one.limit.rate_per_s) for one in self.mirrors]
        return max(costs, default=1.0)

    def profile(self) -> Profile:
        """What is worth keeping for the next run. A cap that no refusal named is only suspected."""
        worth, cap = self.width.congestion.worth(), self.width.cap
        width = self.width.allowed if worth == inf else worth
        if width >= cap.most:
            # What the user's own limit held back says nothing of how far it would have gone.
            width = max(width, float(WIDTH_AT_START))
        return Profile(
            tuple(mirror.as_profile() for mirror in self.mirrors), width,
            cap.limit if cap.limit < cap.most and self._blind is None else inf, cap.probes,
            self.tempo.first_byte_s, self.tempo.per_token_s,
            self.ramp.most if self.mirrors else inf, self.width.congestion.curve(),
            tuple(one.limit.name for one in self.mirrors if one.toll.keeps),
        )  # fmt: skip

    def _throttled(
        self, demand: Demand, sent_s: float, fault: Fault, reading: Reading, now: float
    ) -> None:
        """A limit per period was short: the one that was named, or one that we cannot see."""
        named = [one for one in self.mirrors if one.limit.resource == fault.resource]
        if named:
            mirror = min(named, key=lambda one: one.left(reading, now))
            if mirror.refused(demand, reading, fault.retry_after_s, now):
                self.ramp.refused(now)
                self.hold.burst_refused(fault.retry_after_s, now)
            return
        if fault.retry_after_s is not None:
            self.hold.asked(fault.retry_after_s, now)
            return
        if self._blind is None:
            self._blind = Blind(now)
        blame = self._blind.refused(demand, sent_s, self.tempo.in_flight, now)
        if blame == "crowd":
            self.width.cap.refused(self.tempo.in_flight, now)
            self.width.cap.probe_soon(now)
            self.hold.crowded(self.tempo.in_flight, now)
        elif blame == "rate":
            self.ramp.refused(now)
            self.width.cap.lift()
        else:
            self.width.cap.lower(self.tempo.in_flight)


def _mirror(limit: Limit, config: QuotaConfig, now: float) -> Mirror:
    """A limit as the user wants it used: evenly if asked for, up to a share of it."""
    if config.pace == "smooth" and limit.kind == "bucket":
        limit = replace(limit, burst=limit.rate_per_s * SMOOTH_S)
    rounded = limit.resource in ("input", "output", "tokens")
    rounding = config.dialect.tokens_step / 2 if rounded else 0.0
    charging = config.dialect.charging
    if config.profile is not None and limit.name in config.profile.kept:
        charging = "kept"
    mirror = Mirror(limit, charging, config.share, rounding, now)
    mirror.burst_s = SMOOTH_S if config.pace == "smooth" else inf
    return mirror
