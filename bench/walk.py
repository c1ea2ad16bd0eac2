"""Which functions one piece of work passes through: `python -m bench.walk [call|limits|...]`.

Prints `file:function` in the order of first calls, then how many files, functions and calls there
were, and the deepest chain of calls from `admit` to the meters of limits. It uses front doors only,
so that `PYTHONPATH=OLD/src python -m bench.walk` walks another checkout. What a scene does the
first time (imports, connections) is left out of `call`, `limits` and `gateway`; `task` is the whole
of `headway run`, without imports.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, Final

import httpx2

import headway

PACKAGE: Final = str(Path(headway.__file__).parent)
BODY: Final = {
    "model": "tokens-5", "max_tokens": 20, "messages": [{"role": "user", "content": "hello"}],
}  # fmt: skip
HEADERS: Final = {"x-api-key": "walk", "anthropic-version": "2023-06-01"}
LIMITS: Final = ("--rpm", "600", "--itpm", "100k", "--otpm", "20k", "--charging", "produced")
METERS: Final = "pacing/meters.py"
"""Where the arithmetic of limits is."""
PLAN: Final = "headway: 1\ntasks:\n  hello: {run: echo hello}\n"


class Walk:
    """The calls within the package while `is_on`, in all threads that begin after it."""

    def __init__(self) -> None:
        self.is_on = False
        self.calls = 0
        self.hops: dict[tuple[str, str], None] = {}
        self.deepest: list[str] = []
        """The longest chain of calls from `admit` to a meter."""
        threading.setprofile(self._see)
        sys.setprofile(self._see)

    def _see(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if not self.is_on or event != "call" or not code.co_filename.startswith(PACKAGE):
            return
        if code.co_name != "<module>":
            self.calls += 1
            self.hops[os.path.relpath(code.co_filename, PACKAGE), code.co_qualname] = None
            if code.co_filename.endswith(METERS):
                self._measure(frame)

    def _measure(self, frame: FrameType | None) -> None:
        chain: list[str] = []
        while frame is not None:
            name = frame.f_code.co_qualname
            if frame.f_code.co_filename.startswith(PACKAGE):
                chain.append(name)
            if name.rpartition(".")[2].startswith("admit"):
                self.deepest = max(self.deepest, chain[::-1], key=len)
                return
            frame = frame.f_back

    def tell(self) -> None:
        sys.setprofile(None)
        threading.setprofile(None)
        for file, function in self.hops:
            print(f"  {file}:{function}")
        files = {file for file, _ in self.hops}
        print(f"{len(files)} files, {len(self.hops)} functions, {self.calls} calls")
        if self.deepest:
            print(f"{len(self.deepest) - 1} hops: {' > '.join(self.deepest)}")


@contextmanager
def provider(*limits: str) -> Iterator[str]:
    """A simulated provider in a process of its own; its address."""
    command = [sys.executable, "-m", "headway", "sim", "serve", "--port", "0", "--json", *limits]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.terminate()


def own_admission() -> Any:
    """Admission within this process; the names of the two modules differ between checkouts."""
    try:
        module = dialler = import_module("headway.client.admission")
    except ImportError:
        module = import_module("headway.runtime.admission")
        dialler = import_module("headway.runtime.access")
    try:
        folders = import_module("headway.base.folders")
    except ImportError:
        folders = import_module("headway.runtime.folders")
    place = folders.folders(os.environ)
    port = getattr(module, "AdmissionPort", None) or module.Admission
    if not hasattr(dialler, "dial_own"):
        return port(dialler.dial_alone)
    return port(lambda client: dialler.dial_own(client, place))


def limits(walk: Walk) -> None:
    """The same where headers name three limits."""
    call(walk, *LIMITS)


def call(walk: Walk, *limits: str) -> None:
    """The second paced call of a client, with an empty queue."""
    with provider(*limits) as url, httpx2.Client() as plain:
        client = headway.pace(plain, admission=own_admission())
        for walk.is_on in (False, True):
            client.post(f"{url}/v1/messages", json=BODY, headers=HEADERS).raise_for_status()
        walk.is_on = False


def task(walk: Walk) -> None:
    """`headway run` of a plan with one command."""
    from headway.cli.main import main

    Path("plan.yaml").write_text(PLAN)
    walk.is_on = True
    main(["run", "plan.yaml"])
    walk.is_on = False


def gateway(walk: Walk) -> None:
    """The second call through a gateway that runs in this process."""
    from headway.cli.main import main

    with provider() as url:
        read, write = os.pipe()
        sender = threading.Thread(target=_send, args=(walk, read))
        sender.start()
        stderr = os.dup(2)
        os.dup2(write, 2)
        try:
            main(["gateway", "--upstream", url, "--port", "0"])
        finally:
            os.dup2(stderr, 2)
            sender.join()


def _send(walk: Walk, read: int) -> None:
    with os.fdopen(read) as lines:
        for line in lines:
            if "headway gateway at" in line:
                break
    told = subprocess.run(
        [sys.executable, "-m", "headway", "gateway", "env", "--shell", "sh"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    url = re.search(r"ANTHROPIC_BASE_URL=['\"]?(http[^'\"\s]+)", told)
    assert url is not None, told
    try:
        with httpx2.Client() as client:
            for walk.is_on in (False, True):
                answer = client.post(f"{url.group(1)}/v1/messages", json=BODY, headers=HEADERS)
                answer.raise_for_status()
    finally:
        walk.is_on = False
        os.kill(os.getpid(), signal.SIGINT)


SCENES: Final[dict[str, Callable[[Walk], None]]] = {
    "call": call, "limits": limits, "task": task, "gateway": gateway,
}  # fmt: skip


def main(names: list[str]) -> None:
    for name in names or SCENES:
        with tempfile.TemporaryDirectory() as place:
            os.environ |= {
                "HEADWAY_RUNTIME_DIR": f"{place}/r", "HEADWAY_STATE_DIR": f"{place}/s",
            }  # fmt: skip
            os.chdir(place)
            walk = Walk()
            print(f"{name}:")
            SCENES[name](walk)
            walk.tell()
            os.chdir("/")


if __name__ == "__main__":
    main(sys.argv[1:])
