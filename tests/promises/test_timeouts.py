"""`timeout` counts an attempt's own time: never the wait for a permit or after a refusal."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.promises.user import CALL, Provider, User, openai_at, provider, user

MAPPED = """
import asyncio, json, sys
import headway, openai

client = headway.pace(openai.AsyncOpenAI(max_retries=0))
blocking = headway.pace(openai.OpenAI(max_retries=0))

def said(answer):
    return answer.choices[0].message.content

def asked(text):
    return {"model": "echo", "max_tokens": 50, "messages": [{"role": "user", "content": text}]}

async def on_the_loop(text):
    return said(await client.chat.completions.create(**asked(text)))

async def two_at_once(text):
    both = [on_the_loop(text), on_the_loop(text)]
    return (await asyncio.gather(*both))[0]

def in_a_thread(text):
    return said(blocking.chat.completions.create(**asked(text)))

def four_in_a_row(text):
    return [in_a_thread(text) for _ in range(4)][0]

if __name__ == "__main__":
    function, count = globals()[sys.argv[1]], int(sys.argv[2])
    how = {"timeout_s": float(sys.argv[3]), "in_processes": "--processes" in sys.argv}
    print(json.dumps(headway.map(function, [f"item {n}" for n in range(count)], **how)))
"""


@pytest.fixture(scope="module")
def slow() -> Iterator[Provider]:
    """A request a second for each key, and nothing saved up."""
    with provider("--rpm", "60", "--burst-s", "1", "--first-byte-s", "0.01",
                  "--per-token-s", "0", "--model", "echo") as one:  # fmt: skip
        yield one


@pytest.fixture
def someone(tmp_path: Path, slow: Provider) -> Iterator[User]:
    with user(tmp_path, openai_at(slow, f"key of {tmp_path.name}")) as one:
        one.write("call.py", CALL)
        one.write("mapped.py", MAPPED)
        yield one


PLAN = """
headway: 1
model: openai/echo
timeout: 2.5s
retries: 0
tasks:
"""
NUMBERS = "ask: {each: [1, 2, 3, 4, 5], "


@pytest.mark.parametrize("task", [
    NUMBERS + 'prompt: "Say {{ item }}."}', NUMBERS + "python: mapped:in_a_thread}",
    NUMBERS + f"run: '{sys.executable} call.py \"$item\"'}}",
], ids=["prompts", "functions", "commands"])  # fmt: skip
def test_tasks_of_plans_do_not_time_out_while_their_calls_wait(someone: User, task: str) -> None:
    someone.write("plan.yaml", f"{PLAN}  {task}\n")
    someone.write("mapped.py", MAPPED.replace("**asked(text)", "**asked(str(text))"))
    ended = someone.headway("run", "plan.yaml")
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("calls", [1, 3])
def test_commands_whose_calls_wait_do_not_time_out(someone: User, calls: int) -> None:
    template = f"{sys.executable} call.py {{}} {calls}"
    words = [str(n) for n in range(6 // calls)]
    ended = someone.headway("each", "--timeout", "2.5s", template, ":::", *words)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert sorted(ended.stdout.split()) == words


def test_a_loop_with_tools_may_wait_before_each_of_its_calls(tmp_path: Path) -> None:
    pytest.importorskip("pydantic_ai")
    limits = ("--rpm", "60", "--burst-s", "1", "--first-byte-s", "0.01")
    with (
        provider(*limits, "--model", "agent") as slow,
        user(tmp_path, openai_at(slow, "a key")) as someone,
    ):
        someone.write("plan.yaml", """
headway: 1
model: openai/agent
timeout: 4s
retries: 0
tasks:
  ask:
    each: [1, 2, 3]
    agent: tools(shell)
    prompt: "Run `echo 1`, then `echo 2`, then `echo {{ item }}`."
""")  # fmt: skip
        ended = someone.headway("run", "plan.yaml")
        assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("function", "count", "more"),
    [("on_the_loop", 5, ["2.5"]), ("two_at_once", 3, ["2.5"]), ("in_a_thread", 5, ["2.5"]),
     ("four_in_a_row", 2, ["5", "--processes"])],
)  # fmt: skip
def test_mapped_functions_do_not_time_out_while_their_calls_wait(
    someone: User, function: str, count: int, more: list[str]
) -> None:
    ended = subprocess.run(
        [sys.executable, "mapped.py", function, str(count), *more],
        cwd=someone.folder, env=someone.env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == [f"item {n}" for n in range(count)]


def test_reductions_do_not_time_out_while_their_calls_wait(someone: User) -> None:
    someone.write("plan.yaml", PLAN + """\
  note:
    each: [1, 2, 3, 4, 5, 6]
    run: echo "$item $(seq 1 60)"
  sum:
    reduce: note
    context: 500
    prompt: "Say OK."
    max_tokens: 60
""")  # fmt: skip
    ended = someone.headway("run", "plan.yaml")
    assert "it took more than" not in ended.stdout + ended.stderr
    assert "timeout" not in ended.stdout + ended.stderr, ended.stdout + ended.stderr


def test_the_attempts_own_time_still_counts(tmp_path: Path) -> None:
    with provider("--fault", "hang=100%") as stuck, user(tmp_path, openai_at(stuck, "a")) as one:
        one.write("plan.yaml", """
headway: 1
model: openai/echo
timeout: 1s
retries: 0
tasks:
  ask: {prompt: hello}
  sleep: {run: sleep 60}
""")  # fmt: skip
        ended = one.headway("run", "plan.yaml")
        assert ended.returncode == 1
        assert "it took more than 1.0 s" in ended.stderr
        assert "ended after" in ended.stderr
        each = one.headway("each", "--timeout", "1s", "sleep {}", ":::", "60")
        assert each.returncode == 1
