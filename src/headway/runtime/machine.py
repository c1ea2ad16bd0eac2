"""What this machine has, for tasks that use it: processors, and how much memory is left."""

from __future__ import annotations

import os


def cores() -> int:
    """Processors that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def memory_available() -> float:
    """The share of all memory that can be had without swapping; all, where nobody tells."""
    try:
        with open("/proc/meminfo", "rb") as file:
            lines = dict(line.split(b":", 1) for line in file)
        return float(lines[b"MemAvailable"].split()[0]) / float(lines[b"MemTotal"].split()[0])
    except (OSError, ValueError, KeyError, IndexError, ZeroDivisionError):
        return 1.0
