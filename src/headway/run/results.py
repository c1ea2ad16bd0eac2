"""The results of a run: those that later tasks need, and those that a resumed run keeps.

Laws:
- A result that nothing needs is not kept in memory; what does not fit there is in the journal.
- What a task was given is one digest: with the same digest it would be given the same again. Who
  is missing, where that is forgiven, is part of it.
- A stored result is taken if its task has the same content key and was given the same results;
  so an edited plan runs again only what changed, and what depends on it if its result changed.
- Rows are read once; nothing is executed to find out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Final

from msgspec import Struct, field

from headway.base.digest import DIGEST_BYTES
from headway.engine.engine import restore
from headway.engine.record import TaskRow, without_lost
from headway.engine.state import State
from headway.errors import JournalError
from headway.journal.reader import JournalReader
from headway.plans.graph import Graph, Need, Numbering
from headway.work import Needed, Work

BYTES_MAX: Final = 256 * 1024 * 1024
"""Results in memory; beyond it they are read from the journal when they are needed."""

ABSENT: Final = bytes(DIGEST_BYTES)

Fetch = Callable[[bytes], bytes | None]
"""The body of a digest, from where bodies are durable; None if it is not there."""


class Results:
    """Digests of all results that something needs, and the bodies of most."""

    def __init__(self, graph: Graph, fetch: Fetch | None = None) -> None:
        self._fetch = fetch
        self._needed = {need.group for group in graph.groups for need in group.needs}
        self._digests: dict[tuple[int, int], bytes] = {}
        self._bodies: dict[bytes, bytes] = {}
        self._inputs: dict[int, bytes] = {}
        self._bytes = 0

    def is_needed(self, group: int) -> bool:
        return group in self._needed

    def put(self, group: int, member: int, digest: bytes, body: bytes | None) -> None:
        """A task has its result; without a body it is one from before."""
        if group not in self._needed:
            return
        self._digests[group, member] = digest
        if body is None or digest in self._bodies:
            return
        if self._fetch is None or self._bytes + len(body) <= BYTES_MAX:
            self._bodies[digest] = body
            self._bytes += len(body)

    def get(self, group: int, member: int) -> bytes:
        """The result of a task; JournalError if it is lost."""
        digest = self._digests[group, member]
        body = self.find(digest)
        if body is None:
            raise JournalError(f"the result {digest.hex()} is lost")
        return body

    def find(self, digest: bytes) -> bytes | None:
        body = self._bodies.get(digest)
        if body is None and self._fetch is not None:
            body = self._fetch(digest)
        return body

    def has(self, needs: tuple[Need, ...], member: int, numbers: Numbering) -> bool:
        """Whether the results of a member's own blocks are there, where it needs blocks."""
        digests = self._digests
        return all(
            (need.group, one) in digests
            for need in needs
            if need.block
            for one in needed_members(need, member, numbers)
        )

    def inputs(self, needs: tuple[Need, ...], member: int, numbers: Numbering) -> bytes:
        """The digest of everything that a task with these needs is given; empty for nothing."""
        if not needs:
            return b""
        whole = blake2b(digest_size=DIGEST_BYTES)
        for need in needs:
            if need.block:
                for one in needed_members(need, member, numbers):
                    whole.update(self._digest(need, one))
            else:
                whole.update(self._of_all(need, len(numbers.members(need.group))))
        return whole.digest()

    def _of_all(self, need: Need, count: int) -> bytes:
        """One digest over a whole group, which has ended and so does not change."""
        found = self._inputs.get(need.group)
        if found is None:
            whole = blake2b(digest_size=DIGEST_BYTES)
            for member in range(count):
                whole.update(self._digest(need, member))
            found = self._inputs[need.group] = whole.digest()
        return found

    def _digest(self, need: Need, member: int) -> bytes:
        if need.is_lenient:
            return self._digests.get((need.group, member), ABSENT)
        return self._digests[need.group, member]


def needed_members(need: Need, member: int, numbers: Numbering) -> Sequence[int]:
    if need.block == 1:
        return (member,)
    tasks, first = numbers.needed(need, member), numbers.firsts[need.group]
    return range(tasks.start - first, tasks.stop - first)


class Saved(Struct, frozen=True):
    rows: Mapping[bytes, TaskRow] = field(default_factory=dict)
    fetch: Callable[[bytes], bytes | None] | None = None
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
    is_there = reader.places().__contains__ if reader.header.keeps_bodies else lambda _: True
    return {row.key: without_lost(row, is_there) for row in reader.rows()}


def take_over(
    state: State, graph: Graph, works: Sequence[Work], saved: Saved, results: Results,
    publish: Callable[[int, int, bytes | None], str],
) -> None:  # fmt: skip
    """Tell the engine which tasks are finished already, and how often the others were tried.

    `publish` takes group and member: a process may have been killed after it made a result durable
    and before it wrote the output.
    """
    if not saved.rows:
        return
    finished: list[int] = []
    attempts: dict[int, int] = {}
    complete: set[int] = set()
    numbers = state.ready_set.numbers
    for index in graph.order:
        needs, work = graph.groups[index].needs, works[index]
        if graph.groups[index].count is None:
            continue
        # A missing result is tried again, so that lenient needs wait for it, too.
        is_fed = all(need.group in complete for need in needs if not need.block)
        # A result that was not kept cannot be given to the tasks that need it.
        is_gone = not saved.keeps_bodies and results.is_needed(index)
        # What has read the shared state is judged by it when its turn comes.
        may_be_done = is_fed and not is_gone and graph.groups[index].touches is None
        before = len(finished)
        members = numbers.members(index)
        for member, task in enumerate(members):
            row = saved.rows.get(work.key(member))
            if row is None:
                continue
            attempts[task] = row.attempt
            if row.state != "finished" or not may_be_done:
                continue
            if needs and not results.has(needs, member, numbers):
                continue
            inputs = results.inputs(needs, member, numbers) if needs else b""
            if row.ending.inputs == inputs:
                body = saved.body(row) if work.publishes else None
                if publish(index, member, body):
                    continue  # It fails when its turn comes.
                results.put(index, member, row.ending.body, None)
                finished.append(task)
        if len(finished) - before == len(members):
            complete.add(index)
    restore(state, finished, attempts)
