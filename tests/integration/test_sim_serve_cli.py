"""`headway sim serve` as a process: where it listens, how it stops, and what it refuses."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from headway.cli.main import main
from headway.sim.server import launched, truth_of

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(autouse=True)
def _this_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))


def post(url: str, model: str, text: str) -> str:
    """What the model says, over plain HTTP and without a key."""
    body = {"model": model, "max_tokens": 99, "messages": [{"role": "user", "content": text}]}
    request = Request(f"{url}/v1/messages", json.dumps(body).encode())
    with urlopen(request) as response:
        return str(json.loads(response.read())["content"][0]["text"])


def test_a_process_serves_limits_models_and_scripts(tmp_path: Path) -> None:
    script, ready = tmp_path / "rules.yaml", tmp_path / "ready"
    script.write_text("rules:\n  - {contains: count, answer: '{words} words'}\n", encoding="utf-8")
    with launched(
        "--rpm", "500", "--tpm", "100k", "--concurrent", "20", "--first-byte-s", "0.01",
        "--per-token-s", "0", "--script", str(script), "--ready-file", str(ready),
    ) as url:  # fmt: skip
        assert ready.read_text(encoding="utf-8").strip() == url
        assert post(url, "claude-opus-9", "please count us") == "3 words"
        assert post(url, "echo", "hello") == "hello"
        found = truth_of(url)
    (account,) = found["accounts"].values()
    assert account["whole"] == 2
    told = {limit["limit"]: limit["amount"] for limit in account["limits"]}
    assert told == {"requests/60s": 500, "tokens/60s": 100_000, "concurrency": 20}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_quietly_while_a_call_hangs(number: int) -> None:
    command = [sys.executable, "-m", "headway", "sim", "serve", "--provider", "trap"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        url = process.stdout.readline().split()[0]
        host, port = url.removeprefix("http://").split(":")
        body = b'{"model": "echo", "max_tokens": 9, "messages": []}'
        with socket.create_connection((host, int(port))) as line:
            head = f"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n"
            line.sendall(f"{head}x-sim-fault: hang\r\n\r\n".encode() + body)
            while not truth_of(url)["in_flight"]:
                pass
            os.kill(process.pid, number)
            assert process.wait(10) == 0
        assert process.stderr.read() == ""


def test_a_port_that_is_taken_is_one_clear_error(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["sim", "serve", "--port", str(port)]) == 2
    said = capsys.readouterr().err
    assert f"cannot listen on 127.0.0.1:{port}" in said
    assert "--port 0" in said


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--provider", "trpa"], "did you mean `trap`"),
        (["--rpm", "many"], "`--rpm` is 'many'"),
        (["--kind", "fixed"], "no limit to change"),
        (["--rpm", "5", "--kind", "fixed", "--burst-s", "3"], "only a bucket has a burst"),
        (["--kind", "leaky"], "`headway sim serve` has no"),
        (["--model", "gpt"], "no such model"),
        (["--model", "script"], "needs rules"),
        (["--script", "none.yaml"], "cannot read the file"),
        (["--dialect", "anthropik"], "did you mean `anthropic`"),
        (["--fault", "cutt=1"], "did you mean `cut`"),
        (["--port", "70000"], "`--port`"),
        (["--seed", "-1"], "`--seed`"),
        (["--host", "999.1.2.3"], "cannot listen on"),
        (["--ready-file", "/dev/null/x"], "ready-file"),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_sentence(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sim", "serve", *options]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.startswith("error[HW10")
