"""Performs effects on the world: intent durable before, receipt after.

Laws:
- Nothing is performed before it is durable that it may have happened; the next effect of a channel
  begins when it is durable that the one before has happened.
- The performer is given the payload and a key that is the same every time. What it raises, a
  non-zero exit or a timeout stops its channel, and nothing else.
- `drained` returns when nothing is being performed and nothing more will be.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from tempfile import TemporaryFile, gettempdir
from typing import IO, Final

from headway.base.crash import crash_point
from headway.base.digest import digest
from headway.engine.effects import Asker, Due, Outgoing
from headway.engine.record import EffectDone, EffectIntended, JournalEntry
from headway.errors import EffectFailedError, HeadwayError, StateError
from headway.journal.file import FULL, full_words
from headway.journal.journal import Record
from headway.state.shared import Act, Channels, canonical

# A user's function, whatever it raises.


def called(function: Callable[..., object], *arguments: object) -> object:
    """What it gives; RuntimeError in place of a StopIteration, as coroutines have it."""
    try:
        return function(*arguments)
    except StopIteration as error:
        raise RuntimeError("it raised StopIteration: `next` of what was empty?") from error


def is_cancelled() -> bool:
    """Whether this task is cancelled from outside."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


# Who performs the effects of a channel: a Python function, or a shell command.

KEY_VARIABLE: Final = "HEADWAY_EFFECT_KEY"
SAID_CHARS_MAX: Final = 300

Send = Callable[[bytes, str], Awaitable[bytes]]
"""Performs an effect, given its payload as JSON and its key; gives the receipt."""
Function = Callable[[object, str], object]
"""A user's `send(payload, key)`, asynchronous or not; what it gives is the receipt."""


def senders(
    channels: Channels,
    functions: Mapping[str, Function],
    load: Callable[[str], Function],
    folder: str | None = None,
) -> Callable[[str], Send | None]:
    """Who performs the effects of each channel that a plan declares.

    `functions` are those that a program brought along, by target; others are loaded as
    module:name, or are shell commands that run in the folder.
    """
    made: dict[str, Send] = {}

    def find(channel: str) -> Send | None:
        declared = channels.of(channel)
        if declared.kind != "effect":
            return None
        target = declared.target
        if target not in made:
            function = functions.get(target)
            if function is None and is_function(target):
                function = load(target)
            made[target] = by_command(target, folder) if function is None else by_function(function)
        return made[target]

    return find


def is_function(target: str) -> bool:
    """Whether it is written as module:name; everything else is a shell command."""
    module, colon, name = target.partition(":")
    return bool(colon) and name.isidentifier() and all(map(str.isidentifier, module.split(".")))


def by_function(function: Function) -> Send:
    async def send(payload: bytes, key: str) -> bytes:
        given = json.loads(payload)
        if iscoroutinefunction(function):
            return _receipt(await function(given, key))
        answer = await _in_thread(partial(function, given, key))
        return _receipt(await answer if isawaitable(answer) else answer)

    return send


def by_command(command: str, folder: str | None = None) -> Send:
    from headway.plans.shell import SHELL

    async def send(payload: bytes, key: str) -> bytes:
        pipe = asyncio.subprocess.PIPE
        with _filed(payload) as source:
            process = await asyncio.create_subprocess_exec(
                SHELL, "-c", command, stdin=source, stdout=pipe, stderr=pipe, cwd=folder,
                env={**os.environ, KEY_VARIABLE: key}, start_new_session=True,
            )  # fmt: skip
        try:
            stdout, stderr = await process.communicate()
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        if process.returncode:
            said = " ".join(stderr.decode(errors="replace").split())[-SAID_CHARS_MAX:]
            raise EffectFailedError(f"exit {process.returncode}{said and f': {said}'}")
        return stdout

    return send


def _filed(payload: bytes) -> IO[bytes]:
    try:
        # Unbuffered: a full disk is met here, and not again when the file is closed.
        with TemporaryFile(buffering=0) as source:
            rest = memoryview(payload)
            while rest:
                rest = rest[source.write(rest) :]
            source.seek(0)
            return open(os.dup(source.fileno()), "rb")
    except OSError as fault:
        if fault.errno not in FULL:
            raise
        raise EffectFailedError(full_words(gettempdir(), len(payload))) from None


def _receipt(answer: object) -> bytes:
    """An answer as bytes; what JSON cannot say is kept as Python shows it."""
    if answer is None:
        return b""
    try:
        return canonical(answer)
    except StateError:
        return canonical(repr(answer)[:SAID_CHARS_MAX])


async def _in_thread(function: Callable[[], object]) -> object:
    """Run it in a thread of its own, which does not hold up the exit: it may hang for ever."""
    future: Future[object] = Future()
    future.set_running_or_notify_cancel()

    def work() -> None:
        try:
            future.set_result(called(function))
        except BaseException as error:
            # The boundary: it is raised where the answer is awaited.
            is_error = isinstance(error, Exception)
            future.set_exception(error if is_error else RuntimeError(repr(error)))

    target = copy_context().run
    threading.Thread(target=target, args=(work,), name="headway-effect", daemon=True).start()
    return await asyncio.wrap_future(future)


TIMEOUT_S: Final = 300.0
"""How long one effect may take: a receiver that is silent for longer is not there."""
RECEIPT_BYTES_MAX: Final = 1024 * 1024
"""The most of an answer that is kept: a receipt is for people who look for what happened."""


class Outbox:
    """Performs the effects of one run, on the event loop on which it is made."""

    def __init__(
        self, run: str, find: Callable[[str], Send | None], record: Record,
        clock: Callable[[], float], timeout_s: float = TIMEOUT_S,
    ) -> None:  # fmt: skip
        """`find` gives who performs the effects of a channel; the `get` of a dict will do."""
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._find = find
        self._record = record
        self._clock = clock
        self._timeout_s = timeout_s
        self._outgoing = Outgoing(run)
        self.known = self._outgoing.known
        """Effects that are durably done or in doubt; `apply` takes those of earlier processes."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_halted = False

    def release(self, task: int, key: bytes, name: str, acts: tuple[Act, ...]) -> None:
        """A task of this content key is committed: perform what it asked for, in its turn."""
        self._outgoing.ask(Asker(task, key, name), acts)
        self._go()

    def now(self, asker: Asker, ordinal: int, act: Act) -> bytes:
        """Perform an effect at once, whatever becomes of its attempt; gives its receipt.

        For any thread but that of the loop: it is done when this returns.
        """
        if threading.get_ident() == self._thread:
            raise StateError(
                f"`ctx.now` of `{act.channel}` would hold up every other task",
                hint=f'await asyncio.to_thread(ctx.now, "{act.channel}", ...)',
            )
        performed = self.perform(self._outgoing.at_once(asker, ordinal, act))
        return asyncio.run_coroutine_threadsafe(performed, self._loop).result()

    def failures(self) -> list[str]:
        """For each stopped channel, a line about the effect that stopped it."""
        lines: list[str] = []
        for channel, (due, why) in self._outgoing.failures.items():
            behind = sum(one.channel == channel for one in self._outgoing.left()) - 1
            more = f"; {behind} more wait behind it" if behind else ""
            lines.append(f"effect {channel} of {due.asker.name}, key {due.key}: {why}{more}")
        return lines

    def halt(self) -> None:
        """Begin nothing more; what is being performed ends by itself."""
        self._is_halted = True

    def end_now(self) -> None:
        """Cancel what is being performed: it is in doubt from now on."""
        self._is_halted = True
        for task in self._tasks:
            task.cancel()

    async def drained(self) -> int:
        """Wait until nothing is performed and nothing more will be; how many effects are left."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        return len(self._outgoing.left())

    async def aclose(self) -> None:
        self.end_now()
        await self.drained()

    async def perform(self, due: Due) -> bytes:
        try:
            send = self._find(due.channel)
        except HeadwayError as error:
            raise EffectFailedError(error.message) from error
        if send is None:
            raise EffectFailedError(f"`{due.channel}` is no effect channel")
        await self._written(due, due.intended(self._clock()))
        crash_point("intended")
        receipt = await self._sent(due, send)
        crash_point("performed")
        name = digest(receipt) if receipt else b""
        bodies = ((name, receipt),) if receipt else ()
        await self._written(due, due.done(self._clock(), name), bodies)
        crash_point("receipted")
        return receipt

    async def _sent(self, due: Due, send: Send) -> bytes:
        try:
            async with asyncio.timeout(self._timeout_s) as limit:
                return (await send(due.data, due.key))[:RECEIPT_BYTES_MAX]
        except EffectFailedError:
            raise
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            raise EffectFailedError("it was cancelled from inside") from None
        except (Exception, SystemExit) as error:
            # The boundary: what a user's function raises stops its channel, not the run.
            why = f"{type(error).__name__}: {error}"
            if limit.expired():
                why = f"it took more than {self._timeout_s:g} s"
            raise EffectFailedError(why) from error

    async def _written(
        self,
        due: Due,
        fact: EffectIntended | EffectDone,
        bodies: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._record.write(
            (JournalEntry(fact, due.asker.key, None, bodies),), partial(fulfil, durable)
        )
        await durable
        self.known.apply(due.asker.key, fact)

    def _go(self) -> None:
        if self._is_halted:
            return
        for due in self._outgoing.take():
            task = self._loop.create_task(self._perform(due))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _perform(self, due: Due) -> None:
        try:
            await self.perform(due)
        except EffectFailedError as error:
            self._outgoing.failed(due, str(error))
        else:
            self._outgoing.ended(due)
        self._go()


def fulfil(durable: asyncio.Future[None]) -> None:
    if not durable.done():
        durable.set_result(None)
