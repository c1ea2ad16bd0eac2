"""The port within one process: every wait ends in a ticket or an error, every ticket once."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import threading
from collections.abc import Callable
from math import inf

import pytest
from msgspec.structs import replace

from headway.base.values import Budget, Limit, Reading, Sketch, Tally, Wait
from headway.client import admission as ports
from headway.client.admission import AdmissionPort, ClientCall
from headway.client.connection import LocalConnection
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
from headway.pacing.admission import Admission, AdmissionDecision
from headway.pacing.call import CallId, Denied, Outcome, Request
from headway.pacing.memory import AccountTerms
from tests.unit.one_account import ACCOUNT, BUDGET, CALL, RecordedAdmission

USED = Outcome("used", Tally(1.0, 0.0, 1.0))
FULL = Wait("concurrency", inf, "1 in flight")
SOON_S = 10.0


def port_to(admission: Admission, keep: Callable[[], str] = lambda: "") -> AdmissionPort:
    return AdmissionPort(lambda port: LocalConnection(port, admission, keep))


def test_a_call_is_admitted_followed_and_settled_once() -> None:
    admission = RecordedAdmission()
    port = port_to(admission)
    ticket = port.admit(CALL, None)
    assert (ticket.waited_for, ticket.expected.output_tokens > 0) == ("", True)
    ticket.reached()
    ticket.began(Reading(), "anthropic")
    ticket.progressed(5.0)
    ticket.settle(USED)
    ticket.settle(Outcome("throttled"))
    ticket.progressed(6.0)
    ticket.began(Reading(), "anthropic")
    assert admission.outcomes == [USED]
    assert len(port.in_use) == 0


def test_a_call_that_waits_in_a_thread_is_woken_by_one_that_ends() -> None:
    port = port_to(RecordedAdmission())
    first = port.admit(CALL, None)
    got: list[ClientCall] = []
    thread = threading.Thread(target=lambda: got.append(port.admit(CALL, SOON_S)))
    thread.start()
    while not len(port.waiting):
        pass
    first.settle(USED)
    thread.join(SOON_S)
    assert got[0].waited_for == "concurrency"
    got[0].settle(USED)


def test_a_call_that_waits_in_a_loop_is_woken_from_another_thread() -> None:
    admission = RecordedAdmission()
    port = port_to(admission)
    first = port.admit(CALL, None)

    async def wait() -> ClientCall:
        asyncio.get_running_loop().run_in_executor(None, first.settle, USED)
        return await port.admit_async(CALL, SOON_S)

    asyncio.run(wait()).settle(USED)
    assert admission.endings == ["used", "used"]


def test_time_alone_can_admit_a_call() -> None:
    once = Limit("requests", 1.0, 0.02, "sliding")
    port = port_to(RecordedAdmission(2, Budget(), once))
    first, second = port.admit(CALL, None), port.admit(CALL, SOON_S)
    assert (first.waited_for, second.waited_for) == ("", "requests/0.02s")


@pytest.mark.parametrize("deadline_s", [0.0, 0.01])
def test_a_deadline_says_what_the_call_waited_for(deadline_s: float) -> None:
    port = port_to(RecordedAdmission())
    _first, heard = port.admit(CALL, None), list[Wait]()
    with pytest.raises(QueueDeadlineError) as raised:
        port.admit(CALL, deadline_s, heard.append)
    assert raised.value.detail == "waited for concurrency (1 in flight)"
    with pytest.raises(QueueDeadlineError) as raised:
        asyncio.run(port.admit_async(CALL, deadline_s, heard.append))
    assert raised.value.detail == "waited for concurrency (1 in flight)"
    assert heard == [FULL, FULL]
    assert len(port.waiting) == 0


def test_a_call_that_asks_what_it_waits_for_keeps_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ports, "LOOK_S", (0.001, 0.001))
    admission, heard, order = RecordedAdmission(), list[Wait](), list[str]()
    port = port_to(admission)

    async def in_order() -> None:
        first = await port.admit_async(CALL, None)

        def hear(wait: Wait) -> None:
            heard.append(wait)
            if len(heard) == 3:
                first.settle(USED)

        async def one(name: str, listener: Callable[[Wait], None] | None = None) -> None:
            ticket = await port.admit_async(CALL, SOON_S, listener)
            order.append(name)
            ticket.settle(USED)

        await asyncio.gather(one("asks", hear), one("does not ask"))

    asyncio.run(in_order())
    assert (heard[:3], order) == ([FULL] * 3, ["asks", "does not ask"])


def test_what_a_listener_raises_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "LOOK_S", (0.001, 0.001))
    admission = RecordedAdmission()
    port = port_to(admission)
    first = port.admit(CALL, None)

    def enough(wait: Wait) -> None:
        raise StateFileError(wait.reason)

    with pytest.raises(StateFileError, match="1 in flight"):
        port.admit(CALL, None, enough)
    assert (admission.waiting, len(port.waiting)) == (0, 0)
    first.settle(USED)
    port.admit(CALL, 0.0).settle(USED)


@pytest.mark.parametrize(
    ("terms", "kind"),
    [
        (AccountTerms((Limit("input", 0.0),)), DemandTooLargeError),
        (AccountTerms(budget=Budget(tokens=10.0)), BudgetReachedError),
        (AccountTerms(share=0.0), AccountClosedError),
        (AccountTerms(budget=BUDGET), StateFileError),
    ],
)
def test_a_denial_is_raised_as_its_own_error(terms: AccountTerms, kind: type[HeadwayError]) -> None:
    port = port_to(RecordedAdmission(), lambda: "No space left on device")
    port.configure(ACCOUNT, terms)
    with pytest.raises(kind):
        port.admit(CALL, SOON_S)
    assert (port.waiting, port.in_use) == ({}, {})


def test_a_denial_of_an_unknown_kind_is_an_internal_error() -> None:
    class Denying(RecordedAdmission):
        def decide(self, now: float) -> AdmissionDecision:
            id = next(iter(self._calls), ("", 0))
            return AdmissionDecision((), (Denied(id, "HW999", "no"),), inf)

    with pytest.raises(InternalError, match="no"):
        port_to(Denying()).admit(CALL, SOON_S)


def test_a_ticket_that_is_forgotten_is_settled_by_the_garbage_collector() -> None:
    admission = RecordedAdmission()
    port = port_to(admission)
    loop: list[object] = [port.admit(CALL, None)]
    loop.append(loop)
    del loop
    gc.collect()
    assert admission.endings == ["used"]
    port.admit(CALL, 0.0).settle(USED)


def test_a_permit_can_be_settled_in_the_middle_of_a_decision() -> None:
    """As a finalizer does, on the very thread that serves the messages."""

    class Interrupted(RecordedAdmission):
        interrupt: Callable[[], None] = staticmethod(lambda: None)

        def ask(self, id: CallId, request: Request, now: float) -> None:
            self.interrupt()
            super().ask(id, request, now)

    admission = Interrupted()
    port = port_to(admission)
    ticket = port.admit(CALL, None)
    admission.interrupt = lambda: ticket.settle(USED)
    port.admit(CALL, SOON_S).settle(USED)
    assert admission.endings == ["used", "used"]


def test_a_cancelled_wait_leaves_the_queue() -> None:
    admission = RecordedAdmission()
    port = port_to(admission)
    _first = port.admit(CALL, None)

    async def cancel() -> None:
        task = asyncio.create_task(port.admit_async(CALL, None))
        while not len(port.waiting):
            await asyncio.wait([task], timeout=0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert (admission.waiting, len(port.waiting)) == (0, 0)


def test_a_grant_that_meets_a_cancelled_wait_is_not_used() -> None:
    admission = RecordedAdmission()
    port = port_to(admission)

    async def cancel() -> None:
        first = await port.admit_async(CALL, None)
        task = asyncio.create_task(port.admit_async(CALL, None))
        while not len(port.waiting):
            await asyncio.wait([task], timeout=0.001)
        # Granted, and cancelled before the loop can hand it over.
        first.settle(USED)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert admission.endings == ["used", "unused"]
    assert len(port.in_use) == 0


def test_a_grant_for_a_loop_that_was_closed_is_not_used() -> None:
    admission = RecordedAdmission()
    port = port_to(admission)
    first = port.admit(CALL, None)
    loop = asyncio.new_event_loop()
    waiting = port.admit_async(CALL, None)
    future = loop.create_task(waiting)
    loop.run_until_complete(asyncio.wait([future], timeout=0.01))
    loop.close()
    first.settle(USED)
    assert admission.endings == ["used", "unused"]
    with pytest.raises(RuntimeError, match="closed"):
        waiting.throw(RuntimeError("closed"))
    future._log_destroy_pending = False  # type: ignore[attr-defined]


def test_cancellations_at_random_instants_leak_nothing() -> None:
    admission = RecordedAdmission(3)
    port = port_to(admission)
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
    assert (admission.in_flight, admission.waiting) == (0, 0)
    assert len(port.in_use) == len(port.waiting) == 0


def test_many_threads_get_no_more_than_the_places_there_are() -> None:
    admission = RecordedAdmission(3)
    port = port_to(admission)

    def work() -> None:
        for _ in range(100):
            port.admit(CALL, SOON_S).settle(USED)

    crowd = [threading.Thread(target=work) for _ in range(8)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join(SOON_S)
    assert admission.most_in_flight <= 3
    assert admission.endings == ["used"] * 800


def test_an_interrupt_while_asking_leaves_nothing_behind() -> None:
    class Interrupted(RecordedAdmission):
        def ask(self, id: CallId, request: Request, now: float) -> None:
            raise KeyboardInterrupt

    port = port_to(Interrupted())
    with pytest.raises(KeyboardInterrupt):
        port.admit(CALL, SOON_S)
    assert len(port.waiting) == 0


def test_a_bug_in_admission_is_raised_by_the_calls_that_wait(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Wrong(RecordedAdmission):
        def decide(self, now: float) -> AdmissionDecision:
            raise ZeroDivisionError("by nothing")

    with pytest.raises(BrokerUnavailableError, match="by nothing"):
        port_to(Wrong()).admit(CALL, SOON_S)
    assert "cannot admit" in caplog.text


def test_a_ticket_shows_that_its_answer_outgrew_the_budget() -> None:
    admission = RecordedAdmission(2, BUDGET)
    port = port_to(admission)
    soft = Request(ACCOUNT, "anthropic", Sketch("model", size_bytes=100), is_soft=True)
    ticket, other = port.admit(soft, None), port.admit(CALL, None)
    ticket.progressed(100.0)
    before = ticket.cut
    ticket.progressed(20_000.0)
    cut = ticket.cut
    assert isinstance(cut, BudgetReachedError)
    assert "ended at 20,000 tokens" in cut.message
    ticket.progressed(30_000.0)
    ticket.settle(USED)
    port.receive(Denied((port.id, 99), "HW201", "of no call"))
    assert (before, ticket.cut, other.cut) == (None, cut, None)


def test_a_ticket_that_is_to_be_ended_is_not_kept_alive_by_that() -> None:
    admission = RecordedAdmission(1, BUDGET)
    ticket = port_to(admission).admit(replace(CALL, is_soft=True), None)
    ticket.progressed(20_000.0)
    assert ticket.cut is not None
    del ticket
    gc.collect()
    assert admission.endings == ["used"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_has_a_client_of_its_own() -> None:
    made: list[RecordedAdmission] = []

    def dial(port: AdmissionPort) -> LocalConnection:
        made.append(RecordedAdmission())
        return LocalConnection(port, made[-1])

    port = AdmissionPort(dial)
    ticket = port.admit(CALL, None)
    parent = port.id
    child = os.fork()
    if child == 0:
        ticket.settle(USED)
        mine = port.admit(CALL, SOON_S)
        is_new = port.id != parent and len(made) == 2 and not made[0].endings
        mine.settle(USED)
        os._exit(0 if is_new and made[1].endings == ["used"] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert made[0].endings == []
    ticket.settle(USED)
    assert made[0].endings == ["used"]
