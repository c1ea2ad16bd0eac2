"""`headway mcp` and the runs that it has handed over."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.promises.user import User, openai_at, provider, until, user

PLAN = "headway: 1\nmodel: openai/x\ntasks:\n  a: {prompt: hi, max_tokens: 200}\n"
HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.soak)]
)
def test_a_run_goes_on_when_a_signal_ends_its_server(
    tmp_path: Path, number: signal.Signals
) -> None:
    with (
        provider("--first-byte-s", "30") as sim,
        user(tmp_path / "u", openai_at(sim, "k")) as someone,
    ):
        server = someone.start("mcp", stdin=subprocess.PIPE)
        say(server, "initialize", HELLO, 1)
        say(server, "notifications/initialized", {})
        given = {"plan": PLAN, "budget": "100k"}
        say(server, "tools/call", {"name": "submit_plan", "arguments": given}, 2)
        until(lambda: sim.account("k") is not None)
        server.send_signal(number)
        _, err = server.communicate(timeout=60)
        assert server.returncode == -number
        assert err == ""
        assert states(someone) == ["running"]


def say(server: subprocess.Popen[str], method: str, given: dict[str, Any], number: int = 0) -> None:
    assert server.stdin is not None
    assert server.stdout is not None
    message = {"jsonrpc": "2.0", "method": method, "params": given} | (
        {"id": number} if number else {}
    )
    server.stdin.write(json.dumps(message) + "\n")
    server.stdin.flush()
    if number:
        answer = json.loads(server.stdout.readline())
        assert not answer["result"].get("isError"), answer


def states(someone: User) -> list[str]:
    return [run["state"] for run in someone.json("status")]
