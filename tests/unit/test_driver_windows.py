"""Usage windows of hours, in virtual time: nothing starts while one is known to be empty."""

from __future__ import annotations

import asyncio
from math import inf

from headway.base.values import Fault
from headway.engine.events import RunHeld, TaskDelayed
from headway.run.driver import Driver
from headway.run.launch import Launched
from headway.work import Attempt, AttemptError, Result, WindowEmptyError
from tests.unit.driven import Scene, flat, passes

FIVE_HOURS_S = 5 * 3600.0
CALL_S = 30.0


class Account:
    """Answers so many calls in every five hours, and says when there is more."""

    def __init__(self, calls: int) -> None:
        self.calls = calls
        self.used = 0
        self.resets_at_s = FIVE_HOURS_S
        self.known_s = inf
        """Since when a caller knows that it is empty."""
        self.asked_in_vain: list[float] = []

    async def ask(self, attempt: Attempt) -> Result:
        now_s = asyncio.get_running_loop().time()
        if now_s >= self.resets_at_s:
            self.resets_at_s += FIVE_HOURS_S
            self.used, self.known_s = 0, inf
        attempt.waits()
        if self.used >= self.calls:
            self.asked_in_vain.append(now_s)
            await passes(2.0)  # As long as a call stands in line before it is told why.
            self.known_s = min(self.known_s, now_s + 2.0)
            raise WindowEmptyError(self.resets_at_s, "the 5 h window is used up")
        self.used += 1
        attempt.goes()
        await passes(CALL_S)
        return Result(attempt.name.encode())


def must_start_nothing_while_empty(scene: Scene, resets_at_s: float, known_s: float) -> None:
    starts = list(scene.starts_s().values())
    assert not [at_s for at_s in starts if known_s < at_s < resets_at_s]


def test_a_run_waits_five_hours_and_goes_on_within_ten_seconds() -> None:
    account = Account(100)
    graph, work = flat(150, act=account.ask)
    scene = Scene(graph, (work,), "adaptive")

    async def meanwhile(driver: Driver) -> None:
        await passes(FIVE_HOURS_S - 1.0)
        assert account.known_s < FIVE_HOURS_S / 2
        assert not driver.state.active
        must_start_nothing_while_empty(scene, FIVE_HOURS_S, account.known_s)

    outcome = scene.run(meanwhile)
    assert (outcome.finished.finished, outcome.cause) == (150, "")
    woke_s = min(s for s in scene.starts_s().values() if s >= FIVE_HOURS_S)
    assert FIVE_HOURS_S <= woke_s <= FIVE_HOURS_S + 10.0
    assert outcome.finished.failed == 0


def test_a_task_that_was_put_back_loses_no_attempt() -> None:
    account = Account(1)
    graph, work = flat(4, act=account.ask)
    scene = Scene(graph, (work,), "all-at-once", retries=0)
    outcome = scene.run()
    assert (outcome.finished.finished, outcome.finished.failed) == (4, 0)
    assert outcome.finished.at_s < 4 * FIVE_HOURS_S
    assert len([event for event in scene.told if isinstance(event, RunHeld)]) == 3


def test_an_attempt_that_met_a_full_disk_is_no_try() -> None:
    full = ["the disk is full"] * 3

    async def act(attempt: Attempt) -> Result:
        if full:
            raise AttemptError(Fault("command", detail="exit code 1"))
        return Result(attempt.name.encode())

    graph, work = flat(1, act=act)
    setup = {"full_disk": lambda: full.pop() if full else ""}
    scene = Scene(graph, (work,), "fixed:1", retries=0, setup=setup)
    outcome = scene.run()
    assert (outcome.finished.finished, outcome.finished.failed) == (1, 0)
    faults = [event.fault for event in scene.told if isinstance(event, TaskDelayed)]
    assert faults == [Fault("disk", detail="the disk is full; exit code 1")] * 3


def test_a_run_that_may_not_wait_ends_with_the_time_of_the_reset() -> None:
    account = Account(10)
    graph, work = flat(50, act=account.ask)
    scene = Scene(graph, (work,), "fixed:4", setup={"waits_until_s": -inf})
    outcome = scene.run()
    assert (outcome.cause, outcome.until_s) == ("window", FIVE_HOURS_S)
    assert outcome.detail == "the 5 h window is used up"
    assert (outcome.finished.finished, outcome.finished.left) == (10, 40)
    assert Launched(outcome, scene_driver(), scene.record.saved()).exit_code == 75


def test_a_run_waits_no_longer_than_it_may() -> None:
    for waits_until_s, cause in ((FIVE_HOURS_S + 60.0, ""), (FIVE_HOURS_S - 60.0, "window")):
        graph, work = flat(20, act=Account(10).ask)
        scene = Scene(graph, (work,), "fixed:4", setup={"waits_until_s": waits_until_s})
        assert scene.run().cause == cause


def test_a_window_that_is_told_before_anybody_meets_it_holds_the_run_at_once() -> None:
    account = Account(10)
    graph, work = flat(12, act=account.ask)
    scene = Scene(graph, (work,), "fixed:1")

    async def meanwhile(driver: Driver) -> None:
        await passes(10 * CALL_S - 1.0)
        driver.window_empty(FIVE_HOURS_S, "the last answer said that it is used up")

    assert scene.run(meanwhile).finished.finished == 12
    assert account.asked_in_vain == []


def scene_driver() -> Driver:
    """Any driver: an exit code does not depend on it."""

    async def main() -> Driver:
        graph, work = flat(1)
        return Scene(graph, (work,)).driver()

    return asyncio.run(main())
