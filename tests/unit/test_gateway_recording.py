"""What a recording keeps: through crashes, full disks and other people's files."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import StateFileError
from headway.gateway.recording import Recorder
from headway.gateway.replay import RecordedReply, Tape, sealed
from tests.unit.recorded_calls import TALLY, bodies, plain, record, record_calls, replied

KILLED = """
import asyncio, sys
from headway.base.values import Tally
from headway.gateway.recording import Recorder
from tests.unit.recorded_calls import plain

async def one(recorder, stream):
    for number in range(10_000):
        recording = recorder.begin(plain(str(number), f"s{stream}"))
        recording.answered(200, ())
        recording.feed(b"%d" % number)
        assert await recording.end(Tally())
        print(stream, number, flush=True)

async def all_of_them():
    recorder = Recorder(sys.argv[1])
    await asyncio.gather(*(one(recorder, stream) for stream in range(4)))

asyncio.run(all_of_them())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "calls.recording"


def test_a_reply_comes_back_as_it_was_without_cookies_or_limits(path: Path) -> None:
    body = random.Random(1).randbytes(100_000) + b"data: {}\n\n" * 10_000
    record(path, lambda recorder: replied(recorder.begin(plain("a")), body))
    tape = Tape(str(path))
    kept = ((b"content-type", b"text/event-stream"), (b"request-id", b"req_1"))
    assert tape.find(plain("a")) == RecordedReply(200, kept, body, TALLY)
    tape.close()
    text = path.read_bytes()
    assert b"secret" not in text
    assert b'"content":' not in text


def test_only_its_owner_may_read_it_even_if_others_could_before(path: Path) -> None:
    record_calls(path, plain("a"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    record_calls(path, plain("a"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_comes_after_the_end_is_kept_and_nothing_after_a_drop(path: Path) -> None:
    async def act(recorder: Recorder) -> None:
        recording = recorder.begin(plain("a"))
        await replied(recording, b"all of it")
        recording.feed(b", and a bit")
        recording.drop("client left")
        assert not await recording.end(TALLY)
        dropped = recorder.begin(plain("b"))
        dropped.drop("client left")
        dropped.feed(b"late")

    record(path, act)
    assert bodies(Tape(str(path)), plain("a"), plain("b")) == [b"all of it, and a bit", None]


@given(st.integers(0, 4000))
def test_wherever_a_crash_cuts_the_file_all_whole_lines_are_kept(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    folder = tmp_path_factory.getbasetemp()
    whole, torn = folder / "whole", folder / "torn"
    if not whole.exists():
        record_calls(whole, *map(plain, "abcd"))
    data = whole.read_bytes()
    first = data.index(b"\n") + 1
    cut = first + cut % (len(data) - first)
    torn.write_bytes(data[:cut])
    replies = (data[:cut].count(b"\n") - 1) // 2
    is_torn = not data[:cut].endswith(b"\n")
    tape = Tape(str(torn))
    assert bool(tape.notice) == is_torn
    found = bodies(tape, *map(plain, "abcd"))
    assert found == [b"reply %d" % at if at < replies else None for at in range(4)]
    recorder = Recorder(str(torn))
    recorder.close()
    assert bool(recorder.notice) == is_torn
    kept = data[: data.rindex(b"\n", 0, cut) + 1]
    assert torn.read_bytes().startswith(kept)
    assert torn.read_bytes().count(b"\n") == kept.count(b"\n") + 1
    again = Tape(str(torn))
    assert not again.notice
    again.close()


def test_garbage_at_the_end_is_cut_like_half_a_line(path: Path) -> None:
    record_calls(path, plain("a"))
    good = path.read_bytes()
    path.write_bytes(good + b"\0" * 100 + b"\n" + b"\0" * 10)
    recorder = Recorder(str(path))
    recorder.close()
    assert "111 bytes were cut, 3 lines are kept" in recorder.notice
    assert path.read_bytes().startswith(good)


@pytest.mark.parametrize("opened", [Recorder, Tape])
def test_a_damaged_line_in_the_middle_says_where_and_what_to_do(
    path: Path, opened: type[Recorder] | type[Tape]
) -> None:
    record_calls(path, *map(plain, "ab"))
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b"200", b"201")
    path.write_bytes(b"".join(lines))
    with pytest.raises(StateFileError) as caught:
        opened(str(path))
    assert caught.value.where == f"{path}:3"
    assert caught.value.hint == f"keep what is before it: head -n 2 {path} > {path}.kept"
    assert path.read_bytes() == b"".join(lines)


@pytest.mark.parametrize("opened", [Recorder, Tape])
@pytest.mark.parametrize("text", [b"a letter\n", b"x", b"\0" * 100, sealed({"is": "begun"})])
def test_a_file_that_is_no_recording_is_refused_and_left_alone(
    path: Path, text: bytes, opened: type[Recorder] | type[Tape]
) -> None:
    path.write_bytes(text)
    with pytest.raises(StateFileError, match="not a recording"):
        opened(str(path))
    assert path.read_bytes() == text


def test_a_recording_of_a_later_version_is_refused(path: Path) -> None:
    path.write_bytes(sealed({"is": "opened", "recording": 2}))
    with pytest.raises(StateFileError, match="later version") as caught:
        Tape(str(path))
    assert caught.value.detail == "its format is 2, this headway reads up to 1"


def test_what_is_no_file_cannot_be_recorded_to_nor_replayed(tmp_path: Path) -> None:
    with pytest.raises(StateFileError, match="is not a file"):
        Recorder(os.devnull)
    with pytest.raises(StateFileError, match="No such file"):
        Tape(str(tmp_path / "nothing"))
    with pytest.raises(StateFileError, match="cannot open"):
        Recorder(str(tmp_path / "nowhere" / "file"))


def test_two_gateways_cannot_record_to_one_file(path: Path) -> None:
    first = Recorder(str(path))
    with pytest.raises(StateFileError, match="another gateway records"):
        Recorder(str(path))
    first.close()
    Recorder(str(path)).close()


def test_a_full_disk_ends_the_recording_says_so_once_and_fails_no_call(path: Path) -> None:
    said: list[str] = []

    async def act() -> None:
        recorder = Recorder(str(path), said.append)
        await replied(recorder.begin(plain("a")), b"a")
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 50, limits[1]))
        try:
            assert not await replied(recorder.begin(plain("b")), b"b")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert not await replied(recorder.begin(plain("c")), b"c")
        recorder.close()

    asyncio.run(act())
    assert said == ["File too large"]
    assert path.read_bytes().count(b'"is":"begun"') == 1
    tape = Tape(str(path))
    assert not tape.notice
    assert bodies(tape, *map(plain, "abc")) == [b"a", None, None]


def test_no_reply_that_was_told_to_be_recorded_is_lost_when_the_process_is_killed(
    path: Path,
) -> None:
    root = Path(__file__).resolve().parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path)],
        env={**os.environ, "PYTHONPATH": f"{root / 'src'}:{root}"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process:
        told = [process.stdout.readline() for _ in range(200)]
        process.kill()
        told += process.stdout.readlines()
    tape = Tape(str(path))
    numbers = [line.split() for line in told if line.endswith("\n")]
    assert len(numbers) >= 200
    for stream, number in numbers:
        reply = tape.find(plain(number, f"s{stream}"))
        assert reply is not None
        assert reply.body == number.encode()
    tape.close()
