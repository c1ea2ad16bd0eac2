"""The agent that is a program: a command under the run's shim, its output as the result."""

from __future__ import annotations

import signal
from typing import Final

from headway.core.values import Fault, FaultKind
from headway.runtime.shell import (
    Command,
    Ended,
    OutputTooLongError,
    Shim,
    ShimGoneError,
)
from headway.runtime.work import AttemptClock, AttemptError, Result

DETAIL_BYTES_MAX: Final = 2_000
DETAIL_LINES_MAX: Final = 5
"""Of what a failed command said: enough to see why, little enough to read in a table."""


async def perform_command(
    shim: Shim, command: Command, clock: AttemptClock | None = None
) -> Result:
    """Execute one attempt; raises AttemptError if it does not end with 0."""
    try:
        ended = await shim.run(command, clock)
    except ShimGoneError as gone:
        raise AttemptError(Fault("broken", detail=str(gone)), is_in_doubt=True) from None
    return judged(ended)


def judged(ended: Ended) -> Result:
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


def detail_of(ended: Ended) -> str:
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


def _last_lines(ended: Ended) -> str:
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
