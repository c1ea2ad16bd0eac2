"""The shared state in one attempt of a plan's task: in its texts, its result, its command.

Laws:
- What a text or a command is given of the state is what the attempt has read, whatever it does
  with it; nothing else of the state is known to it.
- What a command changed is taken when it has ended well. After a failure nothing is.
- The folder of a command is gone when its attempt is, however that ends.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

from headway.core.engine.channels import Channels
from headway.core.plan.spec import TaskSpec
from headway.core.values import Fault
from headway.errors import HeadwayError, StateError
from headway.runtime.context import Lent, Reach
from headway.runtime.statefolder import StateFolder, UnfitError, seen_by
from headway.runtime.work import TELL_PROMPT, Attempt, AttemptError, Result

EMPTY: Final = {"append": "[]", "set": "[]", "counter": "0"}
"""What channels say before anybody has added to them."""

Anything = TypeVar("Anything")


@dataclass(frozen=True, slots=True)
class Share:
    """What an attempt has of the state."""

    loan: Lent
    """What a function is given of it."""
    channels: Channels
    reads: tuple[str, ...] | None
    """Keys and patterns that its task declares to read; None is everything."""
    output: str = ""
    """The key that its result is put under."""

    @property
    def reach(self) -> Reach:
        return self.loan.reach

    def text(self, key: str) -> str:
        """What `{{ state.KEY }}` stands for, or `{{ state }}` without a key."""
        if not key:
            values = ((name, json.loads(data)) for name, data in seen_by(self.reach, self.reads))
            return json.dumps(dict(values), ensure_ascii=False)
        data = self.reach.get(key)
        if data is None:
            empty = EMPTY.get(self.channels.of(key).kind)
            if empty is None:
                raise StateError(
                    f"`{{{{ state.{key} }}}}` has no value: no task before this one has put one",
                    hint=f"let a task put it first, or use `{{{{ state }}}}` with `reads: "
                    f"state:{key}`, which may be empty",
                )
            return empty
        value = json.loads(data)
        return value if isinstance(value, str) else data.decode()

    def prompted(self, text: str) -> None:
        """A prompt is sent. How often it had to be sent, and what was asked about the answer, is
        not a part of it."""
        TELL_PROMPT.set(None)
        self.reach.prompted(text.encode("utf-8", "replace"))

    def keep(self, value: object, result: Result) -> None:
        """Put a result where the plan wants it, or add it there. Raises AttemptError."""
        try:
            if self.output and self.channels.of(self.output).kind == "value":
                self.reach.put(self.output, value)
            elif self.output:
                self.reach.add(self.output, value)
        except StateError as error:
            raise AttemptError(Fault("unfit", detail=in_a_line(error)), result) from error

    @asynccontextmanager
    async def shown(self, run_folder: str, attempt: Attempt) -> AsyncIterator[View]:
        """The state as a folder, while a command of the attempt runs."""
        folder = StateFolder(run_folder, attempt.key.hex()[:12], self.channels)
        values = seen_by(self.reach, self.reads)
        try:
            told = await in_thread(lambda: folder.lay_out(values))
            yield View(folder, told, self)
        finally:
            await in_thread(folder.remove)


@dataclass(frozen=True, slots=True)
class View:
    """The folder that a command works in."""

    folder: StateFolder
    told: dict[str, str]
    """What the command has to know of it."""
    share: Share

    async def take(self, result: Result) -> None:
        """The command has ended well: what it changed is the attempt's. Raises AttemptError."""
        try:
            changes = await in_thread(self.folder.changes)
            changes.apply_to(self.share.reach, self.share.channels)
        except UnfitError as unfit:
            raise AttemptError(Fault("unfit", detail=str(unfit)), result) from None
        except StateError as error:
            raise AttemptError(Fault("unfit", detail=in_a_line(error)), result) from error


def share_of(task: TaskSpec, loan: Lent, channels: Channels, fill: Callable[[str], str]) -> Share:
    """The share of one member of a task; `fill` gives its texts."""
    reads = task.state_reads
    declared = None if reads is None else tuple(dict.fromkeys(map(fill, reads)))
    return Share(loan, channels, declared, fill(task.output_key) if task.output_key else "")


def in_a_line(error: HeadwayError) -> str:
    """Why a task cannot be performed, as a reason among others."""
    parts = (f"{error.code}: {error.message}", error.where, error.detail, error.hint)
    return "; ".join(part for part in parts if part)


async def in_thread(function: Callable[[], Anything]) -> Anything:
    """Files take their time. Whoever is cancelled meanwhile waits for the end of it."""
    running = asyncio.get_running_loop().run_in_executor(None, function)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        if not running.cancelled():
            running.exception()
        raise
