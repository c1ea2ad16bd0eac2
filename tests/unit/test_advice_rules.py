"""Every row of the matrix and every recommendation: driven by a number, flipped by that number."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

import pytest

from headway.pacing.memory import MonthlyBudget, Spend
from headway.report.advise import recommend
from headway.report.options import AccountState, Situation
from headway.report.rules import RULES
from tests.unit.advised import both, exactly

TIED = Situation(shape="coupled", coupled=0.0, prefer="time")
"""Nothing speaks for either side; it is one agent then."""
SLICES = Situation(shape="slices", prefer="time")
"""The slices share nothing: several, unless something else speaks."""


def used(name: str, share: float) -> AccountState:
    return AccountState(used=((name, share),))


def left(tokens: float) -> tuple[MonthlyBudget, Spend]:
    """A month of a million tokens, of which so many are left."""
    return MonthlyBudget(tokens=1_000_000.0), Spend(tokens=1_000_000.0 - tokens)


@dataclass(frozen=True, slots=True)
class Told:
    """A situation, and what several take of what one agent takes."""

    situation: Situation
    times: float = 1.0
    dearer: float = 1.0

    @property
    def side(self) -> str:
        return recommend(self.situation, both(self.situation, self.times, self.dearer)).side

    @property
    def decided(self) -> str:
        advice = recommend(self.situation, both(self.situation, self.times, self.dearer))
        return advice.reasons[0].rule if advice.reasons else ""


def told(base: Situation, times: float = 1.0, dearer: float = 1.0, **changes: object) -> Told:
    return Told(replace(base, **changes), times, dearer)  # type: ignore[arg-type]


def budgeted(base: Situation, share: float, dearer: float = 1.0, times: float = 1.0) -> Told:
    """Several take this share of what is left of the month."""
    budget, spent = left(100_000.0 * dearer / share)
    return told(base, times, dearer, budget=budget, spent=spent)


ENTERPRISE = replace(TIED, stakes="enterprise")
MONEY = replace(TIED, prefer="balanced", hour_microusd=0)
"""Of two ways the cheaper one, if nothing else speaks."""

FLIPS: dict[str, tuple[Told, Told]] = {
    "coupled": (told(SLICES, coupled=0.5), told(SLICES, coupled=0.6)),
    "over budget": (budgeted(ENTERPRISE, 1.0), budgeted(ENTERPRISE, 1.2)),
    "enterprise": (told(MONEY, stakes="enterprise", dearer=4.0),
                   told(MONEY, stakes="enterprise", dearer=4.8)),
    "release": (told(MONEY, stakes="release", dearer=2.5),
                told(MONEY, stakes="release", dearer=3.0)),
    "quality": (told(MONEY, prefer="quality", dearer=2.5),
                told(MONEY, prefer="quality", dearer=3.0)),
    "cost": (told(SLICES, times=0.5, dearer=1.24, is_cost_sensitive=True),
             told(SLICES, times=0.5, dearer=1.5, is_cost_sensitive=True)),
    "limited budget": (budgeted(SLICES, 0.05, 1.9, 0.5), budgeted(SLICES, 0.06, 1.9, 0.5)),
    "small change": (told(SLICES, files=2), told(SLICES, files=1)),
    "urgent": (told(TIED, times=0.64, is_urgent=True), told(TIED, times=0.71, is_urgent=True)),
    "perspectives": (told(MONEY, shape="views", dearer=2.25),
                     told(MONEY, shape="views", dearer=2.7)),
    "preferred": (told(TIED, times=1 / 1.06), told(TIED, times=1 / 1.049)),
    "refusals": (told(SLICES, state=AccountState(refused_share=0.05)),
                 told(SLICES, state=AccountState(refused_share=0.06))),
    "near limits": (told(SLICES, state=used("tokens/60s", 0.7)),
                    told(SLICES, state=used("tokens/60s", 0.84))),
    "near limits, requests": (told(SLICES, state=used("requests/60s", 0.6)),
                              told(SLICES, state=used("requests/60s", 0.72))),
    "peak": (told(SLICES, state=AccountState(slowdown=1.49)),
             told(SLICES, state=AccountState(slowdown=1.8))),
    "peak, as somebody says": (told(SLICES, state=AccountState(is_peak=False, slowdown=1.8)),
                               told(SLICES, state=AccountState(is_peak=True))),
    "slow answers": (told(SLICES, state=AccountState(first_byte_s=2.0)),
                     told(SLICES, state=AccountState(first_byte_s=2.4))),
    "independent": (told(SLICES, dearer=1.05), told(SLICES, dearer=1.06)),
    "room": (told(TIED, state=used("input/60s", 0.49)),
             told(TIED, state=used("input/60s", 0.6))),
    "budget permits": (budgeted(TIED, 0.05), budgeted(TIED, 0.06)),
    "off-peak": (told(TIED, state=AccountState(slowdown=1.2)),
                 told(TIED, state=AccountState(slowdown=1.44))),
    "off-peak, as somebody says": (told(TIED, state=AccountState(is_peak=False)), told(TIED)),
}  # fmt: skip
"""By rule: a number at which it is several, and 20 % further, where it is one agent."""


@pytest.mark.parametrize("name", FLIPS)
def test_a_rule_flips_when_its_number_moves_a_fifth_past_its_threshold(name: str) -> None:
    several, one = FLIPS[name]
    assert (several.side, one.side) == ("several", "one")
    rule = name.partition(",")[0]
    assert rule in (several.decided, one.decided), "another rule decided"


def test_every_rule_is_shown_to_flip() -> None:
    assert {name.partition(",")[0] for name in FLIPS} == {rule.name for rule in RULES}


def test_every_row_of_the_matrix_and_every_recommendation_has_a_rule() -> None:
    rows = " ; ".join(rule.row for rule in RULES)
    for row in (
        "off-peak hours", "peak hours", "cost sensitive", "one file change", "release review",
        "multiple perspectives needed", "emergency fix", "enterprise quality",
        "well below rate limits", "token budget permits", "quality over speed",
        "near rate limits", "limited token budget", "speed is primary", "simple changes",
    ):  # fmt: skip
        assert row in rows


def test_the_reason_carries_the_number_and_says_that_it_costs_double() -> None:
    situation = replace(TIED, stakes="release")
    (reason, *_) = recommend(situation, both(situation, 1.0, 1.94)).reasons
    assert reason.rule == "release"
    assert "1.9 times as much" in reason.reason
    hurried = replace(TIED, is_urgent=True)
    assert "save 10% of the time" in recommend(hurried, both(hurried, 0.9)).reasons[0].reason
    assert "take 20% longer" in recommend(hurried, both(hurried, 1.2)).reasons[0].reason


def test_the_first_rule_decides_and_those_overruled_say_by_whom() -> None:
    situation = replace(SLICES, stakes="release", files=1, is_urgent=True)
    advice = recommend(situation, both(situation, 0.5, 1.9))
    assert [(one.rule, one.side, one.overruled_by) for one in advice.reasons] == [
        ("release", "several", ""), ("small change", "one", "release"), ("urgent", "several", ""),
        ("preferred", "several", ""),
    ]  # fmt: skip


def test_what_cannot_be_comes_before_what_is_worth_it() -> None:
    situation = replace(TIED, stakes="enterprise", coupled=0.9)
    assert recommend(situation, both(situation, 0.1)).side == "one"


def test_numbers_come_before_the_state_of_the_account_because_they_contain_it() -> None:
    state = AccountState((("tokens/60s", 0.9),), 0.2, 5.0, 3.0)
    situation = replace(SLICES, state=state)
    assert recommend(situation, both(situation, 0.5, 1.9)).side == "several"
    assert recommend(situation, both(situation, 1.0, 1.9)).side == "one"


def test_each_preference_has_its_own_words() -> None:
    said = {}
    for prefer in ("time", "cost", "balanced"):
        situation = replace(TIED, prefer=prefer)
        said[prefer] = recommend(situation, both(situation, 0.5, 1.5)).reasons[-1]
    assert said["time"].reason == "one agent would take 100% more time"
    assert said["cost"].reason == "several would cost 50% more"
    assert said["balanced"].side == "several" or "with time at its worth" in said["balanced"].reason
    never = replace(TIED, prefer="time")
    assert recommend(never, both(never, 1.0, 1.0, inf)).reasons == ()
    hurried = replace(TIED, is_urgent=True)
    assert recommend(hurried, both(hurried, 1.0, 1.0, inf)).side == "one"
    one, several = both(hurried)
    endless = replace(one, foreseen=replace(one.foreseen, time_s=exactly(inf)))
    assert recommend(hurried, (endless, several)).side == "several"
    assert "without end" in recommend(never, both(never, inf)).reasons[0].reason


def test_where_no_price_is_known_cost_is_counted_in_tokens() -> None:
    situation = replace(TIED, stakes="release")
    one, several = both(situation, 1.0, 1.5)
    several = replace(several, foreseen=replace(several.foreseen, microusd=None))
    (reason, *_) = recommend(situation, (one, several)).reasons
    assert "1.5 times as much" in reason.reason


def test_a_budget_that_is_used_up_takes_all_and_more() -> None:
    budget, spent = left(0.0)
    situation = replace(TIED, budget=budget, spent=spent)
    advice = recommend(situation, both(situation))
    assert "all and more" in advice.reasons[0].reason
    assert advice.when == "later"
