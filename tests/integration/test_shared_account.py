"""One account for everybody: threads, processes, terminals; and what happens when one is killed.

Processes, sockets, time and the SDK are real; the provider is simulated and keeps the record that
everything is judged by, on its own clock.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from itertools import pairwise
from typing import Any

from bench.sharing import RATIO_MAX, Scene, crowds
from bench.sharing_crowd import Caller, Errand, Work
from headway.base.values import Limit
from headway.pacing.memory import AccountTerms
from headway.pacing.view import AccountView
from headway.sim.server import account_of, launched, truth_of
from tests.integration.broker_home import Home, until

Visits = list[dict[str, Any]]

KEY = "one account"
LIMITS = ("--rpm", "500", "--tpm", "100k", "--concurrent", "20")
SLOW = ("--first-byte-s", "0.2", "--per-token-s", "0.01", "--model", "tokens-30-90")
"""Answers of 0.5 to 0.8 s: places bind, and a machine with two cores has nothing to do."""

WORDS = (5, 30)
MAX_TOKENS = 60
THREADS = 16
TERMINALS = 4
SHARE_DOUBT = 0.05
SILENCE_S_MAX = 1.5
"""Without any grant, after the broker was killed: the next one is there in a fraction of it."""


def set_limits(port_of: Home, places: float) -> None:
    """What a user tells of an account whose provider does not say it."""
    terms = AccountTerms(
        limits=(
            Limit("requests", 500),
            Limit("tokens", 100_000),
            Limit("concurrency", places, 0.0, "gauge"),
        )
    )
    port_of.port().configure("", terms)


def seen_at(here: Home) -> AccountView:
    """The account as the broker sees it."""
    view, _ = here.ports[0].describe()
    (known,) = view.accounts
    return known


def visits_of(url: str) -> Visits:
    found: Visits = truth_of(url, "?arrivals=all")["arrivals"]
    return found


def share_on_one_account(scene: Scene, seed: int) -> None:
    """The same calls from one process alone, from threads, from processes, and unpaced."""
    alone, threads, processes, unpaced = crowds(
        scene, ("alone", "threads", "processes", "unpaced processes"), seed
    )
    assert unpaced.refused > 0
    assert unpaced.failures > 0
    for one in (alone, threads, processes):
        assert (one.refused, one.failures, one.lost_tokens) == (0, 0, 0), one
    assert threads.makespan_s <= RATIO_MAX * alone.makespan_s
    assert processes.makespan_s <= RATIO_MAX * alone.makespan_s


def begin(stack: ExitStack, here: Home, url: str, calls: int) -> list[Caller]:
    """Four terminals that know nothing of each other, each with more to do than it can."""
    works = [stack.enter_context(Work(range(calls))) for _ in range(TERMINALS)]
    callers = [
        stack.enter_context(
            Caller(
                Errand(url, KEY, f"terminal {number}", WORDS, 1, THREADS, "shared", number,
                       MAX_TOKENS),
                work, here.place,
            )
        )
        for number, work in enumerate(works)
    ]  # fmt: skip
    for caller in callers:
        caller.ready()
    for work in works:
        work.begin()
    return callers


def shares(visits: Visits) -> list[float]:
    """Tokens of each terminal while all of them had more to do, by what is fair."""
    by_label: dict[str, Visits] = {}
    for visit in visits:
        by_label.setdefault(visit["label"], []).append(visit)
    since_s = max(each[0]["at_s"] for each in by_label.values())
    until_s = min(each[-1]["at_s"] for each in by_label.values())
    tokens = [
        sum(visit["input_tokens"] + visit["output_tokens"]
            for visit in each if since_s <= visit["at_s"] <= until_s)
        for each in by_label.values()
    ]  # fmt: skip
    return [TERMINALS * one / sum(tokens) for one in tokens]


def silence_s(visits: Visits, from_s: float, to_s: float) -> float:
    """The longest time without an arrival."""
    times: list[float] = [from_s, *(v["at_s"] for v in visits if from_s <= v["at_s"] <= to_s), to_s]
    return max(later - earlier for earlier, later in pairwise(times))


def share_among_terminals(here: Home, calls: int, killed_after: int) -> None:
    """All four are served alike, and go on being served when the broker is killed."""
    with ExitStack() as stack:
        url = stack.enter_context(launched(*LIMITS, *SLOW))
        set_limits(here, 20)
        callers = begin(stack, here, url, calls)
        until(lambda: len(visits_of(url)) >= killed_after, 60.0)
        killed_s = truth_of(url, "?arrivals=0")["up_s"]
        here.kill_broker()
        done = [caller.done() for caller in callers]
        truth = truth_of(url, "?arrivals=all")
    account, visits = truth["accounts"][account_of(KEY)], truth["arrivals"]
    assert [one.faults for one in done] == [()] * TERMINALS
    assert account["refused"] == {}
    assert account["whole"] == account["calls"] == TERMINALS * calls
    assert all(abs(share - 1.0) <= SHARE_DOUBT for share in shares(visits)), shares(visits)
    assert len(here.brokers()) == 2
    assert silence_s(visits, killed_s, visits[-1]["at_s"]) <= SILENCE_S_MAX


def test_a_killed_process_gives_its_places_back_and_its_tokens_stay_charged(here: Home) -> None:
    with ExitStack() as stack:
        url = stack.enter_context(launched(*LIMITS, *SLOW))
        set_limits(here, 2)
        work, more = (stack.enter_context(Work(range(count))) for count in (2, 8))
        hanging = Errand(url, KEY, "killed", (4000, 5000), 1, 4, fault="hang")
        other = Errand(url, KEY, "other", WORDS, 1, 4)
        killed = stack.enter_context(Caller(hanging, work, here.place))
        waiting = stack.enter_context(Caller(other, more, here.place))
        for caller in (killed, waiting):
            caller.ready()
        begun_s = time.monotonic()
        work.begin()
        until(lambda: truth_of(url)["in_flight"] == 2)
        more.begin()
        until(lambda: any(one.waiting == 4 for one in seen_at(here).clients))
        charged = truth_of(url)["accounts"][account_of(KEY)]["charged"]["input"]
        assert charged > 2 * 4000
        before = used_tokens(here)
        assert before >= 0.9 * charged - 100_000 / 60 * (time.monotonic() - begun_s)
        began_s = time.monotonic()
        killed.process.kill()
        until(lambda: not any(one.client.startswith(f"{killed.process.pid}-")
                              for one in seen_at(here).clients))  # fmt: skip
        refilled = 100_000 / 60 * (time.monotonic() - began_s + 1.0)
        assert used_tokens(here) >= before - refilled
        assert waiting.done().faults == ()
        visits = [visit for visit in visits_of(url) if visit["label"] == "other"]
    assert len(visits) == 8
    assert all(visit["how"] == "whole" for visit in visits)


def used_tokens(here: Home) -> float:
    """How much of the tokens' limit is used, as the broker sees it."""
    return next(one.used for one in seen_at(here).limits if one.limit.resource == "tokens")
