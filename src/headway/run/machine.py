"""What this machine has, and what the commands of a run do with it.

Laws:
- How many tasks may use the machine follows from what their processes do: never from the number of
  processors alone, and not at all where the user gives a number.
- A command that does nothing is named, and ended only where the user says after how long.
- Nothing is looked at while nothing runs, and looking costs a few percent of a processor.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from headway.base.process_tree import HAS_PROC
from headway.engine import events as ev
from headway.engine.strategy import LocalWidth, MachineLoad

if TYPE_CHECKING:
    from headway.agents.metering import CallMeter
    from headway.agents.shell import RunningCommand, ShimClient
    from headway.run.driver import Driver
    from headway.work import Attempt

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


QUIET_S: Final = 300.0
"""A command that has done nothing for so long is named as stuck: models think for minutes, and that
is a call in flight."""
QUIET_CPU: Final = 0.01
QUIET_LOOK_S: Final = 10.0
"""How often it is looked for: enough for minutes."""


class Machine(Struct, frozen=True):
    """How the commands of a run can be seen."""

    commands: ShimClient
    meter: CallMeter | None = None
    has_agents: bool = False
    """Whether its commands are known to call models before one has."""


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


class _Seen(Struct):
    """A command as it was when it last did something."""

    at_s: float
    looked_s: float
    cpu_s: float
    output_bytes: int
    calls: int
    is_named: bool = False


class QuietCommands:
    """Finds commands that neither write, nor call, nor compute, and do not wait for a permit.

    One that uses less than a hundredth of a processor computes nothing: timers tick in every agent.
    Names it after `QUIET_S`, and ends it after its own `stuck_s`.
    """

    def __init__(self, driver: Driver, machine: Machine) -> None:
        self._driver = driver
        self._machine = machine
        self._seen: dict[int, _Seen] = {}

    def observe(self, running: Sequence[RunningCommand], now_s: float) -> None:
        before, self._seen = self._seen, {}
        attempts = {id(one.clock): one for one in self._driver.active_attempts()}
        for command in running:
            attempt = attempts.get(id(command.clock))
            seen = before.get(command.number)
            if attempt is None:
                continue
            calls, is_calling = self._calls(attempt)
            if seen is None or is_calling or self._did_something(command, seen, calls, now_s):
                if seen is not None and seen.is_named:
                    self._tell(attempt, 0.0)
                now = _Seen(now_s, now_s, command.cpu_s, command.output_bytes, calls)
                self._seen[command.number] = now
                continue
            seen.looked_s, self._seen[command.number] = now_s, seen
            quiet_s = now_s - seen.at_s
            if quiet_s >= QUIET_S and not seen.is_named:
                seen.is_named = True
                self._tell(attempt, quiet_s)
            if command.stuck_s is not None and quiet_s >= command.stuck_s:
                self._machine.commands.end_stuck(command.number)

    def _calls(self, attempt: Attempt) -> tuple[int, bool]:
        meter = self._machine.meter
        if meter is None:
            return 0, attempt.clock.is_stopped
        return meter.seen(attempt).calls, attempt.clock.is_stopped or meter.is_calling(attempt)

    def _did_something(
        self, command: RunningCommand, seen: _Seen, calls: int, now_s: float
    ) -> bool:
        used_s, seen.cpu_s = command.cpu_s - seen.cpu_s, command.cpu_s
        has_written = command.output_bytes != seen.output_bytes
        has_computed = used_s >= QUIET_CPU * (now_s - seen.looked_s)
        return has_written or has_computed or calls != seen.calls

    def _tell(self, attempt: Attempt, quiet_s: float) -> None:
        driver = self._driver
        event = ev.AttemptStuck(attempt.task, attempt.number, driver.clock(), round(quiet_s, 3))
        driver.feed(event)


def starting_agents(
    driver: Driver, meter: CallMeter, running: Sequence[RunningCommand], has_called: bool
) -> tuple[int, bool]:
    """How many commands have just started and not called; and whether any has called by now."""
    attempts = {id(one.clock): one for one in driver.active_attempts()}
    silent = 0
    for command in running:
        attempt = attempts.get(id(command.clock))
        if attempt is None:
            continue
        calls = meter.is_calling(attempt) or meter.seen(attempt).calls > 0
        has_called = has_called or calls
        silent += command.age_s < GROWN_S and not calls
    return silent if has_called else 0, has_called


def _not_calling(driver: Driver, machine: Machine) -> float:
    """Where processes cannot be seen: how many attempts are not known to wait for a model."""
    meter, attempts = machine.meter, [*driver.active_attempts()]
    return len(attempts) - sum(meter.is_calling(one) for one in attempts if meter is not None)


async def follow_machine(driver: Driver, machine: Machine, is_sized: bool) -> None:
    """As long as the run lasts: adapt how many tasks may use this machine, unless the user has said
    it (`is_sized`), and look for commands that do nothing."""
    width, state, quiet = LocalWidth(cores()), driver.state, QuietCommands(driver, machine)
    meter, has_called, starting = machine.meter, machine.has_agents, 0
    loop, delay_s, quiet_at_s = asyncio.get_running_loop(), LOOK_S, 0.0
    while True:
        await asyncio.sleep(delay_s)
        running = await machine.commands.look()
        now_s = loop.time()
        if now_s >= quiet_at_s:
            limits = [one.stuck_s for one in running if one.stuck_s is not None]
            # A limit is kept to a quarter of itself.
            patience_s = min([QUIET_LOOK_S, *(limit / 4 for limit in limits)])
            quiet_at_s = now_s + patience_s
            quiet.observe(running, now_s)
        if is_sized or not state.local:
            delay_s = max(LOOK_S, quiet_at_s - loop.time()) if is_sized else LOOK_S_MAX
            continue
        before, queued = width.places, 0 if meter is None else meter.queued()
        if meter is not None:
            starting, has_called = starting_agents(driver, meter, running, has_called)
        load = load_of(running, machine.commands.peak_bytes(), memory_bytes(), queued)
        load = replace(load, starting=starting)
        if not HAS_PROC:
            load = replace(load, busy=_not_calling(driver, machine))
        if (places := width.observe(load, state.local)) != before:
            driver.feed(ev.LocalRoom(places))
        is_steady = places == before or not state.line.local
        delay_s = min(2 * delay_s, LOOK_S_MAX) if is_steady else LOOK_S
