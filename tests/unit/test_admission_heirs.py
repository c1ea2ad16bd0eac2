"""What a client tells the next broker after one died, and what becomes of its calls meanwhile."""

from __future__ import annotations

from collections.abc import Iterable

from headway.base.values import Fault, LimitReading, Reading
from headway.broker import protocol
from headway.client.admission import AdmissionPort, ClientCall
from headway.client.connection import Said
from headway.pacing.call import Denied, Granted, Outcome
from headway.pacing.memory import AccountTerms
from tests.unit.one_account import CALL

USED = Outcome("used")


class Wire:
    """A connection that keeps everything, as a broker would get it."""

    def __init__(self) -> None:
        self.sent: list[Said] = []

    def send(self, message: protocol.FromClient, sent: protocol.Ask | None = None, /) -> None:
        protocol.packed(message)
        self.sent.append((message, sent))

    def open(self) -> None: ...

    def close(self) -> None: ...

    def abandon(self) -> None: ...

    def messages(self) -> list[protocol.FromClient]:
        return [message for message, _ in self.sent]


def new_client() -> tuple[AdmissionPort, Wire]:
    wire = Wire()
    return AdmissionPort(lambda _: wire), wire


def ask(client: AdmissionPort) -> tuple[ClientCall, list[int]]:
    rung: list[int] = []
    call = client.enter(CALL)
    call.ring = lambda: rung.append(1)
    client.send(protocol.Ask(call.number, CALL))
    return call, rung


def granted(client: AdmissionPort) -> ClientCall:
    call, rung = ask(client)
    client.receive(Granted((client.id, call.number)))
    assert (rung, call.is_answered, call.error) == ([1], True, None)
    return call


def told(client: AdmissionPort, unsent: Iterable[Said] = ()) -> list[tuple[str, int]]:
    """The introduction in short: what about which call."""
    messages = [message for message, _ in client.introduction(unsent)]
    return [(_name(one), getattr(one, "number", 0)) for one in messages]


def _name(message: protocol.FromClient) -> str:
    if isinstance(message, protocol.Ask) and message.sent_s is not None:
        return "sent"
    return type(message).__name__


def test_the_next_broker_is_told_which_calls_are_in_flight_and_which_wait_in_order() -> None:
    client, _ = new_client()
    _first, done, third = granted(client), granted(client), granted(client)
    ask(client)
    ask(client)
    done.settle(USED)
    assert told(client) == [("Hello", 0), ("sent", 1), ("sent", 3), ("Ask", 4), ("Ask", 5)]
    assert third._open


def test_what_was_settled_without_a_broker_is_adopted_and_settled() -> None:
    client, wire = new_client()
    first, second = granted(client), granted(client)
    wire.sent.clear()
    first.settle(USED)
    assert told(client, wire.sent) == [("Hello", 0), ("sent", 2), ("sent", 1), ("Settle", 1)]
    assert second._open


def test_a_settlement_that_was_cut_in_two_is_told_after_its_adoption_once() -> None:
    client, wire = new_client()
    ticket = granted(client)
    wire.sent.clear()
    introduction = client.introduction(wire.sent)
    ticket.settle(USED)
    again = told(client, [*introduction, *wire.sent])
    assert again == [("Hello", 0), ("sent", 1), ("Settle", 1)]


def test_what_is_stale_is_not_told_again() -> None:
    client, _ = new_client()
    unsent: list[Said] = [
        (protocol.AnswerBegan(1, Reading(), ""), None), (protocol.Progressed(1, 1.0), None),
        (protocol.Reached(1), None), (protocol.Why(4), None),
        (protocol.Leave(2), None), (protocol.Describe(3), None),
        (protocol.Configure("", AccountTerms()), None),
    ]  # fmt: skip
    assert told(client, unsent) == [("Hello", 0), ("Leave", 2), ("Describe", 3), ("Configure", 0)]


def test_a_grant_for_a_call_that_has_left_is_settled_unused() -> None:
    client, wire = new_client()
    call, _ = ask(client)
    id = client.id, call.number
    call.abandon()
    client.receive(Granted(id))
    assert wire.messages()[1:] == [protocol.Leave(1), protocol.Settle(1, Outcome("unused"))]
    client.receive(Denied(id, "HW201", "too late"))
    client.receive(protocol.Waits(1, None))
    assert not call.is_answered


def test_nothing_that_a_provider_says_keeps_a_permit_from_being_settled() -> None:
    client, wire = new_client()
    ticket, other = granted(client), granted(client)
    reading = Reading((LimitReading("requests", 60.0, 1.0, 1.0, 1.0),) * 2000)
    ticket.began(reading, "anthropic")
    ticket.settle(Outcome("used", reading=reading))
    surrogate = Outcome("throttled", fault=Fault("rate", detail="\ud800"))
    other.settle(surrogate)
    assert wire.messages()[2:] == [protocol.Settle(1, USED), protocol.Settle(2, surrogate)]
    assert client.in_use == {}
