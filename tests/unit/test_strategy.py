"""How many tasks may start: strategies as users write them, and places on this machine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.engine.strategy import (
    ADAPTIVE,
    ALL_AT_ONCE,
    FIRST,
    PLACES_PER_CORE_MAX,
    QUEUED,
    LocalLaw,
    Resting,
    Strategy,
    parse,
)
from headway.errors import BadValueError


@pytest.mark.parametrize(
    ("text", "strategy", "reason"),
    [
        ("all-at-once", ALL_AT_ONCE, "everything starts at once"),
        ("waves:4", Strategy("waves", 4), "wave of 4"),
        ("fixed:5", Strategy("fixed", 5), "one of 5 places is free"),
        ("adaptive", ADAPTIVE, "there is room for one more"),
    ],
)
def test_a_strategy_is_read_as_users_write_it(text: str, strategy: Strategy, reason: str) -> None:
    assert parse(text) == strategy
    assert parse(text).name == text
    assert parse(text).reason == reason


@pytest.mark.parametrize(
    ("text", "strategy"), [("waves(4)", Strategy("waves", 4)), ("fixed(12)", Strategy("fixed", 12))]
)
def test_a_size_may_stand_in_brackets(text: str, strategy: Strategy) -> None:
    assert parse(text) == strategy


@pytest.mark.parametrize(
    "text",
    ["", "wave", "waves", "waves:", "waves:0", "waves:-4", "waves:4.5", "waves:four", "fixed:+5",
     "fixed: 5", "adaptive:5", "all-at-once:3", "waves:\N{SUPERSCRIPT TWO}", "waves:4:4", "waves(4",
     "waves4)", "waves:(4)", "waves()", "waves(0)", "adaptive()", "all-at-once(3)"],
)  # fmt: skip
def test_what_is_not_a_strategy_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(BadValueError, match="is not a strategy") as refused:
        parse(text)
    assert refused.value.hint


FREE = 0.5
STEP_S = 0.5


class World:
    """Tasks that last `latency_s`, of which at most `rate` can end in a second."""

    def __init__(self, cores: int, latency_s: float, rate: float = 1e9) -> None:
        self.law = LocalLaw(cores)
        self.latency_s = latency_s
        self.rate = rate
        self.now = 0.0
        self.ended = 0.0
        self.widest = 0.0

    def run(self, seconds: float) -> float:
        for _ in range(int(seconds / STEP_S)):
            self.now += STEP_S
            self.ended += STEP_S * min(self.rate, self.law.places / self.latency_s)
            self.law.observe(FREE, int(self.law.places), int(self.ended), self.now)
            self.widest = max(self.widest, self.law.places)
        return self.law.places


def test_it_grows_while_more_at_once_finish_more() -> None:
    world = World(cores=2, latency_s=1.0)
    assert world.run(30.0) > 30


def test_it_stays_near_what_a_quota_feeds() -> None:
    """Six tasks of 2 s at 3 a second keep the quota busy: 22 at once would only wait."""
    world = World(cores=2, latency_s=2.0, rate=3.0)
    assert 4 <= world.run(300.0) <= 9
    assert world.widest <= 13


def test_what_did_not_pay_is_tried_again_after_a_while() -> None:
    world = World(cores=2, latency_s=2.0, rate=3.0)
    narrow = world.run(300.0)
    world.rate = 100.0
    assert world.run(300.0) > 2 * narrow


def test_it_does_not_grow_when_places_are_free_or_memory_is_not() -> None:
    for memory, active in ((FREE, 2), (0.1, 4)):
        law = LocalLaw(4)
        law.observe(FREE, 4, 0, 0.0)
        assert law.observe(memory, active, 100, 10.0) == 4


def test_it_gives_way_when_memory_is_gone() -> None:
    law, gone = LocalLaw(8), (0.01, 8, 0)
    law.observe(*gone, 0.0)
    assert law.observe(*gone, 1.0) == 6
    for second in range(2, 40):
        law.observe(*gone, float(second))
    assert law.places == 1


@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 5000), st.integers(0, 500)), max_size=60),
    st.integers(0, 64),
)
def test_there_is_always_a_place_and_never_too_many(
    samples: list[tuple[float, int, int]], cores: int
) -> None:
    law, ended = LocalLaw(cores), 0
    for second, (memory, active, more) in enumerate(samples):
        ended += more
        places = law.observe(memory, active, ended, float(second))
        assert 1 <= places <= max(FIRST, PLACES_PER_CORE_MAX * max(1, cores))
        assert places == law.places


def test_the_place_of_a_task_that_waits_for_a_model_is_lent() -> None:
    law = LocalLaw(4)
    law.observe(FREE, 4, 0, 0.0, Resting(3))
    assert (law.places, law.room) == (4, 7)
    law.observe(FREE, 7, 0, 0.5, Resting(6, QUEUED - 1))
    assert law.room == 10


def test_nothing_more_is_lent_while_a_few_wait_for_a_permit() -> None:
    law = LocalLaw(4)
    law.observe(FREE, 4, 0, 0.0, Resting(4))
    law.observe(FREE, 8, 0, 0.5, Resting(8, QUEUED))
    assert law.room == 8
    law.observe(FREE, 8, 0, 1.0, Resting(2, QUEUED))
    assert law.room == 6


def test_nothing_more_is_lent_without_free_memory_and_nothing_at_all_when_it_is_gone() -> None:
    law = LocalLaw(4)
    law.observe(FREE, 4, 0, 0.0, Resting(4))
    law.observe(0.1, 8, 0, 0.1, Resting(8))
    assert law.room == 8
    law.observe(0.01, 8, 0, 0.2, Resting(8))
    assert law.room == law.places


def test_agents_that_mostly_wait_are_as_many_as_the_quota_feeds_within_seconds() -> None:
    """A quota of 40 at once: without a gateway the law would need rounds of whole agents."""
    law, active = LocalLaw(2), 0
    for tick in range(40):
        calling = max(0, active - 2)  # Two are always at work here.
        queued = max(0, calling - 40)
        law.observe(FREE, active, 0, tick * STEP_S, Resting(calling, queued))
        active = int(law.room)
    assert 40 <= active <= 50
    assert law.places == FIRST
