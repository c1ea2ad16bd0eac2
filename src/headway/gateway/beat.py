"""Signs of life for a client whose call is held: nothing while that is safe, then a late commit.

Laws:
- No byte is sent for as long as the client bears it, so that a status code can still be told.
- From the commit on the response is a stream that has begun: a beat now and then, then the answer
  or the wire's own error event.
- Whoever wants to write the answer stops the beat first; nothing is written by two at once.

A call that is admitted in time costs one timer and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from aiohttp import web

from headway.gateway.values import Caller


class Beat:
    """Keeps one client waiting."""

    __slots__ = (
        "_beat",
        "_caller",
        "_headers",
        "_lock",
        "_request",
        "_response",
        "_task",
        "_timer",
    )

    def __init__(
        self, request: web.BaseRequest, caller: Caller, beat: bytes, headers: Mapping[str, str]
    ) -> None:
        """`beat` is one sign of life, or nothing; `headers` are those of a response that begins."""
        self._request = request
        self._caller = caller
        self._beat = beat
        self._headers = headers
        self._response: web.StreamResponse | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._lock: asyncio.Lock | None = None

    def __repr__(self) -> str:
        return f"<Beat for {self._caller.name}, {'committed' if self.is_committed else 'silent'}>"

    @property
    def is_committed(self) -> bool:
        """Whether the client has been sent a 200 already."""
        return self._response is not None

    def start(self) -> None:
        """Begin to count the silence."""
        if self._beat:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._caller.silent_s, self._commit)

    async def stop(self) -> web.StreamResponse | None:
        """The answer is here: the response to write it to if one was begun."""
        self.cancel()
        if self._lock is not None:
            async with self._lock:
                pass
        return self._response

    def cancel(self) -> None:
        """The client has gone, or will be answered."""
        if self._timer is not None:
            self._timer.cancel()
        task, self._task = self._task, None
        # In the middle of a write it ends by itself, at the lock.
        if task is not None and self._lock is not None and not self._lock.locked():
            task.cancel()

    def _commit(self) -> None:
        self._timer = None
        self._lock = asyncio.Lock()
        self._task = asyncio.get_running_loop().create_task(self._keep(self._lock))

    async def _keep(self, lock: asyncio.Lock) -> None:
        """Send a beat as often as the client wants one."""
        with suppress(ConnectionError, asyncio.CancelledError):
            async with lock:
                response = web.StreamResponse(headers=self._headers)
                self._response = response
                await response.prepare(self._request)
                await response.write(self._beat)
            while self._task is not None:
                await asyncio.sleep(self._caller.beat_s)
                async with lock:
                    if self._task is not None:
                        await response.write(self._beat)
