"""The stage on which `explore` performs tasks step by step.

Laws:
- An attempt is a sequence of steps; what others do can come between two of them and nowhere else.
- The world (files, and whatever else has no versions) shows a write at once, to all tasks.
"""

from __future__ import annotations

import json
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Final, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from headway.base.digest import digest
from headway.errors import StateError, TemplateError
from headway.plans.expand import ExpandedPlan, GroupPlan, Member, found, items_of, stakes_of
from headway.plans.resources import above, fixed_part, inside, is_pattern, prefix_of
from headway.plans.sharing import Stake
from headway.plans.spec import CommandSpec, Prompt, text_of
from headway.plans.template import Template, parse_template
from headway.state.shared import Act, Snapshot, canonical

PROCESS: Final = "process"
"""The kind of what code does unseen: all of it may touch all other of it."""


class TrialResult(Struct, frozen=True):
    """What an attempt gave."""

    body: bytes
    prompts: tuple[str, ...] = ()
    """What it asked, or would have: everything that its result is made of."""
    fault: str = ""
    """Why it has no result; empty if it has one."""


class TrialTouch(Struct, frozen=True):
    """Something that a step looked at or changed: `file out/a.json`, `state total`."""

    kind: str
    what: str
    is_write: bool


Given = tuple[tuple[int, tuple[bytes, ...]], ...]
"""By group that a task needs: results, of all its members or of the task's own."""

Grown = tuple[tuple[int, bytes], ...]
"""Groups that were spread over a result at run time, and that result, in order."""


class TrialAttempt(Struct, frozen=True):
    """One attempt: of which task, and what it is given."""

    group: int
    member: int
    attempt: int
    label: str
    snapshot: Snapshot | None
    """The shared state as it sees it; None if it has nothing to do with it."""
    given: Given = ()
    grown: Grown = ()


class Going(Protocol):
    """An attempt that goes on."""

    def step(self) -> TrialResult | None:
        """One visible step; what the attempt gave, if that was the last one."""

    def stop(self) -> None:
        """End it: what it has read has changed, or its end does not matter."""


class TrialFiles(Struct):
    """Declared files, as short texts that name their writer. Writing a folder replaces it."""

    texts: dict[str, str] = field(default_factory=dict)
    _paths: list[str] = field(default_factory=list)

    def look(self, path: str) -> tuple[tuple[str, str], ...]:
        if not self.texts:
            return ()
        every = (*above(path), path, *self._within(path))
        return tuple((one, self.texts[one]) for one in every if one in self.texts)

    def put(self, path: str, text: str) -> None:
        for inner in self._within(path):
            del self.texts[inner]
            self._paths.remove(inner)
        if path not in self.texts:
            insort(self._paths, path)
        self.texts[path] = text

    def copied(self) -> TrialFiles:
        return TrialFiles(self.texts.copy(), self._paths[:])

    def _within(self, path: str) -> list[str]:
        folder = f"{path}/" if path else ""
        first = bisect_left(self._paths, folder)
        last = bisect_left(self._paths, folder + "\U0010ffff")
        return [one for one in self._paths[first:last] if one != path]


def overlap(one: Iterable[TrialTouch], other: Iterable[TrialTouch]) -> list[TrialTouch]:
    """What both touch and one of them changes, as the first one does."""
    theirs = list(other)
    return [
        mine
        for mine in one
        if any((mine.is_write or yours.is_write) and _meet(mine, yours) for yours in theirs)
    ]


def _meet(one: TrialTouch, other: TrialTouch) -> bool:
    if one.kind != other.kind:
        return False
    a, b = one.what, other.what
    return a == b or not a or not b or a.startswith(b + "/") or b.startswith(a + "/")


# What the tasks of a plan would do if every answer was a hash of all that was asked.

HASH_CHARS: Final = 12
AS_BEFORE: Final = "as before the run"
Reads = tuple[tuple[str, bytes | None], ...]
"""Keys of the shared state, and their values."""


class TaskDeclaration(Struct, frozen=True):
    """What one task says that it touches, its holes filled; of a pattern of files, its folder."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    output: tuple[str, ...]
    keys_read: tuple[str, ...] | None
    """Keys and patterns of the shared state; None is everything."""
    keys_written: tuple[str, ...]
    acts: tuple[str, ...]


class Play:
    """A plan as its tasks are performed in trials: what never changes, and what was found out."""

    def __init__(self, expanded: ExpandedPlan) -> None:
        self.expanded = expanded
        self.answers: dict[tuple[object, ...], tuple[str, str]] = {}
        """Prompts and answers, by all that they come from: they are asked thousands of times."""
        self._stakes = stakes_of(expanded)
        self.at = cache(self._at)
        """The plan, when the groups that are given are known."""
        self.label = cache(self._label)
        self.template = cache(_template)
        self.declared = cache(self._declared)

    def _at(self, grown: Grown) -> ExpandedPlan:
        if not grown:
            return self.expanded
        group, body = grown[-1]
        return found(self.at(grown[:-1]), group, items_of(body.decode("utf-8", "replace")))

    def _label(self, group: int, member: int, grown: Grown) -> str:
        return self.at(grown).groups[group].label(member)

    def _declared(self, index: int, number: int, grown: Grown) -> TaskDeclaration:
        """What a task declares; TemplateError if that cannot be filled."""
        group = self.at(grown).groups[index]
        member, task, stake = group.known.member(number), group.task, self._stakes[index]

        def paths(texts: Iterable[str]) -> tuple[str, ...]:
            filled = (group.fill(self.template(text), member) for text in texts if text)
            return tuple(fixed_part(inside(one) or "") for one in filled)

        def keys(templates: Iterable[Template]) -> tuple[str, ...]:
            return tuple(dict.fromkeys(group.fill(one, member) for one in templates))

        stake = stake or Stake((), (), ())
        writes = keys((*(stake.writes or ()), *map(self.template, filter(None, [task.output_key]))))
        return TaskDeclaration(
            paths(task.paths_read), paths(task.paths_written),
            paths([task.output]), None if stake.reads is None else keys(stake.reads), writes,
            tuple(one for one in keys(stake.acts or ()) if not is_pattern(one)),
        )  # fmt: skip


def _template(text: str) -> Template:
    parsed = parse_template(text)
    return parsed if isinstance(parsed, Template) else Template(text, (text,))


class HashedStage:
    """The world of one trial: declared files, in which every task answers with a hash."""

    __slots__ = ("_touched", "files", "play")

    def __init__(self, play: Play) -> None:
        self.play = play
        self.files = TrialFiles()
        self._touched: list[TrialTouch] = []

    def begin(self, asked: TrialAttempt) -> Going:
        return HashedAttempt(self, asked)

    def label(self, group: int, member: int, grown: Grown) -> str:
        return self.play.label(group, member, grown)

    def count(self, group: int, grown: Grown) -> int:
        """How many members a group has, now that what it is spread over is known."""
        return self.play.at(grown).groups[group].known.count

    def publish(self, place: tuple[int, int], grown: Grown, body: bytes) -> None:
        """A committed result, of a group's member, is shown where the plan says."""
        for path in self.play.declared(*place, grown).output:
            self.write(path, body.decode("utf-8", "replace"))

    def look(self, path: str) -> tuple[tuple[str, str], ...]:
        self._touched.append(TrialTouch("file", path, False))
        return self.files.look(path)

    def write(self, path: str, text: str) -> None:
        self._touched.append(TrialTouch("file", path, True))
        self.files.put(path, text)

    def touched(self) -> list[TrialTouch]:
        touched, self._touched = self._touched, []
        return touched

    def world(self) -> Mapping[str, str]:
        return self.files.texts

    def copied(
        self, going: Mapping[int, Going], snapshots: Mapping[int, Snapshot]
    ) -> tuple[HashedStage, dict[int, Going]]:
        """Another world like this, and the attempts that go on there; only if `is_copied`."""
        twin = type(self)(self.play)
        twin.files, twin._touched = self.files.copied(), self._touched[:]
        attempts: dict[int, Going] = {}
        for task, attempt in going.items():
            assert isinstance(attempt, HashedAttempt)  # It has begun it.
            attempts[task] = attempt.copied(twin, snapshots.get(task))
        return twin, attempts

    def restart(self) -> None:
        """The process has died: what was in its memory is gone, and the world is as it was left."""

    def close(self) -> None:
        """Nothing acts any more."""


class HashedAttempt:
    """Reads, then writes."""

    __slots__ = ("_answer", "_asked", "_prompt", "_stage")

    def __init__(self, stage: HashedStage, asked: TrialAttempt) -> None:
        self._stage = stage
        self._asked = asked
        self._prompt: str | None = None
        self._answer = ""

    def copied(self, stage: HashedStage, snapshot: Snapshot | None) -> HashedAttempt:
        twin = HashedAttempt(stage, replace(self._asked, snapshot=snapshot))
        twin._prompt, twin._answer = self._prompt, self._answer
        return twin

    def step(self) -> TrialResult | None:
        try:
            if self._prompt is None:
                self._prompt, self._answer = _asked_and_answered(self._stage, self._asked)
                return None
            _write(self._stage, self._asked, self._answer)
        except (StateError, TemplateError) as fault:
            return TrialResult(b"", (self._prompt or "",), fault.message)
        return TrialResult(self._answer.encode(), (self._prompt,))

    def stop(self) -> None:
        """There is nothing to end."""


def _asked_and_answered(stage: HashedStage, asked: TrialAttempt) -> tuple[str, str]:
    """The prompt of a task, made of all that it is given, and what is answered."""
    play = stage.play
    declared = play.declared(asked.group, asked.member, asked.grown)
    given = asked.given
    if given:
        edges = play.expanded.groups[asked.group].edges
        told = {edge.group for edge in edges if edge.key != "reads"}
        given = tuple(one for one in given if one[0] in told)
    files = tuple([(path, stage.look(path)) for path in declared.reads])
    state: Reads = ()
    if asked.snapshot is not None:
        state = read_state(declared.keys_read, asked.snapshot)
    key = (asked.group, asked.member, asked.grown, given, files, state)
    known = play.answers.get(key)
    if known is None:
        text = _prompt(play, asked, dict(given), dict(state))
        lines = [text]
        for path, entries in files:
            seen = entries or ((path, AS_BEFORE),)
            lines += (f"reads {one}: {content}" for one, content in seen)
        lines += (f"state {name}: {text_in(data)}" for name, data in state)
        prompt = "\n".join(lines)
        hashed = digest(f"{asked.label}: {prompt}".encode()).hex()[:HASH_CHARS]
        known = play.answers[key] = prompt, f"{asked.label} {hashed}"
    return known


def read_state(keys: tuple[str, ...] | None, snapshot: Snapshot) -> Reads:
    """All that a task declares to read of the shared state; everything, if it does not say."""
    if keys is None:
        return tuple(snapshot.scan("**"))
    seen: dict[str, bytes | None] = {}
    for what in keys:
        if is_pattern(what):
            seen |= snapshot.scan(what)
        else:
            seen[what] = snapshot.get(what)
    return tuple(seen.items())


def _prompt(
    play: Play, asked: TrialAttempt, given: Mapping[int, tuple[bytes, ...]],
    state: Mapping[str, bytes | None],
) -> str:  # fmt: skip
    """A prompt as it is sent; of a command or a function, what it is given."""
    expanded = play.at(asked.grown)
    group = expanded.groups[asked.group]
    member, work = group.known.member(asked.member), group.task.work
    names = {expanded.groups[one].name: bodies for one, bodies in given.items()}

    def result(name: str) -> str:
        bodies = [body.decode("utf-8", "replace") for body in names[name]]
        return bodies[0] if len(bodies) == 1 else json.dumps(bodies, ensure_ascii=False)

    def key(name: str) -> str:
        return json.dumps({one: text_in(data) for one, data in state.items()}) if not name else (
            text_in(state.get(name))
        )  # fmt: skip

    if not isinstance(work, Prompt):
        return _told(group, member, names, result)
    source = expanded.sources.files[
        group.fill(play.template(work.file), member, result)
    ] if work.file else work.text  # fmt: skip
    text = group.fill(play.template(source), member, result, key)
    if group.task.reduce:
        bodies = names[group.task.reduce]
        text = "\n\n".join([text, *(body.decode("utf-8", "replace") for body in bodies)])
    return text


def _told(
    group: GroupPlan, member: Member, names: Mapping[str, tuple[bytes, ...]],
    result: Callable[[str], str],
) -> str:  # fmt: skip
    work = group.task.work
    lines = [f"$ {work.command}" if isinstance(work, CommandSpec) else getattr(work, "target", "")]
    if member.item is not None:
        lines.append(f"item={text_of(member.item)}")
    lines += (f"{name}={text_of(value)}" for name, value in member.matrix)
    for name, value in group.vars.items():
        text = group.fill(value, member, result) if isinstance(value, Template) else text_of(value)
        lines.append(f"{name}={text}")
    for name, bodies in names.items():
        texts = [body.decode("utf-8", "replace") for body in bodies]
        lines += (f"given by {name}: {text}" for text in texts)
    return "\n".join(lines)


def text_in(data: bytes | None) -> str:
    """A value of the shared state as text; nothing where there is none."""
    if data is None:
        return ""
    value = json.loads(data)
    return value if isinstance(value, str) else data.decode()


def _write(stage: HashedStage, asked: TrialAttempt, answer: str) -> None:
    declared = stage.play.declared(asked.group, asked.member, asked.grown)
    for path in declared.writes:
        stage.write(path, answer)
    snapshot = asked.snapshot
    if snapshot is None:
        return
    for what in declared.keys_written:
        put(snapshot, what, answer)
    for channel in declared.acts:
        snapshot.act(Act(channel, canonical(answer)))


def put(snapshot: Snapshot, what: str, answer: str) -> None:
    """Put an answer under a key, or add it; a pattern stands for one of its keys."""
    key = f"{prefix_of(what)}/any".lstrip("/") if is_pattern(what) else what
    match snapshot.channels.of(key).kind:
        case "value":
            snapshot.put(key, answer)
        case "counter" | "max":
            snapshot.add(key, int(digest(answer.encode()).hex()[:4], 16))
        case _:
            snapshot.add(key, answer)
