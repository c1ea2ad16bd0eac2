"""The service takes a batch of messages, decides once, replies to all and loses nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from threading import Thread

import pytest

from headway.base.folders import Folders, prepare
from headway.base.values import Budget, Limit, Sketch, Wait
from headway.broker import protocol, service
from headway.broker.election import BrokerLog, BrokerSocket
from headway.broker.server import BrokerServer
from headway.broker.service import AdmissionService, counts_towards
from headway.client import admission
from headway.client.admission import AdmissionPort
from headway.client.connection import BrokerConnection
from headway.errors import BrokerUnavailableError, StateFileError, WireError
from headway.pacing.budget import MonthlyBudgets
from headway.pacing.call import Denied, Granted, Outcome, Request
from headway.pacing.memory import AccountTerms, PacingMemory
from headway.pacing.view import describe
from tests.unit.one_account import ACCOUNT, BUDGET, CALL, RecordedAdmission

SOFT = Request(ACCOUNT, "anthropic", Sketch("model", size_bytes=100), is_soft=True)
USED = Outcome("used")
ONE_AT_ONCE = AccountTerms((Limit("concurrency", 1.0, kind="gauge"),))
FULL = Wait("concurrency", inf, "1 in flight")


class World:
    """A service with everything around it: a clock that is set, replies that are read."""

    def __init__(self, places: int = 1, budget: Budget = Budget()) -> None:
        self.admission = RecordedAdmission(places, budget)
        self.now = 0.0
        self.replies: list[tuple[str, protocol.FromBroker]] = []
        self.log: list[str] = []
        self.kept: list[int] = []
        """At each time when memory was put on the disk, the number of replies sent by then."""
        self.disk_fault = ""
        self.service = AdmissionService(
            self.admission, lambda *sent: self.replies.append(sent), self.keep, self.log.append,
            lambda: self.now, stall_s=600.0,
        )  # fmt: skip

    def keep(self) -> str:
        self.kept.append(len(self.replies))
        return self.disk_fault

    def say(self, client: str, *messages: protocol.FromClient) -> None:
        for message in messages:
            self.service.handle(client, message)

    def granted(self) -> list[tuple[str, int]]:
        """Decide; the calls that were granted, and nothing else was replied."""
        self.service.decide()
        replies, self.replies = self.replies, []
        assert all(isinstance(message, Granted) for _, message in replies)
        return [message.id for _, message in replies if isinstance(message, Granted)]


def ask(*numbers: int, request: Request = CALL) -> list[protocol.Ask]:
    return [protocol.Ask(number, request) for number in numbers]


def test_a_batch_is_taken_before_one_decision_is_made() -> None:
    here = World(places=2)
    here.say("a", *ask(1, 2, 3))
    assert here.admission.decisions == 0
    assert here.granted() == [("a", 1), ("a", 2)]
    here.say("a", protocol.Settle(1, USED))
    assert here.granted() == [("a", 3)]
    assert here.admission.decisions == 2


def test_saying_something_twice_is_saying_it_once() -> None:
    here = World(places=2)
    for _ in range(2):
        here.say("a", *ask(1, 1))
        here.service.decide()
        here.say("a", *ask(1), protocol.Ask(1, CALL, -3.0))
        here.service.decide()
    assert [message for _, message in here.replies] == [
        Granted(("a", 1), "", here.admission.accounts[0].in_flight["a", 1].demand.expected)
    ]
    here.say("a", protocol.Settle(1, USED), protocol.Settle(1, USED))
    assert here.admission.endings == ["used"]


def test_a_call_that_asks_what_it_waits_for_keeps_its_place() -> None:
    here = World()
    here.say("a", *ask(1, 2))
    here.say("b", *ask(1))
    assert here.granted() == [("a", 1)]
    here.say("a", protocol.Why(2), protocol.Why(1), protocol.Why(99))
    assert here.replies == [
        ("a", protocol.Waits(2, FULL)),
        ("a", protocol.Waits(1, None)),
        ("a", protocol.Waits(99, None)),
    ]
    here.replies.clear()
    here.say("a", protocol.Settle(1, USED))
    here.say("b", *ask(2))
    first = here.granted()
    here.say(first[0][0], protocol.Settle(first[0][1], USED))
    assert {*first, *here.granted()} == {("a", 2), ("b", 1)}


def test_a_call_that_leaves_is_forgotten_and_may_leave_twice() -> None:
    here = World()
    here.say("a", *ask(1, 2))
    assert here.granted() == [("a", 1)]
    here.say("a", protocol.Leave(2), protocol.Leave(2))
    assert here.replies == []
    assert here.admission.waiting == 0


def test_the_calls_of_a_client_that_is_gone_end() -> None:
    here = World(places=2)
    here.say("a", *ask(1, 2, 3))
    here.say("b", *ask(1, 2))
    assert here.granted() == [("a", 1), ("b", 1)]
    here.service.left("a")
    assert here.admission.endings == ["used"]
    assert here.granted() == [("b", 2)]
    assert here.log == ["a left with 1 calls in flight"]


def test_a_permit_that_is_silent_for_long_is_settled() -> None:
    here = World()
    here.say("a", *ask(1, 2))
    assert here.granted() == [("a", 1)]
    assert here.service.wake_s == 600.0
    for moment, sign in ((500.0, protocol.Reached(1)), (1000.0, protocol.Progressed(1, 2.0))):
        here.now = moment
        here.say("a", sign)
        assert here.granted() == []
        assert here.service.wake_s == moment + 600.0
    here.now = 1599.0
    assert here.granted() == []
    here.now = 1600.0
    assert here.granted() == [("a", 2)]
    assert here.log == ["call 1 of a was silent for 600 s"]
    here.say("a", protocol.Settle(1, USED))
    assert here.admission.endings == ["used"]


def test_money_is_on_the_disk_before_a_call_may_spend_it_and_after_it_did() -> None:
    here = World(budget=BUDGET)
    here.say("a", *ask(1))
    assert here.granted() == [("a", 1)]
    assert here.kept == [0]
    here.say("a", protocol.Settle(1, USED))
    here.granted()
    here.granted()
    assert here.kept == [0, 0]


def test_a_call_is_denied_if_its_money_cannot_be_put_on_the_disk() -> None:
    here = World(budget=BUDGET)
    here.disk_fault = "No space left on device"
    here.say("a", *ask(1))
    here.service.decide()
    [(client, denied)] = here.replies
    assert (client, type(denied)) == ("a", Denied)
    assert isinstance(denied, Denied)
    assert (denied.id, denied.code) == (("a", 1), StateFileError.code)
    assert "No space left" in denied.message
    assert here.admission.endings == ["unused"]


@pytest.mark.parametrize(("budget", "tokens", "kept"), [
    (BUDGET, 900.0, 1), (BUDGET, 1.0, 0), (Budget(), 900.0, 0),
])  # fmt: skip
def test_more_money_for_an_answer_is_on_the_disk_with_the_next_decision(
    budget: Budget, tokens: float, kept: int
) -> None:
    here = World(budget=budget)
    here.say("a", *ask(1, request=SOFT))
    assert here.granted() == [("a", 1)]
    here.kept.clear()
    here.say("a", protocol.Progressed(1, tokens), protocol.Progressed(99, tokens))
    here.granted()
    here.granted()
    assert len(here.kept) == kept


def test_an_answer_goes_on_when_more_money_for_it_cannot_be_kept() -> None:
    here = World(budget=BUDGET)
    here.say("a", *ask(1, request=SOFT))
    here.granted()
    here.disk_fault = "No space left on device"
    here.kept.clear()
    here.say("a", protocol.Progressed(1, 900.0))
    assert (here.granted(), here.granted(), len(here.kept)) == ([], [], 2)
    assert here.admission.in_flight == 1


def test_a_call_whose_answer_outgrows_the_budget_is_told_once() -> None:
    here = World(budget=BUDGET)
    here.say("a", *ask(1, request=SOFT))
    here.granted()
    here.say("a", protocol.Progressed(1, 20_000.0))
    here.service.decide()
    here.service.decide()
    [(client, cut)] = here.replies
    assert (client, type(cut)) == ("a", Denied)


@pytest.mark.parametrize(
    ("name", "counts"), [("", True), ("one#1", True), ("one#1/model", True), ("one#12", False)]
)
def test_a_budget_is_for_an_account_a_group_of_it_or_all(name: str, counts: bool) -> None:
    terms = (name, AccountTerms(budget=Budget(tokens=5.0))), ("one#2", AccountTerms())
    names = MonthlyBudgets(PacingMemory(terms=terms), 0.0).keys
    assert names == {name}
    assert counts_towards("one#1", names) is counts
    assert not counts_towards("one#1", frozenset())


def test_one_client_cannot_fill_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "WAITING_MAX", 2)
    here = World()
    here.say("a", *ask(1, 2))
    here.say("b", *ask(1))
    with pytest.raises(WireError, match="no more can"):
        here.say("a", *ask(3))


def test_a_description_ends_with_the_broker_its_clients_and_its_notices() -> None:
    here = World()
    here.say("a", protocol.Hello(protocol.VERSION, "a", 42, "review.py"))
    for number in range(service.NOTICES_MAX + 5):
        here.service.notice(f"{number}")
        here.service.notice(f"{number}")
    assert len(here.log) == service.NOTICES_MAX + 5
    here.now = 5.0
    here.say("a", protocol.Describe(9))
    last = here.replies[-1][1]
    assert isinstance(last, protocol.Described)
    about = protocol.About(os.getpid(), 5.0, (("a", "review.py [42]"),), here.service.notices)
    assert (last, len(about.notices)) == (
        protocol.Described(9, last.view, about),
        service.NOTICES_MAX,
    )


def test_a_description_of_many_accounts_fits_into_a_message_and_is_whole() -> None:
    here = World()
    for number in range(400):
        one = Request(f"api.example.com#{number:08}", "anthropic", Sketch("model", size_bytes=100))
        here.say("a", *ask(number, request=one))
    here.say("a", protocol.Describe(9))
    data = protocol.packed(here.replies[-1][1], protocol.ANSWER_BYTES_MAX)
    assert len(data) > protocol.MESSAGE_BYTES_MAX
    [told] = protocol.BrokerMessages().feed(data)
    assert isinstance(told, protocol.Described)
    assert told.view == describe(here.admission, here.now)
    assert len(told.view.accounts) == 401


class ListedLog(BrokerLog):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


@contextmanager
def served(folder: Path) -> Iterator[tuple[Folders, ListedLog]]:
    """A broker on a real socket, in a thread of this process."""
    place, log = Folders(str(folder / "r"), str(folder / "s")), ListedLog()
    prepare(place)
    server = BrokerServer(place, BrokerSocket(place.socket), log, {})
    thread = Thread(target=server.run)
    thread.start()
    try:
        yield place, log
    finally:
        server._bell[1].send(b".")
        thread.join()
        server.__exit__(None)


def port_to(place: Folders) -> AdmissionPort:
    def dial(port: AdmissionPort) -> BrokerConnection:
        return BrokerConnection(port, place, lambda _: "no broker is started here", nobody_s=0.0)

    return AdmissionPort(dial)


def test_a_wait_crosses_the_socket_as_the_record_that_admission_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "LOOK_S", (0.001, 0.001))

    def hear(wait: Wait) -> None:
        heard.append(wait)
        raise StateFileError("enough")

    with served(tmp_path) as (place, _):
        one, other = port_to(place), port_to(place)
        one.configure(ACCOUNT, ONE_AT_ONCE)
        first, heard = one.admit(CALL, 10.0), list[Wait]()
        with pytest.raises(StateFileError, match="enough"):
            other.admit(CALL, 10.0, hear)
        assert heard == [FULL]
        (account,) = other.describe()[0].accounts
        assert (account.in_flight, account.wait) == (1, None)
        first.settle(USED)
        other.admit(CALL, 10.0).settle(USED)
        one.close()
        other.close()


def test_a_permit_whose_owner_died_is_settled(tmp_path: Path) -> None:
    with served(tmp_path) as (place, log):
        one, other = port_to(place), port_to(place)
        one.configure(ACCOUNT, ONE_AT_ONCE)
        held, gone = one.admit(CALL, 10.0), one.id
        one.close()
        other.admit(CALL, 10.0).settle(USED)
        assert log.lines == [f"{gone} left with 1 calls in flight"]
        held.settle(USED)
        other.close()


def test_a_client_of_another_version_is_refused_with_one_clear_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = protocol.VERSION + 1
    monkeypatch.setattr(
        AdmissionPort, "hello", lambda self: protocol.Hello(newer, self.id, 1, "newer.py")
    )
    with served(tmp_path) as (place, _):
        port = port_to(place)
        for _ in range(2):
            with pytest.raises(BrokerUnavailableError) as raised:
                port.admit(CALL, 10.0)
            assert raised.value.message == (
                f"the broker refused this process: the broker speaks version {protocol.VERSION},"
                f" this process version {newer}: one of them is of another headway "
            )
        assert len(port.waiting) == 0
        port.close()
