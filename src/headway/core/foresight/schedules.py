"""Which task takes the next step: schedules, each with the line of text that gives it again.

    serial                    one task after another, as declared
    steps:0.0.2-1             these tasks, by number (2-1 is the second member of the third), then
                              serially
    pair:a=0:b=2:before       B runs before A starts
    pair:a=0:b=2:inside=1     A takes so many steps, then B runs, then A goes on
    pair:a=0:b=2:around=1     B takes so many steps, then A runs, then B goes on
    pair:...:late             the same, but A waits for all before B, and B passes nobody else
    random:seed=7             any task that can take one
    pct:seed=7:d=3            by priorities drawn at first, which change at d - 1 steps
    ...:crash=4               the same, killed after so many durable facts, and resumed

Law: a schedule chooses among those who can take a step; the same text chooses the same again.

PCT is the randomised scheduler of Burckhardt, Kothari, Musuvathi and Nagarakatte (ASPLOS 2010): of
n tasks and k steps it finds an error that d orderings make with a probability of at least
1 / (n k^(d-1)), whatever the error is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from headway.core.engine.coherence import Places
from headway.core.foresight.draw import uniform
from headway.errors import UsageError

STEPS_TEXT_MAX: Final = 100_000
"""Steps of a schedule that is given as a text."""

HINT: Final = "copy the whole text between the quotes: pct:seed=7:d=3, random:seed=7, steps:0.0.1"

Way = Literal["before", "inside", "around"]
_PLACE: Final = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


class Schedule(Protocol):
    """Chooses, again and again, who takes the next step."""

    def choose(self, ready: Sequence[int], number: int) -> int:
        """One of these places, which are in serial order; `number` steps were taken before."""


class Serial:
    """One after another."""

    __slots__ = ()

    def choose(self, ready: Sequence[int], number: int) -> int:  # noqa: ARG002
        return ready[0]


@dataclass(frozen=True, slots=True)
class Steps:
    """Explicit places; then one after another."""

    places: tuple[int, ...]

    def choose(self, ready: Sequence[int], number: int) -> int:
        if number >= len(self.places):
            return ready[0]
        if self.places[number] not in ready:
            raise UsageError(
                f"step {number + 1} of the schedule cannot be taken: it is of another plan",
                hint=HINT,
            )
        return self.places[number]


@dataclass(frozen=True, slots=True)
class Drawn:
    """Anyone who can, by chance."""

    seed: int

    def choose(self, ready: Sequence[int], number: int) -> int:
        return ready[int(uniform(self.seed, 1, number) * len(ready))]


@dataclass(slots=True)
class Pct:
    """By priorities; at some steps whoever is first becomes last."""

    seed: int
    changes: tuple[int, ...]
    """The steps at which that is so."""
    lowered: dict[int, int]
    """Places that have become last, the latest one lowest."""

    @classmethod
    def of(cls, seed: int, depth: int, length: int) -> Pct:
        """With depth - 1 changes within so many steps."""
        draws = (uniform(seed, 2, one) for one in range(depth - 1))
        return cls(seed, tuple(int(draw * length) for draw in draws), {})

    def choose(self, ready: Sequence[int], number: int) -> int:
        for _ in range(self.changes.count(number)):
            self.lowered[max(ready, key=self._priority)] = len(self.lowered) + 1
        return max(ready, key=self._priority)

    def _priority(self, place: int) -> float:
        lowered = self.lowered.get(place)
        return uniform(self.seed, 3, place) if lowered is None else -float(lowered)


@dataclass(slots=True)
class Pair:
    """B runs, and ends if it can, before A completes."""

    first: int
    second: int
    way: Way
    steps: int
    ancestors: tuple[frozenset[int], frozenset[int]]
    """Places that come before the first of them in any case, and before the second."""
    is_late: bool = False
    """All others keep their places in the serial run, and only A does not."""
    phase: int = 0
    taken: int = 0

    def choose(self, ready: Sequence[int], number: int) -> int:  # noqa: ARG002
        """The way of one task until it has taken its steps, then that of the other to its end."""
        inner, outer = (0, 1) if self.way == "inside" else (1, 0)
        if self.phase == 0 and self.way != "before":
            found = self._towards(inner, ready)
            if found == (self.first, self.second)[inner]:
                self.taken += 1
                self.phase = int(self.taken >= self.steps)
            if found is not None:
                return found
        if self.phase < 2:
            self.phase = 1
            found = self._towards(1 if self.way == "before" else outer, ready)
            if found is not None:
                return found
        self.phase = 2
        return ready[0]

    def _towards(self, which: int, ready: Sequence[int]) -> int | None:
        """The task itself, or one that it waits for; nobody, if it cannot go on without others."""
        target = (self.first, self.second)[which]
        held = (self.first, self.second)[1 - which]
        if self.is_late:
            return next((one for one in ready if one <= target and one != held), None)
        if target in ready:
            return target
        before = self.ancestors[which]
        return next((one for one in ready if one in before and one != held), None)


@dataclass(frozen=True, slots=True)
class Line:
    """A schedule as text, read."""

    kind: Literal["serial", "steps", "pair", "random", "pct"]
    places: tuple[int, ...] = ()
    way: Way = "before"
    steps: int = 1
    is_late: bool = False
    seed: int = 0
    depth: int = 3
    crash: int = 0


def read_line(text: str, places: Places) -> Line:
    """The schedule that a text stands for; UsageError if it is none."""
    kind, *rest = text.strip().split(":")
    named = dict(part.partition("=")[::2] for part in rest)
    crash = _number(named.pop("crash", "0"), text)
    is_late = kind == "pair" and named.pop("late", None) is not None
    match kind:
        case "serial" if not named:
            return Line("serial", crash=crash)
        case "steps":
            steps = next(iter(named), "")
            if len(steps) > STEPS_TEXT_MAX:
                raise _unreadable(text)
            return Line("steps", tuple(_place(one, places, text) for one in steps.split(".")),
                        crash=crash)  # fmt: skip
        case "random" if list(named) == ["seed"]:
            return Line("random", seed=_number(named["seed"], text), crash=crash)
        case "pct" if list(named) == ["seed", "d"]:
            depth = min(max(1, _number(named["d"], text)), 100)
            return Line("pct", seed=_number(named["seed"], text), depth=depth, crash=crash)
        case "pair" if list(named)[:2] == ["a", "b"] and len(named) == 3:
            pair = _place(named["a"], places, text), _place(named["b"], places, text)
            for way in ("before", "inside", "around"):
                if way in named:
                    steps_taken = _number(named[way] or "1", text)
                    return Line("pair", pair, way, steps_taken, is_late, crash=crash)
    raise _unreadable(text)


def written(line: Line, places: Places) -> str:
    """The text that stands for a schedule."""
    match line.kind:
        case "steps":
            text = f"steps:{'.'.join(name_of(one, places) for one in line.places)}"
        case "random":
            text = f"random:seed={line.seed}"
        case "pct":
            text = f"pct:seed={line.seed}:d={line.depth}"
        case "pair":
            first, second = (name_of(one, places) for one in line.places)
            way = line.way if line.way == "before" else f"{line.way}={line.steps}"
            text = f"pair:a={first}:b={second}:{way}{':late' if line.is_late else ''}"
        case _:
            text = line.kind
    return f"{text}:crash={line.crash}" if line.crash else text


def name_of(place: int, places: Places) -> str:
    """A task in a schedule's text: the number of its group, and of its member if not the first."""
    group, member = places.who(place)
    return f"{group}-{member}" if member else str(group)


def _place(text: str, places: Places, whole: str) -> int:
    found = _PLACE.fullmatch(text)
    if found is None or int(found[1]) >= places.statistics():
        raise _unreadable(whole)
    return places.task(int(found[1]), int(found[2] or 0))


def _number(text: str, whole: str) -> int:
    if not re.fullmatch(r"\d{1,18}", text):
        raise _unreadable(whole)
    return int(text)


def _unreadable(text: str) -> UsageError:
    return UsageError(f"`{text:.80}` is no schedule of this plan", hint=HINT)
