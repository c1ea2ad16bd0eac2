"""How many commands run at once, judged by what the commands see of each other, not by a clock."""

from __future__ import annotations

import pytest

from tests.integration.strangers_shell import Stranger

MEET = "touch met/{}; until [ $(ls met | wc -l) -ge WIDTH ]; do sleep 0.2; done"
"""Ends when so many commands have started: before that, none of them does."""
COUNT = "touch now/{}; ls now | wc -l; sleep 0.2; rm now/{}"
"""Prints how many run."""


@pytest.mark.parametrize("jobs", [("-j", "40"), ()])
def test_commands_that_wait_run_together_with_and_without_a_number(
    stranger: Stranger, jobs: tuple[str, ...]
) -> None:
    stranger.shell("mkdir met")
    words = " ".join(jobs)
    command = MEET.replace("WIDTH", "40")
    said = stranger.shell(f"$headway each {words} --timeout 60s '{command}' ::: $(seq 40)")
    assert (said.code, said.err) == (0, "")


def test_a_number_is_never_exceeded(stranger: Stranger) -> None:
    stranger.shell("mkdir now")
    said = stranger.shell(f"$headway each -j3 '{COUNT}' ::: $(seq 24)")
    assert said.code == 0
    assert max(map(int, said.out.split())) == 3


@pytest.mark.parametrize("how", ["--strategy all-at-once", "-j 24", "--strategy fixed:24", ""])
def test_commands_of_a_plan_are_as_many_as_asked(stranger: Stranger, how: str) -> None:
    command = MEET.replace("WIDTH", "24").replace("{}", '"$item"')
    stranger.write(
        "plan.yaml",
        f"headway: 1\ntasks:\n  meet:\n    each: {[*range(24)]}\n    timeout: 60s\n    retries: 0\n"
        f"    run: '{command}'\n",
    )
    stranger.shell("mkdir met")
    said = stranger.shell(f"$headway run plan.yaml {how}")
    assert said.code == 0, said.err


@pytest.mark.parametrize(("limit", "is_enough"), [("-Sn", True), ("-n", False)])
def test_few_open_files_hold_back_no_command_and_end_no_run(
    stranger: Stranger, limit: str, is_enough: bool
) -> None:
    """A soft limit is raised, for headway alone; beyond a hard one commands fail and say it."""
    line = f"ulimit {limit} 40; $headway each -j30 'sleep 0.3; ulimit -Sn; true {{}}' ::: $(seq 60)"
    said = stranger.shell(line)
    assert "Traceback" not in said.err
    assert set(said.out.split()) == {"40"}
    assert (len(said.out.split()) == 60) == is_enough
    assert is_enough or "could not be started" in said.err
