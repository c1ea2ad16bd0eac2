"""The history of a run: the fold of its journal that every view reads.

Laws:
- Facts are taken in the journal's order, of several processes in turn, without looking ahead: the
  same facts in one portion or in many give the same history.
- A task is its content key. Its number is the one that its latest fact gave it: declared order.
- Time without a process is not time of the run: what lies between the last fact of one process
  and the first of the next is left out.
- The pieces of a task follow each other from the run's first instant to the task's end: together
  they are exactly that long.
- What an attempt took that gave nothing is lost, also if its process was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import Final, Literal, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from headway.base.numbers import percentile
from headway.base.values import NO_CACHE, CacheTokens, FaultKind
from headway.engine.events import (
    AttemptStuck,
    CallAdmitted,
    CallWaited,
    Ending,
    GroupExpanded,
    RunBegan,
    RunContinued,
    RunFinished,
    RunHeld,
    RunStopping,
    TaskDelayed,
    TaskFailed,
    TaskFinished,
    TaskProposed,
    TaskReused,
    TaskSkipped,
    TaskStale,
    TaskStarted,
    WaveBegan,
)
from headway.engine.record import Fact, MoneyReserved, TaskState

# The state of a run, by its facts and by whether a process performs it.

RunState = Literal[
    "new",  # nothing has happened yet
    "running",
    "paused",  # until the user continues it
    "waiting",  # for a usage window
    "stopping",  # nothing more starts; what is started ends
    "done",
    "failed",  # over, and some tasks have no result
    "stopped",  # over, and some tasks were not come to
    "interrupted",  # its process is gone
]


class RunVerdict(Struct, frozen=True):
    """The state of a run and what it is due to."""

    state: RunState
    reason: str = ""
    until_s: float | None = None

    @property
    def is_live(self) -> bool:
        """Whether a process performs it."""
        return self.state in ("running", "paused", "waiting", "stopping")

    @property
    def is_resumable(self) -> bool:
        """Whether there is something left that another process could do."""
        return self.state in ("new", "failed", "stopped", "interrupted")


def verdict(standing: Standing, is_owned: bool, now_s: float) -> RunVerdict:
    """The state of a run; `is_owned` is whether a live process has it."""
    if standing.finished is not None:
        return _over(standing, standing.finished)
    if not is_owned:
        gone = standing.stopping_for or "its process is gone"
        return RunVerdict("interrupted", gone) if standing.parts else RunVerdict("new")
    if standing.stopping_for is not None:
        return RunVerdict("stopping", standing.stopping_for)
    until_s = standing.held_until_s
    if until_s == inf:
        return RunVerdict("paused", standing.held_for)
    if until_s is not None and until_s > now_s:
        return RunVerdict("waiting", standing.held_for, until_s)
    return RunVerdict("running")


def _over(standing: Standing, finished: RunFinished) -> RunVerdict:
    if finished.left:
        return RunVerdict("stopped", standing.stopping_for or "", standing.held_until_s)
    if finished.effects and not (finished.failed or finished.skipped):
        return RunVerdict("stopped", f"{finished.effects} effects were not performed")
    return RunVerdict("failed" if finished.failed or finished.skipped else "done")


TURNED_AWAY: Final[frozenset[FaultKind]] = frozenset(("rate", "concurrency", "overload"))
"""Faults after which a task stands in the provider's line, not in ours."""

FAST_SHARE: Final = 0.1
"""The fastest tenth of a group shows how fast an answer comes when nothing is before it."""

FAST_TASKS_MIN: Final = 5
"""With fewer answers a slow one cannot be told from a long one."""

QUEUED_FROM: Final = 2.0
"""An answer that takes up to so many times as long, per token, is slow; beyond, it was in line."""


class Standing(Struct, frozen=True):
    """What a run as a whole is doing, by the facts about it alone."""

    parts: int = 0
    """How many processes have had it: one more than it was resumed."""
    strategy: str = ""
    began_s: float = 0.0
    grown: int = 0
    """Tasks that became known in the present part, beyond those that were declared."""
    wave: int = 0
    waves: int = 0
    held_until_s: float | None = None
    """Nothing starts until then; infinity is until the user continues it."""
    held_for: str = ""
    stopping_for: str | None = None
    is_now: bool = False
    finished: RunFinished | None = None


def stand(standing: Standing, event: Fact) -> Standing:
    """The run after one more fact; facts about tasks change nothing."""
    match event:
        case RunBegan(at_s=at_s, strategy=strategy):
            return Standing(standing.parts + 1, strategy, at_s)
        case GroupExpanded(count=count):
            return replace(standing, grown=standing.grown + count)
        case WaveBegan(number=number, of=of):
            return replace(standing, wave=number, waves=of)
        case RunHeld(until_s=until_s, reason=reason):
            return replace(standing, held_until_s=until_s, held_for=reason)
        case RunContinued():
            return replace(standing, held_until_s=None, held_for="")
        case RunStopping(reason=reason, is_now=is_now):
            return replace(standing, stopping_for=standing.stopping_for or reason, is_now=is_now)
        case RunFinished():
            return replace(standing, finished=event)
        case _:
            return standing


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


StayKind = Literal["provider", "busy"]
"""Turned away, or in line at the provider; in service."""

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
    cache: CacheTokens = NO_CACHE

    @property
    def tokens(self) -> float:
        return self.input_tokens + self.output_tokens

    def add(self, ending: Ending | AttemptUsage) -> None:
        self.calls += ending.calls
        self.input_tokens += ending.input_tokens
        self.output_tokens += ending.output_tokens
        self.unpriced += ending.unpriced
        self.cache += ending.cache
        self.microusd += ending.spend_microusd if isinstance(ending, Ending) else ending.microusd


class Passage(Struct):
    """One task's way."""

    key: bytes
    number: int = 0
    state: TaskState | None = None
    attempt: int = 0
    started_s: float = 0.0
    calls: int = 0
    """Permits of the last attempt."""
    output_tokens: float = 0.0
    """Of the last attempt that gave something."""
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
    lost: AttemptUsage = field(default_factory=AttemptUsage)
    retries: int = 0
    stale: int = 0
    refused: int = 0
    fault: str = ""
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

    @property
    def last_service(self) -> Piece:
        """When it was last worked on; of a task that took no time, its end."""
        ended_s = self.ended_s or 0.0
        served = (one for one in reversed(self.pieces) if one.kind == "service")
        return next(served, Piece("service", ended_s, ended_s))

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
    """Folds a journal: every task's way, in seconds since the run began."""

    def __init__(self, works_alone: Callable[[bytes], bool] = lambda _: True) -> None:
        """`works_alone` says of a task whether it works before it makes a call, as commands do."""
        self.tasks: dict[bytes, Passage] = {}
        self.holds: list[tuple[float, float]] = []
        """When the run was held, until when; infinity if it still is."""
        self.refusals: dict[str, int] = {}
        self.is_measured = True
        """Whether every process that had the run said at its end what it took of the machine."""
        self.elapsed_s = 0.0
        """Time of the run so far; it never goes back."""
        self.parts = 0
        self.submitted = 0
        """The most tasks that had started and not ended at one time."""
        self.active_s = 0.0
        """How long at least one had."""
        self.cpu_s, self.memory_bytes = 0.0, 0
        self._works_alone = works_alone
        self._began_s: float | None = None
        self._active: set[bytes] = set()
        self._is_open = False

    def hear(self, key: bytes, event: Fact) -> None:
        """Take one fact; `key` is its task's, or empty."""
        if isinstance(event, RunBegan):
            self._cut(self.elapsed_s)
            self.is_measured = self.is_measured and not self._is_open
            self._is_open = True
            self.parts += 1
            self._began_s = event.at_s - self.elapsed_s
        elif self._began_s is None:
            self._began_s = event.at_s
        now_s = max(self.elapsed_s, event.at_s - self._began_s)
        if self._active:
            self.active_s += now_s - self.elapsed_s
        self.elapsed_s = now_s
        if not key:
            self._of_the_run(event, now_s)
            return
        passage = self.tasks.get(key)
        if passage is None:
            passage = self.tasks[key] = Passage(key)
        self._of_a_task(passage, event, now_s)
        (self._active.add if passage.is_active else self._active.discard)(key)
        self.submitted = max(self.submitted, len(self._active))

    def close(self, now_s: float, is_live: bool = True) -> None:
        """No more facts follow: what has no end lasts until now, or was cut off."""
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
        for key in self._active:
            passage = self.tasks[key]
            _count_cut(passage)
            _waste(passage, now_s, "idle")
            passage.state = None
        self._active.clear()

    def _of_a_task(self, passage: Passage, event: Fact, now_s: float) -> None:
        if isinstance(event, AttemptStuck):
            return
        if isinstance(event, MoneyReserved):
            passage.reserved_tokens = event.tokens
            passage.is_unpriced = event.tokens > 0 and not event.microusd
            return
        passage.is_sent = isinstance(event, CallAdmitted)
        match event:
            case TaskStarted(task=number, attempt=attempt):
                passage.move("start", now_s)
                passage.number, passage.state, passage.ended_s = number, "started", None
                passage.attempt, passage.started_s, passage.calls = attempt, now_s, 0
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
                passage.calls += 1
                passage.reached_s = min(passage.reached_s, now_s)
            case TaskFinished(ending=ending) | TaskProposed(ending=ending):
                _pay(passage, ending)
                _serve(passage, now_s)
                passage.output_tokens = ending.output_tokens
                is_over = isinstance(event, TaskFinished)
                passage.state = "finished" if is_over else "proposed"
                passage.move("idle" if is_over else "commit", now_s)
                passage.ended_s = now_s if is_over else None
            case TaskStale() | TaskDelayed() | TaskFailed():
                self._failed(passage, event, now_s)
            case TaskReused(task=number) | TaskSkipped(task=number):
                passage.move("idle", now_s)
                passage.number, passage.ended_s = number, now_s
                passage.state = "finished" if isinstance(event, TaskReused) else "skipped"

    def _work(self, passage: Passage) -> None:
        """A task that works before its first call has worked since its attempt began."""
        kind, since_s = passage.where
        if kind == "start" and self._works_alone(passage.key):
            passage.where = "service", since_s
            passage.reached_s = min(passage.reached_s, since_s)

    def _failed(
        self, passage: Passage, event: TaskStale | TaskDelayed | TaskFailed, now_s: float
    ) -> None:
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
    """An attempt has ended well; one that needed no permit has worked all the time."""
    if passage.is_active and not passage.has_asked:
        since_s = passage.where[1]
        passage.where = "service", since_s
        passage.reached_s = min(passage.reached_s, since_s, now_s)


def _waste(passage: Passage, now_s: float, then: Kind) -> None:
    _serve(passage, now_s)
    passage.move(then, now_s)
    passage.relabel("service", "lost", passage.attempt_from)


def in_line(tasks: Iterable[Passage], group_of: Callable[[bytes], str]) -> dict[bytes, float]:
    """For each answered task, how long it probably stood in line at the provider.

    The provider does not say. An answer's time per token tells: what is far beyond the fastest
    tenth of its group was not spent on the answer. Only one call's time can be read like this.
    """
    took: dict[str, list[tuple[bytes, float, float]]] = {}
    for one in tasks:
        if one.state == "finished" and one.output_tokens > 0.0 and one.calls == 1:
            last = one.last_service
            answer = (one.key, last.to_s - last.from_s, one.output_tokens)
            took.setdefault(group_of(one.key), []).append(answer)
    lines: dict[bytes, float] = {}
    for answers in took.values():
        if len(answers) < FAST_TASKS_MIN:
            continue
        fast_s = percentile([took_s / tokens for _, took_s, tokens in answers], FAST_SHARE)
        for key, took_s, tokens in answers:
            if took_s > QUEUED_FROM * fast_s * tokens:
                lines[key] = took_s - fast_s * tokens
    return lines


def stays(passage: Passage, line_s: float) -> list[tuple[StayKind, float, float]]:
    """Where a task was while it did not wait here; its last call began with so long in line."""
    shown: list[tuple[StayKind, float, float]] = [
        ("provider" if kind == "refused" else "busy", from_s, to_s)
        for kind, from_s, to_s, _ in passage.pieces
        if kind in ("service", "lost", "refused")
    ]
    if line_s:
        _, from_s, to_s = shown.pop()
        shown += [("provider", from_s, from_s + line_s), ("busy", from_s + line_s, to_s)]
    return shown


def effective_width(history: Passages, lines: dict[bytes, float]) -> float:
    """How many were really worked on at once, on average over the time that any had started."""
    if history.active_s <= 0.0:
        return 0.0
    served_s = -sum(lines.values())
    for one in history.tasks.values():
        served_s += sum(to_s - from_s for kind, from_s, to_s in stays(one, 0.0) if kind == "busy")
    return served_s / history.active_s
