"""Plans in the hands of strangers: results that are checked, edits, and what is said of them."""

from __future__ import annotations

import json
import os

import pytest

from headway.cli.main import main
from tests.integration.strangers_shell import Stranger


def test_results_of_commands_and_functions_must_be_what_the_plan_asks_for(
    stranger: Stranger,
) -> None:
    stranger.write("x.json", '{"type": "object", "required": ["x"]}')
    stranger.write("y.json", '{"type": "object", "required": ["y"]}')
    stranger.write(
        "fns.py",
        "def fits(): return {'x': 1}\ndef not_json(): return object()\n"
        "def raises(): raise ValueError('no way')\n",
    )
    stranger.write(
        "plan.yaml",
        "headway: 1\ntasks:\n"
        "  fits: {python: fns:fits, schema: x.json, verify: grep -q x}\n"
        "  misfit: {run: echo hello, schema: x.json}\n"
        "  refused: {run: echo hello, verify: 'echo too short; false'}\n"
        "  nothing: {python: fns:not_json}\n"
        "  raises: {python: fns:raises}\n"
        "  own: {matrix: {of: [x, y]}, schema: '{{ matrix.of }}.json',"
        ' run: \'echo "{\\"$of\\": 1}"\'}\n',
    )
    said = stranger("run", "plan.yaml")
    assert said.code == 1
    failed = {one["task"]: one["reason"] for one in stranger.status()["failed"]}
    assert failed["misfit"].startswith("unfit: it is not JSON")
    assert failed["refused"] == "unfit: too short"
    assert failed["nothing"] == "function: JSON cannot hold what it gave: object"
    assert set(failed) == {"misfit", "refused", "nothing", "raises"}
    # Of a traceback, what was raised; the whole of it is in the logs.
    assert "raises  failed after 1 attempt: function: ValueError: no way" in said.err
    assert "Traceback" in stranger("logs", "last", "raises").err


def test_logs_have_what_each_attempt_of_a_command_wrote(stranger: Stranger) -> None:
    stranger.write(
        "plan.yaml",
        "headway: 1\ntasks:\n  a: {run: echo first}\n"
        "  b: {needs: a, run: 'echo said; echo meant >&2; exit 3', retries: 1}\n"
        "  late: {run: 'echo partial; sleep 30', timeout: 1s, retries: 0}\n",
    )
    assert stranger("run", "plan.yaml").code == 1
    told = stranger("logs", "last", "b")
    assert told.out.count("said\n") == told.err.count("meant\n") == 2
    assert "attempt 2: exit 3\n" in told.out
    assert "attempt 1: timeout" in (late := stranger("logs", "last", "late").out)
    assert "partial\n" in late


def test_results_are_in_declared_order_also_of_members_found_at_run_time(
    stranger: Stranger,
) -> None:
    stranger.write(
        "plan.yaml",
        "headway: 1\ntasks:\n"
        "  list: {run: 'printf \"x\\ny\\n\"'}\n"
        "  items: {each: list, run: 'echo \"i $item\"'}\n"
        "  after: {each: items, run: 'echo \"a $item\"'}\n"
        "  other: {run: echo other}\n",
    )
    assert stranger("run", "plan.yaml").code == 0
    assert list(stranger.results()) == [
        "list", "items[x]", "items[y]", "after[x]", "after[y]", "other",
    ]  # fmt: skip


def test_a_run_goes_on_and_is_shown_with_the_files_that_it_began_with(stranger: Stranger) -> None:
    stranger.write("inputs/a.txt", "a")
    stranger.write("inputs/b.txt", "b")
    stranger.write("lines.txt", "x\ny\n")
    stranger.write(
        "plan.yaml",
        "headway: 1\ntasks:\n  of: {each: 'inputs/*.txt', run: 'test -e go && echo \"$item\"'}\n"
        "  line: {each: {lines: lines.txt}, run: 'echo \"$item\"'}\n",
    )
    assert stranger("run", "plan.yaml").code == 1
    assert [path.name for path in stranger.here.iterdir() if path.name in ("shim.log", "out")] == []
    (stranger.here / "inputs" / "b.txt").unlink()
    (stranger.here / "lines.txt").unlink()
    (stranger.here / "go").touch()
    assert stranger.status()["tasks"]["total"] == 4
    assert stranger("why", "last", "of[inputs/b.txt]").code == 0
    assert stranger("resume", "--keep").code == 0
    assert stranger.results() == {
        "of[inputs/a.txt]": "inputs/a.txt\n", "of[inputs/b.txt]": "inputs/b.txt\n",
        "line[x]": "x\n", "line[y]": "y\n",
    }  # fmt: skip
    files = {path.name for path in stranger.runs()[-1].iterdir()}
    assert files - {"out"} <= {
        "journal.db", "journal.db-wal", "journal.db-shm", "owner.lock", "shim.log",
    }  # fmt: skip


@pytest.mark.parametrize("point", ["making", "made", "opened", "documents"])
def test_a_kill_at_any_step_of_a_launch_leaves_no_run_or_one_that_goes_on(
    stranger: Stranger, point: str
) -> None:
    stranger.write("plan.yaml", "headway: 1\ntasks:\n  a: {run: echo a}\n  b: {run: echo b}\n")
    assert stranger("run", "plan.yaml", HEADWAY_CRASH_AT=point).code == -9
    said = stranger("resume")
    if point == "making":
        assert (said.code, "there are no runs yet" in said.err) == (2, True)
        assert stranger("run", "plan.yaml").code == 0
    else:
        assert said.code == 0, said.err
    assert stranger.results() == {"a": "a\n", "b": "b\n"}
    # The same while it is resumed, with an edited plan.
    stranger.write("plan.yaml", "headway: 1\ntasks:\n  a: {run: echo c}\n  b: {run: echo b}\n")
    if point in ("opened", "documents"):
        assert stranger("resume", "--changed", HEADWAY_CRASH_AT=point).code == -9
        assert stranger("status").code == 0
    assert stranger("resume", "--changed").code == 0
    assert stranger.results() == {"a": "c\n", "b": "b\n"}


def test_what_an_edit_replaced_is_neither_counted_nor_given(stranger: Stranger) -> None:
    plan = "headway: 1\ntasks:\n  a: {run: echo a}\n  b: {run: exit 3}\n"
    stranger.write("plan.yaml", plan)
    assert stranger("run", "plan.yaml").code == 1
    stranger.write("plan.yaml", plan.replace("exit 3", "echo b"))
    refused = stranger("resume")
    assert (refused.code, refused.err.count("still hold")) == (2, 1)
    again = stranger("resume", "--changed")
    assert again.code == 0
    # What is done already counts.
    assert "1 task done before\nb  done  [2/2]\n" in again.err
    status = stranger.status()
    assert (status["tasks"], status["failed"]) == ({"total": 2, "done": 2}, [])
    assert stranger.results() == {"a": "a\n", "b": "b\n"}
    assert "2 of 2 done" in stranger().out
    (stranger.here / "plan.yaml").unlink()
    gone = stranger("resume", "--changed")
    assert (gone.code, "plan.yaml cannot be read" in gone.err) == (2, True)
    assert stranger("resume").code == 0


def test_an_edited_prompt_file_is_an_edited_plan(stranger: Stranger) -> None:
    stranger.write("prompts/a.md", "one")
    stranger.write("prompts/b.md", "two")
    stranger.write(
        "plan.yaml",
        "headway: 1\nmodel: openai/echo\ntasks:\n"
        "  q: {matrix: {v: [a, b]}, prompt_file: 'prompts/{{ matrix.v }}.md', max_tokens: 20}\n",
    )
    assert stranger("run", "plan.yaml", "--sim").code == 0
    stranger.write("prompts/a.md", "three")
    assert "1 of 2 results still hold" in stranger("resume").err
    assert stranger("resume", "--keep", OPENAI_API_KEY="").code == 0
    assert stranger.results() == {"q[a]": "one", "q[b]": "two"}
    # Without being told again: what began on the simulated provider stays there.
    assert stranger("resume", "--changed", OPENAI_API_KEY="").code == 0
    assert stranger.results() == {"q[a]": "three", "q[b]": "two"}
    assert stranger.status()["tasks"] == {"total": 2, "done": 2}
    (stranger.here / "prompts" / "b.md").unlink()
    assert stranger("why", "last", "q").code == 2


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--budget", "$1", "--model", "openai/echo"), 4, "HW205"),
        (("--model", "claude-sonnet-4"), 2, "ANTHROPIC_API_KEY is not set"),
        (("--strategy", "magic", "--model", "openai/echo"), 2, "is not a strategy"),
        (("--wait", "soon", "--model", "openai/echo"), 2, "is not a length of time"),
        (("-j", "-3"), 2, "-j -3 is less than 1"),
        (("--retries", "-1"), 2, "--retries -1 is less than 0"),
    ],
)
def test_a_plan_that_is_refused_leaves_no_run_behind(
    stranger: Stranger,
    words: tuple[str, ...],
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stranger.write("plan.yaml", "headway: 1\ntasks: {a: {prompt: hello}}\n")
    environment = stranger.environment | {"OPENAI_API_KEY": "x", "ANTHROPIC_API_KEY": ""}
    monkeypatch.setattr("os.environ", environment)
    assert main(["run", str(stranger.here / "plan.yaml"), *words]) == code
    assert said in capsys.readouterr().err
    assert stranger.runs() == []


def test_a_budget_that_is_reached_says_how_to_go_on(stranger: Stranger) -> None:
    stranger.write(
        "plan.yaml",
        "headway: 1\nmodel: openai/tokens-50\nbudget: 0.2k\ntasks:\n"
        "  a: {each: [1, 2, 3, 4], prompt: 'say {{ item }}', max_tokens: 60}\n",
    )
    said = stranger("run", "plan.yaml", "--sim", "--json")
    run = json.loads(said.out)
    assert (said.code, run["cause"]) == (4, "budget")
    again = stranger("resume")
    assert again.code == 4
    assert f"next: headway resume {run['run']} --budget 400 " in again.err
    assert "again in" not in again.err.partition("stops:")[2]
    assert stranger("resume", "--budget", "5M").code == 0
    assert stranger.status()["tasks"] == {"total": 4, "done": 4}


def test_what_is_found_at_run_time_is_written_within_the_plans_folder_and_once(
    stranger: Stranger,
) -> None:
    stranger.write(
        "plan.yaml",
        "headway: 1\ntasks:\n"
        "  list: {run: 'printf \"../../evil\\nfine\\n./fine\\n\"'}\n"
        "  a: {each: list, run: 'echo \"$item\"; echo ran >> ran', output: 'out/{{ item }}'}\n",
    )
    assert stranger("run", "plan.yaml").code == 1
    assert not (stranger.here.parent / "evil").exists()
    assert (stranger.here / "ran").read_text() == "ran\n"
    assert (stranger.here / "out" / "fine").read_text() in ("fine\n", "./fine\n")
    reasons = sorted(one["reason"] for one in stranger.status()["failed"])
    assert reasons[0] == "request: its output, `out/../../evil`, leads out of the plan's folder"
    assert "is that of a[" in reasons[1]


def test_odd_results_are_items_like_any_or_refused_in_words(stranger: Stranger) -> None:
    stranger.write("odd.json", r'["\ud800", "fine"]')
    stranger.write(
        "plan.yaml",
        "headway: 1\nretries: 0\ntasks:\n"
        "  list: {run: cat odd.json}\n"
        "  a: {each: list, run: 'cat odd.json'}\n"
        "  all: {needs: a, vars: {a: '{{ tasks.a.output }}'}, run: 'cat \"$a_file\"'}\n"
        "  long: {run: \"head -c 200000 /dev/zero | tr '\\\\0' x\"}\n"
        "  b: {each: long, run: 'echo \"$item\"'}\n",
    )
    assert stranger("run", "plan.yaml").code == 1
    (failed,) = stranger.status()["failed"]
    assert "`item` has 200,000 characters: too many for an environment" in failed["reason"]
    assert stranger.results()["all"] == '[["?", "fine"], ["?", "fine"]]'


def test_a_file_that_a_pattern_matches_is_not_left_out_in_silence(stranger: Stranger) -> None:
    stranger.write("plan.yaml", "headway: 1\ntasks: {a: {each: '*.txt', run: echo}}\n")
    stranger.write("fine.txt", "")
    try:
        open(os.fsencode(stranger.here) + b"/odd\xff.txt", "wb").close()
    except OSError:
        pytest.skip("this file system knows no such name")
    said = stranger("check", "plan.yaml")
    assert said.code == 3
    assert "matches odd\\udcff.txt, whose name is not UTF-8" in said.err
