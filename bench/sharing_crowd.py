"""Processes that share an account: what each is told to do, and a place for a broker of their own.

Started as a module this file *is* such a process: it makes calls as long as there are any.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from bench.results import ROOT
from headway.base.codec import as_dict
from headway.base.folders import Folders, folders

if TYPE_CHECKING:
    import openai

MODEL: Final = "gpt-5-mini"
MAX_TOKENS: Final = 300
"""As in the examples."""

RECORD_BYTES: Final = 8
"""The number of a call in the pipe that callers share."""

END_S_MAX: Final = 10.0
"""How long a process may take to go when it is asked to."""


class Errand(Struct, frozen=True):
    """What one process is to do."""

    url: str
    key: str
    label: str
    words: tuple[int, int]
    processes: int = 1
    threads: int = 1
    how: str = "shared"
    """`shared` through the broker, `alone` with a desk of its own, `unpaced`."""
    seed: int = 1
    max_tokens: int = MAX_TOKENS
    fault: str = ""
    """What the provider is asked to do to every call."""


class Done(Struct, frozen=True):
    """What came of an errand, as the process saw it."""

    label: str
    answers: int
    faults: tuple[str, ...]


def perform(errand: Errand) -> int:
    """In a process of its own: get ready, make calls as long as there are any, tell."""
    import openai  # noqa: F401  # Children find it imported.

    import headway  # noqa: F401

    print("ready", flush=True)
    children = [os.fork() or _child(errand) for _ in range(errand.processes - 1)]
    _make_calls(errand)
    for child in children:
        os.waitpid(child, 0)
    return 0


def _child(errand: Errand) -> int:
    _make_calls(errand)
    os._exit(0)


def _make_calls(errand: Errand) -> None:
    import openai

    client = openai.OpenAI(
        api_key=errand.key,
        base_url=f"{errand.url}/v1",
        default_headers={"x-sim-label": errand.label, "x-sim-fault": errand.fault},
    )
    _pace(client, errand.how)

    def ask(number: int) -> str:
        prompt = prompt_of(number, errand.words, errand.seed)
        try:
            client.chat.completions.create(
                model=MODEL,
                max_tokens=errand.max_tokens,
                messages=[{"role": "user", "content": prompt}],
            )
        except openai.OpenAIError as error:
            return f"{type(error).__name__}: {error}"[:300]
        return ""

    with ThreadPoolExecutor(errand.threads) as threads:
        told = [
            threads.submit(lambda: [ask(number) for number in numbers()])
            for _ in range(errand.threads)
        ]
        faults = [fault for each in told for fault in each.result()]
    done = Done(errand.label, faults.count(""), tuple(filter(None, faults)))
    # One write, so that processes do not write into each other's lines.
    os.write(1, json.dumps(as_dict(done)).encode() + b"\n")


def _pace(client: openai.OpenAI, how: str) -> None:
    import headway
    from headway.broker.store import recall
    from headway.client.admission import AdmissionPort
    from headway.client.connection import dial_alone

    if how == "shared":
        headway.pace(client)
    elif how == "alone":
        kept = recall(folders(os.environ).memory)
        headway.pace(client, admission=AdmissionPort(lambda own: dial_alone(own, kept)))


def numbers() -> Iterator[int]:
    """Calls to make, taken from standard input, which threads and processes share."""
    # The system gives each reader of a pipe whole records as long as all ask for the same size.
    while record := os.read(0, RECORD_BYTES):
        yield int(record)


def prompt_of(number: int, words: tuple[int, int], seed: int) -> str:
    """The text of a call; the same in every process."""
    chance = random.Random(f"{seed} {number}")
    count = chance.randint(*words)
    text = " ".join(
        chance.choices(("look", "at", "this", "module", "for", "any", "fault"), k=count)
    )
    return f"Task {number} of {seed}: {text}"


def environment(place: Folders, url: str, key: str) -> dict[str, str]:
    """Variables of a process with a broker of its own, which goes soon after it."""
    return os.environ | {
        "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))),
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": key,
        "HEADWAY_RUNTIME_DIR": place.runtime,
        "HEADWAY_STATE_DIR": place.state,
        "HEADWAY_IDLE_S": "2",
    }


@contextmanager
def place_of_its_own() -> Iterator[Folders]:
    """Folders for a broker; it and they are gone afterwards."""
    # The path of a socket is short, so that a test's own folder may be too deep.
    folder = Path(tempfile.mkdtemp(prefix="hw-"))
    place = Folders(str(folder / "run"), str(folder / "state"))
    try:
        yield place
    finally:
        for pid in brokers(place):
            end_broker(pid)
        shutil.rmtree(folder, ignore_errors=True)


def brokers(place: Folders) -> list[int]:
    """Processes that have ever admitted here, oldest first."""
    try:
        lines = Path(place.log).read_text().splitlines()
    except FileNotFoundError:
        return []
    return [int(line.split("[")[1].split("]")[0]) for line in lines if "listening" in line]


def end_broker(pid: int) -> None:
    """Ask it to go, and see it gone."""
    until_s = time.monotonic() + END_S_MAX
    while is_alive(pid) and time.monotonic() < until_s:
        os.kill(pid, signal.SIGTERM)
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that has ended and was not fetched does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


class Work:
    """Calls to make, in a pipe: whoever is free takes the next one."""

    def __init__(self, calls: Sequence[int]) -> None:
        self.calls = tuple(calls)
        self.reader, self._writer = os.pipe()

    def __repr__(self) -> str:
        return f"<Work of {len(self.calls)} calls>"

    def __enter__(self) -> Work:
        return self

    def __exit__(self, *_: object) -> None:
        for end in {self.reader, self._writer} - {-1}:
            os.close(end)

    def begin(self) -> None:
        """Let everybody who has the pipe go."""
        for number in self.calls:
            os.write(self._writer, b"%*d" % (RECORD_BYTES, number))
        os.close(self._writer)
        self._writer = -1


class Caller:
    """A process that makes calls of some work."""

    def __init__(self, errand: Errand, work: Work, place: Folders) -> None:
        self.label = errand.label
        command = [sys.executable, "-m", "bench.sharing_crowd", json.dumps(as_dict(errand))]
        self.process = subprocess.Popen(
            command,
            env=environment(place, errand.url, errand.key),
            stdin=work.reader,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __repr__(self) -> str:
        return f"<Caller {self.label} [{self.process.pid}]>"

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def ready(self) -> None:
        """Wait until it only waits for work."""
        assert self.process.stdout is not None
        if self.process.stdout.readline().strip() != "ready":
            raise RuntimeError(f"{self!r} did not start")

    def done(self) -> Done:
        """Wait for the end."""
        told = [json.loads(line) for line in self.process.communicate()[0].splitlines()]
        faults = tuple(fault for one in told for fault in one["faults"])
        return Done(self.label, sum(one["answers"] for one in told), faults)


if __name__ == "__main__":
    sys.exit(perform(Errand(**json.loads(sys.argv[1]))))
