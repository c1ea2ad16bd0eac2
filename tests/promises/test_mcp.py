"""`headway mcp` and the runs that it has handed over."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.promises.user import User, openai_at, provider, speak, until, user

PLAN = "headway: 1\nmodel: openai/x\ntasks:\n  a: {prompt: hi, max_tokens: 200}\n"


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
        (answer,) = speak(server, [("submit_plan", {"plan": PLAN, "budget": "100k"})])
        assert not answer.get("isError"), answer
        until(lambda: sim.account("k") is not None)
        server.send_signal(number)
        _, err = server.communicate(timeout=300)
        assert server.returncode == -number
        assert err == ""
        assert states(someone) == ["running"]


def states(someone: User) -> list[str]:
    return [run["state"] for run in someone.json("status")]
