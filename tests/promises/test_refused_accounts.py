"""A wrong key, model or address costs a handful of calls, not one for each task."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct, field

from tests.promises.user import CALL, User, until, user

HANDFUL = 16
"""Calls that may be sent: three, and those that were in flight before the third answer."""

REASONS: dict[int, Any] = {
    401: {"message": "Incorrect API key provided", "type": "invalid_request_error",
          "code": "invalid_api_key"},
    403: {"message": "You have no access", "type": "permission_error"},
    404: {"message": "The model does not exist", "code": "model_not_found"},
    402: {"message": "Pay first", "type": "billing_error"},
    429: {"message": "You exceeded your current quota", "code": "insufficient_quota",
          "type": "insufficient_quota"},
    400: {"message": "This input is not allowed", "type": "invalid_request_error"},
}  # fmt: skip


class Server(Struct):
    """Answers every call with `status`; a prompt with `bad` in it with 400."""

    status: int = 401
    calls: list[int] = field(default_factory=list)
    html: str = ""
    url: str = ""

    def answer(self, asked: dict[str, Any]) -> tuple[int, bytes]:
        said = asked["messages"][-1]["content"]
        status = 400 if "bad" in said else self.status
        if "good" in said or asked["model"] == "right":
            status = 200
        self.calls.append(status)
        if status != 200:
            if self.html:
                return status, self.html.encode()
            return status, json.dumps({"error": REASONS[status]}).encode()
        choice = {"index": 0, "finish_reason": "stop",
                  "message": {"role": "assistant", "content": "yes"}}  # fmt: skip
        usage = {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}
        body = {"id": "x", "object": "chat.completion", "model": "m", "choices": [choice],
                "usage": usage}  # fmt: skip
        return 200, json.dumps(body).encode()


@contextmanager
def serving(server: Server, port: int = 0) -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            status, answer = server.answer(json.loads(body))
            self.send_response(status)
            kind = "text/html" if server.html and status != 200 else "application/json"
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    listening = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    server.url = f"http://127.0.0.1:{listening.server_address[1]}/v1"
    try:
        yield server
    finally:
        listening.shutdown()
        listening.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(Server()) as one:
        yield one


@pytest.fixture
def someone(tmp_path: Path, server: Server) -> Iterator[User]:
    with user(tmp_path, {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "wrong"}) as one:
        yield one


def plan(count: int, more: str = "") -> str:
    items = ", ".join(f"item {n}" for n in range(count))
    return f"""
headway: 1
model: openai/m
tasks:
  ask:
    each: [{items}]
    prompt: "Is {{{{ item }}}} right?"
{more}"""


def ended_run(someone: User) -> dict[str, Any]:
    ended = someone.headway("run", "plan.yaml", "--json")
    assert "Traceback" not in ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    assert found["exit_code"] == ended.returncode
    return found


@pytest.mark.parametrize("status", [401, 403, 404, 402, 429])
def test_the_same_fatal_answer_stops_the_use_of_the_account(
    someone: User, server: Server, status: int
) -> None:
    server.status = status
    someone.write("plan.yaml", plan(60))
    found = ended_run(someone)
    assert found["exit_code"] == 1
    assert len(server.calls) <= HANDFUL
    assert found["failed"] <= len(server.calls)
    assert found["failed"] + found["left"] == 60
    assert found["left"] >= 60 - HANDFUL


def test_the_end_says_what_is_wrong_and_what_to_do(someone: User, server: Server) -> None:
    someone.write("plan.yaml", plan(60))
    ended = someone.headway("run", "plan.yaml")
    assert ended.returncode == 1
    last = ended.stderr.splitlines()[-2:]
    assert "stopped early" in last[0], ended.stderr
    assert "Incorrect API key provided" in last[0]
    assert "OPENAI_API_KEY" in last[0]
    assert last[1].startswith("hint: headway resume ")
    assert ended.stderr.count("refuses every call") <= 2, ended.stderr
    for verb in ("status", "results", "report", "timeline", "logs"):
        shown = someone.headway(verb)
        assert "Traceback" not in shown.stderr, shown.stderr
        assert shown.returncode in (0, 1), shown.stderr


def test_tasks_that_do_not_need_the_account_go_on(someone: User, server: Server) -> None:
    someone.write("plan.yaml", plan(30, """
  free: {each: [1, 2, 3, 4, 5], run: sleep 0.2}
  after: {needs: free, run: echo done}
  other: {each: [1, 2, 3], prompt: hello, model: openai/right}
  found: {needs: after, each: after, prompt: hello, model: openai/right}
"""))  # fmt: skip
    found = ended_run(someone)
    assert found["exit_code"] == 1
    assert found["finished"] == 5 + 1 + 3 + 1
    assert found["failed"] + found["left"] == 30


def test_resume_tries_again(someone: User, server: Server) -> None:
    someone.write("plan.yaml", plan(30))
    assert ended_run(someone)["exit_code"] == 1
    server.status = 200
    ended = someone.headway("resume", "--json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert server.calls.count(200) == 30


def test_a_wrong_address_that_answers_with_a_page(someone: User, server: Server) -> None:
    server.status, server.html = 404, "<html><body>Not Found</body></html>"
    someone.write("plan.yaml", plan(40))
    found = ended_run(someone)
    assert len(server.calls) <= HANDFUL
    assert found["left"] >= 40 - HANDFUL


def test_answers_about_one_input_do_not_count(someone: User, server: Server) -> None:
    server.status = 200
    someone.write("plan.yaml", plan(20).replace("Is ", "Is the bad "))
    found = ended_run(someone)
    assert found["failed"] == 20
    assert found["left"] == 0


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_after_the_account_was_refused_is_an_interruption(
    someone: User, server: Server, sent: signal.Signals
) -> None:
    someone.write("plan.yaml", plan(20, "  long: {run: touch began; sleep 100}\n"))
    process = someone.start("run", "plan.yaml")
    until((someone.folder / "began").exists)
    assert process.stderr is not None
    assert any("refuses every call" in line for line in process.stderr)
    os.kill(process.pid, sent)
    if sent == signal.SIGINT:
        assert any("stops" in line for line in process.stderr)
        os.kill(process.pid, sent)
    _, told = process.communicate(timeout=300)
    assert process.returncode == 130, told


def test_an_address_where_nothing_answers(someone: User) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
    someone.env["OPENAI_BASE_URL"] = address
    text = plan(60, "  free: {run: echo hello}\n").replace("headway: 1", "headway: 1\nretries: 1")
    someone.write("plan.yaml", text)
    ended = someone.headway("run", "plan.yaml")
    assert ended.returncode == 1
    last = ended.stderr.splitlines()[-2]
    assert "check the address (OPENAI_BASE_URL)" in last, ended.stderr
    assert "whether a server listens there" in last
    (told,) = someone.json("status")
    assert told["tasks"]["failed"] <= HANDFUL
    assert told["tasks"]["done"] == 1


def test_an_outage_that_ends_before_the_retries_do_stops_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    env = {"OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1", "OPENAI_API_KEY": "right"}
    with user(tmp_path, env) as ada:
        ada.write("plan.yaml", plan(12).replace("headway: 1", "headway: 1\nretries: 9"))
        process = ada.start("run", "plan.yaml")
        assert process.stderr is not None
        assert any("failed, again in" in line for line in process.stderr)
        with serving(Server(200), port):
            _, said = process.communicate(timeout=100)
        assert process.returncode == 0, said


def test_calls_of_commands_are_answered_by_the_run_after_the_third(
    someone: User, server: Server
) -> None:
    someone.write("call.py", CALL)
    items = ", ".join(map(str, range(20)))
    text = f"{{each: [{items}], run: {sys.executable} call.py || true, queue: one}}"
    someone.write("plan.yaml", f"headway: 1\ntasks:\n  call: {text}\n")
    found = ended_run(someone)
    assert len(server.calls) == 3
    assert found["finished"] == 20  # They start, and are told the same status.
    said = "".join(path.read_text() for path in someone.folder.rglob("*.txt"))
    said += someone.headway("results", "--all").stdout
    assert "Incorrect API key provided" in said, said


WRONG_IN_400 = {
    "gemini": {"code": 400, "message": "API key not valid. Please pass a valid API key.",
               "status": "INVALID_ARGUMENT", "details": [{"reason": "API_KEY_INVALID"}]},
    "xai": "Incorrect API key provided: wr***ng.",
    "openrouter": {"message": "foo is not a valid model ID", "code": 400},
}  # fmt: skip


@pytest.mark.parametrize("whose", WRONG_IN_400)
@pytest.mark.parametrize("status", [400, 422])
def test_a_wrong_key_or_model_that_is_answered_with_400(
    someone: User, server: Server, monkeypatch: pytest.MonkeyPatch, whose: str, status: int
) -> None:
    server.status = status
    monkeypatch.setitem(REASONS, status, WRONG_IN_400[whose])
    someone.write("plan.yaml", plan(40))
    found = ended_run(someone)
    assert len(server.calls) <= HANDFUL
    assert found["left"] >= 40 - HANDFUL


def test_a_success_in_between_starts_the_count_again(someone: User, server: Server) -> None:
    items = ["item", "good item"] * 10
    text = plan(1).replace("item 0", ", ".join(f"{one} {n}" for n, one in enumerate(items)))
    someone.write("plan.yaml", text + "    queue: one\n")
    found = ended_run(someone)
    assert found["finished"] == 10
    assert found["failed"] == 10
