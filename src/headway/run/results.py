"""The results that later tasks need: in memory while they fit, then from the journal.

Laws:
- A result that nothing needs is not kept.
- What a task was given is one digest: with the same digest it would be given the same again. Who
  is missing, where that is forgiven, is part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Final

from headway.base.digest import DIGEST_BYTES
from headway.errors import JournalError
from headway.plans.graph import Graph, Need, Numbering

BYTES_MAX: Final = 256 * 1024 * 1024
"""Results in memory; beyond it they are read from the journal when they are needed."""

ABSENT: Final = bytes(DIGEST_BYTES)

Fetch = Callable[[bytes], bytes | None]
"""The body of a digest, from where bodies are durable; None if it is not there."""


class Results:
    """Digests of all results that something needs, and the bodies of most."""

    __slots__ = (
        "_bodies", "_bytes", "_digests", "_fetch", "_inputs", "_needed",
    )  # fmt: skip

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
        if body is None:
            return
        if digest in self._bodies:
            return
        if self._fetch is None or self._bytes + len(body) <= BYTES_MAX:
            self._bodies[digest] = body
            self._bytes += len(body)

    def get(self, group: int, member: int) -> bytes:
        return self.body(self._digests[group, member])

    def body(self, digest: bytes) -> bytes:
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
