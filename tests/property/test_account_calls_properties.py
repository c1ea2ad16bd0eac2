"""Calls whatever the order of events: settled once, shared fairly, and waits that are true."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec import Struct, field
from msgspec.structs import replace

from headway.base.values import (
    Amounts,
    Demand,
    Fault,
    FaultKind,
    Limit,
    LimitKind,
    Reading,
    SettledAs,
)
from headway.pacing.account import AccountConfig, Profile
from headway.pacing.call import Call
from headway.pacing.calls import BACKFILL_MAX, WAKE_S_MIN, AccountCalls, Decision
from headway.pacing.headers import CEREBRAS, PLAIN
from headway.pacing.limits import DEBT_S
from headway.pacing.streams import BIN_S
from tests.property.exact_runs import KINDS, Case, cases

FOREVER_S = 1e12
"""A period in which nothing refills, slides out or resets."""

AMOUNT = 1e6
TOTALS = (
    Limit("requests", AMOUNT, FOREVER_S, "fixed"),
    Limit("input", AMOUNT, FOREVER_S, "sliding"),
    Limit("output", AMOUNT, FOREVER_S, "fixed"),
    Limit("tokens", AMOUNT, FOREVER_S, "bucket"),
    Limit("spend", AMOUNT, FOREVER_S, "fixed"),
)
"""With these, what is charged in the end is what was used in all."""

AMOUNTS = st.builds(
    Amounts,
    st.integers(0, 3000).map(float),
    st.integers(0, 900).map(float),
    st.integers(0, 5000),
)
NUMBERS = st.integers(0, 30)
"""Of calls that wait, are in flight, or ended."""


class Lives(RuleBasedStateMachine):
    """Calls that ask, leave, begin, grow and end in any order, some of it again and again."""

    dialect = PLAIN

    def __init__(self) -> None:
        super().__init__()
        self.calls = AccountCalls(AccountConfig(self.dialect, TOTALS), 0.0)
        self.now = 0.0
        self.known: list[Call] = []
        self.waiting: set[int] = set()
        self.running: set[int] = set()
        self.ended = 0
        self.used: Counter[str] = Counter()
        # A bucket that is full forgets what is given back; so it is not full.
        self.ask(Amounts(), Amounts())
        self.decide(0.0)
        self.settle_used(0, Amounts(50_000.0), None)

    @rule(expected=AMOUNTS, most=AMOUNTS)
    def ask(self, expected: Amounts, most: Amounts) -> None:
        ceiling = Amounts(
            max(expected.input_tokens, most.input_tokens),
            max(expected.output_tokens, most.output_tokens),
            max(expected.spend_microusd, most.spend_microusd),
        )
        number = len(self.known)
        self.known.append(Call(("", number), self.now, demand=Demand(expected, ceiling)))
        self.waiting.add(number)
        self.calls.ask(self.known[-1])

    @rule(number=NUMBERS)
    def leave(self, number: int) -> None:
        if number < len(self.known):
            self.calls.leave(self.known[number])
            self.waiting.discard(number)

    @rule(elapsed_s=st.floats(0.0, 40.0))
    def decide(self, elapsed_s: float) -> None:
        self.now += elapsed_s
        for call in self.calls.decide(self.now).sent:
            self.waiting.remove(call.id[1])
            assert call.sent_s == self.now
            self.running.add(call.id[1])

    @rule(number=NUMBERS, tokens=st.integers(0, 2000).map(float))
    def answer(self, number: int, tokens: float) -> None:
        if number in self.running:
            self.calls.first_byte(self.known[number], Reading(), self.now)
            self.calls.progress(self.known[number], tokens, self.now)

    @rule(number=NUMBERS, used=AMOUNTS, kind=st.sampled_from((None, "broken", "timeout")))
    def settle_used(self, number: int, used: Amounts, kind: FaultKind | None) -> None:
        if self._settle(number, "used", used, kind):
            self.used["requests"] += 1
            self.used["input"] += int(used.input_tokens)
            self.used["output"] += int(used.output_tokens)
            self.used["spend"] += used.spend_microusd

    @rule(number=NUMBERS, kind=st.sampled_from(("overload", "concurrency", "request", "server")))
    def settle_unused(self, number: int, kind: FaultKind) -> None:
        refusals = ("overload", "concurrency")
        how: SettledAs = "throttled" if kind in refusals else "unused"
        self._settle(number, how, Amounts(), kind)

    @invariant()
    def every_call_is_counted_once(self) -> None:
        assert {call.id[1] for call in self.calls.waiting} == self.waiting
        assert {number for _, number in self.calls.in_flight} == self.running
        assert self.calls.granted == self.ended + len(self.running)
        assert self.calls.account.speed.in_flight == len(self.running)

    def teardown(self) -> None:
        for number in list(self.running):
            assert self._settle(number, "unused", Amounts(), None)
        self.every_call_is_counted_once()
        used = dict(self.used, tokens=self.used["input"] + self.used["output"])
        # What a plan has put into the present bin and an end has corrected evens out with it.
        later_s = self.now + BIN_S
        for tracked in self.calls.account.limits:
            left = AMOUNT - used.get(tracked.limit.resource, 0)
            # A millionth of the bucket refills each second.
            assert tracked.level(later_s) == pytest.approx(left, abs=0.01)
            assert tracked.meter.planned == pytest.approx(0.0, abs=1e-6)

    def _settle(self, number: int, how: SettledAs, used: Amounts, kind: FaultKind | None) -> bool:
        if number >= len(self.known):
            return False
        fault = None if kind is None else Fault(kind)
        did = self.calls.settle(self.known[number], how, used, self.now, fault)
        assert did == (number in self.running)
        self.ended += did
        self.running.discard(number)
        return did


class ReservedLives(Lives):
    """The same where output is reserved at admission."""

    dialect = CEREBRAS


MANY = settings(max_examples=40, stateful_step_count=40)
TestLives = Lives.TestCase
TestLives.settings = MANY
TestReservedLives = ReservedLives.TestCase
TestReservedLives.settings = MANY


def test_a_fixed_window_gets_back_what_a_call_without_an_answer_was_planned_to_take() -> None:
    life = Lives()
    life.ask(Amounts(), Amounts(0.0, 1.0))
    for elapsed_s in (0.0, 1.75, 0.0, 0.5):
        life.decide(elapsed_s)
    life.teardown()


class Service(Struct):
    """Plays the provider: whatever is granted takes a while and uses what was expected."""

    calls: AccountCalls
    lasts: Callable[[Demand], tuple[float, float]]
    """Of a call, the time to its first byte and to its end."""
    now: float = 0.0
    vain: int = 0
    """Decisions in a row that granted nothing although nothing happened in between."""
    vain_most: int = 0
    asked: int = 0
    upcoming: list[tuple[float, int, bool]] = field(default_factory=list)
    running: dict[int, Call] = field(default_factory=dict)

    def ask(self, demand: Demand, flow: str = "") -> Call:
        self.asked += 1
        call = Call(("", self.asked), self.now, (flow,), demand=demand)
        self.calls.ask(call)
        return call

    def step(self) -> Decision:
        """Decide now, then move on to whatever comes next."""
        decision = self.calls.decide(self.now)
        self.follow(decision)
        return decision

    def follow(self, decision: Decision) -> None:
        self.vain = 0 if decision.sent else self.vain + 1
        self.vain_most = max(self.vain_most, self.vain)
        for call in decision.sent:
            number = call.id[1]
            self.running[number] = call
            first_byte_s, end_s = self.lasts(call.demand)
            heapq.heappush(self.upcoming, (self.now + first_byte_s, number, False))
            heapq.heappush(self.upcoming, (self.now + end_s, number, True))
        next_s = self.upcoming[0][0] if self.upcoming else inf
        if next_s <= decision.wake_s:
            self.vain = 0
        self.now = min(next_s, decision.wake_s)
        while self.upcoming and self.upcoming[0][0] <= self.now:
            at_s, number, is_end = heapq.heappop(self.upcoming)
            if is_end:
                call = self.running.pop(number)
                assert self.calls.settle(call, "used", call.demand.expected, at_s)
            else:
                self.calls.first_byte(self.running[number], Reading(), at_s)


def _instant(_demand: Demand) -> tuple[float, float]:
    return 0.0, 0.0


def _known(*limits: Limit) -> AccountCalls:
    return AccountCalls(AccountConfig(PLAIN, limits, profile=Profile(width=1000.0)), 0.0)


def _demand(input_tokens: float, output_tokens: float = 0.0) -> Demand:
    amounts = Amounts(input_tokens, output_tokens)
    return Demand(amounts, amounts)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [(100, 100), (100, 1900)])
def test_backlogged_flows_share_evenly_whatever_the_size_of_their_calls(
    kind: LimitKind, sizes: tuple[int, int]
) -> None:
    service = Service(_known(Limit("input", 24_000.0, kind=kind, burst=5000.0)), _instant)
    taken: Counter[str] = Counter()

    def ask(flow: str, number: int) -> None:
        service.ask(_demand(float(sizes[flow == "b"] + number % 7)), flow)

    # More than a whole window takes: both are backlogged at all times.
    for number in range(250):
        ask("a", number)
        ask("b", number)
    while sum(taken.values()) < 480_000:
        for call in service.step().sent:
            taken[call.path[0]] += int(call.demand.expected.input_tokens)
            ask(call.path[0], call.id[1])
    assert taken["a"] / taken["b"] == pytest.approx(1.0, rel=0.02)


@given(st.integers(0, 300), st.booleans())
@settings(max_examples=20)
def test_a_newcomer_behind_a_deep_flow_waits_at_most_two_service_times(
    served: int, is_slotted: bool
) -> None:
    service_s = 2.0
    one_at_once = Limit("concurrency", 1.0, 0.0, "gauge")
    one_per_service = Limit("requests", 1.0, service_s)
    calls = _known(one_at_once if is_slotted else one_per_service)
    service = Service(calls, lambda _demand: (0.0, service_s))
    for _ in range(1000):
        service.ask(_demand(1.0), "deep")
    while calls.granted < served:
        service.step()
    asked_s = service.now
    new = service.ask(_demand(1.0), "new")
    while not new.is_sent:
        service.step()
    assert new.sent_s <= asked_s + 2.0 * service_s + 1e-6


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("resource", ["input", "output"])
def test_a_large_call_among_many_small_ones_starts_when_its_turn_was_told(
    kind: LimitKind, resource: str
) -> None:
    """Its reserved time is the first wait that it was given; one small call may come between."""
    small, large = (_demand(100.0), _demand(5000.0))
    if resource == "output":
        small, large = (_demand(0.0, 100.0), _demand(0.0, 5000.0))
    limit = Limit("input" if resource == "input" else "output", 6000.0, 60.0, kind)
    call_s = 2.0
    service = Service(_known(limit), lambda _demand: (0.5, call_s))
    for _ in range(2000):
        service.ask(small, "small")
    for _ in range(5):
        service.step()
    asked_s = service.now
    call = service.ask(large, "large")
    told: list[float] = []
    while not call.is_sent:
        decision = service.step()
        if decision.blocked is call and decision.wait is not None:
            told.append(decision.wait.until_s)
    reserved_s = told[0] if told else asked_s
    assert call.sent_s <= reserved_s + call_s
    assert call.waited_for == (limit.name if call.sent_s > asked_s else "")


VAIN_MAX = 6 + BACKFILL_MAX
"""Decisions in a row that may grant nothing although nothing happened since: some for the first in
line, and one when each of those behind it that are looked at might pass."""


@given(cases())
@settings(max_examples=60)
def test_waits_are_true_and_a_second_look_changes_nothing(case: Case) -> None:
    """At the time that it was told a call passes, or is told a later one a few times at most."""
    dialect = PLAIN if case.charging == "produced" else CEREBRAS
    latency = case.latency
    speed = Profile(
        width=1000.0, first_byte_s=latency.first_byte_s, per_token_s=latency.per_output_token_s
    )
    calls = AccountCalls(AccountConfig(dialect, case.limits, profile=speed), 0.0)
    service = Service(
        calls,
        lambda demand: (latency.first_byte_s, latency.work_s(demand.expected.output_tokens)),
    )
    for tokens_in, tokens_out in case.sizes:
        service.ask(_demand(tokens_in, tokens_out))
    while calls.queued:
        service.follow(_decided(calls, service.now))
    assert service.vain_most <= VAIN_MAX


LONGEST = 3600.0
"""The most that one call takes: alone it goes into debt."""

STRANGER = Call(("nobody", 0))
"""A call that is not there and leaves: no decision stands after that."""


def _starts_s(decision: Decision) -> float:
    """When the first in line may start."""
    return inf if decision.wait is None else decision.wait.until_s


def _decided(calls: AccountCalls, now: float) -> Decision:
    """Decide, and look again until nothing more is granted.

    A second look only lets more pass that do not delay the first in line. One that grants nothing
    takes nothing, and nothing is ever overdrawn.
    """
    decision = calls.decide(now)
    if decision.wake_s < now + WAKE_S_MIN:
        # It stands from an earlier moment and is due within a rounding error.
        calls.leave(STRANGER)
        decision = calls.decide(now)
    limits = calls.account.limits
    while True:
        levels = [limit.level(now) for limit in limits]
        for limit in limits:
            # Answers that are charged as they are produced may leave a debt.
            debt = (DEBT_S * limit.limit.rate_per_s + LONGEST) * (limit.rule.produced > 0)
            assert limit.meter.left(now) >= -debt - 1e-6 * limit.limit.amount
        calls.leave(STRANGER)
        again = calls.decide(now)
        assert again.blocked is decision.blocked
        assert _starts_s(again) <= _starts_s(decision) + 1e-6
        if not again.sent:
            assert [limit.level(now) for limit in limits] == pytest.approx(levels)
            return decision
        assert again.wait is not None
        assert all(call.waited_for == again.wait.resource for call in again.sent)
        decision = replace(decision, sent=decision.sent + again.sent)
