"""The shared state in one attempt of a plan's task: its texts, its result, its command's folder."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from threading import Event, RLock

import pytest

from headway.base.values import Fault
from headway.plans.resources import Channel
from headway.run.tasks import asking
from headway.state.context import Circumstances, Lent, LocalReach
from headway.state.folder import AttemptState, in_thread
from headway.state.shared import Channels, Shared, Snapshot
from headway.work import AttemptError, Result
from tests.unit.attempts import Told

CHANNELS = Channels({"total": Channel("counter")})


def test_a_result_that_does_not_fit_there_is_unfit_and_is_paid_for() -> None:
    paid = Result(b"many", spend_microusd=5)
    lent = Lent(LocalReach(Snapshot(Shared(CHANNELS), 5), RLock()), Circumstances("task"))
    with pytest.raises(AttemptError) as caught:
        AttemptState(lent, CHANNELS, None, "total").keep("many", paid)
    assert caught.value.result is paid
    assert caught.value.fault == Fault("unfit", detail=caught.value.fault.detail)
    assert "HW211: `total` is a counter" in caught.value.fault.detail


def test_replies_are_kept_for_the_prompt_that_they_answer() -> None:
    told = Told()
    first = asking(told.attempt(), b"one")
    asyncio.run(_awaited(first.keep(b"reply")))
    assert asking(told.attempt(kept=tuple(told.kept)), b"one").kept == (b"reply",)
    assert asking(told.attempt(kept=tuple(told.kept)), b"two").kept == ()


async def _awaited(something: Awaitable[None]) -> None:
    await something


def test_whoever_is_cancelled_waits_for_the_end_of_what_a_thread_does() -> None:
    goes_on, ended = Event(), Event()

    async def perform() -> None:
        loop, begun = asyncio.get_running_loop(), asyncio.Event()

        def work() -> None:
            loop.call_soon_threadsafe(begun.set)
            goes_on.wait(10)
            ended.set()

        task = asyncio.create_task(in_thread(work))
        await begun.wait()
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=0.05)
        assert not done
        goes_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended.is_set()

    asyncio.run(perform())
