"""A person beside runs on one account: whose calls go first, what runs leave, what is reserved."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bench.person import PERSON, RUN, beside
from bench.scenes import PRESETS
from headway.base.numbers import REMEMBERED_MAX
from headway.base.values import Budget, Limit, LimitKind, LimitReading, Reading, Tally
from headway.pacing.call import CallId, Outcome, Request
from headway.pacing.memory import AccountTerms
from headway.pacing.presence import (
    ACTIVE_S,
    RECENT,
    PersonActivity,
    PersonalNeed,
)
from headway.pacing.queue import FairQueue
from headway.pacing.view import describe
from tests.unit.one_account import ACCOUNT, CALL, RecordedAdmission

PERSONAL = replace(CALL, is_interactive=True, path=("claude-code:1",))
USED = Outcome("used", Tally(50.0, 0.0, 50.0))


def ask(admission: RecordedAdmission, name: str, count: int, request: Request = CALL) -> None:
    for number in range(count):
        admission.ask((name, number), request, 0.0)


def sent(admission: RecordedAdmission, now: float) -> list[CallId]:
    return [grant.id for grant in admission.decide(now).grants]


def test_a_persons_call_goes_before_all_calls_of_runs_that_wait() -> None:
    admission = RecordedAdmission(2)
    ask(admission, "run", 10)
    assert sent(admission, 0.0) == [("run", 0), ("run", 1)]
    ask(admission, "me", 2, PERSONAL)
    admission.settle(("run", 0), USED, 1.0)
    assert sent(admission, 1.0) == [("me", 0)]
    admission.settle(("run", 1), USED, 2.0)
    assert sent(admission, 2.0) == [("me", 1)]


def test_runs_leave_one_place_while_a_person_is_active_and_take_it_afterwards() -> None:
    admission = RecordedAdmission(3)
    ask(admission, "me", 1, PERSONAL)
    assert sent(admission, 0.0) == [("me", 0)]
    admission.settle(("me", 0), USED, 1.0)
    ask(admission, "run", 9)
    decision = admission.decide(1.0)
    assert [grant.id for grant in decision.grants] == [("run", 0), ("run", 1)]
    assert describe(admission, 1.0).accounts[0].interactive == 1
    wait = admission.why(("run", 2))
    assert wait is not None
    assert wait.reason == "room for an interactive session"
    admission.ask(("me", 1), PERSONAL, 5.0)
    assert sent(admission, 5.0) == [("me", 1)]
    admission.settle(("me", 1), USED, 6.0)
    assert decision.wake_s == 1.0 + ACTIVE_S
    assert sent(admission, 6.0 + ACTIVE_S) == [("run", 2)]
    assert describe(admission, 6.0 + ACTIVE_S).accounts[0].interactive == 0


def test_a_run_always_has_one_place() -> None:
    admission = RecordedAdmission(1)
    ask(admission, "me", 1, PERSONAL)
    sent(admission, 0.0)
    admission.settle(("me", 0), USED, 1.0)
    ask(admission, "run", 2)
    assert sent(admission, 1.0) == [("run", 0)]


def test_runs_leave_in_a_bucket_what_the_largest_recent_call_of_a_person_took() -> None:
    admission = RecordedAdmission(99, Budget(), Limit("requests", 60.0, burst=4.0))
    ask(admission, "me", 1, PERSONAL)
    sent(admission, 0.0)
    admission.settle(("me", 0), USED, 0.5)
    ask(admission, "run", 9)
    # The fourth of the bucket, with what it needs for rounding, is the person's.
    assert sent(admission, 1.0) == [("run", 0), ("run", 1)]
    admission.ask(("me", 1), PERSONAL, 1.0)
    assert sent(admission, 1.0) == [("me", 1)]


def test_a_reserve_is_not_used_by_runs_and_is_by_a_person() -> None:
    limit = Limit("requests", 10.0, 60.0, "sliding")
    admission = RecordedAdmission(99)
    admission.configure(ACCOUNT, AccountTerms((limit,), reserve=0.2), 0.0)
    ask(admission, "run", 20)
    assert len(sent(admission, 0.0)) == 8
    ask(admission, "me", 3, PERSONAL)
    assert sent(admission, 1.0) == [("me", 0), ("me", 1)]
    assert describe(admission, 1.0).accounts[0].reserve == 0.2


def window(used: float) -> Reading:
    return Reading((LimitReading("tokens", 18000.0, None, None, 9000.0, used, window="5h"),))


def used_window(outside: float, personal: bool) -> tuple[float, bool, bool]:
    """How much of a window is used when runs are held, and whether each kind of call may go then.

    Each call takes 1 % of it; `outside` is used before the first one."""
    admission = RecordedAdmission(99)
    admission.configure(ACCOUNT, AccountTerms(reserve=0.2), 0.0)
    used, now, number = outside, 0.0, 0
    while used < 1.0:
        mine = personal and number % 10 == 9
        id, now, number = ("c", number), now + 10.0, number + 1
        admission.ask(id, PERSONAL if mine else CALL, now)
        if sent(admission, now) != [id]:
            admission.leave(id)
            break
        used += 0.01
        admission.first_byte(id, window(round(used, 2)), "anthropic", now + 1.0)
        admission.settle(id, USED, now + 2.0)
    admission.ask(("me", 0), PERSONAL, now + 5.0)
    admission.ask(("run", 0), CALL, now + 5.0)
    granted = sent(admission, now + 5.0)
    return round(used, 2), ("run", 0) in granted, ("me", 0) in granted


def test_a_fifth_of_a_usage_window_is_left_by_runs() -> None:
    used, runs_go, person_goes = used_window(0.0, personal=False)
    assert 0.78 <= used <= 0.81
    assert (runs_go, person_goes) == (False, True)


def test_what_a_person_used_of_a_window_comes_off_the_reserve_first() -> None:
    assert used_window(0.0, personal=True)[0] >= 0.85
    assert 0.88 <= used_window(0.1, personal=False)[0] <= 0.91
    assert used_window(0.3, personal=False)[0] >= 0.99


def test_a_person_beside_a_run_at_the_limit_waits_at_most_one_call_longer_than_alone() -> None:
    spec, run = PRESETS["burst-3s"], replace(RUN, tasks=30, calls=3)
    person = replace(PERSON, tasks=8, input_tokens=4000.0)
    alone, now = beside(spec, None, person, True), beside(spec, run, person, True)
    run_alone, unmarked = beside(spec, run, None, True), beside(spec, run, person, False)
    assert now.wait_s(0.95) <= alone.wait_s(0.95) + max(alone.calls_s)
    assert now.wait_s(0.95) <= unmarked.wait_s(0.95)
    assert run_alone.run_s <= now.run_s <= 1.05 * unmarked.run_s


WAITERS = st.lists(
    st.tuples(st.booleans(), st.sampled_from(("a", "b", "c")), st.floats(0.1, 9.0)), max_size=40
)


@given(WAITERS)
def test_two_classes_are_two_fair_queues_one_after_the_other(
    waiters: list[tuple[bool, str, float]],
) -> None:
    both: FairQueue[int] = FairQueue()
    apart: dict[bool, FairQueue[int]] = {True: FairQueue(), False: FairQueue()}
    for number, (is_first, flow, cost_s) in enumerate(waiters):
        both.push((flow,), (0.0,), cost_s, number, is_first)
        apart[is_first].push((flow,), (0.0,), cost_s, number)
    upcoming = both.peek(len(waiters))
    assert upcoming == [one for queue in (apart[True], apart[False]) for one in drained(queue)]
    assert drained(both) == upcoming


def drained(queue: FairQueue[int]) -> list[int]:
    places = {waiter.item: place for place, waiter in queue.waiters.items()}
    order = []
    while (head := queue.head()) is not None:
        order.append(queue.take(places[head]))
    return order


def test_runs_leave_in_a_fixed_window_what_a_person_may_take_until_its_end() -> None:
    limit = Limit("requests", 20.0, 60.0, "fixed")
    admission = RecordedAdmission(99)
    admission.configure(ACCOUNT, AccountTerms((limit,)), 0.0)
    ask(admission, "me", 1, PERSONAL)
    assert sent(admission, 0.0) == [("me", 0)]
    # It was not sent: runs need leave nothing for another one like it.
    admission.settle(("me", 0), Outcome("unused"), 0.0)
    admission.ask(("me", 1), PERSONAL, 1.0)
    assert sent(admission, 1.0) == [("me", 1)]
    ask(admission, "run", 40)
    # One call in 30 s, twice until the end, and one more.
    assert len(sent(admission, 1.0)) == 20 - 1 - 3


@pytest.mark.parametrize("kind", ["fixed", "sliding"])
def test_runs_leave_in_a_window_what_the_first_call_takes_of_a_person_who_comes_back(
    kind: LimitKind,
) -> None:
    admission = RecordedAdmission(99)
    admission.configure(ACCOUNT, AccountTerms((Limit("requests", 20.0, 60.0, kind),)), 0.0)
    ask(admission, "me", 1, PERSONAL)
    assert sent(admission, 0.0) == [("me", 0)]
    admission.settle(("me", 0), USED, 1.0)
    back_s = ACTIVE_S + 301.0
    ask(admission, "run", 60)
    assert len(sent(admission, back_s)) == 20 - 1
    admission.ask(("me", 1), PERSONAL, back_s + 0.01)
    assert sent(admission, back_s + 0.01) == [("me", 1)]


def test_many_sessions_are_counted_up_to_a_limit() -> None:
    seen = PersonActivity()
    for number in range(REMEMBERED_MAX + 5):
        seen.note(f"session {number}", 1.0)
    assert seen.sessions(2.0) == REMEMBERED_MAX


def test_more_calls_can_be_withdrawn_than_are_remembered() -> None:
    need = PersonalNeed()
    for number in range(RECENT + 1):
        need.note(1.0, float(number))
    for _ in range(RECENT + 1):
        need.withdraw()
    assert need.taken_since(-1.0) == 0.0
