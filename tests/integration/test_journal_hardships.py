"""What may happen to a journal: its writer is killed, the disk is full, the file is spoilt."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.base.digest import digest
from headway.base.locks import look
from headway.engine.events import TaskFinished, TaskStarted
from headway.engine.record import JournalEntry, TaskRow
from headway.errors import JournalError
from headway.journal import file as journal_space
from headway.journal.file import path_of, read_mark
from headway.journal.journal import Journal
from headway.journal.reader import JournalReader, RecordedEvent
from headway.journal.salvage import salvage
from tests.integration import journal_scene
from tests.integration.journal_scene import HEADER, body_of, key_of, rows_by_fold, whole, written

ROOT = Path(__file__).resolve().parent.parent.parent
SOON_S = 60.0


def killed_at(folder: str, first: int, commits: int) -> list[int]:
    """Write in another process, and kill it when it has said this often what is durable."""
    program = subprocess.Popen(
        [sys.executable, journal_scene.__file__, folder, str(first)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
    )
    durable: list[int] = []
    assert program.stdout is not None
    with program.stdout as lines:
        for _ in range(commits):
            durable += map(int, lines.readline().split())
        program.send_signal(signal.SIGKILL)
        program.wait(SOON_S)
        durable += map(int, lines.read().split())
    return durable


def test_whatever_was_told_to_be_durable_is_there_after_a_kill(tmp_path: Path) -> None:
    folder = str(tmp_path / "run")
    chance = random.Random(4)
    durable: list[int] = []
    for kill in range(5):
        durable += killed_at(folder, first=kill * 10_000, commits=chance.randint(1, 8))
        with JournalReader(folder) as reader:
            rows = {row.key: row for row in reader.rows()}
            assert all(rows[key_of(task)].state == "finished" for task in durable)
            assert rows == rows_by_fold(reader)
            for task in durable[-50:]:
                assert reader.body(digest(body_of(task))) == body_of(task)
            owner = look(folder)
            assert owner is not None
            assert not owner.is_alive
    journal = Journal.open(folder)
    assert journal.epoch == 6
    journal.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[str]:
    """A disk of 12 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(place)],
        capture_output=True,
        check=False,
    )
    if made.returncode != 0:
        pytest.skip("only a superuser can make a disk")
    yield str(place)
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(place: str) -> Path:
    """Take all that is left."""
    path = Path(place) / "ballast"
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return path


def test_what_found_no_room_at_all_is_kept_and_said(small_disk: str) -> None:
    folder = os.path.join(small_disk, "run")
    journal = Journal.create(folder, HEADER)

    async def act() -> None:
        journal.start(asyncio.get_running_loop())
        journal.write(whole([1]))
        await journal.flush()
        journal_space.drop(folder)
        ballast = fill(small_disk)
        tasks = range(2, 400)
        for task in tasks:
            journal.write(whole([task]))
        with pytest.raises(JournalError, match="not on the disk"):
            await journal.flush()
        ballast.unlink()
        await journal.flush()
        fill(small_disk)
        journal_space.drop(folder)
        fill(small_disk)
        for task in range(400, 1000):
            journal.write(whole([task]))

    asyncio.run(act())
    with pytest.raises(JournalError, match="events of this run are not on the disk") as caught:
        journal.close()
    assert "and" in str(caught.value.detail)
    (Path(small_disk) / "ballast").unlink()
    again = Journal.open(folder)
    assert len([row for row in again.reader.rows() if row.state == "finished"]) >= 399
    again.close()


def everything(folder: str) -> tuple[list[TaskRow], list[RecordedEvent], list[bytes | None]]:
    with JournalReader(folder) as reader:
        rows = list(reader.rows())
        named = [row.ending.body for row in rows if row.ending.body]
        return rows, list(reader.events()), [reader.body(name) for name in named]


def resumed(folder: str) -> list[TaskRow]:
    journal = Journal.open(folder)
    try:
        return list(journal.reader.rows())
    finally:
        journal.close()


def copied(source: str, target: Path) -> str:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return str(target)


def left_open(folder: str, tasks: int) -> None:
    """A journal whose writer was killed: much of it is in the log of changes only.

    Not between a commit and its mark: what nobody was told of may be lost with a spoilt file.
    """
    while True:
        killed_at(folder, 0, tasks)
        with JournalReader(folder) as reader:
            events = sum(1 for _ in reader.events())
        if read_mark(folder) == events:
            return
        shutil.rmtree(folder)


@pytest.mark.parametrize("was_killed", [False, True])
def test_a_spoilt_file_is_whole_or_an_error_and_what_is_readable_is_saved(
    tmp_path: Path, was_killed: bool
) -> None:
    good = str(tmp_path / "good")
    if was_killed:
        left_open(good, 3)
    else:
        written(good, range(150))
    reference = everything(copied(good, tmp_path / "read"))
    by_key = {row.key: row for row in reference[0]}
    chance = random.Random(7)
    places: list[tuple[str | None, str | None]] = []
    shares: list[float] = []
    for trial in range(24):
        folder = copied(good, tmp_path / "bad")
        spoil(folder, chance, trial)
        try:
            rows = resumed(folder)
            assert everything(folder) == reference
            assert rows == reference[0]
        except JournalError as error:
            places.append((error.where, error.hint))
            saved = salvage(folder)
            assert os.path.exists(saved.kept_as)
            rows, events = resumed(folder), everything(folder)[1]
            assert (len(rows), len(events)) == (saved.rows, saved.events)
            # Also what a killed process had begun to write: its records have their checks.
            for found in events:
                assert (found.key, found.event) in [(one.key, one.event) for one in whole_of(found)]
            with JournalReader(folder) as reader:
                assert all(reader.body(row.ending.body) for row in rows if row.state == "finished")
            shares.append(len(by_key.keys() & {row.key for row in rows}) / len(by_key))
    assert len(shares) > 5
    assert all(where and hint for where, hint in places)
    # Half of the trials spoil a page or two, of which each holds a few rows. How many pages there
    # are depends on the moment of the kill: the better half of the trials is judged.
    assert sorted(shares)[len(shares) * 3 // 4] > 0.8


def whole_of(found: RecordedEvent) -> list[JournalEntry]:
    """What the scene writes of an event's task."""
    assert isinstance(found.event, TaskStarted | TaskFinished)
    return whole([found.event.task])


def spoil(folder: str, chance: random.Random, trial: int) -> None:
    """Change or cut a file at a random place."""
    files = [path for path in (path_of(folder), f"{path_of(folder)}-wal") if os.path.exists(path)]
    path = chance.choice([each for each in files if os.path.getsize(each) > 0])
    size = os.path.getsize(path)
    if trial % 4 == 0:
        os.truncate(path, chance.randrange(size))
        return
    with open(path, "r+b") as file:
        for _ in range(chance.choice((1, 1, 30))):
            file.seek(chance.randrange(size))
            file.write(chance.randbytes(chance.choice((1, 64, 4096))))
