"""A journal in memory, for runs that need no file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from headway.engine.record import JournalEntry


class Record(Protocol):
    """Takes down what happens. Writing returns at once and never fails; durability comes later."""

    def write(
        self, entries: Sequence[JournalEntry], then: Callable[[], None] | None = None
    ) -> None:
        """Keep these, in one transaction; `then` is called on the loop when they are durable."""

    async def flush(self) -> None:
        """Wait until everything written so far is durable."""


class NullJournal:
    """Keeps nothing and says that it is durable, as soon as the loop comes round."""

    def __init__(self) -> None:
        self._thens: list[Callable[[], None]] = []

    def write(
        self, entries: Sequence[JournalEntry], then: Callable[[], None] | None = None
    ) -> None:
        del entries
        if then is None:
            return
        if not self._thens:
            asyncio.get_running_loop().call_soon(self._tell)
        self._thens.append(then)

    async def flush(self) -> None:
        while self._thens:
            await asyncio.sleep(0)

    def _tell(self) -> None:
        thens, self._thens = self._thens, []
        for then in thens:
            then()
