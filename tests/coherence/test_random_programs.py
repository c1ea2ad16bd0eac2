"""Any program, any schedule: what is left is what the serial run leaves. The engine itself."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from headway.base.values import Fault
from headway.engine.engine import Step, begin, step
from headway.engine.events import (
    Abandon,
    Abandoned,
    Began,
    Failed,
    Finished,
    Input,
    Release,
    StartAttempt,
    TaskFailed,
    TaskFinished,
    TaskSkipped,
)
from headway.engine.state import Rules, State
from headway.engine.strategy import ALL_AT_ONCE
from headway.state.coherence import Coherence
from headway.state.shared import Shared, Snapshot
from tests.coherence.programs import CHANNELS, Left, Programs, drawn, serial, state_of, steps

RUNS_MAX = 4
"""A task runs so often at most, whatever it reads."""


@dataclass
class Stage:
    """A run whose attempts take turns as somebody decides."""

    programs: Programs
    rng: random.Random
    shared: Shared = field(default_factory=lambda: Shared(CHANNELS))
    live: dict[int, tuple[int, Snapshot, Iterator[bytes]]] = field(default_factory=dict)
    seen: dict[int, bytes] = field(default_factory=dict)
    ends: dict[int, str] = field(default_factory=dict)
    effects: list[tuple[int, bytes]] = field(default_factory=list)
    runs: dict[int, int] = field(default_factory=dict)
    later: list[Input] = field(default_factory=list)
    hung: int | None = None
    """A task that never takes another step once it has started."""
    state: State = field(init=False)
    coherence: Coherence = field(init=False)

    def play(self) -> Left:
        """Until nobody moves any more, one step of one attempt after another, in any order."""
        graph = self.programs.graph
        self.coherence = Coherence(graph, self.shared)
        self.state = begin(graph, Rules(strategy=ALL_AT_ONCE), self.coherence)
        self._take(step(self.state, Began(), 0.0))
        while not self.state.over:
            if self.later:
                self._take(step(self.state, self.later.pop(), 0.0))
                continue
            movable = [task for task in self.live if task != self.hung]
            if not movable:
                assert self.hung in self.live, "nobody moves, and it is not over"
                break
            self._move(self.rng.choice(movable))
        return Left(self.ends, state_of(self.shared), tuple(self.effects))

    def _move(self, task: int) -> None:
        attempt, snapshot, moves = self.live[task]
        try:
            self.seen[task] = next(moves)
            return
        except StopIteration:
            end: Input = Finished(task, attempt)
        except ValueError as stumbled:
            end = Failed(task, attempt, Fault("function", detail=str(stumbled)))
        del self.live[task]
        self.coherence.note(task, snapshot.access())
        self._take(step(self.state, end, 0.0))

    def _take(self, taken: Step) -> None:
        for event in taken.events:
            if isinstance(event, TaskFinished):
                self.ends[event.task] = f"done {self.seen[event.task].hex()}"
            elif isinstance(event, TaskFailed):
                self.ends[event.task] = f"failed {event.fault.detail}"
            elif isinstance(event, TaskSkipped):
                self.ends[event.task] = "skipped"
        for effect in taken.effects:
            if isinstance(effect, StartAttempt):
                self._start(effect)
            elif isinstance(effect, Release):
                self.effects += [(effect.task, act.data) for act in effect.acts]
            elif isinstance(effect, Abandon) and self.rng.random() < 0.7:
                # What cannot be ended in the middle goes on in vain.
                attempt, snapshot, _ = self.live.pop(effect.task)
                self.coherence.note(effect.task, snapshot.access())
                self.later.append(Abandoned(effect.task, attempt))

    def _start(self, effect: StartAttempt) -> None:
        task = effect.task
        snapshot = self.coherence.snapshot(task)
        assert snapshot is not None
        self.runs[task] = self.runs.get(task, 0) + 1
        moves = steps(self.programs.ops[task], snapshot, self.programs.named(task))
        self.live[task] = (effect.attempt, snapshot, moves)


def must_be_serial(seed: int, tasks_max: int = 6) -> int:
    """One program under one schedule; how many attempts were for nothing."""
    rng = random.Random(seed)
    programs = drawn(rng, is_declared=seed % 2 == 0, tasks_max=tasks_max)
    stage = Stage(programs, rng)
    left, wanted = stage.play(), serial(programs)
    assert left == wanted, f"seed {seed}"
    assert max(stage.runs.values(), default=0) <= RUNS_MAX, f"seed {seed}"
    return sum(stage.runs.values()) - len(stage.runs)


@pytest.mark.parametrize("first", range(0, 4000, 1000))
def test_every_schedule_of_every_program_leaves_what_the_serial_run_leaves(first: int) -> None:
    wasted = sum(map(must_be_serial, range(first, first + 1000)))
    assert wasted > 100  # Otherwise nothing was at stake.


def test_what_is_declared_wrongly_fails_or_does_no_harm() -> None:
    refusals = 0
    for seed in range(3000):
        rng = random.Random(seed)
        programs = drawn(rng, is_declared=True, lies=0.4)
        left = Stage(programs, rng).play()
        refused = {task: end for task, end in left.ends.items() if "without declaring" in end}
        refusals += len(refused)
        assert left == serial(programs, refused), f"seed {seed}"
    assert refusals > 50


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, 100_000, 10_000))
def test_a_hundred_thousand_programs_leave_what_the_serial_run_leaves(first: int) -> None:
    wasted = sum(must_be_serial(seed, 6 + seed % 7) for seed in range(first, first + 10_000))
    assert wasted > 1000


def test_with_reads_that_are_not_validated_programs_leave_something_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The test can fail: a state that never notices a change is found out at once."""
    monkeypatch.setattr(Shared, "changed", lambda *_: None)
    with pytest.raises(AssertionError, match="seed"):
        sum(map(must_be_serial, range(200)))
