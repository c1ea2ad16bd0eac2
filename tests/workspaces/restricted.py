"""A command on a system that allows less: `restricted.py WHAT COMMAND...`, for any user.

`sysctl`: user namespaces are forbidden by their number, and root has no rights over others;
`container`: `unshare`, namespaces by `clone` and `mount` are refused, as container engines do it;
`apparmor`: a user namespace can be made, and nothing can be mounted in it, as on newer Ubuntu;
`listened`: the command is observed already, so that nothing in it can be.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys

NEW_USER = 0x10000000
NEW_ANY = 0x7E020000
UNSHARE, CLONE, MOUNT, CLONE3, GETPID, SECCOMP = {
    "x86_64": (272, 56, 165, 435, 39, 317),
    "aarch64": (97, 220, 40, 435, 172, 277),
}[os.uname().machine]
LOAD, EQUAL, BITS, RETURN = 0x20, 0x15, 0x45, 0x06
ALLOW, REFUSE, NOTIFY = 0x7FFF0000, 0x00050000, 0x7FC00000
LISTENER = 8

libc = ctypes.CDLL(None, use_errno=True)


def main(what: str, argv: list[str]) -> None:
    if what == "sysctl":
        forbid_by_number()
    elif what == "container":
        put_filter([
            *refused(UNSHARE, errno.EPERM), *refused(MOUNT, errno.EPERM),
            *refused(CLONE3, errno.ENOSYS), (EQUAL, 0, 3, CLONE), (LOAD, 0, 0, 16),
            (BITS, 0, 1, NEW_ANY), (RETURN, 0, 0, REFUSE | errno.EPERM),
        ])  # fmt: skip
    elif what == "apparmor":
        put_filter(refused(MOUNT, errno.EACCES))
    elif what == "listened":
        listen()
    os.execvp(argv[0], argv)


def forbid_by_number() -> None:
    """In a user namespace of its own, whose number of further ones is none."""
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(NEW_USER) < 0:
        sys.exit("user namespaces are forbidden already")
    texts = {"self/setgroups": "deny", "self/uid_map": f"{user} {user} 1",
             "self/gid_map": f"{group} {group} 1", "sys/user/max_user_namespaces": "0"}  # fmt: skip
    for name, text in texts.items():
        with open(f"/proc/{name}", "w") as file:
            file.write(text)
    for number in range(64):
        libc.prctl(24, number, 0, 0, 0)


def refused(number: int, error: int) -> list[tuple[int, int, int, int]]:
    return [(EQUAL, 0, 1, number), (RETURN, 0, 0, REFUSE | error)]


def put_filter(steps: list[tuple[int, int, int, int]], flags: int = 0) -> int:
    """Put a filter on this process; calls are allowed that its steps say nothing about."""
    steps = [(LOAD, 0, 0, 0), *steps, (RETURN, 0, 0, ALLOW)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in steps))
    fprog = (ctypes.c_uint64 * 2)(len(steps), ctypes.addressof(program))
    libc.prctl(38, 1, 0, 0, 0)
    found: int = libc.syscall(SECCOMP, 1, flags, ctypes.byref(fprog))
    if found < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    return found


def listen() -> None:
    """The command holds a listener, of a call that nothing makes: there can be no other below."""
    os.set_inheritable(put_filter([(EQUAL, 0, 1, 0xFFF), (RETURN, 0, 0, NOTIFY)], LISTENER), True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
