"""Turns with tools, from the official SDKs to the simulated provider and back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from headway.base.values import Limit
from headway.sim.account import Terms
from headway.sim.models import SimulatedModels
from headway.sim.provider import Latency, ProviderSpec
from headway.sim.server import ServeOptions, account_of, serving, truth_of

SPEC = ProviderSpec("test", Terms((Limit("requests", 6000),)), Latency(0.01, 0.0001))
PROMPT = "Run `expr 40 + 2`."
PARAMETERS: Any = {"type": "object", "properties": {"command": {"type": "string"}}}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(SPEC, ServeOptions(models=SimulatedModels("agent"))) as found:
        yield found


def test_a_claude_uses_a_tool_and_tells_what_it_gave(url: str) -> None:
    tools: Any = [{"name": "Bash", "input_schema": PARAMETERS}]
    messages: Any = [{"role": "user", "content": PROMPT}]
    with anthropic.Anthropic(
        api_key="a", base_url=url, max_retries=0, _strict_response_validation=True
    ) as client:
        with client.messages.stream(
            model="m", max_tokens=500, messages=messages, tools=tools
        ) as events:
            first = events.get_final_message()
        use = next(block for block in first.content if block.type == "tool_use")
        result = {"type": "tool_result", "tool_use_id": use.id, "content": "42"}
        messages += [{"role": "assistant", "content": [b.to_dict() for b in first.content]}]
        messages += [{"role": "user", "content": [result]}]
        last = client.messages.create(model="m", max_tokens=500, messages=messages, tools=tools)
    assert use.input == {"command": "expr 40 + 2", "description": "Run what was asked for"}
    assert [block.text for block in last.content if block.type == "text"] == [
        "The commands gave:\n42"
    ]
    truth = truth_of(url, f"?key={account_of('a')}")
    total = first.usage.output_tokens + last.usage.output_tokens
    (account,) = truth["accounts"].values()
    assert account["reported"]["output_tokens"] == total
    assert account["charged"]["output"] == pytest.approx(total)
    digests = [visit["body"] for visit in truth["arrivals"]]
    assert len(set(digests)) == 2
    assert all(len(digest) == 16 for digest in digests)


def test_a_chat_uses_a_tool_and_tells_what_it_gave(url: str) -> None:
    tools: Any = [{"type": "function", "function": {"name": "bash", "parameters": PARAMETERS}}]
    messages: Any = [{"role": "user", "content": PROMPT}]
    with openai.OpenAI(
        api_key="b", base_url=f"{url}/v1", max_retries=0, _strict_response_validation=True
    ) as client:
        with client.chat.completions.stream(model="m", messages=messages, tools=tools) as events:
            events.until_done()
            message = events.get_final_completion().choices[0].message
        (call,) = message.tool_calls or []
        messages += [
            message.to_dict(),
            {"role": "tool", "tool_call_id": call.id, "content": "42"},
        ]
        last = client.chat.completions.create(model="m", messages=messages, tools=tools)
    assert json.loads(call.function.arguments)["command"] == "expr 40 + 2"
    assert last.choices[0].message.content == "The commands gave:\n42"


def test_responses_use_a_tool_and_tell_what_it_gave(url: str) -> None:
    tools: Any = [{"type": "function", "name": "exec_command", "parameters": PARAMETERS}]
    given: Any = [{"role": "user", "content": PROMPT}]
    with openai.OpenAI(
        api_key="c", base_url=f"{url}/v1", max_retries=0, _strict_response_validation=True
    ) as client:
        with client.responses.stream(model="m", input=given, tools=tools) as events:
            events.until_done()
            output = events.get_final_response().output
        call = next(item for item in output if item.type == "function_call")
        given += [item.to_dict() for item in output]
        given += [{"type": "function_call_output", "call_id": call.call_id, "output": "42"}]
        last = client.responses.create(model="m", input=given, tools=tools)
    assert json.loads(call.arguments) == {"cmd": "expr 40 + 2"}
    assert last.output_text == "The commands gave:\n42"
