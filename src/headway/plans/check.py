"""What `headway check` reports: shape, order, size, remarks, and the coherence boundary.

Three answers, from what a plan declares:
- strands: members that share nothing, and so are embarrassingly parallel;
- couplings: which task must come before which, and by what: a result, a path, a key, a queue;
- boundaries: sets of tasks that are coupled with each other and with no other. Inside of one the
  order counts; between them anything goes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import Final, Literal

from msgspec import Struct

from headway.plans.accesses import ANYONE, StateTouched
from headway.plans.expand import (
    ExpandedPlan,
    GroupPlan,
    graph_of,
    prompt_paths,
    results_used,
    used_variables,
)
from headway.plans.graph import Graph
from headway.plans.hazards import NOTES_MAX, Remark, Survey, listed, runs_again
from headway.plans.links import Edges, levels, reversed_edges
from headway.plans.remarks import (
    REMARKS_MAX,
    Absent,
    carries_nothing,
    nobody_reads,
    nobody_writes,
    outside_workspaces,
    read_too_early,
    undeclared,
    unknown_files,
)
from headway.plans.rounds import loops_of
from headway.plans.section import where
from headway.plans.spec import CommandSpec, Prompt, Python, text_of

BYTES_PER_TOKEN: Final = 4.0
"""Of English text; a first guess that the first calls correct."""

SAMPLE_MAX: Final = 1_000
"""Members whose prompts are measured; the others are taken to be like them."""


KINDS: Final[Mapping[type, str]] = {CommandSpec: "run", Prompt: "prompt", Python: "python"}


class EdgeReport(Struct, frozen=True):
    """One group before another, and why."""

    before: str
    after: str
    key: str
    """`needs`, `each`, `reduce`, or `reads`: an edge by reads, which was not declared."""
    memberwise: bool


class GroupReport(Struct, frozen=True):
    """One declared task."""

    name: str
    kind: str
    """`run`, `prompt` or `python`."""
    count: int | None
    level: int
    is_independent: bool
    """It waits for no other group of its level: not even for a turn in a queue."""
    input_tokens: float
    """Expected of all members together, without results that are not there yet."""
    agent: str = ""
    """As the plan names it: `claude`, `tools(files)`."""
    permissions: str = ""
    """What the plan gives that agent: `edit`, `all`, or empty."""
    may: str = ""
    """What its tasks may do, in words."""


class CheckReport(Struct, frozen=True):
    """A plan, seen from outside."""

    name: str
    tasks: int
    """As far as is known before the run."""
    groups: tuple[GroupReport, ...]
    edges: tuple[EdgeReport, ...]
    levels: int
    width: int
    critical_path: tuple[str, ...]
    prompts: int
    commands: int
    functions: int
    input_tokens: float
    warnings: tuple[str, ...]
    """The messages of those remarks that are warnings."""
    remarks: tuple[Remark, ...]
    """The worst first; among equals, as declared."""
    boundary: Boundary
    answers: tuple[str, ...]
    """What may run in parallel, what is coupled, where the boundary is: in sentences."""
    not_judged: dict[str, str]
    """Tasks of which it is not known what they read and write, and why."""


def check(survey: Survey, absent: Absent = lambda _: frozenset()) -> CheckReport:
    """The report on an ordered plan; `absent` tells which paths are not there before the run."""
    expanded = survey.expanded
    graph = graph_of(expanded)
    remarks = remarks_on(survey, absent)
    unknown = {
        group.name: why for group in expanded.groups if (why := unknown_files(survey, group))
    }
    mixed = tuple((one.task, one.other) for one in remarks if one.kind == "undeclared")
    found = boundary(survey, frozenset(unknown), mixed)
    groups = _groups(expanded, graph)
    # Without durations every task weighs the same, so the longest chain is the one with most tasks.
    _, path = graph.critical_path([1.0] * len(graph))
    kinds: Counter[str] = Counter()
    for report in groups:
        kinds[report.kind] += report.count or 0
    return CheckReport(
        name=expanded.spec.name,
        tasks=expanded.count,
        groups=groups,
        edges=tuple(
            EdgeReport(expanded.groups[edge.group].name, group.name, edge.key, edge.memberwise)
            for group in expanded.groups
            for edge in group.edges
        ),
        levels=len(graph.levels),
        width=graph.width(),
        critical_path=tuple(expanded.groups[one].name for one in path),
        prompts=kinds["prompt"],
        commands=kinds["run"],
        functions=kinds["python"],
        input_tokens=sum(report.input_tokens for report in groups),
        warnings=tuple(one.message for one in remarks if one.severity == "warning"),
        remarks=remarks,
        boundary=found,
        answers=(
            *answers(found, *folder_agents(expanded)),
            *_loops(expanded),
            judged_by(expanded, unknown),
        ),
        not_judged=unknown,
    )


def _groups(expanded: ExpandedPlan, graph: Graph) -> tuple[GroupReport, ...]:
    level: dict[int, int] = {}
    for one in graph.order:
        level[one] = 1 + max((level[need] for need in graph.needs[one]), default=-1)
    turns = Counter((level[group.index], group.task.queue) for group in expanded.groups)
    return tuple(
        GroupReport(
            name=group.name,
            kind=KINDS[type(group.task.work)],
            count=group.count,
            level=level[group.index],
            is_independent=not group.task.queue or turns[level[group.index], group.task.queue] == 1,
            input_tokens=_input_tokens(expanded, group),
            agent=_agent(group),
            permissions=expanded.spec.permissions_of(group.task),
            may=_may(expanded, group),
        )
        for group in expanded.groups
    )


def _loops(expanded: ExpandedPlan) -> Iterator[str]:
    """What is done on top if a task sends back the work of another one."""
    for loop in loops_of(expanded):
        judge = expanded.groups[loop.judge]
        assert judge.task.revise is not None
        counts = [expanded.groups[one].count for one in loop.body]
        more = (loop.last - 1) * sum(filter(None, counts))
        times = "once" if loop.last == 2 else f"{loop.last - 1} times"
        unknown = " and those whose number is not known" if None in counts else ""
        yield (
            f"Loop: `{judge.name}` may send back the work of `{judge.task.revise.task}` {times}: "
            f"up to {more:,} tasks more{unknown}."
        )


def remarks_on(survey: Survey, absent: Absent) -> tuple[Remark, ...]:
    """What looks odd in a plan, warnings first."""
    expanded = survey.expanded
    shown = tuple(islice(undeclared(survey, absent), REMARKS_MAX))
    every = [
        *islice(nobody_writes(survey, absent), REMARKS_MAX),
        *shown,
        *read_too_early(survey, absent),
        *_settings(expanded),
        *nobody_reads(survey, frozenset(one.what for one in shown)),
        *carries_nothing(survey),
        *outside_workspaces(survey),
        *islice(runs_again(expanded, survey.state, survey.order), NOTES_MAX),
    ]
    return tuple(sorted(every, key=lambda one: one.severity != "warning"))


def _agent(group: GroupPlan) -> str:
    work = group.task.work
    return str(work.agent or "") if isinstance(work, Prompt) else ""


def _may(expanded: ExpandedPlan, group: GroupPlan) -> str:
    task, agent = group.task, _agent(group)
    if not agent:
        return "answer only" if isinstance(task.work, Prompt) else "everything that you may"
    if not task.is_command:
        return f"use {agent}"
    own = f"what your settings of {agent} allow"
    match expanded.spec.permissions_of(task):
        case "edit":
            return f"{own}, and edit files in their folder (permissions: edit)"
        case "all":
            more = "; Codex without its sandbox" if agent == "codex" else ""
            return f"everything without a question (permissions: all){more}"
    return own


def _input_tokens(expanded: ExpandedPlan, group: GroupPlan) -> float:
    work = group.task.work
    if not isinstance(work, Prompt) or group.members is None:
        return 0.0
    files = expanded.sources.files
    texts = [files[path] for path in prompt_paths(group)] if work.file else [work.text]
    members = group.members
    size = sum(len(text.encode()) for text in texts) / len(texts)
    if members.items is not None and any("item" in text for text in texts):
        sample = members.items[:SAMPLE_MAX]
        size += sum(len(text_of(item).encode()) for item in sample) / len(sample)
    return size * members.count / BYTES_PER_TOKEN


def _settings(expanded: ExpandedPlan) -> Iterator[Remark]:
    """Variables that are not used, and prompts without a model."""
    spec = expanded.spec
    # A command or a function gets every variable, so it may use any.
    is_open = any(not isinstance(group.task.work, Prompt) for group in expanded.groups)
    groups = expanded.groups if spec.vars and not is_open else ()
    used = {name for group in groups for name in used_variables(expanded, group)}
    for name, _ in spec.vars:
        if not is_open and name not in used:
            message = f"`vars.{name}` is used by no task"
            yield Remark("warning", "unused variable", "", message, where=spec.file)
    for group in expanded.groups:
        task = group.task
        if not isinstance(task.work, Prompt):
            continue
        own = used_variables(expanded, group)
        for name, _ in task.vars:
            if name not in own:
                spot = task.spot(f"vars.{name}").key
                message = f"`tasks.{group.name}.vars.{name}` is not used by its prompt"
                yield Remark("warning", "unused variable", group.name, message,
                             where=where(spec.file, spot))  # fmt: skip
        if not (task.work.model or spec.model or task.is_command):
            message = f"`{group.name}` names no model: `run` needs --model"
            yield Remark("warning", "no model", group.name, message,
                         where=where(spec.file, task.place))  # fmt: skip


# How many tasks of a plan can be active at once: the largest set of which none waits for another.

TRANSITIVE_GROUPS_MAX: Final = 200
"""Groups up to which chains over tasks between them are looked for."""


def breadth(sizes: Sequence[int], before: Sequence[int], direct: Edges) -> tuple[int, bool]:
    """The most tasks at once of groups of these sizes, and whether it is exact: it may be less.

    `before` has for each group all that come before it, as bits; `direct` those that it waits for
    itself. Tasks in one chain never run at once, so that the chains that cover all tasks are a
    bound; all tasks of one level can run at once, so that the bound is exact if a level reaches it.
    """
    after = reversed_edges(direct)
    spare, room = list(sizes), list(sizes)
    steps = [
        (one, other)
        for other, needs in enumerate(direct)
        for one in sorted(needs, key=lambda need: len(after[need]))
    ]
    if len(sizes) <= TRANSITIVE_GROUPS_MAX:
        groups = range(len(sizes))
        steps += [(one, n) for n, mask in enumerate(before) for one in groups if mask >> one & 1]
    for one, other in steps:
        amount = min(spare[one], room[other])
        spare[one] -= amount
        room[other] -= amount
    bound = sum(room)
    widest = max((sum(sizes[one] for one in level) for level in levels(direct, after)), default=0)
    return bound, bound == widest


By = Literal["result", "items", "order", "path", "key", "queue"]
"""Its result is used | it says who the members are | nothing gets over, but it comes first | a file
or folder | a key of the shared state | turns."""


class Strand(Struct, frozen=True):
    """Tasks of one item each, one after another; strands of different items share nothing."""

    groups: tuple[str, ...]
    """In order; usually one."""
    count: int | None
    """How many strands there are; `None` if that is found at run time."""
    is_proven: bool
    """They declare all that they touch, or are prompts, which touch nothing."""


class Coupling(Struct, frozen=True):
    """One group that must come before another, and why."""

    before: str
    after: str
    by: By
    what: str
    """The path, the key or the queue."""
    memberwise: bool
    """Each member before the same member of the other group only."""


class Boundary(Struct, frozen=True):
    """A plan, as far as coherence goes."""

    strands: tuple[Strand, ...]
    alone: tuple[str, ...]
    """Single tasks that share nothing with any other."""
    is_proven: bool
    """Those say all that they touch, or are prompts."""
    couplings: tuple[Coupling, ...]
    inside: tuple[tuple[tuple[str, ...], ...], ...]
    """Sets of groups that are coupled. Each is a row of stages: all of a stage is done before
    anything of the next one starts."""
    turns: tuple[str, ...]
    """Groups whose members run one at a time."""
    width: int
    """The most tasks that can be active at once without one seeing a half-done other."""
    is_exact: bool
    """If not, it may be less."""
    unknown: tuple[str, ...]
    """Groups whose members are found at run time; they count as one each."""
    clashing: tuple[str, ...]
    """Groups whose commands use the same files in no order, by their texts."""


def boundary(
    survey: Survey, unknown: frozenset[str] = frozenset(), pairs: Sequence[tuple[str, str]] = ()
) -> Boundary:
    """What may run beside what, in a plan that was ordered. Of some groups it is not known what
    they touch; commands of `pairs`, or of members of one, seem to touch what no key declares."""
    expanded = survey.expanded
    groups = expanded.groups
    mixed = frozenset(name for pair in pairs for name in pair)
    strands = tuple(_strands(survey, unknown, mixed))
    clashing = tuple(_clashing(survey, pairs))
    apart = {one for one, other in clashing if one == other}
    # Of two groups that clash only one may be at work.
    idle = {max(one, other) for one, other in clashing if one != other}
    sizes = [
        1 if group.task.queue or group.count is None or group.index in apart else group.count
        for group in groups
    ]
    sizes = [0 if index in idle else size for index, size in enumerate(sizes)]
    width, is_exact = breadth(sizes, survey.order.somehow, survey.order.direct)
    inside = _components(survey)
    coupled = {name for stages in inside for names in stages for name in names}
    striped = {name for strand in strands for name in strand.groups}
    alone = [
        group
        for group in groups
        if group.name not in coupled and group.name not in striped and not group.task.queue
        if not shares_folder(expanded, group) and group.name not in mixed
    ]
    return Boundary(
        strands=strands,
        alone=tuple(group.name for group in alone),
        is_proven=all(group.name not in unknown for group in alone),
        couplings=tuple(_couplings(survey)),
        inside=inside,
        turns=tuple(group.name for group in groups if group.task.queue and group.count != 1),
        width=width,
        is_exact=is_exact,
        unknown=tuple(
            group.name for group in groups if group.count is None and not group.task.queue
        ),
        clashing=tuple(
            groups[one].name for one in sorted({one for pair in clashing for one in pair})
        ),
    )


def _clashing(survey: Survey, pairs: Sequence[tuple[str, str]]) -> Iterator[tuple[int, int]]:
    """The groups of these pairs between which there is no order; twice the same: its members."""
    index = {group.name: group.index for group in survey.expanded.groups}
    for name, other_name in pairs:
        one, other = index[name], index[other_name or name]
        if one == other or not survey.order.precedes(one, other) | survey.order.precedes(
            other, one
        ):
            yield one, other


def _components(survey: Survey) -> tuple[tuple[tuple[str, ...], ...], ...]:
    direct = survey.order.direct
    root = list(range(len(direct)))

    def find(one: int) -> int:
        while root[one] != one:
            root[one] = root[root[one]]
            one = root[one]
        return one

    for one, needs in enumerate(direct):
        for need in needs:
            root[find(one)] = find(need)
    for one, other in _shared_keys(survey.state):
        root[find(one)] = find(other)
    sets: dict[int, list[int]] = {}
    for one in sorted(range(len(direct)), key=survey.order.position.__getitem__):
        sets.setdefault(find(one), []).append(one)
    return tuple(tuple(_stages(survey, some)) for some in sets.values() if len(some) > 1)


def _stages(survey: Survey, some: list[int]) -> Iterator[tuple[str, ...]]:
    """Groups in serial order, cut wherever all that is left comes after all that went before."""
    groups, entirely = survey.expanded.groups, survey.order.entirely
    shared = [-1] * (len(some) + 1)
    """Of those from each place on: who comes before all of them, as bits."""
    for place in range(len(some) - 1, -1, -1):
        shared[place] = shared[place + 1] & entirely[some[place]]
    stage: list[str] = []
    seen = 0
    for place, one in enumerate(some):
        stage.append(groups[one].name)
        seen |= 1 << one
        if not seen & ~shared[place + 1]:
            yield tuple(stage)
            stage = []


def _shared_keys(state: StateTouched) -> Iterator[tuple[int, int]]:
    """Groups that share the state, in a row: nothing else orders tasks that declare less."""
    keys = state.keys
    for prefix, writers in keys.writes.items():
        first = next(iter(writers))
        for is_write in (False, True):
            for groups in keys.overlapping(prefix, is_write):
                yield from ((first, other) for other in groups)
    free = {*state.readers, *state.writers}
    if free:
        named = (*keys.reads.values(), *keys.writes.values())
        yield from pairwise(sorted(free.union(*named)))


def _strands(survey: Survey, unknown: frozenset[str], mixed: frozenset[str]) -> Iterator[Strand]:
    """Groups of several members that share nothing, those of the same items together."""
    groups = survey.expanded.groups
    loose = {group.index for group in groups if _is_loose(survey, group)}
    chains: dict[int, list[int]] = {}
    chain_of: dict[int, int] = {}
    for one in sorted(loose, key=survey.order.position.__getitem__):
        total = {edge.group for edge in groups[one].edges if not edge.memberwise}
        paced = {edge.group for edge in groups[one].edges if edge.memberwise} - total
        first = next((chain_of[need] for need in sorted(paced) if need in chain_of), one)
        # A member that waits for all of an earlier group of its strand is where strands meet.
        if first != one and total.intersection(chains[first]):
            first = one
        chain_of[one] = first
        chains.setdefault(first, []).append(one)
    for first, chain in chains.items():
        names = tuple(groups[one].name for one in chain)
        if mixed.isdisjoint(names):
            yield Strand(names, groups[first].count, unknown.isdisjoint(names))


def _is_loose(survey: Survey, group: GroupPlan) -> bool:
    """Whether members of a group share nothing that one of them changes."""
    state = survey.state
    index = group.index
    if group.count in (0, 1) or group.task.queue or shares_folder(survey.expanded, group):
        return False
    reads, writes = state.keys.of_group(index)
    if index in state.readers and (writes or index in state.writers):
        return False
    if index in state.writers and reads:
        return False
    for what in writes:
        who = state.keys.writes[what][index]
        readers = state.keys.overlapping(what, False)
        if any(index in found and (found[index] != who or who == ANYONE) for found in readers):
            return False
    return True


def _couplings(survey: Survey) -> Iterator[Coupling]:
    """Every edge and every turn, with what gets over it."""
    groups = survey.expanded.groups
    last: dict[str, GroupPlan] = {}
    for group in groups:
        used: frozenset[str] | None = None
        for edge in group.edges:
            if used is None:
                used = results_used(survey.expanded, group)
            before = groups[edge.group]
            by, what = _carried(survey, before, group, edge.key)
            if by == "order" and (before.name in used or isinstance(group.task.work, Python)):
                by = "result"
            yield Coupling(before.name, group.name, by, what, edge.memberwise)
        if queue := group.task.queue:
            if queue in last:
                yield Coupling(last[queue].name, group.name, "queue", queue, False)
            last[queue] = group


def _carried(survey: Survey, before: GroupPlan, after: GroupPlan, key: str) -> tuple[By, str]:
    """What gets from one group to another, as far as that can be seen without their texts."""
    if key == "each" and not before.task.is_group:
        return "items", ""
    if key == "reduce":
        return "result", ""
    path = survey.touched.common(before.index, after.index)
    if path is not None:
        return "path", path or "."
    found = survey.state.keys.common(before.index, after.index)
    return ("order", "") if found is None else ("key", found or "everything")


# The questions of "The Parallelization Trap", answered for one plan in plain sentences.

SHOWN_MAX: Final = 6
"""Couplings and sets that are told one by one: who has more reads them in the table or as JSON."""

STRANDS_SHOWN_MAX: Final = 4
DECLARED: Final = ", as far as is declared"


def shares_folder(expanded: ExpandedPlan, group: GroupPlan) -> bool:
    """Whether an agent works on its user's files: what it reads and writes is not declared."""
    task = group.task
    is_agent = isinstance(task.work, Prompt) and task.is_command
    return is_agent and expanded.spec.workspace_of(task) is None


def folder_agents(expanded: ExpandedPlan) -> tuple[tuple[str, ...], int | None]:
    """The groups of agents that share the folder, and how many agents that are, if it is known."""
    groups = [group for group in expanded.groups if shares_folder(expanded, group)]
    counts = [group.count for group in groups]
    known = [one for one in counts if one is not None]
    return tuple(group.name for group in groups), sum(known) if len(known) == len(counts) else None


def answers(
    found: Boundary, agents: Sequence[str] = (), agent_count: int | None = 0
) -> tuple[str, ...]:
    """What is embarrassingly parallel, what is coupled and by what, where the boundary is.

    `agents` are those that share the folder: what they touch is unknown before the run.
    """
    most = (
        f"{found.width:,} tasks at once" if found.width > 1 else "1. More at once would only wait"
    )
    if found.unknown:
        have = "has" if len(found.unknown) == 1 else "have"
        most = f"as many as {listed(found.unknown)} {have} members"
    elif found.clashing:
        many = f"{found.width:,} tasks at once" if found.width > 1 else "1"
        most = f"{many}, as commands of {listed(found.clashing)} use the same files in no order"
    elif not found.is_exact:
        most = f"at most {most}"
    shared: tuple[str, ...] = ()
    if agent_count is None or agent_count > 1:
        many = "" if agent_count is None else f"{agent_count:,} "
        shared = (
            f"Not known: these {many}agents share this folder: {listed(agents)}. What one of them "
            "writes another may read half done, or overwrite; `workspace: on` keeps them apart.",
        )
        most += ", as long as those agents use no file together"
    most += "" if _is_proven(found) else DECLARED
    parallel = _parallel(found)
    return *parallel, *shared, *_coupled(found), *_bounded(found), f"Largest safe width: {most}."


def _is_proven(found: Boundary) -> bool:
    """Whether it is known what each task without order to others reads and writes."""
    return found.is_proven and all(strand.is_proven for strand in found.strands)


def judged_by(expanded: ExpandedPlan, unknown: Mapping[str, str]) -> str:
    """What stands behind the other answers."""
    known = [group for group in expanded.groups if group.name not in unknown]
    by_text = [
        group.name for group in known
        if isinstance(group.task.work, CommandSpec) and not group.task.says_all
    ]  # fmt: skip
    spec = expanded.spec
    apart = [group.name for group in known if spec.workspace_of(group.task) is not None]
    declared = [group.name for group in known if group.name not in (*by_text, *apart)]
    parts = [f"by declarations: {listed(declared)}"] if declared else []
    by_text = [name for name in by_text if name not in apart]
    parts += [f"by the text of commands: {listed(by_text)}"] if by_text else []
    parts += [f"by workspaces, which land in declared order: {listed(apart)}"] if apart else []
    if unknown:
        names = ", ".join(f"`{name}` ({why})" for name, why in islice(unknown.items(), SHOWN_MAX))
        more = f" and {len(unknown) - SHOWN_MAX:,} more" if len(unknown) > SHOWN_MAX else ""
        have = f"{len(unknown):,} of {len(expanded.groups):,} tasks"
        unread = f"Not judged: {have}, whose files are not known: {names}{more}."
        return f"Judged {'; '.join(parts)}. {unread}" if parts else unread
    return f"Judged {'; '.join(parts)}."


def _parallel(found: Boundary) -> list[str]:
    shown = found.strands[:STRANDS_SHOWN_MAX]
    lines = [f"Embarrassingly parallel: {_strand(strand)}." for strand in shown]
    if rest := found.strands[STRANDS_SHOWN_MAX:]:
        more = listed([name for strand in rest for name in strand.groups])
        lines.append(f"Embarrassingly parallel, too: {more}.")
    if found.alone:
        its, verb = ("its", "shares") if len(found.alone) == 1 else ("their", "share")
        line = f"On {its} own: {listed(found.alone)} {verb} nothing with any other task"
        lines.append(f"{line}{'' if found.is_proven else DECLARED}.")
    if not lines and len(found.inside) == 1 and found.width > 1:
        return ["Nothing is embarrassingly parallel: every task has to do with another one."]
    return lines


def _strand(strand: Strand) -> str:
    many = "as many as are found" if strand.count is None else f"{strand.count:,}"
    if len(strand.groups) == 1:
        what = f"the members of `{strand.groups[0]}` ({many}), which share nothing that changes"
    else:
        chain = " -> ".join(f"`{name}`" for name in strand.groups)
        what = f"{chain} for each item ({many}): in order for one item, in any order between items"
    return what if strand.is_proven else what + DECLARED


def _coupled(found: Boundary) -> list[str]:
    own = {name: strand for strand in found.strands for name in strand.groups}
    by_after: dict[tuple[str, str, str], list[str]] = {}
    for one in found.couplings:
        if not one.memberwise or own.get(one.before) is not own.get(one.after, found):
            by_after.setdefault((one.before, one.by, one.what), []).append(one.after)
    lines = [
        _told(before, after, (by, what), found)
        for (before, by, what), after in list(by_after.items())[:SHOWN_MAX]
    ]
    if len(by_after) > SHOWN_MAX:
        lines.append(f"{len(by_after) - SHOWN_MAX:,} more such pairs")
    return [f"Coupled: {'; '.join(lines)}."] if lines else []


def _told(before: str, after: list[str], by: tuple[str, str], found: Boundary) -> str:
    them = listed(after)
    is_many = any(before in strand.groups for strand in found.strands) or before in found.turns
    every = f"all of `{before}`" if is_many else f"`{before}`"
    verb = "need" if len(after) > 1 else "needs"
    match by:
        case ("result", _):
            return f"{them} {verb} the {'results' if is_many else 'result'} of {every}"
        case ("items", _):
            have = "have" if len(after) > 1 else "has"
            return f"{them} {have} a member for each result of {every}"
        case ("path" | "key", what):
            kind = "the key " if by[0] == "key" else ""
            return f"{them} {verb} {kind}`{what}` as {every} {'leave' if is_many else 'leaves'} it"
        case ("queue", what):
            return f"`{before}` and {them} take turns in queue `{what}`"
    return f"{them} must come after {every}"


def _bounded(found: Boundary) -> list[str]:
    own = {strand.groups[0]: strand for strand in found.strands}
    sets = [_row(stages, own) for stages in found.inside[:SHOWN_MAX]]
    if len(found.inside) > SHOWN_MAX:
        sets.append(f"{len(found.inside) - SHOWN_MAX:,} more")
    has_bars = any(len(stages) > 1 for stages in found.inside)
    bars = " What is left of a bar is done before anything right of it starts." if has_bars else ""
    around, between = "", ""
    if len(sets) > 1:
        around, between = ", around each of these", " Between them anything goes."
    lines = [f"Coherence boundary{around}: {'; '.join(sets)}.{bars}{between}"] if sets else []
    if not sets and found.width > 1 and not found.clashing:
        known = "" if _is_proven(found) else DECLARED
        lines.append(f"Coherence boundary: none; any task can run before any other{known}.")
    if found.turns:
        lines.append(f"One at a time, in declared order: the members of {listed(found.turns)}.")
    return lines


def _row(stages: tuple[tuple[str, ...], ...], own: Mapping[str, Strand]) -> str:
    shown = [_stage(names, own) for names in stages]
    if len(shown) > SHOWN_MAX:
        shown = [*shown[: SHOWN_MAX - 1], f"({len(shown) - SHOWN_MAX:,} more)", shown[-1]]
    return " | ".join(shown)


def _stage(names: tuple[str, ...], own: Mapping[str, Strand]) -> str:
    strand = own.get(names[0])
    if strand is not None and strand.groups == names:
        many = "many" if strand.count is None else f"{strand.count:,}"
        return f"{' -> '.join(f'`{name}`' for name in names)} ({many} at once)"
    return listed(names, SHOWN_MAX)
