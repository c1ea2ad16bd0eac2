"""The budget of a run: spent, reserved by attempts in flight, and who waits for room.

Laws:
- spent + reserved never exceeds a budget, to the micro-dollar and to the token, unless an attempt
  cost more than it had reserved.
- All or nothing: a reservation is made in every pot that it counts towards, or in none.
- An attempt is settled exactly once; what it had reserved and did not use is free again.
- Attempts are served in the order of asking: a small reservation does not slip past a larger one
  that waits for the same pot. An attempt that already holds something goes before those that hold
  nothing, because they wait for it.
- There is no deadlock: as long as an attempt is answered `Later`, some attempt that holds a
  reservation does not wait and will give it back.

A pot is the run's own budget or that of one group of tasks. After `Later` an attempt asks again
when another one is settled, with the same number, by which its place in the line is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile
from typing import Final

from msgspec import Struct

from headway.errors import BadValueError, UnknownPermitError
from headway.plans.spec import PlanBudget

RUN: Final = ""
"""The name of the pot that everything counts towards."""


class Later(Struct, frozen=True):
    """Calls in flight may cost less than is set aside for them: ask again when one ends."""

    reason: str


class Never(Struct, frozen=True):
    """However little the calls in flight will cost, it is not enough."""

    reason: str


class Cost(Struct, frozen=True):
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


class Pot(Struct):
    """One budget and what is taken of it."""

    name: str
    budget: PlanBudget
    spent: Cost = NOTHING
    reserved: Cost = NOTHING

    def lacks(self, need: Cost, held: Cost) -> bool:
        """Whether there is no room for `need` beside what is spent and `held`."""
        budget = self.budget
        money = self.spent.microusd + held.microusd + need.microusd
        tokens = self.spent.tokens + held.tokens + need.tokens
        return (budget.microusd is not None and money > budget.microusd) or (
            budget.tokens is not None and tokens > budget.tokens
        )

    def __str__(self) -> str:
        whose = f"the budget of `{self.name}`" if self.name else "the run's budget"
        amount = Cost(self.budget.microusd or 0, self.budget.tokens or 0)
        return f"{whose} is {amount}, of which {self.spent} are spent"


class RunBudget:
    """The pots of a run. An attempt has a number of its own until it is settled."""

    def __init__(
        self, budget: PlanBudget = PlanBudget(), groups: Mapping[str, PlanBudget] | None = None
    ) -> None:
        """`groups` are further budgets, each for the tasks of one group."""
        named = {RUN: budget, **(groups or {})}
        self.pots = {name: Pot(name, one) for name, one in named.items()}
        self._held: dict[int, tuple[Cost, tuple[Pot, ...]]] = {}
        self._waiters: dict[int, tuple[Cost, tuple[Pot, ...]]] = {}
        """What each waits for, in the order in which they are served."""
        self._denied: set[int] = set()
        """Attempts that hold nothing, were answered `Never`, and have not ended yet."""

    def reserve(
        self, id: int, microusd: int, tokens: int = 0, group: str = RUN
    ) -> Later | Never | None:
        """Set aside the most that the next call of an attempt can cost, on top of what it holds."""
        if id not in self._waiters:
            if microusd < 0 or tokens < 0:
                raise BadValueError(f"nothing costs {microusd} micro-dollars and {tokens} tokens")
            self._waiters[id] = Cost(microusd, tokens), self._pots_of(group)
            if id in self._held:
                # Attempts that hold something wait before those that hold nothing.
                for other in [one for one in self._waiters if one not in self._held]:
                    self._waiters[other] = self._waiters.pop(other)
        need, pots = self._waiters[id]
        refusal = self._refusal(id, need, pots)
        if isinstance(refusal, Later):
            return refusal
        del self._waiters[id]
        if refusal is None:
            self._denied.discard(id)
            for pot in pots:
                pot.reserved = pot.reserved.plus(need)
            self._held[id] = self.holds(id).plus(need), pots
        elif id not in self._held:
            self._denied.add(id)
        return refusal

    def settle(self, id: int, microusd: int = 0, tokens: int = 0) -> None:
        """An attempt ended and cost this. One that holds nothing leaves the line, at no cost."""
        held = self._held.pop(id, None)
        is_known = id in self._waiters or id in self._denied
        self._waiters.pop(id, None)
        self._denied.discard(id)
        if held is None:
            if is_known:
                return
            raise UnknownPermitError(f"attempt {id} holds nothing of the budget")
        reserved, pots = held
        for pot in pots:
            pot.reserved = pot.reserved.minus(reserved)
            pot.spent = pot.spent.plus(Cost(microusd, tokens))

    def holds(self, id: int) -> Cost:
        return self._held[id][0] if id in self._held else NOTHING

    def restore(self, spent: Cost, group: str = RUN) -> None:
        """What former processes spent, with all that their lost calls can have cost."""
        for pot in self._pots_of(group):
            pot.spent = pot.spent.plus(spent)

    def _pots_of(self, group: str) -> tuple[Pot, ...]:
        # What brings results together for a task counts towards that task: `verdict/1`, `verdict`.
        name = group if group in self.pots else group.partition("/")[0]
        names = (RUN, name) if name != RUN and name in self.pots else (RUN,)
        return tuple(self.pots[one] for one in names)

    def _refusal(self, id: int, need: Cost, pots: tuple[Pot, ...]) -> Later | Never | None:
        mine = self.holds(id)
        for pot in pots:
            if pot.lacks(need, mine):
                return Never(f"{pot}; a call may cost up to {need}")
        short, ahead = self._before(id)
        tight = _tight(need, pots, ahead)
        if not tight and not any(pot.name in short for pot in pots):
            return None
        if ahead or self._may_give_back(id):
            pot = (tight or [self.pots[RUN]])[0]
            return Later(f"{pot} and {pot.reserved} are set aside for calls in flight")
        if tight:
            # Every attempt that holds something waits for more: one of them has to fail.
            return Never(f"{tight[0]}, and the rest is set aside for attempts that wait")
        return None

    def _may_give_back(self, id: int) -> bool:
        """Whether something will end that this one can wait for."""
        if id not in self._held:
            return bool(self._held)
        return any(other not in self._waiters for other in self._held)

    def _before(self, id: int) -> tuple[set[str], dict[str, Cost]]:
        """Pots too empty for attempts before this one in line, and what the other ones take."""
        short: set[str] = set()
        ahead: dict[str, Cost] = {}
        for other, (need, pots) in takewhile(lambda one: one[0] != id, self._waiters.items()):
            if RUN in short:
                break
            if any(pot.lacks(need, self.holds(other)) for pot in pots):
                continue
            lacking = {pot.name for pot in _tight(need, pots, ahead)}
            short |= lacking
            if not lacking:
                for pot in pots:
                    ahead[pot.name] = ahead.get(pot.name, NOTHING).plus(need)
        return short, ahead


def _tight(need: Cost, pots: tuple[Pot, ...], ahead: Mapping[str, Cost]) -> list[Pot]:
    """The pots without room beside what is reserved and what those ahead will take."""
    return [pot for pot in pots if pot.lacks(need, pot.reserved.plus(ahead.get(pot.name, NOTHING)))]
