"""Attempts without a driver: every verb is written down."""

from __future__ import annotations

from math import ceil

from msgspec import Struct, field

from headway.base.values import Spend
from headway.work import Attempt, OverBudgetError


class Told(Struct):
    """What an attempt said, in order."""

    said: list[str] = field(default_factory=list)
    reserved: list[tuple[int, int]] = field(default_factory=list)
    kept: list[bytes] = field(default_factory=list)
    whys: list[str] = field(default_factory=list)
    """What each word was said for."""
    reservations_max: int = 1000
    is_last: bool = False

    def attempt(self, name: str = "task", kept: tuple[bytes, ...] = ()) -> Attempt:
        return Attempt(
            0, 0, 1, b"k" * 16, name,
            needed=lambda _: [],
            waits=lambda why="": self.say("waits", why),
            goes=lambda why="": self.say("goes", why),
            reserve=self.reserve,
            keep=self.keep,
            kept=kept,
            is_last=self.is_last,
        )  # fmt: skip

    def say(self, word: str, why: str) -> None:
        self.said.append(word)
        self.whys.append(why)

    async def reserve(self, more: Spend) -> None:
        if len(self.reserved) >= self.reservations_max:
            raise OverBudgetError("the budget is spent")
        self.said.append("reserve")
        self.reserved.append((more.microusd, ceil(more.tokens)))

    async def keep(self, reply: bytes) -> None:
        self.said.append("keep")
        self.kept.append(reply)
