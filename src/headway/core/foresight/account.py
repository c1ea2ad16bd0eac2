"""One account at a simulated provider: its limits, its charges, its neighbours, its own log.

Laws:
- A call is accepted only if every limit, visible or not, can take it; then all are charged.
- Every charge is written to the log as it happens, so that `audit.py` can recompute each rolling
  window without trusting a meter.
- A neighbour is a real user: it is refused when there is no room, keeps a bounded backlog, and
  tries again at its next tick.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import Final, Literal

from headway.core.quota.window import AnyMeter, Bucket, FixedWindow, Gauge, SlidingWindow, meter_of
from headway.core.values import Charging, Limit, LimitReading, Resource

BACKLOG_S_MAX: Final = 10.0
"""A neighbour gives up what it could not place for this long."""

FAIR_SHARE: Final = 0.5
"""Two users, one account: what a neighbour wants beyond half of a limit is not owed to it."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Somebody else on the account: what share of each rate it wants, when, and how many slots."""

    share: float = 0.0
    slots: int = 0
    shape: Literal["square", "ramp", "burst"] = "square"
    on_s: float = inf
    off_s: float = 0.0
    start_s: float = 0.0
    tick_s: float = 1.0

    def wants(self, now: float) -> float:
        """Share of each rate wanted during the tick that begins at `now`."""
        if now < self.start_s:
            return 0.0
        if self.on_s == inf:
            return self.share
        phase = (now - self.start_s) % (self.on_s + self.off_s)
        if phase >= self.on_s:
            return 0.0
        if self.shape == "ramp":
            return self.share * phase / self.on_s
        if self.shape == "burst":
            return self.share * self.on_s / self.tick_s if phase < self.tick_s else 0.0
        return self.share

    def holds(self, now: float) -> int:
        """Slots wanted at `now`: all of them while it is on."""
        if now < self.start_s:
            return 0
        if self.on_s == inf:
            return self.slots
        return self.slots if (now - self.start_s) % (self.on_s + self.off_s) < self.on_s else 0


@dataclass(frozen=True, slots=True)
class Acceleration:
    """Sharp ramps are refused: a window may take `growth` times the best one before it, or `floor`."""

    resource: Resource
    floor: float
    window_s: float = 10.0
    growth: float = 2.0


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


@dataclass(frozen=True, slots=True)
class Charge:
    """A line of the log: `amount` of a resource, taken evenly between two times. Refunds are negative."""

    resource: Resource
    from_s: float
    to_s: float
    amount: float
    by: str


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
class AccountStatistics:
    """Totals of one account. Shares are of what the neighbour wanted and of what is fair."""

    charges: int
    neighbour_wanted: float
    neighbour_served: float


class Account:
    """All limits of one key, charged together or not at all."""

    __slots__ = (
        "_accelerated", "_backlog", "_meters", "_next_tick_s", "_peak", "_slots", "log",
        "served", "terms", "wanted",
    )  # fmt: skip

    def __init__(self, terms: Terms, now: float) -> None:
        self.terms = terms
        self.log: list[Charge] = []
        self._meters: list[tuple[Limit, AnyMeter]] = [
            (limit, meter_of(limit, now)) for limit in terms.limits + terms.hidden
        ]
        self._next_tick_s = now if terms.neighbour else inf
        self._backlog = 0.0
        self._slots = 0
        self.wanted = 0.0
        self.served = 0.0
        self._peak = 0.0
        self._accelerated: tuple[float, float] = (now, 0.0)

    def __repr__(self) -> str:
        return f"<Account {', '.join(f'{limit.name} {meter!r}' for limit, meter in self._meters)}>"

    def next_change_s(self, now: float) -> float:
        """When the account next does something by itself: a neighbour's tick or a changed limit."""
        changes = (at for at, _ in self.terms.changes if at > now)
        return min(self._next_tick_s, min(changes, default=inf))

    def advance(self, now: float) -> None:
        """Let the neighbour's tick and limit changes at exactly `now` happen."""
        for at, factor in self.terms.changes:
            if at == now:
                self._rescale(factor, now)
        neighbour = self.terms.neighbour
        if neighbour is not None and now >= self._next_tick_s:
            self._tick(neighbour, now)
            self._next_tick_s = now + neighbour.tick_s

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
        return worst or self._too_steep(needs, now)

    def admit(self, needs: Needs, now: float, by: str) -> None:
        """Charge everything that is charged at admission."""
        for limit, meter in self._meters:
            if not self._is_unreserved(limit.resource):
                meter.charge(needs.of(limit.resource), now)
            elif limit.resource == "tokens":
                meter.charge(needs.input_tokens, now)
        self._note("requests", now, now, 1.0, by)
        self._note("input", now, now, needs.input_tokens, by)
        if self.terms.charging == "reserved":
            self._note("output", now, now, needs.output_tokens, by)
        self._accelerate(needs, now)

    def produce(self, tokens: float, from_s: float, now: float) -> None:
        """Output that left between two times, where output is charged as it is produced."""
        if self.terms.charging == "reserved":
            return
        for limit, meter in self._meters:
            if limit.resource in ("output", "tokens"):
                if isinstance(meter, Bucket):
                    meter.drain(tokens, now)
                elif tokens > 0:
                    meter.charge(tokens, now)
        if tokens > 0:
            self._note("output", from_s, now, tokens, "stream")

    def finish(self, reserved: Needs, used_output: float, now: float) -> None:
        """A call ended: its slot is free, and what it reserved and did not use comes back."""
        refund = reserved.output_tokens - used_output
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
                meter.charge(max(0.0, min(1.0, meter.available(now))), now)

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
        return tuple(told)

    def statistics(self) -> AccountStatistics:
        return AccountStatistics(len(self.log), self.wanted, self.served)

    def _amount(self, limit: Limit, meter: AnyMeter) -> float:
        if isinstance(meter, Bucket):
            return meter.rate_per_s * limit.period_s
        return meter.limit

    def _is_unreserved(self, resource: Resource) -> bool:
        return self.terms.charging == "produced" and resource in ("output", "tokens")

    def _note(self, resource: Resource, from_s: float, to_s: float, amount: float, by: str) -> None:
        self.log.append(Charge(resource, from_s, to_s, amount, by))

    def _too_steep(self, needs: Needs, now: float) -> Shortage | None:
        rule = self.terms.acceleration
        if rule is None:
            return None
        began, used = self._accelerated
        if now >= began + rule.window_s:
            return None
        allowed = max(rule.floor, rule.growth * self._peak)
        if used == 0 or used + needs.of(rule.resource) <= allowed:
            return None
        return Shortage(rule.resource, began + rule.window_s)

    def _accelerate(self, needs: Needs, now: float) -> None:
        rule = self.terms.acceleration
        if rule is None:
            return
        began, used = self._accelerated
        if now >= began + rule.window_s:
            self._peak = max(self._peak, used)
            began, used = now, 0.0
        self._accelerated = (began, used + needs.of(rule.resource))

    def _rescale(self, factor: float, now: float) -> None:
        for limit, meter in self._meters:
            scaled = replace(limit, amount=limit.amount * factor)
            if isinstance(meter, Bucket):
                burst = limit.capacity * factor
                meter.resize(scaled.rate_per_s, burst, now)
            elif isinstance(meter, SlidingWindow | FixedWindow):
                meter.limit = scaled.amount

    def _tick(self, neighbour: Neighbour, now: float) -> None:
        """The neighbour places as many whole calls as fit; the rest waits in its backlog."""
        rates = [(limit, meter) for limit, meter in self._meters if limit.kind != "gauge"]
        fresh = neighbour.wants(now) * neighbour.tick_s
        self.wanted += min(fresh, FAIR_SHARE * neighbour.tick_s)
        quantum = neighbour.share * neighbour.tick_s
        patience = max(neighbour.share * BACKLOG_S_MAX, fresh)
        self._backlog = min(self._backlog + fresh, patience)
        while quantum > 0 and self._backlog >= quantum * (1 - 1e-9):
            asks = [(limit, meter, quantum * _rate(limit, meter)) for limit, meter in rates]
            if any(meter.when(ask, now) > now for _, meter, ask in asks):
                break
            for limit, meter, ask in asks:
                meter.charge(ask, now)
                self._note(limit.resource, now, now, ask, "neighbour")
            self._backlog -= quantum
            self.served += quantum
        self._hold(neighbour, now)

    def _hold(self, neighbour: Neighbour, now: float) -> None:
        for limit, meter in self._meters:
            if limit.resource == "concurrency":
                change = neighbour.holds(now) - self._slots
                if change > 0:
                    change = min(change, max(0, int(meter.available(now))))
                meter.charge(change, now)
                self._slots += change


def _rate(limit: Limit, meter: AnyMeter) -> float:
    return meter.rate_per_s if isinstance(meter, Bucket) else limit.rate_per_s


def _reset_s(meter: AnyMeter, left: float, now: float) -> float:
    if isinstance(meter, Bucket):
        return max(0.0, meter.capacity - left) / meter.rate_per_s
    if isinstance(meter, FixedWindow):
        return meter.boundary_s - now
    return max(0.0, meter.when(meter.statistics().limit, now) - now)
