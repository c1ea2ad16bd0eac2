"""All limits of one account and model group: decides which calls may be sent now.

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
from math import ceil, inf
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from headway.base.values import Demand, Fault, Permit, Reading, SettledAs, Usage, Wait
from headway.pacing.account import Belief, QuotaConfig
from headway.pacing.limits import HORIZON_S, Bucket, PlannedStream
from headway.pacing.queue import Blame, FairQueue
from headway.pacing.streams import Projection
from headway.pacing.width import WHOLE_GROWTH, width_cause

OVERRUN: Final = 0.4
"""An answer that outlives its plan is expected to go on for this much of what was planned..."""

OVERRUN_S_MIN: Final = 0.5
"""...and for this long at least."""

ADOPTED: Final = "granted by a broker that is gone"

FIRST_BYTES: Final = 2.0
"""A round lasts so many first bytes, at least: calls that were just sent show nothing before."""

TOKENS_MIN: Final = 5
"""Fewer tokens say nothing about the time per token."""


class PermitInUse(Struct):
    """A permit in use: its plan, what the limits showed, and the load when it began."""

    permit: Permit
    path: tuple[str, ...]
    stream: PlannedStream
    levels: tuple[float, ...]
    company: int
    """Calls in flight when it was sent, itself included."""
    integral: float
    seen_s: float | None = None
    """When the answer was last seen to move, with so many tokens by then."""
    seen_tokens: float = 0.0


BACKFILL_MAX: Final = 8
"""Waiters behind a blocked head that are looked at: more hardly ever find one that fits."""

WAKE_S_MIN: Final = 1e-3
"""Nothing is decided again sooner: a wait that has just ended in rounding ends then."""

MAY_CALL: Final = "every limit has room"
WAITED: Final = "waited for "
PASSED: Final = "does not delay a call that waits for "


class Grant(Struct, frozen=True):
    """A permit for the ask that was given this place."""

    place: int
    permit: Permit


class Decision(Struct, frozen=True):
    """All grants possible now; what the first of the rest waits for; when to decide again."""

    grants: tuple[Grant, ...]
    wait: Wait | None
    wake_s: float
    place: int | None = None
    """Who it is that waits: an ask that can never be granted has to leave by itself."""


class _Waiter(Struct):
    """A call in line, and how often a call had been held back when it came."""

    demand: Demand
    path: tuple[str, ...]
    held_back: int
    asked_s: float
    place: int = 0


class Quota:
    """Admission for one account and model group."""

    def __init__(self, config: QuotaConfig, now: float) -> None:
        self.belief = Belief(config, now)
        self._held: dict[int, PermitInUse] = {}
        self._ends: list[tuple[float, int]] = []
        self._silent: dict[int, float] = {}
        """When calls were sent that have not begun to answer, the oldest first."""
        self.granted = 0
        """Permits given so far."""
        self._queue: FairQueue[_Waiter] = FairQueue()
        self.refused = 0
        self._stands: Decision | None = None
        self._held_back = 0
        self._waited = ""
        self._blame = Blame()
        self._decided_s = now

    @property
    def in_flight(self) -> int:
        return len(self._held)

    def ask(
        self, demand: Demand, path: tuple[str, ...] = ("",), key: tuple[float, ...] = (),
        asked_s: float | None = None,
    ) -> int:  # fmt: skip
        """Join the queue with an urgency within the flow; returns the place, which names the call.

        Without `asked_s` it came at the last decision.
        """
        self._stands = None
        since_s = self._decided_s if asked_s is None else asked_s
        waiter = _Waiter(demand, path, self._held_back, since_s)
        waiter.place = self._queue.push(path, key, self.belief.cost_s(demand.expected), waiter)
        return waiter.place

    def leave(self, place: int) -> bool:
        """Give up a place in the queue; False if it was granted or left before."""
        self._stands = None
        return self._queue.remove(place) is not None

    def decide(self, now: float) -> Decision:
        """Grant all that may be granted now, in fair order; say what the next one waits for.

        The last decision stands until something happens or its wake-up.
        """
        if self._stands is not None and now < self._stands.wake_s:
            return self._stands
        self._extend_overruns(now)
        grants: list[Grant] = []
        wait: Wait | None = None
        cause = ""
        while (waiter := self._queue.head()) is not None:
            demand = waiter.demand
            stream = self.belief.tempo.plan(demand.expected.output_tokens, now)
            wait = self.belief.wait(demand, stream, len(self._queue), now)
            if wait is not None:
                if wait.until_s < inf or not self.belief.can_ever(demand):
                    grants += self._backfill(demand, stream, wait, now)
                self._held_back += 1
                cause = wait.resource
                if cause == "concurrency":
                    # A width may be the account's, or only as far as we have come.
                    cause = width_cause(self.belief.width, self.belief.tempo.in_flight)
                self._waited = cause
                break
            self._queue.pop()
            reason = MAY_CALL
            if waiter.held_back < self._held_back:
                # It goes now and not when it came: what was waited for longest since.
                reason = WAITED + (self._blame.longest(waiter.asked_s, now) or self._waited)
            permit = self._grant(demand, waiter.path, stream, reason, now)
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
        stream = self.belief.tempo.plan(demand.expected.output_tokens, now)
        wait = self.belief.wait(demand, stream, 0, now)
        return wait or self._grant(demand, ("",), stream, MAY_CALL, now)

    def adopt(
        self, demand: Demand, path: tuple[str, ...], sent_s: float, known_s: float, now: float
    ) -> Permit:
        """Take over a call that was sent under another process's permit; levels known at `known_s`
        contain the charges of calls sent before, and what their answers had produced by then."""
        self._stands = None
        self.granted += 1
        permit = Permit(self.granted, path[0], demand, sent_s, ADOPTED)
        belief = self.belief
        stream = belief.tempo.plan(demand.expected.output_tokens, sent_s)
        flowed = stream.produced(now) - stream.produced(known_s)
        for mirror in belief.mirrors:
            mirror.join(demand, stream, sent_s > known_s, now)
            if isinstance(mirror.count, Projection):
                mirror.count.charge(flowed, now)
        integral = belief.tempo.enter(now)
        held = PermitInUse(permit, path, stream, (), belief.tempo.in_flight, integral)
        self._held[permit.id] = held
        heapq.heappush(self._ends, (stream.to_s, permit.id))
        return permit

    def first_byte(self, permit_id: int, reading: Reading, now: float) -> None:
        """The response began: learn from its headers and its speed."""
        held = self._held.get(permit_id)
        if held is None:
            return
        self._stands = None
        self._answered(held, now)
        self._observe(held, reading, held.permit.granted_s, now)

    def progress(self, permit_id: int, output_tokens: float, now: float) -> None:
        """The answer has grown to so many tokens: learn the pace in the company it has."""
        held = self._held.get(permit_id)
        if held is not None and self._moved(held, output_tokens, now):
            self._stands = None

    def settle(
        self, permit_id: int, how: SettledAs, usage: Usage, now: float,
        fault: Fault | None = None, reading: Reading = Reading(),
    ) -> bool:  # fmt: skip
        """End a permit; True for the first time. A fault and a reading are of a refusal."""
        self._silent.pop(permit_id, None)
        held = self._held.pop(permit_id, None)
        if held is None:
            return False
        self._stands = None
        belief, demand = self.belief, held.permit.demand
        if how == "used" and fault is None:
            self._ended(held, usage.amounts.output_tokens, now)
        belief.tempo.leave(now)
        sent_s = held.permit.granted_s
        if how == "used":
            belief.settle(demand, held.stream, sent_s, usage, now)
        else:
            belief.give_back(demand, held.stream, sent_s, how, now)
        if len(self._queue):
            cost_s = belief.cost_s(usage.amounts) if how == "used" else 0.0
            self._queue.correct(held.path, cost_s - belief.cost_s(demand.expected))
        if fault is not None:
            self.refused += how == "throttled"
            self._observe(held, reading, now, now)
            belief.failed(demand, sent_s, fault, reading, now)
        return True

    def _grant(
        self, demand: Demand, path: tuple[str, ...], stream: PlannedStream, reason: str, now: float
    ) -> Permit:
        """Charge every limit and begin."""
        self.granted += 1
        permit = Permit(self.granted, path[0], demand, now, reason)
        belief = self.belief
        levels = belief.charge(demand, stream, now)
        integral = belief.tempo.enter(now)
        company = belief.tempo.in_flight
        belief.width.delivery.sent(company, integral, now)
        self._held[permit.id] = PermitInUse(permit, path, stream, levels, company, integral)
        if not demand.is_whole:
            self._silent[permit.id] = now
        heapq.heappush(self._ends, (stream.to_s, permit.id))
        return permit

    def _undo(self, permit: Permit, now: float) -> None:
        """Take back the last grant before it is returned."""
        held = self._held.pop(permit.id)
        self._silent.pop(permit.id, None)
        self.belief.tempo.leave(now)
        self.belief.give_back(permit.demand, held.stream, now, "unused", now)
        self.granted -= 1

    def _answered(self, held: PermitInUse, now: float) -> None:
        """The response began: it was let in, and its stream flows from now on."""
        belief = self.belief
        self._silent.pop(held.permit.id, None)
        belief.answered(held.permit.demand, held.permit.granted_s, held.company, now)
        if held.permit.demand.is_whole:
            return
        held.seen_s = now
        held.integral = belief.tempo.integral(now)
        self._replan(held, belief.tempo.replan(held.stream.tokens, now, now), now)

    def _observe(self, held: PermitInUse, reading: Reading, at_s: float, now: float) -> None:
        """Learn from headers. What is in flight joins the limits that were not known before."""
        for mirror in self.belief.observe(reading, held.levels, at_s, now):
            for other in self._held.values():
                charged = other.permit.granted_s > at_s
                mirror.join(other.permit.demand, other.stream, charged, now)

    def _moved(self, held: PermitInUse, output_tokens: float, now: float) -> bool:
        """An answer has grown: learn the pace in the company it had. True if the width changed."""
        if held.permit.demand.is_whole:
            return False
        tokens = output_tokens - held.seen_tokens
        if held.seen_s is None or tokens < TOKENS_MIN or now <= held.seen_s:
            return False
        tempo = self.belief.tempo
        company = tempo.mean_since(held.integral, held.seen_s, now)
        per_token_s = tempo.moved(now - held.seen_s, tokens)
        queued = self._late_answers(per_token_s, now)
        width, integral = self.belief.width, tempo.integral(now)
        served = max(1.0, company - queued)
        changed = width.moved(served, tempo.in_flight, per_token_s, queued)
        # The first piece of an answer brings the work of its first byte with it.
        work = tokens if held.seen_tokens else tempo.work(tokens)
        done = width.delivery.moved(work, integral, now, FIRST_BYTES * tempo.first_byte_s)
        if done is not None:
            changed = width.delivered(*done) or changed
        held.seen_s, held.seen_tokens, held.integral = now, output_tokens, integral
        return changed

    def _ended(self, held: PermitInUse, output_tokens: float, now: float) -> None:
        """An answer is complete: learn from the last piece of it, and from the whole of it."""
        self._moved(held, output_tokens, now)
        sent_s = held.permit.granted_s
        is_adopted = held.permit.reason == ADOPTED
        if is_adopted or output_tokens <= 0 or now <= sent_s:
            # Of an adopted call it is not known what company it had from the start.
            return
        tempo, width = self.belief.tempo, self.belief.width
        # What was seen is an estimate until the provider has counted: it may have been too much.
        rest = max(1.0, output_tokens - held.seen_tokens)
        width.ended(rest if held.seen_tokens else tempo.work(rest), tempo.integral(now), now)
        if held.permit.demand.is_whole:
            company = tempo.mean_since(held.integral, sent_s, now)
            per_token_s = tempo.arrived(now - sent_s, output_tokens)
            # Answers that began together end together: how many are left says nothing.
            width.moved(company, ceil(company), per_token_s, growth=WHOLE_GROWTH)
        else:
            width.congestion.answered(tempo.first_byte_s, output_tokens * tempo.per_token_s)

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
            longer_s = min(HORIZON_S, max(OVERRUN_S_MIN, (tokens - stream.tokens) * pace))
            self._replan(held, PlannedStream(stream.from_s, now + longer_s, tokens), now)

    def _late_answers(self, per_token_s: float, now: float) -> int:
        """How many calls seem to stand in a line at the provider."""
        tempo, queued = self.belief.tempo, 0
        for sent_s in self._silent.values():
            if not tempo.is_overdue(now - sent_s, per_token_s):
                break
            queued += 1
        return queued

    def _replan(self, held: PermitInUse, stream: PlannedStream, now: float) -> None:
        self.belief.replan(held.stream, stream, now)
        held.stream = stream
        heapq.heappush(self._ends, (stream.to_s, held.permit.id))

    def _backfill(
        self, demand: Demand, stream: PlannedStream, wait: Wait, now: float
    ) -> list[Grant]:
        """Let later calls pass a blocked one where that does not move its start."""
        grants: list[Grant] = []
        mirrors = self.belief.mirrors
        blocking = [one.meter for one in mirrors if one.limit.name == wait.resource]
        # What is taken from a bucket now is missing later; what is left of a window is lost.
        if wait.until_s < inf and all(isinstance(meter, Bucket) for meter in blocking):
            return grants
        reason = PASSED + wait.resource
        for waiter in self._queue.peek(BACKFILL_MAX)[1:]:
            passing = waiter.demand
            plan = self.belief.tempo.plan(passing.expected.output_tokens, now)
            if self.belief.wait(passing, plan, len(self._queue), now) is not None:
                continue
            permit = self._grant(passing, waiter.path, plan, reason, now)
            after = self.belief.wait(demand, stream, len(self._queue), now)
            if after is not None and after.until_s > wait.until_s + 1e-6:
                self._undo(permit, now)
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
