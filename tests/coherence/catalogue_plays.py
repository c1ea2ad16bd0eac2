"""Programs of tasks that share a state: what they ask for step by step, and what they have seen.

A program is a generator: it yields what it wants to do and is given what it asked for. Whoever
performs it decides when each step happens, and on what; so one program runs on every store, in
every interleaving and by every kind of agent. Nothing here knows headway.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

HASH_CHARS: Final = 16


@dataclass(frozen=True, slots=True)
class Get:
    """Look at a key: gives its value, or None."""

    key: str


@dataclass(frozen=True, slots=True)
class Scan:
    """Look at all keys of a pattern: gives them with their values."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Put:
    key: str
    value: object


@dataclass(frozen=True, slots=True)
class Add:
    key: str
    value: object


@dataclass(frozen=True, slots=True)
class Remove:
    key: str


Operation = Get | Scan | Put | Add | Remove
Steps = Generator[Operation, object, None]
Program = Callable[[], Steps]
Rows = dict[str, int]


def ops(*operations: Operation) -> Program:
    """A program that does these, whatever it sees."""

    def program() -> Steps:
        for operation in operations:
            _ = yield operation

    return program


class AbortedError(Exception):
    """The task fails, by its own decision: nothing that it put may be there."""


@dataclass(frozen=True, slots=True)
class Task:
    """A program, and what it declares to touch: keys and patterns."""

    name: str
    program: Program
    reads: tuple[str, ...]
    writes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """Tasks in declared order, and the state that they begin with."""

    name: str
    anomaly: str
    says: str
    tasks: tuple[Task, ...]
    numbers: Mapping[str, object]
    channels: Mapping[str, str] = field(default_factory=dict)

    @property
    def start(self) -> dict[str, object]:
        return {key: {"is": value, "of": ""} for key, value in self.numbers.items()}


class View(Protocol):
    """The state as one attempt of a task sees it. A `headway.Context` is one."""

    def get(self, key: str) -> object:
        """The value of a key, or None."""

    def scan(self, pattern: str) -> Mapping[str, object]:
        """All keys of a pattern with their values."""

    def put(self, key: str, value: object) -> None:
        """Give a key a value."""

    def add(self, key: str, value: object) -> None:
        """Add to a list."""

    def remove(self, key: str) -> None:
        """Take a key away."""


class Play:
    """One attempt of a task: performs its program step by step on a view."""

    __slots__ = ("_program", "_seen", "is_failed", "operation")

    def __init__(self, task: Task) -> None:
        self._program = task.program()
        self._seen = task.name
        self.is_failed = False
        self.operation: Operation | None = None
        """What comes next; None if only the end is left."""
        self._go_on(None)

    def __repr__(self) -> str:
        return f"<Play at {self.operation}, has seen {self._seen}>"

    @property
    def observed(self) -> str:
        """A hash of who looked and all that was seen, and whether the task failed."""
        return f"{self._seen} failed" if self.is_failed else self._seen

    def step(self, view: View) -> None:
        match self.operation:
            case Get(key):
                found = view.get(key)
                self._saw([key, found])
                self._go_on(plain(found))
            case Scan(pattern):
                every = dict(sorted(view.scan(pattern).items()))
                self._saw([pattern, every])
                self._go_on({key: plain(value) for key, value in every.items()})
            case Put(key, value):
                view.put(key, {"is": value, "of": self._seen})
                self._go_on(None)
            case Add(key, value):
                view.add(key, {"is": value, "of": self._seen})
                self._go_on(None)
            case Remove(key):
                view.remove(key)
                self._go_on(None)

    def _saw(self, what: object) -> None:
        text = json.dumps([self._seen, what], sort_keys=True)
        self._seen = hashlib.sha256(text.encode()).hexdigest()[:HASH_CHARS]

    def _go_on(self, answer: object) -> None:
        try:
            self.operation = self._program.send(answer)
        except StopIteration:
            self.operation = None
        except AbortedError:
            self.operation, self.is_failed = None, True


def plain(value: object) -> object:
    """What a program put, without the hash that went with it."""
    return value["is"] if isinstance(value, dict) else value


def number(value: object) -> int:
    """A row's number; of a row that is not there, 0."""
    return value if isinstance(value, int) else 0


def rows(found: object) -> Rows:
    assert isinstance(found, dict)
    return {str(key): number(value) for key, value in found.items()}
