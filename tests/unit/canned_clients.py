"""The official SDKs, in strict validation, in front of one prepared answer."""

from __future__ import annotations

import anthropic
import httpx2
import openai


def answering(body: bytes) -> httpx2.Client:
    kind = "application/json" if body.startswith(b"{") else "text/event-stream"

    def handle(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": kind}, content=body)

    return httpx2.Client(transport=httpx2.MockTransport(handle))


def claude(body: bytes) -> anthropic.Anthropic:
    return anthropic.Anthropic(
        api_key="k",
        base_url="http://provider.test",
        http_client=answering(body),
        max_retries=0,
        _strict_response_validation=True,
    )


def gpt(body: bytes) -> openai.OpenAI:
    return openai.OpenAI(
        api_key="k",
        base_url="http://provider.test/v1",
        http_client=answering(body),
        max_retries=0,
        _strict_response_validation=True,
    )
