"""`ctx`: copies in, copies out, one at a time, until the attempt ends."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from threading import RLock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.errors import StateError
from headway.plans.resources import Channel
from headway.state.context import (
    Circumstances,
    Commons,
    Context,
    LocalReach,
    lent,
)
from headway.state.shared import UNTOUCHED, Act, Channels, Shared, Snapshot
from tests.unit.attempts import Told

CHANNELS = Channels(
    {
        "total": Channel("counter"),
        "log": Channel("append"),
        "best": Channel("max"),
        "tags": Channel("set"),
        "mail": Channel("effect", "mod:send"),
    }
)

TEXTS = st.text(st.characters(codec="utf-8"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


class Scene:
    """A context over a state of its own, and what is behind it."""

    def __init__(self, perform: Callable[[Act, int], None] | None = None) -> None:
        self.shared = Shared(CHANNELS)
        self.snapshot = Snapshot(self.shared, 10)
        self.reach = LocalReach(self.snapshot, RLock(), perform)
        self.ctx = Context(self.reach, Circumstances("parse[a]", 2, 5.5, b"seed"))

    def before(self, key: str, value: object) -> Scene:
        """Somebody earlier has put this there."""
        other = Snapshot(self.shared, 1)
        other.put(key, value)
        self.shared.commit(1, other.access().writes)
        return self


@settings(max_examples=60)
@given(VALUES)
def test_every_value_that_json_holds_comes_back_as_it_was(value: object) -> None:
    ctx = Scene().ctx
    ctx.put("key", value)
    assert ctx["key"] == value
    assert "key" in ctx


def test_a_missing_key_gives_the_default_or_a_key_error() -> None:
    ctx = Scene().ctx
    assert ctx.get("a") is None
    assert ctx.get("a", 7) == 7
    assert "a" not in ctx
    with pytest.raises(KeyError, match="a"):
        ctx["a"]


def test_a_scan_of_a_plain_key_is_a_look_at_it() -> None:
    scene = Scene().before("a", 1)
    assert scene.ctx.scan("a") == {"a": 1}
    assert scene.ctx.scan("b") == {}
    for seen in scene.snapshot.access().reads:
        assert scene.shared.changed(seen, 10) is None


@pytest.mark.parametrize(
    "key", ["", "a*", "a//b", "/a", "a\n", "..", "a/../b", 5, None, ["a"], "\ud800"]
)
def test_what_cannot_be_a_key_is_refused_by_every_verb(key: str) -> None:
    scene = Scene()
    ctx = scene.ctx
    uses: list[Callable[[], object]] = [
        lambda: ctx.get(key), lambda: ctx[key], lambda: key in ctx, lambda: ctx.put(key, 1),
        lambda: ctx.add(key, 1), lambda: ctx.remove(key), lambda: ctx.effect(key),
    ]  # fmt: skip
    for use in uses:
        with pytest.raises(StateError) as caught:
            use()
        assert caught.value.hint
    assert scene.snapshot.access() == UNTOUCHED


@pytest.mark.parametrize("pattern", ["", "a//*", 5, None, "../*"])
def test_what_matches_nothing_is_refused(pattern: str) -> None:
    with pytest.raises(StateError, match="pattern"):
        Scene().ctx.scan(pattern)


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (lambda ctx: ctx.put("total", 1), "ctx.add"),
        (lambda ctx: ctx.add("a", 1), "ctx.put"),
        (lambda ctx: ctx.remove("total"), "ctx.add"),
        (lambda ctx: ctx.add("total", "many"), "convert"),
        (lambda ctx: ctx.put("a", object()), "put dicts"),
        (lambda ctx: ctx.put("a", float("nan")), "put dicts"),
        (lambda ctx: ctx.put("a", {1, 2}), "put dicts"),
        (lambda ctx: ctx.effect("mails", 1), "did you mean `mail`"),
        (lambda ctx: ctx.now("total", 1), "choose from: mail"),
        (lambda ctx: ctx.effect("mail", object()), "put dicts"),
        (lambda ctx: ctx.add("mail", 1), "ctx.effect"),
        (lambda ctx: ctx.put("mail", 1), "ctx.effect"),
        (lambda ctx: ctx.now("mail", 1), "ctx.effect"),
    ],
)
def test_wrong_use_says_what_to_do_instead(use: Callable[[Context], None], words: str) -> None:
    scene = Scene()
    with pytest.raises(StateError) as caught:
        use(scene.ctx)
    assert words in (caught.value.hint or "")
    assert scene.snapshot.access() == UNTOUCHED


def test_after_its_attempt_a_context_refuses_everything() -> None:
    scene = Scene().before("a", 1)
    ctx = scene.ctx
    ctx.put("b", 2)
    scene.reach.end()
    uses: list[Callable[[], object]] = [
        lambda: ctx.get("a"), lambda: ctx["a"], lambda: "a" in ctx, lambda: ctx.put("c", 1),
        lambda: ctx.add("total", 1), lambda: ctx.remove("a"), lambda: ctx.scan("*"),
        lambda: ctx.effect("mail", 1), lambda: ctx.now("mail", 1),
    ]  # fmt: skip
    before = scene.snapshot.access()
    for use in uses:
        with pytest.raises(StateError, match="has ended"):
            use()
    assert scene.snapshot.access() == before


def test_a_scan_that_gives_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.state.context.SCAN_BYTES_MAX", 10)
    ctx = Scene().before("a", "x" * 20).ctx
    with pytest.raises(StateError, match="at once"):
        ctx.scan("*")
    assert ctx["a"] == "x" * 20


def test_time_and_chance_are_those_of_the_task() -> None:
    one, other = Scene().ctx, Scene().ctx
    assert (one.name, one.attempt, one.time_s) == ("parse[a]", 2, 5.5)
    assert [one.random.random() for _ in range(3)] == [other.random.random() for _ in range(3)]
    assert one.random is one.random
    assert repr(one) == "<Context of parse[a], attempt 2>"


def test_a_context_does_not_leave_its_process() -> None:
    with pytest.raises(StateError, match="stays in the process"):
        pickle.dumps(Scene().ctx)


def test_an_attempt_lends_its_state_for_as_long_as_it_lasts() -> None:
    snapshot = Snapshot(Shared(CHANNELS), 3)
    attempt = Told().attempt()
    with lent(attempt, Commons()) as nothing:
        assert nothing is None
    attempt = replace(attempt, snapshot=snapshot)
    done: list[tuple[str, Act, int]] = []
    commons = Commons(9.0, lambda who, act, number: done.append((who.name, act, number)))
    with lent(attempt, commons) as mine:
        assert mine is not None
        ctx = mine.context()
        ctx.now("mail")
        ctx.put("a", ctx.random.random())
    assert done == [(attempt.name, Act("mail", b"null", is_now=True), 0)]
    assert ctx.time_s == 9.0
    with pytest.raises(StateError):
        ctx.put("b", 1)


def test_another_attempt_of_the_same_task_has_the_same_chance_and_other_tasks_another() -> None:
    def drawn(name: str, number: int, key: bytes) -> float:
        attempt = replace(
            Told().attempt(), name=name, number=number, key=key, snapshot=Snapshot(Shared(), 1)
        )
        with lent(attempt, Commons()) as mine:
            assert mine is not None
            return mine.context().random.random()

    first = drawn("a[0]", 1, b"\0" * 16)
    assert drawn("a[0]", 2, b"\0" * 16) == first
    assert drawn("b[0]", 1, b"\0" * 16) != first
    assert drawn("a[0]", 1, b"\1" * 16) != first
