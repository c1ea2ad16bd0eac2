"""The bound against the true optimum: a thousand small instances, each searched a second time.

The second search shares nothing with `bound.py` but the records. It tries every order of starts on
counters of its own, start by start, and where waiting can pay (refunds, output as it is produced)
also starts that are later than they need to be. The best schedule is then played to the real
`Provider`, which must accept it call by call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import permutations
from math import floor, inf
from statistics import median

from headway.core.foresight.account import Charge, Terms
from headway.core.foresight.bound import bound
from headway.core.foresight.draw import lognormal, uniform
from headway.core.foresight.provider import Accepted, Call, Latency, Provider, ProviderSpec
from headway.core.values import Limit, LimitKind, Resource

LATER_S = 1e-7
"""How much after a start an end must come to count as after it."""


@dataclass(frozen=True)
class Instance:
    """Something small to be done at some provider."""

    spec: ProviderSpec
    tasks: tuple[tuple[Call, ...], ...]
    needs: tuple[tuple[int, ...], ...]
    share: float

    @property
    def calls(self) -> list[Call]:
        return [call for task in self.tasks for call in task]

    @property
    def width(self) -> float:
        for limit in self.spec.terms.limits:
            if limit.kind == "gauge":
                return max(1, floor(self.share * limit.amount))
        return inf

    def length(self, call: Call) -> float:
        latency = self.spec.latency
        return latency.first_byte_s * call.luck + latency.per_output_token_s * call.output_tokens

    def before(self) -> list[set[int]]:
        """Of each call, all calls that must have ended."""
        last_of: list[set[int]] = []
        found: list[set[int]] = []
        for calls, needs in zip(self.tasks, self.needs, strict=True):
            entry = set().union(*(last_of[need] for need in needs))
            for _ in calls:
                found.append(entry)
                entry = entry | {len(found) - 1}
            last_of.append(entry)
        return found


class Dice:
    """Draws for one instance, one after another."""

    def __init__(self, seed: int) -> None:
        self.seed, self.index = seed, 0

    def __call__(self, low: float = 0.0, high: float = 1.0) -> float:
        self.index += 1
        return low + (high - low) * uniform(self.seed, 5, self.index)

    def pick(self, *options: float) -> float:
        return options[int(self(0, len(options)))]


def draw_instance(seed: int) -> Instance:
    dice = Dice(seed)
    charging = "reserved" if dice() < 0.45 else "produced"
    resources: list[Resource] = [
        resource for resource in ("requests", "input", "output", "tokens") if dice() < 0.4
    ] or ["input"]
    counts_output = "output" in resources or "tokens" in resources
    most = (3 if charging == "produced" else 4) if counts_output else 6
    count = int(dice(1, most + 1))
    calls = [draw_call(dice, seed, place) for place in range(count)]
    tasks: list[tuple[Call, ...]] = []
    while calls:
        size = 2 if dice() < 0.2 else 1
        tasks.append(tuple(calls[:size]))
        calls = calls[size:]
    needs = tuple(
        tuple(other for other in range(place) if dice() < 0.25) for place in range(len(tasks))
    )
    flat = [call for task in tasks for call in task]
    share = 0.5 if dice() < 0.25 else 1.0
    limits = [draw_limit(dice, resource, flat, charging == "reserved") for resource in resources]
    if dice() < 0.8:
        limits.append(Limit("concurrency", int(dice(1, 5)), kind="gauge"))
    latency = Latency(dice(0.2, 2.0), dice(0.005, 0.04))
    terms = Terms(tuple(limits), charging="reserved" if charging == "reserved" else "produced")
    return Instance(ProviderSpec("small", terms, latency), tuple(tasks), needs, share)


def draw_call(dice: Dice, seed: int, place: int) -> Call:
    output = float(int(dice(20, 400)))
    return Call(place, float(int(dice(50, 1000))), output, output + float(int(dice(0, 800))),
                lognormal(seed, 6, place, 0.4))  # fmt: skip


def draw_limit(dice: Dice, resource: Resource, calls: Sequence[Call], reserved: bool) -> Limit:
    sizes = [amount_of(resource, call, reserved) for call in calls]
    period = dice.pick(10.0, 60.0)
    kinds: tuple[LimitKind, ...] = ("bucket", "bucket", "sliding", "fixed")
    kind = kinds[int(dice(0, 4))]
    amount = max(sum(sizes) * dice(0.25, 1.6), max(sizes) * dice(0.8, 1.3) + 2.0)
    burst = amount * dice.pick(0.1, 0.3, 0.6, 1.0) if dice() < 0.6 else None
    if burst is not None and dice() < 0.8:
        burst = max(burst, max(sizes) + 2.0)
    return Limit(resource, amount, period, kind, burst if kind == "bucket" else None)


def amount_of(resource: Resource, call: Call, reserved: bool) -> float:
    output = call.max_tokens if reserved else call.output_tokens
    return {"requests": 1.0, "input": call.input_tokens, "output": output}.get(
        resource, call.input_tokens + output
    )


def limits_of(instance: Instance) -> list[Limit]:
    """What is enforced on rates: the provider's limits and the user's ceilings."""
    rates = [limit for limit in instance.spec.terms.limits if limit.kind != "gauge"]
    if instance.share == 1.0:
        return rates
    return rates + [
        Limit(limit.resource, instance.share * limit.amount, limit.period_s, "sliding")
        for limit in rates
    ]


@dataclass
class Counter:
    """One limit, counted the plain way."""

    limit: Limit
    level: float = 0.0
    at_s: float = 0.0
    trail: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.level = self.limit.capacity

    def twin(self) -> Counter:
        twin = copy(self)
        twin.trail = list(self.trail)
        return twin

    def move(self, now: float) -> None:
        limit = self.limit
        if limit.kind == "bucket":
            self.level = min(limit.capacity, self.level + limit.rate_per_s * (now - self.at_s))
        elif limit.kind == "fixed":
            if floor(now / limit.period_s + 1e-9) > floor(self.at_s / limit.period_s + 1e-9):
                self.level = limit.capacity
        else:
            self.trail = [entry for entry in self.trail if entry[0] + limit.period_s > now + 1e-9]
            self.level = limit.capacity - sum(amount for _, amount in self.trail)
        self.at_s = now

    def wait(self, need: float, now: float) -> float:
        self.move(now)
        limit = self.limit
        missing = min(need, limit.capacity) - self.level
        if missing <= 1e-9 * limit.capacity:
            return now
        if limit.kind == "bucket":
            return now + missing / limit.rate_per_s
        if limit.kind == "fixed":
            return (floor(now / limit.period_s + 1e-9) + 1) * limit.period_s
        for at, amount in self.trail:
            missing -= amount
            if missing <= 1e-9 * limit.capacity:
                break
        return at + limit.period_s

    def charge(self, amount: float, now: float) -> None:
        self.move(now)
        self.level -= amount
        if self.limit.kind == "sliding" and amount > 0:
            self.trail.append((now, amount))

    def refund(self, amount: float, now: float) -> None:
        self.move(now)
        self.level = min(self.limit.capacity, self.level + amount)
        while self.trail and amount > 0:
            at, held = self.trail.pop()
            if held > amount:
                self.trail.append((at, held - amount))
            amount -= held


@dataclass
class World:
    """An instance being played: what was started and what every limit has counted."""

    instance: Instance
    counters: list[Counter]
    running: list[tuple[float, int]] = field(default_factory=list)
    starts: dict[int, float] = field(default_factory=dict)

    def twin(self) -> World:
        return World(self.instance, [counter.twin() for counter in self.counters],
                     list(self.running), dict(self.starts))  # fmt: skip

    def start(self, place: int, not_before: float) -> float:
        """Start a call as early as everything allows."""
        call = self.instance.calls[place]
        reserved = self.instance.spec.terms.charging == "reserved"
        now = not_before
        while True:
            self.end_until(now)
            next_end = min(self.running, default=(inf, 0))[0]
            waits = [counter.wait(amount_of(counter.limit.resource, call, reserved), now)
                     for counter in self.counters]  # fmt: skip
            if len(self.running) >= self.instance.width:
                now = next_end
            elif max(waits, default=now) > now:
                now = min(max(waits), next_end)
            else:
                break
        for counter in self.counters:
            counter.charge(amount_of(counter.limit.resource, call, reserved), now)
        self.starts[place] = now
        self.running.append((now + self.instance.length(call), place))
        return now

    def end_until(self, now: float) -> None:
        for end, place in sorted(self.running):
            if end <= now + 1e-12:
                self.running.remove((end, place))
                call = self.instance.calls[place]
                for counter in self.counters:
                    if self.instance.spec.terms.charging == "reserved" and counter.limit.resource in ("output", "tokens"):
                        counter.refund(call.max_tokens - call.output_tokens, end)


def orders(before: Sequence[set[int]]) -> Iterator[tuple[int, ...]]:
    for order in permutations(range(len(before))):
        if all(before[call] <= set(order[:place]) for place, call in enumerate(order)):
            yield order


def play(instance, order, before, releases) -> dict[int, float]:
    world = World(instance, [Counter(limit) for limit in limits_of(instance)])
    last = 0.0
    for call in order:
        ready = max((world.starts[o] + instance.length(instance.calls[o]) for o in before[call]), default=0.0)
        last = world.start(call, max(last, ready, releases.get(call, 0.0)))
    return world.starts


def makespan(instance, starts):
    calls = instance.calls
    return max(at + instance.length(calls[place]) for place, at in starts.items())


def delays(instance, order, starts):
    for k in order:
        for j in order:
            end = starts[k] + instance.length(instance.calls[k])
            if j != k and order.index(k) < order.index(j) and end <= starts[j] + 1e-9:
                r = starts[j] - instance.length(instance.calls[k]) + LATER_S
                yield k, r


def optimum_by_orders(instance):
    before = instance.before()
    refunds = instance.spec.terms.charging == "reserved" and any(
        l.resource in ("output", "tokens") for l in instance.spec.terms.limits)
    best = inf, {}
    for order in orders(before):
        todo = [({}, 0)]
        while todo:
            releases, depth = todo.pop()
            starts = play(instance, order, before, releases)
            m = makespan(instance, starts)
            if m < best[0]: best = m, starts
            if refunds and depth < 2:
                for k, r in delays(instance, order, starts):
                    if r > starts[k]:
                        todo.append(({**releases, k: r}, depth + 1))
    return best
