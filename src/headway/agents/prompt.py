"""Performs prompt tasks: calls a model, checks the reply against its schema, repairs it.

Laws:
- No call is sent before the most that it can cost is set aside. That is a true ceiling: a token is
  at least one byte of text, and no answer is longer than its call allows.
- A call that was lost after it was sent is in doubt and costs its ceiling. One of which not a byte
  was sent, or that was refused, costs nothing.
- A reply that has to be examined is durable before it is examined, and is never paid for again.
- An answer that was cut, declined or damaged is never a result.
- The same task sends the same bytes, whatever ran before it.
"""

from __future__ import annotations

import json
import os
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from ipaddress import ip_address
from math import ceil
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from msgspec import Struct, field
from msgspec.structs import replace

from headway.agents.metering import PriceLookup
from headway.base.values import Fault, Sketch, Spend, Tally
from headway.client.accounts import host_name
from headway.errors import BadValueError, BudgetReachedError, UsageError
from headway.pacing.budget import unpriced
from headway.pacing.estimate import Prices, ceiling_of, spend_of
from headway.pacing.windows import Shares
from headway.plans.references import Fitting, Misfit, Schema
from headway.wire.prices import price_at
from headway.wire.values import Route, WireName
from headway.work import (
    Attempt,
    AttemptError,
    OverBudgetError,
    Result,
    WindowEmptyError,
    charged,
    with_spent,
)

if TYPE_CHECKING:
    import httpx2

    from headway.agents.gate import Calling, Window
    from headway.client.exchange import Port
    from headway.wire.answer import TextReader

# The endpoint of a model, with its key, from the environment.

ANTHROPIC_URL: Final = "https://api.anthropic.com"
OPENAI_URL: Final = "https://api.openai.com/v1"

PROVIDERS: Final = ("anthropic", "openai", "openai-responses")
"""What a model's name can begin with: each has its own key, which goes to no other."""

OWN_NAMES: Final = re.compile(r"gpt-[0-9]|chatgpt-|codex-|o[1-9](-|$)|ft:")
"""Names that are OpenAI's without a provider before them."""

COMPATIBLE: Final = {
    "deepseek": "https://api.deepseek.com/v1",
    "gemini": "https://generativelanguage.googleapis.com/v1beta/openai",
    "google": "https://generativelanguage.googleapis.com/v1beta/openai",
    "groq": "https://api.groq.com/openai/v1",
    "mistral": "https://api.mistral.ai/v1",
    "ollama": "http://localhost:11434/v1",
    "openrouter": "https://openrouter.ai/api/v1",
    "together": "https://api.together.xyz/v1",
    "vllm": "http://localhost:8000/v1",
    "xai": "https://api.x.ai/v1",
}
"""Where providers answer that speak Chat Completions, for the hint that says how to use them."""


class Endpoint(Struct, frozen=True):
    wire: WireName
    model: str
    """Its name there, without our prefix."""
    url: str
    headers: Mapping[str, str]
    """The key is among them: never shown."""
    key_variable: str
    has_key: bool

    def __repr__(self) -> str:
        return f"<Endpoint {self.model} {self.url}>"

    @property
    def host(self) -> str:
        parts = urlsplit(self.url)
        return host_name(parts.scheme, parts.hostname or "", parts.port)

    @property
    def is_loopback(self) -> bool:
        """Whether it is on this machine, which needs no key."""
        host = urlsplit(self.url).hostname or ""
        try:
            return ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"

    @property
    def says_completion(self) -> bool:
        """Whether it wants `max_completion_tokens`: OpenAI does, its imitators need not know it."""
        return (urlsplit(self.url).hostname or "").endswith("openai.com")


def endpoint_of(model: str, environment: Mapping[str, str]) -> Endpoint:
    """The endpoint of `anthropic/claude-sonnet-4`, `openai/gpt-5-mini`; a bare name is Anthropic's,
    OpenAI's or that of the server in OPENAI_BASE_URL."""
    prefix, slash, name = model.partition("/")
    if not slash:
        prefix, name = _bare_provider(model, environment), model
    elif prefix not in PROVIDERS:
        raise _unknown_provider(model, prefix, name, environment)
    if not name:
        raise BadValueError(f"`model: {model}` names no model", hint="write openai/gpt-5-mini")
    found = _anthropic(name, environment) if prefix == "anthropic" else _openai(name, environment)
    if not _is_address(found.url):
        variable = found.key_variable.replace("API_KEY", "BASE_URL")
        raise BadValueError(
            f"{variable} is not the address of a server", hint=f"export {variable}=http://HOST:PORT"
        )
    return found


def _bare_provider(model: str, environment: Mapping[str, str]) -> str:
    if model.startswith("claude"):
        return "anthropic"
    if OWN_NAMES.match(model) or _base("OPENAI", environment) or not model:
        return "openai"
    raise BadValueError(
        f"`model: {model}` names no provider, and could be any provider's",
        hint=f"write openai/{model} or anthropic/{model}",
    )


def _unknown_provider(
    model: str, prefix: str, name: str, environment: Mapping[str, str]
) -> BadValueError:
    server = _base("OPENAI", environment)
    url = COMPATIBLE.get(prefix, "https://HOST/v1")
    message = f"`model: {model}` names the provider `{prefix}`, which headway does not know"
    if server:
        hint = f"write openai/{name} or openai/{model}, as {server} calls it"
    else:
        hint = (
            f"known: {', '.join(PROVIDERS)}; for a server that speaks OpenAI's Chat Completions, "
            f"write openai/{name} and export OPENAI_BASE_URL={url} OPENAI_API_KEY=..."
        )
    return BadValueError(message, hint=hint)


def must_be_ready(models: Iterable[str], environment: Mapping[str, str]) -> None:
    """Refuse to start when the key of any of these models is missing, before anything is spent."""
    missing: dict[str, list[str]] = {}
    for model in dict.fromkeys(models):
        found = endpoint_of(model, environment)
        if not found.has_key and not found.is_loopback:
            missing.setdefault(found.key_variable, []).append(model)
    if missing:
        keyless = [model for models in missing.values() for model in models]
        raise UsageError(
            f"there is no key for {', '.join(f'`{model}`' for model in keyless)}",
            detail=f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set",
            hint=" ".join(["export", *(f"{name}=..." for name in missing)]),
        )


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # A port that is no number, a bracket that is not closed.
        return False


def _base(provider: str, environment: Mapping[str, str]) -> str:
    """The address that is set for a provider. LiteLLM and aider read the second name."""
    names = (f"{provider}_BASE_URL", f"{provider}_API_BASE")
    return next(filter(None, map(environment.get, names)), "")


def _anthropic(model: str, environment: Mapping[str, str]) -> Endpoint:
    from headway.wire.request import VERSION

    base = _base("ANTHROPIC", environment) or ANTHROPIC_URL
    key, bearer = environment.get("ANTHROPIC_API_KEY"), environment.get("ANTHROPIC_AUTH_TOKEN")
    headers = {"anthropic-version": VERSION}
    if key:
        headers["x-api-key"] = key
    elif bearer:
        headers["authorization"] = f"Bearer {bearer}"
    url = f"{base.rstrip('/').removesuffix('/v1')}/v1/messages"
    return Endpoint("anthropic", model, url, headers, "ANTHROPIC_API_KEY", bool(key or bearer))


def _openai(model: str, environment: Mapping[str, str]) -> Endpoint:
    base = _base("OPENAI", environment) or OPENAI_URL
    key = environment.get("OPENAI_API_KEY")
    headers = {"authorization": f"Bearer {key}"} if key else {}
    for header, variable in (
        ("openai-organization", "OPENAI_ORG_ID"),
        ("openai-project", "OPENAI_PROJECT_ID"),
    ):
        if value := environment.get(variable):
            headers[header] = value
    url = f"{base.rstrip('/')}/chat/completions"
    return Endpoint("openai-chat", model, url, headers, "OPENAI_API_KEY", bool(key))


MAX_TOKENS: Final = 4096
"""The longest answer where a plan names none: every current model accepts it."""

CONNECT_S_MAX: Final = 30.0
QUIET_S_MAX: Final = 600.0
"""How long a provider may send nothing at all, as in its own clients: thinking takes minutes."""

KEEPALIVE_MAX: Final = 100
"""Idle connections that are kept. How many are in use is admission's business."""

DETAIL_CHARS: Final = 500

Verify = Callable[[str], Awaitable[str | None]]
"""Looks at an answer: what is wrong with it, or nothing."""


class PromptCall(Struct, frozen=True):
    prompt: str
    model: str
    max_tokens: int | None = None
    system: str = ""
    schema: Schema | None = None
    verify: Verify | None = None
    repairs: int = 1
    shared_chars: int = 0
    """With which the prompts of its group begin."""


class PromptSettings(Struct, frozen=True):
    run: str
    """Fairness is between runs; within one, `pacing/prompt_cache.py` orders the calls."""
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    port: Port | None = None
    """Admits calls; `None` is the process's own port."""
    window: Window | None = None
    """Called with an empty usage window as soon as any response shows it."""
    prices: Prices = price_at
    must_be_priced: bool = False
    """Whether there is a budget in money: then a call whose price is unknown is not made."""
    headers: Mapping[str, str] = field(default_factory=dict)
    quiet_s: float = QUIET_S_MAX
    transport: httpx2.AsyncBaseTransport | None = None
    window_shares: Shares | None = None
    """The most that the run takes of each usage window; outside of a run there is no such share."""


class _Reply(Struct, frozen=True):
    text: str
    is_cut: bool = False
    taken: Result = Result(b"")


class PromptAgent:
    """Calls models for the tasks of one run, on one event loop. Close it when the run ends."""

    def __init__(self, settings: PromptSettings) -> None:
        from headway.agents.gate import Gate

        self.settings: Final = settings
        self._gate = Gate(settings.port, settings.window, settings.window_shares)
        self._client: httpx2.AsyncClient | None = None
        self._endpoints: dict[str, Endpoint] = {}
        self._prices = PriceLookup(settings.prices, settings.must_be_priced)

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def perform(self, call: PromptCall, attempt: Attempt) -> Result:
        """Ask, examine, and ask again with what is wrong, as often as the call allows."""
        turns: list[tuple[str, str]] = [("user", asked_for(call.prompt, call.schema))]
        kept = deque(attempt.kept)
        spent = Result(b"")
        is_examined = call.schema is not None or call.verify is not None
        problem = ""
        for _ in range(1 + (max(0, call.repairs) if is_examined else 0)):
            if kept:
                # What was paid for it was charged to the attempt that was interrupted.
                reply = _Reply(*json.loads(kept.popleft()))
            else:
                try:
                    reply = await self._call(call, turns, attempt)
                except (AttemptError, OverBudgetError, WindowEmptyError) as error:
                    raise with_spent(error, spent) from error.__cause__
                spent = charged(spent, reply.taken)
                if is_examined:
                    await attempt.keep(json.dumps([reply.text, reply.is_cut]).encode())
            cut_at = (call.max_tokens or MAX_TOKENS) if reply.is_cut else None
            fit = await fitting(reply.text, call.schema, call.verify, cut_at)
            if isinstance(fit, Fitting):
                return replace(spent, body=fit.text.encode("utf-8", "replace"), value=fit.value)
            problem = fit.reason
            turns += [("assistant", reply.text or "(nothing)"), ("user", complaint(problem))]
        answer = replace(spent, body=reply.text.encode("utf-8", "replace"))
        raise AttemptError(Fault("unfit", detail=problem[:DETAIL_CHARS]), answer)

    async def _call(
        self, call: PromptCall, turns: list[tuple[str, str]], attempt: Attempt
    ) -> _Reply:
        from headway.agents.gate import CALLING, Calling
        from headway.client.exchange import UNKNOWN
        from headway.wire.read import sketch
        from headway.wire.request import body_of

        endpoint = self.endpoint(call.model)
        body = body_of(
            endpoint.wire, endpoint.model, turns, call.max_tokens or MAX_TOKENS, call.system,
            endpoint.says_completion, call.shared_chars,
        )  # fmt: skip
        ceiling = await self.ceiling(sketch(Route(endpoint.wire), body), call.model)
        await attempt.reserve(ceiling)
        calling = Calling(attempt, (self.settings.run,), endpoint.key_variable, endpoint.host)
        token = CALLING.set(calling)
        try:
            reader = await self._sent(endpoint, body, calling, ceiling)
        finally:
            CALLING.reset(token)
        outcome = calling.outcome
        tally = outcome.tally if outcome is not None else UNKNOWN
        if outcome is not None and outcome.fault is not None:
            raise self.lost(outcome.fault, calling, ceiling)
        taken = self.taken(endpoint.model, tally, ceiling)
        attempt.spare(ceiling.minus(taken.spend))
        reply = _Reply(reader.text, reader.finish == "length", taken)
        if reader.is_damaged or not (reader.finish or reader.is_over):
            fault = Fault("broken", detail="the answer broke off or cannot be read")
            raise self.lost(fault, calling, ceiling)
        if reader.finish in ("refusal", "tool") or not reply.text:
            why = f"the model gave no answer ({reader.finish})"
            raise AttemptError(Fault("unfit", detail=why), reply.taken)
        return reply

    async def _sent(
        self, endpoint: Endpoint, body: bytes, calling: Calling, ceiling: Spend
    ) -> TextReader:
        import httpx2

        from headway.wire.answer import TextReader

        headers = {"content-type": "application/json", **endpoint.headers, **self.settings.headers}
        client = self.http()
        request = client.build_request("POST", endpoint.url, content=body, headers=headers)
        try:
            response = await client.send(request, stream=True)
            try:
                kind = response.headers.get("content-type", "").lower()
                reader = TextReader(endpoint.wire, is_stream="event-stream" in kind)
                async for data in response.aiter_bytes():
                    reader.feed(data)
                reader.end()
            finally:
                await response.aclose()
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            outcome = calling.outcome
            fault = outcome.fault if outcome is not None else None
            fault = fault or Fault("connection" if outcome is None else "broken")
            fault = replace(fault, detail=f"{type(error).__name__}: {error}"[:DETAIL_CHARS])
            raise self.lost(fault, calling, ceiling) from error
        return reader

    def lost(self, fault: Fault, calling: Calling, ceiling: Spend) -> AttemptError:
        """Why there is no answer, and what that costs: nothing, or in doubt the most."""
        outcome = calling.outcome
        if fault.kind == "connection":
            self._gate.fatal.ended(calling.use, fault, is_lost=calling.attempt.is_last)
        if outcome is None or outcome.how != "used":
            return AttemptError(fault, Result(b"", calls=calling.sent))
        taken = self.taken("", replace(outcome.tally, known="unknown"), ceiling)
        return AttemptError(fault, replace(taken, calls=calling.sent), is_in_doubt=True)

    async def ceiling(self, call: Sketch, model: str) -> Spend:
        """The most that a call can take. Raises AttemptError if its price has to be known."""
        try:
            await self._prices.load(call.model, model)
        except BudgetReachedError as error:
            raise AttemptError(Fault("request", detail=error.render())) from error
        return ceiling_of(call, self.settings.prices)

    def taken(self, model: str, tally: Tally, ceiling: Spend) -> Result:
        spent = spend_of(model, ceiling, tally, self.settings.prices)
        read, output_tokens = tally.input_tokens + tally.cache_read_tokens, tally.output_tokens
        extra = ceil(spent.tokens) - round(read + output_tokens)
        return Result(
            b"", None, read, output_tokens, spent.microusd, 1, extra_tokens=max(0, extra),
            unpriced=spent.unpriced, cache=tally.cache,
        )  # fmt: skip

    def http(self) -> httpx2.AsyncClient:
        """The client of all calls, with proxies and certificates as the user has set them."""
        import httpx2

        from headway.client.exchange import Pacing
        from headway.client.transport import AsyncPacedTransport

        if self._client is None:
            client = httpx2.AsyncClient(
                transport=self.settings.transport,
                timeout=httpx2.Timeout(self.settings.quiet_s, connect=CONNECT_S_MAX, pool=None),
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=KEEPALIVE_MAX),
            )
            pacing = Pacing(admission=self._gate, broken_max=0)
            client._transport = AsyncPacedTransport(client._transport, pacing)
            for pattern, transport in client._mounts.items():
                if transport is not None:
                    client._mounts[pattern] = AsyncPacedTransport(transport, pacing)
            self._client = client
        return self._client

    def endpoint(self, model: str) -> Endpoint:
        found = self._endpoints.get(model)
        if found is None:
            found = self._endpoints[model] = endpoint_of(model, self.settings.environment)
        return found


def must_have_ceilings(
    models: Iterable[str], environment: Mapping[str, str], prices: Prices = price_at
) -> None:
    """Refuse a budget in money for a model without a known price, before anything starts."""
    for model in dict.fromkeys(models):
        if prices(endpoint_of(model, environment).model, 0) is None:
            raise unpriced(model)


def asked_for(prompt: str, schema: Schema | None) -> str:
    if schema is None:
        return prompt
    wanted = "Answer with JSON that fits this JSON Schema, and with nothing else:"
    return f"{prompt}\n\n{wanted}\n{schema.text}"


def complaint(problem: str) -> str:
    return (
        f"Your answer cannot be used:\n{problem}\n\n"
        "Give the whole answer again, corrected, and nothing else."
    )


async def fitting(
    text: str, schema: Schema | None, verify: Verify | None, cut_at: int | None = None
) -> Fitting | Misfit:
    """Whether an answer is whole, what the schema asks for, and what `verify` accepts."""
    if cut_at is not None:
        return Misfit(f"the answer was cut at max_tokens: {cut_at}; allow more or ask for less")
    fit: Fitting | Misfit = Fitting(text, text)
    if schema is not None:
        fit = schema.fit(text)
    if isinstance(fit, Fitting) and verify is not None:
        problem = await verify(fit.text)
        if problem is not None:
            return Misfit(problem)
    return fit
