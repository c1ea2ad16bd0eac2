"""Work and providers that a forecast is tried on, drawn from a seed: nothing of them is told.

Output lengths are of families that the forecaster does not contain: gamma, two humps, even. What a
user can see beforehand are the prompts; how long answers are follows them a little.
"""

from __future__ import annotations

from math import exp, log
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from headway.base.values import Limit, Resource
from headway.sim.account import Terms
from headway.sim.draw import normal, uniform
from headway.sim.provider import Latency, ProviderSpec

LEARNED: Final = 40
"""Calls that a forecast may learn from."""

LATER: Final = 1000
"""The number of the first call that is foreseen."""

PARAMETER, ERLANG, FAMILY, WORDS, DENSITY = 901, 902, 905, 903, 904
FAMILIES: Final = ("gamma", "two humps", "even")
KINDS: Final = ("input and output", "requests", "tokens, reserved", "slots", "congested")

OTHER_KINDS: Final = ("short burst", "kept reservations", "ten-second window", "no headers")
"""What forecasts were not shaped on: a burst of a few seconds; reservations of which nothing comes
back; limits per ten seconds, whose headers do not say so; limits of which nothing is said."""

BYTES_PER_TOKEN: Final = 4.0
OUTPUT_MAX: Final = 2000


class Item(Struct, frozen=True):
    """One call as it will be."""

    size_bytes: float
    input_tokens: int
    output_tokens: int


class Case(Struct, frozen=True):
    """A provider and a family of work."""

    seed: int
    kind: str
    family: str
    spec: ProviderSpec
    mean_in: float
    mean_out: float
    follows: float
    count: int

    def items(self, first: int, count: int) -> list[Item]:
        """Calls number `first` and so on."""
        return [self._item(first + number) for number in range(count)]

    @property
    def luck(self) -> float:
        """How much longer the answers that teach are than those that are foreseen, on average."""
        first, later = self.items(0, LEARNED), self.items(LATER, self.count)
        mean = sum(item.output_tokens for item in first) / len(first)
        return mean / (sum(item.output_tokens for item in later) / len(later)) - 1.0

    def _item(self, number: int) -> Item:
        seed = self.seed
        size = BYTES_PER_TOKEN * self.mean_in * exp(0.4 * normal(seed, WORDS, number))
        tokens_in = max(4.0, size / BYTES_PER_TOKEN * (1.0 + 0.08 * normal(seed, DENSITY, number)))
        follows: float = (tokens_in / self.mean_in) ** self.follows
        tokens_out = self.mean_out * follows * self._factor(number)
        return Item(size, round(tokens_in), max(1, round(min(OUTPUT_MAX, tokens_out))))

    def _factor(self, number: int) -> float:
        """How long an answer is, compared with the mean."""
        if self.family == "gamma":
            return self._erlang(number, 2)
        drawn = uniform(self.seed, FAMILY, number)
        if self.family == "even":
            return 0.3 + 1.4 * drawn
        return 0.45 if drawn < 0.6 else 1.825 * self._erlang(number, 6)

    def _erlang(self, number: int, stages: int) -> float:
        draws = (uniform(self.seed, ERLANG, number * 16 + stage) for stage in range(stages))
        return sum(-log(one) for one in draws) / stages


def case_of(seed: int, sizes: tuple[int, ...], in_s: float, kind: str = "") -> Case:
    """The case that a seed picks, with limits that let about `in_s` pass."""
    kind = kind or KINDS[int(_parameter(seed, 10) * len(KINDS))]
    family = FAMILIES[int(_parameter(seed, 0) * len(FAMILIES))]
    count = sizes[int(_parameter(seed, 20) * len(sizes))]
    mean_in = 150.0 * 6.0 ** _parameter(seed, 1)
    mean_out = 50.0 * 6.0 ** _parameter(seed, 2)
    latency = Latency(0.2 + 0.8 * _parameter(seed, 11), 0.004 + 0.012 * _parameter(seed, 12))
    aim_s = in_s * (0.7 + 0.6 * _parameter(seed, 13))
    spec = _provider(seed, kind, latency, (count, mean_in, mean_out, aim_s))
    follows = 0.8 * _parameter(seed, 3)
    return Case(seed, kind, family, spec, mean_in, mean_out, follows, count)


def _provider(
    seed: int, kind: str, latency: Latency, work: tuple[int, float, float, float]
) -> ProviderSpec:
    """Limits that the work fits in about the time that is aimed at: a minute's worth is a burst."""
    count, mean_in, mean_out, aim_s = work
    minutes = 1.0 + aim_s / 60.0
    slack = 1.3 + _parameter(seed, 14)
    limits: tuple[Limit, ...]
    if kind == "requests":
        limits = (Limit("requests", count / minutes), Limit("input", 3 * slack * count * mean_in))
        return ProviderSpec(kind, Terms(limits), latency)
    if kind == "input and output":
        binds = _parameter(seed, 15) < 0.5
        limits = (
            Limit("requests", 4.0 * count),
            Limit("input", count * mean_in / minutes * (1.0 if binds else slack)),
            Limit("output", count * mean_out / minutes * (slack if binds else 1.0)),
        )
        return ProviderSpec(kind, Terms(limits), latency)
    if kind == "tokens, reserved":
        limits = (Limit("requests", 4.0 * count), Limit("tokens", max(
            3.0 * OUTPUT_MAX, count * (mean_in + 2.0 * mean_out) / minutes)))  # fmt: skip
        return ProviderSpec(kind, Terms(limits, charging="reserved"), latency, dialect="openai")
    if kind in OTHER_KINDS:
        return _other(seed, kind, latency, work)
    work_s = count * latency.work_s(mean_out)
    if kind == "slots":
        slots = max(2.0, round(work_s / aim_s))
        limits = (Limit("requests", 10.0 * count), Limit("concurrency", slots, 0.0, "gauge"))
        return ProviderSpec(kind, Terms(limits), latency)
    slowed = Latency(latency.first_byte_s, latency.per_output_token_s,
                     0.02 * _parameter(seed, 17), 0.002 + 0.006 * _parameter(seed, 18))  # fmt: skip
    return ProviderSpec(kind, Terms((Limit("requests", 20.0 * count),)), slowed)


def _other(
    seed: int, kind: str, latency: Latency, work: tuple[int, float, float, float]
) -> ProviderSpec:
    count, mean_in, mean_out, aim_s = work
    per_s = count / aim_s
    limits: tuple[Limit, ...]
    if kind == "kept reservations":
        kept = max(3.0 * OUTPUT_MAX, count * (mean_in + OUTPUT_MAX) / (1.0 + aim_s / 60.0))
        limits = (Limit("requests", 4.0 * count), Limit("tokens", kept))
        return ProviderSpec(kind, Terms(limits, charging="kept"), latency, dialect="cerebras")
    if kind == "ten-second window":
        limits = (
            Limit("requests", 10.0 * max(1.0, per_s), 10.0, "sliding"),
            Limit("input", 10.0 * per_s * mean_in * 2.0, 10.0, "sliding"),
        )
        return ProviderSpec(kind, Terms(limits), latency, dialect="bare")
    burst_s = 0.5 + 7.0 * _parameter(seed, 19)
    amounts: dict[Resource, float] = {
        "requests": 60.0 * per_s,
        "input": 60.0 * per_s * mean_in,
        "output": 60.0 * per_s * mean_out,
    }
    limits = tuple(
        Limit(resource, amount, burst=max(amount / 60.0 * burst_s, amount / 60.0 / per_s))
        for resource, amount in amounts.items()
    )
    if kind == "short burst":
        return ProviderSpec(kind, Terms(limits), latency)
    limits = limits[:1] if _parameter(seed, 22) < 0.5 else limits[2:]
    spec = ProviderSpec(kind, Terms(hidden=limits), latency, dialect="plain")
    return replace(spec, faults=replace(spec.faults, retry_after="none"))


def _parameter(seed: int, which: int) -> float:
    return uniform(seed, PARAMETER, which)
