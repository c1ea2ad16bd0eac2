"""Recommends one agent or several, how and when, with the reasons.

Laws:
- The first rule that applies decides between one agent and several. The other rules that apply are
  kept, with the rule that overruled them. If no rule applies, one agent is as good, and simpler.
- Each rule looks at one number. The order: what is impossible; money, if little is left; several
  views of one thing; rehearsed time and cost, where they differ by more than they err; signs of
  trouble on the account, for one agent; then what favours several.
- Several agents are paced: as many are at work at once as the quota feeds.
- Everything that was assumed is listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from headway.base.values import HOUR_S
from headway.plans.check import BYTES_PER_TOKEN, CheckReport
from headway.plans.expand import ExpandedPlan, GroupPlan, prompt_texts
from headway.plans.spec import Prompt
from headway.report.options import (
    COMMON_SHARE,
    ONE,
    REHEARSED_CALLS_MAX,
    AccountGuess,
    Option,
    Shape,
    Situation,
    as_it_is_now,
    options_for,
    value_of,
)
from headway.report.outline import UNKNOWN_MEMBERS

# The rules.

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


class Reason(Struct, frozen=True):
    """What one rule favours and why."""

    rule: str
    side: Side
    reason: str
    overruled_by: str = ""
    """The rule that decided, if that was for the other side."""


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


def reasons_by_rule(facts: RuleFacts) -> list[Reason]:
    """Every rule that applies; the first one decides."""
    return [*_possible(facts), *_rehearsed(facts), *_trouble(facts), *_several(facts)]


def _possible(facts: RuleFacts) -> Iterator[Reason]:
    """What is impossible, and money if little of it is left."""
    coupled = facts.situation.coupled_share
    if coupled > COUPLED_SHARE:
        yield Reason("coupled", "one", f"{coupled:.0%} of the parts need what another one finds")
    share = facts.budget_share(facts.several)
    if share is None:
        return
    if share > 1.0:
        words = f"several would take {_percent(share)} of what is left of the budget"
        yield Reason("over budget", "one", words)
    if share > BUDGET_SHARE and facts.cost_ratio > 1.0 + ALIKE:
        words = f"a run by several takes {_percent(share)} of what is left of the budget"
        yield Reason("limited budget", "one", words)


def _rehearsed(facts: RuleFacts) -> Iterator[Reason]:
    """Several views, and time and cost where they differ by more than they err."""
    ratio = facts.cost_ratio
    slower = facts.several.time_s / facts.one.time_s if 0.0 < facts.one.time_s < inf else 0.0
    if slower > 1.0 + ALIKE:
        longer = f"{slower - 1.0:.0%} longer" if slower < inf else "without end"
        yield Reason("slower", "one", f"several would take {longer} than one agent")
    if facts.situation.shape == "views" and ratio <= WORTH_VIEWS:
        what = f"each of {facts.situation.agents} views of the same thing is worth it"
        yield Reason(
            "perspectives", "several", f"{what}, though several cost {ratio:.1f} times as much"
        )
    one, several = value_of(facts.one), value_of(facts.several)
    best, other = min(one, several), max(one, several)
    if other != best and other >= best * (1.0 + ALIKE):
        more = f"{(other / best - 1.0):.0%} more" if other < inf else "without end"
        whom = "one agent" if several < one else "several"
        words = f"{whom} would cost {more}, with time at its worth"
        yield Reason("time and cost", "several" if several < one else "one", words)


def _trouble(facts: RuleFacts) -> Iterator[Reason]:
    state = facts.situation.state
    if state.refused_share is not None and state.refused_share > REFUSED_SHARE:
        words = f"{state.refused_share:.0%} of the calls were refused lately"
        yield Reason("refusals", "one", words)
    for resources, most in ((("tokens", "input", "output"), NEAR_TOKENS),
                            (("requests", "concurrency"), NEAR_REQUESTS)):  # fmt: skip
        used = facts.used(*resources)
        if used is not None and used > most:
            yield Reason(
                "near limits", "one", f"{used:.0%} of the limit on {resources[0]} is in use"
            )
            break
    if state.is_peak:
        yield Reason("peak", "one", "it is peak time: queues make several slow")
    elif state.is_peak is None and (state.slowdown or 0.0) >= PEAK_SLOWDOWN:
        words = f"it is peak time: answers take {state.slowdown:.1f} times as long as usual"
        yield Reason("peak", "one", words)


def _several(facts: RuleFacts) -> Iterator[Reason]:
    """What favours several, if nothing else decides."""
    state = facts.situation.state
    if facts.situation.shape == "slices" and facts.cost_ratio <= 1.0 + ALIKE:
        words = "the slices need nothing of each other, and share nothing to be read"
        yield Reason("independent", "several", words)
    used = facts.used("tokens", "input", "output", "requests", "concurrency")
    if used is not None and used < WELL_BELOW:
        yield Reason("room", "several", f"at most {used:.0%} of any limit is in use")
    share = facts.budget_share(facts.several)
    if share is not None and share <= BUDGET_SHARE:
        words = f"a run takes {_percent(share)} of what is left of the budget"
        yield Reason("budget permits", "several", words)
    if state.is_peak is False:
        yield Reason("off-peak", "several", "it is not peak time")
    elif state.is_peak is None and state.slowdown is not None and state.slowdown <= QUIET_SLOWDOWN:
        words = f"answers come at {state.slowdown:.1f} times their usual time"
        yield Reason("off-peak", "several", words)


def _percent(share: float) -> str:
    return "all and more" if share == inf else f"{share:.1%}"


# A plan as a situation: agents, sizes, shape.

RESULT_TOKENS: Final = 1_000.0
"""Assumed size of a result that a prompt is given."""

ANSWER_TOKENS: Final = 500.0
"""Assumed size of an answer."""


def situation_of(expanded: ExpandedPlan, report: CheckReport, asked: Situation) -> Situation:
    """The situation with the plan's own agents and sizes; no agents if it calls no model."""
    groups = [group for group in expanded.groups if isinstance(group.task.work, Prompt)]
    agents, tokens_in, common, output = 0, 0.0, 0.0, 0.0
    for group in groups:
        members = UNKNOWN_MEMBERS if group.count is None else group.count
        sizes = _group_sizes(expanded, report, group)
        agents += members
        tokens_in += members * sizes[0]
        common += members * sizes[1]
        output += members * sizes[2]
    if not agents:
        return replace(asked, agents=0)
    tokens = tokens_in + output
    # Views, if most of the agents are the values of a matrix rather than items.
    views = sum(g.count or 0 for g in groups if g.task.matrix and g.task.each is None)
    shape: Shape = "views" if 2 * views > sum(g.count or 0 for g in groups) else "slices"
    # No agent is coupled if all can be active at once; all are, if only one can.
    width = min(report.boundary.width, agents)
    coupled = 1.0 - (width - 1) / (agents - 1) if agents > 1 else 0.0
    return replace(
        asked, agents=agents, tokens_each=tokens / agents, output_each=output / agents,
        common=min(0.95, common / tokens), shape=shape, coupled=coupled,
    )  # fmt: skip


def _group_sizes(
    expanded: ExpandedPlan, report: CheckReport, group: GroupPlan
) -> tuple[float, float, float]:
    """Tokens of each member of a group: its input, the part common to all, its answer."""
    checked = next(one for one in report.groups if one.name == group.name)
    own = checked.input_tokens / group.count if group.count else 0.0
    # Texts in several files are one for each member; what is common to all is no more than one.
    texts = [len(text.encode()) for text in prompt_texts(expanded, group)]
    template = min(texts, default=0) / BYTES_PER_TOKEN / max(1, len(texts))
    given = sum(
        RESULT_TOKENS for edge in report.boundary.couplings
        if edge.after == group.name and edge.by == "result" and not edge.memberwise
    )  # fmt: skip
    work = group.task.work
    longest = work.max_tokens if isinstance(work, Prompt) else None
    answer = min(ANSWER_TOKENS, longest or ANSWER_TOKENS)
    return max(own, template) + given, template + given, answer


When = Literal["now", "later"]


class Advice(Struct, frozen=True):
    """The recommendation, what it is based on, and what was assumed."""

    situation: Situation
    options: tuple[Option, ...]
    best: Option
    side: Side
    reasons: tuple[Reason, ...]
    """The first one decided; none if no rule applies."""
    when: When
    when_reason: str
    assumed: tuple[str, ...]

    @property
    def one(self) -> Option:
        return next(option for option in self.options if option.way == ONE)


def advise(
    situation: Situation, guess: AccountGuess,
    foreseen: Callable[[Situation, AccountGuess], Sequence[Option]] = options_for,
) -> Advice:  # fmt: skip
    """Foresee every way on the account as it is now, and weigh them."""
    now = as_it_is_now(guess, situation.state)
    return recommend(situation, foreseen(situation, now), now)


def recommend(situation: Situation, options: Sequence[Option], guess: AccountGuess) -> Advice:
    """The better of the options, whose numbers are known: one agent, and several if there are."""
    one, several = options[0], options[-1]
    facts = RuleFacts(situation, one, several)
    found = reasons_by_rule(facts) if several is not one else []
    side: Side = found[0].side if found else "one"
    reasons = tuple(
        why if why.side == side else replace(why, overruled_by=found[0].rule) for why in found
    )
    best = several if side == "several" else one
    when, why = _when(facts, best)
    assumed = (*guess.assumed, *_assumed(situation, guess))
    return Advice(situation, tuple(options), best, side, reasons, when, why, assumed)


def _when(facts: RuleFacts, best: Option) -> tuple[When, str]:
    """Later, if a budget or a usage window has no room for it, or if answers are slow now."""
    share = facts.budget_share(best)
    if share is not None and share > 1.0:
        budgets = [one for one in best.foreseen.portions if one.resets_s is None]
        left = max(portion.left for portion in budgets)
        return "later", f"what is left of the month's budget ({left:,.0f}) does not pay for a run"
    for window in best.foreseen.portions:
        whole = min(window.of, window.room)
        if window.resets_s is not None and window.left < window.takes.mid <= whole:
            until = f"it resets in {window.resets_s / HOUR_S:.1f} h"
            return "later", f"a run takes more than is left of the {window.name}; {until}"
    if best.time_s == inf:
        return "later", "on this account, as it is now, it would not end"
    slowdown = facts.situation.state.slowdown
    if slowdown is not None and slowdown >= PEAK_SLOWDOWN:
        return "later", f"answers take {slowdown:.1f} times as long as usual"
    return "now", ""


def _assumed(situation: Situation, guess: AccountGuess) -> Iterator[str]:
    """What is neither given nor measured, a sentence each."""
    if situation.common is None:
        yield (
            f"each agent has {COMMON_SHARE:.0%} of its tokens in common with all others, as in "
            "a review by four"
        )
    state = situation.state
    if not state.used and state.refused_share is None:
        yield "nothing is in use: the account was not measured lately"
    if state.slowdown is None and state.is_peak is None:
        yield "the account is as fast as usual"
    if guess.price is None:
        yield "tokens cost $3 a million in and $15 out: the price is not known"
    if situation.agents * situation.calls_each > REHEARSED_CALLS_MAX:
        yield f"of {situation.agents:,} agents a part was rehearsed, and continued as a line"
