"""Performs a plan's functions step by step in a copy of its folder, for `explore`.

Laws:
- A function stops before it looks at the shared state and before it opens a file, and goes on when
  its schedule says so. Between two such points no other task does anything.
- Every trial begins anew: the folder and the environment are as they were, and the modules in it
  are imported again, so that what tasks share there they share within one trial only.
- Nothing outside of the copy is written by accident, no connection made, no program started.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from inspect import isawaitable, signature
from queue import Empty, SimpleQueue
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from headway.agents.function import as_text, result_of
from headway.base.digest import digest
from headway.errors import InternalError, UsageError
from headway.plans.expand import GroupPlan
from headway.plans.sharing import targets_of
from headway.plans.spec import Python, Value, text_of
from headway.plans.template import Template
from headway.report import stage as trials
from headway.report.explore import ExploreSubject
from headway.run.reduce import reducer
from headway.run.tasks import arguments_of, function_of
from headway.state.context import Circumstances, Context, LocalReach
from headway.state.shared import Act, Channels, Reducer, Snapshot

# What the modules of a folder hold by themselves: which of it functions name, and change.

FINGERPRINT_CHARS: Final = 20_000
"""Of a value that is written out to be compared; what is behind is not looked at."""


class Globals:
    """Module-level values of the modules that are imported from one folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._known: dict[str, str] = {}

    def forget(self) -> None:
        for name, _ in list(self._modules()):
            del sys.modules[name]
        self._known = {}

    def changed(self) -> list[str]:
        """Values that are not as they were when this was last asked."""
        now = {
            f"{module_name}.{name}": _fingerprint(value)
            for module_name, module in self._modules()
            for name, value in list(vars(module).items())
            if not name.startswith("__") and _is_value(value)
        }
        changed = [name for name, text in now.items() if self._known.get(name, text) != text]
        self._known = now
        return changed

    def named_by(self, function: Callable[..., object]) -> list[str]:
        """Values that the code of a function names, or that of the folder's functions it names."""
        found: dict[str, None] = {}
        seen: set[int] = set()
        todo = [function]
        for one in todo:
            code = getattr(one, "__code__", None)
            if not isinstance(one, FunctionType) or not isinstance(code, CodeType):
                continue
            if id(code) in seen:
                continue
            seen.add(id(code))
            module = one.__globals__
            for name in _names(code):
                value = module.get(name)
                if isinstance(value, FunctionType):
                    todo.append(value)
                elif name in module and _is_value(value):
                    found[f"{module.get('__name__', '')}.{name}"] = None
        return list(found)

    def _modules(self) -> Iterator[tuple[str, ModuleType]]:
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if isinstance(file, str) and file.startswith(self._folder + "/"):
                yield name, module


def _is_value(value: object) -> bool:
    """Whether it can hold something that one task leaves for another."""
    return not isinstance(value, (ModuleType, FunctionType, BuiltinFunctionType, type)) and (
        type(value).__module__ not in ("typing", "__future__")
    )


def _fingerprint(value: object) -> str:
    try:
        own = getattr(value, "__dict__", None)
        return f"{value!r:.{FINGERPRINT_CHARS}}{own!r:.{FINGERPRINT_CHARS}}"
    except Exception as error:
        # The boundary: the user's own `__repr__`, which may do anything.
        return type(error).__name__


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


# Keeps functions that are only tried from the user's files, from the network and from programs.

_NETWORK: Final = frozenset(
    ("socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo",
     "socket.gethostbyname", "socket.gethostbyaddr")
)  # fmt: skip
_NONE: Final = 1 << 10
_PROGRAMS: Final = frozenset(
    ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork",
     "os.forkpty", "pty.spawn", "os.startfile")
)  # fmt: skip
_PATHS: Final[dict[str, tuple[tuple[int, int], ...]]] = {
    "os.remove": ((0, 1),), "os.rename": ((0, 2), (1, 3)), "os.mkdir": ((0, 2),),
    "os.rmdir": ((0, 1),), "os.chmod": ((0, 2),), "os.chown": ((0, 3),),
    "os.link": ((0, 2), (1, 3)), "os.symlink": ((0, 2), (1, 2)), "os.truncate": ((0, _NONE),),
    "os.utime": ((0, 3),), "os.setxattr": ((0, _NONE),), "os.removexattr": ((0, _NONE),),
    "shutil.rmtree": ((0, 1),), "sqlite3.connect": ((0, _NONE),),
}  # fmt: skip
"""Events about paths: which of their arguments are some, and which is the folder of each."""

_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CODE: Final = (".py", ".pyc", ".so", ".pyd")


class ConfinedError(PermissionError):
    """A function that is only tried may not do this."""


class Confines(Struct):
    """What functions may touch, and who is told of it."""

    folders: tuple[str, ...]
    opens: Callable[[str, bool], None]
    """Told of a file within the first folder before it is opened, and whether to be written."""
    owner: int = field(default_factory=threading.get_ident)

    def judge(self, event: str, arguments: tuple[object, ...]) -> None:
        """Refuse what a function must not do; tell of the files that it opens."""
        if event == "open":
            path, mode, flags = arguments
            if isinstance(path, (str, bytes)):
                self._open(os.fsdecode(path), str(mode or ""), flags)
        elif event in ("os.listdir", "os.scandir"):
            if isinstance(arguments[0], (str, bytes)):
                self._tell(os.path.realpath(os.fsdecode(arguments[0])), False)
        elif event in _NETWORK:
            raise ConfinedError("`headway explore` has no network: pass --no-python")
        elif event in _PROGRAMS:
            raise ConfinedError("`headway explore` starts no programs: pass --no-python")
        elif event == "os.chdir":
            raise ConfinedError("`headway explore` stays in its folder: pass --no-python")
        elif event in _PATHS:
            for at, folder_at in _PATHS[event]:
                path = arguments[at]
                if isinstance(path, (str, bytes, os.PathLike)) and path not in (":memory:", ""):
                    self._change(_within(os.fsdecode(path), arguments[folder_at : folder_at + 1]))

    def _open(self, path: str, mode: str, flags: object) -> None:
        is_write = bool(isinstance(flags, int) and flags & _WRITES) or any(
            letter in mode for letter in "wax+"
        )
        if is_write:
            self._change(path)
        elif not path.endswith(_CODE):
            self._tell(os.path.realpath(path), False)

    def _change(self, path: str) -> None:
        real = os.path.realpath(path)
        if real == os.devnull or "__pycache__" in real:
            return
        if not any(real.startswith(folder + os.sep) for folder in self.folders):
            raise ConfinedError(f"`headway explore` does not write {path}: outside of its copy")
        self._tell(real, True)

    def _tell(self, real: str, is_write: bool) -> None:
        folder = self.folders[0] + os.sep
        if real.startswith(folder) and "__pycache__" not in real:
            self.opens(real[len(folder) :], is_write)


def _within(path: str, folder: tuple[object, ...]) -> str:
    """A path from the folder that an open descriptor stands for, if there is one."""
    if folder in ((), (None,), (-1,)) or os.path.isabs(path):
        return path
    try:
        return os.path.join(os.readlink(f"/proc/self/fd/{folder[0]}"), path)
    except OSError:
        raise ConfinedError(f"`headway explore` cannot tell where {path} is: dir_fd") from None


_now: list[Confines] = []
_is_hooked: list[bool] = []


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if _now and threading.get_ident() != _now[0].owner:
        _now[0].judge(event, arguments)


@contextmanager
def confined(confines: Confines) -> Iterator[None]:
    """All other threads keep to this, for a while."""
    if _now:
        raise InternalError("two plans are explored at once")
    if not _is_hooked:
        # A hook cannot be taken away again: it does nothing while no task is confined.
        sys.addaudithook(_hook)
        _is_hooked.append(True)
    _now.append(confines)
    try:
        yield
    finally:
        _now.clear()


# A copy of a plan's folder in which functions can be tried: put back to how it was in no time.

FILES_MAX: Final = 5_000
BYTES_MAX: Final = 200 * 1024 * 1024
"""More takes longer to copy than anybody waits for."""

TEXT_BYTES_MAX: Final = 4_000
"""Of a file, what is shown and compared as text; of a larger one, its digest is."""

LEFT_OUT: Final = frozenset(
    (".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__", ".mypy_cache",
     ".ruff_cache", ".pytest_cache", ".tox")
)  # fmt: skip

_Stamp = tuple[int, int, int]


class Scratch:
    """Two copies of a folder: one to work in, one to put it back from."""

    def __init__(self, folder: str) -> None:
        self._home = os.path.realpath(tempfile.mkdtemp(prefix="headway-explore-"))
        self._kept = os.path.join(self._home, "kept")
        self.folder = os.path.join(self._home, "plan")
        self.temporary = os.path.join(self._home, "tmp")
        try:
            os.mkdir(self.temporary)
            _copy(folder, self._kept)
            shutil.copytree(self._kept, self.folder, symlinks=True)
        except BaseException:
            self.close()
            raise
        self._stamps = dict(_stamps(self.folder))

    def changes(self) -> dict[str, str | None]:
        """Files that are not as they were, and what is in them; None if they are gone."""
        now = dict(_stamps(self.folder))
        changed = [path for path, stamp in now.items() if self._stamps.get(path) != stamp]
        gone = self._stamps.keys() - now.keys()
        return {
            **{path: self.text(path) for path in sorted(changed)},
            **dict.fromkeys(sorted(gone)),
        }

    def text(self, path: str) -> str:
        with open(os.path.join(self.folder, path), "rb") as file:
            data = file.read()
        if len(data) <= TEXT_BYTES_MAX:
            return data.decode("utf-8", "replace")
        return f"{len(data):,} bytes {digest(data).hex()}"

    def write(self, path: str, text: str) -> bool:
        target = os.path.join(self.folder, path)
        if not path or os.path.isdir(target):
            return False
        try:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(target, "w", encoding="utf-8") as file:
                file.write(text)
        except (FileExistsError, NotADirectoryError):
            return False
        return True

    def reset(self) -> None:
        for path, text in self.changes().items():
            target, kept = os.path.join(self.folder, path), os.path.join(self._kept, path)
            if text is not None:
                os.remove(target)
            if os.path.lexists(kept):
                os.makedirs(os.path.dirname(target), exist_ok=True)
                shutil.copy2(kept, target, follow_symlinks=False)
                self._stamps[path] = _stamp(target)
        for path, folders, _ in os.walk(self.folder, topdown=False):
            for name in folders:
                inner = os.path.join(path, name)
                there = os.path.join(self._kept, os.path.relpath(inner, self.folder))
                if name not in LEFT_OUT and not os.path.isdir(there) and not os.listdir(inner):
                    os.rmdir(inner)

    def close(self) -> None:
        shutil.rmtree(self._home, ignore_errors=True)


def _copy(folder: str, target: str) -> None:
    files = size = 0
    for path, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in LEFT_OUT]
        there = os.path.join(target, os.path.relpath(path, folder))
        os.makedirs(there, exist_ok=True)
        for name in names:
            source = os.path.join(path, name)
            if not os.path.isfile(source):
                continue  # A pipe or a socket cannot be copied, and a broken link need not be.
            files, size = files + 1, size + os.path.getsize(source)
            if files > FILES_MAX or size > BYTES_MAX:
                raise UsageError(
                    "the plan's folder is too large to be copied for a trial of its functions",
                    where=folder, detail=f"more than {FILES_MAX:,} files or {BYTES_MAX:,} bytes",
                    hint="pass --no-python: functions then answer with a hash, like commands",
                )  # fmt: skip
            # What a link leads to is copied: no task writes through it.
            shutil.copy2(source, os.path.join(there, name))


def _stamps(folder: str) -> Iterator[tuple[str, _Stamp]]:
    todo = [folder]
    for path in todo:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in LEFT_OUT:
                        todo.append(entry.path)
                else:
                    yield os.path.relpath(entry.path, folder), _stamp(entry.path)


def _stamp(path: str) -> _Stamp:
    found = os.lstat(path)
    return found.st_ino, found.st_size, found.st_mtime_ns


STEP_S: Final = 30.0
"""A function that does not come to its next step by then hangs."""

_STOPPED: Final = object()


class _StoppedError(BaseException):
    """The attempt is not wanted any more; not an `Exception`, so that few catch it."""


class RehearsedStage(trials.HashedStage):
    """A world of real files, in which functions are called; all others answer with a hash."""

    __slots__ = ("_environment", "_functions", "_globals", "_now", "going", "scratch")

    def __init__(self, play: trials.Play, scratch: Scratch) -> None:
        super().__init__(play)
        self.scratch = scratch
        self.going: dict[int, CalledAttempt] = {}
        self._functions: dict[str, Callable[..., object]] = {}
        self._now: dict[str, list[str]] = {}
        self._globals = Globals(scratch.folder)
        self._environment = dict(os.environ)

    def begin(self, asked: trials.TrialAttempt) -> trials.Going:
        work = self.play.expanded.groups[asked.group].task.work
        if not isinstance(work, Python):
            return trials.HashedAttempt(self, asked)
        return CalledAttempt(self, asked, work.target)

    def look(self, path: str) -> tuple[tuple[str, str], ...]:
        found = {
            one: text if text is not None else "gone"
            for one, text in self.scratch.changes().items()
            if one == path or not path or one.startswith(path + "/")
        }
        return (*super().look(path), *found.items())

    def write(self, path: str, text: str) -> None:
        self.note(trials.TrialTouch("file", path, True))
        if not self.scratch.write(path, text):
            self.files.put(path, text)

    def note(self, touch: trials.TrialTouch) -> None:
        self._touched.append(touch)

    def act(self, act: Act) -> None:
        """An effect that is wanted now: noted, not performed."""
        self._now.setdefault(act.channel, []).append(act.data.decode())

    def touched(self) -> list[trials.TrialTouch]:
        changed = [trials.TrialTouch("variable", name, True) for name in self._globals.changed()]
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
            self.note(trials.TrialTouch("variable", name, False))
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

    def __init__(self, stage: RehearsedStage, asked: trials.TrialAttempt, target: str) -> None:
        self._stage = stage
        self._asked = asked
        self._target = target
        self._error: UsageError | None = None
        self._is_importing = True
        self._go: SimpleQueue[object] = SimpleQueue()
        self._back: SimpleQueue[trials.TrialResult | None] = SimpleQueue()
        self._one_at_a_time = threading.Lock()
        self._thread: threading.Thread | None = None
        self._done: trials.TrialResult | None = None
        self._saw: list[str] = []
        self._is_stopped = False

    def step(self) -> trials.TrialResult | None:
        """Let it go until it is about to look at something, or has ended."""
        if self._done is not None:
            return self._done
        self._stage.note(trials.TrialTouch(trials.PROCESS, "", True))
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
        self._saw.append(line)

    def _call(self) -> None:
        stage = self._stage
        ident = threading.get_ident()
        stage.going[ident] = self
        done = trials.TrialResult(b"")
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
            done = trials.TrialResult(b"", tuple(self._saw), text[:500])
        finally:
            del stage.going[ident]
        self._back.put(done)

    def _result(self, function: Callable[..., object]) -> trials.TrialResult:
        given, named = trial_arguments(self._stage.play, self._asked, function)
        told = [repr(one) for one in given] + [f"{name}={one!r}" for name, one in named.items()]
        self.saw(f"{self._asked.label}({', '.join(told)})"[:2000])
        snapshot = self._asked.snapshot
        if snapshot is not None and "ctx" in signature(function).parameters:
            label = self._asked.label
            at = Circumstances(label, self._asked.attempt, 0.0, digest(label.encode()))
            named["ctx"] = Context(PausedReach(self, snapshot, self._stage.act), at)
        value = function(*given, **named)
        if isawaitable(value):
            value = asyncio.run(_awaited(value))
        result = as_text(result_of(value))
        if not result.is_durable:
            raise TypeError(f"JSON cannot hold what it gave: {type(value).__name__}")
        return trials.TrialResult(result.body, ("\n".join(self._saw),))


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


def trial_arguments(
    play: trials.Play, asked: trials.TrialAttempt, function: Callable[..., object]
) -> tuple[list[object], dict[str, object]]:
    """What the function of a task is given, as a run gives it: by place, and by name."""
    expanded = play.at(asked.grown)
    group = expanded.groups[asked.group]
    member = group.known.member(asked.member)
    results = dict(asked.given)

    def result(name: str) -> str:
        index = next(one.index for one in expanded.groups if one.name == name)
        bodies = [body.decode("utf-8", "replace") for body in results[index]]
        return bodies[0] if len(bodies) == 1 else str(bodies)

    def variable(value: Template | Value) -> str:
        return group.fill(value, member, result) if isinstance(value, Template) else text_of(value)

    def bodies(index: int) -> list[bytes]:
        return list(results[index])

    return arguments_of(expanded, group, member, function, bodies, variable)


def calls_functions(groups: tuple[GroupPlan, ...]) -> bool:
    return any(isinstance(group.task.work, Python) for group in groups)


@contextmanager
def rehearsed(subject: ExploreSubject, folder: str) -> Iterator[ExploreSubject]:
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
            stages[0].note(trials.TrialTouch("file", name, is_write))

    try:
        os.chdir(scratch.folder)
        sys.path.insert(0, scratch.folder)
        tempfile.tempdir = scratch.temporary
        with confined(Confines((scratch.folder, scratch.temporary), opens)):
            reducers = _reducers(subject, scratch.folder)
            channels = Channels(subject.cast.channels.declared, reducers)
            yield replace(
                subject,
                cast=replace(subject.cast, stage=stage, is_copied=False, channels=channels),
            )  # fmt: skip
    finally:
        with suppress(OSError):
            os.chdir(here)
        sys.path[:], tempfile.tempdir = path, temporary
        Globals(scratch.folder).forget()
        scratch.close()


def _reducers(subject: ExploreSubject, folder: str) -> dict[str, Reducer]:
    """The functions that combine values, imported where they cannot do any harm."""
    found: dict[str, Reducer] = {}
    targets = targets_of(subject.expanded.spec, "reduce")
    for target in targets:
        with ThreadPoolExecutor(1) as thread:
            function = thread.submit(function_of, target, folder).result()
        found[target] = reducer(target, function)
    return found


async def _awaited(value: object) -> object:
    return await value  # type: ignore[misc]
