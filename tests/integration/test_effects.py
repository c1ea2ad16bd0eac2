"""Effects on the real world: files, threads, commands, a journal on disk, and kill -9."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import headway
from headway.base.digest import digest
from headway.engine.events import RunFinished
from headway.engine.record import EFFECTS, EffectDone, Header
from headway.journal.journal import Journal
from headway.journal.reader import JournalReader
from headway.plans.resources import Channel
from headway.report.text.runs import done_words, doubt_lines, known_of
from headway.state.outbox import Outbox, by_function, senders
from headway.state.shared import Act, Channels
from tests.integration.effect_run import CHANNELS, TASKS, serial

SOON_S = 60.0
COUNT = TASKS * len(CHANNELS)
POINTS = ("intended", "performed", "receipted")


def run_once(folder: Path, crash_at: str = "") -> tuple[int, list[str]]:
    """How the program ends, and the keys that were in doubt when it began."""
    source = Path(headway.__file__).parents[1]
    environment = {
        **os.environ,
        "PYTHONPATH": f"{source}{os.pathsep}{Path(__file__).parents[2]}",
        "HEADWAY_CRASH_AT": crash_at,
    }
    ended = subprocess.run(
        [sys.executable, "-m", "tests.integration.effect_run", str(folder)],
        env=environment, check=False, capture_output=True, text=True, timeout=SOON_S,
    )  # fmt: skip
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
    return ended.returncode, [line.split()[1] for line in ended.stdout.splitlines()]


def received(folder: Path, channel: str) -> list[tuple[str, str]]:
    """Keys and texts, in the order in which they came."""
    path = folder / channel
    lines = path.read_text().splitlines() if path.exists() else []
    return [(key, text) for key, _, text in (line.partition(" ") for line in lines)]


def must_be_once(folder: Path, doubted: list[str]) -> None:
    """Whoever honours the key sees everything once and in order; the others were warned."""
    for channel in CHANNELS:
        came = received(folder, channel)
        assert [text for _, text in dict(came).items()] == serial()
        keys = [key for key, _ in came]
        assert {key for key in keys if keys.count(key) > 1} <= set(doubted)


def test_effects_leave_in_declared_order_and_those_of_stale_attempts_never(tmp_path: Path) -> None:
    assert run_once(tmp_path) == (0, [])
    for channel in CHANNELS:
        assert [text for _, text in received(tmp_path, channel)] == serial()
    assert run_once(tmp_path) == (0, [])
    assert sum(len(received(tmp_path, channel)) for channel in CHANNELS) == COUNT


@pytest.mark.parametrize("point", POINTS)
def test_after_a_kill_each_effect_is_seen_once_by_whoever_honours_its_key(
    tmp_path: Path, point: str
) -> None:
    ended, doubted = run_once(tmp_path, f"{point}:{COUNT // 2}")
    assert (ended, doubted) == (-signal.SIGKILL, [])
    ended, doubted = run_once(tmp_path)
    assert ended == 0
    must_be_once(tmp_path, doubted)
    if point != "receipted":
        assert doubted
    # What was performed and not receipted is done again, and was said to be.
    twice = sum(len(received(tmp_path, channel)) for channel in CHANNELS) > COUNT
    assert twice or point != "performed"


def test_a_run_is_not_over_before_its_effects_are(tmp_path: Path) -> None:
    assert run_once(tmp_path, f"performed:{COUNT}")[0] == -signal.SIGKILL
    assert not _ends(tmp_path)
    with JournalReader(str(tmp_path / "run")) as reader:
        lines = list(doubt_lines(reader, known_of(reader)))
    assert lines
    for line in lines:
        channel = line.split()[2]
        key = received(tmp_path, channel)[-1][0]
        assert line == (
            f"in doubt: {channel} of notify[{TASKS - 1}], key {key}: it may have been sent; it is "
            "sent again with the same key"
        )
    assert run_once(tmp_path)[0] == 0
    assert [end.effects for end in _ends(tmp_path)] == [0]
    with JournalReader(str(tmp_path / "run")) as reader:
        known = known_of(reader)
        assert list(doubt_lines(reader, known)) == []
        assert done_words(known) == f"{COUNT} performed"
        done = [one.event for one in reader.events(kinds=("effect_done",))]
        bodies = [reader.body(one.receipt) for one in done if isinstance(one, EffectDone)]
    assert len(bodies) == COUNT
    assert b'{"taken":"0"}' in bodies


def _ends(folder: Path) -> list[RunFinished]:
    with JournalReader(str(folder / "run")) as reader:
        events = [recorded.event for recorded in reader.events()]
    return [event for event in events if isinstance(event, RunFinished)]


def performed(
    folder: Path, find: Callable[[str], object], acts: tuple[Act, ...], timeout_s: float = SOON_S
) -> Outbox:
    """An outbox on a journal that has performed these, as far as it could."""
    journal = Journal.create(
        str(folder / "run"), Header("run-1", "n", "plan", "", str(folder), 1, 1.0)
    )

    async def main() -> Outbox:
        box = Outbox("run-1", find, journal, time.time, timeout_s)  # type: ignore[arg-type]
        journal.start(asyncio.get_running_loop())
        box.release(0, digest(b"t"), "notify", acts)
        await asyncio.wait_for(box.drained(), SOON_S)
        await journal.flush()
        return box

    try:
        return asyncio.run(main())
    finally:
        journal.close()


def receipts(folder: Path) -> list[bytes | None]:
    with JournalReader(str(folder / "run")) as reader:
        done = [recorded.event for recorded in reader.events(kinds=EFFECTS)]
        return [reader.body(one.receipt) for one in done if isinstance(one, EffectDone)]


def of_commands(folder: Path, **commands: str) -> Callable[[str], object]:
    channels = Channels({name: Channel("effect", text) for name, text in commands.items()})
    return senders(channels, {}, _no_function, str(folder))


def _no_function(target: str) -> Callable[[object, str], object]:
    raise AssertionError(target)


def test_a_command_is_given_the_payload_and_the_key(tmp_path: Path) -> None:
    find = of_commands(tmp_path, mail="cat > got; echo -n $HEADWAY_EFFECT_KEY; pwd >&2")
    box = performed(tmp_path, find, (Act("mail", b'{"to":"ada"}'),))
    assert (tmp_path / "got").read_text() == '{"to":"ada"}'
    (receipt,) = receipts(tmp_path)
    assert receipt is not None
    assert len(bytes.fromhex(receipt.decode())) == 16
    assert not box.failures()


def test_a_command_that_does_not_read_its_payload_is_none_the_worse(tmp_path: Path) -> None:
    payload = b'"' + b"x" * 1_000_000 + b'"'
    box = performed(tmp_path, of_commands(tmp_path, mail="true"), (Act("mail", payload),))
    assert (len(box.known.done), box.failures()) == (1, [])


def test_a_command_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    find = of_commands(tmp_path, mail="sleep 1000 & echo $! > child; wait")
    box = performed(tmp_path, find, (Act("mail", b"1"),), timeout_s=0.5)
    assert box.failures()[0].endswith("it took more than 0.5 s")
    child = int((tmp_path / "child").read_text())
    deadline_s = time.monotonic() + SOON_S
    while _is_alive(child):
        assert time.monotonic() < deadline_s


def _is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def test_a_function_runs_beside_the_loop_and_gives_what_it_likes(tmp_path: Path) -> None:
    threads: list[int] = []

    def send(payload: object, key: str) -> object:
        threads.append(threading.get_ident())
        return {"payload": payload, "key": len(key)}

    async def later(payload: object, key: str) -> object:
        await asyncio.sleep(0)
        return {1, 2}

    def promised(payload: object, key: str) -> object:
        return later(payload, key)

    channels = {"mail": send, "sms": later, "fax": promised}
    find = {name: by_function(function) for name, function in channels.items()}.get
    box = performed(tmp_path, find, tuple(Act(name, b"[1]") for name in channels))
    assert not box.failures()
    assert set(receipts(tmp_path)) == {b'{"key":32,"payload":[1]}', b'"{1, 2}"'}
    assert threading.get_ident() not in threads


def test_a_function_that_raises_or_exits_stops_its_channel(tmp_path: Path) -> None:
    def exits(payload: object, key: str) -> object:
        raise SystemExit(3)

    async def raises(payload: object, key: str) -> object:
        raise OSError("no route")

    find = {"a": by_function(exits), "b": by_function(raises)}.get
    box = performed(tmp_path, find, (Act("a", b"1"), Act("b", b"2")))
    one, other = sorted(box.failures())
    assert one.endswith("RuntimeError: SystemExit(3)")
    assert other.endswith("OSError: no route")


def test_a_function_that_hangs_is_not_waited_for_at_exit(tmp_path: Path) -> None:
    never = threading.Event()
    find = {"mail": by_function(lambda payload, key: never.wait())}.get
    box = performed(tmp_path, find, (Act("mail", b"1"),), timeout_s=0.2)
    assert box.failures()[0].endswith("it took more than 0.2 s")
    # Its answer, when nobody waits any more, goes nowhere.
    never.set()
