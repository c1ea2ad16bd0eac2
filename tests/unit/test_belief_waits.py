"""What is believed of an account: whom a fault concerns, what a reading teaches, who waits why."""

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
    LimitReading,
    Permit,
    Reading,
    Usage,
    Wait,
)
from headway.pacing.account import UNVERIFIED_S, Belief, Profile, QuotaConfig
from headway.pacing.headers import OPENAI, PLAIN
from headway.pacing.quota import Quota, Settlement

CALL = Demand(Amounts(100.0, 50.0), Amounts(100.0, 200.0))
REQUESTS = Limit("requests", 600.0)
SLOTS = Limit("concurrency", 100.0, 0.0, "gauge")
NOTHING = Usage(Amounts(), "unknown")
SILENT = QuotaConfig(PLAIN, profile=Profile(width=20.0))
"""An account that names no limit, at a provider that bears twenty calls at once."""


def _requests(remaining: float | None, limit: float | None = 600.0) -> Reading:
    return Reading((LimitReading("requests", 60.0, limit, remaining, None),))


def _granted(quota: Quota, now: float) -> Permit:
    permit = quota.admit(CALL, now)
    assert isinstance(permit, Permit), permit
    assert permit.reason
    return permit


def _held_back(quota: Quota, now: float) -> Wait:
    wait = quota.admit(CALL, now)
    assert isinstance(wait, Wait), wait
    assert wait.reason
    return wait


def _fail(
    quota: Quota, permit: Permit, fault: Fault, now: float, reading: Reading = Reading()
) -> None:
    assert quota.settle(permit.id, Settlement("throttled", NOTHING, fault, reading), now)


def _serve(quota: Quota, permit: Permit, now: float) -> None:
    assert quota.settle(permit.id, Settlement("used", Usage(CALL.expected)), now)


@pytest.mark.parametrize("kind", ["request", "broken", "server", "connection"])
def test_a_fault_that_concerns_one_call_pauses_nobody(kind: FaultKind) -> None:
    quota = Quota(QuotaConfig(limits=(REQUESTS,)), 0.0)
    before = quota.belief.width.allowed
    _fail(quota, _granted(quota, 0.0), Fault(kind), 1.0)
    assert quota.belief.width.allowed == before
    _granted(quota, 1.0)


def test_an_overload_halves_the_width_and_backs_off() -> None:
    quota = Quota(QuotaConfig(), 0.0)
    permits = [_granted(quota, 0.0) for _ in range(4)]
    _fail(quota, permits[0], Fault("overload"), 1.0)
    assert _held_back(quota, 1.0) == Wait("account", 2.0, "provider overloaded")
    width = quota.belief.width
    assert (width.allowed, width.reason) == (2.0, "overload")
    _fail(quota, permits[1], Fault("overload"), 2.0)
    assert _held_back(quota, 2.0).until_s == 4.0
    assert quota.belief.width.cap.limit == inf


def test_a_timeout_halves_the_width_and_holds_nobody() -> None:
    quota = Quota(QuotaConfig(), 0.0)
    _fail(quota, _granted(quota, 0.0), Fault("timeout"), 1.0)
    assert quota.belief.width.allowed == 2.0
    _granted(quota, 1.0)


def test_a_missing_slot_caps_the_calls_in_flight_until_it_is_time_to_try_again() -> None:
    quota = Quota(SILENT, 0.0)
    permits = [_granted(quota, 0.0) for _ in range(6)]
    _fail(quota, permits[0], Fault("concurrency"), 1.0)
    assert _held_back(quota, 1.0) == Wait("concurrency", 31.0, "5 in flight")
    _granted(quota, 31.0)
    # The try is under way: its answer ends the wait, not a time.
    assert _held_back(quota, 31.0) == Wait("concurrency", inf, "6 in flight")


def test_a_missing_slot_with_nobody_in_flight_waits_briefly() -> None:
    quota = Quota(QuotaConfig(), 0.0)
    _fail(quota, _granted(quota, 0.0), Fault("concurrency"), 1.0)
    assert _held_back(quota, 1.0) == Wait("account", 1.5, "somebody else holds every slot")
    _granted(quota, 1.5)


def test_an_unnamed_wait_is_tried_once_and_then_believed() -> None:
    quota = Quota(QuotaConfig(), 0.0)
    asked = Fault("rate", retry_after_s=45.0)
    _fail(quota, _granted(quota, 0.0), asked, 0.0)
    assert _held_back(quota, 0.0) == Wait("account", UNVERIFIED_S, "asked to wait")
    _fail(quota, _granted(quota, UNVERIFIED_S), asked, UNVERIFIED_S)
    assert _held_back(quota, UNVERIFIED_S).until_s == UNVERIFIED_S + 45.0


def test_a_named_limit_waits_as_long_as_the_refusal_says() -> None:
    quota = Quota(QuotaConfig(limits=(REQUESTS,)), 0.0)
    _fail(quota, _granted(quota, 0.0), Fault("rate", "requests", 7.0), 0.0, _requests(0.0))
    wait = _held_back(quota, 0.0)
    assert (wait.resource, wait.reason) == ("requests/60s", "refilling")
    assert wait.until_s == pytest.approx(7.0, abs=0.1)


def test_a_burst_that_is_refused_although_enough_is_left_makes_calls_leave_slower() -> None:
    quota = Quota(QuotaConfig(limits=(REQUESTS, SLOTS)), 0.0)
    permits = [_granted(quota, 0.0) for _ in range(11)]
    _fail(quota, permits[-1], Fault("rate", "requests", 0.5), 0.0, _requests(589.0))
    assert _held_back(quota, 0.4) == Wait("account", 0.5, "a burst was refused")
    assert _held_back(quota, 0.5) == Wait("burst", 1.0, "a burst was refused")
    _granted(quota, 1.0)
    assert quota.belief.profile().per_second == pytest.approx(9.0)


def test_a_refusal_that_counts_stays_charged_to_requests_alone() -> None:
    limits = (Limit("requests", 10.0, kind="fixed"), Limit("tokens", 9000.0, kind="fixed"))
    quota = Quota(QuotaConfig(OPENAI, limits), 0.0)
    _fail(quota, _granted(quota, 0.0), Fault("server"), 1.0)
    assert [one.balance.level(1.0) for one in quota.belief.mirrors] == [9.0, 9000.0]


def test_a_silent_account_is_first_suspected_of_minding_the_crowd() -> None:
    quota = Quota(SILENT, 0.0)
    permits = [_granted(quota, 0.0) for _ in range(6)]
    _fail(quota, permits[5], Fault("rate"), 1.0)
    assert _held_back(quota, 1.0) == Wait("concurrency", 3.0, "5 in flight")
    # A further refusal of the same signal: fewer were let in than thought.
    _fail(quota, permits[4], Fault("rate"), 1.1)
    assert quota.belief.width.cap.limit == 4.0


def test_the_crowd_is_cleared_when_one_more_is_served() -> None:
    quota = Quota(SILENT, 0.0)
    permits = [_granted(quota, 0.0) for _ in range(6)]
    _fail(quota, permits[5], Fault("rate"), 1.0)
    for permit in permits[:5]:
        quota.first_byte(permit.id, Reading(), 1.5)
    quota.first_byte(_granted(quota, 3.0).id, Reading(), 3.5)
    assert quota.belief.width.cap.limit == inf


def _droughty(now: float) -> Quota:
    """A silent account that served eight at once, then refused one of few; seven may leave."""
    quota = Quota(SILENT, 0.0)
    permits = [_granted(quota, 0.0) for _ in range(8)]
    for permit in permits:
        quota.first_byte(permit.id, Reading(), 0.5)
    for permit in permits:
        _serve(quota, permit, 0.6)
    _fail(quota, _granted(quota, 0.7), Fault("rate"), now)
    return quota


def test_a_refusal_with_few_in_flight_blames_a_rate_and_the_next_try_is_a_second_later() -> None:
    quota = _droughty(0.8)
    assert quota.belief.width.cap.limit == inf
    wait = _held_back(quota, 1.2)
    assert (wait.resource, wait.reason) == ("hidden limit", "rate learned from refusals")
    assert wait.until_s == pytest.approx(1.7)
    assert quota.belief.ramp.most == pytest.approx(7.2)
    # How many may leave at once is not kept where the limit itself is not known.
    assert quota.belief.profile().per_second == inf


def test_after_a_drought_it_drives_again() -> None:
    quota = _droughty(0.8)
    for second in (1.7, 3.7):
        _fail(quota, _granted(quota, second), Fault("rate"), second + 0.1)
    quota.first_byte(_granted(quota, 7.7).id, Reading(), 8.0)
    assert quota.belief.ramp.most == inf
    for _ in range(19):
        _granted(quota, 8.0)


def test_a_hidden_limit_may_stand_beside_one_that_is_known() -> None:
    quota = Quota(QuotaConfig(limits=(REQUESTS,)), 0.0)
    for second in (0.0, 1.0):
        permit = _granted(quota, second)
        quota.first_byte(permit.id, Reading(), second)
        _fail(quota, permit, Fault("rate", "input"), second)
    assert _held_back(quota, 1.5).resource == "hidden limit"


def test_a_limit_that_is_told_replaces_the_guess_while_nothing_was_refused() -> None:
    quota = Quota(QuotaConfig(), 0.0)
    permit = _granted(quota, 0.0)
    quota.first_byte(permit.id, _requests(599.0), 0.5)
    [mirror] = quota.belief.mirrors
    assert (mirror.balance.limit.name, mirror.balance.limit.source) == ("requests/60s", "header")
    _serve(quota, permit, 1.0)
    _granted(quota, 1.0)


def test_a_limit_that_is_told_does_not_excuse_the_refusals_before() -> None:
    quota = _droughty(0.8)
    permit = _granted(quota, 1.7)
    _fail(quota, permit, Fault("rate"), 1.8, _requests(599.0))
    assert len(quota.belief.mirrors) == 1
    assert _held_back(quota, 3.0).resource == "hidden limit"


def test_a_limit_that_was_found_after_the_call_was_sent_still_learns_from_its_answer() -> None:
    quota = Quota(QuotaConfig(), 0.0)
    first, second = _granted(quota, 0.0), _granted(quota, 0.1)
    quota.first_byte(first.id, _requests(500.0), 0.5)
    quota.first_byte(second.id, _requests(300.0), 0.6)
    [mirror] = quota.belief.mirrors
    assert mirror.balance.level(0.6) == pytest.approx(305.0, abs=1.0)


def test_a_reading_corrects_the_limit_that_it_is_about_and_no_other() -> None:
    quota = Quota(QuotaConfig(limits=(Limit("input", 9000.0), REQUESTS)), 0.0)
    silent = LimitReading("output", 60.0, 600.0, None, None)
    reading = Reading((*_requests(300.0).limits, silent))
    quota.first_byte(_granted(quota, 0.0).id, reading, 0.0)
    assert [one.balance.level(0.0) for one in quota.belief.mirrors] == [8900.0, 300.0]


def test_a_smooth_flow_bunches_at_most_a_second_of_a_limit() -> None:
    quota = Quota(QuotaConfig(limits=(REQUESTS, SLOTS), pace="smooth"), 0.0)
    granted = 0
    while isinstance(quota.admit(CALL, 0.0), Permit):
        granted += 1
    assert 8 <= granted <= 10
    window = Limit("requests", 600.0, kind="fixed")
    smooth = Quota(QuotaConfig(limits=(window, SLOTS), pace="smooth"), 0.0)
    assert smooth.belief.mirrors[0].balance.limit == window


def test_what_a_user_configured_is_true_and_the_rest_comes_from_the_profile() -> None:
    learned = (Limit("requests", 50.0, source="profile"), Limit("input", 9.0, source="profile"))
    quota = Quota(QuotaConfig(limits=(REQUESTS,), profile=Profile(learned)), 0.0)
    limits = [one.balance.limit for one in quota.belief.mirrors]
    assert limits == [learned[1], REQUESTS]


def test_a_profile_says_of_which_limits_reservations_do_not_come_back() -> None:
    limits = (Limit("tokens", 600.0), Limit("requests", 60.0))
    profile = Profile(limits, kept=("tokens/60s",))
    belief = Belief(QuotaConfig(OPENAI, profile=profile), 0.0)
    assert [mirror.balance.toll.keeps for mirror in belief.mirrors] == [True, False]
    assert belief.profile().kept == ("tokens/60s",)


def test_a_profile_survives_a_run_in_which_nothing_happened() -> None:
    before = Profile(
        limits=(Limit("requests", 600.0, burst=600.0, source="profile"),
                Limit("input", 900.0, kind="fixed", source="profile")),
        width=6.0, cap=7.0, cap_probes=2, first_byte_s=0.3, per_token_s=0.01, per_second=5.0,
        curve=((4, 8.0, 0.02),),
    )  # fmt: skip
    quota = Quota(QuotaConfig(profile=before), 0.0)
    # What was seen of congestion counts half as much in each run that follows.
    assert quota.belief.profile() == replace(before, curve=((4, 4.0, 0.02),))


def test_a_profile_keeps_the_width_that_was_found_worth_having() -> None:
    def per_token_s(width: int) -> float:
        return 0.02 * (1.0 + 0.0038 * width * (width - 1))

    curve = tuple((width, 10.0, per_token_s(width)) for width in (1, 4, 8, 16, 32))
    quota = Quota(QuotaConfig(profile=Profile(width=4.0, curve=curve)), 0.0)
    kept = quota.belief.profile()
    assert 10.0 < kept.width < 17.0
    assert kept.cap == inf


def test_a_known_cap_and_a_known_ramp_hold_from_the_first_call_on() -> None:
    ramp = Profile((REQUESTS,), width=9.0, per_second=3.0)
    quota = Quota(QuotaConfig(profile=ramp), 0.0)
    for _ in range(3):
        _granted(quota, 0.0)
    assert _held_back(quota, 0.0) == Wait("burst", 1.0, "a burst was refused")
    capped = Quota(QuotaConfig(profile=Profile(width=9.0, cap=2.0)), 0.0)
    for _ in range(2):
        _granted(capped, 0.0)
    assert _held_back(capped, 0.0) == Wait("concurrency", 30.0, "2 in flight")


def test_a_call_costs_the_seconds_it_takes_of_the_resource_it_needs_most_of() -> None:
    belief = Quota(QuotaConfig(limits=(REQUESTS, Limit("input", 600.0))), 0.0).belief
    assert belief.cost_s(CALL.expected) == pytest.approx(10.0)
    assert Quota(QuotaConfig(), 0.0).belief.cost_s(CALL.expected) == 1.0
