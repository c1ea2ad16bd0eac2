"""The book from outside: requests end once, money is kept, clients die, brokers are replaced."""

from __future__ import annotations

from math import inf

import pytest
from msgspec.structs import replace

from headway.base.values import Fault, Limit, LimitReading, Reading, Sketch, Tally
from headway.pacing.admission import BUDGETED, FOLLOWS, AdmissionDecision, Book, CallOutcome
from headway.pacing.budget import CLAIM_S
from headway.pacing.estimate import Price
from headway.pacing.lane import Request
from headway.pacing.memory import (
    EVERY_ACCOUNT,
    AccountTerms,
    Claim,
    MonthlyBudget,
    PacingMemory,
    Spend,
)
from headway.pacing.queue import FOLLOWER_S_MAX, LEADER_S_MAX, WARM_S

PRICE = Price(3_000_000, 15_000_000)
ONE_AT_ONCE = Limit("concurrency", 1.0, kind="gauge")
MANY_AT_ONCE = AccountTerms((Limit("concurrency", 100.0, kind="gauge"),))
WHOLE = Tally(1000.0, 0.0, 200.0)
CLAIMED = 4100.0 + 1000.0
"""The most that a call of `_ask` takes in tokens."""


def _book(
    terms: AccountTerms = MANY_AT_ONCE, memory: PacingMemory = PacingMemory(), now: float = 0.0
) -> Book:
    book = Book(memory, lambda model, _: PRICE if model == "model" else None, now)
    if terms is not MANY_AT_ONCE or not memory.terms:
        book.configure("one", terms, now)
    return book


def _request(number: int, prefix: str = "", model: str = "model", most: int | None = 1000,
             client: str = "ann", account: str = "one") -> Request:  # fmt: skip
    sketch = Sketch(
        model, size_bytes=4000, most_input_tokens=4100, max_output_tokens=most, prefix=prefix
    )
    return Request((client, number), account, "anthropic", sketch)


def _ask(book: Book, *numbers: int, now: float = 0.0, prefix: str = "") -> None:
    for number in numbers:
        book.ask(_request(number, prefix), now)


def _granted(verdict: AdmissionDecision) -> list[int]:
    return [grant.id[1] for grant in verdict.grants]


def _denied(verdict: AdmissionDecision) -> list[tuple[int, str]]:
    return [(denied.id[1], denied.code) for denied in verdict.denials]


def _money(book: Book, key: str = "one") -> tuple[float, float]:
    ledger = dict(book.purse.ledgers())[key]
    return ledger.spent.tokens, ledger.claimed.tokens


def _parked(book: Book) -> int:
    return sum(map(len, book._waiting._parked.values()))


def _is_clean(book: Book) -> bool:
    lanes = [(lane.queued, lane.calling, lane._flows) for lane in book.lanes]
    return (book._entries, _parked(book), book.purse.claims()) == ({}, 0, ()) and all(
        lane == (0, {}, {}) for lane in lanes
    )


def test_a_call_is_asked_for_granted_answered_and_settled_once() -> None:
    book = _book()
    _ask(book, 1, 1)
    verdict = book.decide(0.0)
    assert (_granted(verdict), verdict.denials, verdict.wake_s) == ([1], (), inf)
    _ask(book, 1)
    assert book.decide(0.0) == AdmissionDecision((), (), inf)
    assert book.leave(("ann", 1), 0.0) == ""
    book.first_byte(("ann", 1), Reading(), "anthropic", 1.0)
    book.progress(("ann", 1), 100.0, 2.0)
    assert book.settle(("ann", 1), CallOutcome("used", WHOLE), 3.0)
    assert not book.settle(("ann", 1), CallOutcome("used", WHOLE), 3.0)
    assert _money(book) == (1200.0, 0.0)
    assert _is_clean(book)


def test_what_is_said_of_a_call_that_is_not_in_flight_means_nothing() -> None:
    book = _book(AccountTerms((ONE_AT_ONCE,)))
    _ask(book, 1, 2)
    book.decide(0.0)
    for call in (("ann", 2), ("nobody", 1)):
        book.first_byte(call, Reading(), "anthropic", 0.0)
        book.progress(call, 100.0, 0.0)
        assert not book.settle(call, CallOutcome("used"), 0.0)
    assert book.leave(("nobody", 1), 0.0) == ""


def test_whoever_leaves_is_told_what_it_waited_for() -> None:
    book = _book(AccountTerms((ONE_AT_ONCE, Limit("requests", 2.0, kind="sliding"))))
    _ask(book, 1, 2, 3)
    assert book.leave(("ann", 3), 0.0) == "its turn"
    _ask(book, 3)
    book.decide(0.0)
    told = book.leave(("ann", 2), 1.0)
    assert told == "concurrency (1 in flight; until a call ends; 1 waiting)"
    book.settle(("ann", 1), CallOutcome("used", WHOLE), 1.0)
    assert _granted(book.decide(1.0)) == [3]
    book.settle(("ann", 3), CallOutcome("used", WHOLE), 1.0)
    _ask(book, 4, now=1.0)
    assert book.decide(1.0).wake_s == pytest.approx(60.0, abs=0.1)
    assert book.leave(("ann", 4), 10.0) == "requests/60s (refilling; 50.1 s; 0 waiting)"
    assert _is_clean(book)


def test_a_dead_client_is_settled_at_once_at_the_most_it_can_have_cost() -> None:
    book = _book(AccountTerms((ONE_AT_ONCE,)))
    _ask(book, 1, 2)
    book.ask(_request(3, client="bob"), 0.0)
    book.decide(0.0)
    assert book.gone("ann", 1.0) == 1
    assert _granted(book.decide(1.0)) == [3]
    assert _money(book) == pytest.approx((CLAIMED, CLAIMED))
    assert book.gone("ann", 1.0) == 0
    assert book.gone("bob", 1.0) == 1
    assert _is_clean(book)


def test_a_budget_is_never_exceeded_and_says_so() -> None:
    book = _book(AccountTerms(MANY_AT_ONCE.limits, budget=MonthlyBudget(tokens=2.3 * CLAIMED)))
    _ask(book, 1, 2, 3)
    assert (_granted(book.decide(0.0)), _parked(book)) == ([1, 2], 1)
    assert book.settle(("ann", 1), CallOutcome("used", WHOLE), 1.0)
    assert _granted(book.decide(1.0)) == [3]
    for number in (2, 3):
        book.settle(("ann", number), CallOutcome("used", Tally(9.0, 0.0, 9.0, "estimated")), 1.0)
    _ask(book, 4, now=1.0)
    verdict = book.decide(1.0)
    assert _denied(verdict) == [(4, "HW205")]
    assert verdict.denials[0].message.endswith("a call of up to 5,100 tokens, $0.0273")
    assert _is_clean(book)


def test_a_call_without_a_price_is_measured_in_tokens() -> None:
    book = _book(AccountTerms(budget=MonthlyBudget(tokens=100.0)))
    book.ask(_request(1, model="new"), 0.0)
    (denied,) = book.decide(0.0).denials
    assert denied.message.endswith("a call of up to 5,100 tokens")
    assert "headway limits" in denied.hint


@pytest.mark.parametrize("key", ["one", EVERY_ACCOUNT])
def test_with_a_budget_in_money_a_call_has_to_have_a_ceiling(key: str) -> None:
    book = _book()
    book.configure(key, AccountTerms(budget=MonthlyBudget(microusd=10**9)), 0.0)
    book.ask(_request(1, model="new"), 0.0)
    book.ask(_request(2, most=None), 0.0)
    book.ask(_request(3), 0.0)
    verdict = book.decide(0.0)
    assert (_granted(verdict), _denied(verdict)) == ([3], [(1, "HW205"), (2, "HW205")])
    assert "known price" in verdict.denials[0].hint
    assert "max_tokens" in verdict.denials[1].hint


def test_with_a_budget_in_tokens_a_call_has_to_limit_its_answer() -> None:
    book = _book(AccountTerms(MANY_AT_ONCE.limits, budget=MonthlyBudget(tokens=10.0**9)))
    book.ask(_request(1, most=None), 0.0)
    book.ask(replace(_request(2, most=None), is_soft=True), 0.0)
    verdict = book.decide(0.0)
    assert (_granted(verdict), _denied(verdict)) == ([2], [(1, "HW205")])


def test_a_budget_in_money_counts_what_is_in_flight_when_it_is_set() -> None:
    prices: list[Price] = []
    book = Book(PacingMemory(), lambda *_: prices[0] if prices else None, 0.0)
    _ask(book, 1)
    book.decide(0.0)
    prices.append(PRICE)
    book.configure("one", AccountTerms(budget=MonthlyBudget(microusd=10**9)), 1.0)
    ledger = dict(book.purse.ledgers())["one"]
    assert ledger.claimed == Spend(CLAIMED, 4100 * 3 + 1000 * 15)


def test_calls_wait_for_a_budget_in_order_of_arrival() -> None:
    book = _book(AccountTerms(MANY_AT_ONCE.limits, budget=MonthlyBudget(tokens=1.3 * CLAIMED)))
    _ask(book, 1, 2)
    small = Sketch("model", size_bytes=10, most_input_tokens=110, max_output_tokens=10)
    book.ask(replace(_request(3), sketch=small), 0.0)
    assert _granted(book.decide(0.0)) == [1]
    assert book.leave(("ann", 2), 1.0) == BUDGETED
    assert _granted(book.decide(1.0)) == [3]
    book.settle(("ann", 3), CallOutcome("unused"), 2.0)
    _ask(book, 4, 5, now=2.0)
    book.settle(("ann", 1), CallOutcome("used", WHOLE), 3.0)
    assert _granted(book.decide(3.0)) == [4]
    book.settle(("ann", 4), CallOutcome("used", WHOLE), 4.0)
    assert _denied(book.decide(4.0)) == [(5, "HW205")]
    assert _is_clean(book)


def test_a_call_that_never_ran_costs_nothing() -> None:
    book = _book()
    _ask(book, 1, 2)
    book.decide(0.0)
    book.settle(("ann", 1), CallOutcome("unused"), 1.0)
    book.settle(("ann", 2), CallOutcome("throttled", fault=Fault("rate", retry_after_s=1.0)), 1.0)
    assert _money(book) == (0.0, 0.0)


def test_an_unknown_end_costs_what_was_kept_whatever_was_learned_since() -> None:
    book = _book()
    _ask(book, 1, 2)
    book.decide(0.0)
    book.settle(("ann", 2), CallOutcome("used", Tally(9000.0, 0.0, 200.0)), 1.0)
    book.settle(("ann", 1), CallOutcome("used"), 1.0)
    assert _money(book)[0] == pytest.approx(9200.0 + CLAIMED)


def test_a_budget_that_is_lowered_stops_those_in_line() -> None:
    book = _book(AccountTerms((ONE_AT_ONCE,)))
    _ask(book, 1, 2, 3, 4)
    book.decide(0.0)
    tight = AccountTerms((ONE_AT_ONCE,), budget=MonthlyBudget(tokens=2.5 * CLAIMED))
    book.configure("one", tight, 1.0)
    assert _parked(book) == 2
    assert _money(book)[1] == pytest.approx(2 * CLAIMED)
    book.configure("one", tight, 1.0)
    nothing = AccountTerms((ONE_AT_ONCE,), budget=MonthlyBudget(tokens=0.0))
    book.configure("one", nothing, 1.0)
    verdict = book.decide(1.0)
    assert _denied(verdict) == [(2, "HW205"), (3, "HW205"), (4, "HW205")]
    book.settle(("ann", 1), CallOutcome("used", WHOLE), 2.0)
    assert _is_clean(book)


def test_a_new_month_lets_calls_go_again() -> None:
    book = _book(AccountTerms(budget=MonthlyBudget(tokens=1.5 * CLAIMED)))
    _ask(book, 1)
    book.decide(0.0)
    book.settle(("ann", 1), CallOutcome("used"), 1.0)
    book.purse.turn("2026-12")
    _ask(book, 2, now=1.0)
    assert _granted(book.decide(1.0)) == [2]


def test_a_denied_call_may_leave_before_it_is_told() -> None:
    book = _book(AccountTerms(budget=MonthlyBudget(tokens=0.0)))
    _ask(book, 1, 2)
    assert book.leave(("ann", 1), 0.0).startswith("this month's budget has no room")
    book.gone("ann", 0.0)
    assert book.decide(0.0) == AdmissionDecision((), (), inf)
    assert _is_clean(book)


def test_a_closed_account_denies_everybody_and_is_asked_again_later() -> None:
    book = _book(AccountTerms((ONE_AT_ONCE,)))
    _ask(book, 1, *range(10, 60))
    book.decide(0.0)
    closed = Fault("billing", detail="no credit")
    book.settle(("ann", 1), CallOutcome("throttled", fault=closed), 1.0)
    verdict = book.decide(1.0)
    assert (len(verdict.denials), {code for _, code in _denied(verdict)}) == (50, {"HW206"})
    assert verdict.denials[0].message == "one takes no calls: billing: no credit"
    _ask(book, 2, now=30.0)
    assert _denied(book.decide(30.0)) == [(2, "HW206")]
    _ask(book, 3, now=31.0)
    assert _granted(book.decide(31.0)) == [3]


def test_a_call_for_which_there_will_never_be_enough_is_denied_by_itself() -> None:
    spend = Limit("spend", 15_000.0, kind="gauge")
    book = _book(AccountTerms((spend,)))
    _ask(book, 1)
    book.ask(_request(2, most=10), 0.0)
    verdict = book.decide(0.0)
    assert (_granted(verdict), _denied(verdict)) == ([2], [(1, "HW201")])
    assert verdict.denials[0].message == "spend leaves too little for this call, for good"


def test_a_call_for_which_nothing_is_left_is_denied_when_nothing_can_come_back() -> None:
    book = _book(AccountTerms((Limit("spend", 30_000.0, kind="gauge"),)))
    _ask(book, 1, 2)
    assert _granted(book.decide(0.0)) == [1]
    assert book.decide(1.0) == AdmissionDecision((), (), inf)
    book.settle(("ann", 1), CallOutcome("used", WHOLE), 2.0)
    verdict = book.decide(2.0)
    assert _denied(verdict) == [(2, "HW201")]
    assert _is_clean(book)


def test_what_a_denied_call_had_kept_lets_another_one_go_in_the_same_decision() -> None:
    book = _book(AccountTerms(share=0.0))
    book.configure(EVERY_ACCOUNT, AccountTerms(budget=MonthlyBudget(tokens=1.5 * CLAIMED)), 0.0)
    _ask(book, 1)
    book.ask(_request(2, account="two"), 0.0)
    assert _parked(book) == 1
    verdict = book.decide(0.0)
    assert (_granted(verdict), _denied(verdict)) == ([2], [(1, "HW206")])


def test_followers_wait_for_the_first_byte_of_their_leader() -> None:
    book = _book()
    _ask(book, 1, 2, 3, prefix="p")
    book.ask(_request(4, prefix="other"), 0.0)
    verdict = book.decide(0.0)
    assert (_granted(verdict), verdict.wake_s) == ([1, 4], LEADER_S_MAX)
    assert book.leave(("ann", 3), 0.5) == FOLLOWS
    book.first_byte(("ann", 1), Reading(), "anthropic", 1.0)
    assert _granted(book.decide(1.0)) == [2]
    for number in (1, 2, 4):
        book.settle(("ann", number), CallOutcome("used", WHOLE), 2.0)
    assert _is_clean(book)


def test_a_beginning_leads_again_when_the_cache_has_forgotten_it() -> None:
    book = _book()
    _ask(book, 1, prefix="p")
    book.decide(0.0)
    book.first_byte(("ann", 1), Reading(), "anthropic", 1.0)
    assert book.settle(("ann", 1), CallOutcome("used", WHOLE), 2.0)
    for now, granted in ((WARM_S, [2, 3]), (1.0 + WARM_S, [4])):
        _ask(book, *range(granted[0], granted[0] + 2), now=now, prefix="p")
        assert _granted(book.decide(now)) == granted


def test_followers_do_not_wait_for_ever() -> None:
    book = _book(AccountTerms((ONE_AT_ONCE,)))
    _ask(book, 9)
    book.decide(0.0)
    _ask(book, 1, 2, prefix="p")
    assert book.decide(0.0).wake_s == FOLLOWER_S_MAX
    assert _parked(book) == 1
    book.decide(FOLLOWER_S_MAX)
    assert _parked(book) == 0


@pytest.mark.parametrize("how", ["left", "unused", "died", "denied", "unpaid"])
def test_a_leader_that_ends_without_an_answer_makes_the_next_one_lead(how: str) -> None:
    book = _book()
    book.ask(_request(1, "p", client="bob"), 0.0)
    _ask(book, 2, 3, prefix="p")
    if how == "left":
        book.leave(("bob", 1), 0.0)
    elif how == "died":
        book.decide(0.0)
        book.gone("bob", 0.0)
    elif how == "unused":
        book.decide(0.0)
        book.settle(("bob", 1), CallOutcome("unused"), 0.0)
    elif how == "denied":
        small = AccountTerms((Limit("spend", 15_000.0, kind="gauge"),))
        book.configure("one", small, 0.0)
        assert _denied(book.decide(0.0)) == [(1, "HW201"), (2, "HW201"), (3, "HW201")]
        assert _is_clean(book)
        return
    else:
        book.configure("one", AccountTerms(budget=MonthlyBudget(tokens=0.0)), 0.0)
        assert len(book.decide(0.0).denials) == 3
        assert _is_clean(book)
        return
    verdict = book.decide(0.0)
    assert (_granted(verdict), verdict.wake_s) == ([2], LEADER_S_MAX)


def test_a_broker_goes_on_where_the_last_one_stopped() -> None:
    terms = AccountTerms(
        (Limit("requests", 4.0, kind="sliding"),), budget=MonthlyBudget(tokens=1e6)
    )
    book = _book(terms)
    book.purse.turn("2026-11")
    _ask(book, 1, 2, 3)
    book.decide(0.0)
    book.settle(("ann", 1), CallOutcome("used", WHOLE), 1.0)
    _ask(book, 4, 5, now=1.0)
    assert _granted(book.decide(1.0)) == [4]
    memory = book.memory(1.0)
    assert (memory.month, {claim.id[1] for claim in memory.claims}) == ("2026-11", {2, 3, 4})
    heir = Book(memory, lambda *_: PRICE, 3.0, age_s=2.0)
    for _ in range(2):
        heir.adopt(_request(2), 3.0, 3.0)
        heir.adopt(_request(3), 3.0, 3.0)
        heir.ask(_request(5), 3.0)
    assert heir.decide(3.0).grants == ()
    assert next(iter(heir.lanes)).quota.in_flight == 2
    assert heir.settle(("ann", 2), CallOutcome("used", WHOLE), 4.0)
    # Nobody came back for the fourth: it was paid.
    assert heir.decide(3.0 + CLAIM_S).grants == ()
    assert _money(heir) == pytest.approx((2400.0 + CLAIMED, 2 * CLAIMED), rel=0.01)
    assert heir.settle(("ann", 3), CallOutcome("unused"), 14.0)
    assert _granted(heir.decide(14.0)) == [5]


def test_a_grant_that_nobody_heard_of_is_not_in_its_own_way() -> None:
    terms = (("one", AccountTerms(budget=MonthlyBudget(tokens=CLAIMED + 1))),)
    claims = (Claim(("ann", 1), "one", Spend(CLAIMED)),)
    book = _book(memory=PacingMemory(terms=terms, claims=claims))
    _ask(book, 1)
    assert _granted(book.decide(0.0)) == [1]
    assert _money(book)[1] == pytest.approx(CLAIMED)


def test_an_adopted_call_keeps_its_claim_and_pays_it_if_nothing_is_known() -> None:
    claims = (Claim(("ann", 1), "one", Spend(77.0, 5)),)
    book = _book(memory=PacingMemory(claims=claims))
    book.adopt(_request(1), 1.0, 0.0)
    assert _money(book) == (0.0, 77.0)
    book.gone("ann", 1.0)
    assert _money(book) == (77.0, 0.0)


def test_headers_teach_limits_and_dialects() -> None:
    book = Book(PacingMemory(), lambda *_: None, 0.0)
    book.ask(Request(("ann", 1), "one", "", Sketch("model")), 0.0)
    book.decide(0.0)
    told = Reading((LimitReading("requests", 60.0, 50.0, 49.0, 1.2),))
    book.first_byte(("ann", 1), told, "cerebras", 1.0)
    (lane,) = book.lanes
    assert lane.dialect.name == "cerebras"
    assert [one.balance.limit.name for one in lane.quota.belief.mirrors] == ["requests/60s"]
    refused = Reading((LimitReading("input", 60.0, 900.0, 0.0, 1.0),))
    fault = Fault("rate", "input", 1.0)
    book.settle(("ann", 1), CallOutcome("throttled", Tally(), fault, refused, "anthropic"), 2.0)
    assert (lane.dialect.name, lane.quota.refused) == ("anthropic", 1)
    assert len(lane.quota.belief.mirrors) == 2


def test_an_answer_that_broke_off_teaches_no_length() -> None:
    book = _book()
    _ask(book, 1, 2)
    book.decide(0.0)
    book.settle(("ann", 1), CallOutcome("used", WHOLE, Fault("broken")), 1.0)
    assert not book._estimates._inputs._ratios
    book.settle(("ann", 2), CallOutcome("used", WHOLE), 1.0)
    assert len(book._estimates._inputs._ratios) == 1
