"""One call from its request to the last byte of its reply: every decision, no I/O.

Laws:
- A permit that was granted is settled exactly once, on every path, before anything is awaited.
- Bytes are looked at, never changed.
- A refusal of a call that did not run is absorbed: the permit ends, the call asks again. How long
  it then waits is the quota's business; nothing here sleeps.
- What the caller does (closing early, cancelling, forgetting) is not the provider's fault.
- A call that could not be sent to an address that answered before asks again, as long as its
  deadline allows. So does, as the SDKs do it, one whose connection broke before any answer.

Both transports, with threads and with an event loop, drive the same `Exchange`:

    granted -> responded -> fed ... -> ended | closed | failed      (an answer)
                         -> fed ... -> refused -> granted ...       (anything else)
            -> lost -> granted ...                                  (no response at all)
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from headway import errors
from headway.base.fields import dumped, object_fields
from headway.base.numbers import remember
from headway.base.values import Amounts, Fault, FaultKind, Reading, SettledAs, Tally, Wait
from headway.client import accounts
from headway.pacing.budget import STEP_TOKENS
from headway.pacing.call import Outcome, Request
from headway.pacing.headers import Headers, as_text
from headway.wire.answer import error_body
from headway.wire.read import AnswerReader, route, sketch
from headway.wire.values import WireName

if TYPE_CHECKING:
    import httpx2

# What a paced client does with a request before it is sent, and says when it cannot be sent.

WAIT_VARIABLE: Final = "HEADWAY_WAIT"
"""How long calls may wait for their permit, in seconds, where the program does not say it."""
ERROR_INFO: Final = "type.googleapis.com/google.rpc.ErrorInfo"
"""Where Gemini's errors say more than their message does."""
BROKEN_MAX: Final = 2
"""How often a call is sent again whose connection broke before any answer: as often as SDKs do."""


class Pacing(Struct, frozen=True):
    wait_s: float | None = None
    """How long a call may wait for its permit, refusals included; `None` is as long as it takes."""
    path: tuple[str, ...] = ()
    """The flow that the calls belong to; fairness is between flows."""
    unpaced: bool = False
    """Whether the process's own port lets calls go when there is no broker."""
    admission: Port | None = None
    """Who admits; `None` is the process's own port."""
    broken_max: int = BROKEN_MAX
    """0 where a budget was set aside for one sending: one that broke may have to be paid."""
    is_interactive: bool = False
    """Whether a person waits for the answers."""

    def port(self) -> Port:
        """What admits calls in this process: after a fork, another one."""
        if self.admission is not None:
            return self.admission
        # With an admission of the user's own, threads and sockets are not needed.
        from headway.client.admission import admission

        return admission(self.unpaced)


def open_exchange(request: httpx2.Request, pacing: Pacing) -> Exchange | None:
    """The exchange that a request begins; `None` for one that passes through untouched."""
    url = request.url
    asked = route(request.method, url.path)
    if asked is None or asked.purpose != "generate":
        return None
    if pacing.admission is None:
        gateway = os.environ.get(accounts.GATEWAY_VARIABLE, "")
        if gateway and str(url).startswith(f"{gateway}/"):
            return None  # The gateway of this environment paces it.
    try:
        body = request.content
    except RuntimeError:
        # RequestNotRead: bytes that can be read only once cannot be sent again.
        from headway.client.connection import say_once

        say_once(f"a call to {url.host} is sent UNPACED: its body is a stream; give it as bytes")
        return None
    try:
        seen = sketch(asked, body)
    except errors.WireError:
        return None
    # Read once: the library looks through all of them for each name.
    headers = {
        _READ[small]: value.decode("utf-8", "surrogateescape")
        for name, value in request.headers.raw
        if (small := name.lower()) in _READ
    }
    host = accounts.host_name(url.scheme, url.host, url.port)
    query = url.query.decode("ascii", "replace")
    account, login = accounts.account_name(host, headers, query, body)
    dialect = accounts.expected_dialect(account, asked.wire).name
    is_resent = headers.get(RETRY_COUNT, "0") != "0"
    call = Request(
        account, dialect, seen, pacing.path, is_resent, login=login,
        is_interactive=pacing.is_interactive,
    )  # fmt: skip
    return Exchange(call, asked.wire, pacing.wait_s, broken_max=pacing.broken_max)


RETRY_COUNT: Final = "x-stainless-retry-count"
"""Both SDKs count their own attempts in this header, from 0."""
_READ: Final = {name.encode(): name for name in (*accounts.PAYER_HEADERS, RETRY_COUNT)}
"""Headers of a request that are looked at."""
_STATUS: Final[tuple[tuple[type[errors.HeadwayError], int], ...]] = (
    (errors.QueueDeadlineError, 429),
    (errors.BudgetReachedError, 402),
    (errors.AccountClosedError, 402),
    (errors.DemandTooLargeError, 400),
    (errors.BrokerUnavailableError, 503),
)
"""SDKs raise their own typed errors by status. None sends a 402 or a 400 again by itself."""


def refusal_of(error: errors.HeadwayError, more: str = "") -> tuple[int, str]:
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
    parts = (error.message, error.where, error.detail, error.hint, more)
    return status, f"headway[{error.code}]: " + "; ".join(part for part in parts if part)


def explain(
    error: errors.HeadwayError, wire: WireName, wait_s: float | None
) -> tuple[int, dict[str, str], bytes]:
    """The whole answer: SDKs wrap and retry exceptions, not responses."""
    more = ""
    if isinstance(error, errors.QueueDeadlineError) and wait_s is not None:
        more = f"`pace(client, wait_s=...)` or {WAIT_VARIABLE} allows {wait_s:g} s"
    status, message = refusal_of(error, more)
    told = error_body(wire, status, error.code, message)
    if wire == "gemini":
        why = {"@type": ERROR_INFO, "reason": error.code, "domain": "headway"}
        told["error"] = {**object_fields(told["error"]), "details": [why]}
    headers = {
        "content-type": "application/json",
        "x-should-retry": "false",
        "x-headway-error": error.code,
    }
    return status, headers, dumped(told)


RESENDS_MAX: Final = 50
"""Then the caller sees the last refusal. An account that refuses is held, so that this is rare."""
PROGRESS_TOKENS: Final = 10.0
PROGRESS_S: Final = 0.2
"""Growth is reported in these steps and at most so often; that of a soft claim at once. Without
steps, an answer of 10 tokens a second sends five messages a second in place of one."""
ALIVE_S: Final = 30.0
"""Bytes that add no text (pings, hidden thoughts) are told this often: the call is not stuck."""
ASK_S: Final = 0.1
"""The least time for a free permit to arrive: with no wait at all no call would get one."""
STAYS_S: Final = 0.1
"""A connection of a trial counts if it stays open so long: proxies accept and close at once."""
OUTAGE_S_MAX: Final = 600.0
"""An address where nothing listens for so long is not restarting: the caller sees the error."""
CONNECTION: Final = "connection"
RESENT_KINDS: Final[tuple[FaultKind, ...]] = ("rate", "concurrency", "overload")
"""The call did not run and will when there is room."""
REFUSED_KINDS: Final = (*RESENT_KINDS, "spend_cap", "billing", "access", "request")
"""The call did not run."""
NOT_SENT: Final = frozenset(
    {"ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError",
     "UnsupportedProtocol", "ClientConnectorError", "ClientHttpProxyError",
     "ConnectionTimeoutError", "InvalidURL", "ServerClosedError"}
)  # fmt: skip
"""Exceptions before a byte has left: of httpx2, of httpx by the same names, of aiohttp and ours."""
TIMED_OUT: Final = frozenset({"TimeoutException", "ServerTimeoutError"})
UNKNOWN: Final = Tally(known="unknown")


class HeldPermit(Protocol):
    """A permit in use. Nothing here blocks or fails, and what is said twice is said once."""

    @property
    def waited_for(self) -> str: ...

    @property
    def expected(self) -> Amounts: ...

    @property
    def cut(self) -> errors.HeadwayError | None: ...

    def reached(self) -> None: ...

    def began(self, reading: Reading, dialect: str) -> None: ...

    def progressed(self, output_tokens: float) -> None: ...

    def settle(self, outcome: Outcome) -> None: ...


Heard = Callable[[Wait], None]
"""Called now and then with what a call waits for; what it raises ends the wait."""


class Port(Protocol):
    """What admits calls: the process's own port, or a fake."""

    def admit(
        self, request: Request, deadline_s: float | None, heard: Heard | None = None
    ) -> HeldPermit: ...

    async def admit_async(
        self, request: Request, deadline_s: float | None, heard: Heard | None = None
    ) -> HeldPermit: ...


_REACHED: Final[dict[str, bool]] = {}
"""Accounts that answered this process."""


class Exchange:
    """One call. `with exchange:` makes sure that a permit ends when something fails inside."""

    refusal = ""
    """Why the provider turned the call away, when it asks again."""
    resends = 0
    is_trial = False
    """Whether this call finds out if an address can be reached again."""
    _broken = 0
    _lost_s: float | None = None
    """When the call could first not be sent."""
    permit: HeldPermit | None = None
    """Until it is settled."""
    _reader: AnswerReader | None = None
    _told_tokens = _told_s = 0.0

    def __init__(
        self, call: Request, wire: WireName, wait_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        connects: int = 0, broken_max: int = BROKEN_MAX,
    ) -> None:  # fmt: skip
        """`connects`: how often an address that never answered is tried again."""
        self.call = call
        """What is asked for, each time anew."""
        self._dialect = ""
        self.wire: WireName = wire
        self.wait_s = wait_s
        self._clock = clock
        self._since_s = clock()
        self._broken_max = broken_max
        self._connects = connects

    @property
    def is_finished(self) -> bool:
        reader = self._reader
        return reader is not None and reader.is_finished and not reader.is_damaged

    def left_s(self) -> float | None:
        """How much longer the call may wait for its permit; `None` is as long as it takes."""
        wait_s = self.wait_s
        return None if wait_s is None else max(ASK_S, wait_s - (self._clock() - self._since_s))

    def granted(self, permit: HeldPermit) -> None:
        self.permit, self._reader = permit, None
        self.is_trial = permit.waited_for == CONNECTION

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if error is not None:
            self.failed(error)

    def responded(self, status: int, headers: Headers) -> bool:
        """The headers are here: whether an answer follows them, or the reason why there is none."""
        remember(_REACHED, self.call.account, bool)
        said = as_text(headers)
        self._dialect = accounts.dialect_of(self.call.account, self.wire, status, said)
        reader = self._reader = AnswerReader(self.wire, status, said, time.time())
        if reader.is_success and self.permit is not None:
            self._told_tokens, self._told_s = 0.0, self._clock()
            self.permit.began(reader.reading, self._dialect)
        return reader.is_success

    def fed(self, data: bytes) -> None:
        """Some bytes of the body passed by. The last event of an answer ends its permit."""
        permit, reader = self.permit, self._reader
        if permit is None or reader is None:
            return
        reader.feed(data)
        if not reader.is_success:
            return
        if reader.is_over:
            self._settle("used", reader.tally, reader.fault)
            return
        tokens, now = reader.output_tokens, self._clock()
        growth, since_s = tokens - self._told_tokens, now - self._told_s
        if growth >= STEP_TOKENS or since_s >= (
            PROGRESS_S if growth >= PROGRESS_TOKENS else ALIVE_S
        ):
            self._told_tokens, self._told_s = tokens, now
            permit.progressed(tokens)

    def ended(self) -> None:
        """The answer's bytes are over. If its last event is missing, it broke."""
        if self.permit is not None and self._reader is not None:
            self._reader.end()
            self._settle("used", self._reader.tally, self._reader.fault)

    def closed(self, fault: Fault | None = None) -> None:
        """End in the middle of a body: without a fault, because the caller wants no more of it."""
        reader = self._reader
        if self.permit is None or reader is None:
            return
        told = reader.fault
        reader.end(is_whole=False)
        if not reader.is_success:
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
        if reading.should_retry is False or self.resends >= RESENDS_MAX:
            return False
        self.refusal = refusal_words(fault)
        self.resends += 1
        self.call = replace(self.call, is_resent=True)
        return True

    def reached(self) -> None:
        """There is a connection: the other calls need not wait for the answer to this one."""
        if self.permit is not None:
            self.permit.reached()

    def lost(self, error: BaseException) -> bool:
        """No response came; True if the call asks again, False if its caller sees the error."""
        self.failed(error)
        if not isinstance(error, Exception):
            return False
        fault = _fault_of(error)
        if fault.kind == CONNECTION:
            now = self._clock()
            self._lost_s = now if self._lost_s is None else self._lost_s
            is_outage = self.call.account in _REACHED and now - self._lost_s < OUTAGE_S_MAX
            is_late = self.wait_s is not None and now - self._since_s >= self.wait_s
            self.refusal = CONNECTION
            self._connects -= 1
            return (is_outage or self._connects >= 0) and not is_late
        self._broken += 1
        self.call = replace(self.call, is_resent=True)
        self.refusal = refusal_words(fault)
        return fault.kind == "broken" and self._broken <= self._broken_max

    def failed(self, error: BaseException) -> None:
        if self.permit is None:
            return
        # Cancellation, an interrupt and a closed generator are what the caller did.
        fault = _fault_of(error) if isinstance(error, Exception) else None
        if self._reader is not None:
            self.closed(fault)
        elif fault is not None and fault.kind in ("connection", "request"):
            self._settle("unused", Tally(), fault)
        else:
            self._settle("used", UNKNOWN, fault)

    def _settle(
        self, how: SettledAs, tally: Tally, fault: Fault | None, reading: Reading = Reading()
    ) -> None:
        """End the permit. What an answer's headers said was told when it began."""
        permit, self.permit = self.permit, None
        if permit is not None:
            if tally.cache_write_tokens and self.call.sketch.prefix:
                tally = _with_rewritten(self.call, tally)
            permit.settle(Outcome(how, tally, fault, reading, self._dialect))


_KEPT: Final[dict[tuple[str, str], float]] = {}
"""By account and digest of a prompt, the tokens that a prompt cache had of it."""


def _with_rewritten(call: Request, tally: Tally) -> Tally:
    """The same, with the tokens that the cache had of the conversation and did not give."""
    sketch, account = call.sketch, call.account
    digests = (sketch.prefix, *[digest for digest, _ in sketch.turns])
    had = next(filter(None, [_KEPT.get((account, digest)) for digest in digests]), 0.0)
    kept = remember(_KEPT, (account, sketch.prefix), float)
    _KEPT[account, sketch.prefix] = max(kept, tally.cache_read_tokens + tally.cache_write_tokens)
    again = min(tally.cache_write_tokens, max(0.0, had - tally.cache_read_tokens))
    return replace(tally, rewrite_tokens=again) if again else tally


def refusal_words(fault: Fault) -> str:
    """`rate: input`: why a call was turned away, and by which limit if that was named."""
    return f"{fault.kind}: {fault.resource}" if fault.resource else fault.kind


def _how(fault: Fault | None) -> SettledAs:
    """A call that failed inside the provider may have run; one that was refused did not."""
    return "throttled" if fault is not None and fault.kind in REFUSED_KINDS else "used"


def _fault_of(error: Exception) -> Fault:
    """What an exception of the HTTP client means, by its name: none of them is imported here."""
    names = {kind.__name__ for kind in type(error).__mro__}
    kind: FaultKind = "broken"
    if names & NOT_SENT:
        kind = "connection"
    elif "LocalProtocolError" in names:
        kind = "request"  # It cannot be written, to any address: its header has a line break.
    elif names & TIMED_OUT:
        kind = "timeout"
    return Fault(kind, detail=type(error).__name__)
