"""An exhaustive search for the shortest schedule of a few calls, to hold the bound against.

It shares nothing with the bound but the records. It tries every order of starts on counters of
its own, start by start, and with reservations also starts that are later than they need to be,
so that a refund comes when something is there to be given back. Output that is charged as it is
produced has a search of its own, in `stream_search.py`.

Instances in which output is charged as it is produced have at most 3 calls, those with
reservations at most 4, all others at most 6: the search is slow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from itertools import permutations
from math import floor, inf

from msgspec import Struct, field
from msgspec.structs import replace

from headway.base.values import Limit, LimitKind, Resource
from headway.sim.account import Terms
from headway.sim.draw import lognormal, uniform
from headway.sim.provider import Latency, ProviderSpec, SimulatedCall

LATER_S = 1e-7
"""How much after a start an end must come to count as after it."""

TINY = 1e-9


class Instance(Struct, frozen=True):
    """Something small to be done at some provider."""

    spec: ProviderSpec
    tasks: tuple[tuple[SimulatedCall, ...], ...]
    needs: tuple[tuple[int, ...], ...]
    share: float
    calls: tuple[SimulatedCall, ...]
    before: tuple[frozenset[int], ...]
    """Of each call, all calls that must have ended."""
    lengths: tuple[float, ...]
    limits: tuple[Limit, ...]
    """What is enforced on rates: the provider's limits and the user's ceilings."""
    width: float

    @property
    def is_reserved(self) -> bool:
        return self.spec.terms.charging == "reserved"

    @property
    def counts_output(self) -> bool:
        return any(limit.resource in ("output", "tokens") for limit in self.limits)

    def end(self, starts: Mapping[int, float]) -> float:
        return max(at + self.lengths[call] for call, at in starts.items())

    def ready(self, call: int, starts: Mapping[int, float]) -> float:
        return max((starts[other] + self.lengths[other] for other in self.before[call]), default=0)


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
    reserved = dice() < 0.6
    names: tuple[Resource, ...] = ("requests", "input", "output", "tokens")
    resources = [name for name in names if dice() < 0.4] or ["input"]
    counts_output = "output" in resources or "tokens" in resources
    most = (4 if reserved else 3) if counts_output else 6
    calls = [draw_call(dice, seed, place) for place in range(int(dice(1, most + 1)))]
    tasks: list[tuple[SimulatedCall, ...]] = []
    left = list(calls)
    while left:
        size = 2 if dice() < 0.2 else 1
        tasks.append(tuple(left[:size]))
        left = left[size:]
    needs = [tuple(o for o in range(place) if dice() < 0.25) for place in range(len(tasks))]
    share = 0.5 if dice() < 0.25 else 1.0
    fits = counts_output and not reserved
    limits = [draw_limit(dice, name, calls, (reserved, fits, share)) for name in resources]
    if dice() < 0.8:
        limits.append(Limit("concurrency", int(dice(1, 5)), kind="gauge"))
    latency = Latency(dice(0.2, 2.0), dice(0.005, 0.04))
    terms = Terms(tuple(limits), charging="reserved" if reserved else "produced")
    return lay(ProviderSpec("small", terms, latency), tasks, needs, share)


def draw_call(dice: Dice, seed: int, place: int) -> SimulatedCall:
    output = float(int(dice(20, 400)))
    return SimulatedCall(
        place,
        float(int(dice(50, 1000))),
        output,
        output + float(int(dice(0, 800))),
        lognormal(seed, 6, place, 0.4),
    )


def draw_limit(
    dice: Dice, resource: Resource, calls: Sequence[SimulatedCall], rule: tuple[bool, bool, float]
) -> Limit:
    """A limit near the demand. Calls larger than the limit occur, but not where output flows."""
    reserved, fits, share = rule
    sizes = [amount_of(resource, call, reserved) for call in calls]
    period = dice.pick(10.0, 60.0)
    kinds: tuple[LimitKind, ...] = ("bucket", "bucket", "sliding", "fixed")
    kind = kinds[int(dice(0, 4))]
    amount = max(sum(sizes) * dice(0.25, 1.6), max(sizes) * dice(0.8, 1.3) + 2.0)
    burst = amount * dice.pick(0.1, 0.3, 0.6, 1.0)
    if fits:
        amount = max(amount, (max(sizes) + 2.0) / share)
    if fits or dice() < 0.8:
        burst = max(burst, max(sizes) + 2.0)
    is_burst = kind == "bucket" and dice() < 0.6
    return Limit(resource, amount, period, kind, burst if is_burst else None)


def amount_of(resource: Resource, call: SimulatedCall, reserved: bool) -> float:
    output = call.max_tokens if reserved else call.output_tokens
    known = {"requests": 1.0, "input": call.input_tokens, "output": output}
    return known.get(resource, call.input_tokens + output)


def lay(
    spec: ProviderSpec,
    tasks: Sequence[tuple[SimulatedCall, ...]],
    needs: Sequence[tuple[int, ...]],
    share: float,
) -> Instance:
    last_of: list[frozenset[int]] = []
    before: list[frozenset[int]] = []
    for calls, of in zip(tasks, needs, strict=True):
        entry = frozenset[int]().union(*(last_of[need] for need in of))
        for _ in calls:
            before.append(entry)
            entry |= {len(before) - 1}
        last_of.append(entry)
    rates = [limit for limit in spec.terms.limits if limit.kind != "gauge"]
    ceilings = [replace(limit, kind="sliding", amount=share * limit.amount, burst=None)
                for limit in rates if share < 1]  # fmt: skip
    widths = [max(1, floor(share * limit.amount))
              for limit in spec.terms.limits if limit.kind == "gauge"]  # fmt: skip
    latency = spec.latency
    flat = tuple(call for task in tasks for call in task)
    lengths = tuple(
        latency.first_byte_s * call.luck + latency.per_output_token_s * call.output_tokens
        for call in flat
    )
    return Instance(spec, tuple(tasks), tuple(needs), share, flat, tuple(before), lengths,
                    tuple(rates + ceilings), min(widths, default=inf))  # fmt: skip


class Counter(Struct):
    """One limit, counted the plain way: forwards in time, one event after another."""

    limit: Limit
    level: float
    at_s: float = 0.0
    trail: list[tuple[float, float]] = field(default_factory=list)
    refunded: set[int] = field(default_factory=set)
    early: set[int] = field(default_factory=set)
    """Calls whose refund might have been worth more later: a bucket has overflown since."""

    def twin(self) -> Counter:
        twin = copy(self)
        twin.trail = list(self.trail)
        return twin

    def window(self, now: float) -> int:
        return floor(now / self.limit.period_s + TINY)

    def move(self, now: float) -> None:
        limit = self.limit
        if limit.kind == "bucket":
            self.level += limit.rate_per_s * (now - self.at_s)
            self.clip()
        elif limit.kind == "sliding":
            self.trail = [entry for entry in self.trail if entry[0] + limit.period_s > now + TINY]
            self.level = limit.capacity - sum(amount for _, amount in self.trail)
        elif self.window(now) > self.window(self.at_s):
            self.level = limit.capacity
        self.at_s = now

    def wait(self, need: float, now: float) -> float:
        self.move(now)
        limit = self.limit
        missing = min(need, limit.capacity) - self.level
        if missing <= TINY * limit.capacity:
            return now
        if limit.kind == "bucket":
            return now + missing / limit.rate_per_s
        if limit.kind == "fixed":
            return (self.window(now) + 1) * limit.period_s
        for at, amount in self.trail:
            missing -= amount
            if missing <= TINY * limit.capacity:
                return at + limit.period_s
        raise AssertionError("an empty window has room")

    def charge(self, amount: float, now: float) -> None:
        self.move(now)
        self.level -= amount
        if self.limit.kind == "sliding":
            self.trail.append((now, amount))

    def clip(self) -> None:
        if self.level > self.limit.capacity:
            self.level = self.limit.capacity
            self.early |= self.refunded

    def refund(self, call: int, amount: float, now: float) -> None:
        self.move(now)
        self.refunded.add(call)
        self.level += amount
        self.clip()
        if self.limit.kind != "bucket":
            self.early.add(call)
        while self.trail and amount > 0:
            at, held = self.trail.pop()
            if held > amount:
                self.trail.append((at, held - amount))
            amount -= held


class World(Struct):
    """An instance being played, call by call, each as early as everything allows."""

    instance: Instance
    counters: list[Counter]
    running: list[tuple[float, int]] = field(default_factory=list)
    starts: dict[int, float] = field(default_factory=dict)
    last_s: float = 0.0

    def twin(self) -> World:
        return World(self.instance, [counter.twin() for counter in self.counters],
                     list(self.running), dict(self.starts), self.last_s)  # fmt: skip

    def start(self, place: int, release_s: float = 0.0) -> None:
        one = self.instance
        now = max(self.last_s, release_s, one.ready(place, self.starts))
        needs = [amount_of(counter.limit.resource, one.calls[place], one.is_reserved)
                 for counter in self.counters]  # fmt: skip
        while True:
            self.end_until(now)
            until = max(counter.wait(need, now)
                        for counter, need in zip(self.counters, needs, strict=True))  # fmt: skip
            next_end = min(self.running, default=(inf, 0))[0]
            if len(self.running) >= one.width:
                now = next_end
            elif until > now:
                now = min(until, next_end)
            else:
                break
        for counter, need in zip(self.counters, needs, strict=True):
            counter.charge(need, now)
        self.starts[place] = self.last_s = now
        self.running.append((now + one.lengths[place], place))

    def end_until(self, now: float) -> None:
        for end, place in sorted(self.running):
            if end <= now + 1e-12:
                self.running.remove((end, place))
                call = self.instance.calls[place]
                unused = call.max_tokens - call.output_tokens if self.instance.is_reserved else 0.0
                for counter in self.counters:
                    if unused > 0 and counter.limit.resource in ("output", "tokens"):
                        counter.refund(place, unused, end)


def new_world(instance: Instance) -> World:
    return World(instance, [Counter(limit, limit.capacity) for limit in instance.limits])


def best_prompt(instance: Instance) -> dict[int, float]:
    """The best schedule in which every call starts as early as its order allows."""
    best: dict[int, float] = {}
    worlds = [new_world(instance)]
    while worlds:
        world = worlds.pop()
        if best and world.starts and instance.end(world.starts) >= instance.end(best):
            continue
        if len(world.starts) == len(instance.calls):
            best = world.starts
        for call in range(len(instance.calls)):
            if call not in world.starts and instance.before[call] <= world.starts.keys():
                twin = world.twin()
                twin.start(call)
                worlds.append(twin)
    return best


def best_with_refunds(instance: Instance) -> dict[int, float]:
    """The best schedule if up to two calls may also end just after a later start."""
    best: dict[int, float] = {}
    for order in orders(instance):
        plans: list[dict[int, float]] = [{}]
        while plans:
            releases = plans.pop()
            world = new_world(instance)
            for call in order:
                world.start(call, releases.get(call, 0.0))
            starts = world.starts
            if not best or instance.end(starts) < instance.end(best):
                best = starts
            if len(releases) < 2:
                plans += [
                    {**releases, call: at}
                    for call, at in waits(world, order)
                    if call not in releases
                ]
    return best


def orders(instance: Instance) -> Iterator[tuple[int, ...]]:
    for order in permutations(range(len(instance.calls))):
        if all(instance.before[call] <= set(order[:at]) for at, call in enumerate(order)):
            yield order


def waits(world: World, order: Sequence[int]) -> Iterator[tuple[int, float]]:
    """Starts that make a call end just after a later one has started."""
    early = set[int]().union(*(counter.early for counter in world.counters))
    for place, call in enumerate(order):
        if call in early:
            for later in order[place + 1 :]:
                at = world.starts[later] - world.instance.lengths[call] + LATER_S
                if at > world.starts[call]:
                    yield call, at
