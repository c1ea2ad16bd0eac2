"""Expands a plan into groups of tasks with names, members and needs.

Laws:
- A member is computed from its number; no list of members is made, whatever their count.
- Members vary in declared order: items slowest, then the axes of the matrix, the last one fastest.
- A group that follows another (`each: TASK`) has its members: same items, same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from json import JSONDecodeError, dumps, loads
from math import prod
from typing import Final

from msgspec import Struct, field
from msgspec.structs import astuple, replace

from headway.base.digest import DIGEST_BYTES, digest
from headway.errors import Fix, InternalError, PlanTooLargeError, TemplateError
from headway.plans.grammar import REJECTION
from headway.plans.graph import Graph, Need, TaskGroup
from headway.plans.links import links_of
from headway.plans.resources import (
    FILES,
    NAMES,
    Channel,
    Touches,
    covers,
    file_key,
    prefix_of,
)
from headway.plans.rows import Rows, rows_in, suffix_of, text_with
from headway.plans.section import where
from headway.plans.sharing import Fill, Stake, is_stateful, stake_of
from headway.plans.spec import (
    CommandSpec,
    PlanSpec,
    Prompt,
    Python,
    Revise,
    TaskSpec,
    Value,
    WorkspaceSpec,
    text_of,
    whole,
)
from headway.plans.template import Ref, Template, leaders_of, template_of

MEMBERS_MAX: Final = 1_000_000
"""Tasks of one run: as many as fit into memory with room to spare."""

LABEL_CHARS_MAX: Final = 60


class Sources(Struct, frozen=True):
    """What a plan's patterns and files gave when they were read."""

    globs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    lines: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    """Prompts and schemas by path."""
    rows: Mapping[str, str] = field(default_factory=dict)
    """The texts of files of rows, by path."""


class Member(Struct, frozen=True):
    """The values of one task."""

    index: int
    item: Value = None
    matrix: tuple[tuple[str, Value], ...] = ()


class Members(Struct, frozen=True):
    """All combinations of items and matrix values."""

    items: Sequence[Value] | None = None
    """`None` if there is no `each`; the one member then has no item."""
    matrix: tuple[tuple[str, tuple[Value, ...]], ...] = ()
    occurrences: tuple[int, ...] = ()
    """How many equal items stand before each, if any item is there twice."""
    key: str = ""
    """The column that names each row; empty if items name themselves."""

    @classmethod
    def of(
        cls, items: Sequence[Value] | None, matrix: tuple[tuple[str, tuple[Value, ...]], ...] = ()
    ) -> Members:
        """Members of these items, with equal ones counted."""
        texts = [digest(text_of(item).encode()) for item in items or ()]
        if len(set(texts)) == len(texts):
            return cls(items, matrix)
        seen: dict[bytes, int] = {}
        occurrences: list[int] = []
        for text in texts:
            occurrences.append(seen.get(text, 0))
            seen[text] = occurrences[-1] + 1
        return cls(items, matrix, tuple(occurrences))

    @property
    def count(self) -> int:
        """How many members there are."""
        count = 1 if self.items is None else len(self.items)
        return count * prod([len(values) for _, values in self.matrix]) if self.matrix else count

    def place(self, index: int) -> tuple[int, tuple[int, ...]]:
        """The numbers of a member's item and of its value on each axis."""
        places: list[int] = []
        for _, values in reversed(self.matrix):
            index, place = divmod(index, len(values))
            places.append(place)
        return index, tuple(reversed(places))

    def name(self, item: Value) -> Value:
        """What an item is called: a row, by its key or its first column."""
        if not (isinstance(self.items, Rows) and isinstance(item, dict)):
            return item
        return item[self.key] if self.key else next(iter(item.values()), "")

    def member(self, index: int) -> Member:
        """The values of a member."""
        item, places = self.place(index)
        axes = zip(self.matrix, places, strict=True)
        matrix = tuple((name, values[place]) for (name, values), place in axes)
        return Member(index, None if self.items is None else self.items[item], matrix)


class NeedEdge(Struct, frozen=True):
    """A group that must be done first, and which key says so."""

    group: int
    memberwise: bool
    key: str
    """`needs`, `each`, `reduce`, or `reads`: the last one was not declared but follows."""


class Round(Struct, frozen=True):
    """Which round of a task a group is, where another one judges its work (`rounds.py`)."""

    number: int
    last: int
    name: str
    """Of the task, as declared."""
    revise: Revise
    is_judge: bool
    is_judged: bool
    own: str
    judge: str
    """The groups of the round before: of the same task, and of the one that judges."""

    @property
    def is_last(self) -> bool:
        return self.number == self.last


class GroupPlan(Struct, frozen=True):
    """One declared task with its members."""

    index: int
    task: TaskSpec
    members: Members | None
    """`None` until a task that it is spread over has ended."""
    leader: int
    """The group whose members it has: itself, unless it follows another."""
    edges: tuple[NeedEdge, ...] = ()
    vars: Mapping[str, Template | Value] = field(default_factory=dict)
    """Of the plan and of the task; a template where the task's own is one."""
    round: Round | None = None

    @property
    def name(self) -> str:
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
        values = [] if members.items is None else [members.name(member.item)]
        texts = [text_of(value) for value in (*values, *(value for _, value in member.matrix))]
        text = ", ".join(texts)
        shown = text
        if not text.isprintable():
            shown = "".join(char if char.isprintable() else " " for char in text)
        is_unclear = shown != text or len(text) > LABEL_CHARS_MAX or not text.strip()
        is_unclear |= bool(members.occurrences) or "#" in text
        is_unclear |= isinstance(members.items, Rows) and not members.key
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
        """A template with a member's values, with results of tasks and texts of the state."""

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


class ExpandedPlan(Struct, frozen=True):
    """A plan with its groups, in declared order."""

    spec: PlanSpec
    groups: tuple[GroupPlan, ...]
    sources: Sources

    @property
    def count(self) -> int:
        """How many tasks there are, as far as is known."""
        return sum(group.count or 0 for group in self.groups)


def expand(spec: PlanSpec, sources: Sources) -> ExpandedPlan:
    """The groups of a plan. Raises `PlanTooLargeError` if they have too many members."""
    index = {task.name: place for place, task in enumerate(spec.tasks)}
    leaders = leaders_of(spec)
    judged = {task.revise.task for task in spec.tasks if task.revise is not None}
    by_leader: dict[str, Members | None] = {}
    groups: list[GroupPlan] = []
    for place, task in enumerate(spec.tasks):
        leader = leaders[task.name]
        if leader.name not in by_leader:
            by_leader[leader.name] = _members(leader, sources)
        edges = tuple(
            NeedEdge(index[name], key == "each" and leader is not task, key)
            for name, key in links_of(task)
        )
        members = by_leader[leader.name]
        variables: dict[str, Template | Value] = {
            name: template_of(value) if isinstance(value, str) else value
            for name, value in (*spec.vars, *task.vars)
        }
        if task.name in judged or spec.is_ratchet:
            variables[REJECTION] = ""
        groups.append(GroupPlan(place, task, members, index[leader.name], edges, variables))
    expanded = ExpandedPlan(spec, tuple(groups), sources)
    _check_size(expanded)
    return expanded


def sample_of(expanded: ExpandedPlan, count: int) -> frozenset[int]:
    """So many rows of a plan of one group: at even distances, by the length of their prompts."""
    (group,) = expanded.groups
    total = group.known.count
    sizes = prompt_bytes(expanded, group, range(total))
    order = sorted(range(total), key=sizes.__getitem__)
    count = min(count, total)
    return frozenset(order[(2 * n + 1) * total // (2 * count)] for n in range(count))


def with_rows(expanded: ExpandedPlan, chosen: frozenset[int]) -> ExpandedPlan:
    """A plan of one group whose items are rows, with some of its rows: the same tasks, fewer."""
    (group,) = expanded.groups
    each, items = group.task.each, group.known.items
    if each is None or each.kind != "rows" or items is None:
        raise InternalError(f"`{group.name}` has no rows")
    rows = [items[number] for number in sorted(chosen)]
    texts = {each.source: text_with(rows, suffix_of(each.source))}
    return expand(expanded.spec, replace(expanded.sources, rows=texts))


def found(expanded: ExpandedPlan, index: int, items: tuple[Value, ...]) -> ExpandedPlan:
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
            values = whole(loads(text))
        except (JSONDecodeError, RecursionError, ValueError):
            values = None
        if isinstance(values, list):
            return tuple(values)
    return tuple(line.strip() for line in text.splitlines() if line.strip())


def prompt_paths(group: GroupPlan) -> tuple[str, ...]:
    """The files that the members' prompts are in, each once."""
    work = group.task.work
    return paths_of(group, work.file) if isinstance(work, Prompt) and work.file else ()


def paths_of(group: GroupPlan, text: str) -> tuple[str, ...]:
    """The paths that a template gives for all members, each once."""
    template = template_of(text)
    if not template.refs or group.members is None:
        return (text,)
    members = group.members
    filled = (group.fill(template, members.member(index)) for index in range(members.count))
    return tuple(dict.fromkeys(filled))


def prompt_texts(expanded: ExpandedPlan, group: GroupPlan) -> tuple[str, ...]:
    """The texts of the members' prompts, those in files included."""
    work, files = group.task.work, expanded.sources.files
    if not isinstance(work, Prompt):
        return ()
    return (work.text, *(files.get(path, "") for path in prompt_paths(group)))


def stakes_of(expanded: ExpandedPlan) -> tuple[Stake | None, ...]:
    """For every group what its members may touch of the shared state; None is nothing at all."""
    every = [(group.task, prompt_texts(expanded, group)) for group in expanded.groups]
    stateful = [is_stateful(task, texts) for task, texts in every]
    has_section = expanded.spec.state is not None
    if not has_section and not any(stateful):
        return (None,) * len(every)
    # A function may touch any shared state, a command that of a plan with the key `state`.
    kinds = (Python, CommandSpec) if has_section else (Python,)
    return tuple(
        stake_of(task, texts) if says_so or isinstance(task.work, kinds) else None
        for (task, texts), says_so in zip(every, stateful, strict=True)
    )


def graph_of(expanded: ExpandedPlan, latest: Callable[[], ExpandedPlan] | None = None) -> Graph:
    """The graph that the engine runs; `latest` is the plan as far as it is known at run time."""
    spec = expanded.spec
    workspaces = [spec.workspace_of(group.task) for group in expanded.groups]
    stakes = [
        stake if workspace is None else _with_files(stake, group.task, workspace)
        for group, stake, workspace in zip(
            expanded.groups, stakes_of(expanded), workspaces, strict=True
        )
    ]
    return Graph(
        TaskGroup(
            name=group.name,
            count=group.count,
            needs=tuple(Need(edge.group, block=int(edge.memberwise)) for edge in group.edges),
            priority=group.task.priority,
            queue=group.task.queue,
            retries=_retries(spec, group.task),
            is_local=group.task.is_command,
            touches=None if stake is None else stake.touches(_fill(group, latest)),
            reruns=None if workspace is None else workspace.reruns,
        )
        for group, stake, workspace in zip(expanded.groups, stakes, workspaces, strict=True)
    )


def _with_files(stake: Stake | None, task: TaskSpec, workspace: WorkspaceSpec) -> Stake:
    """What a task in a workspace may touch: any file may be read; written, what it declares."""
    stake = Stake((), (), ()) if stake is None else stake
    every = tuple(template_of(file_key(workspace.path, "", one)) for one in (FILES, NAMES))
    written = tuple(
        template_of(file_key(workspace.path, path, scheme))
        for path in task.paths_written
        for scheme in (FILES, NAMES)
    )
    reads = None if stake.reads is None else (*stake.reads, *every)
    writes = None if stake.writes is None else (*stake.writes, *(written or every))
    return replace(stake, reads=reads, writes=writes)


def _fill(group: GroupPlan, latest: Callable[[], ExpandedPlan] | None) -> Fill | None:
    """Fills templates with the values of members; `None` while they are unknown."""
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
        return Members(None, task.matrix)
    match each.kind:
        case "items":
            return Members.of(each.items, task.matrix)
        case "glob":
            return Members.of(sources.globs[each.source], task.matrix)
        case "lines":
            return Members.of(sources.lines[each.source], task.matrix)
        case "rows":
            rows = rows_in(sources.rows[each.source], suffix_of(each.source), each.key)
            if each.key:  # No two rows are equal.
                return Members(rows, task.matrix, key=each.key)
            return Members.of(rows, task.matrix)
    return None


def _dug(value: Value, names: tuple[str, ...], task: str) -> Value:
    for name in names:
        if not isinstance(value, dict) or name not in value:
            path = ".".join(names)
            raise TemplateError(f"`{task}`: an item has no field `{path}`")
        value = value[name]
    return value


def _check_size(expanded: ExpandedPlan) -> None:
    if expanded.count <= MEMBERS_MAX:
        return
    task = max(expanded.groups, key=lambda group: group.count or 0).task
    key = "each" if task.each is not None else "matrix"
    place = task.spot(key).key
    raise PlanTooLargeError(
        f"the plan has {expanded.count:,} tasks, most of them in `{task.name}`",
        where=where(expanded.spec.file, place),
        hint=f"shorten `{key}` or remove it: there can be {MEMBERS_MAX:,}",
        fixes=(Fix("remove", place),),
    )


# Prompts as far as they can be written before a run: without the results of other tasks.


def prompt_bytes(expanded: ExpandedPlan, group: GroupPlan, members: Sequence[int]) -> list[float]:
    """The bytes of some members' prompts, without results of other tasks; 0 where there is none."""
    return [float(len(prompt_of(expanded, group, member)[0].encode())) for member in members]


def prompt_of(expanded: ExpandedPlan, group: GroupPlan, number: int) -> tuple[str, frozenset[str]]:
    """A member's prompt without the results of others, and the tasks whose results are in it."""
    work = group.task.work
    if not isinstance(work, Prompt):
        return "", frozenset()
    member, asked = group.known.member(number), set[str]()

    def result(task: str) -> str:
        asked.add(task)
        return ""

    def filled(text: str) -> str:
        return group.fill(template_of(text), member, result, lambda _: "")

    source = work.text
    if work.file:
        source = expanded.sources.files.get(filled(work.file), "")
    return filled(source), frozenset(asked)


# What a task depends on, in 16 bytes: the name under which a journal knows its result.

VERSION: Final = "headway plan 1"
"""Of the form below; another one makes every key another."""


class Keys(Struct, frozen=True):
    """The content keys of one group's members."""

    stem: blake2b
    members: Members
    axes: tuple[tuple[bytes, ...], ...]
    """The values of the matrix, as bytes."""
    extra: Callable[[int], bytes] | None = None
    """What else differs from member to member: the texts of files that a template names."""

    def key(self, index: int) -> bytes:
        """The key of one member."""
        members = self.members
        hasher = self.stem.copy()
        item, places = members.place(index) if self.axes else (index, ())
        if members.items is not None:
            value = members.items[item]
            hasher.update(_framed(_bytes(value)))
            if members.occurrences and members.occurrences[item]:
                hasher.update(b"#%d" % members.occurrences[item])
        for values, place in zip(self.axes, places, strict=True):
            hasher.update(values[place])
        if self.extra is not None:
            hasher.update(_framed(self.extra(index)))
        return hasher.digest()


def keys_of(expanded: ExpandedPlan) -> tuple[Keys | None, ...]:
    """For every group its keys; `None` where the members are not known."""
    seen: dict[bytes, int] = {}
    keys: list[Keys | None] = []
    channels = {key: one for key, one in expanded.spec.channels.items() if one.kind != "value"}
    for group, stake in zip(expanded.groups, stakes_of(expanded), strict=True):
        shared = _shared(expanded, group)
        if stake is not None:
            shared |= _sharing(channels, group, stake)
        form = dumps(shared, sort_keys=True, ensure_ascii=True).encode()
        occurrence = seen.get(form, 0)
        seen[form] = occurrence + 1
        stem = digest(form + b"#%d" % occurrence if occurrence else form)
        keys.append(None if group.members is None else _keys(expanded, group, stem))
    return tuple(keys)


def _shared(expanded: ExpandedPlan, group: GroupPlan) -> dict[str, object]:
    task, files = group.task, expanded.sources.files
    work = task.work
    shared: dict[str, object] = {
        "version": VERSION,
        "kind": type(work).__name__,
        "vars": _content_variables(expanded, group),
        "reads": task.reads,
        "schema": files.get(task.schema, task.schema),
        "verify": task.verify,
        "reduce": _reduced(expanded, group),
    }
    if group.round is not None and group.round.number > 1:
        shared["round"] = group.round.number
    if group.round is not None and group.round.is_judge:
        shared["judges"] = (group.round.is_last, *astuple(group.round.revise))
    if isinstance(work, Prompt):
        shared["text"] = files.get(work.file, work.file) or work.text
        shared["model"] = work.model or expanded.spec.model
        shared["max_tokens"] = work.max_tokens
        if work.agent is not None:
            shared["agent"] = (work.agent.name, *work.agent.tools)
        if permissions := expanded.spec.permissions_of(task):
            shared["permissions"] = permissions
    else:
        shared["text"] = work.command if isinstance(work, CommandSpec) else work.target
    workspace = expanded.spec.workspace_of(task)
    if workspace is not None:
        # How a workspace is made and when its work lands does not change what is asked for.
        made = workspace.path, workspace.base, workspace.setup, workspace.setup_each
        shared["workspace"] = made
    return shared


def _reduced(expanded: ExpandedPlan, group: GroupPlan) -> object:
    """Whose results a reduction is given, without items found at run time, and its quorum."""
    task = group.task
    if not task.reduce:
        return False
    source = expanded.groups[group.source]
    each = expanded.groups[source.leader].task.each
    is_found = each is not None and each.kind == "task"
    of = b"" if is_found else items_digest(source.known, range(source.known.count))
    quorum = (task.quorum.count, task.quorum.percent) if task.quorum is not None else ()
    return of.hex(), *quorum


def items_digest(members: Members, chosen: range) -> bytes:
    """What these members are told apart by."""
    every = map(members.member, chosen)
    values = [[one.item, *(value for _, value in one.matrix)] for one in every]
    return digest(dumps(values).encode())


def _sharing(channels: Mapping[str, Channel], group: GroupPlan, stake: Stake) -> dict[str, object]:
    """What decides which state they see, and what becomes of what they put there."""
    task, touches = group.task, stake.touches(None)
    met = {
        key: str(channel) if channel.kind == "reduce" else channel.kind
        for key, channel in channels.items()
        if _meets(prefix_of(key), touches)
    }
    return {"channels": met, "output_key": task.output_key, "sees": task.state_reads}


def _meets(prefix: str, touches: Touches) -> bool:
    """Whether a channel may have to do with what is touched: one lies within the other."""
    return any(
        covers(every, prefix) or any(covers((prefix,), one) for one in every or ())
        for every in (touches.reads, touches.writes, touches.acts)
    )


def _content_variables(expanded: ExpandedPlan, group: GroupPlan) -> Mapping[str, object]:
    """All variables for a command or a function; for a prompt those that it uses."""
    every: dict[str, Value] = {**dict(expanded.spec.vars), **dict(group.task.vars)}
    if isinstance(group.task.work, Prompt):
        # A variable of the plan that no text of this task names does not change what it asks for.
        own = dict(group.task.vars)
        used = used_variables(expanded, group)
        every = {name: value for name, value in every.items() if name in own or name in used}
    return every


def used_variables(expanded: ExpandedPlan, group: GroupPlan) -> frozenset[str]:
    """The variables that the texts of a task name, those of its prompt's files included."""
    task = group.task
    texts = [task.output, task.output_key, task.schema, *task.reads, *task.writes]
    texts += [value for _, value in task.vars if isinstance(value, str)]
    if isinstance(task.work, Prompt):
        texts += [task.work.file, task.work.model, *prompt_texts(expanded, group)]
    templates = (template_of(text) for text in dict.fromkeys(texts) if "{{" in text)
    return frozenset(ref.var for template in templates for ref in template.refs if ref.var)


def refs_of(expanded: ExpandedPlan, group: GroupPlan) -> Iterator[Ref]:
    """Every name that the prompt of a task uses, through its variables too."""
    texts = [value for _, value in group.task.vars if isinstance(value, str)]
    for text in (*prompt_texts(expanded, group), *texts):
        yield from template_of(text).refs


def results_used(expanded: ExpandedPlan, group: GroupPlan) -> frozenset[str]:
    """The tasks whose results the texts of a task name."""
    return frozenset(ref.task for ref in refs_of(expanded, group))


def _keys(expanded: ExpandedPlan, group: GroupPlan, stem: bytes) -> Keys:
    members = group.known
    axes = tuple(tuple(_framed(_bytes(value)) for value in values) for _, values in members.matrix)
    names = [name for name, _ in members.matrix]
    hasher = blake2b(stem + dumps(names).encode(), digest_size=DIGEST_BYTES)
    return Keys(hasher, members, axes, _extra(expanded, group))


def _extra(expanded: ExpandedPlan, group: GroupPlan) -> Callable[[int], bytes] | None:
    work = group.task.work
    texts = (work.file if isinstance(work, Prompt) else "", group.task.schema)
    templates = [one for one in map(template_of, texts) if one.refs]
    if not templates:
        return None
    digests = {path: digest(text.encode()) for path, text in expanded.sources.files.items()}

    def extra(index: int) -> bytes:
        member = group.known.member(index)
        paths = (group.fill(template, member) for template in templates)
        return b"".join(digests.get(path, path.encode()) for path in paths)

    return extra


def _bytes(value: Value) -> bytes:
    if isinstance(value, str):
        return b"s" + value.encode()
    return b"j" + dumps(value, sort_keys=True).encode()


def _framed(data: bytes) -> bytes:
    """Bytes with their length, so that no two sequences of them are alike."""
    return b"%d:%b" % (len(data), data)
