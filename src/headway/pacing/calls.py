"""The calls of one account and model group: which may be sent now, and what each teaches.

Laws:
- All or nothing: every limit is asked first, every limit is charged after.
- One decision for all waiting calls: `decide` sends every call that may go now and says when the
  answer can change. Nothing polls; the last decision stands until something happens.
- A call is settled exactly once: used, unused or throttled. Settling it again does nothing.
- Work-conserving: what may be spent is spent at once, unless the user asked for a smooth flow.
- A blocked call is passed only by calls that do not move its own start. Calls of a run that has
  taken its share of a usage window leave the queue until its reset: no other call waits
  for them.
- No refusal is retried inside its permit: the permit ends, the call asks again.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from math import inf
from typing import Final

from msgspec import Struct

from headway.base.values import Amounts, Fault, Reading, SettledAs, Wait
from headway.pacing.account import PLACE_LEFT, Account, AccountConfig
from headway.pacing.call import NO_WAITS, UNKNOWN, Call, CallId
from headway.pacing.meters import Bucket, PlannedStream
from headway.pacing.queue import FairQueue
from headway.pacing.streams import HORIZON_S
from headway.pacing.windows import ALL_OF_EACH, PERSON, Allowances

OVERRUN: Final = 0.4
"""An answer that outlives its plan is expected to go on for this much of what was planned..."""
OVERRUN_S_MIN: Final = 0.5
"""...and for this long at least."""
TOKENS_MIN: Final = 5
"""Fewer tokens say nothing about the time per token."""
BACKFILL_MAX: Final = 8
"""Calls behind a blocked one that are looked at: more hardly ever find one that fits."""
WAKE_S_MIN: Final = 1e-3
"""Nothing is decided again sooner: a wait that has just ended in rounding ends then."""
RESIZE_S: Final = 1.0
"""The call at the head of the queue is estimated anew when its estimate is older than this."""


class Decision(Struct, frozen=True):
    """The calls that go now; what the first of the rest waits for; when to decide again."""

    sent: tuple[Call, ...] = ()
    wait: Wait | None = None
    wake_s: float = inf
    blocked: Call | None = None


NOTHING_WAITS: Final = Decision()


class AccountCalls:
    """What one account knows, its waiting calls in fair order, and those in flight."""

    def __init__(
        self, config: AccountConfig, now: float, allowances: Allowances | None = None,
        group: str = "",
    ) -> None:  # fmt: skip
        self.account = Account(config, now, allowances, group)
        self.in_flight: dict[CallId, Call] = {}
        self.granted = 0
        self.refused = 0
        self.wait: Wait | None = None
        """What the first in the queue waits for."""
        self._queue: FairQueue[Call] = FairQueue()
        self._next: Call | None = None
        """The only call that waits: it needs no place in the queue, and most calls never do."""
        self._held: dict[str, dict[CallId, Call]] = {}
        """By run, the calls that wait for a usage window of which it has taken its share."""
        self._waits = NO_WAITS
        self._ends: list[tuple[float, int, Call]] = []
        """When streams in flight are planned to end."""
        self._plans = 0
        self._stands: Decision | None = None
        self._seen = 0
        """Which state of the account's usage windows that decision was made on..."""
        self._stands_until_s = inf
        """...and until when it stands: its wake-up, or when the first call is to be sized anew."""

    @property
    def queued(self) -> int:
        """How many calls wait in the queue."""
        return len(self._queue.waiters) + (self._next is not None)

    @property
    def waiting(self) -> list[Call]:
        """Calls that wait, in order of arrival; those of held runs last."""
        queued = self._queue.items() if self._next is None else [self._next]
        return [*queued, *(call for held in self._held.values() for call in held.values())]

    @property
    def is_person_first(self) -> bool:
        """Whether the call that is next is interactive."""
        call = self._next or self._queue.head()
        return call is not None and call.demand.is_interactive

    def ask(self, call: Call) -> None:
        """Wait for a permit."""
        self._stands = None
        if call.demand.is_interactive:
            self.account.presence.note(call.path[-1], call.asked_s)
        call.joined = self._waits
        if self._next is None and not self._queue.waiters:
            self._next = call
        else:
            self._line_up(call)

    def leave(self, call: Call) -> None:
        """Stop waiting."""
        self._stands = None
        if call.held is not None:
            call.held, held = None, self._held[call.run]
            del held[call.id]
            if not held:
                del self._held[call.run]
        elif call is self._next:
            self._next = None
        else:
            self._queue.remove(call.place)
        if not self._queue.waiters:
            self.wait = None

    def decide(self, now: float, size: Callable[[Call, float], object] | None = None) -> Decision:
        """Send all that may be sent now, in fair order; say what the next one waits for."""
        windows = self.account.allowances
        if (
            self._stands is not None and now < self._stands_until_s
            and self._seen == windows.changes
        ):  # fmt: skip
            return self._stands
        if self._ends and self._ends[0][0] <= now:
            self._extend_overruns(now)
        account, queue = self.account, self._queue
        sent: list[Call] = []
        wait: Wait | None = None
        passes_s = inf
        released_s = self._release_held(now) if self._held else inf
        while (call := self._next or (queue.head() if queue.waiters else None)) is not None:
            if size is not None and now - call.sized_s > RESIZE_S:
                rank = call.rank
                size(call, now)
                if (call.rank,) > (rank,) and call is not self._next:
                    # What it hurried for is lost: it gives way to others.
                    self._queue.remove(call.place)
                    self._line_up(call)
                    continue
            if windows.windows and call.run and (held := self._share_wait(call, now)) is not None:
                self.leave(call)
                call.held, call.waited_for = held, held.resource
                self._held.setdefault(call.run, {})[call.id] = call
                released_s = min(released_s, held.until_s)
                continue
            call.stream = account.speed.plan(call.demand.expected.output_tokens, now)
            wait = account.wait(call, self.queued, now)
            if wait is not None:
                if queue.waiters and (wait.until_s < inf or not account.can_ever(call.demand)):
                    passed, passes_s = self._pass(call, wait, now, size)
                    sent += passed
                break
            self._send(call, now)
            sent.append(call)
        if call is None and self._held:
            call = next(iter(next(iter(self._held.values())).values()))
            wait = call.held
        self.wait = wait
        cause = "" if wait is None else wait.resource
        if cause == "concurrency" and wait is not None and wait.reason != PLACE_LEFT:
            # The width may be the account's, or only as far as it has grown.
            cause = account.width.cause(account.speed.in_flight)
        self._waits = self._waits.then(cause, now)
        wake_s = inf if wait is None else max(min(wait.until_s, passes_s), now + WAKE_S_MIN)
        if wait is not None:
            if windows.windows:
                wake_s = min(wake_s, windows.next_probe_s(now), released_s)
            if now < windows.presence.until_s:
                wake_s = min(wake_s, windows.presence.until_s)
        self._seen = windows.changes
        self._stands_until_s = wake_s if size is None else min(wake_s, now + RESIZE_S)
        self._stands = NOTHING_WAITS if call is None else Decision((), wait, wake_s, call)
        return Decision(tuple(sent), wait, wake_s, call) if sent else self._stands

    def adopt(self, call: Call, sent_s: float, known_s: float, now: float) -> None:
        """Take over a call sent under another process's permit; levels are of `known_s`."""
        self._stands = None
        account = self.account
        call.sent_s, call.is_adopted = sent_s, True
        call.stream = account.speed.plan(call.demand.expected.output_tokens, sent_s)
        account.adopt(call, known_s, now)
        self._enter(call, now)

    def hand_over(self) -> None:
        """The calls in flight go on elsewhere: they no longer count here."""
        self.account.allowances.in_flight -= len(self.in_flight)
        for call in self.in_flight.values():
            self.account.presence.fly(-call.demand.is_interactive)
            self._fly(call, 0.0)

    def reached(self) -> None:
        """There is a connection again to a provider that could not be reached."""
        self._stands = None
        self.account.pauses.reached()

    def first_byte(self, call: Call, reading: Reading, now: float) -> None:
        """The response began: learn from its headers and its speed."""
        self._stands = None
        account = self.account
        account.answered(call, now)
        if not call.demand.is_whole:
            waited_s = now - call.sent_s
            company = account.speed.mean_since(call.integral, call.sent_s, now)
            account.speed.began(waited_s)
            if not call.is_adopted:
                account.width.began(company, waited_s, call.stream.tokens, now)
            call.seen_s, call.integral = now, account.speed.integral(now)
            self._replan(call, account.speed.replan(call.stream.tokens, now, now), now)
        self._observe(call, reading, call.sent_s, now)

    def progress(self, call: Call, output_tokens: float, now: float) -> None:
        """The answer has grown to so many tokens: learn the pace in the company it has."""
        if self.account.pauses.is_trial_due:
            self._stands = None
            self.account.pauses.reached(call.sent_s)
        if self._moved(call, output_tokens, now):
            self._stands = None

    def settle(
        self, call: Call, how: SettledAs, used: Amounts, now: float,
        fault: Fault | None = None, reading: Reading = Reading(),
    ) -> bool:  # fmt: skip
        """End a call in flight; True for the first time. The reading is that of a refusal."""
        if self.in_flight.pop(call.id, None) is None:
            return False
        self._stands = None
        account, demand = self.account, call.demand
        shared = account.allowances
        shared.in_flight -= 1
        if call.flying_tokens:
            self._fly(call, 0.0)
        if shared.slots < inf:
            shared.changes += 1
        if demand.is_interactive:
            account.presence.note(call.path[-1], now)
        if how == "used" and fault is None:
            self._ended(call, used.output_tokens, now)
        account.speed.leave(now)
        if how == "used":
            account.settle(call, used, now)
        else:
            account.give_back(call, how, now)
        if account.allowances.windows:
            tokens = used.input_tokens + used.output_tokens if how == "used" else 0.0
            tokens -= call.counted
            account.allowances.use(account.group, tokens, _taker(call), now)
        if self._queue.waiters or self._next is not None:
            self._line_up()
            charged_s = call.cost_s or account.cost_s(demand.expected)
            cost_s = account.cost_s(used) if how == "used" else 0.0
            self._queue.correct(call.path, cost_s - charged_s, demand.is_interactive)
        if fault is not None:
            self.refused += how == "throttled"
            self._observe(call, reading, now, now, is_refusal=True)
            account.failed(call, fault, reading, now)
        return True

    def _share_wait(self, call: Call, now: float) -> Wait | None:
        """The usage window of which the run of a call has taken its share."""
        account, shares = self.account, call.request.window_shares or ALL_OF_EACH
        expected = call.demand.expected
        tokens = expected.input_tokens + expected.output_tokens
        return account.allowances.share_wait(call.run, shares, tokens, account.group, now)

    def _release_held(self, now: float) -> float:
        """Calls of runs that may go on join the queue; returns when the next ones may."""
        until_s = inf
        for run, held in list(self._held.items()):
            first = next(iter(held.values()))
            wait = self._share_wait(first, now)
            if wait is not None:
                until_s = min(until_s, wait.until_s)
                if first.held is not None and first.held.resource != wait.resource:
                    for call in held.values():
                        call.held, call.waited_for = wait, wait.resource
                continue
            del self._held[run]
            for call in held.values():
                call.held, call.joined = None, self._waits
            self._line_up(*held.values())
        return until_s

    def _line_up(self, *others: Call) -> None:
        """The call that waits alone joins the queue: fairness begins with a second one."""
        for call in (*([] if self._next is None else [self._next]), *others):
            if call.demand is not UNKNOWN:
                call.cost_s = self.account.cost_s(call.demand.expected)
            is_first = call.demand.is_interactive
            call.place = self._queue.push(call.path, call.rank, call.cost_s, call, is_first)
        self._next = None

    def _send(self, call: Call, now: float) -> None:
        """Charge every limit and begin."""
        account = self.account
        if call is self._next:
            self._next = None
        else:
            call.cost_s = account.cost_s(call.demand.expected)
            self._queue.take(call.place, call.cost_s)
        waited_for = self._waits.longest(call.joined, call.asked_s, now)
        call.waited_for = waited_for or call.waited_for
        account.charge(call, now)
        if account.pauses.is_trying:
            call.waited_for = "connection"
        call.sent_s = now
        if account.allowances.windows:
            call.counted = call.demand.expected.input_tokens
            account.allowances.use(account.group, call.counted, _taker(call), now)
        self._enter(call, now)

    def _enter(self, call: Call, now: float) -> None:
        speed = self.account.speed
        self.account.allowances.in_flight += 1
        if self.account.allowances.windows or call.run or self.account.config.reserve:
            # A first reading may come to another model of the account.
            self._fly(call, call.demand.expected.input_tokens + call.stream.tokens)
        call.integral = speed.enter(now)
        call.company = speed.in_flight
        self.granted += 1
        self.in_flight[call.id] = call
        self._plan_end(call)

    def _observe(
        self, call: Call, reading: Reading, at_s: float, now: float, is_refusal: bool = False
    ) -> None:
        """Learn from headers. What is in flight joins the limits that were not known before."""
        if not reading.limits:
            return
        account = self.account
        had_windows, had_flows = bool(account.allowances.windows), account.flows
        for limit in account.observe(reading, call, at_s, now, is_refusal):
            for other in self.in_flight.values():
                # Of calls that were sent at the same instant it is not known which came first.
                is_after = other.sent_s >= at_s and other is not call
                limit.join(other, is_after, now)
        if account.allowances.windows and not had_windows:
            for other in self.in_flight.values():
                other.counted = other.demand.expected.input_tokens
                account.allowances.join(_taker(other), other.counted)
                self._fly(other, other.counted + other.stream.tokens)
        if account.flows > had_flows or bool(account.allowances.windows) > had_windows:
            for other in self.in_flight.values():
                self._plan_end(other)

    def _moved(self, call: Call, output_tokens: float, now: float) -> bool:
        """An answer has grown: learn the pace in the company it had. True if the width changed."""
        tokens = output_tokens - call.seen_tokens
        if call.seen_s is None or tokens < TOKENS_MIN or now <= call.seen_s:
            return False
        speed = self.account.speed
        company = speed.mean_since(call.integral, call.seen_s, now)
        per_token_s = speed.moved(now - call.seen_s, tokens)
        call.seen_s, call.seen_tokens, call.integral = now, output_tokens, speed.integral(now)
        return self.account.width.moved(company, per_token_s, now)

    def _ended(self, call: Call, output_tokens: float, now: float) -> None:
        """An answer is complete: learn from the last piece of it or, if it came whole, from all."""
        self._moved(call, output_tokens, now)
        if not call.demand.is_whole:
            self.account.width.ended()
        lasted_s = now - call.sent_s
        # Of an adopted call it is not known what company it had from the start.
        if not call.demand.is_whole or call.is_adopted or output_tokens <= 0 or lasted_s <= 0:
            return
        account = self.account
        speed, width = account.speed, account.width
        company = speed.mean_since(call.integral, call.sent_s, now)
        speed.arrived(lasted_s, output_tokens)
        width.arrived(company, lasted_s, output_tokens, now)

    def _extend_overruns(self, now: float) -> None:
        """Streams that outlived their plan go on: expect some more of them."""
        while self._ends and self._ends[0][0] <= now:
            _, _, call = heapq.heappop(self._ends)
            stream = call.stream
            # A call that was refused and asked again has another plan under the same id.
            if self.in_flight.get(call.id) is not call or stream.to_s > now:
                continue
            most = max(stream.tokens, call.demand.ceiling.output_tokens)
            tokens = min(most, stream.tokens * (1.0 + OVERRUN) + 1.0)
            pace = max(self.account.speed.per_token_s, 1e-6)
            longer_s = min(HORIZON_S, max(OVERRUN_S_MIN, (tokens - stream.tokens) * pace))
            self._replan(call, PlannedStream(stream.from_s, now + longer_s, tokens), now)

    def _replan(self, call: Call, stream: PlannedStream, now: float) -> None:
        if self.account.flows:
            for limit in self.account.limits:
                limit.plan(call, stream, now)
        call.stream = stream
        if call.flying_tokens:
            self._fly(call, call.demand.expected.input_tokens + stream.tokens)
        self._plan_end(call)

    def _fly(self, call: Call, tokens: float) -> None:
        """Count what a call in flight is expected to use of usage windows in all."""
        self.account.allowances.fly(_taker(call), tokens - call.flying_tokens)
        call.flying_tokens = tokens

    def _plan_end(self, call: Call) -> None:
        """Look again when the stream should be over, if anything counts on that."""
        if not (self.account.flows or call.flying_tokens):
            return
        self._plans += 1
        heapq.heappush(self._ends, (call.stream.to_s, self._plans, call))

    def _pass(
        self, call: Call, wait: Wait, now: float, size: Callable[[Call, float], object] | None
    ) -> tuple[list[Call], float]:
        """Send later calls that do not delay a blocked one; returns when to look again, too."""
        account, next_s = self.account, inf
        passed: list[Call] = []
        blocking = [one.meter for one in account.limits if one.limit.name == wait.resource]
        # What is taken from a bucket now is missing later; what is left of a window is lost.
        if wait.until_s < inf and all(isinstance(meter, Bucket) for meter in blocking):
            return passed, next_s
        for other in self._queue.peek(BACKFILL_MAX)[1:]:
            if size is not None and other.demand is UNKNOWN:
                size(other, now)
            if other.run and self._share_wait(other, now) is not None:
                continue
            other.stream = account.speed.plan(other.demand.expected.output_tokens, now)
            held = account.wait(other, self.queued, now)
            if held is not None:
                next_s = min(next_s, held.until_s)
                continue
            if account.pauses.is_trial_due:
                self._send(other, now)
                return [other], inf
            account.speed.enter(now)
            for limit in account.limits:
                limit.charge(other, now)
            after = account.wait(call, self.queued, now)
            other.sent_s = now
            for limit in account.limits:
                limit.give_back(other, False, now)
            other.sent_s = inf
            account.speed.leave(now)
            if after is None or after.until_s <= wait.until_s + 1e-6:
                self._send(other, now)
                other.waited_for = wait.resource
                passed.append(other)
        return passed, next_s


def _taker(call: Call) -> str:
    """The flow that a call counts towards in usage windows."""
    return PERSON if call.demand.is_interactive else call.run
