"""What `each`, `run` and `resume` share: journal, view, the run and its exit code."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from headway.base.codec import as_dict
from headway.base.folders import folders
from headway.engine.events import Event
from headway.engine.record import Header
from headway.errors import BadValueError, HeadwayError, JournalError
from headway.interrupts import say_on_interrupt
from headway.journal.file import LEAST_BYTES, free_bytes, full_words
from headway.journal.folder import new_run
from headway.journal.journal import Journal
from headway.report.text.words import one_line
from headway.run.driver import Driver
from headway.run.launch import Launch, Launched, launch

if TYPE_CHECKING:
    from headway.gateway.tasks import TaskGateway
    from headway.pacing.view import AccountView
    from headway.report.text.lines import Lanes, Watcher
    from headway.report.text.run_view import RunView

EFFECT_CELLS_MAX: Final = 400
"""Of the words for an effect that failed: others' words are among them."""

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
    """Whether the user is told, also without a view, that a run waits and for what."""
    foreseen_s: float | None = None


def begin_journal(header: Callable[[str, float], Header]) -> Journal:
    """The journal of a new run; `header` is told its id and the time."""
    now_s = time.time()
    state = folders(os.environ).state
    try:
        place = new_run(state, now_s)
        return Journal.create(place.folder, header(place.id, now_s))
    except JournalError as fault:
        if os.path.isdir(state) and free_bytes(state) < LEAST_BYTES:
            fault.hint = full_words(state)
        raise


def meter_of(
    journal: Journal, is_wanted: bool, environment: Mapping[str, str]
) -> TaskGateway | None:
    """Who sees and paces the model calls that a run's commands make."""
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
    told: Callable[[Sequence[Event], Watcher | None], None] | None = None,
    ended: Callable[[], None] | None = None,
    adds: Callable[[], Mapping[str, object]] | None = None,
    last: Callable[[Launched], None] | None = None,
    files: Callable[[RunView], list[str]] | None = None,
) -> int:
    """Perform a run in view of its user; `last` shows what comes before the words of its end."""
    from headway.report.text.lines import own_lanes

    watcher: Watcher | None = None
    lanes = own_lanes() if run.sees_calls else tuple

    def watch(events: Sequence[Event]) -> None:
        if told is not None:
            told(events, watcher)

    def began(_: Driver) -> None:
        nonlocal watcher
        watcher = _watcher(run, journal, show, lanes)

    async def perform() -> Launched:
        return await launch(replace(run, watch=watch, heeds_signals=True), journal, began)

    say_on_interrupt(f"headway resume {journal.header.run}")
    launched: Launched | None = None
    try:
        launched = asyncio.run(perform())
        budget_words, could_finish = _finishes(launched, journal)
        added = adds() if adds is not None else {}
    finally:
        if ended is not None:
            ended()
        if watcher is not None:
            watcher.close()
        _close(journal, launched)
    if show.is_json:
        could = {"could_finish": could_finish} if could_finish else {}
        print(json.dumps({**_summary(launched, journal.header), **could, **added}))
    if last is not None:
        last(launched)
    if not show.is_json and (show.summary or launched.exit_code):
        for words in budget_words:
            print(f"budget: {words}", file=sys.stderr)
        _say(launched, journal, run, lanes, files)
    return launched.exit_code


def _close(journal: Journal, launched: Launched | None) -> None:
    """Close the journal; what is not on the disk does not change how an interrupted run ended."""
    try:
        journal.close()
    except JournalError as fault:
        if launched is None or launched.outcome.cause != "interrupted":
            raise
        print(fault.render(), file=sys.stderr)


def _watcher(run: Launch, journal: Journal, show: Show, lanes: Lanes) -> Watcher | None:
    from headway.report.text.lines import LineView, watcher_for

    if show.view and not show.is_json:
        return watcher_for(sys.stderr, journal.folder, lanes, run.budget, show.foreseen_s)
    # A run that starts nothing more, or not for a while, must not look as if it hung.
    return LineView(journal.folder, sys.stderr, is_short=True) if show.holds else None


def _summary(launched: Launched, header: Header) -> dict[str, object]:
    outcome = launched.outcome
    finished = as_dict(outcome.finished)
    ended_s = finished.pop("at_s")
    return {
        "run": header.run, "name": header.name, **finished, "cause": outcome.cause,
        "detail": outcome.detail, "until_s": outcome.until_s,
        "seconds": round(ended_s - header.created_s, 3), "exit_code": launched.exit_code,
    }  # fmt: skip


def _say(
    launched: Launched, journal: Journal, run: Launch, lanes: Lanes,
    files: Callable[[RunView], list[str]] | None,
) -> None:  # fmt: skip
    """How the run ended: the last lines."""
    from headway.journal.reader import JournalReader
    from headway.report.text.ending import ending_lines
    from headway.report.text.run_view import RunView

    outcome, budget = launched.outcome, run.budget
    if launched.outbox is not None:
        for failure in launched.outbox.failures():
            print(one_line(failure, EFFECT_CELLS_MAX), file=sys.stderr)
        if now := len(launched.outbox.known.now):
            print(f"{now} effects at once, outside the guarantee", file=sys.stderr)
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


def _finishes(launched: Launched, journal: Journal) -> tuple[list[str], list[dict[str, object]]]:
    """When a run could end that an account's budget has stopped: in words, and for a program."""
    if launched.outcome.cause != "budget":
        return [], []
    from headway.report.text.accounts import finish_json, finish_words
    from headway.report.text.health import finishes_now

    graph, detail = launched.driver.state.graph, launched.outcome.detail
    found, tasks = finishes_now(graph, journal.reader.rows(), detail, os.environ)
    told = [{**finish_json(one), "tasks": tasks} for one in found]
    return [finish_words(one, tasks) for one in found], told
