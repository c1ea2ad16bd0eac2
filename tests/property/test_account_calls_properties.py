"""Permits whatever the order of events: settled once, shared fairly, and waits that are true."""

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
    Permit,
    Reading,
    SettledAs,
    Usage,
)
from headway.pacing.account import Profile, QuotaConfig
from headway.pacing.headers import CEREBRAS, PLAIN
from headway.pacing.limits import BIN_S
from headway.pacing.quota import MAY_CALL, WAKE_S_MIN, Decision, Quota
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
IDS = st.integers(-1, 30)
"""Of permits and places: given, gone and never heard of."""


class Lives(RuleBasedStateMachine):
    """Calls that ask, leave, begin, grow and end in any order, some of it again and again."""

    dialect = PLAIN

    def __init__(self) -> None:
        super().__init__()
        self.quota = Quota(QuotaConfig(self.dialect, TOTALS), 0.0)
        self.now = 0.0
        self.waiting: set[int] = set()
        self.running: dict[int, Permit] = {}
        self.ended = 0
        self.used: Counter[str] = Counter()
        # A bucket that is full forgets what is given back; so it is not full.
        self.ask(Amounts(), Amounts())
        self.decide(0.0)
        self.settle_used(1, Amounts(50_000.0), None)

    @rule(expected=AMOUNTS, most=AMOUNTS)
    def ask(self, expected: Amounts, most: Amounts) -> None:
        ceiling = Amounts(
            max(expected.input_tokens, most.input_tokens),
            max(expected.output_tokens, most.output_tokens),
            max(expected.spend_microusd, most.spend_microusd),
        )
        self.waiting.add(self.quota.ask(Demand(expected, ceiling)))

    @rule(place=IDS)
    def leave(self, place: int) -> None:
        assert self.quota.leave(place) == (place in self.waiting)
        self.waiting.discard(place)

    @rule(elapsed_s=st.floats(0.0, 40.0))
    def decide(self, elapsed_s: float) -> None:
        self.now += elapsed_s
        for grant in self.quota.decide(self.now).grants:
            self.waiting.remove(grant.place)
            assert grant.permit.id not in self.running
            assert grant.permit.reason
            self.running[grant.permit.id] = grant.permit

    @rule(permit_id=IDS)
    def first_byte(self, permit_id: int) -> None:
        self.quota.first_byte(permit_id, Reading(), self.now)

    @rule(permit_id=IDS, tokens=st.integers(0, 2000).map(float))
    def progress(self, permit_id: int, tokens: float) -> None:
        self.quota.progress(permit_id, tokens, self.now)

    @rule(permit_id=IDS, used=AMOUNTS, kind=st.sampled_from((None, "broken", "timeout")))
    def settle_used(self, permit_id: int, used: Amounts, kind: FaultKind | None) -> None:
        if self._settle(permit_id, "used", Usage(used), kind):
            self.used["requests"] += 1
            self.used["input"] += int(used.input_tokens)
            self.used["output"] += int(used.output_tokens)
            self.used["spend"] += used.spend_microusd

    @rule(permit_id=IDS, kind=st.sampled_from(("overload", "concurrency", "request", "server")))
    def settle_unused(self, permit_id: int, kind: FaultKind) -> None:
        refusals = ("overload", "concurrency")
        how: SettledAs = "throttled" if kind in refusals else "unused"
        self._settle(permit_id, how, Usage(Amounts()), kind)

    @invariant()
    def everybody_is_counted_once(self) -> None:
        assert len(self.quota._queue) == len(self.waiting)
        assert self.quota.in_flight == len(self.running)
        assert self.quota.granted == self.ended + len(self.running)
        assert self.quota.belief.tempo.in_flight == len(self.running)

    def teardown(self) -> None:
        for permit_id in list(self.running):
            assert self._settle(permit_id, "unused", Usage(Amounts()), None)
        self.everybody_is_counted_once()
        used = dict(self.used, tokens=self.used["input"] + self.used["output"])
        # What a plan has put into the present bin and an end has corrected evens out with it.
        later_s = self.now + BIN_S
        for mirror in self.quota.belief.mirrors:
            left = AMOUNT - used.get(mirror.limit.resource, 0)
            # A millionth of the bucket refills each second.
            assert mirror.level(later_s) == pytest.approx(left, abs=0.01)
            assert mirror.count.planned == pytest.approx(0.0, abs=1e-6)

    def _settle(self, permit_id: int, how: SettledAs, usage: Usage, kind: FaultKind | None) -> bool:
        fault = None if kind is None else Fault(kind)
        did = self.quota.settle(permit_id, how, usage, self.now, fault)
        assert did == (permit_id in self.running)
        self.ended += did
        self.running.pop(permit_id, None)
        return did


class ReservedLives(Lives):
    """The same where output is reserved at admission."""

    dialect = CEREBRAS


MANY = settings(max_examples=40, stateful_step_count=40)
TestLives = Lives.TestCase
TestLives.settings = MANY
TestReservedLives = ReservedLives.TestCase
TestReservedLives.settings = MANY


class Service(Struct):
    """Plays the provider: whatever is granted takes a while and uses what was expected."""

    quota: Quota
    lasts: Callable[[Demand], tuple[float, float]]
    """Of a call, the time to its first byte and to its end."""
    now: float = 0.0
    vain: int = 0
    """Decisions in a row that granted nothing although nobody did anything in between."""
    vain_most: int = 0
    upcoming: list[tuple[float, int, bool]] = field(default_factory=list)
    running: dict[int, Permit] = field(default_factory=dict)

    def step(self) -> Decision:
        """Decide now, then move on to whatever comes next."""
        decision = self.quota.decide(self.now)
        self.follow(decision)
        return decision

    def follow(self, decision: Decision) -> None:
        self.vain = 0 if decision.grants else self.vain + 1
        self.vain_most = max(self.vain_most, self.vain)
        for grant in decision.grants:
            permit = grant.permit
            self.running[permit.id] = permit
            first_byte_s, end_s = self.lasts(permit.demand)
            heapq.heappush(self.upcoming, (self.now + first_byte_s, permit.id, False))
            heapq.heappush(self.upcoming, (self.now + end_s, permit.id, True))
        next_s = self.upcoming[0][0] if self.upcoming else inf
        if next_s <= decision.wake_s:
            self.vain = 0
        self.now = min(next_s, decision.wake_s)
        while self.upcoming and self.upcoming[0][0] <= self.now:
            self._happen(*heapq.heappop(self.upcoming))

    def _happen(self, at_s: float, permit_id: int, is_end: bool) -> None:
        if is_end:
            usage = Usage(self.running.pop(permit_id).demand.expected)
            assert self.quota.settle(permit_id, "used", usage, at_s)
        else:
            self.quota.first_byte(permit_id, Reading(), at_s)


def _instant(_demand: Demand) -> tuple[float, float]:
    return 0.0, 0.0


def _known(*limits: Limit) -> Quota:
    return Quota(QuotaConfig(PLAIN, limits, profile=Profile(width=1000.0)), 0.0)


def _demand(input_tokens: float, output_tokens: float = 0.0) -> Demand:
    amounts = Amounts(input_tokens, output_tokens)
    return Demand(amounts, amounts)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [(100, 100), (100, 1900)])
def test_backlogged_flows_share_evenly_whatever_the_size_of_their_calls(
    kind: LimitKind, sizes: tuple[int, int]
) -> None:
    quota = _known(Limit("input", 24_000.0, kind=kind, burst=5000.0))
    service = Service(quota, _instant)
    taken: Counter[str] = Counter()

    def ask(flow: str, number: int) -> None:
        size = float(sizes[flow == "b"] + number % 7)
        quota.ask(_demand(size), (flow,))

    # More than a whole window takes: both are backlogged at all times.
    for number in range(250):
        ask("a", number)
        ask("b", number)
    while sum(taken.values()) < 480_000:
        for grant in service.step().grants:
            taken[grant.permit.flow] += int(grant.permit.demand.expected.input_tokens)
            ask(grant.permit.flow, grant.permit.id)
    assert taken["a"] / taken["b"] == pytest.approx(1.0, rel=0.02)


@given(st.integers(0, 300), st.booleans())
@settings(max_examples=20)
def test_a_newcomer_behind_a_deep_flow_waits_at_most_two_service_times(
    served: int, is_slotted: bool
) -> None:
    service_s = 2.0
    one_at_once = Limit("concurrency", 1.0, 0.0, "gauge")
    one_per_service = Limit("requests", 1.0, service_s)
    quota = _known(one_at_once if is_slotted else one_per_service)
    service = Service(quota, lambda _demand: (0.0, service_s))
    for _ in range(1000):
        quota.ask(_demand(1.0), ("deep",))
    while quota.granted < served:
        service.step()
    asked_s = service.now
    place = quota.ask(_demand(1.0), ("new",))
    permit = _permit_of(service, place)
    assert permit.granted_s <= asked_s + 2.0 * service_s + 1e-6


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
    quota = _known(limit)
    call_s = 2.0
    service = Service(quota, lambda _demand: (0.5, call_s))
    for _ in range(2000):
        quota.ask(small, ("small",))
    for _ in range(5):
        service.step()
    asked_s = service.now
    place = quota.ask(large, ("large",))
    told: list[float] = []
    granted: list[Permit] = []
    while not granted:
        decision = service.step()
        granted = [grant.permit for grant in decision.grants if grant.place == place]
        if decision.place == place and decision.wait is not None:
            told.append(decision.wait.until_s)
    reserved_s = told[0] if told else asked_s
    assert granted[0].granted_s <= reserved_s + call_s
    assert granted[0].reason == (f"waited for {limit.name}" if told else MAY_CALL)


def _permit_of(service: Service, place: int) -> Permit:
    for _ in range(1000):
        for grant in service.step().grants:
            if grant.place == place:
                return grant.permit
    raise AssertionError("never granted")


PASSES = "does not delay a call that waits for"
VAIN_MAX = 6
"""Decisions in a row that may grant nothing although nobody did anything since."""


@given(cases())
@settings(max_examples=60)
def test_waits_are_true_and_a_second_look_changes_nothing(case: Case) -> None:
    """At the time that it was told a call passes, or is told a later one a few times at most."""
    dialect = PLAIN if case.charging == "produced" else CEREBRAS
    latency = case.latency
    speed = Profile(
        width=1000.0, first_byte_s=latency.first_byte_s, per_token_s=latency.per_output_token_s
    )
    quota = Quota(QuotaConfig(dialect, case.limits, profile=speed), 0.0)
    service = Service(
        quota,
        lambda demand: (latency.first_byte_s, latency.work_s(demand.expected.output_tokens)),
    )
    for tokens_in, tokens_out in case.sizes:
        quota.ask(_demand(tokens_in, tokens_out))
    while len(quota._queue):
        service.follow(_decided(quota, service.now))
    assert service.vain_most <= VAIN_MAX


def _decided(quota: Quota, now: float) -> Decision:
    """Decide, and look again until nothing more is granted.

    A second look only lets more pass that do not delay the first in line. One that grants nothing
    takes nothing, and nothing is ever overdrawn.
    """
    decision = quota.decide(now)
    if decision.wake_s < now + WAKE_S_MIN:
        # It stands from an earlier moment and is due within a rounding error.
        quota.leave(-1)
        decision = quota.decide(now)
    balances = quota.belief.mirrors
    while True:
        levels = [balance.level(now) for balance in balances]
        assert all(balance.count.left(now) >= -1e-6 * balance.limit.amount for balance in balances)
        # Somebody who is not there leaves: no decision stands after that.
        assert not quota.leave(-1)
        again = quota.decide(now)
        assert again.place == decision.place
        assert again.wake_s <= decision.wake_s + 1e-6
        if not again.grants:
            assert [balance.level(now) for balance in balances] == pytest.approx(levels)
            return decision
        assert all(grant.permit.reason.startswith(PASSES) for grant in again.grants)
        decision = replace(decision, grants=decision.grants + again.grants)
