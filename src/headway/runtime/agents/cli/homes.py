"""The folder of one agent's session: what it needs of the user's, and what is known of it.

Laws:
- What is known of a session is on the disk before its program is started, and is replaced whole.
- A home is the user's alone (0700). Logins in it are links, never copies.
- Nothing of one home is in another: siblings share what the user has, and that is read only.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from typing import Final

from headway.errors import StateFileError
from headway.wire.loose import Fields, parsed
from headway.wire.loose import fields as object_of

AGENTS: Final = "agents"
"""The folder of a run in which homes are."""
MARKER: Final = "session.json"
MARKER_BYTES_MAX: Final = 64 * 1024 * 1024
LINE_BYTES_MAX: Final = 32 * 1024 * 1024
"""Of a session's file: a reply with all that a tool gave."""


@dataclass(frozen=True, slots=True)
class Session:
    """What is known of a session, beside what its program keeps."""

    task: str
    """Its name as people read it."""
    key: str
    """The task's content key, in hexadecimal digits."""
    agent: str
    session: str
    prompt: str
    """The digest of what it was asked."""
    number: int = 1
    """How many sessions this home has had."""
    attempt: int = 0
    """The attempt that was last made in it."""
    said: str | None = None
    """The last answer: examined and perhaps not good enough, but not to be paid again."""
    repairs: int = 0
    """How often it was told what is wrong."""
    is_over: bool = False
    """Its answer was taken, or given up: nothing goes on in it."""
    microusd: int = 0
    """What its program said last that all of it cost."""


def home_of(run_folder: str, name: bytes) -> str:
    """Where the home is of a task that is given just this."""
    return os.path.join(run_folder, AGENTS, name.hex())


def save_session(home: str, session: Session) -> None:
    """Make durable what is known; raises StateFileError."""
    path = os.path.join(home, MARKER)
    try:
        os.makedirs(home, mode=0o700, exist_ok=True)
        write_private(f"{path}.draft", json.dumps(asdict(session)), is_durable=True)
        os.replace(f"{path}.draft", path)
        _sync(home)
        _sync(os.path.dirname(home))
    except OSError as fault:
        raise StateFileError(
            f"{path} cannot be written: {fault.strerror}",
            hint="an agent is not started before it can be found again",
        ) from None


def read_session(home: str) -> Session | None:
    """What is known of the last session in a home; nothing if nothing, or if it is spoilt."""
    try:
        with open(os.path.join(home, MARKER), "rb") as file:
            found = object_of(parsed(file.read(MARKER_BYTES_MAX)))
    except OSError:
        return None
    names = {one.name for one in fields(Session)}
    try:
        made = Session(**{name: value for name, value in found.items() if name in names})  # type: ignore[arg-type]
    except TypeError:
        return None
    texts = (made.task, made.key, made.agent, made.session, made.prompt, made.said or "")
    counts = (made.number, made.attempt, made.repairs, made.is_over, made.microusd)
    is_sound = all(isinstance(one, str) for one in texts)
    return made if is_sound and all(isinstance(one, int) for one in counts) else None


def sessions_of(run_folder: str) -> Iterator[tuple[str, Session]]:
    """Every home of a run, with what is known of its session."""
    folder = os.path.join(run_folder, AGENTS)
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        home = os.path.join(folder, name)
        if (found := read_session(home)) is not None:
            yield home, found


def empty_home(home: str) -> None:
    """Remove everything but what is known: a session that is over leaves no caches behind."""
    try:
        names = os.listdir(home)
    except OSError:
        return
    for name in names:
        path = os.path.join(home, name)
        if name == MARKER:
            continue
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):
                os.unlink(path)


def link_into(folder: str, own: str, names: tuple[str, ...]) -> None:
    """Links to some files of the user's, as far as they are there; their targets are the real
    ones, since a folder in between may be a throw-away one."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    for name in names:
        target, link = os.path.realpath(os.path.join(own, name)), os.path.join(folder, name)
        if os.path.islink(link):
            os.unlink(link)
        if os.path.exists(target) and not os.path.exists(link):
            os.symlink(target, link)


def copy_into(folder: str, source: str, name: str) -> None:
    """A configuration as it is now; the one of an earlier attempt leads to a door that is shut."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    try:
        with open(source, encoding="utf-8", errors="surrogateescape") as file:
            text = file.read()
    except OSError:
        return
    write_private(os.path.join(folder, name), text)


def write_private(path: str, text: str, *, is_durable: bool = False) -> None:
    """A file for nobody else's eyes from its first byte on."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with suppress(FileNotFoundError):
        os.unlink(path)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(handle, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
        if is_durable:
            file.flush()
            os.fsync(file.fileno())


def lines_in(path: str) -> Iterator[Fields]:
    """The JSON objects of a file that has one a line; what is none is passed over."""
    try:
        with open(path, "rb") as file:
            while line := file.readline(LINE_BYTES_MAX):
                found = object_of(parsed(line))
                if found:
                    yield found
    except OSError:
        return


def _sync(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
