"""Copies of a folder's files: the cache that follows a folder, and trees of hard links to it.

Laws:
- A file of the cache is replaced by rename, never written: a tree that shares it does not change.
- A file that changes while it is copied is copied again.
- Everything belongs to the user's own group: an overlay of an ordinary user refuses other groups.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import msgspec

from headway.errors import WorkspaceError

Entry = tuple[int, int, int, int, int]
"""Mode, size, time of change of content and of inode in ns, inode: equal if a file is unchanged."""
Listing = dict[bytes, Entry]
"""By path relative to the folder; a folder stands before what is in it."""

FILES_MAX: Final = 500_000
"""Files of one snapshot: a folder with more is probably not the one that was meant."""
COPIES_MAX: Final = 5
"""A log that is written all the time would be copied forever; the last copy is taken and named."""
TICK_NS: Final = 20_000_000
"""Two changes within a tick of the kernel's clock (at most 10 ms) can have the same time."""
FICLONE: Final = 0x40049409
"""The request of ioctl(2) by which one file shares the blocks of another."""
NO_LINK: Final = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EACCES)
"""Another file system, a file of another user, too many names of one file."""
KINDS: Final = {
    stat.S_IFSOCK: "socket", stat.S_IFIFO: "pipe", stat.S_IFBLK: "device", stat.S_IFCHR: "device",
}  # fmt: skip


class _CacheList(msgspec.Struct, array_like=True):
    boot: str
    """Nothing is synced: after a crash of the machine files may be empty, and are copied again."""
    files: list[tuple[bytes, int, int, int, int, int]]


def entry_of(found: os.stat_result) -> Entry:
    if stat.S_ISDIR(found.st_mode):
        return (found.st_mode, 0, 0, 0, 0)
    return (found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)


def list_files(
    root: str, left_out: dict[str, str], skip: Collection[bytes] = (b".git",)
) -> Listing:
    """All files, links and folders, without the names in `skip` at the top."""
    listing: Listing = {}
    _list(os.fsencode(root), b"", listing, left_out, skip)
    return listing


def _list(
    folder: bytes, prefix: bytes, listing: Listing, left_out: dict[str, str],
    skip: Collection[bytes],
) -> None:  # fmt: skip
    try:
        with os.scandir(folder) as found:
            entries = list(found)
    except FileNotFoundError:
        return  # It was removed meanwhile.
    except OSError as fault:
        left_out[os.fsdecode(prefix or folder)] = f"folder cannot be read: {fault.strerror}"
        return
    for entry in entries:
        if entry.name in skip:
            continue
        path = prefix + entry.name
        try:
            about = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        except PermissionError as fault:
            left_out[os.fsdecode(prefix or folder)] = f"folder cannot be read: {fault.strerror}"
            return
        if kind := KINDS.get(stat.S_IFMT(about.st_mode)):
            left_out[os.fsdecode(path)] = kind
            continue
        if len(listing) >= FILES_MAX:
            raise WorkspaceError(
                f"{os.fsdecode(folder)} and the folders around it have over {FILES_MAX:,} files, "
                "too many for workspaces",
                hint="name a smaller folder with `workspace: {path: ...}`, or `workspace: off`",
            )
        listing[path] = entry_of(about)
        if stat.S_ISDIR(about.st_mode):
            _list(entry.path, path + b"/", listing, left_out, ())


def refresh_cache(
    source: str, cache: str, skip: Collection[bytes] = (b".git",)
) -> tuple[Listing, dict[str, str]]:
    """Make the tree CACHE/tree equal to the folder, under the cache's lock.

    Returns what is in it; and what is not or may differ, with the reason. A kill leaves a list that
    is older than the tree: what it does not name, or names with another time, is copied again.
    """
    tree, kept = os.fsencode(cache) + b"/tree", os.path.join(cache, "list")
    os.makedirs(tree, exist_ok=True)
    before = _load_list(kept)
    left_out: dict[str, str] = {}
    found = list_files(source, left_out, skip)
    for path in sorted(before, reverse=True):
        new = found.get(path)
        if new is None or stat.S_IFMT(new[0]) != stat.S_IFMT(before[path][0]):
            remove(os.path.join(tree, path))
            del before[path]
    now: Listing = {}
    origin, part = os.fsencode(source), os.fsencode(cache) + b"/part"
    for path, entry in found.items():
        if before.get(path) == entry:
            now[path] = entry
            continue
        target = os.path.join(tree, path)
        try:
            copied = _copy_entry(os.path.join(origin, path), target, entry, part)
        except FileNotFoundError:
            remove(target)  # It was removed meanwhile.
            continue
        except PermissionError as fault:
            left_out[os.fsdecode(path)] = f"cannot be read: {fault.strerror}"
            remove(target)
            continue
        if stat.S_ISREG(copied[0]) and not copied[3]:
            left_out[os.fsdecode(path)] = "changes while it is copied"
        is_certain = copied[3] < time.time_ns() - TICK_NS
        now[path] = copied if is_certain else (*copied[:3], 0, copied[4])
    if now != before:
        data = _CacheList(_boot(), [(path, *entry) for path, entry in now.items()])
        write_file(kept, msgspec.msgpack.encode(data))
    return now, left_out


def _load_list(path: str) -> Listing:
    try:
        with open(path, "rb") as file:
            data = msgspec.msgpack.decode(file.read(), type=_CacheList)
    except (FileNotFoundError, msgspec.MsgspecError):
        return {}
    return {entry[0]: entry[1:] for entry in data.files} if data.boot == _boot() else {}


def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


def _copy_entry(source: bytes, target: bytes, entry: Entry, part: bytes) -> Entry:
    """Copy one file, link or folder; the time of its inode is 0 if it changed all the time."""
    if stat.S_ISDIR(entry[0]):
        make_folder(target, entry[0])
        return entry
    remove(part)
    if stat.S_ISLNK(entry[0]):
        os.symlink(os.readlink(source), part)
    else:
        entry = copy_file(source, part)
    try:
        os.rename(part, target)
    except (IsADirectoryError, NotADirectoryError):
        remove(target)  # A kill left a tree that is newer than its list.
        os.rename(part, target)
    return entry


def copy_file(source: bytes, target: bytes) -> Entry:
    """A real copy with mode and time, sharing blocks where the file system can."""
    for _ in range(COPIES_MAX):
        reader = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            about = os.fstat(reader)
            if not stat.S_ISREG(about.st_mode):
                raise FileNotFoundError(source)  # It is something else by now.
            _copy_content(reader, target, about)
            if entry_of(os.fstat(reader)) == entry_of(about):
                return entry_of(about)
        finally:
            os.close(reader)
    return (*entry_of(about)[:3], 0, about.st_ino)


def _copy_content(reader: int, target: bytes, about: os.stat_result) -> None:
    mode = about.st_mode & 0o777
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    writer = os.open(target, flags, mode | 0o200)
    try:
        if about.st_size and not _share_blocks(reader, writer):
            _copy_bytes(reader, writer)
        os.fchmod(writer, mode)
        os.utime(writer, ns=(about.st_mtime_ns, about.st_mtime_ns))
    finally:
        os.close(writer)


_unshared: Final[set[tuple[int, int]]] = set()
"""Pairs of file systems between which blocks cannot be shared: not tried for every file."""


def _share_blocks(reader: int, writer: int) -> bool:
    pair = (os.fstat(reader).st_dev, os.fstat(writer).st_dev)
    if sys.platform != "linux" or pair in _unshared:
        return False
    try:
        fcntl.ioctl(writer, FICLONE, reader)
    except OSError:
        _unshared.add(pair)
        return False
    return True


def _copy_bytes(reader: int, writer: int) -> None:
    copy_range: Callable[[int, int, int], int] | None = getattr(os, "copy_file_range", None)
    try:
        while copy_range is not None and copy_range(reader, writer, 1 << 30):
            pass
    except OSError as fault:
        if fault.errno == errno.ENOSPC:
            raise
    # What some file systems do not give in that way.
    while data := os.pread(reader, 1 << 20, os.lseek(writer, 0, os.SEEK_CUR)):
        os.write(writer, data)


def link_tree(source: str, target: str, skip: Collection[bytes] = ()) -> None:
    """A tree of the same files by hard links; where that is impossible, by copies."""
    _each_in(os.fsencode(source), os.fsencode(target), link_or_copy, skip)


def copy_tree(source: str, target: str) -> None:
    """A tree of real copies, over what is there."""
    _each_in(os.fsencode(source), os.fsencode(target), _copy_over, ())


def _each_in(
    source: bytes, target: bytes, act: Callable[[bytes, bytes], None],
    skip: Collection[bytes],
) -> None:  # fmt: skip
    if not os.path.isdir(target) or os.path.islink(target):
        remove(target)
        make_folder(target, os.stat(source).st_mode)
    with os.scandir(source) as found:
        for entry in found:
            if entry.name in skip:
                continue
            path = os.path.join(target, entry.name)
            if entry.is_dir(follow_symlinks=False):
                _each_in(entry.path, path, act, ())
            elif not stat.S_ISCHR(entry.stat(follow_symlinks=False).st_mode):
                act(entry.path, path)


def link_or_copy(source: bytes, target: bytes) -> None:
    """Another name of a file or a link."""
    try:
        os.link(source, target, follow_symlinks=False)
    except FileExistsError:
        return
    except (OSError, NotImplementedError) as fault:
        if isinstance(fault, OSError) and fault.errno not in NO_LINK:
            raise
        _copy_over(source, target)


def _copy_over(source: bytes, target: bytes) -> None:
    remove(target)
    if os.path.islink(source):
        os.symlink(os.readlink(source), target)
    else:
        copy_file(source, target)


def make_folder(path: bytes | str, mode: int = 0o755) -> None:
    """A folder that its owner can write to."""
    try:
        os.mkdir(path)
    except FileExistsError:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            remove(path)
            os.mkdir(path)
    os.chmod(path, mode & 0o777 | 0o700)


def make_own_folder(path: str) -> None:
    """A folder for this user alone, whose files get the user's own group."""
    os.makedirs(path, mode=0o700, exist_ok=True)
    with suppress(PermissionError):
        os.chown(path, -1, os.getegid())
    os.chmod(path, 0o700)


def remove(path: bytes | str) -> None:
    """Remove a file or a whole folder, also one that an agent made unreadable."""
    try:
        os.unlink(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    except (IsADirectoryError, PermissionError):
        if not os.path.isdir(path) or os.path.islink(path):
            raise
        for folder in _folders_below(path):
            with os.scandir(folder) as found:
                for entry in found:
                    if not entry.is_dir(follow_symlinks=False):
                        os.unlink(entry.path)
        shutil.rmtree(path)


def remove_empty(top: str, path: str) -> None:
    """Remove the folders above a path that are empty now."""
    while path := os.path.dirname(path):
        try:
            os.rmdir(os.path.join(top, path))
        except OSError:
            return


def _folders_below(path: bytes | str) -> Iterator[bytes | str]:
    """The folder and all in it, made readable before they are entered."""
    os.chmod(path, 0o700)
    yield path
    with os.scandir(path) as found:
        inner = [entry.path for entry in found if entry.is_dir(follow_symlinks=False)]
    for folder in inner:
        yield from _folders_below(folder)


def replace_by_copy(source: str, target: str) -> None:
    """A copy with its time, by which git knows what it cannot rely on; nothing of nothing."""
    remove(target)
    with suppress(FileNotFoundError):
        copy_file(os.fsencode(source), os.fsencode(target))


def write_file(path: str, data: bytes) -> None:
    """Replace a file at once: a reader or a kill finds the old one or the new one."""
    part = f"{path}.part"
    with open(part, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.rename(part, path)


@contextmanager
def locked(cache: str) -> Iterator[None]:
    """This process alone changes the cache; the lock ends with the process."""
    path = os.path.join(cache, "lock")
    while True:
        make_own_folder(cache)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(handle, fcntl.LOCK_EX)
        if os.path.exists(path) and os.path.samestat(os.fstat(handle), os.stat(path)):
            break
        os.close(handle)  # The cache was removed while this waited.
    try:
        yield
        os.utime(handle)
    finally:
        os.close(handle)


def prune_caches(state_folder: str, before_s: float) -> None:
    """Remove the caches that no run has used since then; snapshots of runs stay whole."""
    parent = os.path.join(state_folder, "workspaces")
    for name in os.listdir(parent) if os.path.isdir(parent) else ():
        cache = os.path.join(parent, name)
        try:
            is_old = os.stat(os.path.join(cache, "lock")).st_mtime < before_s
        except FileNotFoundError:
            is_old = True
        if is_old:
            with locked(cache):
                remove(cache)


@contextmanager
def named_faults(folder: str) -> Iterator[None]:
    """Faults of the disk as an error that says what to do."""
    try:
        yield
    except OSError as fault:
        is_full = fault.errno in (errno.ENOSPC, errno.EDQUOT)
        raise WorkspaceError(
            f"no workspace of {folder} can be made: {fault.strerror or fault}",
            where=os.fsdecode(fault.filename) if fault.filename else None,
            hint="free space, or set HEADWAY_STATE_DIR to a folder with more" if is_full else None,
        ) from None
