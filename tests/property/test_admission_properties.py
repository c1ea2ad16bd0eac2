"""What admission promises, whatever clients do: everything ends once, nothing is left over."""

from __future__ import annotations

from math import inf

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec import Struct

from headway.base.numbers import next_month
from headway.base.values import Budget, Fault, Limit, Reading, Sketch, Spend, Tally
from headway.pacing.admission import Admission
from headway.pacing.budget import CLAIM_S
from headway.pacing.call import CallId, Outcome, Request
from headway.pacing.estimate import Price
from headway.pacing.memory import EVERY_ACCOUNT, AccountTerms, PacingMemory

ACCOUNTS = ("one", "two")
CLIENTS = ("ann", "bob", "eve")
PERIOD_S = 60.0
WAKES_MAX = 3000
"""A driver that sleeps until it is told to wake does not need more for so few calls."""

PRICE = Price(3_000_000, 15_000_000, 300_000)

sketches = st.builds(
    Sketch,
    model=st.sampled_from(["claude-sonnet-4-5", "claude-sonnet-4", "claude-haiku-4-5"]),
    size_bytes=st.integers(0, 8000),
    messages=st.integers(1, 3),
    max_output_tokens=st.sampled_from([10, 500, 4000]),
    prefix=st.sampled_from(["", "", "p", "q"]),
    prefix_bytes=st.just(100),
)
budgets = st.one_of(
    st.just(Budget()),
    st.builds(Budget, tokens=st.sampled_from([0.0, 3000.0, 9000.0, 30000.0])),
    st.builds(Budget, microusd=st.sampled_from([10_000, 100_000])),
)
terms = st.builds(
    lambda at_once, requests, share, budget: AccountTerms(
        (
            Limit("concurrency", at_once, kind="gauge"),
            Limit("requests", requests, PERIOD_S, "sliding"),
        ),
        share,
        budget=budget,
    ),
    st.sampled_from([1.0, 2.0, 4.0]),
    st.sampled_from([2.0, 4.0, 8.0]),
    st.sampled_from([1.0, 1.0, 0.5, 0.0]),
    budgets,
)
faults = st.sampled_from(
    [
        None,
        Fault("rate", retry_after_s=2.0),
        Fault("rate"),
        Fault("overload"),
        Fault("concurrency"),
        Fault("billing"),
        Fault("request"),
    ]
)


class Call(Struct):
    """What somebody who stands outside knows of a call."""

    id: CallId
    request: Request
    granted_s: float = inf
    is_counted: bool = True


class Outside(RuleBasedStateMachine):
    """What can be seen of admission from outside, and judged without knowing how it works."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.admission = Admission(PacingMemory(month="2026-11"), lambda *_: PRICE, self.now)
        self.terms: dict[str, AccountTerms] = {}
        self.waiting: dict[CallId, Call] = {}
        self.held: dict[CallId, Call] = {}
        self.sent: list[Call] = []
        self.ends: dict[CallId, str] = {}
        self.allowed: dict[str, Spend] = {}
        for account in ACCOUNTS:
            self.configure(account, AccountTerms((Limit("requests", 4.0, PERIOD_S, "sliding"),)))

    def configure(self, key: str, set_by_user: AccountTerms) -> None:
        self.admission.configure(key, set_by_user, self.now)
        self.terms[key] = set_by_user
        self.allowed = {name: _taken(self.admission, name) for name in (*ACCOUNTS, EVERY_ACCOUNT)}

    def wake(self) -> float:
        decision = self.admission.decide(self.now)
        assert decision.wake_s > self.now
        for grant in decision.grants:
            call = self.waiting.pop(grant.id)
            call.granted_s = self.now
            self.held[grant.id] = call
            self.sent.append(call)
            self.judge(call.request)
        for denied in decision.denials:
            assert denied.message
            self.end(self.waiting.pop(denied.id), "denied")
        return decision.wake_s

    def judge(self, request: Request) -> None:
        """Count what was sent in the last period and what is in flight, from the outside."""
        account = request.account
        kept = {limit.resource: limit for limit in self.terms[account].limits}
        share = self.terms[account].share
        for group in ("claude-sonnet-4", "claude-haiku-4"):
            ours = [
                call
                for call in self.sent
                if call.request.account == account and call.request.sketch.model.startswith(group)
            ]
            recent = [call for call in ours if call.granted_s > self.now - PERIOD_S]
            used = sum(call.is_counted for call in recent)
            is_ours = request.sketch.model.startswith(group)
            assert used <= kept["requests"].amount * share or not is_ours
            flying = sum(call.id in self.held for call in ours)
            if "concurrency" in kept and is_ours:
                assert flying <= max(1.0, kept["concurrency"].amount * share)

    def finish(self, name: CallId, outcome: Outcome) -> None:
        assert self.admission.settle(name, outcome, self.now)
        assert not self.admission.settle(name, outcome, self.now)
        call = self.held.pop(name)
        call.is_counted = outcome.how == "used"
        self.end(call, outcome.how)

    def bury(self, client: str) -> None:
        for calls in (self.held, self.waiting):
            for name in [name for name in calls if name[0] == client]:
                self.end(calls.pop(name), "died")

    def end(self, call: Call, how: str) -> None:
        assert call.id not in self.ends
        self.ends[call.id] = how

    def teardown(self) -> None:
        """Let everybody finish: a driver that sleeps until `wake_s` gets there."""
        for _ in range(WAKES_MAX):
            wake_s = self.wake()
            for call in list(self.held):
                self.finish(call, Outcome("used", _tally(self.held[call].request.sketch, 0.5)))
                wake_s = self.now
            if not self.waiting:
                break
            assert wake_s < inf
            self.now = max(self.now, wake_s)
        assert not self.waiting
        self.now += CLAIM_S
        self.wake()
        self.nothing_is_left_over()

    def nothing_is_left_over(self) -> None:
        admission = self.admission
        assert (admission._calls, admission._parked) == ({}, {})
        assert all(one.leader is None for one in admission._caches._cached.values())
        assert self.admission.budgets.claims() == ()
        assert all(ledger.claimed == Spend() for _, ledger in admission.ledgers())
        for account in self.admission.accounts:
            assert (account.queued, account.in_flight) == (0, {})


class Callers(Outside):
    """Three clients, two accounts, and a broker that may be replaced at any moment."""

    @rule(account=st.sampled_from(ACCOUNTS), set_by_user=terms)
    def set_terms(self, account: str, set_by_user: AccountTerms) -> None:
        self.configure(account, set_by_user)

    @rule(budget=budgets)
    def set_common_budget(self, budget: Budget) -> None:
        self.configure(EVERY_ACCOUNT, AccountTerms(budget=budget))

    @rule(
        client=st.sampled_from(CLIENTS),
        account=st.sampled_from(ACCOUNTS),
        sketches=st.lists(sketches, min_size=1, max_size=6),
        flow=st.sampled_from(["", "a", "b"]),
        is_resent=st.booleans(),
        decides=st.booleans(),
    )
    def ask(
        self,
        client: str,
        account: str,
        sketches: list[Sketch],
        flow: str,
        is_resent: bool,
        decides: bool,
    ) -> None:
        for sketch in sketches:
            call = (client, len(self.ends) + len(self.waiting) + len(self.held))
            path = (client, flow) if flow else ()
            request = Request(account, "anthropic", sketch, path, is_resent)
            self.waiting[call] = Call(call, request)
            self.admission.ask(call, request, self.now)
            self.admission.ask(call, request, self.now)
        if decides:
            self.decide()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from(list(self.waiting)))
        self.admission.leave(call)
        assert self.admission.why(call) is None
        self.end(self.waiting.pop(call), "left")

    @rule()
    def decide(self) -> None:
        self.wake()

    @precondition(lambda self: self.held)
    @rule(data=st.data(), tokens=st.integers(0, 100))
    def answer(self, data: st.DataObject, tokens: int) -> None:
        call = data.draw(st.sampled_from(list(self.held)))
        self.admission.first_byte(call, Reading(), "anthropic", self.now)
        self.admission.progress(call, tokens, self.now + 0.5)

    @precondition(lambda self: self.held)
    @rule(
        data=st.data(),
        how=st.sampled_from(["used", "used", "unused", "throttled"]),
        known=st.sampled_from(["reported", "estimated", "unknown"]),
        share=st.floats(0.0, 1.0),
        fault=faults,
    )
    def settle(
        self, data: st.DataObject, how: str, known: str, share: float, fault: Fault | None
    ) -> None:
        call = data.draw(st.sampled_from(list(self.held)))
        if how == "throttled":
            self.finish(call, Outcome("throttled", fault=fault or Fault("rate")))
        elif how == "unused":
            self.finish(call, Outcome("unused"))
        elif known == "reported":
            self.finish(call, Outcome("used", _tally(self.held[call].request.sketch, share)))
        else:
            self.finish(call, Outcome("used", Tally(known="unknown"), Fault("broken")))

    @rule(client=st.sampled_from(CLIENTS))
    def die(self, client: str) -> None:
        mine = [call for call in self.held if call[0] == client]
        assert self.admission.gone(client, self.now) == len(mine)
        self.bury(client)

    @rule(seconds=st.sampled_from([0.1, 1.0, 10.0, 31.0, 61.0, 300.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(away_s=st.sampled_from([0.0, 0.5, 20.0, 90.0]), lost=st.sets(st.sampled_from(CLIENTS)))
    def replace_the_broker(self, away_s: float, lost: set[str]) -> None:
        memory = self.admission.memory(self.now)
        self.now += away_s
        self.admission = Admission(memory, lambda *_: PRICE, self.now, away_s)
        for client in sorted(lost):
            self.bury(client)
        for call in self.held.values():
            for _ in range(2):
                self.admission.adopt(call.id, call.request, self.now - call.granted_s, self.now)
        for call in self.waiting.values():
            self.admission.ask(call.id, call.request, self.now)

    @rule()
    def a_month_begins(self) -> None:
        self.admission.budgets.turn(next_month(self.admission.budgets.month or "2026-11"))
        self.decide()

    @invariant()
    def admission_knows_as_many_calls_as_there_are(self) -> None:
        assert len(self.admission._calls) == len(self.waiting) + len(self.held)
        assert sum(len(one.in_flight) for one in self.admission.accounts) == len(self.held)

    @invariant()
    def no_budget_is_exceeded_by_what_was_granted_under_it(self) -> None:
        for name in (*ACCOUNTS, EVERY_ACCOUNT):
            budget = self.terms[name].budget if name in self.terms else Budget()
            taken, allowed = _taken(self.admission, name), self.allowed[name]
            if budget.tokens is not None:
                assert taken.tokens <= max(budget.tokens, allowed.tokens) + 1e-6
            if budget.microusd is not None:
                assert taken.microusd <= max(budget.microusd, allowed.microusd)


def _taken(admission: Admission, name: str) -> Spend:
    ledgers = dict(admission.ledgers())
    if name not in ledgers:
        return Spend()
    spent, claimed = ledgers[name].spent, ledgers[name].claimed
    return Spend(spent.tokens + claimed.tokens, spent.microusd + claimed.microusd)


def _tally(sketch: Sketch, share: float) -> Tally:
    """An input exactly as long as everybody thinks, an answer within its ceiling."""
    most = sketch.max_output_tokens or 0
    tokens_in = max(1.0, 0.25 * sketch.size_bytes + 4.0 * sketch.messages)
    return Tally(tokens_in, 0.0, float(int(most * share)))


TestCallers = Callers.TestCase
TestCallers.settings = settings(max_examples=250, stateful_step_count=40, deadline=None)
