"""One account and model group: flows into the line, terms that change, what is kept."""

from __future__ import annotations

import pytest

from headway.base.values import Amounts, Demand, Limit, LimitReading, Reading, Sketch, Usage
from headway.pacing.account import Profile
from headway.pacing.headers import ANTHROPIC, CEREBRAS, PLAIN
from headway.pacing.lane import (
    IN_LINE_MAX,
    LANES_MAX,
    CallEntry,
    Lane,
    Lanes,
    Request,
    lane_of,
    new_lane,
)
from headway.pacing.memory import (
    EVERY_ACCOUNT,
    AccountTerms,
    LaneMemory,
    MonthlyBudget,
    PacingMemory,
)
from headway.pacing.quota import Settlement
from headway.pacing.width import WIDTH_AT_START

DEMAND = Demand(Amounts(100.0, 50.0), Amounts(100.0, 400.0))
ONE_AT_ONCE = AccountTerms((Limit("concurrency", 1.0, kind="gauge"),))
TWO_A_MINUTE = AccountTerms((Limit("requests", 2.0, kind="sliding"),))
USED = Settlement("used", Usage(DEMAND.expected))


def _entry(number: int, path: tuple[str, ...] = (), is_resent: bool = False) -> CallEntry:
    request = Request(("client", number), "account", "anthropic", Sketch("model"), path, is_resent)
    return CallEntry(request, number, 0.0)


def _size(entry: CallEntry) -> None:
    entry.demand = DEMAND


def _lane(terms: AccountTerms = ONE_AT_ONCE) -> Lane:
    return new_lane("account", "model", terms, ANTHROPIC, 0.0)


def _settle(lane: Lane, entry: CallEntry, settlement: Settlement, now: float) -> None:
    assert entry.permit is not None
    lane.settle(entry.request.id, entry.permit, settlement, now)


def _numbers(entries: list[CallEntry]) -> list[int]:
    return [entry.number for entry in entries]


def test_few_of_a_long_flow_are_in_line_and_the_rest_follows() -> None:
    lane = _lane(AccountTerms((Limit("concurrency", 100.0, kind="gauge"),)))
    for number in range(2 * IN_LINE_MAX):
        lane.enter(_entry(number, ("long",)), 0.0)
    lane.enter(_entry(1000, ("short",)), 0.0)
    granted, _ = lane.decide(_size, 0.0)
    assert len(granted) == 2 * IN_LINE_MAX + 1
    assert _numbers(granted).index(1000) <= 2
    one = _lane()
    for number in range(2 * IN_LINE_MAX):
        one.enter(_entry(number, ("long",)), 0.0)
    granted, _ = one.decide(_size, 0.0)
    assert (_numbers(granted), len(one.in_line), one.queued) == (
        [0],
        IN_LINE_MAX - 1,
        2 * IN_LINE_MAX - 1,
    )


def test_a_call_that_was_refused_comes_before_those_of_its_flow_that_were_not_sent() -> None:
    lane = _lane()
    for number in range(IN_LINE_MAX + 2):
        lane.enter(_entry(number), 0.0)
    lane.enter(_entry(100, is_resent=True), 0.0)
    assert _numbers(lane.decide(_size, 0.0)[0]) == [100]


def test_whoever_leaves_is_forgotten_wherever_it_waits() -> None:
    lane = _lane()
    entries = [_entry(number) for number in range(IN_LINE_MAX + 3)]
    for entry in entries:
        lane.enter(entry, 0.0)
    lane.leave(entries[0])
    lane.decide(_size, 0.0)
    for entry in entries[2:]:
        lane.leave(entry)
    _settle(lane, entries[1], USED, 1.0)
    assert (lane.queued, lane.in_line, lane._flows) == (0, {}, {})
    alone = _entry(500, ("other",))
    lane.enter(alone, 1.0)
    lane.leave(alone)
    assert (lane.queued, lane._flows, lane.decide(_size, 1.0)) == (0, {}, ([], None))


def test_new_terms_keep_calls_in_flight_waiters_and_what_was_used() -> None:
    lane = _lane(TWO_A_MINUTE)
    for number in range(4):
        lane.enter(_entry(number), 0.0)
    granted, _ = lane.decide(_size, 0.0)
    assert _numbers(granted) == [0, 1]
    three = AccountTerms((Limit("requests", 3.0, kind="sliding"),))
    lane.retermed(three, 10.0)
    assert (lane.lasting.terms, lane.queued) == (three, 2)
    assert lane.quota.in_flight == 2
    assert _numbers(lane.decide(_size, 10.0)[0]) == [2]
    _settle(lane, granted[0], USED, 11.0)
    assert lane.quota.in_flight == 2
    assert lane.decide(_size, 11.0)[0] == []
    assert _numbers(lane.decide(_size, 80.0)[0]) == [3]


def test_terms_that_change_often_keep_what_was_used_by_calls_that_have_ended() -> None:
    lane = _lane(TWO_A_MINUTE)
    lane.enter(_entry(1), 0.0)
    (entry,), _ = lane.decide(_size, 0.0)
    _settle(lane, entry, USED, 1.0)
    for share in (0.0, 0.9, 1.0):
        lane.retermed(AccountTerms(TWO_A_MINUTE.limits, share), 2.0)
    assert lane.quota.belief.mirrors[0].balance.level(2.0) == 1.0


def test_terms_that_come_before_the_first_call_are_as_good_as_from_the_start() -> None:
    lane = _lane(AccountTerms())
    lane.retermed(AccountTerms((Limit("concurrency", 50.0, kind="gauge"),)), 1.0)
    assert lane.quota.belief.width.allowed == 50.0


def test_a_limit_that_is_raised_lets_others_pass_a_call_that_hangs() -> None:
    lane = _lane()
    for number in range(10):
        lane.enter(_entry(number), 0.0)
    assert len(lane.decide(_size, 0.0)[0]) == 1
    lane.retermed(AccountTerms((Limit("concurrency", 50.0, kind="gauge"),)), 1.0)
    assert len(lane.decide(_size, 1.0)[0]) == WIDTH_AT_START - 1


def test_terms_that_come_right_after_a_restart_forget_nothing() -> None:
    profile = Profile(limits=(Limit("input", 6000.0, source="profile"),), width=9.0)
    level = LimitReading("input", 60.0, 6000.0, 10.0, None)
    memory = LaneMemory("account", "model", "anthropic", profile, (level,))
    lane = lane_of(memory, AccountTerms(), ANTHROPIC, 99.0, 100.0)
    assert lane.quota.belief.mirrors[0].balance.level(100.0) == 110.0
    lane.retermed(TWO_A_MINUTE, 101.0)
    names = [one.balance.limit.name for one in lane.quota.belief.mirrors]
    assert names == ["input/60s", "requests/60s"]
    assert lane.quota.belief.mirrors[0].balance.level(101.0) == 210.0
    # Sent after the memory was written, and adopted after the terms were changed.
    entry = _entry(1)
    _size(entry)
    lane.adopt(entry, 99.5, 101.0)
    assert lane.quota.belief.mirrors[0].balance.level(101.0) == 110.0
    assert entry.permit is not None
    assert lane.calling == {("client", 1): entry}


def test_a_limit_that_the_user_takes_back_is_gone() -> None:
    lane = _lane(TWO_A_MINUTE)
    lane.enter(_entry(1), 0.0)
    (entry,), _ = lane.decide(_size, 0.0)
    found = LimitReading("input", 60.0, 6000.0, 5900.0, 1.0)
    assert entry.permit is not None
    lane.quota.first_byte(entry.permit.id, Reading((found,)), 1.0)
    memory = lane.memory(2.0)
    assert [limit.name for limit in memory.profile.limits] == ["input/60s"]
    assert [level.resource for level in memory.levels] == ["requests", "input"]
    lane.retermed(AccountTerms(), 2.0)
    assert [one.balance.limit.name for one in lane.quota.belief.mirrors] == ["input/60s"]


def _request(model: str = "model", account: str = "account", dialect: str = "plain") -> Request:
    return Request(("client", 1), account, dialect, Sketch(model))


def test_models_of_one_group_share_a_lane_and_accounts_do_not() -> None:
    lanes = Lanes(PacingMemory(), 0.0, 0.0)
    one = lanes.of(_request("claude-sonnet-4-5"), 0.0)
    assert lanes.of(_request("claude-sonnet-4-20250514"), 0.0) is one
    assert lanes.of(_request("claude-sonnet-4-5", "other"), 0.0) is not one


def test_a_lane_speaks_the_dialect_that_was_heard_last() -> None:
    lanes = Lanes(PacingMemory(), 0.0, 0.0)
    lane = lanes.of(_request(dialect="unheard of"), 0.0)
    assert lane.dialect is PLAIN
    assert lanes.spoken(_request(), "cerebras", 0.0) is lane
    lanes.spoken(_request(), "cerebras", 0.0)
    lanes.spoken(_request(), "", 0.0)
    assert lane.dialect is CEREBRAS is lane.quota.belief.config.dialect


def test_the_nearest_terms_count() -> None:
    lanes = Lanes(PacingMemory(), 0.0, 0.0)
    lane = lanes.of(_request(), 0.0)
    shares = []
    for key, share in ((EVERY_ACCOUNT, 0.5), ("account", 0.6), ("account/model", 0.7)):
        lanes.configure(key, AccountTerms(share=share), 0.0)
        shares.append(lane.lasting.terms.share)
    lanes.configure(EVERY_ACCOUNT, AccountTerms(share=0.1), 0.0)
    assert [*shares, lane.lasting.terms.share] == [0.5, 0.6, 0.7, 0.7]
    assert [key for key, _ in lanes.terms()] == ["", "account", "account/model"]


def test_a_budget_alone_does_not_disturb_a_quota() -> None:
    lanes = Lanes(PacingMemory(), 0.0, 0.0)
    quota = lanes.of(_request(), 0.0).quota
    lanes.configure("account", AccountTerms(budget=MonthlyBudget(tokens=5.0)), 0.0)
    assert lanes.of(_request(), 0.0).quota is quota
    lanes.configure("account", AccountTerms(pace="smooth"), 0.0)
    assert lanes.of(_request(), 0.0).quota is not quota


@pytest.mark.parametrize("is_busy", [False, True])
def test_only_an_idle_lane_makes_room(is_busy: bool) -> None:
    lanes = Lanes(PacingMemory(), 0.0, 0.0)
    for number in range(LANES_MAX):
        lane = lanes.of(_request(f"model {number}"), 0.0)
        if is_busy:
            lane.enter(_entry(1), 0.0)
    first = next(iter(lanes))
    lanes.of(_request("one more"), 0.0)
    assert len(list(lanes)) == LANES_MAX + is_busy
    assert (next(iter(lanes)) is first) is is_busy
