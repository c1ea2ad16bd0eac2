"""The rules by which `advise` recommends one agent or several.

Each rule looks at one number that was measured or rehearsed. It favours several agents, favours
one agent, or does not apply. The first rule of `RULES` that applies decides; the others are shown
as agreeing or overruled. The order:
1. What is impossible: parts that need each other, or a cost above the budget.
2. Money, if little of the budget is left.
3. Several views of one thing, if they cost about twice as much as one agent or less.
4. Rehearsed time and cost, where they differ by more than they err. They include the state of the
   account.
5. Signs of trouble on the account decide between ways that are otherwise alike: for one agent.
6. Then what favours several: independent slices, room in the limits and the budget, quiet hours.
If no rule applies, one agent is as good, and simpler.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final, Literal

from msgspec import Struct

from headway.report.options import Option, Situation, value_of

COUPLED_SHARE: Final = 0.5
"""Share of the agents that need what another found: above it, one agent does the work."""
WORTH_VIEWS: Final = 2.25
"""How many times the cost of one agent several views are worth. A review by four costs 1.94."""
BUDGET_SHARE: Final = 0.05
"""A run that takes more than this of what is left of the month is expensive: fewer than 20 fit."""
ALIKE: Final = 0.05
"""Values that differ by less are the same: sizes are not known any better."""
REFUSED_SHARE: Final = 0.05
"""More refused calls than this are frequent."""
NEAR_TOKENS: Final = 0.70
NEAR_REQUESTS: Final = 0.60
WELL_BELOW: Final = 0.50
"""Shares of a limit in use that are near it, and well below it."""
PEAK_SLOWDOWN: Final = 1.5
QUIET_SLOWDOWN: Final = 1.2
"""How many times slower than usual: from here on it is peak time, and up to here it is quiet."""

Side = Literal["several", "one"]
Opinion = tuple[Side, str] | None
"""What a rule favours and why; None if it does not apply."""


class RuleFacts(Struct, frozen=True):
    """What the rules look at: the situation, one agent, and the best that several can do."""

    situation: Situation
    one: Option
    several: Option

    @property
    def cost_ratio(self) -> float:
        """How many times what one agent costs: in money, or in tokens where no price is known."""
        if self.several.foreseen.microusd is None or self.one.microusd <= 0:
            return self.several.tokens / self.one.tokens
        return self.several.microusd / self.one.microusd

    def budget_share(self, option: Option) -> float | None:
        """Of what is left of the month, the share that a run takes; None without a budget."""
        shares = [
            portion.takes.mid / portion.left if portion.left > 0 else inf
            for portion in option.foreseen.portions
            if portion.resets_s is None
        ]
        return max(shares, default=None)

    def used(self, *resources: str) -> float | None:
        """The largest share in use among limits on these; None if none was measured."""
        shares = [
            share
            for name, share in self.situation.state.used
            if name.partition("/")[0] in resources
        ]
        return max(shares, default=None)


def _coupled(facts: RuleFacts) -> Opinion:
    share = facts.situation.coupled_share
    if share <= COUPLED_SHARE:
        return None
    return "one", f"{share:.0%} of the parts need what another one finds"


def _over_budget(facts: RuleFacts) -> Opinion:
    share = facts.budget_share(facts.several)
    if share is None or share <= 1.0:
        return None
    return "one", f"several would take {_percent(share)} of what is left of the budget"


def _limited_budget(facts: RuleFacts) -> Opinion:
    share = facts.budget_share(facts.several)
    if share is None or share <= BUDGET_SHARE or facts.cost_ratio <= 1.0 + ALIKE:
        return None
    return "one", f"a run by several takes {_percent(share)} of what is left of the budget"


def _perspectives(facts: RuleFacts) -> Opinion:
    situation, ratio = facts.situation, facts.cost_ratio
    if situation.shape != "views" or ratio > WORTH_VIEWS:
        return None
    what = f"each of {situation.agents} views of the same thing is worth it"
    return "several", f"{what}, though several cost {ratio:.1f} times as much"


def _time_and_cost(facts: RuleFacts) -> Opinion:
    one, several = value_of(facts.one), value_of(facts.several)
    best, other = min(one, several), max(one, several)
    if other == best or other < best * (1.0 + ALIKE):
        return None
    share = f"{(other / best - 1.0):.0%} more" if other < inf else "without end"
    if several < one:
        return "several", f"one agent would cost {share}, with time at its worth"
    return "one", f"several would cost {share}, with time at its worth"


def _refusals(facts: RuleFacts) -> Opinion:
    share = facts.situation.state.refused_share
    if share is None or share <= REFUSED_SHARE:
        return None
    return "one", f"{share:.0%} of the calls were refused lately"


def _near_limits(facts: RuleFacts) -> Opinion:
    for resources, most in ((("tokens", "input", "output"), NEAR_TOKENS),
                            (("requests", "concurrency"), NEAR_REQUESTS)):  # fmt: skip
        used = facts.used(*resources)
        if used is not None and used > most:
            return "one", f"{used:.0%} of the limit on {resources[0]} is in use"
    return None


def _peak(facts: RuleFacts) -> Opinion:
    state = facts.situation.state
    if state.is_peak:
        return "one", "it is peak time: queues make several slow"
    if state.is_peak is False or state.slowdown is None or state.slowdown < PEAK_SLOWDOWN:
        return None
    return "one", f"it is peak time: answers take {state.slowdown:.1f} times as long as usual"


def _independent(facts: RuleFacts) -> Opinion:
    if facts.situation.shape != "slices" or facts.cost_ratio > 1.0 + ALIKE:
        return None
    return "several", "the slices need nothing of each other, and share nothing to be read"


def _room(facts: RuleFacts) -> Opinion:
    used = facts.used("tokens", "input", "output", "requests", "concurrency")
    if used is None or used >= WELL_BELOW:
        return None
    return "several", f"at most {used:.0%} of any limit is in use"


def _budget_permits(facts: RuleFacts) -> Opinion:
    share = facts.budget_share(facts.several)
    if share is None or share > BUDGET_SHARE:
        return None
    return "several", f"a run takes {_percent(share)} of what is left of the budget"


def _off_peak(facts: RuleFacts) -> Opinion:
    state = facts.situation.state
    if state.is_peak is False:
        return "several", "it is not peak time"
    if state.is_peak or state.slowdown is None or state.slowdown > QUIET_SLOWDOWN:
        return None
    return "several", f"answers come at {state.slowdown:.1f} times their usual time"


RULES: Final[tuple[tuple[str, Callable[[RuleFacts], Opinion]], ...]] = (
    ("coupled", _coupled),
    ("over budget", _over_budget),
    ("limited budget", _limited_budget),
    ("perspectives", _perspectives),
    ("time and cost", _time_and_cost),
    ("refusals", _refusals),
    ("near limits", _near_limits),
    ("peak", _peak),
    ("independent", _independent),
    ("room", _room),
    ("budget permits", _budget_permits),
    ("off-peak", _off_peak),
)


def _percent(share: float) -> str:
    return "all and more" if share == inf else f"{share:.1%}"
