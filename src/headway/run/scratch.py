"""A copy of a folder that can be brought to any state that it was seen in.

Laws:
- The folder that was copied is only read.
- What is restored is what was seen: content, mode, links, and the dates of files.
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from contextlib import suppress
from typing import Final

from headway.base.digest import digest
from headway.report.explore import Changes, FileEntry

RACY_NS: Final = 50_000_000
"""A file that was changed so shortly before it was looked at may change again without a new date:
file systems count in steps of some milliseconds."""
SKIPPED: Final = "__pycache__"
"""Folders of this name are no effect of a task: Python makes them of what is there."""

Signature = tuple[int, ...]


class ScratchFolder:
    """The copy, what it began as, and what it is now."""

    def __init__(self, folder: str, place: str) -> None:
        self.folder = folder
        self.place = place
        shutil.copytree(folder, place, symlinks=True, ignore=_no_files)
        self._blobs = f"{place}-blobs"
        os.mkdir(self._blobs)
        self._seen: dict[str, Signature] = self._walk()
        self._racy: set[str] = set()
        self._first = frozenset(self._seen)
        self._base: dict[str, FileEntry | None] = {}
        self._now: dict[str, FileEntry | None] = {}
        """What is not as it was at first."""

    def base(self, path: str) -> FileEntry | None:
        """What stood at a path at first, from the user's folder."""
        if path not in self._first:
            return None
        if path not in self._base:
            self._base[path] = self._entry(os.path.join(self.folder, path))
        return self._base[path]

    def text(self, entry: FileEntry | None) -> str:
        if entry is None:
            return "nothing"
        if not stat.S_ISREG(entry.mode):
            return f"-> {entry.content}" if stat.S_ISLNK(entry.mode) else "a folder"
        with open(os.path.join(self._blobs, entry.content), "rb") as file:
            return file.read().decode("utf-8", "replace")

    def scan(self) -> dict[str, FileEntry | None]:
        """What has changed since it was looked at last, or restored."""
        seen, changes = self._walk(), dict[str, FileEntry | None]()
        for path, signature in seen.items():
            if self._seen.get(path) != signature or path in self._racy:
                entry = self._entry(os.path.join(self.place, path))
                if entry != self._at(path, self._now):
                    changes[path] = entry
        changes |= dict.fromkeys(self._seen.keys() - seen.keys())
        self._seen = seen
        self._now |= changes
        self._mark_racy()
        return changes

    def restore(self, files: Changes) -> None:
        """Bring it to the state with these changes to what it was at first."""
        paths = sorted(
            path
            for path in {*self._now, *files}
            if self._at(path, self._now) != self._at(path, files)
        )
        for path in reversed(paths):
            self._remove(path, self._at(path, files))
        made = dict(files)
        for path in paths:
            entry = self._at(path, files)
            if entry is not None:
                self._make(path, entry, made)
        self._now = made
        self._seen = self._walk()
        self._mark_racy()

    def _at(self, path: str, files: Changes) -> FileEntry | None:
        return files[path] if path in files else self.base(path)

    def _remove(self, path: str, wanted: FileEntry | None) -> None:
        place = os.path.join(self.place, path)
        is_folder = os.path.isdir(place) and not os.path.islink(place)
        if is_folder and wanted is not None and stat.S_ISDIR(wanted.mode):
            return
        with suppress(OSError):
            if is_folder and wanted is not None:
                shutil.rmtree(place)
            elif is_folder:
                shutil.rmtree(os.path.join(place, SKIPPED), ignore_errors=True)
                os.rmdir(place)
            else:
                os.unlink(place)

    def _make(self, path: str, entry: FileEntry, made: dict[str, FileEntry | None]) -> None:
        place = os.path.join(self.place, path)
        above = os.path.dirname(path)
        if above and not os.path.isdir(os.path.join(self.place, above)):
            made[above] = FileEntry(stat.S_IFDIR | 0o755)
            self._make(above, FileEntry(stat.S_IFDIR | 0o755), made)
        if stat.S_ISDIR(entry.mode):
            os.makedirs(place, exist_ok=True)
        elif stat.S_ISLNK(entry.mode):
            os.symlink(entry.content, place)
            return
        else:
            shutil.copyfile(os.path.join(self._blobs, entry.content), place)
            os.utime(place, ns=(entry.mtime_ns, entry.mtime_ns))
        os.chmod(place, stat.S_IMODE(entry.mode))

    def _entry(self, place: str) -> FileEntry | None:
        """What stands there; the content of a file is kept."""
        try:
            status = os.lstat(place)
            if stat.S_ISLNK(status.st_mode):
                return FileEntry(stat.S_IFLNK, os.readlink(place))
            if stat.S_ISDIR(status.st_mode):
                return FileEntry(status.st_mode)
            with open(place, "rb") as file:
                content = file.read()
        except OSError:
            return None
        name = digest(content).hex()
        kept = os.path.join(self._blobs, name)
        if not os.path.exists(kept):
            with open(kept, "wb") as file:
                file.write(content)
        return FileEntry(status.st_mode, name, status.st_mtime_ns)

    def _mark_racy(self) -> None:
        since = time.time_ns() - RACY_NS
        self._racy = {
            path for path, sign in self._seen.items() if len(sign) > 1 and sign[3] > since
        }

    def _walk(self) -> dict[str, Signature]:
        found: dict[str, Signature] = {}
        waiting = [""]
        while waiting:
            folder = waiting.pop()
            with suppress(OSError), os.scandir(os.path.join(self.place, folder)) as entries:
                for entry in entries:
                    if entry.name == SKIPPED:
                        continue
                    path = f"{folder}/{entry.name}" if folder else entry.name
                    status = entry.stat(follow_symlinks=False)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(path)
                        found[path] = (status.st_mode,)
                    elif entry.is_file(follow_symlinks=False) or entry.is_symlink():
                        found[path] = (status.st_mode, status.st_size, status.st_mtime_ns,
                                       status.st_ctime_ns, status.st_ino)  # fmt: skip
        return found


def _no_files(folder: str, names: list[str]) -> list[str]:
    """Pipes, sockets and devices, which are not copied."""
    found = []
    for name in names:
        mode = os.lstat(os.path.join(folder, name)).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
            found.append(name)
    return found
