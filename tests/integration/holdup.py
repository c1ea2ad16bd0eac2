"""A provider that is busy: whoever asks for a permit waits, for as long as a test says."""

from __future__ import annotations

import asyncio

from msgspec import Struct, field

from headway.broker.client import CallRequest
from headway.client.exchange import HeldPermit, Port


class Holdup(Struct):
    """Admits as another port does, but the first call of every flow only after a while."""

    inner: Port
    stream_s: float
    whole_s: float
    """How long a call waits whose answer does not stream."""
    flows: set[tuple[str, ...]] = field(default_factory=set)
    asked: int = 0

    def admit(self, call: CallRequest, deadline_s: float | None) -> HeldPermit:
        raise NotImplementedError("a gateway waits without a thread")

    async def admit_async(self, call: CallRequest, deadline_s: float | None) -> HeldPermit:
        self.asked += 1
        if call.path not in self.flows:
            self.flows.add(call.path)
            await asyncio.sleep(self.whole_s if call.sketch.is_whole else self.stream_s)
        return await self.inner.admit_async(call, deadline_s)
