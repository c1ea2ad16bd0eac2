"""Effects on the real world: files, threads, commands, a journal on disk, and kill -9."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path

from headway.base.digest import digest
from headway.engine.record import EFFECTS, EffectDone, Header
from headway.journal.journal import Journal
from headway.journal.reader import JournalReader
from headway.plans.resources import Channel
from headway.state.outbox import Outbox, by_function, senders
from headway.state.shared import Act, Channels

SOON_S = 60.0


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


def test_a_function_that_hangs_is_not_waited_for_at_exit(tmp_path: Path) -> None:
    never = threading.Event()
    find = {"mail": by_function(lambda payload, key: never.wait())}.get
    box = performed(tmp_path, find, (Act("mail", b"1"),), timeout_s=0.2)
    assert box.failures()[0].endswith("it took more than 0.2 s")
    # Its answer, when nobody waits any more, goes nowhere.
    never.set()
