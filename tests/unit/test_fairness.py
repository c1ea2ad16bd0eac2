"""Who is next: order, charges, returns, corrections and what it costs to keep."""

from __future__ import annotations

import tracemalloc
from math import inf, nan
from typing import TypeVar

import pytest

from headway.errors import BadValueError, InternalError
from headway.pacing.queue import DEPTH_MAX, LOOK_MAX, FairQueue

T = TypeVar("T")
SAME: tuple[float, ...] = (0.0,)


def _filled(flows: dict[str, int], cost_s: float = 1.0) -> FairQueue[str]:
    """A queue with so many waiters per flow, named `a0`, `a1`, ..."""
    queue: FairQueue[str] = FairQueue()
    for flow, count in flows.items():
        for number in range(count):
            queue.push((flow,), SAME, cost_s, f"{flow}{number}")
    return queue


def serve(queue: FairQueue[T]) -> T:
    """Take the head."""
    first = queue._first()
    assert first is not None
    return queue.take(first.place)


def _drain(queue: FairQueue[str]) -> list[str]:
    return [serve(queue) for _ in range(len(queue.waiters))]


def test_an_empty_queue_has_no_head_and_serves_nobody() -> None:
    queue: FairQueue[str] = FairQueue()
    assert queue.head() is None
    assert queue.peek(4) == []
    assert len(queue.waiters) == 0
    with pytest.raises(InternalError, match="no call waits"):
        queue.take(1)


def test_flows_take_turns() -> None:
    queue = _filled({"a": 3, "b": 3})
    assert _drain(queue) == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_a_path_that_begins_another_competes_as_one_more_child_of_itself() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(2):
        queue.push(("key",), SAME, 1.0, f"own{number}")
    queue.push(("other",), SAME, 1.0, "other")
    queue.push(("key", "session"), SAME, 1.0, "session")
    queue.push(("key",), SAME, 1.0, "own2")
    assert queue.peek(9) == ["own0", "other", "session", "own1", "own2"]
    assert _drain(queue) == ["own0", "other", "session", "own1", "own2"]


def test_a_resting_leaf_can_become_a_branch_and_keeps_its_tag() -> None:
    queue = _filled({"busy": 5})
    queue.push(("key",), SAME, 2.5, "own")
    assert [serve(queue), serve(queue)] == ["busy0", "own"]
    queue.push(("key", "session"), SAME, 1.0, "session")
    assert _drain(queue) == ["busy1", "busy2", "session", "busy3", "busy4"]


def test_the_empty_path_is_a_flow_too() -> None:
    queue = _filled({"a": 2})
    queue.push((), SAME, 1.0, "nobody's")
    assert _drain(queue) == ["a0", "nobody's", "a1"]


def test_levels_below_the_deepest_are_one_flow() -> None:
    queue: FairQueue[str] = FairQueue()
    deep = ("level",) * DEPTH_MAX
    queue.push((*deep, "a"), SAME, 1.0, "a0")
    queue.push((*deep, "a"), SAME, 1.0, "a1")
    queue.push((*deep, "b"), SAME, 1.0, "b0")
    assert _drain(queue) == ["a0", "a1", "b0"]


@pytest.mark.parametrize("cost_s", [-1.0, inf, nan])
def test_a_cost_is_finite_and_not_negative(cost_s: float) -> None:
    queue: FairQueue[str] = FairQueue()
    with pytest.raises(BadValueError, match="cost"):
        queue.push(("a",), SAME, cost_s, "a")
    assert len(queue.waiters) == 0


@pytest.mark.parametrize("delta_cost_s", [inf, -inf, nan])
def test_a_correction_is_finite(delta_cost_s: float) -> None:
    with pytest.raises(BadValueError, match="correction"):
        FairQueue[str]().correct(("a",), delta_cost_s)


def test_taking_out_of_order_charges_the_flow() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.push(("a",), SAME, 1.0, "a0")
    queue.push(("b",), SAME, 5.0, "b0")
    filler = queue.push(("b",), (1.0,), 5.0, "b1")
    for number in range(1, 6):
        queue.push(("a",), SAME, 1.0, f"a{number}")
    assert queue.take(filler) == "b1"
    assert _drain(queue) == ["a0", "a1", "a2", "a3", "a4", "b0", "a5"]
    with pytest.raises(InternalError, match="place"):
        queue.take(filler)


def test_a_refunded_flow_that_rests_returns_at_the_virtual_time() -> None:
    queue = _filled({"a": 9, "c": 9}, cost_s=8.0)
    places = [queue.push(("b",), SAME, 8.0, f"b{number}") for number in range(9)]
    for _ in range(9):
        serve(queue)
    assert queue._root.virtual == 16.0
    queue.correct(("a",), -20.0)
    queue.correct(("b",), -18.0)
    for place in places:
        queue.remove(place)
    queue.push(("b",), SAME, 8.0, "back")
    assert [serve(queue) for _ in range(3)] == ["a3", "a4", "back"]


def test_peek_passes_over_those_who_left() -> None:
    queue: FairQueue[str] = FairQueue()
    places = [queue.push(("a",), SAME, 1.0, f"a{number}") for number in range(30)]
    for place in places[1:29]:
        queue.remove(place)
    assert queue.peek(4) == ["a0", "a29"]


def test_peek_shows_who_is_next_beside_many_flows_that_rest() -> None:
    queue = _filled({"busy": 5}, cost_s=1.0)
    for number in range(2 * LOOK_MAX):
        queue.push((f"short-lived-{number}",), SAME, 1.5, "short")
    serve(queue)
    for _ in range(2 * LOOK_MAX):
        assert serve(queue) == "short"
    assert len(queue._root.children) == 2 * LOOK_MAX + 1
    assert queue.peek(4) == ["busy1", "busy2", "busy3", "busy4"]


def test_those_who_leave_from_the_middle_do_not_pile_up() -> None:
    queue: FairQueue[int] = FairQueue()
    queue.push(("a",), (0.0,), 1.0, -1)
    tracemalloc.start()
    for number in range(5000):
        queue.remove(queue.push(("a",), (1.0,), 1.0, number))
    kept_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept_bytes < 20_000
    assert queue.peek(2) == [-1]


def test_corrections_do_not_pile_up() -> None:
    queue = _filled({"a": 2, "b": 2})
    tracemalloc.start()
    for number in range(5000):
        queue.correct(("b",), 1.0 if number % 2 else -1.0)
    kept_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept_bytes < 20_000
    assert sorted(_drain(queue)) == ["a0", "a1", "b0", "b1"]


def test_short_lived_flows_are_forgotten() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(3000):
        queue.push(("long-lived",), SAME, 1.0, "long")
        queue.push(("run", f"short-lived-{number}"), SAME, 1.0, "short")
        serve(queue)
        serve(queue)
    assert len(queue._root.children) <= 2


def test_a_hundred_thousand_waiters_fit_into_60_megabytes() -> None:
    tracemalloc.start()
    queue: FairQueue[int] = FairQueue()
    for number in range(100_000):
        path = (f"run-{number % 10}", f"session-{number % 1000}")
        queue.push(path, (0.0, float(number % 97), -1.0), 1.0 + number % 7, number)
    kept_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(queue.waiters) == 100_000
    assert kept_bytes <= 60_000_000
