"""Named providers and workloads, as data. `docs/presets.md` explains the numbers.

A provider preset names the workload that it was made for; any other can be run against it. The
numbers of `trap` and `slots` were searched for, so that they give the times of "The Concurrency
Trap"; those of the scenarios follow "Concurrent vs. Parallel Execution".
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from headway.base.values import MINUTE_S, Amounts, Demand, Limit, LimitKind, Resource
from headway.plans.graph import Graph, Task
from headway.sim.account import Terms
from headway.sim.draw import Neighbour, uniform
from headway.sim.provider import FaultModel, Latency, ProviderSpec, SimulatedCall
from headway.sim.rehearsal import Shape, Workload, WorkloadSpec, draw_workload

SIZE_STREAM: Final = 16
"""The stream of draws that decides how large written-down work is; beside those of `sample`."""


class UnpacedClient(Struct, frozen=True):
    """How the agents' own client behaves when nobody paces it."""

    timeout_s: float = inf
    """It gives up a call that has not ended by then. What was produced is paid for."""
    retry_first_s: float = 1.0
    """The first wait of the strategies marked `+aggressive`..."""
    retry_growth: float = 2.0
    """...and what each further wait is multiplied by, without end."""


class PresetTask(Struct, frozen=True):
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


class WorkloadPreset(Struct, frozen=True):
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


class ProviderPreset(Struct, frozen=True):
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


def _limits(*amounts: float, kind: LimitKind = "bucket") -> tuple[Limit, ...]:
    """Requests, input and output a minute."""
    resources: tuple[Resource, ...] = ("requests", "input", "output")
    pairs = zip(resources, amounts, strict=True)
    return tuple(Limit(resource, amount, MINUTE_S, kind) for resource, amount in pairs)


def _documented(kind: LimitKind = "bucket", slots: int = 20) -> tuple[Limit, ...]:
    """The account of the documents: 500 requests and 100,000 tokens a minute, 20 at once."""
    rates = Limit("requests", 500, MINUTE_S, kind), Limit("tokens", 100_000, MINUTE_S, kind)
    return (*rates, _slots(slots))


def _slots(count: int) -> Limit:
    return Limit("concurrency", count, 0.0, "gauge")


def _used(share: float) -> Neighbour:
    """A neighbour that takes this share of every limit before the start, and nothing later."""
    return Neighbour(share, shape="burst", on_s=MINUTE_S, off_s=inf)


_MEDIUM: Final = _limits(600, 400_000, 80_000)
_SHORT: Final = tuple(replace(limit, burst=limit.rate_per_s * 3.0) for limit in _MEDIUM)
"""The same rates, in buckets that hold 3 seconds."""
_LARGE: Final = _limits(6_000, 4_000_000, 800_000)
_HALF: Final = Neighbour(0.5, on_s=40.0, off_s=40.0)
_SILENT: Final = FaultModel(retry_after="none")
_REVIEW: Final = Latency(2.0, 0.05, kappa=0.125, background=1)
"""Alone a call of 800 tokens takes 42 s; four at once take 2.5 times as long each."""
_STAGE: Final = Latency(2.0, 0.1)
"""Alone a call of 1,000 tokens takes 102 s. What company costs depends on the time of day."""
_MOMENT: Final = Latency(0.5, 0.01)
"""Alone a call of 200 tokens takes 2,500 ms."""


def _provider(
    name: str,
    about: str,
    terms: Terms,
    latency: Latency = Latency(),
    *,
    faults: FaultModel = FaultModel(),
    dialect: str = "anthropic",
    workload: str = "agents-22",
) -> ProviderPreset:
    return ProviderPreset(about, ProviderSpec(name, terms, latency, faults, dialect), workload)


# fmt: off
_PROVIDERS: Final = (
    _provider(
        "trap",
        "the documents' account, congested beyond 5 calls at once: 22 at once are slower than 5",
        Terms(_documented()), Latency(1.0, 0.01, kappa=0.05), workload="trap"),
    _provider("slots", "at most 4 calls at once: the same figures through a concurrency limit",
              Terms(_documented(slots=4)), workload="slots"),
    _provider("wide", "roomy and not congested: the more at once, the faster", Terms(_LARGE)),
    _provider("burst-60s", "buckets that hold a whole minute", Terms(_MEDIUM)),
    _provider("burst-3s", "buckets that hold 3 seconds", Terms(_SHORT)),
    _provider("fixed-window", "limits per clock minute",
              Terms(_limits(600, 400_000, 80_000, kind="fixed"))),
    _provider("reserved", "max_tokens is charged at admission and refunded at the end",
              Terms((Limit("requests", 600), Limit("tokens", 480_000)), charging="reserved"),
              dialect="cerebras"),
    _provider("congested", "throughput peaks near 16 calls at once",
              Terms(_LARGE), Latency(1.0, 0.02, 0.01, 0.0038)),
    _provider("cap-7", "at most 7 calls at once", Terms((*_LARGE, _slots(7)))),
    _provider("neighbour", "somebody else wants half of every limit, 40 s on and 40 s off",
              Terms(_MEDIUM, neighbour=_HALF)),
    _provider("changing", "limits are halved after 60 s and restored after 180 s",
              Terms(_MEDIUM, changes=((60.0, 0.5), (180.0, 1.0)))),
    _provider("hidden", "no headers and no Retry-After",
              Terms(_MEDIUM), faults=_SILENT, dialect="plain"),
    _provider("sub-second", "a hidden bucket of one second of requests, and refusals are charged",
              Terms(_MEDIUM, hidden=(Limit("requests", 600, burst=10),), refusals_charged=True)),
    _provider("worst-mix",
              "3 s burst, neighbour, 12 at once, mild congestion, and nothing of it is told",
              Terms((*_SHORT, _slots(12)), neighbour=_HALF), Latency(1.0, 0.02, 0.01, 0.002),
              faults=_SILENT, dialect="plain"),
    _provider("off-peak", "the documents' account when nobody else is there: company costs nothing",
              Terms(_documented()), _STAGE, workload="stages"),
    _provider("normal",
              "the documents' account under some load: each further call slows every one by 60 %",
              Terms(_documented()), replace(_STAGE, sigma=0.6), workload="stages"),
    _provider("peak",
              "the documents' account under much load: four at once get less done than one",
              Terms(_documented()), replace(_STAGE, kappa=0.35), workload="stages"),
    _provider("timeline-best", "timeline, best case: four agents of 2,500 ms, room for all",
              Terms(_documented()), _MOMENT, workload="timeline-best"),
    _provider("timeline-queued", "timeline, some queueing: room for two of four agents",
              Terms(_documented(slots=2)), _MOMENT, workload="timeline-queued"),
    _provider("launch-plenty", "launch, 1 of 3: plenty of quota, all four agents are accepted",
              Terms(_documented("fixed")), _REVIEW, workload="launch-plenty"),
    _provider(
        "launch-requests",
        "launch, 2 of 3: 480 of 500 requests are used, half of what four agents send must wait",
        Terms((Limit("requests", 500, MINUTE_S, "fixed"),), neighbour=_used(0.96)),
        workload="launch-requests"),
    _provider("launch-tokens", "launch, 3 of 3: 50,000 tokens are left for four agents of 25,000",
              Terms(_documented("fixed"), neighbour=_used(0.5)), workload="launch-tokens"),
    _provider(
        "limit-requests",
        "limit, 1 of 3: four agents of 100 requests, then one more request in the same minute",
        Terms(_documented("fixed"), neighbour=_used(0.2)), Latency(0.1, 0.002),
        workload="limit-requests"),
    _provider(
        "limit-tokens",
        "limit, 2 of 3: four agents take 95,000 of 100,000 tokens, then one more needs 25,000",
        Terms(_documented("fixed")), Latency(1.0, 0.01), workload="limit-tokens"),
    _provider(
        "limit-concurrency",
        "limit, 3 of 3: somebody else's 17 agents hold 17 of 20 places for a minute",
        Terms(_documented(), neighbour=Neighbour(slots=17, on_s=MINUTE_S, off_s=inf)),
        workload="limit-concurrency"),
)
# fmt: on


def _drawn(
    name: str, tasks: int, spreads: tuple[float, float, float],
    tokens: tuple[float, float] = (2000.0, 400.0), shape: Shape = "independent",
) -> WorkloadSpec:  # fmt: skip
    """Spreads are those of input, output and luck."""
    return WorkloadSpec(
        name, tasks, 1, *tokens, spreads[0], spreads[1], 0.5, spreads[2], 0.03, shape=shape
    )


def _agents(name: str, *sizes: tuple[float, float]) -> tuple[WorkloadSpec, tuple[PresetTask, ...]]:
    """Agents of one call each, by input and output tokens."""
    tasks = (PresetTask(f"agent {number}", 1, *size) for number, size in enumerate(sizes, start=1))
    return WorkloadSpec(name, len(sizes)), tuple(tasks)


_FOUR: Final = tuple(f"agent {number}" for number in range(1, 5))

# fmt: off
_WORKLOADS: Final = (
    WorkloadPreset("22 agents of one call, sizes differ by about a third",
                   _drawn("agents-22", 22, (0.3, 0.3, 0.1))),
    WorkloadPreset("1,000 independent tasks, lognormal sizes",
                   _drawn("tasks-1000", 1000, (0.8, 0.6, 0.2), (2000, 300))),
    WorkloadPreset("200 tasks in layers, each needs two of the layer before",
                   _drawn("graph", 200, (0.8, 0.6, 0.2), shape="layers")),
    WorkloadPreset("22 agents that each read 6,000 tokens; their client gives up after 40 s",
                   _drawn("trap", 22, (0.1, 0.1, 0.1), (6000, 360)),
                   client=UnpacedClient(timeout_s=40.0)),
    WorkloadPreset("22 agents of about 6.4 s; their client's waits grow by 1.75",
                   _drawn("slots", 22, (0.3, 0.1, 0.1), (2000, 270)),
                   client=UnpacedClient(retry_growth=1.75)),
    WorkloadPreset(
        "a review by four agents, 28 to 45 minutes of calls, 18 to 20 of them in the longest agent",
        WorkloadSpec("stages", 4),
        (PresetTask("code", 10, 550, 1060, (), 1180),
         PresetTask("architecture", 5, 2700, 380, (), 580),
         PresetTask("security", 5, 2700, 380, (), 580),
         PresetTask("multi-perspective", 5, 1700, 380, (), 1780))),
    WorkloadPreset("four agents of 2,500 ms", *_agents("timeline-best", *[(1000, 200)] * 4)),
    WorkloadPreset(
        "agents of 1,010, 2,000, 1,500 and 1,500 ms; their client asks again every 500 ms",
        *_agents("timeline-queued", (1000, 51), (1000, 150), (1000, 100), (1000, 100)),
        UnpacedClient(retry_first_s=0.5, retry_growth=1.0)),
    WorkloadPreset("four agents of 13,000 to 17,000 tokens",
                   *_agents("launch-plenty", *[(16_000, 1000)] * 3, (12_000, 1000))),
    WorkloadPreset("four agents that each send 10 requests at once",
                   WorkloadSpec("launch-requests", 40),
                   tuple(PresetTask(f"{agent}, request {request}", 1, 200, 100)
                         for agent in _FOUR for request in range(1, 11))),
    WorkloadPreset("four agents of 25,000 tokens",
                   *_agents("launch-tokens", *[(24_000, 1000)] * 4)),
    WorkloadPreset("four agents of 100 requests each, then a user's request",
                   WorkloadSpec("limit-requests", 5),
                   (*(PresetTask(agent, 100, 100, 50) for agent in _FOUR),
                    PresetTask("the user", 1, 100, 50, _FOUR))),
    WorkloadPreset("agents of 25,000, 25,000, 25,000 and 20,000 tokens, then another of 25,000",
                   WorkloadSpec("limit-tokens", 5),
                   (*_agents("", *[(24_000, 1000)] * 3, (19_000, 1000))[1],
                    PresetTask("agent 5", 1, 24_000, 1000, _FOUR))),
    WorkloadPreset("four agents",
                   *_agents("limit-concurrency", *[(14_000, 1000)] * 3, (11_000, 1000))),
)
# fmt: on

PROVIDERS: Final[Mapping[str, ProviderPreset]] = {preset.name: preset for preset in _PROVIDERS}
WORKLOADS: Final[Mapping[str, WorkloadPreset]] = {preset.name: preset for preset in _WORKLOADS}
