"""A process dies where it was told to, and nowhere else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

PROGRAM = """
import os, subprocess, sys
from headway.base.crash import crash_point
assert "HEADWAY_CRASH_AT" not in os.environ
for number in range(5):
    crash_point("here")
    crash_point("there")
    print(number, flush=True)
"""


def passed(said: str | None) -> tuple[int, list[str]]:
    """How such a process ends, and what it said before."""
    environment = dict(os.environ)
    environment.pop("HEADWAY_CRASH_AT", None)
    if said is not None:
        environment["HEADWAY_CRASH_AT"] = said
    ended = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=False,
                           capture_output=True, text=True, start_new_session=True)  # fmt: skip
    return ended.returncode, ended.stdout.split()


@pytest.mark.parametrize("said", [None, "", "elsewhere:1", "here:6"])
def test_a_process_that_does_not_come_there_lives(said: str | None) -> None:
    assert passed(said) == (0, ["0", "1", "2", "3", "4"])


@pytest.mark.parametrize("said", ["here:3", "there:3", "there:3:group"])
def test_a_process_dies_when_it_comes_there_for_the_third_time(said: str) -> None:
    assert passed(said) == (-signal.SIGKILL, ["0", "1"])
