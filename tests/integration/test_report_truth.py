"""What a report says bound a run is what the provider's own record says: limits and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headway.sim.server import truth_of
from tests.integration.test_plan_agents import Scene, made

PLAN = """\
headway: 1
model: anthropic/tokens-20
tasks:
  look:
    each: ITEMS
    max_tokens: 30
    prompt_file: long.txt
"""


def report_of(scene: Scene, *run: str, calls: int = 10) -> dict[str, Any]:
    scene.plan(PLAN.replace("ITEMS", str(list(range(calls)))))
    (scene.folder / "long.txt").write_text("Say something of {{ item }}.\n" + "word " * 1000)
    scene.headway("run", "plan.yaml", "--yes", "--quiet", *run)
    out, err = scene.headway("report", "--json")
    assert err == ""
    told: dict[str, Any] = json.loads(out)
    spent = told["spent"]
    assert sum(one["wall_s"] for one in spent["shares"]) == pytest.approx(told["elapsed_s"])
    assert sum(one["task_s"] for one in spent["shares"]) == pytest.approx(spent["task_s"])
    return told


@pytest.mark.parametrize(
    ("limits", "calls", "binds"),
    [
        (("--itpm", "60k", "--burst-s", "3"), 10, "input/60s"),
        # So many that the first round, of an untried width, is a small part of the time.
        (("--concurrent", "2", "--first-byte-s", "0.8"), 30, "concurrency"),
        (("--rpm", "60", "--burst-s", "2"), 10, "requests/60s"),
    ],
)
def test_through_the_broker_the_limit_that_really_bound_is_named(
    tmp_path: Path, limits: tuple[str, ...], calls: int, binds: str
) -> None:
    with made(tmp_path, *limits) as scene:
        told = report_of(scene, calls=calls)
        (account,) = truth_of(scene.url)["accounts"].values()
    (limit,) = account["limits"]
    assert told["bound"]["cause"] == "quota", told
    assert told["bound"]["what"] == binds == limit["limit"]
    assert sum(told["refused"].values()) == sum(account["refused"].values())
    assert told["calls"] == account["whole"] == calls
    assert told["input_tokens"] == account["reported"]["input_tokens"]


def test_where_nothing_is_limited_no_limit_is_named(tmp_path: Path) -> None:
    with made(tmp_path, "--first-byte-s", "0.5") as scene:
        told = report_of(scene)
    waits = {one["what"] for one in told["spent"]["shares"] if one["cause"] == "quota"}
    assert waits <= {"", "untried", "peak"}
    assert told["refused"] == {}


def test_in_its_own_process_a_run_knows_what_it_waited_for_too(tmp_path: Path) -> None:
    with made(tmp_path) as scene:
        told = report_of(scene, "--sim")
    waits = {one["what"] for one in told["spent"]["shares"] if one["cause"] == "quota"}
    assert waits & {"untried", "peak", "concurrency", "tokens/60s"}
