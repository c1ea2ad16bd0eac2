"""The port within one process: every wait ends in a ticket or an error, every ticket once."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import threading
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from headway.base.values import Fault, Reading, Tally
from headway.broker.client import AdmissionClient, Ticket
from headway.broker.desk import Ways
from headway.client.admission import Admission, DeskLine
from headway.errors import (
    AccountClosedError,
    BrokerUnavailableError,
    BudgetReachedError,
    DemandTooLargeError,
    HeadwayError,
    InternalError,
    QueueDeadlineError,
    StateFileError,
)
from headway.pacing.admission import AdmissionDecision, CallOutcome
from headway.pacing.budget import Cut
from headway.pacing.lane import Request
from headway.pacing.memory import CallId
from tests.unit.paper_book import CALL, PaperBook

USED = CallOutcome("used", Tally(1.0, 0.0, 1.0))
SOON_S = 10.0


def port_to(book: PaperBook) -> Admission:
    return Admission(lambda client: DeskLine(client, book))


def endings(book: PaperBook) -> list[object]:
    return [told[2] for told in book.told if told[0] == "settle"]


def test_a_call_is_admitted_followed_and_settled_once() -> None:
    book = PaperBook()
    port = port_to(book)
    ticket = port.admit(CALL, None)
    ticket.began(Reading(), "anthropic")
    ticket.progressed(5.0)
    ticket.still_alive()
    ticket.settle(USED)
    ticket.settle(CallOutcome("throttled"))
    ticket.progressed(6.0)
    ticket.began(Reading(), "anthropic")
    ticket.still_alive()
    assert [told[0] for told in book.told] == ["ask", "first_byte", "progress", "settle"]
    assert endings(book) == ["used"]
    assert not ticket._open
    assert port.statistics().in_use == 0


def test_who_waits_in_a_thread_is_woken_by_who_settles() -> None:
    book = PaperBook()
    port = port_to(book)
    first = port.admit(CALL, None)
    got: list[Ticket] = []
    thread = threading.Thread(target=lambda: got.append(port.admit(CALL, SOON_S)))
    thread.start()
    while not port.statistics().waiting:
        pass
    first.settle(USED)
    thread.join(SOON_S)
    assert len(got) == 1
    got[0].settle(USED)


def test_who_waits_in_a_loop_is_woken_from_another_thread() -> None:
    book = PaperBook()
    port = port_to(book)
    first = port.admit(CALL, None)

    async def wait() -> Ticket:
        asyncio.get_running_loop().run_in_executor(None, first.settle, USED)
        return await port.admit_async(CALL, SOON_S)

    asyncio.run(wait()).settle(USED)
    assert endings(book) == ["used", "used"]


def test_time_alone_can_admit_a_call() -> None:
    clock = [0.0]

    class Opening(PaperBook):
        """A book that has a place from its second decision on."""

        def decide(self, now: float) -> AdmissionDecision:
            self.wake_s = 0.0
            self.places = int(self.decisions > 0)
            return super().decide(now)

    book = Opening()
    port = Admission(lambda client: DeskLine(client, book, Ways(lambda: clock[0], lambda *_: None)))
    port.admit(CALL, SOON_S).settle(USED)
    assert book.decisions > 1


@pytest.mark.parametrize("deadline_s", [0.0, 0.01])
def test_a_deadline_says_what_the_call_waited_for(deadline_s: float) -> None:
    port = port_to(PaperBook(places=0))
    with pytest.raises(QueueDeadlineError) as raised:
        port.admit(CALL, deadline_s)
    assert raised.value.detail == "waited for a place"
    with pytest.raises(QueueDeadlineError) as raised:
        asyncio.run(port.admit_async(CALL, deadline_s))
    assert raised.value.detail == "waited for a place"
    assert port.statistics().waiting == 0


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("HW201", DemandTooLargeError),
        ("HW205", BudgetReachedError),
        ("HW206", AccountClosedError),
        ("HW208", StateFileError),
        ("HW999", InternalError),
    ],
)
def test_a_denial_is_raised_as_the_error_of_its_code(code: str, kind: type[HeadwayError]) -> None:
    book = PaperBook()
    book.deny[CALL.account] = code
    with pytest.raises(kind):
        port_to(book).admit(CALL, None)


def test_a_ticket_that_is_forgotten_is_settled_by_the_garbage_collector() -> None:
    book = PaperBook()
    port = port_to(book)
    loop: list[object] = [port.admit(CALL, None)]
    loop.append(loop)
    del loop
    gc.collect()
    assert endings(book) == ["used"]
    port.admit(CALL, 0.0).settle(USED)


def test_a_permit_can_be_settled_in_the_middle_of_a_decision() -> None:
    """As a finalizer does, on the very thread that serves the desk."""

    class Interrupted(PaperBook):
        interrupt: Callable[[], None] | None = None

        def ask(self, request: Request, now: float) -> None:
            if self.interrupt is not None:
                self.interrupt()
            super().ask(request, now)

    book = Interrupted(places=1)
    port = port_to(book)
    ticket = port.admit(CALL, None)
    book.interrupt = lambda: ticket.settle(USED)
    port.admit(CALL, SOON_S).settle(USED)
    assert endings(book) == ["used", "used"]


def test_a_cancelled_wait_leaves_the_line() -> None:
    book = PaperBook(places=0)
    port = port_to(book)

    async def cancel() -> None:
        task = asyncio.create_task(port.admit_async(CALL, None))
        while not port.statistics().waiting:
            await asyncio.wait([task], timeout=0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert book.line == []
    assert port.statistics().waiting == 0


def test_a_grant_that_meets_a_cancelled_wait_is_not_used() -> None:
    book = PaperBook()
    port = port_to(book)

    async def cancel() -> None:
        first = await port.admit_async(CALL, None)
        task = asyncio.create_task(port.admit_async(CALL, None))
        while not port.statistics().waiting:
            await asyncio.wait([task], timeout=0.001)
        # Granted, and cancelled before the loop can hand it over.
        first.settle(USED)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert endings(book) == ["used", "unused"]
    assert port.statistics().in_use == 0


def test_a_grant_for_a_loop_that_was_closed_is_not_used() -> None:
    book = PaperBook()
    port = port_to(book)
    first = port.admit(CALL, None)
    loop = asyncio.new_event_loop()
    waiting = port.admit_async(CALL, None)
    future = loop.create_task(waiting)
    loop.run_until_complete(asyncio.wait([future], timeout=0.01))
    loop.close()
    first.settle(USED)
    assert endings(book) == ["used", "unused"]
    with pytest.raises(RuntimeError, match="closed"):
        waiting.throw(RuntimeError("closed"))
    future._log_destroy_pending = False  # type: ignore[attr-defined]


def test_cancellations_at_random_instants_leak_nothing() -> None:
    book = PaperBook(places=3)
    port = port_to(book)
    dice = random.Random(3)

    async def one() -> None:
        ticket = await port.admit_async(CALL, None)
        await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.0005)
        ticket.settle(USED)

    async def storm() -> None:
        tasks = [asyncio.create_task(one()) for _ in range(300)]
        while not all(task.done() for task in tasks):
            await asyncio.wait(tasks, timeout=0.001)
            for task in dice.sample(tasks, 10):
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(storm())
    gc.collect()
    assert book.calling == {}
    assert book.line == []
    assert port.statistics().in_use == port.statistics().waiting == 0


def test_many_threads_get_exactly_the_places_there_are() -> None:
    class Counting(PaperBook):
        most = 0

        def settle(self, call: CallId, outcome: CallOutcome, now: float) -> bool:
            self.most = max(self.most, len(self.calling))
            return super().settle(call, outcome, now)

    book = Counting(places=3)
    port = port_to(book)

    def work() -> None:
        for _ in range(100):
            port.admit(CALL, SOON_S).settle(USED)

    crowd = [threading.Thread(target=work) for _ in range(8)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join(SOON_S)
    assert book.most <= 3
    assert len(endings(book)) == 800


def test_an_interrupt_while_asking_leaves_nothing_behind() -> None:
    class Interrupted(PaperBook):
        def ask(self, request: Request, now: float) -> None:
            raise KeyboardInterrupt

    port = port_to(Interrupted())
    with pytest.raises(KeyboardInterrupt):
        port.admit(CALL, SOON_S)
    assert port.statistics().waiting == 0


def test_a_bug_in_the_book_is_told_to_those_who_wait(caplog: pytest.LogCaptureFixture) -> None:
    class Wrong(PaperBook):
        def decide(self, now: float) -> AdmissionDecision:
            raise ZeroDivisionError("by nothing")

    with pytest.raises(BrokerUnavailableError, match="by nothing"):
        port_to(Wrong()).admit(CALL, SOON_S)
    assert "cannot admit" in caplog.text


def test_a_caller_finds_at_its_ticket_that_its_answer_is_to_be_ended() -> None:
    book = PaperBook(places=2)
    port = port_to(book)
    ticket, other = port.admit(replace(CALL, is_soft=True), None), port.admit(CALL, None)
    asked = [request.is_soft for request in book.calling.values()]
    assert asked == [True, False]
    first = next(iter(book.calling))
    ticket.progressed(5.0)
    assert not ticket.cut
    book.cuts = (Cut(first, "too long", "raise it"),)
    ticket.progressed(6.0)
    cut = ticket.cut
    assert isinstance(cut, BudgetReachedError)
    assert (cut.message, cut.hint) == ("too long", "raise it")
    assert (other.cut, ticket._open) == (None, [True])
    book.cuts = (Cut(first, "again"),)
    ticket.progressed(7.0)
    assert ticket.cut is cut
    ticket.settle(USED)
    book.cuts = (Cut(first, "too late"), Cut(("nobody", 99), "who"))
    other.settle(USED)
    assert ticket.cut is cut


def test_a_ticket_to_be_cut_is_not_kept_alive_by_that() -> None:
    book = PaperBook()
    ticket = port_to(book).admit(CALL, None)
    book.cuts = (Cut(next(iter(book.calling)), "too long"),)
    ticket.progressed(6.0)
    assert ticket.cut is not None
    del ticket
    gc.collect()
    assert endings(book) == ["used"]


def test_a_long_answer_of_a_provider_is_cut_short() -> None:
    class Attentive(PaperBook):
        outcome = USED

        def settle(self, call: CallId, outcome: CallOutcome, now: float) -> bool:
            self.outcome = outcome
            return super().settle(call, outcome, now)

    book = Attentive()
    ticket = port_to(book).admit(CALL, None)
    ticket.settle(CallOutcome("throttled", fault=Fault("rate", detail="x" * 100_000)))
    assert book.outcome.fault == Fault("rate", detail="x" * 500)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_has_a_client_of_its_own() -> None:
    books: list[PaperBook] = []

    def dial(client: AdmissionClient) -> DeskLine:
        books.append(PaperBook())
        return DeskLine(client, books[-1])

    port = Admission(dial)
    ticket = port.admit(CALL, None)
    parent = port.statistics().id
    child = os.fork()
    if child == 0:
        ticket.settle(USED)
        mine = port.admit(CALL, SOON_S)
        is_new = port.statistics().id != parent and len(books) == 2 and not endings(books[0])
        mine.settle(USED)
        os._exit(0 if is_new and endings(books[1]) == ["used"] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert endings(books[0]) == []
    ticket.settle(USED)
    assert endings(books[0]) == ["used"]
