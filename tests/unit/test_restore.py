"""A process goes on where another one stopped: levels, windows, ceilings, calls in flight."""

from __future__ import annotations

import pytest

from headway.base.values import Amounts, Demand, Limit, LimitKind, LimitReading, Usage
from headway.pacing.account import Belief, QuotaConfig, restore, standing
from headway.pacing.balance import Mirror
from headway.pacing.headers import ANTHROPIC, Dialect
from headway.pacing.limits import PlannedStream
from headway.pacing.quota import ADOPTED, Quota

CALL = Demand(Amounts(100.0, 50.0), Amounts(100.0, 400.0))
STREAM = PlannedStream(0.0, 1.0, 50.0)


def _mirror(limit: Limit, now: float, share: float = 1.0, dialect: Dialect = ANTHROPIC) -> Mirror:
    return Belief(QuotaConfig(dialect, (limit,), share), now).mirrors[0]


def _moved(limit: Limit, at_s: float, now: float, share: float = 1.0, uses: int = 1) -> Mirror:
    """A limit of which so many calls were charged at 0 s, seen at one time, gone on at another."""
    before = _mirror(limit, 0.0, share)
    for _ in range(uses):
        before.charge(CALL, STREAM, 0.0)
        before.settle(CALL, STREAM, 0.0, Usage(CALL.expected), 0.0)
    after = _mirror(limit, now, share)
    restore([after], [standing(before, at_s)], at_s, now)
    return after


def test_a_standing_reads_like_a_report() -> None:
    mirror = _mirror(Limit("input", 6000.0), 0.0)
    mirror.charge(CALL, STREAM, 0.0)
    assert standing(mirror, 0.5) == LimitReading("input", 60.0, 6000.0, 5950.0, None)
    window = _mirror(Limit("input", 6000.0, kind="fixed"), 0.0, share=0.5)
    window.charge(CALL, STREAM, 0.0)
    told = standing(window, 10.0)
    assert (told.remaining, told.reset_s) == (5900.0, 50.0)
    assert told.utilization == pytest.approx(100.0 / 6000.0)


def test_a_bucket_has_refilled_meanwhile() -> None:
    limit = Limit("input", 6000.0)
    assert _moved(limit, 0.0, 0.5).level(0.5) == 5950.0
    assert _moved(limit, 0.0, 9.0).level(9.0) == 6000.0


def test_a_window_ends_when_it_would_have_ended() -> None:
    limit = Limit("input", 6000.0, kind="fixed")
    within = _moved(limit, 10.0, 30.0)
    assert within.level(59.0) == 5900.0
    assert within.level(60.0) == 6000.0
    assert standing(within, 61.0).reset_s == 59.0
    beyond = _moved(limit, 10.0, 130.0)
    assert beyond.level(130.0) == 6000.0
    assert standing(beyond, 130.0).reset_s == 50.0


def test_a_window_of_which_the_edge_is_not_known_begins_now() -> None:
    mirror = _mirror(Limit("input", 6000.0, kind="fixed"), 5.0)
    restore([mirror], [LimitReading("input", 60.0, 6000.0, 5000.0, None)], 4.0, 5.0)
    assert (mirror.level(64.0), mirror.level(65.0)) == (5000.0, 6000.0)


def test_a_sliding_window_holds_everything_for_a_period_from_when_it_was_seen() -> None:
    mirror = _moved(Limit("input", 6000.0, kind="sliding"), 10.0, 30.0)
    assert mirror.level(69.0) == 5900.0
    assert mirror.level(71.0) == 6000.0


def test_a_limit_that_was_changed_meanwhile_keeps_what_was_used() -> None:
    before = _mirror(Limit("requests", 50.0, kind="sliding"), 0.0)
    for _ in range(30):
        before.charge(CALL, STREAM, 0.0)
    after = _mirror(Limit("requests", 20.0, kind="sliding"), 1.0)
    restore([after], [standing(before, 1.0)], 1.0, 1.0)
    assert after.level(1.0) == -10.0


def test_money_that_was_spent_stays_spent() -> None:
    limit = Limit("spend", 1000.0, kind="gauge")
    mirror = _mirror(limit, 1e6, share=0.5)
    restore([mirror], [LimitReading("spend", 60.0, 1000.0, 600.0, None, 0.4)], 0.0, 1e6)
    assert mirror.level(1e6) == 600.0
    assert mirror.ceiling is not None
    assert mirror.ceiling.level(1e6) == 100.0


@pytest.mark.parametrize("resource", ["input", "output"])
def test_a_ceiling_remembers_what_we_took_for_a_period(resource: str) -> None:
    limit = Limit("input" if resource == "input" else "output", 1000.0)
    mirror = _moved(limit, 20.0, 21.0, share=0.5, uses=4)
    assert mirror.ceiling is not None
    took = 400.0 if resource == "input" else 200.0
    assert mirror.ceiling.level(30.0) == pytest.approx(500.0 - took)
    assert mirror.ceiling.level(90.0) == pytest.approx(500.0)
    late = _moved(limit, 20.0, 81.0, share=0.5, uses=4)
    assert late.ceiling is not None
    assert late.ceiling.level(81.0) == 500.0


@pytest.mark.parametrize(
    ("kind", "left"), [("sliding", 300.0), ("fixed", 300.0), ("bucket", 400.0)]
)
def test_a_ceiling_that_is_new_counts_what_a_window_knows(kind: LimitKind, left: float) -> None:
    limit = Limit("input", 800.0, kind=kind)
    before = _mirror(limit, 0.0)
    before.charge(CALL, STREAM, 0.0)
    after = _mirror(limit, 1.0, share=0.5)
    restore([after], [standing(before, 1.0)], 1.0, 1.0)
    assert after.ceiling is not None
    assert after.ceiling.level(1.0) == left


@pytest.mark.parametrize(("known_s", "left"), [(0.5, 5900.0), (2.0, 6000.0)])
def test_an_adopted_call_is_charged_unless_that_is_known_already(
    known_s: float, left: float
) -> None:
    quota = Quota(QuotaConfig(limits=(Limit("input", 6000.0),)), 3.0)
    permit = quota.adopt(CALL, ("flow",), 1.0, known_s, 3.0)
    assert quota.belief.mirrors[0].level(3.0) == left
    assert (permit.granted_s, permit.reason, permit.flow) == (1.0, ADOPTED, "flow")
    assert quota.belief.tempo.in_flight == quota.in_flight == 1


def test_an_adopted_call_above_a_ceiling_of_ours_is_charged_there_too() -> None:
    quota = Quota(QuotaConfig(limits=(Limit("input", 6000.0),), share=0.5), 3.0)
    quota.adopt(CALL, ("flow",), 1.0, 0.0, 3.0)
    ceiling = quota.belief.mirrors[0].ceiling
    assert ceiling is not None
    assert ceiling.level(3.0) == 2900.0


@pytest.mark.parametrize("known_s", [0.0, 1.5, 10.0])
def test_the_answer_of_an_adopted_call_is_charged_once(known_s: float) -> None:
    """Sent at 0 s, first byte expected at 1 s, fifty tokens until 2 s; adopted at 10 s."""
    limit = Limit("output", 600.0, period_s=1e9)
    quota = Quota(QuotaConfig(limits=(limit,)), 10.0)
    belief = quota.belief
    produced = {0.0: 0.0, 1.5: 25.0, 10.0: 50.0}[known_s]
    seen = LimitReading("output", 1e9, 600.0, 600.0 - produced, None)
    restore(belief.mirrors, [seen], known_s, 10.0)
    permit = quota.adopt(CALL, ("flow",), 0.0, known_s, 10.0)
    assert belief.mirrors[0].level(10.0) == pytest.approx(550.0, abs=0.1)
    quota.settle(permit.id, "used", Usage(Amounts(100.0, 80.0)), 10.0)
    assert belief.mirrors[0].level(10.0) == pytest.approx(520.0, abs=0.1)
