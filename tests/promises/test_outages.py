"""A provider that restarts in the middle of calls: nobody loses one."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Final

import pytest

from tests.promises.user import provider, until, user

CALLS: Final = 60
SLOTS: Final = 8
DEAD_S: Final = 2.5

PACED: Final = """
import openai
from headway import pace
client = pace(openai.OpenAI(max_retries=0))
def ask(number):
    messages = [{"role": "user", "content": f"Question {number}"}]
    client.chat.completions.create(model="echo", max_tokens=50, messages=messages)
    return f"{number}\\n"
"""

PLAIN: Final = """
import json, os, urllib.request
def ask(number):
    messages = [{"role": "user", "content": f"Question {number}"}]
    body = json.dumps({"model": "echo", "max_tokens": 50, "messages": messages}).encode()
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions", body,
        {"authorization": "Bearer plain", "content-type": "application/json"})
    urllib.request.urlopen(request, timeout=300).read()
    return f"{number}\\n"
"""

ALL: Final = f"""
import os, time
os.write(1, b"ready\\n")
while not os.path.exists("go"):
    time.sleep(0.01)
from concurrent.futures import ThreadPoolExecutor, as_completed
with ThreadPoolExecutor(20) as threads:
    for one in as_completed(threads.submit(ask, number) for number in range({CALLS})):
        os.write(1, one.result().encode())
"""


class DeadPort:
    """A port that accepts connections, as the proxy of a container does, and resets them."""

    def __init__(self, port: int) -> None:
        self.taken = 0
        self._line = socket.socket()
        self._line.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._line.bind(("127.0.0.1", port))
        self._line.listen(1024)
        self._thread = threading.Thread(target=self._reset)
        self._thread.start()

    def _reset(self) -> None:
        with suppress(OSError):
            while True:
                line, _ = self._line.accept()
                self.taken += 1
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                line.close()

    def close(self) -> None:
        self._line.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._line.close()


@pytest.mark.parametrize("is_open", [True, False])
def test_no_call_is_lost_while_a_provider_restarts(tmp_path: Path, is_open: bool) -> None:
    slow = ("--concurrent", str(SLOTS), "--first-byte-s", "0.3", "--per-token-s", "0.001")
    with ExitStack() as stack:
        before = stack.enter_context(provider(*slow))
        port = before.url.rpartition(":")[2]
        here = {"OPENAI_BASE_URL": f"{before.url}/v1", "OPENAI_API_KEY": "paced"}
        someone = stack.enter_context(user(tmp_path, here))
        paced = someone.write("paced.py", PACED + ALL)
        plain = someone.write("plain.py", PLAIN + ALL)
        errors = stack.enter_context((tmp_path / "errors").open("w+"))
        alone = subprocess.Popen(
            [sys.executable, str(paced)], cwd=someone.folder, env=someone.env, text=True,
            start_new_session=True, stdout=subprocess.PIPE, stderr=errors,
        )  # fmt: skip
        someone.started.append(alone)
        behind = someone.start("gateway", "--upstream", before.url, "--", sys.executable,
                               str(plain), stderr=errors)  # fmt: skip
        outs: list[IO[str]] = []
        for process in (alone, behind):
            assert process.stdout is not None
            outs.append(stack.enter_context(process.stdout))
        assert [out.readline() for out in outs] == ["ready\n", "ready\n"]
        someone.write("go", "")
        answers = [{out.readline() for _ in range(CALLS // 4)} for out in outs]
        before.process.kill()
        before.process.wait()
        died_s = time.monotonic()
        if is_open:
            dead = DeadPort(int(port))
            until(lambda: time.monotonic() > died_s + DEAD_S)
            dead.close()
            dead_s = time.monotonic() - died_s
            # One trial a second for each account, and calls that had their permit at the kill.
            assert dead.taken <= 2 * (dead_s + 1 + SLOTS)
        else:
            until(lambda: time.monotonic() > died_s + DEAD_S)
        after = stack.enter_context(provider("--port", port, *slow))
        for out, seen in zip(outs, answers, strict=True):
            found = seen | set(out)
            errors.seek(0)
            assert found == {f"{number}\n" for number in range(CALLS)}, errors.read()[-2000:]
        assert after.truth()["arrivals_total"] > 0
