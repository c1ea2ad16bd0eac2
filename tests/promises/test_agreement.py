"""Ten runs over HTTP, each stopped at five moments: every view gives the same numbers, and, but for
calls in flight, those of the provider's own record."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec import Struct

from tests.promises.user import CALL, Provider, User, kill_group, openai_at, provider, user

KEY: Final = "sk-agreement"
MOMENTS: Final = 5

HEAD: Final = "headway: 1\nmodel: openai/tokens-20\n"
ASK: Final = "prompt: 'Say {{ item }}', max_tokens: 30"


class Shape(Struct, frozen=True):
    """A run: its plan, what it is started with, and its provider."""

    plan: str
    options: tuple[str, ...] = ()
    provider: tuple[str, ...] = ("--first-byte-s", "0.3")
    is_killed: bool = False
    has_lost_calls: bool = False
    """Whether calls may be counted by the provider whose answers nobody has read."""


ITEMS: Final = str(list(range(12)))
PROMPTS: Final = f"{HEAD}tasks:\n  ask: {{each: {ITEMS}, {ASK}}}\n"
SHAPES: Final = {
    "prompts": Shape(PROMPTS, ("-j", "3")),
    "stages": Shape(
        f"{HEAD}tasks:\n  ask: {{each: [a, b, c], {ASK}}}\n"
        "  sum: {needs: ask, prompt: 'Sum up {{ tasks.ask.output }}', max_tokens: 30}\n"
    ),
    "commands": Shape(
        f"{HEAD}tasks:\n  call: {{each: [a, b, c, d], run: python call.py $item 2}}\n"
        "  idle: {each: [a, b], run: sleep 1}\n"
    ),
    "reduction": Shape(
        f"{HEAD}tasks:\n  ask: {{each: {ITEMS}, {ASK}}}\n"
        "  merged: {reduce: ask, prompt: Merge., max_tokens: 60}\n",
        ("-j", "4"),
    ),
    "state": Shape(
        HEAD.replace("model", "state: {total: counter}\nmodel")
        + "tasks:\n  add:\n    each: [a, b, c]\n    writes: state:total\n"
        "    run: sleep 0.3; echo 1 > \"$HEADWAY_PUT/total\"\n"
        "  say: {reads: state:total, prompt: 'It is {{ state.total }}', max_tokens: 30}\n"
    ),
    "refusals": Shape(PROMPTS, (), ("--rpm", "120", "--burst-s", "2", "--first-byte-s", "0.2")),
    "kill": Shape(PROMPTS, ("-j", "3"), is_killed=True, has_lost_calls=True),
    "budget": Shape(PROMPTS, ("--budget", "150", "-j", "2")),
    "failures": Shape(
        f"{HEAD}tasks:\n  ask: {{each: [a, b, c], {ASK}}}\n"
        "  bad: {needs: ask, run: exit 3}\n  behind: {needs: bad, run: echo never}\n"
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


def stopped(run: subprocess.Popen[str], someone: User, api: Provider, shape: Shape) -> None:
    """Stop the run, compare, and let it go on."""
    os.killpg(run.pid, signal.SIGSTOP)
    try:
        seen = views(someone)
        account = api.account(KEY)
        agree(seen)
        assert seen["status"]["calls"] <= (account or {"whole": 0})["whole"]
    finally:
        os.killpg(run.pid, signal.SIGCONT)


@pytest.mark.parametrize("name", SHAPES)
def test_every_view_agrees_with_the_others_and_with_the_provider(tmp_path: Path, name: str) -> None:
    shape = SHAPES[name]
    with provider(*shape.provider) as api, user(tmp_path, openai_at(api, KEY)) as someone:
        someone.write("plan.yaml", shape.plan)
        someone.write("call.py", CALL)
        run = someone.start("run", "plan.yaml", "--yes", "--quiet", *shape.options)
        while run.poll() is None and not (someone.root / "state" / "runs").exists():
            time.sleep(0.02)
        moments = 0
        while run.poll() is None and moments < MOMENTS:
            time.sleep(0.3)
            if json.loads(someone.headway("status", "--json").stdout or "{}").get("parts"):
                stopped(run, someone, api, shape)
                moments += 1
            if shape.is_killed and moments == 2:
                kill_group(run)
                agree(views(someone))
                run = someone.start("resume", "--yes", "--quiet")
                moments += 1
        run.communicate()
        seen = views(someone)
        agree(seen)
        true(seen, api, shape)
