"""What views of a run say: the same words and numbers everywhere, the end of a run, small mends."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.promises.test_terminal import on_terminal
from tests.promises.user import User, openai_at, provider, until, user

ENDING_LINES: Final = 8


@pytest.fixture
def someone(tmp_path: Path) -> Iterator[User]:
    with user(tmp_path) as one:
        yield one


SLOW: Final = """\
headway: 1
model: openai/tokens-20
tasks:
  ask:
    each: {count}
    prompt: "Say {{{{ item }}}}"
    max_tokens: 30
"""


def test_the_time_to_the_end_is_never_below_the_bound_and_a_forecast_waits_for_the_end(
    tmp_path: Path,
) -> None:
    """The forecast of a new account knows no limit: it says seconds where the limit needs more."""
    with (
        provider("--rpm", "60", "--burst-s", "10") as api,
        user(tmp_path, openai_at(api, "sk-views")) as someone,
    ):
        someone.write("plan.yaml", SLOW.format(count=list(range(26))))
        run = someone.start("run", "plan.yaml", "--yes", "--forecast", "--quiet")
        seen: list[dict[str, Any]] = []
        while run.poll() is None:
            told = someone.headway("status", "--json")
            if told.returncode == 0:
                seen.append(json.loads(told.stdout))
            if len(seen) == 5:
                (report,) = someone.json("report")
                if report["is_live"]:
                    assert report["foreseen"]["compared"] == []
        run.communicate()
        (report,) = someone.json("report")
        (last,) = someone.json("status")
    known = [one for one in seen if one.get("eta_s") is not None and one["bound_s"] is not None]
    assert known, seen[-1]
    assert all(one["eta_s"] >= one["bound_s"] for one in known)
    # Of the time only the least was foreseen: there is nothing to compare it with.
    assert [one["name"] for one in report["foreseen"]["compared"]] == ["calls", "tokens"]
    assert last.get("bound_s") is None


def test_a_run_that_is_paused_has_the_bound_that_it_had(tmp_path: Path) -> None:
    with (
        provider("--rpm", "60", "--burst-s", "10") as api,
        user(tmp_path, openai_at(api, "sk-paused")) as someone,
    ):
        someone.write("plan.yaml", SLOW.format(count=list(range(200))))
        run = someone.start("run", "plan.yaml", "--yes", "--quiet", "-j", "1")

        def status() -> dict[str, Any]:
            found: dict[str, Any] = json.loads(someone.headway("status", "--json").stdout or "{}")
            return found

        until(lambda: status().get("tasks", {}).get("done", 0) >= 3)
        assert someone.headway("pause").returncode == 0
        until(lambda: "in_flight" not in status()["tasks"])
        seen = status()
        assert (seen["state"], seen["bound_by"].partition("/")[0]) == ("paused", "requests")
        assert 0.0 < seen["bound_s"] <= seen["eta_s"]
        run.kill()
        run.communicate()


FAILING: Final = """\
headway: 1
tasks:
  good: {run: echo fine}
  bad:
    each: [a, b, c]
    run: echo "no such thing as $item" >&2; exit 3
  gone: {run: no-such-program}
  behind: {needs: bad, run: echo never}
  file: {run: echo text, output: out/text.txt}
"""


def test_the_end_of_a_run_is_eight_lines_at_most_with_failures_by_cause(someone: User) -> None:
    someone.write("plan.yaml", FAILING)
    ended = someone.headway("run", "plan.yaml", "--quiet", "--observe", "off")
    lines = ended.stderr.splitlines()
    assert ended.returncode == 1
    assert len(lines) <= ENDING_LINES, ended.stderr
    assert ": 2 of 7 done, 4 failed, 1 skipped" in lines[0]
    assert lines[1].startswith("time: ")
    failed = [line for line in lines if line.startswith("failed: ")]
    assert len(failed) == 2
    assert failed[0].startswith("failed: 3 with command: ")
    assert "for instance bad[a]" in failed[0]
    assert "gone" in failed[1]
    assert "install it, or correct its name" in failed[1]
    assert "files: out/text.txt" in lines
    assert lines[-1].startswith("next: headway resume ")


def test_an_interrupted_run_says_the_same_and_prints_no_results(someone: User) -> None:
    someone.write(
        "plan.yaml", "headway: 1\ntasks:\n  quick: {run: echo early}\n  slow: {run: sleep 60}\n"
    )
    run = someone.start("run", "plan.yaml", "--quiet")
    until(lambda: "early" in someone.headway("results", "--all").stdout)
    run.send_signal(signal.SIGINT)
    time.sleep(0.5)
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=60)
    assert run.returncode == 130
    assert out == ""
    lines = [line for line in err.splitlines() if not line.startswith("stops")]
    assert len(lines) <= ENDING_LINES, err
    assert any(": 1 of 2 done" in line and "interrupted" in line for line in lines), err
    assert any(line.startswith("next: headway resume ") for line in lines), err


def test_a_running_command_waits_for_no_permit_and_waiting_tasks_say_why(someone: User) -> None:
    someone.write(
        "plan.yaml",
        "headway: 1\ntasks:\n  work: {run: sleep 2.5}\n  after: {needs: work, run: echo over}\n",
    )
    code, screen = on_terminal(someone, "run", "plan.yaml")
    assert code == 0, screen
    assert "permit" not in screen
    assert "waiting for a limit" not in screen
    assert "running here" in screen
    assert "1 of after waiting for a task: work is not done" in screen


def test_every_view_names_the_states_of_tasks_alike(someone: User) -> None:
    someone.write("plan.yaml", FAILING)
    someone.headway("run", "plan.yaml", "--quiet", "--observe", "off")
    (status,) = someone.json("status")
    assert status["tasks"] == {"total": 7, "done": 2, "failed": 4, "skipped": 1}
    (timeline,) = someone.json("timeline")
    states = {one["task"]: one["state"] for one in timeline["tasks"]}
    results = {one["task"]: one["state"] for one in someone.json("results", "--all")}
    assert states == results
    for task, state in results.items():
        (why,) = someone.json("why", task)
        assert why["state"] == state
    assert "2 of 7 done, 4 failed, 1 skipped" in someone.headway("status").stdout
    assert "2 of 7 done, 4 failed, 1 skipped" in someone.headway("report").stdout
    (every,) = someone.json()
    assert every["runs"][0]["tasks"] == status["tasks"]


def test_why_takes_the_last_run_and_lists_the_tasks_that_a_word_may_mean(someone: User) -> None:
    someone.write("plan.yaml", FAILING)
    someone.headway("run", "plan.yaml", "--quiet", "--observe", "off")
    assert "good is done" in someone.headway("why", "good").stdout
    many = someone.headway("why", "bad")
    assert many.returncode == 2
    assert "bad[a], bad[b], bad[c]" in many.stderr
    assert "bad[a] is failed" in someone.headway("why", "last", "bad[a]").stdout


def test_why_an_unknown_task_gets_one_guess_or_a_few_names(someone: User) -> None:
    assert someone.headway("each", "true", ":::", *map(str, range(40))).returncode == 0
    near = someone.headway("why", "each[7 : 7]").stderr
    assert "did you mean `each[" in near
    far = someone.headway("why", "zebra").stderr
    assert "its tasks: each[1: 0], each[2: 1]," in far
    assert "each[5: 4] and 35 more" in far


def test_errors_are_json_where_json_is_asked_for(someone: User) -> None:
    for words in (("status",), ("why", "x"), ("results", "nope"), ("check", "gone.yaml"), ("wy",)):
        ended = someone.headway(*words, "--json")
        assert ended.returncode != 0
        assert ended.stderr == ""
        told = json.loads(ended.stdout)
        (error, *_) = told.get("errors") or told["refused"]
        assert error["code"].startswith("HW")
        assert error["message"]
    assert someone.json() == [{"runs": []}]


PROMPTS: Final = """\
headway: 1
model: openai/tokens-20
tasks:
  look: {each: [a, b], prompt: "Look at {{ item }}", max_tokens: 30}
  sum: {needs: look, prompt: "Sum up {{ tasks.look.output }}", max_tokens: 30}
"""


def test_results_are_those_of_final_tasks_and_prompts_are_shown_on_request(someone: User) -> None:
    someone.write("plan.yaml", PROMPTS)
    someone.headway("run", "plan.yaml", "--sim", "--quiet")
    (final,) = someone.json("results")
    assert final["task"] == "sum"
    whole = someone.json("results", "--all")
    assert [one["task"] for one in whole] == ["look[a]", "look[b]", "sum"]
    prompt = someone.headway("results", "--prompt", "sum").stdout
    assert prompt == f"Sum up {json.dumps([one['output'] for one in whole[:2]])}\n"
    assert someone.headway("results", "--prompt", "look[b]").stdout == "Look at b\n"
    _, screen = on_terminal(someone, "results")
    assert "task" in screen
    assert "sum" in screen
    assert "{" not in screen


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("prompt: {{ item }} is it", 'put it in quotes: "{{ item }} is it"'),
        ("depends_on: b\n    run: x", "did you mean `needs`?"),
        ("command: x", "did you mean `run`?"),
    ],
)
def test_a_plan_written_as_for_other_tools_gets_the_hint_that_mends_it(
    someone: User, text: str, hint: str
) -> None:
    someone.write("plan.yaml", f"headway: 1\ntasks:\n  a:\n    {text}\n  b: {{run: x}}\n")
    assert hint in someone.headway("check", "plan.yaml").stderr


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("run", "plan.yaml", "--stratgy", "all-at-once"), "did you mean `--strategy`?"),
        (("each", "--keep-ordr", "echo {}", ":::", "a"), "did you mean `--keep-order`?"),
    ],
)
def test_a_misspelt_option_names_the_one_that_was_meant(
    someone: User, words: tuple[str, ...], hint: str
) -> None:
    ended = someone.headway(*words)
    assert ended.returncode == 2
    assert hint in ended.stderr


def test_an_account_is_forgotten_on_request(tmp_path: Path) -> None:
    with provider("--rpm", "600") as api, user(tmp_path, openai_at(api, "sk-views")) as someone:
        someone.write("plan.yaml", SLOW.format(count=[1]))
        someone.headway("run", "plan.yaml", "--yes", "--quiet")
        (limits,) = someone.json("limits")
        (account,) = {lane["account"] for lane in limits["accounts"]}
        assert someone.headway("limits", "forget", account).returncode == 0
        (limits,) = someone.json("limits")
        assert limits["accounts"] == []
        assert someone.headway("limits", "forget", account).returncode == 2
