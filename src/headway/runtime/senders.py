"""Who performs the effects of a channel: a Python function, or a shell command.

Laws:
- A function is given the payload and the key, a command the payload on stdin and the key in its
  environment; what it returns, or writes to stdout, is the receipt.
- The payload is in a file before a command starts: if headway is killed at any moment, the command
  reads all of it or has not started.
- An effect that happened is never called a failure because of what its receipt looks like.
- A command that is not waited for any more is ended with all that it started.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from tempfile import TemporaryFile, gettempdir
from typing import IO, Final

from headway.core.engine.channels import Channels, canonical
from headway.core.plan.shelltext import SHELL
from headway.errors import EffectFailedError, StateError
from headway.runtime.journal_space import FULL, full_words
from headway.runtime.raised import called

KEY_VARIABLE: Final = "HEADWAY_EFFECT_KEY"
SAID_CHARS_MAX: Final = 300
"""Of what a command that failed wrote to stderr."""

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
    """Effects that a Python function performs."""

    async def send(payload: bytes, key: str) -> bytes:
        given = json.loads(payload)
        if iscoroutinefunction(function):
            return _receipt(await function(given, key))
        answer = await _in_thread(partial(function, given, key))
        return _receipt(await answer if isawaitable(answer) else answer)

    return send


def by_command(command: str, folder: str | None = None) -> Send:
    """Effects that a shell command performs."""

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
    """A file without a name that a command reads from its beginning."""
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
    """In a thread of its own, which nobody waits for at exit: it may hang for ever."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[object] = loop.create_future()

    def settle(answer: object, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(answer)
        else:
            future.set_exception(error)

    def work() -> None:
        answer, raised = None, None
        try:
            answer = called(function)
        except BaseException as error:
            # The boundary: it is raised where the answer is awaited.
            raised = error if isinstance(error, Exception) else RuntimeError(repr(error))
        with suppress(RuntimeError):  # The loop is closed: nobody waits any more.
            loop.call_soon_threadsafe(settle, answer, raised)

    threading.Thread(
        target=copy_context().run, args=(work,), name="headway-effect", daemon=True
    ).start()
    return await future
