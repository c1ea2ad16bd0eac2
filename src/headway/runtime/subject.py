"""A run as the detector sees it: what its tasks declare, in which order they are, what they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from headway.core.detect import Declared, Ground, Room, order_by
from headway.core.engine.channels import Channels
from headway.core.plan.expand import Expanded, GroupPlan
from headway.core.plan.graph import Graph
from headway.core.plan.paths import WILD, fixed_part, inside
from headway.core.plan.resources import SCHEME
from headway.core.plan.spec import Prompt, Python, Run, text_of
from headway.core.plan.template import Template, parse_template
from headway.core.plan.touches import ANYTHING, Touches
from headway.errors import HeadwayError


@dataclass(frozen=True, slots=True)
class Subject:
    """What is watched, and by what it is judged."""

    graph: Graph
    ground: Ground
    folder: str = ""
    """Of the plan: files in it count; empty if none do."""
    ignored: str = ""
    """A folder that is headway's own."""
    functions: frozenset[int] = frozenset()
    """Groups that are Python functions, of which it is known what they depend on."""
    commands: frozenset[int] = frozenset()
    lets: Callable[[int, int], Declared] | None = None
    """What a task may do without a complaint, if that is more than what it declares."""

    def may(self, group: int, member: int) -> Declared:
        """What a task may touch."""
        return (self.lets or self.ground.declared)(group, member)


def subject_of_graph(graph: Graph, channels: Channels | None = None) -> Subject:
    """A run of Python functions."""

    def declared(group: int, member: int) -> Declared:
        return Declared(_touches(graph, group, member))

    every = [group.touches for group in graph.groups if group.touches is not None]
    ground = Ground(
        _order(graph), declared, _state_rooms(any(map(_says_anything, every))),
        channels or Channels(),
    )  # fmt: skip
    return Subject(graph, ground, functions=frozenset(range(len(graph))))


def subject_of_plan(
    latest: Callable[[], Expanded], graph: Graph, channels: Channels, folder: str, ignored: str
) -> Subject:
    """A run of a plan's file; `latest` gives it as far as it is known."""
    first = latest()
    tasks = [group.task for group in first.groups]
    rooms: set[tuple[Room, bool]] = set()
    rooms |= _state_rooms(
        any(task.state_reads or task.state_writes or task.effects for task in tasks)
    )
    rooms |= {("path", False)} if any(task.paths_read for task in tasks) else set()
    # Whoever says what is read will hardly mean that nothing is written; inputs go without saying.
    says_paths = any(task.paths_read or task.paths_written for task in tasks)
    rooms |= {("path", True)} if says_paths else set()

    @cache
    def lets(group: int, member: int) -> Declared:
        plan = latest().groups[group]
        paths = Touches(
            _paths(plan, plan.task.paths_read, member),
            _paths(plan, plan.task.paths_written, member),
        )
        return Declared(_touches(graph, group, member), paths, _outputs(plan, member))

    def declared(group: int, member: int) -> Declared:
        said = lets(group, member)
        if isinstance(tasks[group].work, Run) and said.state.reads is None:
            # A command is given all that it may read; that is no choice of its own.
            return replace(said, state=replace(said.state, reads=("",)))
        return said

    def item(group: int, member: int) -> str:
        members = latest().groups[group].members
        found = None if members is None else members.member(member).item
        return "" if found is None else text_of(found)

    def where(group: int, key: str) -> str:
        line = tasks[group].spot(key).key.line
        return f"{first.spec.file}:{line}" if line and first.spec.file else ""

    ground = Ground(_order(graph), declared, frozenset(rooms), channels, item, where)
    kinds = [type(task.work) for task in tasks]
    return Subject(
        graph, ground, folder, ignored,
        frozenset(group for group, kind in enumerate(kinds) if kind is Python),
        frozenset(group for group, kind in enumerate(kinds) if kind not in (Python, Prompt)),
        lets,
    )  # fmt: skip


def _touches(graph: Graph, group: int, member: int) -> Touches:
    touches = graph.groups[group].touches
    return ANYTHING if touches is None else touches.of(member)


def _says_anything(touches: Touches) -> bool:
    return bool(touches.reads or touches.writes or touches.acts)


def _state_rooms(is_declared: bool) -> frozenset[tuple[Room, bool]]:
    """Whoever declares keys for one task is taken to mean it for all, reading and writing."""
    every: tuple[tuple[Room, bool], ...] = (("state", False), ("state", True), ("effect", True))
    return frozenset(every) if is_declared else frozenset()


def _order(graph: Graph) -> Callable[[tuple[int, int], tuple[int, int]], bool]:
    needs = [[(need.group, need.block) for need in group.needs] for group in graph.groups]
    return order_by(needs, graph.queues.values())


def _paths(plan: GroupPlan, texts: tuple[str, ...], member: int) -> tuple[str, ...]:
    """What a task declares of files: as overlaps are judged."""
    found = (_filled(plan, text, member) for text in texts)
    inner = (inside(text) for text in found)
    return tuple(fixed_part(path, WILD) for path in inner if path is not None)


def _outputs(plan: GroupPlan, member: int) -> tuple[str, ...]:
    task = plan.task
    path = inside(_filled(plan, task.output, member)) if task.output else None
    key = _filled(plan, task.output_key, member) if task.output_key else ""
    return tuple(one for one in (path, key and SCHEME + key) if one)


def _filled(plan: GroupPlan, text: str, member: int) -> str:
    template = parse_template(text)
    if not isinstance(template, Template) or plan.members is None:
        return text
    try:
        return plan.fill(template, plan.members.member(member))
    except HeadwayError:
        return text  # An item that was found at run time lacks a field: its task fails by itself.
