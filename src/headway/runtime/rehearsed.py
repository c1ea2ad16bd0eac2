"""Tries a plan's functions: really called, step by step, in a copy of the plan's folder.

Laws:
- A function stops before it looks at the shared state and before it opens a file, and goes on when
  its schedule says so. Between two such points nobody else does anything.
- Every trial begins anew: the folder and the environment are as they were, and the modules in it
  are imported again, so that what tasks share there they share within one trial only.
- Nothing outside of the copy is written by accident, no connection made, no program started.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from inspect import isawaitable, signature
from queue import Empty, SimpleQueue
from typing import Final

from headway.core.digest import digest
from headway.core.engine.access import Act
from headway.core.engine.channels import Channels, Reducer
from headway.core.engine.snapshot import Snapshot
from headway.core.foresight.oracle import HashedAttempt, HashedStage, Play
from headway.core.foresight.stage import PROCESS, Asked, Done, Going, Touch
from headway.core.foresight.subject import Subject
from headway.core.plan.expand import GroupPlan
from headway.core.plan.sharing import channels_of
from headway.core.plan.spec import Python, plain, text_of
from headway.core.plan.template import Template
from headway.errors import UsageError
from headway.runtime.agents.function import as_text, result_of, takes
from headway.runtime.confine import Confines, confined
from headway.runtime.context import Circumstances, Context, LocalReach
from headway.runtime.filling import value_in
from headway.runtime.globals import Globals
from headway.runtime.planwork import function_of
from headway.runtime.reducers import reducer
from headway.runtime.scratch import Scratch

STEP_S: Final = 30.0
"""A function that does not come to its next step by then hangs."""

_STOPPED: Final = object()


class _StoppedError(BaseException):
    """The attempt is not wanted any more; not an `Exception`, so that few catch it."""


class RehearsedStage(HashedStage):
    """A world of real files, in which functions are called; all others answer with a hash."""

    __slots__ = ("_environment", "_functions", "_globals", "_now", "going", "scratch")

    def __init__(self, play: Play, scratch: Scratch) -> None:
        super().__init__(play)
        self.scratch = scratch
        self.going: dict[int, CalledAttempt] = {}
        """Attempts by the thread that they run in."""
        self._functions: dict[str, Callable[..., object]] = {}
        self._now: dict[str, list[str]] = {}
        self._globals = Globals(scratch.folder)
        self._environment = dict(os.environ)

    def begin(self, asked: Asked) -> Going:
        work = self.play.expanded.groups[asked.group].task.work
        if not isinstance(work, Python):
            return HashedAttempt(self, asked)
        return CalledAttempt(self, asked, work.target)

    def look(self, path: str) -> tuple[tuple[str, str], ...]:
        found = {
            one: text if text is not None else "gone"
            for one, text in self.scratch.changes().items()
            if one == path or not path or one.startswith(path + "/")
        }
        return (*super().look(path), *found.items())

    def write(self, path: str, text: str) -> None:
        self.note(Touch("file", path, True))
        if not self.scratch.write(path, text):
            self.files.put(path, text)

    def note(self, touch: Touch) -> None:
        """Something was touched."""
        self._touched.append(touch)

    def act(self, act: Act) -> None:
        """An effect that is wanted now: noted, not performed."""
        self._now.setdefault(act.channel, []).append(act.data.decode())

    def touched(self) -> list[Touch]:
        changed = [Touch("variable", name, True) for name in self._globals.changed()]
        return [*super().touched(), *changed]

    def world(self) -> Mapping[str, str]:
        real = {path: "gone" if text is None else text for path, text in
                self.scratch.changes().items()}  # fmt: skip
        now = {f"{channel} (at once)": ", ".join(data) for channel, data in self._now.items()}
        return {**self.files.texts, **real, **now}

    def function(self, target: str) -> Callable[..., object]:
        """The function of a task, imported once in every trial; what its code names is noted."""
        if target not in self._functions:
            self._functions[target] = function_of(target, self.scratch.folder)
            self._globals.changed()
        function = self._functions[target]
        for name in self._globals.named_by(function):
            self.note(Touch("variable", name, False))
        return function

    def restart(self) -> None:
        for attempt in list(self.going.values()):
            attempt.stop()
        self._globals.forget()
        self._functions = {}
        if os.environ != self._environment:
            os.environ.clear()
            os.environ.update(self._environment)

    def close(self) -> None:
        self.restart()
        self.scratch.reset()


class CalledAttempt:
    """A call of the user's function in a thread of its own, which goes when it is told to."""

    def __init__(self, stage: RehearsedStage, asked: Asked, target: str) -> None:
        self._stage = stage
        self._asked = asked
        self._target = target
        self._error: UsageError | None = None
        self._is_importing = True
        self._go: SimpleQueue[object] = SimpleQueue()
        self._back: SimpleQueue[Done | None] = SimpleQueue()
        self._one_at_a_time = threading.Lock()
        self._thread: threading.Thread | None = None
        self._done: Done | None = None
        self._saw: list[str] = []
        self._is_stopped = False

    def __repr__(self) -> str:
        return f"<CalledAttempt of {self._asked.label}>"

    def statistics(self) -> bool:
        """Whether it goes on."""
        return self._thread is not None and self._thread.is_alive()

    def step(self) -> Done | None:
        """Let it go until it is about to look at something, or has ended."""
        if self._done is not None:
            return self._done
        self._stage.note(Touch(PROCESS, "", True))
        if self._thread is None:
            self._thread = threading.Thread(target=self._call, daemon=True)
            self._thread.start()
        else:
            self._go.put(None)
        try:
            done = self._back.get(timeout=STEP_S)
        except Empty:
            raise UsageError(
                f"`{self._asked.label}` does not come to its next step in {STEP_S:.0f} s",
                hint="pass --no-python: functions then answer with a hash, like commands",
            ) from None
        if done is None:
            return None
        self._thread.join()
        if self._error is not None:
            raise self._error
        self._done = done  # It is said in a step of its own: others can come before.
        return None

    def stop(self) -> None:
        """End it where it is."""
        if self._thread is not None and self._thread.is_alive():
            self._is_stopped = True
            self._go.put(_STOPPED)
            self._thread.join(STEP_S)

    def pause(self) -> None:
        """Called by the function's own threads: wait until the schedule lets it go on."""
        if self._is_stopped:
            raise _StoppedError
        if self._is_importing:
            return  # Others may wait for the same module.
        with self._one_at_a_time:
            self._back.put(None)
            if self._go.get() is _STOPPED:
                raise _StoppedError

    def saw(self, line: str) -> None:
        """Something that its result may be made of."""
        self._saw.append(line)

    def _call(self) -> None:
        stage = self._stage
        ident = threading.get_ident()
        stage.going[ident] = self
        done = Done(b"")
        try:
            function = stage.function(self._target)
            self._is_importing = False
            done = self._result(function)
        except _StoppedError:
            return
        except UsageError as error:
            self._error = error
        # The user's code may raise anything, and `sys.exit` ends a task, not the trial.
        except (Exception, SystemExit) as error:
            text = f"{type(error).__name__}: {error}".replace(stage.scratch.folder, ".")
            done = Done(b"", tuple(self._saw), text[:500])
        finally:
            del stage.going[ident]
        self._back.put(done)

    def _result(self, function: Callable[..., object]) -> Done:
        given, named = arguments_of(self._stage.play, self._asked, function)
        told = [repr(one) for one in given] + [f"{name}={one!r}" for name, one in named.items()]
        self.saw(f"{self._asked.label}({', '.join(told)})"[:2000])
        snapshot = self._asked.snapshot
        if snapshot is not None and "ctx" in signature(function).parameters:
            named["ctx"] = self._context(snapshot)
        value = function(*given, **named)
        if isawaitable(value):
            value = asyncio.run(_awaited(value))
        result = as_text(result_of(value))
        if not result.is_durable:
            raise TypeError(f"JSON cannot hold what it gave: {type(value).__name__}")
        return Done(result.body, ("\n".join(self._saw),))

    def _context(self, snapshot: Snapshot) -> Context:
        asked = self._asked
        reach = PausedReach(self, snapshot, self._stage.act)
        at = Circumstances(asked.label, asked.attempt, 0.0, digest(asked.label.encode()))
        return Context(reach, at)


class PausedReach(LocalReach):
    """The shared state for a function that stops before every look at it."""

    __slots__ = ("_attempt",)

    def __init__(
        self, attempt: CalledAttempt, snapshot: Snapshot, act: Callable[[Act], None]
    ) -> None:
        self._attempt = attempt
        super().__init__(snapshot, threading.RLock(), perform=lambda one, _: act(one))

    def get(self, key: str) -> bytes | None:
        self._attempt.pause()
        data = super().get(key)
        self._attempt.saw(f"state {key}: {'' if data is None else data.decode()}"[:2000])
        return data

    def scan(self, pattern: str) -> list[tuple[str, bytes]]:
        self._attempt.pause()
        found = super().scan(pattern)
        for key, data in found:
            self._attempt.saw(f"state {key}: {data.decode()}"[:2000])
        return found


def arguments_of(
    play: Play, asked: Asked, function: Callable[..., object]
) -> tuple[list[object], dict[str, object]]:
    """What the function of a task is given, as a run gives it: by place, and by name."""
    expanded = play.at(asked.grown)
    group = expanded.groups[asked.group]
    member = group.known.member(asked.member)
    results = dict(asked.given)
    given: list[object] = [] if group.known.items is None else [plain(member.item)]
    for edge in group.edges:
        if edge.key != "reads":
            values = [value_in(body) for body in results[edge.group]]
            is_one = edge.memberwise or not expanded.groups[edge.group].task.is_group
            given.append(values[0] if is_one else values)
    named = {name: plain(value) for name, value in member.matrix}

    def result(name: str) -> str:
        index = next(one.index for one in expanded.groups if one.name == name)
        bodies = [body.decode("utf-8", "replace") for body in results[index]]
        return bodies[0] if len(bodies) == 1 else str(bodies)

    own = {name for name, _ in group.task.vars}
    for name, value in group.vars.items():
        if name in named or not (name in own or takes(function, name)):
            continue
        if isinstance(value, Template):
            named[name] = group.fill(value, member, result)
        else:
            named[name] = text_of(value)
    return given, named


def calls_functions(groups: tuple[GroupPlan, ...]) -> bool:
    """Whether a plan has functions to be called."""
    return any(isinstance(group.task.work, Python) for group in groups)


@contextmanager
def rehearsed(subject: Subject, folder: str) -> Iterator[Subject]:
    """The plan with its functions really called, in a copy of its folder."""
    scratch = Scratch(folder)
    here, path, temporary = os.getcwd(), list(sys.path), tempfile.tempdir
    stages: list[RehearsedStage] = []

    def stage() -> RehearsedStage:
        stages[:] = [RehearsedStage(subject.play, scratch)]
        return stages[0]

    def opens(name: str, is_write: bool) -> None:
        attempt = stages[0].going.get(threading.get_ident()) if stages else None
        if attempt is not None:
            attempt.pause()
            stages[0].note(Touch("file", name, is_write))

    try:
        os.chdir(scratch.folder)
        sys.path.insert(0, scratch.folder)
        tempfile.tempdir = scratch.temporary
        with confined(Confines((scratch.folder, scratch.temporary), opens)):
            reducers = _reducers(subject, scratch.folder)
            channels = Channels(subject.cast.channels.declared, reducers)
            yield replace(
                subject, is_slow=True,
                cast=replace(subject.cast, stage=stage, is_copied=False, channels=channels),
            )  # fmt: skip
    finally:
        with suppress(OSError):
            os.chdir(here)
        sys.path[:], tempfile.tempdir = path, temporary
        Globals(scratch.folder).forget()
        scratch.close()


def _reducers(subject: Subject, folder: str) -> dict[str, Reducer]:
    """The functions that combine values, imported where they cannot do any harm."""
    found: dict[str, Reducer] = {}
    targets = channels_of(subject.expanded.spec).reducers
    for target in targets:
        with ThreadPoolExecutor(1) as thread:
            function = thread.submit(function_of, target, folder).result()
        found[target] = reducer(target, function)
    return found


async def _awaited(value: object) -> object:
    return await value  # type: ignore[misc]
