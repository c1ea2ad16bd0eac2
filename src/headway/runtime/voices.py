"""Several calls of one attempt at a time, told as one: it waits for a permit if all of them do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headway.runtime.work import Attempt


class Voices:
    """Calls of one attempt at the same time: it waits if all of them do."""

    def __init__(self) -> None:
        self.waiting = self.going = 0

    def __repr__(self) -> str:
        return f"<Voices {self.waiting} waiting, {self.going} going>"

    def statistics(self) -> tuple[int, int]:
        """How many wait for a permit, and how many have theirs."""
        return self.waiting, self.going

    @contextmanager
    def joined(self, attempt: Attempt) -> Iterator[Voice]:
        """Around one call."""
        voice = Voice(self, attempt)
        try:
            yield voice
        finally:
            voice.become("")


class Voice:
    """What one call says of itself."""

    def __init__(self, voices: Voices, attempt: Attempt) -> None:
        self._voices = voices
        self._attempt = attempt
        self._state = ""

    def waits(self, why: str = "", /) -> None:
        self.become("waiting", why)

    def goes(self, why: str = "", /) -> None:
        self.become("going", why)

    def become(self, state: str, why: str = "") -> None:
        voices, before = self._voices, self._voices.going
        voices.waiting += (state == "waiting") - (self._state == "waiting")
        voices.going += (state == "going") - (self._state == "going")
        self._state = state
        if voices.going and not before:
            self._attempt.goes(why)
        elif voices.waiting and not voices.going and (before or state == "waiting"):
            self._attempt.waits(why)
