"""Admission: all or nothing, in fair order, settled once, passed only where that delays nobody."""

from __future__ import annotations

from math import inf

from headway.base.values import Amounts, Demand, Fault, Limit, Permit, Reading, Usage, Wait
from headway.pacing.account import Profile, QuotaConfig
from headway.pacing.headers import GEMINI
from headway.pacing.quota import MAY_CALL, PermitRequest, Quota, Settlement

SLOTS = Limit("concurrency", 100.0, 0.0, "gauge")
WINDOW = Limit("input", 1000.0, kind="fixed")
ONE_A_SECOND = Limit("requests", 60.0, burst=1.01)
NOTHING = Usage(Amounts(), "unknown")


def _call(input_tokens: float = 100.0, spend_microusd: int = 0) -> Demand:
    return Demand(
        Amounts(input_tokens, 10.0, spend_microusd), Amounts(input_tokens, 40.0, spend_microusd)
    )


def _quota(*limits: Limit) -> Quota:
    return Quota(QuotaConfig(GEMINI, (*limits, SLOTS)), 0.0)


def _granted(quota: Quota, demand: Demand, now: float) -> Permit:
    permit = quota.admit(demand, now)
    assert isinstance(permit, Permit), permit
    return permit


def _used(amounts: Amounts) -> Settlement:
    return Settlement("used", Usage(amounts))


def _level(quota: Quota, now: float) -> float:
    return quota.belief.mirrors[0].balance.level(now)


def test_only_refusals_are_counted_as_refused() -> None:
    quota = _quota()
    for how in (Settlement("throttled", NOTHING, Fault("server")),
                Settlement("used", NOTHING, Fault("broken")),
                Settlement("unused", NOTHING)):  # fmt: skip
        quota.settle(_granted(quota, _call(), 0.0).id, how, 1.0)
    assert quota.refused == 1


def test_a_call_that_one_limit_holds_back_takes_nothing_of_the_others() -> None:
    quota = _quota(Limit("requests", 10.0, kind="fixed"), WINDOW)
    _granted(quota, _call(900.0), 0.0)
    wait = quota.admit(_call(200.0), 1.0)
    assert wait == Wait("input/60s", 60.0, "refilling")
    assert [one.balance.level(1.0) for one in quota.belief.mirrors] == [9.0, 100.0]
    assert quota.granted == 1


def test_those_who_wait_come_first() -> None:
    quota = _quota(WINDOW)
    _granted(quota, _call(900.0), 0.0)
    quota.ask(PermitRequest(_call(500.0)))
    assert quota.admit(_call(1.0), 1.0) == Wait("queue", 1.0, "1 calls were here before")
    quota.decide(2.0)
    assert quota.admit(_call(1.0), 3.0) == Wait("queue", 60.0, "1 calls were here before")


def test_every_grant_has_a_reason() -> None:
    quota = _quota(WINDOW)
    first = quota.ask(PermitRequest(_call(900.0)))
    second = quota.ask(PermitRequest(_call(500.0)))
    decision = quota.decide(0.0)
    assert [(one.place, one.permit.reason) for one in decision.grants] == [(first, MAY_CALL)]
    assert decision.wait == Wait("input/60s", 60.0, "refilling")
    assert (decision.place, decision.wake_s) == (second, 60.0)
    later = quota.decide(60.0)
    assert [one.permit.reason for one in later.grants] == ["waited for input/60s"]
    assert (later.wait, later.wake_s, later.place) == (None, inf, None)


def test_a_decision_stands_until_something_happens_or_its_wake_up_comes() -> None:
    quota = _quota(WINDOW)
    permit = _granted(quota, _call(900.0), 0.0)
    quota.ask(PermitRequest(_call(500.0)))
    quota.decide(1.0)
    stands = quota.decide(2.0)
    assert quota.decide(3.0) is stands
    assert stands.grants == ()
    quota.first_byte(permit.id, Reading(), 4.0)
    assert quota.decide(4.0) is not stands


def _asked(quota: Quota, *flows: str) -> dict[int, str]:
    return {quota.ask(PermitRequest(_call(), (flow,))): flow for flow in flows}


def test_a_call_that_used_less_is_refunded_to_its_flow_and_one_that_did_not_run_in_full() -> None:
    """Both flows asked for as much; the one whose calls do not run is served more often."""
    quota = _quota(ONE_A_SECOND)
    paths = _asked(quota, *"aaaaaa", *"bbbbbb")
    served: list[str] = []
    now = 0.0
    while len(served) < 6:
        decision = quota.decide(now)
        for grant in decision.grants:
            flow = paths[grant.place]
            served.append(flow)
            unused, used = Settlement("unused", NOTHING), _used(grant.permit.demand.expected)
            quota.settle(grant.permit.id, unused if flow == "b" else used, now)
        now = max(decision.wake_s, now + 1.0) if decision.wake_s < inf else now
    assert served.count("b") > served.count("a")


def test_within_a_flow_the_smaller_key_goes_first() -> None:
    quota = _quota(WINDOW)
    late = quota.ask(PermitRequest(_call(), key=(2.0,)))
    early = quota.ask(PermitRequest(_call(), key=(1.0,)))
    assert [grant.place for grant in quota.decide(0.0).grants] == [early, late]


def test_a_call_that_fits_passes_one_that_waits_for_a_window() -> None:
    quota = _quota(WINDOW)
    _granted(quota, _call(600.0), 0.0)
    blocked = quota.ask(PermitRequest(_call(500.0)))
    quota.ask(PermitRequest(_call(450.0)))
    small = quota.ask(PermitRequest(_call(100.0)))
    decision = quota.decide(1.0)
    assert decision.place == blocked
    [grant] = decision.grants
    assert grant.place == small
    assert grant.permit.reason == "does not delay a call that waits for input/60s"
    assert decision.wake_s == 60.0


def test_nobody_passes_a_call_that_waits_for_a_bucket() -> None:
    quota = _quota(Limit("input", 1000.0))
    _granted(quota, _call(600.0), 0.0)
    quota.ask(PermitRequest(_call(500.0)))
    quota.ask(PermitRequest(_call(1.0)))
    decision = quota.decide(1.0)
    assert decision.grants == ()
    assert decision.wait is not None
    assert decision.wait.resource == "input/60s"


def test_a_call_that_would_move_the_start_of_a_blocked_one_does_not_pass() -> None:
    """The window resets in 9 s; a request that is taken now is back only in 20 s."""
    quota = _quota(
        Limit("input", 1000.0, 10.0, "fixed"), Limit("requests", 1.0, 20.0, "bucket", 2.01)
    )
    _granted(quota, _call(900.0), 0.0)
    quota.ask(PermitRequest(_call(500.0)))
    quota.ask(PermitRequest(_call(10.0)))
    decision = quota.decide(1.0)
    assert decision.grants == ()
    assert decision.wake_s == 10.0
    assert (quota.granted, quota.in_flight, _level(quota, 1.0)) == (1, 1, 100.0)


def test_a_call_that_can_never_be_granted_is_named_and_passed() -> None:
    quota = _quota(Limit("spend", 1000.0, 0.0, "gauge"))
    never = quota.ask(PermitRequest(_call(spend_microusd=2000)))
    cheap = quota.ask(PermitRequest(_call(spend_microusd=10)))
    decision = quota.decide(0.0)
    assert [grant.place for grant in decision.grants] == [cheap]
    assert decision.place == never
    assert decision.wait == Wait("spend", inf, "one call exceeds all that there ever is")


def test_a_call_that_waits_for_others_to_end_is_not_passed() -> None:
    quota = _quota(Limit("spend", 1000.0, 0.0, "gauge"))
    _granted(quota, _call(spend_microusd=600), 0.0)
    quota.ask(PermitRequest(_call(spend_microusd=500)))
    quota.ask(PermitRequest(_call(spend_microusd=10)))
    decision = quota.decide(1.0)
    assert decision.grants == ()
    assert decision.wait == Wait("spend", inf, "calls in flight may use up the rest")


def test_a_wider_width_opens_a_decision_that_stood() -> None:
    quota = Quota(QuotaConfig(profile=Profile(width=1.5)), 0.0)
    places = [quota.ask(PermitRequest(_call())) for _ in range(3)]
    decision = quota.decide(0.0)
    assert [grant.place for grant in decision.grants] == places[:2]
    for grant in decision.grants:
        quota.first_byte(grant.permit.id, Reading(), 1.0)
    granted = decision.grants[0].permit
    stands = quota.decide(1.0)
    for piece in range(1, 4):
        quota.progress(granted.id, 10.0 * piece, 1.0 + 0.2 * piece)
        assert quota.decide(1.0 + 0.2 * piece) == stands
    quota.progress(granted.id, 40.0, 1.8)
    assert [grant.place for grant in quota.decide(1.8).grants] == places[2:]
