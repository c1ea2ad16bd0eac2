"""A real coding agent hands a plan over to `headway mcp` and leaves; the run goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from headway.base import locks as owner
from headway.journal.reader import JournalReader
from headway.report.text.run_view import RunView
from headway.sim.server import launched
from tests.agents.agents import CLAUDE, ROOT, Urls, is_installed

pytestmark = [
    pytest.mark.agents,
    pytest.mark.skipif(not is_installed(), reason="`make test-agents` installs the agents"),
]

WAIT_S_MAX = 60.0
PLAN = """\
headway: 1
model: anthropic/claude-haiku-4-5
tasks:
  say: {each: [one, two, three], prompt: 'Speak {{ item }}', max_tokens: 100}
  merge: {reduce: say, prompt: Bring it together., max_tokens: 100, output: merged.txt}
"""
RULES = [
    {"on": "result", "regex": r'"run": ?"([0-9a-z-]+)"', "answer": "handed over as {group.1}"},
    {
        "contains": "Hand it over",
        "answer": "I hand it over.",
        "use": {"mcp__headway__submit_plan": {"plan": PLAN, "budget": "1M"}},
    },
    {"contains": "Bring it together", "answer": "all together"},
    {"regex": r"Speak (\w+)", "answer": "said {group.1}"},
    {"answer": "I do not know."},
]


def test_claude_code_hands_a_plan_over_and_the_run_outlives_it(tmp_path: Path) -> None:
    (tmp_path / "script.yaml").write_text(yaml.safe_dump({"rules": RULES}, sort_keys=False))
    place = {
        "PYTHONPATH": str(ROOT / "src"),
        "HEADWAY_STATE_DIR": str(tmp_path / "state"),
        "HEADWAY_RUNTIME_DIR": str(tmp_path / "run"),
    }
    server = {"command": sys.executable, "args": ["-m", "headway", "mcp"], "env": place}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"headway": server}}))
    script = ("--script", str(tmp_path / "script.yaml"), "--first-byte-s", "0.5")
    with launched(*script) as url:
        launch = CLAUDE.launch(tmp_path / "home", Urls.all_at(url), "Hand it over.")
        arguments = ("--mcp-config", str(tmp_path / "mcp.json"), "--strict-mcp-config",
                     "--permission-mode", "bypassPermissions")  # fmt: skip
        # Its first call waits for the server, and has all tools with it.
        waits = {"MCP_CONNECTION_NONBLOCKING": "0", "ENABLE_TOOL_SEARCH": "false"}
        env = {**launch.env, **waits, "IS_SANDBOX": "1"}
        ended = subprocess.run(
            [*launch.argv, *arguments], cwd=launch.folder, env=env, capture_output=True,
            stdin=subprocess.DEVNULL, timeout=120, check=False,
        )  # fmt: skip
        answer = CLAUDE.answer(ended.stdout.decode())
        try:
            assert answer.startswith("handed over as "), (ended.stdout, ended.stderr)
            glance = _over(str(tmp_path / "state" / "runs" / answer.split()[-1]))
        finally:
            _end_all(tmp_path / "state")
    assert glance.words() == {"done": 4}
    assert (launch.folder / "merged.txt").read_text().strip() == "all together"


def _end_all(state: Path) -> None:
    for run in state.glob("runs/*"):
        found = owner.look(str(run))
        if found is not None and found.is_alive:
            os.killpg(found.pid, signal.SIGKILL)


def _over(folder: str) -> RunView:
    """The run when it is over: nobody but its own process performs it."""
    until_s = time.monotonic() + WAIT_S_MAX
    while True:
        assert os.path.exists(folder)
        with JournalReader(folder) as reader:
            glance = RunView(reader)
        if glance.history.standing.finished is not None:
            return glance
        assert time.monotonic() < until_s, glance
        time.sleep(0.1)
