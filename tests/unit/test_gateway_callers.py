"""Who calls: by the headers that the programs themselves send."""

from __future__ import annotations

import httpx2
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.gateway import guard
from headway.gateway.values import Caller, Pairs

CLAUDE_CODE: Pairs = (
    (b"Accept", b"application/json"),
    (b"User-Agent", b"claude-cli/2.1.325 (external, sdk-cli)"),
    (b"X-Claude-Code-Session-Id", b"294124be-f3df-4917-8d8c-707d8d23dd85"),
    (b"X-Stainless-Lang", b"js"),
    (b"X-Stainless-Timeout", b"600"),
)
CODEX: Pairs = (
    (b"x-codex-window-id", b"01a1e34a-ec3e-7633-b79e-58c4b44fe777:0"),
    (b"session-id", b"01a1e34a-ec3e-7633-b79e-58c4b44fe777"),
    (b"thread-id", b"01a1e34a-ec3e-7633-b79e-58c4b44fe778"),
    (b"originator", b"codex_exec"),
    (b"User-Agent", b"codex_exec/0.166.0 (Debian 12.0.0; x86_64) dumb (codex_exec; 0.166.0)"),
)
OPENCODE: Pairs = (
    (b"User-Agent", b"opencode/1.18.33 ai-sdk/provider-utils/4.0.23 runtime/bun/1.3.14"),
    (b"x-session-affinity", b"ses_e1cb50b7affe4eErKU3a6iIrfc"),
    (b"x-session-id", b"ses_e1cb50b7affe4eErKU3a6iIrfc"),
)
GEMINI_CLI: Pairs = (
    (b"User-Agent", b"GeminiCLI-tui/0.61.0/gemini-3.1-pro-preview (linux; x64; terminal)"),
    (b"x-goog-api-client", b"google-genai-sdk/1.30.0 gl-node/v22.23.3"),
)


CLAUDE_TERMINAL = b"claude-cli/2.1.325 (external, cli)"
CODEX_TERMINAL = b"codex-tui/0.166.0 (Debian 12.0.0; x86_64) xterm-256color (codex-tui; 0.166.0)"
OPENCODE_TERMINAL = b'{"tools":[{"function":{"name":"question","description":"ask"}}]}'
OPENCODE_RUN = b'{"tools":[{"function":{"name":"glob","description":"a question"}}]}'


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        (((b"User-Agent", CLAUDE_TERMINAL),), b"", True),
        (((b"User-Agent", b"claude-cli/2.1.325 (external, claude-vscode)"),), b"", True),
        (((b"User-Agent", b"claude-cli/2.1.325 (external, sdk-py, agent-sdk/0.1)"),), b"", False),
        (((b"User-Agent", b"claude-cli/2.1.325"),), b"", False),
        (CLAUDE_CODE, b"", False),
        (((b"User-Agent", CODEX_TERMINAL),), b"", True),
        (((b"User-Agent", b"codex_cli_rs/0.50.0 (Debian)"),), b"", True),
        (CODEX, b"", False),
        (OPENCODE, OPENCODE_TERMINAL, True),
        (OPENCODE, OPENCODE_RUN, None),
        (((b"User-Agent", b"OpenAI/Python 3.49.0"),), OPENCODE_TERMINAL, None),
    ],
)
def test_a_person_is_recognised_by_how_an_agent_was_started(
    headers: Pairs, body: bytes, expected: bool | None
) -> None:
    assert guard.caller_of(headers, body).is_interactive is expected


def agent(text: bytes, *more: tuple[bytes, bytes]) -> Caller:
    return guard.caller_of(((b"user-agent", text), *more))


@pytest.mark.parametrize(
    ("headers", "name", "version", "session"),
    [
        (CLAUDE_CODE, "claude-code", "2.1.325", "294124be-f3df-4917-8d8c-707d8d23dd85"),
        (CODEX, "codex", "0.166.0", "01a1e34a-ec3e-7633-b79e-58c4b44fe777"),
        (OPENCODE, "opencode", "1.18.33", "ses_e1cb50b7affe4eErKU3a6iIrfc"),
        (GEMINI_CLI, "gemini-cli", "0.61.0", ""),
    ],
)
def test_agents_are_known_by_what_they_send(
    headers: Pairs, name: str, version: str, session: str
) -> None:
    caller = guard.caller_of(headers)
    assert (caller.name, caller.version, caller.session) == (name, version, session)


@pytest.mark.parametrize(
    ("text", "name", "version"),
    [
        (b"OpenAI/Python 3.49.0", "openai-python", "3.49.0"),
        (b"AsyncOpenAI/Python 3.49.0", "openai-python", "3.49.0"),
        (b"OpenAI/JS 6.1.0", "openai-js", "6.1.0"),
        (b"Anthropic/Python 2.8.0", "anthropic-python", "2.8.0"),
        (b"AsyncAnthropic/Python 2.8.0", "anthropic-python", "2.8.0"),
        (b"Anthropic/JS 0.128.0", "anthropic-js", "0.128.0"),
        (b"google-genai-sdk/3.1.0 gl-python/3.11.7", "google-genai", "3.1.0"),
        (b"pydantic-ai/2.66.0", "pydantic-ai", "2.66.0"),
        (b"codex_cli_rs/0.50.0 (Mac OS 15.0; arm64) iTerm", "codex", "0.50.0"),
        (b"codex_vscode/0.60.0", "codex", "0.60.0"),
        (b"GeminiCLI/0.9.0/gemini-2.5-pro (darwin; arm64)", "gemini-cli", "0.9.0"),
        (b"python-httpx/0.28.1", "httpx", "0.28.1"),
        (b"Python/3.11 aiohttp/3.14.5", "aiohttp", "3.11"),
        (b"curl/8.5.0", "curl", "8.5.0"),
        (b"Mozilla/5.0 (X11; Linux)", "unknown", "5.0"),
        (b"node", "unknown", ""),
        (b"", "unknown", ""),
    ],
)
def test_programs_are_known_by_their_user_agent(text: bytes, name: str, version: str) -> None:
    caller = agent(text)
    assert (caller.name, caller.version) == (name, version)


@pytest.mark.parametrize(
    ("headers", "gives_up_s"),
    [(CLAUDE_CODE, 330.0), (CODEX, 330.0), (OPENCODE, 300.0), (GEMINI_CLI, 60.0)],
)
def test_no_agent_is_left_in_silence_for_as_long_as_was_measured(
    headers: Pairs, gives_up_s: float
) -> None:
    caller = guard.caller_of(headers)
    assert caller.silent_s <= 0.8 * gives_up_s
    assert caller.beat_s <= gives_up_s / 3


READ = b"x-stainless-read-timeout"


@pytest.mark.parametrize(
    ("text", "stated", "silent_s"),
    [
        (b"OpenAI/Python 3.49.0", ((READ, b"600"),), 540.0),
        (b"OpenAI/Python 3.49.0", ((READ, b"30.0"),), 27.0),
        # A short timeout leaves time for a late beat.
        (b"OpenAI/Python 3.49.0", ((READ, b"10"),), 8.0),
        (b"OpenAI/Python 3.49.0", ((READ, b"3"),), 1.5),
        (b"OpenAI/Python 3.49.0", ((READ, b"0.2"),), 0.5),
        # The shortest of several counts; an SDK on Node is no more patient than Node.
        (b"Anthropic/Python 2.8.0", ((b"x-stainless-timeout", b"NOT_GIVEN"), (READ, b"20"),
                                     (b"X-Server-Timeout", b"100")), 18.0),
        (b"OpenAI/JS 6.1.0", ((b"X-Stainless-Timeout", b"600"),), 240.0),
    ],
)  # fmt: skip
def test_a_stated_timeout_is_believed(
    text: bytes, stated: tuple[tuple[bytes, bytes], ...], silent_s: float
) -> None:
    assert agent(text, *stated).silent_s == silent_s


def test_the_installed_sdk_states_its_timeout() -> None:
    seen: list[Pairs] = []

    def handle(request: httpx2.Request) -> httpx2.Response:
        seen.append(tuple(request.headers.raw))
        return httpx2.Response(200, json={"object": "list", "data": []})

    http = httpx2.Client(transport=httpx2.MockTransport(handle))
    with openai.OpenAI(
        api_key="k", base_url="http://provider.test/v1", http_client=http, timeout=40.0
    ) as client:
        client.models.list()
    caller = guard.caller_of(seen[0])
    assert (caller.name, caller.version) == ("openai-python", openai.__version__)
    assert caller.silent_s == 36.0


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"User-Agent", b"session-id", b"X-Session-Id", b"originator"])
            | st.binary(max_size=12),
            st.binary(max_size=300)
            | st.just(b"claude-cli/" + b"9" * 500)
            | st.just(b"codex_x/\x1b[31m1"),
        ),
        max_size=6,
    )
)
def test_whatever_is_sent_names_are_short_and_printable(pairs: list[tuple[bytes, bytes]]) -> None:
    caller = guard.caller_of(tuple(pairs))
    assert len(caller.name) <= 24
    assert len(caller.session) <= guard.SESSION_CHARACTERS_MAX
    assert len(caller.version) <= guard.VERSION_CHARACTERS_MAX
    shown = caller.session + caller.version
    assert all("!" <= character <= "~" for character in shown)
    assert caller.silent_s >= guard.SILENT_S_MIN
    assert caller.beat_s >= guard.BEAT_S_MIN
