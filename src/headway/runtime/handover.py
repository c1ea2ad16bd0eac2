"""Values that a task's code got from the shared state or gave to it, compared when it ends.

They are copies: a task that changes one in place changes nothing for others, and should know.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headway.core.engine.channels import canonical
from headway.core.slips import Handed
from headway.errors import StateError

VALUES_MAX: Final = 1_000
BYTES_MAX: Final = 1024 * 1024
"""So much of one attempt is compared: what is handed over after that is not looked at."""


@dataclass(frozen=True, slots=True)
class HandoverStatistics:
    """How much is held until the attempt ends."""

    values: int
    bytes: int


class Handover:
    """What one attempt holds of the shared state, and what it has given to it."""

    __slots__ = ("_bytes", "_values", "is_timed")

    def __init__(self) -> None:
        self._values: list[tuple[str, bytes, object, bool]] = []
        self._bytes = 0
        self.is_timed = False
        """Whether the attempt has asked for the time."""

    def __repr__(self) -> str:
        return f"<Handover {self.statistics()}>"

    def got(self, key: str, data: bytes, value: object) -> None:
        """The task was given a value."""
        self._note(key, data, value, False)

    def gave(self, key: str, value: object) -> None:
        """The task has put a value there, or added it."""
        if isinstance(value, dict | list):
            self._note(key, canonical(value, key), value, True)

    def ended(self) -> list[Handed]:
        """The values as they were and as they are, and no hold on them any more."""
        values, self._values = self._values, []
        return [Handed(key, data, _bytes(value), given) for key, data, value, given in values]

    def statistics(self) -> HandoverStatistics:
        return HandoverStatistics(len(self._values), self._bytes)

    def _note(self, key: str, data: bytes, value: object, is_given: bool) -> None:
        if not isinstance(value, dict | list):
            return  # Nothing else can be changed where it is.
        self._bytes += len(data)
        if self._bytes <= BYTES_MAX and len(self._values) < VALUES_MAX:
            self._values.append((key, data, value, is_given))


def _bytes(value: object) -> bytes | None:
    try:
        return canonical(value)
    except StateError:
        return None
