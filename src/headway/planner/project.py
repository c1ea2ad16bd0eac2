"""The files of a project by name, as far as a planner is told of them: no contents.

Laws:
- What git ignores, what is hidden and what may hold a key is not named.
- Nothing that a repository's own configuration names is executed.
- At most so many names, and of a longer list it is said how long it is.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headway.core.plan.sensitive import unreadable
from headway.errors import BadValueError
from headway.planfile.folder import Folder, UnusableError

NAMES_MAX: Final = 400
NAMES_CHARS_MAX: Final = 20_000
"""What a planner reads of them: about 6,000 tokens."""

NAME_CHARS_MAX: Final = 200
VISITS_MAX: Final = 20_000
"""Files that are looked at where there is no git."""

GIT_S_MAX: Final = 10.0
GIT_BYTES_MAX: Final = 20_000_000
LEFT_OUT: Final = frozenset(("node_modules", "__pycache__", "venv", "dist", "build", "target"))
"""Folders of what programs made; where there is git, it knows better."""

# A monitor is a program that the repository's configuration names; locks are for those who write.
GIT: Final = (
    "git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false",
    "ls-files", "-z", "--cached", "--others", "--exclude-standard",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Listing:
    """Names of files, and how many there are beside these."""

    names: tuple[str, ...] = ()
    more: int = 0


def listed(folder: Path, patterns: Sequence[str] = ()) -> Listing:
    """The files of a folder that a plan can name; with patterns, those that match any."""
    found = _matching(folder, patterns) if patterns else _files(folder)
    names = sorted({name for name in found if _is_fit(name)})
    kept: list[str] = []
    chars = 0
    for name in names:
        chars += len(name) + 1
        if len(kept) == NAMES_MAX or chars > NAMES_CHARS_MAX:
            break
        kept.append(name)
    return Listing(tuple(kept), len(names) - len(kept))


def _is_fit(name: str) -> bool:
    return len(name) <= NAME_CHARS_MAX and not unreadable(name)


def _matching(folder: Path, patterns: Sequence[str]) -> Iterator[str]:
    within = Folder(folder)
    for pattern in patterns:
        try:
            yield from within.glob(pattern)
        except UnusableError:
            raise BadValueError(
                f"`{pattern}` matches no file of {folder}", hint="a pattern is like 'src/**/*.py'"
            ) from None


def _files(folder: Path) -> Iterable[str]:
    if any((one / ".git").exists() for one in (folder.resolve(), *folder.resolve().parents)):
        found = _by_git(folder)
        if found is not None:
            return found
    return _walked(folder)


def _by_git(folder: Path) -> list[str] | None:
    """What git knows and does not ignore; None if it does not tell."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    try:
        told = subprocess.run(
            GIT, cwd=folder, capture_output=True, check=True, timeout=GIT_S_MAX, env=clean,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    names = told.stdout[:GIT_BYTES_MAX].decode("utf-8", "replace").split("\0")
    return [name for name in names if name]


def _walked(folder: Path) -> Iterator[str]:
    visits = 0
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(n for n in folders if not n.startswith(".") and n not in LEFT_OUT)
        inner = os.path.relpath(place, folder)
        for name in sorted(files):
            visits += 1
            if visits > VISITS_MAX:
                return
            yield name if inner == "." else f"{inner}/{name}"
