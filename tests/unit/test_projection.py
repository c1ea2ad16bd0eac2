"""A bucket that streams drain: its level now, and when it can take one more call."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.pacing.limits import BIN_S, Bucket, PlannedStream
from headway.pacing.streams import AHEAD_BINS, Projection

RATE = 10.0
CAPACITY = 100.0


def _projection(level: float, *streams: PlannedStream) -> Projection:
    projection = Projection(Bucket(RATE, CAPACITY, 0.0), 0.0)
    projection.bucket.set_level(level, 0.0)
    for stream in streams:
        projection.outflow.add(stream, 0.0)
    return projection


def test_the_level_falls_by_what_streams_produce_and_rises_by_the_refill() -> None:
    projection = _projection(50.0, PlannedStream(0.0, 10.0, 150.0))
    assert projection.level(4.0) == pytest.approx(50.0 + 40.0 - 60.0)
    assert projection.level(10.0) == pytest.approx(50.0 + 100.0 - 150.0)


def test_refill_lost_to_a_full_bucket_does_not_pay_for_what_flows_later() -> None:
    """Ten idle seconds of a full bucket add nothing, however late one looks."""
    projection = _projection(CAPACITY, PlannedStream(10.0, 12.0, 80.0))
    # The first half second of the stream finds the bucket full and its refill lost.
    assert projection.level(12.0) == pytest.approx(CAPACITY + 15.0 - 80.0)


def test_with_nothing_planned_the_level_is_the_buckets() -> None:
    assert _projection(20.0).level(3.0) == pytest.approx(50.0)


def test_a_call_passes_at_once_where_all_that_is_planned_fits() -> None:
    projection = _projection(90.0, PlannedStream(0.0, 5.0, 30.0))
    assert projection.when(10.0, PlannedStream(0.0, 5.0, 40.0), 5.0, 0.0) == 0.0


def test_a_call_passes_at_once_where_the_refill_outpaces_its_stream() -> None:
    """Its answer is larger than the whole bucket, but never ahead of the refill."""
    projection = _projection(60.0, PlannedStream(0.0, 60.0, 200.0))
    assert projection.when(5.0, PlannedStream(0.0, 60.0, 300.0), 10.0, 0.0) == 0.0


def test_a_call_too_large_for_a_full_bucket_goes_alone_at_once() -> None:
    assert _projection(CAPACITY).when(0.0, PlannedStream(0.0, 1.0, 500.0), 0.0, 0.0) == 0.0


def test_a_call_too_large_for_the_bucket_waits_until_it_is_full() -> None:
    when_s = _projection(40.0).when(0.0, PlannedStream(0.0, 1.0, 500.0), 0.0, 0.0)
    assert when_s == pytest.approx(6.0, abs=1e-3)


def test_a_call_too_large_for_the_bucket_waits_until_nothing_else_flows() -> None:
    flowing = PlannedStream(0.0, 20.0, 10.0)
    when_s = _projection(CAPACITY, flowing).when(0.0, PlannedStream(0.0, 1.0, 500.0), 0.0, 0.0)
    assert when_s == pytest.approx(20.0)


def test_what_flows_must_be_refilled_before_a_large_call_goes_alone() -> None:
    flowing = PlannedStream(0.0, 4.0, 150.0)
    when_s = _projection(CAPACITY, flowing).when(0.0, PlannedStream(0.0, 1.0, 500.0), 0.0, 0.0)
    assert when_s == pytest.approx(15.0, abs=1e-3)


def test_whoever_must_wait_longer_than_the_view_is_looked_at_again_then() -> None:
    flowing = PlannedStream(0.0, 100.0, 2000.0)
    when_s = _projection(0.0, flowing).when(50.0, PlannedStream(0.0, 1.0, 10.0), 0.0, 0.0)
    assert when_s == AHEAD_BINS * BIN_S


def test_a_call_waits_until_the_refill_has_made_room_for_it() -> None:
    """The bucket is empty, 50 are needed and 10 per second come."""
    flowing = PlannedStream(0.0, 30.0, 1.0)
    when_s = _projection(0.0, flowing).when(50.0, PlannedStream(1.0, 2.0, 1.0), 0.0, 0.0)
    assert 5.0 <= when_s <= 5.5


@settings(max_examples=60)
@given(
    level=st.floats(-50.0, CAPACITY),
    need=st.floats(1.0, 60.0),
    flowing=st.floats(1.0, 200.0),
    answer=st.floats(1.0, 60.0),
)
def test_a_call_that_waited_as_told_passes_then(
    level: float, need: float, flowing: float, answer: float
) -> None:
    """Unless it was told to look again, at the end of the view."""
    projection = _projection(level, PlannedStream(0.0, 8.0, flowing))
    when_s = projection.when(need, PlannedStream(0.5, 4.0, answer), 0.0, 0.0)
    assert 0.0 <= when_s <= AHEAD_BINS * BIN_S
    if when_s < AHEAD_BINS * BIN_S:
        late = PlannedStream(when_s + 0.5, when_s + 4.0, answer)
        # What happens within a bin is not looked at: the floor has room for a bin's refill.
        assert projection.when(need, late, -RATE * BIN_S, when_s) == when_s
