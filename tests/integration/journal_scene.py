"""A run that is written to a journal: small tasks with results that can be told from outside.

As a program: writes tasks to the journal in a folder until it is killed, and says on its standard
output which ones are durable, a line of numbers each time.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterable

from headway.base.digest import digest
from headway.engine.events import Ending, TaskFinished, TaskStarted
from headway.engine.record import Header, JournalEntry, TaskRow, fold
from headway.journal.journal import Journal
from headway.journal.reader import JournalReader

IN_FLIGHT = 64
HEADER = Header("20261116-0423-a7k", "review", "plan", "tasks: {}\n", "/home/ada", 100, 1.5)


def key_of(task: int) -> bytes:
    return digest(b"task %d" % task)


def body_of(task: int) -> bytes:
    return b"the result of %d: %s" % (task, b"x" * (task % 41 * 100))


def began(task: int, at_s: float = 1.0) -> JournalEntry:
    event = TaskStarted(task, 1, at_s + task, "ready")
    return JournalEntry(event, key_of(task), fold(None, event, key_of(task), f"review[{task}]"))


def ended(start: JournalEntry) -> JournalEntry:
    """The end of an attempt, with its result."""
    assert isinstance(start.event, TaskStarted)
    task = start.event.task
    body = body_of(task)
    event = TaskFinished(
        task, 1, start.event.at_s + 0.5, Ending(digest(body), b"", 9.0, 3.0, 70, 1)
    )
    row = fold(start.row, event, start.key, f"review[{task}]")
    return JournalEntry(event, start.key, row, ((digest(body), body),))


def whole(tasks: Iterable[int]) -> list[JournalEntry]:
    """Beginning and end of each."""
    return [entry for task in tasks for start in [began(task)] for entry in (start, ended(start))]


def rows_by_fold(reader: JournalReader) -> dict[bytes, TaskRow]:
    """What the events say of each task."""
    rows: dict[bytes, TaskRow] = {}
    names = {row.key: row.name for row in reader.rows()}
    for recorded in reader.events():
        if recorded.key:
            old = rows.get(recorded.key)
            rows[recorded.key] = fold(old, recorded.event, recorded.key, names[recorded.key])
    return rows


def written(folder: str, tasks: Iterable[int]) -> None:
    """A journal with these tasks, closed."""

    async def write() -> None:
        journal = Journal.create(folder, HEADER)
        journal.start(asyncio.get_running_loop())
        for task in tasks:
            journal.write(whole([task]))
        await journal.flush()
        journal.close()

    asyncio.run(write())


async def write_for_ever(journal: Journal, first: int) -> None:
    journal.start(asyncio.get_running_loop())
    numbers = iter(range(first, 1_000_000_000))
    durable: list[int] = []

    def go_on(task: int) -> Callable[[], None]:
        def then() -> None:
            durable.append(task)
            asyncio.get_running_loop().call_soon(say)
            begin()

        return then

    def say() -> None:
        if durable:
            os.write(1, b"%b\n" % b" ".join(b"%d" % task for task in durable))
            durable.clear()

    def begin() -> None:
        task = next(numbers)
        start = began(task)
        journal.write((start,))
        journal.write((ended(start),), go_on(task))

    for _ in range(IN_FLIGHT):
        begin()
    await asyncio.Event().wait()


if __name__ == "__main__":
    place = sys.argv[1]
    is_new = not os.path.exists(os.path.join(place, "journal.db"))
    here = Journal.create(place, HEADER) if is_new else Journal.open(place)
    asyncio.run(write_for_ever(here, first=int(sys.argv[2])))
