"""One account at a simulated provider: its limits, its charges, its neighbours, its own log.

Laws:
- A call is accepted only if every limit, visible or not, can take it; then all are charged.
- Every charge is written to the log as it happens, so that `audit.py` can recompute each rolling
  window without trusting a meter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from headway.base.values import Charging, Limit, LimitReading, Resource
from headway.pacing.headers import WINDOW_5H_S
from headway.pacing.limits import AnyMeter, Bucket, FixedWindow, Gauge, SlidingWindow, meter_of
from headway.sim.draw import Neighbour, Presence, PresenceStatistics

# Usage windows of a simulated account: so many tokens in five hours, told as the share used.


@dataclass(frozen=True, slots=True)
class UsageWindow:
    """So many tokens in a period."""

    tokens: float
    period_s: float = WINDOW_5H_S
    """The period that it is named after..."""
    lasts_s: float | None = None
    """...and how long it really lasts, if somebody cannot wait for that."""


@dataclass(frozen=True, slots=True)
class UsageStatistics:
    """Share used of the fullest window."""

    utilization: float


class UsageWindows:
    """All usage windows of one account."""

    __slots__ = ("_meters",)

    def __init__(self, windows: Sequence[UsageWindow], now: float) -> None:
        self._meters: list[tuple[UsageWindow, FixedWindow]] = []
        for one in windows:
            lasts_s = one.period_s if one.lasts_s is None else one.lasts_s
            self._meters.append((one, FixedWindow(one.tokens, lasts_s, now + lasts_s)))

    def __repr__(self) -> str:
        return f"<Usage {[meter for _, meter in self._meters]!r}>"

    def charge(self, tokens: float, now: float) -> None:
        """So many tokens were used."""
        for _, meter in self._meters:
            meter.charge(tokens, now)

    def empty_until_s(self, now: float) -> float:
        """When something is left of every window: now, if that is so already."""
        ends = [meter.boundary_s for _, meter in self._meters if meter.available(now) <= 0]
        return max(ends, default=now)

    def readings(self, now: float) -> tuple[LimitReading, ...]:
        """The windows as headers report them: the share used, and when they end."""
        return tuple(
            LimitReading("tokens", one.period_s, None, None,
                         reset_s=_left_s(meter, now), utilization=_share(meter))
            for one, meter in self._meters
        )  # fmt: skip

    def statistics(self) -> UsageStatistics:
        return UsageStatistics(max((_share(meter) for _, meter in self._meters), default=0.0))


def _left_s(meter: FixedWindow, now: float) -> float:
    """Until the window ends; a window that has ended makes room for the next one first."""
    meter.available(now)
    return meter.boundary_s - now


def _share(meter: FixedWindow) -> float:
    return min(1.0, meter.used / meter.limit)


@dataclass(frozen=True, slots=True)
class Needs:
    """What a call asks of each resource at admission."""

    input_tokens: float
    output_tokens: float
    spend_microusd: float = 0.0

    def of(self, resource: Resource) -> float:
        if resource == "input":
            return self.input_tokens
        if resource == "output":
            return self.output_tokens
        if resource == "tokens":
            return self.input_tokens + self.output_tokens
        return self.spend_microusd if resource == "spend" else 1.0


@dataclass(frozen=True, slots=True)
class Shortage:
    """Which limit a call failed on, and when it would pass if nobody else came."""

    resource: Resource
    until_s: float


@dataclass(frozen=True, slots=True)
class Acceleration:
    """Sharp ramps are refused: a window may take `floor`, or `growth` times the best before it."""

    resource: Resource
    floor: float
    window_s: float = 10.0
    growth: float = 2.0


@dataclass(frozen=True, slots=True)
class SteepnessStatistics:
    """The window under way and the best one before it."""

    used: float
    peak: float


class Steepness:
    """How fast an account's use has risen, under an acceleration limit."""

    __slots__ = ("_began_s", "_peak", "_rule", "_used")

    def __init__(self, rule: Acceleration, now: float) -> None:
        self._rule = rule
        self._began_s = now
        self._used = 0.0
        self._peak = 0.0

    def __repr__(self) -> str:
        return f"<Steepness {self._used:.0f} after {self._peak:.0f}>"

    def shortage(self, needs: Needs, now: float) -> Shortage | None:
        """Refuse what would rise too sharply; the first call of a window always passes."""
        rule = self._rule
        ends_s = self._began_s + rule.window_s
        allowed = max(rule.floor, rule.growth * self._peak)
        if now >= ends_s or self._used == 0 or self._used + needs.of(rule.resource) <= allowed:
            return None
        return Shortage(rule.resource, ends_s)

    def admit(self, needs: Needs, now: float) -> None:
        if now >= self._began_s + self._rule.window_s:
            self._peak = max(self._peak, self._used)
            self._began_s, self._used = now, 0.0
        self._used += needs.of(self._rule.resource)

    def statistics(self) -> SteepnessStatistics:
        return SteepnessStatistics(self._used, self._peak)


@dataclass(frozen=True, slots=True)
class Terms:
    """What an account is subject to. `hidden` limits are enforced but never reported."""

    limits: tuple[Limit, ...] = ()
    hidden: tuple[Limit, ...] = ()
    charging: Charging = "produced"
    refusals_charged: bool = False
    changes: tuple[tuple[float, float], ...] = ()
    """(time, factor): from then on every rate limit is this multiple of its first amount."""
    acceleration: Acceleration | None = None
    neighbour: Neighbour | None = None
    windows: tuple[UsageWindow, ...] = ()
    """Usage windows: told as the share used, on the wire that has words for it."""
    used: tuple[tuple[str, float], ...] = ()
    """By the name of a limit, what was used of it before the start. The bound does not know it."""


@dataclass(frozen=True, slots=True)
class Charge:
    """A line of the log: so much of a resource, taken evenly between two times, or given back."""

    resource: Resource
    from_s: float
    to_s: float
    amount: float
    by: str


@dataclass(frozen=True, slots=True)
class AccountStatistics:
    """Totals of one account. Shares are of what the neighbour wanted and of what is fair."""

    charges: int
    neighbour_wanted: float
    neighbour_served: float


_NOBODY: Final = PresenceStatistics(0.0, 0.0, 0)


class SimulatedAccount:
    """All limits of one key, charged together or not at all."""

    __slots__ = (
        "_meters", "_presence", "_steepness", "_usage", "log", "terms",
    )  # fmt: skip

    def __init__(self, terms: Terms, now: float) -> None:
        self.terms = terms
        self.log: list[Charge] = []
        self._meters: list[tuple[Limit, AnyMeter]] = [
            (limit, meter_of(limit, now)) for limit in terms.limits + terms.hidden
        ]
        used = dict(terms.used)
        for limit, meter in self._meters:
            if limit.name in used:
                meter.charge(used[limit.name], now)
        for _, factor in [change for change in terms.changes if change[0] <= now][-1:]:
            self._rescale(factor, now)
        self._presence = Presence(terms.neighbour, now) if terms.neighbour else None
        self._steepness = Steepness(terms.acceleration, now) if terms.acceleration else None
        self._usage = UsageWindows(terms.windows, now)

    def __repr__(self) -> str:
        return f"<Account {', '.join(f'{limit.name} {meter!r}' for limit, meter in self._meters)}>"

    def next_change_s(self, now: float) -> float:
        """When the account next does something by itself: a neighbour's tick or a changed limit."""
        changes = (at for at, _ in self.terms.changes if at > now)
        tick_s = self._presence.next_tick_s if self._presence else inf
        return min(tick_s, min(changes, default=inf))

    def advance(self, now: float) -> None:
        """Let the neighbour's tick and limit changes at exactly `now` happen."""
        for at, factor in self.terms.changes:
            if at == now:
                self._rescale(factor, now)
        if self._presence is not None and now >= self._presence.next_tick_s:
            self._presence.tick(
                self._meters,
                lambda resource, amount: self._note(resource, now, now, amount, "neighbour"),
                now,
            )

    def shortage(self, needs: Needs, now: float) -> Shortage | None:
        """The limit that would hold this call back the longest, or None if all can take it."""
        worst: Shortage | None = None
        for limit, meter in self._meters:
            need = needs.of(limit.resource)
            if self._is_unreserved(limit.resource):
                need = needs.input_tokens + 1.0 if limit.resource == "tokens" else 1.0
            until = meter.when(need, now)
            if until > now and (worst is None or until > worst.until_s):
                worst = Shortage(limit.resource, until)
        empty_until_s = self._usage.empty_until_s(now)
        if empty_until_s > max(now, worst.until_s if worst else now):
            return Shortage("tokens", empty_until_s)
        if worst is None and self._steepness is not None:
            return self._steepness.shortage(needs, now)
        return worst

    def admit(self, needs: Needs, now: float, by: str) -> None:
        """Charge everything that is charged at admission."""
        for limit, meter in self._meters:
            if not self._is_unreserved(limit.resource):
                meter.charge(needs.of(limit.resource), now)
            elif limit.resource == "tokens":
                meter.charge(needs.input_tokens, now)
        self._usage.charge(needs.input_tokens, now)
        self._note("requests", now, now, 1.0, by)
        self._note("input", now, now, needs.input_tokens, by)
        if self.terms.charging != "produced":
            self._note("output", now, now, needs.output_tokens, by)
        if needs.spend_microusd > 0:
            self._note("spend", now, now, needs.spend_microusd, by)
        if self._steepness is not None:
            self._steepness.admit(needs, now)

    def produce(self, tokens: float, from_s: float, now: float) -> None:
        """Output that left between two times, where output is charged as it is produced."""
        if self.terms.charging != "produced":
            return
        for limit, meter in self._meters:
            if limit.resource in ("output", "tokens"):
                if isinstance(meter, Bucket):
                    meter.drain(tokens, now)
                elif tokens > 0:
                    meter.charge(tokens * _part_since_boundary(meter, from_s, now), now)
        if tokens > 0:
            self._note("output", from_s, now, tokens, "stream")

    def finish(self, reserved: Needs, used_output: float, now: float) -> None:
        """A call ended: its slot is free, and what it reserved and did not use may come back."""
        refund = reserved.output_tokens - used_output
        self._usage.charge(used_output, now)
        for limit, meter in self._meters:
            if limit.resource == "concurrency":
                meter.refund(1.0, now)
            elif self.terms.charging == "reserved" and limit.resource in ("output", "tokens"):
                meter.refund(refund, now)
        if self.terms.charging == "reserved":
            self._note("output", now, now, -refund, "refund")

    def refuse(self, now: float) -> None:
        """A refusal is charged as a request where the provider counts failed calls."""
        if not self.terms.refusals_charged:
            return
        for limit, meter in self._meters:
            if limit.resource == "requests":
                taken = max(0.0, min(1.0, meter.available(now)))
                meter.charge(taken, now)
                self._note("requests", now, now, taken, "refusal")

    def readings(self, now: float) -> tuple[LimitReading, ...]:
        """The visible limits as headers would report them at `now`."""
        told = []
        for limit, meter in self._meters[: len(self.terms.limits)]:
            if isinstance(meter, Gauge):
                continue
            left = meter.available(now)
            told.append(
                LimitReading(limit.resource, limit.period_s, self._amount(limit, meter),
                             max(0.0, left), _reset_s(meter, left, now))
            )  # fmt: skip
        return (*told, *self._usage.readings(now))

    def statistics(self) -> AccountStatistics:
        presence = self._presence.statistics() if self._presence else _NOBODY
        return AccountStatistics(len(self.log), presence.wanted, presence.served)

    def _amount(self, limit: Limit, meter: AnyMeter) -> float:
        if isinstance(meter, Bucket):
            return meter.rate_per_s * limit.period_s
        return meter.limit

    def _is_unreserved(self, resource: Resource) -> bool:
        return self.terms.charging == "produced" and resource in ("output", "tokens")

    def _note(self, resource: Resource, from_s: float, to_s: float, amount: float, by: str) -> None:
        self.log.append(Charge(resource, from_s, to_s, amount, by))

    def _rescale(self, factor: float, now: float) -> None:
        for limit, meter in self._meters:
            scaled = replace(limit, amount=limit.amount * factor)
            if isinstance(meter, Bucket):
                burst = limit.capacity * factor
                meter.resize(scaled.rate_per_s, burst, now)
            elif isinstance(meter, SlidingWindow | FixedWindow):
                meter.limit = scaled.amount


def _reset_s(meter: AnyMeter, left: float, now: float) -> float:
    if isinstance(meter, Bucket):
        return max(0.0, meter.capacity - left) / meter.rate_per_s
    if isinstance(meter, FixedWindow):
        return meter.boundary_s - now
    return max(0.0, meter.when(meter.limit, now) - now)


def _part_since_boundary(meter: AnyMeter, from_s: float, now: float) -> float:
    """Of what flowed evenly since `from_s`, the part that falls into the window of `now`."""
    if not isinstance(meter, FixedWindow):
        return 1.0
    meter.available(now)
    begin_s = meter.boundary_s - meter.period_s
    return (now - begin_s) / (now - from_s) if from_s < begin_s else 1.0
