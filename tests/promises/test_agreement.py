"""Twelve runs over HTTP, each stopped at five moments: every view gives the same numbers, and, but
for calls in flight, those of the provider's own record."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec import Struct

from tests.promises.user import CALL, Provider, User, kill_group, openai_at, provider, user

KEY: Final = "sk-agreement"
MOMENTS: Final = 5

HEAD: Final = "headway: 1\nmodel: openai/tokens-20\n"
ASK: Final = "prompt: 'Say {{ item }}', max_tokens: 30"
CLAUDE: Final = Path(__file__).parents[1] / "integration" / "fake_claude.py"
"""Speaks as Claude Code does."""


class Shape(Struct, frozen=True):
    """A run: its plan, what it is started with, and its provider."""

    plan: str
    options: tuple[str, ...] = ()
    provider: tuple[str, ...] = ("--first-byte-s", "0.3")
    is_killed: bool = False
    has_lost_calls: bool = False
    """Whether calls may be counted by the provider whose answers nobody has read."""
    step: int = 3
    """Calls from one moment to the next."""


ITEMS: Final = str(list(range(20)))
PROMPTS: Final = f"{HEAD}tasks:\n  ask: {{each: {ITEMS}, {ASK}}}\n"
SHAPES: Final = {
    "prompts": Shape(PROMPTS, ("-j", "2")),
    "stages": Shape(
        f"{HEAD}tasks:\n  ask: {{each: {ITEMS}, {ASK}}}\n"
        "  sum: {needs: ask, prompt: 'Sum up {{ tasks.ask.output }}', max_tokens: 30}\n",
        ("-j", "2"),
    ),
    "commands": Shape(
        f"{HEAD}tasks:\n  call: {{each: {ITEMS}, run: python call.py $item 2}}\n"
        "  idle: {each: [a, b], run: sleep 1}\n",
        ("-j", "2"),
    ),
    "agents": Shape(
        f"headway: 1\ntasks:\n  look:\n    each: {ITEMS}\n    agent: claude\n"
        "    model: tokens-20\n    workspace: off\n    prompt: Say {{ item }}\n",
        ("-j", "2"),
    ),
    "reduction": Shape(
        f"{HEAD}tasks:\n  ask: {{each: {ITEMS}, {ASK}}}\n"
        "  merged: {reduce: ask, prompt: Merge., max_tokens: 60}\n",
        ("-j", "2"),
    ),
    "state": Shape(
        HEAD.replace("model", "state: {total: counter}\nmodel")
        + "tasks:\n  add:\n    each: [a, b, c]\n    writes: state:total\n"
        "    run: sleep 0.3; echo 1 > \"$HEADWAY_PUT/total\"\n"
        f"  say:\n    each: {ITEMS}\n    reads: state:total\n    max_tokens: 30\n"
        "    prompt: It is {{ state.total }}, {{ item }}\n",
        ("-j", "2"),
    ),
    "refusals": Shape(PROMPTS, (), ("--rpm", "120", "--burst-s", "1", "--first-byte-s", "0.2")),
    "kill": Shape(PROMPTS, ("-j", "2"), is_killed=True, has_lost_calls=True),
    "budget": Shape(PROMPTS, ("--budget", "650", "-j", "2"), step=2),
    "window": Shape(
        PROMPTS, ("-j", "2", "--window-share", "100%"),
        ("--first-byte-s", "0.3", "--dialect", "codex", "--window", "1m=300/10s"),
    ),
    "failures": Shape(
        f"{HEAD}tasks:\n  ask: {{each: {ITEMS}, {ASK}}}\n"
        "  bad: {needs: ask, run: exit 3}\n  behind: {needs: bad, run: echo never}\n",
        ("-j", "2"),
    ),
    "width": Shape(
        PROMPTS, ("--strategy", "waves:4"), ("--concurrent", "2", "--first-byte-s", "0.2")
    ),
}  # fmt: skip


def views(someone: User) -> dict[str, Any]:
    (status,), (report,), (timeline,) = map(someone.json, ("status", "report", "timeline"))
    return {
        "status": status, "report": report, "timeline": timeline,
        "results": someone.json("results", "--all"), "text": someone.headway("status").stdout,
    }  # fmt: skip


def agree(seen: dict[str, Any]) -> None:
    """Every number that two views have is the same in both."""
    status, report, timeline = seen["status"], seen["report"], seen["timeline"]
    for name in ("calls", "input_tokens", "output_tokens", "usd", "unpriced_calls", "cut_off"):
        assert status[name] == report[name], name
    assert status["state"] == report["state"]
    assert status["parts"] == report["parts"] == timeline["parts"]
    assert status["refused"] == sum(report["refused"].values())
    assert report["submitted"] == timeline["submitted"]
    tasks = dict(status["tasks"])
    states = Counter(one["state"].replace(" ", "_") for one in timeline["tasks"])
    for word, many in states.items():
        if word not in ("not_started", "queued"):
            assert tasks[word] == many, word
    assert sum(tasks.values()) == 2 * tasks["total"], "each task is counted once"
    ended = Counter(one["state"] for one in seen["results"])
    inner = sum(one["done"] for one in status["reduces"].values())
    assert ended["done"] + inner == tasks["done"] + tasks.get("reused", 0)
    assert ended["failed"] == tasks.get("failed", 0)
    groups = report["groups"]
    for name in ("calls", "input_tokens", "output_tokens"):
        assert sum(one[name] for one in groups) == report[name], name
        if not status["reduces"] and not tasks.keys() & {"queued", "held"}:
            assert sum(one[name] for one in seen["results"]) <= report[name], name
    done, total = map(int, re.findall(r"(\d+) of (\d+) done", seen["text"])[0])
    assert (done, total) == (tasks["done"] + tasks.get("reused", 0), tasks["total"])


def true(seen: dict[str, Any], api: Provider, shape: Shape) -> None:
    """The provider's record has the calls that are counted, and those in flight beside them."""
    account = api.account(KEY) or {"whole": 0, "reported": {}, "refused": {}}
    status = seen["status"]
    flying = sum(
        status["tasks"].get(word, 0) for word in ("in_flight", "running_here", "held", "queued",
                                                  "waiting_for_a_limit")
    )  # fmt: skip
    assert status["calls"] <= account["whole"]
    if not shape.has_lost_calls:
        # A command has made two calls, of which none is counted before it ends.
        assert account["whole"] <= status["calls"] + 2 * flying
    if status["pid"] is None and not shape.has_lost_calls:
        assert status["calls"] == account["whole"]
        assert status["input_tokens"] == account["reported"].get("input_tokens", 0)
        assert status["refused"] == sum(account["refused"].values())


def calls_of(api: Provider) -> int:
    """How many calls the provider has answered."""
    account = api.account(KEY)
    return 0 if account is None else int(account["whole"])


def stopped(run: subprocess.Popen[str], someone: User, api: Provider) -> bool:
    """Stop the run, compare, and let it go on; false if it had ended."""
    with suppress(ProcessLookupError):
        os.killpg(run.pid, signal.SIGSTOP)
        try:
            seen = views(someone)
            agree(seen)
            assert seen["status"]["calls"] <= calls_of(api)
            return run.poll() is None
        finally:
            os.killpg(run.pid, signal.SIGCONT)
    return False


def clients_of(root: Path, api: Provider) -> dict[str, str]:
    """Variables by which prompts, programs and the agent reach the provider."""
    agent = root / "bin" / "claude"
    agent.parent.mkdir(parents=True)
    agent.write_text(f'#!/bin/sh\nexec {sys.executable} {CLAUDE} "$@"\n')
    agent.chmod(0o755)
    path = os.pathsep.join((str(agent.parent), os.path.dirname(sys.executable), os.environ["PATH"]))
    anthropic = {"ANTHROPIC_BASE_URL": api.url, "ANTHROPIC_API_KEY": KEY}
    return openai_at(api, KEY) | anthropic | {"PATH": path}


@pytest.mark.parametrize("name", SHAPES)
def test_every_view_agrees_with_the_others_and_with_the_provider(tmp_path: Path, name: str) -> None:
    shape = SHAPES[name]
    with (
        provider(*shape.provider) as api,
        user(tmp_path, clients_of(tmp_path / "agents", api)) as someone,
    ):
        someone.write("plan.yaml", shape.plan)
        someone.write("call.py", CALL)
        run = someone.start("run", "plan.yaml", "--yes", "--quiet", *shape.options)
        moments = 0
        while run.poll() is None:
            if moments < MOMENTS and calls_of(api) > shape.step * moments:
                moments += stopped(run, someone, api)
                if shape.is_killed and moments == 2:
                    kill_group(run)
                    agree(views(someone))
                    run = someone.start("resume", "--yes", "--quiet")
            time.sleep(0.01)
        run.communicate()
        seen = views(someone)
        agree(seen)
        true(seen, api, shape)
    assert moments == MOMENTS, "the run ended before it was looked at so often"
