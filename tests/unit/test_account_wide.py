"""What a user sets for an account holds over all of its models."""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from headway.base.values import Limit, LimitReading, Reading, Sketch, Tally
from headway.pacing.admission import Admission
from headway.pacing.call import Granted, Outcome, Request
from headway.pacing.memory import AccountTerms, PacingMemory
from headway.pacing.presence import ACTIVE_S
from headway.pacing.view import describe

MODELS = ("claude-opus-4", "claude-sonnet-4", "claude-haiku-4")
FOUR = Limit("concurrency", 4.0, 0.0, "gauge")


def full(terms: dict[str, AccountTerms], calls: int = 30) -> tuple[Admission, list[Granted]]:
    """An account with calls of three models, and those that were granted at once."""
    admission = Admission(PacingMemory(), lambda *_: None, 0.0)
    for key, one in terms.items():
        admission.configure(key, one, 0.0)
    for number in range(calls):
        sketch = Sketch(MODELS[number % 3], size_bytes=400, max_output_tokens=50)
        admission.ask(("me", number), Request("a", "plain", sketch), 0.0)
    return admission, list(admission.decide(0.0).grants)


def test_the_slots_of_an_account_are_shared_by_its_models_and_each_gets_its_turn() -> None:
    admission, in_flight = full({"a": AccountTerms((FOUR,))})
    assert len(in_flight) == 4
    served = Counter[int]()
    for step in range(1, 200):
        now = 0.1 * step
        done = in_flight.pop(0)
        served[done.id[1] % 3] += 1
        assert admission.settle(done.id, Outcome("used"), now)
        decision = admission.decide(now)
        assert not decision.denials
        in_flight += decision.grants
        assert len(in_flight) <= 4
        assert len(in_flight) == min(4, 30 - served.total())
        if step == 12:
            # Three models, four slots: none waits until another one is through.
            assert min(served[model] for model in range(3)) >= 2
        if not in_flight:
            break
    assert served == {0: 10, 1: 10, 2: 10}


def test_slots_of_a_model_group_are_its_own_and_a_ceiling_of_the_account_holds_for_it() -> None:
    two = Limit("concurrency", 2.0, 0.0, "gauge")
    rpm = Limit("requests", 50.0)
    terms = {"a": AccountTerms((FOUR, rpm), share=0.5), f"a/{MODELS[0]}": AccountTerms((two,))}
    admission, in_flight = full(terms)
    # A ceiling of a half leaves two of the four slots of the account.
    assert len(in_flight) == 2
    views = {view.group: view for view in describe(admission, 0.0).accounts}
    assert {view.share for view in views.values()} == {0.5}
    assert [one.limit.amount for one in views[MODELS[0]].limits] == [50.0]
    admission.configure("a", AccountTerms(), 0.0)
    flying = Counter(grant.id[1] % 3 for grant in (*in_flight, *admission.decide(0.0).grants))
    assert flying[0] == 2
    assert flying.total() > 4


def test_instructions_that_another_conversation_wrote_are_read_from_the_cache() -> None:
    admission = Admission(PacingMemory(), lambda *_: None, 0.0)
    expected = []
    for number, shared in enumerate(("s", "s", "other")):
        sketch = Sketch(
            MODELS[1], size_bytes=8_000, max_output_tokens=50, prefix=f"p{number}",
            prefix_bytes=8_000, shared=shared, shared_bytes=6_000,
        )  # fmt: skip
        admission.ask(("me", number), Request("a", "anthropic", sketch), 0.0)
        (granted,) = admission.decide(0.0).grants
        expected.append(granted.expected.input_tokens)
        admission.first_byte(granted.id, Reading(), "anthropic", 0.0)
        admission.settle(granted.id, Outcome("unused"), 0.0)
    assert expected[1] < 0.5 * expected[0]
    assert expected[2] == expected[0]


def test_a_run_that_has_its_share_does_not_pass_a_call_that_waits_for_a_limit() -> None:
    tokens = Limit("tokens", 1_000.0, 60.0, "fixed")
    admission = Admission(PacingMemory(), lambda *_: None, 0.0)
    admission.configure("a", AccountTerms((tokens,)), 0.0)

    def ask(number: int, size: int, path: str, shares: tuple[float, float] | None) -> list[int]:
        sketch = Sketch(MODELS[0], size_bytes=size, max_output_tokens=1)
        request = Request("a", "plain", sketch, (path,), window_shares=shares)
        admission.ask(("me", number), request, 1.0)
        return [grant.id[1] for grant in admission.decide(1.0).grants]

    assert ask(1, 400, "run", (0.1, 0.1)) == [1]
    empty = LimitReading("tokens", 18_000.0, None, None, 9_000.0, 0.0, "5h")
    used = LimitReading("tokens", 18_000.0, None, None, 9_000.0, 0.2, "5h")
    admission.first_byte(("me", 1), Reading((empty,)), "plain", 1.0)
    admission.settle(("me", 1), Outcome("used", Tally(100, 1), reading=Reading((used,))), 1.0)
    assert ask(2, 100, "run", (0.1, 0.1)) == [2]
    admission.first_byte(("me", 2), Reading((used,)), "plain", 1.0)
    admission.settle(("me", 2), Outcome("used", Tally(25, 1)), 1.0)
    assert ask(3, 3_900, "other", None) == []
    # The first of the line waits for tokens. A small call may pass it, one of that run may not.
    assert ask(4, 100, "run", (0.1, 0.1)) == []
    assert ask(5, 100, "small", None) == [5]


def personal(admission: Admission, number: int, model: str, now: float) -> bool:
    """A person asks for a call; whether it is sent at once."""
    sketch = Sketch(model, size_bytes=400, max_output_tokens=50)
    request = Request("a", "plain", sketch, ("claude-code:1",), is_interactive=True)
    admission.ask(("person", number), request, now)
    return ("person", number) in [grant.id for grant in admission.decide(now).grants]


def test_a_persons_call_goes_before_those_of_runs_on_other_models() -> None:
    admission, in_flight = full({"a": AccountTerms((replace(FOUR, amount=1.0),))})
    assert not personal(admission, 1, "claude-fable-5", 0.0)
    assert not personal(admission, 2, "claude-fable-5", 0.0)
    for number in (1, 2):
        assert admission.settle(in_flight.pop().id, Outcome("used"), float(number))
        in_flight += admission.decide(float(number)).grants
        assert [grant.id for grant in in_flight] == [("person", number)]


def test_runs_on_other_models_leave_a_persons_place() -> None:
    admission = Admission(PacingMemory(), lambda *_: None, 0.0)
    admission.configure("a", AccountTerms((FOUR,)), 0.0)
    assert personal(admission, 1, MODELS[0], 0.0)
    assert admission.settle(("person", 1), Outcome("used"), 1.0)
    for number in range(20):
        sketch = Sketch(MODELS[1 + number % 2], size_bytes=400, max_output_tokens=50)
        admission.ask(("me", number), Request("a", "plain", sketch), 1.0)
    assert len(admission.decide(1.0).grants) == 3
    assert personal(admission, 2, MODELS[0], 2.0)
    assert admission.settle(("person", 2), Outcome("used"), 3.0)
    assert admission.decide(3.0).grants == ()
    assert len(admission.decide(3.0 + ACTIVE_S).grants) == 1
