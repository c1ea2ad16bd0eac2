"""What the commands of a run leave of this machine."""

from __future__ import annotations

import os
import subprocess
from math import inf

import pytest

from headway.agents.shell import RunningCommand
from headway.base.process_tree import HAS_PROC, activity
from headway.run.machine import GROWN_S, NEW_BYTES, load_of, memory_bytes
from headway.work import AttemptClock

GB = 1e9


def command(age_s: float, memory_bytes: float, busy: int = 0) -> RunningCommand:
    return RunningCommand(1, AttemptClock(), age_s, busy, 0.0, int(memory_bytes), 0)


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
