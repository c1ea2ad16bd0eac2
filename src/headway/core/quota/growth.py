"""Soft claims: kept at what a call is expected to cost, raised as its answer grows, or it is cut.

Laws:
- A claim is never less than what is known of the answer: what was produced is owed.
- A claim is raised in steps, ahead of the answer, and only where every budget has room. Where none
  has, the call is cut, once: its answer is to be ended where it is.
- An answer takes more than there was room for only by what it grows between two tellings, until it
  is ended, and by how much its input was underestimated. One that does not stream is not seen to
  grow: nothing of it can be cut.

Agents declare the longest answer that their model can give, and use a thousandth of it: claims at
that ceiling would let one of them call at a time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import inf
from typing import Final

from headway.core.quota.estimate import Estimates
from headway.core.quota.lane import Entry
from headway.core.quota.purse import Purse, named
from headway.core.quota.terms import CallId, Claim, Spend
from headway.errors import BudgetReachedError

STEP_TOKENS: Final = 256.0
"""A claim is raised by at least so many tokens: each time is written to the disk."""

STEP_SHARE: Final = 0.5
"""And by so much of the answer, where there is room: a long one is raised a few times."""


_CLAIM: Final = re.compile(r"a call of (?:up to|about) ([\d,]+) tokens(?:, \$([\d,]+\.\d+))?")
"""What `Waiting` says of a call that no budget has room for."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A call in flight whose answer is to be ended, and why."""

    id: CallId
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class GrowthStatistics:
    """Calls that are to be cut and whose callers have not been told."""

    untold: int


class Growth:
    """What is kept for calls in flight that claim softly."""

    __slots__ = ("_cuts", "_estimates", "_purse")

    def __init__(self, purse: Purse, estimates: Estimates) -> None:
        self._purse = purse
        self._estimates = estimates
        self._cuts: dict[CallId, Cut] = {}

    def __repr__(self) -> str:
        return f"<Growth, {len(self._cuts)} to cut>"

    def grew(self, entry: Entry, output_tokens: float) -> bool:
        """An answer has so many tokens by now; True if more is kept for it than before."""
        owed = self.owed(entry, output_tokens)
        if owed == entry.claim:
            return False
        kept = None if entry.is_cut else self._with_room(entry, output_tokens)
        if kept is None and not entry.is_cut:
            entry.is_cut = True
            self._cuts[entry.request.id] = self._cut(entry, output_tokens)
        self._keep(entry, kept or owed)
        return True

    def owed(self, entry: Entry, output_tokens: float) -> Spend:
        """What is kept for a call, or what it costs with so long an answer if that is more."""
        claim, known = entry.claim, self._estimates.grown(entry.request.sketch, output_tokens)
        return Spend(
            max(claim.tokens, known.tokens), max(claim.microusd, known.microusd), claim.unpriced
        )

    def ended(self, call: CallId) -> None:
        """A call is over: there is nothing left to cut."""
        self._cuts.pop(call, None)

    def take(self) -> tuple[Cut, ...]:
        """The calls to cut whose callers are yet to be told."""
        cuts, self._cuts = tuple(self._cuts.values()), {}
        return cuts

    def statistics(self) -> GrowthStatistics:
        return GrowthStatistics(len(self._cuts))

    def _with_room(self, entry: Entry, output_tokens: float) -> Spend | None:
        """What to keep for a longer answer: a large step ahead, or else a small one; or none."""
        most = entry.request.sketch.max_output_tokens
        longest = inf if most is None else float(most)
        for step in (max(STEP_TOKENS, STEP_SHARE * output_tokens), STEP_TOKENS):
            tokens = max(output_tokens, min(output_tokens + step, longest))
            whole, claim = self.owed(entry, tokens), entry.claim
            more = whole.minus(claim)
            if self._purse.room(entry.request.account, more) == "yes":
                return whole
        return None

    def _keep(self, entry: Entry, spend: Spend) -> None:
        entry.claim = spend
        self._purse.claim(Claim(entry.request.id, entry.request.account, spend))

    def _cut(self, entry: Entry, output_tokens: float) -> Cut:
        what = f"more of this answer, which was ended at {output_tokens:,.0f} tokens"
        error = no_room(named(self._purse, entry.request.account), what)
        return Cut(entry.request.id, error.message, error.hint or "")


def claim_in(words: str) -> Spend | None:
    """What a call that was refused would have claimed, by the words of its refusal."""
    found = _CLAIM.search(words)
    if found is None:
        return None
    dollars = float((found[2] or "0").replace(",", ""))
    return Spend(float(found[1].replace(",", "")), round(dollars * 1e6))


def no_room(budget: str, what: str) -> BudgetReachedError:
    """The error of whoever wants more than a budget has."""
    return BudgetReachedError(
        f"this month's budget has no room for {what}",
        hint=f"it is {budget}: see `headway limits`; raise it with "
        "`headway limits budget AMOUNT/month`",
    )
