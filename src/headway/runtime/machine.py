"""What this machine has left, for tasks that use it: processors and memory, as the kernel says."""

from __future__ import annotations

import os

from headway.core.engine.local import Load

BUSY_FIELDS = (3, 4)
"""Of a `cpu` line in /proc/stat: idle and waiting for a disk are not busy."""


class Machine:
    """Looks at the machine now and then; where the kernel does not tell, the load stands in."""

    __slots__ = ("_idle", "_total")

    def __init__(self) -> None:
        self._total, self._idle = _times()

    def __repr__(self) -> str:
        return f"<Machine with {cores()} cores>"

    def look(self, active: int) -> Load:
        """What happened since the last look; so many tasks of ours use the machine."""
        total, idle = _times()
        passed, rested = total - self._total, idle - self._idle
        self._total, self._idle = total, idle
        busy = 1.0 - rested / passed if passed > 0 else min(1.0, os.getloadavg()[0] / cores())
        return Load(min(1.0, max(0.0, busy)), _memory(), active, _runnable() / cores())

    def statistics(self) -> Load:
        return self.look(0)


def cores() -> int:
    """Processors that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def _times() -> tuple[float, float]:
    try:
        with open("/proc/stat", "rb") as file:
            fields = [float(field) for field in file.readline().split()[1:]]
    except (OSError, ValueError):
        return 0.0, 0.0
    return sum(fields), sum(fields[index] for index in BUSY_FIELDS if index < len(fields))


def _runnable() -> float:
    """Threads that run or could run just now."""
    try:
        with open("/proc/loadavg", "rb") as file:
            return float(file.read().split()[3].partition(b"/")[0])
    except (OSError, ValueError, IndexError):
        return os.getloadavg()[0]


def _memory() -> float:
    try:
        with open("/proc/meminfo", "rb") as file:
            lines = dict(line.split(b":", 1) for line in file)
        return float(lines[b"MemAvailable"].split()[0]) / float(lines[b"MemTotal"].split()[0])
    except (OSError, ValueError, KeyError, IndexError, ZeroDivisionError):
        return 1.0
