"""One account at the simulated provider: limits, charges, neighbours, log.

Laws:
- A call is accepted only if every limit, visible or not, can take it; then all are charged.
- Every charge is written to the log as it happens, so that `audit.py` can recompute each rolling
  window without trusting a meter.
"""

from __future__ import annotations

from math import inf

from msgspec import Struct

from headway.base.values import HOUR_S, Charging, Limit, LimitReading, Resource
from headway.pacing.headers import named_period_s
from headway.pacing.meters import Bucket, FixedWindow, Gauge, Meter, SlidingWindow, meter_of
from headway.sim.draw import Neighbour, Presence

Shortage = tuple[Resource, float]
"""The resource that a call is short of, and when it would pass if no other call came."""


class UsageWindow(Struct, frozen=True):
    """So many tokens in a period; headers report the share used."""

    tokens: float
    name: str = "5h"
    """`7d`, `7d_oi`: its period, and perhaps more."""
    lasts_s: float | None = None
    """How long it really lasts, if it is shorter than its name: for tests."""
    model: str = ""
    """The only one that it binds."""
    is_paid_beyond: bool = False
    """Calls beyond it are let in, and paid for."""


class Needs(Struct, frozen=True):
    """What a call asks of each resource at admission."""

    input_tokens: float
    output_tokens: float
    spend_microusd: float = 0.0
    model: str = ""

    def of(self, resource: Resource) -> float:
        if resource == "input":
            return self.input_tokens
        if resource == "output":
            return self.output_tokens
        if resource == "tokens":
            return self.input_tokens + self.output_tokens
        return self.spend_microusd if resource == "spend" else 1.0


class Acceleration(Struct, frozen=True):
    """Sharp ramps are refused: a window may take `floor`, or `growth` times the best before it."""

    resource: Resource
    floor: float
    window_s: float = 10.0
    growth: float = 2.0


class Terms(Struct, frozen=True):
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
    used: tuple[tuple[str, float], ...] = ()
    """By the name of a limit, what was used of it before the start. The bound ignores it."""


class Charge(Struct, frozen=True):
    """A line of the log: so much of a resource, taken evenly between two times, or given back."""

    resource: Resource
    from_s: float
    to_s: float
    amount: float
    by: str


class SimulatedAccount:
    """All limits of one key, charged together or not at all."""

    __slots__ = ("_began_s", "_meters", "_peak", "_used", "_windows", "log", "presence", "terms")

    def __init__(self, terms: Terms, now: float) -> None:
        self.terms = terms
        self.log: list[Charge] = []
        self._meters: list[tuple[Limit, Meter]] = [
            (limit, meter_of(limit, now)) for limit in terms.limits + terms.hidden
        ]
        used = dict(terms.used)
        for limit, meter in self._meters:
            if limit.name in used:
                meter.charge(used[limit.name], now)
        for _, factor in [change for change in terms.changes if change[0] <= now][-1:]:
            self._rescale(factor, now)
        self.presence = Presence(terms.neighbour, now) if terms.neighbour else None
        self._began_s, self._used, self._peak = now, 0.0, 0.0
        """Of the acceleration rule: the window, what it has taken, the most of those before."""
        self._windows: list[tuple[UsageWindow, FixedWindow]] = []
        for window in terms.windows:
            lasts_s = window.lasts_s or named_period_s(window.name) or 5 * HOUR_S
            self._windows.append((window, FixedWindow(window.tokens, lasts_s, now + lasts_s)))

    def next_change_s(self, now: float) -> float:
        """When the account next does something by itself: a neighbour's tick or a changed limit."""
        changes = (at for at, _ in self.terms.changes if at > now)
        tick_s = self.presence.next_tick_s if self.presence else inf
        return min(tick_s, min(changes, default=inf))

    def advance(self, now: float) -> None:
        """Let the neighbour's tick and limit changes at exactly `now` happen."""
        for at, factor in self.terms.changes:
            if at == now:
                self._rescale(factor, now)
        if self.presence is not None and now >= self.presence.next_tick_s:
            self.presence.tick(
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
            if until > now and (worst is None or until > worst[1]):
                worst = limit.resource, until
        for named, window in self._windows:
            if named.is_paid_beyond or named.model not in ("", needs.model):
                continue
            if window.available(now) <= 0 and window.boundary_s > (worst[1] if worst else now):
                worst = "tokens", window.boundary_s
        rule = self.terms.acceleration
        if worst is None and rule is not None:
            # The first call of a window always passes.
            ends_s = self._began_s + rule.window_s
            allowed = max(rule.floor, rule.growth * self._peak)
            if now < ends_s and self._used and self._used + needs.of(rule.resource) > allowed:
                return rule.resource, ends_s
        return worst

    def admit(self, needs: Needs, now: float, by: str) -> None:
        """Charge everything that is charged at admission."""
        for limit, meter in self._meters:
            if not self._is_unreserved(limit.resource):
                meter.charge(needs.of(limit.resource), now)
            elif limit.resource == "tokens":
                meter.charge(needs.input_tokens, now)
        self._use_windows(needs, needs.input_tokens, now)
        self._note("requests", now, now, 1.0, by)
        self._note("input", now, now, needs.input_tokens, by)
        if self.terms.charging != "produced":
            self._note("output", now, now, needs.output_tokens, by)
        if needs.spend_microusd > 0:
            self._note("spend", now, now, needs.spend_microusd, by)
        rule = self.terms.acceleration
        if rule is not None:
            if now >= self._began_s + rule.window_s:
                self._peak = max(self._peak, self._used)
                self._began_s, self._used = now, 0.0
            self._used += needs.of(rule.resource)

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
        self._use_windows(reserved, used_output, now)
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
        found = []
        for limit, meter in self._meters[: len(self.terms.limits)]:
            if isinstance(meter, Gauge):
                continue
            left = meter.available(now)
            amount = meter.rate_per_s * limit.period_s if isinstance(meter, Bucket) else meter.size
            reset_s = _reset_s(meter, left, now)
            reading = LimitReading(limit.resource, limit.period_s, amount, max(0.0, left), reset_s)
            found.append(reading)
        for named, window in self._windows:
            share = min(1.0, (window.size - window.available(now)) / window.size)
            reset_s = window.boundary_s - now
            found.append(LimitReading(
                "tokens", named_period_s(named.name), None, None, reset_s, share, named.name,
                share >= 1.0 and not named.is_paid_beyond,
            ))  # fmt: skip
        return tuple(found)

    def _use_windows(self, needs: Needs, tokens: float, now: float) -> None:
        for named, window in self._windows:
            if named.model in ("", needs.model):
                window.charge(tokens, now)

    def _is_unreserved(self, resource: Resource) -> bool:
        return self.terms.charging == "produced" and resource in ("output", "tokens")

    def _note(self, resource: Resource, from_s: float, to_s: float, amount: float, by: str) -> None:
        self.log.append(Charge(resource, from_s, to_s, amount, by))

    def _rescale(self, factor: float, now: float) -> None:
        for limit, meter in self._meters:
            if isinstance(meter, Bucket):
                meter.resize(limit.amount * factor / limit.period_s, limit.capacity * factor, now)
            elif isinstance(meter, SlidingWindow | FixedWindow):
                meter.size = limit.amount * factor


def _reset_s(meter: Meter, left: float, now: float) -> float:
    if isinstance(meter, Bucket):
        return max(0.0, meter.size - left) / meter.rate_per_s
    if isinstance(meter, FixedWindow):
        return meter.boundary_s - now
    return max(0.0, meter.when(meter.size, now) - now)


def _part_since_boundary(meter: Meter, from_s: float, now: float) -> float:
    """Of what flowed evenly since `from_s`, the part that falls into the window of `now`."""
    if not isinstance(meter, FixedWindow):
        return 1.0
    meter.available(now)
    begin_s = meter.boundary_s - meter.period_s
    return (now - begin_s) / (now - from_s) if from_s < begin_s else 1.0
