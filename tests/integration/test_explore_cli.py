"""`headway explore` from the command line, and functions that are really called."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from headway.cli.main import main

HEAD = "headway: 1\nname: tried\nmodel: openai/gpt-5-mini\n"

FUNCTIONS = """\
import asyncio
import random

CACHE = {}

def parse(item):
    CACHE[item] = item.upper()
    return item

def enrich(item):
    return CACHE.get(item, "MISSING")

def leave():
    with open("left.txt", "a") as file:
        file.write("something")
    return 1

def find():
    try:
        with open("left.txt") as file:
            return file.read()
    except FileNotFoundError:
        return "nothing"

def count(ctx):
    ctx.put("x", (ctx.get("x") or 0) + 1)
    ctx.effect("mail", {"to": ctx.name})
    ctx.add("joined", ctx.name)
    return sorted(ctx.scan("*"))

async def later(ctx, tone):
    await asyncio.sleep(0)
    return [ctx.get("x"), tone, ctx.random.random(), ctx.time_s]

def chance():
    return random.random()

def call_out():
    import urllib.request

    return urllib.request.urlopen("http://127.0.0.1:9/").read().decode()

def start_program():
    import os

    return os.system("touch started")

def write_outside(target):
    with open(target, "w") as file:
        file.write("x")

def go_away():
    import os

    os.chdir("/")

def joined(one, other):
    return f"{one}+{other}"

def leaves(one, other):
    raise SystemExit(3)

def with_result(parsed, again=None):
    return [parsed, again]

def unheard_of():
    return object()
"""


Explore = Callable[..., tuple[int, str]]


@pytest.fixture
def explore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Explore:
    """Explores a plan of these tasks; the exit code, and all that was printed."""
    (tmp_path / "work.py").write_text(FUNCTIONS)
    monkeypatch.chdir(tmp_path)

    def explored(tasks: str, *words: str) -> tuple[int, str]:
        (tmp_path / "plan.yaml").write_text(HEAD + tasks)
        code = main(["explore", "plan.yaml", *words])
        told = capsys.readouterr()
        return code, told.out + told.err

    return explored


def test_a_dict_that_tasks_share_gives_another_result(explore: Explore) -> None:
    tasks = """\
tasks:
  parse: {each: [a, b], python: "work:parse"}
  enrich: {each: [a, b], python: "work:enrich"}
"""
    code, text = explore(tasks, "--pairs")
    assert code == 1
    assert "DIFFERS" in text
    assert "variable `work.CACHE`" in text
    assert "- B\n" in text
    assert "+ MISSING\n" in text
    assert "enrich:\n      needs: parse" in text
    ordered = tasks.replace('"work:enrich"}', '"work:with_result", needs: parse}')
    assert explore(ordered, "--pairs")[0] == 0


def test_a_reducer_that_exits_does_not_end_the_exploration(explore: Explore) -> None:
    tasks = """\
state: {joined: "reduce(work:leaves)", mail: "effect(work:leave)"}
tasks:
  a: {python: "work:count"}
  b: {python: "work:count"}
"""
    code, text = explore(tasks, "--pairs")
    assert code in (0, 1)
    assert "`work:leaves` does not combine what was added: SystemExit: 3" in text


def test_a_file_that_nobody_declares_gives_another_result(explore: Explore) -> None:
    tasks = 'tasks:\n  w: {python: "work:leave"}\n  r: {python: "work:find"}\n'
    code, text = explore(tasks)
    assert code == 1
    assert "both touch file `left.txt`" in text
    assert not Path("left.txt").exists()
    line = next(line for line in text.splitlines() if "again: " in line)
    replay = line.partition("--replay ")[2]
    code, text = explore(tasks, "--replay", replay)
    assert code == 1
    assert "1 schedule, 1 DIFFER from the serial run" in text


def test_what_goes_through_ctx_is_the_same_in_every_schedule(explore: Explore) -> None:
    tasks = """\
state: {joined: "reduce(work:joined)", mail: "effect(work:leave)"}
tasks:
  one: {python: "work:count"}
  two: {python: "work:count"}
  three: {python: "work:later", vars: {tone: brief}}
"""
    code, text = explore(tasks, "--schedules", "8")
    assert code == 0, text
    assert "re-ran" in text
    assert "all equal to the serial run" in text


def test_chance_is_told_as_such(explore: Explore) -> None:
    code, text = explore('tasks:\n  a: {python: "work:chance"}\n')
    assert code == 1
    assert "nondeterministic: `a` gives another result on the same reads" in text
    assert "ctx.random" in text


def test_functions_reach_neither_the_network_nor_programs_nor_other_files(
    explore: Explore, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside") / "file"
    tasks = f"""\
tasks:
  net: {{python: "work:call_out"}}
  run: {{python: "work:start_program"}}
  write: {{python: "work:write_outside", vars: {{target: "{outside}"}}}}
  leave: {{python: "work:go_away"}}
  odd: {{python: "work:unheard_of"}}
"""
    code, text = explore(tasks, "--pairs")
    assert code == 0
    for words in ("has no network", "starts no programs", "outside of its copy", "stays in its"):
        assert words in text
    assert "JSON cannot hold what it gave: object" in text
    assert not outside.exists()
    assert Path.cwd() == tmp_path
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plan.yaml", "work.py"]


def test_without_python_functions_are_not_even_imported(explore: Explore) -> None:
    tasks = 'tasks:\n  a: {python: "nowhere:to"}\n  b: {python: "nowhere:to", writes: f}\n'
    code, text = explore(tasks, "--no-python")
    assert code == 0
    assert "1 pair: 1 commute" in text
    code, text = explore(tasks)
    assert code == 2
    assert "cannot be imported" in text


def test_a_command_that_writes_is_seen_by_a_function_that_reads(explore: Explore) -> None:
    tasks = """\
tasks:
  w: {run: ./w.sh, writes: left.txt}
  r: {python: "work:find"}
  s: {run: ./s.sh, reads: left.txt}
"""
    code, text = explore(tasks, "--pairs")
    assert code == 1
    assert "DIFFERS          w, r" in text
    assert "blocked by edge  w, s" in text


def test_json_holds_everything(explore: Explore) -> None:
    tasks = "tasks:\n  a: {run: x, writes: f}\n  b: {run: y, writes: f}\n"
    code, text = explore(tasks, "--json")
    told = json.loads(text)
    assert (code, told["differs"]) == (1, True)
    assert told["pairs"][0]["verdict"] == "differs"
    assert told["pairs"][0]["replay"].startswith("pair:a=0:b=1:before")
    assert told["refused"].startswith("`a` and `b` both write")
    assert told["summary"] == (
        "1 pair: 1 DIFFER; 6 schedules and 15 crashes, 3 DIFFER from the serial run"
    )


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--schedules", "0"], 2, "--schedules takes 1 to"),
        (["--replay", "nonsense"], 2, "is no schedule of this plan"),
        (["--replay", "serial:crash=999"], 2, "`serial:crash=999` kills nothing: only "),
        (["--members", "1"], 2, "--members takes 2 to"),
    ],
)
def test_a_command_line_that_makes_no_sense_is_refused(
    explore: Explore, words: list[str], code: int, said: str
) -> None:
    got, text = explore("tasks:\n  a: {run: x}\n", *words)
    assert got == code
    assert said in text


def test_a_folder_that_is_too_large_is_not_copied(
    explore: Explore, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headway.run import explore as scratch

    monkeypatch.setattr(scratch, "FILES_MAX", 1)
    code, text = explore('tasks:\n  a: {python: "work:find"}\n')
    assert code == 2
    assert "--no-python" in text
