"""Every rule of advice: driven by a number, flipped by that number."""

from __future__ import annotations

from math import inf

import pytest
from msgspec.structs import replace

from headway.base.values import Budget, Spend
from headway.report.options import AccountState, Situation
from tests.unit.advised import both, weigh

TIED = Situation(shape="coupled", coupled=0.0)
"""No rule favours either side; it is one agent then."""
SLICES = Situation(shape="slices")
"""The slices share nothing: several, unless another rule applies."""


def used(name: str, share: float) -> AccountState:
    return AccountState(used=((name, share),))


def left(tokens: float) -> tuple[Budget, Spend]:
    """A month of a million tokens, of which so many are left."""
    return Budget(tokens=1_000_000.0), Spend(tokens=1_000_000.0 - tokens)


Asked = tuple[Situation, float, float]
"""A situation, and how many times what one agent takes several take, in time and in money."""


def asked(base: Situation, times: float = 1.0, dearer: float = 1.0, **changes: object) -> Asked:
    return replace(base, **changes), times, dearer


def budgeted(base: Situation, share: float, dearer: float = 1.0, times: float = 1.0) -> Asked:
    """Several take this share of what is left of the month."""
    budget, spent = left(100_000.0 * dearer / share)
    return asked(base, times, dearer, budget=budget, spent=spent)


FLIPS: dict[str, tuple[Asked, Asked]] = {
    "coupled": (asked(SLICES, coupled=0.5), asked(SLICES, coupled=0.6)),
    "over budget": (budgeted(SLICES, 1.0), budgeted(SLICES, 1.2)),
    "limited budget": (budgeted(SLICES, 0.05, 1.25, 0.5), budgeted(SLICES, 0.06, 1.25, 0.5)),
    "perspectives": (asked(SLICES, shape="views", dearer=2.25),
                     asked(SLICES, shape="views", dearer=2.7)),
    "slower": (asked(SLICES, times=1.0, dearer=0.9, shape="views"),
               asked(SLICES, times=1.2, dearer=0.9, shape="views")),
    # An agent costs a dollar and takes 100 s, which are worth 1.67.
    "time and cost": (asked(TIED, times=0.9), asked(TIED, times=0.93)),
    "refusals": (asked(SLICES, state=AccountState(refused_share=0.05)),
                 asked(SLICES, state=AccountState(refused_share=0.06))),
    "near limits": (asked(SLICES, state=used("tokens/60s", 0.7)),
                    asked(SLICES, state=used("tokens/60s", 0.84))),
    "near limits, requests": (asked(SLICES, state=used("requests/60s", 0.6)),
                              asked(SLICES, state=used("requests/60s", 0.72))),
    "peak": (asked(SLICES, state=AccountState(slowdown=1.49)),
             asked(SLICES, state=AccountState(slowdown=1.8))),
    "peak, by flag": (asked(SLICES, state=AccountState(is_peak=False, slowdown=1.8)),
                      asked(SLICES, state=AccountState(is_peak=True))),
    "independent": (asked(SLICES, dearer=1.05), asked(SLICES, dearer=1.06)),
    "room": (asked(TIED, state=used("input/60s", 0.49)),
             asked(TIED, state=used("input/60s", 0.6))),
    "budget permits": (budgeted(TIED, 0.05), budgeted(TIED, 0.06)),
    "off-peak": (asked(TIED, state=AccountState(slowdown=1.2)),
                 asked(TIED, state=AccountState(slowdown=1.44))),
    "off-peak, by flag": (asked(TIED, state=AccountState(is_peak=False)), asked(TIED)),
}  # fmt: skip
"""By rule: a number at which it is several, and 20 % further, where it is one agent."""


@pytest.mark.parametrize("name", FLIPS)
def test_a_rule_flips_when_its_number_moves_past_its_threshold(name: str) -> None:
    several, one = (weigh(side[0], both(*side)) for side in FLIPS[name])
    assert (several.side, one.side) == ("several", "one")
    decided = [advice.reasons[0].rule for advice in (several, one) if advice.reasons]
    assert name.partition(",")[0] in decided, "another rule decided"


def test_the_first_rule_decides_and_those_overruled_name_it() -> None:
    situation = replace(SLICES, shape="views", coupled=0.9)
    advice = weigh(situation, both(situation, 0.9, 1.94))
    assert [(one.rule, one.side, one.overruled_by) for one in advice.reasons] == [
        ("coupled", "one", ""), ("perspectives", "several", "coupled"),
        ("time and cost", "one", ""),
    ]  # fmt: skip
    assert "1.9 times as much" in advice.reasons[1].reason


def test_numbers_come_before_the_state_of_the_account_because_they_contain_it() -> None:
    situation = replace(SLICES, state=AccountState((("tokens/60s", 0.9),), 0.2, 3.0))
    assert weigh(situation, both(situation, 0.5, 1.1)).side == "several"
    assert weigh(situation, both(situation, 1.0, 1.01)).side == "one"


def test_a_way_that_never_ends_loses_and_two_of_them_are_alike() -> None:
    assert weigh(TIED, both(TIED, 1.0, 1.0, inf)).reasons == ()
    assert "without end" in weigh(TIED, both(TIED, inf)).reasons[0].reason


def test_where_no_price_is_known_cost_is_counted_in_tokens() -> None:
    situation = replace(TIED, shape="views")
    one, several = both(situation, 1.0, 1.5)
    several = replace(several, foreseen=replace(several.foreseen, microusd=None))
    assert "1.5 times as much" in weigh(situation, (one, several)).reasons[0].reason


def test_a_budget_that_is_used_up_takes_all_and_more() -> None:
    budget, spent = left(0.0)
    situation = replace(TIED, budget=budget, spent=spent)
    advice = weigh(situation, both(situation))
    assert "all and more" in advice.reasons[0].reason
    assert advice.when == "later"
