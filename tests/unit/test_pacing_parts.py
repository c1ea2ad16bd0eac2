"""The parts that pacing counts with, step by step: meters, streams, limits, usage windows."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.base.values import (
    Amounts,
    Charging,
    Demand,
    Limit,
    LimitKind,
    LimitReading,
    LimitSource,
    Resource,
    Wait,
)
from headway.pacing.call import Call
from headway.pacing.limits import ChargingRule, TrackedLimit
from headway.pacing.meters import (
    Bucket,
    FixedWindow,
    Gauge,
    Meter,
    PlannedStream,
    SlidingWindow,
    meter_of,
)
from headway.pacing.streams import (
    SWEEP,
    FlowingBucket,
    FlowingFixedWindow,
    FlowingWindow,
    Outflow,
    flowing_meter,
)
from headway.pacing.width import ConcurrencyLimit, CongestionFit
from tests.unit.steps import cases, perform, value_of

CASES = """
bucket refills: Bucket 10 100 0
    charge 50 0; available 2 = 70; clipped_s = 0; available 9 = 100; clipped_s = 9;
    available 20 = 100; clipped_s = 20
bucket never exceeds its capacity: Bucket 10 100 0
    refund 50 1; available 1 = 100; set_level 500 1; available 1 = 100; set_level 30 1;
    available 2 = 40
charge after idle time: Bucket 10 100 0
    charge 80 10; available 10 = 20
drain loses no refill that flowed out at once: Bucket 10 100 0
    drain 80 10; available 10 = 100; drain 150 20; available 20 = 50; drain 10 15;
    available 15 = 40; available 20 = 40
resized bucket keeps its debt: Bucket 10 100 0
    resize 5 50 0; available 0 = 50; charge 80 0; resize 20 200 0; available 0 = -30;
    when 10 0 = 2
bucket without refill: Bucket 0 10 0
    when 10 0 = 0; charge 1 0; when 10 0 = inf
sliding window forgets each charge a period later: SlidingWindow 10 60
    charge 4 0; charge 6 20; when 4 30 = 60; when 5 30 = 80; available 59.9 = 0; available 60 = 4;
    available 80 = 10
charges within a grain have the later time: SlidingWindow 1000 60
    charge 1 0; charge 1 0.015; available 60 = 998; available 60.015 = 1000
sliding window refunds its newest charges: SlidingWindow 10 60
    charge 4 0; charge 3 20; charge 3 40; refund 5 40; available 40 = 5; available 60 = 9;
    refund 100 60; available 60 = 10
amended charge is forgotten with the charge: SlidingWindow 100 60
    charge 10 0; charge 20 30; correct 5 0 40; available 40 = 65; correct -50 30 40;
    available 40 = 85; available 60 = 100
forgotten and unknown charges are not amended: SlidingWindow 100 60
    charge 10 0; charge 20 30; correct 5 0 60; correct 5 50 60; available 60 = 80
fixed window skips idle periods: FixedWindow 10 60 30
    charge 10 0; available 29.9 = 0; when 1 29.9 = 30; available 30 = 10; boundary_s = 90;
    charge 4 220; boundary_s = 270; available 269.9 = 6; refund 8 271; available 271 = 10;
    set_level 3 271; available 271 = 3
gauge ignores time: Gauge 2
    charge 2 0; when 1 1000 = inf; refund 1 1000; when 1 1000 = 1000
money in a bucket is firm: Bucket 10 600 0
    begin 0 570 0:0:0 0; fits_s 0 570 0:0:0 0 0 = inf; fits_s 0 30 0:0:0 0 0 = 0
fixed window that ends later than a period from now: FlowingFixed 100 60
    set boundary_s 300; begin 0 50 0:10:50 0; end 0 50 50 0:10:50 0 10; available 10 = 50
bucket, call larger than all of it: Bucket 10 600 0
    when 900 0 = 0; charge 1 0; when 900 0 = 0.1; available 0.1 = 600; charge 900 0.1;
    available 0.1 = -300; when 1 0.1 = 30.2
bucket, refund: Bucket 10 600 0
    charge 500 0; available 0 = 100; refund 200 0; available 0 = 300; when 300 0 = 0
bucket, time never runs backwards: Bucket 10 600 0
    charge 300 70; available 10 = 300; charge 100 10; available 70 = 200; when 600 70 = 110;
    when 600 10 = 110
sliding window, call larger than all of it: SlidingWindow 600 60
    when 900 0 = 0; charge 1 0; when 900 0 = 60; available 60 = 600; charge 900 60;
    available 60 = -300; when 1 60 = 120
sliding window, refund: SlidingWindow 600 60
    charge 500 0; available 0 = 100; refund 200 0; available 0 = 300; when 300 0 = 0
sliding window, time never runs backwards: SlidingWindow 600 60
    charge 300 70; available 10 = 300; charge 100 10; available 70 = 200; when 600 70 = 130;
    when 600 10 = 130
fixed window, call larger than all of it: FixedWindow 600 60 60
    when 900 0 = 0; charge 1 0; when 900 0 = 60; available 60 = 600; charge 900 60;
    available 60 = -300; when 1 60 = 120
fixed window, refund: FixedWindow 600 60 60
    charge 500 0; available 0 = 100; refund 200 0; available 0 = 300; when 300 0 = 0
fixed window, time never runs backwards: FixedWindow 600 60 60
    charge 300 70; available 10 = 300; charge 100 10; available 70 = 200; when 600 70 = 120;
    when 600 10 = 120
drain in proportion, once, never backwards: Outflow 0
    drain 50 = 0; add 50:60:100 50; drain 52.5 = 25; drain 52.5 = 0; drain 51 = 0; drain 60 = 75;
    planned = 0
parts of a bin: Outflow 0
    add 0:0.5:100 0; drain 0.1 = 20; drain 0.3 = 40; drain 0.5 = 40; add 0.6:0.7:7 0.5;
    planned = 7; drain 1 = 7; add 2.25:2.25:40 1; drain 2 = 0; drain 3 = 40
stream under way or over: Outflow 5
    add 0:10:100 5; planned = 50; add 0:4:100 5; planned = 50
removed before it began: Outflow 0
    add 0.4:2.4:100 0; drain 0.2 = 2; add 0.4:2.4:100 0.2 -1; drain 10 = -2; planned = 0
long silence: Outflow 0
    add 0:1:100 0; add 0:127:50 0; drain 128.1 = 150; drain 10000 = 0
level follows streams and refill: FlowingBucket 50 0:10:150
    level 4 = 30; level 10 = 0; planned = 0; level 13 = 30
refill of a full bucket is lost: FlowingBucket 100 10:12:80
    level 12 = 35
call passes where all that is planned fits: FlowingBucket 90 0:5:30
    fits_s 10 0 0:5:40 5 0 = 0
call passes where half of the refill pays for what is planned: FlowingBucket 60 0:60:100
    fits_s 5 0 0:60:245 10 0 = 0; fits_s 5 0 0:60:246 10 0 = 0.5
large call goes alone: FlowingBucket 100
    fits_s 0 0 0:1:500 0 0 = 0
call alone goes while anything is left: FlowingBucket 40
    fits_s 0 0 0:1:500 0 0 = 0
call waits for what flows, and may leave a debt: FlowingBucket 50 0:10:100
    fits_s 0 0 0:10:100 1 0 = 10.1; fits_s 0 0 0:10:100 1 0 49 = 0.5; fits_s 0 0 0:10:100 1 0 50 = 0
long answers come while it refills: FlowingBucket 0 0:100:2000
    fits_s 50 0 0:1:10 0 0 = 205.5
window that ends before an answer is not used up by it: FlowingFixed 100 60
    begin 0 0 0:30:60 0; fits_s 0 0 0:30:60 1 0 = 60; fits_s 0 0 0:30:60 1 0 20 = 0;
    fits_s 0 0 50:80:60 1 0 = 0; level 15 = 70; level 61 = 100
call waits for the refill: FlowingBucket 0 0:30:1
    fits_s 50 0 1:2:1 0 0 = 5
window of plans: charges and corrections: FlowingWindow 100 60 0
    charge 80 0; level 5 = 20; fits_s 20 0 0:0:0 0 1 = 1; fits_s 30 0 0:0:0 0 1 = 60.5;
    correct -50 0 5; level 5 = 70; level 61 = 100; left 61 = 100
window of plans: when so much is available: FlowingWindow 100 60 0
    charge 80 0; when 20 1 = 1; when 30 1 = 60.5
bucket that is charged later than it was looked at: Bucket 10 100 0
    charge 100 0; begin 5 0 0:0:0 1 = 5; charge 5 2; available 2 = 10
flowing bucket that is charged later than it was looked at: FlowingBucket 0
    begin 5 0 2:3:1 1 = 5
window of plans: a call alone may fill a period: FlowingWindow 100 60 0
    fits_s 500 0 0:0:0 0 0 = 0; charge 1 0; fits_s 500 0 0:0:0 0 0 = 60.5
window of plans: streams: FlowingWindow 100 10 0
    begin 0 0 0:5:50 0; plan 0:5:50 20:25:60 0; planned = 60; level 8 = 100; level 26 = 40;
    end 0 0 30 20:25:60 0 24; planned = 0; level 26 = 70
admission and refill: Tracked input
    charge demand(100) none 0 = 500; level 1 = 510; wait demand(100) none 3 = None
what was charged too much came back while the bucket filled: Tracked input
    charge demand(100) none 0; level 20 = 600; charge demand(300) none 20;
    settle demand(100) none 0 usage(60) 20; level 20 = 300
request, counted once: Tracked requests
    charge demand() none 0 = 599; settle demand() none 0 usage(5) 0; level 0 = 599
call that never ran: Tracked input bucket configured 0.5
    charge demand(100) none 0; give_back demand(100) none 0 0 0; level 0 = 600;
    wait demand(300) none 0 = None
refusal that the provider counts: Tracked input
    charge demand(100) none 0; give_back demand(100) none 0 1 0; level 0 = 500
call from before the limit was known: Tracked input
    join demand(100) none 0 0; level 0 = 600; join demand(100) none 1 0; level 0 = 500
sliding window, corrected as of the admission: Tracked input sliding
    charge demand(100) none 0; settle demand(100) none 0 usage(150) 30; level 60 = 450;
    level 60.06 = 600
fixed window, only what was produced inside it: Tracked output fixed
    charge demand() 50:70:200 50; settle demand() 50:70:200 50 usage(0,200) 70; level 70 = 500
fixed window, answer before its plan: Tracked output fixed
    charge demand() 50:70:200 0; settle demand() 50:70:200 0 usage(0,200) 10; level 10 = 400
bucket follows streams in flight: Tracked output
    charge demand() 0:10:300 0 = 600; level 5 = 495; settle demand() 0:10:300 0 usage(0,180) 5;
    level 5 = 465
new plan of a stream: Tracked output
    charge demand() 0:10:300 0; plan 0:10:300 0:10:400 5; level 5 = 445
new plan, limit of input: Tracked input
    charge demand(100) none 0; plan 0:10:300 0:10:400 0; level 0 = 500
money, held at its ceiling: Tracked spend gauge
    charge demand(0,0,400) none 0 = 200; wait demand(0,0,400) none 0 = inf;
    settle demand(0,0,400) none 0 usage(0,0,150) 9; level 9 = 450;
    wait demand(0,0,400) none 9 = None
money, more than all of it: Tracked spend gauge configured 0.5
    can_ever demand(0,0,300) = True; can_ever demand(0,0,301) = False;
    wait demand(0,0,301) none 0 = inf
money, a share of all of it: Tracked spend gauge configured 0.5
    charge demand(0,0,200) none 0; settle demand(0,0,200) none 0 usage(0,0,200) 1;
    wait demand(0,0,100) none 1 = None; wait demand(0,0,101) none 1e6 = inf
nothing passes a limit of nothing: Tracked input bucket configured 1 0
    can_ever demand(1) = False; wait demand(1) none 0 = inf
share, a second limit over any period: Tracked input bucket configured 0.5
    charge demand(200) none 0; wait demand(200) none 0 = 60.00006; wait demand(100) none 0 = None
share, of what is produced later: Tracked output bucket configured 0.5
    charge demand() 0:4:200 0; settle demand() 0:4:200 0 usage(0,200) 4;
    wait demand() 4:8:100 4 = None; wait demand() 4:8:150 4 = 57.750058
answer of nothing: Tracked output sliding configured 0.5
    charge demand() 0:4:200 0; settle demand() 0:4:200 0 usage() 4; level 4 = 600;
    wait demand() 4:8:299 4 = None
first reading, bucket: Learned
    adopt told(200) 1 3; level 3 = 220
first reading without a remainder: Learned
    adopt told(-) 1 1; level 1 = 0
first reading, fixed window: Learned fixed
    adopt told(200,12) 1 2; level 12.9 = 200; level 13.02 = 600
first reading, fixed window of unknown edge: Learned fixed
    adopt told(200) 1 2; level 60.9 = 200; level 61.02 = 600
first reading, sliding window: Learned sliding
    adopt told(200) 1 2; level 2 = 200; level 62 = 600
refusal, bucket: Learned
    left read(30) 0 = 30; left read(-) 0 = 600; refused demand(100) read() 4 False 0 = False;
    level 4 = 100
refusal without a wait: Learned
    refused demand(100) read(105) None False 0 = False; level 1 = 100
refusal although enough is left: Learned
    refused demand(100) read(300) 4 False 0 = True; level 0 = 600
refusal, fixed window: Learned fixed
    refused demand(100) read() 4 False 0 = False; level 4 = 0; level 4.02 = 600
refusal, fixed window, whose advice is tried early: one call finds out: Learned fixed
    refused demand(100) read() 4 True 0 = False; level 4.02 = 100; level 60 = 600
"""


def _flowing(level: float, *streams: PlannedStream) -> FlowingBucket:
    """A bucket of 100 tokens, 10 per second, that streams in flight drain."""
    bucket = FlowingBucket(10.0, 100.0, 0.0)
    bucket.set_level(level, 0.0)
    for stream in streams:
        bucket.outflow.add(stream, 0.0)
    return bucket


class _Steps:
    """A tracked limit whose calls are told step by step: a demand, a stream, when it was sent."""

    def __init__(self, limit: TrackedLimit) -> None:
        self._limit = limit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._limit, name)

    def wait(self, demand: Demand, stream: PlannedStream, now: float) -> Wait | None:
        return self._limit.wait(_call(demand, stream, now), now)

    def charge(self, demand: Demand, stream: PlannedStream, now: float) -> float:
        return self._limit.charge(_call(demand, stream, now), now)

    def join(self, demand: Demand, stream: PlannedStream, charged: float, now: float) -> None:
        self._limit.join(_call(demand, stream, now), bool(charged), now)

    def plan(self, before: PlannedStream, after: PlannedStream, now: float) -> None:
        self._limit.plan(_call(Demand(Amounts(), Amounts()), before, 0.0), after, now)

    def give_back(
        self, demand: Demand, stream: PlannedStream, sent_s: float, is_counted: float, now: float
    ) -> None:
        self._limit.give_back(_call(demand, stream, sent_s), bool(is_counted), now)

    def settle(
        self, demand: Demand, stream: PlannedStream, sent_s: float, used: Amounts, now: float
    ) -> None:
        self._limit.settle(_call(demand, stream, sent_s), used, now)


def _call(demand: Demand, stream: PlannedStream, sent_s: float) -> Call:
    return Call(("", 0), demand=demand, stream=stream, sent_s=sent_s)


def _balance(
    resource: Resource, kind: LimitKind = "bucket", source: LimitSource = "configured",
    share: float = 1.0, amount: float = 600.0, rounding: float = 0.0,
) -> _Steps:  # fmt: skip
    limit = Limit(resource, amount, 0.0 if kind == "gauge" else 60.0, kind, source=source)
    return _Steps(TrackedLimit(limit, "produced", share, rounding, 0.0))


MAKERS: dict[str, Callable[..., object]] = {
    one.__name__: one
    for one in (Bucket, SlidingWindow, FixedWindow, Gauge, Outflow, FlowingWindow)
} | {
    "FlowingBucket": _flowing,
    "FlowingFixed": lambda size, period_s: FlowingFixedWindow(size, period_s, period_s, 0.0),
    "Tracked": _balance,
    "Learned": lambda kind="bucket", source="header", share=1.0, rounding=0.0: _balance(
        "input", kind, source, share, 600.0, rounding
    ),
}  # fmt: skip


@pytest.mark.parametrize(("maker", "steps"), cases(CASES))
def test_a_part_counts_as_it_should(maker: str, steps: str) -> None:
    name, *given = maker.split()
    perform(MAKERS[name](*map(value_of, given)), steps)


def test_a_window_whose_period_was_revised_ends_when_its_reset_says() -> None:
    limit = Limit("input", 600.0, 60.0, "fixed", source="header")
    tracked, ends_s = TrackedLimit(limit, "produced", 1.0, 0.0, 0.0), 0.0
    for at_s in range(1, 11, 3):
        ends_s = at_s // 10 * 10 + 10.0
        told = LimitReading("input", None, 600.0, 600.0 - 20.0 * (at_s % 10), ends_s - at_s)
        tracked.revised(told, Demand(Amounts(20.0), Amounts(20.0)), at_s, at_s)
    assert tracked.limit.period_s == pytest.approx(10.0, abs=1.0)
    assert isinstance(tracked.meter, FixedWindow)
    assert tracked.meter.boundary_s == pytest.approx(ends_s, abs=0.1)


def test_a_total_is_counted_the_same_whether_answers_flow_or_not() -> None:
    total = Limit("spend", 100.0, 0.0, "gauge")
    assert type(flowing_meter(total, 0.0)) is type(meter_of(total, 0.0))


def test_no_company_is_worth_it_where_time_grows_faster_than_the_width() -> None:
    assert CongestionFit(1.0, 2.0).width(0.8) == 1.0


def test_a_cap_that_was_never_found_is_not_lowered() -> None:
    (cap := ConcurrencyLimit()).lower(3)
    assert cap.limit == inf


RATE_METERS: tuple[Callable[[], Meter], ...] = (
    lambda: Bucket(10.0, 600.0, 0.0),
    lambda: SlidingWindow(600.0, 60.0),
    lambda: FixedWindow(600.0, 60.0, 60.0),
)


@given(
    charges=st.lists(st.tuples(st.floats(0.0, 20.0), st.floats(0.0, 400.0)), max_size=12),
    amount=st.floats(1.0, 900.0),
)
@settings(max_examples=60)
def test_when_is_the_time_at_which_there_is_enough(
    charges: list[tuple[float, float]], amount: float
) -> None:
    for make in RATE_METERS:
        meter, now = make(), 0.0
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


@settings(max_examples=60)
@given(
    level=st.floats(-50.0, 100.0),
    need=st.floats(1.0, 60.0),
    flowing=st.floats(1.0, 200.0),
    answer=st.floats(1.0, 60.0),
)
def test_a_call_that_waits_as_long_as_a_bucket_asks_passes(
    level: float, need: float, flowing: float, answer: float
) -> None:
    """What flows meanwhile is looked at again then."""
    bucket, now = _flowing(level, PlannedStream(0.0, 8.0, flowing)), 0.0
    for _ in range(100):
        when_s = bucket.fits_s(need, 0.0, PlannedStream(now + 0.5, now + 4.0, answer), 0.0, now)
        if when_s == now:
            break
        now = when_s
    assert when_s == now < 60.0
    assert bucket.level(now) >= need - 1e-3


def test_old_bins_are_swept_out_and_late_amounts_for_them_are_forgotten() -> None:
    window, late_s = FlowingWindow(10.0, 60.0, 0.0), 300.0
    window.charge(7.0, 0.0)
    window.fits_s(1.0, 0.0, PlannedStream(late_s, late_s, 0.0), 0.0, late_s)
    window.charge(1.0, late_s)
    window.charge(9.0, 0.0)
    assert sum(window._bins) == 1.0
    assert len(window._bins) < 2 * SWEEP


DEMAND = Demand(expected=Amounts(100.0, 40.0, 7), ceiling=Amounts(130.0, 500.0, 90))
USED = Amounts(110.0, 50.0, 8)


@pytest.mark.parametrize(
    ("resource", "charging", "needs", "used", "unused"),
    [
        ("requests", "reserved", (1.0, 0.0), (1.0, 0.0), 0.0),
        ("input", "kept", (100.0, 0.0), (110.0, 0.0), 0.0),
        ("output", "reserved", (500.0, 0.0), (50.0, 0.0), 450.0),
        ("output", "kept", (500.0, 0.0), (50.0, 0.0), 450.0),
        ("output", "produced", (0.0, 40.0), (0.0, 50.0), 0.0),
        ("tokens", "reserved", (600.0, 0.0), (160.0, 0.0), 450.0),
        ("tokens", "kept", (600.0, 0.0), (160.0, 0.0), 450.0),
        ("tokens", "produced", (100.0, 40.0), (110.0, 50.0), 0.0),
        ("spend", "produced", (0.0, 90.0), (0.0, 8.0), 0.0),
        ("concurrency", "produced", (0.0, 0.0), (0.0, 0.0), 0.0),
    ],
)
def test_what_a_call_takes_of_a_limit_at_admission_and_later(
    resource: Resource, charging: Charging, needs: tuple[float, float], used: tuple[float, float],
    unused: float,
) -> None:  # fmt: skip
    """Reservations take all of the output's ceiling at once; money is held at its ceiling."""
    rule = ChargingRule(resource, charging)
    assert rule.takes(DEMAND, PlannedStream(1.0, 9.0, 40.0)) == needs
    assert rule.used_later(USED) == used[1]
    assert rule.whole(USED) == sum(used)
    assert rule.unused(DEMAND, USED) == unused
