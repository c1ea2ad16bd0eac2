"""What a tape answers: the recorded calls at their places, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headway.base.values import Fault
from headway.gateway import replay as tape_module
from headway.gateway.recording import Recorder
from headway.gateway.replay import Tape
from tests.unit.recorded_calls import (
    HEADERS,
    TALLY,
    asked,
    bodies,
    plain,
    record,
    record_calls,
    replied,
    sent,
    with_body,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "calls.recording"


def test_calls_are_answered_in_their_order_and_each_once(path: Path) -> None:
    same = plain("sample")
    record_calls(path, same, same, plain("b"))
    found = bodies(Tape(str(path)), same, same, plain("b"), plain("b"))
    assert found == [b"reply 0", b"reply 1", b"reply 2", None]


def test_the_first_call_that_is_not_as_recorded_ends_its_stream_for_good(path: Path) -> None:
    record_calls(path, *map(plain, "abc"))
    why: list[str] = []
    found = bodies(Tape(str(path), why.append), *map(plain, "axbc"))
    assert found == [b"reply 0", None, None, None]
    assert why == ["default unknown: not as recorded in body"]


def test_a_conversation_with_a_new_name_is_known_by_what_it_says(path: Path) -> None:
    record_calls(path, plain("a", "s1"), plain("b", "s1"), plain("a", "s2"), plain("c", "s2"))
    tape = Tape(str(path))
    named = [tape.find(plain("a", "s1")), tape.find(plain("b", "s1"))]
    assert [reply and reply.body for reply in named] == [b"reply 0", b"reply 1"]
    assert bodies(tape, plain("a", "n"), plain("c", "n")) == [b"reply 2", b"reply 3"]
    assert bodies(Tape(str(path)), plain("a", "n"), plain("b", "n"))[1] == b"reply 1"


async def together(recorder: Recorder) -> None:
    """A title beside the first answer, then two more calls in turn."""
    title, first = recorder.begin(plain("title")), recorder.begin(plain("first"))
    await replied(first, b"first")
    second = recorder.begin(plain("second"))
    await replied(title, b"title")
    await replied(second, b"second")
    await replied(recorder.begin(plain("third")), b"third")


@pytest.mark.parametrize(
    "order",
    ["title first second third", "first title second third", "first second third title"],
)
def test_calls_that_were_in_flight_together_may_come_in_any_order(path: Path, order: str) -> None:
    record(path, together)
    words = order.split()
    assert bodies(Tape(str(path)), *map(plain, words)) == [word.encode() for word in words]


@pytest.mark.parametrize("order", ["t123", "1t23", "12t3", "123t"])
def test_calls_with_other_tools_or_instructions_come_when_they_come(path: Path, order: str) -> None:
    """A title was recorded before the first answer, as it is when the provider is fast."""
    call = sent("opencode")
    body = json.loads(call.body)
    calls = {name: with_body(call, {**body, "tools": [1], "n": name}) for name in "123"}
    calls["t"] = call
    record_calls(path, *(asked(calls[name]) for name in "t123"))
    numbers = {name: b"reply %d" % number for number, name in enumerate("t123")}
    found = bodies(Tape(str(path)), *(asked(calls[name]) for name in order))
    assert found == [numbers[name] for name in order]
    why: list[str] = []
    tape = Tape(str(path), why.append)
    assert bodies(tape, *(asked(calls[name]) for name in "t2")) == [b"reply 0", None]
    assert why[0].endswith("not as recorded in body.n")


@pytest.mark.parametrize("how", ["status", "fault", "left", "killed", "long"])
def test_a_call_without_a_whole_reply_is_sent_on_and_ends_nothing(
    path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(recorder: Recorder) -> None:
        await replied(recorder.begin(plain("a")), b"a")
        lost = recorder.begin(plain("lost"))
        lost.answered(529 if how == "status" else 200, HEADERS)
        lost.feed(b"half")
        if how == "status":
            assert not await lost.end(TALLY)
        elif how == "fault":
            assert not await lost.end(TALLY, Fault("broken"))
        elif how == "left":
            lost.drop("client left")
        elif how == "long":
            monkeypatch.setattr(lost, "_left", 3)
            lost.feed(b"more than that")
            assert not await lost.end(TALLY)
        await replied(recorder.begin(plain("b")), b"b")
        await replied(recorder.begin(plain("c")), b"c")

    record(path, act)
    assert bodies(Tape(str(path)), *map(plain, ("a", "lost", "b"))) == [b"a", None, b"b"]
    assert bodies(Tape(str(path)), *map(plain, "ab")) == [b"a", b"b"]
    assert bodies(Tape(str(path)), *map(plain, ("a", "lost", "c"))) == [b"a", None, None]
    assert (b'"is":"dropped"' in path.read_bytes()) == (how != "killed")


def test_a_replayed_run_that_is_recorded_again_goes_on_where_it_was_cut(path: Path) -> None:
    """Three attempts, each killed: the second after one call that was replayed."""
    record_calls(path, plain("a", "s1"), plain("b", "s1"))

    def attempt(session: str, *words: str) -> list[bytes | None]:
        async def act(recorder: Recorder) -> None:
            for word in words:
                call = plain(word, session)
                reply = tape.find(call)
                if reply is not None:
                    assert await recorder.again(call, reply)
                else:
                    await replied(recorder.begin(call), b"new " + word.encode())
                found.append(None if reply is None else reply.body)

        found: list[bytes | None] = []
        tape = Tape(str(path))
        record(path, act)
        tape.close()
        return found

    assert attempt("s2", "a") == [b"reply 0"]
    assert attempt("s3", "a", "b", "c") == [b"reply 0", b"reply 1", None]
    assert attempt("s4", "a", "b", "c", "d") == [b"reply 0", b"reply 1", b"new c", None]


def test_a_file_that_changes_under_a_tape_gives_nothing_wrong(path: Path) -> None:
    record_calls(path, *map(plain, "ab"))
    why: list[str] = []
    tape = Tape(str(path), why.append)
    path.write_bytes(b"\0" * path.stat().st_size)
    assert bodies(tape, *map(plain, "ab")) == [None, None]
    assert "changed since it was opened" in why[0]


def test_more_streams_than_can_be_known_are_sent_on(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_calls(path, plain("a", "s1"), plain("a", "s2"))
    monkeypatch.setattr(tape_module, "STREAMS_MAX", 1)
    assert bodies(Tape(str(path)), plain("a", "s1"), plain("a", "s2")) == [b"reply 0", None]
