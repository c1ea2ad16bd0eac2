"""The processes of a command, and signals to all of them."""

from __future__ import annotations

import os

HAS_PROC = os.path.exists("/proc/self/stat")


def family(root: int) -> dict[int, int]:
    """The processes of a command and when each began, by session or descent.

    A process group is not enough: `timeout` and shells with job control make their own, and
    agents start detached tools. Where there is no /proc, no process is found.
    """
    every = processes()
    living = {pid: fields for pid, fields in every.items() if fields[0] not in b"ZX"}
    return {pid: int(living[pid][19]) for pid, top in _roots_of(living, {root}).items() if top}


def activity(roots: set[int]) -> dict[int, tuple[int, int, int]]:
    """Of each of these commands: how many of its processes run, or wait for a processor or a disk;
    the ticks of CPU that it has used; and its pages of memory."""
    every = processes()
    totals = dict.fromkeys(roots, (0, 0, 0))
    for pid, root in _roots_of(every, roots).items():
        if root:
            fields, (busy, ticks, pages) = every[pid], totals[root]
            ticks += sum(map(int, fields[11:15]))  # With those of children that are reaped.
            totals[root] = busy + (fields[0] in b"RD"), ticks, pages + int(fields[21])
    return totals


def processes() -> dict[int, list[bytes]]:
    """All processes, and what the kernel says of each; none where there is no /proc."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()] if HAS_PROC else []
    return {pid: fields for pid in pids if (fields := stat_of(pid))}


def _roots_of(every: dict[int, list[bytes]], roots: set[int]) -> dict[int, int]:
    """To which of these commands each process belongs, by session or descent; 0 is to none."""
    found = {}
    for pid, fields in every.items():
        session = int(fields[3])
        found[pid] = pid if pid in roots else session if session in roots else 0
    for pid in every:
        path, at = [pid], pid
        while not found[at] and (at := int(every[at][1])) in every and at not in path:
            path.append(at)
        found.update(dict.fromkeys(path, found.get(at, 0)))
    return found


def children(parent: int) -> list[int]:
    """The processes that a process has started and that are not reaped."""
    return [pid for pid, fields in processes().items() if int(fields[1]) == parent]


def stat_of(pid: int) -> list[bytes]:
    """What the kernel says of a process from its state on; nothing if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()
    except OSError:
        return []


def left_in_session(leader: int) -> dict[int, int]:
    """The processes of a session whose leader has ended, and when each began."""
    return {
        pid: int(fields[19])
        for pid, fields in processes().items()
        if int(fields[3]) == leader and pid != leader and fields[0] not in b"ZX"
    }


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
