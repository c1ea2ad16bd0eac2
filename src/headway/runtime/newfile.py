"""Puts a file where nothing is: whole, in one step, and never over what somebody else put there."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import Final

from headway.core.digest import digest
from headway.planfile.foreign import is_behind

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
    """Of what a file has; empty for a link, or what cannot be read."""
    return b"" if os.path.islink(path) else digest(_content(path))


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
