"""`headway explore` from the command line: pairs of tasks really run in the other order."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headway.cli.main import main

HEAD = "headway: 1\nname: tried\nmodel: openai/gpt-5-mini\n"

FUNCTIONS = """\
import random

CACHE = {}

def parse():
    CACHE["a"] = "A"

def enrich():
    return CACHE.get("a", "MISSING")

def count(ctx):
    ctx.put("x", (ctx.get("x") or 0) + 1)
    ctx.effect("mail", {"to": ctx.name})

def leave(payload):
    open("sent", "a").write("sent")

def leave_file():
    with open("left.txt", "w") as file:
        file.write("something")

def find(ctx):
    try:
        with open("left.txt") as file:
            return file.read()
    except FileNotFoundError:
        return "nothing"
"""

Explore = Callable[..., tuple[int, str]]
BROKEN = """\
tasks:
  parse: {run: "echo a > parsed"}
  enrich: {run: "sed s/a/b/ parsed"}
"""


@pytest.fixture
def explore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Explore:
    """Explores a plan of these tasks; the exit code, and all that was printed."""
    folder = tmp_path / "plan"
    folder.mkdir()
    (folder / "work.py").write_text(FUNCTIONS)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HEADWAY_STATE_DIR", str(tmp_path / "state"))

    def explored(tasks: str, *words: str) -> tuple[int, str]:
        Path("plan.yaml").write_text(HEAD + tasks)
        code = main(["explore", "plan.yaml", *(words or ("--yes",))])
        told = capsys.readouterr()
        sys.modules.pop("work", None)
        return code, told.out + told.err

    return explored


def test_a_task_that_fails_without_another_one_is_named_with_its_message(explore: Explore) -> None:
    code, text = explore(BROKEN)
    assert code == 1
    assert "B FAILS    parse, enrich" in text
    assert "can't read parsed: No such file" in text
    assert "    enrich:\n      needs: parse\n" in text
    assert text.endswith(
        "not safe in parallel: put these tasks in order, or give them workspaces\n"
    )
    assert sorted(path.name for path in Path().iterdir()) == ["plan.yaml", "work.py"]
    assert not list((Path.cwd().parent / "state").glob("explore-*"))


def test_the_fix_gives_an_all_clear_that_says_what_it_was_judged_by(explore: Explore) -> None:
    code, text = explore(BROKEN.replace('{run: "sed', '{needs: parse, run: "sed'))
    assert code == 0
    assert "in order     parse, enrich: by `needs`" in text
    assert text.endswith(
        "every pair is independent or in order; judged by running commands and functions\n"
    )


def test_something_else_is_shown_as_a_difference(explore: Explore) -> None:
    Path("found").write_text("old\n")
    code, text = explore('tasks:\n  a: {run: "echo new > found"}\n  b: {run: "cat found"}\n')
    assert code == 1
    assert "B DIFFERS    a, b" in text
    assert "    - new\n    + old\n" in text


def test_a_task_that_takes_away_what_an_earlier_one_read_is_found(explore: Explore) -> None:
    Path("mail").write_text("hello\n")
    code, text = explore('tasks:\n  a: {run: "cat mail"}\n  b: {run: "rm mail"}\n')
    assert code == 1
    assert "A FAILS    a, b" in text


def test_files_that_git_ignores_count(explore: Explore) -> None:
    Path(".gitignore").write_text("build/\n")
    tasks = 'tasks:\n  a: {run: "mkdir build && echo 1 > build/x"}\n  b: {run: "cat build/x"}\n'
    assert explore(tasks)[0] == 1


def test_only_the_pair_that_is_named_is_compared(explore: Explore) -> None:
    tasks = BROKEN + '  third: {run: "echo 3"}\n'
    code, text = explore(tasks, "third", "parse", "--yes")
    assert code == 0
    assert "1 pair of 3 tasks: 1 independent" in text


def test_what_depends_by_way_of_another_task_is_not_tried_again(explore: Explore) -> None:
    tasks = "tasks:\n" + "".join(f'  t{n}: {{run: "echo {n} >> log"}}\n' for n in range(4))
    code, text = explore(tasks, "--yes", "--json")
    found = json.loads(text)
    assert code == 1
    assert sorted(pair["verdict"] for pair in found["pairs"]) == 3 * ["differs"] + 3 * ["implied"]
    assert found["tries"] == 6


def test_tasks_that_search_what_others_write_are_tried_together(explore: Explore) -> None:
    Path("src").mkdir()
    tasks = "".join(
        f'  t{n}: {{run: "ls src | grep -c zzz; echo {n} > src/f{n}"}}\n' for n in range(6)
    )
    code, text = explore("tasks:\n" + tasks.replace("zzz;", "zzz || true;"), "--yes", "--json")
    found = json.loads(text)
    assert code == 0, text
    assert found["tries"] <= 2 * 6


def test_the_shared_state_is_kept_in_order_by_a_run_and_no_effect_is_performed(
    explore: Explore,
) -> None:
    tasks = """\
state: {mail: "effect(work:leave)"}
tasks:
  one: {python: "work:count"}
  two: {python: "work:count"}
"""
    code, text = explore(tasks)
    assert code == 0, text
    assert "in order     one, two: a run keeps the order of what they do with `state:" in text
    assert not Path("sent").exists()


def test_files_of_a_function_that_takes_the_shared_state_are_compared(explore: Explore) -> None:
    tasks = """\
state: {}
tasks:
  w: {python: "work:leave_file"}
  r: {python: "work:find"}
"""
    code, text = explore(tasks)
    assert code == 1
    assert "    - something\n    + nothing\n" in text
    assert not Path("left.txt").exists()


@pytest.mark.parametrize(
    ("tasks", "why"),
    [
        ('a: {python: "work:parse"}\n  b: {python: "work:enrich"}', "both use `work.CACHE`"),
        ('a: {run: "date +%N > f"}\n  b: {run: "date +%N | tee -a f"}', "something else each time"),
        ('a: {run: "touch $OUT"}\n  b: {run: "echo b"}', "outside of the plan's folder"),
        ('a: {agent: claude, prompt: x}\n  b: {run: "echo b"}', "the agent `claude`, which costs"),
        ('a: {run: "exit 3"}\n  b: {run: "echo b"}', "`a` fails in declared order: exit code 3"),
        ('x: {run: "false"}\n  a: {needs: x, run: "true"}\n  b: {run: "true"}', "what it needs"),
    ],
)  # fmt: skip
def test_what_cannot_be_judged_is_named_and_gives_no_all_clear(
    explore: Explore, tasks: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUT", str(tmp_path / "outside"))
    code, text = explore(f"tasks:\n  {tasks}\n")
    assert code == 1
    assert "not judged   " in text
    assert why in text
    assert text.endswith("no all-clear: not every pair was judged\n")


def test_agents_in_workspaces_are_kept_in_order_by_a_run(explore: Explore) -> None:
    code, text = explore(
        "tasks:\n  a: {agent: claude, prompt: x}\n  b: {agent: claude, prompt: y}\n"
    )
    assert code == 0
    assert "in order     a, b: each works on files of its own" in text


def test_a_prompt_that_is_read_before_it_is_written_is_found(explore: Explore) -> None:
    Path("ask.md").write_text("Say hello.\n")
    tasks = 'tasks:\n  a: {run: "echo x > ask.md"}\n  b: {needs: a, prompt_file: ask.md}\n'
    code, text = explore(tasks)
    assert code == 1
    assert "`ask.md` is read for `b` before the run begins; `a` writes it" in text


def test_nothing_is_executed_without_a_question(explore: Explore) -> None:
    code, text = explore(BROKEN, "--json")
    assert code == 2
    assert "this runs the commands and functions of parse, enrich" in text
    assert "--yes" in text


def test_a_plan_of_prompts_alone_needs_no_question(explore: Explore) -> None:
    code, text = explore("tasks:\n  a: {prompt: x}\n  b: {prompt: y, output: o}\n", "--json")
    assert (code, json.loads(text)["is_clear"]) == (0, True)


def test_calls_of_commands_go_to_the_simulated_provider(explore: Explore) -> None:
    tasks = 'tasks:\n  a: {run: "test $OPENAI_API_KEY = simulated"}\n  b: {run: "echo b"}\n'
    assert explore(tasks)[0] == 0


def test_a_script_that_is_none_is_refused_with_its_place(
    explore: Explore, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("plan.yaml").write_text(HEAD + "tasks:\n  a: {prompt: x}\n")
    Path("script.yaml").write_text("rules:\n  - text: x\n")
    assert main(["run", "plan.yaml", "--sim", "script.yaml", "--quiet"]) == 2
    assert "script.yaml" in capsys.readouterr().err


def test_prompts_can_be_answered_as_an_earlier_run_was(
    explore: Explore, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = 'tasks:\n  a: {prompt: "Say x.", output: o}\n  b: {run: "tr a-z A-Z < o"}\n'
    Path("plan.yaml").write_text(HEAD + tasks.replace("{run", "{needs: a, run"))
    Path("script.yaml").write_text("rules:\n  - answer: recorded\n")
    assert main(["run", "plan.yaml", "--sim", "script.yaml", "--quiet"]) == 0
    Path("o").unlink()
    capsys.readouterr()
    found = explore(tasks + '  c: {run: "echo late > o"}\n', "a", "c", "--answers", "last", "--yes")
    assert "recorded" in found[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("parse", "--yes"), "explore compares two tasks, or all"),
        (("parse", "enrihc", "--yes"), "the plan has no task `enrihc`"),
        (("--members", "1", "--yes"), "--members takes 2 to"),
        (("--answers", "nothing", "--yes"), "nothing"),
    ],
)
def test_a_command_line_that_makes_no_sense_is_refused(
    explore: Explore, words: tuple[str, ...], said: str
) -> None:
    code, text = explore(BROKEN, *words)
    assert code == 2
    assert said in text


def test_a_run_shows_what_check_warns_of(
    explore: Explore, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("plan.yaml").write_text(HEAD + BROKEN)
    main(["run", "plan.yaml", "-j", "1"])
    said = capsys.readouterr().err
    assert "warning: the command of `enrich` reads `parsed`, and `enrich` does not" in said
    assert "what to write instead: headway check plan.yaml" in said
    main(["run", "plan.yaml", "-j", "1", "--quiet"])
    assert "warning: " not in capsys.readouterr().err
