"""All limits of one account and model group: who may call now, who waits, why and until when.

Laws:
- All or nothing: every limit is asked first, every limit is charged after.
- One decision for all waiters: `decide` returns every grant that is possible now and the next
  instant at which the answer can change. Nothing polls.
- A permit is settled exactly once: used, unused or throttled. Settling it again does nothing.
- Work-conserving: what may be spent is spent at once, unless the user asked for a smooth flow.
- A blocked call is passed only by calls that do not move its own start.
- No refusal is retried inside its permit: the permit ends, the call asks again.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from math import inf
from typing import Final

from headway.core.quota.belief import Belief, BeliefStatistics, Profile, QuotaConfig
from headway.core.quota.fairness import FairQueue
from headway.core.quota.outflow import Stream
from headway.core.values import Demand, Fault, Permit, Reading, SettledAs, Usage, Wait

BACKFILL_MAX: Final = 8
"""Waiters behind a blocked head that are looked at: more hardly ever find one that fits."""

OVERRUN: Final = 0.4
"""An answer that outlives its plan is expected to go on for this much of what was planned."""

TOKENS_MIN: Final = 5
"""Fewer tokens say nothing about the time per token."""

MAY_CALL: Final = "every limit has room"


@dataclass(frozen=True, slots=True)
class Ask:
    """A call that wants a permit: for whom, how urgently."""

    demand: Demand
    path: tuple[str, ...] = ("",)
    key: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Grant:
    """A permit for the ask that was given this place."""

    place: int
    permit: Permit


@dataclass(frozen=True, slots=True)
class Decision:
    """All grants possible now; what the first of the rest waits for; when to decide again."""

    grants: tuple[Grant, ...]
    wait: Wait | None
    wake_s: float


@dataclass(frozen=True, slots=True)
class Settlement:
    """How a permit ended. Fault and reading belong to a response that was not an answer."""

    how: SettledAs
    usage: Usage
    fault: Fault | None = None
    reading: Reading = Reading()


@dataclass(frozen=True, slots=True)
class QuotaStatistics:
    """Everything a person may want to know about an account at an instant."""

    waiting: int
    in_flight: int
    granted: int
    settled: int
    refused: int
    belief: BeliefStatistics


@dataclass(slots=True)
class _Waiter:
    ask: Ask
    place: int = 0


@dataclass(slots=True)
class _Held:
    """A permit in use: its plan, what the mirrors showed, and the load when it began."""

    permit: Permit
    path: tuple[str, ...]
    stream: Stream
    levels: tuple[float, ...]
    cost_s: float
    company: int
    """Calls in flight when it was sent, itself included."""
    integral: float = 0.0
    seen_s: float | None = None
    """When the answer was last seen to move, with so many tokens by then."""
    seen_tokens: float = 0.0


class Quota:
    """Admission for one account and model group."""

    __slots__ = ("_ends", "_held", "_queue", "_refused", "_stands", "belief", "granted")

    def __init__(self, config: QuotaConfig, now: float) -> None:
        self.belief = Belief(config, now)
        self.granted = 0
        self._queue: FairQueue[_Waiter] = FairQueue()
        self._held: dict[int, _Held] = {}
        self._ends: list[tuple[float, int]] = []
        self._refused = 0
        self._stands: Decision | None = None

    def __repr__(self) -> str:
        return f"<Quota {len(self._held)} in flight, {len(self._queue)} waiting, {self.belief!r}>"

    def ask(self, ask: Ask) -> int:
        """Join the queue; the place returned names the ask in grants and to `leave`."""
        self._stands = None
        waiter = _Waiter(ask)
        waiter.place = self._queue.push(ask.path, ask.key, self.belief.cost_s(ask.demand), waiter)
        return waiter.place

    def leave(self, place: int) -> bool:
        """Give up a place in the queue; False if it was granted or left before."""
        self._stands = None
        return self._queue.remove(place) is not None

    def decide(self, now: float) -> Decision:
        """Grant all that may be granted now, in fair order; say what the next one waits for.

        When nothing has happened since the last decision and its wake-up is still ahead, that
        decision stands and costs nothing to give again.
        """
        if self._stands is not None and now < self._stands.wake_s:
            return self._stands
        self._extend_overruns(now)
        grants: list[Grant] = []
        wait: Wait | None = None
        while (waiter := self._queue.head()) is not None:
            demand = waiter.ask.demand
            stream = self.belief.tempo.plan(demand.expected.output_tokens, now)
            wait = self.belief.wait(demand, stream, len(self._queue), now)
            if wait is not None:
                if now < wait.until_s < inf:
                    grants += self._backfill(demand, stream, wait, now)
                break
            self._queue.pop()
            grants.append(Grant(waiter.place, self._grant(waiter.ask, stream, now)))
        wake_s = self._wake_s(wait, now)
        self._stands = Decision((), wait, wake_s)
        return Decision(tuple(grants), wait, wake_s)

    def admit(self, demand: Demand, now: float) -> Permit | Wait:
        """One call, now or not now, without joining the queue; those who wait come first."""
        if len(self._queue):
            return Wait("queue", now, f"{len(self._queue)} calls were here before")
        stream = self.belief.tempo.plan(demand.expected.output_tokens, now)
        wait = self.belief.wait(demand, stream, len(self._queue), now)
        return wait or self._grant(Ask(demand), stream, now)

    def first_byte(self, permit_id: int, reading: Reading, now: float) -> None:
        """The response began: learn from its headers and its speed."""
        held = self._held.get(permit_id)
        if held is None:
            return
        self._stands = None
        granted_s = held.permit.granted_s
        self.belief.answered(held.permit.demand, granted_s, held.company, now)
        held.seen_s = now
        held.integral = self.belief.tempo.integral(now)
        self._replan(held, self.belief.tempo.replan(held.stream.tokens, now), now)
        known = len(self.belief.mirrors)
        self.belief.observe(reading, held.levels, granted_s, now)
        for mirror in self.belief.mirrors[known:]:
            for other in self._held.values():
                charged = other.permit.granted_s > granted_s
                mirror.join(other.permit.demand, other.stream, charged, now)

    def progress(self, permit_id: int, output_tokens: float, now: float) -> None:
        """The answer has grown to so many tokens: learn the pace in the company it has."""
        held = self._held.get(permit_id)
        if held is not None:
            self._sample(held, output_tokens, now)

    def settle(self, permit_id: int, settlement: Settlement, now: float) -> bool:
        """End a permit. Only the first call for an id does anything; it returns True."""
        held = self._held.pop(permit_id, None)
        if held is None:
            return False
        self._stands = None
        belief, demand, usage = self.belief, held.permit.demand, settlement.usage
        if settlement.how == "used" and settlement.fault is None:
            self._sample(held, usage.amounts.output_tokens, now)
        belief.tempo.leave(now)
        if settlement.how == "used":
            belief.settle(demand, held.stream, usage, now)
        else:
            belief.give_back(demand, held.stream, settlement.how, now)
            self._queue.correct(held.path, -held.cost_s)
        if settlement.fault is not None:
            self._refused += settlement.how == "throttled"
            belief.observe(settlement.reading, held.levels, now, now)
            sent_s = held.permit.granted_s
            belief.failed(demand, sent_s, settlement.fault, settlement.reading, now)
        return True

    def profile(self) -> Profile:
        """What is worth keeping for the next run."""
        return self.belief.profile()

    def statistics(self) -> QuotaStatistics:
        in_flight = len(self._held)
        return QuotaStatistics(
            len(self._queue), in_flight, self.granted, self.granted - in_flight, self._refused,
            self.belief.statistics(),
        )  # fmt: skip

    def _grant(self, ask: Ask, stream: Stream, now: float) -> Permit:
        self.granted += 1
        permit = Permit(self.granted, ask.path[0], ask.demand, now, MAY_CALL)
        levels = self.belief.charge(ask.demand, stream, now)
        cost_s = self.belief.cost_s(ask.demand)
        integral = self.belief.tempo.enter(now)
        company = self.belief.tempo.in_flight
        self._held[permit.id] = _Held(permit, ask.path, stream, levels, cost_s, company, integral)
        heapq.heappush(self._ends, (stream.to_s, permit.id))
        return permit

    def _backfill(self, demand: Demand, stream: Stream, wait: Wait, now: float) -> list[Grant]:
        """Let later calls pass a blocked one where that does not move its start."""
        grants: list[Grant] = []
        for waiter in self._queue.peek(BACKFILL_MAX)[1:]:
            passing = waiter.ask.demand
            plan = self.belief.tempo.plan(passing.expected.output_tokens, now)
            if self.belief.wait(passing, plan, len(self._queue), now) is not None:
                continue
            permit = self._grant(waiter.ask, plan, now)
            after = self.belief.wait(demand, stream, len(self._queue), now)
            if after is not None and after.until_s > wait.until_s + 1e-6:
                self._undo(permit, now)
                continue
            self._queue.take(waiter.place)
            grants.append(Grant(waiter.place, permit))
        return grants

    def _undo(self, permit: Permit, now: float) -> None:
        """Take back a grant that nobody has heard of."""
        held = self._held.pop(permit.id)
        self.belief.tempo.leave(now)
        self.belief.give_back(permit.demand, held.stream, "unused", now)
        self.granted -= 1

    def _extend_overruns(self, now: float) -> None:
        """Streams that outlived their plan go on: expect some more of them."""
        while self._ends and self._ends[0][0] <= now:
            _, permit_id = heapq.heappop(self._ends)
            held = self._held.get(permit_id)
            if held is None or held.stream.to_s > now:
                continue
            stream = held.stream
            most = max(stream.tokens, held.permit.demand.ceiling.output_tokens)
            tokens = min(most, stream.tokens * (1.0 + OVERRUN) + 1.0)
            pace = max(self.belief.tempo.per_token_s, 1e-6)
            longer = Stream(stream.from_s, now + max(0.5, (tokens - stream.tokens) * pace), tokens)
            self._replan(held, longer, now)

    def _replan(self, held: _Held, stream: Stream, now: float) -> None:
        self.belief.replan(held.stream, stream, now)
        held.stream = stream
        heapq.heappush(self._ends, (stream.to_s, held.permit.id))

    def _sample(self, held: _Held, output_tokens: float, now: float) -> None:
        tokens = output_tokens - held.seen_tokens
        if held.seen_s is None or tokens < TOKENS_MIN or now <= held.seen_s:
            return
        tempo = self.belief.tempo
        mean = tempo.mean_since(held.integral, held.seen_s, now)
        if self.belief.moved(mean, now - held.seen_s, tokens):
            self._stands = None
        held.seen_s, held.seen_tokens, held.integral = now, output_tokens, tempo.integral(now)

    def _wake_s(self, wait: Wait | None, now: float) -> float:
        """When to decide again if nothing else happens before."""
        if wait is None:
            return inf
        return max(wait.until_s, now + 1e-3) if wait.until_s < inf else inf
