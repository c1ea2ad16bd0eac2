"""Where each task's time went.

Laws:
- The pieces of a task follow each other from the run's first instant to the task's end: together
  they are exactly that long.
- Facts are taken in the journal's order, of several processes in turn.
- What an attempt took that gave nothing is lost, also if its process was.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Final, Literal, NamedTuple

from msgspec import Struct, field

from headway.engine.events import (
    CallAdmitted,
    CallWaited,
    Ending,
    RunBegan,
    RunContinued,
    RunFinished,
    RunHeld,
    TaskDelayed,
    TaskFailed,
    TaskFinished,
    TaskProposed,
    TaskReused,
    TaskSkipped,
    TaskStale,
    TaskStarted,
)
from headway.engine.record import Fact, MoneyReserved, TaskState
from headway.plans.graph import Graph, Need
from headway.report.history import TURNED_AWAY, Elapsed

Kind = Literal[
    "idle",  # not started: for want of what it needs, or of room
    "start",  # an attempt is being prepared that will do nothing before its first call
    "quota",  # waits for a permit
    "service",  # works, or is worked on
    "refused",  # was turned away, or waits to try again after that
    "again",  # waits to try again after another fault
    "commit",  # has a result, and waits for those before it
    "lost",  # worked for nothing
]


CALL: Final = "call"
"""What a service was that followed a permit."""


class Piece(NamedTuple):
    """Where a task was for a while, and what it waited for, as far as the journal says."""

    kind: Kind
    from_s: float
    to_s: float
    what: str = ""


class AttemptUsage(Struct):
    """What attempts took."""

    calls: int = 0
    input_tokens: float = 0.0
    output_tokens: float = 0.0
    microusd: int = 0
    unpriced: int = 0
    """Calls whose price is unknown: `microusd` does not contain their cost."""

    @property
    def tokens(self) -> float:
        return self.input_tokens + self.output_tokens

    def add(self, ending: Ending | AttemptUsage) -> None:
        self.calls += ending.calls
        self.input_tokens += ending.input_tokens
        self.output_tokens += ending.output_tokens
        self.unpriced += ending.unpriced
        self.microusd += ending.spend_microusd if isinstance(ending, Ending) else ending.microusd


class Passage(Struct):
    """One task's way."""

    key: bytes
    number: int = 0
    state: TaskState | None = None
    pieces: list[Piece] = field(default_factory=list)
    where: tuple[Kind, float] = ("idle", 0.0)
    """Where it is now, and since when."""
    attempt_from: int = 0
    """The first piece of the present attempt."""
    has_asked: bool = False
    reached_s: float = inf
    """When an attempt first had its permit, or began to work without one."""
    ended_s: float | None = None
    taken: AttemptUsage = field(default_factory=AttemptUsage)
    """By all attempts."""
    lost: AttemptUsage = field(default_factory=AttemptUsage)
    """By attempts that gave nothing."""
    retries: int = 0
    stale: int = 0
    refused: int = 0
    fault: str = ""
    """Why the last attempt failed that did."""
    is_paid: bool = False
    """What the present attempt took is counted."""
    is_sent: bool = False
    """A call has its permit, and no end of it is recorded."""
    reserved_tokens: int = 0
    """What the calls of the present attempt can use at most, as far as that is recorded."""
    is_unpriced: bool = False
    """Tokens were set aside for the present attempt and no money: the price is unknown."""
    cut_calls: int = 0
    """Calls without a recorded end, when a process of the run ended or their attempt did: they may
    be billed, and were or are sent again."""
    cut_tokens: int = 0
    """What they can have used at most, as far as that is recorded."""

    @property
    def is_active(self) -> bool:
        return self.state == "started"

    @property
    def served_s(self) -> float:
        """How long it was worked on to some end."""
        return sum(one.to_s - one.from_s for one in self.pieces if one.kind == "service")

    def move(self, kind: Kind, now_s: float, what: str = "") -> None:
        """It is somewhere else from now on; `what` is what it waited for until now."""
        before, since_s = self.where
        if before == "service" and self.has_asked:
            what = CALL
        if now_s > since_s:
            self.pieces.append(Piece(before, since_s, now_s, what))
        self.where = kind, now_s

    def relabel(self, old: Kind, new: Kind, first: int) -> None:
        """What was taken for one thing was another, from a piece on."""
        for index in range(first, len(self.pieces)):
            if self.pieces[index].kind == old:
                self.pieces[index] = self.pieces[index]._replace(kind=new)


class Passages:
    """Folds a journal."""

    def __init__(self, works_alone: Callable[[bytes], bool] = lambda _: True) -> None:
        """`works_alone` says of a task whether it works before it makes a call, as commands do."""
        self.tasks: dict[bytes, Passage] = {}
        self.holds: list[tuple[float, float]] = []
        """When the run was held, until when; infinity if it still is."""
        self.refusals: dict[str, int] = {}
        """Calls that were turned away, by why."""
        self.is_measured = True
        """Whether every process that had the run said at its end what it took of the machine."""
        self._works_alone = works_alone
        self._time = Elapsed()
        self._active: set[bytes] = set()
        self.cpu_s, self.memory_bytes = 0.0, 0
        self._is_open = False

    @property
    def elapsed_s(self) -> float:
        return self._time.last_s

    @property
    def parts(self) -> int:
        """How many processes have had the run."""
        return self._time.parts

    def hear(self, key: bytes, event: Fact) -> None:
        """Take one fact; `key` is its task's, or empty."""
        if isinstance(event, RunBegan):
            self._cut(self._time.last_s)
            self.is_measured = self.is_measured and not self._is_open
            self._is_open = True
        now_s = self._time.at(event)
        if not key:
            self._of_the_run(event, now_s)
            return
        passage = self.tasks.get(key)
        if passage is None:
            passage = self.tasks[key] = Passage(key)
        self._of_a_task(passage, event, now_s)
        (self._active.add if passage.is_active else self._active.discard)(key)

    def close(self, now_s: float, is_live: bool = True) -> None:
        """Nothing more is heard: what has no end lasts until now, or was cut off."""
        if not is_live:
            for key in self._active:
                _count_cut(self.tasks[key])
        for passage in self.tasks.values():
            if passage.ended_s is None:
                self._work(passage)
                passage.move(passage.where[0], now_s)
        self.holds = [(from_s, min(to_s, now_s)) for from_s, to_s in self.holds]

    def _of_the_run(self, event: Fact, now_s: float) -> None:
        if isinstance(event, RunHeld):
            self._release(now_s)
            self.holds.append((now_s, inf))
        elif isinstance(event, (RunContinued, RunBegan)):
            self._release(now_s)
        elif isinstance(event, RunFinished):
            self._cut(now_s)
            self._release(now_s)
            self._is_open = False
            self.cpu_s += event.cpu_s
            self.memory_bytes = max(self.memory_bytes, event.memory_bytes)
            self.is_measured = self.is_measured and event.memory_bytes > 0

    def _release(self, now_s: float) -> None:
        if self.holds and self.holds[-1][1] == inf:
            self.holds[-1] = (self.holds[-1][0], now_s)

    def _cut(self, now_s: float) -> None:
        """Nobody performs the run any more: what was in flight is lost."""
        for key in self._active:
            passage = self.tasks[key]
            _count_cut(passage)
            _waste(passage, now_s, "idle")
            passage.state = None
        self._active.clear()

    def _of_a_task(self, passage: Passage, event: Fact, now_s: float) -> None:
        if isinstance(event, MoneyReserved):
            passage.reserved_tokens = event.tokens
            passage.is_unpriced = event.tokens > 0 and not event.microusd
            return
        passage.is_sent = isinstance(event, CallAdmitted)
        match event:
            case TaskStarted(task=number):
                passage.move("start", now_s)
                passage.number, passage.state, passage.ended_s = number, "started", None
                passage.attempt_from = len(passage.pieces)
                passage.has_asked = passage.is_paid = False
                passage.reserved_tokens, passage.is_unpriced = 0, False
            case CallWaited(refused=refused):
                self._work(passage)
                passage.move("refused" if refused else "quota", now_s)
                passage.has_asked = True
                if refused:
                    # What it took to be turned away was no work.
                    passage.relabel("service", "refused", len(passage.pieces) - 1)
                    passage.refused += 1
                    self.refusals[refused] = self.refusals.get(refused, 0) + 1
            case CallAdmitted(waited_for=waited_for):
                passage.move("service", now_s, waited_for)
                passage.has_asked = True
                passage.reached_s = min(passage.reached_s, now_s)
            case TaskFinished(ending=ending) | TaskProposed(ending=ending):
                _pay(passage, ending)
                _serve(passage, now_s)
                is_over = isinstance(event, TaskFinished)
                passage.state = "finished" if is_over else "proposed"
                passage.move("idle" if is_over else "commit", now_s)
                passage.ended_s = now_s if is_over else None
            case TaskStale() | TaskDelayed() | TaskFailed():
                self._failed(passage, event, now_s)
            case TaskReused() | TaskSkipped():
                passage.move("idle", now_s)
                passage.ended_s = now_s
                passage.state = "finished" if isinstance(event, TaskReused) else "skipped"
            case _:
                pass

    def _work(self, passage: Passage) -> None:
        """Whoever works before it calls anybody has worked since its attempt began."""
        kind, since_s = passage.where
        if kind == "start" and self._works_alone(passage.key):
            passage.where = "service", since_s
            passage.reached_s = min(passage.reached_s, since_s)

    def _failed(
        self, passage: Passage, event: TaskStale | TaskDelayed | TaskFailed, now_s: float
    ) -> None:
        """An attempt was for nothing."""
        _pay(passage, event.ending)
        passage.lost.add(event.ending)
        if event.ending.is_in_doubt and event.ending.calls:
            # Of several calls of an attempt the last one was lost; the others are counted tokens.
            passage.cut_calls += 1
            passage.cut_tokens += max(0, event.ending.extra_tokens)
        if isinstance(event, TaskStale):
            passage.stale += 1
            _waste(passage, now_s, "idle")
            passage.state = "stale"
            return
        fault, is_sent = event.fault, event.ending.calls > 0
        passage.fault = f"{fault.kind}: {fault.detail}".removesuffix(": ")
        is_turned_away = fault.kind in TURNED_AWAY
        if is_turned_away and is_sent:
            passage.refused += 1
            why = f"{fault.kind}: {fault.resource or ''}".removesuffix(": ")
            self.refusals[why] = self.refusals.get(why, 0) + 1
        if isinstance(event, TaskDelayed):
            # What was put back before it was sent, for an empty window say, is as it was before.
            is_put_back = is_turned_away and not is_sent
            passage.retries += not is_put_back
            then: Kind = "refused" if is_turned_away else "again"
            _waste(passage, now_s, "idle" if is_put_back else then)
            passage.state = "delayed"
        else:
            _waste(passage, now_s, "idle")
            passage.state, passage.ended_s = "failed", now_s


def _count_cut(passage: Passage) -> None:
    """The process of the run has ended: whether its call was answered is not known."""
    if passage.is_sent:
        passage.cut_calls += 1
        passage.cut_tokens += passage.reserved_tokens
        passage.taken.unpriced += passage.is_unpriced
        passage.lost.unpriced += passage.is_unpriced
    passage.is_sent = False


def _pay(passage: Passage, ending: Ending) -> None:
    """What an attempt took is counted once, whether it is proposed before it is judged or not."""
    if not passage.is_paid:
        passage.taken.add(ending)
    passage.is_paid = True


def _serve(passage: Passage, now_s: float) -> None:
    """An attempt has ended well; whoever asked for no permit has worked all the time."""
    if passage.is_active and not passage.has_asked:
        since_s = passage.where[1]
        passage.where = "service", since_s
        passage.reached_s = min(passage.reached_s, since_s, now_s)


def _waste(passage: Passage, now_s: float, then: Kind) -> None:
    """What the present attempt worked was for nothing."""
    _serve(passage, now_s)
    passage.move(then, now_s)
    passage.relabel("service", "lost", passage.attempt_from)


# Where the time of a run went: every second of every task, and every second of the run.

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


class Nature(Struct, frozen=True):
    """What the tasks of one group are, for where their time goes."""

    service: Service = "provider"
    """Who works on them."""
    is_local: bool = False
    """Whether they use this machine rather than an account."""
    is_ordered: bool = False
    """Whether a queue, or the shared state, says whose turn it is."""


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


def spent(
    passages: Iterable[Passage],
    ready_of: Mapping[bytes, float],
    nature_of: Callable[[bytes], Nature],
    holds: Sequence[tuple[float, float]],
    is_bounded: bool,
    elapsed_s: float,
) -> Spent:
    """Where the time of all tasks went; `is_bounded` if the user set how many may be active."""
    steps: list[tuple[float, int, _Slot]] = []
    for from_s, to_s in holds:
        steps += ((from_s, 1, _HOLD), (to_s, -1, _HOLD))
    for passage in passages:
        ready_s, nature = ready_of[passage.key], nature_of(passage.key)
        for piece in passage.pieces:
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
        # Whoever calls a model waits for that; what else it does then, nobody sees.
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


# Who waited for whom in a run as it really was: when tasks became ready, and the longest chain.


class Lineage(Struct, frozen=True):
    """What the needs of tasks came to."""

    ready_s: Mapping[bytes, float]
    """When each task was ready; infinity if something that it needs has no end."""
    critical_path_s: float
    chain: tuple[bytes, ...]
    """The tasks of the critical path, the first first."""
    is_known: bool
    """Whether anybody knows who needed whom."""


def lineage(
    passages: Iterable[Passage], graph: Graph | None, group_of: Callable[[bytes], str]
) -> Lineage:
    """Follow the needs of every task, group by group."""
    every = list(passages)
    if graph is None:
        ready_s = {one.key: 0.0 for one in every}
        longest = max(every, key=lambda one: one.served_s, default=None)
        if longest is None:
            return Lineage(ready_s, 0.0, (), is_known=False)
        return Lineage(ready_s, longest.served_s, (longest.key,), is_known=False)
    members: list[list[Passage]] = [[] for _ in graph.groups]
    for one in every:
        group = graph.index.get(group_of(one.key))
        if group is not None:
            members[group].append(one)
    walk = _Walk([sorted(group, key=lambda one: one.number) for group in members])
    for group in graph.order:
        walk.enter(group, _all_needs(graph, group))
    for one in every:  # Of a group that an edit has removed.
        walk.ready_s.setdefault(one.key, 0.0)
    return walk.found()


def _all_needs(graph: Graph, group: int) -> list[Need]:
    """What a group needs, of every other one in one way."""
    in_blocks = {need.group: need for need in graph.blocks[group]}
    return [in_blocks.get(other) or Need(other) for other in graph.needs[group]]


class _Whole(Struct, frozen=True):
    """A group as those see it that need all of it."""

    ended_s: float
    path_s: float
    last: bytes
    """Whose chain is the longest."""


class _Walk:
    """Group by group, each after those that it needs."""

    def __init__(self, members: Sequence[list[Passage]]) -> None:
        self._members = members
        self._numbers = [[one.number for one in group] for group in members]
        self._wholes: list[_Whole] = [_Whole(0.0, 0.0, b"")] * len(members)
        self._paths: dict[bytes, float] = {}
        self._before: dict[bytes, bytes] = {}
        self.ready_s: dict[bytes, float] = {}

    def enter(self, group: int, needs: Sequence[Need]) -> None:
        """The tasks of one group, after what they need."""
        members = self._members[group]
        first = members[0].number if members else 0
        for one in members:
            ready_s, path_s, last = 0.0, 0.0, b""
            for need in needs:
                whole = self._needed(need, one.number - first)
                ready_s = max(ready_s, whole.ended_s)
                if whole.path_s > path_s:
                    path_s, last = whole.path_s, whole.last
            self.ready_s[one.key] = ready_s
            self._paths[one.key] = path_s + one.served_s
            self._before[one.key] = last
        # A group without a task passes on what it needs itself.
        passed = [self._wholes[need.group] for need in needs] if not members else []
        self._wholes[group] = self._whole(members, passed)

    def found(self) -> Lineage:
        """The longest chain, from its end to its beginning."""
        last = max(self._paths, key=self._paths.__getitem__, default=b"")
        path_s = self._paths.get(last, 0.0)
        chain = []
        while last:
            chain.append(last)
            last = self._before[last]
        return Lineage(self.ready_s, path_s, tuple(reversed(chain)), is_known=True)

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

    def _whole(self, members: Sequence[Passage], passed: Sequence[_Whole]) -> _Whole:
        ended_s = max((one.ended_s for one in passed), default=0.0)
        path_s, last = max(((one.path_s, one.last) for one in passed), default=(0.0, b""))
        for one in members:
            ended_s = max(ended_s, inf if one.ended_s is None else one.ended_s)
            if self._paths[one.key] >= path_s:
                path_s, last = self._paths[one.key], one.key
        return _Whole(ended_s, path_s, last)
