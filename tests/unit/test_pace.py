"""What `pace` accepts, what it leaves as it was, and what it says to the rest."""

from __future__ import annotations

import asyncio
import re
from json import dumps

import anthropic
import httpx
import httpx2
import openai
import pytest
from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

import headway
from headway.client.accounts import account_name, dialect_of, expected_dialect, host_name
from headway.client.exchange import Pacing
from headway.client.httpx_transport import AsyncLegacyTransport, LegacyTransport
from headway.client.transport import AsyncPacedTransport, PacedTransport
from headway.errors import BadValueError, UsageError
from headway.testing import FakeAdmission
from tests.unit.paced_provider import ANSWER, HOST, PacedProvider, refusal

CHAT = f"{HOST}/v1/chat/completions"
ASK: dict[str, object] = {"model": "model-1", "messages": [{"role": "user", "content": "?"}]}


def transport_of(client: object) -> object:
    """The transport of an HTTP client, or of the one inside an SDK's client."""
    transport: object = getattr(getattr(client, "_client", client), "_transport", None)
    return transport


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: openai.OpenAI(api_key="k"), PacedTransport),
        (lambda: openai.AsyncOpenAI(api_key="k"), AsyncPacedTransport),
        (lambda: anthropic.Anthropic(api_key="k"), PacedTransport),
        (lambda: anthropic.AsyncAnthropic(api_key="k"), AsyncPacedTransport),
        (httpx2.Client, PacedTransport),
        (httpx2.AsyncClient, AsyncPacedTransport),
        (httpx.Client, LegacyTransport),
        (httpx.AsyncClient, AsyncLegacyTransport),
    ],
)
def test_the_same_client_comes_back_paced(make: object, kind: type) -> None:
    assert callable(make)
    client = make()
    before = transport_of(client)
    assert headway.pace(client) is client
    paced = transport_of(client)
    assert type(paced) is kind
    assert isinstance(paced, PacedTransport | AsyncPacedTransport)
    assert paced.inner is before


def test_pacing_twice_is_pacing_once_in_the_newest_way() -> None:
    with httpx2.Client() as http:
        inner = transport_of(http)
        headway.pace(http, wait_s=1.0)
        headway.pace(http, wait_s=2.0, path=("nightly",))
        paced = transport_of(http)
    assert isinstance(paced, PacedTransport)
    assert paced.inner is inner
    assert paced.pacing == Pacing(2.0, ("nightly",))


def test_proxies_and_mounts_are_kept_and_paced() -> None:
    provider, other, admission = PacedProvider(), PacedProvider(), FakeAdmission()
    mounts: dict[str, httpx2.BaseTransport | None] = {
        "all://provider.test": other.transport,
        "all://direct.test": None,
    }
    seen: list[str] = []
    http = httpx2.Client(
        transport=provider.transport,
        mounts=mounts,
        timeout=7.0,
        event_hooks={"request": [lambda request: seen.append(request.url.host)]},
    )
    with headway.pace(http, admission=admission) as client:
        assert client.post(CHAT, json=ASK).status_code == 200
        assert client.post("http://direct.test/v1/chat/completions", json=ASK).status_code == 200
        assert client.timeout == httpx2.Timeout(7.0)
    assert (len(other.requests), len(provider.requests)) == (1, 1)
    assert seen == ["provider.test", "direct.test"]
    assert len({call.account for call in admission.calls}) == 2


def models(provider: PacedProvider) -> list[object]:
    """Everything of pydantic-ai that leads to a client."""
    gpt = OpenAIProvider(openai_client=provider.gpt_async())
    claude = AnthropicProvider(anthropic_client=provider.claude_async())
    return [
        OpenAIChatModel("model-1", provider=gpt),
        OpenAIResponsesModel("model-1", provider=gpt),
        AnthropicModel("model-1", provider=claude),
        WrapperModel(OpenAIChatModel("model-1", provider=gpt)),
        FallbackModel(
            AnthropicModel("model-1", provider=claude), OpenAIChatModel("model-1", provider=gpt)
        ),
    ]


@pytest.mark.parametrize("index", range(5))
def test_agents_of_pydantic_ai_run_paced(index: int) -> None:
    provider, admission = PacedProvider(), FakeAdmission()
    agent = Agent(models(provider)[index])  # type: ignore[call-overload]
    assert headway.pace(agent, admission=admission) is agent
    assert str(asyncio.run(agent.run("Hamlet?")).output).strip() == ANSWER.text.strip()
    assert [outcome.tally.output_tokens for outcome in admission.outcomes] == [34]


def test_every_model_that_an_agent_can_fall_back_to_is_paced() -> None:
    provider, admission = PacedProvider(refusal(400, "invalid_request_error")), FakeAdmission()
    agent = Agent(headway.pace(models(provider)[4], admission=admission))  # type: ignore[call-overload]
    asyncio.run(agent.run("Hamlet?"))
    assert [call.dialect for call in admission.calls] == ["anthropic", "openai"]


def test_a_provider_that_makes_new_clients_makes_paced_ones() -> None:
    provider = OpenAIProvider(api_key="k", base_url=f"{HOST}/v1")
    headway.pace(headway.pace(provider), wait_s=3.0)
    factory = provider._http_client_factory
    assert factory is not None
    made = transport_of(factory())
    assert isinstance(made, AsyncPacedTransport)
    assert not isinstance(made.inner, AsyncPacedTransport)
    assert made.pacing.wait_s == 3.0


@pytest.mark.parametrize(
    "thing", [None, "gpt-5", 42, openai.OpenAI, TestModel(), Agent(TestModel()), object()]
)
def test_what_cannot_be_paced_is_told_what_can(thing: object) -> None:
    with pytest.raises(UsageError, match="cannot pace") as caught:
        headway.pace(thing)
    assert caught.value.hint is not None
    assert "openai or anthropic client" in caught.value.hint


def test_a_legacy_client_is_paced_and_gets_its_own_kind_of_response() -> None:
    body = b'{"usage": {"prompt_tokens": 5, "completion_tokens": 7}, "choices": []}'

    def reply(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, stream=httpx.ByteStream(body))

    admission = FakeAdmission()
    with headway.pace(
        httpx.Client(transport=httpx.MockTransport(reply)), admission=admission
    ) as http:
        assert http.post(CHAT, json=ASK).content == body
        admission.refuse(headway.QueueDeadlineError())
        assert http.post(CHAT, json=ASK).status_code == 429

    async def same() -> None:
        async with headway.pace(
            httpx.AsyncClient(transport=httpx.MockTransport(reply)), admission=admission
        ) as client:
            assert (await client.post(CHAT, json=ASK)).content == body
            admission.refuse(headway.QueueDeadlineError())
            assert (await client.post(CHAT, json=ASK)).status_code == 429

    asyncio.run(same())
    assert [outcome.tally.output_tokens for outcome in admission.outcomes] == [7, 7]


def test_the_environment_says_how_long_to_wait_unless_the_caller_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def wait_s(given: float | None = None) -> float | None:
        with headway.pace(httpx2.Client(), wait_s=given) as http:
            paced = transport_of(http)
        assert isinstance(paced, PacedTransport)
        return paced.pacing.wait_s

    assert wait_s() is None
    assert wait_s(float("inf")) is None
    monkeypatch.setenv("HEADWAY_WAIT", "600")
    assert wait_s() == 600.0
    assert wait_s(0.0) == 0.0
    for wrong in ("soon", "-1", "nan"):
        monkeypatch.setenv("HEADWAY_WAIT", wrong)
        with pytest.raises(BadValueError, match="HEADWAY_WAIT"):
            wait_s()
    with pytest.raises(BadValueError, match="wait_s"):
        wait_s(-1.0)


def named(host: str, **headers: str) -> str:
    return account_name(host, {name.replace("_", "-"): one for name, one in headers.items()})[0]


def test_an_account_is_a_host_and_a_digest_of_its_key() -> None:
    host = host_name("https", "API.anthropic.com", 443)
    name = named(host, x_api_key="sk-ant-1")
    assert name.startswith("api.anthropic.com#")
    assert len(name) == len("api.anthropic.com#") + 8
    assert "sk-ant" not in name
    assert named(host, x_api_key="sk-ant-1") == name
    assert named(host, authorization="Bearer sk-ant-1") == name
    others = [
        named(host, x_api_key="sk-ant-2"),
        named(host, x_api_key="sk-ant-1", openai_organization="org"),
        named(host, x_api_key="sk-ant-1", openai_project="org"),
        named(host),
    ]
    assert len({name, *others}) == 5


def test_the_name_of_a_server_that_is_no_providers_holds_no_address() -> None:
    one, other = (host_name("http", "llm.acme.example", port) for port in (8000, 8001))
    name = named(one, authorization="Bearer sk-1")
    assert re.fullmatch("server#[0-9a-f]{8}", name)
    assert named(one, authorization="Bearer sk-1") == name
    assert named(other, authorization="Bearer sk-1") not in (name, named(other), named(one))
    # A name that only ends like a provider's is not the provider's.
    assert named("notapi.openai.com.acme.example").startswith("server#")
    assert named("evilopenai.com").startswith("server#")
    assert named("team.openai.azure.com").startswith("team.openai.azure.com#")


def test_a_signature_that_changes_with_every_request_is_one_account() -> None:
    signed = "AWS4-HMAC-SHA256 Credential=KEY/20261116/eu/x/aws4_request, Signature={}"
    assert named("h", authorization=signed.format(1)) == named("h", authorization=signed.format(2))


def test_a_login_is_named_whatever_its_token() -> None:
    account = "0b5a7c1e-1111-4222-8333-444455556666"

    def claude(token: str, user: str, prompt: str = "") -> tuple[str, str]:
        body = dumps({"messages": [{"role": "user", "content": prompt}],
                      "metadata": {"user_id": user}}).encode()  # fmt: skip
        return account_name("api.anthropic.com", {"authorization": f"Bearer {token}"}, "", body)

    user = f"user_ab12_account_{account}_session_{{}}"
    key, login = claude("sk-ant-oat01-one", user.format("1"))
    other = claude("sk-ant-oat01-two", user.format("2"))
    assert other[0] != key
    assert other[1] == login
    assert claude("sk-ant-oat01-two", dumps({"device": "d", "account_uuid": account}))[1] == login
    assert account not in login
    assert login.startswith("anthropic#")
    # An API key has no login, and what a prompt quotes names none.
    assert claude("sk-ant-api03-one", user.format("1"))[1] == ""
    quoted = dumps({"metadata": {"user_id": user.format("1")}})
    assert claude("sk-ant-oat01-one", "", quoted)[1] == ""
    codex = [
        named(host, authorization=f"Bearer {token}", chatgpt_account_id=id)
        for host, token, id in (("chatgpt.com", "a", "x"), ("proxy", "b", "x"), ("proxy", "a", "y"))
    ]
    assert codex[0] == codex[1] != codex[2]
    assert codex[0].startswith("chatgpt#")


def test_a_dialect_is_that_of_the_host_or_of_the_headers_and_before_them_of_the_format() -> None:
    assert expected_dialect("api.groq.com#1", "openai-chat").name == "groq"
    assert dialect_of("api.groq.com#1", "openai-chat", 200, {}) == "groq"
    assert expected_dialect("server#1", "anthropic").name == "anthropic"
    assert dialect_of("server#1", "openai-chat", 500, {}) == ""
    assert dialect_of("server#1", "openai-chat", 200, {}) == "plain"
    assert dialect_of("server#1", "gemini", 500, {}) == "gemini"
    assert dialect_of("server#1", "openai-chat", 429, {"x-groq-region": "eu"}) == "groq"
