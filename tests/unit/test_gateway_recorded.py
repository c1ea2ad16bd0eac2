"""What a recording says was asked under each name, and a run's gateway that goes on with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import ceil
from pathlib import Path

from msgspec.structs import replace

from headway.agents.metering import MeteredUsage
from headway.base.values import CacheTokens
from headway.engine.record import Header
from headway.gateway.recording import Recorder, recorded_in
from headway.gateway.replay import CUT_OFF, NOT_SENT, RecordedReply, Tape
from headway.gateway.request_match import CanonicalCall
from headway.gateway.settings import GatewayOptions, read_settings
from headway.gateway.tasks import TaskGateway
from headway.journal.journal import Journal
from tests.unit.attempts import Told
from tests.unit.recorded_calls import HEADERS, TALLY, asked, sent

HEADER = Header("20261116-0423-a7k", "agents", "plan", "{}", "/home/ada", 2, 1.5)


def call(name: str, prompt: str, model: str = "m") -> CanonicalCall:
    """A call of the agent's main line; another model is another line."""
    made = asked(sent("claude-code", prompt=prompt))
    parts = tuple((key, model if key == "body.model" else value) for key, value in made.parts)
    return replace(made, key=name, model=model, parts=parts)


async def answered(recorder: Recorder, one: CanonicalCall) -> None:
    recording = recorder.begin(one)
    recording.answered(200, HEADERS)
    recording.feed(b"reply")
    await recording.end(TALLY)


def recorded(path: Path, journal: Journal | None = None) -> None:
    """Two gateways that record in a file or a journal, of which the first was killed."""

    async def first(recorder: Recorder) -> None:
        await answered(recorder, call("a~1", "one"))
        await answered(recorder, call("a~1", "two"))
        await answered(recorder, call("a~1", "title", "small"))
        await answered(recorder, call("b~1", "one"))
        recorder.begin(call("a~1", "three"))
        recorder.begin(call("a~1", "cut")).drop(CUT_OFF)
        recorder.begin(call("a~1", "waited")).drop(NOT_SENT)
        recorder.begin(call("a~1", "refused")).drop("status 429")

    async def second(recorder: Recorder) -> None:
        await recorder.again(call("a~1", "one"), RecordedReply(200, HEADERS, b"reply", TALLY))
        await answered(recorder, call("a~2", "one"))

    async def perform(work: Callable[[Recorder], Awaitable[None]]) -> None:
        recorder = Recorder(journal or str(path))
        await work(recorder)
        await asyncio.to_thread(recorder.close)

    async def both() -> None:
        if journal is not None:
            journal.start(asyncio.get_running_loop())
        for work in (first, second):
            await perform(work)
        if journal is not None:
            await journal.flush()

    asyncio.run(both())


def test_calls_are_counted_by_name_each_once_and_what_may_have_been_paid_with_them(
    tmp_path: Path,
) -> None:
    recorded(tmp_path / "calls.hwr")
    found = recorded_in(str(tmp_path / "calls.hwr"))
    journal = Journal.create(str(tmp_path / "run"), HEADER)
    recorded(tmp_path, journal)
    assert recorded_in(journal.reader) == found
    journal.close()
    once = CacheTokens(2.0, 4.0)
    thrice = once + once + once
    taken = MeteredUsage(4, 36.0, 15.0, in_flight=2, paid=3, unpriced=3, cache=thrice)
    assert found["a~1"] == taken, "what came again is free"
    taken = MeteredUsage(1, 12.0, 5.0, paid=1, unpriced=1, cache=once)
    assert found["a~2"] == found["b~1"] == taken


def test_what_was_recorded_has_the_price_of_its_model(tmp_path: Path) -> None:
    async def work(recorder: Recorder) -> None:
        await answered(recorder, replace(call("a~1", "one"), model="claude-haiku-4-5"))

    recorder = Recorder(str(tmp_path / "calls.hwr"))
    asyncio.run(work(recorder))
    recorder.close()
    # 6 tokens of its input as usual, 3 written into the cache, 1 for an hour, 2 read from it.
    cost = ceil(6 * 1.0 + 3 * 1.25 + 1 * 2.0 + 2 * 0.1 + 5 * 5.0)
    assert recorded_in(str(tmp_path / "calls.hwr"))["a~1"].microusd == cost


def gateway(folder: Path) -> TaskGateway:
    environ = {"HOME": str(folder), "PATH": "/nowhere"}
    settings = read_settings(GatewayOptions(), {})
    return TaskGateway("r", str(folder), str(folder), environ, settings)


def test_an_attempt_goes_on_with_what_was_recorded_under_its_name(tmp_path: Path) -> None:
    journal = Journal.create(str(tmp_path / "run"), HEADER)
    recorded(tmp_path, journal)

    async def perform() -> None:
        meter = gateway(tmp_path)
        meter.record(journal)
        attempt = Told().attempt()
        opened = meter.open(attempt, print)
        assert meter.known_as(attempt, "a~1").calls == 4
        assert meter.known_as(attempt, "c~1") == MeteredUsage()
        assert meter.seen(attempt) == MeteredUsage()
        meter.carry(attempt, MeteredUsage(2, 20.0, 5.0, 100))
        assert meter.seen(attempt) == MeteredUsage(2, 20.0, 5.0, 100)
        assert await opened.close() == MeteredUsage(2, 20.0, 5.0, 100)
        assert meter.seen(attempt) == MeteredUsage()
        await meter.aclose()

    asyncio.run(perform())


def test_a_recording_in_a_journal_is_replayed_and_no_answer_waits_for_a_full_disk(
    tmp_path: Path,
) -> None:
    journal = Journal.create(str(tmp_path / "run"), HEADER)
    recorded(tmp_path, journal)
    tape = Tape(journal.reader)
    found = tape.find(call("a~1", "one"))
    assert found is not None
    assert found.body == b"reply"
    tape.close()

    async def full() -> bool:
        told: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        journal.fault = "the disk is full"
        journal.record([b"line"], [told])
        return await told

    assert asyncio.run(full()) is False
    journal.close()


def test_a_command_is_never_answered_from_a_recording(tmp_path: Path) -> None:
    async def perform() -> list[str]:
        meter = gateway(tmp_path)
        names = []
        for one in (None, journal):
            if one is not None:
                meter.record(one)
            opened = meter.open(Told().attempt(), print)
            names += [key.name for key in meter._keys]
            await opened.close()
        await meter.aclose()
        return names

    journal = Journal.create(str(tmp_path / "run"), HEADER)
    plain, recording = asyncio.run(perform())
    journal.close()
    assert recording == f"{plain}~attempt 1"
