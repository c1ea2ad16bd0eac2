"""The rules by which `advise` recommends one agent or several.

Each rule looks at one number that was measured or rehearsed. The first rule that applies decides;
the others are shown as agreeing or overruled. The order: what is impossible; money, if little is
left; several views of one thing; rehearsed time and cost, where they differ by more than they err;
signs of trouble on the account, for one agent; then what favours several. If no rule applies, one
agent is as good, and simpler.
"""

from __future__ import annotations

from collections.abc import Iterator
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
Opinion = tuple[str, Side, str]
"""The name of a rule that applies, what it favours, and why."""


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


def opinions(facts: RuleFacts) -> list[Opinion]:
    """Every rule that applies; the first one decides."""
    return [*_possible(facts), *_rehearsed(facts), *_trouble(facts), *_several(facts)]


def _possible(facts: RuleFacts) -> Iterator[Opinion]:
    """What is impossible, and money if little of it is left."""
    coupled = facts.situation.coupled_share
    if coupled > COUPLED_SHARE:
        yield "coupled", "one", f"{coupled:.0%} of the parts need what another one finds"
    share = facts.budget_share(facts.several)
    if share is None:
        return
    if share > 1.0:
        words = f"several would take {_percent(share)} of what is left of the budget"
        yield "over budget", "one", words
    if share > BUDGET_SHARE and facts.cost_ratio > 1.0 + ALIKE:
        words = f"a run by several takes {_percent(share)} of what is left of the budget"
        yield "limited budget", "one", words


def _rehearsed(facts: RuleFacts) -> Iterator[Opinion]:
    """Several views, and time and cost where they differ by more than they err."""
    ratio = facts.cost_ratio
    if facts.situation.shape == "views" and ratio <= WORTH_VIEWS:
        what = f"each of {facts.situation.agents} views of the same thing is worth it"
        yield "perspectives", "several", f"{what}, though several cost {ratio:.1f} times as much"
    one, several = value_of(facts.one), value_of(facts.several)
    best, other = min(one, several), max(one, several)
    if other != best and other >= best * (1.0 + ALIKE):
        more = f"{(other / best - 1.0):.0%} more" if other < inf else "without end"
        whom = "one agent" if several < one else "several"
        words = f"{whom} would cost {more}, with time at its worth"
        yield "time and cost", "several" if several < one else "one", words


def _trouble(facts: RuleFacts) -> Iterator[Opinion]:
    """Signs of trouble on the account."""
    state = facts.situation.state
    if state.refused_share is not None and state.refused_share > REFUSED_SHARE:
        words = f"{state.refused_share:.0%} of the calls were refused lately"
        yield "refusals", "one", words
    for resources, most in ((("tokens", "input", "output"), NEAR_TOKENS),
                            (("requests", "concurrency"), NEAR_REQUESTS)):  # fmt: skip
        used = facts.used(*resources)
        if used is not None and used > most:
            yield "near limits", "one", f"{used:.0%} of the limit on {resources[0]} is in use"
            break
    if state.is_peak:
        yield "peak", "one", "it is peak time: queues make several slow"
    elif state.is_peak is None and (state.slowdown or 0.0) >= PEAK_SLOWDOWN:
        words = f"it is peak time: answers take {state.slowdown:.1f} times as long as usual"
        yield "peak", "one", words


def _several(facts: RuleFacts) -> Iterator[Opinion]:
    """What favours several, if nothing else decides."""
    state = facts.situation.state
    if facts.situation.shape == "slices" and facts.cost_ratio <= 1.0 + ALIKE:
        words = "the slices need nothing of each other, and share nothing to be read"
        yield "independent", "several", words
    used = facts.used("tokens", "input", "output", "requests", "concurrency")
    if used is not None and used < WELL_BELOW:
        yield "room", "several", f"at most {used:.0%} of any limit is in use"
    share = facts.budget_share(facts.several)
    if share is not None and share <= BUDGET_SHARE:
        words = f"a run takes {_percent(share)} of what is left of the budget"
        yield "budget permits", "several", words
    if state.is_peak is False:
        yield "off-peak", "several", "it is not peak time"
    elif state.is_peak is None and state.slowdown is not None and state.slowdown <= QUIET_SLOWDOWN:
        words = f"answers come at {state.slowdown:.1f} times their usual time"
        yield "off-peak", "several", words


def _percent(share: float) -> str:
    return "all and more" if share == inf else f"{share:.1%}"
