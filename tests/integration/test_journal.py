"""A journal makes things durable before anybody acts, has one owner, and can be read meanwhile."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from headway.base.digest import digest
from headway.base.locks import LOCK, look
from headway.engine.events import CallWaited, RunBegan, TaskStarted
from headway.engine.record import JournalEntry, ReplyKept, fold
from headway.errors import InternalError, JournalError
from headway.journal.file import JournalFile, connect, path_of, say
from headway.journal.journal import Journal
from headway.journal.reader import BULK_MIN, JournalReader
from tests.integration.journal_scene import (
    HEADER,
    began,
    body_of,
    ended,
    key_of,
    rows_by_fold,
    whole,
    written,
)

LARGE = 1_200_000
"""Bytes of a result that runs over hundreds of pages."""


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "runs" / HEADER.run)


@pytest.fixture
def journal(folder: str) -> Iterator[Journal]:
    made = Journal.create(folder, HEADER)
    yield made
    with suppress(JournalError):
        made.close()


def run(journal: Journal, act: Callable[[], Awaitable[None]]) -> None:
    """Start the journal in a loop and act."""

    async def inside() -> None:
        journal.start(asyncio.get_running_loop())
        await act()

    asyncio.run(inside())


def store(journal: Journal, entries: Sequence[JournalEntry]) -> None:
    async def act() -> None:
        journal.write(entries)
        await journal.flush()

    run(journal, act)


def test_what_is_told_to_be_durable_is_in_the_file_by_then(folder: str, journal: Journal) -> None:
    async def act() -> None:
        told = asyncio.Event()
        journal.write(whole([1]), told.set)
        await told.wait()
        with JournalReader(folder) as reader:
            assert [row.state for row in reader.rows()] == ["finished"]
            assert reader.body(digest(body_of(1))) == body_of(1)
            assert journal.reader.body(digest(body_of(1))) == body_of(1)

    run(journal, act)


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many entries each commit has."""
    sizes: list[int] = []
    commit = JournalFile.commit

    def counted(file: JournalFile, entries: Sequence[JournalEntry], *more: Any) -> None:
        commit(file, entries, *more)
        sizes.append(len(entries))

    monkeypatch.setattr(JournalFile, "commit", counted)
    return sizes


def test_those_who_wait_are_told_in_order_and_in_the_loop(
    journal: Journal, commits: list[int]
) -> None:
    told: list[tuple[int, int]] = []

    def tell(task: int) -> None:
        told.append((task, threading.get_ident()))

    async def act() -> None:
        for task in range(300):
            journal.write([began(task)], partial(tell, task))
        await journal.flush()

    run(journal, act)
    assert told == [(task, threading.get_ident()) for task in range(300)]
    assert len(commits) < 300
    assert sum(commits) == 300


def test_what_starts_and_ends_in_two_turns_of_the_loop_is_one_commit(
    folder: str, journal: Journal, commits: list[int]
) -> None:
    async def act() -> None:
        await journal.flush()
        told = asyncio.Event()
        start = began(1)
        journal.write([start])
        await asyncio.sleep(0)
        journal.write([ended(start)], told.set)
        await told.wait()

    run(journal, act)
    assert commits == [2]
    with JournalReader(folder) as reader:
        assert {row.key: row for row in reader.rows()} == rows_by_fold(reader)


def test_rows_are_the_fold_of_events_and_keep_their_order(folder: str) -> None:
    written(folder, range(500))
    with JournalReader(folder) as reader:
        rows = list(reader.rows())
        assert [row.name for row in rows] == [f"review[{task}]" for task in range(500)]
        assert {row.key: row for row in rows} == rows_by_fold(reader)


def test_rows_are_found_by_key_in_steps_that_do_not_grow_with_the_run(folder: str) -> None:
    """In steps of SQLite's machine, which no load changes: `logs` looks up each task."""
    written(folder, range(400))

    def steps(tasks: range) -> int:
        with JournalReader(folder) as reader:
            counted = [0]

            def count() -> int:
                counted[0] += 1
                return 0

            reader._database.set_progress_handler(count, 10)
            for task in tasks:
                row = reader.row(key_of(task))
                assert row is not None
                assert row.name == f"review[{task}]"
            assert reader.row(key_of(400)) is None
            return counted[0]

    assert steps(range(400)) < 10 * steps(range(1))


@pytest.mark.parametrize("replies", [3, 3000])
def test_a_row_keeps_all_that_it_says(folder: str, journal: Journal, replies: int) -> None:
    start = began(3)
    assert start.row is not None
    strange = replace(
        start.row,
        name="file[\udcff\u00e9]",
        fault="broken: \ud800 caf\u00e9",
        kept=tuple(b"%016d" % number for number in range(replies)),
    )
    event = ReplyKept(3, 1, 2.0, b"a" * 16)

    store(journal, [JournalEntry(event, start.key, strange)])
    with JournalReader(folder) as reader:
        assert list(reader.rows()) == [strange]
        assert reader.row(start.key) == strange
        assert reader.row(b"nobody") is None


def test_a_resumed_journal_goes_on_with_rows_and_events(folder: str) -> None:
    written(folder, range(10))
    journal = Journal.open(folder)
    assert (journal.epoch, journal.header) == (2, HEADER)
    before = {row.key: row for row in journal.reader.rows()}
    # In an edited plan the same task has another number; its key finds its row.
    event = TaskStarted(77, 2, 99.0, "again")
    again = fold(before[key_of(4)], event, key_of(4), "review[4]")

    store(journal, [JournalEntry(event, key_of(4), again), *whole([10])])
    journal.close()
    with JournalReader(folder) as reader:
        rows = list(reader.rows())
        assert len(rows) == 11
        assert rows[4] == again
        assert {row.key: row for row in rows} == rows_by_fold(reader)


def test_only_its_user_can_read_a_journal_whatever_the_umask(tmp_path: Path) -> None:
    folder = str(tmp_path / "run")
    old = os.umask(0)
    try:
        journal = Journal.create(folder, HEADER)

        async def act() -> None:
            large = b"x" * LARGE
            journal.write([replace(ended(began(1)), bodies=((digest(large), large),))])
            await journal.flush()
            assert journal.reader.body(digest(large)) == large
            for place, folders, files in os.walk(folder):
                assert stat.S_IMODE(os.stat(place).st_mode) == 0o700
                for name in files:
                    mode = stat.S_IMODE(os.stat(os.path.join(place, name)).st_mode)
                    assert mode == 0o600, name
                assert not folders
                assert set(files) <= {"journal.db", "journal.db-wal", "journal.db-shm", LOCK}

        run(journal, act)
        journal.close()
    finally:
        os.umask(old)


def test_without_bodies_only_their_digests_are_kept(folder: str) -> None:
    journal = Journal.create(folder, replace(HEADER, keeps_bodies=False))

    store(journal, whole([1]))
    journal.close()
    with JournalReader(folder) as reader:
        (row,) = reader.rows()
        assert row.ending.body == digest(body_of(1))
        assert reader.body(row.ending.body) is None


def test_a_result_that_many_tasks_give_is_kept_once(folder: str, journal: Journal) -> None:
    async def act() -> None:
        for task in range(100):
            journal.write([replace(began(task), bodies=((digest(b"ok"), b"ok"),))])
            if task % 10 == 0:
                await journal.flush()
        await journal.flush()

    run(journal, act)
    database = connect(path_of(folder))
    assert database.execute("SELECT count(*) FROM bodies").fetchone() == (1,)
    database.close()


@pytest.mark.parametrize("count", [3, BULK_MIN + 10])
def test_many_bodies_are_read_at_once_the_large_ones_too(folder: str, count: int) -> None:
    large = b"y" * LARGE
    bodies = {digest(body): body for body in [large, *map(body_of, range(count))]}

    async def write() -> None:
        journal = Journal.create(folder, HEADER)
        journal.start(asyncio.get_running_loop())
        journal.write([began(0)], None)
        fact = ReplyKept(0, 1, 2.0, digest(large))
        journal.write([JournalEntry(fact, key_of(0), None, tuple(bodies.items()))])
        await journal.flush()
        journal.close()

    asyncio.run(write())
    with JournalReader(folder) as reader:
        wanted = [*bodies, digest(b"nobody said this")]
        assert dict(reader.bodies(wanted)) == bodies
        some = list(bodies)[:2]
        assert dict(reader.bodies(some)) == {name: bodies[name] for name in some}


SPOILING = ["version=0", "kind='Began'", "key=x'00'"]


def test_documents_are_kept_by_name_before_the_first_event_too(
    folder: str, journal: Journal
) -> None:
    journal.keep("shape", b"one")
    journal.keep("shape", b"two")
    store(journal, whole([1]))
    journal.close()
    with JournalReader(folder) as reader:
        assert [data for _, data in reader.documents("shape")] == [b"one", b"two"]
        assert reader.document("shape") == b"two"
        assert reader.document("nothing") is None
    with closing(connect(path_of(folder))) as database:
        database.execute("UPDATE documents SET data=x'00' WHERE name='shape'")
    with JournalReader(folder) as reader, pytest.raises(JournalError, match="shape is spoilt"):
        reader.document("shape")


@pytest.mark.parametrize("change", [*(f"events SET {one} WHERE seq=3" for one in SPOILING),
                                    "bodies SET data=x'00' WHERE id=7"])  # fmt: skip
def test_a_spoilt_row_is_noticed(folder: str, change: str) -> None:
    written(folder, range(BULK_MIN))
    with closing(connect(path_of(folder))) as database:
        database.execute(f"UPDATE {change}")
    with JournalReader(folder) as reader, pytest.raises(JournalError, match="is spoilt"):
        _ = [*reader.events(), *reader.bodies([digest(body_of(n)) for n in range(BULK_MIN)])]


def test_a_second_owner_is_told_who_the_first_is(folder: str, journal: Journal) -> None:
    with pytest.raises(JournalError, match=f"owned by process {os.getpid()}"):
        Journal.open(folder)
    with JournalReader(folder):
        owner = look(folder)
        assert owner is not None
        assert (owner.pid, owner.is_alive) == (os.getpid(), True)
        journal.close()
        owner = look(folder)
        assert owner is not None
        assert not owner.is_alive
    again = Journal.open(folder)
    assert again.epoch == 2
    again.close()


def test_who_was_taken_over_writes_nothing_more(folder: str, journal: Journal) -> None:
    database = connect(path_of(folder))
    say(database, epoch=journal.epoch + 1)
    database.close()
    faults: list[str] = []

    async def act() -> None:
        journal.start(asyncio.get_running_loop(), faults.append)
        journal.write(whole([1]))
        with pytest.raises(JournalError, match="taken this run over"):
            await journal.flush()

    asyncio.run(act())
    assert len(faults) == 1
    assert journal.fault
    with pytest.raises(JournalError, match="2 events of this run are not on the disk") as caught:
        journal.close()
    assert caught.value.detail == "tasks: review[1]"
    with JournalReader(folder) as reader:
        assert list(reader.rows()) == []


def test_two_tasks_with_one_number_are_noticed(folder: str) -> None:
    Journal.create(folder, HEADER).close()
    file = JournalFile(folder, connect(path_of(folder)))
    file.commit([began(1)])
    with pytest.raises(InternalError, match="same number"):
        file.commit([replace(began(2), event=TaskStarted(1, 1, 5.0, ""))])
    with pytest.raises(InternalError, match="about no task"):
        file.commit([replace(began(2), event=RunBegan(1.0, "waves"))])
    file.commit([began(3)])
    file.close(is_clean=True)


def test_events_may_be_followed_while_they_are_written(folder: str, journal: Journal) -> None:
    async def act() -> None:
        with JournalReader(folder) as reader:
            journal.write([JournalEntry(RunBegan(1.0, "adaptive")), began(1)])
            await journal.flush()
            assert reader.has_changed()
            first = list(reader.events())
            assert [recorded.seq for recorded in first] == [1, 2]
            assert not reader.has_changed()
            journal.write([JournalEntry(CallWaited(1, 1.5), key_of(1))])
            await journal.flush()
            assert reader.has_changed()
            (more,) = reader.events(after=first[-1].seq)
            assert more.event == CallWaited(1, 1.5)
            of_one = [recorded.seq for recorded in reader.events(key=key_of(1))]
            assert of_one == [2, 3]

    run(journal, act)


def test_a_journal_is_made_once_and_found_only_where_it_is(folder: str, journal: Journal) -> None:
    journal.close()
    with pytest.raises(JournalError, match="there already"):
        Journal.create(folder, HEADER)
    for opened in (Journal.open, JournalReader):
        with pytest.raises(JournalError, match="no journal"):
            opened(os.path.join(folder, "elsewhere"))


def test_a_newer_journal_is_refused(folder: str) -> None:
    written(folder, range(3))
    database = connect(path_of(folder))
    database.execute("PRAGMA user_version=2")
    database.close()
    with pytest.raises(JournalError, match="newer headway"):
        Journal.open(folder)
