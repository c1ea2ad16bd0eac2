"""What a recording says was asked under each name, and a run's gateway that goes on with it."""

from __future__ import annotations

import asyncio
from math import ceil
from pathlib import Path

from msgspec.structs import replace

from headway.agents.metering import MeteredUsage
from headway.base.values import CacheTokens
from headway.gateway.recording import Recorder, recorded_in
from headway.gateway.replay import CUT_OFF, NOT_SENT, RecordedReply
from headway.gateway.request_match import CanonicalCall
from headway.gateway.settings import GatewayOptions, read_settings
from headway.gateway.tasks import TaskGateway
from tests.unit.attempts import Told
from tests.unit.recorded_calls import HEADERS, TALLY, asked, sent


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


def recorded(path: Path) -> None:
    """Two gateways, of which the first was killed."""

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

    for work in (first, second):
        recorder = Recorder(str(path))
        asyncio.run(work(recorder))
        recorder.close()


def test_calls_are_counted_by_name_each_once_and_what_may_have_been_paid_with_them(
    tmp_path: Path,
) -> None:
    recorded(tmp_path / "calls.hwr")
    found = recorded_in(str(tmp_path / "calls.hwr"))
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
    path = tmp_path / "calls.hwr"
    recorded(path)

    async def perform() -> None:
        meter = gateway(tmp_path)
        meter.record(str(path))
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


def test_a_recording_that_is_spoilt_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "calls.hwr"
    path.write_text("something else\n")
    meter = gateway(tmp_path)
    meter.record(str(path))
    assert (tmp_path / "calls.hwr.spoilt").exists()
    assert meter._settings.record == str(path)
    assert meter._settings.replay is None


def test_a_command_is_never_answered_from_a_recording(tmp_path: Path) -> None:
    async def perform() -> list[str]:
        meter = gateway(tmp_path)
        names = []
        for path in (None, str(tmp_path / "calls.hwr")):
            if path is not None:
                meter.record(path)
            opened = meter.open(Told().attempt(), print)
            names += [key.name for key in meter._keys]
            await opened.close()
        await meter.aclose()
        return names

    plain, recording = asyncio.run(perform())
    assert recording == f"{plain}~attempt 1"
