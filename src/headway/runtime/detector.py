"""Watches what the tasks of a run touch, and says at its end what they should have declared.

Laws:
- Watching changes nothing: a run with a detector does what it does without, unless it enforces.
- To enforce is to keep a task from what it does not declare, before it is done: what it does with
  the shared state, and with files in its own Python code. A command is judged when it has ended.
- Of each task its last result is judged; only of one that has none, what its failure touched.
- What was found is kept beside the journal, for whoever asks later.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Final, Literal, get_args

from headway.core.declaring import Learned, declarations
from headway.core.detect import (
    Declared,
    Done,
    Finding,
    Room,
    Touch,
    findings,
    is_allowed,
    said_of,
    touches_of,
)
from headway.core.engine.access import UNTOUCHED
from headway.core.engine.channels import Channels
from headway.core.plan.graph import Graph
from headway.core.plan.resources import SCHEME
from headway.core.slips import Handed, Whereabouts, across, aliased, merged, unsteady
from headway.core.values import Fault
from headway.errors import BadValueError, UndeclaredError, did_you_mean
from headway.runtime.context import Watch
from headway.runtime.filewatch import CURRENT, FileLog, folders_of, watch_files
from headway.runtime.foldertrace import FolderTrace, Trail
from headway.runtime.launch import Launch
from headway.runtime.subject import Subject, subject_of_graph
from headway.runtime.work import Attempt, AttemptError, Result, Work

Mode = Literal["warn", "enforce", "learn", "off"]
MODES: Final[tuple[Mode, ...]] = get_args(Mode)
FILE: Final = "findings.json"
KEPT_MAX: Final = 1_000
"""Findings that are kept of one run."""


@dataclass(slots=True)
class _Open:
    """An attempt that goes on."""

    group: int
    attempt: Attempt
    may: Declared
    files: FileLog | None = None
    trail: Trail | None = None
    handed: list[Handed] = field(default_factory=list)
    is_timed: bool = False


@dataclass(frozen=True, slots=True)
class DetectorStatistics:
    """How many attempts are watched now, and of how many tasks it is known what they touched."""

    open: int
    done: int


class Detector:
    """What the tasks of one run touch."""

    def __init__(self, mode: Mode, subject: Subject) -> None:
        self.mode = mode
        self.subject = subject
        self._folders = folders_of(subject.folder) if subject.folder else ()
        self._open: dict[int, _Open] = {}
        self._dones: dict[tuple[int, int], Done] = {}
        self._lost: dict[tuple[int, int], Done] = {}
        """Of attempts that failed."""
        self._found: list[Finding] = []
        """What is known before the end of the run."""
        self._written: set[str] = set()
        """Files that tasks have written."""
        self._outputs: set[str] = set()
        """Files that headway writes itself."""
        self._trace = _trace_of(mode, subject)
        if self._trace is not None:
            self._trace.is_ours = partial(_is_ours, self._open, self._outputs)

    def __repr__(self) -> str:
        return f"<Detector {self.mode} {self.statistics()}>"

    def statistics(self) -> DetectorStatistics:
        return DetectorStatistics(len(self._open), len(self._dones))

    def around(self, launch: Launch) -> Launch:
        """The run, watched."""
        subject, traces = self.subject, self._trace is not None
        seen = [_sees(subject, group, traces) for group in range(len(subject.graph))]
        if self.mode == "off" or not any(seen):
            return launch
        if self._folders and self.subject.functions:
            watch_files()
        works = tuple(
            WatchedWork(index, work, self) if seen[index] else work
            for index, work in enumerate(launch.works)
        )
        sharing = launch.sharing and replace(launch.sharing, watch=self.watch)
        trace = () if self._trace is None else (self._trace.aclose,)
        return replace(launch, works=works, sharing=sharing, closes=(*launch.closes, *trace))

    def watch(self, attempt: Attempt) -> Watch | None:
        """Whoever is told what an attempt does with the shared state."""
        opened = self._open.get(attempt.task)
        return None if opened is None else _StateWatch(opened, self.mode == "enforce")

    def begin(self, group: int, attempt: Attempt) -> _Open:
        """An attempt begins."""
        opened = _Open(group, attempt, self.subject.may(group, attempt.member))
        if self._folders and group in self.subject.functions:
            judge = _FileJudge(opened) if self.mode == "enforce" else None
            opened.files = FileLog(self._folders, self.subject.ignored, judge)
        if self._trace is not None and group in self.subject.commands:
            self._trace.begin(attempt.task, group, attempt.name, opened.may)
        self._open[attempt.task] = opened
        return opened

    def leave(self, opened: _Open) -> None:
        """An attempt is over, however it ended."""
        task = opened.attempt.task
        if self._open.get(task) is opened:
            del self._open[task]
        if self._trace is not None and opened.trail is None:
            self._trace.end(task)

    def end(self, opened: _Open, result: Result) -> None:
        """An attempt has a result. Raises AttemptError if it is not to be taken."""
        outputs = tuple(one for one in opened.may.outputs if not one.startswith(SCHEME))
        self._outputs.update(outputs)
        done = self._touched(opened)
        done = replace(done, calls=result.calls, paths_written=(*done.paths_written, *outputs))
        if self.mode == "enforce":
            _must_keep_to(opened, done, self._written, self.subject.ground.channels)
        self._found += _slips(opened, done, result, self.subject)
        self.note(done)

    def lose(self, opened: _Open) -> None:
        """An attempt has failed, perhaps because of what it touched."""
        self._lost[opened.group, opened.attempt.member] = self._touched(opened)

    def note(self, done: Done) -> None:
        """This is what a task has touched; with an earlier attempt of it this is compared."""
        if done.access == UNTOUCHED and not done.paths_read and not done.paths_written:
            return
        self._written.update(done.paths_written)
        place = (done.group, done.member)
        before = self._dones.get(place)
        if before is not None:
            self._found += unsteady((before,), (done,))
        self._dones[place] = done

    def findings(self, earlier: Iterable[Done] = ()) -> tuple[Finding, ...]:
        """Everything that was found; `earlier` is what tasks touched in another run."""
        dones = [self._dones[place] for place in sorted(self._dones)]
        every = {**self._lost, **self._dones}
        found = findings([every[place] for place in sorted(every)], self.subject.ground)
        unclear = _unclear(self._trace.unclear if self._trace is not None else {})
        unlike = across(earlier, dones)
        return merged((*found, *self._found, *unclear, *unlike))

    @property
    def problem(self) -> str:
        """Why something cannot be seen, if it cannot."""
        return "" if self._trace is None else self._trace.problem

    def knows(self, group: int, member: int) -> bool:
        """Whether it is known what a task touched."""
        return (group, member) in self._dones

    def learned(self) -> tuple[Learned, ...]:
        """What the plan should declare."""
        dones = [self._dones[place] for place in sorted(self._dones)]
        return declarations(dones, self.subject.ground)

    def _touched(self, opened: _Open) -> Done:
        """All that an attempt has touched so far."""
        attempt, snapshot = opened.attempt, opened.attempt.snapshot
        access = UNTOUCHED
        if snapshot is not None:
            with attempt.lock:
                access = snapshot.access()
        if self._trace is not None and opened.group in self.subject.commands:
            opened.trail = self._trace.end(attempt.task)
        read, written = _files(opened)
        return Done(
            opened.group, attempt.member, attempt.name, access, read, written, attempt.key,
            attempt.inputs, is_function=opened.group in self.subject.functions,
            is_timed=opened.is_timed,
        )  # fmt: skip


class WatchedWork:
    """A work whose attempts are watched; everything else is as it was."""

    def __init__(self, index: int, work: Work, detector: Detector) -> None:
        self._index = index
        self._work = work
        self._detector = detector
        self.name = work.name
        self.is_local = work.is_local
        self.is_idle_until_sent = work.is_idle_until_sent
        self.publishes = work.publishes
        self.timeout_s = work.timeout_s
        self.label = work.label
        self.key = work.key
        self.count = work.count
        self.publish = work.publish

    def __repr__(self) -> str:
        return f"<WatchedWork {self._work!r}>"

    def statistics(self) -> DetectorStatistics:
        return self._detector.statistics()

    async def perform(self, attempt: Attempt) -> Result:
        """Perform it, and take note of what it touches."""
        opened = self._detector.begin(self._index, attempt)
        token = CURRENT.set(opened.files)
        try:
            result = await self._work.perform(attempt)
            self._detector.end(opened, result)
        except AttemptError:
            self._detector.lose(opened)
            raise
        finally:
            CURRENT.reset(token)
            self._detector.leave(opened)
        return result


class _StateWatch:
    """Told by a context what its task is about to do."""

    __slots__ = ("_is_strict", "_opened")

    def __init__(self, opened: _Open, is_strict: bool) -> None:
        self._opened = opened
        self._is_strict = is_strict

    def __repr__(self) -> str:
        return f"<_StateWatch of {self._opened.attempt.name}>"

    def statistics(self) -> int:
        """How many values were handed over."""
        return len(self._opened.handed)

    def reads(self, what: str) -> None:
        if self._is_strict:
            must_be_allowed(self._opened.may, _touch(self._opened, "state", what, False))

    def writes(self, key: str) -> None:
        if self._is_strict:
            must_be_allowed(self._opened.may, _touch(self._opened, "state", key, True))

    def acts(self, channel: str, is_now: bool) -> None:
        del is_now  # Whenever it is done, it is declared or not.
        if self._is_strict:
            must_be_allowed(self._opened.may, _touch(self._opened, "effect", channel, True))

    def handed(self, every: Sequence[Handed], is_timed: bool) -> None:
        self._opened.is_timed = is_timed
        self._opened.handed += (one for one in every if one.after != one.before)


@dataclass(slots=True)
class _FileJudge:
    """Keeps a task from files that it does not declare."""

    opened: _Open

    def __call__(self, path: str, is_write: bool) -> None:
        must_be_allowed(self.opened.may, _touch(self.opened, "path", path, is_write))


def _sees(subject: Subject, group: int, traces: bool) -> bool:
    """Whether anything can be known of a group."""
    if subject.graph.groups[group].touches is not None:
        return True
    is_command = traces and group in subject.commands
    return is_command or (bool(subject.folder) and group in subject.functions)


def _is_ours(opened: Mapping[int, _Open], outputs: Collection[str], path: str) -> bool:
    """Whether a function touches a file now, or headway shows a result there."""
    logs = (one.files for one in opened.values() if one.files is not None)
    return path in outputs or any(path in log.read or path in log.written for log in logs)


def _must_keep_to(opened: _Open, done: Done, written: Collection[str], channels: Channels) -> None:
    """AttemptError if an attempt did what it does not declare, which nobody could prevent."""
    for touch in touches_of(done, channels):
        is_own = touch.is_loose and touch.what not in written
        if not is_own and not is_allowed(opened.may, touch):
            detail = _complaint(touch, said_of(opened.may, touch)).render()
            raise AttemptError(Fault("command", detail=detail))


def _trace_of(mode: Mode, subject: Subject) -> FolderTrace | None:
    """To watch a folder costs something: that is done where it is asked for."""
    if mode not in ("enforce", "learn") or not subject.folder or not subject.commands:
        return None
    return FolderTrace(subject.folder, subject.ignored)


def _files(opened: _Open) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The files that an attempt has read and written."""
    if opened.files is not None:
        return tuple(opened.files.read), tuple(opened.files.written)
    if opened.trail is None:
        return (), ()
    return opened.trail.read, opened.trail.written


def _slips(opened: _Open, done: Done, result: Result, subject: Subject) -> tuple[Finding, ...]:
    """Values of the shared state that an attempt changed in place."""
    if not opened.handed:
        return ()
    puts = [put.data for put in done.access.writes if put.data is not None]
    acts = [act.data for act in done.access.acts]
    item = subject.ground.item(done.group, done.member)
    return aliased(done.name, item, opened.handed, Whereabouts(puts, (*acts, result.body)))


def must_be_allowed(may: Declared, touch: Touch) -> None:
    """UndeclaredError if a task touches what it does not declare."""
    if not is_allowed(may, touch):
        raise _complaint(touch, said_of(may, touch))


def _complaint(touch: Touch, said: Sequence[str] | None = None) -> UndeclaredError:
    key = "writes" if touch.is_write else "reads"
    verb = "asks for" if touch.room == "effect" else key
    return UndeclaredError(
        f"`{touch.name}` {verb} `{touch.shown}` and does not declare it",
        detail=f"`{key}` has: {', '.join(said)}"[:200] if said else None,
        hint=f"add `{touch.shown}` to its `{key}`",
    )


def _unclear(written: Mapping[str, tuple[str, ...]]) -> Iterator[Finding]:
    """Files that one of several commands has written, none of which declares that."""
    for path, names in written.items():
        others = " or ".join(f"`{name}`" for name in names)
        words = f"{others} writes `{path}`, and none of them declares it"
        yield Finding("undeclared-write", names[0], path, names[1], words, f"writes: {path}")


def _touch(opened: _Open, room: Room, what: str, is_write: bool) -> Touch:
    attempt = opened.attempt
    return Touch(opened.group, attempt.member, attempt.name, room, what, is_write)


def detector_for(mode: Mode, graph: Graph, channels: Channels) -> Detector:
    """Whoever watches a run of Python functions. BadValueError if there is no such mode."""
    if mode not in MODES:
        raise BadValueError(f"`detect` cannot be `{mode}`", hint=did_you_mean(mode, MODES))
    return Detector(mode, subject_of_graph(graph, channels))


def keep_findings(folder: str, found: Sequence[Finding]) -> None:
    """Beside the journal; of a run that was clean, nothing."""
    path = os.path.join(folder, FILE)
    with suppress(OSError):  # A full disk does not make a run fail that went well.
        if not found:
            os.unlink(path)
            return
        with open(path, "w", encoding="utf-8", opener=_private) as file:
            json.dump([asdict(one) for one in found[:KEPT_MAX]], file)


def kept_findings(folder: str) -> tuple[Finding, ...]:
    """What was found in a run."""
    try:
        with open(os.path.join(folder, FILE), encoding="utf-8") as file:
            return tuple(Finding(**one) for one in json.load(file))
    except (OSError, ValueError, TypeError):
        return ()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
