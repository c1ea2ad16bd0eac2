"""Which account a call belongs to: what was learned under one name moves to a better one."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headway.base.numbers import REMEMBERED_MAX
from headway.base.values import Budget, Limit, LimitReading, Reading, Sketch, Spend, Tally
from headway.pacing.admission import Admission
from headway.pacing.call import Outcome, Request
from headway.pacing.headers import decode
from headway.pacing.memory import AccountTerms, PacingMemory
from headway.pacing.view import describe

MODEL = "claude-sonnet-4"
LIMIT = LimitReading("requests", 60.0, 50.0, 40.0, 12.0)
FULL = LimitReading("tokens", 18000.0, None, None, 9000.0, 1.0, "5h", True)
ONE, OTHER = "anthropic#00000001", "anthropic#00000002"


def opened(memory: PacingMemory = PacingMemory()) -> Admission:
    admission = Admission(memory, lambda *_: None, 0.0)
    admission.budgets.turn("2026-11-18")
    return admission


def ask(admission: Admission, number: int, key: str, login: str = "", now: float = 0.0) -> bool:
    """Ask for a permit; whether it is granted at once."""
    sketch = Sketch(MODEL, size_bytes=400, max_output_tokens=50)
    admission.ask(("me", number), Request(key, "anthropic", sketch, login=login), now)
    return any(grant.id == ("me", number) for grant in admission.decide(now).grants)


def answer(admission: Admission, number: int, owner: str, *told: LimitReading) -> None:
    admission.first_byte(("me", number), Reading(told, owner=owner), "anthropic", 1.0)
    assert admission.settle(("me", number), Outcome("used", Tally(100, 50)), 2.0)


def names(admission: Admission) -> set[str]:
    return {one.account for one in describe(admission, 2.0).accounts}


def spent(admission: Admission) -> dict[str, Spend]:
    return {name: one.spent for name, one in admission.ledgers() if one.spent != Spend()}


def test_what_a_key_learned_moves_to_its_organisation_with_calls_budget_and_terms() -> None:
    admission = opened()
    admission.configure("host#1", AccountTerms(share=0.5, budget=Budget(1000.0)), 0.0)
    for number in (1, 2):
        assert ask(admission, number, "host#1")
    admission.ask(
        ("me", 3), Request("host#1", "anthropic", Sketch(MODEL, max_output_tokens=2000)), 0.0
    )
    answer(admission, 1, ONE, LIMIT)
    assert names(admission) == {ONE}
    (view,) = describe(admission, 2.0).accounts
    assert view.share == 0.5
    assert [limit.limit.amount for limit in view.limits] == [50.0]
    assert dict(admission.terms()).keys() == {ONE}
    assert spent(admission) == {ONE: Spend(150.0, 0, 1), "": Spend(150.0, 0, 1)}
    # The call in flight settles there; the one that asked for too much is denied there.
    assert [denied.id[1] for denied in admission.decide(2.0).denials] == [3]
    answer(admission, 2, ONE)
    assert spent(admission)[ONE].tokens == 300.0


def test_two_keys_of_one_organisation_and_two_addresses_are_one_account() -> None:
    admission = opened()
    assert ask(admission, 1, "api.anthropic.com#1")
    assert ask(admission, 2, "proxy.test#2")
    assert names(admission) == {"api.anthropic.com#1", "proxy.test#2"}
    answer(admission, 1, ONE, LIMIT)
    answer(admission, 2, ONE)
    (view,) = describe(admission, 2.0).accounts
    assert (view.account, view.in_flight, view.granted) == (ONE, 0, 2)
    assert [limit.limit.amount for limit in view.limits] == [50.0]
    assert sum(spell.answered for _, _, spell in view.chronicle.minutes) == 2
    assert spent(admission)[ONE].tokens == 300.0
    assert dict(describe(admission, 2.0).keys) == {"api.anthropic.com#1": ONE, "proxy.test#2": ONE}


def test_a_new_token_of_a_login_finds_the_empty_window() -> None:
    admission = opened()
    assert ask(admission, 1, "api.anthropic.com#old", "anthropic#me")
    answer(admission, 1, ONE, FULL)
    assert not ask(admission, 2, "api.anthropic.com#new", "anthropic#me", 3.0)
    wait = admission.why(("me", 2))
    assert wait is not None
    assert wait.resource == "usage/5h"
    assert len(names(admission)) == 1
    # And so it does after a restart.
    later = opened(admission.memory(3.0))
    later.refresh("nothing")
    assert names(later) == names(admission)
    assert later.keys() == admission.keys()


def test_an_account_is_forgotten_with_its_terms_and_not_while_a_call_uses_it() -> None:
    admission = opened()
    assert ask(admission, 1, "api.anthropic.com#1")
    admission.forget("api.anthropic.com#1")
    assert names(admission) == {"api.anthropic.com#1"}
    answer(admission, 1, ONE, LIMIT)
    admission.configure(ONE, AccountTerms(share=0.5), 2.0)
    admission.configure("", AccountTerms(share=0.9), 2.0)
    admission.forget(ONE)
    assert names(admission) == set()
    assert dict(admission.terms()) == {"": AccountTerms(share=0.9)}
    assert opened(admission.memory(3.0)).memory(3.0).accounts == ()


def test_two_organisations_of_one_person_are_two_accounts() -> None:
    admission = opened()
    assert ask(admission, 1, "host#work", "anthropic#me")
    answer(admission, 1, ONE, FULL)
    admission.refresh()
    assert ask(admission, 2, "host#home", "anthropic#me", 3.0)
    answer(admission, 2, OTHER, LIMIT)
    assert names(admission) == {f"{ONE}-me", f"{OTHER}-me"}
    assert ask(admission, 3, "host#home", "anthropic#me", 4.0)
    assert not ask(admission, 4, "host#work", "anthropic#me", 4.0)


def test_a_token_for_another_organisation_teaches_the_first_one_nothing() -> None:
    admission = opened()
    admission.configure(f"{ONE}-me", AccountTerms(budget=Budget(10_000.0)), 0.0)
    assert ask(admission, 1, "host#work", "anthropic#me")
    answer(admission, 1, ONE, LIMIT)
    # A new token: of this login only the first organisation is known.
    assert ask(admission, 2, "host#home", "anthropic#me", 3.0)
    assert ask(admission, 3, "host#home", "anthropic#me", 3.0)
    answer(admission, 2, OTHER, FULL)
    work, home = describe(admission, 4.0).accounts
    assert (work.account, work.granted, work.in_flight, work.windows) == (f"{ONE}-me", 1, 0, ())
    assert (home.account, home.granted, home.in_flight) == (f"{OTHER}-me", 2, 1)
    assert home.windows[0].is_empty
    assert ask(admission, 4, "host#work", "anthropic#me", 4.0)
    answer(admission, 3, OTHER, FULL)
    assert set(spent(admission)) == {"", f"{ONE}-me", f"{OTHER}-me"}
    assert spent(admission)[f"{ONE}-me"].tokens == 150


def test_calls_that_wait_move_to_the_organisation_of_their_token() -> None:
    admission = opened()
    admission.configure("", AccountTerms(limits=(Limit("concurrency", 1.0),)), 0.0)
    assert ask(admission, 1, "host#work", "anthropic#me")
    answer(admission, 1, ONE, LIMIT)
    assert ask(admission, 2, "host#home", "anthropic#me", 3.0)
    assert not ask(admission, 3, "host#home", "anthropic#me", 3.0)
    assert not ask(admission, 4, "host#work", "anthropic#me", 3.0)
    admission.first_byte(("me", 2), Reading(owner=OTHER), "anthropic", 4.0)
    # The place of the first organisation is free; that of the other one is taken.
    assert [grant.id for grant in admission.decide(4.0).grants] == [("me", 4)]
    assert admission.settle(("me", 2), Outcome("used", Tally(100, 50)), 5.0)
    assert [grant.id for grant in admission.decide(5.0).grants] == [("me", 3)]


def test_a_user_joins_and_parts_accounts_by_name() -> None:
    admission = opened()
    for number, key, owner in ((1, "a#1", ONE), (2, "b#2", OTHER)):
        assert ask(admission, number, key)
        answer(admission, number, owner, LIMIT)
    admission.name(ONE, "work", 3.0)
    assert names(admission) == {"work", OTHER}
    admission.name(OTHER, "work", 3.0)
    assert names(admission) == {"work"}
    assert spent(admission)["work"].tokens == 300.0
    # One key of it becomes an account of its own.
    admission.name("b#2", "side", 4.0)
    assert ask(admission, 3, "b#2", "", 5.0)
    assert ask(admission, 4, "a#1", "", 5.0)
    assert names(admission) == {"work", "side"}
    admission.name("side", "", 6.0)
    assert names(admission) == {"work"}
    admission.name("work", "", 6.0)
    assert ask(admission, 5, "a#1", "", 7.0)
    assert ONE in names(admission)


def test_an_account_may_be_given_its_own_name_and_the_oldest_key_is_forgotten() -> None:
    old = tuple((f"a#{number}", ONE) for number in range(REMEMBERED_MAX))
    admission = opened(PacingMemory(owners=old))
    assert ask(admission, 1, "b#1")
    answer(admission, 1, OTHER)
    assert dict(admission.keys()) == {**dict(old[1:]), "b#1": OTHER}
    admission.name(OTHER, OTHER, 3.0)
    assert names(admission) == {OTHER}


def test_responses_name_the_organisation_and_its_project_by_a_digest() -> None:
    told = [
        decode(headers, None).owner
        for headers in (
            {"anthropic-organization-id": "org-1"}, {"openai-organization": "org-1"},
            {"openai-organization": "org-1", "openai-project": "p"}, {"x-request-id": "1"},
        )
    ]  # fmt: skip
    assert [one.partition("#")[0] for one in told] == ["anthropic", "openai", "openai", ""]
    assert len({*told}) == 4
    assert not any("org-1" in one for one in told)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["ask", "begin", "settle", "name", "part", "budget"]),
        st.integers(0, 7), st.sampled_from(["a#1", "a#2", "b#3"]),
        st.sampled_from(["", "anthropic#me"]), st.sampled_from(["", ONE, OTHER]),
    ),
    max_size=40,
)  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(STEPS)
def test_whatever_names_come_up_every_call_settles_once_and_money_adds_up(
    steps: list[tuple[str, int, str, str, str]],
) -> None:
    admission = opened()
    asked: set[int] = set()
    granted: set[int] = set()
    ended = 0
    for now, (what, number, key, login, owner) in enumerate(steps):
        if what == "ask" and number not in asked:
            asked.add(number)
            sketch = Sketch(MODEL, size_bytes=400, max_output_tokens=50)
            admission.ask(("me", number), Request(key, "anthropic", sketch, login=login), now)
        elif what == "begin":
            reading = Reading((LIMIT,), owner=owner)
            admission.first_byte(("me", number), reading, "anthropic", now)
        elif what == "settle":
            outcome = Outcome("used", Tally(100, 50), reading=Reading(owner=owner))
            is_first = admission.settle(("me", number), outcome, now)
            assert is_first == (number in granted)
            granted.discard(number)
            ended += is_first
        elif what == "name":
            admission.name(key, "work", now)
        elif what == "part":
            admission.name("work", "", now)
        elif what == "budget":
            admission.configure(key, AccountTerms(budget=Budget(1e6)), now)
        decision = admission.decide(now)
        assert not decision.denials
        granted |= {grant.id[1] for grant in decision.grants}
        by_account = spent(admission)
        assert by_account.pop("", Spend()).tokens == 150.0 * ended
        assert sum(one.tokens for one in by_account.values()) == 150.0 * ended
        view = describe(admission, now)
        assert sum(one.in_flight for one in view.accounts) == len(granted)
        claims = dict(view.ledgers).get("")
        assert claims is None or claims.claims >= len(granted)
    for number in sorted(granted):
        assert admission.settle(("me", number), Outcome("unused"), 100.0)
    for now in range(100, 400, 10):
        for grant in admission.decide(now).grants:
            assert admission.settle(grant.id, Outcome("unused"), now)
    assert admission.unsent == 0
    assert all(one.claims == 0 for _, one in admission.ledgers())
