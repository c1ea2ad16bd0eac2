"""Commands that ended while nobody was there to journal it: their shim wrote it down.

Laws:
- A command is known to the shim by its task's content key and what the task was given: so its end
  is never taken for another one's.
- A good end is taken whenever it is found. A bad one only if the journal does not know of it: it
  was counted, and what follows is another try.
- An end whose output is not there any more, or not all of it, is executed again.
- What the shim itself ended, because headway was gone, is no end: it is executed again.
"""

from __future__ import annotations

from dataclasses import dataclass

from headway.core.digest import digest
from headway.runtime.shell import Ended, read_shim_log
from headway.runtime.work import Attempt


def shim_key(attempt: Attempt) -> bytes:
    """What a command is known by."""
    return shim_name(attempt.key, attempt.inputs)


def shim_name(key: bytes, inputs: bytes) -> bytes:
    """The same for who has the task's key, and the digest of what it was given."""
    return digest(key + inputs)


@dataclass(frozen=True, slots=True)
class AdoptedStatistics:
    """How many ends nobody has asked for."""

    left: int


class Adopted:
    """The ends in a run's shim log when this process took the run over."""

    def __init__(self, folder: str) -> None:
        self._ends: dict[bytes, list[Ended]] = {}
        for (key, _), ended in sorted(read_shim_log(folder).items(), key=lambda named: named[0][1]):
            if ended.reason in ("exit", "timeout"):
                self._ends.setdefault(key, []).append(ended)

    def __repr__(self) -> str:
        return f"<Adopted {len(self._ends)} ends>"

    def statistics(self) -> AdoptedStatistics:
        return AdoptedStatistics(len(self._ends))

    def take(self, attempt: Attempt) -> Ended | None:
        """The end that this attempt would come to, if an earlier one came to it."""
        if not self._ends:
            return None
        for ended in reversed(self._ends.pop(shim_key(attempt), [])):
            is_known = ended.code != 0 and ended.attempt <= attempt.journalled
            if not is_known and ended.stdout.is_there and ended.stderr.is_there:
                return ended
        return None
