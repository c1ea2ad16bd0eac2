"""The event streams of four real agents, as they wrote them, and whatever else may come."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.agents.kinds import KINDS
from headway.agents.programs import TOOLS_MAX, AgentOutput, OutputStream, less
from headway.base.fields import Fields

DATA = Path(__file__).parents[1] / "data" / "agents"
NAMES = ("claude", "codex", "opencode", "gemini")


def recorded(name: str) -> bytes:
    return (DATA / f"{name}.jsonl").read_bytes()


def heard(name: str, data: bytes) -> AgentOutput:
    stream = OutputStream(KINDS[name].hear)
    stream.feed(data)
    return stream.end()


@pytest.mark.parametrize(("name", "tool", "tokens", "microusd", "session"), [
    ("claude", "Bash", (52_535, 142), 212_980, ""), ("codex", "shell", (41_913, 193), 0, ""),
    ("opencode", "bash", (35_449, 135), 0, "ses_"),
    ("gemini", "run_shell_command", (50_000, 200), 0, ""),
])  # fmt: skip
def test_each_agent_tells_turns_tools_tokens_cost_and_session(
    name: str, tool: str, tokens: tuple[float, float], microusd: int, session: str
) -> None:
    found = heard(name, recorded(name))
    assert found.text.startswith("The commands gave:")
    assert (found.turns, found.tools, found.is_over) == (4, {tool: 3}, True)
    counted = (found.input_tokens, found.output_tokens)
    assert counted == tokens or (name == "gemini" and counted > tokens)
    assert (found.microusd, found.error) == (microusd, "")
    assert found.session.startswith(session)
    assert session or len(found.session) == 36


def test_codex_counts_the_whole_session_so_that_what_came_before_is_taken_off() -> None:
    found = heard("codex", recorded("codex-resumed"))
    assert KINDS["codex"].is_summed
    rest = less(found, 20_000, 1_000)
    assert rest.input_tokens == found.input_tokens - 20_000
    assert rest.output_tokens == 0.0


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_that_was_cut_off_is_not_over_and_tells_what_there_was(name: str) -> None:
    lines = recorded(name).splitlines(keepends=True)
    found = heard(name, b"".join(lines[: len(lines) // 2]) + lines[-1][:40])
    assert not found.is_over
    assert found.session
    assert found.turns
    assert found.tools
    assert found.is_begun


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25)
@given(cuts=st.lists(st.integers(0, 10_000), max_size=6))
def test_pieces_of_any_size_are_the_same_stream(name: str, cuts: list[int]) -> None:
    data = recorded(name)
    stream, at = OutputStream(KINDS[name].hear), 0
    for cut in sorted({min(cut, len(data)) for cut in cuts}):
        stream.feed(data[at:cut])
        at = cut
    stream.feed(data[at:])
    assert stream.end() == heard(name, data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60)
@given(
    place=st.integers(0, 40),
    key=st.sampled_from(("type", "message", "item", "part", "usage", "stats", "tokens", "content")),
    value=JSON,
    garbage=st.binary(max_size=40),
)
def test_no_event_and_no_garbage_breaks_a_reader(
    name: str, place: int, key: str, value: object, garbage: bytes
) -> None:
    lines = recorded(name).splitlines()
    place %= len(lines)
    event = json.loads(lines[place])
    event[key] = value
    lines[place : place + 1] = [json.dumps(event).encode(), garbage.replace(b"\n", b"")]
    found = heard(name, b"\n".join(lines))
    assert found.turns <= heard(name, recorded(name)).turns + 1
    assert isinstance(found.text, str)
    assert found.input_tokens >= 0


@pytest.mark.parametrize("name", NAMES)
def test_what_is_between_the_events_changes_nothing(name: str) -> None:
    noise = (b"", b"\xff\xfe not text", b"[1, 2]", b"warning: {", b'{"type": "unheard of"}',
             b'{"type": ' + b"[" * 100_000, b'{"a": 1' + b"0" * 5000 + b"}")  # fmt: skip
    lines = recorded(name).splitlines()
    mixed = [one for line in lines for one in (line, *noise)]
    found, plain = heard(name, b"\n".join(mixed)), heard(name, recorded(name))
    assert (found.text, found.turns, found.tools, found.input_tokens, found.is_over) == (
        plain.text, plain.turns, plain.tools, plain.input_tokens, plain.is_over,
    )  # fmt: skip


def test_a_line_that_is_too_long_is_passed_over_and_not_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headway.agents.programs.LINE_BYTES_MAX", 1000)
    events: list[Fields] = []

    def hear(notes: AgentOutput, event: Fields) -> None:
        events.append(event)

    stream = OutputStream(hear)
    for _ in range(50):
        stream.feed(b'{"a": "' + b"x" * 100)
    stream.feed(b'"}\n{"b": 1}\n')
    stream.end()
    assert events == [{"b": 1}]
    assert len(stream._buffer) == 0


def test_each_agent_says_in_its_own_way_that_it_failed() -> None:
    said = {
        "claude": {"type": "result", "subtype": "success", "is_error": True, "result": "API Error"},
        "codex": {"type": "turn.failed", "error": {"message": "API Error"}},
        "opencode": {"type": "error", "error": {"name": "E", "data": {"message": "API Error"}}},
        "gemini": {"type": "result", "status": "error", "error": {"message": "API Error"}},
    }
    for name, event in said.items():
        assert heard(name, json.dumps(event).encode()).error == "API Error"
    claude = {"type": "result", "subtype": "error_max_turns", "errors": ["too many", 3]}
    assert heard("claude", json.dumps(claude).encode()).error == "too many"
    assert heard("codex", b'{"type": "error"}').error == "it says that it failed"
    warned = b'{"type": "error", "severity": "warning", "message": "loop"}'
    assert not heard("gemini", warned).error


def test_an_error_that_was_overcome_is_none() -> None:
    data = b'{"type": "error", "message": "Reconnecting 1/5"}\n' + recorded("codex")
    assert not heard("codex", data).error


def test_tools_without_end_are_counted_up_to_a_limit() -> None:
    lines = [
        json.dumps({"type": "tool_use", "tool_name": f"tool {number}"}) for number in range(500)
    ]
    assert len(heard("gemini", "\n".join(lines).encode()).tools) == TOOLS_MAX
