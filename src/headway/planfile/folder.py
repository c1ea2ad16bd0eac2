"""The folder that a plan is in: what may be opened and listed there, and what matches a pattern.

Laws:
- Nothing outside of the folder is opened or listed, by whatever way a path leads there, links
  included, unless the user allowed it.
- What is found is sorted, so that one folder gives one plan.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from difflib import get_close_matches
from fnmatch import translate
from pathlib import Path
from re import compile as compile_pattern
from typing import Final

from headway.core.plan.paths import inside

VISITS_MAX: Final = 1_000_000
"""Entries of folders that one pattern may look at."""

PATTERN_PARTS_MAX: Final = 30
NAMES_MAX: Final = 1_000
"""Names that a hint may choose from."""


class UnusableError(Exception):
    """Why a path or a pattern cannot be used; becomes a `SourceError` once its place is known."""


class Folder:
    """One folder, as far as a plan may look at it."""

    __slots__ = ("_may_leave", "_root")

    def __init__(self, path: Path, may_leave: bool = False) -> None:
        self._root = os.path.realpath(path)
        self._may_leave = may_leave

    def __repr__(self) -> str:
        return f"<Folder {self._root}>"

    def opened(self, path: str) -> str:
        """Where a path really leads, if it may lead there."""
        if "\0" in path:
            raise UnusableError("cannot be the name of a file")
        real = os.path.realpath(os.path.join(self._root, path))
        is_inside = real == self._root or real.startswith(self._root.rstrip("/") + "/")
        if not self._may_leave and not (is_inside and inside(path) is not None):
            raise UnusableError("leads out of the plan's folder")
        return real

    def leaves(self, path: str, known: dict[str, str]) -> bool:
        """Whether a link leads a path out; `known` are real paths of folders."""
        above, _, name = path.rpartition("/")
        if above not in known:
            known[above] = os.path.realpath(os.path.join(self._root, above))
        real = os.path.join(known[above], name)
        if os.path.islink(real):
            real = os.path.realpath(real)
        return not self._may_leave and not f"{real}/".startswith(self._root.rstrip("/") + "/")

    def text(self, path: str, most: int) -> str:
        real = self.opened(path)
        try:
            if not os.path.isfile(real):
                raise UnusableError("is not a file" if os.path.exists(real) else "is not there")
            with open(real, "rb") as file:
                content = file.read(most + 1)
        except OSError as error:
            raise UnusableError(f"cannot be read: {error.strerror}") from error
        if len(content) > most:
            raise UnusableError(f"is larger than {most:,} bytes")
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise UnusableError("is not UTF-8 text") from error

    def glob(self, pattern: str) -> tuple[str, ...]:
        parts = [part for part in pattern.split("/") if part not in ("", ".")]
        if ".." in parts or len(parts) > PATTERN_PARTS_MAX or inside(pattern) is None:
            raise UnusableError("leads out of the plan's folder")
        found = sorted(set(self._matches(parts)))
        if not found:
            raise UnusableError("is no task, and matches no file")
        return tuple(found)

    def _matches(self, parts: list[str]) -> Iterator[str]:
        """Every file that a pattern matches; hidden ones only where the pattern says so."""
        parts = [*parts, "*"] if parts[-1:] == ["**"] else parts
        rules = [compile_pattern(translate(part)) for part in parts]
        stack, seen, visits = [("", 0)], {("", 0)}, 0
        while stack:
            folder, place = stack.pop()
            if place >= len(parts):
                continue
            if parts[place] == "**" and (folder, place + 1) not in seen:
                seen.add((folder, place + 1))
                stack.append((folder, place + 1))
            for entry in self._entries(folder):
                visits += 1
                if visits > VISITS_MAX:
                    raise UnusableError(f"looks at more than {VISITS_MAX:,} files")
                path = f"{folder}/{entry.name}" if folder else entry.name
                is_folder = entry.is_dir(follow_symlinks=False)
                if entry.name.startswith(".") and not parts[place].startswith("."):
                    continue
                if parts[place] == "**":
                    after = place
                elif rules[place].match(entry.name):
                    after = place + 1
                else:
                    continue
                if is_folder and (path, after) not in seen:
                    seen.add((path, after))
                    stack.append((path, after))
                elif after == len(parts) and self._is_file(entry, path):
                    yield path

    def _entries(self, folder: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(os.path.join(self._root, folder)) as entries:
                return list(entries)
        except OSError:
            # A folder that nobody may look into has nothing for a plan.
            return []

    def _is_file(self, entry: os.DirEntry[str], path: str) -> bool:
        try:
            if entry.is_symlink():
                self.opened(path)
            is_file = entry.is_file()
        except (OSError, UnusableError):
            return False
        if is_file and not path.isascii():
            _must_be_text(path)
        return is_file

    def neighbour(self, path: str) -> str:
        """The file in the same folder whose name is nearest."""
        folder, _, name = path.rpartition("/")
        if inside(path) is None or "\0" in path:
            return ""
        names = [entry.name for entry in self._entries(folder)][:NAMES_MAX]
        near = [name for name in get_close_matches(name, names, n=1) if name.isprintable()]
        return (f"{folder}/{near[0]}" if folder else near[0]) if near else ""


def _must_be_text(path: str) -> None:
    """A file that a pattern matches is never left out in silence."""
    try:
        path.encode()
    except UnicodeEncodeError:
        name = path.encode(errors="backslashreplace").decode()
        raise UnusableError(f"matches {name}, whose name is not UTF-8") from None
