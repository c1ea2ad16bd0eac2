"""A cost that is not known is shown as unknown, never as nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.promises.user import CALL, Provider, User, openai_at, provider, user

PLAN = """
headway: 1
model: openai/echo
tasks:
  free: {run: echo hello}
  ask: {each: [1, 2], prompt: "Say {{ item }}.", max_tokens: 50}
"""


@pytest.fixture(scope="module")
def simulated() -> Iterator[Provider]:
    with provider("--model", "echo", "--first-byte-s", "0.01", "--per-token-s", "0") as one:
        yield one


@pytest.fixture
def someone(tmp_path: Path, simulated: Provider) -> Iterator[User]:
    with user(tmp_path, openai_at(simulated, f"key of {tmp_path.name}")) as one:
        yield one


def results(someone: User) -> dict[str, Any]:
    return {one["task"]: one for one in someone.json("results", "--all")}


def test_every_view_of_a_run_says_unknown(someone: User) -> None:
    someone.write("plan.yaml", PLAN)
    ended = someone.headway("run", "plan.yaml")
    assert ended.returncode == 0, ended.stderr
    assert "$0.00" not in ended.stdout + ended.stderr
    found = results(someone)
    assert found["ask[1]"]["usd"] is None
    assert found["ask[2]"]["usd"] is None
    assert found["free"]["usd"] == 0.0
    for verb in ("status", "report"):
        (told,) = someone.json(verb)
        assert told["usd"] is None, told
        assert told["known_usd"] == 0.0
        assert told["unpriced_calls"] == 2
    for verb in ("status", "report", "timeline", "results", "limits"):
        shown = someone.headway(verb)
        assert shown.returncode == 0, shown.stderr
        assert "ask" not in shown.stdout or "$0.00" not in priced_lines(shown.stdout), shown.stdout
    for verb in ("status", "report"):
        assert "unknown" in someone.headway(verb).stdout


def test_limits_do_not_say_that_unknown_money_is_nothing(someone: User) -> None:
    someone.write("plan.yaml", PLAN)
    assert someone.headway("run", "plan.yaml").returncode == 0
    (told,) = someone.json("limits")
    sums = [one["spent"] for _, one in told["ledgers"] if one["spent"]["tokens"]]
    sums += [day for _, days in told["days"] for day in days]
    assert len(sums) == 4  # Of the account and of all, this month and today.
    for one in sums:
        assert one["microusd"] is None, told
        assert one["known_microusd"] == 0
        assert one["unpriced"] == 2
    assert "is_priced" not in json.dumps(told)
    assert "$" not in someone.headway("limits").stdout


def priced_lines(text: str) -> str:
    """The lines of a view that are about calls: `free` costs nothing, and that is known."""
    return "\n".join(line for line in text.splitlines() if "free" not in line)


def test_a_plan_that_is_checked_says_which_price_is_missing(someone: User) -> None:
    someone.write("plan.yaml", PLAN)
    ended = someone.headway("check", "plan.yaml", "--forecast")
    assert "$0.00" not in ended.stdout
    assert "cost unknown: no price for" in ended.stdout, ended.stdout
    assert "pip install 'headway[prices]'" in ended.stdout
    (told,) = someone.json("check", "plan.yaml", "--forecast")
    assert told["forecast"]["microusd"] is None
    # What `advise` compares has an assumed price, with `~` before it.
    assert "the price is not known" in someone.headway("advise", "plan.yaml").stdout


def test_calls_of_commands_say_unknown_and_commands_without_calls_nothing(someone: User) -> None:
    someone.write("call.py", CALL)
    someone.write("plan.yaml", f"""
headway: 1
tasks:
  calls: {{run: {sys.executable} call.py}}
  free: {{run: "true"}}
""")  # fmt: skip
    ended = someone.headway("run", "plan.yaml")
    assert ended.returncode == 0, ended.stderr
    costs = sorted(str(one["usd"]) for one in someone.json("results", "--all"))
    assert costs == ["0.0", "None"]


def test_python_gives_none(someone: User) -> None:
    script = (
        "import headway; s = headway.summarize(['a', 'b'], model='openai/echo', max_tokens=50);"
        "print(repr(s.spend_microusd))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=someone.folder, env=someone.env,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.stdout.strip() == "None", ended.stderr


def test_a_known_price_is_shown(someone: User) -> None:
    pytest.importorskip("genai_prices")
    someone.write("plan.yaml", PLAN.replace("openai/echo", "openai/gpt-4o-mini"))
    assert someone.headway("run", "plan.yaml").returncode == 0
    (told,) = someone.json("status")
    assert told["usd"] > 0.0
    assert told["usd"] == json.loads(json.dumps(told["known_usd"]))
    assert told["unpriced_calls"] == 0
    assert "$" in someone.headway("status").stdout
