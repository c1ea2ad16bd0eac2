"""What a paced client does with a request before it is sent, and says when it cannot be sent.

Only calls that a model answers are paced. Everything else (models, files, batches, the counting
of tokens, which providers limit apart from calls) passes through untouched, and so does a body
that is not such a call: the provider will say what is wrong with it.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Final

import httpx2

from headway.errors import (
    AccountClosedError,
    BrokerUnavailableError,
    BudgetReachedError,
    DemandTooLargeError,
    HeadwayError,
    QueueDeadlineError,
    WireError,
)
from headway.runtime.accounts import GATEWAY_VARIABLE, VOICES, Voices, account_name, host_name
from headway.runtime.client import CallRequest
from headway.runtime.exchange import RETRY_COUNT, Asked, Exchange, Port
from headway.runtime.work import TELL_PROMPT
from headway.wire.gemini import failure
from headway.wire.read import route, sketch

WAIT_VARIABLE: Final = "HEADWAY_WAIT"
"""How long calls may wait for their permit, in seconds, where the program does not say it."""

ERROR_INFO: Final = "type.googleapis.com/google.rpc.ErrorInfo"
"""Where Gemini's errors say more than their message does."""


@dataclass(frozen=True, slots=True)
class Pacing:
    """How a client is paced."""

    wait_s: float | None = None
    """How long a call may wait for its permit, refusals included; `None` is as long as it takes."""
    path: tuple[str, ...] = ()
    """The flow that the calls belong to; fairness is between flows."""
    unpaced: bool = False
    """Whether calls are sent without a permit when there is no broker to give one."""
    admission: Port | None = None
    """Who admits; `None` is the process's own port."""
    voices: Voices = VOICES

    def port(self) -> Port:
        """Whoever admits in this process: after a fork, another one."""
        if self.admission is not None:
            return self.admission
        # Threads and sockets are nobody's business who brings an admission of his own.
        from headway.runtime.admission import admission

        return admission()

    def lets_pass(self, error: HeadwayError, account: str) -> bool:
        """Whether a call that nobody could admit is sent all the same; says so once.

        Never where a budget counts: nobody would count it.
        """
        if not self.unpaced or not isinstance(error, BrokerUnavailableError):
            return False
        from headway.runtime.access import without_budget

        return without_budget(account)


def _is_paced_there(url: str, pacing: Pacing) -> bool:
    """Whether the request goes to the gateway of this environment, which paces it itself."""
    gateway = os.environ.get(GATEWAY_VARIABLE, "")
    return bool(gateway) and pacing.admission is None and url.startswith(f"{gateway}/")


def open_exchange(request: httpx2.Request, pacing: Pacing) -> Exchange | None:
    """The exchange that a request begins; `None` for one that passes through untouched."""
    url = request.url
    asked = route(request.method, url.path)
    if asked is None or asked.purpose != "generate" or _is_paced_there(str(url), pacing):
        return None
    try:
        body = request.content
    except RuntimeError:
        # RequestNotRead: bytes that can be read only once cannot be sent again.
        from headway.runtime.access import say_once

        say_once(f"a call to {url.host} is sent UNPACED: its body is a stream; give it as bytes")
        return None
    try:
        seen = sketch(asked, body)
    except WireError:
        return None
    headers = request.headers
    host = host_name(url.scheme, url.host, url.port)
    account = account_name(host, headers, url.query.decode("ascii", "replace"))
    dialect = pacing.voices.expected(account, asked.wire).name
    is_resent = headers.get(RETRY_COUNT, "0") != "0"
    tell = TELL_PROMPT.get()
    if tell is not None and not is_resent:
        tell(body)
    call = CallRequest(account, dialect, seen, pacing.path, is_resent)
    return Exchange(Asked(call, asked.wire, pacing.wait_s, pacing.voices))


@dataclass(frozen=True, slots=True)
class Explanation:
    """A response that no provider sent: why a call was not sent, in its provider's format."""

    status: int
    headers: dict[str, str]
    body: bytes


_STATUS_AND_TYPE: Final[tuple[tuple[type[HeadwayError], int, str, str], ...]] = (
    (QueueDeadlineError, 429, "rate_limit_error", "rate_limit_exceeded"),
    (BudgetReachedError, 402, "billing_error", "insufficient_quota"),
    (AccountClosedError, 402, "billing_error", "insufficient_quota"),
    (DemandTooLargeError, 400, "invalid_request_error", "invalid_request_error"),
    (BrokerUnavailableError, 503, "overloaded_error", "server_error"),
    (HeadwayError, 500, "api_error", "server_error"),
)
"""By error: the status, and the type in Anthropic's and OpenAI's words.

SDKs raise their own typed errors by status. Nobody sends a 402 or a 400 again by itself.
"""


def explain(error: HeadwayError, asked: Asked) -> Explanation:
    """What to answer when a call is not admitted: SDKs wrap and retry exceptions, not responses."""
    status, *types = next(row[1:] for row in _STATUS_AND_TYPE if isinstance(error, row[0]))
    parts = [error.message, error.where, error.detail, error.hint]
    if isinstance(error, QueueDeadlineError) and asked.wait_s is not None:
        parts.append(f"`pace(client, wait_s=...)` or {WAIT_VARIABLE} allows {asked.wait_s:g} s")
    message = f"headway[{error.code}]: " + "; ".join(part for part in parts if part)
    told: dict[str, object]
    if asked.wire == "anthropic":
        told = {"type": "error", "error": {"type": types[0], "message": message}}
    elif asked.wire == "gemini":
        why = {"@type": ERROR_INFO, "reason": error.code, "domain": "headway"}
        told = {"error": {**failure(status, message), "details": [why]}}
    else:
        inner = {"message": message, "type": types[1], "param": None, "code": error.code}
        told = {"error": inner}
    headers = {
        "content-type": "application/json",
        "x-should-retry": "false",
        "x-headway-error": error.code,
    }
    return Explanation(status, headers, json.dumps(told).encode())
