"""Records what the processes of one command read and write, from their seccomp notifications.

Laws:
- A path is read from the process's memory and resolved before the call continues; it counts whether
  or not the call succeeds. A link and its target both count.
- What cannot be read or resolved makes the observation not whole, with the reason.
- A task's own writes are no reads: a path that it wrote first without looking is its own, if the
  write has done something.
- Of a path below what is not there, what is not there counts too: it may become a link.
- Reads by a search or a check, and by all processes that it starts, belong to that command.
  What git reads to do its own work (`add`, `commit`) does not count, but what its hooks read does,
  and the files that it writes (`checkout`, `stash`): they become what stood there.
- Nothing below a `.git` counts.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import stat
import struct
import sys
import time

from headway.base.file_use import APPEND, MADE, READ, REMOVE, WRITE
from headway.workspaces.command_kind import (
    CHECK,
    DIRECT,
    SEARCH,
    WORK,
    command_kind,
    history_verb,
)
from headway.workspaces.syscalls import (
    AUDIT_ARCH,
    CHANGE,
    CHANGE_FD,
    CREATE,
    EXECUTE,
    FOLLOW,
    LINK,
    LIST,
    LOOK,
    MACHINE,
    MAKE,
    OPEN,
    OPEN_HOW,
    RENAME,
    RENAME_HOW,
    TOUCH,
    Row,
)
from headway.workspaces.syscalls import REMOVE as REMOVE_PATH

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

RECEIVE, SEND, SET_FLAGS = 0xC0502100, 0xC0182101, 0x40082104
SYNC_WAKE_UP = 1
CONTINUE = 1
_NOTICE = struct.Struct("QIIiIQ6Q")
_REPLY = struct.Struct("QqiI")
_EMPTY = bytes(_NOTICE.size)

PATH_BYTES = 256
"""Read at first; nearly every path is shorter."""
PATH_BYTES_MAX = 4096
ARGUMENTS_MAX = 4096
MEMORIES_MAX = 64
"""Open files of the memory of processes."""
PROCESSES_MAX = 1024
"""Known processes. Those that ended are forgotten then, long before their numbers come again."""
LINKS_MAX = 40
TOP = (b"", b"/")
EXPANDED_MAX = 100_000
"""Files in a folder that is renamed, each of which counts."""

O_WRITE = os.O_WRONLY | os.O_RDWR
O_CREAT, O_EXCL, O_TRUNC, O_NOFOLLOW, O_DIRECTORY, O_APPEND = (
    os.O_CREAT,
    os.O_EXCL,
    os.O_TRUNC,
    os.O_NOFOLLOW,
    os.O_DIRECTORY,
    os.O_APPEND,
)
O_PATH = 0x200000
AT_SYMLINK_NOFOLLOW = 0x100
AT_FDCWD = 0xFFFFFF9C
EROFS = errno.EROFS
RENAME_EXCHANGE = 2
CLOCK_TICK_NS = 20_000_000
"""The times of files are those of the last tick of the kernel's clock."""

KEPT_IN_HOME = (
    b".cache/", b".local/share/", b".local/state/", b".config/opencode/", b".npm/", b".claude",
    b".codex/", b".gemini/",
)  # fmt: skip
"""How paths begin that agents and tools write for themselves: naming them would hide the others."""


class ReadGroup:
    """The reads of one command and the processes that it starts; of a search, only some."""

    def __init__(self, kind: int, argv: tuple[bytes, ...] = (), cwd: bytes = b"") -> None:
        self.kind = kind
        self.argv = argv
        self.cwd = cwd
        self.reads: dict[bytes, None] = {}
        self.listed: dict[bytes, None] = {}
        self.seen: set[tuple[bytes, bool]] = set()
        """Paths that need no second look, and whether a link at their end was followed."""


class UnreadableError(Exception):
    """A call whose path is unknown."""


class Supervisor:
    def __init__(
        self, listener: int, root: bytes, original: bytes, checks: list[bytes], own: list[bytes],
        home: bytes, is_guarded: bool, table: dict[int, Row], is_shared: bool,
        has_inner_pids: bool,
    ) -> None:  # fmt: skip
        """`root` is where the command sees the folder, `original` where the user does: of a copy
        they differ, and then `is_guarded` refuses writes to the original. Writes are not reported
        in the folders `own`, and where agents and tools keep their state in `home`. A folder that
        `is_shared` is changed by other commands at the same time: when a path was first used
        counts, and how; and only what reads content is observed. Processes that have `inner_pids`
        know each other by numbers that mean others here."""
        self.listener = listener
        self.root = root
        self.original = original
        self.checks = checks
        self.own = own
        self.kept = tuple(home.rstrip(b"/") + b"/" + name for name in KEPT_IN_HOME if home)
        self.start_ns = time.time_ns()
        self.refused: dict[bytes, None] = {}
        self.is_guarded = is_guarded and root != original
        self.table = table
        self.direct = ReadGroup(DIRECT)
        self.groups: dict[tuple[int, tuple[bytes, ...], bytes], ReadGroup] = {}
        self.work = ReadGroup(WORK)
        self.writes: dict[bytes, None] = {}
        self.blind: set[bytes] = set()
        self.is_shared = is_shared
        self.has_inner_pids = has_inner_pids
        self._pid = 0
        """The process whose call is looked at."""
        self.uses: dict[bytes, list[Any]] = {}
        """Of a shared folder: when a path was first used, how at all, and how at first."""
        self.outside: dict[bytes, bool] = {}
        """And whether it was there before."""
        self.faults: list[str] = []
        self._processes: dict[int, ReadGroup] = {}
        self._memories: dict[int, int] = {}
        self._plain = set(TOP)
        """Folders whose path has no link in it."""
        _set_sync_wake_up(listener)

    def serve(self, until: int) -> None:
        """Answer until `until` has something to read, or no process is left."""
        poll = select.poll()
        poll.register(self.listener, select.POLLIN)
        poll.register(until, select.POLLIN)
        listener, ioctl, unpack, pack = self.listener, fcntl.ioctl, _NOTICE.unpack, _REPLY.pack
        arch, wait = AUDIT_ARCH[MACHINE], poll.poll
        while True:
            events = dict(wait())
            if until in events:
                return
            if not events.get(listener, 0) & select.POLLIN:
                return
            try:
                notice = unpack(ioctl(listener, RECEIVE, _EMPTY))
            except OSError:
                continue  # The process was killed in the call.
            error = 0
            try:
                if notice[4] != arch:
                    self._doubt("a 32-bit program ran: its calls are not read")
                else:
                    error = self._hear(notice[1], self.table[notice[3]], notice[6:])
            except UnreadableError as fault:
                self._doubt(str(fault))
            except OSError as fault:
                self._doubt(f"a path could not be read: {os.strerror(fault.errno or 0)}")
            try:
                if error:
                    ioctl(listener, SEND, pack(notice[0], 0, -error, 0))
                else:
                    ioctl(listener, SEND, pack(notice[0], 0, 0, CONTINUE))
            except OSError:
                continue

    def answer_all(self) -> None:
        """Let the calls of processes that outlive the command continue, until there is none."""
        poll = select.poll()
        poll.register(self.listener, select.POLLIN)
        while poll.poll()[0][1] & select.POLLIN:
            try:
                notice = fcntl.ioctl(self.listener, RECEIVE, _EMPTY)
                fcntl.ioctl(
                    self.listener, SEND, _REPLY.pack(_NOTICE.unpack(notice)[0], 0, 0, CONTINUE)
                )
            except OSError:
                continue

    def record(self) -> dict[str, Any]:
        """Everything, with the fields of `Observation`."""
        self._finish_outside()
        groups = [group for group in self.groups.values() if group.reads or group.listed]
        return {
            "is_observed": True,
            "reads": _texts(self.direct.reads),
            "listed": _texts(self.direct.listed),
            "writes": _texts(self.writes),
            "outside": _texts(self.outside),
            "refused": _texts(self.refused),
            "searches": [self._command(group) for group in groups if group.kind == SEARCH],
            "checks": [self._command(group) for group in groups if group.kind == CHECK],
            "uses": [[os.fsdecode(name), *use] for name, use in self.uses.items()],
        }

    def _command(self, group: ReadGroup) -> dict[str, Any]:
        cwd = group.cwd
        if _is_below(cwd, self.root):
            cwd = cwd[len(self.root) + 1 :] or b"."
        return {
            "argv": _texts(group.argv), "cwd": os.fsdecode(cwd),
            "reads": _texts(group.reads), "listed": _texts(group.listed),
        }  # fmt: skip

    def _doubt(self, why: str) -> None:
        if why not in self.faults and len(self.faults) < 20:
            self.faults.append(why)

    def _hear(self, pid: int, row: Row, args: tuple[int, ...]) -> int:
        """Record one call; what is returned is the error to refuse it with, or 0."""
        does, folder_at, path_at, flags_at = row
        self._pid = pid
        group = self._group(pid)
        if does in (LOOK, LIST) and self._has_enough(group):
            return 0
        folder = args[folder_at] if folder_at >= 0 else AT_FDCWD
        if does in (LIST, CHANGE_FD):
            path = self._descriptor(pid, folder)
        else:
            path = self._path(pid, folder, args[path_at])
        if flags_at >= 0:
            is_followed = not args[flags_at] & AT_SYMLINK_NOFOLLOW
        else:
            is_followed = flags_at == FOLLOW
        if does in (LOOK, TOUCH):
            if does == TOUCH and self._is_refused(self._resolve(path, is_followed)[-1]):
                return EROFS
            self._read(group, path, is_followed)
        elif does in (OPEN, OPEN_HOW):
            flags = args[flags_at]
            if does == OPEN_HOW:
                flags = int.from_bytes(self._memory(pid, flags, 8)[:8], sys.byteorder)
            return self._open(pid, path, flags)
        elif does == LIST:
            self._list(pid, path)
        elif does == EXECUTE:
            self._execute(pid, path, args[flags_at])
        elif does == MAKE and path and os.path.lexists(path):
            self._read(self._group(pid), path, False)  # It fails, and shows that this is there.
        elif does in (CREATE, CHANGE, CHANGE_FD, MAKE, REMOVE_PATH):
            use = REMOVE if does == REMOVE_PATH else WRITE
            return self._write(pid, path, is_followed, does != CREATE, use)
        elif does in (RENAME, RENAME_HOW, LINK):
            second = args[flags_at - 1] if folder_at >= 0 else AT_FDCWD
            target = self._path(pid, second, args[flags_at])
            if does == LINK:
                return self._join(pid, path, target)
            return self._rename(pid, path, target, args[4] if does == RENAME_HOW else 0)
        else:
            self._doubt("a process mounted something, changed its root, or opened a file by handle")
        return 0

    def _open(self, pid: int, path: bytes, flags: int) -> int:
        is_new = flags & (O_CREAT | O_EXCL) == O_CREAT | O_EXCL
        is_followed = not flags & O_NOFOLLOW and not is_new
        if not flags & O_PATH and flags & (O_WRITE | O_CREAT | O_TRUNC):
            return self._write(pid, path, is_followed, not flags & O_TRUNC, _use_of(flags, is_new))
        group = self._group(pid)
        if self._has_enough(group):
            return 0
        self._read(group, path, is_followed)
        if self.is_shared and flags & O_DIRECTORY:
            self._list(pid, self._resolve(path, True)[-1])
        return 0

    # What a call is about.

    def _memory(self, pid: int, address: int, size: int) -> bytes:
        fd = self._memories.get(pid)
        if fd is not None:
            try:
                data = os.pread(fd, size, address)
            except OSError:
                data = b""
            if data:
                return data
            self._forget_memory(pid)
        try:
            if len(self._memories) >= MEMORIES_MAX:
                for known in list(self._memories):
                    self._forget_memory(known)
            fd = os.open(b"/proc/%d/mem" % pid, os.O_RDONLY)
            self._memories[pid] = fd
            return os.pread(fd, size, address)
        except (OSError, OverflowError) as fault:
            if isinstance(fault, FileNotFoundError | ProcessLookupError):
                return b""  # It ended meanwhile, and its call with it.
            if isinstance(fault, PermissionError):
                raise UnreadableError("a process does not let its memory be read") from None
            return b""  # No such address: the call fails.

    def _forget_memory(self, pid: int) -> None:
        fd = self._memories.pop(pid, None)
        if fd is not None:
            os.close(fd)

    def _string(self, pid: int, address: int) -> bytes:
        data = self._memory(pid, address, PATH_BYTES)
        end = data.find(b"\0")
        while end < 0 and data and len(data) < PATH_BYTES_MAX:
            more = self._memory(pid, address + len(data), PATH_BYTES_MAX - len(data))
            if not more:
                break
            data += more
            end = data.find(b"\0")
        return data[:end] if end >= 0 else b""

    def _path(self, pid: int, folder: int, address: int) -> bytes:
        """The absolute path of a call, not yet resolved; empty if the call is bound to fail."""
        path = self._string(pid, address) if address else b""
        if path[:1] == b"/":
            return path
        folder &= 0xFFFFFFFF
        if folder == AT_FDCWD:
            if not path:
                return b""
            base = self._link(b"/proc/%d/cwd" % pid)
        else:
            base = self._descriptor(pid, folder)
        return base + b"/" + path if path else base

    def _descriptor(self, pid: int, fd: int) -> bytes:
        return self._link(b"/proc/%d/fd/%d" % (pid, fd & 0xFFFFFFFF))

    def _link(self, path: bytes) -> bytes:
        try:
            base = os.readlink(path)
        except (FileNotFoundError, ProcessLookupError):
            return b""
        return base if base[:1] == b"/" else b""

    # Which command a process belongs to.

    def _group(self, pid: int) -> ReadGroup:
        group = self._processes.get(pid)
        if group is None:
            group = self._adopt(pid)
        return group

    def _adopt(self, pid: int) -> ReadGroup:
        if len(self._processes) >= PROCESSES_MAX:
            for known in list(self._processes):
                if not os.path.exists(f"/proc/{known}"):
                    del self._processes[known]
        at, new, group = pid, [pid], self.direct
        while True:
            leader, parent = _leader_and_parent(at)
            if leader in self._processes:
                group = self._processes[leader]
                break
            if parent in self._processes:
                group = self._processes[parent]
                break
            if parent <= 1 or parent in new:
                break
            at = parent
            new.append(at)
        self._processes[pid] = group
        return group

    def _execute(self, pid: int, path: bytes, argv_address: int) -> None:
        group = self._group(pid)
        self._read(group, path, True)
        real = self._resolve(path, True)[-1] if path else b""
        if self.is_shared and os.path.exists(real) and gains_rights(os.stat(real), os.geteuid()):
            name = os.fsdecode(os.path.basename(real))
            self._doubt(f"{name} could not gain the rights of its owner (`--observe off` lets it)")
        if real and self._inside(real) is not None:
            self._read_interpreter(group, real)
        argv = self._argv(pid, argv_address)
        self._forget_memory(pid)
        if group.kind in (DIRECT, WORK) and argv:
            is_git = argv[0].rpartition(b"/")[2].startswith(b"git")
            if group.kind == DIRECT or not is_git:
                is_ours = bool(real) and self._inside(real) is not None
                self._processes[pid] = self._group_of(pid, argv, path, is_ours)

    def _read_interpreter(self, group: ReadGroup, path: bytes) -> None:
        """A script's interpreter is opened by the kernel, without a call."""
        try:
            with open(path, "rb") as file:
                line = file.readline(256)
        except OSError:
            return
        if line[:2] == b"#!" and (words := line[2:].split()):
            self._read(group, words[0], True)

    def _argv(self, pid: int, address: int) -> tuple[bytes, ...]:
        words: list[bytes] = []
        while address and len(words) < ARGUMENTS_MAX:
            data = self._memory(pid, address, 8 * 32)
            if len(data) < 8:
                break
            for (word,) in struct.iter_unpack("Q", data[: len(data) & ~7]):
                if not word:
                    return tuple(words)
                words.append(self._argument(pid, word))
            address += len(data) & ~7
        return tuple(words)

    def _argument(self, pid: int, address: int) -> bytes:
        data = b""
        while b"\0" not in data and len(data) < 131072:
            more = self._memory(pid, address + len(data), PATH_BYTES if not data else 4096)
            if not more:
                break
            data += more
        return data.partition(b"\0")[0]

    def _group_of(self, pid: int, argv: tuple[bytes, ...], path: bytes, is_ours: bool) -> ReadGroup:
        """`is_ours`: the program is in the folder, so that its name says nothing."""
        kind = command_kind(argv, path, self.checks)
        kind = DIRECT if is_ours and kind != CHECK else kind
        if kind == DIRECT:
            if (verb := history_verb(argv)) is not None:
                self._doubt(f"git {verb} may read the history, which is not observed")
            return self.direct
        if kind == SEARCH and self.is_shared:
            # Each file counts, but nearly every agent asks for the status all the time.
            return self.work if b"status" in argv else self.direct
        if kind == WORK:
            return self.work
        cwd = self._link(b"/proc/%d/cwd" % pid)
        key = (kind, argv, cwd)
        if key not in self.groups:
            self.groups[key] = ReadGroup(kind, argv, cwd)
        return self.groups[key]

    # What it reads and writes.

    def _has_enough(self, group: ReadGroup) -> bool:
        """A search counts by its answer: it is enough that it looks into the folder at all."""
        return group.kind == WORK or (group.kind == SEARCH and bool(group.reads))

    def _read(self, group: ReadGroup, path: bytes, is_followed: bool, use: int = READ) -> None:
        if not path or self._has_enough(group) or (path, is_followed) in group.seen:
            return
        group.seen.add((path, is_followed))
        for one in self._resolve(path, is_followed):
            if one[:6] == b"/proc/":  # Something else for each process.
                group.seen.discard((path, is_followed))
            name = self._inside(one)
            is_own = group.kind == DIRECT and name in self.blind and self._is_written(one)
            if name is not None and not is_own:
                group.reads[name] = None
                self._use(name, use & READ)

    def _is_written(self, path: bytes) -> bool:
        """Whether something stands there that this command has made or changed."""
        try:
            return os.lstat(path).st_ctime_ns >= self.start_ns - CLOCK_TICK_NS
        except OSError:
            return False

    def _list(self, pid: int, path: bytes) -> None:
        group = self._group(pid)
        name = self._inside(path) if path and not self._has_enough(group) else None
        if name is not None:
            group.listed[name] = None
            if self.is_shared and not (name == b"" and self._is_python(pid)):
                self._use(name + b"/*" if name else b"*", READ)

    def _is_python(self, pid: int) -> bool:
        """Whether a process may list the folder only because it imports modules from there."""
        return self._link(b"/proc/%d/exe" % pid).rpartition(b"/")[2].startswith(b"python")

    def _use(self, name: bytes, use: int, path: bytes = b"") -> None:
        """Record how a path of a shared folder is used; what a task wrote first is its own."""
        if not self.is_shared or not use or not name:
            return
        known = self.uses.get(name)
        if known is None:
            if use != READ and not os.path.lexists(path):
                use = use & ~READ | MADE
            self.uses[name] = [time.time(), use, use]
        elif use != READ or known[2] & (READ | WRITE) != WRITE:
            known[1] |= use

    def _write(
        self, pid: int, path: bytes, is_followed: bool, is_read: bool, use: int = WRITE
    ) -> int:
        if not path:
            return 0
        *links, real = self._resolve(path, is_followed)
        group = self._group(pid)
        for link in links:
            self._read(group, link, False)
        if self._is_refused(real):
            return EROFS
        name = self._inside(real)
        if name is None:
            self._write_outside(real)
            if self.is_shared and (name := self._shared_outside(real)) is not None:
                self._use(name, use, real)
            return 0
        if real in self._plain:
            self._plain = set(TOP)
        if group.kind == WORK:
            self.direct.reads[name] = None
        elif is_read:
            self._read(group, real, False, use)
        elif group.kind == DIRECT and name not in group.reads:
            self.blind.add(name)
        self.writes[name] = None
        self._use(name, use, real)
        return 0

    def _is_refused(self, path: bytes) -> bool:
        if self.is_guarded and _is_below(path, self.original):
            self.refused[path] = None
            return True
        return False

    def _write_outside(self, path: bytes) -> None:
        if path in self.outside or _is_below(path, self.root):  # In it, but below a `.git`.
            return
        if path.startswith(self.kept):
            return
        if not any(_is_below(path, own) for own in self.own):
            self.outside[path] = os.path.lexists(path)

    def _shared_outside(self, path: bytes) -> bytes | None:
        """The name of a path that counts although it is not in the folder, or below a `.git`."""
        if path in self.outside:
            return path
        inner = path[len(self.root) + 1 :] if _is_below(path, self.root) else b""
        _, is_git, rest = inner.rpartition(b".git/")
        is_branch = is_git and (rest == b"HEAD" or rest.startswith(b"refs/heads/"))
        return inner if is_branch and not rest.endswith(b".lock") else None

    def _finish_outside(self) -> None:
        """Keep of the paths outside those whose content has really changed: a call may fail."""
        for path, was_there in list(self.outside.items()):
            try:
                changed_ns = os.lstat(path).st_ctime_ns
            except OSError:
                is_written = was_there
            else:
                is_written = changed_ns >= self.start_ns - CLOCK_TICK_NS
            if not is_written:
                del self.outside[path]

    def _join(self, pid: int, source: bytes, target: bytes) -> int:
        """A hard link: the target has what the source has."""
        self._read(self._group(pid), source, False)
        return self._write(pid, target, False, True)

    def _rename(self, pid: int, source: bytes, target: bytes, how: int) -> int:
        if not source or not target:
            return 0
        self._plain = set(TOP)
        source, target = self._resolve(source, False)[-1], self._resolve(target, False)[-1]
        pairs = self._moved(source, target)
        # A file replaces a file, whatever it is; else it depends on what stands there.
        is_read = bool(how) or len(pairs) > 1 or os.path.isdir(source)
        if how & RENAME_EXCHANGE:
            pairs += self._moved(target, source)
        for old, new in pairs:
            error = self._write(pid, old, False, True, REMOVE)
            error = error or self._write(pid, new, False, is_read)
            if error:
                return error
        return 0

    def _moved(self, source: bytes, target: bytes) -> list[tuple[bytes, bytes]]:
        """All that is in a folder that is renamed, with its new paths."""
        pairs = [(source, target)]
        waiting = [b""]
        while waiting:
            inner = waiting.pop()
            try:
                if os.path.islink(source + inner) or not os.path.isdir(source + inner):
                    continue
                for name in os.listdir(source + inner):
                    below = inner + b"/" + name
                    pairs.append((source + below, target + below))
                    waiting.append(below)
            except OSError:
                continue
            if len(pairs) > EXPANDED_MAX:
                self._doubt(f"a folder of more than {EXPANDED_MAX:,} files was renamed")
                break
        return pairs

    def _inside(self, path: bytes) -> bytes | None:
        """The path relative to the folder; None if it is not in it, or below a `.git`."""
        for root in (self.root, self.original):
            if path[: len(root)] == root and path[len(root) : len(root) + 1] in (b"/", b""):
                name = path[len(root) + 1 :]
                return None if b".git" in name and b".git" in name.split(b"/") else name
        return None

    def _resolve(self, path: bytes, is_followed: bool) -> list[bytes]:
        """The links that a path goes through, the first part that is not there, and what it leads
        to, last."""
        folder, _, name = path.rpartition(b"/")
        links: list[bytes] = []
        is_followed, is_missing = is_followed or not name, False
        if folder not in self._plain or name in (b"", b".", b".."):
            parts = [part for part in path.split(b"/") if part and part != b"."][::-1]
            at = b""
        else:
            parts, at = [name], folder.rstrip(b"/")
        while parts:
            part = parts.pop()
            if part == b"..":
                at = at.rpartition(b"/")[0]
                continue
            here = at + b"/" + part
            if at == b"/proc":
                at = self._process_folder(part, parts, is_followed)
                links.append(at)
                continue
            if here in self._plain or (not parts and not is_followed):
                at = here
                continue
            try:
                target = os.readlink(here)
            except OSError as fault:
                if parts and fault.errno == errno.EINVAL and here[:6] != b"/proc/":
                    self._plain.add(here)
                elif parts and fault.errno == errno.ENOENT and not is_missing:
                    is_missing = True
                    links.append(here)
                at = here
                continue
            links.append(here)
            if len(links) > LINKS_MAX:
                break
            parts += [part for part in target.split(b"/") if part and part != b"."][::-1]
            if target[:1] == b"/":
                at = b""
        return [*links, at or b"/"]

    def _process_folder(self, name: bytes, rest: list[bytes], is_followed: bool) -> bytes:
        """A folder of /proc, as it is called here; `rest` is what follows, last first."""
        if name in (b"self", b"thread-self"):
            return b"/proc/%d" % self._pid
        length = len(rest) + is_followed
        if self.has_inner_pids and name.isdigit() and rest:
            first = rest[-1]
            if first in (b"cwd", b"root", b"fd", b"task") and length > 1 + (first == b"fd"):
                raise UnreadableError("a path leads through another process")
        return b"/proc/" + name


def _use_of(flags: int, is_new: bool) -> int:
    """How a file that is opened with these flags is used, if that is to write."""
    if not flags & (O_WRITE | O_TRUNC):
        return READ  # It is only made if it is not there: a lock.
    if flags & (O_APPEND | O_TRUNC | os.O_RDWR) == O_APPEND:
        return APPEND
    return WRITE if is_new or flags & O_TRUNC else READ | WRITE


def _texts(paths: Iterable[bytes]) -> list[str]:
    return [os.fsdecode(path) for path in paths]


def _is_below(path: bytes, folder: bytes) -> bool:
    return path == folder or path.startswith(folder.rstrip(b"/") + b"/")


def _set_sync_wake_up(listener: int) -> None:
    """The process that waits runs on the same processor, at once. Linux 6.6 and later."""
    try:
        fcntl.ioctl(listener, SET_FLAGS, SYNC_WAKE_UP)
    except OSError:
        return


def gains_rights(status: os.stat_result, user: int) -> bool:
    """Whether a program runs with the rights of its owner or group: what the processes of an
    ordinary user cannot gain behind a filter."""
    is_other = status.st_uid != user and status.st_mode & stat.S_ISUID
    return bool(user and (is_other or status.st_mode & stat.S_ISGID))


def _leader_and_parent(pid: int) -> tuple[int, int]:
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            text = file.read()
    except OSError:
        return 0, 0
    values = {}
    for line in text.split(b"\n", 8)[:8]:
        name, _, value = line.partition(b":")
        values[name] = value
    return int(values[b"Tgid"]), int(values[b"PPid"])
