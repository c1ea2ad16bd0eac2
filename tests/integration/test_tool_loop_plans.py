"""Plans whose tasks are loops with tools, by the command line: kill -9, shared state, budgets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.sim.server import launched, truth_of
from tests.integration.strangers_shell import Stranger

EDIT = """
headway: 1
model: anthropic/agent
tasks:
  edit:
    agent: tools(shell, files)
    prompt: 'Run `echo hi >> log`, then `wc -l < log`.'
"""
NOTE = """
headway: 1
model: openai/agent
state: {total: counter}
tasks:
  note:
    agent: tools(files)
    prompt: >-
      Use `write_file {"path": "other", "content": "x"}`,
      `write_state {"key": "total", "value": 3}`, `write_state {"key": "total", "value": 4}`,
      `write_state {"key": "absent", "value": 1}`
    writes: ["out", "state:total"]
  tell:
    agent: tools(files)
    prompt: 'Use `read_state {"key": "total"}`'
    reads: ["state:total"]
"""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with launched("--first-byte-s", "0.01", "--per-token-s", "0.0001") as found:
        yield found


@pytest.fixture
def stranger(tmp_path: Path, url: str) -> Stranger:
    found = Stranger(tmp_path)
    found.environment |= {
        "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "any",
        "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "any",
    }  # fmt: skip
    return found


def arrivals(url: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = truth_of(url, "?arrivals=all")["arrivals"]
    return found


@pytest.mark.parametrize("workspace", ["on", "off"])
def test_a_killed_run_goes_on_where_it_was_and_pays_no_call_twice(
    stranger: Stranger, url: str, workspace: str
) -> None:
    """Between a tool and the reply to it; when a tool was about to begin; then to the end."""
    stranger.write("plan.yaml", f"workspace: {workspace}\n{EDIT}")
    before = len(arrivals(url))
    assert stranger("run", "plan.yaml", HEADWAY_CRASH_AT="kept:3").code == -9
    log = stranger.here / "log"
    assert workspace == "on" or log.read_text() == "hi\n"
    assert stranger("resume", HEADWAY_CRASH_AT="kept:2").code == -9
    ended = stranger("resume")
    assert ended.code == 0, ended.err
    assert ended.out.startswith(
        "The commands gave:\nexit code 0\n[in doubt: headway was interrupted"
    )
    if workspace == "on":
        assert not log.exists()
        assert stranger("results", "--apply").code == 0
    # Not a second time, although it is not known whether it was done.
    assert log.read_text() == "hi\n"
    came = arrivals(url)[before:]
    assert [one["how"] for one in came] == ["whole"] * 3
    assert len({one["body"] for one in came}) == 3


def test_loops_touch_the_shared_state_through_their_context(stranger: Stranger) -> None:
    """Killed as well: what an interrupted attempt wrote ended with it, and is written again."""
    stranger.write("plan.yaml", NOTE)
    assert stranger("run", "plan.yaml", HEADWAY_CRASH_AT="kept:5").code == -9
    ended = stranger("resume")
    assert ended.code == 0, ended.err
    assert ended.out == "The commands gave:\n7\n"
    kept = [json.loads(line) for line in stranger("results", "--all", "--json").out.splitlines()]
    said = kept[0]["output"].splitlines()
    assert said[1] == "error: `other` is not declared: this task may write `out`"
    assert said[2:4] == ["added to total"] * 2
    assert said[4].startswith("error: `absent` is not declared: this task may write `total`")
    assert not (stranger.here / "other").exists()


def test_a_budget_in_tokens_ends_a_loop_before_the_call_that_it_has_no_room_for(
    stranger: Stranger, url: str
) -> None:
    stranger.write("plan.yaml", EDIT)
    before = len(arrivals(url))
    ended = stranger("run", "plan.yaml", "--budget", "8500")
    assert ended.code == 4, ended.err
    assert len(arrivals(url)) - before in (1, 2)
