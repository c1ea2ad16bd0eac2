"""The history of a run: the fold of its journal that every view reads.

Laws:
- Both folds take facts in the journal's order and never look ahead: the same facts in one portion
  or in many give the same story.
- A task is its content key. Its number is the one that its latest fact gave it: declared order.
- Time without a process is not time of the run: what lies between the last fact of one process
  and the first of the next is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Final, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from headway.base.numbers import percentile
from headway.base.values import FaultKind
from headway.engine.events import (
    CallAdmitted,
    CallWaited,
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
from headway.engine.record import Fact, TaskState
from headway.report.tables import StayKind

# The time of a run: seconds since it began, without those in which no process had it.


class Elapsed:
    """A clock that facts wind, in the journal's order. It never goes back."""

    __slots__ = ("_began_s", "last_s", "parts")

    def __init__(self) -> None:
        self._began_s: float | None = None
        self.last_s = 0.0
        self.parts = 0
        """How many processes have had the run."""

    def at(self, event: Fact) -> float:
        """When a fact was, as seconds of the run."""
        if self._began_s is None:
            self._began_s = event.at_s
        if isinstance(event, RunBegan):
            self.parts += 1
            self._began_s = event.at_s - self.last_s
        self.last_s = max(self.last_s, event.at_s - self._began_s)
        return self.last_s


# What state a run is in, by its facts and by whether somebody still performs it.

RunState = Literal[
    "new",  # nothing has happened yet
    "running",
    "paused",  # until somebody lets it go on
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
"""With fewer answers nobody can tell a slow one from a long one."""

QUEUED_FROM: Final = 2.0
"""An answer that takes up to so many times as long, per token, is slow; beyond, it was in line."""


class Standing(Struct, frozen=True):
    """What a run as a whole is doing, by the facts about it alone."""

    parts: int = 0
    """How many processes have had it: one more than it was resumed."""
    strategy: str = ""
    began_s: float = 0.0
    """When the present part began."""
    grown: int = 0
    """Tasks that became known in the present part, beyond those that were declared."""
    wave: int = 0
    waves: int = 0
    held_until_s: float | None = None
    """Nothing starts until then; infinity is until somebody says so."""
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


class TaskSpan(Struct, frozen=True):
    """Where a task was for a while; `task` is its line in a picture."""

    task: int
    kind: StayKind
    from_s: float
    to_s: float


class End(Struct, frozen=True):
    """How a task ended, for a picture."""

    task: int
    ended_s: float
    done: bool


class Scene(Struct, frozen=True):
    """Some tasks of a run, as a timeline draws them."""

    tasks: tuple[End, ...]
    spans: tuple[TaskSpan, ...]


class Tale(Struct):
    """What one task did."""

    key: bytes
    number: int = 0
    state: TaskState | None = None
    attempt: int = 0
    started_s: float = 0.0
    ended_s: float | None = None
    output_tokens: float = 0.0
    spans: list[tuple[StayKind, float, float]] = field(default_factory=list)
    open: tuple[StayKind, float] | None = None
    """Where it is now, since when; nowhere is here."""
    calls: int = 0
    """Permits of the last attempt."""
    has_asked: bool = False
    """Whether that attempt is known to have wanted one."""

    @property
    def is_active(self) -> bool:
        """Whether an attempt has begun and not ended."""
        return self.state == "started"

    def leave(self, at_s: float) -> None:
        """It is no longer where it was."""
        if self.open is not None:
            self.spans.append((*self.open, at_s))
            self.open = None


class Story:
    """Every task's tale, in time since the run began."""

    def __init__(self, works_alone: Callable[[bytes], bool] = lambda _: True) -> None:
        """`works_alone` says of a task whether it works before it makes a call, as commands do."""
        self.tales: dict[bytes, Tale] = {}
        self._works_alone = works_alone
        self._time = Elapsed()
        self._active = 0
        self.submitted = 0
        """The most tasks that had started and not ended at one time."""
        self.active_s = 0.0
        """How long at least one had."""

    @property
    def elapsed_s(self) -> float:
        return self._time.last_s

    @property
    def parts(self) -> int:
        """How many processes have had the run."""
        return self._time.parts

    def hear(self, key: bytes, event: Fact) -> None:
        """Take one fact; `key` is its task's, or empty."""
        before_s = self._time.last_s
        if isinstance(event, RunBegan):
            # Another process takes over: what the last one had in flight is lost.
            self._cut()
        now_s = self._time.at(event)
        if self._active:
            self.active_s += now_s - before_s
        if isinstance(event, RunFinished):
            self._cut()
        elif key:
            self._happened(self._tale(key), event, now_s)

    def in_order(self) -> list[Tale]:
        """Every task, as declared."""
        return sorted(self.tales.values(), key=lambda tale: (tale.number, tale.key))

    def _cut(self) -> None:
        """Nobody performs the run any more: what was in flight has no end."""
        for tale in self.tales.values():
            if tale.is_active:
                tale.leave(self._time.last_s)
                tale.state = None
        self._active = 0

    def _tale(self, key: bytes) -> Tale:
        tale = self.tales.get(key)
        if tale is None:
            tale = self.tales[key] = Tale(key)
        return tale

    def _happened(self, tale: Tale, event: Fact, now_s: float) -> None:
        match event:
            case TaskStarted(task=number, attempt=attempt):
                tale.leave(now_s)
                self._active += not tale.is_active
                tale.number, tale.attempt, tale.state = number, attempt, "started"
                tale.started_s, tale.ended_s, tale.calls = now_s, None, 0
                tale.has_asked = False
                self.submitted = max(self.submitted, self._active)
            case CallWaited():
                is_first = tale.is_active and not tale.has_asked
                if is_first and now_s > tale.started_s and self._works_alone(tale.key):
                    # A command works by itself before its agent makes a call.
                    tale.open = ("busy", tale.started_s)
                tale.leave(now_s)
                tale.has_asked = True
            case CallAdmitted():
                tale.leave(now_s)
                tale.open, tale.calls, tale.has_asked = ("busy", now_s), tale.calls + 1, True
            case TaskFinished(ending=ending):
                tale.output_tokens = ending.output_tokens
                self._end(tale, "finished", now_s)
            case TaskReused():
                self._end(tale, "finished", now_s)
            case TaskDelayed(fault=fault):
                self._end(tale, "delayed", now_s)
                tale.ended_s = None
                tale.open = ("provider", now_s) if fault.kind in TURNED_AWAY else None
            case TaskFailed():
                self._end(tale, "failed", now_s)
            case TaskProposed(ending=ending):
                tale.output_tokens = ending.output_tokens
                self._end(tale, "proposed", now_s)
                tale.ended_s = None
            case TaskStale():
                self._end(tale, "stale", now_s)
                tale.ended_s = None
            case TaskSkipped(task=number):
                tale.number = number
                self._end(tale, "skipped", now_s)
            case _:
                pass

    def _end(self, tale: Tale, state: TaskState, now_s: float) -> None:
        if tale.is_active:
            self._active -= 1
            if not tale.has_asked:
                # Nobody said when its calls were let through: it was busy all the time.
                tale.open = ("busy", tale.started_s)
        tale.leave(now_s)
        tale.state, tale.ended_s = state, now_s


def scene(tales: Sequence[Tale], now_s: float) -> Scene:
    """Tasks as lines of a picture, in this order; what has no end yet lasts until now."""
    ends, spans = [], []
    for line, tale in enumerate(tales):
        spans += [TaskSpan(line, *span) for span in tale.spans]
        if tale.open is not None:
            spans.append(TaskSpan(line, *tale.open, now_s))
        if tale.ended_s is not None:
            ends.append(End(line, tale.ended_s, tale.state == "finished"))
    return Scene(tuple(ends), tuple(spans))


def in_line(tales: Iterable[Tale], group_of: Callable[[bytes], str]) -> dict[bytes, float]:
    """For each answered task, how long it probably stood in line at the provider.

    The provider does not say. An answer's time per token tells: what is far beyond the fastest
    tenth of its group was not spent on the answer. Only one call's time can be read like this.
    """
    took: dict[str, list[tuple[bytes, float, float]]] = {}
    for tale in tales:
        if tale.state == "finished" and tale.output_tokens > 0.0 and tale.calls == 1:
            _, from_s, to_s = tale.spans[-1]
            answer = (tale.key, to_s - from_s, tale.output_tokens)
            took.setdefault(group_of(tale.key), []).append(answer)
    lines: dict[bytes, float] = {}
    for answers in took.values():
        if len(answers) < FAST_TASKS_MIN:
            continue
        fast_s = percentile([took_s / tokens for _, took_s, tokens in answers], FAST_SHARE)
        for key, took_s, tokens in answers:
            if took_s > QUEUED_FROM * fast_s * tokens:
                lines[key] = took_s - fast_s * tokens
    return lines


def with_lines(tale: Tale, line_s: float) -> Tale:
    """The same task with the beginning of its last call shown as time in the provider's line."""
    if not line_s:
        return tale
    kind, from_s, to_s = tale.spans[-1]
    split = [*tale.spans[:-1], ("provider", from_s, from_s + line_s), (kind, from_s + line_s, to_s)]
    return replace(tale, spans=split)


def effective_width(story: Story, lines: dict[bytes, float], now_s: float) -> float:
    """How many were really worked on at once, on average over the time that any had started."""
    active_s = story.active_s
    if active_s <= 0.0:
        return 0.0
    served_s = -sum(lines.values())
    for tale in story.tales.values():
        served_s += sum(to_s - from_s for kind, from_s, to_s in tale.spans if kind == "busy")
        if tale.open is not None and tale.open[0] == "busy":
            served_s += now_s - tale.open[1]
    return served_s / active_s
