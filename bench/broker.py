"""What a permit costs through the broker: `python -m bench.broker`.

Busy processes ask for a permit and settle it, over and over, with a short pause in between: one
process, then sixteen. Beside them, in the same run, the machine itself: the same number of
processes and pauses against a server that returns every line as it is.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from bench.markdown import table
from bench.results import ROOT, say
from headway.base.codec import as_dict

PROCESSES: Final = (1, 16)
PAUSE_S: Final = 0.02
"""Between two calls of one process: a busy one. A call to a provider takes a hundred times that."""

LINE_BYTES: Final = 300
"""About the length of a message."""

P99_MS_MAX: Final = 10.0


class Row(Struct, frozen=True):
    """One scene: how long one round took, in milliseconds."""

    scene: str
    processes: int
    rounds: int
    per_s: float
    p50_ms: float
    p99_ms: float


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.broker")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each scene takes")
    parser.add_argument("--worker", choices=("echo", "broker"), help=argparse.SUPPRESS)
    parsed = parser.parse_args(arguments)
    if parsed.worker:
        return _work(parsed.worker, parsed.seconds)
    folder = tempfile.mkdtemp(prefix="hw-")
    try:
        rows = _measure(folder, parsed.seconds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if parsed.json:
        print(json.dumps([as_dict(row) for row in rows], indent=2))
    else:
        print(_text(rows))
    return 0


def _measure(folder: str, seconds: float) -> list[Row]:
    environment = os.environ | {
        "HEADWAY_RUNTIME_DIR": f"{folder}/run",
        "HEADWAY_STATE_DIR": f"{folder}/state",
        "HEADWAY_IDLE_S": "5",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "HEADWAY_BENCH_ECHO": f"{folder}/echo",
    }
    echo = _echo(f"{folder}/echo")
    rows = []
    for processes in PROCESSES:
        for scene in ("echo", "broker"):
            say(f"{scene}, {processes} processes")
            rows.append(_scene(scene, processes, seconds, environment))
    os.kill(echo, signal.SIGTERM)
    os.waitpid(echo, 0)
    return rows


def _scene(scene: str, processes: int, seconds: float, environment: dict[str, str]) -> Row:
    command = [sys.executable, "-m", "bench.broker", "--worker", scene, "--seconds", f"{seconds}"]
    crowd = [
        subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(processes)
    ]
    for worker in crowd:
        assert worker.stdout is not None
        worker.stdout.readline()
    for worker in crowd:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    told = [worker.communicate()[0] for worker in crowd]
    spent_ms = sorted(float(line) for text in told for line in text.split())
    last = len(spent_ms) - 1
    return Row(
        scene, processes, len(spent_ms), len(spent_ms) / seconds,
        spent_ms[last // 2], spent_ms[round(last * 0.99)],
    )  # fmt: skip


def _work(scene: str, seconds: float) -> int:
    """One busy process: wait for the others, then call and pause."""
    once = _echo_round() if scene == "echo" else _broker_round()
    for _ in range(3):
        once()
    print("ready", flush=True)
    sys.stdin.readline()
    end_s = time.monotonic() + seconds
    spent_ms = []
    while time.monotonic() < end_s:
        began_s = time.perf_counter()
        once()
        spent_ms.append((time.perf_counter() - began_s) * 1000)
        time.sleep(PAUSE_S)
    print("\n".join(f"{spent:.3f}" for spent in spent_ms))
    return 0


def _echo_round() -> Callable[[], None]:
    """A line of the same length there and back, and another there."""
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(os.environ["HEADWAY_BENCH_ECHO"])

    def once() -> None:
        sock.sendall(b"x" * LINE_BYTES)
        sock.recv(4096)

    return once


def _broker_round() -> Callable[[], None]:
    """A permit there and back, and its settlement there."""
    from headway.base.values import Limit, Sketch, Tally
    from headway.client.admission import admission
    from headway.pacing.call import Outcome, Request
    from headway.pacing.memory import AccountTerms

    call = Request("bench.example#1", "anthropic", Sketch("model", size_bytes=1000))
    ended = Outcome("used", Tally(250.0, 0.0, 50.0))
    # Room for everybody, so that it is the way to the permit that is measured, not the wait.
    limit = Limit("requests", 1e9)
    admission().configure(call.account, AccountTerms(limits=(limit,)))

    def once() -> None:
        admission().admit(call, 60.0).settle(ended)

    return once


def _echo(path: str) -> int:
    """A process that returns every line as it is; its number."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    child = os.fork()
    if child:
        listener.close()
        return child
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            sock = key.fileobj
            assert isinstance(sock, socket.socket)
            if sock is listener:
                selector.register(listener.accept()[0], selectors.EVENT_READ)
                continue
            data = sock.recv(4096)
            if data:
                sock.sendall(data)
            else:
                selector.unregister(sock)
                sock.close()


def _text(rows: list[Row]) -> str:
    head = ["through", "processes", "rounds/s", "p50 ms", "p99 ms"]
    body = [
        [row.scene, f"{row.processes}", f"{row.per_s:,.0f}", f"{row.p50_ms:.2f}",
         f"{row.p99_ms:.2f}"]
        for row in rows
    ]  # fmt: skip
    worst_ms = max(row.p99_ms for row in rows if row.scene == "broker")
    verdict = "within" if worst_ms <= P99_MS_MAX else "beyond"
    return f"{table(head, body)}\n\np99 {worst_ms:.1f} ms: {verdict} {P99_MS_MAX:g} ms"


if __name__ == "__main__":
    sys.exit(main())
