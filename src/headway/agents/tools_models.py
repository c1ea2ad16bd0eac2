"""Model calls of tool loops: pydantic-ai formats them, headway paces and charges them.

Laws:
- No call is sent before the most that it can cost is set aside: all bytes of its body, as if each
  were a token, and the longest answer. What earlier calls of the attempt did not use counts.
- A call is sent once. Waiting and sending again are done as for prompts.
- The SDKs see neither a key nor the environment: the address and the key are put on here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextvars import ContextVar
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import httpx2
from msgspec import Struct, field
from msgspec.structs import replace

from headway.agents.gate import CALLING, Calling
from headway.agents.prompt import CONNECT_S_MAX, DETAIL_CHARS, Endpoint, PromptAgent
from headway.agents.tools import LoopTool, missing
from headway.base.values import Fault, FaultKind, Spend
from headway.wire.read import route, sketch
from headway.wire.values import Route, WireName
from headway.work import Attempt, AttemptError, OverBudgetError, Result, WindowEmptyError, charged

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models import Model

RESPONSES: Final = "openai-responses/"
"""Models that are asked by OpenAI's Responses rather than by Chat Completions."""

Ended = (AttemptError, OverBudgetError, WindowEmptyError)
"""How an attempt can end in the middle of a call; SDKs would wrap these."""


class Outlay(Struct):
    attempt: Attempt
    spent: Result = field(default_factory=lambda: Result(b""))
    calling: Calling | None = None
    """The call that is being made."""
    ceiling: Spend = Spend()
    """The most that it can take; nothing before it is sent."""
    ended: Exception | None = None
    """Why it was not sent; SDKs would wrap it."""

    def begin(self, calling: Calling) -> None:
        self.calling, self.ceiling, self.ended = calling, Spend(), None

    def pay(self, result: Result) -> None:
        self.spent = charged(self.spent, result)
        self.attempt.spare(self.ceiling.minus(result.spend))

    def lost(self) -> Spend | None:
        """The most that a call took which was sent and whose end is unknown."""
        if self.calling is None:
            return None
        outcome = self.calling.outcome
        is_lost = self.calling.sent > 0 and (outcome is None or outcome.how == "used")
        return self.ceiling if is_lost else None


_SENDING: Final[ContextVar[tuple[Endpoint, Outlay]]] = ContextVar("headway sending")


class LoopModels:
    """Asks models for the loops of one run, through the connections of its prompts."""

    def __init__(self, agent: PromptAgent) -> None:
        self._agent = agent
        self._client = httpx2.AsyncClient(transport=_Post(self))
        self._models: dict[str, Model[Any]] = {}

    async def aclose(self) -> None:
        """The connections are the prompts', and stay open."""
        await self._client.aclose()

    async def reply(
        self,
        name: str,
        messages: list[ModelMessage],
        tools: Sequence[LoopTool],
        max_tokens: int,
        outlay: Outlay,
    ) -> ModelResponse:
        """One call; earlier usage of the attempt is not in the errors that it raises."""
        model = await self._model(name)
        endpoint = self._agent.endpoint(name)
        run = self._agent.settings.run
        calling = Calling(outlay.attempt, (run,), endpoint.key_variable, endpoint.host)
        outlay.begin(calling)
        tokens = CALLING.set(calling), _SENDING.set((endpoint, outlay))
        try:
            response = await model.request(messages, _settings(max_tokens), _parameters(tools))
        except Exception as error:
            # The boundary to pydantic-ai and the SDKs, which have errors of many kinds.
            raise outlay.ended or self._lost(error, calling, outlay.ceiling) from error
        finally:
            CALLING.reset(tokens[0])
            _SENDING.reset(tokens[1])
        outcome = calling.outcome
        if outcome is None or outcome.fault is not None:
            fault = outcome.fault if outcome is not None else None
            raise self._agent.lost(fault or Fault("broken"), calling, outlay.ceiling)
        outlay.calling = None
        taken = self._agent.taken(endpoint.model, outcome.tally, outlay.ceiling)
        outlay.pay(replace(taken, calls=calling.sent))
        return response

    async def send(self, request: httpx2.Request) -> httpx2.Response:
        endpoint, outlay = _SENDING.get()
        for name in ("authorization", "x-api-key"):
            request.headers.pop(name, None)
        request.headers.update({**endpoint.headers, **self._agent.settings.headers})
        try:
            asked = route(request.method, request.url.path) or Route(endpoint.wire)
            call = sketch(asked, request.content)
            outlay.ceiling = await self._agent.ceiling(call, endpoint.model)
            await outlay.attempt.reserve(outlay.ceiling)
            return await self._agent.http().send(request, stream=True)
        except Ended as ended:
            outlay.ended = ended
            raise

    def _lost(self, error: Exception, calling: Calling, ceiling: Spend) -> AttemptError:
        """A call that gave no answer, by what the gate saw of it."""
        outcome, detail = calling.outcome, f"{type(error).__name__}: {error}"[:DETAIL_CHARS]
        fault = outcome.fault if outcome is not None else None
        if fault is None:
            kind: FaultKind = "connection" if outcome is None else "broken"
            if outcome is None and not ceiling.tokens:
                kind = "request"  # It was not sent: the SDK cannot say what is asked.
            fault = Fault(kind, detail=detail)
        return self._agent.lost(replace(fault, detail=fault.detail or detail), calling, ceiling)

    async def _model(self, name: str) -> Model[Any]:
        found = self._models.get(name)
        if found is None:
            endpoint = self._agent.endpoint(name)
            await load(endpoint.wire)
            is_responses = name.startswith(RESPONSES)
            made = _made(endpoint, is_responses, self._client, self._agent.settings.quiet_s)
            found = self._models.setdefault(name, made)
        return found


class _Post(httpx2.AsyncBaseTransport):
    def __init__(self, models: LoopModels) -> None:
        self._models = models

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return await self._models.send(request)


async def load(wire: WireName | None = None) -> None:
    """Import pydantic-ai, which takes seconds, beside the loop. Raises AttemptError."""
    name = {None: "", "anthropic": ".anthropic"}.get(wire, ".openai")
    try:
        await asyncio.to_thread(import_module, f"pydantic_ai.models{name}")
    except ImportError:
        raise AttemptError(Fault("request", detail=missing("pydantic_ai").render())) from None


def _made(
    endpoint: Endpoint, is_responses: bool, client: httpx2.AsyncClient, quiet_s: float
) -> Model[Any]:
    """A model as pydantic-ai knows it, whose SDK sends through the client and never by itself."""
    timeout = httpx2.Timeout(quiet_s, connect=CONNECT_S_MAX, pool=None)
    if endpoint.wire == "anthropic":
        from anthropic import AsyncAnthropic
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        anthropic = AsyncAnthropic(
            api_key="-", base_url=endpoint.url.removesuffix("/v1/messages"),
            http_client=client, max_retries=0, timeout=timeout,
        )  # fmt: skip
        return AnthropicModel(
            endpoint.model, provider=AnthropicProvider(anthropic_client=anthropic)
        )
    from openai import AsyncOpenAI
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.profiles import merge_profile
    from pydantic_ai.profiles.openai import OpenAIModelProfile, openai_model_profile
    from pydantic_ai.providers.openai import OpenAIProvider

    openai = AsyncOpenAI(
        api_key="-", base_url=endpoint.url.removesuffix("/chat/completions"),
        http_client=client, max_retries=0, timeout=timeout,
    )  # fmt: skip
    provider = OpenAIProvider(openai_client=openai)
    if is_responses:
        return OpenAIResponsesModel(endpoint.model, provider=provider)
    says = OpenAIModelProfile(openai_chat_supports_max_completion_tokens=endpoint.says_completion)
    profile = merge_profile(openai_model_profile(endpoint.model), says)
    return OpenAIChatModel(endpoint.model, provider=provider, profile=profile)


def _settings(max_tokens: int) -> Any:
    """Anthropic is asked to keep the instructions, and the conversation for its next turn; other
    providers do so by themselves."""
    kept = dict.fromkeys(("anthropic_cache_instructions", "anthropic_cache_messages"), True)
    return {"max_tokens": max_tokens, **kept}


def _parameters(tools: Sequence[LoopTool]) -> Any:
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.tools import ToolDefinition

    return ModelRequestParameters(
        function_tools=[
            ToolDefinition(
                name=tool.name, description=tool.about, strict=False,
                parameters_json_schema=dict(tool.schema),
            )
            for tool in tools
        ]
    )  # fmt: skip
