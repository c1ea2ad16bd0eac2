"""What happened lately and usually: minutes in whole numbers, hours that fade."""

from __future__ import annotations

import pytest

from headway.base.values import Fault, FaultKind, Limit, LimitReading, Reading, Sketch, Tally
from headway.pacing.admission import Book, CallOutcome, describe
from headway.pacing.lane import Request
from headway.pacing.memory import (
    AccountTerms,
    Chronicle,
    ObservedAnswer,
    PacingMemory,
    Spell,
    hours_of,
    lately,
    total,
    without,
)

ANSWER = ObservedAnswer(1000.0, 100.0, 0.5, 2.0, 4, 0.25)


def test_an_answer_is_told_by_its_tokens_its_speed_and_its_company() -> None:
    chronicle = Chronicle()
    chronicle.answered(ANSWER, 5.0)
    chronicle.answered(ObservedAnswer(500.0, 300.0, 1.5, 3.0, 8), 6.0)
    found = lately(chronicle.memory(7.0), 1)
    assert (found.answered, found.input_tokens, found.output_tokens) == (2, 1500, 400)
    assert found.first_byte_s == pytest.approx(1.0)
    assert found.per_token_s == pytest.approx(5.0 / 400.0)
    assert found.company == pytest.approx(7.0)
    assert found.neighbours == pytest.approx(0.125)


@pytest.mark.parametrize(
    "untimed",
    [ObservedAnswer(10.0, 20.0), ObservedAnswer(10.0, 0.0, None, 3.0)],
    ids=["nobody was there", "nothing came"],
)
def test_an_answer_that_nobody_timed_says_nothing_of_speed(untimed: ObservedAnswer) -> None:
    chronicle = Chronicle()
    chronicle.answered(untimed, 0.0)
    found = lately(chronicle.memory(0.0), 1)
    assert (found.ended, found.first_byte_s, found.per_token_s) == (1, None, None)


@pytest.mark.parametrize(
    ("kind", "column"),
    [("rate", "rate"), ("concurrency", "concurrency"), ("overload", "overload"),
     ("server", "failed"), ("timeout", "failed"), ("broken", "failed"), ("connection", "failed"),
     ("request", "wrong"), ("billing", "wrong"), ("spend_cap", "wrong")],
)  # fmt: skip
def test_whatever_ends_without_an_answer_is_in_one_column(kind: FaultKind, column: str) -> None:
    chronicle = Chronicle()
    chronicle.refused(kind, 0.0)
    found = lately(chronicle.memory(0.0), 1)
    assert found == Spell(**{column: 1})
    assert found.ended == 1
    assert found.refused == (column in ("rate", "concurrency"))


def test_spells_are_added_and_taken_away() -> None:
    one, other = Spell(answered=3, rate=1), Spell(answered=2, overload=1)
    assert total((one, other)) == Spell(answered=5, rate=1, overload=1)
    assert total(()) == Spell()
    assert without(one, other) == Spell(answered=1, rate=1)


def _book(**sketched: object) -> Book:
    """One call under way, whose first byte has come after half a second."""
    book = Book(PacingMemory(), lambda *_: None, 0.0)
    book.lanes.turn(7, 0.0)
    book.configure("", AccountTerms((Limit("requests", 600.0),)), 0.0)
    sketch = Sketch("model", size_bytes=400, max_output_tokens=100, **sketched)  # type: ignore[arg-type]
    book.ask(Request(("ann", 1), "one", "anthropic", sketch), 0.0)
    assert book.decide(0.0).grants
    return book


def _spell(book: Book, now: float) -> Spell:
    (lane,) = describe(book, now).lanes
    return lately(lane.chronicle, 1)


def test_a_book_writes_down_when_an_answer_began_and_how_it_went_on() -> None:
    book = _book()
    book.first_byte(("ann", 1), Reading(), "anthropic", 0.5)
    book.settle(("ann", 1), CallOutcome("used", Tally(90.0, 0.0, 40.0)), 2.5)
    found = _spell(book, 3.0)
    assert (found.answered, found.input_tokens, found.output_tokens) == (1, 90, 40)
    assert (found.first_byte_s, found.per_token_s, found.company) == (0.5, 0.05, 1.0)
    assert describe(book, 3.0).hour == 7
    assert [*hours_of(describe(book, 3.0).lanes[0].chronicle)] == [7]


def test_the_time_of_a_whole_answer_is_divided_as_answers_usually_are() -> None:
    book = _book(is_whole=True)
    book.first_byte(("ann", 1), Reading(), "anthropic", 2.5)
    book.settle(("ann", 1), CallOutcome("used", Tally(90.0, 0.0, 40.0)), 2.5)
    found = _spell(book, 3.0)
    assert found.first_byte_s is not None
    assert found.per_token_s is not None
    assert found.first_byte_s > 0.0
    assert found.first_byte_s + 40 * found.per_token_s == pytest.approx(2.5, abs=1e-5)


@pytest.mark.parametrize(
    "outcome",
    [CallOutcome("used", Tally(known="unknown")), CallOutcome("used", Tally(90.0, 0.0, 0.0))],
    ids=["unknown", "empty"],
)
def test_what_nobody_counted_is_not_timed(outcome: CallOutcome) -> None:
    book = _book(is_whole=True)
    book.settle(("ann", 1), outcome, 2.5)
    assert (_spell(book, 3.0).answered, _spell(book, 3.0).begun) == (1, 0)


def test_an_answer_without_a_first_byte_and_an_adopted_one_are_not_timed() -> None:
    book = _book()
    sketch = Sketch("model", size_bytes=400, max_output_tokens=100)
    book.adopt(Request(("bob", 2), "one", "anthropic", sketch), 5.0, 1.0)
    book.first_byte(("bob", 2), Reading(), "anthropic", 1.5)
    for call in (("ann", 1), ("bob", 2)):
        book.settle(call, CallOutcome("used", Tally(90.0, 0.0, 40.0)), 2.5)
    assert (_spell(book, 3.0).answered, _spell(book, 3.0).begun) == (2, 0)


def test_a_refusal_is_written_down_by_its_kind_and_what_was_never_sent_is_not() -> None:
    for outcome, expected in (
        (CallOutcome("throttled", fault=Fault("rate", "requests", 1.0)), Spell(rate=1)),
        (CallOutcome("throttled", fault=Fault("overload")), Spell(overload=1)),
        (CallOutcome("used", Tally(known="unknown"), Fault("broken")), Spell(failed=1)),
        (CallOutcome("unused"), Spell()),
    ):
        book = _book()
        book.settle(("ann", 1), outcome, 1.0)
        assert _spell(book, 1.0) == expected


def test_what_neighbours_draw_is_a_share_of_the_scarcest_limit() -> None:
    book = _book()
    now = 0.0
    for number in range(2, 40):
        now += 1.0
        left = 600.0 - 8.0 * number
        told = Reading((LimitReading("requests", 60.0, 600.0, left, 1.0),))
        book.first_byte(("ann", number - 1), told, "anthropic", now)
        book.settle(("ann", number - 1), CallOutcome("used", Tally(90.0, 0.0, 4.0)), now)
        book.ask(Request(("ann", number), "one", "anthropic", Sketch("model")), now)
        assert book.decide(now).grants
    assert _spell(book, now).neighbours > 0.1


def test_new_terms_leave_the_chronicle_as_it_is() -> None:
    book = _book()
    book.settle(("ann", 1), CallOutcome("used", Tally(90.0, 0.0, 40.0)), 1.0)
    book.configure("", AccountTerms((Limit("requests", 6.0),)), 2.0)
    assert _spell(book, 3.0).answered == 1
    again = Book(book.memory(3.0), lambda *_: None, 3.0)
    assert again.memory(3.0).lanes[0].chronicle == book.memory(3.0).lanes[0].chronicle


def test_an_hour_that_turns_is_told_to_every_account() -> None:
    book = _book()
    book.lanes.turn(8, 60.0)
    book.settle(("ann", 1), CallOutcome("used", Tally(90.0, 0.0, 40.0)), 61.0)
    assert [*hours_of(describe(book, 61.0).lanes[0].chronicle)] == [8]
