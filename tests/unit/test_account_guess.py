"""An account as a provider to rehearse against: described, remembered, unknown, as it is now."""

from __future__ import annotations

from math import inf

import pytest

from headway.base.values import Limit
from headway.pacing.account import Profile
from headway.pacing.memory import AccountMemory
from headway.pacing.view import AccountView, LimitView
from headway.report.options import (
    DOCUMENTED,
    AccountGuess,
    AccountState,
    as_it_is_now,
    described_account,
    latency_of,
    profile_of,
    remembered_account,
    unknown_account,
)
from headway.sim.account import Terms
from headway.sim.presets import PROVIDERS
from headway.sim.provider import Latency, ProviderSpec

TOKENS = Limit("tokens", 100_000)


def view(*limits: LimitView, granted: int = 0, refused: int = 0) -> AccountView:
    return AccountView(
        "host#1", "m", "anthropic", 0.5, "fast", limits, inf, 0, granted, refused, None, ()
    )


def lane(profile: Profile, dialect: str = "anthropic") -> AccountMemory:
    return AccountMemory("host#1", "m", dialect, profile)


def test_where_nothing_is_known_the_documents_account_is_assumed_and_hidden() -> None:
    guess = unknown_account()
    assert guess.spec.terms.hidden == DOCUMENTED
    assert (guess.spec.terms.limits, guess.spec.dialect, guess.profile) == ((), "plain", None)
    assert "500 requests" in guess.assumed[0]


def test_speeds_in_company_come_back_from_what_was_measured_at_several_widths() -> None:
    latency = Latency(2.0, 0.05, 0.02, 0.125)
    found = latency_of(profile_of(ProviderSpec("p", Terms(), latency)))
    assert found.per_output_token_s == pytest.approx(0.05, rel=0.05)
    assert found.first_byte_s == pytest.approx(2.0, rel=0.05)
    for width in (2, 5, 12):
        assert found.slowdown(width) == pytest.approx(latency.slowdown(width), rel=0.1)


def test_a_described_account_is_known_with_its_limits_its_cap_and_its_worth() -> None:
    trap = described_account(PROVIDERS["trap"].spec)
    assert trap.profile is not None
    assert trap.profile.cap == 20
    assert 3 <= trap.profile.width <= 6
    assert {limit.resource for limit in trap.profile.limits} == {"requests", "tokens"}
    roomy = described_account(PROVIDERS["wide"].spec).profile
    assert roomy is not None
    assert (roomy.cap, roomy.width) == (inf, 32.0)


def test_a_remembered_account_has_its_limits_its_neighbour_and_its_state() -> None:
    profile = Profile(cap=7.0, first_byte_s=2.0, per_token_s=0.03)
    seen = view(LimitView(TOKENS, 40_000.0, 3.0, 500.0), granted=50, refused=5)
    guess = remembered_account(lane(profile), seen)
    assert guess.spec.terms.limits == (TOKENS,)
    assert [limit.amount for limit in guess.spec.terms.hidden] == [7.0]
    assert guess.spec.terms.charging == "produced"
    assert guess.spec.terms.neighbour is not None
    assert guess.spec.terms.neighbour.share == pytest.approx(0.3)
    assert guess.state == AccountState((("tokens/60s", 0.4),), 0.1)
    assert (guess.share, guess.learned_calls, guess.learned_from) == (0.5, 50, "host#1 m")
    assert guess.assumed == ()


def test_a_known_number_at_once_is_not_hidden_beside_it() -> None:
    gauge = Limit("concurrency", 5, 0.0, "gauge")
    guess = remembered_account(lane(Profile(cap=7.0)), view(LimitView(gauge, 0.0, None, 0.0)))
    assert (guess.spec.terms.limits, guess.spec.terms.hidden) == ((gauge,), ())


def test_an_account_that_told_of_no_limit_is_taken_to_have_none() -> None:
    guess = remembered_account(lane(Profile(), "never heard of"), view())
    assert guess.spec.terms == Terms()
    assert guess.spec.dialect == "plain"
    assert "no limit" in guess.assumed[0]
    assert remembered_account(lane(Profile(), "openai"), view()).spec.terms.charging == "reserved"
    assert guess.state.refused_share is None


def test_what_is_taken_of_a_limit_is_gone_when_a_rehearsal_begins() -> None:
    guess = AccountGuess(ProviderSpec("p", Terms((TOKENS,))))
    now = as_it_is_now(guess, AccountState((("requests/60s", 0.2), ("tokens/60s", 0.8))))
    assert now.spec.terms.neighbour is not None
    assert now.spec.terms.neighbour.wants(0.0) == pytest.approx(0.8 * 60)
    assert now.spec.terms.neighbour.wants(30.0) == 0.0
    assert as_it_is_now(guess, AccountState(slowdown=1.0)).spec == guess.spec
    slow = as_it_is_now(guess, AccountState(slowdown=2.0)).spec.latency
    assert slow.first_byte_s == 2.0 * guess.spec.latency.first_byte_s
    # Who draws all the time is there already.
    again = as_it_is_now(now, AccountState((("tokens/60s", 0.1),)))
    assert again.spec.terms.neighbour == now.spec.terms.neighbour
