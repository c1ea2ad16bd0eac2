"""`ctx` at the other end of a pipe: the same answers, the same refusals, nothing left open."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import Pipe
from threading import RLock

import pytest

from headway.agents.worker import RemoteReach, answer
from headway.errors import StateError
from headway.plans.resources import Channel
from headway.state.context import Circumstances, Context, LocalReach
from headway.state.shared import Act, Channels, Shared, Snapshot


def bad(one: object, other: object) -> object:
    raise LookupError("cannot combine")


CHANNELS = Channels(
    {"total": Channel("counter"), "mail": Channel("effect", "m:s"), "bad": Channel("reduce", "b")},
    {"b": bad},
)


class Scene:
    """A context here, the state there, and a thread that answers."""

    def __init__(self) -> None:
        self.snapshot = Snapshot(Shared(CHANNELS), 5)
        self.done: list[tuple[Act, int, bool]] = []
        self.local = LocalReach(self.snapshot, RLock(), perform=self._perform)
        self.here, self.there = Pipe()
        self.reach = RemoteReach(self.there, "task")
        self.ctx = Context(self.reach, Circumstances("task", 1, 2.0, b"seed"))
        self.thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self.loop_thread = 0

    async def _serve(self) -> None:
        self.loop_thread = threading.get_ident()
        while True:
            try:
                _, question = pickle.loads(self.here.recv_bytes())
            except EOFError:
                return
            later: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
            told = answer(self.local, question, later.set_result)
            self.here.send_bytes(told if told is not None else await later)

    def _perform(self, act: Act, number: int) -> None:
        self.done.append((act, number, threading.get_ident() == self.loop_thread))


@contextmanager
def scene() -> Iterator[Scene]:
    made = Scene()
    made.thread.start()
    try:
        yield made
    finally:
        made.there.close()
        made.thread.join()
        made.here.close()


def test_every_verb_travels() -> None:
    with scene() as one:
        ctx = one.ctx
        ctx.put("a/1", {"x": [1, None, "é"]})
        ctx.put("a/2", 2)
        ctx.remove("a/2")
        ctx.add("total", 2)
        ctx.add("total", 3)
        assert ctx["a/1"] == ctx.get("a/1") == {"x": [1, None, "é"]}
        assert ctx.get("a/2", 7) == 7
        assert "a/1" in ctx
        assert ctx.scan("**") == {"a/1": {"x": [1, None, "é"]}, "total": 5}
        ctx.effect("mail", "later")
        ctx.now("mail", ["now"])
        assert one.done == [(Act("mail", b'["now"]', is_now=True), 1, False)]
        access = one.snapshot.access()
        assert [put.key for put in access.writes] == ["a/1", "a/2", "total", "total"]
        assert len(access.acts) == 2


@pytest.mark.parametrize(
    "use",
    [
        lambda ctx: ctx.put("total", 1),
        lambda ctx: ctx.add("total", "many"),
        lambda ctx: ctx.put("a", object()),
        lambda ctx: ctx.get("a*"),
        lambda ctx: ctx.remove("a//b"),
        lambda ctx: ctx.scan(""),
        lambda ctx: ctx.effect("male", 1),
    ],
)
def test_refusals_are_the_same_as_at_home(use: Callable[[Context], object]) -> None:
    with scene() as one:
        with pytest.raises(StateError) as far:
            use(one.ctx)
        with pytest.raises(StateError) as near:
            use(Context(one.local, Circumstances("task")))
        assert far.value.render() == near.value.render()
        one.ctx.put("a", 1)
        assert one.ctx["a"] == 1


def test_what_a_reducer_raises_is_raised_in_the_task() -> None:
    with scene() as one:
        one.ctx.add("bad", 1)
        one.ctx.add("bad", 2)
        with pytest.raises(StateError, match="LookupError: cannot combine"):
            one.ctx.get("bad")
        assert one.ctx.get("a") is None


def test_after_the_function_nothing_is_asked_any_more() -> None:
    with scene() as one:
        one.ctx.put("a", 1)
        one.reach.end()
        with pytest.raises(StateError, match="has ended"):
            one.ctx.get("a")
        with pytest.raises(StateError, match="has ended"):
            one.ctx.put("a", 2)
        assert one.snapshot.get("a") == b"1"


def test_after_the_attempt_a_worker_that_lives_on_writes_into_nothing() -> None:
    with scene() as one:
        one.local.end()
        with pytest.raises(StateError, match="has ended"):
            one.ctx.put("a", 1)
        assert one.snapshot.access().writes == ()


def test_a_question_without_an_answer_is_known() -> None:
    made = Scene()
    made.here.close()
    with pytest.raises((EOFError, OSError)):
        made.ctx.get("a")
    assert made.reach.is_cut
    made.there.close()
