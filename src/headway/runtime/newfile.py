"""Puts results under their paths: whole, in one step, within the plan's folder.

A plan of another author replaces only files that its own run has written.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import Final

from headway.core.digest import digest
from headway.planfile.foreign import is_behind
from headway.runtime.agents.tools_files import Place, replace_file

LEADS_OUT: Final = "a link leads out of the plan's folder; --outside allows that"

NAME_BYTES_MAX: Final = 255
"""Of a file's name, by nearly every file system."""

SHOWN: Final = "shown"
"""In a run's folder: by path, the digest of what the run put there last."""


def write_new(path: str, content: bytes, may_replace: bool = False) -> None:
    """Write a file; FileExistsError if something is at its path, unless that may be replaced."""
    folder, name = os.path.split(path)
    draft = os.path.join(folder, f".{name}.{os.getpid()}")
    with suppress(FileNotFoundError):
        os.unlink(draft)  # Of a process that had our number and was killed.
    try:
        with open(draft, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if may_replace:
            os.replace(draft, path)
        else:
            _link(draft, path)
    finally:
        with suppress(OSError):
            os.unlink(draft)


def put_within(folder: str, path: str, body: bytes | None, may_leave: bool = False) -> None:
    """Replace a file of a folder; without a body, only raise what would keep that from working.

    OSError if a link leads out of the folder, unless it may. The way is looked at when the file is
    written, and each folder on it is opened without following links: no change of a link meanwhile
    leads elsewhere.
    """
    root, parts = _way(folder, path, may_leave)
    if body is None:
        _must_be_possible(root, parts)
        return
    with Place(root).opened(parts[:-1], makes=True) as opened:
        replace_file(opened, parts[-1], body)


def _way(folder: str, path: str, may_leave: bool) -> tuple[str, tuple[str, ...]]:
    """The folder to begin in, and the names from there on: none is a link."""
    root = os.path.realpath(folder)
    real = os.path.realpath(os.path.join(root, path))
    is_inside = real.startswith(root.rstrip("/") + "/")
    if not is_inside and not may_leave:
        raise OSError(errno.EPERM, LEADS_OUT)
    if not is_inside:
        root = "/"
    return root, tuple(part for part in real[len(root) :].split("/") if part)


def _must_be_possible(root: str, parts: tuple[str, ...]) -> None:
    """Look, and change nothing: a task may want to make these folders itself."""
    whole = os.path.join(root, *parts)
    if not parts or os.path.isdir(whole):
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    if os.path.exists(whole) and not os.path.isfile(whole):
        raise OSError(errno.EINVAL, "it is not a file")
    above = os.path.dirname(whole)
    if max(len(os.fsencode(part)) for part in parts) > NAME_BYTES_MAX:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    if not os.path.isdir(above):
        raise NotADirectoryError(errno.ENOTDIR, f"{os.path.relpath(above, root)} is not a folder")
    if not os.access(above, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, f"no permission to write to {above}")


def publish_new(folder: str, run_folder: str, path: str, body: bytes) -> None:
    """Show a result in a plan's folder where nothing is, or where this run has put one before.

    A plan that somebody else wrote was judged when its run began; since then the user, or another
    run, may have been there.
    """
    root = os.path.realpath(folder)
    if is_behind(root, path):
        raise OSError(errno.ELOOP, f"a link, or a file, is on the way to {path}")
    whole = os.path.join(root, path)
    mark = os.path.join(run_folder, SHOWN, digest(path.encode()).hex())
    os.makedirs(os.path.dirname(whole), exist_ok=True)
    os.makedirs(os.path.dirname(mark), mode=0o700, exist_ok=True)
    try:
        write_new(whole, body)
    except FileExistsError:
        there = _digest(whole)
        if not there or there not in (digest(body), _content(mark)):
            raise OSError(errno.EEXIST, f"{path} is there already, and is not this run's") from None
        write_new(whole, body, may_replace=True)
    write_new(mark, digest(body), may_replace=True)


def _link(draft: str, path: str) -> None:
    try:
        os.link(draft, path)
    except FileExistsError:
        raise
    except OSError:
        # Some disks have no links: the name is taken first, and what is under it replaced.
        with open(path, "xb"):
            os.replace(draft, path)


def _digest(path: str) -> bytes:
    """Of what a file has; empty for a link, a pipe, or what cannot be read."""
    is_file = os.path.isfile(path) and not os.path.islink(path)
    return digest(_content(path)) if is_file else b""


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
