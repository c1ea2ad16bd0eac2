"""The parts that pacing counts with, step by step: meters, streams, balances, caps, pauses."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.base.values import (
    Amounts,
    Charging,
    Demand,
    Limit,
    LimitKind,
    LimitSource,
    Resource,
)
from headway.pacing.account import Hold
from headway.pacing.balance import Mirror
from headway.pacing.hidden_limits import Bracket
from headway.pacing.latency import Tempo
from headway.pacing.limits import (
    BIN_S,
    AnyMeter,
    Bucket,
    FixedWindow,
    Gauge,
    Outflow,
    PlannedStream,
    ReserveMeter,
    SlidingWindow,
    Toll,
)
from headway.pacing.queue import SPELLS_MAX, Blame
from headway.pacing.streams import AHEAD_BINS, SWEEP, Projection, Rolling
from headway.pacing.width import Cap, Ramp, Width
from headway.pacing.windows import Allowances
from tests.unit.steps import cases, perform, value_of

CASES = """
bucket refills: Bucket 10 100 0
    charge 50 0; available 2 = 70; clipped_s = 0; available 9 = 100; full_s = 5; clipped_s = 9;
    available 20 = 100; full_s = 5; clipped_s = 20
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
evenly produced output is forgotten in quarters: SlidingWindow 100 60
    charge 10 30; charge_spread 40 0 40; available 40 = 50; available 70 = 60; available 90 = 90;
    available 100 = 100
output older than the period: SlidingWindow 100 60
    charge_spread 40 0 120; available 120 = 80
amended charge is forgotten with the charge: SlidingWindow 100 60
    charge 10 0; charge 20 30; amend 5 0 40; available 40 = 65; amend -50 30 40;
    available 40 = 85; available 60 = 100
forgotten and unknown charges are not amended: SlidingWindow 100 60
    charge 10 0; charge 20 30; amend 5 0 60; amend 5 50 60; available 60 = 80
fixed window skips idle periods: FixedWindow 10 60 30
    charge 10 0; available 29.9 = 0; when 1 29.9 = 30; available 30 = 10; boundary_s = 90;
    charge 4 220; boundary_s = 270; available 269.9 = 6; refund 8 271; available 271 = 10;
    set_level 3 271; available 271 = 3
gauge ignores time: Gauge 2
    charge 2 0; when 1 1000 = inf; refund 1 1000; when 1 1000 = 1000
reserve on a bucket keeps its size: Reserve bucket
    rescale 0.5; level 0 = 60
reserve on a window is resized: Reserve sliding
    rescale 0.5; level 0 = 50
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
lowest level ahead: Outflow 0
    add 0:10:100 0; lowest 500 20 1000 0:1:0 0 = 500; lowest 500 4 1000 5:10:100 0 = 340;
    lowest 1000 0 1000 256:257:1 0 = 899; lowest 1000 0 1000 3.2:3.2:30 0 = 870
full bucket does not help later: Outflow 0
    lowest 100 5 100 20:30:200 0 = -50; lowest -50 10 100 20:21:10 0 = -50;
    lowest -50 10 100 20:21:10 15 = 100
dip before the time in question: Outflow 0
    add 0:4:100 0; lowest 500 10 500 20:21:0 0 = 440; lowest 500 10 500 20:21:0 6 = 465;
    lowest 500 10 500 20:21:0 15 = 500
candidate under way, within a bin: Outflow 5.25
    lowest 100 0 100 0.25:10.25:100 0 = 50; add 5.25:6:30 5.25;
    lowest 100 20 1000 6:6.5:30 0 = 65
level follows streams and refill: Projection 50 0:10:150
    level 4 = 30; level 10 = 0; planned = 0; level 13 = 30
refill of a full bucket is lost: Projection 100 10:12:80
    level 12 = 35
call passes where all that is planned fits: Projection 90 0:5:30
    when 10 0 0:5:40 5 0 = 0
call passes where the refill outpaces its stream: Projection 60 0:60:200
    when 5 0 0:60:300 10 0 = 0
large call goes alone: Projection 100
    when 0 0 0:1:500 0 0 = 0
large call waits for a full bucket: Projection 40
    when 0 0 0:1:500 0 0 = 5.99999
large call waits for what flows: Projection 100 0:20:10
    when 0 0 0:1:500 0 0 = 20
large call waits for what flows to be refilled: Projection 100 0:4:150
    when 0 0 0:1:500 0 0 = 14.99999
beyond the view: Projection 0 0:100:2000
    when 50 0 0:1:10 0 0 = 32
call waits for the refill: Projection 0 0:30:1
    when 50 0 1:2:1 0 0 = 5
window of plans: charges and corrections: Rolling 100 60 0
    charge 80 0; level 5 = 20; when 20 0 0:0:0 0 1 = 1; when 30 0 0:0:0 0 1 = 60.5; correct -50 0 5;
    level 5 = 70; level 61 = 100; rescale 0.5; size = 50; left 61 = 50
window of plans: a call alone may fill a period: Rolling 100 60 0
    when 500 0 0:0:0 0 0 = 0; charge 1 0; when 500 0 0:0:0 0 0 = 60.5
window of plans: streams: Rolling 100 10 0
    begin 0:5:50 0 0; plan 0:5:50 20:25:60 0; planned = 60; level 8 = 100; level 26 = 40;
    end 20:25:60 0 30 24; planned = 0; level 26 = 70
ramp: a burst bounds what may leave within a second: Ramp
    1000x sent 0; when 0 = 0; most = inf; 20x sent 10; refused 10; most = 18; when 10 = 11;
    when 11 = 11; 17x sent 11; when 11 = 11; sent 11; when 11.5 = 12
ramp: the refusal of a few is no sign of one: Ramp
    returned; 100x sent 8; 3x sent 10; refused 10; most = inf; sent 10; returned; refused 10;
    most = inf; sent 10; refused 10; most = 3.6
ramp: a later refusal never raises it: Ramp 3
    50x sent 0; refused 0; most = 3
ramp: never below its least: Ramp 1
    50x sent 0; refused 0; most = 2
ramp: grows on and on: Ramp
    20x sent 0; refused 0; when 9.99; most = 18; when 10; most = 27; when 19.99; most = 27;
    when 20; most = 40.5
ramp: waits longer after each refused try: Ramp
    20x sent 0; refused 0; refused 0.1; when 10; most = 18; when 10.1; most = 27; 20x sent 20.2;
    refused 20.2; most = 18; when 30.2; most = 18; when 50.2; most = 27
ramp: from a profile: Ramp 5 100
    when 100; most = 5; when 110; most = 5; when 190; most = 7.5
cap: unknown until a refusal, tried again ever more rarely: Cap
    allow 1e9 = inf; next_probe_s = inf; lower 3; limit = inf; refused 7 100; allow 100 = 7;
    next_probe_s = 130; allow 129.9 = 7; allow 130 = 8; refused 7 130; next_probe_s = 190;
    refused 7 190; next_probe_s = 310; probes = 3; refused 0 310; limit = 1; next_probe_s = 340;
    lift; allow 1e9 = inf
cap: further refusals lower it: Cap
    refused 7 0; lower 5; limit = 5; lower 9; limit = 5; lower 0; limit = 1; probes = 1
cap: suspected: Cap
    refused 7 0; probe_soon 0; next_probe_s = 2; refused 7 2; probe_soon 2; next_probe_s = 6;
    refused 7 6; probe_soon 6; next_probe_s = 14
cap: a try that was served raises it: Cap 7 2 1000
    allow 1000 = 7; next_probe_s = 1120; succeeded 7 1050; limit = 7; probes = 2;
    succeeded 8 1050; limit = 8; probes = 0; next_probe_s = 1051
cap: what a user configured is never exceeded: Cap inf 0 0 7
    allow 1e9 = 7; refused 6 0; probe_soon 0; allow 2 = 7; succeeded 7 2; limit = 7;
    next_probe_s = inf; allow 1e9 = 7; refused 3 10; lift; allow 1e9 = 7; lower 2; limit = 7
cap: of one place: Cap inf 0 0 1
    refused 0 0; probe_soon 0; allow 1e9 = 1; next_probe_s = inf
width: beyond what was ever in flight calls leave one at a time: Width 4
    departs_s 3 10 = 10; sent 4 10; departs_s 4 10 = 10; sent 5 10; departs_s 5 10 = 10.05;
    departs_s 5 11 = 11; departs_s 4 10 = 10
width: never exceeds the cap: Width 8 3
    limit 0 100 0 = 3; limit 0 100 30 = 4
width: an overload halves it until more are tried: Width 8
    overloaded 6 10; allowed = 4; limit 0 100 10 = 3; limit 0 100 40 = 4; reason = overload
pause: overloads hold longer each time until a call is let in: Hold 1
    wait 0 = None; overloaded None 100; wait 100 = 101; overloaded None 100; wait 100 = 102;
    3x overloaded None 100; wait 100 = 116; 2x overloaded None 100; wait 100 = 130; answered;
    overloaded None 200; wait 200 = 201; wait 201 = None; overloaded 7 0; wait 0 = 7;
    overloaded 3600 0; wait 0 = 30
pause: a missing slot: Hold 1
    crowded 1 0; wait 0 = None; crowded 0 10; wait 10 = 10.5; 2x crowded 0 10; wait 10 = 12;
    2x crowded 0 10; wait 10 = 15; answered; crowded 0 20; wait 20 = 20.5
pause: a refused burst: Hold 1
    burst_refused None 0; wait 0 = 1; burst_refused 0.3 0; wait 0 = 0.3; burst_refused 3600 0;
    wait 0 = 60
pause: an unnamed wait is meant when an early try is refused: Hold 1
    asked 2 0; wait 0 = 2; asked 40 10; wait 10 = 15; wait 15 = None; asked 40 16; wait 16 = 21;
    asked 35 21; wait 21 = 56; asked 3600 500; wait 500 = 560
pause: a ceiling of nothing: Hold 0
    wait 0 = inf; reopen; wait 0 = inf
latency: the first measurement replaces the guess: Tempo 0
    first_byte_s = 1; first_byte 3; first_byte_s = 3; first_byte 5; first_byte_s = 3.3;
    moved 1 100 = 0.01; per_token_s = 0.01; moved 3 100 = 0.03; per_token_s = 0.013;
    moved 300000 1e7; per_token_s = 0.0215
latency: the mean width is weighed by time: Tempo 0
    enter 0 = 0; enter 6 = 6; in_flight = 2; mean_since 0 0 8 = 1.25; leave 9;
    mean_since 0 0 10 = 1.3; integral 10 = 13; integral 9 = 13; mean_since 13 10 10 = 1;
    mean_since 13 10 12 = 1
latency: an answer flows after its first byte, within the horizon: Tempo 0
    plan 100 10 = 11:13:100; replan 100 10 10 = 10:12:100; plan 1e9 50 = 51:177:1e9;
    plan 0 50 = 51:51.001:0; first_byte 1e6; plan 10 50 = 176.999:177:10
latency: a first byte is overdue by its time at the present pace: Tempo 0
    first_byte 1; moved 1 50; work 100 = 150; is_overdue 2 0.02 = False;
    is_overdue 2.1 0.02 = True; is_overdue 2.1 0.04 = False; first_byte 30; work 100 = 150;
    set first_byte_s 0; is_overdue 0.2 0.02 = False
bracket: the first refusal shows the burst and no rate: Bracket
    spend 10; take_back 3 0; refused 1 0; burst = 7; low = 0; high = inf; refused 1 0.5;
    high = inf; anchor_s = 0; refused 1 600; high = 0.0166666667
bracket: what is let in proves a rate, the second refusal bounds it: Bracket
    spend 10; refused 1 0; confirm 5 1; low = 0; confirm 16 10; low = 2; spend 20; take_back 5 -1;
    take_back 5 1; refused 1 10; high = 1.6
bracket: a contradiction begins again from the newest interval: Bracket
    spend 10; refused 1 0; spend 100; confirm 100 2; refused 1 10; contradictions = 1;
    high = 10.1; low = 9.603; spend 1000; refused 1 20; contradictions = 0.97; high = 10.403
bracket: the rate is doubled before an upper bound: Bracket
    spend 5; refused 1 0; when 1 0 0 = 1; spend 41; confirm 41 10; low = 4; when 1 0 10 = 10
bracket: a call waits for the middle of it: Bracket
    spend 10; refused 1 0; set low 1; set high 3; when 4 0 0 = 2; when 4 1 0 = 1; when 4 0 2 = 2;
    when 1 0 100 = 100; spend 10; when 1 0 100 = 100.5; spend 1000; when 1 0 100 = 105.5
wait reasons: the longest since a call came: Blame
    longest 0 1 = ''; note concurrency 0; note input/60s 2; note input/60s 3; note concurrency 7;
    longest 0 8 = input/60s; longest 6.5 8 = concurrency; longest 3 7.5 = input/60s;
    longest 7 8 = concurrency; note '' 8; longest 8 9 = ''
wait reasons: an empty spell is none: Blame
    note input/60s 1; longest 1 1 = ''; note burst 2; note input/60s 2; longest 0 4 = input/60s
admission and refill: Balance input
    charge demand(100) none 0 = 500; level 1 = 510; wait demand(100) none 3 = None
request, counted once: Balance requests
    charge demand() none 0 = 599; settle demand() none 0 usage(5) 0; level 0 = 599
call that never ran: Balance input bucket configured 0.5
    charge demand(100) none 0; give_back demand(100) none 0 0 0; level 0 = 600;
    when demand(300) none 0 = 0
refusal that the provider counts: Balance input
    charge demand(100) none 0; give_back demand(100) none 0 1 0; level 0 = 500
call from before the limit was known: Balance input
    join demand(100) none 0 0; level 0 = 600; join demand(100) none 1 0; level 0 = 500
sliding window, corrected as of the admission: Balance input sliding
    charge demand(100) none 0; settle demand(100) none 0 usage(150) 30; level 60 = 450;
    level 60.06 = 600
sliding window, answer along its stream: Balance output sliding
    charge demand() 0:8:100 0; settle demand() 0:8:100 0 usage(0,80) 8; level 8 = 520;
    level 62.06 = 540
fixed window, only what was produced inside it: Balance output fixed
    charge demand() 50:70:200 50; settle demand() 50:70:200 50 usage(0,200) 70; level 70 = 500
fixed window, answer before its plan: Balance output fixed
    charge demand() 50:70:200 0; settle demand() 50:70:200 0 usage(0,200) 10; level 10 = 400
window, what is still to come counts as taken: Balance output sliding
    charge demand() 0:8:500 0 = 100; when demand() 0:8:50 0 = 0; wait demand() 0:8:200 0 = inf;
    plan 0:8:500 0:9:560 1; when demand() 0:8:50 0 = inf
bucket follows streams in flight: Balance output
    charge demand() 0:10:300 0 = 600; level 5 = 495; settle demand() 0:10:300 0 usage(0,180) 5;
    level 5 = 465
new plan of a stream: Balance output
    charge demand() 0:10:300 0; plan 0:10:300 0:10:400 5; level 5 = 445
new plan, limit of input: Balance input
    charge demand(100) none 0; plan 0:10:300 0:10:400 0; level 0 = 500
money, held at its ceiling: Balance spend gauge
    charge demand(0,0,400) none 0 = 200; wait demand(0,0,400) none 0 = inf;
    settle demand(0,0,400) none 0 usage(0,0,150) 9; level 9 = 450;
    wait demand(0,0,400) none 9 = None
money, more than all of it: Balance spend gauge configured 0.5
    can_ever demand(0,0,300) = True; can_ever demand(0,0,301) = False;
    wait demand(0,0,301) none 0 = inf
money, a share of all of it: Balance spend gauge configured 0.5
    charge demand(0,0,200) none 0; settle demand(0,0,200) none 0 usage(0,0,200) 1;
    when demand(0,0,100) none 1 = 1; when demand(0,0,101) none 1e6 = inf
nothing passes a limit of nothing: Balance input bucket configured 1 0
    can_ever demand(1) = False; when demand(1) none 0 = inf
call as large as the limit waits until it is full: Balance input
    can_ever demand(10000) = True; charge demand(100) none 0; when demand(600) none 0 = 10.00006;
    when demand(600) none 10 = 10.00006; when demand(600) none 30 = 30
share, a second limit over any period: Balance input bucket configured 0.5
    charge demand(200) none 0; when demand(200) none 0 = 60.00006; when demand(100) none 0 = 0
share, of what is produced later: Balance output bucket configured 0.5
    charge demand() 0:4:200 0; settle demand() 0:4:200 0 usage(0,200) 4;
    when demand() 4:8:100 4 = 4; when demand() 4:8:150 4 = 57.750058
answer of nothing: Balance output sliding configured 0.5
    charge demand() 0:4:200 0; settle demand() 0:4:200 0 usage() 4; level 4 = 600;
    when demand() 4:8:299 4 = 4
room left, learned bucket: Balance input bucket header
    charge demand(10) none 0; floor = 30; charge demand(400) none 0; floor = 90
room left, shared: Balance input
    floor = 0.0006; charge demand(10) none 0; floor = 0.0006; set shared 1; floor = 30
room left, money: Balance spend gauge
    floor = 0
room left, window of requests: Balance requests sliding header
    floor = 0
room left, doubt of the first call: Balance input
    charge doubtful none 0; floor = 20.0006; settle doubtful none 0 usage(100) 0; floor = 0.0006
room left, learned window: Balance input fixed header
    charge doubtful none 0; floor = 5.0006
room left, flow within a bin: Balance output
    floor = 5.0006
room left, rounded reading: Balance input bucket configured 1 600 25
    floor = 25.0006
usage window, full: Allowances 1
    observe use(1,18000,600) 0 = True; wait 0 = 600; wait 600 = None; observe use(1,18000,-) 700;
    wait 700 = 18700
usage window, the user's share of it: Allowances 0.5
    observe use(0.49,18000,600) 0; wait 0 = None; observe use(0.5,18000,590) 10; wait 10 = 600
usage windows, each by itself: Allowances 1
    observe use(0.2,18000,600) 0; observe use(1,604800,9000) 0; wait 0 = 9000
usage window, other readings: Allowances 1
    observe told(30,5) 0 = False; observe use(1,-,1) 0 = False; wait 0 = None
first reading, bucket: Mirror
    adopt told(200) 1 3; level 3 = 220
first reading without a remainder: Mirror
    adopt told(-) 1 1; level 1 = 0
first reading, fixed window: Mirror fixed
    adopt told(200,12) 1 2; level 12.9 = 200; level 13.02 = 600
first reading, fixed window of unknown edge: Mirror fixed
    adopt told(200) 1 2; level 60.9 = 200; level 61.02 = 600
first reading, sliding window: Mirror sliding
    adopt told(200) 1 2; level 2 = 200; level 62 = 600
reading, compared with what was left at admission: Mirror
    a := charge demand(100) none 1; charge demand(100) none 2;
    observe told(450) a 1 2; level 2 = 360
reading, a difference is carried once: Mirror
    a := charge demand(100) none 1; b := charge demand(100) none 1;
    observe told(450) a 1 1; observe told(350) b 1 1; level 1 = 350
reading, within its rounding: Mirror bucket header 1 60
    a := charge demand(100) none 1; observe told(450) a 1 1; level 1 = 500
reading, more than expected: Mirror
    charge demand(100) none 1; a := charge demand(100) none 2;
    observe told(450) a 2 2; level 2 = 450
reading, nothing left may be debt: Mirror
    7x charge demand(100) none 1; a := charge demand(100) none 1;
    observe told(0) a 1 1; level 1 = -200
reading, a bucket that was full since: Mirror
    a := charge demand(100) none 1; level 30 = 600;
    charge demand(100) none 30; observe told(540) a 1 30; level 30 = 500
reading, a neighbour draws at most half of the refill: Mirror
    a := charge demand(100) none 1; observe told(500) a 1 1; shared = False;
    a := charge demand(100) none 2; observe told(110) a 2 2; draw_per_s = 5;
    shared = True; level 2 = 110; level 4 = 120
reading, older ones and those without a remainder: Mirror
    a := charge demand(100) none 1; observe told(500) a 1 1; observe told(0) a 0.5 1;
    observe told(-) a 1 1; level 1 = 500
reading, without a call of ours: Mirror
    charge demand(100) none 1; observe told(300) None 1 3; level 3 = 320;
    observe told(590) None 3 3; level 3 = 320
size of a bucket, mean of resets: Mirror
    5x observe told(200,10) 200 1 1; count.size = 600; observe told(200,10) 200 1 1;
    count.size = 300
size of a bucket, configured: Mirror bucket configured
    9x observe told(200,10) 200 1 1; count.size = 600
changed limit, its share in proportion: Mirror bucket header 0.5
    charge demand(100) none 1; when demand(250) none 1 = 61.00006;
    observe told(1100,0,1200) None 1 1; when demand(250) none 1 = 1;
    count.size = 1200
changed limit, a reading from before it was noticed: Mirror
    a := charge demand(100) none 1; observe told(900,0,1200) None 2 2;
    level 2 = 510; observe told(1100,0,1200) a 2 2; level 2 = 510
changed limit, window: Mirror fixed
    observe told(900,0,1200) None 1 1; count.size = 1200
window, others take and nothing comes back: Mirror fixed
    a := charge demand(100) none 1; observe told(450) a 1 1; level 1 = 450;
    a := charge demand(100) none 2; observe told(500) a 2 2; level 2 = 350
window, reading of one that is over: Mirror fixed
    a := charge demand(100) none 59; observe told(0,30) a 59 61;
    level 61 = 600; level 100 = 600
window, edge within its rounding: Mirror fixed
    charge demand(100) none 1; observe told(500,58) None 1 1; level 59.5 = 500
window, edge that moved: Mirror fixed
    charge demand(100) none 1; observe told(500,30) None 1 1; level 31.02 = 600
window, sliding ones are not corrected: Mirror sliding
    a := charge demand(100) none 1; observe told(100) a 1 1; level 1 = 500;
    read_s = 1
refusal, bucket: Mirror
    left read(30) 0 = 30; left read(-) 0 = 600; refused demand(100) read() 4 0 = False;
    level 4 = 100
refusal without a wait: Mirror
    refused demand(100) read(105) None 0 = False; level 1 = 100
refusal although enough is left: Mirror
    refused demand(100) read(300) 4 0 = True; level 0 = 600
refusal, fixed window: Mirror fixed
    refused demand(100) read() 4 0 = False; level 4 = 0; level 4.02 = 600
refusal, sliding window: Mirror sliding
    refused demand(100) read() 4 0 = False; level 0 = 0
"""


def _projection(level: float, *streams: PlannedStream) -> Projection:
    """A bucket of 100 tokens, 10 per second, that streams in flight drain."""
    projection = Projection(Bucket(10.0, 100.0, 0.0), 0.0)
    projection.bucket.set_level(level, 0.0)
    for stream in streams:
        projection.outflow.add(stream, 0.0)
    return projection


def _balance(
    resource: Resource, kind: LimitKind = "bucket", source: LimitSource = "configured",
    share: float = 1.0, amount: float = 600.0, rounding: float = 0.0,
) -> Mirror:  # fmt: skip
    limit = Limit(resource, amount, 0.0 if kind == "gauge" else 60.0, kind, source=source)
    return Mirror(limit, "produced", share, rounding, 0.0)


def _reserve(kind: str) -> ReserveMeter:
    meter = Bucket(1.0, 60.0, 0.0) if kind == "bucket" else SlidingWindow(100.0, 60.0)
    return ReserveMeter(meter, False, 0.0)


MAKERS: dict[str, Callable[..., object]] = {
    one.__name__: one
    for one in (Bucket, SlidingWindow, FixedWindow, Gauge, Outflow, Rolling, Ramp, Cap, Hold, Tempo,
                Bracket, Blame, Allowances)
} | {
    "Projection": _projection,
    "Balance": _balance,
    "Mirror": lambda kind="bucket", source="header", share=1.0, rounding=0.0: _balance(
        "input", kind, source, share, 600.0, rounding
    ),
    "Reserve": _reserve,
    "Width": lambda start, cap=inf: Width(start, Cap(cap)),
}  # fmt: skip


@pytest.mark.parametrize(("maker", "steps"), cases(CASES))
def test_a_part_counts_as_it_should(maker: str, steps: str) -> None:
    name, *given = maker.split()
    perform(MAKERS[name](*map(value_of, given)), steps)


RATE_METERS: tuple[Callable[[], AnyMeter], ...] = (
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
def test_a_call_that_waited_as_long_as_a_projection_asked_passes_then(
    level: float, need: float, flowing: float, answer: float
) -> None:
    """Unless it is to look again, at the end of the view."""
    projection = _projection(level, PlannedStream(0.0, 8.0, flowing))
    when_s = projection.when(need, 0.0, PlannedStream(0.5, 4.0, answer), 0.0, 0.0)
    assert 0.0 <= when_s <= AHEAD_BINS * BIN_S
    if when_s < AHEAD_BINS * BIN_S:
        late = PlannedStream(when_s + 0.5, when_s + 4.0, answer)
        # What happens within a bin is not looked at: the floor has room for a bin's refill.
        assert projection.when(need, 0.0, late, -10.0 * BIN_S, when_s) == when_s


def test_old_bins_are_swept_out_and_late_amounts_for_them_are_forgotten() -> None:
    window, late_s = Rolling(10.0, 60.0, 0.0), 300.0
    window.charge(7.0, 0.0)
    window.when(1.0, 0.0, PlannedStream(late_s, late_s, 0.0), 0.0, late_s)
    window.charge(1.0, late_s)
    window.charge(9.0, 0.0)
    assert sum(window._bins) == 1.0
    assert len(window._bins) < 2 * SWEEP


def test_old_spells_are_forgotten_and_the_sums_of_the_new_ones_stay_true() -> None:
    line = Blame()
    for number in range(SPELLS_MAX + 1):
        line.note("input/60s", 2.0 * number)
        line.note("", 2.0 * number + 1.0)
    end_s = 2.0 * SPELLS_MAX + 1.0
    assert len(line._spells["input/60s"].begins) == SPELLS_MAX + 1 - SPELLS_MAX // 2
    assert line._spells["input/60s"].since(end_s - 9.0) == 5.0


DEMAND = Demand(expected=Amounts(100.0, 40.0, 7), ceiling=Amounts(130.0, 500.0, 90))
USED = Amounts(110.0, 50.0, 8)


@pytest.mark.parametrize(
    ("resource", "charging", "needs", "used", "extra", "unused", "errors"),
    [
        ("requests", "reserved", (1.0, 0.0), (1.0, 0.0), 0.0, 0.0, (0.0, 0.0)),
        ("input", "kept", (100.0, 0.0), (110.0, 0.0), 10.0, 0.0, (10.0, 10.0)),
        ("output", "reserved", (500.0, 0.0), (50.0, 0.0), -450.0, 450.0, (0.0, 0.0)),
        ("output", "kept", (500.0, 0.0), (50.0, 0.0), 0.0, 450.0, (0.0, 0.0)),
        ("output", "produced", (0.0, 40.0), (0.0, 50.0), 0.0, 0.0, (10.0, 0.0)),
        ("tokens", "reserved", (600.0, 0.0), (160.0, 0.0), -440.0, 450.0, (10.0, 10.0)),
        ("tokens", "kept", (600.0, 0.0), (160.0, 0.0), 10.0, 450.0, (10.0, 10.0)),
        ("tokens", "produced", (100.0, 40.0), (110.0, 50.0), 10.0, 0.0, (20.0, 10.0)),
        ("spend", "produced", (0.0, 90.0), (0.0, 8.0), 0.0, 0.0, (0.0, 0.0)),
        ("concurrency", "produced", (0.0, 0.0), (0.0, 0.0), 0.0, 0.0, (0.0, 0.0)),
    ],
)
def test_what_a_call_takes_of_a_limit_at_admission_and_later(
    resource: Resource, charging: Charging, needs: tuple[float, float], used: tuple[float, float],
    extra: float, unused: float, errors: tuple[float, float],
) -> None:  # fmt: skip
    """Reservations take all of the output's ceiling at once; money is held at its ceiling."""
    toll = Toll(resource, charging)
    assert (toll.need(DEMAND), toll.later(DEMAND, PlannedStream(1.0, 9.0, 40.0))) == needs
    assert toll.used_later(USED) == used[1]
    assert (toll.cost_s(USED, 2.0), toll.cost_s(USED, 0.0)) == (sum(used) / 2.0, 0.0)
    assert (toll.extra(DEMAND, USED), toll.unused(DEMAND, USED)) == (extra, unused)
    assert errors == tuple(toll.error(DEMAND, USED, refills) for refills in (True, False))
    assert toll.is_certain is (resource == "requests")
    assert toll.counts_input is (resource in ("input", "tokens"))
