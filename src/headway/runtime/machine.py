"""What this machine has, for tasks that use it, and what headway itself takes of it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass


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


@dataclass(frozen=True, slots=True)
class Overhead:
    """What this process has taken of the machine since somebody began to look."""

    cpu_s: float
    """Of all its threads; programs that it started are not among it."""
    memory_bytes: int
    """The most that it held, ever."""


def own_overhead() -> Callable[[], Overhead]:
    """Begin to look; what is returned tells how much it was since."""
    began_s = time.process_time()

    def look() -> Overhead:
        return Overhead(time.process_time() - began_s, _memory_most())

    return look


def _memory_most() -> int:
    """Resident memory at its peak; macOS counts bytes, everybody else kibibytes."""
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
