"""Where the time of a run went: every second of every task, and every second of the run.

Laws:
- Task-time adds up: the causes of all tasks together are as long as the tasks' ways, each from the
  run's first instant to its own end.
- Wall time adds up: each instant of the run has one cause, the first of `PRECEDENCE` that holds.
- A task that could start and did not has waited for what kept those before it: for the limit that
  started ones wait for, for a refusal, for whoever held the run, for this machine, for a place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from headway.core.passage import CALL, Kind, Passage, Piece

Cause = Literal[
    "quota",  # a permit: `what` is the limit
    "refused",  # turned away by the provider
    "held",  # the run was paused, or waited for a usage window
    "order",  # its turn in a queue or in the shared state
    "room",  # this machine: its processors and memory
    "place",  # as many as the user allows at once are active
    "provider",  # a model is at work
    "function",  # the user's function is
    "machine",  # a command is
    "fan-in",  # results are brought together
    "lost",  # work that gave nothing
    "commit",  # a result waits for those before it
    "again",  # a fault, before the next attempt
    "needs",  # those that a task needs are not done
    "headway",  # none of these: starting, recording, handing over
]

PRECEDENCE: Final[tuple[Cause, ...]] = (
    "quota", "refused", "held", "order", "room", "place", "provider", "function", "machine",
    "fan-in", "lost", "commit", "again", "headway",
)  # fmt: skip
"""Of several things that go on at an instant, the first is why the run was not faster then: who
waits for a limit could have been served; where nobody waits, whatever is in service is waited for.
"""

WORK: Final[tuple[Cause, ...]] = ("provider", "function", "machine", "fan-in")

Service = Literal["provider", "function", "machine", "fan-in"]


@dataclass(frozen=True, slots=True)
class Nature:
    """What the tasks of one group are, for where their time goes."""

    service: Service = "provider"
    """Who works on them."""
    is_local: bool = False
    """Whether they use this machine rather than an account."""
    is_ordered: bool = False
    """Whether a queue, or the shared state, says whose turn it is."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What there is to know of a run beside its tasks' ways."""

    ready_s: Mapping[bytes, float]
    nature_of: Callable[[bytes], Nature]
    holds: Sequence[tuple[float, float]] = ()
    is_bounded: bool = False
    """Whether the user said how many may be active at once."""
    elapsed_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Share:
    """One cause: how much of the tasks' time it took, and of the run's."""

    cause: Cause
    what: str
    """The limit, where the cause is one."""
    task_s: float
    wall_s: float


@dataclass(frozen=True, slots=True)
class Spent:
    """Where the time went."""

    shares: tuple[Share, ...]
    """The largest part of the run's time first, then of the tasks'."""
    task_s: float
    wall_s: float

    def of(self, *causes: Cause) -> float:
        """How much of the run's time these took."""
        return sum(share.wall_s for share in self.shares if share.cause in causes)


class _Slot(NamedTuple):
    """What tasks may be doing at an instant."""

    cause: Cause
    what: str = ""
    role: Literal["own", "turn", "hold"] = "own"
    """A task that could start and has not waits for what others wait for; a hold is no task."""


_HOLD: Final = _Slot("held", "", "hold")
_OWN: Final[dict[Kind, Cause]] = {
    "start": "headway",
    "quota": "quota",
    "refused": "refused",
    "again": "again",
    "commit": "commit",
    "lost": "lost",
}


def spent(passages: Iterable[Passage], seen: Seen) -> Spent:
    """Take the ways of all tasks apart."""
    steps: list[tuple[float, int, _Slot]] = []
    for from_s, to_s in seen.holds:
        steps += ((from_s, 1, _HOLD), (to_s, -1, _HOLD))
    for passage in passages:
        ready_s, nature = seen.ready_s[passage.key], seen.nature_of(passage.key)
        for piece in passage.pieces:
            for slot, from_s, to_s in _slots(piece, ready_s, nature):
                steps += ((from_s, 1, slot), (to_s, -1, slot))
    steps.sort(key=lambda step: step[0])
    task, wall = _swept(steps, seen)
    keys = task.keys() | wall.keys()
    shares = [Share(*key, task.get(key, 0.0), wall.get(key, 0.0)) for key in keys]
    shares.sort(key=lambda one: (-one.wall_s, -one.task_s, one.cause, one.what))
    return Spent(tuple(shares), sum(task.values()), sum(wall.values()))


def _slots(piece: Piece, ready_s: float, nature: Nature) -> list[tuple[_Slot, float, float]]:
    """What one piece of a task's way was; what lies before it was ready is for its needs."""
    kind, from_s, to_s, what = piece
    if kind == "idle":
        split_s = min(max(from_s, ready_s), to_s)
        where = "order" if nature.is_ordered else "local" if nature.is_local else ""
        found = [(_Slot("needs"), from_s, split_s), (_Slot("place", where, "turn"), split_s, to_s)]
        return [one for one in found if one[2] > one[1]]
    if kind == "service":
        # Whoever calls a model waits for that; what else it does then, nobody sees.
        is_call = what == CALL and nature.service != "fan-in"
        return [(_Slot("provider" if is_call else nature.service), from_s, to_s)]
    return [(_Slot(_OWN[kind], what if kind == "quota" else ""), from_s, to_s)]


_Times = dict[tuple[Cause, str], float]


def _swept(steps: Sequence[tuple[float, int, _Slot]], seen: Seen) -> tuple[_Times, _Times]:
    """Go through all instants in order: what the tasks' time was for, and what the run's."""
    task: _Times = {}
    wall: _Times = {}
    counts: dict[_Slot, int] = {}
    now_s = 0.0
    for at_s, change, slot in steps:
        if at_s > now_s:
            _pass(counts, at_s - now_s, seen.is_bounded, (task, wall))
            now_s = at_s
        left = counts.get(slot, 0) + change
        if left:
            counts[slot] = left
        else:
            counts.pop(slot, None)
    if seen.elapsed_s > now_s:
        _pass(counts, seen.elapsed_s - now_s, seen.is_bounded, (task, wall))
    return task, wall


def _pass(
    counts: Mapping[_Slot, int], lasts_s: float, is_bounded: bool, sums: tuple[_Times, _Times]
) -> None:
    """Some time passes in which nothing changes."""
    task, wall = sums
    going: dict[Cause, tuple[int, str]] = {}
    for slot, many in counts.items():
        if slot.role == "own" and many > going.get(slot.cause, (0, ""))[0]:
            going[slot.cause] = many, slot.what
    is_held = _HOLD in counts
    for slot, many in counts.items():
        if slot.role == "hold":
            continue
        key = slot.cause, slot.what
        if slot.role == "turn":
            key = _kept_by(slot.what, going, is_held, is_bounded)
            going.setdefault(key[0], (many, key[1]))
        task[key] = task.get(key, 0.0) + many * lasts_s
    first: Cause = next((cause for cause in PRECEDENCE if cause in going), "headway")
    key = first, going[first][1] if first in going else ""
    wall[key] = wall.get(key, 0.0) + lasts_s


def _kept_by(
    where: str, going: Mapping[Cause, tuple[int, str]], is_held: bool, is_bounded: bool
) -> tuple[Cause, str]:
    """Why tasks that could start have not."""
    if is_held:
        return "held", ""
    if where == "order":
        return "order", ""
    if where == "local":
        return ("place" if is_bounded else "room"), ""
    if "quota" in going:
        return "quota", going["quota"][1]
    if "refused" in going:
        return "refused", ""
    # What has started and asks for no permit takes one of the places that are kept for callers.
    return ("place" if is_bounded or "function" in going else "headway"), ""
