"""For any streams: what is planned is drained once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.pacing.meters import PlannedStream
from headway.pacing.streams import BIN_S, BINS, HORIZON_S, Outflow

NOTHING = PlannedStream(0.0, 0.0, 0.0)


@st.composite
def streams(draw: st.DrawFn) -> PlannedStream:
    """An answer that ends within the horizon, however short or far away."""
    from_s = draw(st.floats(0.0, 60.0))
    length_s = draw(st.one_of(st.just(0.0), st.floats(0.0, 1.0), st.floats(0.0, 60.0)))
    return PlannedStream(from_s, from_s + length_s, draw(st.floats(0.0, 1000.0)))


def _held(outflow: Outflow, now: float) -> float:
    """What the bins hold: everything that is drained from now on."""
    return outflow.drain(now + BINS * BIN_S + 1.0)


@given(st.lists(streams(), max_size=8), st.lists(st.floats(0.0, HORIZON_S), max_size=12))
@settings(max_examples=80)
def test_what_was_drained_and_what_remains_is_what_was_planned(
    planned: list[PlannedStream], times: list[float]
) -> None:
    outflow = Outflow(0.0)
    for stream in planned:
        outflow.add(stream, 0.0)
    total = sum(stream.tokens for stream in planned)
    drained = 0.0
    for now in sorted(times):
        drained += outflow.drain(now)
        assert drained + outflow.planned == pytest.approx(total, abs=1e-6)
    remains = outflow.planned
    assert _held(outflow, max(times, default=0.0)) == pytest.approx(remains, abs=1e-6)


@given(st.lists(streams(), min_size=1, max_size=6), st.floats(0.0, 200.0))
@settings(max_examples=80)
def test_at_the_end_of_a_bin_exactly_what_flowed_by_then_has_been_drained(
    planned: list[PlannedStream], until_s: float
) -> None:
    outflow = Outflow(0.0)
    for stream in planned:
        outflow.add(stream, 0.0)
    now = round(until_s / BIN_S) * BIN_S
    # An answer without duration is spread over a microsecond, which may cross the end of a bin.
    instant = sum(stream.tokens for stream in planned if 0 <= now - stream.from_s < 1e-6)
    produced = sum(stream.produced(now) for stream in planned)
    assert outflow.drain(now) == pytest.approx(produced, abs=1e-6 + instant)


@given(
    st.lists(st.tuples(streams(), st.floats(0.0, 50.0), st.floats(0.0, 60.0)), max_size=8),
    st.lists(st.floats(0.0, 120.0), max_size=8),
)
@settings(max_examples=150)
def test_plans_that_are_added_and_removed_leave_only_what_flowed_meanwhile(
    lives: list[tuple[PlannedStream, float, float]], looks: list[float]
) -> None:
    outflow = Outflow(0.0)
    moments = [(look, 0.0, NOTHING) for look in looks]
    for stream, added_s, held_s in lives:
        moments += [(added_s, 1.0, stream), (added_s + held_s, -1.0, stream)]
    drained = 0.0
    for now, sign, stream in sorted(moments, key=lambda moment: moment[0]):
        drained += outflow.drain(now)
        outflow.add(stream, now, sign)
    last_s = max((moment[0] for moment in moments), default=0.0)
    drained += _held(outflow, last_s)
    flowed = sum(
        stream.produced(added_s + held_s) - stream.produced(added_s)
        for stream, added_s, held_s in lives
    )
    assert drained == pytest.approx(flowed, abs=1e-5)
    assert outflow.planned == pytest.approx(0.0, abs=1e-5)
