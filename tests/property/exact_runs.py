"""Runs in which everything is known beforehand, against the real provider and its own log.

Demands are exact: inputs, answers and `max_tokens`. Limits, charging rule and speed are
configured. What is left for admission to do is to count right, and what is left for chance is
nothing: the same case gives the same log.
"""

from __future__ import annotations

from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from headway.base.values import Amounts, Charging, Demand, Limit, LimitKind, Resource
from headway.engine.state import Rules
from headway.engine.strategy import ALL_AT_ONCE
from headway.pacing.account import AccountConfig, Profile
from headway.pacing.calls import AccountCalls
from headway.pacing.estimate import OutputLength
from headway.pacing.headers import DIALECTS
from headway.plans.graph import Graph, Task
from headway.sim.account import Terms
from headway.sim.clients import PacedDoor
from headway.sim.provider import Latency, Provider, ProviderSpec, SimulatedCall
from headway.sim.rehearsal import Rehearsal, Rehearsed, Workload

Sizes = tuple[tuple[float, float], ...]
"""Of each call, input and output tokens."""

KINDS: tuple[LimitKind, ...] = ("bucket", "sliding", "fixed")
RATES: tuple[Resource, ...] = ("requests", "input", "output", "tokens")
WIDE = 1000.0
"""Calls that may be in flight where no limit on concurrency is configured."""

FITS = 1.01
"""No limit is smaller than the largest call, by a hair more than rounding."""


class KnownLengths(OutputLength):
    """Answers whose length is known: a call's kind says it."""

    def expect(self, kind: str, input_tokens: float, ceiling: float) -> float:
        return float(kind)


class Case(Struct, frozen=True):
    """An account and the calls that are to be made on it."""

    limits: tuple[Limit, ...]
    sizes: Sizes
    charging: Charging
    latency: Latency

    @property
    def spec(self) -> ProviderSpec:
        """A provider that sends no headers where it does not have to."""
        dialect = "plain" if self.charging == "produced" else "cerebras"
        return ProviderSpec("exact", Terms(self.limits, charging=self.charging), self.latency,
                            dialect=dialect)  # fmt: skip

    @property
    def workload(self) -> Workload:
        tasks, calls = [], []
        for number, (tokens_in, tokens_out) in enumerate(self.sizes):
            amounts = Amounts(tokens_in, tokens_out)
            demand = Demand(amounts, amounts, str(tokens_out))
            weight_s = self.latency.work_s(tokens_out)
            tasks.append(Task(f"t{number}", (), (demand,), weight_s))
            calls.append((SimulatedCall(number, tokens_in, tokens_out, tokens_out),))
        return Workload("exact", Graph.of(tasks), tuple(calls))

    @property
    def rates(self) -> tuple[Limit, ...]:
        """The limits on a rate, without the one on concurrency."""
        return tuple(limit for limit in self.limits if limit.kind != "gauge")

    @property
    def is_counted_coarsely(self) -> bool:
        """Whether the simulated provider keeps what is produced longer than its own period.

        It writes down production whenever anything happens, as of then. A sliding window forgets
        it as much later, so that it may refuse what fits.
        """
        return self.charging == "produced" and any(
            limit.kind == "sliding" and limit.resource in ("output", "tokens")
            for limit in self.limits
        )

    @property
    def slots(self) -> float:
        """How many calls may be in flight."""
        return min((limit.amount for limit in self.limits if limit.kind == "gauge"), default=WIDE)


class Played(Struct, frozen=True):
    """What came of a case."""

    result: Rehearsed
    provider: Provider
    calls: AccountCalls


def play(case: Case, share: float = 1.0, spec: ProviderSpec | None = None) -> Played:
    """Run a case, on its own provider or on one that differs from what is configured."""
    spec = spec or case.spec
    speed = Profile(
        width=WIDE,
        first_byte_s=case.latency.first_byte_s,
        per_token_s=case.latency.per_output_token_s,
    )
    dialect = replace(DIALECTS[spec.dialect], charging=case.charging)
    calls = AccountCalls(AccountConfig(dialect, case.limits, share, profile=speed), 0.0)
    provider = Provider(spec, 1)
    provider.shows_progress = True
    door = PacedDoor(calls, KnownLengths())
    result = Rehearsal(case.workload, provider, door, Rules(ALL_AT_ONCE)).run()
    return Played(result, provider, calls)


def needs(resource: Resource, sizes: Sizes) -> list[float]:
    """What each call takes of a resource in all."""
    return [{"requests": 1.0, "input": i, "output": o, "tokens": i + o}[resource] for i, o in sizes]


LATENCIES = st.builds(Latency, st.floats(0.2, 2.0), st.floats(0.005, 0.03))
CHARGING: st.SearchStrategy[Charging] = st.sampled_from(("produced", "reserved"))


@st.composite
def all_sizes(draw: st.DrawFn, fewest: int, most: int) -> Sizes:
    """Calls from tiny to long, drawn from few numbers: hypothesis would draw each one for long."""
    count = draw(st.integers(fewest, most))
    turn, stride = draw(st.integers(1, 997)), draw(st.sampled_from((7919, 6007, 4793)))
    return tuple(
        (float(1 + (turn + stride * i) % 3000), float(1 + (turn + (stride + 2) * i) % 600))
        for i in range(count)
    )


@st.composite
def cases(draw: st.DrawFn, share: float = 1.0) -> Case:
    """Any limits that every call fits into, up to three on rates and one on concurrency."""
    sizes = draw(all_sizes(15, 60))
    limits = []
    for resource in draw(st.permutations(RATES))[: draw(st.integers(1, 3))]:
        taken = needs(resource, sizes)
        largest, scale = FITS * max(taken) / share, draw(st.floats(0.1, 0.6)) / share
        amount = float(int(max(largest + 1.0, scale * sum(taken)) / 2.0) + 1) * 2.0
        kind, period_s = draw(st.sampled_from(KINDS)), draw(st.sampled_from((10.0, 30.0, 60.0)))
        burst = None
        if kind == "bucket" and draw(st.booleans()):
            burst = max(largest, amount * draw(st.floats(0.05, 1.0)))
        limits.append(Limit(resource, amount, period_s, kind, burst))
    if draw(st.booleans()):
        slots = float(draw(st.integers(1, 6)) * 2)
        limits.append(Limit("concurrency", slots, 0.0, "gauge"))
    return Case(tuple(limits), sizes, draw(CHARGING), draw(LATENCIES))


@st.composite
def steady_cases(draw: st.DrawFn, share: float) -> Case:
    """One limit per minute, calls that are small beside it, and work for about k + 1/2 periods.

    With work for almost exactly k periods, one call that does not fit costs another period: that
    is about packing, and no bound on flows knows it.
    """
    sizes = tuple((200.0 + i * 0.6, 20.0 + o * 0.6) for i, o in draw(all_sizes(120, 200)))
    resource, kind = draw(st.sampled_from(RATES)), draw(st.sampled_from(KINDS))
    periods = draw(st.integers(1, 4)) + draw(st.floats(0.3, 0.7))
    amount = float(int(sum(needs(resource, sizes)) / periods / share))
    burst = amount * draw(st.floats(share, 1.0)) if kind == "bucket" else None
    limit = Limit(resource, amount, 60.0, kind, burst)
    return Case((limit,), sizes, draw(CHARGING), draw(LATENCIES))
