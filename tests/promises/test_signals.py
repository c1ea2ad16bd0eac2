"""In every state a SIGTERM or a second SIGINT ends a run within 5 s, with all that it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from tests.promises.disk import filling, mounted
from tests.promises.user import SOON_S, User, openai_at, provider, until, user

WITHIN_S: Final = 5.0
Process = subprocess.Popen[str]
State = Callable[[User], Process]
"""Starts headway, waits for evidence that it is in one state, and leaves it there."""

SLEEPS: Final = "echo $$ >> begun; exec sleep 600"
IGNORES: Final = "trap '' TERM INT HUP; echo $$ >> begun; while true; do sleep 1; done"


def plan(someone: User, task: str, *more: str) -> str:
    someone.write("plan.yaml", "\n".join(["headway: 1", "tasks:", "  one:", f"    {task}", *more]))
    return "plan.yaml"


def lines(someone: User, name: str) -> list[str]:
    path = someone.folder / name
    return path.read_text().split() if path.exists() else []


def start(someone: User, *words: str) -> Process:
    """Start headway; what it says goes to a file that can be looked at meanwhile."""
    with (someone.root / "said").open("w") as file:
        return someone.start(*words, stderr=file)


def said(someone: User) -> str:
    return (someone.root / "said").read_text()


def in_state(someone: User, state: str) -> bool:
    found = [one for one in someone.json("status") if isinstance(one, dict)]
    return bool(found) and found[0].get("state") == state


def begun(someone: User, process: Process, tasks: int = 1) -> Process:
    until(lambda: len(lines(someone, "begun")) >= tasks or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    return process


def with_reader(someone: User, name: str, process: Process) -> Process:
    """When it has opened a pipe for reading, of which nothing comes."""
    ends: list[int] = []

    def is_read() -> bool:
        with suppress(OSError):
            ends.append(os.open(someone.folder / name, os.O_WRONLY | os.O_NONBLOCK))
        return bool(ends)

    until(is_read)
    return process


def loading(someone: User) -> Process:
    os.mkfifo(someone.folder / "plan.yaml")
    return with_reader(someone, "plan.yaml", start(someone, "run", "plan.yaml"))


def reading_inputs(someone: User) -> Process:
    os.mkfifo(someone.folder / "inputs")
    return with_reader(someone, "inputs", start(someone, "each", "-a", "inputs", "echo {}"))


def running(someone: User) -> Process:
    return begun(someone, start(someone, "run", plan(someone, f"run: {SLEEPS}")))


def ignoring(someone: User) -> Process:
    return begun(someone, start(someone, "run", plan(someone, f'run: "{IGNORES}"')))


def each(someone: User) -> Process:
    return begun(someone, start(someone, "each", f"{SLEEPS} {{}}", ":::", "1", "2"), 2)


def resumed(someone: User) -> Process:
    first = running(someone)
    first.kill()
    first.communicate()
    return begun(someone, start(someone, "resume"), 2)


def paused(someone: User) -> Process:
    process = running(someone)
    assert someone.headway("pause").returncode == 0
    until(lambda: in_state(someone, "paused"))
    return process


def draining(someone: User) -> Process:
    process = running(someone)
    process.send_signal(signal.SIGINT)
    until(lambda: "stops" in said(someone))
    return process


def in_function(someone: User) -> Process:
    someone.write(
        "mine.py",
        "import time\ndef wait():\n    open('begun', 'a').write('1\\n')\n    time.sleep(600)\n",
    )
    return begun(someone, start(someone, "run", plan(someone, "python: mine:wait")))


def in_effect(someone: User) -> Process:
    """All tasks are done; what they ask for in the world is not."""
    someone.write("send.sh", "echo $$ >> begun; trap '' TERM; sleep 600 & wait; sleep 600")
    someone.write(
        "plan.yaml",
        "headway: 1\nstate:\n  mail: effect(sh ./send.sh)\ntasks:\n  one:\n"
        "    run: echo 1 > $HEADWAY_PUT/mail\n    writes: effect:mail\n",
    )
    return begun(someone, start(someone, "run", "plan.yaml"))


def printing(someone: User) -> Process:
    """The run is over; nobody reads what its last task gave."""
    process = start(someone, "run", plan(someone, "run: head -c 4000000 /dev/zero"))
    until(lambda: in_state(someone, "done"))
    return process


def asking(someone: User, model: str) -> Process:
    someone.write(
        "plan.yaml",
        f"headway: 1\nmodel: {model}\ntasks:\n  one:\n    each: [a, b, c, d, e, f]\n"
        "    prompt: Say {{ item }}\n    max_tokens: 200\n",
    )
    return start(someone, "run", "plan.yaml", "--yes", "-j", "1")


def for_permit(someone: User) -> Process:
    """The account allows one request a minute."""
    process = asking(someone, "openai/tokens-20")
    until(lambda: "waits for a limit" in someone.headway("logs").stdout)
    return process


def for_window(someone: User) -> Process:
    """A usage window of five hours is empty."""
    process = asking(someone, "anthropic/tokens-100")
    until(lambda: "waits until" in someone.headway("logs").stdout)
    return process


def simulated(someone: User) -> Process:
    """`--sim` has a provider of its own, which is a child."""
    someone.write("plan.yaml", f"headway: 1\ntasks:\n  one:\n    run: {SLEEPS}\n")
    return begun(someone, start(someone, "run", "plan.yaml", "--sim"))


def disk_full(someone: User) -> Process:
    """The disk of the run takes nothing more, and two commands have ended since."""
    script = "echo 1 >> begun; until [ -e go ]; do sleep .05; done; seq 999"
    process = begun(someone, start(someone, "each", "-j2", script, ":::", "1", "2", "3"), 2)
    someone.started.append(filling(Path(someone.env["HEADWAY_STATE_DIR"])))
    someone.write("go", "")
    until(lambda: "the disk of" in said(someone))
    return process


STATES: Final[dict[str, State]] = {
    one.__name__: one
    for one in (
        loading, reading_inputs, running, ignoring, each, resumed, paused, draining, in_function,
        in_effect, printing, for_permit, for_window, simulated, disk_full,
    )
}  # fmt: skip
TERM: Final = (signal.SIGTERM,)
TWICE: Final = (signal.SIGINT, signal.SIGINT)
QUICK: Final = (("loading", TERM), ("ignoring", TERM), ("in_function", TWICE), ("printing", TERM))
"""A slice of them for every run of the tests."""
WITHOUT_RUN: Final = ("loading", "reading_inputs")


@contextmanager
def scene(tmp_path: Path, state: str, request: pytest.FixtureRequest) -> Iterator[User]:
    with ExitStack() as stack:
        more: dict[str, str] = {}
        if state == "for_permit":
            sim = stack.enter_context(provider("--rpm", "1", "--kind", "fixed"))
            more = openai_at(sim, "key")
        if state == "for_window":
            sim = stack.enter_context(provider("--window", "5h=250"))
            more = {"ANTHROPIC_BASE_URL": sim.url, "ANTHROPIC_API_KEY": "key"}
        if state == "disk_full":
            disk = stack.enter_context(mounted(tmp_path / "disk", 24, request))
            more = {"HEADWAY_STATE_DIR": str(disk / "state")}
        yield stack.enter_context(user(tmp_path / "user", more))


def left_behind(someone: User) -> dict[int, str]:
    """Processes of this user that are neither the broker nor gone."""
    found = someone.processes("HOME").items()
    return {pid: words for pid, words in found if words and "headway.broker.process" not in words}


def ends(someone: User, process: Process, *numbers: signal.Signals) -> tuple[str, float]:
    """Send these, and wait for the end: what was said, and how long it took after the last."""
    for at, number in enumerate(numbers):
        if at:
            # Two that come before the first was looked at are one.
            until(lambda: "stops" in said(someone) or process.poll() is not None)
        began_s = time.monotonic()
        process.send_signal(number)
    process.wait(SOON_S)
    took_s = time.monotonic() - began_s
    process.communicate()
    # The shim ends its commands when headway is gone, should headway not have come to it.
    while left_behind(someone) and time.monotonic() < began_s + WITHIN_S:
        time.sleep(0.02)
    assert not left_behind(someone)
    return said(someone), took_s


@pytest.mark.parametrize(
    ("state", "numbers"),
    [
        pytest.param(
            state, numbers, id=f"{state}-{len(numbers)}",
            marks=() if (state, numbers) in QUICK else pytest.mark.soak,
        )
        for state in STATES
        for numbers in (TERM, TWICE)
    ],
)  # fmt: skip
def test_a_signal_ends_a_run_in_any_state(
    tmp_path: Path,
    state: str,
    numbers: tuple[signal.Signals, ...],
    request: pytest.FixtureRequest,
) -> None:
    with scene(tmp_path, state, request) as someone:
        process = STATES[state](someone)
        err, took_s = ends(someone, process, *numbers)
    print(f"{state} {[one.name for one in numbers]} {process.returncode} {took_s:.2f} s {err!r}")
    assert process.returncode == 130, err
    assert took_s <= WITHIN_S
    assert "Traceback" not in err
    assert "interrupted" in err
    assert ("headway resume" in err) == (state not in WITHOUT_RUN), err


SCRIPT: Final = """
import asyncio, time, headway

def begin(number):
    with open("begun", "a") as file:
        file.write("1\\n")

def wait(number):
    begin(number)
    time.sleep(600)

async def wait_async(number):
    begin(number)
    await asyncio.sleep(600)

if __name__ == "__main__":
    try:
        headway.map({call})
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


@pytest.mark.parametrize(
    "call",
    [
        "wait, [1, 2]",
        pytest.param("wait_async, [1, 2], durable='mine'", marks=pytest.mark.soak),
        pytest.param("wait, [1, 2], in_processes=True", marks=pytest.mark.soak),
    ],
)
def test_two_interrupts_end_a_program_that_maps(tmp_path: Path, call: str) -> None:
    """Also where functions run in threads, which cannot be ended from outside."""
    with user(tmp_path / "user") as someone:
        script = someone.write("program.py", SCRIPT.replace("{call}", call))
        process = subprocess.Popen(
            [sys.executable, str(script)], cwd=someone.folder, env=someone.env,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        someone.started.append(process)
        until(lambda: len(lines(someone, "begun")) >= 1)
        began_s = time.monotonic()
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(1.0)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=SOON_S)
        took_s = time.monotonic() - began_s
        assert not left_behind(someone)
    print(call, f"{took_s:.2f}", out, err)
    assert took_s <= WITHIN_S
    assert "interrupted" in out, err
