"""Lets the tasks of one event loop take their steps in a given order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from tests.coherence.catalogue_plays import Play, Task, View
from tests.coherence.harness import Outcome

Runs = Callable[[Sequence[int]], Awaitable[Outcome]]
"""Performs a case in a given order."""


class Gate:
    """Opens for one task at a time, when every task that has not left stands before it."""

    def __init__(self, order: Sequence[int]) -> None:
        self._order = list(reversed(order))
        self._inside = set(order)
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self.plays: dict[int, Play] = {}
        """Of tasks that have left."""

    def __repr__(self) -> str:
        return f"<Gate {sorted(self._waiting)} of {sorted(self._inside)} wait>"

    @property
    def observed(self) -> tuple[str, ...]:
        """What every task has seen, in declared order."""
        return tuple(play.observed for _, play in sorted(self.plays.items()))

    async def turn(self, task: int) -> None:
        """Wait until it is this one's turn."""
        future = self._waiting[task] = asyncio.get_running_loop().create_future()
        self._open()
        await future

    def leave(self, task: int) -> None:
        """It takes no more steps."""
        self._inside.discard(task)
        self._open()

    def _open(self) -> None:
        if not self._inside or len(self._waiting) < len(self._inside):
            return
        while self._order and self._order[-1] not in self._waiting:
            self._order.pop()
        task = self._order.pop() if self._order else max(self._waiting)
        self._waiting.pop(task).set_result(None)


async def perform(number: int, task: Task, view: View, gate: Gate) -> Play:
    """A whole task, each step when it is its turn."""
    play = Play(task)
    while play.operation is not None:
        await gate.turn(number)
        play.step(view)
    await gate.turn(number)
    gate.plays[number] = play
    gate.leave(number)
    return play
