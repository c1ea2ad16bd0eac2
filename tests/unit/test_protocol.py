"""Messages survive the wire, and nothing that is not one does any harm."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.base import values
from headway.broker import protocol
from headway.errors import WireError
from headway.pacing.admission import CallOutcome, Denied, Granted
from headway.pacing.budget import Cut
from headway.pacing.lane import Request
from headway.pacing.memory import AccountTerms, MonthlyBudget

TEXT = st.text(max_size=30)
NUMBERS = st.integers(0, 2**40)
AMOUNTS = st.floats(allow_nan=False)
SEEN = st.none() | AMOUNTS
SKETCHES = st.builds(values.Sketch, model=TEXT, max_output_tokens=st.none() | NUMBERS)
REQUESTS = st.builds(
    Request,
    id=st.tuples(TEXT, NUMBERS),
    account=TEXT,
    dialect=TEXT,
    sketch=SKETCHES,
    path=st.lists(TEXT, max_size=3).map(tuple),
    is_resent=st.booleans(),
    is_soft=st.booleans(),
)
READINGS = st.builds(
    values.Reading,
    limits=st.lists(
        st.builds(
            values.LimitReading, st.sampled_from(["requests", "input"]), SEEN, SEEN, SEEN, SEEN
        ),
        max_size=3,
    ).map(tuple),
    retry_after_s=SEEN,
    should_retry=st.none() | st.booleans(),
)
OUTCOMES = st.builds(
    CallOutcome,
    how=st.sampled_from(["used", "unused", "throttled"]),
    tally=st.builds(values.Tally, AMOUNTS, AMOUNTS, AMOUNTS),
    fault=st.none() | st.builds(values.Fault, st.sampled_from(["rate", "broken"]), detail=TEXT),
    reading=READINGS,
    dialect=TEXT,
)
SPENT = st.builds(values.Amounts, AMOUNTS, AMOUNTS, NUMBERS)
PERMITS = st.builds(
    values.Permit, NUMBERS, TEXT, st.builds(values.Demand, SPENT, SPENT, TEXT), AMOUNTS, TEXT
)
TERMS = st.builds(
    AccountTerms,
    limits=st.lists(st.builds(values.Limit, st.just("requests"), AMOUNTS), max_size=2).map(tuple),
    budget=st.builds(MonthlyBudget, SEEN, st.none() | NUMBERS),
)
MESSAGES: st.SearchStrategy[protocol.Message] = st.one_of(
    st.builds(protocol.Hello, NUMBERS, TEXT, NUMBERS, TEXT),
    st.builds(protocol.AskMessage, REQUESTS),
    st.builds(protocol.Leave, NUMBERS),
    st.builds(protocol.BeganMessage, NUMBERS, READINGS, TEXT),
    st.builds(protocol.Progressed, NUMBERS, AMOUNTS),
    st.builds(protocol.Alive, NUMBERS),
    st.builds(protocol.Settled, NUMBERS, OUTCOMES),
    st.builds(protocol.Adopt, REQUESTS, AMOUNTS),
    st.builds(protocol.Configure, TEXT, TERMS),
    st.builds(protocol.Describe, NUMBERS),
    st.builds(Granted, st.tuples(TEXT, NUMBERS), PERMITS),
    st.builds(Denied, st.tuples(TEXT, NUMBERS), TEXT, TEXT, TEXT),
    st.builds(Cut, st.tuples(TEXT, NUMBERS), TEXT, TEXT),
    st.builds(protocol.Left, NUMBERS, TEXT),
    st.builds(
        protocol.Described,
        NUMBERS,
        st.none(),
        st.none() | st.builds(protocol.About, NUMBERS, AMOUNTS),
    ),
    st.builds(protocol.Error, TEXT),
)


@given(MESSAGES)
def test_a_message_is_read_as_it_was_written(message: protocol.Message) -> None:
    line = protocol.line_of(message)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert protocol.message_of(line) == message


@given(st.lists(MESSAGES, max_size=4), st.integers(1, 50))
def test_messages_may_arrive_in_pieces_of_any_size(
    messages: list[protocol.Message], size: int
) -> None:
    data = b"".join(map(protocol.line_of, messages))
    lines = protocol.MessageSplitter()
    heard: list[protocol.Message] = []
    for start in range(0, len(data), size):
        heard += lines.feed(data[start : start + size])
    assert heard == messages


@given(MESSAGES, st.data())
def test_a_spoilt_message_raises_nothing_but_a_wire_error(
    message: protocol.Message, data: st.DataObject
) -> None:
    line = bytearray(protocol.line_of(message))
    for _ in range(data.draw(st.integers(1, 4))):
        line[data.draw(st.integers(0, len(line) - 1))] = data.draw(st.integers(0, 255))
    try:
        protocol.message_of(bytes(line))
    except WireError:
        return


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(st.sampled_from([*get_args(protocol.FromClient), *get_args(protocol.FromBroker)]), JSON)
def test_any_json_in_any_message_raises_nothing_but_a_wire_error(
    kind: type[protocol.Message], value: object
) -> None:
    import json

    try:
        protocol.message_of(json.dumps([kind.__name__, value]).encode())
    except WireError:
        return


@pytest.mark.parametrize(
    "line",
    [
        b"", b"null", b"[]", b'["Leave"]', b'["Leave",{}]', b'["Leave",{"number":true}]',
        b'["Leave",{"number":1.0}]', b'["Nobody",{}]', b'[["Leave"],{}]', b"\xff\xfe",
        b"[" * 60_000, b'["Progressed",{"number":1,"output_tokens":NaN}]',
        b'["Ask",{"request":{"id":["client"]}}]',
        b'["Progressed",{"number":1,"output_tokens":1' + b"0" * 400 + b"}]",
        b'["Leave",{"number":1' + b"0" * 5000 + b"}]", b" " * (protocol.LINE_BYTES_MAX + 1),
    ],
    ids=range(16),
)  # fmt: skip
def test_what_is_no_message_is_refused(line: bytes) -> None:
    with pytest.raises(WireError):
        protocol.message_of(line)


def test_a_message_that_is_too_long_is_not_sent() -> None:
    with pytest.raises(WireError, match="too long"):
        protocol.line_of(protocol.Error("x" * protocol.LINE_BYTES_MAX))


def test_a_line_without_end_is_not_kept() -> None:
    lines = protocol.MessageSplitter()
    assert not list(lines.feed(b"x" * protocol.LINE_BYTES_MAX))
    with pytest.raises(WireError, match="more than"):
        list(lines.feed(b"x"))
