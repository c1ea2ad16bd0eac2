"""What a run takes over from an interrupted one: every result that nothing has changed for.

Laws:
- A stored result is taken if its task has the same content key and was given the same results;
  so an edited plan runs again only what changed, and what depends on it if its result changed.
- Rows are read once; nothing is executed to find out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from headway.engine.engine import restore
from headway.engine.record import TaskRow, without_lost
from headway.engine.state import State
from headway.journal.file import body_path
from headway.journal.reader import JournalReader
from headway.plans.graph import Graph
from headway.run.results import Results
from headway.work import Needed, Work


@dataclass(frozen=True, slots=True)
class Saved:
    """What an interrupted run left behind."""

    rows: Mapping[bytes, TaskRow] = field(default_factory=dict)
    """By content key."""
    fetch: Callable[[bytes], bytes | None] | None = None
    """The body of a digest."""
    keeps_bodies: bool = True
    """Whether results are there, and not only that they were."""
    fetch_many: Callable[[Collection[bytes]], Iterable[tuple[bytes, bytes]]] | None = None
    """The same for many digests at once, with their bodies in any order."""

    def result_of(self, key: bytes, inputs: bytes) -> TaskRow | None:
        """A row of this key that has a result and was given the same."""
        row = self.rows.get(key)
        # What it gave last still holds if it was started again, or passed over, and never ended.
        is_same = row is not None and row.ending.body and row.ending.inputs == inputs
        return row if is_same else None

    def body(self, row: TaskRow) -> bytes | None:
        """The result of a row, if it is kept."""
        return None if self.fetch is None else self.fetch(row.ending.body)

    def recall(self, work: Work, members: Iterable[int]) -> Iterator[Needed]:
        """The results of these tasks that were there before, in any order."""
        found: dict[bytes, list[tuple[int, str]]] = {}
        for member in members:
            row = self.rows.get(work.key(member))
            # Whatever `result_of` may have taken: a result that waited, or one from before a start.
            if row is not None and row.ending.body:
                found.setdefault(row.ending.body, []).append((member, row.name))
        many = () if self.fetch_many is None else self.fetch_many(tuple(found))
        for name, body in many:
            for member, label in found.pop(name):
                yield Needed(work.name, member, label, body)
        for name, tasks in found.items():
            body = (self.fetch(name) if self.fetch is not None else None) or b""
            for member, label in tasks:
                yield Needed(work.name, member, label, body)


def readable_rows(reader: JournalReader) -> dict[bytes, TaskRow]:
    """The rows of a run by content key; where the result is lost, the task is not finished."""
    places = reader.places()

    def has(name: bytes) -> bool:
        return name in places or os.path.exists(body_path(reader.folder, name))

    is_there = has if reader.header.keeps_bodies else lambda _: True
    return {row.key: without_lost(row, is_there) for row in reader.rows()}


@dataclass(frozen=True, slots=True)
class Takeover:
    """What is needed to look at every task once."""

    graph: Graph
    works: Sequence[Work]
    saved: Saved
    results: Results
    publish: Callable[[int, int, bytes | None], str]
    """By group and member: a process may have ended between making a result durable and visible."""

    def apply_to(self, state: State) -> int:
        """Tell the engine what is finished already; how many tasks that are."""
        if not self.saved.rows:
            return 0
        finished: list[int] = []
        attempts: dict[int, int] = {}
        complete: set[int] = set()
        for index in self.graph.order:
            count = self.graph.groups[index].count
            if count is not None:
                done = self._group(state, index, complete, attempts)
                if len(done) == count:
                    complete.add(index)
                finished += done
        restore(state, finished, attempts)
        return len(finished)

    def _group(
        self, state: State, index: int, complete: set[int], attempts: dict[int, int]
    ) -> list[int]:
        """The tasks of one group that are finished; what was tried of the others is noted."""
        needs, work = self.graph.groups[index].needs, self.works[index]
        is_shared = self.graph.groups[index].touches is not None
        rows, results = self.saved.rows, self.results
        # Whoever is missing is tried again, so even who could do without waits for it again.
        is_fed = all(need.group in complete for need in needs if not need.block)
        # Whoever needs a result that was not kept must not be given nothing instead.
        is_gone = not self.saved.keeps_bodies and results.is_needed(index)
        numbers = state.ready_set.numbers
        done: list[int] = []
        for member, task in enumerate(numbers.members(index)):
            row = rows.get(work.key(member))
            if row is None:
                continue
            attempts[task] = row.attempt
            if row.state != "finished" or not is_fed or is_gone or is_shared:
                continue  # What has read the shared state is judged by it when its turn has come.
            if needs and not results.has(needs, member, numbers):
                continue
            inputs = results.inputs(needs, member, numbers) if needs else b""
            if row.ending.inputs == inputs:
                body = self.saved.body(row) if work.publishes else None
                if self.publish(index, member, body):
                    continue  # It fails when its turn has come.
                results.put(index, member, row.ending.body, None)
                done.append(task)
        return done
