"""One account in virtual time: who may call, who waits for what, what faults and readings do."""

from __future__ import annotations

from math import inf

import pytest
from msgspec.structs import replace

from headway.base.values import (
    Amounts,
    Demand,
    Fault,
    FaultKind,
    Limit,
    LimitKind,
    LimitReading,
    Reading,
    Resource,
    SettledAs,
)
from headway.pacing.account import Account, AccountConfig, Profile
from headway.pacing.call import Call
from headway.pacing.calls import AccountCalls, Decision
from headway.pacing.headers import ANTHROPIC, GEMINI, GROQ, OPENAI, PLAIN, Dialect
from headway.pacing.windows import PROBE_S
from tests.unit.steps import cases, perform

NOTHING = Amounts()
REQUESTS = Limit("requests", 600.0)
WINDOW = Limit("input", 1000.0, kind="fixed")
DAILY = Limit("requests", 100.0, 86_400.0, "fixed")
PER_MINUTE = Limit("requests", 100.0, 60.0, "fixed")
WIDE = Profile(width=20.0)
"""The provider bears twenty calls at once."""


def _wide(*limits: Limit, dialect: Dialect = GEMINI) -> AccountConfig:
    return AccountConfig(dialect, limits, profile=WIDE)


def _learned(kind: LimitKind) -> AccountConfig:
    known = Limit("requests", 600.0, kind=kind, source="profile")
    return AccountConfig(profile=Profile((known,), width=500.0))


ACCOUNTS = {
    "unknown": AccountConfig(),
    "silent": _wide(dialect=PLAIN),
    "bucket": _wide(REQUESTS, dialect=ANTHROPIC),
    "smooth": AccountConfig(limits=(REQUESTS,), pace="smooth", profile=WIDE),
    "counting": _wide(
        Limit("requests", 10.0, kind="fixed"), Limit("tokens", 9000.0, kind="fixed"), dialect=OPENAI
    ),
    "windows": _wide(Limit("requests", 10.0, kind="fixed"), WINDOW),
    "window": _wide(WINDOW),
    "inputs": _wide(Limit("input", 1000.0)),
    "both": _wide(Limit("input", 9000.0), REQUESTS, dialect=ANTHROPIC),
    "two periods": _wide(PER_MINUTE, DAILY, dialect=OPENAI),
    "money": _wide(Limit("spend", 1000.0, 0.0, "gauge")),
    "window and few": _wide(WINDOW, Limit("requests", 6.0, burst=1.0)),
    "slow refill": _wide(
        Limit("input", 1000.0, 10.0, "fixed"), Limit("requests", 1.0, 20.0, "bucket", 2.01)
    ),
    "per second": _wide(Limit("requests", 60.0, burst=1.01)),
    "outputs": _wide(Limit("output", 6000.0, 1e12), dialect=ANTHROPIC),
    "known ramp": AccountConfig(profile=Profile((REQUESTS,), width=9.0, per_second=3.0)),
    "known cap": AccountConfig(profile=Profile(width=9.0, cap=2.0)),
    "two slots": AccountConfig(limits=(Limit("concurrency", 2.0, 0.0, "gauge"),), profile=WIDE),
    "tokens and a slot": AccountConfig(
        limits=(Limit("input", 600.0, burst=100.0), Limit("concurrency", 1.0, 0.0, "gauge"))
    ),
    "learned bucket": _learned("bucket"),
    "learned fixed": _learned("fixed"),
    "learned sliding": _learned("sliding"),
    "half of a bucket": replace(_learned("bucket"), share=0.5),
    "half": AccountConfig(limits=(Limit("input", 1000.0),), share=0.5, profile=WIDE),
    "nothing": AccountConfig(share=0.0),
    "empty": _wide(Limit("input", 0.0)),
}
SCENES = """
faults of one call pause no other: bucket
    go 0 4; fail 0 request 1; fail 1 broken 1; fail 2 server 1; fail 3 access 1; refused = 3; go 1
overload holds all calls, longer each time until one is let in: silent
    go 0; fail 0 overload 1; held 1 = account 2 provider overloaded; go 2; fail 1 overload 2;
    held 2 = account 4 provider overloaded; go 4; fail 2 overload 5 None 7;
    held 5 = account 12 provider overloaded; go 12; fail 3 overload 13 None 3600;
    held 13 = account 43 provider overloaded
overload of calls that were sent before it was told says nothing new: silent
    go 0 4; fail 0 overload 1; fail 1 overload 1.5; fail 2 overload 1.9;
    held 1.9 = account 2 provider overloaded
overload while others are let in is a limit that is told in no other way: silent
    go 0 8; began 0 0.5; began 1 0.5; fail 7 overload 1; fail 6 overload 1.1;
    held 1.1 = concurrency 3 6 in flight
before the first answer, too, the next try after a timeout is when it is due: unknown
    go 0; ask; ask; decide 400 = 1,2 |; fail 1 timeout 400.5; ask;
    decide 400.6 = - | 3 concurrency 430.5
overload and timeout leave half as many in flight, which tries raise again: silent
    go 0 12; fail 0 timeout 1; in_flight = 11; held 1 = concurrency 31 11 in flight; serve 1 2;
    serve 2 2; serve 3 2; serve 4 2; serve 5 2; serve 6 2; in_flight = 5;
    held 2 = concurrency 31 5 in flight; go 31
no slot: silent
    go 0 6; fail 0 concurrency 1; held 1 = concurrency 31 5 in flight; go 31;
    held 31 = concurrency inf 6 in flight
no slot, the try is refused and the next one comes later: silent
    go 0 6; fail 0 concurrency 1; go 31; fail 6 concurrency 32; held 32 = concurrency 92 5 in flight
no slot, none of ours in flight: unknown
    go 0; fail 0 concurrency 1; held 1 = account 1.5 others hold every slot; go 1.5;
    fail 1 concurrency 2; held 2 = account 3 others hold every slot
slots that a user named are never exceeded: two slots
    go 0 2; fail 0 concurrency 1; held 1 = concurrency 31 1 in flight; go 31;
    held 1e6 = concurrency inf 2 in flight
a slot that was just left may not be free yet: known cap
    go 0 2; serve 0 1; go 1.01; fail 2 rate 1.02; held 1.02 = account 1.07 a slot is not free yet;
    go 1.07; held 1.1 = concurrency 30 2 in flight
a slot that was left long ago is free: the cap is lower: known cap
    go 0 2; serve 0 1; go 1.1; fail 2 concurrency 1.2; held 1.2 = concurrency 31.2 1 in flight
a cap that is refused again and again is too high: known cap
    go 0 2; serve 0 1; go 1.01; fail 2 concurrency 1.02; go 1.07; serve 1 1.08; go 1.09;
    fail 4 concurrency 1.1; held 1.1 = concurrency 31.1 1 in flight
advice to wait for an unnamed limit is tried early: unknown
    go 0; fail 0 rate 0 None 45; held 0 = hidden limit 5 rate learned from refusals
advice to wait for a named limit is tried early: bucket
    go 0; fail 0 rate 0 requests 70 0; held 0 = requests/60s 5.00006 refilling
advice is heeded where refusals are charged: counting
    go 0; fail 0 rate 0 requests 40; held 0 = requests/60s 40.02 refilling
short advice is heeded: bucket
    go 0; fail 0 rate 0 requests 4 0; held 0 = requests/60s 4.00006 refilling
named limit without advice is tried after a while: bucket
    go 0; fail 0 rate 0 requests; held 0 = requests/60s 1.00006 refilling
refused burst although enough is left: bucket
    go 0 11; fail 10 rate 0 requests 0.5 589; held 0.4 = account 0.5 a burst was refused;
    held 0.5 = burst 1 a burst was refused; go 1
refusal that counts stays charged to requests alone: counting
    go 0; fail 0 server 1; levels 1 = 9 9000
of two limits the empty one is blamed, minute: two periods
    go 0; fail 0 rate 0 requests 40 0 90; held 1 = requests/60s 40.02 refilling
of two limits the empty one is blamed, day: two periods
    go 0; fail 0 rate 0 requests 5000 90 0; held 1 = requests/86400s 5000.02 refilling
of an unnamed refusal its own headers say which limit was short: two periods
    go 0; fail 0 rate 0 None 5000 90 0; held 1 = requests/86400s 5000.02 refilling
hidden limit beside a known one: bucket
    go 0; began 0 0; fail 0 rate 0 input; go 1; began 1 1; fail 1 rate 1 input;
    held 1.5 = hidden limit 2 rate learned from refusals
reported limit replaces the guess: unknown
    go 0; began 0 0.5 599; levels 0.5 = 600; serve 0 1; go 1; levels 1 = 599
reading of a call that was sent before the limit was known: unknown
    go 0; go 0.1; began 0 0.5 500; began 1 0.6 300; levels 0.6 = 305
reported limit counts what is in flight and was sent since: unknown
    go 0; go 1; began 0 2 400; levels 2 = 419
reading that says too little shows no limit: unknown
    go 0; began 0 0.5 -; levels 0.5 = ''; go 1
reading corrects the limit that it is about: both
    go 0; began 0 0 300; levels 0 = 8900 300
reading, compared with what was left when its call was sent, once: learned bucket
    go 0 300; go 1 10; levels 1 = 300; began 300 1.5 150; levels 1.5 = 146; began 301 1.5 149;
    levels 1.5 = 146; began 302 1.5 190; levels 1.5 = 188
reading that is older, or says nothing of what is left: learned bucket
    go 0 300; go 1 10; began 300 1.5 150; began 5 1.5 0; began 301 1.5 -; levels 1.5 = 146
reading of a bucket that was full since: learned bucket
    go 0 300; go 40; began 299 40 350; levels 40 = 599
reading of a fixed window: what others take does not come back before its end: learned fixed
    go 0 300; go 1 10; began 300 1.5 150; levels 1.5 = 141; began 301 1.5 500; levels 1.5 = 141;
    levels 60 = 600
reading of a sliding window: what others took is forgotten a period later: learned sliding
    go 0 300; go 1 10; began 300 1.5 150; levels 1.5 = 141; levels 60.5 = 441; levels 62 = 600
reading with another limit: the level stays and the rate changes: learned bucket
    go 0 300; began 0 0 900 1200; levels 0 = 300; levels 10 = 500; began 1 10 900 1200;
    levels 10 = 500
reading with another limit: a window has room for more: learned fixed
    go 0 300; began 0 0 1199 1200; levels 0 = 900
reading with another limit: the ceiling is a share of it: half of a bucket
    go 0 300; held 0 = requests/60s 60.0001 refilling; began 0 0 600 1200; go 0 200
refusal of a fixed window: nothing is left until then: learned fixed
    go 0 10; fail 0 rate 1 requests 4; held 1 = requests/60s 5.02 refilling; go 5.02
refusal of a sliding window: learned sliding
    go 0 10; fail 0 rate 1 requests 4; held 1 = requests/60s 5 refilling; go 5
smooth flow bunches at most a second: smooth
    count 0 = 9
known ramp: known ramp
    go 0 3; held 0 = burst 1 a burst was refused
known cap: known cap
    go 0 2; held 0 = concurrency 30 2 in flight
ceiling is a second limit over any period: half
    go 0 1 400; held 0 200 = input/60s 60.0001 refilling; go 0 1 100
ceiling of nothing: nothing
    held 0 = account inf the ceiling leaves nothing of any limit
limit of nothing: empty
    held 0 = input/60s inf one call exceeds all that there ever is
one limit holds back, the others are not charged: windows
    go 0 1 900; held 1 200 = input/60s 60 refilling; levels 1 = 9 100
every call knows what it waited for: window
    ask 900; ask 500; decide 0 = 0 | 1 input/60s 60; reasons = -; decide 60 = 1 |;
    reasons = input/60s
a call that fits passes one that waits for a window: window
    go 0 1 600; ask 500; ask 450; ask 100; decide 1 = 3 | 1 input/60s 60; reasons = input/60s
a call that waits for less passes one that waits for a window when it may: window and few
    go 0 1 600; ask 500; ask 100; decide 1 = - | 1 input/60s 60; wake_s = 10;
    decide 10 = 2 | 1 input/60s 60
no call passes one that waits for a bucket: inputs
    go 0 1 600; ask 500; ask 1; decide 1 = - | 1 input/60s 6.03006
no call passes where that moves the start of the first: slow refill
    go 0 1 900; ask 500; ask 10; decide 1 = - | 1 input/10s 10; levels 1 = 100 1.06; in_flight = 1
call that can never be granted is named and passed: money
    ask 1 2000; ask 1 10; decide 0 = 1 | 0 spend inf
call that waits for others to end is not passed: money
    go 0 1 1 600; ask 1 500; ask 1 10; decide 1 = - | 1 spend inf
smaller keys first: window
    ask 100 0 a 2; ask 100 0 a 1; decide 0 = 1,0 |
refund in full of calls that did not run: per second
    ask 1 0 a; ask 1 0 a; ask 1 0 a; ask 1 0 b; ask 1 0 b; ask 1 0 b;
    decide 0 = 0 | 3 requests/60s 0.99; serve 0 0; decide 1 = 3 | 1 requests/60s 1.99; unused 3 1;
    decide 2 = 4 | 1 requests/60s 2.99
the longest wait is the reason, not the last one: tokens and a slot
    ask 60; decide 0 = 0 |; serve 0 0.5; ask 60; ask 1; decide 0.5 = - | 1 input/60s 3.5;
    decide 9.5 = 1 | 2 concurrency inf; reasons = input/60s; serve 1 11.5;
    decide 11.5 = 2 |; reasons = input/60s
stream that outlives its plan goes on, up to its ceiling: outputs
    go 0; began 0 1; go 2; unused 1 2; go 3; unused 2 3; go 4; unused 3 4; go 5; unused 4 5;
    levels 9 = 5960; serve 0 9 30; levels 9 = 5970
calls that ended or were planned anew are not extended: outputs
    go 0 2; serve 0 0.5; began 1 1.1; decide 1.2; levels 2 = 5980
adopted calls are in flight: known cap
    decide 0 = - |; adopt 0; adopt 0; ask; decide 0 = - | 2 concurrency 30
a provider that cannot be reached holds the queue, and one call at a time tries it: bucket
    go 0 8; fail 0 connection 1; held 1 = connection 2 no connection; fail 1 connection 1;
    ask; ask; decide 2 = 8 | 9 connection inf; fail 8 connection 2.1;
    decide 2.5 = - | 9 connection 3; decide 3 = 9 |
an answer to a call that was sent before does not end an outage: bucket
    go 0 3; fail 0 connection 1; began 1 1.5; ask; ask; ask; decide 1.5 = - | 3 connection 2;
    decide 2 = 3 | 4 connection inf; reasons = connection; began 3 2.2; decide 2.2 = 4,5 |
a fault that a provider tells ends an outage: bucket
    go 0; fail 0 connection 1; ask; ask; ask; decide 2 = 1 | 2 connection inf; fail 1 request 2.2;
    decide 2.2 = 2,3 |
a trial that is not sent is followed by another one: bucket
    go 0; fail 0 connection 1; ask; ask; decide 2 = 1 | 2 connection inf; unused 1 2.1;
    decide 2.1 = - | 2 connection 3; decide 3 = 2 |
at the second connection that breaks without an answer between, one call tries: bucket
    go 0 4; fail 0 broken 1; go 1; fail 1 broken 2; ask; ask; decide 2 = 5 | 6 connection inf;
    began 5 2.5; decide 2.5 = 6 |
refusals of the same signal lower a cap that is only suspected: silent
    go 0 6; fail 5 rate 1; held 1 = concurrency 3 5 in flight; fail 4 rate 1.1;
    held 1.1 = concurrency 3 4 in flight
a connection ends an outage before anything is answered: bucket
    go 0 3; fail 0 connection 1; ask; ask; ask; decide 2 = 3 | 4 connection inf; calls.reached;
    decide 2.1 = 4,5 |
"""


class Scene:
    """The calls of one account by number, and the decisions on them in words."""

    def __init__(self, config: AccountConfig) -> None:
        self.calls = AccountCalls(config, 0.0)
        self.known: list[Call] = []
        self.sent: tuple[Call, ...] = ()
        self.wake_s = inf

    @property
    def refused(self) -> float:
        return self.calls.refused

    @property
    def in_flight(self) -> float:
        return len(self.calls.in_flight)

    @property
    def reasons(self) -> str:
        return ",".join(call.waited_for or "-" for call in self.sent)

    def _asked(self, tokens: float, spend: float = 0.0, flow: str = "", key: float = 0.0) -> Call:
        call = Call(("", len(self.known)), path=(flow,), rank=(key,), demand=_call(tokens, spend))
        self.known.append(call)
        self.calls.ask(call)
        return call

    def _decide(self, now: float) -> Decision:
        decision = self.calls.decide(now)
        self.sent, self.wake_s = decision.sent, round(decision.wake_s, 3)
        return decision

    def ask(
        self, tokens: float = 100.0, spend: float = 0.0, flow: str = "", key: float = 0.0
    ) -> None:
        self._asked(tokens, spend, flow, key)

    def go(self, now: float, calls: float = 1, tokens: float = 100.0, spend: float = 0.0) -> None:
        """So many calls may be sent now."""
        asked = [self._asked(tokens, spend) for _ in range(int(calls))]
        wait = self._decide(now).wait
        assert list(self.sent) == asked, wait

    def count(self, now: float) -> float:
        """How many may be sent now."""
        for _ in range(100):
            self._asked(100.0)
        return len(self._decide(now).sent)

    def held(self, now: float, tokens: float = 100.0) -> str:
        """What one more call would wait for."""
        call = self._asked(tokens)
        wait = self._decide(now).wait
        assert wait is not None
        self.calls.leave(call)
        self.known.pop()
        return f"{wait.resource} {round(wait.until_s, 5):g} {wait.reason}"

    def decide(self, now: float) -> str:
        """Who is sent, and who waits for what."""
        decision = self._decide(now)
        sent = ",".join(str(call.id[1]) for call in decision.sent) or "-"
        if decision.wait is None or decision.blocked is None:
            return f"{sent} |"
        wait = decision.wait
        return f"{sent} | {decision.blocked.id[1]} {wait.resource} {round(wait.until_s, 5):g}"

    def began(
        self, number: float, now: float, left: float | str | None = None, limit: float = 600.0
    ) -> None:
        reading = Reading() if left is None else _reading(None if left == "-" else float(left))
        reading = Reading(tuple(replace(told, limit=limit) for told in reading.limits))
        self.calls.first_byte(self.known[int(number)], reading, now)

    def progress(self, number: float, tokens: float, now: float) -> None:
        self.calls.progress(self.known[int(number)], tokens, now)

    def serve(self, number: float, now: float, tokens: float = 10.0) -> None:
        call = self.known[int(number)]
        amounts = Amounts(call.demand.expected.input_tokens, tokens)
        assert self.calls.settle(call, "used", amounts, now)

    def unused(self, number: float, now: float) -> None:
        assert self.calls.settle(self.known[int(number)], "unused", NOTHING, now)

    def fail(
        self, number: float, kind: FaultKind, now: float, resource: Resource | None = None,
        retry_s: float | None = None, *left: float,
    ) -> None:  # fmt: skip
        fault, reading = Fault(kind, resource, retry_s), _reading(*left)
        how: SettledAs = "used" if kind == "broken" else "throttled"
        assert self.calls.settle(self.known[int(number)], how, NOTHING, now, fault, reading)

    def adopt(self, sent_s: float) -> None:
        call = Call(("", len(self.known)), demand=_call())
        self.known.append(call)
        self.calls.adopt(call, sent_s, -1.0, sent_s)

    def levels(self, now: float) -> float | str:
        found = [limit.level(now) for limit in self.calls.account.limits]
        return found[0] if len(found) == 1 else " ".join(f"{round(one, 5):g}" for one in found)


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
    stands = scene.calls.decide(2.0)
    assert scene.calls.decide(3.0) is stands
    assert stands.sent == ()
    scene.began(0, 4.0)
    assert scene.calls.decide(4.0) is not stands


def test_a_call_that_passes_the_first_in_line_tries_an_empty_usage_window() -> None:
    scene = Scene(_wide(replace(WINDOW, period_s=7200.0)))
    scene.go(0.0, 1, 900.0)
    empty = LimitReading("tokens", 18_000.0, None, None, 18_000.0, 1.0, "5h", is_empty=True)
    scene.calls.first_byte(scene.known[0], Reading((empty,)), 1.0)
    scene.serve(0, 2.0, 900.0)
    scene.ask(500.0)
    scene.ask(50.0)
    assert scene.calls.decide(3.0).sent == ()
    tries = scene.calls.decide(1.0 + PROBE_S)
    assert tries.sent == (scene.known[2],)
    assert tries.wait is not None
    assert tries.wait.resource == "input/7200s"


def _until_s(scene: Scene, now: float, advice_s: float, *left: float) -> float:
    """Until when calls wait after one more was refused with such advice."""
    scene.go(now)
    scene.fail(len(scene.known) - 1, "rate", now, None, advice_s, *left)
    scene.ask()
    wake_s = scene.calls.decide(now).wake_s
    scene.calls.leave(scene.known.pop())
    return wake_s


@pytest.mark.parametrize("is_named", [False, True])
def test_advice_is_inflated_if_a_call_was_let_in_before_it_was_over(is_named: bool) -> None:
    scene, left = Scene(ACCOUNTS["bucket" if is_named else "silent"]), (0.0,) if is_named else ()
    tried_s = _until_s(scene, 0.0, 60.0, *left)
    assert 0.0 < tried_s < 10.0
    scene.go(tried_s)
    scene.began(len(scene.known) - 1, tried_s + 1.0)
    assert _until_s(scene, 20.0, 60.0, *left) < 25.0


def test_advice_is_inflated_if_it_names_the_same_wait_at_different_times() -> None:
    scene = Scene(ACCOUNTS["silent"])
    tried_s = _until_s(scene, 0.0, 60.0)
    assert _until_s(scene, tried_s, 60.0) < tried_s + 10.0


def test_advice_that_an_early_try_confirms_is_heeded_from_then_on() -> None:
    scene = Scene(ACCOUNTS["silent"])
    tried_s = _until_s(scene, 0.0, 60.0)
    assert _until_s(scene, tried_s, 60.0 - tried_s) == 60.0
    assert _until_s(scene, 100.0, 50.0) == 150.0


def test_advice_is_not_tried_early_where_refusals_are_charged() -> None:
    scene = Scene(AccountConfig(OPENAI, profile=WIDE))
    assert _until_s(scene, 0.0, 60.0) == 60.0
    # Nothing was let in early, and so nothing is known against it.
    assert _until_s(scene, 70.0, 60.0) == 130.0


def test_the_end_of_a_usage_window_is_not_tried_early() -> None:
    scene = Scene(ACCOUNTS["silent"])
    scene.go(0.0)
    full = LimitReading("tokens", 18_000.0, None, None, 600.0, 1.0, "5h", is_empty=True)
    refusal = Fault("rate", None, 600.0)
    scene.calls.settle(scene.known[0], "throttled", NOTHING, 0.0, refusal, Reading((full,)))
    assert scene.held(0.0) == "usage/5h 601 usage window 5h is 100% used"
    scene.go(601.0)


def test_what_a_user_configured_is_true_and_the_rest_comes_from_the_profile() -> None:
    learned = (Limit("requests", 50.0, source="profile"), Limit("input", 9.0, source="profile"))
    known = AccountCalls(AccountConfig(limits=(REQUESTS,), profile=Profile(learned)), 0.0)
    assert [one.limit for one in known.account.limits] == [learned[1], REQUESTS]
    smooth = AccountCalls(AccountConfig(limits=(WINDOW,), pace="smooth"), 0.0)
    assert smooth.account.limits[0].limit == WINDOW


def test_a_profile_survives_a_run_in_which_nothing_happened() -> None:
    before = Profile(
        limits=(Limit("tokens", 600.0, burst=600.0, source="profile"),
                Limit("input", 900.0, kind="fixed", source="profile")),
        width=6.0, cap=7.0, cap_probes=2, first_byte_s=0.3, per_token_s=0.01, per_second=5.0,
        curves=(((4.0, 8.0, 0.3, 1.0),), ((4.0, 8.0, 0.02, 1.0),)), kept=("tokens/60s",),
    )  # fmt: skip
    account = AccountCalls(AccountConfig(OPENAI, profile=before), 0.0).account
    assert [one.rule.keeps for one in account.limits] == [True, False]
    # What was seen of company counts half as much in each run that follows.
    halved = (((4.0, 4.0, 0.3, 1.0),), ((4.0, 4.0, 0.02, 1.0),))
    assert account.profile() == replace(before, curves=halved)
    assert before.is_measured
    assert not WIDE.is_measured


def test_a_call_costs_the_seconds_it_takes_of_the_resource_it_needs_most_of() -> None:
    account = Account(AccountConfig(limits=(REQUESTS, Limit("input", 600.0))), 0.0)
    assert account.cost_s(_call().expected) == pytest.approx(10.0)
    assert Account(AccountConfig(), 0.0).cost_s(_call().expected) == 1.0


def test_a_user_s_limit_is_not_taken_for_the_one_that_headers_tell_of() -> None:
    """Groq's header counts a day and does not say so; the user knows the limit of a minute."""
    calls = AccountCalls(AccountConfig(GROQ, (Limit("requests", 30.0),), profile=WIDE), 0.0)
    told = LimitReading("requests", None, 14_400.0, 0.0, 600.0)
    for number in range(4):
        call = Call(("", number), demand=_call())
        calls.ask(call)
        assert calls.decide(float(number)).sent
        now = replace(told, remaining=14_399.0 - number, reset_s=6.0 * (number + 1))
        calls.first_byte(call, Reading((now,)), number + 0.5)
    limits = [(one.limit.amount, round(one.limit.period_s)) for one in calls.account.limits]
    assert limits == [(30.0, 60.0), (14_400.0, 86_400.0)]
    # A refusal that says nothing is left of it is about that one, too.
    calls.settle(call, "throttled", NOTHING, 4.0, Fault("rate", "requests", 3.0), Reading((told,)))
    calls.ask(Call(("", 9), demand=_call()))
    wait = calls.decide(4.0).wait
    assert wait is not None
    assert wait.resource != "requests/60s"


def _told(calls: AccountCalls, number: int, told: LimitReading, now: float) -> None:
    """One call is sent, and its response shows a limit."""
    call = Call(("", number), demand=_call())
    calls.ask(call)
    assert calls.decide(now).sent
    calls.first_byte(call, Reading((told,)), now + 0.1)
    calls.settle(call, "used", call.demand.expected, now + 0.2)


def test_a_changed_limit_on_produced_tokens_has_more_room_in_any_period() -> None:
    known = Limit("output", 600.0, kind="sliding", source="profile")
    calls = AccountCalls(AccountConfig(PLAIN, profile=Profile((known,), width=9.0)), 0.0)
    _told(calls, 1, LimitReading("output", 60.0, 1200.0, 1190.0, None), 1.0)
    assert calls.account.limits[0].level(2.0) == pytest.approx(1190.0)


def test_a_limit_of_which_nothing_is_missing_shows_no_period() -> None:
    calls = AccountCalls(AccountConfig(OPENAI, profile=WIDE), 0.0)
    for number in range(4):
        _told(calls, number, LimitReading("requests", None, 600.0, 600.0, 0.5), 10.0 * number)
    assert calls.account.limits[0].limit.period_s == 60.0


def test_a_reset_of_nothing_while_something_is_left_says_nothing_of_a_period() -> None:
    """Some servers tell when the next call may come, not when all is there again."""
    calls = AccountCalls(AccountConfig(OPENAI, profile=WIDE), 0.0)
    for number in range(8):
        told = LimitReading("requests", None, 600.0, 599.0 - number, float(number == 5))
        _told(calls, number, told, 0.5 * number)
    (tracked,) = calls.account.limits
    assert (tracked.limit.period_s, tracked.limit.kind) == (60.0, "bucket")
    # Fuller than it was taken to be, it may be as large as its limit.
    for number in range(9, 20):
        _told(calls, number, LimitReading("requests", None, 600.0, 200.0, None), 1.0 * number)
    assert tracked.meter.size == 201.0
    _told(calls, 30, LimitReading("requests", None, 600.0, 400.0, None), 30.0)
    assert tracked.meter.size == 600.0
