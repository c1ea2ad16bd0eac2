"""Writes into a run's journal how much of each limit is used, for views after the run.

Laws:
- The run waits for no look at its accounts: a thread looks, and a failed look is left out.
- A look that shows what the last one showed is not written; looks become rarer as a run goes on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, Final

from headway.engine.record import JournalEntry, LimitsSeen, LimitUse
from headway.errors import HeadwayError

if TYPE_CHECKING:
    from headway.pacing.view import AccountView
    from headway.run.driver import Driver

LOOK_S: Final = 0.5
"""Between the first looks: a run of ten seconds has a curve..."""

LOOK_SHARE: Final = 1 / 400
"""...and later this part of its age: 2,400 looks in the first hour and 900 in each ten times as
long, at about 200 bytes."""


def log_limits(driver: Driver, look: Callable[[], Sequence[AccountView]]) -> None:
    """Look from now on, until the run is over."""
    loop = asyncio.get_running_loop()

    def write(found: tuple[LimitUse, ...]) -> None:
        if not driver.state.over:
            driver.record.write((JournalEntry(LimitsSeen(driver.clock(), found)),))

    def follow() -> None:
        began_s, last = driver.clock(), tuple[LimitUse, ...]()
        while not driver.state.over:
            time.sleep(max(LOOK_S, LOOK_SHARE * (driver.clock() - began_s)))
            with suppress(HeadwayError):
                found = limit_uses(look(), driver.clock())
                if found and found != last:
                    last = found
                    try:
                        loop.call_soon_threadsafe(write, found)
                    except RuntimeError:
                        return  # The loop is closed: the run ended with an error.

    Thread(target=follow, name="headway-limits", daemon=True).start()


def limit_uses(lanes: Sequence[AccountView], now_s: float) -> tuple[LimitUse, ...]:
    found = []
    for lane in lanes:
        account = f"{lane.account} {lane.group}"
        for shown in lane.limits:
            limit = shown.limit
            found.append(LimitUse(account, limit.name, round(shown.used, 2), limit.capacity))
        for window in lane.windows:
            used = round(window.used_now, 4)
            resets_s = round(now_s + window.resets_s)
            found.append(LimitUse(account, f"window {window.name}", used, 1.0, resets_s))
    return tuple(found)
