"""What a line waited for, and that everybody in it is told the longest of that."""

from __future__ import annotations

from headway.base.values import Amounts, Demand, Limit, Usage
from headway.pacing import queue as module
from headway.pacing.account import QuotaConfig
from headway.pacing.queue import SPELLS_MAX, Blame
from headway.pacing.quota import MAY_CALL, PermitRequest, Quota, Settlement, waited_for


def blamed(*spells: tuple[str, float]) -> Blame:
    line = Blame()
    for cause, at_s in spells:
        line.note(cause, at_s)
    return line


def test_what_was_waited_for_longest_is_told() -> None:
    line = blamed(("concurrency", 0.0), ("input/60s", 2.0), ("concurrency", 7.0), ("", 8.0))
    assert line.longest(0.0, 8.0) == "input/60s"


def test_only_what_came_after_it_asked_counts() -> None:
    line = blamed(("concurrency", 0.0), ("input/60s", 2.0), ("concurrency", 7.0))
    assert line.longest(6.5, 8.0) == "concurrency"
    assert line.longest(3.0, 7.5) == "input/60s"
    assert line.longest(7.0, 8.0) == "concurrency"


def test_a_line_that_waited_for_nothing_says_nothing() -> None:
    line = blamed(("input/60s", 1.0), ("", 3.0))
    assert line.longest(3.0, 9.0) == ""
    assert Blame().longest(0.0, 1.0) == ""
    assert blamed(("input/60s", 1.0)).longest(1.0, 1.0) == ""


def test_the_same_cause_again_is_one_spell_and_an_empty_one_is_none() -> None:
    line = blamed(("input/60s", 1.0), ("input/60s", 2.0), ("burst", 2.0), ("input/60s", 2.0))
    assert line.longest(0.0, 4.0) == "input/60s"


def test_old_spells_are_forgotten_and_the_sums_of_the_new_ones_stay_true() -> None:
    line = Blame()
    for number in range(SPELLS_MAX + 1):
        line.note("input/60s", 2.0 * number)
        line.note("", 2.0 * number + 1.0)
    end_s = 2.0 * SPELLS_MAX + 1.0
    assert len(line._spells["input/60s"].begins) == SPELLS_MAX + 1 - SPELLS_MAX // 2
    assert line._spells["input/60s"].since(end_s - 9.0) == 5.0
    assert line.longest(end_s - 9.0, end_s) == "input/60s"
    assert module.SPELLS_MAX == SPELLS_MAX


def test_a_permit_says_what_the_line_waited_for_longest_and_not_what_it_waited_for_last() -> None:
    """Nine seconds for the tokens, then two for the slot: the tokens it was."""
    limits = (Limit("input", 600.0, burst=100.0), Limit("concurrency", 1.0, 0.0, "gauge"))
    quota = Quota(QuotaConfig(limits=limits), 0.0)
    large = Demand(Amounts(60.0, 1.0), Amounts(60.0, 1.0))
    used = Settlement("used", Usage(Amounts(60.0, 1.0)))
    quota.ask(PermitRequest(large, asked_s=0.0))
    (first,) = quota.decide(0.0).grants
    assert first.permit.reason == MAY_CALL
    quota.settle(first.permit.id, used, 0.5)
    quota.ask(PermitRequest(large, asked_s=0.5))
    quota.ask(PermitRequest(Demand(Amounts(1.0, 1.0), Amounts(1.0, 1.0)), asked_s=0.5))
    waits = quota.decide(0.5)
    assert (waits.grants, waits.wait and waits.wait.resource) == ((), "input/60s")
    (second,) = quota.decide(9.5).grants
    assert waited_for(second.permit.reason) == "input/60s"
    assert quota.decide(10.0).wait == quota.decide(9.5).wait
    quota.settle(second.permit.id, used, 11.5)
    (third,) = quota.decide(11.5).grants
    assert waited_for(third.permit.reason) == "input/60s"


def test_what_a_call_waited_for_is_read_from_the_reason_of_its_permit() -> None:
    assert waited_for("waited for input/60s") == "input/60s"
    assert waited_for("does not delay a call that waits for output/60s") == "output/60s"
    assert waited_for(MAY_CALL) == ""
