"""One call from its request to the last byte of its answer: every decision, no input or output.

Laws:
- A permit that was granted is settled exactly once, on every path, before anything is awaited.
- Bytes are looked at, never changed.
- A refusal of a call that did not run is absorbed: the permit ends, the call asks again. How long
  it then waits is the quota's business; nothing here sleeps.
- What the caller does (closing early, cancelling, forgetting) is not the provider's fault.

Both transports, with threads and with an event loop, drive the same `Exchange`:

    granted -> responded -> fed ... -> ended | closed | failed      (an answer)
                         -> fed ... -> refused -> granted ...       (anything else)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Final, Protocol

from headway.core.quota.book import Outcome
from headway.core.quota.dialect import Headers
from headway.core.values import Fault, FaultKind, Permit, Reading, SettledAs, Tally
from headway.errors import HeadwayError
from headway.runtime.accounts import VOICES, Voices
from headway.runtime.client import CallRequest
from headway.wire.read import AnswerReader
from headway.wire.values import WireName

RESENDS_MAX: Final = 50
"""How often one call is sent again after refusals; then its caller sees the last of them.

The quota holds an account that refuses, so that a call is rarely refused twice.
"""

RETRY_COUNT: Final = "x-stainless-retry-count"
"""Both SDKs count their own attempts in this header, from 0."""

PROGRESS_TOKENS: Final = 10.0
PROGRESS_S: Final = 0.2
"""An answer's growth is told in steps of this size, and no more often than this: shorter ones are
more noise than news."""

ALIVE_S: Final = 30.0
"""Bytes that add no text (pings, hidden thoughts) are told this often: the call is not stuck."""

ASK_S: Final = 0.1
"""The least time for a permit that is free to arrive: with no wait at all nobody would get one."""

RESENT_KINDS: Final[tuple[FaultKind, ...]] = ("rate", "concurrency", "overload")
"""The call did not run and will when there is room."""

REFUSED_KINDS: Final[tuple[FaultKind, ...]] = (
    *RESENT_KINDS,
    "spend_cap",
    "billing",
    "access",
    "request",
)
"""The call did not run."""

NOT_SENT: Final = frozenset(
    {"ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError",
     "UnsupportedProtocol", "LocalProtocolError",
     "ClientConnectorError", "ClientHttpProxyError", "ConnectionTimeoutError", "InvalidURL"}
)  # fmt: skip
"""Exceptions before a byte has left: of httpx2, of httpx by the same names, and of aiohttp."""

TIMED_OUT: Final = frozenset({"TimeoutException", "ServerTimeoutError"})

UNKNOWN: Final = Tally(known="unknown")


class Held(Protocol):
    """A permit in use. Nothing here blocks or fails, and what is said twice is said once."""

    @property
    def permit(self) -> Permit: ...

    @property
    def cut(self) -> HeadwayError | None:
        """Why the answer is to be ended in the middle, if it is."""

    def began(self, reading: Reading, dialect: str) -> None: ...

    def progressed(self, output_tokens: float) -> None: ...

    def still_alive(self) -> None: ...

    def settle(self, outcome: Outcome) -> None: ...


class Port(Protocol):
    """Whoever admits calls: the process's own port, or a fake."""

    def admit(self, call: CallRequest, deadline_s: float | None) -> Held: ...

    async def admit_async(self, call: CallRequest, deadline_s: float | None) -> Held: ...


@dataclass(frozen=True, slots=True)
class Asked:
    """What a client wants to send: the call, its format and how long it may wait."""

    call: CallRequest
    wire: WireName
    wait_s: float | None = None
    voices: Voices = VOICES


@dataclass(frozen=True, slots=True)
class ExchangeStatistics:
    """How far a call has come."""

    resends: int
    is_held: bool
    output_tokens: float
    is_finished: bool
    """Whether all text of the answer was read."""


class Exchange:
    """One call. `with exchange:` makes sure that a permit ends when something fails inside."""

    __slots__ = (
        "_clock", "_is_answer", "_reader", "_resends", "_since_s", "_ticket",
        "_told_s", "_told_tokens", "asked", "refusal",
    )  # fmt: skip

    def __init__(self, asked: Asked, clock: Callable[[], float] = time.monotonic) -> None:
        self.asked = asked
        self.refusal = ""
        """Why the provider turned the call away, when it asks again."""
        self._clock = clock
        self._since_s = clock()
        self._resends = 0
        self._ticket: Held | None = None
        self._reader: AnswerReader | None = None
        self._is_answer = False
        self._told_tokens = 0.0
        self._told_s = self._since_s

    def __repr__(self) -> str:
        state = "held" if self._ticket is not None else "not held"
        return f"<Exchange with {self.asked.call.account}, {state}, resent {self._resends} times>"

    @property
    def call(self) -> CallRequest:
        """What to ask admission for."""
        call = self.asked.call
        expected = self.asked.voices.expected(call.account, self.asked.wire)
        is_resent = call.is_resent or self._resends > 0
        return replace(call, dialect=expected.name, is_resent=is_resent)

    def left_s(self) -> float | None:
        """How much longer the call may wait for its permit; `None` is as long as it takes."""
        wait_s = self.asked.wait_s
        return None if wait_s is None else max(ASK_S, wait_s - (self._clock() - self._since_s))

    def granted(self, ticket: Held) -> None:
        """The call may be sent."""
        self._ticket, self._reader, self._is_answer = ticket, None, False

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            self.failed(error)

    def responded(self, status: int, headers: Headers) -> bool:
        """The headers are here: whether an answer follows them, or the reason why there is none."""
        asked = self.asked
        dialect = asked.voices.heard(asked.call.account, asked.wire, status, headers)
        self._reader = AnswerReader(asked.wire, status, headers, dialect, time.time())
        self._is_answer = 200 <= status < 300
        if self._is_answer and self._ticket is not None:
            self._told_tokens, self._told_s = 0.0, self._clock()
            self._ticket.began(self._reader.reading, dialect.name)
        return self._is_answer

    def fed(self, data: bytes) -> None:
        """Some bytes of the body passed by. The last event of an answer ends its permit."""
        ticket, reader = self._ticket, self._reader
        if ticket is None or reader is None:
            return
        reader.feed(data)
        if not self._is_answer:
            return
        if reader.is_over:
            self._settle("used", reader.tally, reader.fault)
            return
        tokens, now = reader.output_tokens, self._clock()
        if tokens - self._told_tokens >= PROGRESS_TOKENS and now - self._told_s >= PROGRESS_S:
            self._told_tokens, self._told_s = tokens, now
            ticket.progressed(tokens)
        elif now - self._told_s >= ALIVE_S:
            self._told_s = now
            ticket.still_alive()

    def ended(self) -> None:
        """The answer's bytes are over. If its last event is missing, it broke."""
        if self._ticket is not None and self._reader is not None:
            self._reader.end()
            self._settle("used", self._reader.tally, self._reader.fault)

    def closed(self, fault: Fault | None = None) -> None:
        """End in the middle of a body: without a fault, because the caller wants no more of it."""
        reader = self._reader
        if self._ticket is None or reader is None:
            return
        told = reader.fault
        reader.end(is_whole=False)
        if not self._is_answer:
            # A refusal stays one, however little of its reason was read.
            self._settle(_how(told), reader.tally, told, reader.reading)
            return
        if told is None and fault is not None:
            told = fault if fault.kind == "timeout" else reader.fault or fault
        self._settle("used", reader.tally, told)

    def refused(self) -> bool:
        """All that is worth reading of an answer that is none was read: whether to ask again."""
        reader = self._reader
        if reader is None:
            return False
        reader.end()
        fault, reading = reader.fault, reader.reading
        self._settle(_how(fault), reader.tally, fault, reading)
        if fault is None or fault.kind not in RESENT_KINDS:
            return False
        if reading.should_retry is False or self._resends >= RESENDS_MAX:
            return False
        self.refusal = refusal_words(fault)
        self._resends += 1
        return True

    def failed(self, error: BaseException) -> None:
        """Sending or reading failed, or was given up by the caller."""
        if self._ticket is None:
            return
        # Cancellation, an interrupt and a closed generator are what the caller did.
        fault = _fault_of(error) if isinstance(error, Exception) else None
        if self._reader is not None:
            self.closed(fault)
        elif fault is not None and fault.kind == "connection":
            self._settle("unused", Tally(), fault)
        else:
            self._settle("used", UNKNOWN, fault)

    def statistics(self) -> ExchangeStatistics:
        reader, is_held = self._reader, self._ticket is not None
        if reader is None:
            return ExchangeStatistics(self._resends, is_held, 0.0, False)
        tokens, is_finished = reader.output_tokens, reader.is_finished
        return ExchangeStatistics(self._resends, is_held, tokens, is_finished)

    def _settle(
        self, how: SettledAs, tally: Tally, fault: Fault | None, reading: Reading = Reading()
    ) -> None:
        """End the permit. What an answer's headers said was told when it began."""
        ticket, self._ticket = self._ticket, None
        if ticket is not None:
            call = self.asked.call
            dialect = self.asked.voices.expected(call.account, self.asked.wire)
            ticket.settle(Outcome(how, tally, fault, reading, dialect.name))


def refusal_words(fault: Fault) -> str:
    """`rate: input`: why a call was turned away, and by which limit if that was named."""
    return f"{fault.kind}: {fault.resource}" if fault.resource else fault.kind


def _how(fault: Fault | None) -> SettledAs:
    """A call that failed inside the provider may have run; one that was refused did not."""
    return "throttled" if fault is not None and fault.kind in REFUSED_KINDS else "used"


def _fault_of(error: Exception) -> Fault:
    """What an exception of the HTTP client means, by its name: none of them is imported here."""
    names = {kind.__name__ for kind in type(error).__mro__}
    kind: FaultKind = "server"
    if names & NOT_SENT:
        kind = "connection"
    elif names & TIMED_OUT:
        kind = "timeout"
    return Fault(kind, detail=type(error).__name__)
