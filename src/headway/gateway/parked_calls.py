"""Waiting calls whose client disconnected, kept briefly for the same request sent again.

A client that loses patience closes its connection and sends the same bytes once more. It keeps
its place. A permit that is granted to a place without a client is given back unused at once.
"""

from __future__ import annotations

import asyncio
import json
from hashlib import blake2b
from typing import Final

from headway.client.exchange import HeldPermit
from headway.gateway.values import Passed
from headway.pacing.admission import CallOutcome

KEPT_S: Final = 15.0
"""SDKs send again after 8 s at the latest."""

KEPT_MAX: Final = 10_000

UNUSED: Final = CallOutcome("unused")

Admitting = asyncio.Task[HeldPermit]
"""A call in line."""


class ParkedCalls:
    """Calls in line that lost their client, by what was asked."""

    __slots__ = ("_kept", "_kept_s")

    def __init__(self, kept_s: float = KEPT_S) -> None:
        self._kept_s = kept_s
        self._kept: dict[bytes, tuple[Admitting, asyncio.TimerHandle]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, name: bytes, admitting: Admitting) -> None:
        admitting.add_done_callback(_give_back)
        if admitting.done() or name in self._kept or len(self._kept) >= KEPT_MAX:
            admitting.cancel()
            return
        loop = asyncio.get_running_loop()
        self._kept[name] = (admitting, loop.call_later(self._kept_s, self._forget, name))
        admitting.add_done_callback(lambda done: self._drop(name, done))

    def take(self, name: bytes) -> Admitting | None:
        """The place of the same call, sent again, if there is one."""
        admitting, timer = self._kept.get(name, (None, None))
        # What was granted a moment ago is being given back already.
        if admitting is None or timer is None or admitting.done():
            return None
        del self._kept[name]
        timer.cancel()
        admitting.remove_done_callback(_give_back)
        return admitting

    def clear(self) -> None:
        for name in list(self._kept):
            self._forget(name)

    def _forget(self, name: bytes) -> None:
        admitting, timer = self._kept.pop(name)
        timer.cancel()
        admitting.cancel()

    def _drop(self, name: bytes, done: Admitting) -> None:
        kept = self._kept.get(name)
        if kept is not None and kept[0] is done:
            del self._kept[name]
            kept[1].cancel()


def name_of(passed: Passed, session: str, body: bytes) -> bytes:
    """A digest of a call. Codex changes the order of members when it sends a call again."""
    digest = blake2b(digest_size=16)
    for part in (passed.key.token, session, passed.upstream.name if passed.upstream else "",
                 passed.path):  # fmt: skip
        digest.update(part.encode("utf-8", "surrogateescape") + b"\0")
    digest.update(_in_order(body))
    return digest.digest()


def _in_order(body: bytes) -> bytes:
    """JSON with its members sorted; anything else as it is, compressed bodies too."""
    try:
        return json.dumps(json.loads(body), sort_keys=True).encode()
    except (ValueError, RecursionError):
        return body


def _give_back(done: Admitting) -> None:
    if not done.cancelled() and done.exception() is None:
        done.result().settle(UNUSED)
