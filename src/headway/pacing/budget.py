"""Budgets: what may be spent, what was spent, and what is set aside for calls in flight.

A pot is one budget by its name: of a run or a group of its tasks, of a month's account or of all
accounts. A holder, an attempt of a run or a call of a month, claims before it spends.

Laws:
- All or nothing: a claim is made in every pot that it counts towards, or in none.
- Hard claims are the most that a call can cost: spent + claimed never exceeds a budget, to the
  micro-dollar and to the token, unless a call cost more than was claimed.
- Soft claims are the expected cost. They grow a step ahead of the answer; an answer without room
  for another step is cut. Spending exceeds a budget by at most what each call in flight has added
  to its answer since its last report.
- A claim is settled exactly once; what was claimed and not used is free again.
- Holders are served in the order of asking: a small claim does not pass a larger one that waits
  for the same pot. One that already holds something goes before those that hold nothing, because
  they wait for it.
- There is no deadlock: as long as a holder is answered `later`, some other one that holds a claim
  does not wait and will give it back. After `later` it asks again when another one is settled.
- A month's claims of a former process whose client does not come back are paid as they were
  claimed; a client that comes back later does not pay twice.
- A month's budget is for a calendar month; what is in flight at midnight counts in the new one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from itertools import takewhile
from math import inf
from typing import TYPE_CHECKING, Final, Generic, Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from headway.base.numbers import next_month
from headway.base.values import NO_BUDGET, NOTHING, Budget, Spend
from headway.errors import BudgetReachedError
from headway.pacing.call import CallId

if TYPE_CHECKING:
    from headway.pacing.memory import PacingMemory

ALL: Final = ""
"""The name of the pot that everything counts towards."""
CLAIM_S: Final = 10.0
"""Clients of a broker that was killed are back within a second; after this long they are gone."""
DAYS_KEPT: Final = 40
"""Days with spending: the whole of this month, and a week before it for the pace."""
STEP_TOKENS: Final = 256
"""What is set aside for an answer grows by at least so many tokens: each time is a write..."""
STEP_SHARE: Final = 0.5
"""...and by so much of the answer, where there is room: a long one grows a few times."""
Room = Literal["yes", "later", "never"]
"""Whether a budget has room: now, perhaps when calls in flight turn out cheaper, or not at all."""
Holder = TypeVar("Holder", bound=Hashable)


class Claim(Struct, frozen=True):
    """What a call in flight may still take of the budgets; no other call may have it."""

    id: CallId
    account: str
    spend: Spend


Days = tuple[tuple[str, Spend], ...]
"""What was spent on each day, like 2026-11-16."""


class Pot(Struct):
    """One budget, or the absence of one, and everything that counts towards it."""

    budget: Budget = NO_BUDGET
    spent: Spend = NOTHING
    claimed: Spend = NOTHING
    claims: int = 0

    def lacks(self, need: Spend, claimed: Spend) -> bool:
        """Whether there is no room for `need` beside what is spent and `claimed`."""
        tokens, microusd = self.budget.tokens, self.budget.microusd
        return (
            tokens is not None and self.spent.tokens + claimed.tokens + need.tokens > tokens
        ) or (
            microusd is not None
            and self.spent.microusd + claimed.microusd + need.microusd > microusd
        )

    def words(self, whose: str) -> Iterator[str]:
        """What the budget is and what is left of it."""
        tokens, microusd = self.budget.tokens, self.budget.microusd
        if tokens is not None:
            left = max(0.0, tokens - self.spent.tokens)
            yield f"{tokens:,.0f} tokens for {whose} ({left:,.0f} left)"
        if microusd is not None:
            dollars = max(0, microusd - self.spent.microusd) / 1e6
            yield f"${microusd / 1e6:,.2f} for {whose} (${dollars:,.4f} left)"


class Budgets(Generic[Holder]):
    """Pots by name, the claims in them, and the line of holders that wait for room."""

    whose_all: str = "the run"

    def __init__(self, budgets: Mapping[str, Budget]) -> None:
        self.pots: defaultdict[str, Pot] = defaultdict(Pot)
        self.keys: frozenset[str] = frozenset()
        """The pots that have a budget."""
        self.in_money = False
        """Whether one of the budgets is in money."""
        self._claims: dict[Holder, tuple[Spend, tuple[str, ...]]] = {}
        self._line: dict[Holder, tuple[Spend, tuple[str, ...]]] = {}
        """What each waits for, in the order in which they are served."""
        for name, budget in budgets.items():
            self.set_budget(name, budget)

    def set_budget(self, name: str, budget: Budget) -> bool:
        """The user set a budget; True if that changes it."""
        pot = self.pots[name]
        changed = pot.budget != budget
        pot.budget = budget
        self.keys = frozenset(key for key, one in self.pots.items() if one.budget != NO_BUDGET)
        self.in_money = any(one.budget.microusd is not None for one in self.pots.values())
        return changed

    def has_claim(self, id: Holder) -> bool:
        return id in self._claims

    def held(self, id: Holder) -> Spend:
        return self._claims[id][0] if id in self._claims else NOTHING

    def claim(self, id: Holder, whole: Spend, names: tuple[str, ...] = (ALL,)) -> Room:
        """Set this much aside for a holder, in place of the less that it holds, or wait in line."""
        held = self.held(id)
        whole = held.at_least(whole) if id in self._claims else whole
        limited = tuple([name for name in names if name in self.keys]) if self.keys else ()
        if limited and not (id in self._claims and whole == held):
            room = self._ask(id, whole.minus(held), limited)
            if room != "yes":
                return room
        self.leave(id)
        self.hold(id, whole, names)
        return "yes"

    def hold(self, id: Holder, whole: Spend, names: tuple[str, ...] = (ALL,)) -> None:
        """Set this much aside in place of what was, whether there is room or not."""
        known = self._claims.get(id)
        self._claims[id] = whole, names
        if known is not None:
            self._count(*known, -1)
        self._count(whole, names, 1)

    def grow(
        self, id: Holder, output_tokens: float, cost_of: Callable[[float], Spend], longest: float
    ) -> Room | None:
        """The answer to a soft claim has so many tokens. `yes`: the claim is a step ahead of it;
        `never`: it is what is owed by now, and the answer is to be cut; None: enough is claimed."""
        claim, names = self._claims[id]
        for whole in grown(claim, output_tokens, cost_of, longest):
            need = whole.minus(claim)
            if not any(self.pots[name].lacks(need, self.pots[name].claimed) for name in names):
                self.hold(id, whole, names)
                return "yes"
        owed = claim.at_least(cost_of(output_tokens))
        if owed == claim:
            return None
        self.hold(id, owed, names)
        return "never"

    def leave(self, id: Holder) -> bool:
        """Wait no longer; True if that may let others go."""
        return self._line.pop(id, None) is not None

    def settle(self, id: Holder, used: Spend | None) -> bool:
        """A holder took this, or nothing, and has ended; only the first time does anything."""
        self.leave(id)
        held = self._claims.pop(id, None)
        if held is None:
            return False
        self._count(*held, -1)
        if used is not None:
            self.spend(used, held[1])
        return True

    def spend(self, used: Spend, names: tuple[str, ...]) -> None:
        """This was spent; less than nothing, where too much was counted."""
        for name in names:
            self.pots[name].spent = self.pots[name].spent.plus(used)

    def describe(self, names: tuple[str, ...]) -> str:
        """The budgets of these pots in words, and what is left of each."""
        whose = {ALL: self.whose_all}
        pots = [(self.pots[name], whose.get(name, name)) for name in names if name in self.keys]
        return ", ".join([words for pot, name in pots for words in pot.words(name)])

    def _ask(self, id: Holder, need: Spend, names: tuple[str, ...]) -> Room:
        """Whether it is the turn of a holder, and there is room; `later`: it is in the line."""
        if id not in self._line and id in self._claims:
            self._line[id] = need, names
            for other in [one for one in self._line if one not in self._claims]:
                self._line[other] = self._line.pop(other)
        self._line[id] = need, names
        room = self._room(id, need, names)
        if room == "never":
            self.leave(id)
        return room

    def _room(self, id: Holder, need: Spend, names: tuple[str, ...]) -> Room:
        if self._is_hopeless(id, need, names):
            return "never"
        may_wait = self._may_give_back(id)
        short: set[str] = set()
        ahead: dict[str, Spend] = {}
        """Pots too empty for holders before this one in line, and what the other ones take."""
        for other, (wants, pots) in takewhile(lambda one: one[0] != id, self._line.items()):
            if self._is_hopeless(other, wants, pots):
                continue
            tight = self._tight(wants, pots, ahead)
            short |= tight
            if may_wait and not short.isdisjoint(names):
                return "later"
            if not tight:
                for name in pots:
                    ahead[name] = ahead.get(name, NOTHING).plus(wants)
        tight = self._tight(need, names, ahead)
        if not tight and short.isdisjoint(names):
            return "yes"
        if ahead or may_wait:
            return "later"
        # Every holder waits for more: one of them has to fail, unless this one needs no more room.
        return "never" if tight else "yes"

    def _is_hopeless(self, id: Holder, need: Spend, names: tuple[str, ...]) -> bool:
        """Whether there is no room however little the others cost."""
        held = self.held(id)
        return any(self.pots[name].lacks(need, held) for name in names)

    def _may_give_back(self, id: Holder) -> bool:
        """Whether something will end that this one can wait for."""
        if id not in self._claims:
            return bool(self._claims)
        return any(other not in self._line for other in self._claims)

    def _tight(self, need: Spend, names: tuple[str, ...], ahead: Mapping[str, Spend]) -> set[str]:
        """The pots without room beside what is claimed and what those ahead will take."""
        pots = self.pots
        return {
            name for name in names
            if pots[name].lacks(need, pots[name].claimed.plus(ahead.get(name, NOTHING)))
        }  # fmt: skip

    def _count(self, claim: Spend, names: tuple[str, ...], sign: int) -> None:
        for name in names:
            pot = self.pots[name]
            pot.claims += sign
            claimed = pot.claimed.plus(claim) if sign > 0 else pot.claimed.minus(claim)
            # Sums of floats drift: with nothing in flight, nothing is claimed.
            pot.claimed = claimed if pot.claims else NOTHING


class MonthlyBudgets(Budgets[CallId]):
    """Budgets of a month: what accounts spent on which day, and what they may still spend."""

    whose_all = "all accounts"

    def __init__(self, memory: PacingMemory, now: float) -> None:
        super().__init__({})
        self.month = memory.month
        self.date = ""
        self._days = {name: dict(days) for name, days in memory.days}
        self.changed_claims: dict[CallId, None] = {}
        self._changed_days: dict[tuple[str, str], None] = {}
        """What is not in the memory as it was last taken, in order."""
        self._unposted: dict[str, Spend] = {}
        """What accounts spent since it was last looked at; none where there is a budget."""
        self.orphans: set[CallId] = set()
        """Claims of a former process whose clients are not back yet."""
        self._orphans_until_s = now + CLAIM_S
        self._paid: dict[CallId, tuple[Spend, tuple[str, ...]]] = {}
        """Those whose clients did not come back in time."""
        for name, days in memory.days:
            self.pots[name].spent = spent_in(self.month, days)
        for name, terms in memory.terms:
            self.set_budget(name, terms.budget)
        for claim in memory.claims:
            self.hold(claim.id, claim.spend, (claim.account, ALL))
        self.orphans = {claim.id for claim in memory.claims}

    def hold(self, id: CallId, whole: Spend, names: tuple[str, ...] = (ALL,)) -> None:
        self.orphans.discard(id)
        self.changed_claims[id] = None
        super().hold(id, whole, names)

    def settle(self, id: CallId, used: Spend | None) -> bool:
        self.orphans.discard(id)
        self.changed_claims[id] = None
        return super().settle(id, used)

    def set_budget(self, name: str, budget: Budget) -> bool:
        self.post()
        return super().set_budget(name, budget)

    def rename(self, old: str, new: str) -> None:
        """One account's spending, claims and, where the other has none, budget go to another."""
        self.post()
        pot, other = self.pots.pop(old, Pot()), self.pots[new]
        other.spent, other.claimed = other.spent.plus(pot.spent), other.claimed.plus(pot.claimed)
        other.claims += pot.claims
        days = self._days.setdefault(new, {})
        for date, spend in self._days.pop(old, {}).items():
            days[date] = days.get(date, NOTHING).plus(spend)
        for claims in (self._claims, self._paid):
            for id, (spend, names) in claims.items():
                claims[id] = spend, tuple([new if name == old else name for name in names])
        self.set_budget(new, pot.budget if other.budget == NO_BUDGET else other.budget)

    def took(self, used: Spend, account: str) -> None:
        """A call without a claim spent this. Without budgets it is added up when looked at."""
        self._unposted[account] = self._unposted.get(account, NOTHING).plus(used)
        if self.keys:
            self.post()

    def post(self) -> None:
        """Add what accounts spent to the pots."""
        unposted, self._unposted = self._unposted, {}
        for account, used in unposted.items():
            self.spend(used, (account, ALL))

    def spend(self, used: Spend, names: tuple[str, ...]) -> None:
        super().spend(used, names)
        for name in names:
            self._changed_days[name, self.date] = None
            days = self._days.setdefault(name, {})
            days[self.date] = days.get(self.date, NOTHING).plus(used)
            if len(days) > DAYS_KEPT:
                del days[min(days)]

    def adopt(self, id: CallId, account: str, whole: Spend) -> None:
        """A call of a former process goes on, at what that process kept for it if it is known."""
        if id in self._paid:
            whole, names = self._paid.pop(id)
            self.spend(NOTHING.minus(whole), names)
        elif id in self.orphans:
            whole = self.held(id)
        self.hold(id, whole, (account, ALL))

    def expire(self, now: float) -> float:
        """Count orphaned claims as paid when their time is over; returns when that is."""
        if self.orphans and now >= self._orphans_until_s:
            self._paid = {id: self._claims[id] for id in self.orphans}
            for id, (spend, _) in self._paid.items():
                self.settle(id, spend)
        return self._orphans_until_s if self.orphans else inf

    def turn(self, date: str) -> None:
        """It is this day now; a month may have begun with it."""
        self.post()
        self.date, month = date, date[:7]
        if month != self.month:
            self.month = month
            self._paid.clear()
            for name, pot in self.pots.items():
                pot.spent = spent_in(month, self._days.get(name, {}).items())

    def memory(self, is_whole: bool, is_out: Callable[[CallId], bool]) -> PacingMemory:
        """All that outlives this process, or what changed: all of it or `money`."""
        from headway.pacing.memory import PacingMemory

        self.post()
        changed, self._changed_days = self._changed_days, {}
        ids, self.changed_claims = self.changed_claims, {}
        if is_whole:
            claims = tuple([claim for claim in self.claims() if is_out(claim.id)])
            return PacingMemory(self.month, claims=claims, days=self.days())
        known = {id: self._claims[id] for id in ids if id in self._claims and is_out(id)}
        days = [(name, date) for name, date in changed if date in self._days.get(name, ())]
        return PacingMemory(
            self.month,
            claims=tuple([Claim(id, names[0], spend) for id, (spend, names) in known.items()]),
            days=tuple([(name, ((date, self._days[name][date]),)) for name, date in days]),
            ended=tuple([id for id in ids if id not in known]),
        )

    def days(self) -> tuple[tuple[str, Days], ...]:
        """Every day that is kept, by account, oldest first."""
        self.post()
        return tuple([(name, tuple(sorted(days.items()))) for name, days in self._days.items()])

    def claims(self) -> tuple[Claim, ...]:
        return tuple([Claim(id, names[0], spend) for id, (spend, names) in self._claims.items()])

    def ledgers(self) -> tuple[tuple[str, Pot], ...]:
        """Every budget, or account without one, as it stands."""
        self.post()
        return tuple([(key, replace(pot)) for key, pot in self.pots.items()])

    def no_room(self, account: str, what: str) -> BudgetReachedError:
        """The error of a call that needs more than a budget has."""
        turns = f"; the month turns on {next_month(self.month)}" if self.month else ""
        return BudgetReachedError(
            f"this month's budget has no room for {what}",
            hint=f"it is {self.describe((account, ALL))}{turns}: see `headway limits`; raise it "
            "with `headway limits budget AMOUNT/month`",
        )


def spent_in(month: str, days: Iterable[tuple[str, Spend]]) -> Spend:
    """What was spent in a month."""
    spent = NOTHING
    for date, spend in days:
        if date[:7] == month:
            spent = spent.plus(spend)
    return spent


def grown(
    claim: Spend, output_tokens: float, cost_of: Callable[[float], Spend], longest: float = inf
) -> Iterator[Spend]:
    """Soft claims for an answer of this length and a step ahead; none if `claim` covers it."""
    if claim.at_least(cost_of(output_tokens)) != claim:
        for step in (max(STEP_TOKENS, STEP_SHARE * output_tokens), STEP_TOKENS):
            ahead = max(output_tokens, min(output_tokens + step, longest))
            yield claim.at_least(cost_of(ahead))


def unpriced(model: str) -> BudgetReachedError:
    """The error of a call that a budget in money cannot count."""
    return BudgetReachedError(
        f"there is a budget in money, and no price is known for `{model}`",
        hint="use a model with a known price, or budget in tokens",
    )
