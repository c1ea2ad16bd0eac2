"""The processes of a command, and signals to all of them."""

from __future__ import annotations

import os

HAS_PROC = os.path.exists("/proc/self/stat")


def family(root: int) -> dict[int, int]:
    """The processes of a command and when each began, by session or descent.

    A process group is not enough: `timeout` and shells with job control make their own, and
    agents start detached tools. Where there is no /proc, no process is found.
    """
    parents: dict[int, int] = {}
    begins: dict[int, int] = {}
    found = {root}
    for name in os.listdir("/proc") if HAS_PROC else ():
        if not name.isdigit():
            continue
        fields = stat_of(int(name))
        if fields and fields[0] not in b"ZX":
            pid = int(name)
            parents[pid] = int(fields[1])
            begins[pid] = int(fields[19])
            if int(fields[3]) == root:
                found.add(pid)
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return {pid: begins[pid] for pid in found if pid in begins}


def children(parent: int) -> list[int]:
    """The processes that a process has started and that are not reaped."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()] if HAS_PROC else []
    return [pid for pid in pids if (fields := stat_of(pid)) and int(fields[1]) == parent]


def stat_of(pid: int) -> list[bytes]:
    """What the kernel says of a process from its state on; nothing if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()
    except OSError:
        return []


def is_alive(pid: int, began: int) -> bool:
    """Whether it is this process and runs; one that only waits to be reaped does not."""
    fields = stat_of(pid)
    return bool(fields) and fields[0] not in b"ZX" and int(fields[19]) == began


def send(root: int, others: dict[int, int], number: int) -> None:
    """Send to a command's group (0 if its number may be reused by now) and the others."""
    try:
        if root:
            os.killpg(root, number)
    except OSError:
        pass  # It is empty.
    for pid, began in others.items():
        try:
            if pid != root and is_alive(pid, began):
                os.kill(pid, number)
        except OSError:
            continue
