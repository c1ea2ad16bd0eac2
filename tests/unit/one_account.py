"""One account that takes so many calls at once, and an admission that records how they end."""

from __future__ import annotations

from headway.base.values import Budget, Limit, Sketch
from headway.pacing.account import Profile
from headway.pacing.admission import Admission, AdmissionDecision
from headway.pacing.call import CallId, Outcome, Request
from headway.pacing.memory import AccountMemory, AccountTerms, PacingMemory

ACCOUNT = "api.example#1a2b3c4d"
CALL = Request(ACCOUNT, "anthropic", Sketch("model", size_bytes=100, max_output_tokens=100))
BUDGET = Budget(tokens=10_000.0)


class RecordedAdmission(Admission):
    def __init__(self, places: int = 1, budget: Budget = Budget(), *more: Limit) -> None:
        limits = (Limit("concurrency", float(places), kind="gauge"), *more)
        terms = (ACCOUNT, AccountTerms(limits, budget=budget))
        known = AccountMemory(ACCOUNT, "model", "anthropic", Profile(width=float(places)))
        memory = PacingMemory(terms=(terms,), accounts=(known,))
        super().__init__(memory, lambda *_: None, 0.0)
        self.outcomes: list[Outcome] = []
        self.most_in_flight = self.decisions = 0

    @property
    def endings(self) -> list[str]:
        return [outcome.how for outcome in self.outcomes]

    @property
    def in_flight(self) -> int:
        return sum(len(account.in_flight) for account in self.accounts)

    @property
    def waiting(self) -> int:
        return sum(account.queued for account in self.accounts)

    def decide(self, now: float) -> AdmissionDecision:
        self.decisions += 1
        decision = super().decide(now)
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        return decision

    def settle(self, id: CallId, outcome: Outcome, now: float) -> bool:
        is_first = super().settle(id, outcome, now)
        if is_first:
            self.outcomes.append(outcome)
        return is_first
