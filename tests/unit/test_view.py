"""What a person is told of their accounts."""

from __future__ import annotations

from headway.base.values import Limit, LimitReading, Reading, Sketch, Tally
from headway.pacing.admission import Book, CallerView, CallOutcome, LimitView, describe
from headway.pacing.lane import Request
from headway.pacing.memory import AccountTerms, MonthlyBudget, PacingMemory


def _book() -> Book:
    book = Book(PacingMemory(month="2026-11"), lambda *_: None, 0.0)
    limits = (
        Limit("concurrency", 2.0, kind="gauge"),
        Limit("requests", 5.0, kind="sliding"),
    )
    book.configure("one", AccountTerms(limits, 1.0, "smooth", MonthlyBudget(tokens=1e6)), 0.0)
    for client, number in (("bob", 1), ("ann", 2), ("ann", 3), ("eve", 4)):
        sketch = Sketch("model", size_bytes=400, max_output_tokens=100)
        book.ask(Request((client, number), "one", "anthropic", sketch), 0.0)
    book.decide(0.0)
    return book


def test_a_view_says_who_calls_who_waits_and_what_for() -> None:
    view = describe(_book(), 1.0)
    (lane,) = view.lanes
    assert (lane.account, lane.group, lane.dialect) == ("one", "model", "anthropic")
    assert (lane.share, lane.pace, lane.width) == (1.0, "smooth", 2.0)
    assert (lane.in_flight, lane.granted, lane.refused) == (2, 2, 0)
    assert lane.waits_for == "concurrency: 2 in flight"
    assert lane.callers == (
        CallerView("ann", 1, 1),
        CallerView("bob", 1, 0),
        CallerView("eve", 0, 1),
    )
    assert (view.month, [key for key, _ in view.terms]) == ("2026-11", ["one"])
    assert dict(view.ledgers)["one"].budget == MonthlyBudget(tokens=1e6)


def test_a_view_says_how_much_of_each_limit_is_used_and_how_old_that_is() -> None:
    book = _book()
    told = Reading((LimitReading("input", 60.0, 600.0, 500.0, 10.0),))
    book.first_byte(("bob", 1), told, "anthropic", 1.0)
    (lane,) = describe(book, 4.0).lanes
    requests, found = lane.limits
    assert requests == LimitView(Limit("requests", 5.0, kind="sliding"), 2.0, None, 0.0)
    assert (found.limit.name, found.limit.source, found.age_s) == ("input/60s", "header", 4.0)
    assert found.used >= 0.0


def test_a_view_of_a_quiet_account_waits_for_nothing() -> None:
    book = _book()
    for client, number in (("ann", 3), ("eve", 4)):
        book.leave((client, number), 1.0)
    for client, number in (("bob", 1), ("ann", 2)):
        book.settle((client, number), CallOutcome("used", Tally(10.0, 0.0, 1.0)), 1.0)
    book.decide(2.0)
    (lane,) = describe(book, 2.0).lanes
    assert (lane.waits_for, lane.callers, lane.in_flight) == ("", (), 0)
