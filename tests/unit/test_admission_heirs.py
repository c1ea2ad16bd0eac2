"""What a client tells the heir of a broker that died, and what becomes of its calls meanwhile."""

from __future__ import annotations

from collections.abc import Iterable

from headway.base.values import LimitReading, Reading
from headway.broker import protocol
from headway.broker.client import AdmissionClient, InUse, Said, Ticket, WaitingCall
from headway.pacing.admission import CallOutcome, Denied, Granted
from headway.pacing.memory import AccountTerms
from tests.unit.paper_book import CALL, PERMIT

USED = CallOutcome("used")


class Wire:
    """A line that keeps everything, as a broker would get it."""

    def __init__(self) -> None:
        self.sent: list[Said] = []
        self.opened = 0

    def send(self, message: protocol.FromClient, permit: InUse | None = None, /) -> None:
        protocol.line_of(message)
        self.sent.append((message, permit))

    def open(self) -> None:
        self.opened += 1

    def close(self) -> None: ...

    def abandon(self) -> None: ...

    def messages(self) -> list[protocol.FromClient]:
        return [message for message, _ in self.sent]


def new_client(unpaced: tuple[str, ...] = ()) -> tuple[AdmissionClient, Wire]:
    wire = Wire()
    return AdmissionClient(lambda _: wire, lambda account: account in unpaced), wire


def ask(client: AdmissionClient) -> tuple[WaitingCall, list[int]]:
    rung: list[int] = []
    place = client.ask(CALL, lambda: rung.append(1))
    return place, rung


def granted(client: AdmissionClient) -> Ticket:
    place, rung = ask(client)
    client.receive(Granted(place.request.id, PERMIT))
    assert rung == [1]
    assert isinstance(place.answer, Ticket)
    return place.answer


def told(client: AdmissionClient, unsent: Iterable[Said] = ()) -> list[tuple[str, int]]:
    """The story in short: what about which call."""
    story = []
    for message, _ in client.story(unsent):
        match message:
            case protocol.AskMessage(request) | protocol.Adopt(request):
                story.append((type(message).__name__, request.id[1]))
            case protocol.Settled(number) | protocol.Leave(number) | protocol.Describe(number):
                story.append((type(message).__name__, number))
            case _:
                story.append((type(message).__name__, 0))
    return story


def test_an_heir_is_told_who_calls_and_who_waits_in_order() -> None:
    client, _ = new_client()
    _first, done, third = granted(client), granted(client), granted(client)
    ask(client)
    ask(client)
    done.settle(USED)
    assert told(client) == [
        ("Hello", 0), ("Adopt", 1), ("Adopt", 3), ("AskMessage", 4), ("AskMessage", 5),
    ]  # fmt: skip
    assert third._open


def test_what_was_settled_while_nobody_listened_is_adopted_and_settled() -> None:
    client, wire = new_client()
    first, second = granted(client), granted(client)
    wire.sent.clear()
    first.settle(USED)
    assert told(client, wire.sent) == [("Hello", 0), ("Adopt", 2), ("Adopt", 1), ("Settled", 1)]
    assert second._open


def test_a_settlement_that_was_cut_in_two_is_told_after_its_adoption_once() -> None:
    client, wire = new_client()
    ticket = granted(client)
    wire.sent.clear()
    story = client.story(wire.sent)
    ticket.settle(USED)
    again = told(client, [*story, *wire.sent])
    assert again == [("Hello", 0), ("Adopt", 1), ("Settled", 1)]


def test_what_is_stale_is_not_told_again() -> None:
    client, _ = new_client()
    unsent: list[Said] = [
        (protocol.BeganMessage(1, Reading(), ""), None), (protocol.Progressed(1, 1.0), None),
        (protocol.Leave(2), None), (protocol.Describe(3), None),
        (protocol.Configure("", AccountTerms()), None),
    ]  # fmt: skip
    assert told(client, unsent) == [("Hello", 0), ("Leave", 2), ("Describe", 3), ("Configure", 0)]


def test_a_grant_for_a_call_that_has_left_is_settled_unused() -> None:
    client, wire = new_client()
    place, _ = ask(client)
    client.abandon(place)
    client.receive(Granted(place.request.id, PERMIT))
    assert wire.messages()[1:] == [protocol.Leave(1), protocol.Settled(1, CallOutcome("unused"))]
    client.receive(Denied(place.request.id, "HW201", "too late"))
    client.receive(protocol.Left(1, "nobody asks"))
    assert place.answer is None


def test_nothing_that_a_provider_says_keeps_a_permit_from_being_settled() -> None:
    client, wire = new_client()
    ticket = granted(client)
    reading = Reading((LimitReading("requests", 60.0, 1.0, 1.0, 1.0),) * 2000)
    ticket.began(reading, "anthropic")
    ticket.settle(CallOutcome("used", reading=reading))
    assert wire.messages()[1:] == [protocol.Settled(1, USED)]
