"""Permits in use: what each call was planned to do, and what it has shown of itself so far."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from math import ceil
from typing import Final

from headway.core.quota.belief import Belief
from headway.core.quota.law import WHOLE_GROWTH, Crowd
from headway.core.quota.outflow import HORIZON_S, Stream
from headway.core.quota.projection import Projection
from headway.core.values import Demand, Permit, Reading

OVERRUN: Final = 0.4
"""An answer that outlives its plan is expected to go on for this much of what was planned..."""

OVERRUN_S_MIN: Final = 0.5
"""...and for this long at least."""

ADOPTED: Final = "granted by a broker that is gone"

FIRST_BYTES: Final = 2.0
"""A round takes so many times as long as a first byte, at least: calls that were just sent show
nothing before."""

TOKENS_MIN: Final = 5
"""Fewer tokens say nothing about the time per token."""


@dataclass(slots=True)
class Held:
    """A permit in use: its plan, what the limits showed, and the load when it began."""

    permit: Permit
    path: tuple[str, ...]
    stream: Stream
    levels: tuple[float, ...]
    company: int
    """Calls in flight when it was sent, itself included."""
    integral: float
    seen_s: float | None = None
    """When the answer was last seen to move, with so many tokens by then."""
    seen_tokens: float = 0.0


@dataclass(frozen=True, slots=True)
class PermitsStatistics:
    """Permits given, and those of them that have not ended."""

    granted: int
    in_flight: int


class Permits:
    """Every permit between its grant and its end, and the plans that all limits count on."""

    __slots__ = ("_belief", "_ends", "_granted", "_held", "_silent")

    def __init__(self, belief: Belief) -> None:
        self._belief = belief
        self._held: dict[int, Held] = {}
        self._ends: list[tuple[float, int]] = []
        self._granted = 0
        self._silent: dict[int, float] = {}
        """When calls were sent that have not begun to answer, the oldest first."""

    def __repr__(self) -> str:
        return f"<Permits {len(self._held)} in flight of {self._granted}>"

    def get(self, permit_id: int) -> Held | None:
        """A permit that has not ended."""
        return self._held.get(permit_id)

    def grant(
        self, demand: Demand, path: tuple[str, ...], stream: Stream, reason: str, now: float
    ) -> Permit:
        """Charge every limit and begin."""
        self._granted += 1
        permit = Permit(self._granted, path[0], demand, now, reason)
        belief = self._belief
        levels = belief.charge(demand, stream, now)
        integral = belief.tempo.enter(now)
        company = belief.tempo.in_flight
        belief.width.delivery.sent(company, integral, now)
        self._held[permit.id] = Held(permit, path, stream, levels, company, integral)
        if not demand.is_whole:
            self._silent[permit.id] = now
        heapq.heappush(self._ends, (stream.to_s, permit.id))
        return permit

    def adopt(
        self, demand: Demand, path: tuple[str, ...], sent_s: float, known_s: float, now: float
    ) -> Permit:
        """Take over a call that was sent under another process's permit.

        What was known of the limits at `known_s` contains what calls before it were charged, and
        what their answers had produced by then: its stream is planned from when it was sent.
        """
        self._granted += 1
        permit = Permit(self._granted, path[0], demand, sent_s, ADOPTED)
        belief = self._belief
        stream = belief.tempo.plan(demand.expected.output_tokens, sent_s)
        flowed = stream.produced(now) - stream.produced(known_s)
        for mirror in belief.mirrors:
            balance = mirror.balance
            balance.join(demand, stream, sent_s > known_s, now)
            if isinstance(balance.count, Projection):
                balance.count.charge(flowed, now)
        integral = belief.tempo.enter(now)
        held = Held(permit, path, stream, (), belief.tempo.in_flight, integral)
        self._held[permit.id] = held
        heapq.heappush(self._ends, (stream.to_s, permit.id))
        return permit

    def undo(self, permit: Permit, now: float) -> None:
        """Take back the last grant, which nobody has heard of."""
        held = self._held.pop(permit.id)
        self._silent.pop(permit.id, None)
        self._belief.tempo.leave(now)
        self._belief.give_back(permit.demand, held.stream, now, "unused", now)
        self._granted -= 1

    def end(self, permit_id: int) -> Held | None:
        """A permit ends, once: None if it has ended already."""
        self._silent.pop(permit_id, None)
        return self._held.pop(permit_id, None)

    def answered(self, held: Held, now: float) -> None:
        """The response began: it was let in, and its stream flows from now on."""
        belief = self._belief
        self._silent.pop(held.permit.id, None)
        belief.answered(held.permit.demand, held.permit.granted_s, held.company, now)
        if held.permit.demand.is_whole:
            return
        held.seen_s = now
        held.integral = belief.tempo.integral(now)
        self._replan(held, belief.tempo.replan(held.stream.tokens, now), now)

    def observe(self, held: Held, reading: Reading, at_s: float, now: float) -> None:
        """Learn from headers. What is in flight joins the limits that were not known before."""
        for mirror in self._belief.observe(reading, held.levels, at_s, now):
            for other in self._held.values():
                charged = other.permit.granted_s > at_s
                mirror.balance.join(other.permit.demand, other.stream, charged, now)

    def moved(self, held: Held, output_tokens: float, now: float) -> bool:
        """An answer has grown: learn the pace in the company it had. True if the width changed."""
        if held.permit.demand.is_whole:
            return False
        tokens = output_tokens - held.seen_tokens
        if held.seen_s is None or tokens < TOKENS_MIN or now <= held.seen_s:
            return False
        tempo = self._belief.tempo
        company = tempo.mean_since(held.integral, held.seen_s, now)
        per_token_s = tempo.moved(now - held.seen_s, tokens)
        crowd = self._crowd(company, per_token_s, now)
        width, integral = self._belief.width, tempo.integral(now)
        changed = width.moved(crowd, per_token_s)
        # The first piece of an answer brings the work of its first byte with it.
        work = tokens if held.seen_tokens else tempo.work(tokens)
        done = width.delivery.moved(work, integral, now, FIRST_BYTES * tempo.first_byte_s)
        if done is not None:
            changed = width.delivered(done) or changed
        held.seen_s, held.seen_tokens, held.integral = now, output_tokens, integral
        return changed

    def ended(self, held: Held, output_tokens: float, now: float) -> None:
        """An answer is complete: learn from the last piece of it, and from the whole of it."""
        self.moved(held, output_tokens, now)
        sent_s = held.permit.granted_s
        is_adopted = held.permit.reason == ADOPTED
        if is_adopted or output_tokens <= 0 or now <= sent_s:
            # Of an adopted call nobody here knows what company it had from the start.
            return
        tempo, width = self._belief.tempo, self._belief.width
        # What was seen is an estimate until the provider has counted: it may have been too much.
        rest = max(1.0, output_tokens - held.seen_tokens)
        width.ended(rest if held.seen_tokens else tempo.work(rest), tempo.integral(now), now)
        if held.permit.demand.is_whole:
            company = tempo.mean_since(held.integral, sent_s, now)
            per_token_s = tempo.arrived(now - sent_s, output_tokens)
            # Answers that began together end together: how many are left says nothing.
            width.moved(Crowd(company, ceil(company)), per_token_s, WHOLE_GROWTH)
        else:
            width.congestion.answered(tempo.first_byte_s, output_tokens * tempo.per_token_s)

    def extend_overruns(self, now: float) -> None:
        """Streams that outlived their plan go on: expect some more of them."""
        while self._ends and self._ends[0][0] <= now:
            _, permit_id = heapq.heappop(self._ends)
            held = self._held.get(permit_id)
            if held is None or held.stream.to_s > now:
                continue
            stream = held.stream
            most = max(stream.tokens, held.permit.demand.ceiling.output_tokens)
            tokens = min(most, stream.tokens * (1.0 + OVERRUN) + 1.0)
            pace = max(self._belief.tempo.per_token_s, 1e-6)
            longer_s = min(HORIZON_S, max(OVERRUN_S_MIN, (tokens - stream.tokens) * pace))
            self._replan(held, Stream(stream.from_s, now + longer_s, tokens), now)

    def statistics(self) -> PermitsStatistics:
        return PermitsStatistics(self._granted, len(self._held))

    def _crowd(self, company: float, per_token_s: float, now: float) -> Crowd:
        """Who is in flight now, apart from those who seem to wait in a line at the provider."""
        tempo, queued = self._belief.tempo, 0
        for sent_s in self._silent.values():
            if not tempo.is_overdue(now - sent_s, per_token_s):
                break
            queued += 1
        return Crowd(max(1.0, company - queued), tempo.in_flight, queued)

    def _replan(self, held: Held, stream: Stream, now: float) -> None:
        self._belief.replan(held.stream, stream, now)
        held.stream = stream
        heapq.heappush(self._ends, (stream.to_s, held.permit.id))
