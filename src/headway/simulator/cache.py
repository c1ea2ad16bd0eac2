"""The prompt cache of the simulated provider: which beginnings it has read before.

Laws:
- A beginning can be read once the call that wrote it has sent its first byte, and for five
  minutes after it was last written or read.
- Accounts and models share nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

TTL_S: Final = 300.0

TOKENS_MIN: Final = 1024
"""Shorter beginnings are not kept, as at the real providers."""

ENTRIES_MAX: Final = 100_000
"""What was used the longest ago is forgotten first."""

Place = tuple[str, str, str]
"""Account, model, digest of the beginning."""


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """What is kept now."""

    entries: int


class PromptCache:
    """Beginnings that were read before, by account and model."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until: OrderedDict[Place, float] = OrderedDict()

    def __repr__(self) -> str:
        return f"<PromptCache {len(self._until)} entries>"

    def read(self, place: Place, now: float) -> bool:
        """Whether a beginning is there; if so it stays for longer."""
        if self._until.get(place, 0.0) <= now:
            return False
        self.write(place, now)
        return True

    def write(self, place: Place, now: float) -> None:
        """A call that began so has sent its first byte."""
        self._until[place] = now + TTL_S
        self._until.move_to_end(place)
        if len(self._until) > ENTRIES_MAX:
            self._until.popitem(last=False)

    def statistics(self) -> CacheStatistics:
        return CacheStatistics(len(self._until))
