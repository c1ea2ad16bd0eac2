"""What a loop remembers of an interrupted attempt: replies that were paid, and what tools gave.

Laws:
- A reply is durable before it is acted on, and what a doubtful tool is about to do before it does.
- What is remembered belongs to exactly the conversation that led to it: where anything before it
  was otherwise, it is not found, and not used.

The journal keeps a few hundred entries for a task. While there is room, each doubtful use has
entries of its own; later they are kept by turns, and an interruption leaves more in doubt.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headway.core.digest import DIGEST_BYTES, digest
from headway.core.values import Fault
from headway.runtime.work import Attempt, AttemptError

ENTRIES_MAX: Final = 250
"""A row is written whole with every entry: with many more a journal would grow by their square."""

TURN_ENTRIES: Final = 3
"""What a turn needs at least: its reply, that its tools begin, and what they gave."""

REPLY: Final = b"r"
BEGUN: Final = b"b"
OBSERVED: Final = b"o"


@dataclass(frozen=True, slots=True)
class MemoryStatistics:
    """How much was remembered, and how much was added."""

    found: int
    kept: int


class Memory:
    """The conversation of one attempt, as far as it has to survive it."""

    def __init__(self, attempt: Attempt, start: bytes, turns: int) -> None:
        """`start` is all that the conversation begins with; `turns` how long it may become."""
        self._attempt = attempt
        self._at = digest(start)
        self._turns_left = turns
        self._before: dict[bytes, list[bytes]] = {}
        for entry in attempt.kept:
            place = entry[: 1 + DIGEST_BYTES]
            self._before.setdefault(place, []).append(entry[len(place) :])
        self._entries = len(attempt.kept)
        self._found = self._kept = 0
        self._begin_turn()

    def __repr__(self) -> str:
        return f"<Memory of {self._attempt.name}: {self.statistics()}>"

    def statistics(self) -> MemoryStatistics:
        return MemoryStatistics(self._found, self._kept)

    def reply(self) -> bytes | None:
        """The reply that was paid for this conversation, if there was one."""
        found = self._before.get(REPLY + self._at)
        self._found += bool(found)
        return found[0] if found else None

    async def replied(self, data: bytes, *, is_new: bool) -> None:
        """The conversation goes on from this reply, which is durable then."""
        if is_new:
            await self._keep(REPLY, data)
        self._at = digest(self._at + data)
        self._turns_left -= 1
        self._begin_turn()

    def observed(self, use: int) -> str | None:
        """What a use of this turn gave, if that is known."""
        return self._texts.get(use)

    def is_in_doubt(self, use: int) -> bool:
        """Whether an interrupted attempt may have done it, and did not come to say what it gave."""
        return use in self._in_doubt

    async def begin(self, use: int, doubtful: Sequence[int]) -> None:
        """A doubtful use is about to be done; `doubtful` are all such uses of this turn."""
        if use not in self._begun:
            uses = [use] if self._has_room() else [one for one in doubtful if one >= use]
            self._begun.update(uses)
            await self._keep(BEGUN, json.dumps(uses).encode())

    async def observe(self, use: int, text: str, *, is_doubtful: bool = False) -> None:
        """What a use gave; of a doubtful one durable at once, if there is room."""
        self._new[use] = text
        if is_doubtful and self._has_room():
            await self._flush()

    async def observed_all(self, texts: Sequence[str]) -> None:
        """All that this turn asked for is done: the conversation goes on from what it gave."""
        await self._flush()
        self.told("\0".join(texts))

    def told(self, text: str) -> None:
        """The model is told something that is not kept: it follows from what was before."""
        self._at = digest(self._at + text.encode("utf-8", "surrogatepass"))
        self._begin_turn()

    def _begin_turn(self) -> None:
        begun = self._before.get(BEGUN + self._at, [])
        self._begun: set[int] = set()
        self._in_doubt = {use for uses in begun for use in json.loads(uses)}
        self._new: dict[int, str] = {}
        self._texts: dict[int, str] = {}
        for found in self._before.get(OBSERVED + self._at, []):
            self._texts |= {int(use): str(text) for use, text in json.loads(found).items()}
        self._in_doubt -= self._texts.keys()

    def _has_room(self) -> bool:
        """Whether one more entry leaves enough to end this turn, and for all that may follow."""
        return self._entries + TURN_ENTRIES <= ENTRIES_MAX - TURN_ENTRIES * self._turns_left

    async def _flush(self) -> None:
        new, self._new = self._new, {}
        if new:
            await self._keep(OBSERVED, json.dumps(new).encode())

    async def _keep(self, kind: bytes, data: bytes) -> None:
        if self._entries >= ENTRIES_MAX:
            detail = f"more than {ENTRIES_MAX} replies and observations would have to be kept"
            raise AttemptError(Fault("unfit", detail=detail))
        self._entries += 1
        self._kept += 1
        await self._attempt.keep(kind + self._at + data)
