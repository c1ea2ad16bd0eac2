"""The groups of a plan: how many members each has, what they are called, and who needs whom.

Laws:
- A member is computed from its number; no list of members is made, whatever their count.
- Members vary in declared order: items slowest, then the axes of the matrix, the last one fastest.
- A group that follows another (`each: TASK`) has its members: same items, same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from json import JSONDecodeError, loads
from math import prod
from typing import Final

from headway.core.plan.graph import Graph, Group, Need
from headway.core.plan.links import links_of
from headway.core.plan.scope import leaders_of
from headway.core.plan.section import Faults
from headway.core.plan.spec import Fields, PlanSpec, Prompt, TaskSpec, Value, frozen, text_of
from headway.core.plan.stake import Fill, Stake, is_stateful, may_touch, stake_of
from headway.core.plan.template import Broken, Ref, Template, parse_template
from headway.core.records import quick
from headway.errors import Fix, InternalError, PlanTooLargeError, TemplateError

MEMBERS_MAX: Final = 1_000_000
"""Tasks of one run: as many as fit into memory with room to spare."""

LABEL_CHARS_MAX: Final = 60


@dataclass(frozen=True, slots=True)
class Sources:
    """What a plan's patterns and files gave when they were read."""

    globs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    lines: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    """Prompts and schemas by path."""


@dataclass(frozen=True, slots=True)
class Member:
    """The values of one task."""

    index: int
    item: Value = None
    matrix: tuple[tuple[str, Value], ...] = ()


@dataclass(frozen=True, slots=True)
class Members:
    """All combinations of items and matrix values."""

    items: tuple[Value, ...] | None = None
    """`None` if there is no `each`; the one member then has no item."""
    matrix: tuple[tuple[str, tuple[Value, ...]], ...] = ()
    occurrences: tuple[int, ...] = ()
    """How many equal items stand before each, if any item is there twice."""

    @classmethod
    def of(
        cls,
        items: tuple[Value, ...] | None,
        matrix: tuple[tuple[str, tuple[Value, ...]], ...] = (),
    ) -> Members:
        """Members of these items, with equal ones counted."""
        texts = [text_of(item) for item in items or ()]
        if len(set(texts)) == len(texts):
            return cls(items, matrix)
        seen: dict[str, int] = {}
        occurrences: list[int] = []
        for text in texts:
            occurrences.append(seen.get(text, 0))
            seen[text] = occurrences[-1] + 1
        return cls(items, matrix, tuple(occurrences))

    @property
    def combinations(self) -> int:
        """Members per item."""
        return prod([len(values) for _, values in self.matrix])

    @property
    def count(self) -> int:
        """How many members there are."""
        count = 1 if self.items is None else len(self.items)
        return count * self.combinations if self.matrix else count

    def place(self, index: int) -> tuple[int, tuple[int, ...]]:
        """The numbers of a member's item and of its value on each axis."""
        places: list[int] = []
        for _, values in reversed(self.matrix):
            index, place = divmod(index, len(values))
            places.append(place)
        return index, tuple(reversed(places))

    def member(self, index: int) -> Member:
        """The values of a member."""
        item, places = self.place(index)
        axes = zip(self.matrix, places, strict=True)
        matrix = tuple((name, values[place]) for (name, values), place in axes)
        return Member(index, None if self.items is None else self.items[item], matrix)


_ALONE: Final = Members()
"""Of every task that is no group."""


@quick
class Edge:
    """A group that must be done first, and which key says so."""

    group: int
    memberwise: bool
    key: str
    """`needs`, `each`, `reduce`, or `reads`: the last one was not declared but follows."""


@quick
class GroupPlan:
    """One declared task with its members."""

    index: int
    task: TaskSpec
    members: Members | None
    """`None` until a task that it is spread over has ended."""
    leader: int
    """The group whose members it has: itself, unless it follows another."""
    edges: tuple[Edge, ...] = ()
    vars: Mapping[str, Template | Value] = field(default_factory=dict)
    """Of the plan and of the task; a template where the task's own is one."""

    @property
    def name(self) -> str:
        """As declared."""
        return self.task.name

    @property
    def count(self) -> int | None:
        """How many members; `None` if that is found at run time."""
        return None if self.members is None else self.members.count

    @property
    def source(self) -> int:
        """The group whose results a reduction brings together."""
        return next(edge.group for edge in self.edges if edge.key == "reduce")

    @property
    def known(self) -> Members:
        """The members of a group whose members are known."""
        if self.members is None:
            raise InternalError(f"the members of `{self.name}` are not known yet")
        return self.members

    def label(self, index: int) -> str:
        """A member as people read it: `review[security]`; no two of a group are alike."""
        if not self.task.is_group:
            return self.name
        members = self.known
        member = members.member(index)
        values = [] if members.items is None else [member.item]
        texts = [text_of(value) for value in (*values, *(value for _, value in member.matrix))]
        text = ", ".join(texts)
        shown = text
        if not text.isprintable():
            shown = "".join(char if char.isprintable() else " " for char in text)
        is_unclear = shown != text or len(text) > LABEL_CHARS_MAX or not text.strip()
        is_unclear |= bool(members.occurrences) or "#" in text
        is_unclear |= len(texts) > 1 and any(", " in part for part in texts)
        if not is_unclear:
            return f"{self.name}[{text}]"
        short = shown if len(shown) <= LABEL_CHARS_MAX else "…" + shown[1 - LABEL_CHARS_MAX :]
        return f"{self.name}[{short} #{index + 1}]"

    def fill(
        self,
        template: Template,
        member: Member,
        results: Callable[[str], str] | None = None,
        state: Callable[[str], str] | None = None,
    ) -> str:
        """A template of this task with the values of one member.

        `results` gives those of tasks, `state` the text of a key, or of all that it may read ("").
        """

        def value(ref: Ref) -> str:
            names = ref.names
            if ref.task:
                if results is None:
                    raise InternalError(f"{{{{ {ref} }}}} is not known yet")
                return results(ref.task)
            if names[0] == "state":
                if state is None:
                    raise InternalError(f"{{{{ {ref} }}}} is not known here")
                return state("".join(names[1:]))
            if names[0] == "index":
                return str(member.index)
            if names[0] == "matrix":
                return text_of(dict(member.matrix)[names[1]])
            if names[0] == "item":
                return text_of(_dug(member.item, names[1:], self.name))
            found = self.vars[names[1]]
            return found.render(value) if isinstance(found, Template) else text_of(found)

        return template.render(value)


@dataclass(frozen=True, slots=True)
class Expanded:
    """A plan with its groups, in declared order."""

    spec: PlanSpec
    groups: tuple[GroupPlan, ...]
    sources: Sources

    @property
    def count(self) -> int:
        """How many tasks there are, as far as is known."""
        return sum(group.count or 0 for group in self.groups)


def expand(spec: PlanSpec, sources: Sources) -> Expanded:
    """The groups of a plan. Raises `PlanTooLargeError` if they have too many members."""
    index = {task.name: place for place, task in enumerate(spec.tasks)}
    leaders = leaders_of(spec)
    by_leader: dict[str, Members | None] = {}
    groups: list[GroupPlan] = []
    for place, task in enumerate(spec.tasks):
        leader = leaders[task.name]
        if leader.name not in by_leader:
            by_leader[leader.name] = _members(leader, sources)
        edges = tuple(
            Edge(index[link.name], link.key == "each" and leader is not task, link.key)
            for link in links_of(task)
        )
        members = by_leader[leader.name]
        variables = _variables(spec, task)
        groups.append(GroupPlan(place, task, members, index[leader.name], edges, variables))
    expanded = Expanded(spec, tuple(groups), sources)
    _check_size(expanded)
    return expanded


def found(expanded: Expanded, index: int, items: tuple[Value, ...]) -> Expanded:
    """The plan when the items of a group have become known: those who follow it have them too."""
    members = Members.of(items, expanded.groups[index].task.matrix)
    groups = tuple(
        replace(group, members=members) if group.leader == index else group
        for group in expanded.groups
    )
    return replace(expanded, groups=groups)


def items_of(text: str) -> tuple[Value, ...]:
    """The items that a result gives: elements of a JSON array, or lines that are not empty."""
    if text.lstrip().startswith("["):
        try:
            values = frozen(loads(text))
        except (JSONDecodeError, RecursionError, ValueError):
            values = None
        if isinstance(values, tuple):
            return values
    return tuple(line.strip() for line in text.splitlines() if line.strip())


def prompt_paths(group: GroupPlan) -> tuple[str, ...]:
    """The files that the members' prompts are in, each once."""
    work = group.task.work
    return paths_of(group, work.file) if isinstance(work, Prompt) and work.file else ()


def paths_of(group: GroupPlan, text: str) -> tuple[str, ...]:
    """The paths that a template gives for all members, each once."""
    template = parse_template(text)
    if not isinstance(template, Template) or not template.refs or group.members is None:
        return (text,)
    members = group.members
    filled = (group.fill(template, members.member(index)) for index in range(members.count))
    return tuple(dict.fromkeys(filled))


def prompt_texts(expanded: Expanded, group: GroupPlan) -> tuple[str, ...]:
    """The texts of the members' prompts, those in files included."""
    work, files = group.task.work, expanded.sources.files
    if not isinstance(work, Prompt):
        return ()
    return (work.text, *(files.get(path, "") for path in prompt_paths(group)))


def stakes_of(expanded: Expanded) -> tuple[Stake | None, ...]:
    """For every group what its members may touch of the shared state; None is nothing at all."""
    texts = [prompt_texts(expanded, group) for group in expanded.groups]
    every = list(zip((group.task for group in expanded.groups), texts, strict=True))
    has_section = expanded.spec.state is not None
    is_shared = has_section or any(is_stateful(task, text) for task, text in every)
    if not is_shared:
        return (None,) * len(every)
    return tuple(
        stake_of(task, text) if may_touch(task, text, has_section) else None for task, text in every
    )


def graph_of(expanded: Expanded, latest: Callable[[], Expanded] | None = None) -> Graph:
    """The graph that the engine runs; `latest` is the plan as far as it is known at run time."""
    spec = expanded.spec
    stakes = stakes_of(expanded)
    return Graph(
        Group(
            name=group.name,
            count=group.count,
            needs=tuple(Need(edge.group, block=int(edge.memberwise)) for edge in group.edges),
            priority=group.task.priority,
            queue=group.task.queue,
            retries=_retries(spec, group.task),
            is_local=group.task.is_command,
            touches=None if stake is None else stake.touches(_fill(group, latest)),
        )
        for group, stake in zip(expanded.groups, stakes, strict=True)
    )


def _fill(group: GroupPlan, latest: Callable[[], Expanded] | None) -> Fill | None:
    """Fills templates with the values of members; `None` while nobody can know them."""
    if group.members is None and latest is None:
        return None

    def fill(template: Template, member: int) -> str:
        now = group if latest is None else latest().groups[group.index]
        return now.fill(template, now.known.member(member))

    return fill


def _retries(spec: PlanSpec, task: TaskSpec) -> int | None:
    """A call that the provider failed is tried again by itself; a command or function is not."""
    declared = spec.retries if task.retries is None else task.retries
    return 0 if declared is None and not isinstance(task.work, Prompt) else declared


def _members(task: TaskSpec, sources: Sources) -> Members | None:
    each = task.each
    if each is None:
        return Members(None, task.matrix) if task.matrix else _ALONE
    match each.kind:
        case "items":
            return Members.of(each.items, task.matrix)
        case "glob":
            return Members.of(sources.globs[each.source], task.matrix)
        case "lines":
            return Members.of(sources.lines[each.source], task.matrix)
    return None


def _variables(spec: PlanSpec, task: TaskSpec) -> Mapping[str, Template | Value]:
    return {
        name: _template(value) if isinstance(value, str) else value
        for name, value in (*spec.vars, *task.vars)
    }


def _template(text: str) -> Template:
    """A text of a plan that was checked."""
    parsed = parse_template(text)
    if isinstance(parsed, Broken):
        raise InternalError(f"a template was not checked: {parsed.reason}")
    return parsed


def _dug(value: Value, names: tuple[str, ...], task: str) -> Value:
    for name in names:
        if not isinstance(value, Fields) or name not in dict(value.pairs):
            path = ".".join(names)
            raise TemplateError(f"`{task}`: an item has no field `{path}`")
        value = value.get(name)
    return value


def _check_size(expanded: Expanded) -> None:
    """A plan that is too large is so by its largest group."""
    if expanded.count <= MEMBERS_MAX:
        return
    task = max(expanded.groups, key=lambda group: group.count or 0).task
    key = "each" if task.each is not None else "matrix"
    place = task.spot(key).key
    message = f"the plan has {expanded.count:,} tasks, most of them in `{task.name}`"
    faults = Faults(expanded.spec.file)
    hint = f"shorten `{key}` or remove it: there can be {MEMBERS_MAX:,}"
    faults.add(PlanTooLargeError, place, message, hint, Fix("remove", place))
    faults.check()
