"""What stands between the two ends in the gateway benches: processes to start, and what they take.

CPU is that of the process, of all that it started and, for headway, of the broker, by the kernel's
own clock of a process; memory is resident, each process by itself.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from bench.engine import ENVIRONMENTS
from bench.engine_own import environment
from bench.engine_peers import descendants
from bench.gateway_ends import AT_ONCE, KEY, MODEL
from bench.gateway_floor import PREFIX
from bench.gateway_floor import WAYS as FLOORS
from bench.results import ROOT, say

PACKAGES: Final = {
    "litellm": ("litellm[proxy]",),
    "pass-through": ("aiohttp", "httptools", "httpx2", "uvicorn", "uvloop"),
}
"""What environments of peers have."""

START_S_MAX: Final = 120.0
END_S_MAX: Final = 10.0
LOOK_EVERY_S: Final = 0.005
GATEWAY: Final = (sys.executable, "-m", "headway", "gateway")
ROOM: Final = ("rpm=100M", "tpm=100000M", "concurrent=10k")
"""Limits that do not bind here: what is measured is the way, not the wait."""


class Server(Struct):
    """A running subject."""

    port: int
    path: str
    """Where Chat Completions are."""
    probe: str
    """Answered with 200 as soon as it is up."""
    pids: Callable[[], list[int]] = list
    start_s: float = 0.0
    home: dict[str, str] = field(default_factory=dict)
    """The variables of headway's folders."""

    def cpu_s(self) -> float:
        return sum(map(cpu_s, self.pids()))

    def memory_mb(self) -> tuple[float, ...]:
        """Of each process; the gateway is the first."""
        return tuple(map(memory_mb, self.pids()))


def cpu_s(pid: int) -> float:
    """All threads of a process, those that ended included: clock_getcpuclockid(3)."""
    with suppress(OSError):
        return time.clock_gettime((~pid << 3) | 2)
    return 0.0


def memory_mb(pid: int) -> float:
    """What a process has in memory."""
    with suppress(OSError):
        text = Path(f"/proc/{pid}/status").read_text()
        return int(text.partition("VmRSS:")[2].split()[0]) / 1024
    return 0.0


@contextmanager
def upstream() -> Iterator[int]:
    """The provider; its port."""
    with process_of([sys.executable, "-m", "bench.gateway_ends", "upstream"]) as process:
        yield _port_said(process)


@contextmanager
def direct(port: int) -> Iterator[Server]:
    """Nothing in between."""
    yield Server(port, "/v1/chat/completions", "/counts")


@contextmanager
def floor(way: str, port: int, python: str) -> Iterator[Server]:
    """A bare pass-through."""
    command = [python, "-m", "bench.gateway_floor", way, str(port)]
    began_s = time.perf_counter()
    with process_of(command) as process:
        server = Server(_port_said(process), f"{PREFIX}/v1/chat/completions", f"{PREFIX}/counts",
                        partial(_tree, process.pid))  # fmt: skip
        yield _started(server, began_s, process)


@contextmanager
def litellm(port: int, python: str) -> Iterator[Server]:
    """LiteLLM's proxy as its documentation says: one worker, a master key, no database."""
    own = free_port()
    settings = {
        "model_list": [
            {
                "model_name": model,
                "litellm_params": {
                    "model": f"openai/{model}",
                    "api_base": f"http://127.0.0.1:{port}/v1",
                    "api_key": KEY,
                },
            }
            for model in (MODEL, AT_ONCE)
        ],
        "general_settings": {"master_key": KEY},
        "litellm_settings": {"telemetry": False, "set_verbose": False},
    }
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.yaml"
        # JSON is YAML.
        config.write_text(json.dumps(settings))
        command = [str(Path(python).parent / "litellm"), "--config", str(config),
                   "--host", "127.0.0.1", "--port", str(own), "--num_workers", "1",
                   "--telemetry", "False"]  # fmt: skip
        quiet = {"LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True",
                 "LITELLM_MODE": "PRODUCTION", "HOME": folder}  # fmt: skip
        began_s = time.perf_counter()
        with process_of(command, quiet, is_heard=False) as process:
            server = Server(own, "/v1/chat/completions", "/health/liveliness",
                            partial(_tree, process.pid))  # fmt: skip
            yield _started(server, began_s, process)


@contextmanager
def headway(
    port: int, command: Sequence[str] = GATEWAY, *limits: str, python: str = sys.executable
) -> Iterator[Server]:
    """The gateway with all it does: a token, pacing by the broker, learning, usage, ledger."""
    own = free_port()
    with tempfile.TemporaryDirectory(prefix="hw-") as folder:
        home = {"HEADWAY_RUNTIME_DIR": f"{folder}/run", "HEADWAY_STATE_DIR": f"{folder}/state",
                "HEADWAY_CONFIG_DIR": f"{folder}/config", "HOME": folder,
                "HEADWAY_IDLE_S": "30"}  # fmt: skip
        if python != sys.executable:
            home["PYTHONPATH"] = ""  # An environment that has its own headway.
        arguments = ["--port", str(own), "--upstream", f"http://127.0.0.1:{port}", "--drain", "0"]
        began_s = time.perf_counter()
        try:
            with process_of([*command, *arguments], home, is_heard=False) as process:
                token = token_in(Path(folder) / "run" / "gateway.json", process)

                def pids() -> list[int]:
                    return list(dict.fromkeys((*_tree(process.pid), *brokers(folder))))

                server = Server(own, f"/{token}/openai/v1/chat/completions", f"/{token}/status",
                                pids, home=home)  # fmt: skip
                _started(server, began_s, process)
                set_limits(home, *(limits or ROOM), python=python)
                yield server
        finally:
            for pid in brokers(folder):
                end(pid)


def token_in(path: Path, process: subprocess.Popen[bytes]) -> str:
    """As the gateway publishes it for its own user."""
    until_s = time.monotonic() + START_S_MAX
    while process.poll() is None and time.monotonic() < until_s:
        with suppress(OSError, ValueError):
            return str(json.loads(path.read_text())["token"])
        time.sleep(LOOK_EVERY_S)
    raise RuntimeError("the gateway did not start")


def set_limits(home: dict[str, str], *limits: str, python: str = sys.executable) -> None:
    """`headway limits set` in that home."""
    subprocess.run(
        [python, "-m", "headway", "limits", "set", *limits],
        env=environment() | home, check=True, stdout=subprocess.DEVNULL, cwd=home["HOME"],
    )  # fmt: skip


def brokers(folder: str) -> list[int]:
    """Processes that listen, or did, in that home, oldest first; those that are alive."""
    found = []
    for log in Path(folder).rglob("*.log"):
        for line in log.read_text().splitlines():
            if "listening" in line:
                pid = int(line.split("[")[1].split("]")[0])
                if is_alive(pid):
                    found.append(pid)
    return found


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that has ended and was not fetched does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def end(pid: int) -> None:
    """Ask a process to end, and see to it that it does."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
        until_s = time.monotonic() + END_S_MAX
        while is_alive(pid) and time.monotonic() < until_s:
            time.sleep(LOOK_EVERY_S)
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)


def peers_python(name: str, named: str | None) -> str | None:
    """The interpreter of an environment that has what a subject needs; made when first wanted."""
    packages = PACKAGES.get("litellm" if name == "litellm" else "pass-through", ())
    if name in ("direct", "headway"):
        return sys.executable
    if named is not None:
        return named if name == "litellm" else sys.executable
    folder = ENVIRONMENTS / ("litellm" if name == "litellm" else "pass-through")
    python, stamp = folder / "bin" / "python", folder / ".installed"
    if not stamp.exists():
        say(f"installing {' '.join(packages)} into an environment of its own")
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        if subprocess.run([*pip, *packages], check=False).returncode != 0:
            return None
        stamp.touch()
    return str(python)


def subject(name: str, port: int, python: str) -> AbstractContextManager[Server]:
    """One by its name, run by that interpreter."""
    if name == "direct":
        return direct(port)
    if name == "headway":
        return headway(port)
    return litellm(port, python) if name == "litellm" else floor(name, port, python)


NAMES: Final = ("direct", *FLOORS, "headway", "litellm")


def free_port() -> int:
    """One that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


def fetch(port: int, path: str) -> int:
    """The status of an answer; 0 without one."""
    line = HTTPConnection("127.0.0.1", port, timeout=10.0)
    try:
        line.request("GET", path)
        return line.getresponse().status
    except (OSError, HTTPException):
        return 0
    finally:
        line.close()


def _started(server: Server, began_s: float, process: subprocess.Popen[bytes]) -> Server:
    """Wait for the first answer."""
    while fetch(server.port, server.probe) != 200:
        if process.poll() is not None:
            raise RuntimeError(f"it ended with {process.returncode} before it answered")
        if time.perf_counter() - began_s > START_S_MAX:
            raise TimeoutError(f"no answer within {START_S_MAX:g} s")
        time.sleep(LOOK_EVERY_S)
    server.start_s = time.perf_counter() - began_s
    return server


def _tree(pid: int) -> list[int]:
    return [pid, *descendants(pid)]


def _port_said(process: subprocess.Popen[bytes]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


@contextmanager
def process_of(
    command: Sequence[str], more: dict[str, str] | None = None, *, is_heard: bool = True
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends with the block; what it complained about goes with an error."""
    with tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment() | (more or {}), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if is_heard else complaints, stderr=complaints,
        )  # fmt: skip
        try:
            yield process
        except BaseException as error:
            complaints.seek(0)
            error.add_note(complaints.read().decode(errors="replace")[-2000:])
            raise
        finally:
            end(process.pid)
            process.communicate()
