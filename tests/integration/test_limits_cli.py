"""`headway limits`, as a person at a shell uses them, with a real broker."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from typing import Any

import pytest
from msgspec.structs import replace

from headway.base.values import Fault, LimitReading, Reading
from headway.errors import HeadwayError
from headway.pacing.call import Outcome
from tests.integration.broker_home import Home, is_alive, until
from tests.integration.caller import CALL, USED

TOLD = Reading((LimitReading("requests", 60.0, 500.0, 499.0, 0.1),
                LimitReading("tokens", 60.0, 100_000.0, 99_000.0, 0.6)))  # fmt: skip


def headway(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headway", *words]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "100"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert "Traceback" not in done.stderr
    return done


def told(*words: str) -> Any:
    done = headway(*words, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def call(here: Home, count: int = 1, outcome: Outcome = USED) -> None:
    port = here.port()
    for _ in range(count):
        ticket = port.admit(CALL, 10.0)
        ticket.began(TOLD, "openai")
        ticket.settle(outcome)


def test_every_limit_is_shown_with_its_source_age_use_and_callers(here: Home) -> None:
    assert "No account has been used yet" in headway("limits").stdout
    call(here)
    held = here.port().admit(CALL, 10.0)
    shown = headway("limits").stdout
    for words in (CALL.account, "requests a minute", "100k", "header", "s ago",
                  "1 in flight, 0 waiting", "no budget"):  # fmt: skip
        assert words in shown
    held.settle(USED)


def test_what_is_set_binds_and_stays_until_it_is_taken_back(here: Home) -> None:
    assert headway("limits", "set", "rpm=500", "tpm=100k", "concurrent=2").returncode == 0
    assert headway("limits", "ceiling", "50%").returncode == 0
    terms = dict(told("limits")["terms"])
    assert terms[""]["share"] == 0.5
    assert [limit["amount"] for limit in terms[""]["limits"]] == [500, 100_000, 2]
    held = here.port().admit(CALL, 10.0)
    assert told("limits")["accounts"][0]["width"] == 1
    held.settle(USED)
    terms = dict(told("limits", "set", "rpm=none")["terms"])
    resources = [limit["resource"] for limit in terms[""]["limits"]]
    assert resources == ["tokens", "concurrency"]


def test_a_budget_of_tokens_is_kept_by_the_month_and_refuses_what_exceeds_it(here: Home) -> None:
    call(here)
    assert "of a budget of 5M" in headway("limits", "budget", "5M/month").stdout
    assert headway("limits", "budget", "0/month").returncode == 0
    with pytest.raises(HeadwayError) as refused:
        here.port().admit(CALL, 10.0)
    assert refused.value.code == "HW205"


@pytest.mark.parametrize(
    ("words", "says"),
    [(("ceiling", "150%"), "at most 100 %"), (("set", "rmp=5"), "did you mean `rpm`"),
     (("reserve", "100%"), "below 100 %"),
     (("set", "rpm"), "at least 1"), (("budget", "5M/week"), "not a budget"),
     (("set", "rpm=5", "--model", "x"), "--account"),
     (("set", "rpm=5", "--account", "nobody"), "was used here yet"),
     (("sett", "rpm=5"), "did you mean `set`")],
)  # fmt: skip
def test_a_mistake_is_told_in_one_message(here: Home, words: tuple[str, ...], says: str) -> None:
    done = headway("limits", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr


def test_without_a_broker_and_a_memory_it_says_so_and_starts_none(here: Home) -> None:
    done = headway("limits")
    assert (done.returncode, done.stderr) == (0, "")
    assert "No account has been used yet" in done.stdout
    assert "no broker is running, and nothing is remembered" in done.stdout
    assert here.brokers() == []
    assert told("limits")["accounts"] == []


def test_a_budget_says_what_is_expected_by_the_end_of_the_month(here: Home) -> None:
    call(here, 3)
    shown = headway("limits", "budget", "5M/month").stdout
    assert re.search(r"budget 5M tokens: \S+ expected to be used by 20", shown)
    (found,) = told("limits")["budgets"]
    assert (found["budget"], found["unit"], found["exhausted_on"]) == (5e6, "tokens", None)
    assert found["spent"] > 0


def test_an_account_is_told_with_its_reasons_by_the_broker_and_after_it(here: Home) -> None:
    call(here, 20)
    call(here, 5, Outcome("throttled", fault=Fault("overload", None, 0.0)))
    shown = headway("limits").stdout
    assert f"{CALL.account}  " in shown
    assert "bad: 20.0% of calls found the provider overloaded or failing" in shown
    assert "broker " in shown
    for port in here.ports:
        port.close()
    (pid,) = here.brokers()
    os.kill(pid, signal.SIGTERM)
    until(lambda: not is_alive(pid))
    found = told("limits")
    assert re.match(r"no broker is running; remembered, written \d+ s ago", found["source"])
    (health,) = found["health"]
    assert (health["level"], health["refused_share"]) == ("bad", 0.0)
    assert here.brokers() == [pid]


def test_a_reserve_is_kept_for_interactive_calls_and_shown(here: Home) -> None:
    here.port().admit(replace(CALL, is_interactive=True), 10.0).settle(USED)
    shown = headway("limits", "reserve", "20%").stdout
    assert "20% kept for interactive calls" in shown
    assert "1 interactive session active; runs leave room for it" in shown
    found = told("limits", "reserve", "0")["accounts"][0]
    assert (found["reserve"], found["interactive"]) == (0.0, 1)
