"""Shared state: versions by position, copies, buffered writes, and what would still be seen."""

from __future__ import annotations

import pytest

from headway.errors import JournalError, StateError
from headway.plans.resources import Channel
from headway.state.shared import (
    NOT_THERE,
    UNTOUCHED,
    Access,
    Act,
    Change,
    Channels,
    Put,
    Shared,
    Snapshot,
    StateLook,
    canonical,
    decode,
    encode,
)

CHANNELS = Channels(
    {
        "log": Channel("append"),
        "count": Channel("counter"),
        "seen": Channel("set"),
        "top": Channel("max"),
        "joined": Channel("reduce", "m:join"),
        "list/*": Channel("append"),
        "list/one*": Channel("counter"),
    },
    {"m:join": lambda one, other: f"{one}+{other}"},
)


def shared(**initial: object) -> Shared:
    return Shared(CHANNELS, {key: canonical(value) for key, value in initial.items()})


def test_a_read_gives_the_newest_version_of_a_lower_position() -> None:
    state = shared(a=0)
    state.commit(5, (Put("a", b"5"),))
    state.commit(3, (Put("a", b"3"),))
    found = [state.value("a", position)[0] for position in (3, 4, 5, 6)]
    assert found == [b"0", b"3", b"3", b"5"]
    assert state.value("b", 6) == (None, NOT_THERE)


def test_a_task_sees_its_own_writes_and_nobody_elses_before_they_are_committed() -> None:
    state = shared(a=1)
    one, other = Snapshot(state, 1), Snapshot(state, 2)
    one.put("a", 2)
    one.remove("b")
    assert (one.get("a"), other.get("a")) == (b"2", b"1")
    assert one.get("b") is None
    assert one.access().reads == ()  # What it has written itself depends on nobody.
    assert one.access().writes == (Put("a", b"2"), Put("b", None))
    assert "1 read, 0 written" in repr(other)


def test_what_combines_is_folded_in_the_order_of_tasks_whoever_came_first() -> None:
    state = shared()
    for position in (4, 2, 6):
        task = Snapshot(state, position)
        task.add("log", position)
        task.add("log", -position)
        task.add("count", position)
        task.add("seen", position % 4)
        task.add("top", position)
        task.add("joined", str(position))
        state.commit(position, task.access().writes)
    last = Snapshot(state, 5)
    assert last.get("log") == b"[2,-2,4,-4]"
    assert last.get("count") == b"6"
    assert last.get("seen") == b"[0,2]"
    assert last.get("top") == b"4"
    assert last.get("joined") == b'"2+4"'


def test_a_scan_gives_the_keys_of_a_pattern_with_ones_own_in_place() -> None:
    state = shared()
    state.commit(1, (Put("r/1", b"1"), Put("r/2", b"2"), Put("r/2/x", b"9"), Put("s", b"0")))
    task = Snapshot(state, 2)
    task.put("r/3", 3)
    task.put("r/1", 11)
    task.remove("r/2")
    assert task.scan("r/*") == [("r/1", b"11"), ("r/3", b"3")]
    assert task.scan("r/*") == [("r/1", b"11"), ("r/3", b"3")]
    assert [key for key, _ in task.scan("**")] == ["r/1", "r/2/x", "r/3", "s"]
    assert task.scan("r/?/x") == [("r/2/x", b"9")]
    task.remove("t")
    assert task.scan("t*") == []


def test_a_scan_gives_what_is_below_a_folder_whatever_it_begins_with() -> None:
    state = shared()
    keys = ("a", "a-b/1", "a/1", "a/\U0010ffff", "a/\U0010ffffz", "a0", "b/1")
    state.commit(1, tuple(Put(key, b"1") for key in keys))
    found = [key for key, _ in Snapshot(state, 2).scan("a/*")]
    assert found == ["a/1", "a/\U0010ffff", "a/\U0010ffffz"]


def test_what_was_seen_has_changed_when_its_content_has() -> None:
    state = shared(a=1)
    task = Snapshot(state, 9)
    task.get("a")
    task.get("b")
    task.scan("r/*")
    a, b, scan = task.access().reads
    state.commit(3, (Put("a", b"1"),))
    assert state.changed(a, 9) is None  # The same again.
    state.commit(4, (Put("a", b"2"), Put("b", b"0")))
    assert state.changed(a, 9) == Change("a", 4)
    assert state.changed(b, 9) == Change("b", 4)
    assert state.changed(scan, 9) is None
    state.commit(12, (Put("r/1", b"1"),))
    assert state.changed(scan, 9) is None  # That task comes later.
    state.commit(5, (Put("r/2", b"1"),))
    assert state.changed(scan, 9) == Change("r/*", 5)
    assert state.changed(StateLook("nobody", b"x" * 16), 9) == Change("nobody", -1)


@pytest.mark.parametrize(
    ("verb", "key", "value", "words"),
    [
        ("put", "count", 1, "use `ctx.add"),
        ("add", "plain", 1, "use `ctx.put"),
        ("add", "count", "1", "takes numbers"),
        ("add", "top", True, "takes numbers"),
        ("put", "a/*", 1, "cannot be a key"),
        ("put", "a//b", 1, "cannot be a key"),
        ("put", "", 1, "cannot be a key"),
        ("put", "x" * 401, 1, "cannot be a key"),
        ("put", "a", {1, 2}, "JSON has no form"),
        ("put", "a", float("nan"), "JSON has no form"),
        ("put", "a", "x" * (16 * 1024 * 1024), "bytes"),
    ],
)
def test_what_the_state_cannot_hold_is_refused_with_what_to_do(
    verb: str, key: str, value: object, words: str
) -> None:
    task = Snapshot(shared(), 1)
    with pytest.raises(StateError) as caught:
        (task.put if verb == "put" else task.add)(key, value)
    assert words in caught.value.render()
    assert task.access() == UNTOUCHED


def test_the_longest_pattern_says_how_a_key_combines() -> None:
    assert CHANNELS.of("list/two").kind == "append"
    assert CHANNELS.of("list/one1").kind == "counter"
    assert CHANNELS.of("other").kind == "value"
    assert Channels().of("log").kind == "value"
    assert CHANNELS.fold("log", ()) is None
    assert CHANNELS.fold("plain", ()) is None


def test_what_does_not_combine_fails_whoever_reads_it_and_is_a_value_like_others() -> None:
    def refuse(one: object, other: object) -> object:
        raise StateError(f"{one} and {other} do not go together")

    state = Shared(Channels({"joined": Channel("reduce", "m:no")}, {"m:no": refuse}))
    state.commit(1, (Put("joined", b"1"),))
    early = Snapshot(state, 2)
    assert early.get("joined") == b"1"
    state.commit(3, (Put("joined", b"3"),))
    late = Snapshot(state, 4)
    with pytest.raises(StateError, match="go together"):
        late.get("joined")
    assert state.changed(late.access().reads[0], 4) is None
    with pytest.raises(StateError, match="go together"):
        late.scan("*")
    with pytest.raises(StateError, match="go together"):
        state.matching("*", 4)
    assert [state.changed(seen, 4) for seen in late.access().reads] == [None, None]


def test_what_was_touched_is_read_back_equal() -> None:
    access = Access(
        (StateLook("a", b"d" * 16), StateLook("r/*", NOT_THERE)),
        (Put("a", '"ü"'.encode()), Put("b", None)),
        (Act("mail", b"{}", True),),
    )
    assert decode(encode(access)) == access
    assert decode(encode(UNTOUCHED)) == UNTOUCHED


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"version":2}', b'{"version":1,"reads":[1]}']
)
def test_what_was_not_written_by_us_is_refused(data: bytes) -> None:
    with pytest.raises(JournalError):
        decode(data)
