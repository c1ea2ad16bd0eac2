"""A copy of a plan's folder in which functions can be tried: put back to how it was in no time.

Law: the folder that was copied is only read.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from headway.errors import UsageError

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


@dataclass(frozen=True, slots=True)
class ScratchStatistics:
    """How many files were copied."""

    files: int


class Scratch:
    """Two copies of a folder: one to work in, one to put it back from."""

    def __init__(self, folder: str) -> None:
        self._home = os.path.realpath(tempfile.mkdtemp(prefix="headway-explore-"))
        self._kept = os.path.join(self._home, "kept")
        self.folder = os.path.join(self._home, "plan")
        """Where functions work."""
        self.temporary = os.path.join(self._home, "tmp")
        """For files that belong to nobody."""
        try:
            os.mkdir(self.temporary)
            _copy(folder, self._kept)
            shutil.copytree(self._kept, self.folder, symlinks=True)
        except BaseException:
            self.close()
            raise
        self._stamps = dict(_stamps(self.folder))

    def __repr__(self) -> str:
        return f"<Scratch {self.folder}, {len(self._stamps)} files>"

    def statistics(self) -> ScratchStatistics:
        return ScratchStatistics(len(self._stamps))

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
        """What is in a file."""
        with open(os.path.join(self.folder, path), "rb") as file:
            data = file.read()
        if len(data) <= TEXT_BYTES_MAX:
            return data.decode("utf-8", "replace")
        from headway.core.digest import digest

        return f"{len(data):,} bytes {digest(data).hex()}"

    def write(self, path: str, text: str) -> bool:
        """Write a file, if a file can be there."""
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
        """Everything is as it was."""
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
    """Copy a folder, unless it is too large."""
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
            # What a link leads to is copied: nobody writes through it.
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
