"""The purse of a run: what it spent, what its attempts may still cost, and who waits for the rest.

Laws:
- spent + reserved never exceeds a budget, to the micro-dollar and to the token, unless an attempt
  cost more than it had reserved, which is counted and shown.
- All or nothing: a reservation is made in every pot that it counts towards, or in none.
- An attempt is settled exactly once; what it had reserved and did not use is free again.
- Whoever waits is served in the order of asking: a small reservation does not slip past a larger
  one that waits for the same pot, however long that takes. An attempt that already holds something
  goes before those that hold nothing, because it is what they wait for.
- Nobody waits for nothing: as long as anybody is told `Later`, somebody who holds a reservation
  does not wait and will give it back.

A pot is the run's own budget or that of one group of tasks. Whoever was told `Later` asks again
after a settlement: with the same number, which is how its place is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

from headway.errors import BadValueError, UnknownPermitError
from headway.plans.spec import PlanBudget

RUN: Final = ""
"""The name of the pot that everything counts towards."""


@dataclass(frozen=True, slots=True)
class Reserved:
    """It is set aside."""


@dataclass(frozen=True, slots=True)
class Later:
    """What is in flight may cost less than is set aside for it: ask again when something ends."""

    reason: str


@dataclass(frozen=True, slots=True)
class Never:
    """However little the calls in flight will cost, it is not enough."""

    reason: str


Answer = Reserved | Later | Never

RESERVED: Final = Reserved()


@dataclass(frozen=True, slots=True)
class Cost:
    """Micro-dollars and tokens."""

    microusd: int = 0
    tokens: int = 0

    def plus(self, other: Cost) -> Cost:
        return Cost(self.microusd + other.microusd, self.tokens + other.tokens)

    def minus(self, other: Cost) -> Cost:
        return Cost(self.microusd - other.microusd, self.tokens - other.tokens)

    def __str__(self) -> str:
        words = [f"${self.microusd / 1e6:.6f}"] if self.microusd or not self.tokens else []
        return " and ".join([*words, *([f"{self.tokens:,} tokens"] if self.tokens else [])])


NOTHING: Final = Cost()


@dataclass(frozen=True, slots=True)
class PotStatistics:
    """One budget at an instant."""

    budget: PlanBudget
    spent: Cost
    reserved: Cost
    in_doubt: Cost
    """Of what is spent, what was charged at its ceiling because nobody knows."""
    overrun: Cost
    """By how much attempts exceeded what they had reserved."""


@dataclass(frozen=True, slots=True)
class RunBudgetStatistics:
    """Every pot, the run's own first, and how many attempts hold something or wait."""

    pots: tuple[tuple[str, PotStatistics], ...]
    holding: int
    waiting: int


@dataclass(slots=True)
class _Pot:
    name: str
    budget: PlanBudget
    spent: Cost = NOTHING
    reserved: Cost = NOTHING
    in_doubt: Cost = NOTHING
    overrun: Cost = NOTHING

    def lacks(self, need: Cost, held: Cost) -> bool:
        """Whether there is no room for `need` beside what is spent and `held`."""
        budget = self.budget
        money = self.spent.microusd + held.microusd + need.microusd
        tokens = self.spent.tokens + held.tokens + need.tokens
        return (budget.microusd is not None and money > budget.microusd) or (
            budget.tokens is not None and tokens > budget.tokens
        )

    def in_words(self) -> str:
        whose = f"the budget of `{self.name}`" if self.name else "the run's budget"
        amount = Cost(self.budget.microusd or 0, self.budget.tokens or 0)
        return f"{whose} is {amount}, of which {self.spent} are spent"

    def statistics(self) -> PotStatistics:
        return PotStatistics(self.budget, self.spent, self.reserved, self.in_doubt, self.overrun)


@dataclass(slots=True)
class _Waiter:
    need: Cost
    pots: tuple[_Pot, ...]


@dataclass(slots=True)
class _Holder:
    cost: Cost = NOTHING
    pots: dict[str, _Pot] = field(default_factory=dict)


class RunBudget:
    """A run's money. Attempts are known by any number that is theirs until they are settled."""

    __slots__ = ("_denied", "_holders", "_pots", "_waiters")

    def __init__(
        self, budget: PlanBudget = PlanBudget(), groups: Mapping[str, PlanBudget] | None = None
    ) -> None:
        """`groups` are further budgets, each for the tasks of one group."""
        named = {RUN: budget, **(groups or {})}
        self._pots = {name: _Pot(name, one) for name, one in named.items()}
        self._holders: dict[int, _Holder] = {}
        self._waiters: dict[int, _Waiter] = {}
        """In the order in which they are served."""
        self._denied: set[int] = set()
        """Those who hold nothing, were told `Never`, and have not ended yet."""

    def __repr__(self) -> str:
        run = self._pots[RUN]
        return f"<Purse {run.spent} spent, {run.reserved} reserved, {len(self._waiters)} waiting>"

    def reserve(self, id: int, microusd: int, tokens: int = 0, group: str = RUN) -> Answer:
        """Set aside the most that the next call of an attempt can cost, on top of what it holds."""
        waiter = self._waiters.get(id)
        if waiter is None:
            if microusd < 0 or tokens < 0:
                raise BadValueError(f"nothing costs {microusd} micro-dollars and {tokens} tokens")
            pots = tuple(self._of(group))
            waiter = self._waiters[id] = _Waiter(Cost(microusd, tokens), pots)
            if id in self._holders:
                self._put_holders_first()
        answer = self._answer(id, waiter)
        if not isinstance(answer, Later):
            del self._waiters[id]
        if isinstance(answer, Reserved):
            self._hold(id, waiter)
        elif isinstance(answer, Never) and id not in self._holders:
            self._denied.add(id)
        return answer

    def settle(
        self, id: int, microusd: int = 0, tokens: int = 0, *, is_in_doubt: bool = False
    ) -> None:
        """An attempt ended and cost this. One that holds nothing leaves the line, at no cost."""
        holder = self._holders.pop(id, None)
        is_known = id in self._waiters or id in self._denied
        self._waiters.pop(id, None)
        self._denied.discard(id)
        if holder is None:
            if is_known:
                return
            raise UnknownPermitError(f"attempt {id} holds nothing of the budget")
        used = Cost(microusd, tokens)
        over = Cost(max(0, microusd - holder.cost.microusd), max(0, tokens - holder.cost.tokens))
        for pot in holder.pots.values():
            pot.reserved = pot.reserved.minus(holder.cost)
            pot.overrun = pot.overrun.plus(over)
            _spend(pot, used, is_in_doubt)

    def holds(self, id: int) -> Cost:
        """What is set aside for an attempt."""
        holder = self._holders.get(id)
        return NOTHING if holder is None else holder.cost

    def restore(self, spent: Cost, in_doubt: Cost = NOTHING, group: str = RUN) -> None:
        """What former processes spent, and what their lost calls can have cost at most."""
        for pot in self._of(group):
            _spend(pot, spent, is_in_doubt=False)
            _spend(pot, in_doubt, is_in_doubt=True)

    def statistics(self) -> RunBudgetStatistics:
        pots = tuple((name, pot.statistics()) for name, pot in self._pots.items())
        return RunBudgetStatistics(pots, len(self._holders), len(self._waiters))

    def _of(self, group: str) -> Iterable[_Pot]:
        """The pots that a task of this group counts towards."""
        yield self._pots[RUN]
        # What brings results together for a task counts towards that task: `verdict/1`, `verdict`.
        name = group if group in self._pots else group.partition("/")[0]
        if name != RUN and name in self._pots:
            yield self._pots[name]

    def _answer(self, id: int, waiter: _Waiter) -> Answer:
        """What can be said to whoever stands at this place of the line."""
        mine = self.holds(id)
        for pot in waiter.pots:
            if pot.lacks(waiter.need, mine):
                return Never(f"{pot.in_words()}; a call may cost up to {waiter.need}")
        short, ahead = self._before(id)
        tight = [
            pot
            for pot in waiter.pots
            if pot.lacks(waiter.need, pot.reserved.plus(ahead.get(pot.name, NOTHING)))
        ]
        if not tight and not any(pot.name in short for pot in waiter.pots):
            return RESERVED
        if ahead or self._may_give_back(id):
            pot = (tight or [self._pots[RUN]])[0]
            return Later(f"{pot.in_words()} and {pot.reserved} are set aside for calls in flight")
        if tight:
            # Everybody who holds something waits for more: one of them has to go.
            return Never(f"{tight[0].in_words()}, and the rest is set aside for attempts that wait")
        return RESERVED

    def _may_give_back(self, id: int) -> bool:
        """Whether something will end that this one can wait for."""
        if id not in self._holders:
            return bool(self._holders)
        return any(other not in self._waiters for other in self._holders)

    def _before(self, id: int) -> tuple[set[str], dict[str, Cost]]:
        """Pots that somebody before this one in line finds too empty, and what the others take."""
        short: set[str] = set()
        ahead: dict[str, Cost] = {}
        for other, waiter in takewhile(lambda one: one[0] != id, self._waiters.items()):
            if RUN in short:
                break
            pots, need = waiter.pots, waiter.need
            if any(pot.lacks(need, self.holds(other)) for pot in pots):
                continue
            lacking = {
                pot.name
                for pot in pots
                if pot.lacks(need, pot.reserved.plus(ahead.get(pot.name, NOTHING)))
            }
            short |= lacking
            if not lacking:
                for pot in pots:
                    ahead[pot.name] = ahead.get(pot.name, NOTHING).plus(need)
        return short, ahead

    def _hold(self, id: int, waiter: _Waiter) -> None:
        self._denied.discard(id)
        holder = self._holders.setdefault(id, _Holder())
        for pot in waiter.pots:
            holder.pots[pot.name] = pot
            pot.reserved = pot.reserved.plus(waiter.need)
        holder.cost = holder.cost.plus(waiter.need)

    def _put_holders_first(self) -> None:
        """Those who hold something wait before those who hold nothing."""
        behind = [other for other in self._waiters if other not in self._holders]
        for other in behind:
            self._waiters[other] = self._waiters.pop(other)


def _spend(pot: _Pot, cost: Cost, is_in_doubt: bool) -> None:
    pot.spent = pot.spent.plus(cost)
    if is_in_doubt:
        pot.in_doubt = pot.in_doubt.plus(cost)
