"""Opens a run: journal, budget, signals, driver."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from math import inf
from typing import Final
from uuid import uuid4

from msgspec import Struct, field

from headway.base.clock import wall_s
from headway.base.locks import look
from headway.base.numbers import share_of
from headway.base.values import DAY_S, HOUR_S, MINUTE_S, Budget, Spend
from headway.engine.effects import Asker
from headway.engine.record import EFFECTS, TaskRow
from headway.errors import BadValueError
from headway.interrupts import heeding
from headway.journal.documents import keep_shape
from headway.journal.file import LEAST_BYTES, full_words, is_full
from headway.journal.journal import Journal, NullJournal, Record
from headway.journal.reader import JournalReader
from headway.pacing.budget import ALL, Budgets
from headway.pacing.windows import Shares, shares_of
from headway.run.attempts import pots_of
from headway.run.driver import Driver, Launch, Sharing
from headway.run.results import Saved, readable_rows
from headway.state.context import Commons
from headway.state.outbox import Outbox
from headway.state.shared import Act
from headway.work import Attempt

# A word to the process that performs a run: signals, because it listens to nothing else.

SIGNALS: Final = {
    "stop": signal.SIGINT,
    "end": signal.SIGTERM,
    "pause": signal.SIGUSR1,
    "continue": signal.SIGUSR2,
}

WORDS: Final = {
    "stop": "stopping {run}: nothing more starts; process {pid} ends when what has started has",
    "end": "stopping {run} now: process {pid} ends what has started; what is finished is kept",
    "pause": "pausing {run}: process {pid} starts nothing more; go on with `headway resume {run}`",
    "continue": "{run} goes on in process {pid}",
}


def tell(reader: JournalReader, run: str, word: str) -> tuple[bool, int | None, str]:
    """Send a signal to the owner of a run; the word is one of `SIGNALS`.

    Returns whether it was sent, the owner's process, and what to say of it.
    """
    owner = look(reader.folder)
    if owner is None or not owner.is_alive:
        return _nobody(run, word)
    if not _heeds(owner.pid, SIGNALS[word]):
        words = "performs {} but does not listen: only runs that were started by a command do"
        return False, owner.pid, f"process {owner.pid} {words.format(run)}"
    try:
        os.kill(owner.pid, SIGNALS[word])
    except ProcessLookupError:
        return _nobody(run, word)  # It ended since.
    except PermissionError:
        return False, owner.pid, f"process {owner.pid} of {run} belongs to another user"
    return True, owner.pid, WORDS[word].format(run=run, pid=owner.pid)


def _heeds(pid: int, number: signal.Signals) -> bool:
    """Whether a process handles a signal that would end it otherwise; believed where unknown."""
    if number in (signal.SIGINT, signal.SIGTERM):
        return True
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            lines = dict(line.split(":", 1) for line in file)
        return bool(int(lines["SigCgt"], 16) >> (number - 1) & 1)
    except (OSError, KeyError, ValueError):
        return True


def _nobody(run: str, word: str) -> tuple[bool, None, str]:
    what = "to stop" if word in ("stop", "end") else f"to {word}"
    return False, None, f"{run} is not running: nothing {what}. See `headway status {run}`"


# How long a run may wait for a usage window: `--wait 6h`, `--until 18:00`, `--no-wait`.

_UNITS: Final = {"d": DAY_S, "h": HOUR_S, "m": MINUTE_S, "s": 1.0}
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([dhms])")
_TIME: Final = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?")


def span_s(text: str) -> float:
    """`90`, `30s`, `10m`, `6h`, `1h30m`, `2d`: seconds."""
    plain = text.strip().lower()
    if re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", plain):
        seconds = float(plain)
    elif re.fullmatch(f"({_PART.pattern})+", plain):
        seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(plain))
    else:
        raise BadValueError(f"`{text}` is not a length of time", hint="write 6h, 90m or 1h30m")
    if seconds > 366 * DAY_S:
        raise BadValueError(f"`{text}` is longer than a year")
    return seconds


def moment_s(text: str, now_s: float) -> float:
    """`18:00`: the next time that the clock on the wall shows it; a date with a time; `in 6h`."""
    now = datetime.fromtimestamp(now_s)
    plain = text.strip()
    if plain.startswith("in "):
        return now_s + span_s(plain[3:])
    found = _TIME.fullmatch(plain)
    try:
        if found is None:
            # A zone that is written counts; without one, the wall's.
            return datetime.fromisoformat(plain).timestamp()
        hour, minute, second = (int(part or 0) for part in found.groups())
        then = now.replace(hour=hour, minute=minute, second=second, microsecond=0)
    except (ValueError, OverflowError):
        raise BadValueError(
            f"`{text}` is not a time of day", hint="write 18:00, 2026-11-16T18:00 or 'in 6h'"
        ) from None
    if then <= now:
        # Through the calendar and not by 86,400 s: days on which clocks change are not as long.
        then += timedelta(days=1)
    return then.timestamp()


def deadline_s(wait: str | None, until: str | None, no_wait: bool, now_s: float) -> float | None:
    """Until when a run may wait, by the wall clock: `inf` is as long as it takes, `-inf` never;
    `None` if nothing was said: as long as a window of hours takes, and not for one of a week."""
    options = {"--wait": wait is not None, "--until": until is not None, "--no-wait": no_wait}
    given = [name for name, is_given in options.items() if is_given]
    if len(given) > 1:
        raise BadValueError(f"{' and '.join(given)} contradict each other", hint=f"keep {given[0]}")
    if no_wait:
        return -inf
    if wait is not None:
        return inf if wait == "forever" else now_s + span_s(wait)
    return None if until is None else moment_s(until, now_s)


def shares_in(text: str, where: str) -> Shares | None:
    """`30%`: the most that a run takes of each usage window; nothing, if there is no text."""
    if not text:
        return None
    share = share_of(text.strip())
    if share is None:
        raise BadValueError(f"{where} {text} is not a share", hint=f"write {where} 30%")
    return shares_of(share)


WRITE_S: Final = 1.0
"""How long a stop waits for results that are being written: longer only where the disk is full."""
LOOK_S: Final = 1.0
CLOSE_S: Final = 1.0
"""How long a stop waits for each of those who perform tasks."""


async def launch(
    run: Launch, journal: Journal | None = None, began: Callable[[Driver], None] | None = None
) -> Driver:
    """Perform a run to its end; the driver, which has its outcome. The journal, if there is one, is
    closed by the caller. `began` is told the driver before anything starts."""
    rows: dict[bytes, TaskRow] = {}
    saved = Saved()
    if journal is not None:
        rows = readable_rows(journal.reader)
        saved = Saved(rows, journal.reader.body, journal.header.keeps_bodies, journal.reader.bodies)
    record = journal or NullJournal()
    outbox = _outbox(run.sharing, journal, record)
    folder = os.getcwd() if journal is None else journal.header.folder
    kept = () if journal is None else (journal.folder,)
    # A disk that was full before the run began does not pause it.
    disks = dict.fromkeys((*kept, folder, tempfile.gettempdir()))
    pauses = _Pauses(tuple(one for one in disks if not is_full(one)))
    driver = Driver(
        run, record, wall_s, saved, _budgets(run, rows.values()), outbox, pauses.full_disk,
    )  # fmt: skip
    pauses.driver = driver
    if journal is not None:
        keep_shape(journal, run.graph, run.works, run.rules.ceiling, run.budget)
        loop = asyncio.get_running_loop()
        journal.start(loop, partial(pauses.set, "journal"), driver.break_off)
    for meet in (*run.meets, *([began] if began is not None else [])):
        meet(driver)
    with _signals(_Stopping(driver, outbox), pauses, run.heeds_signals) as stopping:
        try:
            await driver.run()
            return driver
        finally:
            for close in (*run.closes, *([outbox.aclose] if outbox is not None else [])):
                # After a stop, what hangs (a thread with a user's function) is not waited for.
                with suppress(TimeoutError):
                    async with asyncio.timeout(CLOSE_S if stopping.is_now else None):
                        await close()


def _outbox(sharing: Sharing | None, journal: Journal | None, record: Record) -> Outbox | None:
    """What performs effects for a run, knowing what was done before; contexts are given it."""
    if sharing is None:
        return None
    outbox: Outbox | None = None
    if sharing.find is not None:
        # Without a journal the run cannot go on later: no other one has its keys.
        run = uuid4().hex if journal is None else journal.header.run
        outbox = Outbox(run, sharing.find, record, wall_s)
        if journal is not None:
            for recorded in journal.reader.events(kinds=EFFECTS):
                outbox.known.apply(recorded.key, recorded.event)
    created_s = wall_s() if journal is None else journal.header.created_s
    perform = None if outbox is None else partial(_now, outbox)
    for lend in sharing.lends:
        lend(Commons(created_s, perform))
    return outbox


def _now(outbox: Outbox, attempt: Attempt, act: Act, number: int) -> None:
    outbox.now(Asker(attempt.task, attempt.key, attempt.name), number, act)


def _budgets(run: Launch, rows: Iterable[TaskRow]) -> Budgets[int]:
    """What may be spent, less what was; what was in flight at an end is charged as if all used."""
    budgets: Budgets[int] = Budgets({ALL: run.budget or Budget(), **run.group_budgets})
    for row in rows if budgets.keys else ():
        tokens = row.spent_tokens + row.reserved_tokens
        spent = Spend(tokens, row.spent_microusd + row.reserved_microusd)
        budgets.spend(spent, pots_of(budgets, row.name.partition("[")[0]))
    return budgets


class _Pauses(Struct):
    """Why a run is paused: by its user, or by disks that are full. It goes on when no reason is
    left: what cannot be kept must not be bought."""

    disks: tuple[str, ...]
    driver: Driver | None = None
    reasons: dict[str, str] = field(default_factory=dict)

    def set(self, who: str, reason: str) -> None:
        """Pause the run, or take the reason back with an empty one."""
        self.reasons.pop(who, None)
        if reason:
            self.reasons[who] = reason if who == "user" else f"{reason}, and the run goes on"
        if self.driver is not None:
            if self.reasons:
                self.driver.hold([*self.reasons.values()][-1])
            else:
                self.driver.go_on()

    def full_disk(self) -> str:
        """Which disk has become full since the run began; the run is paused until it has room."""
        words = self._full_words()
        if words and "disk" not in self.reasons:
            self.set("disk", words)
            asyncio.get_running_loop().call_later(LOOK_S, self._look)
        return words

    def _full_words(self) -> str:
        return next((full_words(one, LEAST_BYTES) for one in self.disks if is_full(one)), "")

    def _look(self) -> None:
        if self._full_words():
            asyncio.get_running_loop().call_later(LOOK_S, self._look)
        else:
            self.set("disk", "")


class _Stopping(Struct):
    driver: Driver
    outbox: Outbox | None
    is_now: bool = False

    def stop(self, why: str, is_now: bool) -> None:
        """Start nothing more; with `is_now` end what has started, written down or not."""
        self.is_now = self.is_now or is_now
        self.driver.stop("interrupted", why, is_now=is_now)
        if self.outbox is not None:
            (self.outbox.end_now if is_now else self.outbox.halt)()
        if is_now:
            asyncio.get_running_loop().call_later(WRITE_S, self.driver.cut_short, why)


@contextmanager
def _signals(stopping: _Stopping, pauses: _Pauses, heeds: bool) -> Iterator[_Stopping]:
    """One interrupt drains, two stop now; a run can be paused from elsewhere."""
    if not heeds or threading.current_thread() is not threading.main_thread():
        yield stopping
        return
    loop = asyncio.get_running_loop()
    handlers: dict[signal.Signals, Callable[[], None]] = {
        signal.SIGUSR1: partial(pauses.set, "user", "paused by the user"),
        signal.SIGUSR2: partial(pauses.set, "user", ""),
    }
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)

    def heed(why: str, is_now: bool) -> None:
        loop.call_soon_threadsafe(stopping.stop, why, is_now)

    try:
        with heeding(heed):
            yield stopping
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)
