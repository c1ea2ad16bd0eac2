"""The law of this machine's places: it grows into idle processors and gives way to a long queue."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headway.core.engine.local import PLACES_PER_CORE_MAX, SETTLE_S, Load, LocalLaw

IDLE = 0.1
FULL = 1.0


def test_it_starts_with_a_place_for_each_core() -> None:
    assert LocalLaw(4).places == 4
    assert LocalLaw(0).places == 1
    assert repr(LocalLaw(4)) == "<LocalLaw 4 places on 4 cores>"


def test_it_grows_by_a_quarter_while_processors_are_idle() -> None:
    law = LocalLaw(8)
    assert [law.observe(Load(IDLE, 0.5, law.places), float(now)) for now in range(4)] == [
        10, 12, 15, 18,
    ]  # fmt: skip
    assert law.statistics().grown == 4


def test_it_grows_by_one_at_least() -> None:
    assert LocalLaw(1).observe(Load(IDLE, 0.5, 1), 0.0) == 2


def test_it_does_not_grow_beyond_twice_of_what_is_active() -> None:
    law = LocalLaw(4)
    for now in range(100):
        law.observe(Load(IDLE, 0.9, 3), float(now))
    assert law.places == 6
    assert LocalLaw(4).observe(Load(IDLE, 0.9, 0), 0.0) == 4


def test_it_stops_growing_somewhere() -> None:
    law = LocalLaw(1)
    for now in range(100):
        law.observe(Load(IDLE, 0.9, law.places), float(now))
    assert law.places == PLACES_PER_CORE_MAX


def test_in_between_it_stays() -> None:
    law = LocalLaw(4)
    assert law.observe(Load(0.9, 0.5, 4, 5.0), 0.0) == 4, "busy, but not saturated"
    assert law.observe(Load(FULL, 0.5, 4, 1.0), 1.0) == 4, "saturated, but nobody waits"
    assert law.observe(Load(IDLE, 0.1, 4), 2.0) == 4, "idle, but memory is short"


def test_it_shrinks_when_many_wait_for_a_core() -> None:
    law = LocalLaw(8)
    assert [law.observe(Load(FULL, 0.5, 8, 3.0), float(now)) for now in range(9)] == [
        6, 5, 4, 3, 2, 1, 1, 1, 1,
    ]  # fmt: skip
    assert law.statistics().shrunk == 6


def test_it_shrinks_when_memory_is_nearly_gone() -> None:
    assert LocalLaw(8).observe(Load(IDLE, 0.04, 8), 0.0) == 6


def test_it_grows_back_to_its_cores_even_when_little_is_active() -> None:
    law = LocalLaw(4)
    for now in range(4):
        law.observe(Load(FULL, 0.5, 8, 3.0), float(now))
    assert law.places == 1
    for now in range(4, 20):
        law.observe(Load(IDLE, 0.5, 0), float(now))
    assert law.places == 4


def test_a_change_is_given_time_to_be_seen() -> None:
    law = LocalLaw(4)
    law.observe(Load(IDLE, 0.5, 4), 10.0)
    assert law.observe(Load(IDLE, 0.5, 5), 10.0 + SETTLE_S / 2) == 5
    assert law.observe(Load(IDLE, 0.5, 5), 10.0 + SETTLE_S) == 6


LOADS = st.builds(Load, st.floats(0, 1), st.floats(0, 1), st.integers(0, 50), st.floats(0, 9))


@given(st.integers(1, 16), st.lists(LOADS, max_size=50))
def test_places_stay_between_one_and_their_bounds(cores: int, loads: list[Load]) -> None:
    law = LocalLaw(cores)
    for now, load in enumerate(loads):
        before = law.places
        after = law.observe(load, float(now))
        assert 1 <= after <= PLACES_PER_CORE_MAX * cores
        assert abs(after - before) <= max(1, before // 4)
        assert after <= max(before, cores, 2 * load.active)
