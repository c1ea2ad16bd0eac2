"""What a call waits for, and why it was turned away, reaches the facts of its run."""

from __future__ import annotations

import asyncio

import headway
from headway.agents.gate import ParallelCalls
from headway.base.values import Fault
from headway.client.exchange import refusal_words
from headway.engine.engine import begin, step
from headway.engine.events import Began, CallAdmitted, CallWaited
from headway.engine.state import Rules
from headway.engine.strategy import ALL_AT_ONCE
from headway.plans.graph import Graph, TaskGroup
from headway.testing import FakeAdmission
from headway.work import TELL_WAIT, PermitWait
from tests.unit.attempts import Told
from tests.unit.paced_provider import PacedProvider, refusal
from tests.unit.test_prompt_agent import Bench, said


def test_the_engine_hands_on_what_a_call_waited_for() -> None:
    state = begin(Graph((TaskGroup("one"),)), Rules(ALL_AT_ONCE))
    step(state, Began(), 0.0)
    for fact in CallWaited(0, 1.0, "rate: input"), CallAdmitted(0, 2.0, "input/60s"):
        assert step(state, fact, fact.at_s).events == (fact,)
    assert step(state, CallWaited(7, 3.0), 3.0).events == ()


def test_a_prompt_that_was_refused_says_so_when_it_asks_again() -> None:
    bench = Bench(refusal(429, "rate_limit_error", "input tokens per minute"), said("four"))
    bench.perform()
    assert bench.told.said == ["reserve", "waits", "goes", "waits", "goes"]
    assert [why.partition(":")[0] for why in bench.told.whys] == ["", "", "rate", ""]


def test_a_refusal_is_told_with_the_limit_that_it_names() -> None:
    assert refusal_words(Fault("rate", "input")) == "rate: input"
    assert refusal_words(Fault("overload")) == "overload"


def test_calls_of_a_client_tell_the_task_that_they_are_part_of() -> None:
    told: list[tuple[bool, str]] = []
    provider = PacedProvider(refusal(429, "rate_limit_exceeded", "Slow down."))

    def ask() -> None:
        TELL_WAIT.set(lambda waits, why: told.append((waits, why)))
        with headway.pace(provider.gpt(max_retries=0), admission=FakeAdmission()) as gpt:
            gpt.responses.create(model="model-1", input="?")

    asyncio.run(asyncio.to_thread(ask))
    assert [(waits, bool(why)) for waits, why in told] == [
        (True, False), (False, False), (True, True), (False, False),
    ]  # fmt: skip


def test_the_reason_of_a_permit_is_told_when_the_wait_is_over() -> None:
    told: list[tuple[bool, str]] = []
    TELL_WAIT.set(lambda waits, why: told.append((waits, why)))
    with PermitWait("overload") as wait:
        wait.waited_for = "output/60s"
    TELL_WAIT.set(None)
    with PermitWait() as wait:
        wait.waited_for = "nobody listens"
    assert told == [(True, "overload"), (False, "output/60s")]


def test_of_several_calls_at_once_the_one_that_ends_the_wait_says_what_it_was_for() -> None:
    told, voices = Told(), ParallelCalls()
    attempt = told.attempt()
    with voices.joined(attempt) as one, voices.joined(attempt) as other:
        one("waiting")
        other("waiting")
        one("going", "input/60s")
        other("going", "output/60s")
    assert (told.said[0], told.whys[told.said.index("goes")]) == ("waits", "input/60s")
    assert told.said.count("goes") == 1
