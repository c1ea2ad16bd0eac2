"""What a report says of calls that were in flight at a kill is what the provider has charged."""

from __future__ import annotations

from pathlib import Path

import pytest

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
TOO_LONG = """\
headway: 1
model: openai/MODEL
timeout: TIMEOUTs
retries: 0
tasks:
  ask: {each: [1, 2, 3], prompt: "Say {{ item }}", max_tokens: 100AGENT}
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


@pytest.mark.parametrize(
    ("model", "agent", "timeout"),
    [("hash", "", 2), ("gpt-4o-mini", "", 2), ("hash", ", agent: tools(files)", 5)],
)
def test_a_call_that_took_too_long_counts_and_was_cut_off(
    tmp_path: Path, model: str, agent: str, timeout: int
) -> None:
    with provider("--first-byte-s", "600") as slow, user(tmp_path, openai_at(slow, KEY)) as ada:
        text = TOO_LONG.replace("MODEL", model).replace("AGENT", agent)
        ada.write("plan.yaml", text.replace("TIMEOUT", str(timeout)))
        assert ada.headway("run", "plan.yaml").returncode == 1
        sent = (slow.account(KEY) or {})["accepted"]
        (told,) = ada.json("report")
        assert told["cut_off"]["calls"] == sent > 1
        assert told["cut_off"]["tokens"] > 100 * sent
        (status,) = ada.json("status")
        for one in (told, status):
            if model == "hash":
                assert one["usd"] is None
                assert one["unpriced_calls"] == sent
            else:
                assert one["usd"] > 0
                assert one["unpriced_calls"] == 0


def test_the_cost_of_calls_without_a_price_at_a_kill_is_unknown(tmp_path: Path) -> None:
    with provider("--first-byte-s", "600") as slow, user(tmp_path, openai_at(slow, KEY)) as ada:
        ada.write("plan.yaml", PLAN)
        process = ada.start("run", "--yes", "plan.yaml")
        until(lambda: (slow.account(KEY) or {"in_flight": 0})["in_flight"] > 1)
        assert ada.headway("status", "last").returncode == 0
        kill_group(process)
        for verb in ("status", "report"):
            (told,) = ada.json(verb, "last")
            assert told["usd"] is None, told
            assert told["unpriced_calls"] > 1
            shown = ada.headway(verb, "last").stdout
            assert "cost unknown" in shown
            assert "$0.00" not in shown


def test_a_report_of_a_run_that_was_never_cut_off_says_so(tmp_path: Path) -> None:
    with user(tmp_path) as ada:
        assert ada.headway("each", "echo {}", ":::", "1").returncode == 0
        assert "no calls cut off; no failed attempts paid" in ada.headway("report", "last").stdout
