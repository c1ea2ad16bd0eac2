"""A desk hears a batch, decides once, answers everybody, and forgets nothing."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import pytest

from headway.broker import desk as desks
from headway.broker import protocol
from headway.broker.desk import NOTICES_MAX, Desk, Ways, budgets, counts_towards, parts
from headway.errors import WireError
from headway.pacing.admission import BookView, CallOutcome, Granted, LaneView
from headway.pacing.budget import Cut
from headway.pacing.lane import Request
from headway.pacing.memory import (
    DAYS_KEPT,
    AccountTerms,
    Chronicle,
    DaySpend,
    MonthlyBudget,
    ObservedAnswer,
    PacingMemory,
)
from tests.unit.paper_book import CALL, PERMIT, PaperBook

BUDGET = AccountTerms(budget=MonthlyBudget(microusd=1_000_000))
USED = CallOutcome("used")


@dataclass
class World:
    """A desk with everything around it: a clock that is set, a post that is read."""

    book: PaperBook
    now: float = 0.0
    post: list[tuple[str, protocol.FromBroker]] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    disk_fault: str = ""

    def __post_init__(self) -> None:
        ways = Ways(
            lambda: self.now, lambda *sent: self.post.append(sent), self.keep, self.log.append
        )
        self.desk = Desk(self.book, ways, stall_s=600.0)

    def keep(self) -> str:
        self.kept.append(len(self.post))
        return self.disk_fault

    def fetch(self) -> list[tuple[str, protocol.FromBroker]]:
        post, self.post = self.post, []
        return post


def request(client: str, number: int) -> Request:
    return Request((client, number), CALL.account, CALL.dialect, CALL.sketch)


def ask(client: str, number: int) -> protocol.AskMessage:
    return protocol.AskMessage(request(client, number))


def world(places: int = 1, memory: PacingMemory = PacingMemory()) -> World:
    return World(PaperBook(places, memory))


def test_a_batch_is_heard_before_one_decision_is_made() -> None:
    here = world(places=2)
    for number in range(1, 4):
        here.desk.handle("a", ask("a", number))
    assert here.book.decisions == 0
    here.desk.tick()
    assert here.book.decisions == 1
    assert here.fetch() == [("a", Granted(("a", 1), PERMIT)), ("a", Granted(("a", 2), PERMIT))]
    here.desk.handle("a", protocol.Settled(1, USED))
    here.desk.tick()
    assert here.fetch() == [("a", Granted(("a", 3), PERMIT))]


def test_saying_something_twice_is_saying_it_once() -> None:
    here = world()
    for _ in range(2):
        here.desk.handle("a", ask("a", 1))
        here.desk.tick()
        here.desk.handle("a", ask("a", 1))
        here.desk.handle("a", protocol.Adopt(request("a", 1), 3.0))
        here.desk.tick()
    here.desk.handle("a", protocol.Settled(1, USED))
    here.desk.handle("a", protocol.Settled(1, USED))
    assert here.book.told == [("ask", ("a", 1)), ("settle", ("a", 1), "used")]


def test_a_permit_that_is_silent_for_long_is_settled() -> None:
    here = world()
    here.desk.handle("a", ask("a", 1))
    here.desk.handle("a", ask("a", 2))
    here.desk.tick()
    here.fetch()
    assert here.desk.wake_s == 600.0
    for moment, sign in ((500.0, protocol.Alive(1)), (1000.0, protocol.Progressed(1, 2.0))):
        here.now = moment
        here.desk.handle("a", sign)
        here.desk.tick()
        assert here.desk.wake_s == moment + 600.0
    here.now = 1599.0
    here.desk.tick()
    assert here.fetch() == []
    here.now = 1600.0
    here.desk.tick()
    assert here.fetch() == [("a", Granted(("a", 2), PERMIT))]
    assert here.log == ["call 1 of a was silent for 600 s"]
    here.desk.handle("a", protocol.Settled(1, USED))


def test_money_is_on_the_disk_before_a_call_may_spend_it_and_after_it_did() -> None:
    here = world(memory=PacingMemory(terms=((CALL.account, BUDGET),)))
    here.desk.handle("a", ask("a", 1))
    here.desk.tick()
    assert here.kept == [0]
    assert len(here.fetch()) == 1
    here.desk.handle("a", protocol.Settled(1, USED))
    here.desk.tick()
    here.desk.tick()
    assert len(here.kept) == 2


@pytest.mark.parametrize(("has_budget", "tokens", "kept"), [
    (True, 300.0, 1), (True, 299.0, 0), (False, 300.0, 0),
])  # fmt: skip
def test_more_money_for_an_answer_is_on_the_disk_with_the_next_decision(
    has_budget: bool, tokens: float, kept: int
) -> None:
    here = world()
    here.desk.handle(
        "a", protocol.Configure(CALL.account, BUDGET if has_budget else AccountTerms())
    )
    here.desk.handle("a", ask("a", 1))
    here.desk.tick()
    here.kept.clear()
    here.book.grows_at = 300.0
    here.desk.handle("a", protocol.Progressed(1, tokens))
    here.desk.tick()
    here.desk.tick()
    assert len(here.kept) == kept
    here.desk.handle("a", protocol.Progressed(99, 300.0))
    here.desk.tick()
    assert len(here.kept) == kept


def test_an_answer_goes_on_when_more_money_for_it_cannot_be_kept() -> None:
    here = world()
    here.desk.handle("a", protocol.Configure(CALL.account, BUDGET))
    here.desk.handle("a", ask("a", 1))
    here.desk.tick()
    here.fetch()
    here.disk_fault, here.book.grows_at = "No space left on device", 300.0
    here.kept.clear()
    here.desk.handle("a", protocol.Progressed(1, 300.0))
    for _ in range(2):
        here.desk.tick()
    assert (len(here.kept), here.fetch()) == (2, [])


def test_a_call_to_be_cut_is_told_so() -> None:
    here = world()
    here.desk.handle("a", ask("a", 1))
    here.desk.tick()
    here.fetch()
    cut = Cut(("a", 1), "too long", "raise it")
    here.book.cuts = (cut,)
    here.desk.tick()
    here.desk.tick()
    assert here.fetch() == [("a", cut)]


@pytest.mark.parametrize(
    ("name", "counts"), [("", True), ("one#1", True), ("one#1/model", True), ("one#12", False)]
)
def test_a_budget_is_for_an_account_a_group_of_it_or_all(name: str, counts: bool) -> None:
    names = budgets(
        [(name, AccountTerms(budget=MonthlyBudget(tokens=5.0))), ("one#1", AccountTerms())]
    )
    assert names == {name}
    assert counts_towards("one#1", names) is counts
    assert not counts_towards("one#1", frozenset())


def test_one_client_cannot_fill_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desks, "WAITING_MAX", 2)
    here = world(places=0)
    here.desk.handle("a", ask("a", 1))
    here.desk.handle("a", ask("a", 2))
    here.desk.handle("b", ask("b", 1))
    with pytest.raises(WireError, match="no more can"):
        here.desk.handle("a", ask("a", 3))


def test_whoever_asks_is_told_who_is_there_and_what_to_know() -> None:
    here = world()
    here.desk.handle("a", protocol.Hello(protocol.VERSION, "a", 42, "review.py"))
    here.desk.notice("mind the gap")
    here.desk.notice("mind the gap")
    here.now = 5.0
    here.desk.handle("a", protocol.Describe(9))
    (_, part), (_, last) = here.fetch()
    assert part == protocol.Described(9, BookView("", (), (), ()))
    assert last == protocol.Described(
        9, about=protocol.About(os.getpid(), 5.0, (("a", "review.py [42]"),), ("mind the gap",))
    )
    assert here.log == ["mind the gap"]


def test_days_of_many_accounts_are_told_in_parts_that_fit_on_a_line() -> None:
    days = tuple(DaySpend(f"2026-11-{day:02}", 123456.789, 10**9) for day in range(1, DAYS_KEPT))
    many = tuple((f"api.example.com#{number:08}", days) for number in range(25))
    told = list(parts(BookView("2026-11", (), (), (), "2026-11-16", 9, many)))
    assert sum((part.days for part in told), ()) == many
    assert {(part.date, part.hour) for part in told} == {("2026-11-16", 9)}
    assert (
        max(len(protocol.line_of(protocol.Described(1, part))) for part in told)
        < protocol.LINE_BYTES_MAX / 2
    )


def test_a_busy_account_fits_on_a_line() -> None:
    chronicle = Chronicle()
    for minute in range(24 * 60):
        chronicle.turn(minute // 60, 60.0 * minute)
        for _ in range(5):
            chronicle.answered(
                ObservedAnswer(123456.0, 9999.0, 1.0 / 3.0, 7.0, 64, 0.123), 60.0 * minute
            )
    memory = chronicle.memory(24 * 3600.0)
    lane = LaneView("one", "model", "", 1.0, "fast", (), 4.0, 0, 0, 0, "", (), memory)
    (_, part) = parts(BookView("2026-11", (lane,), (), ()))
    assert len(protocol.line_of(protocol.Described(1, part))) < protocol.LINE_BYTES_MAX / 2


def test_notices_are_bounded() -> None:
    here = world()
    for number in range(NOTICES_MAX + 5):
        here.desk.notice(f"{number}")
    assert len(here.desk.notices) == NOTICES_MAX
