"""What the agents of a run have told and taken, a line for each attempt: for people and reports.

The journal has what counts, this file what else there is to know: a line that is lost changes no
result.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from typing import Final, Literal

from headway.runtime.agents.cli.homes import lines_in

NAME: Final = "agents.jsonl"

How = Literal["first", "session", "replay", "start", "taken"]
"""How an attempt began: for the first time; in the session of the one before; from the start, its
calls answered from a recording as far as they are the same; from the start; or its answer was
there already."""

WORDS: Final[dict[How, str]] = {
    "first": "began",
    "session": "went on in its own session",
    "replay": "began again, its recorded calls replayed",
    "start": "began again from the start",
    "taken": "had answered already",
}
"""What an attempt did, for people."""

COMING: Final[dict[How, str]] = {
    "first": "begins",
    "session": "goes on in its own session",
    "replay": "begins again; its recorded calls are replayed while they are the same",
    "start": "begins again from the start",
    "taken": "has answered already",
}
"""What an attempt will do."""


@dataclass(frozen=True, slots=True)
class Account:
    """One attempt of one task."""

    task: str
    key: str
    """The task's content key, in hexadecimal digits."""
    attempt: int
    agent: str
    how: How
    session: str
    turns: int
    tools: dict[str, int]
    input_tokens: int
    output_tokens: int
    microusd: int
    """What the agent's own output says, for this attempt."""
    metered_calls: int | None = None
    metered_input_tokens: int = 0
    metered_output_tokens: int = 0
    metered_microusd: int = 0
    """What the gateway saw of it, and of earlier attempts that did not live to tell: the truth,
    where it saw anything."""
    replayed: int = 0
    """Calls that were answered from a recording, free of charge."""
    calls_before: int = 0
    """Calls of the attempts before, in the same session or with the same prompt."""
    calls_again: int = 0
    """Of those, the ones that had to be paid a second time: their answers, or what came of
    them, were lost. One that was in flight counts as paid."""
    is_done: bool = True
    number: int = 1
    """Which of the sessions of its home it was."""
    denied: dict[str, int] = field(default_factory=dict)
    """Tools that it was refused for want of permission, and how often."""
    metered_unpriced: int = 0
    """Of the calls that the gateway saw, those whose price is unknown."""

    @property
    def refusal(self) -> str:
        """`fix was not allowed to use Bash (1). Allow it in your settings of claude, or ...`."""
        tools = ", ".join(f"{name} ({times})" for name, times in self.denied.items())
        return (
            f"{self.task} was not allowed to use {tools}. Allow it in your settings of "
            f"{self.agent}, or raise `permissions`; a rule that denies it stays in force"
        )

    @property
    def words(self) -> str:
        """`fix[3] went on in its own session (claude): 1 of 4 calls paid twice`."""
        line = f"{self.task} {WORDS[self.how]} ({self.agent})"
        if self.calls_before:
            line += f": {self.calls_again} of {self.calls_before} calls paid twice"
        return line


def add_account(run_folder: str, account: Account) -> None:
    """Add a line. What cannot be written is not worth an attempt."""
    data = (json.dumps(asdict(account)) + "\n").encode("utf-8", "replace")
    with suppress(OSError):
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        handle = os.open(os.path.join(run_folder, NAME), flags, 0o600)
        try:
            os.write(handle, data)
        finally:
            os.close(handle)


def accounts_of(run_folder: str) -> Iterator[Account]:
    """Every attempt that was told, in order."""
    names = {one.name for one in fields(Account)}
    for line in lines_in(os.path.join(run_folder, NAME)):
        with suppress(TypeError):
            yield Account(**{key: value for key, value in line.items() if key in names})  # type: ignore[arg-type]


def paid_twice(accounts: list[Account]) -> str:
    """`calls paid twice: 3 of 41`, over all attempts that were gone on with; empty if none was."""
    again = [one for one in accounts if one.how != "first"]
    if not again:
        return ""
    twice, before = sum(one.calls_again for one in again), sum(one.calls_before for one in again)
    return f"calls paid twice: {twice} of {before} that interrupted agents had made"
