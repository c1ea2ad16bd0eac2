"""Named providers and workloads, as data or from files of YAML or JSON.

`docs/presets.md` explains the numbers. A file has the keys of the record that it becomes and no
others; nothing in it is executed. An error names the file, the line, the value and what is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from json import JSONDecodeError, loads
from math import inf
from os.path import isfile
from pathlib import Path
from types import NoneType, UnionType
from typing import Final, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

import yaml
from msgspec import Struct
from msgspec.structs import fields, replace
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from headway.base.numbers import number_of
from headway.base.values import MINUTE_S, Amounts, Demand, Limit, LimitKind, Resource
from headway.errors import BadPresetError, PlanError, UnknownPresetError, did_you_mean
from headway.plans.graph import Graph, Task
from headway.sim.account import Terms
from headway.sim.draw import Neighbour, uniform
from headway.sim.headers import DIALECT_NAMES
from headway.sim.provider import FaultModel, Latency, ProviderSpec, SimulatedCall
from headway.sim.rehearsal import Shape, Workload, WorkloadSpec, draw_workload

SIZE_STREAM: Final = 16
"""The stream of draws that decides how large written-down work is; beside those of `sample`."""


class UnpacedClient(Struct, frozen=True):
    """When the agents' own client gives up a call, and the waits of `+aggressive` strategies."""

    timeout_s: float = inf
    retry_first_s: float = 1.0
    retry_growth: float = 2.0


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
        numbers = range(number, number + agent.calls)
        calls.append(
            tuple(SimulatedCall(n, agent.input_tokens, output_tokens, most) for n in numbers)
        )
        number += agent.calls
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


# fmt: off
_PROVIDERS: Final = (
    ProviderPreset(
        "the documents' account, congested beyond 5 calls at once: 22 at once are slower than 5",
        ProviderSpec("trap", Terms(_documented()), Latency(1.0, 0.01, kappa=0.05)), "trap"),
    ProviderPreset("at most 4 calls at once: the same figures through a concurrency limit",
                   ProviderSpec("slots", Terms(_documented(slots=4))), "slots"),
    ProviderPreset("roomy and not congested: the more at once, the faster",
                   ProviderSpec("wide", Terms(_LARGE))),
    ProviderPreset("buckets that hold a whole minute",
                   ProviderSpec("burst-60s", Terms(_MEDIUM))),
    ProviderPreset("buckets that hold 3 seconds",
                   ProviderSpec("burst-3s", Terms(_SHORT))),
    ProviderPreset("limits per clock minute",
                   ProviderSpec("fixed-window",
                                Terms(_limits(600, 400_000, 80_000, kind="fixed")))),
    ProviderPreset("max_tokens is charged at admission and refunded at the end",
                   ProviderSpec("reserved", Terms(
                       (Limit("requests", 600), Limit("tokens", 480_000)), charging="reserved"),
                       dialect="cerebras")),
    ProviderPreset("throughput peaks near 16 calls at once",
                   ProviderSpec("congested", Terms(_LARGE), Latency(1.0, 0.02, 0.01, 0.0038))),
    ProviderPreset("at most 7 calls at once",
                   ProviderSpec("cap-7", Terms((*_LARGE, _slots(7))))),
    ProviderPreset("a neighbour wants half of every limit, 40 s on and 40 s off",
                   ProviderSpec("neighbour", Terms(_MEDIUM, neighbour=_HALF))),
    ProviderPreset("limits are halved after 60 s and restored after 180 s",
                   ProviderSpec("changing", Terms(_MEDIUM, changes=((60.0, 0.5), (180.0, 1.0))))),
    ProviderPreset("no headers and no Retry-After",
                   ProviderSpec("hidden", Terms(_MEDIUM), faults=_SILENT, dialect="plain")),
    ProviderPreset("a hidden bucket of one second of requests, and refusals are charged",
                   ProviderSpec("sub-second", Terms(_MEDIUM, (Limit("requests", 600, burst=10),),
                                                    refusals_charged=True))),
    ProviderPreset("3 s burst, neighbour, 12 at once, mild congestion, and nothing of it is told",
                   ProviderSpec("worst-mix", Terms((*_SHORT, _slots(12)), neighbour=_HALF),
                                Latency(1.0, 0.02, 0.01, 0.002), faults=_SILENT, dialect="plain")),
    ProviderPreset("the documents' account without other load: calls at once cost nothing",
                   ProviderSpec("off-peak", Terms(_documented()), _STAGE), "stages"),
    ProviderPreset(
        "the documents' account under some load: each further call slows every one by 60 %",
        ProviderSpec("normal", Terms(_documented()), replace(_STAGE, sigma=0.6)), "stages"),
    ProviderPreset("the documents' account under much load: four at once get less done than one",
                   ProviderSpec("peak", Terms(_documented()),
                                replace(_STAGE, kappa=0.35)), "stages"),
    ProviderPreset("timeline, best case: four agents of 2,500 ms, room for all",
                   ProviderSpec("timeline-best", Terms(_documented()), _MOMENT), "timeline-best"),
    ProviderPreset("timeline, some queueing: room for two of four agents",
                   ProviderSpec("timeline-queued", Terms(_documented(slots=2)),
                                _MOMENT), "timeline-queued"),
    ProviderPreset("launch, 1 of 3: plenty of quota, all four agents are accepted",
                   ProviderSpec("launch-plenty", Terms(_documented("fixed")),
                                _REVIEW), "launch-plenty"),
    ProviderPreset(
        "launch, 2 of 3: 480 of 500 requests are used, half of what four agents send must wait",
        ProviderSpec("launch-requests", Terms((Limit("requests", 500, MINUTE_S, "fixed"),),
                                              neighbour=_used(0.96))), "launch-requests"),
    ProviderPreset("launch, 3 of 3: 50,000 tokens are left for four agents of 25,000",
                   ProviderSpec("launch-tokens", Terms(_documented("fixed"), neighbour=_used(0.5))),
                   "launch-tokens"),
    ProviderPreset(
        "limit, 1 of 3: four agents of 100 requests, then one more request in the same minute",
        ProviderSpec("limit-requests", Terms(_documented("fixed"), neighbour=_used(0.2)),
                     Latency(0.1, 0.002)), "limit-requests"),
    ProviderPreset(
        "limit, 2 of 3: four agents take 95,000 of 100,000 tokens, then one more needs 25,000",
        ProviderSpec("limit-tokens", Terms(_documented("fixed")),
                     Latency(1.0, 0.01)), "limit-tokens"),
    ProviderPreset("limit, 3 of 3: another client's 17 agents hold 17 of 20 places for a minute",
                   ProviderSpec("limit-concurrency", Terms(
                       _documented(), neighbour=Neighbour(slots=17, on_s=MINUTE_S, off_s=inf))),
                   "limit-concurrency"),
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

# Presets of the user, from files.

T = TypeVar("T")

FILE_BYTES_MAX: Final = 100_000
"""A preset takes a page; a larger file is something else and would take seconds to refuse."""

NAME_CHARS_MAX: Final = 200
CALLS_MAX: Final = 1_000_000
"""More calls than this do not fit into memory as a rehearsal."""

SUFFIXES: Final = (".yaml", ".yml", ".json")

NOT_READ: Final = frozenset(("source",))
"""Fields that a record has for others than the writer of a file."""


POSITIVE: Final = frozenset(
    ("amount", "burst", "changes", "on_s", "per_output_token_s", "period_s", "retry_first_s",
     "timeout_s", "window_s")
)  # fmt: skip
ENDLESS: Final = frozenset(("off_s", "on_s", "timeout_s"))
"""Fields that may be `inf`."""

RANGES: Final[Mapping[str, tuple[float, float]]] = {
    **dict.fromkeys(("growth", "input_tokens", "max_tokens", "output_tokens"), (1.0, 1e12)),
    **dict.fromkeys(("input_spread", "luck_spread", "output_spread"), (0.0, 3.0)),
    **dict.fromkeys(("hang_share", "input_error", "share"), (0.0, 1.0)),
    **dict.fromkeys(("calls", "tasks"), (1.0, 100_000.0)),
    "output_follows": (0.0, 2.0),
    "retry_growth": (1.0, 100.0),
    "tick_s": (0.01, 3600.0),
}
"""The numbers that a field may have; any other field is at least 0 and at most 1e12."""


TIMES_OF_DAY: Final = ("off-peak", "normal", "peak")
"""Presets that are one account at three times of day."""


def at_time_of_day(name: str, is_peak: bool) -> str | None:
    """The preset of the same account at a busy or a quiet hour; None where none is described."""
    if name not in TIMES_OF_DAY:
        return None
    return TIMES_OF_DAY[-1] if is_peak else TIMES_OF_DAY[0]


def find_provider(name: str) -> ProviderPreset:
    """The provider preset of this name, or the one in this file."""
    if name in PROVIDERS:
        return PROVIDERS[name]
    reader = _Reader(name, "provider", PROVIDERS)
    spec, more = reader.whole(ProviderSpec, {"about": str})
    _check(spec, reader)
    limits, hidden = _gauged(spec.terms.limits), _gauged(spec.terms.hidden)
    terms = replace(spec.terms, limits=limits, hidden=hidden)
    return ProviderPreset(str(more["about"]), replace(spec, terms=terms))


def find_workload(name: str) -> WorkloadPreset:
    """The workload preset of this name, or the one in this file."""
    if name in WORKLOADS:
        return WORKLOADS[name]
    reader = _Reader(name, "workload", WORKLOADS)
    hints = {"about": str, "agents": tuple[PresetTask, ...], "client": UnpacedClient}
    spec, more = reader.whole(WorkloadSpec, hints)
    agents = cast("tuple[PresetTask, ...]", more.get("agents", ()))
    client = cast("UnpacedClient", more.get("client", UnpacedClient()))
    preset = WorkloadPreset(str(more["about"]), spec, agents, client)
    total = sum(agent.calls for agent in agents) if agents else spec.tasks * spec.calls
    if total > CALLS_MAX:
        raise reader.wrong(reader.root, f"{total:,} calls are more than {CALLS_MAX:,}")
    try:
        if agents:
            preset.draw(0)
    except PlanError as error:
        raise reader.wrong(reader.node_at("agents"), error.message, error.hint) from error
    return preset


def _gauged(limits: tuple[Limit, ...]) -> tuple[Limit, ...]:
    """What is held is counted by a gauge, whatever else was written."""
    return tuple(
        replace(limit, kind="gauge", period_s=0.0) if limit.resource == "concurrency" else limit
        for limit in limits
    )


def _check(spec: ProviderSpec, reader: _Reader) -> None:
    """What no single field can say."""
    kinds, outages, limits = "faults.kinds", "faults.outages", "terms.limits"
    if not spec.faults.kinds:
        raise reader.wrong(reader.node_at(kinds), f"`{kinds}` is empty: name at least one")
    for begin, end in spec.faults.outages:
        if begin >= end:
            message = f"`{outages}` has one that ends at {end:g}, before it begins at {begin:g}"
            raise reader.wrong(reader.node_at(outages), message)
    names = [limit.name for limit in _gauged(spec.terms.limits)]
    for name in names:
        if names.count(name) > 1:
            raise reader.wrong(reader.node_at(limits), f"`{limits}` has `{name}` twice")
    for limit in spec.terms.limits + spec.terms.hidden:
        if limit.kind == "gauge" and limit.resource != "concurrency":
            message = f"`{limit.resource}` cannot be a gauge: only concurrency is given back"
            raise reader.wrong(reader.node_at("terms"), message)


def parse_file(name: str, bytes_max: int, parse: Callable[[str], T]) -> T:
    """What a file of YAML or JSON holds. Raises `BadPresetError` with its name and line."""
    shown = _shown(name)
    try:
        with Path(name).open("rb") as file:
            content = file.read(bytes_max + 1)
        if len(content) > bytes_max:
            raise BadPresetError(f"the file is larger than {bytes_max:,} bytes", where=shown)
        return parse(content.decode("utf-8-sig"))
    except OSError as error:
        raise BadPresetError(f"cannot read the file: {error.strerror}", where=shown) from error
    except UnicodeDecodeError as error:
        raise BadPresetError("the file is not UTF-8 text", where=shown) from error
    except JSONDecodeError as error:
        where = f"{shown}:{error.lineno}"
        raise BadPresetError(f"this is not JSON: {error.msg}", where=where) from error
    except yaml.MarkedYAMLError as error:
        where = f"{shown}:{error.problem_mark.line + 1}" if error.problem_mark else shown
        raise BadPresetError(f"this is not YAML: {error.problem}", where=where) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        is_name = "\0" in name
        problem = (
            "this cannot be the name of a file" if is_name else "this is neither YAML nor JSON"
        )
        raise BadPresetError(problem, where=shown) from error


class _Reader:
    """One file on its way to a record."""

    def __init__(self, name: str, what: str, presets: Mapping[str, object]) -> None:
        self._name, self._path = _shown(name), Path(name)
        if "/" not in name and self._path.suffix not in SUFFIXES and not isfile(name):
            hint = did_you_mean(name, presets)
            raise UnknownPresetError(f"there is no {what} preset `{self._name}`", hint=hint)
        self.root = parse_file(name, FILE_BYTES_MAX, self._composed)

    def wrong(self, node: Node, message: str, hint: str | None = None) -> BadPresetError:
        return BadPresetError(message, where=f"{self._name}:{node.start_mark.line + 1}", hint=hint)

    def whole(self, kind: type[T], more: Mapping[str, object]) -> tuple[T, dict[str, object]]:
        """The file as a record, and the values of further keys."""
        values = self._values(self.root, {**_hints(kind), **more}, "")
        others = {key: values.pop(key) for key in more if key in values}
        others["about"] = others.get("about") or f"read from {self._name}"
        return kind(**{"name": self._path.stem, **values}), others

    def _values(self, node: Node, hints: Mapping[str, object], path: str) -> dict[str, object]:
        values: dict[str, object] = {}
        for key, child, place in self._pairs(node, path):
            if key not in hints:
                hint = did_you_mean(key, hints)
                raise self.wrong(place, f"there is no key `{_joined(path, key)}`", hint)
            values[key] = self.value(child, hints[key], _joined(path, key))
        return values

    def value(self, node: Node, hint: object, path: str) -> object:
        """A value of the type that a field has."""
        origin, inner = get_origin(hint), get_args(hint)
        if origin is UnionType:
            hint = next(kind for kind in inner if kind is not NoneType)
            return self.value(node, hint, path)
        if origin is tuple:
            return self._listed(node, inner, path)
        if isinstance(hint, type) and issubclass(hint, Struct):
            values = self._values(node, _hints(hint), path)
            for one in fields(hint):
                if one.required and one.name not in values:
                    raise self.wrong(node, f"`{_joined(path, one.name)}` is missing")
            return hint(**values)
        text = self._scalar(node, path)
        if origin is Literal:
            return self._chosen(node, text, inner, path)
        if hint is bool:
            return self._chosen(node, text.lower(), ("true", "false"), path) == "true"
        if path == "dialect":
            return self._chosen(node, text, DIALECT_NAMES, path)
        if hint is str:
            return self._name_of(node, text, path)
        return self._number(node, text, path, hint is int)

    def node_at(self, path: str) -> Node:
        """The node that a path leads to, or the last one on the way that is there."""
        node = self.root
        for key in path.split("."):
            if not isinstance(node, MappingNode):
                break
            node = next((child for name, child in node.value if name.value == key), node)
        return node

    def _composed(self, content: str) -> Node:
        if self._path.suffix == ".json":
            loads(content)
            # Outside of strings, where a tab is white space, YAML does not take it.
            content = content.replace("\t", " ")
        root = yaml.compose(content, Loader=yaml.SafeLoader)
        if root is None:
            raise BadPresetError("the file is empty", where=self._name)
        return root

    def _pairs(self, node: Node, path: str) -> Iterator[tuple[str, Node, Node]]:
        if not isinstance(node, MappingNode):
            what = f"`{path}`" if path else "the file"
            raise self.wrong(node, f"{what} must have keys and values: `key: value`")
        seen: set[str] = set()
        for key, child in node.value:
            name = self._scalar(key, path or "a key")
            if name in seen:
                raise self.wrong(key, f"`{_joined(path, name)}` is there twice")
            seen.add(name)
            yield name, child, key

    def _listed(self, node: Node, inner: tuple[object, ...], path: str) -> tuple[object, ...]:
        if not isinstance(node, SequenceNode):
            raise self.wrong(node, f"`{path}` must be a list: `[...]`")
        if inner[-1] is ...:
            hints = inner[:1] * len(node.value)
        elif len(node.value) == len(inner):
            hints = inner
        else:
            raise self.wrong(node, f"`{path}` must have {len(inner)} values, not {len(node.value)}")
        return tuple(
            self.value(child, hint, f"{path}[{index}]")
            for index, (child, hint) in enumerate(zip(node.value, hints, strict=True))
        )

    def _scalar(self, node: Node, path: str) -> str:
        if not isinstance(node, ScalarNode):
            raise self.wrong(node, f"`{path}` must be one value, not a list or a mapping")
        return str(node.value)

    def _chosen(self, node: Node, text: str, choices: tuple[object, ...], path: str) -> str:
        if text not in choices:
            hint = did_you_mean(text, [str(choice) for choice in choices])
            raise self.wrong(node, f"`{path}` is `{_shown(text)}`", hint)
        return text

    def _name_of(self, node: Node, text: str, path: str) -> str:
        if not text or not text.isprintable() or len(text) > NAME_CHARS_MAX:
            message = f"`{path}` must be 1 to {NAME_CHARS_MAX} printable characters"
            raise self.wrong(node, message)
        return text

    def _number(self, node: Node, text: str, path: str, is_whole: bool) -> float:
        number = number_of(text)
        name = path.rpartition(".")[2].partition("[")[0]
        least, most = RANGES.get(name, (0.0, 1e12))
        is_above = name in POSITIVE
        if number is None or not (
            name in ENDLESS if number == inf
            else least <= number <= most and not (is_above and number == least)
        ):  # fmt: skip
            allowed = f"{'more than' if is_above else 'at least'} {least:g}"
            if most < 1e12:
                allowed = f"from {least:g} to {most:g}"
            raise self.wrong(node, f"`{path}` is `{_shown(text)}`: it must be {allowed}")
        if not is_whole:
            return number
        if number != int(number):
            raise self.wrong(node, f"`{path}` is `{_shown(text)}`: it must be a whole number")
        return int(number)


def _hints(kind: type) -> dict[str, object]:
    """The types of a record's fields, without those that a file does not have."""
    return {name: hint for name, hint in get_type_hints(kind).items() if name not in NOT_READ}


def _joined(path: str, key: str) -> str:
    return _shown(f"{path}.{key}" if path else key)


def _shown(text: str) -> str:
    """Text of a stranger, cut to length and without what a terminal would obey."""
    cut = text if len(text) <= NAME_CHARS_MAX else text[: NAME_CHARS_MAX - 1] + "…"
    return "".join(char if char.isprintable() else "?" for char in cut)
