"""Calls as the measured clients send them, and how tests record and replay them.

`Run` is what differs between two runs in which a client does the same.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from headway.base.fields import Fields
from headway.base.values import Tally
from headway.gateway.recording import Recorder, Recording
from headway.gateway.replay import Tape
from headway.gateway.request_match import CanonicalCall, canonical_call
from headway.gateway.values import Caller, Pairs
from headway.wire.values import WireName

CLIENTS = (
    "claude-code",
    "claude-code-first",
    "claude-code-4",
    "codex",
    "opencode",
    "opencode-responses",
    "gemini-cli",
)

HEADERS: Pairs = (
    (b"Content-Type", b"text/event-stream"),
    (b"Request-Id", b"req_1"),
    (b"Set-Cookie", b"session=secret"),
    (b"Anthropic-Organization-Id", b"org"),
    (b"x-ratelimit-remaining-requests", b"0"),
)
TALLY = Tally(10.0, 2.0, 5.0, "reported", 4.0, 1.0)


class Run(Struct, frozen=True):
    """What nobody chooses: ids, the date, how long a command took, the number of its process."""

    seed: int = 0
    day: int = 16

    def uuid(self, name: str) -> str:
        text = f"{random.Random(f'{self.seed} {name}').getrandbits(128):032x}"
        return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))

    def digits(self, name: str, count: int) -> str:
        return f"{random.Random(f'{self.seed} {name}').randrange(10**count):0{count}d}"


class Sent(Struct, frozen=True):
    """A call as its client sent it."""

    key: str
    caller: Caller
    wire: WireName
    upstream: str
    model: str
    path: str
    headers: Pairs
    body: bytes


def asked(one: Sent) -> CanonicalCall:
    return canonical_call(
        one.key, one.caller, one.wire, one.upstream, one.model, one.path, one.headers, one.body
    )


def caller(name: str, version: str, session: str = "s") -> Caller:
    return Caller(name, 20.0, 10.0, version, session)


def sent(client: str, run: Run = Run(), prompt: str = "Look around.") -> Sent:
    """A call of a turn: the second, unless its name says first."""
    match client:
        case "claude-code":
            body = _claude(run, prompt, is_first=False)
            return _sent("claude-code", "2.1.325", "anthropic", "/v1/messages?beta=true", body, run)
        case "claude-code-first":
            body = _claude(run, prompt, is_first=True)
            return _sent("claude-code", "2.1.325", "anthropic", "/v1/messages?beta=true", body, run)
        case "claude-code-4":
            body = _claude_4(run, prompt)
            return _sent("claude-code", "2.1.325", "anthropic", "/v1/messages?beta=true", body, run)
        case "codex":
            body = _codex(run, prompt)
            return _sent("codex", "0.166.0", "openai-responses", "/v1/responses", body, run)
        case "opencode":
            body = {"model": "m1", "messages": _opencode(run, prompt), "stream": True}
            path = "/v1/chat/completions"
            return _sent("opencode", "1.18.33", "openai-chat", path, body, run)
        case "opencode-responses":
            key = f"ses_{run.digits('session', 26)}"
            body = {"model": "m1", "input": _opencode(run, prompt), "prompt_cache_key": key}
            return _sent("opencode", "1.18.33", "openai-responses", "/v1/responses", body, run)
        case "gemini-cli":
            path = "/v1beta/models/gemini-3.8-flash:streamGenerateContent?alt=sse"
            return _sent("gemini-cli", "0.61.0", "gemini", path, _gemini(run, prompt), run)
    raise AssertionError(client)


def form(client: str, run: Run = Run(), prompt: str = "Look around.") -> CanonicalCall:
    return asked(sent(client, run, prompt))


def plain(prompt: str, session: str = "", key: str = "default") -> CanonicalCall:
    """A call of a client that nobody measured."""
    body = json.dumps({"model": "m1", "messages": [{"role": "user", "content": prompt}]}).encode()
    who = caller("unknown", "", session)
    path = "/v1/chat/completions"
    return asked(Sent(key, who, "openai-chat", "openai", "m1", path, (), body))


def with_body(call: Sent, body: object) -> Sent:
    return replace(call, body=json.dumps(body).encode())


def leaves(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where the values of a body are."""
    if isinstance(value, dict):
        for name, member in value.items():
            yield from leaves(member, (*path, name))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from leaves(item, (*path, number))
    else:
        yield path


async def replied(recording: Recording, body: bytes, status: int = 200) -> bool:
    recording.answered(status, HEADERS)
    for at in range(0, len(body), 7):
        recording.feed(body[at : at + 7])
    return await recording.end(TALLY)


async def recorded(recorder: Recorder, *calls: CanonicalCall) -> None:
    """Calls one after another, each answered by the number of its place."""
    for number, call in enumerate(calls):
        assert await replied(recorder.begin(call), b"reply %d" % number)


def record(path: Path, act: Callable[[Recorder], object]) -> None:
    """Run some coroutine with a recorder of its own."""

    async def acted() -> None:
        recorder = Recorder(str(path))
        try:
            result = act(recorder)
            if asyncio.iscoroutine(result):
                await result
        finally:
            recorder.close()

    asyncio.run(acted())


def record_calls(path: Path, *calls: CanonicalCall) -> None:
    record(path, lambda recorder: recorded(recorder, *calls))


def bodies(tape: Tape, *calls: CanonicalCall) -> list[bytes | None]:
    """What a tape gives for calls one after another."""
    replies = [tape.find(call) for call in calls]
    tape.close()
    return [None if reply is None else reply.body for reply in replies]


def _sent(name: str, version: str, wire: WireName, path: str, body: Fields, run: Run) -> Sent:
    headers: Pairs = (
        (b"Content-Type", b"application/json"),
        (b"Anthropic-Version", b"2023-06-01"),
        (b"Accept-Encoding", b"gzip, deflate"),
        (b"X-Request-Number", run.digits("request", 9).encode()),
        (b"Authorization", b"Bearer secret"),
    )
    who = caller(name, version, run.uuid("session"))
    model = str(body.get("model", "gemini-3.8-flash"))
    return Sent("default", who, wire, "upstream", model, path, headers, json.dumps(body).encode())


def _claude(run: Run, prompt: str, is_first: bool) -> Fields:
    told = f"# Environment\nLinux\n\nToday's date is 2026-11-{run.day}."
    cached = [{"type": "text", "text": told, "cache_control": {"type": "ephemeral"}}]
    return {
        "model": "claude-opus-5-5",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": prompt}]},
            {"role": "system", "content": cached if is_first else told},
            *([] if is_first else _used("Bash")),
        ],
        "system": [{"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.325.2d2;"}],
        "tools": [{"name": "Bash", "input_schema": {"properties": {"command": {}}}}],
        "metadata": {"user_id": _user_id(run)},
        "max_tokens": 128000,
        "stream": True,
    }


def _claude_4(run: Run, prompt: str) -> Fields:
    date = f"<system-reminder>\nToday's date is 2026-11-{run.day}.\n</system-reminder>"
    told = [{"type": "text", "text": date}, {"type": "text", "text": prompt}]
    return {
        "model": "claude-haiku-4-5",
        "messages": [{"role": "user", "content": told}, *_used("Bash")],
        "metadata": {"user_id": _user_id(run)},
        "temperature": 1.0,
    }


def _user_id(run: Run) -> str:
    device = (run.uuid("device") + run.uuid("device 2")).replace("-", "")
    told = {"device_id": device, "account_uuid": "", "session_id": run.uuid("session")}
    return json.dumps(told, separators=(",", ":"))


def _used(tool: str) -> list[Fields]:
    use = {"type": "tool_use", "id": "toolu_1", "name": tool, "input": {"command": "ls"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a.txt\nb.txt"}
    return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]


def _codex(run: Run, prompt: str) -> Fields:
    session, turn = run.uuid("session"), run.uuid("turn")
    place = (
        "<environment_context>\n  <cwd>/home/me</cwd>\n"
        f"  <current_date>2026-11-{run.day}</current_date>\n</environment_context>"
    )
    output = (
        f"Chunk ID: {run.uuid('chunk')[:6]}\nWall time: 0.{run.digits('wall', 4)} seconds\n"
        "Process exited with code 0\nOutput:\na.txt\n"
    )
    turn_metadata = (
        f'{{"session_id":"{session}","turn_id":"{turn}","sandbox":"none",'
        f'"turn_started_at_unix_ms":{1794815113000 + run.seed}}}'
    )
    metadata = {"turn_id": turn, "session_id": session, "x-codex-turn-metadata": turn_metadata}
    names = random.Random(run.seed).sample(sorted(metadata), len(metadata))
    return {
        "model": "gpt-5",
        "stream": True,
        "input": [
            _message("user", place, f"msg_{run.uuid('first')}"),
            _message("user", prompt, f"msg_{run.uuid('second')}"),
            {"type": "function_call", "call_id": "call_1", "name": "shell", "arguments": "{}"},
            {
                "type": "function_call_output",
                "id": f"fco_{run.uuid('third')}",
                "call_id": "call_1",
                "output": output,
            },
        ],
        "reasoning": {"summary": "auto"},
        "parallel_tool_calls": True,
        "prompt_cache_key": session,
        "client_metadata": {name: metadata[name] for name in names},
    }


def _message(role: str, text: str, id: str) -> Fields:
    content = [{"type": "input_text", "text": text}]
    return {"type": "message", "id": id, "role": role, "content": content}


def _opencode(run: Run, prompt: str) -> list[Fields]:
    told = f"<env>\n  Platform: linux\n  Today's date: Mon Nov {run.day} 2026\n</env>\nSkills"
    return [{"role": "system", "content": told}, {"role": "user", "content": prompt}]


def _gemini(run: Run, prompt: str) -> Fields:
    id = f"run_shell_command_{1794815238000 + run.seed}_0"
    date = f"Today's date is Monday, November {run.day}, 2026"
    place = (
        "<session_context>\nThis is the Gemini CLI. We are setting up the context for our chat.\n"
        f"{date} (formatted according to the user's locale).\n</session_context>"
    )
    output = (
        f"<untrusted_context>\nOutput: a.txt\nProcess Group PGID: {2000 + run.seed}\n"
        "</untrusted_context>"
    )
    used = {"functionCall": {"id": id, "name": "run_shell_command", "args": {"command": "ls"}}}
    result = {"id": id, "name": "run_shell_command", "response": {"output": output}}
    return {
        "contents": [
            {"role": "user", "parts": [{"text": place}, {"text": prompt}]},
            {"role": "model", "parts": [used]},
            {"role": "user", "parts": [{"functionResponse": result}]},
        ],
        "generationConfig": {"temperature": 1, "topP": 0.95},
    }
