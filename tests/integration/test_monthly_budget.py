"""One month's budget for two runs in two processes: not one token, not one micro-dollar over.

Processes, sockets and the broker are real; the provider is simulated and keeps the record that
everything is judged by.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from time import gmtime, strftime

import pytest

from headway.base.numbers import next_month
from headway.base.values import Tally
from headway.sim.server import launched, truth_of
from headway.wire.prices import price_of
from tests.integration.broker_home import Home, until
from tests.integration.user_scene import UserScene

TASKS = 60
ANSWER = 60
MAX_TOKENS = 80
PLAN = f"""\
headway: 1
tasks:
  ask:
    each: {{lines: items.txt}}
    prompt: 'say something about {{{{ item }}}}'
    model: openai/gpt-4o-mini
    max_tokens: {MAX_TOKENS}
"""
SERVED = ("--rpm", "30000", "--tpm", "10M", "--concurrent", "8", "--first-byte-s", "0.15",
          "--per-token-s", "0.001", "--model", f"tokens-{ANSWER}", "--seed", "7")  # fmt: skip
SLOWLY = ("--concurrent", "4", "--first-byte-s", "0.4")
"""A run takes longer than a process takes to start: two of them compete."""

INPUT = 11
"""Tokens of one prompt, as the provider counts: the test finds out whether that is so."""

ONE_RUN = TASKS * (INPUT + ANSWER)
MOST_INPUT = 250
"""More than the bytes of one request, and what is added to them."""

SHORT_OF = MOST_INPUT + MAX_TOKENS
"""What is left at the end is less than one call can take: all that there was room for was used."""


def scene_at(folder: Path, url: str) -> UserScene:
    """Two folders with the same plan, and different things to ask about."""
    for name in ("first", "second"):
        (folder / name).mkdir()
        (folder / name / "plan.yaml").write_text(PLAN)
        lines = "".join(f"{name} thing {number}\n" for number in range(TASKS))
        (folder / name / "items.txt").write_text(lines)
    env = {
        **os.environ, "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "one account",
        "PYTHONPATH": os.pathsep.join(sys.path), "NO_COLOR": "1",
    }  # fmt: skip
    return UserScene(folder, env, url)


def done(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def say(scene: UserScene, *words: str) -> str:
    code, out, err = done(scene.start(*words))
    assert code == 0, err
    return out


def taken(scene: UserScene) -> list[tuple[int, int]]:
    """Input and output of every call that the provider did not refuse, by its own record."""
    found = truth_of(scene.url, "?arrivals=all")["arrivals"]
    return [(one["input_tokens"], one["output_tokens"]) for one in found if one["how"] != "refused"]


def two_runs(scene: UserScene, share: float, *options: str) -> list[tuple[int, str, str]]:
    """The first has done this share of its work when the second begins."""
    first, second = (
        UserScene(scene.folder / name, scene.env, scene.url) for name in ("first", "second")
    )
    begun = [first.start("run", "plan.yaml", "--yes", *options)]
    until(lambda: scene.calls >= share * TASKS, 30.0)
    begun.append(second.start("run", "plan.yaml", "--yes", *options))
    return [done(process) for process in begun]


def month_turns() -> str:
    return next_month(strftime("%Y-%m-%d", gmtime()))


def test_two_runs_never_exceed_a_months_tokens_and_a_larger_one_lets_the_second_go_on(
    here: Home, tmp_path: Path
) -> None:
    budget = round(1.5 * ONE_RUN)
    with launched(*SERVED) as url:
        scene = scene_at(tmp_path, url)
        say(scene, "limits", "budget", f"{budget}/month")
        (first, _, _), (second, _, told) = two_runs(scene, 0.6)
        spent = sum(map(sum, taken(scene)))
        assert (first, second) == (0, 4), told
        assert budget - SHORT_OF < spent <= budget
        left = budget - spent
        assert f"{budget:,} tokens for all accounts ({left:,} left)" in told
        say(scene, "limits", "budget", f"{2 * ONE_RUN + SHORT_OF}/month")
        run = re.search(r"headway resume (\S+)", told)
        assert run, told
        say(scene, "resume", run[1])
        assert sum(map(sum, taken(scene))) == 2 * ONE_RUN
    shown = json.loads(say(scene, "limits", "--json"))
    (told_budget,) = shown["budgets"]
    assert (told_budget["spent"], told_budget["turns_on"]) == (2 * ONE_RUN, month_turns())
    assert [spend["tokens"] for _, spend in dict(shown["days"])[""]] == [2 * ONE_RUN]


@pytest.mark.parametrize("unit", ["tokens", pytest.param("microusd", marks=pytest.mark.soak)])
def test_two_runs_that_compete_for_the_last_of_a_budget_never_exceed_it(
    here: Home, tmp_path: Path, unit: str
) -> None:
    price = price_of("gpt-4o-mini")
    assert price is not None

    def cost(tokens_in: float, tokens_out: float) -> float:
        is_money = unit == "microusd"
        return (
            price.cost_of(Tally(tokens_in, 0.0, tokens_out)) if is_money else tokens_in + tokens_out
        )

    budget = round(1.5 * TASKS * cost(INPUT, ANSWER))
    with launched(*SERVED, *SLOWLY) as url:
        scene = scene_at(tmp_path, url)
        amount = f"${budget / 1e6:.6f}" if unit == "microusd" else f"{budget}"
        say(scene, "limits", "budget", f"{amount}/month")
        ended = two_runs(scene, 0.0, "--json")
        calls = taken(scene)
    spent = sum(cost(float(one), float(other)) for one, other in calls)
    assert budget - cost(MOST_INPUT, MAX_TOKENS) < spent <= budget
    told = [json.loads(out) for _, out, _ in ended]
    finished = [one["finished"] for one in told]
    assert sum(finished) == len(calls)
    assert min(finished) >= 10, "both had their share"
    stopped = [one for one, (code, _, _) in zip(told, ended, strict=True) if code == 4]
    assert stopped, [err for _, _, err in ended]
