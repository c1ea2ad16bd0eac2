"""Runs a gateway until somebody ends it, or for as long as one command lasts.

Laws:
- One signal drains: no new calls, those that were sent may end, those that wait are told to come
  again. A second one ends it now.
- A command under a gateway of its own gets every signal that its gateway gets, and its exit code
  is the gateway's. One that is there `END_S` after a signal that ends is killed, with all that it
  started.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

from headway.errors import BadValueError
from headway.gateway import daemon
from headway.gateway.books import Sums
from headway.gateway.keys import Keyring
from headway.gateway.ledger import Ledger
from headway.gateway.recorded import doubts_of
from headway.gateway.settings import PORT_DEFAULT, GatewaySettings
from headway.interrupts import END_S
from headway.runtime import kin
from headway.runtime.folders import Folders

if TYPE_CHECKING:
    from headway.gateway.server import Gateway

LINE_S: Final = 60.0
"""How often the log gets a line, if anything happened."""

NOT_FOUND: Final = 127
NOT_EXECUTABLE: Final = 126
NOT_STARTED: Final = (NOT_FOUND, NOT_EXECUTABLE)
SIGNALLED: Final = 128

PASSED_ON: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
ENDING: Final = (signal.SIGTERM, signal.SIGHUP)

Result = TypeVar("Result")
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Front:
    """How a gateway is run for a user."""

    settings: GatewaySettings
    place: Folders
    say: Say
    """One line for whoever looks at stderr or the log."""
    drain_s: float
    is_port_asked: bool = False
    """The port was asked for by number: no other will do."""


def run(main: Coroutine[None, None, Result]) -> Result:
    """Perform it in a loop of its own, on uvloop where there is one."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None
    try:
        import uvloop

        factory = uvloop.new_event_loop
    except ImportError:
        factory = None
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)


async def serve(front: Front, announce: Callable[[daemon.Running], None]) -> None:
    """Be the user's gateway until a signal comes. Only within `daemon.claimed`."""
    keys = Keyring()
    token = daemon.kept_token(front.place)
    keys.issue("default", token=token)
    gateway = await _listening(front, keys)
    try:
        over = _signalled()
        upstreams = front.settings.upstreams
        running = daemon.Running(
            os.getpid(), gateway.url, token, time.time(),
            {name: f"{one.url}{one.version}" for name, one in upstreams.items()},
            tuple(name for name, one in upstreams.items() if one.key), front.drain_s,
        )  # fmt: skip
        daemon.publish(front.place, running)
        announce(running)
        for notice in doubts_of(front.settings.replay, front.settings.home):
            front.say(notice)
        telling = asyncio.create_task(_tell(gateway.ledger, front.say))
        await over.get()
        telling.cancel()
        await _drain(gateway, front, over)
    finally:
        await gateway.stop(0.0)
        for notice in gateway.notices:
            front.say(notice)


async def accompany(
    front: Front, command: Sequence[str], variables: Callable[[str, str], Mapping[str, str]]
) -> int:
    """Run a command under a gateway of its own; `variables` are told its URL and token."""
    from headway.gateway.server import Gateway

    keys = Keyring()
    key = keys.issue("default")
    gateway = Gateway(front.settings, keys)
    await gateway.start()
    for notice in doubts_of(front.settings.replay, front.settings.home):
        front.say(notice)
    try:
        code = await perform(command, variables(gateway.url, key.token))
        await gateway.stop(0.0)
        if code not in NOT_STARTED:
            front.say(last_line(command[0], gateway.ledger.came))
        return code
    finally:
        await gateway.stop(0.0)
        for notice in gateway.notices:
            front.say(notice)


def last_line(program: str, total: Sums | None) -> str:
    """What came by while a program ran; a warning if no call did."""
    if total is None:
        return (
            f"WARNING: no call came by the gateway while {program} ran; if it called a model, it "
            "was not paced. Give its client the base URL that `headway gateway env` shows"
        )
    read = total.input_tokens + total.cache_read_tokens
    parts = [
        f"{total.calls:,} call{'s' * (total.calls != 1)}",
        f"{total.held:,} held",
        f"{total.refusals_absorbed:,} absorbed",
        f"{read:,.0f} tokens in, {total.output_tokens:,.0f} out",
    ]
    parts += [f"{total.replayed:,} replayed"] * bool(total.replayed)
    parts += [f"{total.failed:,} failed"] * bool(total.failed)
    return ", ".join(parts)


async def perform(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a command to its end with these variables; its exit code."""
    loop = asyncio.get_running_loop()
    children: list[asyncio.subprocess.Process] = []
    passed: list[signal.Signals] = []

    def pass_on(number: signal.Signals) -> None:
        if number in ENDING or (number == signal.SIGINT and number in passed):
            loop.call_later(END_S, kill)
        passed.append(number)
        for child in children:
            with suppress(ProcessLookupError):
                child.send_signal(number)

    def interrupted() -> None:
        # A terminal interrupts all that it runs, this process and the command alike.
        if not _is_at_terminal():
            pass_on(signal.SIGINT)

    def kill() -> None:
        for child in children:
            if child.returncode is None:
                kin.send(0, kin.family(child.pid), signal.SIGKILL)
                with suppress(ProcessLookupError):
                    child.kill()

    loop.add_signal_handler(signal.SIGINT, interrupted)
    for number in PASSED_ON:
        loop.add_signal_handler(number, pass_on, number)
    try:
        children.append(await asyncio.create_subprocess_exec(*command, env=dict(environ)))
        code = await children[0].wait()
    except FileNotFoundError:
        return _cannot(command[0], "not found", NOT_FOUND)
    except OSError as fault:
        return _cannot(command[0], str(fault.strerror), NOT_EXECUTABLE)
    finally:
        for number in (signal.SIGINT, *PASSED_ON):
            loop.remove_signal_handler(number)
    return code if code >= 0 else SIGNALLED - code


def _cannot(name: str, why: str, code: int) -> int:
    print(f"headway gateway: {name}: {why}", file=sys.stderr)
    return code


async def _listening(front: Front, keys: Keyring) -> Gateway:
    """A gateway at the port that it always has; at any other if that is taken and nobody minds."""
    from headway.gateway.server import Gateway

    gateway = Gateway(front.settings, keys)
    try:
        await gateway.start()
    except BadValueError:
        await gateway.stop(0.0)
        if front.is_port_asked or front.settings.port != PORT_DEFAULT:
            raise
        front.say(
            f"port {PORT_DEFAULT} is taken by another program: listening at any other; addresses "
            "that were given out lead to that program until this gateway has its port again"
        )
        gateway = Gateway(replace(front.settings, port=0), keys)
        await gateway.start()
    return gateway


def _signalled() -> asyncio.Queue[int]:
    """Gets one entry for each time that somebody asks for the end."""
    asked: asyncio.Queue[int] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, asked.put_nowait, int(number))
    return asked


async def _drain(gateway: Gateway, front: Front, over: asyncio.Queue[int]) -> None:
    told = gateway.ledger.statistics()
    if told.in_flight:
        front.say(
            f"draining {told.in_flight} calls in flight for up to {front.drain_s:g} s; "
            "a second signal ends them now"
        )
    stopping = asyncio.create_task(gateway.stop(front.drain_s))
    again = asyncio.create_task(over.get())
    await asyncio.wait((stopping, again), return_when=asyncio.FIRST_COMPLETED)
    again.cancel()
    if not stopping.done():
        stopping.cancel()
        with suppress(asyncio.CancelledError):
            await stopping


async def _tell(ledger: Ledger, say: Say) -> None:
    """A line for each minute in which something happened."""
    before = ledger.counts()
    while True:
        await asyncio.sleep(LINE_S)
        now = ledger.counts()
        line = minute_line(before, now, ledger)
        if line:
            say(line)
        before = now


def minute_line(before: Mapping[str, int], now: Mapping[str, int], ledger: Ledger) -> str:
    """What a minute brought; nothing if it brought nothing."""
    fresh = {name: now[name] - before.get(name, 0) for name in now}
    told = ledger.statistics()
    if not any(fresh.values()) and not told.held and not told.in_flight:
        return ""
    parts = [f"{fresh.pop('calls', 0)} calls ended", f"{told.in_flight} in flight",
             f"{told.held} held"]  # fmt: skip
    parts += [f"{count} {name}" for name, count in fresh.items() if count]
    return ", ".join(parts)


def _is_at_terminal() -> bool:
    """Whether the terminal's interrupts reach this process and its children by themselves."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False
