"""CPU of one paced call beside `json.loads` of 1 kB, and memory of calls that wait.

    python -m bench.call_cost           the table
    python -m bench.call_cost waiting   megabytes by which 100,000 waiting calls make a process grow

Best of 20 rounds: other processes only ever add. A permit is asked for and settled in process and
through a broker, whose CPU is counted too; a call of Anthropic's SDK is made plain and paced.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import process_time_ns
from typing import Final

import anthropic

import headway
from bench.markdown import table
from bench.walk import provider
from headway.base.values import Limit, Sketch, Tally
from headway.broker import protocol
from headway.client.admission import AdmissionPort
from headway.client.connection import dial_alone, dial_best
from headway.pacing.admission import Admission
from headway.pacing.call import Outcome, Request
from headway.pacing.memory import AccountTerms, PacingMemory

ROUNDS: Final = 20
PERMITS: Final = 200
CALLS: Final = 20
FAST: Final = ("--first-byte-s", "0.001", "--per-token-s", "0.0001")
PERMIT_US_MAX: Final = 20.0
BROKER_US_MAX: Final = 100.0
SHARE_MAX: Final = 0.15
WAITERS: Final = 100_000
WAITERS_MB_MAX: Final = 100.0
CLIENTS: Final = 10
FLOWS: Final = 100
DOCUMENT: Final = json.dumps({f"field {n}": [n, f"value {n}"] for n in range(38)})[:-1] + "}"


def main() -> None:
    print(waiting_mb() if sys.argv[1:] == ["waiting"] else costs())


def costs() -> str:
    """The table of what one call takes, and of what waiting calls take."""
    with tempfile.TemporaryDirectory(prefix="hw-") as place:
        os.environ |= {
            "HEADWAY_RUNTIME_DIR": f"{place}/r", "HEADWAY_STATE_DIR": f"{place}/s",
            "HEADWAY_IDLE_S": "1",
        }  # fmt: skip
        parse_us = best_us([lambda: json.loads(DOCUMENT)], PERMITS)[0] * 1000 / len(DOCUMENT)
        rows = [
            ["`json.loads` of 1 kB", f"{parse_us:.1f} us", "1.0", "-"],
            *(_row(name, us, most, parse_us) for name, us, most in permits_us()),
            *_calls(parse_us),
        ]
    command = [sys.executable, "-m", "bench.call_cost", "waiting"]
    grown_mb = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    rows.append([f"{WAITERS:,} calls waiting in a broker: resident", f"{grown_mb} MB", "-",
                 f"{WAITERS_MB_MAX:.0f} MB"])  # fmt: skip
    return table(("what", "CPU, or memory", "times `json.loads`", "goal"), rows)


def waiting_mb() -> int:
    """How much a process grows by calls that wait in a broker's admission, as they are received."""
    terms = AccountTerms((Limit("requests", 60.0), Limit("input", 1e6)))
    admission = Admission(PacingMemory(), lambda *_: None, 0.0)
    admission.configure("", terms, 0.0)
    messages = protocol.ClientMessages()
    clients = [f"{1000 + number}-0a1b2c3d" for number in range(CLIENTS)]
    before = _resident_bytes()
    for number in range(WAITERS):
        sketch = Sketch(
            "claude-sonnet-4-5", size_bytes=3000 + number % 1000, messages=3,
            max_output_tokens=4096, kind="claude-sonnet-4-5#1a2b3c4d", is_whole=True,
            most_input_tokens=3400 + number % 1000,
        )  # fmt: skip
        request = Request("anthropic#1a2b3c4d", "anthropic", sketch, (f"run-{number % FLOWS}",))
        for message in messages.feed(protocol.packed(protocol.Ask(number, request))):
            assert isinstance(message, protocol.Ask)
            id = clients[number % CLIENTS], message.number
            admission.ask(id, message.request, 1.0 + number * 1e-5)
    return round((_resident_bytes() - before) / 1e6)


def _resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def best_us(
    ways: list[Callable[[], object]], count: int, also_ns: Callable[[], int] = lambda: 0
) -> list[float]:
    """CPU of one of each in this process, and in another one: the least of the rounds."""
    best = [float("inf")] * len(ways)
    for way in ways:
        way()
    for _ in range(ROUNDS):
        for place, way in enumerate(ways):
            began, also = process_time_ns(), also_ns()
            for _ in range(count):
                way()
            spent = process_time_ns() - began + also_ns() - also
            best[place] = min(best[place], spent / count / 1e3)
    return best


def permits_us() -> Iterator[tuple[str, float, float]]:
    """A permit, and its settlement: in process, and through a broker with the broker's own part."""
    request = Request("bench#1", "anthropic", Sketch("model", size_bytes=1000))
    ended = Outcome("used", Tally(250.0, 0.0, 50.0))
    terms = AccountTerms(limits=(Limit("requests", 1e9), Limit("input", 1e12)))
    for name, dial, most in (
        ("a permit in process", dial_alone, PERMIT_US_MAX),
        ("a permit through the broker, both sides", dial_best, BROKER_US_MAX),
    ):
        port = AdmissionPort(dial)
        port.configure(request.account, terms)
        pid = port.describe()[1].pid
        also = partial(_cpu_ns, pid) if pid != os.getpid() else int
        yield name, best_us([partial(_permit, port, request, ended)], PERMITS, also)[0], most
        port.close()


def _permit(port: AdmissionPort, request: Request, ended: Outcome) -> None:
    port.admit(request, 60.0).settle(ended)


def _cpu_ns(pid: int) -> int:
    time.sleep(0.02)  # The broker has the last settlement still to read.
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


def _calls(parse_us: float) -> Iterator[list[str]]:
    with sdk_calls() as ways:
        plain, *paced = best_us(list(ways.values()), CALLS)
    yield _row(next(iter(ways)), plain, None, parse_us)
    for name, us in zip(list(ways)[1:], paced, strict=True):
        share = us / plain - 1
        verdict = f"+{share:.0%} of at most +{SHARE_MAX:.0%}"
        yield [name, f"{us:.0f} us", f"{us / parse_us:.0f}", verdict]


@contextmanager
def sdk_calls() -> Iterator[dict[str, Callable[[], object]]]:
    def calling(client: anthropic.Anthropic) -> Callable[[], object]:
        return lambda: client.messages.create(
            model="tokens-5", max_tokens=20, messages=[{"role": "user", "content": "hello " * 20}]
        )

    with provider(*FAST) as url:
        clients = [anthropic.Anthropic(api_key="x", base_url=url, max_retries=0) for _ in range(3)]
        ports = AdmissionPort(dial_alone), AdmissionPort(dial_best)
        yield {
            "a call of an SDK": calling(clients[0]),
            "the same, paced in process": calling(headway.pace(clients[1], admission=ports[0])),
            "the same, paced by the broker": calling(headway.pace(clients[2], admission=ports[1])),
        }
        ports[1].close()


def _row(name: str, us: float, most: float | None, parse_us: float) -> list[str]:
    goal = "-" if most is None else f"{most:.0f} us"
    return [name, f"{us:.1f} us", f"{us / parse_us:.1f}", goal]


if __name__ == "__main__":
    main()
