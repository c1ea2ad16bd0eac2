"""The tools `files`: read, write, edit, list and search, within one folder.

Laws:
- Nothing outside of the folder is read or changed, by whatever path, link or race.
- A file is replaced by one rename: nobody reads half of what was written.
- What a task does not declare to write is not written, where it declares what it writes.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from headway.core.plan.paths import inside
from headway.core.plan.sensitive import unreadable, unwritable
from headway.core.plan.touches import covers
from headway.runtime.agents.tools_box import Given, Tool, ToolError, taking, text_of, whole_of
from headway.runtime.share import in_thread

FILE_BYTES_MAX: Final = 8 * 1024 * 1024
"""The largest file that is read or written: what is larger is no text to think about."""

LINES: Final = 1_000
LINES_MAX: Final = 10_000
"""How many lines one read gives where the model does not say it, and at most."""

ENTRIES_MAX: Final = 1_000
MATCHES_MAX: Final = 200
LINE_CHARS_MAX: Final = 300
"""What one listing and one search give, and how much of each line."""

SEARCHED_MAX: Final = 50_000
"""Files that one search opens."""

FOLDERS_DEEP_MAX: Final = 100
"""How far a listing and a search go down: each folder is held open meanwhile."""

GIT: Final = ".git"
"""Programs execute what is in there: it is not listed, searched or written. Some disks do not
tell large letters from small ones."""

_BENEATH: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PATH: Final = {"type": "string", "description": "relative to the folder of the task"}


@dataclass(frozen=True, slots=True)
class Place:
    """A folder that is not left."""

    folder: str
    writes: tuple[str, ...] | None = None
    """Paths and patterns that may be written; None is everything."""
    is_foreign: bool = False
    """Whether somebody else wrote the plan: what is hidden or may be a key is not for its loops."""

    def resolved(self, path: str) -> tuple[str, ...]:
        """The parts of a path below the folder, links followed; refused if it leads out."""
        short = inside(path)
        if short is None:
            raise ToolError(f"`{path}` leads out of the folder: paths are relative to it")
        root = os.path.realpath(self.folder)
        try:
            real = os.path.realpath(os.path.join(root, short))
        except OSError as fault:
            raise _said(path, fault) from None
        if real != root and not real.startswith(root.rstrip("/") + "/"):
            raise ToolError(f"`{path}` leads out of the folder by a link")
        return tuple(part for part in real[len(root) :].split("/") if part)

    def must_be_writable(self, path: str, parts: tuple[str, ...]) -> None:
        """ToolError if the task has no business there."""
        if not parts:
            raise ToolError(f"`{path}` is the folder itself")
        if GIT in map(str.lower, parts):
            raise ToolError(f"`{path}` is git's own: it is not written by this tool")
        real = "/".join(parts)
        if self.is_foreign and (problem := unwritable(real)):
            raise ToolError(f"`{path}` {problem}: a plan by somebody else does not write it")
        if self.writes is not None and not any(_matches(one, real) for one in self.writes):
            declared = ", ".join(f"`{one}`" for one in self.writes) or "nothing"
            raise ToolError(f"`{path}` is not declared: this task may write {declared}")

    @contextmanager
    def opened(self, parts: tuple[str, ...], *, makes: bool = False) -> Iterator[int]:
        """The folder of these names, from ours down: none of them is a link, whoever changes what
        meanwhile."""
        here = os.open(os.path.realpath(self.folder), _BENEATH)
        try:
            for part in parts:
                if makes:
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=here)
                below = os.open(part, _BENEATH, dir_fd=here)
                os.close(here)
                here = below
            yield here
        finally:
            os.close(here)

    def read(self, path: str) -> str:
        parts = self.resolved(path)
        if not parts:
            raise ToolError(f"`{path}` is a folder: use list_files")
        if self.is_foreign and (problem := unreadable("/".join(parts))):
            raise ToolError(f"`{path}` {problem}: a plan by somebody else does not read it")
        try:
            with self.opened(parts[:-1]) as folder:
                return _content(folder, parts[-1]).decode("utf-8", "surrogateescape")
        except OSError as fault:
            raise _said(path, fault) from None

    def write(self, path: str, content: str) -> bool:
        """Whether the file was there before."""
        parts = self.resolved(path)
        self.must_be_writable(path, parts)
        data = content.encode("utf-8", "surrogateescape")
        if len(data) > FILE_BYTES_MAX:
            raise ToolError(f"{len(data):,} bytes are too many: at most {FILE_BYTES_MAX:,}")
        try:
            with self.opened(parts[:-1], makes=True) as folder:
                return replace_file(folder, parts[-1], data)
        except OSError as fault:
            raise _said(path, fault) from None

    def walk(self, path: str) -> Iterator[tuple[str, bool]]:
        """Everything below a folder, by names from ours on, sorted; and whether it is a folder.
        Links are named, and not followed."""
        parts = self.resolved(path)
        try:
            with self.opened(parts) as folder:
                yield from _walked(folder, "/".join(parts))
        except OSError as fault:
            raise _said(path, fault) from None


class Files:
    """The tools of one attempt."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._count = 0

    def __repr__(self) -> str:
        return f"<Files in {self._place.folder}, {self._count} uses>"

    def statistics(self) -> int:
        """How often they were used."""
        return self._count

    def tools(self) -> list[Tool]:
        text, number = {"type": "string"}, {"type": "integer"}
        below = {**_PATH, "default": "."}
        return [
            Tool("read_file", "Read lines of a text file.", taking(
                path=_PATH, from_line={**number, "default": 1}, lines={**number, "default": LINES},
            ), self._in_thread(self._read)),
            Tool("write_file", "Write a text file, new or in place of what it was.", taking(
                path=_PATH, content=text,
            ), self._in_thread(self._write)),
            Tool("edit_file", "Replace a text that occurs exactly once in a file.", taking(
                path=_PATH, old=text, new=text,
            ), self._in_thread(self._edit)),
            Tool("list_files", "List everything below a folder.", taking(
                path=below,
            ), self._in_thread(self._list)),
            Tool("search", "Find the lines of files that contain a text, as it is written.", taking(
                text=text, path=below, files={**text, "default": "*",
                    "description": "a pattern for the names of files: *.py"},
            ), self._in_thread(self._search)),
        ]  # fmt: skip

    def _in_thread(self, work: Callable[[Given], str]) -> Callable[[Given], Awaitable[str]]:
        async def use(given: Given) -> str:
            self._count += 1
            return await in_thread(lambda: work(given))

        return use

    def _read(self, given: Given) -> str:
        lines = _shown(self._place.read(text_of(given, "path"))).splitlines(keepends=True)
        first = whole_of(given, "from_line", 1, FILE_BYTES_MAX)
        last = first - 1 + whole_of(given, "lines", LINES, LINES_MAX)
        if not lines:
            return "[the file is empty]"
        said = "".join(lines[first - 1 : last])
        if first > 1 or last < len(lines):
            said += f"\n[lines {first:,} to {min(last, len(lines)):,} of {len(lines):,}]"
        return said

    def _write(self, given: Given) -> str:
        path, content = text_of(given, "path"), text_of(given, "content")
        was_there = self._place.write(path, content)
        return f"{'replaced' if was_there else 'made'} {path}: {len(content):,} characters"

    def _edit(self, given: Given) -> str:
        path, old, new = (text_of(given, name) for name in ("path", "old", "new"))
        if not old or old == new:
            raise ToolError("`old` has to be a text, and another one than `new`")
        content = self._place.read(path)
        count = content.count(old)
        if count != 1:
            again = (
                " The new text is there already." if not count and new and new in content else ""
            )
            raise ToolError(f"`old` occurs {count} times in {path}, and not once.{again}")
        self._place.write(path, content.replace(old, new))
        return f"edited {path}"

    def _list(self, given: Given) -> str:
        found: list[str] = []
        for name, is_folder in self._place.walk(text_of(given, "path", ".")):
            if len(found) == ENTRIES_MAX:
                found.append(f"[there are more than {ENTRIES_MAX:,}: list a folder of them]")
                break
            found.append(f"{name}/" if is_folder else name)
        return "\n".join(found) or "[nothing is there]"

    def _search(self, given: Given) -> str:
        text, files = text_of(given, "text"), text_of(given, "files", "*")
        if not text:
            raise ToolError("`text` has to be a text")
        found: list[str] = []
        for searched, name in enumerate(self._searched(text_of(given, "path", "."), files)):
            if searched >= SEARCHED_MAX or len(found) >= MATCHES_MAX:
                found.append("[there may be more: search in a folder, or in fewer files]")
                break
            found += self._matches(name, text)[: MATCHES_MAX - len(found)]
        return "\n".join(found) or "[nothing is found]"

    def _searched(self, path: str, files: str) -> Iterator[str]:
        for name, is_folder in self._place.walk(path):
            if not is_folder and fnmatchcase(name.rpartition("/")[2], files):
                yield name

    def _matches(self, name: str, text: str) -> list[str]:
        try:
            content = self._place.read(name)
        except ToolError:
            return []  # No text, too large, or gone.
        if text not in content:
            return []
        return [
            f"{name}:{number}: {_shown(line.strip())[:LINE_CHARS_MAX]}"
            for number, line in enumerate(content.splitlines(), 1)
            if text in line
        ]


def _matches(declared: str, path: str) -> bool:
    """Whether a path is what a task declares to write, lies within it, or fits its pattern."""
    short = inside(declared)
    if short is None:
        return False
    if covers((short,), path):
        return True
    if "**" in short:
        return fnmatchcase(path, short)
    # As where the plan's own patterns are expanded, a star is within a name.
    parts, patterns = path.split("/"), short.split("/")
    return len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))


def _content(folder: int, name: str) -> bytes:
    """Of a file that is one: no device, and nothing that waits for a writer."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    handle = os.open(name, flags, dir_fd=folder)
    try:
        _must_be_file(os.fstat(handle).st_mode)
        with open(handle, "rb", closefd=False) as file:
            data = file.read(FILE_BYTES_MAX + 1)
    finally:
        os.close(handle)
    if len(data) > FILE_BYTES_MAX:
        raise OSError(errno.EFBIG, f"it is larger than {FILE_BYTES_MAX:,} bytes")
    if b"\0" in data:
        raise OSError(errno.EINVAL, "it is not a text")
    return data


def _must_be_file(mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is not a file")


def replace_file(folder: int, name: str, data: bytes) -> bool:
    mode = 0o666
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        was_there = False
    else:
        _must_be_file(found)
        mode, was_there = stat.S_IMODE(found), True
    draft = f".{name[:100]}.{secrets.token_hex(4)}.draft"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(draft, flags, mode, dir_fd=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            if was_there:
                os.fchmod(handle, mode)
            file.write(data)
            file.flush()
            os.fsync(handle)
        os.replace(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(draft, dir_fd=folder)
        raise
    return was_there


def _walked(folder: int, above: str) -> Iterator[tuple[str, bool]]:
    with os.scandir(folder) as found:
        entries = sorted((one.name, one.is_dir(follow_symlinks=False)) for one in found)
    for name, is_folder in entries:
        if name.lower() == GIT:
            continue
        path = f"{above}/{name}" if above else name
        yield _shown(path), is_folder
        if is_folder and path.count("/") >= FOLDERS_DEEP_MAX:
            yield f"{_shown(path)}/[what is further down is left out]", False
        elif is_folder:
            try:
                below = os.open(name, _BENEATH, dir_fd=folder)
            except OSError:
                continue  # Gone, or not ours to read.
            try:
                yield from _walked(below, path)
            finally:
                os.close(below)


def _shown(text: str) -> str:
    """A text that JSON can carry: bytes that are no UTF-8 become question marks."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _said(path: str, fault: OSError) -> ToolError:
    why = fault.strerror or str(fault)
    if fault.errno in (errno.ELOOP, errno.ENOTDIR):
        why = "a part of it is no folder"
    return ToolError(f"`{path}`: {why}")
