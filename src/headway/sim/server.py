"""The simulated provider over HTTP: every wire format, many accounts.

Laws:
- A call that was accepted ends in the provider exactly once: written to its end, or cancelled
  when its client has gone.
- What is reported to a client is what `/truth` says was reported.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from json import dumps, loads
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit
from urllib.request import urlopen

from aiohttp import web
from msgspec import Struct, field, to_builtins
from msgspec.structs import replace

import headway
from headway.base.values import Reading, Sketch
from headway.client.http_server import ask_for_body, large_request, served_in_thread
from headway.errors import BadValueError, ProviderError, WireError
from headway.sim.delivery import (  # fmt: skip
    AT_THE_DOOR,
    HEADER,
    JSON,
    NEVER,
    SLOW_START,
    Clockwork,
    ServedCall,
    Speaker,
    deliver,
    draw_faults,
    parse_kinds,
)
from headway.sim.models import NAMES, SimulatedModels
from headway.sim.provider import ProviderSpec, SimulatedCall, cached_prompt
from headway.sim.truth import (
    ACCOUNTS_MAX,
    ARRIVALS_MAX,
    Visit,
    input_tokens,
)
from headway.wire import answer as write
from headway.wire import read
from headway.wire.values import Answer, Conversation, Route, WireName

OUTPUT_TOKENS_MAX: Final = 8192
"""What a provider that reserves `max_tokens` reserves for a call that gives none."""

ARRIVALS_SHOWN: Final = 1000
"""Lines of the arrival log in `/truth` unless more are asked for."""

BACKLOG: Final = 1024
"""Connections that may wait to be taken up: a client opens a thousand at once."""

_ID_PREFIX: Final[dict[WireName, str]] = {
    "anthropic": "msg_",
    "openai-chat": "chatcmpl-",
    "openai-responses": "resp_",
    "gemini": "",
}
_DIALECTS: Final[dict[WireName, str]] = {"anthropic": "anthropic", "gemini": "gemini"}
"""Those of the wires that are not OpenAI's."""


class ServeOptions(Struct, frozen=True):
    """How to serve a provider."""

    seed: int = 1
    dialect: str | None = None
    """Whose headers and errors; `None`: those of the wire."""
    models: SimulatedModels = SimulatedModels()
    mischief: Mapping[str, float] = field(default_factory=dict)
    """The share of all calls that goes wrong, by kind of fault."""
    host: str = "127.0.0.1"
    port: int = 0


class SimServer:
    """A provider that listens. Made and used within one event loop."""

    def __init__(self, spec: ProviderSpec, options: ServeOptions = ServeOptions()) -> None:
        latency = replace(
            spec.latency,
            # The provider divides by both.
            first_byte_s=max(1e-4, spec.latency.first_byte_s),
            per_output_token_s=max(1e-6, spec.latency.per_output_token_s),
        )
        self._spec = replace(spec, latency=latency)
        self._options = options
        self._clockwork = Clockwork(self._spec, options.seed)
        self._truth = self._clockwork.truth
        self._ids = itertools.count(1)
        self._number = 0
        self._runner: web.ServerRunner | None = None
        self.port = options.port

    @property
    def url(self) -> str:
        """Where it listens, without a path."""
        host = self._options.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    async def start(self) -> None:
        """Listen. The port is known afterwards."""
        server = web.Server(
            self._answer,
            request_factory=large_request,
            handler_cancellation=True,
            access_log=None,
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=0.2)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._options.host, self._options.port, backlog=BACKLOG)
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            raise BadValueError(
                f"cannot listen on {self._options.host}:{self._options.port}: {error.strerror}",
                hint="another port may be free: `--port 0` takes one",
            ) from error
        self.port = site.port

    async def stop(self) -> None:
        """Stop listening; answers under way are cut."""
        if self._runner is not None:
            await self._runner.cleanup()
        self._clockwork.stop()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        route = read.route(request.method, request.path)
        if route is None:
            return await self._other(request)
        speaker, key = self._speaker(route), account_of(key_of(request))
        if not self._truth.has_room(key):
            return speaker.wrong(401, f"at most {ACCOUNTS_MAX:,} keys are accepted")
        account = self._truth.account(key)
        try:
            await ask_for_body(request)
            body = await request.read()
            conversation = read.conversation(route, body)
            if route.purpose == "count":
                account.counts += 1
                counted = write.counted(route.wire, input_tokens(conversation))
                return web.Response(body=counted, content_type=JSON)
            kinds = parse_kinds(request.headers.get(HEADER, ""))
            sketch = read.sketch(route, body)
        except web.HTTPRequestEntityTooLarge:
            account.wrong += 1
            return speaker.wrong(413, "the body is too large")
        except (WireError, BadValueError) as error:
            account.wrong += 1
            return speaker.wrong(400, error.message)
        digest = sha256(body).hexdigest()[:16]
        served = self._served(request, speaker, conversation, sketch, kinds, digest)
        visit = served.visit
        door = next((kind for kind in visit.faults if kind in AT_THE_DOOR), None)
        if door is not None:
            limits = self._clockwork.provider.account(visit.key).readings(self._clockwork.now())
            reading = Reading(limits)
            return self._turned_away(visit, door, speaker.at_the_door(door, reading))
        refused = self._clockwork.submit(served)
        if refused is not None:
            fault = refused.fault
            how: str = fault.kind
            if fault.kind in ("rate", "concurrency", "spend_cap"):
                how, visit.refused_for = "refused", fault.resource or fault.kind
            return self._turned_away(visit, how, speaker.refusal(fault, refused.reading))
        return await deliver(served, self._clockwork)

    def _turned_away(self, visit: Visit, how: str, response: web.Response) -> web.Response:
        visit.status = response.status
        self._truth.over(visit, how, self._clockwork.now())
        return response

    def _served(
        self,
        request: web.BaseRequest,
        speaker: Speaker,
        said: Conversation,
        sketch: Sketch,
        kinds: tuple[str, ...],
        digest: str,
    ) -> ServedCall:
        """A call as it is known when it arrives; it is in the log from now on."""
        self._number += 1
        number, wire, headers = self._number, speaker.wire, request.headers
        reply = self._options.models.reply(said)
        kinds = kinds or reply.faults
        kinds = kinds or draw_faults(self._options.mischief, self._options.seed, number)
        key = account_of(key_of(request))
        visit = Visit(
            number, self._clockwork.now(), key, wire, said.model, said.streams,
            _whole_number(headers.get("x-stainless-retry-count")),
            _label(headers.get("x-sim-label", "")), faults=kinds, body=digest,
        )  # fmt: skip
        self._truth.came(visit)
        most = said.max_output_tokens
        kept = reply.within(most)
        total = input_tokens(said)
        prompt = cached_prompt(sketch, key, total)
        visit.cache_read_tokens, visit.cache_write_tokens, visit.cache_rewrite_tokens = (
            self._clockwork.cache.read(prompt, visit.at_s)
        )
        visit.input_tokens = total - visit.cache_read_tokens
        answer = Answer(
            f"{_ID_PREFIX[wire]}{number:024x}", said.model, "".join(kept.pieces),
            visit.input_tokens, kept.tokens, visit.cache_read_tokens,
            kept is not reply, time.time(), kept.tool_uses, visit.cache_write_tokens,
        )  # fmt: skip
        visit.output_tokens = kept.tokens
        if wire == "anthropic":
            # What is read from the cache does not count.
            total = visit.input_tokens
        luck = NEVER if "hang" in kinds else SLOW_START if "slow-start" in kinds else 1.0
        most_tokens = float(most or OUTPUT_TOKENS_MAX)
        call = SimulatedCall(
            number, float(total), float(kept.tokens), most_tokens, luck, model=sketch.model
        )
        return ServedCall(request, speaker, said, answer, kept.pieces, visit, call, prompt,
                          sketch.keeps_s)  # fmt: skip

    def _speaker(self, route: Route) -> Speaker:
        dialect = self._options.dialect
        if dialect is None and self._spec.dialect not in ("anthropic", "openai"):
            dialect = self._spec.dialect
        dialect = dialect or _DIALECTS.get(route.wire, "openai")
        return Speaker(dialect, route.wire, f"req_{self._options.seed:x}x{next(self._ids):018x}")

    async def _other(self, request: web.BaseRequest) -> web.StreamResponse:
        path, method = request.path, request.method
        head, _, name = path.rpartition("/models")
        if head and method == "GET":
            return self._models(name.removeprefix("/"), _wire_of_list(request))
        if path == "/truth" and method == "GET":
            return await self._tell(request)
        if path == "/truth/reset" and method == "POST":
            self._clockwork.forget()
            return _json(200, {"is_reset": True})
        if path == "/" and method == "GET":
            return _json(200, {"provider": self._spec.name, "truth": f"{self.url}/truth"})
        error = {"type": "not_found_error", "message": f"there is no {method} {path}"}
        return _json(404, {"type": "error", "error": error})

    def _models(self, name: str, wire: WireName) -> web.Response:
        """All models, or the one of this name."""
        names = [name] if name else dict.fromkeys((*NAMES, self._options.models.default))
        body = write.models(wire, names)
        if name:
            body = dumps(loads(body)["models" if wire == "gemini" else "data"][0]).encode()
        return web.Response(body=body, content_type=JSON)

    async def _tell(self, request: web.BaseRequest) -> web.Response:
        """`/truth`, `/truth?key=...`, `/truth?arrivals=all`."""
        asked = parse_qs(urlsplit(request.path_qs).query)
        word = asked.get("key", [""])[0]
        key = (self._truth.find(word) or account_of(word)) if word else None
        count = _whole_number(asked.get("arrivals", [str(ARRIVALS_SHOWN)])[0], ARRIVALS_MAX)
        provider, truth = self._clockwork.provider, self._truth
        wanted = {name: provider.account(name) for name in truth.accounts if key in (None, name)}
        report = truth.report(wanted, self._clockwork.crowds_max)
        visits = [visit for visit in truth.arrivals if key in (None, visit.key)]
        head = {
            "provider": self._spec.name,
            "seed": self._options.seed,
            "up_s": self._clockwork.now(),
            "in_flight": self._clockwork.provider.in_flight,
            "arrivals_total": len(visits),
        }
        shown = visits[-count:] if count else []
        # An audit of a long log takes seconds; calls go on meanwhile.
        return await asyncio.to_thread(
            lambda: _json(200, {**head, "accounts": report(), "arrivals": to_builtins(shown)})
        )


@contextmanager
def serving(spec: ProviderSpec, options: ServeOptions = ServeOptions()) -> Iterator[str]:
    """Serve from a thread of this process for as long as the block lasts; gives the URL."""
    with served_in_thread(lambda: SimServer(spec, options), "headway-sim") as server:
        yield server.url


def truth_of(url: str, query: str = "") -> dict[str, Any]:
    """What `/truth` of a server says."""
    with urlopen(f"{url}/truth{query}") as response:
        found: dict[str, Any] = loads(response.read())
    return found


def account_of(key: str) -> str:
    """The name of an account: a digest of its key."""
    return sha256(key.encode("utf-8", "surrogateescape")).hexdigest()[:8]


def key_of(request: web.BaseRequest) -> str:
    """The API key of a request; requests without one share an account."""
    headers = request.headers
    found = headers.get("x-api-key") or headers.get("x-goog-api-key") or request.query.get("key")
    if found is None:
        found = headers.get("authorization", "").removeprefix("Bearer ")
    return found.strip()


def _wire_of_list(request: web.BaseRequest) -> WireName:
    """Whose client wants a list of models: the path is nearly the same for all."""
    if "anthropic-version" in request.headers:
        return "anthropic"
    is_gemini = "/v1beta/" in request.path or "x-goog-api-key" in request.headers
    return "gemini" if is_gemini or "key" in request.query else "openai-chat"


def _json(status: int, body: object) -> web.Response:
    return web.Response(status=status, body=dumps(body).encode(), content_type=JSON)


def _whole_number(text: str | None, otherwise: int = 0) -> int:
    is_number = text is not None and text.isascii() and text.isdigit() and len(text) < 10
    return int(text) if is_number and text is not None else otherwise


def _label(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text[:100])


def variables_of(url: str) -> dict[str, str]:
    """The variables by which SDKs and agents find a provider at this address."""
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "simulated",
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": "simulated",
        "GOOGLE_GEMINI_BASE_URL": url,
        "GEMINI_API_KEY": "simulated",
    }


@contextmanager
def launched(*options: str) -> Iterator[str]:
    """Run `headway sim serve` with these options for as long as the block lasts; gives the URL."""
    command = [sys.executable, "-m", "headway", "sim", "serve", "--json", *options]
    command += ["--parent", str(os.getpid())]
    # The same headway as this one, also where it is not installed.
    found = [str(Path(headway.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, found))}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            line = process.stdout.readline() if process.stdout is not None else ""
            if not line:
                raise ProviderError("the simulated provider did not start")
            said = loads(line)
            if "url" not in said:
                (fault, *_) = said["errors"]
                raise BadValueError(fault["message"], where=fault["where"], hint=fault["hint"])
            yield str(said["url"])
        finally:
            process.terminate()
            try:
                process.wait(10.0)
            except subprocess.TimeoutExpired:
                process.kill()
