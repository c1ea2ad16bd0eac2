"""A run that a journal says goes on, for tests of what shows it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from headway.base.digest import digest
from headway.base.values import Budget
from headway.engine.record import Fact, Header, JournalEntry, TaskRow, fold
from headway.journal.documents import keep_shape
from headway.journal.folder import RunPlace, new_run
from headway.journal.journal import Journal
from headway.journal.reader import JournalReader
from headway.plans.graph import Graph, TaskGroup
from headway.report.text.run_view import RunView


class LiveRun:
    """A journal that this process owns; tasks are named by their group and number."""

    def __init__(
        self, state: Path, groups: Sequence[TaskGroup], names: Sequence[str],
        budget: Budget | None = None,
    ) -> None:  # fmt: skip
        self.place: RunPlace = new_run(str(state), time.time())
        total = sum(group.count or 0 for group in groups)
        header = Header(self.place.id, "find bugs", "plan", "{}", os.getcwd(), total, time.time())
        self.journal = Journal.create(self.place.folder, header)
        self.names = names
        self._loop = asyncio.new_event_loop()
        self.journal.start(self._loop)
        self._rows: dict[int, TaskRow] = {}
        works = [SimpleNamespace(is_idle_until_sent=not group.is_local) for group in groups]
        keep_shape(self.journal, Graph(groups), cast("Any", works), 1e9, budget)

    def tell(self, *facts: Fact) -> None:
        entries = []
        for fact in facts:
            number: int | None = getattr(fact, "task", None)
            if number is None:
                entries.append(JournalEntry(fact))
                continue
            key = digest(b"task %d" % number)
            row = self._rows[number] = fold(self._rows.get(number), fact, key, self.names[number])
            entries.append(JournalEntry(fact, key, row))
        self.journal.write(entries)
        self._loop.run_until_complete(self.journal.flush())

    def close(self) -> None:
        self.journal.close()
        self._loop.close()

    @contextmanager
    def view(self, now_s: float | None = None) -> Iterator[RunView]:
        with JournalReader(self.place.folder) as reader:
            run = RunView(reader)
            run.now_s = run.now_s if now_s is None else now_s
            yield run


@contextmanager
def live_run(
    state: Path, groups: Sequence[TaskGroup], names: Sequence[str], *facts: Fact,
    budget: Budget | None = None,
) -> Iterator[LiveRun]:  # fmt: skip
    run = LiveRun(state, groups, names, budget)
    try:
        run.tell(*facts)
        yield run
    finally:
        run.close()
