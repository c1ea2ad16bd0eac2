"""A sliding window that counts what is planned: no period, past or future, holds too much."""

from __future__ import annotations

import pytest

from headway.pacing.limits import Bucket, PlannedStream, ReserveMeter, SlidingWindow
from headway.pacing.streams import SWEEP, Rolling, Timeline

NOTHING = PlannedStream(0.0, 0.0, 0.0)


def test_what_was_taken_comes_free_one_period_later() -> None:
    rolling = Rolling(100.0, 60.0, 0.0)
    rolling.charge(80.0, 10.0)
    assert rolling.level(69.0) == 20.0
    assert rolling.level(71.0) == 100.0


def test_a_call_waits_until_enough_is_forgotten() -> None:
    rolling = Rolling(100.0, 60.0, 0.0)
    rolling.charge(80.0, 0.0)
    assert rolling.when(20.0, NOTHING, 0.0, 1.0) == 1.0
    until_s = rolling.when(30.0, NOTHING, 0.0, 1.0)
    assert 60.0 < until_s < 61.0
    assert rolling.when(30.0, NOTHING, 0.0, until_s) == until_s


def test_a_stream_counts_where_it_flows_and_not_before() -> None:
    rolling = Rolling(100.0, 10.0, 0.0)
    stream = PlannedStream(0.0, 20.0, 150.0)
    rolling.begin(stream, 0.0, 0.0)
    assert rolling.planned == 150.0
    assert rolling.level(10.0) == pytest.approx(100.0 - 75.0, abs=2.0)
    rolling.end(stream, 0.0, 150.0, 20.0)
    assert rolling.planned == 0.0
    assert rolling.level(20.0) == pytest.approx(100.0 - 75.0, abs=2.0)


def test_a_stream_that_moves_takes_its_plan_with_it() -> None:
    rolling = Rolling(100.0, 10.0, 0.0)
    before, after = PlannedStream(0.0, 5.0, 50.0), PlannedStream(20.0, 25.0, 60.0)
    rolling.begin(before, 0.0, 0.0)
    rolling.plan(before, after, 0.0)
    assert rolling.planned == 60.0
    assert rolling.level(8.0) == pytest.approx(100.0)
    assert rolling.level(26.0) == pytest.approx(40.0)


def test_a_stream_within_one_bin_is_counted_whole() -> None:
    timeline = Timeline(1.0, 3, 0.0)
    timeline.flow(PlannedStream(0.2, 0.7, 5.0), 1.0)
    assert timeline.sums(0, 1) == [5.0]


def test_a_correction_changes_the_charge_it_belongs_to() -> None:
    rolling = Rolling(100.0, 60.0, 0.0)
    rolling.charge(80.0, 0.0)
    rolling.correct(-50.0, 0.0, 5.0)
    assert rolling.level(5.0) == 70.0


def test_a_call_that_is_alone_may_fill_a_period() -> None:
    rolling = Rolling(100.0, 60.0, 0.0)
    assert rolling.when(500.0, NOTHING, 0.0, 0.0) == 0.0
    rolling.charge(1.0, 0.0)
    assert rolling.when(500.0, NOTHING, 0.0, 0.0) > 60.0


def test_a_limit_that_changes_is_counted_by_its_new_size() -> None:
    rolling = Rolling(100.0, 60.0, 0.0)
    rolling.rescale(0.5)
    assert rolling.size == rolling.left(0.0) == 50.0


def test_old_bins_are_swept_out_and_late_amounts_for_them_are_forgotten() -> None:
    timeline = Timeline(1.0, 3, 0.0)
    timeline.add(0, 7.0)
    timeline.now = SWEEP + 100
    timeline.add(SWEEP + 100, 1.0)
    timeline.add(0, 9.0)
    assert sum(timeline._bins) == 1.0
    assert len(timeline._bins) < 10


def test_a_reserve_on_a_bucket_keeps_the_size_that_its_mirror_gives_it() -> None:
    reserve = ReserveMeter(Bucket(1.0, 60.0, 0.0), flows=False, rounding=0.0)
    reserve.rescale(0.5)
    assert reserve.level(0.0) == 60.0


def test_a_reserve_on_a_window_is_resized_with_it() -> None:
    window = SlidingWindow(100.0, 60.0)
    ReserveMeter(window, flows=False, rounding=0.0).rescale(0.5)
    assert window.limit == 50.0
