"""What a line waited for, and that everybody in it is told the longest of that."""

from __future__ import annotations

from headway.base.values import Amounts, Demand, Limit, Usage
from headway.pacing.account import QuotaConfig
from headway.pacing.quota import MAY_CALL, PermitRequest, Quota, Settlement, waited_for


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
