"""Starts commands through the run's shim.

Law: `run` returns only what is durable, and nothing of a command is left running when it returns
or raises. A shim that was killed is replaced at the next command; what ran under it is in doubt.
"""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, cast

from msgspec import Struct, field

from headway.agents.shim import LAUNCH, pack, unpack
from headway.base.digest import digest
from headway.base.process_tree import HAS_PROC
from headway.base.values import Fault, FaultKind
from headway.journal.shim_log import LOG_NAME, output_path, unsealed
from headway.work import Attempt, AttemptClock, AttemptError, Result

Reason = Literal["exit", "timeout", "stuck", "cancelled", "orphaned", "refused"]
"""By itself; by its timeout; because it did nothing for too long; by us; because headway was gone;
or it could not be started."""

HOME: Final = str(Path(__file__).resolve().parent.parent)
BLEND: Final = 0.1
"""Of the last command in the average of those that ended."""
LOOK: Final = 0
"""The number of a question about all commands; those of commands begin with 1."""
OUTPUT_BYTES_MAX: Final = 64 * 1024 * 1024
"""The most of one output that is taken into memory, and into a journal."""


class ShimGoneError(Exception):
    """The process that commands run under was killed: whether this one finished is unknown."""


class OutputTooLongError(Exception):
    """An output is longer than what can be kept as a result."""


class Command(Struct, frozen=True):
    key: bytes
    """The task's content key: with the attempt's number, the name in `shim.log`."""
    attempt: int
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str | None = None
    stdin: bytes | None = None
    timeout_s: float | None = None
    stuck_s: float | None = None
    """It is ended when it has done nothing for so long; only named as stuck, if there is none."""
    spec: str = ""
    """The file that says in which workspace it runs, or how it is observed; none if empty."""


RunCommand = Callable[[Command], Awaitable["CommandEnded"]]


class Output(Struct, frozen=True):
    """What a command wrote to one of its two streams: at hand if short, in a file if long."""

    size_bytes: int
    text: bytes | None
    path: str

    @property
    def is_there(self) -> bool:
        if self.text is not None:
            return True
        try:
            return os.path.getsize(self.path) >= self.size_bytes
        except OSError:
            return False

    def read(self) -> bytes:
        if self.size_bytes > OUTPUT_BYTES_MAX:
            raise OutputTooLongError(
                f"{self.size_bytes} bytes of output, at most {OUTPUT_BYTES_MAX} are kept; "
                f"they are in {self.path}"
            )
        if self.text is not None:
            return self.text
        with open(self.path, "rb") as file:
            return file.read(self.size_bytes)

    def tail(self, size_bytes: int) -> bytes:
        if self.text is not None:
            return self.text[-size_bytes:]
        with open(self.path, "rb") as file:
            file.seek(max(0, self.size_bytes - size_bytes))
            return file.read(size_bytes)


class CommandEnded(Struct, frozen=True):
    key: bytes
    attempt: int
    reason: Reason
    code: int
    """The exit code; minus the signal's number if it died of one."""
    cpu_us: int
    memory_kb: int
    started_ms: int
    took_ms: int
    stdout: Output
    stderr: Output


class RunningCommand(Struct, frozen=True):
    """What a command does now, with all of its processes."""

    number: int
    clock: AttemptClock
    """Of the attempt that it belongs to."""
    stuck_s: float | None
    age_s: float
    busy: int
    """Processes that run, or wait for a processor or a disk."""
    cpu_s: float
    memory_bytes: int
    output_bytes: int


TICK_S: Final = 1.0 / os.sysconf("SC_CLK_TCK")
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


PerformCommand = Callable[[Command, AttemptClock], Awaitable[CommandEnded]]


class ShimClient:
    """Runs commands under one shim process, which is started with the first of them."""

    def __init__(self, folder: str) -> None:
        """`folder` is the run's: `shim.log` and `out/` are in it. It may be set later, before the
        first command."""
        self.folder = os.path.abspath(folder)
        self._here = os.getcwd()
        self._link: _Link | None = None
        self._started = 0
        self._running: dict[int, tuple[AttemptClock, float | None, float]] = {}
        """By number: the clock of the attempt, `stuck_s`, and when the command was started."""
        self._peak_bytes = 0.0
        self.around: Callable[[RunCommand, Command], Awaitable[CommandEnded]] | None = None
        """What is done around each command: it may be changed, and its end is seen."""

    async def run(self, command: Command, clock: AttemptClock | None = None) -> CommandEnded:
        """Execute it; cancelling ends its processes first. `clock` measures its `timeout_s`."""
        run = partial(self._run, clock=clock)
        return await (run(command) if self.around is None else self.around(run, command))

    async def _run(self, command: Command, clock: AttemptClock | None) -> CommandEnded:
        link = await self._open()
        clock = AttemptClock() if clock is None else clock
        self._started += 1
        number = self._started
        given = command.environment.items()
        what = (
            [os.fsencode(word) for word in command.argv],
            {os.fsencode(name): os.fsencode(value) for name, value in given},
            command.folder if command.folder is not None else self._here,
            command.stdin,
            command.spec,
        )
        message = ("start", number, command.key.hex(), command.attempt, what)
        waiter = link.ask(number, message)
        self._running[number] = clock, command.stuck_s, asyncio.get_running_loop().time()
        try:
            with clock.alarm(command.timeout_s, lambda: link.send(("timeout", number))):
                values = await asyncio.shield(waiter)
        except asyncio.CancelledError:
            link.send(("cancelled", number))
            # A second cancellation does not wait; the shim goes on ending it all the same.
            await asyncio.wait([waiter])
            if not waiter.cancelled():
                waiter.exception()
            raise
        finally:
            del self._running[number]
        ended = _ended(self.folder, command.key, command.attempt, values)
        # A mean of the last ones: commands of one run are of one kind, or of few.
        blend = BLEND if self._peak_bytes else 1.0
        self._peak_bytes += blend * (1024.0 * ended.memory_kb - self._peak_bytes)
        return ended

    def peak_bytes(self) -> float:
        """The most memory that the commands that ended last needed, on average; 0 before that."""
        return self._peak_bytes

    async def look(self) -> list[RunningCommand]:
        """What the commands do that run now; nothing where the system does not tell."""
        if self._link is None or not HAS_PROC or not self._running:
            return []
        try:
            (rows,) = await self._link.ask(LOOK, ("look", LOOK))
        except ShimGoneError:
            return []
        now_s = asyncio.get_running_loop().time()
        return [
            RunningCommand(
                number, *known[:2], now_s - known[2], busy, ticks * TICK_S, pages * PAGE_BYTES, size
            )
            for number, busy, ticks, pages, size in rows
            if (known := self._running.get(number)) is not None
        ]

    def end_stuck(self, number: int) -> None:
        if self._link is not None:
            self._link.send(("stuck", number))

    async def close(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.hang_up()
            await link.gone
            await asyncio.get_running_loop().run_in_executor(None, link.process.wait)

    async def _open(self) -> _Link:
        if self._link is not None and self._link.gone.done():
            await self.close()
        if self._link is None:
            self._link = _Link(self.folder)
            await self._link.connect()
        return self._link


class _Link(asyncio.Protocol):
    def __init__(self, folder: str) -> None:
        self._ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", LAUNCH, str(theirs.fileno()), folder, HOME],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None
        self._waiters: dict[int, asyncio.Future[tuple[Any, ...]]] = {}
        self._unsent: list[bytes] = []
        self._buffer = bytearray()

    async def connect(self) -> None:
        await asyncio.get_running_loop().create_connection(lambda: self, sock=self._ours)

    def ask(self, number: int, message: tuple[Any, ...]) -> asyncio.Future[tuple[Any, ...]]:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters[number] = waiter
        self.send(message)
        return waiter

    def send(self, message: tuple[Any, ...]) -> None:
        data = pack(message)
        if self._transport is None:
            self._unsent.append(data)
        elif not self._transport.is_closing():
            self._transport.write(data)

    def hang_up(self) -> None:
        """Close our half; the shim ends everything, records it, and closes its own."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write_eof()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast and no check: the transports of uvloop are none of asyncio's classes.
        self._transport = cast(asyncio.Transport, transport)
        for data in self._unsent:
            self._transport.write(data)
        self._unsent.clear()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        for message in unpack(self._buffer):
            waiter = self._waiters.pop(message[1], None)
            if waiter is not None and not waiter.done():
                waiter.set_result(message[2:])

    def connection_lost(self, _exc: Exception | None) -> None:
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters.values():
            if not waiter.done():
                waiter.set_exception(ShimGoneError(ShimGoneError.__doc__))
        if not self.gone.done():
            self.gone.set_result(None)


def read_shim_log(
    folder: str, is_wanted: Callable[[bytes, int], bool] | None = None
) -> dict[tuple[bytes, int], CommandEnded]:
    """The commands that ended, by key and attempt; the later record counts, torn ones do not."""
    found = {}
    with suppress(FileNotFoundError), open(os.path.join(folder, LOG_NAME), "rb") as file:
        for line in file:
            if (fields := unsealed(line)) is None:
                continue
            key, attempt = bytes.fromhex(fields[0].decode()), int(fields[1])
            if is_wanted is None or is_wanted(key, attempt):
                texts = [
                    base64.b64decode(text[1:]) if text.startswith(b"=") else None
                    for text in fields[10:12]
                ]
                values = (fields[2].decode(), *map(int, fields[3:10]), *texts)
                found[key, attempt] = _ended(folder, key, attempt, values)
    return found


def _ended(folder: str, key: bytes, attempt: int, values: tuple[Any, ...]) -> CommandEnded:
    reason, code, cpu_us, memory_kb, started_ms, took_ms, *outputs = values
    streams = [
        Output(size, text, output_path(folder, key.hex(), attempt, name))
        for name, size, text in zip(("out", "err"), outputs[:2], outputs[2:], strict=True)
    ]
    return CommandEnded(
        key, attempt, reason, code, cpu_us, memory_kb, started_ms, took_ms, streams[0], streams[1]
    )


# What a command gives as an attempt.


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
"""Of the stderr of a failed command: enough to see why, short enough for a table."""


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
    try:
        body = ended.stdout.read()
    except (OutputTooLongError, OSError) as fault:
        lost = Result(b"", exit_code=shell_code(ended.code))
        raise AttemptError(Fault("command", detail=str(fault)), lost) from None
    result = Result(body, exit_code=shell_code(ended.code))
    if ended.reason == "exit" and ended.code == 0:
        return result
    raise AttemptError(Fault(fault_kind(ended), detail=detail_of(ended)), result)


def fault_kind(ended: CommandEnded) -> FaultKind:
    return ended.reason if ended.reason in ("timeout", "stuck") else "command"


def shell_code(code: int) -> int:
    """An exit code as a shell gives it: 128 and the signal for what died of one."""
    return code if code >= 0 else 128 - code


def how_ended(ended: CommandEnded) -> str:
    if ended.reason in ("timeout", "stuck"):
        why = ", and wrote, called and computed nothing" if ended.reason == "stuck" else ""
        return f"ended after {ended.took_ms / 1000:.1f} s{why}"
    if ended.reason == "refused":
        return "could not be started"
    if ended.reason != "exit":
        return f"{ended.reason} after {ended.took_ms / 1000:.1f} s"
    return f"ended by {_signal_name(-ended.code)}" if ended.code < 0 else f"exit code {ended.code}"


def detail_of(ended: CommandEnded) -> str:
    """How a command ended that did not end well, with its last words."""
    text = ""
    with suppress(OSError):
        text = ended.stderr.tail(DETAIL_BYTES_MAX).decode(errors="replace")
    last = "\n".join(text.rstrip().splitlines()[-DETAIL_LINES_MAX:])
    return f"{how_ended(ended)}: {last}" if last else how_ended(ended)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
