"""What happened lately and usually: minutes in whole numbers, hours that fade."""

from __future__ import annotations

import pytest

from headway.base.values import Amounts, FaultKind, Limit, LimitReading, Reading, Sketch, Tally
from headway.pacing.admission import Admission
from headway.pacing.call import Outcome, Request
from headway.pacing.memory import (
    AccountTerms,
    Chronicle,
    PacingMemory,
    Spell,
    hours_of,
    lately,
    minutes_seen,
    total,
    without,
)  # fmt: skip
from headway.pacing.view import describe

Untimed = tuple[Amounts, None, float | None]
ANSWER = (Amounts(1000.0, 100.0), 0.5, 2.0, 4, 0.25)


def test_an_answer_is_told_by_its_tokens_its_speed_and_its_company() -> None:
    chronicle = Chronicle()
    chronicle.answered(5.0, *ANSWER)
    chronicle.answered(6.0, Amounts(500.0, 300.0), 1.5, 3.0, 8)
    found = lately(chronicle.memory(7.0), 1)
    assert (found.answered, found.input_tokens, found.output_tokens) == (2, 1500, 400)
    assert found.first_byte_s == pytest.approx(1.0)
    assert found.per_token_s == pytest.approx(5.0 / 400.0)
    assert found.company == pytest.approx(7.0)
    assert found.neighbours == pytest.approx(0.125)
    assert [minutes_seen(chronicle.memory(now), 1) for now in (7.0, 60.0)] == [1, 0]


@pytest.mark.parametrize(
    "untimed",
    [(Amounts(10.0, 20.0), None, None), (Amounts(10.0, 0.0), None, 3.0)],
    ids=["nobody was there", "nothing came"],
)
def test_an_answer_that_was_not_timed_says_nothing_of_speed(untimed: Untimed) -> None:
    chronicle = Chronicle()
    chronicle.answered(0.0, *untimed)
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


def test_a_minute_belongs_to_the_hour_in_which_it_began() -> None:
    chronicle = Chronicle()
    chronicle.turn(7, 0.0)
    chronicle.refused("rate", 1.0)
    chronicle.turn(8, 2.0)
    assert list(hours_of(chronicle.memory(3.0))) == [7]


def test_spells_are_added_and_taken_away() -> None:
    one, other = Spell(answered=3, rate=1), Spell(answered=2, overload=1)
    assert total((one, other)) == Spell(answered=5, rate=1, overload=1)
    assert total(()) == Spell()
    assert without(one, other) == Spell(answered=1, rate=1)


def test_what_neighbours_draw_is_a_share_of_the_scarcest_limit() -> None:
    admission = Admission(PacingMemory(), lambda *_: None, 0.0)
    admission.configure("", AccountTerms((Limit("requests", 600.0),)), 0.0)
    admission.ask(("ann", 1), Request("one", "anthropic", Sketch("model")), 0.0)
    assert admission.decide(0.0).grants
    now = 0.0
    for number in range(2, 40):
        now += 1.0
        left = 600.0 - 8.0 * number
        told = Reading((LimitReading("requests", 60.0, 600.0, left, 1.0),))
        admission.first_byte(("ann", number - 1), told, "anthropic", now)
        admission.settle(("ann", number - 1), Outcome("used", Tally(90.0, 0.0, 4.0)), now)
        admission.ask(("ann", number), Request("one", "anthropic", Sketch("model")), now)
        assert admission.decide(now).grants
    (account,) = describe(admission, now).accounts
    assert lately(account.chronicle, 1).neighbours > 0.1
