"""Runs the pure provider in real time: the one place where its clock meets the event loop's.

Laws:
- The provider has always been advanced to the present before a call is submitted or cancelled.
- Whoever waits is woken when its call begins, ends, or has written more; streams are woken
  together, the less often the more there are, so that a thousand of them cost what a hundred do.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future, TimerHandle, get_running_loop
from math import inf
from typing import Final

from headway.core.foresight.provider import (
    Call,
    Ended,
    FirstByte,
    Provider,
    ProviderSpec,
    ProviderStatistics,
    Refused,
)
from headway.core.values import Reading

FLUSH_S: Final = 0.05
"""Streams show what they have written at most this often..."""

FLUSH_PER_STREAM_S: Final = 0.0005
"""...and when there are many, so much later for each: at most 2,000 writes a second in all."""

DELAY_MAX_S: Final = 3600.0
"""The longest timer; the clock is then asked again."""


class Live:
    """A call in service, as whoever answers it sees it."""

    __slots__ = ("_from_work", "_waiter", "call", "ended", "reached", "reading")

    def __init__(self, call: Call) -> None:
        self.call = call
        self.reading: Reading | None = None
        """The limits as of admission; here as soon as the first byte is."""
        self.reached = 0
        """Tokens written so far."""
        self.ended: Ended | None = None
        self._from_work = inf
        self._waiter: Future[None] | None = None

    def __repr__(self) -> str:
        state = "over" if self.ended else f"{self.reached} tokens"
        return f"<Live call {self.call.id}: {state}>"

    async def changed(self) -> None:
        """Wait until there is something new to look at."""
        self._waiter = get_running_loop().create_future()
        await self._waiter

    def begin(self, reading: Reading, work: float) -> None:
        self.reading, self._from_work = reading, work
        self._wake()

    def end(self, ended: Ended) -> None:
        self.ended, self.reached = ended, int(ended.output_tokens)
        self._wake()

    def reach(self, work: float, pace: float) -> None:
        """Adopt what has been written by now."""
        if self.reading is None:
            return
        written = int(min(self.call.output_tokens, (work - self._from_work) / pace + 1e-6))
        if written > self.reached:
            self.reached = written
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Clockwork:
    """One provider on the clock of the running event loop; its time 0 is when this was made."""

    __slots__ = (
        "_armed_s", "_crowds", "_flush_s", "_keys", "_lives", "_loop", "_streams",
        "_timer", "_work", "_work_s", "_zero_s", "crowds_max", "provider",
    )  # fmt: skip

    def __init__(self, spec: ProviderSpec, seed: int) -> None:
        self._loop: AbstractEventLoop = get_running_loop()
        self._zero_s = self._loop.time()
        self.provider = Provider(spec, seed)
        """For whoever reads its accounts; calls go through this clockwork only."""
        self._lives: dict[int, Live] = {}
        self._keys: dict[int, str] = {}
        self._streams: dict[Live, None] = {}
        """In the order in which they began: so the same calls wake in the same order every time."""
        self._crowds: dict[str, int] = {}
        self.crowds_max: dict[str, int] = {}
        """The most calls of each account that were in service at once."""
        self._timer: TimerHandle | None = None
        self._armed_s = inf
        self._flush_s = inf
        self._work = self._work_s = 0.0

    def __repr__(self) -> str:
        return f"<Clockwork {self.provider!r}>"

    def now(self) -> float:
        """Seconds since the start."""
        return self._loop.time() - self._zero_s

    def submit(self, call: Call, key: str, streams: bool) -> Live | Refused:
        """Accept or refuse a call now."""
        now = self.now()
        self._advance(now)
        verdict = self.provider.submit(call, now, key)
        if isinstance(verdict, Refused):
            return verdict
        live = self._lives[call.id] = Live(call)
        self._keys[call.id] = key
        crowd = self._crowds[key] = self._crowds.get(key, 0) + 1
        self.crowds_max[key] = max(crowd, self.crowds_max.get(key, 0))
        if streams:
            self._streams[live] = None
        self._arm()
        return live

    def cancel(self, live: Live) -> Ended | None:
        """The caller hung up: what was written stays charged. None if the call was over."""
        now = self.now()
        self._advance(now)
        ended = self.provider.cancel(live.call.id, now)
        if ended is not None:
            self._over(ended)
        self._arm()
        return ended

    def forget(self) -> None:
        """Count the most calls at once from now on."""
        self.crowds_max = dict(self._crowds)

    def stop(self) -> None:
        """No timer is left behind."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def statistics(self) -> ProviderStatistics:
        return self.provider.statistics()

    def _advance(self, now: float) -> None:
        """Let everything up to `now` happen, one thing at a time.

        Between two things the number of calls in flight is constant, so that the provider's work
        clock can be followed from outside.
        """
        while (at := self.provider.next_s()) <= now:
            self._follow(at)
            for happening in self.provider.advance(at):
                if isinstance(happening, Ended):
                    self._over(happening)
                elif isinstance(happening, FirstByte):
                    self._began(happening)
        self._follow(now)

    def _follow(self, now: float) -> None:
        elapsed = now - self._work_s
        if elapsed > 0:
            in_flight = self.provider.statistics().in_flight
            self._work += elapsed / self.provider.spec.latency.slowdown(in_flight)
            self._work_s = now

    def _began(self, happening: FirstByte) -> None:
        live = self._lives[happening.call_id]
        live.begin(happening.reading, self._work)
        if live in self._streams and self._flush_s == inf:
            self._flush_s = self._work_s + FLUSH_S

    def _over(self, ended: Ended) -> None:
        live = self._lives.pop(ended.call_id)
        self._crowds[self._keys.pop(ended.call_id)] -= 1
        self._streams.pop(live, None)
        live.end(ended)

    def _wake(self) -> None:
        self._timer, self._armed_s = None, inf
        now = self.now()
        self._advance(now)
        if now >= self._flush_s:
            self._flush(now)
        self._arm()

    def _flush(self, now: float) -> None:
        """Let every stream show what it has written."""
        pace = self.provider.spec.latency.per_output_token_s
        for live in self._streams:
            live.reach(self._work, pace)
        count = len(self._streams)
        self._flush_s = now + max(FLUSH_S, FLUSH_PER_STREAM_S * count) if count else inf

    def _arm(self) -> None:
        """One timer, for whatever comes first. One that is early is left to find nothing to do."""
        now = self.now()
        at = min(self.provider.next_s(), self._flush_s, now + DELAY_MAX_S)
        if at < self._armed_s:
            self.stop()
            self._armed_s = at
            self._timer = self._loop.call_at(self._zero_s + at, self._wake)
