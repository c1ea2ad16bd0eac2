"""What is measured: providers, workloads and seeds, in four sets.

`tuning` and `reported` are drawn at random (`bench/drawn.py`): constants are chosen on the first,
figures come from the second. `twelve` are the providers that the first version was judged on, with
constants of their own for every seed: limits, latency, congestion, cap, the neighbour's rhythm,
changes of the limits, sizes of the work. `marks` are two accounts from the documents.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final, Literal
from zlib import crc32

from msgspec import Struct
from msgspec.structs import replace

from bench.drawn import REPORTED, TUNING, draw
from headway.base.values import Limit
from headway.sim import presets
from headway.sim.account import Terms
from headway.sim.draw import Neighbour, uniform
from headway.sim.provider import Latency, ProviderSpec
from headway.sim.rehearsal import WorkloadSpec

Set = Literal["tuning", "reported", "twelve", "marks"]

_CONGESTED: Final = presets.PROVIDERS["congested"].spec

PRESETS: Final = {
    **{
        name: presets.PROVIDERS[name].spec
        for name in ("burst-60s", "burst-3s", "fixed-window", "reserved", "congested")
    },
    # A peak so low that a small run has no time to look for it.
    "congested-5": replace(
        _CONGESTED, name="congested-5", latency=replace(_CONGESTED.latency, kappa=0.04)
    ),
    **{
        name: presets.PROVIDERS[name].spec
        for name in ("cap-7", "neighbour", "changing", "hidden", "sub-second", "worst-mix")
    },
}
WORKLOADS: Final = {
    "22": WorkloadSpec(
        "22", 22, input_spread=0.3, output_spread=0.3, luck_spread=0.1, input_error=0.03
    ),
    "1000": WorkloadSpec(
        "1000", 1000, output_tokens=300, input_spread=0.8, output_spread=0.6,
        output_follows=0.5, luck_spread=0.2, input_error=0.03,
    ),
    "graph": WorkloadSpec(
        "graph", 200, input_spread=0.8, output_spread=0.6, output_follows=0.5,
        luck_spread=0.2, input_error=0.03, shape="layers",
    ),
}  # fmt: skip


MARKS: Final = {
    "trap": (presets.PROVIDERS["trap"].spec, presets.WORKLOADS["trap"].spec),
    # One at a time takes 1,008 s, two at a time 857 s, four 2,200 s.
    "peak": (presets.PROVIDERS["peak"].spec, WorkloadSpec("peak", 8, 3, 1000.0, 400.0)),
}
"""22 agents on an account that is congested beyond 5; 8 agents of 3 equal calls on one where two
calls at once get the most done."""

PROVIDERS: Final[dict[Set, tuple[str, ...]]] = {
    "tuning": tuple(map(str, TUNING)),
    "reported": tuple(map(str, REPORTED)),
    "twelve": tuple(PRESETS),
    "marks": tuple(MARKS),
}

SEEDS: Final[dict[Set, dict[str, tuple[int, ...]]]] = {
    "tuning": {"22": (1, 2, 3), "300": (1, 2, 3), "4000": (1, 2, 3)},
    "reported": {"22": (1, 2, 3), "300": (1, 2, 3), "4000": (1,)},
    "twelve": {
        "22": (101, 102, 103, 104, 105),
        "1000": (101, 102),
        "graph": (101, 102, 103),
    },
    "marks": {"its own": (1, 2, 3, 4, 5)},
}
"""By set and workload. A trial of 4,000 tasks takes up to a minute."""


class Scene(Struct, frozen=True):
    """One provider and one workload, with the constants of one seed."""

    which: Set
    provider: str
    workload: str
    seed: int
    spec: ProviderSpec
    work: WorkloadSpec
    told: str = ""
    """Of a drawn provider, what its headers tell."""


@cache
def scene(which: Set, provider: str, workload: str, seed: int) -> Scene:
    """The scene of a seed."""
    told = ""
    if which == "twelve":
        spec = _vary_provider(PRESETS[provider], _Draws(seed, provider))
        work = _vary_work(WORKLOADS[workload], _Draws(seed, workload))
    elif which == "marks":
        spec, work = MARKS[provider]
    else:
        drawn = draw(int(provider))
        spec, work, told = drawn.spec, drawn.sized(int(workload)), drawn.told
    return Scene(which, provider, workload, seed, spec, work, told)


def hide(spec: ProviderSpec) -> ProviderSpec:
    """The same provider with nothing said: no headers, no names, no advice when to come back."""
    return replace(spec, dialect="plain", faults=replace(spec.faults, retry_after="none"))


def is_sole(spec: ProviderSpec) -> bool:
    """Whether nobody else is on the account."""
    return spec.terms.neighbour is None


def is_steady(spec: ProviderSpec) -> bool:
    """Whether what is known of the limits beforehand stays true, and nothing else goes wrong."""
    return is_sole(spec) and not spec.terms.changes and spec.faults.share == 0


class _Draws:
    """Numbers in a range, one after another, from a seed and a name."""

    __slots__ = ("_count", "_name", "_seed")

    def __init__(self, seed: int, name: str) -> None:
        self._seed, self._name, self._count = seed, crc32(name.encode()), 0

    def __call__(self, low: float, high: float) -> float:
        self._count += 1
        return low + (high - low) * uniform(self._seed, self._name, self._count)


_Between = Callable[[float, float], float]


def _vary_provider(spec: ProviderSpec, between: _Between) -> ProviderSpec:
    scales = {name: between(0.6, 1.7) for name in ("requests", "input", "output", "tokens")}
    cap = between(5 / 7, 12 / 7)

    def vary(limit: Limit) -> Limit:
        if limit.kind == "gauge":
            return replace(limit, amount=float(max(1, round(limit.amount * cap))))
        scale = scales[limit.resource]
        burst = None if limit.burst is None else limit.burst * scale
        return replace(limit, amount=float(round(limit.amount * scale)), burst=burst)

    terms = spec.terms
    terms = replace(
        terms,
        limits=tuple(map(vary, terms.limits)),
        hidden=tuple(map(vary, terms.hidden)),
        changes=_vary_changes(terms, between),
        neighbour=terms.neighbour and _vary_neighbour(terms.neighbour, between),
    )
    return replace(spec, terms=terms, latency=_vary_latency(spec.latency, between))


def _vary_changes(terms: Terms, between: _Between) -> tuple[tuple[float, float], ...]:
    """Other times, and other sizes of the steps down and up."""
    late = between(0.5, 1.5)
    return tuple(
        (at_s * late, between(0.35, 0.75) if factor < 1 else between(0.85, 1.3))
        for at_s, factor in terms.changes
    )


def _vary_neighbour(neighbour: Neighbour, between: _Between) -> Neighbour:
    return replace(neighbour, on_s=between(25, 70), off_s=between(25, 70))


def _vary_latency(latency: Latency, between: _Between) -> Latency:
    """Another speed, and throughput that peaks at 5/8 to 3/2 of where it did."""
    speed = replace(latency, first_byte_s=between(0.5, 2.5), per_output_token_s=between(0.01, 0.04))
    return replace(speed, kappa=latency.kappa / between(10 / 16, 24 / 16) ** 2)


def _vary_work(work: WorkloadSpec, between: _Between) -> WorkloadSpec:
    return replace(
        work,
        input_tokens=float(round(between(1000, 3500))),
        output_tokens=float(round(between(150, 500))),
        input_spread=work.input_spread * between(0.5, 1.25),
        output_spread=work.output_spread * between(0.5, 1.25),
        output_follows=between(0.0, 0.8),
        luck_spread=between(0.05, 0.4),
        input_error=between(0.01, 0.05),
        max_tokens=float(round(between(2048, 6000))),
    )
