"""How many tasks may start: strategies as users write them, and places on this machine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.engine.strategy import (
    ADAPTIVE,
    ALL_AT_ONCE,
    PLACES_MAX,
    QUEUED,
    LocalWidth,
    MachineLoad,
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


class World:
    """A machine whose tasks each keep `share` of a processor busy, observed four times a second."""

    def __init__(self, cores: int, share: float, memory: float = 1e9, quota: float = 1e9) -> None:
        self.law = LocalWidth(cores)
        self.share, self.memory, self.quota = share, memory, quota

    def look(self, times: int) -> float:
        for _ in range(times):
            active = int(self.law.places)
            queued = int(max(0.0, active - self.quota))
            load = MachineLoad(active * self.share, max(0.0, self.memory - active), queued=queued)
            self.law.observe(load, active)
        return self.law.places


@pytest.mark.parametrize("cores", [1, 2, 16])
def test_tasks_that_wait_are_dozens_within_a_second_on_any_machine(cores: int) -> None:
    assert World(cores, 0.0).look(4) >= 64


@pytest.mark.parametrize(("share", "least", "most"), [(1.0, 4, 4), (0.5, 6, 8), (0.05, 50, 100)])
def test_tasks_that_compute_are_as_many_as_keep_two_processors_busy(
    share: float, least: int, most: int
) -> None:
    assert least <= World(2, share).look(40) <= most


def test_22_agents_of_a_small_machine_are_limited_by_its_memory() -> None:
    assert World(2, 0.0, memory=9).look(40) == 9
    assert World(2, 0.0, memory=22).look(40) == 22


def test_no_more_than_a_few_tasks_wait_for_permits() -> None:
    assert World(2, 0.0, quota=40).look(40) == 40 + QUEUED


def test_agents_are_more_only_when_those_that_started_have_called() -> None:
    law = LocalWidth(2)
    assert law.observe(MachineLoad(starting=QUEUED), 4) == 4
    assert law.observe(MachineLoad(starting=QUEUED - 1), 4) == 8


def test_a_place_that_is_free_is_no_reason_for_more() -> None:
    law = LocalWidth(4)
    assert law.observe(MachineLoad(), 3) == 4


def test_it_gives_way_when_memory_is_gone() -> None:
    law, gone = LocalWidth(8), MachineLoad(is_short=True)
    assert law.observe(gone, 8) == 6
    for _ in range(20):
        law.observe(gone, int(law.places))
    assert law.places == 1


def test_tasks_that_begin_to_compute_become_fewer_as_they_end() -> None:
    world = World(2, 0.0)
    wide = world.look(5)
    world.share = 1.0
    assert world.look(40) < 8 < wide
    world.share = 0.0
    assert world.look(20) >= wide


@given(
    st.lists(
        st.builds(
            MachineLoad, st.floats(0, 1e5), st.floats(0, 1e5), st.booleans(), st.integers(0, 99)
        ),
        max_size=60,
    ),
    st.integers(0, 64), st.integers(0, 5000),
)  # fmt: skip
def test_there_is_always_a_place_and_never_too_many(
    loads: list[MachineLoad], cores: int, active: int
) -> None:
    law = LocalWidth(cores)
    for load in loads:
        assert 1 <= law.observe(load, active) <= PLACES_MAX
