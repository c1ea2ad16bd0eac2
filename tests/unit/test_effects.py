"""Effects leave in order, once each, and what may have happened is known."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct, field

from headway.base.digest import digest
from headway.engine.effects import Asker, Due, Outgoing, key_of
from headway.engine.events import TaskFinished
from headway.engine.record import EffectDone, EffectIntended, JournalEntry
from headway.errors import EffectFailedError, StateError
from headway.plans.resources import Channel
from headway.state.outbox import RECEIPT_BYTES_MAX, Outbox, Send, is_function, senders
from headway.state.shared import Act, Channels
from headway.testing import run_virtual
from tests.unit.driven import passes, settle


def asker(number: int) -> Asker:
    return Asker(number, digest(b"%d" % number), f"notify[{number}]")


def mail(text: str, channel: str = "mail", *, is_now: bool = False) -> Act:
    return Act(channel, f'"{text}"'.encode(), is_now)


def said(dues: Sequence[Due]) -> list[str]:
    return [f"{due.channel} {due.data.decode()}" for due in dues]


class Kept(Struct):
    """A record that is durable as soon as the loop comes round, or when told."""

    is_slow: bool = False
    entries: list[JournalEntry] = field(default_factory=list)
    thens: list[Callable[[], None]] = field(default_factory=list)

    def write(
        self, entries: Sequence[JournalEntry], then: Callable[[], None] | None = None
    ) -> None:
        self.entries += entries
        self.thens += [then] if then is not None else []
        if not self.is_slow:
            asyncio.get_running_loop().call_soon(self.tell)

    def tell(self) -> None:
        thens, self.thens = self.thens, []
        for then in thens:
            then()

    async def flush(self) -> None:
        self.tell()

    def facts(self) -> list[str]:
        return [type(entry.event).__name__ for entry in self.entries]


class Receiver(Struct):
    """Remembers what came, in order."""

    takes_s: float = 0.0
    breaks_at: str = ""
    got: list[tuple[bytes, str]] = field(default_factory=list)

    async def __call__(self, payload: bytes, key: str) -> bytes:
        await passes(self.takes_s)
        if payload.decode().strip('"') == self.breaks_at:
            raise ConnectionError("the line is dead")
        self.got.append((payload, key))
        return b"receipt of " + payload

    def texts(self) -> list[str]:
        return [payload.decode().strip('"') for payload, _ in self.got]


def outbox(record: Kept, timeout_s: float = 60.0, **channels: Send) -> Outbox:
    return Outbox("run-1", channels.get, record, lambda: 1.0, timeout_s)


def virtual(scene: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await scene()

    run_virtual(main())


def test_a_key_is_the_same_in_every_process_and_another_for_everything_else() -> None:
    act = mail("hello")
    key = key_of("run-1", asker(3), 0, act)
    assert key == key_of("run-1", asker(3), 0, mail("hello"))
    assert len(bytes.fromhex(key)) == 16
    others = {
        key_of("run-2", asker(3), 0, act),
        key_of("run-1", asker(4), 0, act),
        key_of("run-1", asker(3), 1, act),
        key_of("run-1", asker(3), 0, mail("bye")),
        key_of("run-1", asker(3), 0, mail("hello", "sms")),
    }
    assert len(others | {key}) == 6


def test_what_is_intended_and_not_done_is_in_doubt_and_asked_for_with_the_same_key() -> None:
    key = key_of("run-1", asker(0), 0, mail("a"))
    now = "ab" * 16
    outgoing = Outgoing("run-1")
    known = outgoing.known
    known.apply(asker(0).key, EffectIntended(0, 1.0, "mail", 0, key))
    known.apply(asker(1).key, EffectIntended(1, 1.0, "mail", 0, now, is_now=True))
    known.apply(asker(1).key, EffectDone(1, 1.5, 4, "never intended here"))
    known.apply(asker(1).key, TaskFinished(1, 1, 1.5))
    assert [(one.key, one.is_now) for _, one in known.doubts.values()] == [
        (key, False),
        (now, True),
    ]
    assert known.doubts[key][0] == asker(0).key
    assert "never intended here" in known.done
    outgoing.ask(asker(0), (mail("a"),))
    (due,) = outgoing.take()
    assert due.key == key
    known.apply(asker(0).key, due.intended(2.0))
    known.apply(asker(0).key, due.done(3.0, b"r"))
    assert list(known.doubts) == [now]


PROGRAM = st.lists(
    st.tuples(st.integers(0, 5), st.lists(st.sampled_from("abc"), max_size=3)), max_size=6,
    unique_by=lambda asked: asked[0],
)  # fmt: skip


@given(PROGRAM, st.randoms(use_true_random=False))
def test_every_channel_keeps_its_order_whoever_is_slow(
    program: list[tuple[int, list[str]]], rng: object
) -> None:
    choice = rng.choice  # type: ignore[attr-defined]
    outgoing, performing, done = Outgoing("run-1"), list[Due](), list[Due]()
    asked = list(program)
    while asked or performing:
        if asked and (not performing or choice((True, False))):
            task, channels = asked.pop(0)
            acts = tuple(mail(f"{task} {n}", name) for n, name in enumerate(channels))
            outgoing.ask(asker(task), acts)
        else:
            one = performing.pop(performing.index(choice(performing)))
            outgoing.ended(one)
            done.append(one)
        performing += outgoing.take()
        busy = [due.channel for due in performing]
        assert len(busy) == len(set(busy))
    assert not outgoing.left()
    order = {task: place for place, (task, _) in enumerate(program)}
    for name in "abc":
        places = [(order[due.asker.task], due.ordinal) for due in done if due.channel == name]
        assert all(one < two for one, two in pairwise(places))
    assert len(done) == sum(len(channels) for _, channels in program)


def test_nothing_is_performed_before_its_intent_is_durable() -> None:
    async def scene() -> None:
        record, receiver = Kept(is_slow=True), Receiver()
        box = outbox(record, mail=receiver)
        box.release(0, asker(0).key, "notify", (mail("a"), mail("b")))
        await settle()
        assert record.facts() == ["EffectIntended"]
        assert receiver.got == []
        assert not box.known.doubts
        record.tell()
        await settle()
        assert receiver.texts() == ["a"]
        assert record.facts() == ["EffectIntended", "EffectDone"]
        assert len(box.known.doubts) == 1
        for _ in range(3):
            record.tell()
            await settle()
        assert receiver.texts() == ["a", "b"]
        assert await box.drained() == 0
        assert len(box.known.done) == 2
        done = record.entries[1]
        assert isinstance(done.event, EffectDone)
        receipt = b'receipt of "a"'
        assert done.bodies == ((done.event.receipt, receipt),)
        assert done.event.receipt == digest(receipt)
        assert done.key == asker(0).key

    virtual(scene)


def test_who_fails_stops_his_channel_and_a_later_process_goes_on_there() -> None:
    async def scene() -> None:
        record, receiver, other = Kept(), Receiver(breaks_at="b"), Receiver()
        box = outbox(record, mail=receiver, sms=other)
        acts = (mail("a"), mail("b"), mail("c"), mail("x", "sms"))
        box.release(0, asker(0).key, "notify[3]", acts)
        await box.drained()
        assert (receiver.texts(), other.texts()) == (["a"], ["x"])
        (failure,) = box.failures()
        key = key_of("run-1", asker(0), 1, mail("b"))
        assert failure == (
            f"effect mail of notify[3], key {key}: ConnectionError: the line is dead; "
            "1 more wait behind it"
        )
        assert (await box.drained(), len(box.known.doubts)) == (2, 1)
        # Released again, by whatever comes later in this process, it stays stopped.
        box.release(1, asker(1).key, "notify[4]", (mail("d"),))
        await box.drained()
        assert receiver.texts() == ["a"]

        mended = outbox(record, mail=receiver, sms=other)
        for entry in record.entries:
            mended.known.apply(entry.key, entry.event)
        assert list(mended.known.doubts) == [key]
        receiver.breaks_at = ""
        mended.release(0, asker(0).key, "notify[3]", acts)
        mended.release(1, asker(1).key, "notify[4]", (mail("d"),))
        await mended.drained()
        assert (receiver.texts(), other.texts()) == (["a", "b", "c", "d"], ["x"])
        assert receiver.got[1][1] == key
        assert not mended.failures()
        assert not mended.known.doubts

    virtual(scene)


def test_who_does_not_answer_in_time_stops_his_channel() -> None:
    async def scene() -> None:
        box = outbox(Kept(), 5.0, mail=Receiver(takes_s=100.0))
        box.release(0, asker(0).key, "notify", (mail("a"),))
        await box.drained()
        assert box.failures()[0].endswith(": it took more than 5 s")

    virtual(scene)


def test_who_exits_or_stops_iterating_stops_his_channel() -> None:
    def runs_dry(payload: object, key: str) -> object:
        return next(iter(()))

    async def leaves(payload: object, key: str) -> None:
        raise SystemExit(3)

    async def scene() -> None:
        channels = Channels({name: Channel("effect", name) for name in ("mail", "sms")})
        find = senders(channels, {"mail": runs_dry, "sms": leaves}, _nothing)
        box = Outbox("run-1", find, Kept(), lambda: 1.0, 10.0)
        box.release(0, asker(0).key, "notify", (mail("a"), mail("x", "sms")))
        await box.drained()
        dry, left = sorted(box.failures())
        assert "RuntimeError: it raised StopIteration" in dry
        assert left.endswith(": SystemExit: 3")
        with pytest.raises(EffectFailedError, match="it raised StopIteration"):
            await asyncio.to_thread(box.now, asker(1), 0, mail("n", is_now=True))

    asyncio.run(scene())


def test_a_channel_that_nobody_performs_is_a_failure_without_an_intent() -> None:
    async def scene() -> None:
        record = Kept()
        box = outbox(record)
        box.release(0, asker(0).key, "notify", (mail("a"),))
        await box.drained()
        assert "`mail` is no effect channel" in box.failures()[0]
        assert record.facts() == []

    virtual(scene)


def test_a_run_that_is_halted_ends_what_it_performs_and_begins_nothing_more() -> None:
    async def scene() -> None:
        receiver = Receiver(takes_s=3.0)
        box = outbox(Kept(), mail=receiver)
        box.release(0, asker(0).key, "notify", (mail("a"), mail("b")))
        await passes(1.0)
        box.halt()
        await box.drained()
        assert receiver.texts() == ["a"]
        assert (await box.drained(), len(box.known.doubts)) == (1, 0)
        assert not box.failures()

    virtual(scene)


def test_what_is_ended_in_the_middle_is_in_doubt() -> None:
    async def scene() -> None:
        receiver = Receiver(takes_s=3.0)
        box = outbox(Kept(), mail=receiver)
        box.release(0, asker(0).key, "notify", (mail("a"), mail("b")))
        await passes(1.0)
        box.end_now()
        assert await box.drained() == 2
        assert receiver.texts() == []
        assert len(box.known.doubts) == 1

    virtual(scene)


def test_an_effect_now_is_performed_at_once_and_its_receipt_given() -> None:
    async def scene() -> None:
        record, receiver = Kept(), Receiver()
        box = outbox(record, mail=receiver, sms=Receiver(breaks_at="x"))
        box.halt()
        act = mail("n", is_now=True)
        assert await asyncio.to_thread(box.now, asker(0), 0, act) == b'receipt of "n"'
        first = record.entries[0].event
        assert isinstance(first, EffectIntended)
        assert first.is_now
        assert (len(box.known.now), len(box.known.doubts)) == (1, 0)
        with pytest.raises(EffectFailedError, match="the line is dead"):
            await asyncio.to_thread(box.now, asker(0), 1, mail("x", "sms", is_now=True))
        assert not box.failures()
        assert (len(box.known.now), len(box.known.doubts)) == (2, 1)
        with pytest.raises(StateError, match="would hold up every other task") as raised:
            box.now(asker(0), 1, act)
        assert raised.value.hint == 'await asyncio.to_thread(ctx.now, "mail", ...)'

    asyncio.run(scene())


def test_a_long_receipt_is_cut() -> None:
    async def verbose(payload: bytes, key: str) -> bytes:
        return b"x" * (RECEIPT_BYTES_MAX + 1)

    async def scene() -> None:
        record = Kept()
        box = outbox(record, mail=verbose)
        box.release(0, asker(0).key, "notify", (mail("a"),))
        await box.drained()
        assert len(record.entries[1].bodies[0][1]) == RECEIPT_BYTES_MAX

    virtual(scene)


def _nothing(target: str) -> Callable[[object, str], object]:
    raise AssertionError(target)


@pytest.mark.parametrize(
    ("target", "is_it"),
    [
        ("pkg.mod:send", True), ("mod:send", True), ("./send.sh", False), ("curl -d @-", False),
        ("mod:send it", False), ("http://host:80/x", False), ("send", False), (":x", False),
    ],
)  # fmt: skip
def test_a_target_is_a_function_or_a_command(target: str, is_it: bool) -> None:
    assert is_function(target) is is_it
