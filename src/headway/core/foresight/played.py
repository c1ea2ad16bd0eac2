"""Plays one schedule from its first step to its last, and tells how its end differs from another.

Law: two outcomes are the same if every committed prompt and result, the shared state, the world
and the order of effects on every channel are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final, Literal

from headway.core.foresight.pairs import ancestors
from headway.core.foresight.schedules import Drawn, Line, Pair, Pct, Schedule, Serial, Steps
from headway.core.foresight.stage import Done, Touch
from headway.core.foresight.trial import Cast, Outcome, Trial, resumed

EXCERPT_CHARS: Final = 200

Kind = Literal["prompt", "result", "failure", "missing", "state", "file", "effects"]


@dataclass(frozen=True, slots=True)
class Played:
    """A schedule that came to its end."""

    outcome: Outcome
    path: tuple[int, ...]
    reran: Mapping[tuple[int, int], int]
    """Attempts that were stale, by places: of whom, and because of whom."""
    trace: tuple[tuple[int, Touch], ...]
    facts: int
    """How many facts were durable, if they were counted."""
    labels: Mapping[int, str]
    counts: Mapping[int, int]
    """Of every group, how many members it had."""

    def touches(self, place: int) -> list[Touch]:
        """What a task touched."""
        return [one for who, one in self.trace if who == place and one.kind != "task"]


@dataclass(frozen=True, slots=True)
class Difference:
    """The first thing that is not as in the serial run."""

    kind: Kind
    where: str
    """The task, the key, the file, or the channel."""
    serial: str
    """The first line that differs, as it is in the serial run."""
    got: str
    line: int = 0
    """Of a prompt: which line that is, from 1."""
    before: str = ""
    """The line above it."""


@dataclass(slots=True)
class Player:
    """Plays schedules of one plan."""

    cast: Cast
    length: int = 0
    """Steps of the serial run: where priorities may change."""
    counts: Mapping[int, int] = field(default_factory=dict)

    def schedule(self, line: Line) -> Schedule:
        """Who chooses, for a text that was read."""
        match line.kind:
            case "steps":
                return Steps(line.places)
            case "random":
                return Drawn(line.seed)
            case "pct":
                return Pct.of(line.seed, line.depth, self.length)
            case "pair":
                first, second = line.places
                places = self.cast.places()
                both = tuple(
                    ancestors(self.cast.graph, places, one, self.counts) for one in (first, second)
                )
                return Pair(first, second, line.way, line.steps, (both[0], both[1]), line.is_late)
        return Serial()

    def play(self, line: Line, is_traced: bool = False) -> Played:
        """Take all steps."""
        schedule = self.schedule(line)
        path: list[int] = []
        trial = Trial(self.cast, kill_at=line.crash)
        trial.trace = [] if is_traced else None
        facts = 0
        trial.open()
        while True:
            while trial.ready and not trial.is_over:
                place = schedule.choose(trial.ready, len(path))
                path.append(place)
                trial.take(place)
            facts += len(trial.facts or ())
            if not trial.is_killed:
                break
            trial = resumed(trial)
        try:
            return Played(
                trial.outcome(), tuple(path), trial.reran, tuple(trial.trace or ()), facts,
                trial.labels(), trial.counts(),
            )  # fmt: skip
        finally:
            trial.close()


def difference(serial: Outcome, got: Outcome, label: Callable[[int], str]) -> Difference | None:
    """What differs first: prompts in serial order, then results, state, files and effects."""
    places = sorted(serial.results.keys() | got.results.keys())
    for compare in (_prompts, _results):
        for place in places:
            found = compare(label(place), serial.results.get(place), got.results.get(place))
            if found is not None:
                return found
    return (
        _entries("state", {key: name.hex() for key, name in serial.state},
                 {key: name.hex() for key, name in got.state})
        or _entries("file", serial.world, got.world)
        or _entries("effects", _told(serial.effects), _told(got.effects))
    )  # fmt: skip


def _told(effects: Mapping[str, tuple[bytes, ...]]) -> dict[str, str]:
    return {name: ", ".join(one.decode() for one in data) for name, data in effects.items()}


def _prompts(label: str, serial: Done | None, got: Done | None) -> Difference | None:
    if serial is None or got is None:
        return None
    both = zip_longest(serial.prompts, got.prompts, fillvalue="")
    parting = ((one, other) for one, other in both if one != other)
    return next((_lines(label, one, other) for one, other in parting), None)


def _lines(label: str, serial: str, got: str) -> Difference:
    """Where two texts part."""
    both = list(zip_longest(serial.split("\n"), got.split("\n"), fillvalue=""))
    number = next(number for number, (one, other) in enumerate(both) if one != other)
    before = both[number - 1][0] if number else ""
    one, other = both[number]
    start = _parting(one, other)
    return Difference(
        "prompt", label, _cut(one, start), _cut(other, start), number + 1, _cut(before, 0)
    )


def _results(label: str, serial: Done | None, got: Done | None) -> Difference | None:
    if serial == got:
        return None
    if serial is None or got is None:
        there = "it has no result"
        return Difference("missing", label, "" if serial else there, "" if got else there)
    if serial.fault != got.fault:
        return Difference("failure", label, serial.fault or "a result", got.fault or "a result")
    one, other = serial.body.decode("utf-8", "replace"), got.body.decode("utf-8", "replace")
    start = _parting(one, other)
    return Difference("result", label, _cut(one, start), _cut(other, start))


def _entries(kind: Kind, serial: Mapping[str, str], got: Mapping[str, str]) -> Difference | None:
    for name in sorted(serial.keys() | got.keys()):
        one, other = serial.get(name, "nothing"), got.get(name, "nothing")
        if one != other:
            start = _parting(one, other)
            return Difference(kind, name, _cut(one, start), _cut(other, start))
    return None


def _parting(one: str, other: str) -> int:
    """How many characters two texts have in common."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _cut(text: str, start: int) -> str:
    """A part of a long line, around where it matters."""
    if len(text) <= EXCERPT_CHARS:
        return text
    first = max(0, min(start - EXCERPT_CHARS // 4, len(text) - EXCERPT_CHARS))
    last = first + EXCERPT_CHARS
    return f"{'…' if first else ''}{text[first:last]}{'…' if last < len(text) else ''}"
