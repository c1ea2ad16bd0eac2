"""When to use several agents and when one: every row of the documents' matrix as a rule of its own.

"Concurrent vs. Parallel Execution" gives eight situations and ten recommendations, with a column
for each side and a reason. Here each is a rule over a number that was measured or rehearsed, with
its threshold below. A rule speaks for several agents, for one, or not at all.

Precedence: the first rule in `RULES` that speaks decides, and those after it are told as agreeing
or overruled. The order, and why:
1. What cannot be: work whose parts need each other, or that the budget cannot pay.
2. What is worth more than money: enterprise and release stakes, quality asked for. It costs about
   twice as much, and the reason says so; above a multiple that is set here it is not worth it.
3. Money, if somebody says that it counts or little of the budget is left.
4. The size of the change: nobody needs a panel for one file.
5. Urgency: whichever is really faster, and one agent if several gain less than is noticed.
6. Several views of one thing, if they are worth about double. A shape of work is no reason to
   spend against one's word, so this comes after money, size and hurry.
7. What was preferred, by the rehearsed numbers, where they differ by more than they err. What the
   account's state does to time and cost is in these numbers already...
8. ...so that signs of trouble in it (refusals, limits nearly used, peak hours, slow answers) only
   decide between ways that are otherwise alike: for one agent, which has less to lose.
9. Then what favours several: independent slices, room, a budget that permits it, quiet hours.
If nothing speaks, it is one agent: as good, and simpler.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final, Literal

from headway.report.options import Option, Situation, waiting_microusd

COUPLED_SHARE: Final = 0.5
"""Of the agents, those that need what another found: from here on it is one agent's work."""
WORTH_ENTERPRISE: Final = 4.0
WORTH_RELEASE: Final = 2.5
WORTH_QUALITY: Final = 2.5
WORTH_VIEWS: Final = 2.25
"""How many times the cost of one agent several are worth. The documents' panel costs 1.94."""
COST_SIGNIFICANT: Final = 1.25
"""For whom cost counts, this many times the cost is too much."""
BUDGET_SHARE: Final = 0.05
"""A run that takes more of what is left of the month than this is dear: fewer than 20 are left."""
FILES_SMALL: Final = 1
"""A change of so many files is small."""
URGENT_GAIN: Final = 0.30
"""Time that several must save to matter in a hurry: "20-30% is not meaningful"."""
ALIKE: Final = 0.05
"""Values that differ by less are the same: sizes are not known any better."""
ALIKE_COST: Final = 0.005
"""The same for whom only cost counts: one agent is never dearer, however sizes were misjudged."""
REFUSED_SHARE: Final = 0.05
"""More calls turned away than this are frequent."""
NEAR_TOKENS: Final = 0.70
NEAR_REQUESTS: Final = 0.60
WELL_BELOW: Final = 0.50
"""Shares of a limit in use: "TPM usage > 70%", "RPM usage > 60%", "usage < 50%"."""
PEAK_SLOWDOWN: Final = 1.5
QUIET_SLOWDOWN: Final = 1.2
"""How many times slower than usual: from here on it is peak time, and up to here it is quiet."""
SLOW_FIRST_BYTE_S: Final = 2.0
""""Response times > 2 seconds"."""

Side = Literal["several", "one"]


@dataclass(frozen=True, slots=True)
class RuleFacts:
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

    @property
    def gain(self) -> float:
        """Share of one agent's time that several save; negative if they are slower."""
        if self.one.time_s == inf:
            return 1.0 if self.several.time_s < inf else 0.0
        return 1.0 - self.several.time_s / self.one.time_s

    def budget_share(self, option: Option) -> float | None:
        """Of what is left of the month, the share that a run takes; None without a budget."""
        shares = [
            portion.takes.mid / portion.left if portion.left > 0 else inf
            for portion in option.foreseen.portions
            if portion.resets_s is None
        ]
        return max(shares, default=None)

    def used(self, *resources: str) -> float | None:
        """The largest share in use among limits on these; None if nobody measured one."""
        shares = [
            share
            for name, share in self.situation.state.used
            if name.partition("/")[0] in resources
        ]
        return max(shares, default=None)


@dataclass(frozen=True, slots=True)
class RuleOpinion:
    """What a rule says."""

    side: Side
    reason: str


@dataclass(frozen=True, slots=True)
class AdviceRule:
    """One row: its name, what the documents call it, and what it says of some facts."""

    name: str
    row: str
    speaks: Callable[[RuleFacts], RuleOpinion | None]


def value_of(situation: Situation, option: Option) -> float:
    """What is to be as small as possible, by what was preferred: seconds, or micro-dollars."""
    if situation.prefer == "time":
        return option.time_s
    if situation.prefer == "cost":
        return option.microusd
    return option.microusd + waiting_microusd(situation.hour_microusd, option.time_s)


def _coupled(facts: RuleFacts) -> RuleOpinion | None:
    share = facts.situation.coupled_share
    if share <= COUPLED_SHARE:
        return None
    return RuleOpinion("one", f"{share:.0%} of the parts need what another one finds")


def _over_budget(facts: RuleFacts) -> RuleOpinion | None:
    share = facts.budget_share(facts.several)
    if share is None or share <= 1.0:
        return None
    return RuleOpinion("one", f"several would take {_percent(share)} of what is left of the budget")


def _worth(facts: RuleFacts, most: float, what: str) -> RuleOpinion | None:
    ratio = facts.cost_ratio
    if ratio > most:
        return None
    return RuleOpinion(
        "several", f"{what} is worth it, though several cost {ratio:.1f} times as much"
    )


def _enterprise(facts: RuleFacts) -> RuleOpinion | None:
    is_asked = facts.situation.stakes == "enterprise"
    return _worth(facts, WORTH_ENTERPRISE, "enterprise quality") if is_asked else None


def _release(facts: RuleFacts) -> RuleOpinion | None:
    is_asked = facts.situation.stakes == "release"
    return _worth(facts, WORTH_RELEASE, "a release") if is_asked else None


def _quality(facts: RuleFacts) -> RuleOpinion | None:
    is_asked = facts.situation.prefer == "quality"
    return _worth(facts, WORTH_QUALITY, "quality before speed") if is_asked else None


def _cost_sensitive(facts: RuleFacts) -> RuleOpinion | None:
    ratio = facts.cost_ratio
    if not facts.situation.is_cost_sensitive or ratio < COST_SIGNIFICANT:
        return None
    return RuleOpinion("one", f"cost counts, and several cost {ratio:.1f} times as much")


def _limited_budget(facts: RuleFacts) -> RuleOpinion | None:
    share = facts.budget_share(facts.several)
    if share is None or share <= BUDGET_SHARE or facts.cost_ratio <= 1.0 + ALIKE:
        return None
    return RuleOpinion(
        "one", f"a run by several takes {_percent(share)} of what is left of the budget"
    )


def _small_change(facts: RuleFacts) -> RuleOpinion | None:
    files = facts.situation.files
    if files is None or files > FILES_SMALL:
        return None
    return RuleOpinion("one", f"a change of {files} file needs no more")


def _urgent(facts: RuleFacts) -> RuleOpinion | None:
    if not facts.situation.is_urgent:
        return None
    gain = facts.gain
    if gain < URGENT_GAIN:
        said = f"save {gain:.0%} of the time" if gain > 0 else f"take {-gain:.0%} longer"
        return RuleOpinion("one", f"in a hurry several {said}, which does not help")
    return RuleOpinion("several", f"in a hurry several save {gain:.0%} of the time")


def _perspectives(facts: RuleFacts) -> RuleOpinion | None:
    situation = facts.situation
    if situation.shape != "views" or situation.agents < 2:
        return None
    what = f"each of {situation.agents} views of the same thing"
    return _worth(facts, WORTH_VIEWS, what)


def _preferred(facts: RuleFacts) -> RuleOpinion | None:
    situation = facts.situation
    one, several = value_of(situation, facts.one), value_of(situation, facts.several)
    side: Side = "several" if several < one else "one"
    best, other = min(one, several), max(one, several)
    if other == best or other < best * (
        1.0 + (ALIKE_COST if situation.prefer == "cost" else ALIKE)
    ):
        return None
    share = f"{(other / best - 1.0):.0%} more" if other < inf else "without end"
    loser = "one agent" if side == "several" else "several"
    if situation.prefer == "time":
        return RuleOpinion(side, f"{loser} would take {share} time")
    if situation.prefer == "cost":
        return RuleOpinion(side, f"{loser} would cost {share}")
    return RuleOpinion(side, f"{loser} would cost {share}, with time at its worth")


def _refusals(facts: RuleFacts) -> RuleOpinion | None:
    share = facts.situation.state.refused_share
    if share is None or share <= REFUSED_SHARE:
        return None
    return RuleOpinion("one", f"{share:.0%} of the calls were turned away lately")


def _near_limits(facts: RuleFacts) -> RuleOpinion | None:
    for resources, most in ((("tokens", "input", "output"), NEAR_TOKENS),
                            (("requests", "concurrency"), NEAR_REQUESTS)):  # fmt: skip
        used = facts.used(*resources)
        if used is not None and used > most:
            return RuleOpinion("one", f"{used:.0%} of the limit on {resources[0]} is in use")
    return None


def _peak(facts: RuleFacts) -> RuleOpinion | None:
    state = facts.situation.state
    if state.is_peak:
        return RuleOpinion("one", "it is peak time: queues make several slow")
    if state.is_peak is False or state.slowdown is None or state.slowdown < PEAK_SLOWDOWN:
        return None
    return RuleOpinion(
        "one", f"it is peak time: answers take {state.slowdown:.1f} times as long as usual"
    )


def _slow(facts: RuleFacts) -> RuleOpinion | None:
    first_byte_s = facts.situation.state.first_byte_s
    if first_byte_s is None or first_byte_s <= SLOW_FIRST_BYTE_S:
        return None
    return RuleOpinion("one", f"answers begin after {first_byte_s:.1f} s")


def _independent(facts: RuleFacts) -> RuleOpinion | None:
    situation = facts.situation
    if situation.shape != "slices" or situation.agents < 2:
        return None
    if facts.cost_ratio > 1.0 + ALIKE:
        return None
    return RuleOpinion(
        "several", "the slices need nothing of each other, and share nothing to be read"
    )


def _room(facts: RuleFacts) -> RuleOpinion | None:
    used = facts.used("tokens", "input", "output", "requests", "concurrency")
    if used is None or used >= WELL_BELOW:
        return None
    return RuleOpinion("several", f"at most {used:.0%} of any limit is in use")


def _budget_permits(facts: RuleFacts) -> RuleOpinion | None:
    share = facts.budget_share(facts.several)
    if share is None or share > BUDGET_SHARE:
        return None
    return RuleOpinion("several", f"a run takes {_percent(share)} of what is left of the budget")


def _off_peak(facts: RuleFacts) -> RuleOpinion | None:
    state = facts.situation.state
    if state.is_peak is False:
        return RuleOpinion("several", "it is not peak time")
    if state.is_peak or state.slowdown is None or state.slowdown > QUIET_SLOWDOWN:
        return None
    return RuleOpinion("several", f"answers come at {state.slowdown:.1f} times their usual time")


RULES: Final = (
    AdviceRule("coupled", "coupled or sequential work", _coupled),
    AdviceRule("over budget", "token budget permits", _over_budget),
    AdviceRule("enterprise", "enterprise quality", _enterprise),
    AdviceRule("release", "release review", _release),
    AdviceRule("quality", "quality over speed", _quality),
    AdviceRule("cost", "cost sensitive", _cost_sensitive),
    AdviceRule("limited budget", "limited token budget", _limited_budget),
    AdviceRule("small change", "one file change; simple changes", _small_change),
    AdviceRule("urgent", "emergency fix", _urgent),
    AdviceRule("perspectives", "multiple perspectives needed", _perspectives),
    AdviceRule("preferred", "speed is primary", _preferred),
    AdviceRule("refusals", "frequent rate limit errors", _refusals),
    AdviceRule("near limits", "near rate limits", _near_limits),
    AdviceRule("peak", "peak hours", _peak),
    AdviceRule("slow answers", "response times above 2 seconds", _slow),
    AdviceRule("independent", "independent slices", _independent),
    AdviceRule("room", "well below rate limits", _room),
    AdviceRule("budget permits", "token budget permits", _budget_permits),
    AdviceRule("off-peak", "off-peak hours", _off_peak),
)


def _percent(share: float) -> str:
    return "all and more" if share == inf else f"{share:.1%}"
