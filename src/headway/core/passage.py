"""Every task's way through a run, without a gap: where it was at each instant, and what for.

Laws:
- The pieces of a task follow each other from the run's first instant to the task's end: together
  they are exactly that long.
- Facts are taken in the journal's order, of several processes in turn; a journal of an older
  headway, which does not say what waits were for, gives the same pieces without that.
- What an attempt took that gave nothing is lost, also if its process was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Final, Literal, NamedTuple

from headway.core.elapsed import Elapsed
from headway.core.engine.events import (
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
from headway.core.engine.record import Fact, MoneyReserved, TaskState
from headway.core.story import TURNED_AWAY

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


@dataclass(slots=True)
class Taken:
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

    def add(self, ending: Ending | Taken) -> None:
        self.calls += ending.calls
        self.input_tokens += ending.input_tokens
        self.output_tokens += ending.output_tokens
        self.unpriced += ending.unpriced
        self.microusd += ending.spend_microusd if isinstance(ending, Ending) else ending.microusd


@dataclass(slots=True)
class Passage:
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
    taken: Taken = field(default_factory=Taken)
    """By all attempts."""
    lost: Taken = field(default_factory=Taken)
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


@dataclass(frozen=True, slots=True)
class PassagesStatistics:
    """All ways of a run in numbers."""

    tasks: int
    active: int
    elapsed_s: float
    parts: int
    cpu_s: float
    memory_bytes: int


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
        self._cpu_s, self._memory_bytes = 0.0, 0
        self._is_open = False

    def __repr__(self) -> str:
        return f"<Passages of {len(self.tasks)} tasks over {self._time.last_s:.1f} s>"

    def statistics(self) -> PassagesStatistics:
        return PassagesStatistics(
            len(self.tasks), len(self._active), self._time.last_s, self._time.parts,
            self._cpu_s, self._memory_bytes,
        )  # fmt: skip

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
            self._cpu_s += event.cpu_s
            self._memory_bytes = max(self._memory_bytes, event.memory_bytes)
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
