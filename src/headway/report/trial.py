"""One run of a plan under a chosen schedule: the real engine, simulated agents.

Laws:
- A schedule chooses which task takes its next step, and nothing else: what starts, waits, is
  committed or runs again is decided by the engine that real runs use.
- Tasks are named by their places in the serial run, which no schedule changes.
- A trial that is killed goes on with what was durable and with the world as it was left; results
  are taken again under the conditions under which a resumed run takes them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct, field

from headway.base.digest import digest
from headway.base.values import Fault
from headway.engine.engine import Step, advance, begin, restore, step
from headway.engine.events import (
    NOTHING,
    Abandon,
    Abandoned,
    Began,
    Ending,
    Event,
    Expanded,
    Failed,
    Finished,
    Input,
    Release,
    Reused,
    RunFinished,
    StartAttempt,
    TaskFailed,
    TaskFinished,
    TaskProposed,
    TaskReused,
    TaskStale,
    Ticked,
    WakeAt,
)
from headway.engine.record import TaskRow, fold
from headway.engine.state import Rules
from headway.engine.state import copied as copied_state
from headway.engine.strategy import ALL_AT_ONCE
from headway.errors import InternalError
from headway.plans.graph import Graph
from headway.plans.resources import prefix_of
from headway.report.stage import (
    Given,
    Going,
    Grown,
    HashedStage,
    TrialAttempt,
    TrialResult,
    TrialTouch,
)
from headway.state.coherence import Breach, Coherence, TaskPositions
from headway.state.shared import UNTOUCHED, Access, Change, Channels, Shared, Snapshot

RULES: Final = Rules(strategy=ALL_AT_ONCE, retries=0)
"""Everything that may start does: which of them gets on is the schedule's choice."""

END: Final = 1 << 62
"""Behind the place of every task."""


class TrialCast(Struct, frozen=True):
    """What all trials of one plan have in common."""

    graph: Graph
    stage: Callable[[], HashedStage]
    channels: Channels = field(default_factory=Channels)
    spread: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Of groups whose result tells the members of others: those."""
    is_copied: bool = True
    """Whether a trial can be copied in the middle; otherwise its steps are done again."""

    def places(self) -> TaskPositions:
        return TaskPositions(self.graph)


TrialKept = tuple[TrialResult, Access]
"""A durable result, and what its attempt touched."""


class TrialOutcome(Struct, frozen=True):
    """How a trial ended. Results are by place."""

    results: Mapping[int, TrialResult]
    """Of committed attempts, and of those that failed."""
    state: tuple[tuple[str, bytes], ...]
    world: Mapping[str, str]
    effects: Mapping[str, tuple[bytes, ...]]
    """By channel, in the order of their release."""


class Trial:
    """A run that goes on as its schedule says."""

    __slots__ = (
        "_active", "_at", "_effects", "_given", "_grown", "_kill_at", "_now", "_outcome",
        "_performed", "_places", "_saved", "_snapshots", "_state", "cast", "durable",
        "is_killed", "path", "ready", "reran", "results", "rows", "stage", "trace",
    )  # fmt: skip

    def __init__(self, cast: TrialCast, kill_at: int = 0, stage: HashedStage | None = None) -> None:
        """Killed after so many durable facts, if a number is given."""
        self.cast = cast
        self.stage = stage or cast.stage()
        coherence = Coherence(cast.graph, Shared(cast.channels, {}))
        self._places = coherence.places
        self._state = begin(cast.graph, RULES, coherence)
        self.ready: list[int] = []
        """The places of tasks that can take a step, in serial order."""
        self._at: dict[int, int] = {}
        self._active: dict[int, tuple[int, Going | None]] = {}
        self._snapshots: dict[int, Snapshot | None] = {}
        self._given: dict[int, TrialKept] = {}
        """What attempts gave that have ended, by place."""
        self.results: dict[int, TrialResult] = {}
        """Of committed tasks and of failed ones, by place."""
        self.reran: dict[tuple[int, int], int] = {}
        """By places, of whom and because of whom: how many attempts were stale."""
        self._effects: dict[str, list[bytes]] = {}
        self._performed: set[tuple[int, int]] = set()
        self._grown: Grown = ()
        self._now = 0.0
        self.path: list[int] = []
        self.trace: list[tuple[int, TrialTouch]] | None = None
        """What was touched, and by which place, if that is recorded."""
        self.rows: dict[int, TaskRow] | None = {} if kill_at else None
        """What is durable of every task, by place, if that is recorded."""
        self.durable = 0
        """How many facts were, before a kill too."""
        self._outcome: TrialOutcome | None = None
        self._kill_at = kill_at
        self._saved: dict[int, tuple[TaskRow, TrialKept]] = {}
        self.is_killed = False

    @property
    def _coherence(self) -> Coherence:
        assert self._state.coherence is not None
        return self._state.coherence

    @property
    def is_over(self) -> bool:
        return self._state.over or self.is_killed

    def open(self) -> Trial:
        _feed(self, Began())
        return self

    def take(self, place: int) -> None:
        task = self._at[place]
        attempt, going = self._active[task]
        if going is None:
            going = self._begin(task, attempt)
        done = going.step()
        self.path.append(place)
        if done is None:
            _trace(self, place)
        else:
            self._end(task, place, done)

    def outcome(self) -> TrialOutcome:
        """What the run has come to; it is kept when the world is closed."""
        if not self._state.over:
            raise InternalError(f"the trial is not over after {len(self.path)} steps")
        if self._outcome is None:
            found = self._coherence.shared.found("**", END)
            state = tuple((key, name) for key, _, name in found)
            effects = {channel: tuple(data) for channel, data in self._effects.items()}
            self._outcome = TrialOutcome(self.results, state, self.stage.world(), effects)
        return self._outcome

    def touches(self, place: int) -> list[TrialTouch]:
        return [one for who, one in self.trace or () if who == place and one.kind != "task"]

    def close(self) -> None:
        for _, going in self._active.values():
            if going is not None:
                going.stop()
        self.stage.close()

    def place(self, task: int) -> int:
        return self._places.task(*self._state.place(task))

    def counts(self) -> dict[int, int]:
        numbers = self._state.ready_set.numbers
        known = filter(numbers.is_known, range(len(self.cast.graph)))
        return {group: len(numbers.members(group)) for group in known}

    def labels(self) -> dict[int, str]:
        return {
            self._places.task(group, member): self.stage.label(group, member, self._grown)
            for group, count in self.counts().items()
            for member in range(count)
        }

    def _begin(self, task: int, attempt: int) -> Going:
        snapshot = self._snapshots[task] = self._coherence.snapshot(task)
        group, member = self._state.place(task)
        label = self.stage.label(group, member, self._grown)
        given = given_to(self, task)
        going = self.stage.begin(
            TrialAttempt(group, member, attempt, label, snapshot, given, self._grown)
        )
        self._active[task] = attempt, going
        return going

    def _end(self, task: int, place: int, done: TrialResult) -> None:
        attempt, access = self._leave(task, place), _access(self, task)
        self._given[place] = done, access
        _trace(self, place, access)
        ending = NOTHING
        if self.rows is not None and not done.fault:
            ending = Ending(digest(done.body))
        if done.fault:
            _feed(self, Failed(task, attempt, Fault("function", detail=done.fault), ending))
        else:
            _feed(self, Finished(task, attempt, ending))

    def _leave(self, task: int, place: int) -> int:
        del self.ready[bisect_left(self.ready, place)]
        del self._at[place]
        return self._active.pop(task)[0]


def copied(trial: Trial) -> Trial:
    """Another trial that has come as far as this one; what never changes both have."""
    twin: Trial = object.__new__(Trial)
    for name in Trial.__slots__:
        setattr(twin, name, getattr(trial, name))
    twin._state, seen = copied_state(trial._state)
    going = {task: one for task, (_, one) in trial._active.items() if one is not None}
    twin.stage, acting = trial.stage.copied(going, seen)
    twin._active = {task: (at, acting.get(task)) for task, (at, _) in trial._active.items()}
    twin._snapshots = {task: seen.get(task) for task in trial._snapshots}
    twin.path, twin.ready, twin._at = trial.path[:], trial.ready[:], trial._at.copy()
    twin._given, twin.results = trial._given.copy(), trial.results.copy()
    twin.reran, twin._saved = trial.reran.copy(), trial._saved.copy()
    twin._effects = {channel: data[:] for channel, data in trial._effects.items()}
    twin._performed = trial._performed.copy()
    twin.trace = None if trial.trace is None else trial.trace[:]
    twin.rows = None if trial.rows is None else trial.rows.copy()
    return twin


def given_to(trial: Trial, task: int) -> Given:
    graph, places, results = trial.cast.graph, trial._places, trial.results
    group, member = trial._state.place(task)
    given: list[tuple[int, tuple[bytes, ...]]] = []
    for other in graph.needs[group]:
        if other in graph.memberwise[group]:
            members = range(member, member + 1)
        else:
            members = range(len(trial._state.ready_set.numbers.members(other)))
        given.append((other, tuple(results[places.task(other, one)].body for one in members)))
    return tuple(given)


def resumed(old: Trial) -> Trial:
    """The run that goes on after a kill, in the world as it was left."""
    rows = old.rows or {}
    for task, (_, going) in old._active.items():
        if going is not None:
            going.stop()
            old._active[task] = 0, None
    old.stage.restart()
    trial = Trial(old.cast, stage=old.stage)
    trial._saved = {
        place: (row, old._given[place]) for place, row in rows.items() if row.ending.body
    }
    trial._effects, trial._performed = old._effects, old._performed
    trial.reran, trial.path, trial.trace = old.reran, old.path, old.trace
    trial.durable = old.durable
    numbers = trial._state.ready_set.numbers
    tried = {task: rows.get(trial.place(task)) for task in range(numbers.total)}
    restore(trial._state, (), {task: row.attempt for task, row in tried.items() if row})
    return trial.open()


def _feed(trial: Trial, happened: Input) -> None:
    waiting: list[Input | TaskProposed] = [happened]
    for one in waiting:
        if isinstance(one, TaskProposed):
            taken = advance(trial._state, [one], trial._now)
            taken = Step((one, *taken.events), taken.effects)
        else:
            taken = step(trial._state, one, trial._now)
        for event in taken.events:
            _hear(trial, event, waiting)
            if trial.is_killed:
                return
        for effect in taken.effects:
            if isinstance(effect, StartAttempt):
                _start(trial, effect, waiting)
            elif isinstance(effect, Abandon):
                _abandon(trial, effect, waiting)
            elif isinstance(effect, Release):
                _perform(trial, effect)
            else:
                assert isinstance(effect, WakeAt)  # A trial is never stopped.
                trial._now = max(trial._now, effect.at_s)
                waiting.append(Ticked())


def _hear(trial: Trial, event: Event, waiting: list[Input | TaskProposed]) -> None:
    if isinstance(event, (TaskFinished, TaskReused)):
        _commit(trial, event.task, waiting)
    elif isinstance(event, TaskFailed):
        trial.results[trial.place(event.task)] = TrialResult(b"", (), event.fault.detail)
    elif isinstance(event, TaskStale):
        place = trial.place(event.task)
        pair = place, event.because
        trial.reran[pair] = trial.reran.get(pair, 0) + 1
        _trace(trial, place)
    if trial.rows is not None and not isinstance(event, RunFinished):
        task = getattr(event, "task", None)
        if task is not None:
            place = trial.place(task)
            trial.rows[place] = fold(trial.rows.get(place), event, b"", "")
        trial.durable += 1
        trial.is_killed = trial.durable == trial._kill_at


def _commit(trial: Trial, task: int, waiting: list[Input | TaskProposed]) -> None:
    place = trial.place(task)
    done, access = trial._given[place]
    trial.results[place] = done
    where = trial._state.place(task)
    trial.stage.publish(where, trial._grown, done.body)
    _trace(trial, place, access)
    for other in trial.cast.spread.get(where[0], ()):
        trial._grown = (*trial._grown, (other, done.body))
        waiting.append(Expanded(other, trial.stage.count(other, trial._grown)))


def _start(trial: Trial, effect: StartAttempt, waiting: list[Input | TaskProposed]) -> None:
    task, place = effect.task, trial.place(effect.task)
    saved = trial._saved.pop(place, None)
    if saved is not None:
        row, kept = saved
        again = _taken_again(trial, task, effect.attempt, row, kept[1])
        if again is not None:
            trial._given[place] = kept
            waiting.append(again)
            return
    insort(trial.ready, place)
    trial._at[place] = task
    trial._active[task] = effect.attempt, None


def _taken_again(
    trial: Trial, task: int, attempt: int, row: TaskRow, access: Access
) -> Input | TaskProposed | None:
    """What an earlier process has found is taken, if the shared state is as it was seen."""
    coherence = trial._coherence
    if not coherence.has(task):
        return Reused(task, attempt)
    verdict = coherence.judge(task, access)
    if isinstance(verdict, (Change, Breach)):
        return None
    coherence.note(task, access)
    if verdict is None:
        return Reused(task, attempt)
    return TaskProposed(task, attempt, trial._now, row.ending)


def _abandon(trial: Trial, effect: Abandon, waiting: list[Input | TaskProposed]) -> None:
    """What has read something else is ended at once, as real attempts are."""
    task, place = effect.task, trial.place(effect.task)
    _, going = trial._active[task]
    assert going is not None  # Only who has read something can have read something else.
    going.stop()
    _trace(trial, place, _access(trial, task))
    waiting.append(Abandoned(task, trial._leave(task, place)))


def _perform(trial: Trial, effect: Release) -> None:
    """Once for each, by its key, even if it is asked for again after a kill."""
    place = trial.place(effect.task)
    for number, act in enumerate(effect.acts):
        if not act.is_now and (place, number) not in trial._performed:
            trial._performed.add((place, number))
            trial._effects.setdefault(act.channel, []).append(act.data)


def _access(trial: Trial, task: int) -> Access:
    snapshot = trial._snapshots.pop(task, None)
    if snapshot is None:
        return UNTOUCHED
    access = snapshot.access()
    trial._coherence.note(task, access)
    return access


def _trace(trial: Trial, place: int, access: Access = UNTOUCHED) -> None:
    """Record what a step touched, and what the attempt touched of the shared state."""
    if trial.trace is None:
        return
    touched = [TrialTouch("task", str(place), True), *trial.stage.touched()]
    touched += (TrialTouch("state", prefix_of(seen.what), False) for seen in access.reads)
    touched += (TrialTouch("state", put.key, True) for put in access.writes)
    trial.trace += ((place, one) for one in touched)
