"""What a person is told of their accounts."""

from __future__ import annotations

from math import inf

from headway.base.values import Budget, Limit, LimitReading, Reading, Sketch, Tally, Wait
from headway.pacing.admission import Admission
from headway.pacing.call import Outcome, Request
from headway.pacing.memory import AccountTerms, PacingMemory
from headway.pacing.view import ClientCalls, LimitView, describe

CALL = Request("one", "anthropic", Sketch("model", size_bytes=400, max_output_tokens=100))


def _busy() -> Admission:
    admission = Admission(PacingMemory(month="2026-11"), lambda *_: None, 0.0)
    limits = (
        Limit("concurrency", 2.0, kind="gauge"),
        Limit("requests", 5.0, kind="sliding"),
    )
    terms = AccountTerms(limits, 1.0, "smooth", Budget(tokens=1e6))
    admission.configure("one", terms, 0.0)
    for client, number in (("bob", 1), ("ann", 2), ("ann", 3), ("eve", 4)):
        admission.ask((client, number), CALL, 0.0)
    admission.decide(0.0)
    return admission


def test_a_view_shows_the_calls_of_each_client_and_what_the_first_waits_for() -> None:
    view = describe(_busy(), 1.0)
    (account,) = view.accounts
    assert (account.account, account.group, account.dialect) == ("one", "model", "anthropic")
    assert (account.share, account.pace, account.width) == (1.0, "smooth", 2.0)
    assert (account.in_flight, account.granted, account.refused) == (2, 2, 0)
    assert account.wait == Wait("concurrency", inf, "2 in flight")
    assert account.clients == (
        ClientCalls("ann", 1, 1),
        ClientCalls("bob", 1, 0),
        ClientCalls("eve", 0, 1),
    )
    assert (view.month, [key for key, _ in view.terms]) == ("2026-11", ["one"])
    assert dict(view.ledgers)["one"].budget == Budget(tokens=1e6)


def test_a_view_says_how_much_of_each_limit_is_used_and_how_old_that_is() -> None:
    admission = _busy()
    told = Reading((LimitReading("input", 60.0, 600.0, 500.0, 10.0),))
    admission.first_byte(("bob", 1), told, "anthropic", 1.0)
    (account,) = describe(admission, 4.0).accounts
    requests, found = account.limits
    assert requests == LimitView(Limit("requests", 5.0, kind="sliding"), 2.0, None, 0.0)
    assert (found.limit.name, found.limit.source, found.age_s) == ("input/60s", "header", 4.0)
    assert found.used >= 0.0


def test_a_view_of_a_quiet_account_waits_for_nothing() -> None:
    admission = _busy()
    for call in (("ann", 3), ("eve", 4)):
        admission.leave(call)
    for call in (("bob", 1), ("ann", 2)):
        admission.settle(call, Outcome("used", Tally(10.0, 0.0, 1.0)), 1.0)
    (account,) = describe(admission, 2.0).accounts
    assert (account.wait, account.clients, account.in_flight) == (None, (), 0)
