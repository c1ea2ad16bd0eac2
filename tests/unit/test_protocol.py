"""Messages survive the socket, and bytes that are no message do no harm."""

from __future__ import annotations

from contextlib import suppress
from math import inf
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import msgpack
from msgspec.structs import fields

from headway.base import values
from headway.base.values import Budget
from headway.broker import protocol
from headway.errors import WireError
from headway.pacing.call import Denied, Granted, Outcome, Request
from headway.pacing.memory import AccountTerms
from headway.pacing.view import AdmissionView

Message = protocol.FromClient | protocol.FromBroker
FROM_CLIENT, FROM_BROKER = get_args(protocol.FromClient), get_args(protocol.FromBroker)
TEXT = st.text(max_size=30)
NUMBERS = st.integers(0, 2**40)
AMOUNTS = st.floats(allow_nan=False)
SEEN = st.none() | AMOUNTS
CALLS = st.tuples(TEXT, NUMBERS)
WAITS = st.builds(values.Wait, TEXT, AMOUNTS, TEXT)
REQUESTS = st.builds(
    Request,
    account=TEXT,
    dialect=TEXT,
    sketch=st.builds(values.Sketch, model=TEXT, max_output_tokens=st.none() | NUMBERS),
    path=st.lists(TEXT, max_size=3).map(tuple),
    is_resent=st.booleans(),
    is_soft=st.booleans(),
)
LIMITS = st.builds(
    values.LimitReading, st.sampled_from(["requests", "input"]), SEEN, SEEN, SEEN, SEEN
)
READINGS = st.builds(
    values.Reading, st.lists(LIMITS, max_size=3).map(tuple), SEEN, st.none() | st.booleans()
)
OUTCOMES = st.builds(
    Outcome,
    how=st.sampled_from(["used", "unused", "throttled"]),
    tally=st.builds(values.Tally, AMOUNTS, AMOUNTS, AMOUNTS),
    fault=st.none() | st.builds(values.Fault, st.sampled_from(["rate", "broken"]), detail=TEXT),
    reading=READINGS,
    dialect=TEXT,
)
TERMS = st.builds(
    AccountTerms,
    limits=st.lists(st.builds(values.Limit, st.just("requests"), AMOUNTS), max_size=2).map(tuple),
    budget=st.builds(Budget, SEEN, st.none() | NUMBERS),
)
MESSAGES: dict[type[Message], st.SearchStrategy[Message]] = {
    protocol.Hello: st.builds(protocol.Hello, NUMBERS, TEXT, NUMBERS, TEXT),
    protocol.Ask: st.builds(protocol.Ask, NUMBERS, REQUESTS, SEEN),
    protocol.AnswerBegan: st.builds(protocol.AnswerBegan, NUMBERS, READINGS, TEXT),
    protocol.Progressed: st.builds(protocol.Progressed, NUMBERS, st.floats(0.0, 1e15)),
    protocol.Settle: st.builds(protocol.Settle, NUMBERS, OUTCOMES),
    protocol.Configure: st.builds(protocol.Configure, TEXT, TERMS),
    protocol.Refresh: st.builds(protocol.Refresh, TEXT),
    protocol.Name: st.builds(protocol.Name, TEXT, TEXT),
    protocol.Forget: st.builds(protocol.Forget, TEXT),
    Granted: st.builds(Granted, CALLS, TEXT, st.builds(values.Amounts, AMOUNTS, AMOUNTS, NUMBERS)),
    Denied: st.builds(Denied, CALLS, TEXT, TEXT, TEXT),
    protocol.Waits: st.builds(protocol.Waits, NUMBERS, st.none() | WAITS),
    protocol.Described: st.builds(
        protocol.Described,
        NUMBERS,
        st.builds(AdmissionView, TEXT, st.just(()), st.just(()), st.just(())),
        st.builds(protocol.About, NUMBERS, AMOUNTS),
    ),
    protocol.Rejected: st.builds(protocol.Rejected, TEXT),
}
for kind in (protocol.Why, protocol.Leave, protocol.Reached, protocol.Describe):
    MESSAGES[kind] = st.builds(kind, NUMBERS)
CLIENTS = st.one_of([MESSAGES[kind] for kind in FROM_CLIENT])
BROKERS = st.one_of([MESSAGES[kind] for kind in FROM_BROKER])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | TEXT
    | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT | NUMBERS, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


def framed(message: bytes) -> bytes:
    return len(message).to_bytes(4, "big") + message


def taken(data: bytes, size: int = 1 << 20) -> tuple[list[Message], list[Message]]:
    """The messages that a broker and a client find in the bytes, which come in pieces."""
    of_clients, of_brokers = protocol.ClientMessages(), protocol.BrokerMessages()
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    by_broker: list[Message] = []
    by_client: list[Message] = []
    with suppress(WireError):
        for piece in pieces:
            by_broker.extend(of_clients.feed(piece))
    with suppress(WireError):
        for piece in pieces:
            by_client.extend(of_brokers.feed(piece))
    return by_broker, by_client


@given(st.lists(CLIENTS, max_size=4), st.lists(BROKERS, max_size=4), st.integers(1, 50))
def test_a_message_is_read_as_it_was_written_in_pieces_of_any_size(
    asked: list[Message], told: list[Message], size: int
) -> None:
    assert taken(b"".join(map(protocol.packed, asked)), size)[0] == asked
    assert taken(b"".join(map(protocol.packed, told)), size)[1] == told


def test_a_wait_without_an_end_crosses_the_socket_as_the_record_it_was() -> None:
    wait = values.Wait("concurrency", inf, "4 in flight")
    assert taken(protocol.packed(protocol.Waits(7, wait)))[1] == [protocol.Waits(7, wait)]


@given(st.one_of(CLIENTS, BROKERS), st.data())
def test_a_spoilt_message_raises_nothing_but_a_wire_error(
    message: Message, data: st.DataObject
) -> None:
    spoilt = bytearray(protocol.packed(message))
    for _ in range(data.draw(st.integers(1, 4))):
        spoilt[data.draw(st.integers(0, len(spoilt) - 1))] = data.draw(st.integers(0, 255))
    taken(bytes(spoilt))


@given(st.sampled_from([*FROM_CLIENT, *FROM_BROKER]), st.data())
def test_any_values_in_any_message_raise_nothing_but_a_wire_error(
    kind: type[Message], data: st.DataObject
) -> None:
    parts = {one.name: data.draw(VALUES) for one in fields(kind)}
    taken(framed(msgpack.encode({"type": kind.__name__, **parts})))


@given(st.binary(max_size=60))
def test_any_bytes_raise_nothing_but_a_wire_error(data: bytes) -> None:
    taken(data)
    taken(framed(data))


@pytest.mark.parametrize(
    "message",
    [
        b"", b"\xc0", b"\x90", b"\xc1", b"\x91" * 60_000, b"\x81\xa4type\xa5Leave",
        msgpack.encode({"type": "Leave", "number": True}),
        msgpack.encode({"type": "Leave", "number": 1.5}),
        msgpack.encode({"type": "Nobody", "number": 1}),
        msgpack.encode({"type": "Granted", "id": ["client", 1]}),
        msgpack.encode({"type": "Progressed", "number": 1, "output_tokens": float("nan")}),
        msgpack.encode({"type": "Progressed", "number": 1, "output_tokens": inf}),
        b"\x82\xa4type\xa2\xff\xfe\xa6number\x01", b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff",
    ],
    ids=range(15),
)  # fmt: skip
def test_what_is_no_message_of_a_client_is_refused(message: bytes) -> None:
    with pytest.raises(WireError, match="no message of a client"):
        list(protocol.ClientMessages().feed(framed(message)))


def test_a_message_is_at_most_64_kilobytes_long() -> None:
    longest = protocol.Refresh("x" * (protocol.MESSAGE_BYTES_MAX - 40))
    assert taken(protocol.packed(longest), 1000)[0] == [longest]
    with pytest.raises(WireError, match="too long"):
        protocol.packed(protocol.Refresh("x" * protocol.MESSAGE_BYTES_MAX))


def test_a_length_above_the_limit_is_refused_before_its_bytes_come() -> None:
    most, reader = protocol.MESSAGE_BYTES_MAX, protocol.ClientMessages
    assert not list(reader().feed(most.to_bytes(4, "big")))
    with pytest.raises(WireError, match="too long"):
        list(reader().feed((most + 1).to_bytes(4, "big")))


def test_half_a_character_of_a_provider_is_sent_as_a_question_mark() -> None:
    """UTF-8 has no bytes for half a surrogate pair, and JSON can contain one."""
    outcome = Outcome(
        "throttled", fault=values.Fault("rate", retry_after_s=inf, detail="no \ud800")
    )
    ((settle,), _) = taken(protocol.packed(protocol.Settle(1, outcome)))
    sent = values.Fault("rate", retry_after_s=inf, detail="no ?")
    assert settle == protocol.Settle(1, Outcome("throttled", fault=sent))
