"""Where the time of a run went, which task waited for which, and what limited it.

Laws:
- The parts of a run's time add up to it, and those of its tasks' time to that.
- An actual value that lies within the ends of a spread was foreseen, however far it is from the
  middle.
- What bound a run is what most of its time went to; a task on the critical path that took far
  longer than its like comes before that.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import nlargest
from math import inf
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from msgspec import Struct

from headway.plans.graph import Graph, Need
from headway.report.history import CALL, AttemptUsage, GroupHistory, Kind, Piece, TaskHistory

if TYPE_CHECKING:
    from headway.report.forecast import Foreseen, SpreadNumber

# Where the time of a run went: every second of every task, and every second of the run.

Cause = Literal[
    "quota",  # a permit: `what` is the limit
    "refused",  # by the provider
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
"""Of several things that go on at an instant, the first is why the run was not faster then: a task
that waits for a limit could have been served; where none waits, those in service are waited for."""

WORK: Final[tuple[Cause, ...]] = ("provider", "function", "machine", "fan-in")

Service = Literal["provider", "function", "machine", "fan-in"]


class Nature(Struct, frozen=True):
    """What the tasks of one group are, for where their time goes."""

    service: Service = "provider"
    """What works on them."""
    is_local: bool = False
    is_ordered: bool = False
    """Whether a queue, or the shared state, decides their order."""


class CauseShare(Struct, frozen=True):
    """One cause: how much of the tasks' time it took, and of the run's."""

    cause: Cause
    what: str
    """The limit, where the cause is one."""
    task_s: float
    wall_s: float


class Spent(Struct, frozen=True):
    """Where the time went."""

    shares: tuple[CauseShare, ...]
    """The largest part of the run's time first, then of the tasks'."""
    task_s: float
    wall_s: float


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


def spent(
    tasks: Iterable[TaskHistory], ready_of: Mapping[bytes, float],
    nature_of: Callable[[str], Nature], holds: Sequence[tuple[float, float]], is_bounded: bool,
    elapsed_s: float,
) -> Spent:  # fmt: skip
    """Where the time of all tasks went, by the nature of their groups; `is_bounded` if the user
    set how many may be active."""
    steps: list[tuple[float, int, _Slot]] = []
    for from_s, to_s in holds:
        steps += ((from_s, 1, _HOLD), (to_s, -1, _HOLD))
    for one in tasks:
        ready_s, nature = ready_of[one.key], nature_of(one.group.name)
        for piece in one.pieces:
            for slot, from_s, to_s in _slots(piece, ready_s, nature):
                steps += ((from_s, 1, slot), (to_s, -1, slot))
    steps.sort(key=lambda step: step[0])
    task, wall = _swept(steps, is_bounded, elapsed_s)
    keys = task.keys() | wall.keys()
    shares = [CauseShare(*key, task.get(key, 0.0), wall.get(key, 0.0)) for key in keys]
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
        # A task that calls a model waits for that; what else it does then is not recorded.
        is_call = what == CALL and nature.service != "fan-in"
        return [(_Slot("provider" if is_call else nature.service), from_s, to_s)]
    return [(_Slot(_OWN[kind], what if kind == "quota" else ""), from_s, to_s)]


_Times = dict[tuple[Cause, str], float]


def _swept(
    steps: Sequence[tuple[float, int, _Slot]], is_bounded: bool, elapsed_s: float
) -> tuple[_Times, _Times]:
    """Go through all instants in order: what the tasks' time was for, and what the run's."""
    task: _Times = {}
    wall: _Times = {}
    counts: dict[_Slot, int] = {}
    now_s = 0.0
    for at_s, change, slot in steps:
        if at_s > now_s:
            _pass(counts, at_s - now_s, is_bounded, (task, wall))
            now_s = at_s
        left = counts.get(slot, 0) + change
        if left:
            counts[slot] = left
        else:
            counts.pop(slot, None)
    if elapsed_s > now_s:
        _pass(counts, elapsed_s - now_s, is_bounded, (task, wall))
    return task, wall


def _pass(
    counts: Mapping[_Slot, int], lasts_s: float, is_bounded: bool, sums: tuple[_Times, _Times]
) -> None:
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


# When tasks became ready, and the longest chain of tasks that needed each other.


class Lineage(Struct, frozen=True):
    """What the needs of tasks came to."""

    ready_s: Mapping[bytes, float]
    """When each task was ready; infinity if something that it needs has no end."""
    critical_path_s: float
    chain: tuple[bytes, ...]
    """The tasks of the critical path, the first first."""
    is_known: bool
    """Whether it is known which task needed which."""


def lineage(tasks: Iterable[TaskHistory], graph: Graph | None) -> Lineage:
    """The chains of needs, group by group."""
    every = list(tasks)
    if graph is None:
        longest = max(every, key=lambda one: one.served_s, default=None)
        ready_s = {one.key: 0.0 for one in every}
        if longest is None:
            return Lineage(ready_s, 0.0, (), is_known=False)
        return Lineage(ready_s, longest.served_s, (longest.key,), is_known=False)
    members: list[list[TaskHistory]] = [[] for _ in graph.groups]
    for one in every:
        group = graph.index.get(one.group.name)
        if group is not None:
            members[group].append(one)
    walk = _Walk([sorted(group, key=lambda one: one.number) for group in members])
    for group in graph.order:
        in_blocks = {need.group: need for need in graph.blocks[group]}
        needs = [in_blocks.get(other) or Need(other) for other in graph.needs[group]]
        walk.enter(group, needs)
    for one in every:  # Of a group that an edit has removed.
        walk.ready_s.setdefault(one.key, 0.0)
    last = max(walk.paths, key=walk.paths.__getitem__, default=b"")
    path_s, chain = walk.paths.get(last, 0.0), list[bytes]()
    while last:
        chain.append(last)
        last = walk.before[last]
    return Lineage(walk.ready_s, path_s, tuple(reversed(chain)), is_known=True)


_Whole = tuple[float, float, bytes]
"""All of a group: its end, its longest chain, and the last task of that chain."""


class _Walk:
    """Group by group, each after those that it needs."""

    def __init__(self, members: Sequence[list[TaskHistory]]) -> None:
        self._members = members
        self._numbers = [[one.number for one in group] for group in members]
        self._wholes: list[_Whole] = [(0.0, 0.0, b"")] * len(members)
        self.paths: dict[bytes, float] = {}
        self.before: dict[bytes, bytes] = {}
        self.ready_s: dict[bytes, float] = {}

    def enter(self, group: int, needs: Sequence[Need]) -> None:
        members = self._members[group]
        first = members[0].number if members else 0
        for one in members:
            ready_s, path_s, last = 0.0, 0.0, b""
            for need in needs:
                ended_s, longest_s, whose = self._needed(need, one.number - first)
                ready_s = max(ready_s, ended_s)
                if longest_s > path_s:
                    path_s, last = longest_s, whose
            self.ready_s[one.key] = ready_s
            self.paths[one.key] = path_s + one.served_s
            self.before[one.key] = last
        # A group without a task passes on what it needs itself.
        passed = [self._wholes[need.group] for need in needs] if not members else []
        self._wholes[group] = self._whole(members, passed)

    def _needed(self, need: Need, member: int) -> _Whole:
        """What of a group a member needs: all of it, or its own block."""
        others = self._members[need.group]
        if not need.block or not others:
            return self._wholes[need.group]
        numbers = self._numbers[need.group]
        low = bisect_left(numbers, numbers[0] + need.block * member)
        high = bisect_left(numbers, numbers[0] + need.block * (member + 1))
        block = others[low:high]
        return self._whole(block, []) if block else self._wholes[need.group]

    def _whole(self, members: Sequence[TaskHistory], passed: Sequence[_Whole]) -> _Whole:
        ended_s = max((one[0] for one in passed), default=0.0)
        path_s, last = max((one[1:] for one in passed), default=(0.0, b""))
        for one in members:
            ended_s = max(ended_s, inf if one.ended_s is None else one.ended_s)
            if self.paths[one.key] >= path_s:
                path_s, last = self.paths[one.key], one.key
        return ended_s, path_s, last


# What limited a run, and how it compares with its forecast.

STRAGGLER_TIMES: Final = 3.0
"""A task that took this many times as long as the median of its group is a straggler..."""

STRAGGLER_SHARE: Final = 0.2
"""...if what it took beyond that is such a share of the run's time."""

ALIKE_MIN: Final = 3
"""With fewer tasks it is unknown what is usual in a group."""


class ForecastComparison(Struct, frozen=True):
    """One amount, as foreseen and as it was."""

    name: str
    foreseen: SpreadNumber
    real: float

    @property
    def is_within(self) -> bool:
        return self.foreseen.low <= self.real <= self.foreseen.high

    @property
    def error(self) -> float | None:
        """How much more it was than the middle, as a share of that."""
        return self.real / self.foreseen.mid - 1.0 if self.foreseen.mid else None


def compared(
    foreseen: Foreseen, elapsed_s: float, taken: AttemptUsage
) -> tuple[ForecastComparison, ...]:
    """Time, cost, calls, tokens; the time and the cost only where they were foreseen."""
    found = [ForecastComparison("time", foreseen.time_s, elapsed_s)] * (not foreseen.unknown)
    if foreseen.microusd is not None:
        found.append(ForecastComparison("cost", foreseen.microusd, float(taken.microusd)))
    found.append(ForecastComparison("calls", foreseen.calls, float(taken.calls)))
    found.append(ForecastComparison("tokens", foreseen.tokens, taken.tokens))
    return tuple(found)


class Slow(Struct, frozen=True):
    """A task that took long, and what for."""

    key: bytes
    took_s: float
    kind: Kind
    what: str
    kind_s: float


def slowest(tasks: Iterable[TaskHistory], many: int) -> list[Slow]:
    found = []
    for one in tasks:
        begun = [piece for piece in one.pieces if piece.kind != "idle"]
        if begun and one.ended_s is not None:
            found.append((one.ended_s - begun[0].from_s, one))
    slow = []
    for took_s, one in nlargest(many, found, key=lambda pair: pair[0]):
        sums: dict[tuple[Kind, str], float] = {}
        for kind, from_s, to_s, what in one.pieces:
            sums[kind, what] = sums.get((kind, what), 0.0) + to_s - from_s
        sums.pop(("idle", ""), None)
        (kind, what), kind_s = max(sums.items(), key=lambda item: item[1])
        slow.append(Slow(one.key, took_s, kind, what, kind_s))
    return slow


class Binding(Struct, frozen=True):
    """What most of a run's time went to."""

    cause: Cause
    what: str
    share: float
    straggler: bytes = b""
    """The one task that the run waited for, if there was one."""
    straggler_s: float = 0.0
    usual_s: float = 0.0


def binding(
    spent: Spent, chain: Lineage, tasks: Mapping[bytes, TaskHistory],
    groups: Mapping[str, GroupHistory],
) -> Binding | None:  # fmt: skip
    """What bound the run; None if it took no time."""
    if spent.wall_s <= 0.0:
        return None
    # One limit may be named in several ways, as may work: causes are added up first.
    sums: dict[tuple[Cause, str], float] = {}
    for share in spent.shares:
        key = share.cause, share.what
        if share.cause in WORK:
            key = "provider", ""
        sums[key] = sums.get(key, 0.0) + share.wall_s
    (cause, what), wall_s = max(sums.items(), key=lambda item: item[1])
    share_of_wall = wall_s / spent.wall_s
    worst = max(chain.chain, key=lambda key: tasks[key].served_s, default=b"")
    if worst:
        group = groups[tasks[worst].group.name]
        took_s, usual_s = tasks[worst].served_s, group.p50_s
        is_beyond = took_s - usual_s >= STRAGGLER_SHARE * spent.wall_s
        is_alone = len(group.times_s) >= ALIKE_MIN and took_s >= STRAGGLER_TIMES * usual_s
        if is_beyond and is_alone:
            return Binding(cause, what, share_of_wall, worst, took_s, usual_s)
    return Binding(cause, what, share_of_wall)
