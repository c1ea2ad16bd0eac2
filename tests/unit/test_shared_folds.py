"""What a key is made of does not depend on what was looked at before, or when it came."""

from __future__ import annotations

import json
from random import Random

import pytest

from headway.errors import StateError
from headway.plans.resources import Channel
from headway.state.shared import FOLDS_MAX, KNOWN_MAX, Channels, Put, Shared, Snapshot, canonical


def paired(one: object, other: object) -> object:
    """Gives a tuple, which JSON does not know."""
    return (one, other) if not isinstance(one, list) else (*one[-1:], other, len(one))


CHANNELS = Channels(
    {
        "append": Channel("append"),
        "set": Channel("set"),
        "counter": Channel("counter"),
        "max": Channel("max"),
        "pair": Channel("reduce", "t:paired"),
    },
    {"t:paired": paired},
)
KEYS = ("append", "set", "counter", "max", "pair", "plain")
VERSIONS = 3 * FOLDS_MAX


def puts(draw: Random, key: str) -> list[Put]:
    if key == "plain":
        return [Put(key, None if draw.random() < 0.2 else b"%d" % draw.randrange(9))]
    count = draw.randrange(1, 3)
    return [Put(key, canonical(draw.choice((1, 2, 0.1, 1e17, 3)))) for _ in range(count)]


@pytest.mark.parametrize("seed", range(8))
def test_a_value_is_the_same_whoever_looked_before(seed: int) -> None:
    draw = Random(seed)
    looked = Shared(CHANNELS)
    committed: dict[int, list[Put]] = {}
    for position in draw.sample(range(VERSIONS), VERSIONS):
        committed[position] = [put for key in KEYS for put in puts(draw, key)]
        looked.commit(position, committed[position])
        for key in draw.sample(KEYS, 2):
            looked.value(key, draw.randrange(VERSIONS + 1))
    unseen = Shared(CHANNELS)
    for position, writes in sorted(committed.items()):
        unseen.commit(position, writes)
    for key in KEYS:
        last = unseen.value(key, VERSIONS)
        for position in draw.sample(range(VERSIONS), FOLDS_MAX + 4):
            assert looked.value(key, position) == unseen.value(key, position)
        assert looked.value(key, VERSIONS) == last


def test_what_a_task_adds_itself_reads_as_it_will_be_committed() -> None:
    for key, values in (("counter", (0.1, 0.2, 0.3)), ("pair", (1, 2, 3, 4)), ("max", (1, 1.0))):
        shared = Shared(CHANNELS)
        shared.commit(1, [Put(key, canonical(value)) for value in values[:2]])
        mine = Snapshot(shared, 2)
        for value in values[2:]:
            mine.add(key, value)
        seen = mine.get(key)
        shared.commit(2, mine.access().writes)
        assert shared.value(key, 9)[0] == seen


def test_numbers_are_added_one_after_another() -> None:
    shared = Shared(CHANNELS)
    for position in range(10):
        shared.commit(position, [Put("counter", b"0.1")])
    whole = 0.0
    for _ in range(10):
        whole += 0.1
    data, _ = shared.value("counter", 99)
    assert data is not None
    assert json.loads(data) == whole


def test_a_value_behind_one_that_does_not_combine_does_not_combine_either() -> None:
    def strict(one: object, other: object) -> object:
        if other == "bad":
            raise StateError("it does not combine")
        return f"{one}{other}"

    channels = Channels({"words": Channel("reduce", "t:strict")}, {"t:strict": strict})
    shared = Shared(channels)
    for position, word in enumerate(("a", "b", "bad", "c")):
        shared.commit(position, [Put("words", canonical(word))])
    assert shared.value("words", 2)[0] == b'"ab"'
    broken = shared.value("words", 3)
    assert broken[0] is None
    assert shared.value("words", 4) == broken


def test_the_channels_of_many_keys_are_not_all_remembered() -> None:
    channels = Channels({"log/*": Channel("append")})
    for number in range(KNOWN_MAX + 10):
        assert channels.of(f"log/{number}").kind == "append"
    assert len(channels.known) <= KNOWN_MAX
    assert channels.of("other").kind == "value"
