"""Plans that are made from a seed, with what each of their tasks really reads and writes.

A generated plan is clean: it declares all that its tasks touch and nothing else, all that is
written is read by a later task or is an `output`, and every hazard has an order. `mutants` gives
the same plan with one declaration deleted, or one task that does more than it declares.

`scheme` is what stands before every key: nothing for files, `state:` for the shared state.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

Kind = Literal["reads", "writes", "needs", "queue", "undeclared write"]


class Touch(Struct, frozen=True):
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    """Without its `output`, which headway writes."""


class Declared(Struct, frozen=True):
    name: str
    reads: tuple[str, ...] = ()
    """Without the scheme; may use `{{ item }}`."""
    writes: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    each: tuple[str, ...] = ()
    queue: str = ""
    output: str = ""

    @property
    def labels(self) -> dict[str, str]:
        """The names of its members, and the item of each."""
        return {f"{self.name}[{one}]": one for one in self.each} or {self.name: ""}

    def touch(self) -> dict[str, Touch]:
        """What its members do, if that is what is declared."""

        def filled(texts: tuple[str, ...], item: str) -> tuple[str, ...]:
            return tuple(text.replace("{{ item }}", item) for text in texts)

        return {
            label: Touch(filled(self.reads, item), filled(self.writes, item))
            for label, item in self.labels.items()
        }


class Generated(Struct, frozen=True):
    seed: int
    tasks: tuple[Declared, ...]
    truth: Mapping[str, Touch]
    """By member: what it touches, whatever is declared."""
    files: tuple[str, ...]
    scheme: str = ""

    def text(self, work: Callable[[Declared], Mapping[str, object]] | None = None) -> str:
        """The plan's file. `work` gives the keys that say what a task does."""
        lines = ["headway: 1", f"name: generated-{self.seed}", "tasks:"]
        for task in self.tasks:
            keys: dict[str, object] = dict((work or self.command)(task))
            keys |= {
                "each": list(task.each),
                "needs": list(task.needs),
                "reads": [self.scheme + one for one in task.reads],
                "writes": [self.scheme + one for one in task.writes],
                "queue": task.queue,
                "output": self.scheme + task.output if task.output else "",
            }
            lines.append(f"  {task.name}:")
            lines += (f"    {key}: {json.dumps(value)}" for key, value in keys.items() if value)
        return "\n".join(lines) + "\n"

    def command(self, task: Declared) -> Mapping[str, object]:
        """A command that shows which files it touches."""
        if self.scheme:
            return {"run": "work"}
        label, item = next(iter(task.labels.items()))
        own = self.truth[label]

        def shown(path: str) -> str:
            return f'"{path}"' if not item else f'"{path}"'.replace(item, "$item")

        lines = [f"work < {shown(path)}" for path in own.reads]
        lines += (f"work > {shown(path)}" for path in own.writes)
        return {"run": "\n".join(lines) or "work"}


class Mutant(Struct, frozen=True):
    """A generated plan that is no longer clean, and what was done to it."""

    kind: Kind
    task: str
    entry: str
    plan: Generated

    def __str__(self) -> str:
        return f"seed {self.plan.seed}: {self.kind} `{self.entry}` of `{self.task}`"


def generated(seed: int, scheme: str = "") -> Generated:
    """A clean plan: layers of tasks, groups with paths of their own, chains and queues."""
    rng = Random(seed)
    files = tuple(f"in/{n}" for n in range(rng.randint(1, 3)))
    tasks: list[Declared] = []
    unread: list[str] = []
    for layer in range(rng.randint(2, 4)):
        before = list(unread)
        for place in range(rng.randint(1, 3)):
            name = f"t{layer}{'abc'[place]}"
            sources = [before[place]] if place < len(before) else []
            sources += rng.sample(list(files), rng.randint(0 if sources else 1, 1))
            unread = [one for one in unread if one not in sources]
            task = Declared(name, reads=tuple(sources))
            tasks += _shaped(rng, task, unread)
    last = Declared("last", reads=tuple(dict.fromkeys(unread)), output="final/last")
    tasks.append(last)
    if rng.random() < 0.4:
        tasks = _rearranged(rng, tasks)
    truth = {label: touch for task in tasks for label, touch in task.touch().items()}
    return Generated(seed, tuple(tasks), truth, files, scheme)


def _shaped(rng: Random, task: Declared, unread: list[str]) -> list[Declared]:
    """One task, a group whose members have paths of their own, a group in a queue, or two that
    write one path, one after the other."""
    path = f"out/{task.name}"
    shape = rng.choice(("one", "one", "group", "follow", "queue", "twice"))
    unread.append(path)
    items = tuple(f"x{n}" for n in range(rng.randint(2, 4)))
    match shape:
        case "one":
            return [replace(task, writes=(path,))]
        case "group":
            return [replace(task, each=items, writes=(f"{path}/{{{{ item }}}}",))]
        case "follow":
            own = replace(task, each=items, writes=(f"part/{task.name}/{{{{ item }}}}",))
            after = Declared(f"{task.name}-after", own.writes, (f"{path}/{{{{ item }}}}",))
            return [own, replace(after, each=items)]
        case "queue":
            return [replace(task, each=items, writes=(path,), queue=f"q-{task.name}")]
    second = Declared(f"{task.name}-again", task.reads, (path,), (task.name,))
    return [replace(task, writes=(path,)), second]


def _rearranged(rng: Random, tasks: list[Declared]) -> list[Declared]:
    """A reader is declared before its writers, and says that it needs them."""
    place = rng.randrange(1, len(tasks))
    moved = tasks[place]
    writers = tuple(one.name for one in tasks[:place] if _feeds(one, moved))
    if moved.needs or not writers:
        return tasks
    moved = replace(moved, needs=writers)
    return [moved, *tasks[:place], *tasks[place + 1 :]]


def _feeds(writer: Declared, reader: Declared) -> bool:
    return any(_overlap(one, other) for one in writer.writes for other in reader.reads)


def _overlap(one: str, other: str) -> bool:
    one, other = one.partition("/{{")[0], other.partition("/{{")[0]
    return one == other or one.startswith(other + "/") or other.startswith(one + "/")


def mutants(plan: Generated) -> Iterator[Mutant]:
    """Every way in which one declaration of a plan can be missing, such that it matters."""
    for place, task in enumerate(plan.tasks):
        for key, entries in _declarations(task):
            for entry in entries:
                mutant = _with(plan, place, _without(task, key, entry))
                is_same = key == "reads" and entry in plan.files
                if key == "needs":
                    is_same = _comes_after(mutant.tasks, task.name, entry)
                if not is_same:
                    yield Mutant(key, task.name, entry, mutant)
        if task.queue:
            mutant = _with(plan, place, replace(task, queue=""))
            yield Mutant("queue", task.name, task.queue, mutant)
        yield from _intruders(plan, task)


def _declarations(task: Declared) -> tuple[tuple[Kind, tuple[str, ...]], ...]:
    return ("reads", task.reads), ("writes", task.writes), ("needs", task.needs)


def _without(task: Declared, key: Kind, entry: str) -> Declared:
    def rest(entries: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(one for one in entries if one != entry)

    if key == "reads":
        return replace(task, reads=rest(task.reads))
    if key == "writes":
        return replace(task, writes=rest(task.writes))
    return replace(task, needs=rest(task.needs))


def _comes_after(tasks: tuple[Declared, ...], name: str, other: str) -> bool:
    """Whether a task waits for another one all the same."""
    named = {task.name: task for task in tasks}
    waiting, seen = [name], {name}
    while waiting:
        task = named[waiting.pop()]
        before = {
            *task.needs,
            *(one.name for one in tasks[: tasks.index(task)] if _feeds(one, task)),
        }
        waiting += before - seen
        seen |= before
    return other in seen


def _intruders(plan: Generated, task: Declared) -> Iterator[Mutant]:
    """The task writes what another one writes too, and does not say so."""
    own = {path for label in task.labels for path in plan.truth[label].writes}
    for other in plan.tasks:
        label = next(iter(other.labels))
        for path in plan.truth[label].writes[:1]:
            if other.name == task.name or path in own:
                continue
            truth = dict(plan.truth)
            for one in task.labels:
                truth[one] = replace(truth[one], writes=(*truth[one].writes, path))
            yield Mutant("undeclared write", task.name, path, replace(plan, truth=truth))


def _with(plan: Generated, place: int, task: Declared) -> Generated:
    return replace(plan, tasks=(*plan.tasks[:place], task, *plan.tasks[place + 1 :]))
