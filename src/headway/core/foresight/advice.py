"""One agent or several, how, now or later, and why: the rules' words weighed, the best way chosen.

Laws:
- The side is what the first rule that speaks says (`matrix.py`); every other word is kept, with
  who overruled it.
- Among several agents the way with the best rehearsed value is taken; adaptive, which needs no
  number to be right, unless another is better by more than it errs.
- It says one agent when that is right, and it says what it assumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, Literal

from headway.core.foresight.account_guess import AccountGuess, as_it_is_now
from headway.core.foresight.matrix import (
    PEAK_SLOWDOWN,
    RULES,
    Facts,
    Side,
    value_of,
)
from headway.core.foresight.options import REHEARSED_CALLS_MAX, Option, options_for
from headway.core.foresight.situation import COMMON_SHARE, Situation
from headway.core.foresight.width import WidthCurve, width_curve
from headway.core.values import HOUR_S

ADAPTIVE_MARGIN: Final = 0.06
"""Another strategy has to be better than adaptive by this share before it is preferred: its width
was chosen on the same draw, and was in part luck."""

When = Literal["now", "later"]


@dataclass(frozen=True, slots=True)
class Reason:
    """What one rule said, and who overruled it."""

    rule: str
    row: str
    side: Side
    reason: str
    overruled_by: str = ""
    """The rule that decided, if that was for the other side."""


@dataclass(frozen=True, slots=True)
class Advice:
    """The recommendation, everything that it comes from, and what was assumed."""

    situation: Situation
    options: tuple[Option, ...]
    best: Option
    side: Side
    reasons: tuple[Reason, ...]
    """The first one decided, unless nothing spoke."""
    when: When
    when_reason: str
    curve: WidthCurve | None
    assumed: tuple[str, ...]

    @property
    def one(self) -> Option:
        return next(option for option in self.options if not option.way.is_several)


def advise(situation: Situation, guess: AccountGuess) -> Advice:
    """Rehearse every way on the account as it is now, and weigh them."""
    now = as_it_is_now(guess, situation.state)
    curve = width_curve(situation, now)
    return recommend(situation, options_for(situation, now, curve.sweet), curve, now)


def recommend(
    situation: Situation,
    options: Sequence[Option],
    curve: WidthCurve | None = None,
    guess: AccountGuess | None = None,
) -> Advice:
    """The best of some options whose numbers are known."""
    one = next(option for option in options if not option.way.is_several)
    many = [option for option in options if option.way.is_several]
    several = best_of(situation, many) if many else one
    facts = Facts(situation, one, several)
    words = [(rule, word) for rule in RULES if many and (word := rule.speaks(facts)) is not None]
    side: Side = words[0][1].side if words else "one"
    decided = words[0][0].name if words else ""
    reasons = tuple(
        Reason(rule.name, rule.row, word.side, word.reason, "" if word.side == side else decided)
        for rule, word in words
    )
    best = several if side == "several" else one
    when, why = _when(facts, best)
    said = () if guess is None else guess.assumed
    return Advice(
        situation, tuple(options), best, side, reasons, when, why, curve,
        (*said, *_assumed(situation, guess)),
    )  # fmt: skip


def best_of(situation: Situation, options: Sequence[Option]) -> Option:
    """The one with the best value; adaptive if that is nearly as good."""
    best = min(options, key=lambda option: (value_of(situation, option), option.time_s))
    for option in options:
        if option.way.kind == "adaptive":
            allowed = value_of(situation, best) * (1.0 + ADAPTIVE_MARGIN)
            in_time = best.time_s * (1.0 + ADAPTIVE_MARGIN)
            if value_of(situation, option) <= allowed and option.time_s <= in_time:
                return option
    return best


def _when(facts: Facts, best: Option) -> tuple[When, str]:
    """Later, if the month cannot pay it; or if it is slow now and nobody is in a hurry."""
    situation, state = facts.situation, facts.situation.state
    share = facts.budget_share(best)
    if share is not None and share > 1.0:
        budgets = [one for one in best.foreseen.portions if one.resets_s is None]
        left = max(portion.left for portion in budgets)
        return "later", f"what is left of the month's budget ({left:,.0f}) does not pay for a run"
    for window in best.foreseen.portions:
        if window.resets_s is not None and window.takes.mid > window.left:
            until = f"it resets in {window.resets_s / HOUR_S:.1f} h"
            return "later", f"a run takes more than is left of the {window.name}; {until}"
    if best.time_s == inf:
        return "later", "on this account, as it is now, it would not end"
    hurried = situation.is_urgent or situation.prefer == "time"
    if state.slowdown is not None and state.slowdown >= PEAK_SLOWDOWN and not hurried:
        return "later", (
            f"answers take {state.slowdown:.1f} times as long as usual; nobody is in a hurry"
        )
    return "now", ""


def _assumed(situation: Situation, guess: AccountGuess | None) -> tuple[str, ...]:
    """What nobody said or measured, a sentence each."""
    said: list[str] = []
    if situation.common is None:
        said.append(
            f"each agent has {COMMON_SHARE:.0%} of its tokens in common with all others, as in "
            "a review by four"
        )
    if situation.files is None:
        said.append("the change is not a small one: nobody said how many files")
    state = situation.state
    if not state.used and state.refused_share is None:
        said.append("nothing is in use: nobody measured the account lately")
    if state.slowdown is None and state.is_peak is None:
        said.append("the account is as fast as usual")
    if guess is not None and guess.price is None:
        said.append("tokens cost $3 a million in and $15 out: the price is not known")
    if situation.agents * situation.calls_each > REHEARSED_CALLS_MAX:
        said.append(f"of {situation.agents:,} agents a part was rehearsed, and continued as a line")
    return tuple(said)
