"""Runs as a process would have written them: facts through the real journal, for a test."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from headway.base.digest import digest
from headway.base.values import Fault
from headway.engine.events import (
    CallAdmitted,
    Ending,
    RunBegan,
    RunFinished,
    TaskDelayed,
    TaskFailed,
    TaskFinished,
    TaskStarted,
)
from headway.engine.record import Fact, Header, JournalEntry, TaskRow, fold
from headway.journal.file import connect, document_values, path_of
from headway.journal.folder import RunPlace, new_run
from headway.journal.journal import Journal

NAMES = ("probe[a]", "probe[b]", "probe[버그 찾기]", "verdict")
"""One of them is as wide on a screen as two of its letters."""

BEGAN_S = 1_700_000_000.0


def key_of(number: int) -> bytes:
    return digest(b"task %d" % number)


class Writer:
    """Writes facts with their rows, as a driver does."""

    def __init__(self, state: Path, names: Sequence[str] = NAMES, tasks: int | None = None) -> None:
        self.place: RunPlace = new_run(str(state), BEGAN_S)
        self.names = names
        self.entries: list[JournalEntry] = []
        self.rows: dict[int, TaskRow] = {}
        self.header = Header(
            self.place.id, "find bugs", "each", "[]", os.getcwd(), tasks or len(names), BEGAN_S
        )

    def tell(self, fact: Fact, *bodies: bytes) -> Writer:
        number: int | None = getattr(fact, "task", None)
        if number is None:
            self.entries.append(JournalEntry(fact))
            return self
        key, name = key_of(number), self.names[number]
        row = self.rows[number] = fold(self.rows.get(number), fact, key, name)
        named = tuple((digest(body), body) for body in bodies)
        self.entries.append(JournalEntry(fact, key, row, named))
        return self

    def finished(self, number: int, from_s: float, to_s: float, body: bytes) -> Writer:
        """A task from its start to its result."""
        self.tell(TaskStarted(number, 1, BEGAN_S + from_s, "there is room"))
        self.tell(CallAdmitted(number, BEGAN_S + from_s))
        ending = Ending(digest(body), b"", 1000.0, 100.0, 2500, 1)
        return self.tell(TaskFinished(number, 1, BEGAN_S + to_s, ending), body)

    def failed(self, number: int, from_s: float, to_s: float) -> Writer:
        """A task that fails twice."""
        fault = Fault("server", detail="500 \x1b[31mInternal\x1b[0m Server Error")
        self.tell(TaskStarted(number, 1, BEGAN_S + from_s, "there is room"))
        middle_s = BEGAN_S + (from_s + to_s) / 2
        self.tell(TaskDelayed(number, 1, middle_s, middle_s + 0.5, fault))
        self.tell(TaskStarted(number, 2, middle_s + 0.5, "its delay is over"))
        return self.tell(TaskFailed(number, 2, BEGAN_S + to_s, fault))

    async def write(self) -> Journal:
        """A journal that holds all that was told, still owned by this process."""
        journal = Journal.create(self.place.folder, self.header)
        journal.start(asyncio.get_running_loop())
        journal.write(sorted(self.entries, key=lambda entry: entry.event.at_s))
        await journal.flush()
        return journal

    def close(self) -> str:
        """Write everything and let go; the run's id."""

        async def whole() -> None:
            (await self.write()).close()

        asyncio.run(whole())
        return self.place.id


def put_document(
    folder: Path | str, name: str, data: bytes | None, is_spoilt: bool = False
) -> None:
    """Keep a document of a run that is over in place of others of its name; None removes them."""
    with closing(connect(path_of(str(folder)))) as database:
        database.execute("DELETE FROM documents WHERE name=?", (name,))
        if data is not None:
            values = document_values(name, data + b" " * is_spoilt)[:2]
            database.execute(
                "INSERT INTO documents(name, digest, data) VALUES(?, ?, ?)", (*values, data)
            )


def partial_run(state: Path) -> str:
    """Two of four tasks finished, one failed, one was never come to; its process is gone."""
    writer = Writer(state)
    writer.tell(RunBegan(BEGAN_S, "adaptive"))
    writer.finished(0, 0.0, 4.0, b'{"bugs": 2}').finished(2, 0.0, 2.0, "없음".encode())
    return writer.failed(1, 0.0, 5.0).close()


def whole_run(state: Path, count: int = 4) -> str:
    """Every task finished."""
    writer = Writer(state, [f"probe[{number}]" for number in range(count)])
    writer.tell(RunBegan(BEGAN_S, "waves:2"))
    for number in range(count):
        from_s = 3.0 * (number // 2)
        writer.finished(number, from_s, from_s + 2.0, b"result %d" % number)
    writer.tell(RunFinished(BEGAN_S + 3.0 * (count // 2), count, 0))
    return writer.close()
