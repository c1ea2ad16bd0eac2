"""What `headway check` says about a plan: its shape, its orders, its size, and what looks odd."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from headway.core.plan.answers import answers
from headway.core.plan.boundary import Boundary, boundary
from headway.core.plan.content import used_variables
from headway.core.plan.expand import Expanded, GroupPlan, graph_of, prompt_paths
from headway.core.plan.graph import Graph
from headway.core.plan.hazard import Survey
from headway.core.plan.origin import Absent, nobody_writes, nothing_absent, read_too_early
from headway.core.plan.remark import Remark, where
from headway.core.plan.rerun import runs_again
from headway.core.plan.spec import Prompt, Python, Run, text_of
from headway.core.plan.undeclared import undeclared
from headway.core.plan.unused import carries_nothing, nobody_reads
from headway.core.records import quick

BYTES_PER_TOKEN: Final = 4.0
"""Of English text; a first guess that the first calls correct."""

SAMPLE_MAX: Final = 1_000
"""Members whose prompts are measured; the others are taken to be like them."""


@quick
class EdgeReport:
    """One group before another, and why."""

    before: str
    after: str
    key: str
    """`needs`, `each`, `reduce`, or `reads`: an edge by reads, which was not declared."""
    memberwise: bool


@quick
class GroupReport:
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


@dataclass(frozen=True, slots=True)
class CheckReport:
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


def check(survey: Survey, absent: Absent = nothing_absent) -> CheckReport:
    """The report on a plan that was expanded and ordered.

    `absent` tells which of some paths are not there before the run.
    """
    expanded = survey.expanded
    graph = graph_of(expanded)
    found = boundary(survey)
    remarks = _remarks(survey, absent)
    groups = _groups(expanded, graph)
    # Without durations every task weighs the same, so the longest chain is the one with most tasks.
    _, path = graph.critical_path([1.0] * len(graph))
    shape = graph.statistics()
    kinds: Counter[str] = Counter()
    for report in groups:
        kinds[report.kind] += report.count or 0
    return CheckReport(
        name=expanded.spec.name,
        tasks=shape.tasks,
        groups=groups,
        edges=tuple(
            EdgeReport(expanded.groups[edge.group].name, group.name, edge.key, edge.memberwise)
            for group in expanded.groups
            for edge in group.edges
        ),
        levels=shape.levels,
        width=shape.width,
        critical_path=tuple(expanded.groups[one].name for one in path),
        prompts=kinds["prompt"],
        commands=kinds["run"],
        functions=kinds["python"],
        input_tokens=sum(report.input_tokens for report in groups),
        warnings=tuple(one.message for one in remarks if one.severity == "warning"),
        remarks=remarks,
        boundary=found,
        answers=answers(found),
    )


def _groups(expanded: Expanded, graph: Graph) -> tuple[GroupReport, ...]:
    level: dict[int, int] = {}
    for one in graph.order:
        level[one] = 1 + max((level[need] for need in graph.needs[one]), default=-1)
    turns = Counter((level[group.index], group.task.queue) for group in expanded.groups)
    return tuple(
        GroupReport(
            name=group.name,
            kind=_kind(group),
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


def _remarks(survey: Survey, absent: Absent) -> tuple[Remark, ...]:
    expanded = survey.expanded
    shown = tuple(undeclared(survey))
    every = [
        *nobody_writes(survey, absent),
        *shown,
        *read_too_early(survey),
        *_settings(expanded),
        *nobody_reads(survey, frozenset(one.what for one in shown)),
        *carries_nothing(survey),
        *runs_again(expanded, survey.state, survey.order),
    ]
    return tuple(sorted(every, key=lambda one: one.severity != "warning"))


def _kind(group: GroupPlan) -> str:
    match group.task.work:
        case Run():
            return "run"
        case Python():
            return "python"
    return "prompt"


def _agent(group: GroupPlan) -> str:
    work = group.task.work
    return str(work.agent or "") if isinstance(work, Prompt) else ""


def _may(expanded: Expanded, group: GroupPlan) -> str:
    """What the tasks of a group may do on this machine."""
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


def _input_tokens(expanded: Expanded, group: GroupPlan) -> float:
    """Bytes of the prompts and of the items in them, as tokens."""
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


def _settings(expanded: Expanded) -> Iterator[Remark]:
    """Variables that nobody uses, and prompts that nobody answers."""
    spec = expanded.spec
    groups = expanded.groups if spec.vars else ()
    used = {name for group in groups for name in _used(expanded, group)}
    for name, _ in spec.vars:
        if name not in used:
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


def _used(expanded: Expanded, group: GroupPlan) -> frozenset[str]:
    """A command or a function gets every variable, so it may use any."""
    if isinstance(group.task.work, Prompt):
        return used_variables(expanded, group)
    return frozenset(name for name, _ in expanded.spec.vars)
