"""Which program sends a request and how long it waits, by its headers.

Laws:
- A caller never waits in silence for as long as its own timeout, neither for the one that it
  states (`x-stainless-read-timeout`, `x-stainless-timeout`, `x-server-timeout`) nor for the one
  that was measured.
- Of what a stranger sends, names and sessions are short, printable and safe to show.
- A program that is not known is taken to be impatient.

The figures of the coding agents were measured on the real programs, held by a server that says
nothing or only keeps alive; docs/agents.md has the table. Those of libraries follow from their
default timeouts.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from headway.gateway.values import Caller, Pairs

SESSION_CHARACTERS_MAX: Final = 80
VERSION_CHARACTERS_MAX: Final = 24
"""Sessions have 30 to 36 characters, versions 5 to 8. Both are labels of flows and counters."""

AGENT_BYTES_MAX: Final = 256
"""As much of a User-Agent as is looked at: the program comes first."""

SILENT_SHARE: Final = 0.9
SILENT_SHARE_MIN: Final = 0.5
MARGIN_S: Final = 2.0
"""The share of its own timeout for which a caller is left in silence: all but a tenth, and all but
two seconds if that leaves half of it. The clock of a busy client starts before its request
arrives, and a busy gateway is late with its beats."""

BEAT_SHARE: Final = 1 / 3
"""Two beats may be late or lost before a caller gives up."""

SILENT_S_MIN: Final = 0.5
BEAT_S_MIN: Final = 0.5
"""More often nobody is told that his call is alive, however short his timeout is."""

TIMEOUT_S_MAX: Final = 86_400.0
"""A stated timeout that is longer means nothing."""

SESSIONS: Final = (
    b"x-claude-code-session-id", b"session-id", b"session_id", b"x-session-id",
    b"x-session-affinity", b"x-gemini-session-id", b"x-conversation-id",
)  # fmt: skip
"""What programs call their conversations, the surest first. Claude Code sends the first, Codex
`session-id`, opencode both `x-session-id` and `x-session-affinity`; the others are spellings that
programs may use. Gemini CLI and the SDKs say nothing."""

TIMEOUTS: Final = (b"x-stainless-read-timeout", b"x-stainless-timeout", b"x-server-timeout")
"""Where SDKs state their own timeout, in seconds. OpenAI's and Anthropic's for Python say the
first, Claude Code, which uses Anthropic's for JavaScript, the second, Google's the third when its
user sets one."""


class _Program(Struct, frozen=True):
    """What is known of one program."""

    name: str
    silent_s: float
    beat_s: float = 15.0


_CLAUDE_CODE: Final = _Program("claude-code", silent_s=240.0, beat_s=60.0)
"""Without a byte it gives up after 360 s. Of pings alone it has enough 600 s after the first when
they come every 5 s, after 740 to 760 s when every 15 s, and not yet after 795 s when every 30, 60
or 100 s: so they come slowly."""

_CODEX: Final = _Program("codex", silent_s=240.0)
_OPENCODE: Final = _Program("opencode", silent_s=200.0)
_GEMINI_CLI: Final = _Program("gemini-cli", silent_s=35.0, beat_s=10.0)

_BY_PRODUCT: Final = {
    b"claude-cli": _CLAUDE_CODE,
    b"claude-code": _CLAUDE_CODE,
    b"opencode": _OPENCODE,
    # The SDKs' timeout is 600 s between two reads, and they state another one.
    b"openai": _Program("openai-python", silent_s=540.0),
    b"asyncopenai": _Program("openai-python", silent_s=540.0),
    b"anthropic": _Program("anthropic-python", silent_s=540.0),
    b"asyncanthropic": _Program("anthropic-python", silent_s=540.0),
    # Google's has no timeout unless it states one.
    b"google-genai-sdk": _Program("google-genai", silent_s=540.0),
    b"pydantic-ai": _Program("pydantic-ai", silent_s=540.0),
    b"litellm": _Program("litellm", silent_s=540.0),
    # The AI SDK uses its runtime's own fetch.
    b"ai-sdk": _Program("ai-sdk", silent_s=200.0),
    b"ai": _Program("ai-sdk", silent_s=200.0),
    # Both wait for ever, like most who use them.
    b"curl": _Program("curl", silent_s=240.0),
    b"python-requests": _Program("requests", silent_s=240.0),
    # The timeout of whoever does not set one is 300 s in all, and 5 s between two reads.
    b"python": _Program("aiohttp", silent_s=200.0),
    b"python-httpx": _Program("httpx", silent_s=4.0, beat_s=1.5),
    b"python-httpx2": _Program("httpx", silent_s=4.0, beat_s=1.5),
}
"""By the first product of a User-Agent, in lower case."""

_NODE_SILENT_S: Final = 240.0
"""The fetch of Node, unless told otherwise, gives up 300 s after the request or the last byte,
whatever timeout an SDK that runs on it states."""

_UNKNOWN: Final = _Program("unknown", silent_s=20.0, beat_s=10.0)

_PRODUCT: Final = re.compile(rb"([A-Za-z0-9_.-]{1,40})/(?:([A-Za-z]{1,12}) )?([A-Za-z0-9_.+-]*)")
"""`claude-cli/2.1.325 (external)`, `OpenAI/Python 3.49.0`, `GeminiCLI-tui/0.61.0/model (linux)`."""

_UNPRINTABLE: Final = re.compile(r"[^!-~]+")


def caller_of(headers: Pairs) -> Caller:
    """The program that sends a request with these headers."""
    said: dict[bytes, bytes] = {}
    for name, value in headers:
        said.setdefault(name.lower(), value.strip())
    program, version = _program(said)
    timeout_s = min(_timeouts(said), default=TIMEOUT_S_MAX)
    return Caller(
        name=program.name,
        version=version,
        session=_session(said),
        silent_s=max(SILENT_S_MIN, min(program.silent_s, _bearable_s(timeout_s))),
        beat_s=max(BEAT_S_MIN, min(program.beat_s, BEAT_SHARE * timeout_s)),
    )


def _bearable_s(timeout_s: float) -> float:
    return max(SILENT_SHARE_MIN * timeout_s, min(SILENT_SHARE * timeout_s, timeout_s - MARGIN_S))


def _program(said: dict[bytes, bytes]) -> tuple[_Program, str]:
    """The program and its version, by its User-Agent, or by the SDK that it is made with."""
    agent = said.get(b"user-agent", b"")[:AGENT_BYTES_MAX]
    found = _PRODUCT.match(agent)
    if found is None:
        return _UNKNOWN, ""
    product, language, version = found[1].lower(), found[2], _clean(found[3])
    version = version[:VERSION_CHARACTERS_MAX]
    # Codex is named after its front: codex_cli_rs, codex_exec, codex_vscode...
    if product.startswith(b"codex"):
        return _CODEX, version
    if product.startswith(b"geminicli"):
        return _GEMINI_CLI, version
    program = _BY_PRODUCT.get(product, _UNKNOWN)
    if language == b"JS" and program.name.endswith("-python"):
        name = program.name.replace("-python", "-js")
        program = replace(program, name=name, silent_s=_NODE_SILENT_S)
    return program, version


def _timeouts(said: dict[bytes, bytes]) -> list[float]:
    stated: list[float] = []
    for name in TIMEOUTS:
        text = said.get(name, b"")[:16]
        try:
            timeout_s = float(text)
        except ValueError:
            continue
        if 0.0 < timeout_s <= TIMEOUT_S_MAX:
            stated.append(timeout_s)
    return stated


def _session(said: dict[bytes, bytes]) -> str:
    for name in SESSIONS:
        if session := _clean(said.get(name, b""))[:SESSION_CHARACTERS_MAX]:
            return session
    return ""


def _clean(value: bytes) -> str:
    """Printable characters only, without spaces."""
    return _UNPRINTABLE.sub("", value.decode("ascii", "ignore"))
