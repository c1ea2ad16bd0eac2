"""Performs effects on the world: intent durable before, receipt after, each channel in order.

Laws:
- Nothing is performed before it is durable that it may have happened; the next effect of a channel
  begins when it is durable that the one before has happened.
- Whoever performs is given the payload and a key that is the same every time. What it raises, a
  non-zero exit or a timeout stops its channel, and nothing else.
- `drained` returns when nothing is being performed and nothing more will be.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from headway.core.digest import digest
from headway.core.engine.access import Act
from headway.core.engine.effects import Asker, Due, Known, KnownStatistics, Outgoing
from headway.core.engine.record import EffectDone, EffectIntended, Entry, Fact
from headway.errors import EffectFailedError, HeadwayError, StateError
from headway.runtime.crash import crash_point
from headway.runtime.keeping import Record
from headway.runtime.senders import Send

TIMEOUT_S: Final = 300.0
"""How long one effect may take: a receiver that is silent for longer is not there."""
RECEIPT_BYTES_MAX: Final = 1024 * 1024
"""The most of an answer that is kept: a receipt is for people who look for what happened."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An effect that stopped its channel."""

    channel: str
    task: str
    key: str
    why: str
    left: int
    """Effects of the channel that were not performed, this one included."""

    @property
    def words(self) -> str:
        """One line for people."""
        more = f"; {self.left - 1} more wait behind it" if self.left > 1 else ""
        return f"effect {self.channel} of {self.task}, key {self.key}: {self.why}{more}"


@dataclass(frozen=True, slots=True)
class OutboxStatistics:
    """Effects that happened, that may have, that are left; those that waited for no commit."""

    done: int
    in_doubt: int
    left: int
    now: int


class Recorded(Protocol):
    """A fact with the content key of its task, as a journal gives it back."""

    @property
    def key(self) -> bytes:
        """Of the task."""

    @property
    def event(self) -> Fact:
        """The fact."""


class Performer:
    """Performs one effect after another, and writes down that it does and that it did."""

    __slots__ = ("_clock", "_find", "_known", "_record", "_timeout_s")

    def __init__(
        self, find: Callable[[str], Send | None], record: Record, clock: Callable[[], float],
        timeout_s: float, known: Known,
    ) -> None:  # fmt: skip
        self._find = find
        self._record = record
        self._clock = clock
        self._timeout_s = timeout_s
        self._known = known
        """Is told what is durable."""

    def __repr__(self) -> str:
        return f"<Performer, {self._known!r}>"

    def statistics(self) -> KnownStatistics:
        return self._known.statistics()

    async def perform(self, due: Due) -> bytes:
        """Intent, effect, receipt: the receipt."""
        send = self._sender(due.channel)
        await self._written(due, due.intended(self._clock()))
        crash_point("intended")
        receipt = await self._sent(due, send)
        crash_point("performed")
        name = digest(receipt) if receipt else b""
        bodies = (receipt,) if receipt else ()
        await self._written(due, due.done(self._clock(), name), bodies)
        crash_point("receipted")
        return receipt

    def _sender(self, channel: str) -> Send:
        try:
            send = self._find(channel)
        except HeadwayError as error:
            raise EffectFailedError(error.message) from error
        if send is None:
            raise EffectFailedError(f"nobody performs `{channel}`: it is no effect channel")
        return send

    async def _sent(self, due: Due, send: Send) -> bytes:
        try:
            async with asyncio.timeout(self._timeout_s) as limit:
                return (await send(due.data, due.key))[:RECEIPT_BYTES_MAX]
        except EffectFailedError:
            raise
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            raise EffectFailedError("it was cancelled from inside") from None
        except (Exception, SystemExit) as error:
            # The boundary: what a user's function raises stops its channel, not the run.
            why = f"{type(error).__name__}: {error}"
            if limit.expired():
                why = f"it took more than {self._timeout_s:g} s"
            raise EffectFailedError(why) from error

    async def _written(
        self, due: Due, fact: EffectIntended | EffectDone, bodies: tuple[bytes, ...] = ()
    ) -> None:
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._record.write((Entry(fact, due.asker.key, None, bodies),), partial(_fulfil, durable))
        await durable
        self._known.apply(due.asker.key, fact)


class Outbox:
    """Performs the effects of one run, on the event loop on which it is made."""

    def __init__(
        self, run: str, find: Callable[[str], Send | None], record: Record,
        clock: Callable[[], float], timeout_s: float = TIMEOUT_S,
    ) -> None:  # fmt: skip
        """`find` gives who performs the effects of a channel; the `get` of a dict will do."""
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._outgoing = Outgoing(run)
        self._performer = Performer(find, record, clock, timeout_s, self._outgoing.known)
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_halted = False

    def __repr__(self) -> str:
        return f"<Outbox {self.statistics()}>"

    def statistics(self) -> OutboxStatistics:
        known, left = self._outgoing.known.statistics(), len(self._outgoing.left())
        return OutboxStatistics(known.done, known.in_doubt, left, known.now)

    @property
    def known(self) -> Known:
        """What happened, and what may have."""
        return self._outgoing.known

    def recall(self, recorded: Iterable[Recorded]) -> None:
        """What earlier processes have written down; before anything is released."""
        for one in recorded:
            self._outgoing.known.apply(one.key, one.event)

    def release(self, task: int, key: bytes, name: str, acts: tuple[Act, ...]) -> None:
        """A task of this content key is committed: perform what it asked for, in its turn."""
        self._outgoing.ask(Asker(task, key, name), acts)
        self._go()

    async def perform_now(self, asker: Asker, ordinal: int, act: Act) -> bytes:
        """Perform it at once, whatever becomes of its attempt; its receipt."""
        return await self._performer.perform(self._outgoing.at_once(asker, ordinal, act))

    def now(self, asker: Asker, ordinal: int, act: Act) -> bytes:
        """The same, for any thread but that of the loop: it is done when this returns."""
        if threading.get_ident() == self._thread:
            raise StateError(
                f"`ctx.now` of `{act.channel}` would hold up every other task",
                hint=f'await asyncio.to_thread(ctx.now, "{act.channel}", ...)',
            )
        due = self.perform_now(asker, ordinal, act)
        return asyncio.run_coroutine_threadsafe(due, self._loop).result()

    def failures(self) -> tuple[Failure, ...]:
        """What stopped channels."""
        left = self._outgoing.left()
        return tuple(
            Failure(
                channel, due.asker.name, due.key, why, sum(one.channel == channel for one in left)
            )
            for channel, (due, why) in self._outgoing.failures.items()
        )

    def halt(self) -> None:
        """Begin nothing more; what is being performed ends by itself."""
        self._is_halted = True

    def end_now(self) -> None:
        """Wait for nobody any more: what is being performed is in doubt from now on."""
        self._is_halted = True
        for task in self._tasks:
            task.cancel()

    async def drained(self) -> int:
        """Wait until nothing is performed and nothing more will be; how many effects are left."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        return len(self._outgoing.left())

    async def aclose(self) -> None:
        """Nothing is performed any more when this returns."""
        self.end_now()
        await self.drained()

    def _go(self) -> None:
        if self._is_halted:
            return
        for due in self._outgoing.take():
            task = self._loop.create_task(self._perform(due))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _perform(self, due: Due) -> None:
        try:
            await self._performer.perform(due)
        except EffectFailedError as error:
            self._outgoing.failed(due, str(error))
        else:
            self._outgoing.ended(due)
        self._go()


def _fulfil(durable: asyncio.Future[None]) -> None:
    if not durable.done():
        durable.set_result(None)


def _is_cancelled() -> bool:
    """Whether somebody outside wants what runs here to end."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
