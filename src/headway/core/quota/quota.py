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

from dataclasses import dataclass, replace
from math import inf
from typing import Final

from headway.core.quota.belief import Belief, BeliefStatistics, Profile, QuotaConfig
from headway.core.quota.blame import Blame
from headway.core.quota.fairness import FairQueue
from headway.core.quota.law import width_cause
from headway.core.quota.outflow import Stream
from headway.core.quota.permits import Permits
from headway.core.quota.window import Bucket
from headway.core.values import Demand, Fault, Permit, Reading, SettledAs, Usage, Wait

BACKFILL_MAX: Final = 8
"""Waiters behind a blocked head that are looked at: more hardly ever find one that fits."""

WAKE_S_MIN: Final = 1e-3
"""Nothing is decided again sooner: a wait that has just ended in rounding ends then."""

MAY_CALL: Final = "every limit has room"
WAITED: Final = "waited for "
PASSED: Final = "does not delay a call that waits for "


@dataclass(frozen=True, slots=True)
class Ask:
    """A call that wants a permit: for whom, how urgently."""

    demand: Demand
    path: tuple[str, ...] = ("",)
    key: tuple[float, ...] = ()
    asked_s: float | None = None
    """When it came; `None` is when the line was last looked at."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A permit for the ask that was given this place."""

    place: int
    permit: Permit


@dataclass(frozen=True, slots=True)
class Decision:
    """All grants possible now; what the first of the rest waits for; when to decide again.

    A wait until inf ends when a call ends, or never: the reason says which.
    """

    grants: tuple[Grant, ...]
    wait: Wait | None
    wake_s: float
    place: int | None = None
    """Who it is that waits: an ask that can never be granted has to leave by itself."""


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
    """An ask in line, and how often anybody had been held back when it came."""

    ask: Ask
    held_back: int
    asked_s: float
    place: int = 0


class Quota:
    """Admission for one account and model group."""

    __slots__ = (
        "_blame", "_decided_s", "_held_back", "_permits", "_queue", "_refused", "_stands",
        "_waited", "belief",
    )  # fmt: skip

    def __init__(self, config: QuotaConfig, now: float) -> None:
        self.belief = Belief(config, now)
        self._permits = Permits(self.belief)
        self._queue: FairQueue[_Waiter] = FairQueue()
        self._refused = 0
        self._stands: Decision | None = None
        self._held_back = 0
        self._waited = ""
        self._blame = Blame()
        self._decided_s = now

    def __repr__(self) -> str:
        in_flight = self._permits.statistics().in_flight
        return f"<Quota {in_flight} in flight, {len(self._queue)} waiting, {self.belief!r}>"

    def ask(self, ask: Ask) -> int:
        """Join the queue; the place returned names the ask in grants and to `leave`."""
        self._stands = None
        asked_s = self._decided_s if ask.asked_s is None else ask.asked_s
        waiter = _Waiter(ask, self._held_back, asked_s)
        cost_s = self.belief.cost_s(ask.demand.expected)
        waiter.place = self._queue.push(ask.path, ask.key, cost_s, waiter)
        return waiter.place

    def leave(self, place: int) -> bool:
        """Give up a place in the queue; False if it was granted or left before."""
        self._stands = None
        return self._queue.remove(place) is not None

    def weigh(self, path: tuple[str, ...], weight: float) -> None:
        """Give a flow so many times the share of its siblings from now on."""
        self._stands = None
        self._queue.reweigh(path, weight)

    def decide(self, now: float) -> Decision:
        """Grant all that may be granted now, in fair order; say what the next one waits for.

        When nothing has happened since the last decision and its wake-up is still ahead, that
        decision stands and costs nothing to give again.
        """
        if self._stands is not None and now < self._stands.wake_s:
            return self._stands
        self._permits.extend_overruns(now)
        grants: list[Grant] = []
        wait: Wait | None = None
        cause = ""
        while (waiter := self._queue.head()) is not None:
            ask = waiter.ask
            stream = self.belief.tempo.plan(ask.demand.expected.output_tokens, now)
            wait = self.belief.wait(ask.demand, stream, len(self._queue), now)
            if wait is not None:
                if wait.until_s < inf or not self.belief.can_ever(ask.demand):
                    grants += self._backfill(ask.demand, stream, wait, now)
                self._held_back += 1
                cause = self._waited = _cause(self.belief, wait)
                break
            self._queue.pop()
            reason = self._why(waiter, now)
            permit = self._permits.grant(ask.demand, ask.path, stream, reason, now)
            grants.append(Grant(waiter.place, permit))
        self._decided_s = now
        self._blame.note(cause, now)
        wake_s = inf if wait is None else max(wait.until_s, now + WAKE_S_MIN)
        self._stands = Decision((), wait, wake_s, waiter.place if waiter else None)
        return replace(self._stands, grants=tuple(grants))

    def admit(self, demand: Demand, now: float) -> Permit | Wait:
        """One call, now or not now, without joining the queue; those who wait come first."""
        if len(self._queue):
            until_s = self._stands.wake_s if self._stands else now
            return Wait("queue", until_s, f"{len(self._queue)} calls were here before")
        ask = Ask(demand)
        stream = self.belief.tempo.plan(demand.expected.output_tokens, now)
        wait = self.belief.wait(demand, stream, 0, now)
        return wait or self._permits.grant(demand, ask.path, stream, MAY_CALL, now)

    def adopt(self, ask: Ask, sent_s: float, known_s: float, now: float) -> Permit:
        """A call that was sent under another process's permit goes on under ours."""
        self._stands = None
        return self._permits.adopt(ask.demand, ask.path, sent_s, known_s, now)

    def first_byte(self, permit_id: int, reading: Reading, now: float) -> None:
        """The response began: learn from its headers and its speed."""
        held = self._permits.get(permit_id)
        if held is None:
            return
        self._stands = None
        self._permits.answered(held, now)
        self._permits.observe(held, reading, held.permit.granted_s, now)

    def progress(self, permit_id: int, output_tokens: float, now: float) -> None:
        """The answer has grown to so many tokens: learn the pace in the company it has."""
        held = self._permits.get(permit_id)
        if held is not None and self._permits.moved(held, output_tokens, now):
            self._stands = None

    def settle(self, permit_id: int, settlement: Settlement, now: float) -> bool:
        """End a permit. Only the first call for an id does anything; it returns True."""
        held = self._permits.end(permit_id)
        if held is None:
            return False
        self._stands = None
        belief, demand, usage = self.belief, held.permit.demand, settlement.usage
        if settlement.how == "used" and settlement.fault is None:
            self._permits.ended(held, usage.amounts.output_tokens, now)
        belief.tempo.leave(now)
        sent_s = held.permit.granted_s
        if settlement.how == "used":
            belief.settle(demand, held.stream, sent_s, usage, now)
        else:
            belief.give_back(demand, held.stream, sent_s, settlement.how, now)
        if len(self._queue):
            cost_s = belief.cost_s(usage.amounts) if settlement.how == "used" else 0.0
            self._queue.correct(held.path, cost_s - belief.cost_s(demand.expected))
        if settlement.fault is not None:
            self._refused += settlement.how == "throttled"
            self._permits.observe(held, settlement.reading, now, now)
            belief.failed(demand, sent_s, settlement.fault, settlement.reading, now)
        return True

    def profile(self) -> Profile:
        """What is worth keeping for the next run."""
        return self.belief.profile()

    def statistics(self) -> QuotaStatistics:
        permits = self._permits.statistics()
        return QuotaStatistics(
            len(self._queue), permits.in_flight, permits.granted,
            permits.granted - permits.in_flight, self._refused, self.belief.statistics(),
        )  # fmt: skip

    def _why(self, waiter: _Waiter, now: float) -> str:
        """Why a call goes now and not when it came: what those before it waited for longest."""
        if waiter.held_back == self._held_back:
            return MAY_CALL
        return WAITED + (self._blame.longest(waiter.asked_s, now) or self._waited)

    def _backfill(self, demand: Demand, stream: Stream, wait: Wait, now: float) -> list[Grant]:
        """Let later calls pass a blocked one where that does not move its start."""
        grants: list[Grant] = []
        if not _can_be_passed(self.belief, wait):
            return grants
        reason = PASSED + wait.resource
        for waiter in self._queue.peek(BACKFILL_MAX)[1:]:
            passing = waiter.ask.demand
            plan = self.belief.tempo.plan(passing.expected.output_tokens, now)
            if self.belief.wait(passing, plan, len(self._queue), now) is not None:
                continue
            permit = self._permits.grant(passing, waiter.ask.path, plan, reason, now)
            after = self.belief.wait(demand, stream, len(self._queue), now)
            if after is not None and after.until_s > wait.until_s + 1e-6:
                self._permits.undo(permit, now)
                continue
            self._queue.take(waiter.place)
            grants.append(Grant(waiter.place, permit))
        return grants


def waited_for(reason: str) -> str:
    """What a call stood in line for, by the reason of its permit; nothing, if it did not."""
    for said in (WAITED, PASSED):
        if reason.startswith(said):
            return reason.removeprefix(said)
    return ""


def _cause(belief: Belief, wait: Wait) -> str:
    """What a wait is for. A width may be the account's, or only as far as we have come."""
    if wait.resource != "concurrency":
        return wait.resource
    return width_cause(belief.width, belief.tempo.in_flight)


def _can_be_passed(belief: Belief, wait: Wait) -> bool:
    """Whether a call could pass one that waits for this without delaying it.

    What is taken from a bucket now is missing later, so nobody passes there. What is left of a
    window when it resets is lost, so whoever fits may have it. Who can never go delays nobody.
    """
    balances = (mirror.balance for mirror in belief.mirrors)
    blocking = [one.meter for one in balances if one.limit.name == wait.resource]
    is_never = wait.until_s == inf
    return is_never or any(not isinstance(meter, Bucket) for meter in blocking)
