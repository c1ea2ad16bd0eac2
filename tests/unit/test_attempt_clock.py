"""An attempt's clock stands still while its calls wait."""

from __future__ import annotations

import asyncio

import pytest

from headway.testing import run_virtual
from headway.work import AttemptClock
from tests.unit.driven import passes


def test_only_own_time_counts_towards_the_limit() -> None:
    ended: list[float] = []

    async def main() -> None:
        clock = AttemptClock()
        try:
            async with clock.limit(5.0):
                await passes(3)
                with clock.stopped():
                    await passes(100)
                assert clock.own_s == pytest.approx(3.0)
                await passes(3)
        finally:
            ended.append(asyncio.get_running_loop().time())

    with pytest.raises(TimeoutError):
        run_virtual(main())
    assert ended == [pytest.approx(105.0)]


def test_time_stands_still_while_any_of_several_calls_waits() -> None:
    async def main() -> None:
        clock = AttemptClock()
        assert clock.own_s == 0.0
        clock.stop()
        await passes(1)
        clock.stop()
        await passes(1)
        clock.start()
        await passes(1)
        clock.start()
        await passes(1)
        assert clock.own_s == pytest.approx(1.0)

    run_virtual(main())


def test_a_refused_call_took_no_time() -> None:
    async def main() -> None:
        clock = AttemptClock()
        async with clock.limit(2.0):
            await passes(1)
            for is_refused in (False, True, True, True):
                with clock.stopped(is_refused=is_refused):
                    await passes(10)
                await passes(0.9)
        assert clock.own_s == pytest.approx(1.9)

    run_virtual(main())


def test_an_alarm_is_set_while_the_clock_stands() -> None:
    async def main() -> None:
        clock, rung = AttemptClock(), asyncio.Event()
        clock.stop()
        with clock.alarm(1.0, rung.set):
            await passes(10)
            assert not rung.is_set()
            clock.start()
            await passes(2)
        assert rung.is_set()

    run_virtual(main())
