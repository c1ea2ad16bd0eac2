"""What this machine has, and what the commands of a run do with it.

Laws:
- How many tasks may use the machine follows from what their processes do: never from the number of
  processors alone, and not at all where the user gives a number.
- Nothing is looked at while nothing runs, and looking costs a few percent of a processor.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from math import inf
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from headway.engine import events as ev
from headway.engine.strategy import LocalWidth, MachineLoad

if TYPE_CHECKING:
    from headway.agents.metering import CallMeter
    from headway.agents.shell import RunningCommand
    from headway.run.driver import Driver

LOOK_S: Final = 0.25
"""How soon the commands are looked at again after their number was changed: a shell has started."""
LOOK_S_MAX: Final = 2.0
"""How often while nothing changes: a command that began to wait or to compute is noticed."""
RESERVE: Final = 0.15
"""The share of all memory that no command is started for: the system and the user need some."""
SHORT_BELOW: Final = 0.05
"""Below this share the system begins to end processes."""
NEW_BYTES: Final = 256 * 1024 * 1024
"""What a command counts with until it is seen: the size of a coding agent that has started."""
GROWN_S: Final = 5.0
"""By then an agent has the memory that it starts with."""


class Machine(Struct, frozen=True):
    """How the commands of a run can be seen."""

    look: Callable[[], Awaitable[Sequence[RunningCommand]]]
    peak_bytes: Callable[[], float]
    """The most memory that those that have ended needed; 0 while none has."""
    meter: CallMeter | None = None


def cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def memory_bytes() -> tuple[float, float]:
    """What can be had without swapping, and all; of the container, if that is less. Where it is
    unknown, there is always enough."""
    available = total = inf
    try:
        lines = _lines("/proc/meminfo")
        available, total = 1024.0 * lines[b"MemAvailable:"], 1024.0 * lines[b"MemTotal:"]
        most = float(_text("/sys/fs/cgroup/memory.max"))
        used = float(_text("/sys/fs/cgroup/memory.current"))
        cache = _lines("/sys/fs/cgroup/memory.stat")[b"inactive_file"]
        return min(available, most - used + cache), min(total, most)
    except (OSError, ValueError, KeyError, IndexError):
        return available, total  # No container, or one without a limit: `max`.


def _text(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _lines(path: str) -> dict[bytes, int]:
    words = (line.split() for line in _text(path).splitlines())
    return {word: int(number) for word, number, *_ in words}


def load_of(
    running: Sequence[RunningCommand], peak_bytes: float, memory: tuple[float, float], queued: int
) -> MachineLoad:
    """What the commands leave. Those that have just started count as large as the others became."""
    available, total = memory
    grown = [one.memory_bytes for one in running if one.age_s >= GROWN_S]
    each = max(peak_bytes, sum(grown) / len(grown) if grown else 0.0) or NEW_BYTES
    due = sum(max(0.0, each - one.memory_bytes) for one in running if one.age_s < GROWN_S)
    room = inf if total == inf else max(0.0, available - due - RESERVE * total) / each
    return MachineLoad(
        sum(one.busy for one in running), room, available < SHORT_BELOW * total, queued
    )


async def follow_machine(driver: Driver, machine: Machine) -> None:
    """Tell the engine how many tasks may use this machine, as long as the run lasts."""
    width, state, delay_s = LocalWidth(cores()), driver.state, LOOK_S
    while True:
        await asyncio.sleep(delay_s)
        if not state.local:
            continue
        before, queued = width.places, 0 if machine.meter is None else machine.meter.queued()
        running = await machine.look()
        load = load_of(running, machine.peak_bytes(), memory_bytes(), queued)
        if (places := width.observe(load, state.local)) != before:
            driver.feed(ev.LocalRoom(places))
        is_steady = places == before or not state.line.local
        delay_s = min(2 * delay_s, LOOK_S_MAX) if is_steady else LOOK_S
