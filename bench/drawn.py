"""Providers and workloads drawn at random: what the law was not shaped on.

A seed picks everything: how limits count and refill, how much of them the headers tell, latency,
congestion, a cap, a neighbour, the size of calls. `TUNING` names the seeds that constants may be
chosen on, `REPORTED` those that figures are reported on.

Ranges: 20 to 30,000 calls a minute (two thirds of the draws at most 1,200, so that a few hundred
calls meet the limit); periods of 1 to 3,600 s; buckets, sliding and fixed windows; bursts of a
tenth of a call to a minute; caps of 2 to 40 calls at once; 1 to 60 s for a call alone; throughput
that peaks at 2 to 30 calls at once; neighbours that want a tenth to six tenths. Of five draws two
have complete headers, one has partial ones, one names no period, one has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log
from typing import Final, Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from headway.base.values import Charging, Limit, LimitKind, Resource
from headway.sim.account import Terms
from headway.sim.draw import Neighbour, uniform
from headway.sim.provider import FaultModel, Latency, ProviderSpec
from headway.sim.rehearsal import WorkloadSpec

T = TypeVar("T")

DRAW_STREAM: Final = 171

Told = Literal["complete", "partial", "untold", "none"]
"""What headers tell of the limits: all; not all of them, or no resets; all but the period; nothing.
No header names a cap on calls at once."""

TOLD: Final[tuple[Told, ...]] = ("complete", "untold", "partial", "complete", "none")
"""By seed, in turn: chance shall not decide how many of each there are."""

CALLS_MIN: Final = 3.0
"""A window has room for so many typical calls: a call larger than a window is never accepted by a
real provider. Buckets may hold less than a call."""

PERIODS_S: Final = (1.0, 2.0, 5.0, 7.0, 10.0, 20.0, 60.0, 60.0, 60.0, 300.0, 3600.0)


class Drawn(Struct, frozen=True):
    """One provider and the calls that are made to it."""

    seed: int
    told: Told
    spec: ProviderSpec
    work: WorkloadSpec

    def sized(self, tasks: int) -> WorkloadSpec:
        return replace(self.work, name=f"drawn-{self.seed}-{tasks}", tasks=tasks)


class _Dice:
    """Draws of one seed, in order."""

    def __init__(self, seed: int) -> None:
        self._seed, self._count = seed, 0

    def __call__(self) -> float:
        self._count += 1
        return uniform(self._seed, DRAW_STREAM, self._count)

    def between(self, low: float, high: float) -> float:
        """Log-uniform."""
        return exp(log(low) + (log(high) - log(low)) * self())

    def one_of(self, values: Sequence[T]) -> T:
        return values[int(self() * len(values))]

    def happens(self, share: float) -> bool:
        return self() < share


def draw(seed: int) -> Drawn:
    """The provider and the workload of a seed."""
    dice = _Dice(seed)
    told = TOLD[seed % len(TOLD)]
    work = _workload(dice)
    latency = _latency(dice, work)
    dialect, charging = _dialect(dice, told)
    kind: LimitKind = dice.one_of(("bucket", "bucket", "sliding", "fixed"))
    if dialect == "anthropic":
        kind = "bucket"
    period_s = dice.one_of(PERIODS_S)
    if dialect == "anthropic" or (dialect == "cerebras" and period_s < 3600.0):
        # Their headers name the minute; Cerebras names the hour as well.
        period_s = 60.0
    limits = _limits(dice, work, dialect, kind, period_s)
    hidden: tuple[Limit, ...] = ()
    omits: tuple[Literal["limit", "remaining", "reset"], ...] = ()
    if told == "partial":
        if len(limits) == 1 or dice.happens(0.4):
            omits = ("reset",)
        if len(limits) > 1:
            shown = dice.one_of(range(len(limits)))
            hidden = limits[:shown] + limits[shown + 1 :]
            limits = limits[shown : shown + 1]
    if dice.happens(0.3):
        slots = float(round(dice.between(2, 40)))
        hidden += (Limit("concurrency", slots, 0.0, "gauge"),)
    neighbour = None
    if dice.happens(0.15):
        share, on_s = dice.between(0.1, 0.6), dice.between(10, 120)
        neighbour = Neighbour(share, on_s=on_s, off_s=dice.between(10, 120))
    advice: Literal["honest", "none"] = "honest" if dice.happens(0.7) else "none"
    terms = Terms(limits, hidden, charging, dice.happens(0.1), neighbour=neighbour)
    faults = FaultModel(retry_after=advice)
    spec = ProviderSpec(f"drawn-{seed}", terms, latency, faults, dialect, omits)
    return Drawn(seed, told, spec, work)


def _workload(dice: _Dice) -> WorkloadSpec:
    output = round(dice.between(60, 1500))
    return WorkloadSpec(
        "drawn", 22, 1, float(round(dice.between(200, 12_000))), float(output),
        input_spread=dice() * 0.8, output_spread=dice() * 0.8, output_follows=dice() * 0.6,
        luck_spread=dice() * 0.3, input_error=0.01 + 0.04 * dice(),
        max_tokens=float(round(output * dice.between(2, 12))), is_whole=dice.happens(0.2),
    )  # fmt: skip


def _latency(dice: _Dice, work: WorkloadSpec) -> Latency:
    """A call alone takes 1 to 60 s; of congested providers throughput peaks at 2 to 30."""
    whole_s, first = dice.between(1, 60), dice.between(0.04, 0.5)
    per_token_s = max(0.001, whole_s * (1 - first) / work.output_tokens)
    sigma = kappa = 0.0
    if dice.happens(0.3):
        sigma = 0.1 * dice()
        # n / s(n) peaks where kappa n^2 = 1 - sigma.
        kappa = (1.0 - sigma) / dice.between(2, 30) ** 2
    return Latency(max(0.05, whole_s * first), per_token_s, sigma, kappa)


def _dialect(dice: _Dice, told: Told) -> tuple[str, Charging]:
    if told == "none":
        return dice.one_of(("plain", "advice")), "produced"
    if told == "untold":
        untold: tuple[tuple[str, Charging], ...] = (("openai", "reserved"), ("bare", "produced"))
        return dice.one_of(untold)
    names: tuple[tuple[str, Charging], ...] = (
        ("anthropic", "produced"), ("anthropic", "produced"), ("ietf", "produced"),
        ("ietf", "produced"), ("cerebras", "reserved"),
    )  # fmt: skip
    return dice.one_of(names)


def _limits(
    dice: _Dice, work: WorkloadSpec, dialect: str, kind: LimitKind, period_s: float
) -> tuple[Limit, ...]:
    """Requests, and tokens of which a call's share is like that of requests, more or less."""
    per_minute = dice.between(20, 1_200 if dice.happens(2 / 3) else 30_000)
    per_period = per_minute * period_s / 60.0
    burst_s = dice.between(0.5, 60.0)
    is_small = dice.happens(0.2)
    resources: tuple[Resource, ...] = ("requests", "input", "output")
    if dialect in ("openai", "cerebras"):
        resources = ("requests", "tokens")
    if dialect == "bare":
        resources = ("requests",)
    sizes = {"requests": 1.0, "input": work.input_tokens, "output": work.output_tokens,
             "tokens": work.input_tokens + work.output_tokens}  # fmt: skip
    if dialect in ("openai", "cerebras"):
        sizes["tokens"] = work.input_tokens + work.max_tokens
    found = []
    for resource in resources:
        room = 1.0 if resource == "requests" else dice.between(0.3, 4.0)
        size, least = sizes[resource], 1.0
        if kind != "bucket" and resource != "requests":
            least = CALLS_MIN * size
        amount = float(max(least, round(per_period * size * room)))
        burst = None
        if kind == "bucket" and dice.happens(0.6):
            burst = amount / period_s * min(burst_s, period_s)
            if is_small and resource != "requests":
                burst = dice.between(0.1, 1.0) * size
            burst = min(amount, max(burst, 1.0 if resource == "requests" else 0.1 * size))
        found.append(Limit(resource, amount, period_s, kind, burst))
    if dice.happens(0.3):
        found = found[:1] if dice.happens(0.5) else [found[0], *found[1:][-1:]]
    return tuple(found)


TUNING: Final = (*range(1001, 1061), *range(7001, 7061))
REPORTED: Final = tuple(range(9101, 9161))
