"""What a report says of calls that were in flight at a kill is what the provider has charged."""

from __future__ import annotations

from pathlib import Path

from tests.promises.user import kill_group, openai_at, provider, until, user

TASKS = 18
WIDTH = 6
KEY = "cut-off"
PLAN = f"""\
headway: 1
name: cut
model: openai/hash
strategy: fixed({WIDTH})
tasks:
  ask:
    each: [{", ".join(map(str, range(TASKS)))}]
    prompt: Say something about {{{{ item }}}}.
"""


def test_a_report_counts_the_calls_that_were_cut_off(tmp_path: Path) -> None:
    with (
        provider("--first-byte-s", "600") as slow,
        provider("--first-byte-s", "0.01") as quick,
        user(tmp_path, openai_at(slow, KEY)) as ada,
    ):
        ada.write("plan.yaml", PLAN)
        process = ada.start("run", "--yes", "plan.yaml")
        until(lambda: (slow.account(KEY) or {"in_flight": 0})["in_flight"] > 1)
        # Takes longer than a permit takes to be in the journal.
        assert ada.headway("status", "last").returncode == 0
        kill_group(process)
        (before,) = ada.json("report", "last")
        ada.env |= openai_at(quick, KEY)
        assert ada.headway("resume", "last", "-q").returncode == 0
        (after,) = ada.json("report", "last")
        words = " ".join(ada.headway("report", "last").stdout.split())
        cut, charged = ((one.account(KEY) or {})["accepted"] for one in (slow, quick))
    assert charged == TASKS
    assert before["cut_off"]["calls"] == after["cut_off"]["calls"] == cut
    assert f"{cut} calls cut off, " in words
    assert "may be billed twice" in words


def test_a_report_of_a_run_that_was_never_cut_off_says_so(tmp_path: Path) -> None:
    with user(tmp_path) as ada:
        assert ada.headway("each", "echo {}", ":::", "1").returncode == 0
        assert "no calls cut off; no failed attempts paid" in ada.headway("report", "last").stdout
