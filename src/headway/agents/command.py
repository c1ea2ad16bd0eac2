"""Runs a command under the run's shim; its output is the task's result."""

from __future__ import annotations

import signal
from typing import Final

from headway.agents.shell import (
    Command,
    CommandEnded,
    OutputTooLongError,
    ShimClient,
    ShimGoneError,
    read_shim_log,
)
from headway.base.digest import digest
from headway.base.values import Fault, FaultKind
from headway.work import Attempt, AttemptClock, AttemptError, Result


def shim_key(attempt: Attempt) -> bytes:
    return shim_name(attempt.key, attempt.inputs)


def shim_name(key: bytes, inputs: bytes) -> bytes:
    """The same, from the task's key and the digest of its inputs."""
    return digest(key + inputs)


class Adopted:
    """Commands that ended without being journalled, from a run's shim log when it is resumed."""

    def __init__(self, folder: str) -> None:
        self._ends: dict[bytes, list[CommandEnded]] = {}
        for (key, _), ended in sorted(read_shim_log(folder).items(), key=lambda named: named[0][1]):
            if ended.reason in ("exit", "timeout"):
                self._ends.setdefault(key, []).append(ended)

    def take(self, attempt: Attempt) -> CommandEnded | None:
        """The end that this attempt would come to, if an earlier one came to it."""
        if not self._ends:
            return None
        for ended in reversed(self._ends.pop(shim_key(attempt), [])):
            is_known = ended.code != 0 and ended.attempt <= attempt.journalled
            if not is_known and ended.stdout.is_there and ended.stderr.is_there:
                return ended
        return None


DETAIL_BYTES_MAX: Final = 2_000
DETAIL_LINES_MAX: Final = 5
"""Of what a failed command said: enough to see why, little enough to read in a table."""


async def perform_command(
    shim: ShimClient, command: Command, clock: AttemptClock | None = None
) -> Result:
    try:
        ended = await shim.run(command, clock)
    except ShimGoneError as gone:
        raise AttemptError(Fault("broken", detail=str(gone)), is_in_doubt=True) from None
    return judged(ended)


def judged(ended: CommandEnded) -> Result:
    """What an attempt gave, or the AttemptError that says why it is lost."""
    kind: FaultKind = "timeout" if ended.reason == "timeout" else "command"
    try:
        body = ended.stdout.read()
    except (OutputTooLongError, OSError) as fault:
        lost = Result(b"", exit_code=shell_code(ended.code))
        raise AttemptError(Fault("command", detail=str(fault)), lost) from None
    result = Result(body, exit_code=shell_code(ended.code))
    if ended.reason == "exit" and ended.code == 0:
        return result
    raise AttemptError(Fault(kind, detail=detail_of(ended)), result)


def shell_code(code: int) -> int:
    """An exit code as a shell gives it: 128 and the signal for what died of one."""
    return code if code >= 0 else 128 - code


def detail_of(ended: CommandEnded) -> str:
    """How a command ended that did not end well, with its last words."""
    said = _last_lines(ended)
    how = f"exit code {ended.code}"
    if ended.reason == "timeout":
        how = f"ended after {ended.took_ms / 1000:.1f} s"
    elif ended.reason == "refused":
        how = "could not be started"
    elif ended.reason != "exit":
        how = f"{ended.reason} after {ended.took_ms / 1000:.1f} s"
    elif ended.code < 0:
        how = f"ended by {_signal_name(-ended.code)}"
    return f"{how}: {said}" if said else how


def _last_lines(ended: CommandEnded) -> str:
    try:
        text = ended.stderr.tail(DETAIL_BYTES_MAX).decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.rstrip().splitlines()[-DETAIL_LINES_MAX:])


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
