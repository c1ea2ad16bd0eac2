"""What streams in flight will still produce: planning, draining, the lowest level ahead."""

from __future__ import annotations

import pytest

from headway.pacing.limits import BIN_S, BINS, HORIZON_S, Outflow, PlannedStream


def _flowing(*streams: PlannedStream, now: float = 0.0) -> Outflow:
    outflow = Outflow(now)
    for stream in streams:
        outflow.add(stream, now)
    return outflow


def test_a_stream_produces_evenly_between_its_two_times() -> None:
    stream = PlannedStream(10.0, 20.0, 100.0)
    produced = [stream.produced(now) for now in (0.0, 10.0, 12.5, 20.0, 30.0)]
    assert produced == [0.0, 0.0, 25.0, 100.0, 100.0]


def test_a_stream_without_duration_produces_everything_at_once() -> None:
    assert PlannedStream(1.0, 1.0, 5.0).produced(1.0) == 0.0
    assert PlannedStream(1.0, 1.0, 5.0).produced(1.1) == 5.0


def test_nothing_planned_drains_nothing() -> None:
    assert Outflow(3.0).drain(50.0) == 0.0


def test_what_a_stream_produces_is_drained_as_time_passes() -> None:
    outflow = _flowing(PlannedStream(1.0, 11.0, 100.0))
    assert outflow.drain(1.0) == 0.0
    assert outflow.drain(3.5) == pytest.approx(25.0)
    assert outflow.drain(3.5) == 0.0
    assert outflow.drain(11.0) == pytest.approx(75.0)
    assert outflow.planned == pytest.approx(0.0)


def test_time_does_not_run_backwards() -> None:
    outflow = _flowing(PlannedStream(0.0, 10.0, 100.0))
    assert outflow.drain(5.0) == pytest.approx(50.0)
    assert outflow.drain(2.0) == 0.0
    assert outflow.drain(10.0) == pytest.approx(50.0)


def test_a_part_of_a_bin_is_drained_in_proportion() -> None:
    outflow = _flowing(PlannedStream(0.0, BIN_S, 100.0))
    assert outflow.drain(0.1) == pytest.approx(20.0)
    assert outflow.drain(0.3) == pytest.approx(40.0)
    assert outflow.drain(0.5) == pytest.approx(40.0)


def test_a_short_answer_fits_within_one_bin() -> None:
    outflow = _flowing(PlannedStream(0.1, 0.2, 7.0))
    assert outflow.planned == 7.0
    assert outflow.drain(BIN_S) == pytest.approx(7.0)


def test_an_answer_that_comes_all_at_once_is_planned_whole() -> None:
    outflow = _flowing(PlannedStream(2.25, 2.25, 40.0))
    assert outflow.drain(2.0) == 0.0
    assert outflow.drain(3.0) == pytest.approx(40.0)


def test_only_what_is_left_of_a_stream_is_planned() -> None:
    outflow = Outflow(5.0)
    outflow.add(PlannedStream(0.0, 10.0, 100.0), 5.0)
    assert outflow.planned == pytest.approx(50.0)


def test_a_stream_that_is_over_adds_nothing() -> None:
    outflow = Outflow(10.0)
    outflow.add(PlannedStream(0.0, 10.0, 100.0), 10.0)
    assert outflow.planned == 0.0
    assert outflow.until_s == 10.0


def test_taking_a_stream_off_the_plan_leaves_the_others() -> None:
    short, long = PlannedStream(0.0, 4.0, 40.0), PlannedStream(0.3, 9.7, 94.0)
    outflow = _flowing(short, long)
    outflow.drain(2.0)
    outflow.add(short, 2.0, -1.0)
    assert outflow.planned == pytest.approx(94.0 - 17.0)
    assert outflow.drain(20.0) == pytest.approx(94.0 - 17.0)


def test_a_stream_that_is_taken_off_before_it_began_leaves_no_debt_behind() -> None:
    stream = PlannedStream(0.4, 2.4, 100.0)
    outflow = _flowing(stream)
    # Within a bin nobody knows that the stream begins at its end: a part is drained too early.
    early = outflow.drain(0.2)
    assert early > 0
    outflow.add(stream, 0.2, -1.0)
    assert outflow.drain(0.3) + outflow.drain(10.0) == pytest.approx(-early)
    assert outflow.planned == pytest.approx(0.0, abs=1e-9)


def test_after_a_long_silence_everything_has_been_produced() -> None:
    outflow = _flowing(PlannedStream(0.0, 1.0, 100.0), PlannedStream(0.0, HORIZON_S, 50.0))
    assert outflow.drain(BINS * BIN_S + 0.1) == pytest.approx(150.0)
    assert outflow.drain(10_000.0) == pytest.approx(0.0)


def test_the_lowest_level_ahead_is_now_when_refill_outweighs_the_streams() -> None:
    outflow = _flowing(PlannedStream(0.0, 10.0, 100.0))
    assert outflow.lowest(500.0, 20.0, 1000.0, PlannedStream(0.0, 1.0, 0.0), 0.0) == 500.0


def test_the_lowest_level_ahead_is_at_the_end_of_what_drains_faster_than_it_refills() -> None:
    outflow = _flowing(PlannedStream(0.0, 10.0, 100.0))
    lowest = outflow.lowest(500.0, 4.0, 1000.0, PlannedStream(5.0, 10.0, 100.0), 0.0)
    assert lowest == pytest.approx(500.0 + 40.0 - 200.0)


def test_what_a_full_bucket_cannot_hold_does_not_help_later() -> None:
    late = PlannedStream(20.0, 30.0, 200.0)
    assert _flowing().lowest(100.0, 5.0, 100.0, late, 0.0) == pytest.approx(100.0 + 50.0 - 200.0)


def test_a_candidate_that_is_flowing_already_counts_with_what_is_left_of_it() -> None:
    outflow = Outflow(5.25)
    lowest = outflow.lowest(100.0, 0.0, 100.0, PlannedStream(0.25, 10.25, 100.0), 0.0)
    assert lowest == pytest.approx(50.0)


def test_from_the_middle_of_a_bin_on_only_the_rest_of_it_refills() -> None:
    outflow = _flowing(PlannedStream(5.25, 6.0, 30.0), now=5.25)
    lowest = outflow.lowest(100.0, 20.0, 1000.0, PlannedStream(6.0, 6.5, 30.0), 0.0)
    assert lowest == pytest.approx(100.0 + 20.0 * 1.25 - 60.0)


def test_what_is_planned_up_to_the_horizon_is_seen_at_any_time() -> None:
    outflow = Outflow(1000.0)
    outflow.add(PlannedStream(1000.0, 1000.0 + HORIZON_S, 200.0), 1000.0)
    nothing = PlannedStream(1000.0, 1001.0, 0.0)
    assert outflow.lowest(500.0, 0.0, 500.0, nothing, 1000.0) == pytest.approx(300.0)


def test_a_candidate_without_duration_is_charged_whole() -> None:
    assert Outflow(0.0).lowest(
        50.0, 0.0, 100.0, PlannedStream(3.2, 3.2, 30.0), 0.0
    ) == pytest.approx(20.0)


def test_a_dip_before_the_time_in_question_does_not_count() -> None:
    outflow = _flowing(PlannedStream(0.0, 4.0, 100.0))
    nothing = PlannedStream(20.0, 21.0, 0.0)
    assert outflow.lowest(500.0, 10.0, 500.0, nothing, 0.0) == pytest.approx(440.0)
    assert outflow.lowest(500.0, 10.0, 500.0, nothing, 6.0) == pytest.approx(465.0)
    assert outflow.lowest(500.0, 10.0, 500.0, nothing, 15.0) == 500.0


def test_a_candidate_far_ahead_does_not_meet_the_present_plans_again() -> None:
    outflow = _flowing(PlannedStream(0.0, 10.0, 100.0))
    far = PlannedStream(2 * BINS * BIN_S, 2 * BINS * BIN_S + 1.0, 1.0)
    assert outflow.lowest(1000.0, 0.0, 1000.0, far, 0.0) == pytest.approx(899.0)


def test_a_debt_before_the_call_is_sent_does_not_count_against_it() -> None:
    outflow = Outflow(0.0)
    late = PlannedStream(20.0, 21.0, 10.0)
    assert outflow.lowest(-50.0, 10.0, 100.0, late, 0.0) == -50.0
    assert outflow.lowest(-50.0, 10.0, 100.0, late, 15.0) >= 90.0
