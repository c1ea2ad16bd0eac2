"""A word to the process that performs a run: signals, because it listens to nothing else."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Final

from headway.runtime.journal_reader import JournalReader
from headway.runtime.owner import look

SIGNALS: Final = {
    "stop": signal.SIGINT,
    "end": signal.SIGTERM,
    "pause": signal.SIGUSR1,
    "continue": signal.SIGUSR2,
}
"""What each word is for the owner of a run."""

WORDS: Final = {
    "stop": "stopping {run}: nothing more starts; process {pid} ends when what has started has",
    "end": "stopping {run} now: process {pid} ends what has started; what is finished is kept",
    "pause": "pausing {run}: process {pid} starts nothing more; go on with `headway resume {run}`",
    "continue": "{run} goes on in process {pid}",
}


@dataclass(frozen=True, slots=True)
class Told:
    """Whether somebody was there to be told."""

    was_told: bool
    pid: int | None
    words: str


def tell(reader: JournalReader, run: str, word: str) -> Told:
    """Tell the owner of a run; the word is one of `SIGNALS`."""
    owner = look(reader.folder)
    if owner is None or not owner.is_alive:
        return _nobody(run, word)
    if not _heeds(owner.pid, SIGNALS[word]):
        return Told(
            False, owner.pid,
            f"process {owner.pid} performs {run} but does not listen: only runs that were started "
            "by a command do",
        )  # fmt: skip
    try:
        os.kill(owner.pid, SIGNALS[word])
    except ProcessLookupError:
        # It ended between the look and the word.
        return _nobody(run, word)
    except PermissionError:
        return Told(False, owner.pid, f"process {owner.pid} of {run} belongs to somebody else")
    return Told(True, owner.pid, WORDS[word].format(run=run, pid=owner.pid))


def _heeds(pid: int, number: signal.Signals) -> bool:
    """Whether a process handles a signal that would end it otherwise; believed where unknown."""
    if number in (signal.SIGINT, signal.SIGTERM):
        return True
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            lines = dict(line.split(":", 1) for line in file)
        return bool(int(lines["SigCgt"], 16) >> (number - 1) & 1)
    except (OSError, KeyError, ValueError):
        return True


def _nobody(run: str, word: str) -> Told:
    what = "to stop" if word in ("stop", "end") else f"to {word}"
    return Told(False, None, f"{run} is not running: nothing {what}. See `headway status {run}`")
