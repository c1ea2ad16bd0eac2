"""Routes a request: the gateway's own pages, pass-through, or a paced call.

Laws:
- Nothing is read of a request that the door does not let in.
- What no model answers (models, files, counting) passes at once, and counts towards nothing.
- A call whose body cannot be read as one passes too: the provider will say what is wrong with it.
  But not where the gateway adds its own key, or the call counts towards a budget.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web
from msgspec.structs import replace

from headway.agents.metering import MeteredUsage
from headway.base.values import Tally
from headway.client.accounts import account_name, host_name
from headway.client.exchange import RETRY_COUNT
from headway.client.http_server import ask_for_body
from headway.errors import HeadwayError, WireError
from headway.gateway import guard
from headway.gateway import reply as hold
from headway.gateway.call import DRAINING, GatewayCall, GatewayDependencies, IncomingCall
from headway.gateway.callers import caller_of
from headway.gateway.guard import Keyring
from headway.gateway.replay import RecordedReply
from headway.gateway.reply import write_reply
from headway.gateway.request_match import CanonicalCall as Form
from headway.gateway.request_match import canonical_call
from headway.gateway.spending import Prices, Spending
from headway.gateway.upstream import LOST, fields_of, words_of
from headway.gateway.values import CallEnded, Head, Passed, Turned, Upstream
from headway.wire.read import sketch
from headway.wire.values import Route

BODY_S_MAX: Final = 60.0
"""How long a client may take to send the body of a request."""

METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"
"""The content type of Prometheus' text format."""

MODEL_CHARS_MAX: Final = 1024
"""The longest names are those of Google's tuned endpoints and AWS's ARNs, below 300."""


class Relay:
    """Handles every request of one gateway, within one event loop."""

    __slots__ = ("_hosts", "_keys", "_means", "_names", "_prices", "_upstreams")

    def __init__(
        self,
        means: GatewayDependencies,
        keys: Keyring,
        upstreams: Mapping[str, Upstream],
        prices: Prices | None = None,
    ) -> None:
        self._means = means
        self._keys = keys
        self._upstreams = upstreams
        self._prices = Prices() if prices is None else prices
        self._hosts: frozenset[str] = frozenset()
        self._names = {name: _host(upstream.url) for name, upstream in upstreams.items()}

    def listens_at(self, port: int) -> None:
        self._hosts = guard.hosts_of(port)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        message = request._message
        head = Head(message.method, message.path, message.raw_headers)
        passed = guard.examine(head, self._keys, self._upstreams, self._hosts)
        if isinstance(passed, Turned):
            return self._refused(None, passed)
        if passed.upstream is None:
            return self._page(passed)
        await ask_for_body(request)
        try:
            async with asyncio.timeout(BODY_S_MAX):
                body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            return self._refused(passed.route, guard.TOO_LARGE)
        except TimeoutError:
            slow = f"the body of the request did not come within {BODY_S_MAX:g} s"
            return self._refused(passed.route, Turned(408, "slow", slow))
        route = passed.route
        if route is not None and route.purpose == "generate":
            wanted = self._wanted(head, passed, passed.upstream, route, body)
            if isinstance(wanted, Turned):
                return self._refused(route, wanted)
            if wanted is not None:
                return await self._call(request, wanted)
        return await self._pass(request, head, passed, passed.upstream, body)

    async def _call(self, request: web.BaseRequest, wanted: IncomingCall) -> web.StreamResponse:
        key, spending = wanted.passed.key, None
        if self._means.is_draining:
            return self._refused(wanted.passed.route, DRAINING)
        if key.payer is not None:
            try:
                spending = Spending(key.payer, await self._prices.of(wanted.sketch.model))
            except HeadwayError as error:
                return self._refused(
                    wanted.passed.route, Turned(402, "budget", error.message, error.hint or "")
                )
        if self._means.tape is not None and wanted.form is not None:
            kept = self._means.tape.find(wanted.form)
            if kept is not None:
                return await self._replayed(wanted, wanted.form, kept)
        return await GatewayCall(request, wanted, self._means, spending).answer()

    async def _replayed(
        self, wanted: IncomingCall, form: Form, kept: RecordedReply
    ) -> web.Response:
        """The answer to the same call at the same place of a recording. It costs nothing."""
        means, key, now = self._means, wanted.passed.key, time.monotonic()
        if means.recorder is not None:
            await means.recorder.again(form, kept)
        totals = key.totals or MeteredUsage()
        key.totals = replace(totals, replayed=totals.replayed + 1)
        number = means.ledger.entered(key.name, wanted.caller.name, now)
        ended = CallEnded(
            key.name, wanted.caller.name, wanted.upstream.name, wanted.sketch.model,
            kept.status, Tally(), None, 0, 0.0, 0.0, 0, False, was_replayed=True,
        )  # fmt: skip
        means.ledger.ended(number, ended, now)
        headers = fields_of(kept.headers)
        headers["x-headway-replayed"] = "true"
        return web.Response(status=kept.status, headers=headers, body=kept.body)

    def _wanted(
        self, head: Head, passed: Passed, upstream: Upstream, route: Route, body: bytes
    ) -> IncomingCall | Turned | None:
        """The call that a body asks for; `None` if it asks for nothing that can be understood."""
        plain = guard.unpacked(body, head.headers)
        if isinstance(plain, Turned):
            return plain
        try:
            seen = sketch(route, plain)
        except WireError as error:
            if upstream.key or passed.key.payer is not None:
                return Turned(400, "body", error.message, error.hint or "")
            return None
        if len(seen.model) > MODEL_CHARS_MAX:
            message = f"the name of a model has at most {MODEL_CHARS_MAX} characters"
            return Turned(400, "model", f"{message}, not {len(seen.model):,}")
        onward = tuple(guard.readable(guard.onward(head.headers, upstream, route.wire)))
        sent = fields_of(onward)
        query = passed.path.partition("?")[2]
        account = account_name(self._names[upstream.name], sent, query)
        is_resent = sent.get(RETRY_COUNT, "0") != "0"
        caller = caller_of(head.headers)
        if self._means.silent_s is not None:
            silent_s = self._means.silent_s
            caller = replace(caller, silent_s=silent_s, beat_s=min(caller.beat_s, silent_s))
        form = None
        if self._means.recorder is not None or self._means.tape is not None:
            name = passed.key.name
            form = canonical_call(
                name, caller, route.wire, upstream.name, seen.model, passed.path, head.headers,
                plain,
            )  # fmt: skip
        return IncomingCall(
            passed, upstream, route.wire, caller, account, onward, body, seen, is_resent, form
        )

    async def _pass(
        self,
        request: web.BaseRequest,
        head: Head,
        passed: Passed,
        upstream: Upstream,
        body: bytes,
    ) -> web.StreamResponse:
        wire = None if passed.route is None else passed.route.wire
        headers = tuple(guard.onward(head.headers, upstream, wire))
        url = upstream.url + passed.path
        try:
            response = await self._means.sender.send(head.method, url, headers, body or None)
        except LOST as error:
            why = f"{upstream.url} cannot be reached: {words_of(error)}"
            return self._refused(passed.route, Turned(502, "upstream", why))
        try:
            self._means.ledger.passed(upstream.name, response.status)
            out = web.StreamResponse(
                status=response.status,
                reason=response.reason,
                headers=fields_of(guard.homeward(response.raw_headers)),
            )
            await out.prepare(request)
            while data := await response.content.readany():
                await write_reply(request, out, data)
        except LOST:
            # Half a response must not be taken for a whole one.
            if request.transport is not None:
                request.transport.abort()
        finally:
            response.close()
        return out

    def _refused(self, route: Route | None, turned: Turned) -> web.Response:
        self._means.ledger.turned(turned)
        headers, body = hold.refusal_of(None if route is None else route.wire, turned)
        return web.Response(status=turned.status, headers=headers, body=body)

    def _page(self, passed: Passed) -> web.Response:
        now = time.monotonic()
        if passed.path == "/metrics":
            text = self._means.ledger.metrics(now)
            return web.Response(body=text.encode(), headers={"content-type": METRICS})
        found = json.dumps(self._means.ledger.status(now), indent=2) + "\n"
        return web.Response(body=found.encode(), content_type="application/json")


def _host(url: str) -> str:
    """As the process of an SDK names it, so that all share one account."""
    parts = urlsplit(url)
    return host_name(parts.scheme, parts.hostname or "", parts.port)
