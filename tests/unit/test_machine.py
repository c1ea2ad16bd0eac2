"""What the commands of a run leave of this machine."""

from __future__ import annotations

import os
import subprocess
from math import inf
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headway.agents.metering import MeteredUsage
from headway.agents.shell import RunningCommand
from headway.base.process_tree import HAS_PROC, activity
from headway.engine.events import AttemptStuck
from headway.run.machine import (
    GROWN_S,
    NEW_BYTES,
    QUIET_S,
    Machine,
    QuietCommands,
    load_of,
    memory_bytes,
    starting_agents,
)
from headway.work import AttemptClock

GB = 1e9


def command(age_s: float, memory_bytes: float, busy: int = 0) -> RunningCommand:
    return RunningCommand(1, AttemptClock(), None, age_s, busy, 0.0, int(memory_bytes), 0)


def test_busy_processes_are_added_up() -> None:
    assert load_of([command(9.0, 1, 2), command(9.0, 1, 1)], 0.0, (inf, inf), 0).busy == 3


def test_a_command_that_has_just_started_counts_as_large_as_it_will_be() -> None:
    memory = (4.0 * GB, 10.0 * GB)  # 2.5 are to be had.
    grown = [command(GROWN_S, 0.25 * GB)]
    assert load_of(grown, 0.0, memory, 0).room == pytest.approx(10.0)
    young = [*grown, command(0.1, 0.05 * GB)]
    assert load_of(young, 0.0, memory, 0).room == pytest.approx(2.3 / 0.25)


def test_before_anything_is_known_a_command_is_an_agent_and_afterwards_what_it_was() -> None:
    memory = (4.0 * GB, 10.0 * GB)
    assert load_of([], 0.0, memory, 0).room == pytest.approx(2.5 * GB / NEW_BYTES)
    assert load_of([], 1e6, memory, 0).room == pytest.approx(2500.0)


def test_memory_is_short_when_nearly_nothing_can_be_had() -> None:
    assert load_of([], 0.0, (0.4 * GB, 10.0 * GB), 0).is_short
    assert not load_of([], 0.0, (0.6 * GB, 10.0 * GB), 0).is_short
    assert load_of([], 0.0, (0.6 * GB, 10.0 * GB), 0).room == 0.0


def test_the_machine_has_as_much_memory_as_can_be_had() -> None:
    available, total = memory_bytes()
    assert 0 < available <= total


@pytest.mark.skipif(not HAS_PROC, reason="the system has no /proc")
def test_a_command_is_seen_with_all_of_its_processes() -> None:
    line = "setsid sh -c 'while :; do :; done' & echo; wait"
    with subprocess.Popen(
        ["sh", "-c", line], stdout=subprocess.PIPE, start_new_session=True
    ) as busy, subprocess.Popen(["sleep", "60"], start_new_session=True) as idle:  # fmt: skip
        try:
            assert busy.stdout is not None
            busy.stdout.readline()
            roots, seen = {busy.pid, idle.pid}, activity(set())
            while not seen or not seen[busy.pid][0]:
                seen = activity(roots)
            assert seen[idle.pid][0] == 0
            assert seen[idle.pid][2] > 0
            assert activity({os.getpid()})[os.getpid()][2] > seen[idle.pid][2]
        finally:
            idle.kill()
            subprocess.run(["pkill", "-P", str(busy.pid)], check=False)
            busy.kill()


class Shim:
    """Ends what it is told to."""

    def __init__(self) -> None:
        self.ended: list[int] = []

    def end_stuck(self, number: int) -> None:
        self.ended.append(number)


class Followed:
    """A driver with one attempt, which runs one command."""

    def __init__(self) -> None:
        self.attempt = SimpleNamespace(task=0, number=1, clock=AttemptClock())
        self.shim, self.told = Shim(), list[float]()
        self.quiet = QuietCommands(cast(Any, self), Machine(cast(Any, self.shim)))

    def active_attempts(self) -> list[SimpleNamespace]:
        return [self.attempt]

    def clock(self) -> float:
        return 0.0

    def feed(self, event: AttemptStuck) -> None:
        self.told.append(event.quiet_s)

    def look(
        self, now_s: float, cpu_s: float = 0.0, written: int = 0, stuck_s: float | None = None
    ) -> None:
        one = RunningCommand(1, self.attempt.clock, stuck_s, now_s, 0, cpu_s, 0, written)
        self.quiet.observe([one], now_s)


def test_a_command_that_does_nothing_for_minutes_is_named_once_and_again_when_it_goes_on() -> None:
    run = Followed()
    for now_s in range(0, 900, 10):
        run.look(float(now_s))
    assert run.told == [QUIET_S]
    run.look(900.0, written=1)
    run.look(910.0, written=1)
    assert run.told == [QUIET_S, 0.0]
    assert not run.shim.ended, "without `stuck` it is only named"


@pytest.mark.parametrize(
    ("cpu_share", "written", "waits"), [(0.02, 0, False), (0.0, 1, False), (0.0, 0, True)]
)
def test_what_computes_or_writes_or_waits_for_a_permit_is_not_stuck(
    cpu_share: float, written: int, waits: bool
) -> None:
    run = Followed()
    if waits:
        run.attempt.clock.stop(is_refused=True)
    for now_s in range(0, 900, 10):
        run.look(float(now_s), cpu_share * now_s, written * now_s, stuck_s=60.0)
    assert (run.told, run.shim.ended) == ([], [])


def test_timers_that_tick_are_no_work_and_a_limit_ends_the_command() -> None:
    run = Followed()
    for now_s in range(0, 70, 10):
        run.look(float(now_s), 0.003 * now_s, stuck_s=60.0)
    assert run.shim.ended == [1]
    assert run.told == []


def test_agents_that_have_not_called_are_counted_once_any_command_has() -> None:
    class Meter:
        calling = False

        def is_calling(self, _: object) -> bool:
            return self.calling

        def seen(self, _: object) -> MeteredUsage:
            return MeteredUsage()

    run, meter = Followed(), Meter()
    young = RunningCommand(1, run.attempt.clock, None, 0.5, 0, 0.0, 0, 0)
    given = cast(Any, run), cast(Any, meter), [young]
    assert starting_agents(*given, has_called=False) == (0, False)
    assert starting_agents(*given, has_called=True) == (1, True)
    meter.calling = True
    assert starting_agents(*given, has_called=False) == (0, True)
