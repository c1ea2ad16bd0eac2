"""Random programs over the shared state, and what they give when one after another runs alone.

A program's every write is a digest of all that it has read so far: a stale read anywhere changes
what is left in the end.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Protocol

from msgspec import Struct

from headway.base.digest import digest
from headway.plans.graph import Graph, Need, TaskGroup
from headway.plans.resources import ANYTHING, Channel, Touches
from headway.state.coherence import TaskPositions
from headway.state.shared import Act, Channels, Shared, Snapshot

KEYS = ("a", "b", "c", "d/x", "d/y")
COMBINED = ("log", "count", "seen", "top")
CHANNELS = Channels(
    {
        "log": Channel("append"),
        "count": Channel("counter"),
        "seen": Channel("set"),
        "top": Channel("max"),
    }
)
PATTERNS = ("d/*", "**", "*")

Op = tuple[str, str]


class View(Protocol):
    """What a program looks at and changes: a snapshot is one."""

    def get(self, key: str) -> bytes | None: ...

    def scan(self, pattern: str) -> list[tuple[str, bytes]]: ...

    def put(self, key: str, value: object) -> None: ...

    def add(self, key: str, value: object) -> None: ...

    def remove(self, key: str) -> None: ...

    def act(self, act: Act) -> int: ...


class Programs(Struct, frozen=True):
    """A graph, and what each of its groups does."""

    graph: Graph
    ops: tuple[tuple[Op, ...], ...]

    def named(self, group: int) -> str:
        return self.graph.groups[group].name


class Left(Struct, frozen=True):
    ends: dict[int, str]
    """By group: the digest of all that it has seen, with how it ended."""
    state: tuple[tuple[str, bytes], ...]
    effects: tuple[tuple[int, bytes], ...]
    """By group, in the order of their release."""


def drawn(
    rng: random.Random, is_declared: bool, tasks_max: int = 6, lies: float = 0.0, share: float = 0.6
) -> Programs:
    """Tasks with needs and queues, a share with declarations, a part of which are incomplete."""
    count = rng.randint(2, tasks_max)
    ops = tuple(_ops(rng) for _ in range(count))
    groups = [
        TaskGroup(
            f"t{index}",
            needs=tuple(Need(other) for other in range(index) if rng.random() < 0.12),
            retries=0,
            queue="q" if rng.random() < 0.15 else "",
            touches=_declared(ops[index], rng, lies)
            if is_declared and rng.random() < share
            else ANYTHING,
        )
        for index in range(count)
    ]
    return Programs(Graph(groups), ops)


def steps(ops: tuple[Op, ...], view: View, name: str) -> Iterator[bytes]:
    """Perform one after another, giving all that was seen so far; ValueError in the middle."""
    seen = name.encode()
    for verb, what in ops:
        match verb:
            case "get":
                seen = digest(seen + (view.get(what) or b"-"))
            case "scan":
                seen = digest(seen + repr(view.scan(what)).encode())
            case "put":
                view.put(what, seen.hex())
            case "remove":
                view.remove(what)
            case "add":
                view.add(what, seen[0] % 5 if what in ("count", "top") else seen.hex()[:3])
            case "act":
                view.act(Act(what, b'"%s"' % seen.hex().encode()))
            case "stumble" if seen[0] % 2:
                raise ValueError(seen.hex())
        yield seen


def serial(programs: Programs, refused: Mapping[int, str] | None = None) -> Left:
    """What one who works alone, in declared order, leaves behind; some fail whatever they do."""
    shared = Shared(CHANNELS)
    places = TaskPositions(programs.graph)
    ends: dict[int, str] = {}
    effects: list[tuple[int, bytes]] = []
    for group in sorted(range(len(programs.graph)), key=places.group):
        needs = programs.graph.groups[group].needs
        if any(not ends[need.group].startswith("done") for need in needs):
            ends[group] = "skipped"
            continue
        if refused and group in refused:
            ends[group] = refused[group]
            continue
        snapshot = Snapshot(shared, places.task(group, 0))
        try:
            *_, seen = steps(programs.ops[group], snapshot, programs.named(group))
        except ValueError as stumbled:
            ends[group] = f"failed {stumbled}"
            continue
        access = snapshot.access()
        ends[group] = f"done {seen.hex()}"
        effects += [(group, act.data) for act in access.acts]
        shared.commit(snapshot.position, access.writes)
    return Left(ends, state_of(shared), tuple(effects))


def state_of(shared: Shared) -> tuple[tuple[str, bytes], ...]:
    return tuple((key, data) for key, data, _ in shared.matching("**", 1 << 62))


def _ops(rng: random.Random) -> tuple[Op, ...]:
    found: list[Op] = []
    for _ in range(rng.randint(1, 4)):
        verb = rng.choices(
            ("get", "scan", "put", "remove", "add", "act", "stumble"), (33, 10, 34, 5, 12, 3, 3)
        )[0]
        choices = {"get": KEYS + COMBINED, "scan": PATTERNS, "add": COMBINED, "act": ("mail",)}
        found.append((verb, rng.choice(choices.get(verb, KEYS))))
    return tuple(found)


def _declared(ops: tuple[Op, ...], rng: random.Random, lies: float) -> Touches:
    reads: dict[str, None] = {}
    writes: dict[str, None] = {}
    acts: dict[str, None] = {}
    for verb, what in ops:
        if rng.random() < lies:
            continue
        if verb == "get":
            reads[what] = None
        elif verb == "scan":
            reads["d" if what == "d/*" else ""] = None
        elif verb == "act":
            acts[what] = None
        elif verb != "stumble":
            writes[what] = None
    return Touches(tuple(reads), tuple(writes), tuple(acts))
