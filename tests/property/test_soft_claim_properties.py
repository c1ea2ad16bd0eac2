"""Soft claims, whatever answers do: nothing produced is forgotten, nobody is cut for nothing."""

from __future__ import annotations

from math import inf

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec import Struct

from headway.base.values import Budget, Sketch, Spend, Tally
from headway.pacing.admission import Admission
from headway.pacing.budget import STEP_TOKENS
from headway.pacing.call import CallId, Outcome, Request
from headway.pacing.estimate import INPUT_DOUBT, Price
from headway.pacing.memory import EVERY_ACCOUNT, AccountTerms, PacingMemory

PRICE = Price(3_000_000, 15_000_000)
INPUT = 104.0
"""The tokens of every input, which are estimated rightly."""

TOLERANCE = 1e-6


class Call(Struct):
    """What its caller knows of a call in flight."""

    id: CallId
    request: Request
    tokens: float = 0.0
    is_cut: bool = False

    @property
    def least(self) -> Spend:
        """What is owed for what it has produced."""
        return Spend(
            INPUT + self.tokens, PRICE.output_microusd_per_mtok * int(self.tokens) // 10**6
        )


class Agents(RuleBasedStateMachine):
    """Streams that grow as they like, soft and hard, under one budget."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.budget = Budget()
        self.admission = Admission(PacingMemory(), lambda *_: PRICE, 0.0)
        self.waiting: dict[CallId, Request] = {}
        self.held: dict[CallId, Call] = {}
        self.numbers = 0
        self.excess = Spend()
        """By how much the budget was exceeded with a reason: cut answers, and lowered budgets."""

    @rule(
        budget=st.one_of(
            st.builds(Budget, tokens=st.sampled_from([1000.0, 5000.0, 20_000.0])),
            st.builds(Budget, microusd=st.sampled_from([10_000, 100_000])),
        )
    )
    def set_budget(self, budget: Budget) -> None:
        self.budget = budget
        self.admission.configure(EVERY_ACCOUNT, AccountTerms(budget=budget), self.now)
        self.excess = self._over()

    @rule(most=st.sampled_from([None, 10, 700, 128_000]), is_soft=st.booleans())
    def ask(self, most: int | None, is_soft: bool) -> None:
        self.numbers += 1
        call = ("ann", self.numbers)
        # A hard claim is the most that a call can cost only if the call names it.
        most = most if is_soft or most is not None else 700
        sketch = Sketch("model", size_bytes=400, max_output_tokens=most)
        self.waiting[call] = Request("one", "anthropic", sketch, is_soft=is_soft)
        self.admission.ask(call, self.waiting[call], self.now)

    @rule()
    def decide(self) -> None:
        decision = self.admission.decide(self.now)
        for grant in decision.grants:
            self.held[grant.id] = Call(grant.id, self.waiting.pop(grant.id))
        for denied in decision.denials:
            if denied.id not in self.held:
                del self.waiting[denied.id]
                continue
            call = self.held[denied.id]
            assert call.request.is_soft
            assert not call.is_cut
            call.is_cut = True

    @precondition(lambda self: self.held)
    @rule(data=st.data(), more=st.sampled_from([1.0, 40.0, 300.0, 5000.0]))
    def grow(self, data: st.DataObject, more: float) -> None:
        call = self.held[data.draw(st.sampled_from(list(self.held)))]
        longest = call.request.sketch.max_output_tokens
        before, had_room = self._over(), self._has_room(more + STEP_TOKENS)
        call.tokens = min(call.tokens + more, inf if longest is None else float(longest))
        self.now += 1.0
        self.admission.progress(call.id, call.tokens, self.now)
        was_cut = call.is_cut
        self.decide()
        if call.is_cut and not was_cut:
            assert not had_room
        after = self._over()
        if call.is_cut:
            grown = Spend(after.tokens - before.tokens, after.microusd - before.microusd)
            self.excess = Spend(
                self.excess.tokens + max(0.0, grown.tokens),
                self.excess.microusd + max(0, grown.microusd),
            )

    @precondition(lambda self: self.held)
    @rule(data=st.data(), known=st.sampled_from(["reported", "estimated", "unknown"]))
    def settle(self, data: st.DataObject, known: str) -> None:
        call = self.held.pop(data.draw(st.sampled_from(list(self.held))))
        tally = Tally(INPUT, 0.0, call.tokens, "reported")
        if known == "estimated":
            tally = Tally(INPUT, 0.0, call.tokens, "estimated")
        elif known == "unknown":
            tally = Tally(known="unknown")
        spent = self._spent()
        assert self.admission.settle(call.id, Outcome("used", tally), self.now)
        now = self._spent()
        assert now.tokens - spent.tokens >= call.least.tokens - TOLERANCE
        assert now.microusd - spent.microusd >= call.least.microusd

    @rule()
    def die(self) -> None:
        least = sum(call.least.tokens for call in self.held.values())
        spent = self._spent().tokens
        assert self.admission.gone("ann", self.now) == len(self.held)
        assert self._spent().tokens - spent >= least - TOLERANCE
        self.held, self.waiting = {}, {}

    @invariant()
    def a_claim_is_no_less_than_what_was_produced(self) -> None:
        self.admission.ledgers()
        claims = {claim.id: claim.spend for claim in self.admission.budgets.claims()}
        for name, call in self.held.items():
            assert claims[name].tokens >= call.least.tokens - TOLERANCE
            assert claims[name].microusd >= call.least.microusd

    @invariant()
    def the_budget_is_exceeded_by_what_cut_answers_had_produced_only(self) -> None:
        over = self._over()
        assert over.tokens <= self.excess.tokens + TOLERANCE
        assert over.microusd <= self.excess.microusd

    def teardown(self) -> None:
        self.die()
        assert self.admission.budgets.claims() == ()
        assert self.admission.decide(self.now).denials == ()

    def _spent(self) -> Spend:
        ledgers = dict(self.admission.ledgers())
        return ledgers[EVERY_ACCOUNT].spent if EVERY_ACCOUNT in ledgers else Spend()

    def _taken(self) -> Spend:
        ledgers = dict(self.admission.ledgers())
        if EVERY_ACCOUNT not in ledgers:
            return Spend()
        spent, claimed = ledgers[EVERY_ACCOUNT].spent, ledgers[EVERY_ACCOUNT].claimed
        return Spend(spent.tokens + claimed.tokens, spent.microusd + claimed.microusd)

    def _over(self) -> Spend:
        taken, budget = self._taken(), self.budget
        tokens = 0.0 if budget.tokens is None else max(0.0, taken.tokens - budget.tokens)
        money = 0 if budget.microusd is None else max(0, taken.microusd - budget.microusd)
        return Spend(tokens, money)

    def _has_room(self, tokens: float) -> bool:
        """Whether so much more would fit, whoever wants it."""
        taken, budget = self._taken(), self.budget
        whole = INPUT_DOUBT * INPUT + tokens
        money = PRICE.input_microusd_per_mtok * INPUT_DOUBT * INPUT
        money += PRICE.output_microusd_per_mtok * tokens
        in_tokens = budget.tokens is None or taken.tokens + whole <= budget.tokens
        in_money = budget.microusd is None or taken.microusd + money / 1e6 + 1 <= budget.microusd
        return in_tokens and in_money


TestAgents = Agents.TestCase
TestAgents.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
