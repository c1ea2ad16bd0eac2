"""Buckets refill, windows forget, gauges are given back; debts are waited out."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.base.values import Limit
from headway.pacing.limits import (
    GRAINS_PER_PERIOD,
    AnyMeter,
    Bucket,
    FixedWindow,
    Gauge,
    SlidingWindow,
    meter_of,
)


def _rate_meters() -> list[AnyMeter]:
    return [
        Bucket(10.0, 600.0, 0.0),
        SlidingWindow(600.0, 60.0),
        FixedWindow(600.0, 60.0, 60.0),
    ]


@pytest.mark.parametrize(
    ("kind", "type_", "said"),
    [
        ("bucket", Bucket, "<Bucket 30/30 +1.00/s>"),
        ("sliding", SlidingWindow, "<SlidingWindow 0/60 per 60s>"),
        ("fixed", FixedWindow, "<FixedWindow 0/60 until 65.0>"),
        ("gauge", Gauge, "<Gauge 0/60>"),
    ],
)
def test_a_limit_is_counted_by_the_meter_of_its_kind(kind: str, type_: type, said: str) -> None:
    kinds = {
        "bucket": Limit("input", 60.0, 60.0, "bucket", burst=30.0),
        "sliding": Limit("input", 60.0, 60.0, "sliding"),
        "fixed": Limit("input", 60.0, 60.0, "fixed"),
        "gauge": Limit("concurrency", 60.0, 0.0, "gauge"),
    }
    meter = meter_of(kinds[kind], 5.0)
    assert isinstance(meter, type_)
    assert meter.available(5.0) == kinds[kind].capacity


@pytest.mark.parametrize("meter", _rate_meters(), ids=["bucket", "sliding", "fixed"])
def test_a_call_larger_than_the_limit_waits_for_a_full_limit_and_goes_into_debt(
    meter: AnyMeter,
) -> None:
    assert meter.when(900.0, 0.0) == 0.0
    meter.charge(1.0, 0.0)
    full_s = meter.when(900.0, 0.0)
    assert 0.0 < full_s <= 60.0
    assert meter.available(full_s) == 600.0
    meter.charge(900.0, full_s)
    assert meter.available(full_s) == -300.0
    again_s = meter.when(1.0, full_s)
    assert full_s < again_s < inf
    assert meter.available(again_s) >= 1.0 - 1e-9


@pytest.mark.parametrize(
    "meter", [*_rate_meters(), Gauge(600.0)], ids=["bucket", "sliding", "fixed", "gauge"]
)
def test_a_refund_gives_back_what_was_charged(meter: AnyMeter) -> None:
    meter.charge(500.0, 0.0)
    assert meter.available(0.0) == 100.0
    assert meter.when(200.0, 0.0) > 0.0
    meter.refund(200.0, 0.0)
    assert meter.available(0.0) == 300.0
    assert meter.when(300.0, 0.0) == 0.0


@given(
    charges=st.lists(st.tuples(st.floats(0.0, 20.0), st.floats(0.0, 400.0)), max_size=12),
    amount=st.floats(1.0, 900.0),
)
@settings(max_examples=60)
def test_when_is_the_time_at_which_there_is_enough(
    charges: list[tuple[float, float]], amount: float
) -> None:
    for meter in _rate_meters():
        now = 0.0
        for gap_s, charge in charges:
            now += gap_s
            meter.charge(charge, now)
        until_s = meter.when(amount, now)
        assert until_s >= now
        if isinstance(meter, FixedWindow):
            assert until_s in (now, meter.boundary_s)
        # A sum of times may miss a window's edge by its last bit.
        later_s = until_s + 1e-9
        assert meter.available(later_s) >= min(amount, 600.0) - 1e-4
        assert meter.when(amount, later_s) == later_s


def test_a_bucket_refills_up_to_its_capacity_and_remembers_since_when_it_is_full() -> None:
    bucket = Bucket(10.0, 100.0, 0.0)
    bucket.charge(50.0, 0.0)
    assert bucket.available(2.0) == 70.0
    assert bucket.clipped_s == 0.0
    assert bucket.available(9.0) == 100.0
    assert bucket.full_s == 5.0
    assert bucket.clipped_s == 9.0
    bucket.available(20.0)
    assert bucket.full_s == 5.0
    assert bucket.clipped_s == 20.0


def test_a_bucket_never_holds_more_than_its_capacity_whoever_says_so() -> None:
    bucket = Bucket(10.0, 100.0, 0.0)
    bucket.refund(50.0, 1.0)
    assert bucket.available(1.0) == 100.0
    bucket.set_level(500.0, 1.0)
    assert bucket.available(1.0) == 100.0
    bucket.set_level(30.0, 1.0)
    assert bucket.available(2.0) == 40.0


def test_a_drain_loses_no_refill_that_flowed_out_at_once() -> None:
    charged, drained = Bucket(10.0, 100.0, 0.0), Bucket(10.0, 100.0, 0.0)
    charged.charge(80.0, 10.0)
    drained.drain(80.0, 10.0)
    assert charged.available(10.0) == 20.0
    assert drained.available(10.0) == 100.0
    drained.drain(150.0, 20.0)
    assert drained.available(20.0) == 50.0
    drained.drain(10.0, 15.0)
    assert drained.available(15.0) == 40.0
    assert drained.available(20.0) == 40.0


def test_a_resized_bucket_keeps_its_debt_and_loses_what_no_longer_fits() -> None:
    bucket = Bucket(10.0, 100.0, 0.0)
    bucket.resize(5.0, 50.0, 0.0)
    assert bucket.available(0.0) == 50.0
    bucket.charge(80.0, 0.0)
    bucket.resize(20.0, 200.0, 0.0)
    assert bucket.available(0.0) == -30.0
    assert bucket.when(10.0, 0.0) == 2.0


def test_a_bucket_that_never_refills_is_never_waited_for() -> None:
    bucket = Bucket(0.0, 10.0, 0.0)
    assert bucket.when(10.0, 0.0) == 0.0
    bucket.charge(1.0, 0.0)
    assert bucket.when(10.0, 0.0) == inf


@pytest.mark.parametrize("meter", _rate_meters(), ids=["bucket", "sliding", "fixed"])
def test_time_never_runs_backwards(meter: AnyMeter) -> None:
    meter.charge(300.0, 70.0)
    assert meter.available(10.0) == 300.0
    meter.charge(100.0, 10.0)
    assert meter.available(70.0) == 200.0
    assert meter.when(600.0, 70.0) > 70.0
    assert meter.when(600.0, 10.0) == meter.when(600.0, 70.0)


def test_a_sliding_window_forgets_each_charge_a_period_later() -> None:
    window = SlidingWindow(10.0, 60.0)
    window.charge(4.0, 0.0)
    window.charge(6.0, 20.0)
    assert window.when(4.0, 30.0) == 60.0
    assert window.when(5.0, 30.0) == 80.0
    assert window.available(59.9) == 0.0
    assert window.available(60.0) == 4.0
    assert window.available(80.0) == 10.0


def test_charges_close_together_are_kept_as_one_with_the_later_time() -> None:
    window = SlidingWindow(1e9, 60.0)
    step_s = 60.0 / GRAINS_PER_PERIOD / 2
    window.charge(1.0, 0.0)
    window.charge(1.0, step_s)
    assert window.available(60.0) == 1e9 - 2.0
    assert window.available(60.0 + step_s) == 1e9


def test_a_refund_to_a_sliding_window_comes_off_its_newest_charges() -> None:
    window = SlidingWindow(10.0, 60.0)
    window.charge(4.0, 0.0)
    window.charge(3.0, 20.0)
    window.charge(3.0, 40.0)
    window.refund(5.0, 40.0)
    assert window.available(40.0) == 5.0
    assert window.available(60.0) == 9.0
    window.refund(100.0, 60.0)
    assert window.available(60.0) == 10.0


def test_what_was_produced_evenly_is_forgotten_in_quarters() -> None:
    window = SlidingWindow(100.0, 60.0)
    window.charge(10.0, 30.0)
    window.charge_spread(40.0, 0.0, 40.0)
    assert window.available(40.0) == 50.0
    assert window.available(70.0) == 60.0
    assert window.available(90.0) == 90.0
    assert window.available(100.0) == 100.0


def test_a_stream_older_than_the_period_is_charged_only_for_what_the_window_still_sees() -> None:
    window = SlidingWindow(100.0, 60.0)
    window.charge_spread(40.0, 0.0, 120.0)
    assert window.available(120.0) == 80.0


def test_an_amended_charge_is_forgotten_with_the_charge_it_corrects() -> None:
    window = SlidingWindow(100.0, 60.0)
    window.charge(10.0, 0.0)
    window.charge(20.0, 30.0)
    window.amend(5.0, 0.0, 40.0)
    assert window.available(40.0) == 65.0
    window.amend(-50.0, 30.0, 40.0)
    assert window.available(40.0) == 85.0
    assert window.available(60.0) == 100.0


def test_what_a_window_has_forgotten_or_never_saw_is_not_amended() -> None:
    window = SlidingWindow(100.0, 60.0)
    window.charge(10.0, 0.0)
    window.charge(20.0, 30.0)
    window.amend(5.0, 0.0, 60.0)
    window.amend(5.0, 50.0, 60.0)
    assert window.available(60.0) == 80.0


def test_a_fixed_window_jumps_over_the_periods_in_which_nobody_asked() -> None:
    window = FixedWindow(10.0, 60.0, 30.0)
    window.charge(10.0, 0.0)
    assert window.available(29.9) == 0.0
    assert window.when(1.0, 29.9) == 30.0
    assert window.available(30.0) == 10.0
    assert window.boundary_s == 90.0
    window.charge(4.0, 220.0)
    assert window.boundary_s == 270.0
    assert window.available(269.9) == 6.0


def test_a_refund_from_an_earlier_fixed_window_makes_no_extra_room() -> None:
    window = FixedWindow(10.0, 60.0, 60.0)
    window.charge(8.0, 0.0)
    window.refund(8.0, 61.0)
    assert window.available(61.0) == 10.0


def test_a_fixed_window_adopts_the_remainder_it_is_told() -> None:
    window = FixedWindow(10.0, 60.0, 60.0)
    window.set_level(3.0, 0.0)
    assert window.available(0.0) == 3.0


def test_time_does_nothing_for_a_gauge() -> None:
    gauge = Gauge(2.0)
    gauge.charge(2.0, 0.0)
    assert gauge.when(1.0, 1000.0) == inf
    gauge.refund(1.0, 1000.0)
    assert gauge.when(1.0, 1000.0) == 1000.0
