"""A place for a broker of its own, and processes that call on it: for tests with real ones."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec import Struct, field

import headway
from headway.base.folders import Folders, folders, prepare
from headway.broker.election import start
from headway.client.admission import AdmissionPort
from headway.client.connection import BrokerConnection

SOON_S = 60.0
"""Long enough on any machine for what takes milliseconds."""


def until(is_so: Callable[[], bool], within_s: float = SOON_S) -> float:
    """Wait for a condition; how long it took."""
    began_s = time.monotonic()
    while not is_so():
        waited_s = time.monotonic() - began_s
        assert waited_s < within_s, f"not so after {within_s} s"
        time.sleep(0.005)
    return time.monotonic() - began_s


class Caller(Struct):
    """A process that runs `caller.py`."""

    process: subprocess.Popen[str]

    def say(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def do(self, command: str) -> str:
        self.say(command)
        return self.hear()

    def kill(self) -> None:
        self.process.kill()
        self.close()

    def close(self) -> None:
        for end in (self.process.stdin, self.process.stdout):
            if end is not None:
                end.close()
        self.process.wait()


class Home(Struct):
    """Folders of its own in the environment, and everything started in them."""

    place: Folders
    ports: list[AdmissionPort] = field(default_factory=list)
    callers: list[Caller] = field(default_factory=list)

    def port(self, nobody_s: float = 10.0, unpaced: bool = False) -> AdmissionPort:
        """A port that reaches the broker of this home."""

        def dial(port: AdmissionPort) -> BrokerConnection:
            return BrokerConnection(port, self.place, start, nobody_s)

        port = AdmissionPort(dial, unpaced=unpaced)
        self.ports.append(port)
        return port

    def caller(self) -> Caller:
        """Another process that does."""
        root = Path(headway.__file__).parent.parent
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "caller.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": f"{root}"},
        )
        self.callers.append(Caller(process))
        return self.callers[-1]

    def brokers(self) -> list[int]:
        """Processes that have ever listened here, oldest first."""
        try:
            lines = Path(self.place.log).read_text().splitlines()
        except FileNotFoundError:
            return []
        return [int(line.split("[")[1].split("]")[0]) for line in lines if "listening" in line]

    def kill_broker(self) -> int:
        """Kill -9; its number."""
        pid = self.brokers()[-1]
        os.kill(pid, signal.SIGKILL)
        return pid


@contextmanager
def home(monkeypatch: pytest.MonkeyPatch, idle_s: float = 5.0) -> Iterator[Home]:
    """A home that is left as it was found: no process, no folder."""
    folder = tempfile.mkdtemp(prefix="hw-")
    monkeypatch.setenv("HEADWAY_RUNTIME_DIR", f"{folder}/run")
    monkeypatch.setenv("HEADWAY_STATE_DIR", f"{folder}/state")
    monkeypatch.setenv("HEADWAY_IDLE_S", f"{idle_s}")
    place = folders(os.environ)
    prepare(place)
    here = Home(place)
    try:
        yield here
    finally:
        for port in here.ports:
            port.close()
        for caller in here.callers:
            if caller.process.poll() is None:
                caller.kill()
            else:
                caller.close()
        for pid in here.brokers():
            if is_alive(pid):
                os.kill(pid, signal.SIGTERM)
                until(lambda pid=pid: not is_alive(pid))  # type: ignore[misc]
        shutil.rmtree(folder)


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that has ended and was not fetched does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
