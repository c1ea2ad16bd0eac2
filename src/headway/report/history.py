"""The history of a run: the fold of its journal that every view reads.

Laws:
- Facts are taken in the journal's order, of several processes in turn, without looking ahead: the
  same facts in one portion or in many give the same history.
- Every number of a run is added up here and nowhere else; views show it.
- A task is its content key. Its number is the one that its latest fact gave it: declared order.
- Time without a process is not time of the run: what lies between the last fact of one process
  and the first of the next is left out.
- The pieces of a task follow each other from the run's first instant to the task's end: together
  they are exactly that long.
- What an attempt took that gave nothing is lost, also if its process was.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Final, Literal, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from headway.base.numbers import median, percentile
from headway.base.values import NO_CACHE, CacheTokens, FaultKind
from headway.engine.effects import KnownEffects
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
from headway.engine.record import (
    EffectDone,
    EffectIntended,
    Fact,
    LimitsSeen,
    MoneyReserved,
    TaskState,
)

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
        until_s = standing.held_until_s
        is_timed = until_s is not None and until_s < inf
        return RunVerdict("stopped", standing.stopping_for or "", until_s if is_timed else None)
    if finished.effects and not (finished.failed or finished.skipped):
        return RunVerdict("stopped", f"{finished.effects} effects were not performed")
    return RunVerdict("failed" if finished.failed or finished.skipped else "done")


TURNED_AWAY: Final[frozenset[FaultKind]] = frozenset(("rate", "concurrency", "overload"))
"""Faults after which a task stands in the provider's line, not in ours."""

P95: Final = 0.95

# What the user sees of a task: the same words in every view, and in JSON with underscores.

TaskWord = Literal[
    "waiting for a task",  # something that it needs has not ended
    "queued",  # it could start, and has no place yet; or it is tried again later
    "waiting for a limit",  # a call of it waits for a permit
    "in flight",  # a model works on it
    "running here",  # a command or a function does
    "held",  # it has a result that earlier tasks may make stale
    "cut off",  # it had started when the run's process ended
    "done",
    "reused",  # its result is from an earlier attempt
    "failed",
    "skipped",  # something that it needs has failed
]
WORDS: Final[dict[TaskState, TaskWord]] = {
    "started": "in flight",
    "delayed": "queued",
    "proposed": "held",
    "stale": "queued",
    "finished": "done",
    "failed": "failed",
    "skipped": "skipped",
}
"""The word for a state of the journal, where nothing more is known."""


class Standing(Struct, frozen=True):
    """What a run as a whole is doing, by the facts about it alone."""

    parts: int = 0
    """How many processes have had it: one more than it was resumed."""
    strategy: str = ""
    wave: int = 0
    waves: int = 0
    held_until_s: float | None = None
    """Nothing starts until then; infinity is until the user continues it."""
    held_for: str = ""
    stopping_for: str | None = None
    finished: RunFinished | None = None


def stand(standing: Standing, event: Fact) -> Standing:
    """The run after one more fact; facts about tasks change nothing."""
    match event:
        case RunBegan(strategy=strategy):
            return Standing(standing.parts + 1, strategy)
        case WaveBegan(number=number, of=of):
            return replace(standing, wave=number, waves=of)
        case RunHeld(until_s=until_s, reason=reason):
            return replace(standing, held_until_s=until_s, held_for=reason)
        case RunContinued():
            return replace(standing, held_until_s=None, held_for="")
        case RunStopping(reason=reason):
            return replace(standing, stopping_for=standing.stopping_for or reason)
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
    """Where a task was for a while, and what it waited for, as far as the journal has it."""

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

    def add(self, ending: Ending, times: int = 1) -> None:
        """Add what an attempt took; -1 takes it back: it gave something after all."""
        self.calls += times * ending.calls
        self.input_tokens += times * ending.input_tokens
        self.output_tokens += times * ending.output_tokens
        self.unpriced += times * ending.unpriced
        self.microusd += times * ending.spend_microusd
        if ending.cache is not NO_CACHE:
            cache = self.cache
            self.cache = cache + ending.cache if times > 0 else cache.minus(ending.cache)


def usage_by(groups: Iterable[GroupHistory], name_of: Mapping[str, str]) -> dict[str, AttemptUsage]:
    """What the tasks took by another name of their groups, that of their model for instance."""
    found: dict[str, AttemptUsage] = {}
    for group in groups:
        taken, sums = group.taken, found.setdefault(name_of.get(group.name, ""), AttemptUsage())
        sums.calls += taken.calls
        sums.input_tokens += taken.input_tokens
        sums.output_tokens += taken.output_tokens
        sums.microusd += taken.microusd
        sums.unpriced += taken.unpriced
        sums.cache += taken.cache
    return found


class GroupHistory(Struct):
    """The tasks of one group, as far as something has happened to them."""

    name: str
    states: Counter[TaskState] = field(default_factory=Counter)
    reused: int = 0
    """Of the finished ones."""
    taken: AttemptUsage = field(default_factory=AttemptUsage)
    lost: AttemptUsage = field(default_factory=AttemptUsage)
    times_s: list[float] = field(default_factory=list)
    """Of the tasks that finished, since each was first worked on."""
    passed: int = 0  # Tasks that took the result of the round before.

    @property
    def tasks(self) -> int:
        return self.states.total()

    @property
    def finished(self) -> int:
        return self.states["finished"]

    @property
    def p50_s(self) -> float:
        return median(self.times_s) if self.times_s else 0.0

    @property
    def p95_s(self) -> float:
        return percentile(self.times_s, P95) if self.times_s else 0.0


class TaskHistory(Struct):
    """One task from the run's beginning on."""

    key: bytes
    group: GroupHistory
    works_alone: bool = True
    """It works before it makes a call, as commands and functions do."""
    number: int = 0
    """That its latest fact gave it: its place in declared order."""
    state: TaskState | None = None
    reason: str = ""
    """Why it started when it first did."""
    first_s: float = 0.0
    because: int = -1
    """The number of the task for whose failure it was skipped."""
    is_reused: bool = False
    attempt: int = 0
    started_s: float = 0.0
    calls: int = 0
    """Permits of the last attempt."""
    output_tokens: float = 0.0
    """Of the last attempt that gave something."""
    access: bytes = b""
    """The digest of what that attempt touched of the shared state."""
    pieces: list[Piece] = field(default_factory=list)
    where: tuple[Kind, float] = ("idle", 0.0)
    """Where it is now, and since when."""
    attempt_from: int = 0
    """The first piece of the present attempt."""
    has_asked: bool = False
    reached_s: float = inf
    """When an attempt first had its permit, or began to work without one."""
    begun_s: float | None = None
    """When the present attempt had its first permit."""
    ended_s: float | None = None
    taken: AttemptUsage = field(default_factory=AttemptUsage)
    lost: AttemptUsage = field(default_factory=AttemptUsage)
    again_s: float = 0.0
    """When it is tried again, by the clock; infinity is not before the run is resumed."""
    quiet_s: float = 0.0
    """For how long the present attempt has done nothing, if that is long."""
    is_paid: bool = False
    """What the present attempt took is counted."""
    outdated: Ending | None = None
    """How its last attempt ended that was stale."""
    is_sent: bool = False
    """A call has its permit, and no end of it is recorded."""
    reserved_tokens: int = 0
    """What the calls of the present attempt can use at most, as far as that is recorded."""
    reserved_microusd: int = 0

    @property
    def is_active(self) -> bool:
        return self.state == "started"

    @property
    def word(self) -> TaskWord:
        """Where it is, as every view names it; a task that has not started has no history."""
        if self.state is None:
            return "cut off"
        if self.state == "finished":
            return "reused" if self.is_reused else "done"
        kind = self.where[0]
        if kind in ("quota", "refused"):
            return "waiting for a limit"
        if self.state != "started":
            return WORDS[self.state]
        return "running here" if self.works_alone else "in flight"

    @property
    def is_unpriced(self) -> bool:
        """Tokens are set aside for the present attempt and no money: the price is unknown."""
        return self.reserved_tokens > 0 and not self.reserved_microusd

    @property
    def served_s(self) -> float:
        """How long it was worked on to some end."""
        return sum(one.to_s - one.from_s for one in self.pieces if one.kind == "service")

    @property
    def waited_s(self) -> float:
        """How long it waited for permits, and to be tried again after refusals."""
        return sum(one.to_s - one.from_s for one in self.pieces if one.kind in ("quota", "refused"))

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

    def work(self) -> None:
        """A task that works before its first call has worked since its attempt began."""
        kind, since_s = self.where
        if kind == "start" and self.works_alone:
            self.where = "service", since_s
            self.reached_s = min(self.reached_s, since_s)

    def serve(self, now_s: float) -> None:
        """An attempt has ended well; one that needed no permit has worked all the time."""
        if self.is_active and not self.has_asked:
            since_s = self.where[1]
            self.where = "service", since_s
            self.reached_s = min(self.reached_s, since_s, now_s)

    def waste(self, now_s: float, then: Kind) -> None:
        self.serve(now_s)
        self.move(then, now_s)
        self.relabel("service", "lost", self.attempt_from)


def steady_name(limit: str) -> str:
    """The name of a limit, without its period where that is an estimate (`requests/54.2s`): each
    time that it is learned anew it is another one."""
    resource, _, period = limit.partition("/")
    return resource if "." in period else limit


SAMPLE_S: Final = 0.25
SAMPLES_MAX: Final = 240
"""Of the count of performed tasks: of the last minute, four a second."""

TAKEN_MAX: Final = 256
"""Of the times that tasks took, the last ones that count: a provider may become slower."""


class RunHistory:
    """Folds a journal: every task's way, and the run's sums, in seconds since the run began."""

    def __init__(
        self,
        group_of: Callable[[bytes], str] = lambda _: "",
        works_alone: Callable[[str], bool] = lambda _: True,
        *,
        keeps_ended: bool = True,
    ) -> None:
        """`works_alone`: whether the tasks of a group work before they make a call. Without
        `keeps_ended`, of a task that has ended only its state is kept: runs may be large."""
        self.tasks: dict[bytes, TaskHistory] = {}
        self.ended: dict[bytes, TaskWord] = {}
        """Tasks that are over, where their histories are not kept."""
        self.groups: dict[str, GroupHistory] = {}
        self.standing = Standing()
        self.effects = KnownEffects()
        self.expanded: dict[int, int] = {}
        """How many tasks groups have whose size became known in the run."""
        self.holds: list[tuple[float, float]] = []
        """When the run was held, until when; infinity if it still is."""
        self.taken = AttemptUsage()
        self.lost = AttemptUsage()
        """By attempts that gave nothing."""
        self.refusals: Counter[str] = Counter()
        self.refused_at: list[tuple[float, str]] = []
        """When the provider refused, and why: as many as `refusals` counts."""
        self.limits: dict[tuple[str, str], list[tuple[float, float, float, float]]] = {}
        """By account and limit: a time, what was used, what is allowed, when a window resets."""
        self.stuck: set[bytes] = set()
        """Tasks that failed because they did nothing for too long."""
        self.retries = self.stale = 0
        self.cut_calls = self.cut_tokens = 0
        """Calls without a recorded end, when a process of the run ended or their attempt did: they
        may be billed, and were or are sent again; and what they can have used at most."""
        self.elapsed_s = 0.0
        """Time of the run so far; it never goes back."""
        self.last_s = 0.0
        """The time of the last fact, by the clock."""
        self.submitted = 0
        """The most tasks that had started and not ended at one time."""
        self.active: set[bytes] = set()
        self.active_s = 0.0
        """How long at least one had started."""
        self.performed = 0
        self.busy_s = 0.0
        """How long calls were in flight, one by one."""
        self.samples: deque[tuple[float, int]] = deque(maxlen=SAMPLES_MAX)
        """Times, and how many tasks were performed by then; first, the start of the first task."""
        self.took_s: deque[float] = deque(maxlen=TAKEN_MAX)
        """How long attempts took since they were first served, the last ones."""
        self._group_of = group_of
        self._works_alone = works_alone
        self._keeps_ended = keeps_ended
        self._began_s: float | None = None

    @property
    def parts(self) -> int:
        return self.standing.parts

    @property
    def refused(self) -> int:
        return self.refusals.total()

    def at(self, now_s: float) -> float:
        """A time of the clock as time of the run, if it is one of its present process."""
        return max(self.elapsed_s, now_s - self._began_s) if self._began_s is not None else 0.0

    def apply(self, key: bytes, event: Fact) -> None:
        """Add one event; `key` is its task's, or empty."""
        if isinstance(event, RunBegan):
            self._cut(self.elapsed_s)
            self._began_s = event.at_s - self.elapsed_s
        elif self._began_s is None:
            self._began_s = event.at_s
        now_s = max(self.elapsed_s, event.at_s - self._began_s)
        if self.active:
            self.active_s += now_s - self.elapsed_s
        self.elapsed_s, self.last_s = now_s, event.at_s
        if not key:
            self._of_the_run(event, now_s)
            return
        task = self.tasks.get(key)
        if task is None:
            task = self._enter(key)
        before = task.state
        if isinstance(event, EffectIntended | EffectDone):
            self.effects.apply(key, event)
            return
        self._of_a_task(task, event, now_s)
        if task.state != before:
            self._moved(task, before)

    def cut_off(self) -> None:
        """No process performs the run: whether calls in flight were answered is not known."""
        for key in self.active:
            self._count_cut(self.tasks[key])

    def close(self, now_s: float) -> None:
        """No more facts follow: what has no end lasts until now."""
        for task in self.tasks.values():
            if task.ended_s is None:
                task.work()
                task.move(task.where[0], now_s)
        self.holds = [(from_s, min(to_s, now_s)) for from_s, to_s in self.holds]

    def _enter(self, key: bytes) -> TaskHistory:
        name = self._group_of(key)
        group = self.groups.get(name)
        if group is None:
            group = self.groups[name] = GroupHistory(name)
        task = self.tasks[key] = TaskHistory(key, group, self._works_alone(name))
        if (word := self.ended.pop(key, None)) is not None:
            # A task that had ended starts again: a failed one, or one whose result is lost.
            task.state = "failed" if word == "failed" else "skipped"
            task.state = "finished" if word in ("done", "reused") else task.state
            task.is_reused = word == "reused"
        return task

    def _moved(self, task: TaskHistory, before: TaskState | None) -> None:
        """Count a task where it is now, and no longer where it was."""
        states = task.group.states
        if before is not None:
            states[before] -= 1
        if task.state is not None:
            states[task.state] += 1
        if before == "finished" and task.is_reused:
            task.group.reused -= 1
            task.is_reused = False
        if task.is_active:
            self.active.add(task.key)
            self.submitted = max(self.submitted, len(self.active))
        else:
            self.active.discard(task.key)
        if not self._keeps_ended and task.ended_s is not None:
            self.ended[task.key] = task.word
            del self.tasks[task.key]

    def _of_the_run(self, event: Fact, now_s: float) -> None:
        self.standing = stand(self.standing, event)
        if isinstance(event, GroupExpanded):
            self.expanded[event.group] = event.count
        elif isinstance(event, LimitsSeen):
            for one in event.limits:
                seen = self.limits.setdefault((one.account, steady_name(one.name)), [])
                resets_s = one.resets_s and now_s + one.resets_s - event.at_s
                seen.append((now_s, one.used, one.allowed, resets_s))
        elif isinstance(event, RunHeld):
            self._release(now_s)
            self.holds.append((now_s, inf))
        elif isinstance(event, RunContinued | RunBegan):
            self._release(now_s)
        elif isinstance(event, RunFinished):
            self._cut(now_s)
            self._release(now_s)

    def _release(self, now_s: float) -> None:
        if self.holds and self.holds[-1][1] == inf:
            self.holds[-1] = (self.holds[-1][0], now_s)

    def _cut(self, now_s: float) -> None:
        self.cut_off()
        for key in self.active:
            task = self.tasks[key]
            task.waste(now_s, "idle")
            task.state = None
            task.group.states["started"] -= 1
        self.active.clear()

    def _of_a_task(self, task: TaskHistory, event: Fact, now_s: float) -> None:
        match event:
            case MoneyReserved(tokens=tokens, microusd=microusd):
                task.reserved_tokens, task.reserved_microusd = tokens, microusd
                return
            case AttemptStuck(quiet_s=quiet_s):
                task.quiet_s = quiet_s
                return
            case CallWaited() | CallAdmitted():
                self._of_a_call(task, event, now_s)
            case TaskStarted(task=number, attempt=attempt):
                task.move("start", now_s)
                if not task.reason:
                    task.reason, task.first_s = event.reason, now_s
                task.number, task.state, task.ended_s = number, "started", None
                self.stuck.discard(task.key)
                task.attempt, task.started_s, task.calls = attempt, now_s, 0
                task.attempt_from = len(task.pieces)
                task.has_asked = task.is_paid = False
                task.quiet_s = 0.0
                task.begun_s = None
                task.reserved_tokens = task.reserved_microusd = 0
                if not self.samples:
                    self.samples.append((now_s, 0))
            case TaskFinished(ending=ending) | TaskProposed(ending=ending):
                self._stop(task, now_s, has_given=True)
                self._pay(task, ending)
                if ending.is_renewed:
                    self._renew(task)
                task.outdated = None
                task.serve(now_s)
                task.output_tokens, task.access = ending.output_tokens, ending.access
                is_over = isinstance(event, TaskFinished)
                task.move("idle" if is_over else "commit", now_s)
                if is_over:
                    self._finish(task, now_s)
                else:
                    task.state = "proposed"
            case TaskStale() | TaskDelayed() | TaskFailed():
                self._fail(task, event, now_s)
            case TaskReused(task=number) | TaskSkipped(task=number):
                self._stop(task, now_s, has_given=False)
                task.move("idle", now_s)
                task.number, task.ended_s = number, now_s
                is_reused = isinstance(event, TaskReused)
                task.group.reused += is_reused and not task.is_reused
                task.state, task.is_reused = "finished" if is_reused else "skipped", is_reused
                if isinstance(event, TaskSkipped):
                    task.because = event.because
                else:
                    self._renew(task)
                    task.outdated = None
        task.is_sent = isinstance(event, CallAdmitted)

    def _of_a_call(self, task: TaskHistory, event: CallWaited | CallAdmitted, now_s: float) -> None:
        self._count_busy(task, now_s)
        if isinstance(event, CallAdmitted):
            task.move("service", now_s, steady_name(event.waited_for))
            task.calls += 1
            task.reached_s = min(task.reached_s, now_s)
            task.begun_s = now_s if task.begun_s is None else task.begun_s
        else:
            task.work()
            task.move("refused" if event.refused else "quota", now_s)
            if event.refused:
                # What it took to be turned away was no work.
                task.relabel("service", "refused", len(task.pieces) - 1)
                self._refuse(event.refused, now_s)
        task.has_asked = True

    def _refuse(self, why: str, now_s: float) -> None:
        self.refusals[why] += 1
        self.refused_at.append((now_s, why))

    def _count_busy(self, task: TaskHistory, now_s: float) -> None:
        if task.is_sent:
            self.busy_s += now_s - task.where[1]

    def _stop(self, task: TaskHistory, now_s: float, *, has_given: bool) -> None:
        """An attempt is no longer in flight, if it was."""
        if not task.is_active:
            return
        self._count_busy(task, now_s)
        if has_given:
            self.took_s.append(now_s - (task.started_s if task.begun_s is None else task.begun_s))

    def _finish(self, task: TaskHistory, now_s: float) -> None:
        task.state, task.ended_s = "finished", now_s
        self.performed += 1
        if task.reached_s <= now_s:
            task.group.times_s.append(now_s - task.reached_s)
        if now_s - self.samples[-1][0] >= SAMPLE_S if self.samples else True:
            self.samples.append((now_s, self.performed))

    def _fail(
        self, task: TaskHistory, event: TaskStale | TaskDelayed | TaskFailed, now_s: float
    ) -> None:
        self._stop(task, now_s, has_given=isinstance(event, TaskStale))
        self._pay(task, event.ending)
        for lost in (task.lost, task.group.lost, self.lost):
            lost.add(event.ending)
        if event.ending.is_in_doubt and event.ending.calls:
            # Of several calls of an attempt the last one was lost; the others are counted tokens.
            self.cut_calls += 1
            self.cut_tokens += max(0, event.ending.extra_tokens)
        if isinstance(event, TaskStale):
            self.stale += 1
            task.outdated = event.ending
            task.waste(now_s, "idle")
            task.state = "stale"
            return
        fault, is_sent = event.fault, event.ending.calls > 0
        is_turned_away = fault.kind in TURNED_AWAY
        if is_turned_away and is_sent:
            self._refuse(f"{fault.kind}: {fault.resource or ''}".removesuffix(": "), now_s)
        if isinstance(event, TaskDelayed):
            # What was put back before it was sent, for an empty window say, is as it was before.
            is_put_back = is_turned_away and not is_sent
            self.retries += not is_put_back
            then: Kind = "refused" if is_turned_away else "again"
            task.waste(now_s, "idle" if is_put_back else then)
            task.state, task.again_s = "delayed", event.again_s
        else:
            task.waste(now_s, "idle")
            task.state, task.ended_s = "failed", now_s
            if fault.kind == "stuck":
                self.stuck.add(task.key)

    def _renew(self, task: TaskHistory) -> None:
        """The attempt that was called stale still holds: it was no waste, and nothing ran again."""
        if task.outdated is None:
            return
        for lost in (task.lost, task.group.lost, self.lost):
            lost.add(task.outdated, -1)
        self.stale -= 1

    def _pay(self, task: TaskHistory, ending: Ending) -> None:
        """What an attempt took is counted once, whether it is proposed before it is judged."""
        if not task.is_paid:
            task.group.passed += ending.is_renewed and task.outdated is None
            for taken in (task.taken, task.group.taken, self.taken):
                taken.add(ending)
        task.is_paid = True

    def _count_cut(self, task: TaskHistory) -> None:
        if task.is_sent:
            self.cut_calls += 1
            self.cut_tokens += task.reserved_tokens
            for usage in (task.taken, task.group.taken, self.taken, task.lost, task.group.lost,
                          self.lost):  # fmt: skip
                usage.unpriced += task.is_unpriced
                usage.microusd += task.reserved_microusd
        task.is_sent = False
