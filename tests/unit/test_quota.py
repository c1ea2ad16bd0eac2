"""One account in virtual time: who may call, who waits for what, what faults and readings do."""

from __future__ import annotations

from itertools import pairwise
from math import inf

import pytest
from msgspec.structs import replace

from headway.base.values import (
    Amounts,
    Demand,
    Fault,
    FaultKind,
    Limit,
    LimitReading,
    Permit,
    Reading,
    Resource,
    SettledAs,
    Usage,
    Wait,
)
from headway.pacing.account import Belief, Profile, QuotaConfig
from headway.pacing.headers import GEMINI, OPENAI, PLAIN
from headway.pacing.latency import Delivery, Round
from headway.pacing.limits import PlannedStream
from headway.pacing.quota import Quota, waited_for
from tests.unit.steps import cases, perform

NOTHING = Usage(Amounts(), "unknown")
REQUESTS = Limit("requests", 600.0)
SLOTS = Limit("concurrency", 100.0, 0.0, "gauge")
WINDOW = Limit("input", 1000.0, kind="fixed")
DAILY = Limit("requests", 100.0, 86_400.0, "fixed")
PER_MINUTE = Limit("requests", 100.0, 60.0, "fixed")

ACCOUNTS = {
    "unknown": QuotaConfig(),
    # It names no limit, and its provider bears twenty calls at once.
    "silent": QuotaConfig(PLAIN, profile=Profile(width=20.0)),
    "bucket": QuotaConfig(limits=(REQUESTS,)),
    "slots": QuotaConfig(limits=(REQUESTS, SLOTS)),
    "smooth": QuotaConfig(limits=(REQUESTS, SLOTS), pace="smooth"),
    "counting": QuotaConfig(
        OPENAI, (Limit("requests", 10.0, kind="fixed"), Limit("tokens", 9000.0, kind="fixed"))
    ),
    "windows": QuotaConfig(GEMINI, (Limit("requests", 10.0, kind="fixed"), WINDOW, SLOTS)),
    "window": QuotaConfig(GEMINI, (WINDOW, SLOTS)),
    "inputs": QuotaConfig(GEMINI, (Limit("input", 1000.0), SLOTS)),
    "both": QuotaConfig(limits=(Limit("input", 9000.0), REQUESTS)),
    "two periods": QuotaConfig(OPENAI, (PER_MINUTE, DAILY)),
    "money": QuotaConfig(GEMINI, (Limit("spend", 1000.0, 0.0, "gauge"), SLOTS)),
    "slow refill": QuotaConfig(
        GEMINI,
        (
            Limit("input", 1000.0, 10.0, "fixed"),
            Limit("requests", 1.0, 20.0, "bucket", 2.01),
            SLOTS,
        ),
    ),
    "per second": QuotaConfig(GEMINI, (Limit("requests", 60.0, burst=1.01), SLOTS)),
    "outputs": QuotaConfig(limits=(Limit("output", 6000.0),)),
    "known ramp": QuotaConfig(profile=Profile((REQUESTS,), width=9.0, per_second=3.0)),
    "known cap": QuotaConfig(profile=Profile(width=9.0, cap=2.0)),
    "narrow": QuotaConfig(profile=Profile(width=1.5)),
    "tokens and a slot": QuotaConfig(
        limits=(Limit("input", 600.0, burst=100.0), Limit("concurrency", 1.0, 0.0, "gauge"))
    ),
}
SCENES = """
faults of one call pause no other: bucket
    go 0 4; fail 0 request 1; fail 1 broken 1; fail 2 server 1; fail 3 connection 1; width = 4;
    refused = 3; go 1
overload: unknown
    go 0 4; fail 0 overload 1; held 1 = account 2 provider overloaded; width = 2;
    fail 1 overload 2; held 2 = account 4 provider overloaded; cap = inf
timeout: unknown
    go 0; fail 0 timeout 1; width = 2; go 1
missing slot: silent
    go 0 6; fail 0 concurrency 1; held 1 = concurrency 31 5 in flight; go 31;
    held 31 = concurrency inf 6 in flight
missing slot, none of ours in flight: unknown
    go 0; fail 0 concurrency 1; held 1 = account 1.5 somebody else holds every slot; go 1.5
unnamed wait is tried once and then believed: unknown
    go 0; fail 0 rate 0 None 45; held 0 = account 5 asked to wait; go 5; fail 1 rate 5 None 45;
    held 5 = account 50 asked to wait
named limit waits as long as the refusal says: bucket
    go 0; fail 0 rate 0 requests 7 0; held 0 = requests/60s 7.00006 refilling
refused burst although enough is left: slots
    go 0 11; fail 10 rate 0 requests 0.5 589; held 0.4 = account 0.5 a burst was refused;
    held 0.5 = burst 1 a burst was refused; go 1; per_second = 9
refusal that counts stays charged to requests alone: counting
    go 0; fail 0 server 1; levels 1 = 9 9000
of two limits the empty one is blamed, minute: two periods
    go 0; fail 0 rate 0 requests 40 0 90; held 1 = requests/60s 40.02 refilling
of two limits the empty one is blamed, day: two periods
    go 0; fail 0 rate 0 requests 5000 90 0; held 1 = requests/86400s 5000.02 refilling
silent account, the crowd is the first suspect: silent
    go 0 6; fail 5 rate 1; held 1 = concurrency 3 5 in flight; fail 4 rate 1.1; cap = 4
silent account, the crowd is cleared when one more is served: silent
    go 0 6; fail 5 rate 1; began 0 1.5; began 1 1.5; began 2 1.5; began 3 1.5; began 4 1.5; go 3;
    began 6 3.5; cap = inf
silent account, a refusal of few is a rate: silent
    drought 0.8; cap = inf; held 1.2 = hidden limit 1.7 rate learned from refusals; ramp = 7.2;
    per_second = inf
silent account, after a drought it drives again: silent
    drought 0.8; go 1.7; fail 9 rate 1.8; go 3.7; fail 10 rate 3.8; go 7.7; began 11 8; ramp = inf;
    go 8 19
silent account, a reported limit does not excuse refusals: silent
    drought 0.8; go 1.7; fail 9 rate 1.8 None None 599; levels 1.8 = 599;
    held 3 = hidden limit 3.7 rate learned from refusals
hidden limit beside a known one: bucket
    go 0; began 0 0; fail 0 rate 0 input; go 1; began 1 1; fail 1 rate 1 input;
    held 1.5 = hidden limit 2 rate learned from refusals
reported limit replaces the guess: unknown
    go 0; began 0 0.5 599; levels 0.5 = 600; serve 0 1; go 1; levels 1 = 599
reading of a call that was sent before the limit was known: unknown
    go 0; go 0.1; began 0 0.5 500; began 1 0.6 300; levels 0.6 = 305
reading that says too little shows no limit: unknown
    go 0; began 0 0.5 -; levels 0.5 = ''; go 1
reading corrects the limit that it is about: both
    go 0; began 0 0 300; levels 0 = 8900 300
smooth flow bunches at most a second: smooth
    count 0 = 9
known ramp: known ramp
    go 0 3; held 0 = burst 1 a burst was refused
known cap: known cap
    go 0 2; held 0 = concurrency 30 2 in flight
one limit holds back, the others are not charged: windows
    go 0 1 900; held 1 200 = input/60s 60 refilling; levels 1 = 9 100
waiting calls come first: window
    go 0 1 900; ask 500; held 1 1 = queue 1 1 calls were here before; decide 2 = - | 1 input/60s 60;
    held 3 1 = queue 60 1 calls were here before
every grant has a reason: window
    ask 900; ask 500; decide 0 = 1 | 2 input/60s 60; reasons = every limit has room;
    decide 60 = 2 |; reasons = waited for input/60s
a call that fits passes one that waits for a window: window
    go 0 1 600; ask 500; ask 450; ask 100; decide 1 = 3 | 1 input/60s 60;
    reasons = does not delay a call that waits for input/60s
no call passes one that waits for a bucket: inputs
    go 0 1 600; ask 500; ask 1; decide 1 = - | 1 input/60s 6.03006
no call passes where that moves the start of the first: slow refill
    go 0 1 900; ask 500; ask 10; decide 1 = - | 1 input/10s 10; levels 1 = 100 1.06; in_flight = 1
call that can never be granted is named and passed: money
    ask 1 2000; ask 1 10; decide 0 = 2 | 1 spend inf
call that waits for others to end is not passed: money
    go 0 1 1 600; ask 1 500; ask 1 10; decide 1 = - | 1 spend inf
smaller keys first: window
    ask 100 0 a 2; ask 100 0 a 1; decide 0 = 2,1 |
refund in full of calls that did not run: per second
    ask 1 0 a; ask 1 0 a; ask 1 0 a; ask 1 0 b; ask 1 0 b; ask 1 0 b;
    decide 0 = 1 | 4 requests/60s 0.99; serve 0 0; decide 1 = 4 | 2 requests/60s 1.99; unused 1 1;
    decide 2 = 5 | 2 requests/60s 2.99
wider width opens a decision that stood: narrow
    ask; ask; ask; decide 0 = 1,2 | 3 concurrency inf; began 0 1; began 1 1; progress 0 10 1.2;
    progress 0 20 1.4; progress 0 30 1.6; decide 1.6 = - | 3 concurrency inf; progress 0 40 1.8;
    decide 1.8 = 3 |
the longest wait is the reason, not the last one: tokens and a slot
    ask 60; decide 0 = 1 |; serve 0 0.5; ask 60; ask 1; decide 0.5 = - | 2 input/60s 3.5;
    decide 9.5 = 2 | 3 concurrency inf; reasons = waited for input/60s; serve 1 11.5;
    decide 11.5 = 3 |; reasons = waited for input/60s
answer flows from its first byte on: outputs
    go 0; began 0 3; quota.belief.tempo.first_byte_s = 3; plan 0 = 3:3.2:10
reported limit counts what is in flight and was sent since: unknown
    go 0; go 1; began 0 2 400; levels 2 = 419
pace is learned from pieces of an answer: unknown
    go 0; began 0 1; progress 0 20 2; quota.belief.tempo.per_token_s = 0.05;
    quota.belief.width.congestion.samples = 1
too few tokens, or no time, say nothing of the pace: unknown
    go 0; progress 0 50 0.5; began 0 1; progress 0 4 2; progress 0 20 1;
    quota.belief.width.congestion.samples = 0
stream that outlives its plan goes on, up to its ceiling: outputs
    go 0; quota._extend_overruns 1.1; plan 0 = 1:1.2:10; quota._extend_overruns 1.2;
    plan 0 = 1:1.7:15; quota._extend_overruns 2; quota._extend_overruns 3;
    quota._extend_overruns 4; quota._extend_overruns 5; plan 0 = 1:5.5:40
calls that ended or were planned anew are not extended: outputs
    go 0 2; serve 0 0.5; began 1 1.1; quota._extend_overruns 1.2; plan 1 = 1.1:1.3:10
adopted calls are in flight: known cap
    decide 0 = - |; adopt 0; adopt 0; ask; decide 0 = - | 1 concurrency 30
"""


class Scene:
    """A quota, its calls by number, and its answers in words."""

    def __init__(self, config: QuotaConfig) -> None:
        self.quota = Quota(config, 0.0)
        self.permits: list[Permit] = []
        self.places: dict[int, int] = {}
        self.reasons = ""

    @property
    def width(self) -> float:
        return self.quota.belief.width.allowed

    @property
    def cap(self) -> float:
        return self.quota.belief.width.cap.limit

    @property
    def ramp(self) -> float:
        return self.quota.belief.ramp.most

    @property
    def per_second(self) -> float:
        return self.quota.belief.profile().per_second

    @property
    def refused(self) -> float:
        return self.quota.refused

    @property
    def in_flight(self) -> float:
        return self.quota.in_flight

    def go(self, now: float, calls: float = 1, tokens: float = 100.0, spend: float = 0.0) -> None:
        for _ in range(int(calls)):
            permit = self.quota.admit(_call(tokens, spend), now)
            assert isinstance(permit, Permit), permit
            self.permits.append(permit)

    def count(self, now: float) -> float:
        granted = 0
        while isinstance(self.quota.admit(_call(), now), Permit):
            granted += 1
        return granted

    def held(self, now: float, tokens: float = 100.0) -> str:
        wait = self.quota.admit(_call(tokens), now)
        assert isinstance(wait, Wait), wait
        return f"{wait.resource} {round(wait.until_s, 5):g} {wait.reason}"

    def began(self, number: float, now: float, left: float | str | None = None) -> None:
        reading = Reading() if left is None else _reading(None if left == "-" else float(left))
        self.quota.first_byte(self.permits[int(number)].id, reading, now)

    def progress(self, number: float, tokens: float, now: float) -> None:
        self.quota.progress(self.permits[int(number)].id, tokens, now)

    def plan(self, number: float) -> PlannedStream:
        stream = self.quota._held[self.permits[int(number)].id].stream
        return PlannedStream(stream.from_s, round(stream.to_s, 6), stream.tokens)

    def serve(self, number: float, now: float) -> None:
        permit = self.permits[int(number)]
        assert self.quota.settle(permit.id, "used", Usage(permit.demand.expected), now)

    def unused(self, number: float, now: float) -> None:
        assert self.quota.settle(self.permits[int(number)].id, "unused", NOTHING, now)

    def fail(
        self, number: float, kind: FaultKind, now: float, resource: Resource | None = None,
        retry_s: float | None = None, *left: float,
    ) -> None:  # fmt: skip
        fault, reading = Fault(kind, resource, retry_s), _reading(*left)
        how: SettledAs = "used" if kind == "broken" else "throttled"
        permit = self.permits[int(number)]
        assert self.quota.settle(permit.id, how, NOTHING, now, fault, reading)

    def drought(self, now: float) -> None:
        """Eight are served at once, then one of few is refused."""
        self.go(0.0, 8)
        for number in range(8):
            self.began(number, 0.5)
        for number in range(8):
            self.serve(number, 0.6)
        self.go(0.7)
        self.fail(8, "rate", now)

    def levels(self, now: float) -> float | str:
        found = [mirror.level(now) for mirror in self.quota.belief.mirrors]
        return found[0] if len(found) == 1 else " ".join(f"{round(one, 5):g}" for one in found)

    def ask(
        self, tokens: float = 100.0, spend: float = 0.0, flow: str = "", key: float = 0.0
    ) -> None:
        place = self.quota.ask(_call(tokens, spend), (flow,), (key,))
        self.places[place] = len(self.places) + 1

    def adopt(self, sent_s: float) -> None:
        self.permits.append(self.quota.adopt(_call(), ("",), sent_s, -1.0, sent_s))

    def decide(self, now: float) -> str:
        """Who is granted, and who waits for what."""
        decision = self.quota.decide(now)
        self.permits += [grant.permit for grant in decision.grants]
        self.reasons = ", ".join(grant.permit.reason for grant in decision.grants)
        granted = ",".join(str(self.places[grant.place]) for grant in decision.grants) or "-"
        if decision.wait is None or decision.place is None:
            return f"{granted} |"
        wait = decision.wait
        who = self.places[decision.place]
        return f"{granted} | {who} {wait.resource} {round(wait.until_s, 5):g}"


def _call(tokens: float = 100.0, spend: float = 0.0) -> Demand:
    return Demand(Amounts(tokens, 10.0, int(spend)), Amounts(tokens, 40.0, int(spend)))


def _reading(*left: float | None) -> Reading:
    """What is left of requests, per minute and per day."""
    known = ((600.0, 60.0),) if len(left) == 1 else ((100.0, 60.0), (100.0, 86_400.0))
    return Reading(
        tuple(
            LimitReading("requests", period_s, limit, one, None)
            for (limit, period_s), one in zip(known, left, strict=False)
        )
    )


@pytest.mark.parametrize(("account", "steps"), cases(SCENES))
def test_an_account_admits_and_waits(account: str, steps: str) -> None:
    perform(Scene(ACCOUNTS[account]), steps)


def test_a_decision_stands_until_something_happens_or_its_wake_up_comes() -> None:
    scene = Scene(ACCOUNTS["window"])
    scene.go(0.0, 1, 900.0)
    scene.ask(500.0)
    scene.decide(1.0)
    stands = scene.quota.decide(2.0)
    assert scene.quota.decide(3.0) is stands
    assert stands.grants == ()
    scene.began(0, 4.0)
    assert scene.quota.decide(4.0) is not stands


def test_what_a_call_waited_for_is_read_from_the_reason_of_its_permit() -> None:
    assert waited_for("waited for input/60s") == "input/60s"
    assert waited_for("does not delay a call that waits for output/60s") == "output/60s"
    assert waited_for("every limit has room") == ""


class _KeptRounds(Delivery):
    """Keeps the rounds that it returns."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Round] = []

    def ended(self, work: float, integral: float, now: float) -> Round | None:
        done = super().ended(work, integral, now)
        self.kept += [done] if done is not None else []
        return done


def test_work_is_counted_as_it_comes_and_the_first_byte_with_the_first_piece() -> None:
    scene = Scene(ACCOUNTS["unknown"])
    delivery = scene.quota.belief.width.delivery = _KeptRounds()
    scene.go(0.0, 4)
    for number in range(4):
        scene.began(number, 1.0)
        scene.progress(number, 20.0, 2.0)
    # Of the last one the provider counts less than was seen: nothing is taken back.
    for number, tokens in enumerate((24.0, 24.0, 24.0, 18.0)):
        usage = Usage(Amounts(100.0, tokens))
        assert scene.quota.settle(scene.permits[number].id, "used", usage, 4.0)
    # Four first bytes of one second at 0.05 s a token, four times 20, three times 4, and 1.
    [(in_flight, work_per_s)] = delivery.kept
    assert in_flight == pytest.approx(4.0)
    assert work_per_s == pytest.approx((4 * 20.0 + 4 * 20.0 + 3 * 4.0 + 1.0) / 4.0)


def test_rounds_of_pieces_move_the_width_where_pieces_are_irregular() -> None:
    scene = Scene(ACCOUNTS["unknown"])
    scene.go(0.0, 4)
    for number in range(4):
        scene.began(number, 0.5)
    widths, now = [scene.width], 0.5
    for piece in range(1, 20):
        # Every other piece is five times as slow as the one before it.
        now += 1.0 if piece % 2 else 0.2
        for number in range(4):
            scene.progress(number, 10.0 * piece, now)
            widths.append(scene.width)
    assert not scene.quota.belief.width.congestion.is_steady
    assert sum(one != other for one, other in pairwise(widths)) >= 2
    assert scene.quota.belief.width.reason.startswith("throughput follows the width")


def test_what_a_user_configured_is_true_and_the_rest_comes_from_the_profile() -> None:
    learned = (Limit("requests", 50.0, source="profile"), Limit("input", 9.0, source="profile"))
    belief = Belief(QuotaConfig(limits=(REQUESTS,), profile=Profile(learned)), 0.0)
    assert [one.limit for one in belief.mirrors] == [learned[1], REQUESTS]
    smooth = Belief(QuotaConfig(limits=(WINDOW,), pace="smooth"), 0.0)
    assert smooth.mirrors[0].limit == WINDOW


def test_a_profile_survives_a_run_in_which_nothing_happened() -> None:
    before = Profile(
        limits=(Limit("tokens", 600.0, burst=600.0, source="profile"),
                Limit("input", 900.0, kind="fixed", source="profile")),
        width=6.0, cap=7.0, cap_probes=2, first_byte_s=0.3, per_token_s=0.01, per_second=5.0,
        curve=((4, 8.0, 0.02),), kept=("tokens/60s",),
    )  # fmt: skip
    belief = Belief(QuotaConfig(OPENAI, profile=before), 0.0)
    assert [mirror.toll.keeps for mirror in belief.mirrors] == [True, False]
    # What was seen of congestion counts half as much in each run that follows.
    assert belief.profile() == replace(before, curve=((4, 4.0, 0.02),))


def test_a_profile_keeps_the_width_that_was_found_worth_having() -> None:
    def per_token_s(width: int) -> float:
        return 0.02 * (1.0 + 0.0038 * width * (width - 1))

    curve = tuple((width, 10.0, per_token_s(width)) for width in (1, 4, 8, 16, 32))
    kept = Belief(QuotaConfig(profile=Profile(width=4.0, curve=curve)), 0.0).profile()
    assert 10.0 < kept.width < 17.0
    assert kept.cap == inf


def test_a_call_costs_the_seconds_it_takes_of_the_resource_it_needs_most_of() -> None:
    belief = Belief(QuotaConfig(limits=(REQUESTS, Limit("input", 600.0))), 0.0)
    assert belief.cost_s(_call().expected) == pytest.approx(10.0)
    assert Belief(QuotaConfig(), 0.0).cost_s(_call().expected) == 1.0
