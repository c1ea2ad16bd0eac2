"""`headway limits`, as a person at a shell uses it, with a real broker behind it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from headway.base.values import LimitReading, Reading
from headway.broker.client import CallRequest
from headway.pacing.admission import CallOutcome
from tests.integration.broker_home import Home
from tests.integration.caller import CALL, USED

TOLD = Reading((LimitReading("requests", 60.0, 500.0, 499.0, 0.1),
                LimitReading("tokens", 60.0, 100_000.0, 99_000.0, 0.6)))  # fmt: skip


def limits(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headway", "limits", *words]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "100"}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def told(*words: str) -> dict[str, object]:
    done = limits(*words, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    shown = json.loads(done.stdout)
    assert isinstance(shown, dict)
    return shown


def call(here: Home, request: CallRequest = CALL, outcome: CallOutcome = USED) -> None:
    ticket = here.port().admit(request, 10.0)
    ticket.began(TOLD, "openai")
    ticket.settle(outcome)


def test_before_the_first_call_it_says_what_to_do(here: Home) -> None:
    done = limits()
    assert done.returncode == 0
    assert "No account has been used yet" in done.stdout


def test_every_limit_is_shown_with_its_source_age_use_and_callers(here: Home) -> None:
    call(here)
    held = here.port().admit(CALL, 10.0)
    shown = limits().stdout
    assert CALL.account in shown
    assert "requests a minute" in shown
    assert "100k" in shown
    assert "header" in shown
    assert "s ago" in shown
    assert "1 in flight, 0 waiting" in shown
    assert "no budget" in shown
    held.settle(USED)


def test_what_is_set_binds_and_stays(here: Home) -> None:
    assert limits("set", "rpm=500", "tpm=100k", "concurrent=2").returncode == 0
    assert limits("ceiling", "50%").returncode == 0
    terms = dict(told()["terms"])  # type: ignore[call-overload]
    assert terms[""]["share"] == 0.5
    assert [limit["amount"] for limit in terms[""]["limits"]] == [500, 100_000, 2]
    port = here.port()
    held = port.admit(CALL, 10.0)
    lanes = told()["lanes"]
    assert isinstance(lanes, list)
    assert lanes[0]["width"] == 1
    held.settle(USED)


def test_none_takes_a_limit_back_and_the_others_stay(here: Home) -> None:
    limits("set", "rpm=500", "itpm=1M")
    terms = dict(told("set", "rpm=none")["terms"])  # type: ignore[call-overload]
    assert [limit["resource"] for limit in terms[""]["limits"]] == ["input"]


def test_a_budget_of_tokens_is_kept_by_the_month_and_refuses_what_exceeds_it(here: Home) -> None:
    call(here)
    shown = limits("budget", "5M/month").stdout
    assert "of a budget of 5M" in shown
    assert limits("budget", "0/month").returncode == 0
    caught = ""
    try:
        here.port().admit(CALL, 10.0)
    except Exception as error:
        caught = getattr(error, "code", "")
    assert caught == "HW205"


@pytest.mark.parametrize(
    ("words", "says"),
    [(("ceiling", "0%"), "above 0 %"), (("ceiling", "150%"), "at most 100 %"),
     (("set", "rmp=5"), "did you mean `rpm`"), (("set", "rpm=-4"), "at least 1"),
     (("set", "rpm"), "at least 1"), (("budget", "5M/week"), "not a budget"),
     (("budget", "lots"), "not a budget"), (("set", "rpm=5", "--model", "x"), "--account"),
     (("set", "rpm=5", "--account", "nobody"), "was used here yet"),
     (("sett", "rpm=5"), "did you mean `set`")],
)  # fmt: skip
def test_a_mistake_is_told_in_one_message(here: Home, words: tuple[str, ...], says: str) -> None:
    done = limits(*words)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
