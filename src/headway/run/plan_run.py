"""A plan as a run: its graph, its work, its budgets."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from headway.agents.metering import CallMeter
from headway.base import codec
from headway.base.digest import digest
from headway.base.folders import folders
from headway.base.values import Budget
from headway.client.accounts import account_name
from headway.errors import HeadwayError, SourceError, UsageError, WireError
from headway.journal.documents import CAST, INCLUDED, SOURCE, keep, kept, source_of
from headway.journal.journal import Journal
from headway.journal.reader import JournalReader
from headway.pacing.windows import RUN_SHARES, Shares, shares_of
from headway.plans.expand import ExpandedPlan, Sources, graph_of, prompt_bytes
from headway.plans.fan_in import with_levels
from headway.plans.graph import Graph
from headway.plans.references import check_named
from headway.plans.rounds import with_rounds
from headway.plans.section import where
from headway.plans.sharing import targets_of
from headway.plans.spec import PlanSpec, Prompt
from headway.run.agent_tasks import has_programs, models_in, must_be_there, must_have_providers
from headway.run.reduce import InnerWork, inner_works, reducer
from headway.run.run_context import Crew
from headway.run.tasks import Plans, TaskWork, function_of

if TYPE_CHECKING:
    from headway.plans.load import Loaded
    from headway.report.forecast import PriceGuess
    from headway.run.driver import Launch, Sharing


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
    out: str = ""
    """The file that its rows are written to with their results, `-` for stdout; empty for none."""
    column: str = "output"
    """What the results are called there."""

    def encoded(self) -> str:
        return codec.encode(self).decode()

    def of(self, expanded: ExpandedPlan) -> PlanSource:
        """The same with the digests of what the plan includes."""
        one = expanded.sources
        files, items = (
            digest(json.dumps(parts, sort_keys=True).encode()).hex()
            for parts in (one.files, [one.globs, one.lines, one.rows])
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

    def join(self, journal: Journal, source: PlanSource) -> None:
        """Perform it on this journal, which keeps the plan for a resume, and what its tasks are."""
        self.crew.join(journal)
        source.of(self.plans.expanded).save(journal, self.plans.expanded.sources)
        cast_of(self.plans, self.crew.environment).keep(journal)

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
    from headway.run.driver import Launch

    expanded = with_model(expanded, source)
    spec = expanded.spec
    plans = Plans.of(expanded)
    expanded = plans.expanded
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
    budgets = {task.name: task.budget for task in spec.tasks if task.budget is not None}
    crew.is_foreign, crew.may_leave = source.is_foreign, source.may_leave
    crew.ratchet = spec.objective if spec.is_ratchet else ""
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
    from headway.run.driver import Sharing
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


def ready_run(
    loaded: Loaded, source: PlanSource, environment: Mapping[str, str],
    waits_until_s: float | None = None,
) -> PlanRun:  # fmt: skip
    """A plan put together, without a journal yet; refused here if it cannot work."""
    crew = Crew(str(loaded.folder.resolve()), "", "", environment)
    run = plan_run(loaded.expanded, source, crew, waits_until_s)
    _must_be_possible(run, environment)
    return run


def _must_be_possible(run: PlanRun, environment: Mapping[str, str]) -> None:
    """Refuse what cannot work before anything is spent: a model, a key, a schema, a function."""
    must_be_there(run.plans.expanded.spec, environment)
    check_named(run.plans.expanded, run.crew.folder)
    must_have_providers(run.plans.expanded, environment)
    _must_have_workspaces(run.plans.expanded, run.crew.folder, environment)
    models = list(models_of(run.plans.expanded))
    if models:
        from headway.agents.prompt import must_be_ready, must_have_ceilings

        must_be_ready(models, environment)
        if run.crew.must_be_priced:
            must_have_ceilings(models, environment)


def _must_have_workspaces(
    expanded: ExpandedPlan, folder: str, environment: Mapping[str, str]
) -> None:
    spec = expanded.spec
    workspaces = filter(None, (spec.workspace_of(task) for task in spec.tasks))
    for path in dict.fromkeys(one.path for one in workspaces if "{{" not in one.path):
        from headway.workspaces.store import must_be_apart

        must_be_apart(os.path.join(folder, path), folders(environment).state)


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
    from headway.agents.prompt import endpoint_of
    from headway.report.forecast import guess_price
    from headway.report.outline import OutlineFacts, outline_of
    from headway.wire.prices import price_of

    facts = OutlineFacts(lambda model: price_of(endpoint_of(model, environment).model))
    guess = guess_price(outline_of(expanded, facts)[0])
    # Work is expected to be accepted at once; at most it is sent back in every round.
    most = guess_price(outline_of(with_rounds(expanded), facts)[0])
    return replace(guess, ceiling_microusd=most.ceiling_microusd)


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
    return account_name(endpoint.host, endpoint.headers)


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
