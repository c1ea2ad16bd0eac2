"""The least that durable tasks cost here, and what the journal takes: `python -m bench.floor`.

The floor is a bare asyncio loop over SQLite with group commit: one insert per empty task, synced
before it is acknowledged, by coroutines that each await their result. `callbacks` is the same
without coroutines, as the journal is driven here, and so the harder comparison. The journal writes
what a run writes: that the task started, that it finished, its row and a small result.

Tasks per second follow the disk, which others use too: rounds alternate between the three, and
the range is shown beside the median. CPU is steadier.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from statistics import median
from typing import Final

from headway.base.records import digest
from headway.engine.events import Ending, TaskFinished, TaskStarted
from headway.engine.record import Header, JournalEntry, fold
from headway.journal.journal import Journal
from headway.journal.reader import JournalReader

TASKS: Final = 50_000
IN_FLIGHT: Final = 64
ROUNDS: Final = 5

Begin = Callable[[int, Callable[[], None]], None]
"""Do a task, and call when it is durable."""


@dataclass(frozen=True, slots=True)
class Pace:
    """What a task took, all in all."""

    tasks_per_s: float
    cpu_us: float
    """Of the whole process, the tasks themselves included."""
    loop_us: float
    """Of that in the thread of the event loop."""


def floor(tasks: int, in_flight: int, folder: str) -> Pace:
    """Empty tasks by coroutines over bare asyncio and SQLite."""

    async def measure() -> Pace:
        loop = asyncio.get_running_loop()
        writer = BareWriter(os.path.join(folder, "floor.db"), loop)
        numbers = iter(range(tasks))

        async def work() -> None:
            for task in numbers:
                done = loop.create_future()
                writer.put(task, partial(done.set_result, None))
                await done

        clock = Clock()
        await asyncio.gather(*(work() for _ in range(in_flight)))
        pace = clock.pace(tasks)
        writer.close()
        return pace

    return asyncio.run(measure())


def callbacks(tasks: int, in_flight: int, folder: str) -> Pace:
    """Empty tasks by callbacks over bare asyncio and SQLite."""

    async def measure() -> Pace:
        writer = BareWriter(os.path.join(folder, "bare.db"), asyncio.get_running_loop())
        pace = await _measure(writer.put, tasks, in_flight)
        writer.close()
        return pace

    return asyncio.run(measure())


def journal(tasks: int, in_flight: int, folder: str) -> Pace:
    """Empty tasks through the journal, written as a run writes them."""
    header = Header("bench", "bench", "python", "", "/", tasks, 1.0)
    book = Journal.create(os.path.join(folder, "run"), header)
    now_s = 1_794_830_400.25

    def begin(task: int, then: Callable[[], None]) -> None:
        key, name = digest(b"%d" % task), f"review[{task}]"
        started = TaskStarted(task, 1, now_s + task, "ready")
        row = fold(None, started, key, name)
        book.write((JournalEntry(started, key, row),))
        body = b"the result of %d" % task
        ending = Ending(digest(body), b"", 1200.0, 300.0, 8100, 1)
        finished = TaskFinished(task, 1, now_s + task + 0.5, ending)
        row = fold(row, finished, key, name)
        book.write((JournalEntry(finished, key, row, (body,)),), then)

    async def measure() -> Pace:
        book.start(asyncio.get_running_loop())
        pace = await _measure(begin, tasks, in_flight)
        book.close()
        return pace

    return asyncio.run(measure())


def write_only_us(tasks: int, folder: str) -> float:
    """CPU in the thread of the event loop for the journal's part alone: two `write`s a task."""
    book = Journal.create(os.path.join(folder, "own"), Header("b", "b", "python", "", "/", 1, 1.0))
    entry = (JournalEntry(TaskStarted(0, 1, 1.0, "ready"), bytes(16)),)

    async def measure() -> float:
        book.start(asyncio.get_running_loop())
        begin_s = time.thread_time()
        for _ in range(tasks):
            book.write(entry)
            book.write(entry, _nothing)
        await book.flush()
        spent_s = time.thread_time() - begin_s
        book.close()
        return spent_s / tasks * 1e6

    return asyncio.run(measure())


def read_s(folder: str) -> tuple[float, float]:
    """Wall and CPU seconds in which all rows of the journal are read."""
    with JournalReader(os.path.join(folder, "run")) as reader:
        begin_s, cpu_s = time.perf_counter(), time.process_time()
        for _ in reader.rows():
            pass
        return time.perf_counter() - begin_s, time.process_time() - cpu_s


def open_s(folder: str) -> float:
    """Seconds until a run can go on: its journal is taken over and its rows are read."""
    begin_s = time.perf_counter()
    book = Journal.open(os.path.join(folder, "run"))
    rows = list(book.reader.rows())
    spent_s = time.perf_counter() - begin_s
    book.close()
    return spent_s if rows else 0.0


class Clock:
    """Wall, process and thread time since it was made."""

    def __init__(self) -> None:
        self._wall_s, self._cpu_s = time.perf_counter(), time.process_time()
        self._loop_s = time.thread_time()

    def __repr__(self) -> str:
        return f"<Clock, {self.statistics():.3f} s>"

    def statistics(self) -> float:
        """Seconds by the wall."""
        return time.perf_counter() - self._wall_s

    def pace(self, tasks: int) -> Pace:
        cpu_s, loop_s = time.process_time() - self._cpu_s, time.thread_time() - self._loop_s
        return Pace(tasks / self.statistics(), cpu_s / tasks * 1e6, loop_s / tasks * 1e6)


class BareWriter:
    """The same group commit with nothing around it: one table, one insert per task."""

    def __init__(self, path: str, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: SimpleQueue[tuple[int, Callable[[], None]] | None] = SimpleQueue()
        self._commits = 0
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=FULL")
        self._database.execute("CREATE TABLE done (task INTEGER PRIMARY KEY, result TEXT)")
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<BareWriter, {self._commits} commits>"

    def statistics(self) -> int:
        """How many commits there were."""
        return self._commits

    def put(self, task: int, then: Callable[[], None]) -> None:
        self._queue.put((task, then))

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()
        self._database.close()

    def _run(self) -> None:
        while (found := self._queue.get()) is not None:
            batch = [found]
            try:
                while (found := self._queue.get_nowait()) is not None:
                    batch.append(found)
            except Empty:
                pass
            self._database.execute("BEGIN")
            self._database.executemany(
                "INSERT INTO done VALUES(?, ?)", [(task, "finished") for task, _ in batch]
            )
            self._database.execute("COMMIT")
            self._commits += 1
            self._loop.call_soon_threadsafe(_tell, [then for _, then in batch])


async def _measure(begin: Begin, tasks: int, in_flight: int) -> Pace:
    numbers = iter(range(tasks))
    left = tasks
    done = asyncio.Event()

    def end() -> None:
        nonlocal left
        left -= 1
        task = next(numbers, None)
        if task is not None:
            begin(task, end)
        elif not left:
            done.set()

    clock = Clock()
    for _ in range(min(in_flight, tasks)):
        begin(next(numbers), end)
    await done.wait()
    return clock.pace(tasks)


def _tell(thens: list[Callable[[], None]]) -> None:
    for then in thens:
        then()


def _nothing() -> None:
    return


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print a few lines."""
    parser = argparse.ArgumentParser(prog="python -m bench.floor", description=__doc__)
    parser.add_argument("--tasks", type=int, default=TASKS)
    parser.add_argument("--in-flight", type=int, default=IN_FLIGHT)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--folder", help="where to write; a disk, not memory")
    asked = parser.parse_args(arguments)
    subjects = {"floor": floor, "callbacks": callbacks, "journal": journal}
    paces: dict[str, list[Pace]] = {name: [] for name in subjects}
    own_us, reads, opens = [], [], []
    for _ in range(asked.rounds):
        with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
            for name, measure in subjects.items():
                paces[name].append(measure(asked.tasks, asked.in_flight, folder))
            own_us.append(write_only_us(asked.tasks, folder))
            reads.append(read_s(folder)[1])
            opens.append(open_s(folder))
    for name, found in paces.items():
        print(
            f"{name:10} tasks/s {_range([pace.tasks_per_s for pace in found], 0)}; CPU us a task "
            f"{_range([pace.cpu_us for pace in found], 1)}, in the loop "
            f"{_range([pace.loop_us for pace in found], 1)}"
        )
    print(f"two `write`s: {_range(own_us, 1)} us in the loop")
    print(f"{asked.tasks:,} rows: read in {_range(reads, 3)} s of CPU")
    print(f"taken over, rows in memory: {_range(opens, 3)} s by the wall")
    return 0


def _range(values: Sequence[float], digits: int) -> str:
    return f"{median(values):,.{digits}f} ({min(values):,.{digits}f} to {max(values):,.{digits}f})"


if __name__ == "__main__":
    sys.exit(main())
