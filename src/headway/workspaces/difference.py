"""What an agent left in its workspace: files that differ, and commits that files do not show.

Everything here is read from files that an agent wrote: nothing of it is run or trusted.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final

from msgspec import Struct

from headway.errors import WorkspaceError
from headway.workspaces.repository import read_refs
from headway.workspaces.snapshot import KINDS, Listing, list_files

WHITEOUT: Final = os.makedev(0, 0)
"""A character device of this number hides a name of the layers below."""
PARTIAL: Final = ("trusted.overlay.redirect", "trusted.overlay.metacopy")
"""Marks of files whose content or place is in a layer below: mounts turn them off."""
OPAQUE: Final = ("user.overlay.opaque", "trusted.overlay.opaque")
ORIGIN_WHITEOUT: Final = ("user.overlay.whiteout", "trusted.overlay.whiteout")
LEFT_DETACHED: Final = re.compile(r"\tcheckout: moving from ([0-9a-f]{40,64}) to ")
MODULE: Final = "160000 "
"""How the entry of a submodule begins; the name of a commit follows."""
COMMIT: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


class FileDifference(Struct, frozen=True):
    present: list[str]
    """Files and links that were written, or only touched."""
    removed: list[str]
    left_out: dict[str, str]


def is_whiteout(found: os.stat_result) -> bool:
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == WHITEOUT


def read_upper(
    upper: str, at: Callable[[str], str | None], below: Callable[[str], Iterable[str]]
) -> FileDifference:
    """The difference in the upper layer of an overlay.

    `at` gives what stood at a path, `below` the paths that stood in a folder.
    """
    found = FileDifference([], [], {})
    _read_layer(upper, "", found, at, below)
    gone = set(found.removed)
    return FileDifference(found.present, sorted(gone.difference(found.present)), found.left_out)


def _read_layer(
    folder: str, prefix: str, found: FileDifference, at: Callable[[str], str | None],
    below: Callable[[str], Iterable[str]],
) -> None:  # fmt: skip
    if not _is_open(folder):
        os.chmod(folder, 0o700)  # An agent made it unreadable; it is thrown away soon.
    if prefix and any(_has_mark(folder, name) for name in OPAQUE):
        found.removed.extend(below(prefix[:-1]))
    with os.scandir(folder) as entries:
        for entry in entries:
            path = prefix + entry.name
            about = entry.stat(follow_symlinks=False)
            if any(_has_mark(entry.path, name, any_value=True) for name in PARTIAL):
                raise WorkspaceError(f"{entry.path} is not whole: its overlay was mounted wrongly")
            if is_whiteout(about) or _is_marked_out(entry.path, about):
                found.removed.extend(below(path))
                if at(path):
                    found.removed.append(path)
            elif stat.S_ISDIR(about.st_mode):
                if not (at(path) or MODULE).startswith(MODULE):
                    found.removed.append(path)
                _read_layer(entry.path, f"{path}/", found, at, below)
            elif kind := KINDS.get(stat.S_IFMT(about.st_mode)):
                found.left_out[path] = kind
                if at(path):
                    found.removed.append(path)
            else:
                _make_readable(entry.path, about)
                found.present.append(path)


def _is_open(folder: str) -> bool:
    return os.access(folder, os.R_OK | os.X_OK)


def _is_marked_out(path: str, about: os.stat_result) -> bool:
    is_empty = stat.S_ISREG(about.st_mode) and not about.st_size
    return is_empty and any(_has_mark(path, name) for name in ORIGIN_WHITEOUT)


def _has_mark(path: str, name: str, *, any_value: bool = False) -> bool:
    try:
        value = os.getxattr(path, name, follow_symlinks=False)
        return any_value or value in (b"y", b"")
    except (OSError, AttributeError):
        return False


def _make_readable(path: str, about: os.stat_result) -> None:
    if stat.S_ISREG(about.st_mode) and not about.st_mode & 0o400:
        os.chmod(path, stat.S_IMODE(about.st_mode) | 0o400)


def compare_copy(place: str, before: Listing) -> FileDifference:
    """The difference between a copy and what was listed when it was made."""
    while True:
        left_out: dict[str, str] = {}
        now = list_files(place, left_out, ())
        whole = [os.path.join(place, path) for path in left_out]
        closed = [path for path in whole if os.path.isdir(path) and not _is_open(path)]
        if not closed:
            break
        for path in closed:  # An agent made them unreadable; below may be more of them.
            os.chmod(path, 0o700)
    present = []
    for file, entry in now.items():
        if entry != before.get(file) and not stat.S_ISDIR(entry[0]):
            name = os.fsdecode(file)
            with suppress(FileNotFoundError):
                full = os.path.join(place, name)
                _make_readable(full, os.lstat(full))
                present.append(name)
    removed = [os.fsdecode(path) for path, entry in before.items()
               if not stat.S_ISDIR(entry[0])
               and (path not in now or stat.S_ISDIR(now[path][0]))]  # fmt: skip
    return FileDifference(present, removed, left_out)


def new_commits(
    own: str, lower: tuple[str, ...], known: frozenset[str]
) -> tuple[dict[str, str], str, set[str]]:
    """Commits that an agent made: by the name under which they are found, and the current one.

    `own` is the git folder, or the part of it that was written; `lower` are the folders that show
    through where it has nothing. The names of the set are those to tell a person: what else there
    is belongs to the current branch, or was replaced on purpose.
    """
    refs: dict[str, str] = {}
    for folder in (*reversed(lower), own):
        refs |= read_refs(folder)
    head = next(filter(None, (_text(folder, "HEAD") for folder in (own, *lower))), "").strip()
    current = refs.get(head.removeprefix("ref: "), "") if head.startswith("ref: ") else head
    found = {name: commit for name, commit in refs.items() if name != "refs/stash"}
    told = {name for name, commit in found.items() if commit != current}
    stashes = [line.split(" ")[1] for line in _text(own, "logs/refs/stash").splitlines()
               if line.count(" ") > 1]  # fmt: skip
    for number, commit in enumerate(reversed(stashes)):
        found[f"stash@{{{number}}}"] = commit
        told.add(f"stash@{{{number}}}")
    log = _text(own, "logs/HEAD")
    for line in log.splitlines():
        commit = line.split(" ")[1] if line.count(" ") > 1 else ""
        found.setdefault(f"log/{commit}", commit)
    for commit in LEFT_DETACHED.findall(log):
        found[f"detached/{commit}"] = commit
        told.add(f"detached/{commit}")
    found["HEAD"] = current
    kept = {name: commit for name, commit in found.items()
            if COMMIT.fullmatch(commit) and commit not in known and commit.strip("0")}  # fmt: skip
    return kept, current, told & kept.keys()


def start_commits(lower: tuple[str, ...]) -> frozenset[str]:
    """The commits that a workspace's git folders named when it began."""
    known: set[str] = set()
    for folder in lower:
        known.update(read_refs(folder).values())
        known.add(_text(folder, "HEAD").strip())
        known.update(line.split(" ")[1] for line in _text(folder, "logs/refs/stash").splitlines())
    return frozenset(filter(COMMIT.fullmatch, known))


def _text(folder: str, name: str) -> str:
    try:
        with open(os.path.join(folder, name), "rb") as file:
            return os.fsdecode(file.read())
    except OSError:
        return ""


def git_folder(tops: Iterable[str], root: str) -> str:
    """The git folder of a submodule, relative to the top of the view."""
    for top in tops:
        pointer = os.path.join(top, root, ".git")
        if os.path.isdir(pointer):
            return os.path.join(root, ".git")
        if text := _text(os.path.join(top, root), ".git"):
            target = text.strip().removeprefix("gitdir: ")
            return os.path.normpath(os.path.join(root, target))
    return ""


def encode_files(files: Mapping[str, str | None]) -> bytes:
    """Entries as bytes that tell one state of files from another."""
    lines = [os.fsencode(f"{entry or ''}\t{path}\0") for path, entry in sorted(files.items())]
    return b"".join(lines)


def decode_files(data: bytes) -> dict[str, str | None]:
    pairs = (os.fsdecode(line).partition("\t") for line in data.split(b"\0")[:-1])
    return {path: entry or None for entry, _, path in pairs}
