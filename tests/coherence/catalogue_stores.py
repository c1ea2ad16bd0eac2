"""Stores that a task finds elsewhere, to show that the catalogue tells them from headway.

Each of them lets every task go on at once. What an attempt adds to a list is added when it is
published, so that no store loses it by reading first.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any, cast

from tests.coherence.catalogue_plays import Case, View


class SharedDict:
    """A dict that everybody writes into: what is put is there at once, for all."""

    def __init__(self, case: Case) -> None:
        self.aborts = 0
        self._data = case.start
        self._views: dict[int, View] = {task: Plain(self._data) for task in range(len(case.tasks))}

    def views(self) -> Mapping[int, View]:
        return self._views

    def finish(self, task: int, is_failed: bool) -> bool:
        del self._views[task]
        return False

    def state(self) -> dict[str, object]:
        return self._data


class LastWriter:
    """What is put is kept back and published when the task ends: the last one to end wins."""

    def __init__(self, case: Case) -> None:
        self.aborts = 0
        self._data = case.start
        self._buffered = {task: Buffered(self._data) for task in range(len(case.tasks))}

    def views(self) -> Mapping[int, View]:
        return self._buffered

    def finish(self, task: int, is_failed: bool) -> bool:
        view = self._buffered.pop(task)
        if not is_failed:
            view.publish(self._data)
        return False

    def state(self) -> dict[str, object]:
        return self._data


class SnapshotIsolation:
    """A task sees the state of its first step; of two that write the same, the second is refused.

    What is refused begins again, or is an error that is seen.
    """

    def __init__(self, case: Case, is_retried: bool) -> None:
        self.aborts = 0
        self._is_retried = is_retried
        self._data = case.start
        self._changed: dict[str, int] = {}
        """When each key was last written: the number of commits before it."""
        self._commits = 0
        self._since: dict[int, int] = {}
        self._views = {task: self._begin(task) for task in range(len(case.tasks))}

    def views(self) -> Mapping[int, View]:
        return self._views

    def _begin(self, task: int) -> Buffered:
        def first() -> dict[str, object]:
            self._since[task] = self._commits
            return copy.deepcopy(self._data)

        return Buffered(first)

    def finish(self, task: int, is_failed: bool) -> bool:
        view = self._views.pop(task)
        if is_failed:
            return False
        since = self._since.get(task, self._commits)
        if any(self._changed.get(key, -1) >= since for key in view.puts):
            if self._is_retried:
                self._views[task] = self._begin(task)
                return False
            self.aborts += 1
            return True
        view.publish(self._data)
        self._changed |= dict.fromkeys(view.puts, self._commits)
        self._commits += 1
        return False

    def state(self) -> dict[str, object]:
        return self._data


class Plain:
    """A dict itself; or what behaves like one, for those who say how it is listed."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def every(self) -> Mapping[str, object]:
        return cast("Mapping[str, object]", self.data)

    def get(self, key: str) -> object:
        return self.every().get(key)

    def scan(self, pattern: str) -> Mapping[str, object]:
        return {
            key: value
            for key, value in self.every().items()
            if value is not None and fnmatchcase(key, pattern)
        }

    def put(self, key: str, value: object) -> None:
        self.data[key] = value

    def add(self, key: str, value: object) -> None:
        before = self.get(key)
        self.put(key, [*(before if isinstance(before, list) else ()), value])

    def remove(self, key: str) -> None:
        self.data.pop(key, None)


class Buffered(Plain):
    """A dict, or what gives one at the first step, and over it what the task has put."""

    def __init__(self, data: dict[str, object] | Callable[[], dict[str, object]]) -> None:
        super().__init__(data)
        self.puts: dict[str, object] = {}
        """None is a key that was taken away."""
        self.adds: list[tuple[str, object]] = []

    def every(self) -> Mapping[str, object]:
        self._begin()
        return {**self.data, **self.puts}

    def put(self, key: str, value: object) -> None:
        self._begin()
        self.puts[key] = value

    def add(self, key: str, value: object) -> None:
        self._begin()
        self.adds.append((key, value))

    def remove(self, key: str) -> None:
        self._begin()
        self.puts[key] = None

    def _begin(self) -> None:
        if callable(self.data):
            self.data = self.data()

    def publish(self, data: dict[str, object]) -> None:
        direct = Plain(data)
        for key, value in self.puts.items():
            if value is None:
                direct.remove(key)
            else:
                direct.put(key, value)
        for key, value in self.adds:
            direct.add(key, value)
