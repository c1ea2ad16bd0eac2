"""What `each`, `run` and `resume` share: journal, view, the run and its exit code."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from headway.base.codec import as_dict
from headway.engine.events import Event
from headway.engine.record import Header
from headway.errors import BadValueError, HeadwayError, JournalError
from headway.interrupts import say_on_interrupt
from headway.journal.journal import Journal
from headway.report.text.logs import event_words
from headway.report.text.words import one_line
from headway.run.driver import Driver, Launch
from headway.run.launch import launch
from headway.run.limit_log import log_limits

if TYPE_CHECKING:
    from headway.gateway.tasks import TaskGateway
    from headway.pacing.view import AccountView
    from headway.report.text.live import Lanes, Watcher
    from headway.report.text.run_view import RunView

EFFECT_CELLS_MAX: Final = 400
"""Of the words for an effect that failed: others' words are among them."""

STILL: Final = ("RunHeld", "RunStopping")
SHOWN_S: Final = 2.0
"""By then a view has shown why nothing starts, unless the journal that it follows has no room."""

CLOSED: Final = {
    "budget": "the budget is reached",
    "window": "the usage window is empty",
    "interrupted": "interrupted",
    "halt": "halted",
    "journal": "the run cannot be written down",
    "account": "stopped early",
}


class Show(Struct, frozen=True):
    view: bool = True
    summary: bool = True
    is_json: bool = False
    holds: bool = True
    """Whether, also without a view, it is printed that a run waits and for what."""


def meter_of(
    journal: Journal, is_wanted: bool, environment: Mapping[str, str]
) -> TaskGateway | None:
    """The gateway that paces the model calls of a run's commands."""
    if not is_wanted:
        return None
    from headway.gateway.tasks import task_gateway

    header = journal.header
    try:
        return task_gateway(header.run, header.folder, journal.folder, environment)
    except BadValueError as error:
        # A variable that other programs read must not keep a command from running.
        print(f"model calls of commands are left alone: {error.message}", file=sys.stderr)
        return None


def conduct(
    run: Launch,
    journal: Journal,
    show: Show,
    shows: Callable[[Sequence[Event], Watcher | None], None] | None = None,
    ended: Callable[[], None] | None = None,
    adds: Callable[[], Mapping[str, object]] | None = None,
    last: Callable[[Driver], None] | None = None,
    files: Callable[[RunView], list[str]] | None = None,
) -> int:
    """Perform a run in view of its user; its exit code.

    `adds` gives what else a program is told, and the exit code of a run that has none; `last` shows
    what comes before the words of its end."""
    from headway.report.text.live import own_lanes

    watcher: Watcher | None = None
    lanes = own_lanes() if run.sees_calls else tuple

    def watch(events: Sequence[Event]) -> None:
        _say_unwritten(journal, events, watcher)
        try:
            if shows is not None:
                shows(events, watcher)
        except Exception:
            if watcher is not None:
                watcher.close()  # The error says why the run ends, and is printed at its end.
            raise

    def began(driver: Driver) -> None:
        nonlocal watcher
        watcher = _watcher(journal, show, lanes)
        if run.sees_calls:
            log_limits(driver, lanes)

    async def perform() -> Driver:
        return await launch(replace(run, watch=watch, heeds_signals=True), journal, began)

    say_on_interrupt(f"headway resume {journal.header.run}")
    driver: Driver | None = None
    try:
        driver = asyncio.run(perform())
        added = {} if adds is None else dict(adds())
        own = int(str(added.pop("exit_code", 0)))
        code = driver.outcome.exit_code or own
    finally:
        if ended is not None:
            ended()
        if watcher is not None:
            watcher.close()
        with _unread(driver):
            journal.close()
    if show.is_json:
        print(json.dumps({**_summary(driver, journal.header), "exit_code": code, **added}))
    with _unread(driver):
        if last is not None:
            last(driver)
        if not show.is_json and (show.summary or code):
            _say(driver, journal, run, lanes, files)
    return code


def _say_unwritten(journal: Journal, events: Sequence[Event], watcher: Watcher | None) -> None:
    """Show soon why nothing starts, if the journal, which views follow, has no room for it."""

    def show(event: Event) -> None:
        if journal.is_stuck:
            with nullcontext() if watcher is None else watcher.aside():
                print(event_words(event, ""), file=sys.stderr)

    for event in events:
        if type(event).__name__ in STILL:
            asyncio.get_running_loop().call_later(SHOWN_S, show, event)


@contextmanager
def _unread(driver: Driver | None) -> Iterator[None]:
    """What cannot be written or read, on a full disk say, does not change how an interrupted run
    ended."""
    try:
        yield
    except JournalError as fault:
        if driver is None or driver.outcome.cause != "interrupted":
            raise
        print(fault.render(), file=sys.stderr)


def _watcher(journal: Journal, show: Show, lanes: Lanes) -> Watcher | None:
    from headway.report.text.live import LineView, watcher_for

    if show.view and not show.is_json:
        from headway.cli.ui import link_of

        if link := link_of(journal.header.run):
            print(f"page: {link}", file=sys.stderr)
        return watcher_for(sys.stderr, journal.folder, lanes)
    # A run that starts nothing more, or not for a while, must not look as if it hung.
    return LineView(journal.folder, sys.stderr, is_short=True) if show.holds else None


def _summary(driver: Driver, header: Header) -> dict[str, object]:
    outcome = driver.outcome
    finished = as_dict(outcome.finished)
    ended_s = finished.pop("at_s")
    return {
        "run": header.run, "name": header.name, **finished, "cause": outcome.cause,
        "detail": outcome.detail, "until_s": outcome.until_s,
        "seconds": round(ended_s - header.created_s, 3), "exit_code": driver.outcome.exit_code,
    }  # fmt: skip


def _say(
    driver: Driver, journal: Journal, run: Launch, lanes: Lanes,
    files: Callable[[RunView], list[str]] | None,
) -> None:  # fmt: skip
    """How the run ended: the last lines."""
    from headway.journal.reader import JournalReader
    from headway.report.text.run_view import RunView
    from headway.report.text.runs import ending_lines

    outcome, budget = driver.outcome, run.budget
    if driver.outbox is not None:
        for failure in driver.outbox.failures():
            print(one_line(failure, EFFECT_CELLS_MAX), file=sys.stderr)
        if now := len(driver.outbox.known.now):
            print(
                f"{now} effects performed immediately, without the order guarantee", file=sys.stderr
            )
    why = CLOSED[outcome.cause] if outcome.cause else ""
    if outcome.detail and outcome.cause not in ("", "interrupted"):
        why += f": {one_line(outcome.detail, EFFECT_CELLS_MAX)}"
    more = ""
    if outcome.cause == "budget" and budget:
        dollars = None if budget.microusd is None else f"'${2 * budget.microusd / 1e6:g}'"
        more = f"{dollars or 2 * (budget.tokens or 0)}"
    used: Sequence[AccountView] = ()
    with suppress(HeadwayError):
        used = lanes()
    with JournalReader(journal.folder) as reader:
        view = RunView(reader)
        found = [] if files is None else files(view)
        for line in ending_lines(view, used, why, outcome.until_s, found, more):
            print(line, file=sys.stderr)
