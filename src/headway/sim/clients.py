"""Clients of the simulated provider: paced by headway, or unpaced as peers are."""

from __future__ import annotations

import heapq
from collections import deque
from math import inf
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from headway.base.values import Amounts, Demand, Fault, FaultKind, Reading, SettledAs
from headway.pacing.call import Call
from headway.pacing.calls import AccountCalls
from headway.pacing.estimate import OutputLength
from headway.sim.draw import uniform

JITTER_STREAM: Final = 31

SENT_AGAIN: Final[frozenset[FaultKind]] = frozenset(("rate", "concurrency", "overload"))
"""Refusals: the call did not run, and running it later is the right answer."""

LASTING: Final[frozenset[FaultKind]] = frozenset(("request", "access", "spend_cap", "billing"))
"""Faults that waiting does not mend."""

DOUBLINGS_MAX: Final = 64
"""A delay that doubled so often is longer than any run; 1,024 would overflow a float."""

LOSSES_MAX: Final = 3
"""A call that was let in and lost on the way is paid for: it is sent again so often, no more. Its
task need not begin anew for it."""


class PacedDoor:
    """headway: every call has a permit before it is sent."""

    def __init__(self, calls: AccountCalls, lengths: OutputLength) -> None:
        self.calls = calls
        self._losses: dict[int, int] = {}
        self._lengths = lengths
        self._wishes: dict[int, tuple[Demand, tuple[float, ...]]] = {}
        self._known: dict[int, Call] = {}
        self._now = 0.0
        self._wake_s = inf

    def knock(self, call_id: int, demand: Demand, key: tuple[float, ...]) -> None:
        self._wishes[call_id] = demand, key
        call = Call(("", call_id), self._now, ("run",), key, demand)
        self._size(call, self._now)
        self._known[call_id] = call
        self.calls.ask(call)

    def open(self, now: float) -> list[int]:
        self._now = now
        decision = self.calls.decide(now, self._size)
        self._wake_s = decision.wake_s
        return [call.id[1] for call in decision.sent]

    def next_s(self) -> float:
        return self._wake_s

    def refused(self, call_id: int, fault: Fault, reading: Reading, now: float) -> bool:
        self._now = now
        again = fault.kind in SENT_AGAIN
        how: SettledAs = "throttled" if again else "unused"
        call, wish = self._known.pop(call_id), self._wishes.pop(call_id)
        self.calls.settle(call, how, Amounts(), now, fault, reading)
        if again:
            self.knock(call_id, *wish)
        return again

    def first_byte(self, call_id: int, reading: Reading, now: float) -> None:
        self.calls.first_byte(self._known[call_id], reading, now)

    def progress(self, call_id: int, output_tokens: float, now: float) -> None:
        self.calls.progress(self._known[call_id], output_tokens, now)

    def ended(self, call_id: int, used: Amounts, fault: Fault | None, now: float) -> bool:
        self._now = now
        call = self._known.pop(call_id)
        if fault is None:
            sent = call.demand
            output = round(used.output_tokens)
            self._lengths.observe(sent.kind, sent.expected.input_tokens, output)
        self.calls.settle(call, "used", used, now, fault)
        wish, lost = self._wishes.pop(call_id), self._losses.pop(call_id, 0)
        if fault is None or lost >= LOSSES_MAX:
            return False
        self._losses[call_id] = lost + 1
        self.knock(call_id, *wish)
        return True

    def _size(self, call: Call, now: float) -> None:
        """Expect an answer as long as those of its kind were."""
        demand, _ = self._wishes[call.id[1]]
        known, most = demand.expected, demand.ceiling
        output = self._lengths.expect(demand.kind, known.input_tokens, int(most.output_tokens))
        amounts = Amounts(known.input_tokens, output, known.spend_microusd)
        call.demand = replace(demand, expected=amounts, ceiling=most)
        call.sized_s = now


class RetryRule(Struct, frozen=True):
    """When an unpaced client sends a call again."""

    retries: int
    first_s: float = 0.5
    growth: float = 2.0
    most_s: float = 8.0
    jitter: float = 0.25
    """Up to this share is taken off each delay at random."""
    obeys_retry_after: bool = True

    def delay_s(self, attempt: int, fault: Fault, luck: float) -> float:
        """Delay before try number `attempt + 1`."""
        if self.obeys_retry_after and fault.retry_after_s is not None:
            return fault.retry_after_s
        delay = self.first_s * self.growth ** min(attempt - 1, DOUBLINGS_MAX)
        return min(self.most_s, delay) * (1.0 - self.jitter * luck)


SDK: Final = RetryRule(2)
"""The official SDKs: two retries, half a second doubling to eight, a quarter of jitter."""

PATIENT: Final = RetryRule(1_000_000)
"""The same delays for as long as it takes: loses no task."""

AGGRESSIVE: Final = RetryRule(
    1_000_000, first_s=1.0, most_s=inf, jitter=0.0, obeys_retry_after=False
)
"""Doubles without end and takes no advice: what hand-written loops do."""


PEERS_START: Final = 4
"""Calls that a peer's law allows in flight at first: as many as the smallest accounts allow."""


class Aimd:
    """Additive increase, multiplicative decrease: one more per full window, half on a refusal."""

    def __init__(self, limit: float = PEERS_START) -> None:
        self.limit = limit
        self._held_until_s = 0.0

    def succeeded(self, in_flight: int, now: float) -> None:  # noqa: ARG002 - the laws' verb
        if in_flight + 1 >= self.limit:
            self.limit += 1.0 / self.limit

    def refused(self, now: float) -> None:
        """A burst of refusals is one signal: the limit is lowered at most once a second."""
        if now >= self._held_until_s:
            self._held_until_s = now + 1.0
            self.lower(now)

    def lower(self, now: float) -> None:  # noqa: ARG002 - the laws' verb
        self.limit = max(1.0, self.limit / 2)


class Cubic(Aimd):
    """TCP CUBIC (RFC 9438): back quickly to where it last failed, stay there, then probe beyond."""

    C: Final = 0.4
    BETA: Final = 0.7

    def __init__(self, limit: float = PEERS_START) -> None:
        super().__init__(limit)
        self._top = limit
        self._epoch_s: float | None = None

    def succeeded(self, in_flight: int, now: float) -> None:
        if in_flight + 1 < self.limit:
            return
        if self._epoch_s is None:
            self.limit += 1.0
            return
        flat_s = (self._top * (1 - self.BETA) / self.C) ** (1 / 3)
        target = self.C * (now - self._epoch_s - flat_s) ** 3 + self._top
        self.limit = max(self.limit, min(target, self.limit + 1.0))

    def lower(self, now: float) -> None:
        self._top, self._epoch_s = self.limit, now
        self.limit = max(1.0, self.limit * self.BETA)


class UnpacedDoor:
    """Sends at once, retries by rule; optionally a law moves how many may be in flight."""

    def __init__(self, rule: RetryRule, seed: int, gate: Aimd | None = None) -> None:
        self._rule = rule
        self._seed = seed
        self._gate = gate
        self._queue: deque[int] = deque()
        self._again: list[tuple[float, int]] = []
        self._tries: dict[int, int] = {}
        self._in_flight = 0

    def knock(self, call_id: int, demand: Demand, key: tuple[float, ...]) -> None:  # noqa: ARG002
        self._queue.append(call_id)

    def open(self, now: float) -> list[int]:
        while self._again and self._again[0][0] <= now:
            self._queue.append(heapq.heappop(self._again)[1])
        most = inf if self._gate is None else max(1.0, self._gate.limit)
        sent = []
        while self._queue and self._in_flight + 1 <= most:
            sent.append(self._queue.popleft())
            self._in_flight += 1
        return sent

    def next_s(self) -> float:
        return self._again[0][0] if self._again else inf

    def refused(self, call_id: int, fault: Fault, reading: Reading, now: float) -> bool:  # noqa: ARG002
        self._in_flight -= 1
        if self._gate is not None and fault.kind in SENT_AGAIN:
            self._gate.refused(now)
        return self._retry(call_id, fault, now)

    def first_byte(self, call_id: int, reading: Reading, now: float) -> None:
        """Not used."""

    def progress(self, call_id: int, output_tokens: float, now: float) -> None:
        """Not used."""

    def ended(self, call_id: int, used: Amounts, fault: Fault | None, now: float) -> bool:  # noqa: ARG002
        if self._gate is not None and fault is None:
            self._gate.succeeded(self._in_flight, now)
        self._in_flight -= 1
        return fault is not None and self._retry(call_id, fault, now)

    def _retry(self, call_id: int, fault: Fault, now: float) -> bool:
        tries = self._tries.get(call_id, 0) + 1
        self._tries[call_id] = tries
        if tries > self._rule.retries or fault.kind in LASTING:
            return False
        luck = uniform(self._seed, JITTER_STREAM, call_id * 1009 + tries)
        heapq.heappush(self._again, (now + self._rule.delay_s(tries, fault, luck), call_id))
        return True


ClientPort = PacedDoor | UnpacedDoor
"""Takes calls that are to be sent (`knock`), says which to send now (`open`) and when to look again
(`next_s`), and learns what became of each. `refused` and `ended` return whether the client keeps a
call that went wrong, to send it again."""
