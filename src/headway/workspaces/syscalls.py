"""The system calls that take a path, by architecture, and the seccomp filter that reports them.

The filter reports a call to the process that holds its listener, which reads the path and lets the
call continue. A call on an open descriptor (read, mmap, fstat) is not reported: its file was seen
when it was opened. io_uring is refused as on a kernel without it, because its calls cannot be seen.
"""

from __future__ import annotations

import os
import struct

(
    OPEN, OPEN_HOW, CREATE, LOOK, EXECUTE, LIST, REMOVE, CHANGE, MAKE, RENAME, RENAME_HOW, LINK,
    CHANGE_FD, TOUCH, MOUNT, ROOT,
) = range(16)  # fmt: skip
"""What a call does. LOOK reads names and status; CHANGE and MAKE depend on what stands there,
CREATE does not; TOUCH changes what does not count (times, extended attributes), if it is there."""

FOLLOW, KEEP = -1, -2
"""Instead of the place of a flags argument: whether a link at the end is always followed."""

Row = tuple[int, int, int, int]
"""What it does; the places of the arguments with the folder (-1: none), the path, and flags."""

_CALLS: dict[str, Row] = {
    "open": (OPEN, -1, 0, 1),
    "openat": (OPEN, 0, 1, 2),
    "openat2": (OPEN_HOW, 0, 1, 2),
    "creat": (CREATE, -1, 0, FOLLOW),
    "stat": (LOOK, -1, 0, FOLLOW),
    "lstat": (LOOK, -1, 0, KEEP),
    "access": (LOOK, -1, 0, FOLLOW),
    "readlink": (LOOK, -1, 0, KEEP),
    "newfstatat": (LOOK, 0, 1, 3),
    "statx": (LOOK, 0, 1, 2),
    "faccessat": (LOOK, 0, 1, FOLLOW),
    "faccessat2": (LOOK, 0, 1, 3),
    "readlinkat": (LOOK, 0, 1, KEEP),
    "chdir": (LOOK, -1, 0, FOLLOW),
    "name_to_handle_at": (LOOK, 0, 1, KEEP),
    "inotify_add_watch": (LOOK, -1, 1, FOLLOW),
    "statfs": (LOOK, -1, 0, FOLLOW),
    "getxattr": (LOOK, -1, 0, FOLLOW),
    "lgetxattr": (LOOK, -1, 0, KEEP),
    "listxattr": (LOOK, -1, 0, FOLLOW),
    "llistxattr": (LOOK, -1, 0, KEEP),
    "getxattrat": (LOOK, 0, 1, 2),
    "listxattrat": (LOOK, 0, 1, 2),
    "setxattr": (TOUCH, -1, 0, FOLLOW),
    "lsetxattr": (TOUCH, -1, 0, KEEP),
    "removexattr": (TOUCH, -1, 0, FOLLOW),
    "lremovexattr": (TOUCH, -1, 0, KEEP),
    "setxattrat": (TOUCH, 0, 1, 2),
    "removexattrat": (TOUCH, 0, 1, 2),
    "file_setattr": (TOUCH, 0, 1, 4),
    "utime": (TOUCH, -1, 0, FOLLOW),
    "utimes": (TOUCH, -1, 0, FOLLOW),
    "futimesat": (TOUCH, 0, 1, FOLLOW),
    "utimensat": (TOUCH, 0, 1, 3),
    "file_getattr": (LOOK, 0, 1, 4),
    "execve": (EXECUTE, -1, 0, 1),
    "execveat": (EXECUTE, 0, 1, 2),
    "getdents": (LIST, 0, -1, KEEP),
    "getdents64": (LIST, 0, -1, KEEP),
    "unlink": (REMOVE, -1, 0, KEEP),
    "rmdir": (REMOVE, -1, 0, KEEP),
    "unlinkat": (REMOVE, 0, 1, KEEP),
    "truncate": (CHANGE, -1, 0, FOLLOW),
    "chmod": (CHANGE, -1, 0, FOLLOW),
    "fchmodat": (CHANGE, 0, 1, FOLLOW),
    "fchmodat2": (CHANGE, 0, 1, 3),
    "chown": (CHANGE, -1, 0, FOLLOW),
    "lchown": (CHANGE, -1, 0, KEEP),
    "fchownat": (CHANGE, 0, 1, 4),
    "mkdir": (MAKE, -1, 0, KEEP),
    "mkdirat": (MAKE, 0, 1, KEEP),
    "mknod": (MAKE, -1, 0, KEEP),
    "mknodat": (MAKE, 0, 1, KEEP),
    "symlink": (MAKE, -1, 1, KEEP),
    "symlinkat": (MAKE, 1, 2, KEEP),
    "rename": (RENAME, -1, 0, 1),
    "renameat": (RENAME, 0, 1, 3),
    "renameat2": (RENAME_HOW, 0, 1, 3),
    "link": (LINK, -1, 0, 1),
    "linkat": (LINK, 0, 1, 3),
    "fchmod": (CHANGE_FD, 0, -1, KEEP),
    "mount": (MOUNT, -1, 1, FOLLOW),
    "move_mount": (MOUNT, 2, 3, KEEP),
    "chroot": (ROOT, -1, 0, FOLLOW),
    "pivot_root": (ROOT, -1, 0, FOLLOW),
    "open_by_handle_at": (ROOT, -1, 1, KEEP),
}
"""For renames and LINK the last is the place of the second path; its folder is the one before."""

_SAME = (
    "move_mount 429 openat2 437 faccessat2 439 fchmodat2 452 setxattrat 463 getxattrat 464 "
    "listxattrat 465 removexattrat 466 file_getattr 468 file_setattr 469"
)
"""Calls of this age have one number everywhere."""
_NUMBERS = {
    "x86_64": (
        "open 2 stat 4 lstat 6 access 21 execve 59 truncate 76 getdents 78 chdir 80 rename 82 "
        "mkdir 83 "
        "rmdir 84 creat 85 link 86 unlink 87 symlink 88 readlink 89 chmod 90 fchmod 91 chown 92 "
        "lchown 94 utime 132 mknod 133 statfs 137 pivot_root 155 chroot 161 mount 165 "
        "setxattr 188 lsetxattr 189 getxattr 191 lgetxattr 192 listxattr 194 llistxattr 195 "
        "removexattr 197 lremovexattr 198 getdents64 217 utimes 235 inotify_add_watch 254 "
        "openat 257 mkdirat 258 mknodat 259 fchownat 260 futimesat 261 newfstatat 262 unlinkat 263 "
        "renameat 264 linkat 265 symlinkat 266 readlinkat 267 fchmodat 268 faccessat 269 "
        "utimensat 280 "
        "name_to_handle_at 303 open_by_handle_at 304 renameat2 316 execveat 322 statx 332"
    ),
    "aarch64": (
        "setxattr 5 lsetxattr 6 getxattr 8 lgetxattr 9 listxattr 11 llistxattr 12 removexattr 14 "
        "lremovexattr 15 mount 40 statfs 43 utimensat 88 "
        "inotify_add_watch 27 mknodat 33 mkdirat 34 unlinkat 35 symlinkat 36 linkat 37 renameat 38 "
        "pivot_root 41 truncate 45 faccessat 48 chdir 49 "
        "chroot 51 fchmod 52 fchmodat 53 fchownat 54 "
        "openat 56 getdents64 61 readlinkat 78 newfstatat 79 execve 221 name_to_handle_at 264 "
        "open_by_handle_at 265 renameat2 276 execveat 281 statx 291"
    ),
}
AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
SECCOMP_NUMBER = {"x86_64": 317, "aarch64": 277}
CLONE_NUMBER = {"x86_64": 56, "aarch64": 220}
IO_URING_SETUP = 425

# fmt: off
FOREIGN_ALLOWED = (
    1, 3, 4, 6, 19, 45, 54, 91, 125, 140, 168, 174, 175, 180, 181, 192, 197, 221, 240, 252, 265,
)
# fmt: on
"""Of a 32-bit program, calls without a path that would cost much: the numbers of i386, of which
arm has the same. Each other one is reported, so that such a program never goes unnoticed."""

MACHINE = os.uname().machine
IS_KNOWN = MACHINE in AUDIT_ARCH and struct.calcsize("P") == 8

ALLOW, NOTIFY, REFUSE_ENOSYS = 0x7FFF0000, 0x7FC00000, 0x00050000 | 38
_LOAD, _EQUAL, _AT_LEAST, _BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _ARCH_AT, _ARGS_AT = 0, 4, 16
AT_EMPTY_PATH = 0x1000


_OBSERVED: dict[bool, tuple[dict[int, Row], bytes]] = {}


def observed_calls(is_light: bool) -> tuple[dict[int, Row], bytes]:
    """The calls to report on this machine, and their filter; made once."""
    if is_light not in _OBSERVED:
        table = call_table(is_light)
        _OBSERVED[is_light] = table, filter_program(table)
    return _OBSERVED[is_light]


def call_table(is_light: bool, machine: str = MACHINE) -> dict[int, Row]:
    """The calls to report, by number. A light table is without those that read no content: the
    names and status of files, and the entries of a folder that is open (its opening is reported).
    """
    words = f"{_NUMBERS[machine]} {_SAME}".split()
    rows = {int(number): _CALLS[name] for name, number in zip(words[::2], words[1::2], strict=True)}
    return {
        number: row
        for number, row in rows.items()
        if not (is_light and row[0] in (LOOK, LIST, TOUCH, MOUNT))
    }


def filter_program(table: dict[int, Row], machine: str = MACHINE) -> bytes:
    """The filter as the kernel takes it. The jumps of a filter only go forward, at most 255 steps.

    A status call with AT_EMPTY_PATH on an open descriptor is allowed: it is fstat by another name.
    """
    steps: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, _ARCH_AT),
        (_EQUAL, len(FOREIGN_ALLOWED) + 3, 0, AUDIT_ARCH[machine]),
        (_LOAD, 0, 0, _NUMBER_AT),
    ]
    left = len(FOREIGN_ALLOWED)
    steps += [(_EQUAL, left - n, 0, number) for n, number in enumerate(FOREIGN_ALLOWED)]
    steps += [(_RETURN, 0, 0, NOTIFY), (_RETURN, 0, 0, ALLOW)]
    steps[1] = (_EQUAL, len(steps) - 2, 0, AUDIT_ARCH[machine])
    steps.append((_LOAD, 0, 0, _NUMBER_AT))
    if machine == "x86_64":  # Numbers from here on are those of x32, which no kernel needs.
        steps += [(_AT_LEAST, 0, 1, 0x40000000), (_RETURN, 0, 0, REFUSE_ENOSYS)]
    steps += [(_EQUAL, 0, 1, IO_URING_SETUP), (_RETURN, 0, 0, REFUSE_ENOSYS)]
    plain = []
    for number, (does, folder, _, flags) in sorted(table.items()):
        if does != LOOK or folder < 0 or flags < 0:
            plain.append(number)
            continue
        steps += [
            (_EQUAL, 0, 6, number),
            (_LOAD, 0, 0, _ARGS_AT + 8 * flags),
            (_BITS, 0, 3, AT_EMPTY_PATH),
            (_LOAD, 0, 0, _ARGS_AT + 8 * folder),
            (_AT_LEAST, 1, 0, 0x80000000),  # No descriptor: the current folder.
            (_RETURN, 0, 0, ALLOW),
            (_RETURN, 0, 0, NOTIFY),
        ]
    left = len(plain)
    steps += [(_EQUAL, left - n, 0, number) for n, number in enumerate(plain)]
    steps += [(_RETURN, 0, 0, ALLOW), (_RETURN, 0, 0, NOTIFY)]
    return b"".join(struct.pack("HBBI", *step) for step in steps)
