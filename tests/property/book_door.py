"""A door to the simulated provider that several clients share through one book."""

from __future__ import annotations

from math import inf

from headway.base.values import Amounts, Demand, Fault, Reading, Sketch, Tally
from headway.pacing.admission import Book, CallOutcome
from headway.pacing.lane import Request
from headway.pacing.memory import CallId
from headway.sim.clients import SENT_AGAIN
from headway.sim.draw import uniform

BYTES_PER_TOKEN = 4.3
WORDINESS = 0.06
"""How far the bytes of one token differ between texts, up and down."""


class BookDoor:
    """Calls of `clients` processes, numbered in turn, that see only the bytes of their inputs."""

    def __init__(self, book: Book, dialect: str, clients: int, seed: int = 1) -> None:
        self.book = book
        self._dialect = dialect
        self._clients = clients
        self._seed = seed
        self._ids: dict[int, CallId] = {}
        self._demands: dict[int, Demand] = {}
        self._sends = 0
        self._wake_s = inf

    def knock(
        self, call_id: int, demand: Demand, key: tuple[float, ...], now: float,
        is_resent: bool = False,
    ) -> None:  # fmt: skip
        del key
        self._sends += 1
        self._demands[call_id] = demand
        call = (f"client-{call_id % self._clients}", self._sends)
        self._ids[call_id] = call
        luck = 1.0 + WORDINESS * (2.0 * uniform(self._seed, 5, call_id) - 1.0)
        size = int(demand.expected.input_tokens * BYTES_PER_TOKEN * luck)
        most = int(demand.ceiling.output_tokens)
        sketch = Sketch("model", "english", size, 1, most, demand.kind)
        self.book.ask(Request(call, "account", self._dialect, sketch, (), is_resent), now)

    def open(self, now: float) -> list[int]:
        verdict = self.book.decide(now)
        assert not verdict.denials
        self._wake_s = verdict.wake_s
        places = {call: number for number, call in self._ids.items()}
        return [places[grant.id] for grant in verdict.grants]

    def next_s(self) -> float:
        return self._wake_s

    def refused(self, call_id: int, fault: Fault, reading: Reading, now: float) -> bool:
        assert fault.kind in SENT_AGAIN
        outcome = CallOutcome("throttled", Tally(known="unknown"), fault, reading, self._dialect)
        assert self.book.settle(self._ids.pop(call_id), outcome, now)
        self.knock(call_id, self._demands[call_id], (), now, is_resent=True)
        return True

    def first_byte(self, call_id: int, reading: Reading, now: float) -> None:
        self.book.first_byte(self._ids[call_id], reading, self._dialect, now)

    def progress(self, call_id: int, output_tokens: float, now: float) -> None:
        self.book.progress(self._ids[call_id], output_tokens, now)

    def ended(self, call_id: int, used: Amounts, fault: Fault | None, now: float) -> bool:
        assert fault is None
        tally = Tally(round(used.input_tokens), 0.0, round(used.output_tokens))
        outcome = CallOutcome("used", tally, None, Reading(), self._dialect)
        return not self.book.settle(self._ids.pop(call_id), outcome, now)
