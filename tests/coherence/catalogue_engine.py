"""headway's own engine as a store: the harness drives it as a run does, one step at a time."""

from __future__ import annotations

import json
from collections.abc import Mapping

from headway.base.values import Fault
from headway.engine.engine import Step, begin, step
from headway.engine.events import (
    Abandon,
    Abandoned,
    Began,
    Failed,
    Finished,
    StartAttempt,
    TaskFailed,
    TaskStale,
)
from headway.engine.state import Rules
from headway.engine.strategy import ALL_AT_ONCE
from headway.plans.graph import Graph, TaskGroup
from headway.plans.resources import ANYTHING, Channel, Touches, channel_of, prefix_of
from headway.state.coherence import Coherence
from headway.state.shared import Channels, Shared, Snapshot, canonical
from tests.coherence.catalogue_plays import Case, Task, View


class Engine:
    """A run of the engine, with what its tasks declare or without.

    An attempt that is to be abandoned is ended at once, or, if the agent cannot be stopped, goes
    on to its end.
    """

    judging: type[Coherence] = Coherence

    def __init__(self, case: Case, is_declared: bool = False, is_stoppable: bool = True) -> None:
        self.aborts = 0
        """Attempts that failed although their program did not."""
        self.reran = 0
        self._is_stoppable = is_stoppable
        channels = Channels({key: _channel(kind) for key, kind in case.channels.items()})
        initial = {key: canonical(value) for key, value in case.start.items()}
        self._shared = Shared(channels, initial)
        graph = Graph([_group(task, is_declared) for task in case.tasks])
        self._coherence = self.judging(graph, self._shared)
        self._run = begin(graph, Rules(strategy=ALL_AT_ONCE), self._coherence)
        self._views: dict[int, _SnapshotView] = {}
        self._own_failures: set[int] = set()
        self._take(step(self._run, Began(), 0.0))

    def __repr__(self) -> str:
        return f"<Engine {self._coherence}>"

    def views(self) -> Mapping[int, View]:
        return self._views

    def finish(self, task: int, is_failed: bool) -> bool:
        view = self._views.pop(task)
        self._coherence.note(task, view.snapshot.access())
        if is_failed:
            self._own_failures.add(task)
            fault = Fault("function", detail="it failed by its own decision")
            self._take(step(self._run, Failed(task, view.attempt, fault), 0.0))
        else:
            self._own_failures.discard(task)
            self._take(step(self._run, Finished(task, view.attempt), 0.0))
        return False

    def state(self) -> dict[str, object]:
        found = self._shared.matching("**", 1 << 60)
        return {key: json.loads(data) for key, data, _ in found}

    def _take(self, taken: Step) -> None:
        for event in taken.events:
            if isinstance(event, TaskStale):
                self.reran += 1
            elif isinstance(event, TaskFailed):
                self.aborts += event.task not in self._own_failures
        for effect in taken.effects:
            if isinstance(effect, StartAttempt):
                snapshot = self._coherence.snapshot(effect.task)
                assert snapshot is not None
                self._views[effect.task] = _SnapshotView(snapshot, effect.attempt)
            elif isinstance(effect, Abandon) and self._is_stoppable:
                view = self._views.pop(effect.task)
                self._coherence.note(effect.task, view.snapshot.access())
                self._take(step(self._run, Abandoned(effect.task, view.attempt), 0.0))


class _SnapshotView:
    def __init__(self, snapshot: Snapshot, attempt: int) -> None:
        self.snapshot = snapshot
        self.attempt = attempt

    def get(self, key: str) -> object:
        data = self.snapshot.get(key)
        return None if data is None else json.loads(data)

    def scan(self, pattern: str) -> Mapping[str, object]:
        return {key: json.loads(data) for key, data in self.snapshot.scan(pattern)}

    def put(self, key: str, value: object) -> None:
        self.snapshot.put(key, value)

    def add(self, key: str, value: object) -> None:
        self.snapshot.add(key, value)

    def remove(self, key: str) -> None:
        self.snapshot.remove(key)


def _channel(kind: str) -> Channel:
    found = channel_of(kind)
    assert isinstance(found, Channel)
    return found


def _group(task: Task, is_declared: bool) -> TaskGroup:
    touches = ANYTHING
    if is_declared:
        reads = tuple(dict.fromkeys(map(prefix_of, task.reads)))
        writes = tuple(dict.fromkeys(map(prefix_of, task.writes)))
        touches = Touches(reads, writes, ())
    return TaskGroup(task.name, 1, retries=0, touches=touches)
