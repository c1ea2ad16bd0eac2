"""A plan as a run: its graph, its work, its budgets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from headway.agents.metering import CallMeter
from headway.base import codec
from headway.base.digest import digest
from headway.base.values import Budget
from headway.client.accounts import account_name, host_name
from headway.errors import HeadwayError, SourceError, UsageError, WireError
from headway.journal.documents import CAST, INCLUDED, SOURCE, keep, kept, source_of
from headway.journal.journal import Journal
from headway.journal.reader import JournalReader
from headway.pacing.windows import RUN_SHARES, Shares, shares_of
from headway.plans.expand import ExpandedPlan, GroupPlan, Sources, graph_of, prompt_bytes
from headway.plans.fan_in import FanInShape, shapes_of, with_levels
from headway.plans.graph import Graph
from headway.plans.references import check_named
from headway.plans.section import where
from headway.plans.sharing import targets_of
from headway.plans.spec import PlanSpec, Prompt
from headway.run.agent_tasks import has_programs, models_in, must_be_there, must_have_providers
from headway.run.reduce import InnerWork, inner_works, reducer
from headway.run.run_context import Crew
from headway.run.tasks import Plans, TaskWork, function_of

if TYPE_CHECKING:
    from headway.report.forecast import ModelCalls, PriceGuess
    from headway.run.launch import Launch, Sharing

MAX_TOKENS_GUESS: Final = 4096
"""How long an answer may be where a plan does not say, for what it may cost."""

UNKNOWN_MEMBERS: Final = 10
"""Members that a group of unknown size is taken to have, for what it may cost."""

RESULT_TOKENS_GUESS: Final = 1000
"""How long a result is taken to be that a reduction is given, for what that may cost."""

BYTES_PER_TOKEN: Final = 4


class PlanSource(Struct, frozen=True):
    """All that a resume needs: the plan's text, where it came from, and how it is run."""

    path: str
    text: str
    strategy: str = "adaptive"
    jobs: float | None = None
    retries: int | None = None
    budget: Budget | None = None
    model: str = ""
    may_leave: bool = False
    sim: str | None = None
    """The script of the simulated provider, empty for its default; None if it is a real one."""
    files: str = ""
    """The digest of prompts and schemas in files: an edit of one is an edit of the plan."""
    items: str = ""
    """The digest of what its patterns and files of lines gave."""
    has_gateway: bool = True
    is_foreign: bool = False
    """Whether an agent wrote it: it is judged again before files that it names are opened."""
    window_shares: Shares | None = None
    """The most that the run takes of each usage window, where its user has set that."""

    def encoded(self) -> str:
        return codec.encode(self).decode()

    def of(self, expanded: ExpandedPlan) -> PlanSource:
        """The same with the digests of what the plan includes."""
        one = expanded.sources
        files, items = (
            digest(json.dumps(parts, sort_keys=True).encode()).hex()
            for parts in (one.files, [one.globs, one.lines])
        )
        return replace(self, files=files, items=items)

    def save(self, journal: Journal, included: Sources) -> None:
        """Keep it, if it is not as the run has it: a later resume goes on with this one."""
        keep(journal, INCLUDED, included)
        if self.encoded() != source_of(journal.reader):
            journal.keep(SOURCE, self.encoded().encode())

    @staticmethod
    def kept(reader: JournalReader) -> PlanSource:
        """The plan as it was last performed."""
        return codec.decode(PlanSource, source_of(reader).encode())


class PlanRun(Struct, frozen=True):
    launch: Launch
    plans: Plans
    works: tuple[TaskWork | InnerWork, ...]
    crew: Crew

    @property
    def tasks(self) -> int:
        """As far as is known; those of inner levels are tasks too."""
        return sum(group.count or 0 for group in self.launch.graph.groups)

    @property
    def stale(self) -> int:
        """Attempts that were for nothing, because what they had read has changed."""
        sharing = self.launch.sharing
        return 0 if sharing is None else sharing.coherence.reruns


def plan_run(
    expanded: ExpandedPlan, source: PlanSource, crew: Crew, waits_until_s: float | None = None
) -> PlanRun:
    """Put a plan together. Nothing is started; what the plan's channels name is imported."""
    from headway.engine.state import Rules
    from headway.engine.strategy import parse
    from headway.run.launch import Launch

    expanded = with_model(expanded, source)
    spec = expanded.spec
    plans = Plans.of(expanded)
    shapes = tuple(plans.shapes.values())
    works: tuple[TaskWork | InnerWork, ...] = (
        *(TaskWork(index, plans, crew) for index in range(len(expanded.groups))),
        *inner_works(plans, crew, shapes),
    )
    retries = source.retries if source.retries is not None else spec.retries
    rules = Rules(
        parse(spec.strategy or source.strategy),
        3 if retries is None else retries,
        ceiling=source.jobs or inf,
        is_patient=True,
    )
    budget = source.budget or spec.budget
    budgets = {g.name: g.task.budget for g in expanded.groups if g.task.budget is not None}
    crew.is_foreign, crew.may_leave = source.is_foreign, source.may_leave
    crew.window_shares = plan_shares(spec, source)
    crew.must_be_priced = any(
        one is not None and one.microusd is not None for one in (budget, *budgets.values())
    )
    graph = with_levels(graph_of(expanded, lambda: plans.expanded), expanded, shapes)
    launch = Launch(
        graph, works, rules, budget, budgets, waits_until_s,
        meets=(crew.meet,), closes=(crew.aclose,), machine=crew.machine(),
        sharing=_sharing(graph, spec, crew, source.path),
    )  # fmt: skip
    return PlanRun(launch, plans, works, crew)


def plan_shares(spec: PlanSpec, source: PlanSource) -> Shares:
    """The most that a run takes of each usage window; of a plan by an agent, at most the usual."""
    if source.window_shares is not None:
        return source.window_shares
    short, long = shares_of(spec.window_share)
    if source.is_foreign:
        return min(short, RUN_SHARES[0]), min(long, RUN_SHARES[1])
    return short, long


def with_meter(run: PlanRun, meter: CallMeter) -> PlanRun:
    """The same run, whose commands make their model calls through this meter."""
    run.crew.meter = meter
    has_agents, machine = has_programs(run.plans.expanded.spec), run.launch.machine
    if has_agents and run.crew.keeps_results and run.crew.journal is not None:
        meter.record(run.crew.journal)
    if machine is not None:
        machine = replace(machine, meter=meter, has_agents=has_agents)
    return replace(run, launch=replace(run.launch, machine=machine))


def _sharing(graph: Graph, spec: PlanSpec, crew: Crew, path: str) -> Sharing | None:
    from headway.run.launch import Sharing
    from headway.state.coherence import Coherence
    from headway.state.learned_edges import hints_for, recall
    from headway.state.outbox import senders
    from headway.state.shared import Channels, Shared

    if all(group.touches is None for group in graph.groups):
        return None
    load = partial(_of_plan, spec, crew.folder)
    reducers = {target: reducer(target, load(target)) for target in targets_of(spec, "reduce")}
    crew.channels = Channels(spec.channels, reducers)
    for target in targets_of(spec, "effect"):
        load(target)  # A function that is not there is missed now, and not after hours.
    hints = hints_for(graph, recall(crew.environment, path))
    return Sharing(
        Coherence(graph, Shared(crew.channels), hints),
        senders(crew.channels, {}, load, crew.folder),
        lends=(crew.lend,),
    )


def _of_plan(spec: PlanSpec, folder: str, target: str) -> Callable[..., object]:
    """The function that a channel names; SourceError, with its place in the plan, if missing."""
    try:
        return function_of(target, folder, "state")
    except UsageError as error:
        spots = (spot.value for _, one, spot in spec.state or () if one.target == target)
        raise SourceError(
            str(error),
            where=where(spec.file, next(spots)),
            hint="name a function as package.module:function, as it is seen from the plan's folder",
        ) from error


def has_commands(expanded: ExpandedPlan) -> bool:
    return any(g.task.is_command or g.task.verify for g in expanded.groups)


def with_model(expanded: ExpandedPlan, source: PlanSource) -> ExpandedPlan:
    if source.model and not expanded.spec.model:
        return replace(expanded, spec=replace(expanded.spec, model=source.model))
    return expanded


def must_be_possible(run: PlanRun, environment: Mapping[str, str]) -> None:
    """Refuse what cannot work before anything is spent: a model, a key, a schema, a function."""
    must_be_there(run.plans.expanded.spec, environment)
    check_named(run.plans.expanded, run.crew.folder)
    must_have_providers(run.plans.expanded, environment)
    models = list(models_of(run.plans.expanded))
    if models:
        from headway.agents.prompt import must_be_ready, must_have_ceilings

        must_be_ready(models, environment)
        if run.crew.must_be_priced:
            must_have_ceilings(models, environment)


def models_of(expanded: ExpandedPlan) -> Iterator[str]:
    for group in expanded.groups:
        work = group.task.work
        if isinstance(work, Prompt) and not group.task.is_command:
            model = work.model or expanded.spec.model
            if not model:
                raise UsageError(
                    f"`{group.name}` does not say which model to ask",
                    hint="add `model: openai/gpt-5-mini` to it or to the plan, or pass --model",
                )
            yield from models_in(group, model)


def price_guess(expanded: ExpandedPlan, environment: Mapping[str, str]) -> PriceGuess:
    """What a plan will cost, as far as can be known before it runs."""
    from headway.report.forecast import guess_price

    return guess_price(_askings(expanded, environment))


def _askings(expanded: ExpandedPlan, environment: Mapping[str, str]) -> Iterator[ModelCalls]:
    from headway.agents.prompt import endpoint_of
    from headway.report.forecast import ModelCalls
    from headway.wire.prices import price_of

    shapes = {shape.group: shape for shape in shapes_of(expanded)}
    for group in expanded.groups:
        work = group.task.work
        if not isinstance(work, Prompt) or group.task.is_command:
            continue
        members = UNKNOWN_MEMBERS if group.count is None else group.count
        model = endpoint_of(work.model or expanded.spec.model, environment).model
        size_bytes, given = _prompt_bytes(expanded, group), _given(expanded, group)
        asking = ModelCalls(
            model, price_of(model), members, size_bytes * members + given * BYTES_PER_TOKEN,
            work.max_tokens or MAX_TOKENS_GUESS, group.task.repairs if group.task.schema else 0,
        )  # fmt: skip
        shape = shapes.get(group.index)
        if shape is not None:
            calls, read, given = _inner(expanded, shape, given)
            size = size_bytes * calls + read * BYTES_PER_TOKEN
            inner = replace(asking, members=calls, prompt_bytes=size, max_tokens=shape.fit.answer)
            yield replace(inner, repairs=0)
            asking = replace(asking, prompt_bytes=size_bytes + given * BYTES_PER_TOKEN)
        yield asking


def _given(expanded: ExpandedPlan, group: GroupPlan) -> int:
    """Tokens of the results that a reduction is given, if each is as long as is usual."""
    sources = [edge.group for edge in group.edges if edge.key == "reduce"]
    found = 0
    for source in sources:
        count, work = expanded.groups[source].count, expanded.groups[source].task.work
        longest = work.max_tokens if isinstance(work, Prompt) else None
        each = min(longest or RESULT_TOKENS_GUESS, RESULT_TOKENS_GUESS)
        found += (UNKNOWN_MEMBERS if count is None else count) * each
    return found


def _inner(expanded: ExpandedPlan, shape: FanInShape, given: int) -> tuple[int, int, int]:
    """Calls of inner levels, tokens that they read, and tokens that are left for the last call."""
    results = expanded.groups[shape.source].count
    calls = read = 0
    for members in shape.sizes(UNKNOWN_MEMBERS if results is None else results):
        if given > members * shape.fit.share:
            calls, read, given = calls + members, read + given, members * shape.fit.answer
    return calls, read, min(given, shape.fit.room)


def _prompt_bytes(expanded: ExpandedPlan, group: GroupPlan) -> int:
    work = group.task.work
    if not isinstance(work, Prompt):
        return 0
    files = expanded.sources.files.values() if work.file else ()
    return len(work.text.encode()) + max((len(one) for one in files), default=0)


# What later forecasts need to know of a run.

SIZES_MAX: Final = 2000


class ObservedTasks(Struct, frozen=True):
    """What the tasks of a run are: files that the plan names change."""

    parts: Mapping[str, tuple[str, int | None]]
    """By name, the model that is asked, empty if none is, and how many tasks there are."""
    sizes_bytes: Mapping[str, int]
    """Of prompts, by the task's key, without results of other tasks."""
    accounts: Mapping[str, str] = {}
    """By model, the key's name on whose account it was asked, before the first call."""

    def keep(self, journal: Journal) -> None:
        keep(journal, CAST, self)

    @staticmethod
    def kept(reader: JournalReader) -> ObservedTasks:
        """As it was written; WireError if it was not, or is spoilt."""
        found = kept(reader, CAST, ObservedTasks)
        if found is None:
            raise WireError("what its tasks are was not kept")
        return found


def account_key(model: str, environment: Mapping[str, str]) -> tuple[str, str]:
    """The names of the key and of the login that a model is asked with; empty where the model is
    unknown, or a template."""
    from headway.agents.prompt import endpoint_of

    if not model or "{{" in model:
        return "", ""
    try:
        endpoint = endpoint_of(model, environment)
    except HeadwayError:
        return "", ""
    parts = urlsplit(endpoint.url)
    host = host_name(parts.scheme, parts.hostname or "", parts.port)
    return account_name(host, endpoint.headers)


def cast_of(plans: Plans, environment: Mapping[str, str]) -> ObservedTasks:
    expanded = plans.expanded
    parts: dict[str, tuple[str, int | None]] = {}
    sizes: dict[str, int] = {}
    for group, keys in zip(expanded.groups, plans.keys, strict=True):
        work = group.task.work
        asks = isinstance(work, Prompt) and not group.task.is_command
        model = (work.model or expanded.spec.model) if isinstance(work, Prompt) and asks else ""
        parts[group.name] = (model, group.count)
        if not asks or keys is None:
            continue
        members = range(min(group.count or 0, SIZES_MAX))
        for member, size in zip(members, prompt_bytes(expanded, group, members), strict=True):
            sizes[keys.key(member).hex()] = round(size)
    models = {model for model, _ in parts.values() if model}
    accounts = {model: account_key(model, environment)[0] for model in sorted(models)}
    return ObservedTasks(parts, sizes, accounts)
