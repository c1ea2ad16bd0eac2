"""A process that asks the broker for permits as its parent tells it to, line by line.

`admit` asks and waits; `later` asks and goes on; `settle` ends the oldest permit; `fork` does the
same once more in a child; `broker` says who admits. Each answers with one line.
"""

from __future__ import annotations

import os
import sys
import threading

from headway.base.values import Limit, Sketch, Tally
from headway.client.admission import AdmissionPort, ClientCall
from headway.pacing.call import Outcome, Request
from headway.pacing.memory import AccountTerms

CALL = Request(
    "api.example#1a2b3c4d", "anthropic", Sketch("model", size_bytes=100, max_output_tokens=1000)
)
USED = Outcome("used", Tally(20.0, 0.0, 10.0))
WAIT_S = 30.0


def places(count: float) -> AccountTerms:
    """Terms under which so many calls may be in flight."""
    return AccountTerms(limits=(Limit("concurrency", count, kind="gauge"),))


def say(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    port = AdmissionPort()
    tickets: list[ClientCall] = []

    def admit() -> None:
        tickets.append(port.admit(CALL, WAIT_S))
        say("granted")

    for command in map(str.strip, sys.stdin):
        if command == "admit":
            admit()
        elif command == "later":
            threading.Thread(target=admit, daemon=True).start()
            say("asked")
        elif command == "settle":
            tickets.pop(0).settle(USED)
            say("settled")
        elif command == "fork":
            say(f"child {_fork(port, tickets)}")
        elif command == "broker":
            say(f"broker {port.describe()[1].pid}")


def _fork(port: AdmissionPort, tickets: list[ClientCall]) -> int:
    """A child that settles what is not its own, then asks for itself; its exit code."""
    child = os.fork()
    if child == 0:
        for ticket in tickets:
            ticket.settle(USED)
        port.admit(CALL, WAIT_S).settle(USED)
        port.close()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    main()
