"""Soft claims: kept at what is expected, raised as an answer grows, cut where there is no room."""

from __future__ import annotations

from math import inf

import pytest

from headway.base.values import Fault, Limit, Sketch, Tally
from headway.pacing.admission import AdmissionDecision, Book, CallOutcome
from headway.pacing.budget import (
    CLAIM_S,
    STEP_SHARE,
    STEP_TOKENS,
    MonthlyBudgets,
    claim_in,
    named,
    no_room,
)
from headway.pacing.estimate import Price
from headway.pacing.lane import Request
from headway.pacing.length import OUTPUT_TOKENS_PRIOR
from headway.pacing.memory import EVERY_ACCOUNT, AccountTerms, MonthlyBudget, PacingMemory, Spend

PRICE = Price(3_000_000, 15_000_000)
INPUT = 1.2 * 1004.0
"""What the input of a call of `_request` takes, in doubt."""

MOST_INPUT = 4100
EXPECTED = INPUT + OUTPUT_TOKENS_PRIOR
ABSURD = 128_000


def _request(
    number: int, most: int | None = ABSURD, model: str = "model", is_soft: bool = True
) -> Request:
    sketch = Sketch(model, size_bytes=4000, most_input_tokens=MOST_INPUT, max_output_tokens=most)
    return Request(("ann", number), "one", "anthropic", sketch, is_soft=is_soft)


def _book(
    budget: MonthlyBudget = MonthlyBudget(), *asking: Request, memory: PacingMemory = PacingMemory()
) -> Book:
    book = Book(memory, lambda model, _: PRICE if model == "model" else None, 0.0)
    book.configure(EVERY_ACCOUNT, AccountTerms(budget=budget), 0.0)
    for request in asking:
        book.ask(request, 0.0)
    return book


def _money(book: Book) -> tuple[float, float]:
    ledger = dict(book.purse.ledgers())[EVERY_ACCOUNT]
    return ledger.spent.tokens, ledger.claimed.tokens


def _cuts(verdict: AdmissionDecision) -> list[int]:
    return [cut.id[1] for cut in verdict.cuts]


def test_calls_with_absurd_ceilings_run_side_by_side_under_a_small_budget() -> None:
    many = AccountTerms((Limit("concurrency", 100.0, kind="gauge"),))
    for is_soft, at_once in ((True, 22), (False, 1)):
        book = _book(MonthlyBudget(tokens=200_000.0))
        book.configure("one", many, 0.0)
        for number in range(22):
            book.ask(_request(number, is_soft=is_soft), 0.0)
        assert len(book.decide(0.0).grants) == at_once
        claimed = EXPECTED if is_soft else MOST_INPUT + ABSURD
        assert _money(book)[1] == pytest.approx(at_once * claimed)


def test_a_claim_is_raised_ahead_of_the_answer_in_growing_steps() -> None:
    book = _book(MonthlyBudget(tokens=200_000.0), _request(1))
    book.decide(0.0)
    assert not book.progress(("ann", 1), OUTPUT_TOKENS_PRIOR, 1.0)
    assert book.progress(("ann", 1), OUTPUT_TOKENS_PRIOR + 1.0, 2.0)
    assert _money(book)[1] == pytest.approx(EXPECTED + 1.0 + STEP_TOKENS)
    assert not book.progress(("ann", 1), OUTPUT_TOKENS_PRIOR + STEP_TOKENS, 3.0)
    assert book.progress(("ann", 1), 2000.0, 4.0)
    assert _money(book)[1] == pytest.approx(INPUT + 2000.0 * (1.0 + STEP_SHARE))
    assert book.decide(4.0) == AdmissionDecision((), (), inf)


def test_a_claim_is_never_raised_beyond_the_longest_answer() -> None:
    book = _book(MonthlyBudget(tokens=INPUT + 600.0), _request(1, most=600))
    book.decide(0.0)
    for tokens in (510.0, 590.0, 600.0):
        book.progress(("ann", 1), tokens, tokens)
        assert _money(book)[1] == pytest.approx(INPUT + 600.0)
    assert book.decide(600.0).cuts == ()


def test_a_claim_is_raised_by_a_small_step_where_a_large_one_does_not_fit() -> None:
    book = _book(MonthlyBudget(tokens=INPUT + 2300.0), _request(1))
    book.decide(0.0)
    assert book.progress(("ann", 1), 2000.0, 1.0)
    assert _money(book)[1] == pytest.approx(INPUT + 2000.0 + STEP_TOKENS)
    assert book.decide(1.0).cuts == ()


def test_an_answer_that_the_budget_has_no_room_for_is_cut_once_and_owed() -> None:
    book = _book(MonthlyBudget(tokens=INPUT + 2300.0), _request(1, most=None))
    book.decide(0.0)
    book.progress(("ann", 1), 2100.0, 1.0)
    (cut,) = book.decide(1.0).cuts
    assert (cut.id, cut.message) == (
        ("ann", 1),
        "this month's budget has no room for more of this answer, which was ended at 2,100 tokens",
    )
    assert "3,505 tokens for all accounts" in cut.hint
    assert "headway limits budget" in cut.hint
    assert _money(book)[1] == pytest.approx(INPUT + 2100.0)
    assert book.progress(("ann", 1), 2400.0, 2.0)
    assert not book.progress(("ann", 1), 2400.0, 2.0)
    assert book.decide(2.0).cuts == ()
    assert _money(book)[1] == pytest.approx(INPUT + 2400.0)
    assert book.settle(
        ("ann", 1), CallOutcome("used", Tally(1004.0, 0.0, 2450.0, "estimated")), 3.0
    )
    assert _money(book) == (3454.0, 0.0)


def test_an_answer_is_cut_where_others_have_claimed_the_rest() -> None:
    book = _book(MonthlyBudget(tokens=2 * EXPECTED + 100.0), _request(1), _request(2))
    assert len(book.decide(0.0).grants) == 2
    book.progress(("ann", 1), 501.0, 1.0)
    assert _cuts(book.decide(1.0)) == [1]
    book.settle(("ann", 2), CallOutcome("used", Tally(1004.0, 0.0, 12.0)), 2.0)
    book.progress(("ann", 1), 700.0, 2.0)
    assert book.decide(2.0).cuts == ()


def test_a_budget_in_money_cuts_too() -> None:
    book = _book(MonthlyBudget(microusd=40_000), _request(1))
    book.decide(0.0)
    book.progress(("ann", 1), 1000.0, 1.0)
    assert book.decide(1.0).cuts == ()
    book.progress(("ann", 1), 2500.0, 2.0)
    (cut,) = book.decide(2.0).cuts
    assert "$0.04 for all accounts" in cut.hint


def test_with_a_budget_in_money_a_soft_call_needs_a_price_only() -> None:
    book = _book(MonthlyBudget(microusd=10**9), _request(1, most=None), _request(2, model="new"))
    verdict = book.decide(0.0)
    assert [grant.id[1] for grant in verdict.grants] == [1]
    (denied,) = verdict.denials
    assert (denied.code, denied.id[1]) == ("HW205", 2)
    assert "max_tokens" not in denied.hint
    assert "known price" in denied.hint


def test_a_soft_call_is_denied_when_what_it_is_expected_to_cost_does_not_fit() -> None:
    book = _book(MonthlyBudget(tokens=EXPECTED - 1.0), _request(1, model="new"))
    (denied,) = book.decide(0.0).denials
    assert denied.message == "this month's budget has no room for a call of about 1,705 tokens"
    assert "1,704 tokens for all accounts" in denied.hint


@pytest.mark.parametrize(
    ("outcome", "spent"),
    [
        (CallOutcome("used", Tally(1000.0, 0.0, 12.0)), 1012.0),
        (CallOutcome("used", Tally(known="unknown"), Fault("broken")), INPUT + 1200.0),
        (CallOutcome("used", Tally(0.0, 0.0, 5000.0, "unknown")), INPUT + 5000.0),
        (CallOutcome("used", Tally(1000.0, 0.0, 900.0, "estimated")), 1900.0),
        (CallOutcome("throttled", fault=Fault("rate")), 0.0),
        (CallOutcome("unused"), 0.0),
    ],
)
def test_a_call_costs_what_it_took_and_in_doubt_what_is_claimed_or_counted(
    outcome: CallOutcome, spent: float
) -> None:
    book = _book(MonthlyBudget(tokens=200_000.0), _request(1))
    book.decide(0.0)
    book.progress(("ann", 1), 800.0, 1.0)
    book.settle(("ann", 1), outcome, 2.0)
    assert _money(book) == pytest.approx((spent, 0.0))


@pytest.mark.parametrize(("told", "spent"), [(3.0, EXPECTED), (4000.0, INPUT + 4000.0)])
def test_a_dead_client_pays_what_was_claimed_and_what_is_known_of_its_answer(
    told: float, spent: float
) -> None:
    book = _book(MonthlyBudget(tokens=EXPECTED + 1.0), _request(1))
    book.decide(0.0)
    book.progress(("ann", 1), told, 1.0)
    assert book.gone("ann", 2.0) == 1
    assert _money(book) == pytest.approx((spent, 0.0))


def test_an_heir_of_the_broker_goes_on_from_what_was_claimed() -> None:
    first = _book(MonthlyBudget(tokens=200_000.0), _request(1), _request(2))
    first.decide(0.0)
    first.progress(("ann", 1), 800.0, 1.0)
    book = _book(MonthlyBudget(tokens=200_000.0), memory=first.memory(1.0))
    book.adopt(_request(1), 1.0, 2.0)
    book.adopt(_request(3), 1.0, 2.0)
    book.decide(CLAIM_S)
    assert _money(book) == pytest.approx((EXPECTED, INPUT + 1200.0 + EXPECTED))
    assert not book.progress(("ann", 1), 1200.0, 3.0)
    assert book.progress(("ann", 1), 1201.0, 3.0)


def test_budgets_are_named_by_amount_and_account() -> None:
    purse = MonthlyBudgets(PacingMemory(), 0.0)
    assert named(purse, "one") == ""
    purse.budget("one", MonthlyBudget(tokens=5000.0))
    purse.budget(EVERY_ACCOUNT, MonthlyBudget(1e6, 12_500_000))
    told = (
        "5,000 tokens for one (5,000 left), 1,000,000 tokens for all accounts (1,000,000 left), "
        "$12.50 for all accounts ($12.5000 left)"
    )
    assert named(purse, "one") == told
    purse.turn("2026-12-31")
    assert named(purse, "one") == f"{told}; the month turns on 2027-01-01"
    assert told in (no_room(told, "a call").hint or "")


@pytest.mark.parametrize(
    ("words", "claim"),
    [
        ("no room for a call of up to 1,705 tokens; it is", Spend(1705.0)),
        ("for a call of about 94 tokens, $0.0123; it", Spend(94.0, 12_300)),
        ("for a call of up to 2,000,000 tokens, $1,234.5000", Spend(2e6, 1_234_500_000)),
        ("no room for more of this answer", None),
    ],
)
def test_what_a_refused_call_would_have_claimed_is_in_its_refusal(
    words: str, claim: Spend | None
) -> None:
    assert claim_in(words) == claim
