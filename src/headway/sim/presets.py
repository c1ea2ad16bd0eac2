"""Providers and workloads with a name, as data. `docs/presets.md` says what each number means.

A provider preset names the workload that it was made for; any other can be run against it. The
numbers of `trap` and `slots` were searched for, so that they give the times of "The Concurrency
Trap"; those of the scenarios follow "Concurrent vs. Parallel Execution".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from types import MappingProxyType
from typing import Final

from headway.base.values import MINUTE_S, Amounts, Demand, Limit, LimitKind
from headway.plans.graph import Graph, Task
from headway.sim.account import Terms
from headway.sim.draw import Neighbour, uniform
from headway.sim.provider import FaultModel, Latency, ProviderSpec, SimulatedCall
from headway.sim.rehearsal import Workload, WorkloadSpec, draw_workload

SIZE_STREAM: Final = 16
"""The stream of draws that decides how large written-down work is; beside those of `sample`."""


@dataclass(frozen=True, slots=True)
class UnpacedClient:
    """How the agents' own client behaves when nobody paces it."""

    timeout_s: float = inf
    """It gives up a call that has not ended by then. What was produced is paid for."""
    retry_first_s: float = 1.0
    """The first wait of the strategies marked `+aggressive`..."""
    retry_growth: float = 2.0
    """...and what each further wait is multiplied by, without end."""


@dataclass(frozen=True, slots=True)
class PresetTask:
    """A task that is written down rather than drawn: exact sizes, or from here to there."""

    name: str
    calls: int = 1
    input_tokens: float = 2000.0
    output_tokens: float = 400.0
    needs: tuple[str, ...] = ()
    """Names of the agents that must be done before."""
    output_tokens_most: float = 0.0
    """If it is more than `output_tokens`, a seed draws how large the work is: the same share of the
    way from one to the other for every agent."""

    def sized(self, size: float) -> float:
        """What a call of it produces when the work is of this size, from 0 to 1."""
        more = max(0.0, self.output_tokens_most - self.output_tokens)
        return self.output_tokens + round(size * more)


@dataclass(frozen=True, slots=True)
class WorkloadPreset:
    """Work to be done, and the client that does it."""

    about: str
    spec: WorkloadSpec
    agents: tuple[PresetTask, ...] = ()
    """If there are any, they are the tasks and `spec` gives only the name and `max_tokens`."""
    client: UnpacedClient = UnpacedClient()

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def labels(self) -> tuple[str, ...]:
        """The tasks as people call them."""
        if self.agents:
            return tuple(agent.name for agent in self.agents)
        return tuple(f"agent {number}" for number in range(1, self.spec.tasks + 1))

    def draw(self, seed: int) -> Workload:
        """The workload that this seed picks."""
        return _written_down(self, seed) if self.agents else draw_workload(self.spec, seed)


@dataclass(frozen=True, slots=True)
class ProviderPreset:
    """An account at a simulated provider."""

    about: str
    spec: ProviderSpec
    workload: str = "agents-22"
    """The workload preset that it is run with when none is asked for."""

    @property
    def name(self) -> str:
        return self.spec.name


def _written_down(preset: WorkloadPreset, seed: int) -> Workload:
    spec, tasks, calls = preset.spec, [], []
    number, size = 0, uniform(seed, SIZE_STREAM, 0)
    for agent in preset.agents:
        typical, output_tokens = agent.sized(0.5), agent.sized(size)
        most = max(spec.max_tokens, agent.output_tokens, agent.output_tokens_most)
        demand = Demand(
            Amounts(agent.input_tokens, typical), Amounts(agent.input_tokens, most), spec.name
        )
        weight_s = agent.calls * (1.0 + 0.02 * typical)
        demands = (demand,) * agent.calls
        tasks.append(Task(agent.name, agent.needs, demands, weight_s, kind=spec.name))
        mine = []
        for _ in range(agent.calls):
            mine.append(SimulatedCall(number, agent.input_tokens, output_tokens, most))
            number += 1
        calls.append(tuple(mine))
    return Workload(spec.name, Graph.of(tasks), tuple(calls))


def _limits(
    requests: float, input_tokens: float, output_tokens: float, kind: LimitKind = "bucket"
) -> tuple[Limit, ...]:
    return (
        Limit("requests", requests, MINUTE_S, kind),
        Limit("input", input_tokens, MINUTE_S, kind),
        Limit("output", output_tokens, MINUTE_S, kind),
    )


def _bursting(limits: tuple[Limit, ...], burst_s: float) -> tuple[Limit, ...]:
    """The same rates, but only so many seconds of them at once."""
    return tuple(replace(limit, burst=limit.rate_per_s * burst_s) for limit in limits)


def _slots(count: int) -> Limit:
    return Limit("concurrency", count, 0.0, "gauge")


def _documented(kind: LimitKind = "bucket") -> tuple[Limit, ...]:
    """The account of the documents: 500 requests and 100,000 tokens a minute, 20 at once."""
    return (
        Limit("requests", 500, MINUTE_S, kind), Limit("tokens", 100_000, MINUTE_S, kind),
        _slots(20),
    )  # fmt: skip


def _used(share: float) -> Neighbour:
    """Somebody who has taken this share of every limit before we start, and then is silent."""
    return Neighbour(share, shape="burst", on_s=MINUTE_S, off_s=inf)


_MEDIUM: Final = _limits(600, 400_000, 80_000)
_LARGE: Final = _limits(6_000, 4_000_000, 800_000)
_SPEED: Final = Latency(1.0, 0.02)
_REVIEW: Final = Latency(2.0, 0.05, kappa=0.125)
"""Alone a call of 800 tokens takes 42 s; four at once take 2.5 times as long each."""
_STAGE: Final = Latency(2.0, 0.1)
"""Alone a call of 1,000 tokens takes 102 s. What company costs depends on the time of day."""
_MOMENT: Final = Latency(0.5, 0.01)
"""Alone a call of 200 tokens takes 2,500 ms."""

_PROVIDERS: Final = (
    ProviderPreset(
        "the documents' account, congested beyond 5 calls at once: 22 at once are slower than 5",
        ProviderSpec("trap", Terms(_documented()), Latency(1.0, 0.01, kappa=0.05)),
        "trap",
    ),
    ProviderPreset(
        "at most 4 calls at once: the same figures through a concurrency limit",
        ProviderSpec(
            "slots",
            Terms((Limit("requests", 500), Limit("tokens", 100_000), _slots(4))),
            _SPEED,
        ),
        "slots",
    ),
    ProviderPreset(
        "roomy and not congested: the more at once, the faster",
        ProviderSpec("wide", Terms(_LARGE), _SPEED),
    ),
    ProviderPreset(
        "buckets that hold a whole minute", ProviderSpec("burst-60s", Terms(_MEDIUM), _SPEED)
    ),
    ProviderPreset(
        "buckets that hold 3 seconds",
        ProviderSpec("burst-3s", Terms(_bursting(_MEDIUM, 3.0)), _SPEED),
    ),
    ProviderPreset(
        "limits per clock minute",
        ProviderSpec("fixed-window", Terms(_limits(600, 400_000, 80_000, "fixed")), _SPEED),
    ),
    ProviderPreset(
        "max_tokens is charged at admission and refunded at the end",
        ProviderSpec(
            "reserved",
            Terms((Limit("requests", 600), Limit("tokens", 480_000)), charging="reserved"),
            _SPEED,
            dialect="cerebras",
        ),
    ),
    ProviderPreset(
        "throughput peaks near 16 calls at once",
        ProviderSpec("congested", Terms(_LARGE), Latency(1.0, 0.02, 0.01, 0.0038)),
    ),
    ProviderPreset(
        "at most 7 calls at once", ProviderSpec("cap-7", Terms((*_LARGE, _slots(7))), _SPEED)
    ),
    ProviderPreset(
        "somebody else wants half of every limit, 40 s on and 40 s off",
        ProviderSpec(
            "neighbour", Terms(_MEDIUM, neighbour=Neighbour(0.5, on_s=40.0, off_s=40.0)), _SPEED
        ),
    ),
    ProviderPreset(
        "limits are halved after 60 s and restored after 180 s",
        ProviderSpec("changing", Terms(_MEDIUM, changes=((60.0, 0.5), (180.0, 1.0))), _SPEED),
    ),
    ProviderPreset(
        "no headers and no Retry-After",
        ProviderSpec(
            "hidden", Terms(_MEDIUM), _SPEED, FaultModel(retry_after="none"), dialect="plain"
        ),
    ),
    ProviderPreset(
        "a hidden bucket of one second of requests, and refusals are charged",
        ProviderSpec(
            "sub-second",
            Terms(_MEDIUM, hidden=(Limit("requests", 600, burst=10),), refusals_charged=True),
            _SPEED,
        ),
    ),
    ProviderPreset(
        "3 s burst, neighbour, 12 at once, mild congestion, and nothing of it is told",
        ProviderSpec(
            "worst-mix",
            Terms(
                (*_bursting(_MEDIUM, 3.0), _slots(12)),
                neighbour=Neighbour(0.5, on_s=40.0, off_s=40.0),
            ),
            Latency(1.0, 0.02, 0.01, 0.002),
            FaultModel(retry_after="none"),
            dialect="plain",
        ),
    ),
    ProviderPreset(
        "the documents' account when nobody else is there: company costs nothing",
        ProviderSpec("off-peak", Terms(_documented()), _STAGE),
        "stages",
    ),
    ProviderPreset(
        "the documents' account under some load: each further call slows every one by 60 %",
        ProviderSpec("normal", Terms(_documented()), replace(_STAGE, sigma=0.6)),
        "stages",
    ),
    ProviderPreset(
        "the documents' account under much load: four at once get less done than one",
        ProviderSpec("peak", Terms(_documented()), replace(_STAGE, kappa=0.35)),
        "stages",
    ),
    ProviderPreset(
        "timeline, best case: four agents of 2,500 ms, room for all",
        ProviderSpec("timeline-best", Terms(_documented()), _MOMENT),
        "timeline-best",
    ),
    ProviderPreset(
        "timeline, some queueing: room for two of four agents",
        ProviderSpec(
            "timeline-queued",
            Terms((Limit("requests", 500), Limit("tokens", 100_000), _slots(2))),
            _MOMENT,
        ),
        "timeline-queued",
    ),
    ProviderPreset(
        "launch, 1 of 3: plenty of quota, all four agents are accepted",
        ProviderSpec("launch-plenty", Terms(_documented("fixed")), replace(_REVIEW, background=1)),
        "launch-plenty",
    ),
    ProviderPreset(
        "launch, 2 of 3: 480 of 500 requests are used, half of what four agents send must wait",
        ProviderSpec(
            "launch-requests",
            Terms((Limit("requests", 500, MINUTE_S, "fixed"),), neighbour=_used(0.96)),
            Latency(1.0, 0.02),
        ),
        "launch-requests",
    ),
    ProviderPreset(
        "launch, 3 of 3: 50,000 tokens are left for four agents of 25,000",
        ProviderSpec(
            "launch-tokens", Terms(_documented("fixed"), neighbour=_used(0.5)), Latency(1.0, 0.02)
        ),
        "launch-tokens",
    ),
    ProviderPreset(
        "limit, 1 of 3: four agents of 100 requests, then one more request in the same minute",
        ProviderSpec(
            "limit-requests",
            Terms(_documented("fixed"), neighbour=_used(0.2)),
            Latency(0.1, 0.002),
        ),
        "limit-requests",
    ),
    ProviderPreset(
        "limit, 2 of 3: four agents take 95,000 of 100,000 tokens, then one more needs 25,000",
        ProviderSpec("limit-tokens", Terms(_documented("fixed")), Latency(1.0, 0.01)),
        "limit-tokens",
    ),
    ProviderPreset(
        "limit, 3 of 3: somebody else's 17 agents hold 17 of 20 places for a minute",
        ProviderSpec(
            "limit-concurrency",
            Terms(_documented(), neighbour=Neighbour(slots=17, on_s=MINUTE_S, off_s=inf)),
            Latency(1.0, 0.02),
        ),
        "limit-concurrency",
    ),
)


def _four(total_tokens: tuple[int, ...], output_tokens: int = 1000) -> tuple[PresetTask, ...]:
    """Agents of one call each, named as in the documents."""
    return tuple(
        PresetTask(f"agent {number}", 1, tokens - output_tokens, output_tokens)
        for number, tokens in enumerate(total_tokens, start=1)
    )


_WORKLOADS: Final = (
    WorkloadPreset(
        "22 agents of one call, sizes differ by about a third",
        WorkloadSpec(
            "agents-22",
            22,
            input_spread=0.3,
            output_spread=0.3,
            output_follows=0.5,
            luck_spread=0.1,
            input_error=0.03,
        ),
    ),
    WorkloadPreset(
        "1,000 independent tasks, lognormal sizes",
        WorkloadSpec(
            "tasks-1000",
            1000,
            input_tokens=2000,
            output_tokens=300,
            input_spread=0.8,
            output_spread=0.6,
            output_follows=0.5,
            luck_spread=0.2,
            input_error=0.03,
        ),
    ),
    WorkloadPreset(
        "200 tasks in layers, each needs two of the layer before",
        WorkloadSpec(
            "graph",
            200,
            input_spread=0.8,
            output_spread=0.6,
            output_follows=0.5,
            luck_spread=0.2,
            input_error=0.03,
            shape="layers",
        ),
    ),
    WorkloadPreset(
        "22 agents that each read 6,000 tokens; their client gives up after 40 s",
        WorkloadSpec(
            "trap",
            22,
            input_tokens=6000,
            output_tokens=360,
            input_spread=0.1,
            output_spread=0.1,
            output_follows=0.5,
            luck_spread=0.1,
            input_error=0.03,
        ),
        client=UnpacedClient(timeout_s=40.0),
    ),
    WorkloadPreset(
        "22 agents of about 6.4 s; their client's waits grow by 1.75",
        WorkloadSpec(
            "slots",
            22,
            input_tokens=2000,
            output_tokens=270,
            input_spread=0.3,
            output_spread=0.1,
            output_follows=0.5,
            luck_spread=0.1,
            input_error=0.03,
        ),
        client=UnpacedClient(retry_growth=1.75),
    ),
    WorkloadPreset(
        "a review by four agents, 28 to 45 minutes of calls, 18 to 20 of them in the longest agent",
        WorkloadSpec("stages", 4),
        (
            PresetTask("code", 10, 550, 1060, (), 1180),
            PresetTask("architecture", 5, 2700, 380, (), 580),
            PresetTask("security", 5, 2700, 380, (), 580),
            PresetTask("multi-perspective", 5, 1700, 380, (), 1780),
        ),
    ),
    WorkloadPreset(
        "four agents of 2,500 ms",
        WorkloadSpec("timeline-best", 4),
        tuple(PresetTask(f"agent {number}", 1, 1000, 200) for number in range(1, 5)),
    ),
    WorkloadPreset(
        "agents of 1,010, 2,000, 1,500 and 1,500 ms; their client asks again every 500 ms",
        WorkloadSpec("timeline-queued", 4),
        tuple(
            PresetTask(f"agent {number}", 1, 1000, output_tokens)
            for number, output_tokens in enumerate((51, 150, 100, 100), start=1)
        ),
        UnpacedClient(retry_first_s=0.5, retry_growth=1.0),
    ),
    WorkloadPreset(
        "four agents of 13,000 to 17,000 tokens",
        WorkloadSpec("launch-plenty", 4),
        _four((17_000, 17_000, 17_000, 13_000)),
    ),
    WorkloadPreset(
        "four agents that each send 10 requests at once",
        WorkloadSpec("launch-requests", 40),
        tuple(
            PresetTask(f"agent {agent}, request {request}", 1, 200, 100)
            for agent in range(1, 5)
            for request in range(1, 11)
        ),
    ),
    WorkloadPreset(
        "four agents of 25,000 tokens",
        WorkloadSpec("launch-tokens", 4),
        _four((25_000,) * 4),
    ),
    WorkloadPreset(
        "four agents of 100 requests each, then a user's request",
        WorkloadSpec("limit-requests", 5),
        (
            *(PresetTask(f"agent {number}", 100, 100, 50) for number in range(1, 5)),
            PresetTask("the user", 1, 100, 50, tuple(f"agent {number}" for number in range(1, 5))),
        ),
    ),
    WorkloadPreset(
        "agents of 25,000, 25,000, 25,000 and 20,000 tokens, then another of 25,000",
        WorkloadSpec("limit-tokens", 5),
        (
            *_four((25_000, 25_000, 25_000, 20_000)),
            PresetTask(
                "agent 5", 1, 24_000, 1000, tuple(f"agent {number}" for number in range(1, 5))
            ),
        ),
    ),
    WorkloadPreset(
        "four agents",
        WorkloadSpec("limit-concurrency", 4),
        _four((15_000, 15_000, 15_000, 12_000)),
    ),
)

PROVIDERS: Final[Mapping[str, ProviderPreset]] = MappingProxyType(
    {preset.name: preset for preset in _PROVIDERS}
)
WORKLOADS: Final[Mapping[str, WorkloadPreset]] = MappingProxyType(
    {preset.name: preset for preset in _WORKLOADS}
)
