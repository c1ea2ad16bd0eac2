"""The detector on plans that are really run: in each mode, in threads, processes and commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import headway
from headway.errors import BadValueError, TasksFailedError
from tests.coherence.mutating import judged

ROOT = Path(headway.__file__).resolve().parents[2]

WORK = """\
import os, random
def parse(item, ctx):
    ctx.put(f"records/{item}", {"n": item})
    os.makedirs("out", exist_ok=True)
    with open(f"out/{item}.json.tmp", "w") as file:
        file.write(item)
    os.replace(f"out/{item}.json.tmp", f"out/{item}.json")
def read(ctx):
    return [ctx.get("records/a"), open("out/a.json").read()]
def log():
    with open("log.txt", "a") as file:
        file.write("x")
def roll(ctx):
    ctx.put("dice", random.random())
def last(item):
    with open("last.txt", "w") as file:
        file.write(str(item))
def stamp(ctx):
    ctx.put("stamp", ctx.time_s)
"""

PARSE = {"each": ["a", "b"], "python": "work:parse"}
SAID = {"writes": ["state:records/{{ item }}", "out/{{ item }}.json"]}
READS = {"python": "work:read", "reads": ["state:records/*", "out"], "writes": []}


def run(folder: Path, tasks: dict[str, Any], *options: str) -> tuple[dict[str, Any], str]:
    """A plan as a user runs it: the summary, and what is said beside it."""
    folder.mkdir(exist_ok=True)
    (folder / "work.py").write_text(WORK)
    plan = {"headway": 1, "name": "watched", "tasks": tasks}
    (folder / "plan.yaml").write_text(json.dumps(plan))
    ended = call(folder, "run", "plan.yaml", "--json", *options)
    return json.loads(ended.stdout), ended.stderr


def call(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ) | {
        "PYTHONPATH": str(ROOT / "src"), "HEADWAY_STATE_DIR": str(folder.parent / "state"),
        "NO_COLOR": "1",
    }  # fmt: skip
    command = [sys.executable, "-m", "headway", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def kinds(told: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["kind"], one["what"]) for one in told["findings"]]


def test_a_plan_that_says_everything_is_left_alone_in_every_mode(tmp_path: Path) -> None:
    for mode in ("warn", "enforce"):
        told, _ = run(tmp_path / "plan", {"parse": {**PARSE, **SAID, "reads": []}, "read": READS},
                      "--detect", mode)  # fmt: skip
        assert (told["exit_code"], told["findings"]) == (0, [])


def test_what_is_not_declared_is_told_at_the_end_and_by_status(tmp_path: Path) -> None:
    folder = tmp_path / "plan"
    said = {"writes": ["state:records/{{ item }}"], "reads": []}
    told, _ = run(folder, {"parse": {**PARSE, **said}, "read": READS})
    assert kinds(told) == [("undeclared-write", "out/a.json")]
    (found,) = told["findings"]
    assert (found["count"], found["fix"]) == (2, 'writes: "out/{{ item }}.json"')
    assert found["where"] == "plan.yaml:1"
    shown = call(folder, "status").stdout
    assert "warning[undeclared-write]: `parse[a]` writes `out/a.json`" in shown
    assert json.loads(call(folder, "status", "--json").stdout)["findings"] == told["findings"]


def test_enforce_keeps_a_function_from_keys_and_files(tmp_path: Path) -> None:
    folder = tmp_path / "plan"
    told, _ = run(folder, {"parse": {**PARSE, "writes": ["state:x"]}}, "--detect", "enforce")
    assert (told["exit_code"], told["failed"]) == (1, 2)
    assert not (folder / "out").exists()
    assert "HW212" in call(folder, "why", "last", "parse[a]").stdout
    told, _ = run(folder, {"log": {"python": "work:log", "writes": ["out"]}}, "--detect", "enforce")
    assert told["exit_code"] == 1
    assert not (folder / "log.txt").exists()


def test_enforce_refuses_the_result_of_a_command_that_wrote_something_else(tmp_path: Path) -> None:
    folder = tmp_path / "plan"
    tasks = {"make": {"run": "echo 1 > other.txt", "writes": ["out"]}}
    told, _ = run(folder, tasks, "--detect", "enforce")
    assert (told["exit_code"], told["failed"]) == (1, 1)
    assert "does not declare it" in call(folder, "status").stdout
    tasks = {"make": {"run": "mkdir -p out && echo 1 > out/x", "writes": ["out"]}}
    assert run(folder, tasks, "--detect", "enforce")[0]["exit_code"] == 0


def test_learn_proposes_what_to_declare(tmp_path: Path) -> None:
    folder = tmp_path / "plan"
    tasks = {
        "parse": PARSE | {"writes": ["state:records/{{ item }}"]},
        "read": {"python": "work:read", "needs": "parse"},
        "count": {"run": "ls out > count.txt; cat out/b.json", "needs": "parse"},
    }
    (folder).mkdir()
    (folder / "work.py").write_text(WORK.replace("def read(ctx)", "def read(given, ctx)"))
    (folder / "plan.yaml").write_text(json.dumps({"headway": 1, "tasks": tasks}))
    said = call(folder, "run", "plan.yaml", "-q", "--detect", "learn").stderr
    assert '    writes: ["out/{{ item }}.json", "state:records/{{ item }}"]' in said
    assert "    reads: [out/a.json, state:records/a]" in said
    assert '    reads: ["out/*"' in said
    assert "    writes: [count.txt]" in said


def test_a_task_that_rolls_dice_is_found_by_the_next_run(tmp_path: Path) -> None:
    tasks = {"roll": {"python": "work:roll", "writes": ["state:dice"], "reads": []}}
    told, _ = run(tmp_path / "plan", tasks)
    assert told["findings"] == []
    told, _ = run(tmp_path / "plan", tasks)
    assert kinds(told) == [("nondeterminism", "state:dice")]


def test_members_that_race_are_told_a_remedy_that_a_plan_can_have(tmp_path: Path) -> None:
    folder = tmp_path / "plan"
    race = {"each": [1, 2], "python": "work:last"}
    told, _ = run(folder, {"race": race})
    assert kinds(told) == [("hazard", "last.txt")]
    key, _, value = told["findings"][0]["fix"].partition(": ")
    told, _ = run(folder, {"race": {**race, key: value}})
    assert (told["exit_code"], told["findings"]) == (0, [])


def test_a_resumed_run_is_judged_as_a_whole(tmp_path: Path) -> None:
    folder = tmp_path / "plan"
    tasks = {
        "parse": {**PARSE, "writes": ["state:x", "out/{{ item }}.json"]},
        "fail": {"run": "test -e go", "needs": "parse"},
    }
    told, _ = run(folder, tasks)
    assert kinds(told) == [("undeclared-write", "state:records/a")]
    (folder / "go").write_text("")
    again = json.loads(call(folder, "resume", "--json").stdout)
    assert again["exit_code"] == 0
    assert kinds(again) == [("undeclared-write", "state:records/a")]


def put(item: str, ctx: headway.Context) -> None:
    ctx.put(f"r/{item}", {"n": item})


def meddle(ctx: headway.Context) -> None:
    value = ctx.get("r/1")
    assert isinstance(value, dict)
    value["late"] = True


@pytest.mark.parametrize("in_processes", [False, True])
def test_functions_are_watched_wherever_they_run(in_processes: bool) -> None:
    plan = headway.Plan("watched")
    plan.task("put", put, each=["1", "2"], writes="r/*")
    plan.task("meddle", meddle, reads="q")
    run = plan.run(in_processes=in_processes)
    assert [(one.kind, one.what) for one in run.findings] == [
        ("undeclared-read", "state:r/1"), ("aliasing", "state:r/1"),
    ]  # fmt: skip
    assert [(one.task, one.reads) for one in run.learned] == [
        ("put", ()), ("meddle", ("state:r/1",)),
    ]  # fmt: skip
    with pytest.raises(TasksFailedError, match="1 tasks failed"):
        plan.run(in_processes=in_processes, detect="enforce")
    assert plan.run(in_processes=in_processes, detect="off").findings == ()


def test_a_mode_that_does_not_exist_is_refused() -> None:
    plan = headway.Plan("watched")
    plan.task("put", put, each=["1"])
    with pytest.raises(BadValueError, match="detect"):
        plan.run(detect="loud")  # type: ignore[arg-type]


def test_commands_of_one_plan_are_told_apart_by_what_they_declare(tmp_path: Path) -> None:
    folder = tmp_path / "plan"
    folder.mkdir()
    text = json.dumps({"headway": 1, "tasks": {
        "one": {"run": "echo 1 > a; sleep 0.3; cat a", "writes": ["a"], "reads": ["in"]},
        "two": {"run": "sleep 0.1; echo 2 > b; sleep 0.2", "writes": ["b"], "reads": ["in"]},
    }})  # fmt: skip
    assert judged(text, folder, "learn").findings == ()
    text = text.replace("echo 2 > b", "echo 2 > c")
    (found,) = judged(text, folder, "learn").findings
    assert (found.kind, found.what) == ("undeclared-write", "c")
    assert found.words == "`one` or `two` writes `c`, and none of them declares it"
