"""`headway.map` as a person sees it: on a terminal, in a notebook, in a loop, interrupted."""

from __future__ import annotations

import asyncio
import io
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import headway
from headway.errors import UsageError

SQUARES = "import headway\nprint(headway.map(lambda n: n * n, range(5){how}))\n"
SLOW = """
import headway, time
def slow(n):
    print("began", flush=True)
    time.sleep(60)
headway.map(slow, range(3){how})
"""


def seen_on_a_terminal(program: str) -> str:
    """What a person sees of stderr."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.DEVNULL, stderr=theirs
    ) as process:
        os.close(theirs)
        seen = b""
        try:
            while data := os.read(ours, 4096):
                seen += data
        except OSError:
            pass  # The terminal is closed.
        os.close(ours)
    assert process.returncode == 0
    return seen.decode()


def test_one_line_of_progress_on_a_terminal() -> None:
    lines = seen_on_a_terminal(SQUARES.format(how="")).split("\r\n")
    assert lines[0].split("\r")[-1].strip() == "lambda: 5 of 5 done"
    assert lines[1:] == [""]


def test_progress_can_be_turned_off_and_is_not_drawn_into_a_pipe() -> None:
    assert seen_on_a_terminal(SQUARES.format(how=", progress=False")) == ""
    program = [sys.executable, "-c", SQUARES.format(how="")]
    assert subprocess.run(program, capture_output=True, check=True).stderr == b""


def test_one_line_of_progress_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object()))
    shown = io.StringIO()
    monkeypatch.setitem(sys.modules, "IPython", kernel)
    monkeypatch.setattr(sys, "stderr", shown)

    def fail(n: int) -> int:
        return 1 // n

    found = asyncio.run(headway.map_async(fail, range(3), return_exceptions=True))
    assert found[1:] == [1, 0]
    assert shown.getvalue().split("\r")[-1].rstrip() == "fail: 2 of 3 done, 1 failed"


def test_in_a_running_loop_the_error_names_the_call_to_use() -> None:
    async def inside() -> None:
        with pytest.raises(UsageError) as refused:
            headway.map(len, ["a"])
        assert "await headway.map_async(...)" in str(refused.value.hint)

    asyncio.run(inside())


@pytest.mark.parametrize(
    ("how", "says"),
    [("", "with durable='NAME' the same call goes on later"),
     (", durable='slow'", "the same call with durable='slow' goes on with what is missing")],
)  # fmt: skip
def test_an_interrupt_says_how_to_go_on(tmp_path: Path, how: str, says: str) -> None:
    environment = os.environ | {"HEADWAY_STATE_DIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", SLOW.format(how=how)], env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        try:
            _, err = process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # Threads cannot be ended: a person presses again.
            _, err = process.communicate(timeout=50)
    assert says in err
