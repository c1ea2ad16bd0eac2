"""What the simulated provider says when it does not answer: errors in any dialect, as HTTP."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from headway.core.foresight import speech
from headway.core.values import Fault, FaultKind, Reading
from headway.simulator.mischief import MISLEADING_S
from headway.wire.values import WireName

JSON: Final = "application/json"
GOOGLE: Final = "scaffolding on HTTPServer2"
"""What Gemini's front server calls itself; there is no other trace of it in the headers."""

_FAULTS: Final[dict[str, FaultKind]] = {
    "429-bare": "rate",
    "429-misleading": "concurrency",
    "500": "server",
    "529": "overload",
    "billing": "billing",
    "spend-cap": "spend_cap",
}
_OVERLOADED: Final = 529
"""OpenAI says 503 for it; the fault of this name is this status on every wire."""


@dataclass(frozen=True, slots=True)
class Speaker:
    """How one call is spoken to: in a dialect, over a wire, under an id."""

    dialect: str
    wire: WireName
    request_id: str

    def headers(self, reading: Reading, retry_after_s: float | None = None) -> dict[str, str]:
        """What comes with every answer and refusal."""
        lines = dict(speech.headers(self.dialect, reading.limits, time.time(), retry_after_s))
        if self.wire == "gemini":
            lines["server"] = GOOGLE
        else:
            lines["request-id" if self.wire == "anthropic" else "x-request-id"] = self.request_id
        return lines

    def error(self, fault: Fault, reading: Reading = Reading()) -> tuple[int, bytes]:
        """Status and body of an error."""
        limits = [limit for limit in reading.limits if limit.resource == fault.resource]
        hit = min(limits, key=lambda limit: limit.remaining or 0.0, default=None)
        return speech.error_body(self.dialect, fault, self.request_id, hit)

    def refusal(self, fault: Fault, reading: Reading) -> web.Response:
        """A fault of the provider's own, with its limits."""
        status, body = self.error(fault, reading)
        return _response(status, body, self.headers(reading, reading.retry_after_s))

    def at_the_door(self, kind: str, reading: Reading) -> web.Response:
        """A fault that was asked for."""
        if kind == "429-text":
            return _response(429, b"Too Many Requests", {})
        if kind == "503-html":
            page = b"<html><body><h1>503 Service Temporarily Unavailable</h1></body></html>"
            return _response(503, page, {})
        status, body = self.error(Fault(_FAULTS[kind]))
        if kind == "429-bare":
            return _response(status, body, self.headers(Reading()))
        if kind == "429-misleading" and self.dialect == "gemini":
            status, body = self.error(Fault(_FAULTS[kind], None, MISLEADING_S))
        elif kind == "429-misleading":
            waits = {"retry-after": f"{MISLEADING_S:.0f}"}
            return _response(status, body, self.headers(reading) | waits)
        status = _OVERLOADED if kind == "529" else status
        return _response(status, body, self.headers(reading))

    def wrong(self, status: int, message: str) -> web.Response:
        """The request itself is wrong."""
        _, body = self.error(Fault("request", None, None, message))
        return _response(status, body, self.headers(Reading()))


def _response(status: int, body: bytes, headers: dict[str, str]) -> web.Response:
    kind = JSON if body[:1] == b"{" else "text/html" if body[:1] == b"<" else "text/plain"
    return web.Response(status=status, body=body, headers=headers, content_type=kind)
