"""A balance charges what the provider will charge, when it will charge it, and ends it once."""

from __future__ import annotations

from math import inf

import pytest

from headway.base.values import Amounts, Charging, Demand, Limit, LimitKind, Resource, Usage, Wait
from headway.pacing.balance import (
    CEILING_MARGIN,
    EXACT_FLOOR,
    FLOOR_CALLS,
    FLOOR_SHARE,
    SLIDE_MARGIN,
    Balance,
)
from headway.pacing.limits import BIN_S, PlannedStream

NO_STREAM = PlannedStream(0.0, 0.0, 0.0)


ONE_BIN = 5.0
"""Refill of half a second, which a bucket that was full has lost."""


def _balance(limit: Limit, charging: Charging = "produced", share: float = 1.0) -> Balance:
    return Balance(limit, charging, share, 0.0, 0.0)


def _demand(input_tokens: float = 0.0, output_tokens: float = 0.0, spend: int = 0) -> Demand:
    """A call that is expected to take all that it may."""
    amounts = Amounts(input_tokens, output_tokens, spend)
    return Demand(amounts, amounts)


def _used(input_tokens: float = 0.0, output_tokens: float = 0.0, spend: int = 0) -> Usage:
    return Usage(Amounts(input_tokens, output_tokens, spend))


def test_admission_takes_what_is_needed_and_tells_what_is_left() -> None:
    balance = _balance(Limit("input", 600.0))
    assert balance.charge(_demand(100.0), NO_STREAM, 0.0) == 500.0
    assert balance.level(1.0) == pytest.approx(510.0)


@pytest.mark.parametrize(("used", "left"), [(40.0, 560.0), (100.0, 500.0), (150.0, 450.0)])
@pytest.mark.parametrize("kind", ["bucket", "sliding", "fixed"])
def test_settle_corrects_what_was_taken_to_what_was_used(
    kind: LimitKind, used: float, left: float
) -> None:
    balance = _balance(Limit("input", 600.0, kind=kind))
    balance.charge(_demand(100.0), NO_STREAM, 0.0)
    balance.settle(_demand(100.0), NO_STREAM, 0.0, _used(used), 0.0)
    assert balance.level(0.0) == left


def test_a_request_is_counted_once_and_its_end_changes_nothing() -> None:
    balance = _balance(Limit("requests", 60.0))
    balance.charge(_demand(), NO_STREAM, 0.0)
    balance.settle(_demand(), NO_STREAM, 0.0, _used(5.0), 0.0)
    assert balance.level(0.0) == 59.0


def test_what_never_ran_comes_back() -> None:
    balance = _balance(Limit("input", 600.0), share=0.5)
    balance.charge(_demand(100.0), NO_STREAM, 0.0)
    balance.give_back(_demand(100.0), NO_STREAM, 0.0, False, 0.0)
    assert balance.level(0.0) == 600.0
    assert balance.when(_demand(300.0), NO_STREAM, 0.0) == 0.0


def test_a_refusal_that_the_provider_counts_does_not_come_back() -> None:
    balance = _balance(Limit("input", 600.0))
    balance.charge(_demand(100.0), NO_STREAM, 0.0)
    balance.give_back(_demand(100.0), NO_STREAM, 0.0, True, 0.0)
    assert balance.level(0.0) == 500.0


def test_a_call_from_before_the_limit_was_known_joins_it() -> None:
    """What the provider's reading contains already is not charged again."""
    balance = _balance(Limit("input", 600.0))
    balance.join(_demand(100.0), NO_STREAM, False, 0.0)
    assert balance.level(0.0) == 600.0
    balance.join(_demand(100.0), NO_STREAM, True, 0.0)
    assert balance.level(0.0) == 500.0


def test_a_sliding_window_is_corrected_as_of_the_admission() -> None:
    """The correction is forgotten together with the charge, a grain after the period."""
    balance = _balance(Limit("input", 600.0, kind="sliding"))
    balance.charge(_demand(100.0), NO_STREAM, 0.0)
    balance.settle(_demand(100.0), NO_STREAM, 0.0, _used(150.0), 30.0)
    assert balance.level(60.0) == 450.0
    assert balance.level(60.0 * (1 + SLIDE_MARGIN)) == 600.0


def test_a_sliding_window_takes_an_answer_along_its_stream() -> None:
    balance = _balance(Limit("output", 600.0, kind="sliding"))
    stream = PlannedStream(0.0, 8.0, 100.0)
    balance.charge(_demand(), stream, 0.0)
    balance.settle(_demand(), stream, 0.0, _used(0.0, 80.0), 8.0)
    assert balance.level(8.0) == 520.0
    assert balance.level(2.0 + 60.0 * (1 + SLIDE_MARGIN)) == 540.0


def test_an_aligned_window_takes_only_what_was_produced_inside_it() -> None:
    balance = _balance(Limit("output", 600.0, kind="fixed"))
    stream = PlannedStream(50.0, 70.0, 200.0)
    balance.charge(_demand(), stream, 50.0)
    balance.settle(_demand(), stream, 50.0, _used(0.0, 200.0), 70.0)
    assert balance.level(70.0) == pytest.approx(500.0)


def test_an_answer_that_came_before_its_plan_is_taken_at_once() -> None:
    balance = _balance(Limit("output", 600.0, kind="fixed"))
    stream = PlannedStream(50.0, 70.0, 200.0)
    balance.charge(_demand(), stream, 0.0)
    balance.settle(_demand(), stream, 0.0, _used(0.0, 200.0), 10.0)
    assert balance.level(10.0) == 400.0


def test_of_a_window_what_is_still_to_come_counts_as_taken() -> None:
    """There debt is not repaid: only the end of the other call makes room, which no time tells."""
    balance = _balance(Limit("output", 600.0, kind="sliding"))
    long = PlannedStream(0.0, 8.0, 500.0)
    assert balance.charge(_demand(), long, 0.0) == 100.0
    assert balance.when(_demand(), PlannedStream(0.0, 8.0, 50.0), 0.0) == 0.0
    wait = balance.wait(_demand(), PlannedStream(0.0, 8.0, 200.0), 0.0)
    assert wait == Wait("output/60s", inf, "calls in flight may use up the rest")


def test_with_one_call_left_in_flight_only_its_share_is_held() -> None:
    balance = _balance(Limit("output", 600.0, kind="fixed"))
    first, second = PlannedStream(0.0, 8.0, 100.0), PlannedStream(0.0, 8.0, 30.0)
    balance.charge(_demand(), first, 0.0)
    balance.charge(_demand(), second, 0.0)
    balance.give_back(_demand(), first, 0.0, False, 0.0)
    assert (balance.level(0.0), balance.count.planned) == (600.0, 30.0)


def test_a_bucket_follows_the_streams_in_flight() -> None:
    """Settling early takes the rest off the plan and corrects what was believed produced."""
    balance = _balance(Limit("output", 600.0))
    stream = PlannedStream(0.0, 10.0, 300.0)
    assert balance.charge(_demand(), stream, 0.0) == 600.0
    assert balance.level(5.0) == pytest.approx(600.0 - 5.0 * (30.0 - 10.0), abs=ONE_BIN)
    assert balance.count.planned == pytest.approx(150.0)
    balance.settle(_demand(), stream, 0.0, _used(0.0, 180.0), 5.0)
    assert balance.level(5.0) == pytest.approx(600.0 + 50.0 - 180.0, abs=ONE_BIN)
    assert balance.count.planned == pytest.approx(0.0)


def test_a_new_plan_moves_the_level_to_what_it_believes_produced() -> None:
    balance = _balance(Limit("output", 600.0))
    before, after = PlannedStream(0.0, 10.0, 300.0), PlannedStream(0.0, 10.0, 400.0)
    balance.charge(_demand(), before, 0.0)
    balance.plan(before, after, 5.0)
    assert balance.level(5.0) == pytest.approx(600.0 + 50.0 - 200.0, abs=ONE_BIN)
    assert balance.count.planned == pytest.approx(200.0)


def test_a_new_plan_changes_what_a_window_holds_back() -> None:
    balance = _balance(Limit("output", 600.0, kind="fixed"))
    before, after = PlannedStream(0.0, 10.0, 300.0), PlannedStream(0.0, 10.0, 400.0)
    balance.charge(_demand(), before, 0.0)
    balance.plan(before, after, 5.0)
    assert balance.count.planned == 400.0


def test_a_new_plan_means_nothing_to_a_limit_of_input() -> None:
    balance = _balance(Limit("input", 600.0))
    balance.charge(_demand(100.0), NO_STREAM, 0.0)
    balance.plan(PlannedStream(0.0, 10.0, 300.0), PlannedStream(0.0, 10.0, 400.0), 0.0)
    assert (balance.level(0.0), balance.count.planned) == (500.0, 0.0)


def test_money_is_held_at_its_ceiling_until_the_call_ends() -> None:
    balance = _balance(Limit("spend", 1000.0, 0.0, "gauge"))
    dear = _demand(spend=600)
    assert balance.charge(dear, NO_STREAM, 0.0) == 400.0
    wait = balance.wait(dear, NO_STREAM, 0.0)
    assert wait == Wait("spend", inf, "calls in flight may use up the rest")
    balance.settle(dear, NO_STREAM, 0.0, _used(spend=300), 9.0)
    assert balance.level(9.0) == 700.0
    assert balance.wait(dear, NO_STREAM, 9.0) is None


def test_a_call_that_may_cost_more_than_all_the_money_is_never_admitted() -> None:
    balance = _balance(Limit("spend", 1000.0, 0.0, "gauge"), share=0.5)
    assert balance.can_ever(_demand(spend=500))
    wait = balance.wait(_demand(spend=501), NO_STREAM, 0.0)
    assert wait == Wait("spend", inf, "one call exceeds all that there ever is")


def test_a_call_larger_than_a_limit_that_refills_passes_some_day() -> None:
    assert _balance(Limit("input", 600.0)).can_ever(_demand(10_000.0))


def test_nothing_ever_passes_a_limit_of_nothing() -> None:
    balance = _balance(Limit("input", 0.0))
    assert not balance.can_ever(_demand(1.0))
    assert balance.when(_demand(1.0), NO_STREAM, 0.0) == inf


def test_a_call_passes_at_once_where_plenty_is_left() -> None:
    balance = _balance(Limit("input", 600.0))
    assert balance.wait(_demand(100.0), NO_STREAM, 3.0) is None


def test_a_call_waits_for_the_refill_of_what_it_lacks() -> None:
    balance = _balance(Limit("requests", 60.0))
    for _ in range(60):
        balance.charge(_demand(), NO_STREAM, 0.0)
    wait = balance.wait(_demand(), NO_STREAM, 0.0)
    assert wait is not None
    assert wait.reason == "refilling"
    assert wait.until_s == pytest.approx(1.0, abs=1e-3)


def test_a_call_as_large_as_the_limit_waits_until_it_is_full() -> None:
    """And full beyond our errors: a floor's worth of refill later."""
    balance = _balance(Limit("input", 600.0))
    balance.charge(_demand(100.0), NO_STREAM, 0.0)
    margin_s = EXACT_FLOOR * 600.0 / 10.0
    assert balance.when(_demand(600.0), NO_STREAM, 0.0) == pytest.approx(10.0 + margin_s)
    assert balance.when(_demand(600.0), NO_STREAM, 10.0) == pytest.approx(10.0 + margin_s)
    assert balance.when(_demand(600.0), NO_STREAM, 30.0) == 30.0


def test_a_projected_call_waits_for_the_streams_before_it() -> None:
    balance = _balance(Limit("output", 600.0))
    balance.charge(_demand(), PlannedStream(0.0, 10.0, 600.0), 0.0)
    assert 0.0 < balance.when(_demand(), PlannedStream(0.0, 10.0, 600.0), 0.0) < inf


def test_a_share_is_a_second_limit_over_any_period() -> None:
    balance = _balance(Limit("input", 600.0), share=0.5)
    balance.charge(_demand(200.0), NO_STREAM, 0.0)
    until_s = 60.0 * (1 + CEILING_MARGIN)
    assert balance.when(_demand(200.0), NO_STREAM, 0.0) == pytest.approx(until_s)
    assert balance.when(_demand(100.0), NO_STREAM, 0.0) == 0.0


def test_a_share_counts_what_was_produced_later_too() -> None:
    balance = _balance(Limit("output", 600.0), share=0.5)
    stream = PlannedStream(0.0, 4.0, 200.0)
    balance.charge(_demand(), stream, 0.0)
    balance.settle(_demand(), stream, 0.0, _used(0.0, 200.0), 4.0)
    assert balance.when(_demand(), PlannedStream(4.0, 8.0, 100.0), 4.0) == 4.0
    assert balance.when(_demand(), PlannedStream(4.0, 8.0, 150.0), 4.0) > 50.0


def test_a_share_of_money_is_a_share_in_all() -> None:
    """Nothing gives it back: a share of a total is spent once."""
    balance = _balance(Limit("spend", 1000.0, 0.0, "gauge"), share=0.5)
    balance.charge(_demand(spend=400), NO_STREAM, 0.0)
    balance.settle(_demand(spend=400), NO_STREAM, 0.0, _used(spend=400), 1.0)
    assert balance.when(_demand(spend=100), NO_STREAM, 1.0) == 1.0
    assert balance.when(_demand(spend=101), NO_STREAM, 1e6) == inf


def test_an_answer_of_nothing_is_charged_to_nobody() -> None:
    balance = _balance(Limit("output", 600.0, kind="sliding"), share=0.5)
    stream = PlannedStream(0.0, 4.0, 200.0)
    balance.charge(_demand(), stream, 0.0)
    balance.settle(_demand(), stream, 0.0, _used(), 4.0)
    assert balance.level(4.0) == 600.0
    assert balance.when(_demand(), PlannedStream(4.0, 8.0, 299.0), 4.0) == 4.0


def test_a_learned_bucket_leaves_room_for_a_few_calls_or_a_share() -> None:
    balance = _balance(Limit("input", 600.0, source="header"))
    balance.charge(_demand(10.0), NO_STREAM, 0.0)
    assert balance.floor() == FLOOR_CALLS * 10.0
    balance.charge(_demand(400.0), NO_STREAM, 0.0)
    assert balance.floor() == FLOOR_SHARE * 600.0


def test_a_limit_that_is_known_exactly_leaves_room_for_others_once_it_is_shared() -> None:
    balance = _balance(Limit("input", 600.0))
    balance.charge(_demand(10.0), NO_STREAM, 0.0)
    alone = balance.floor()
    balance.shared = True
    assert balance.floor() == FLOOR_CALLS * 10.0 > alone


@pytest.mark.parametrize(
    ("resource", "kind"), [("spend", "gauge"), ("requests", "fixed"), ("requests", "sliding")]
)
def test_whole_numbers_leave_nothing_untouched(resource: Resource, kind: LimitKind) -> None:
    assert _balance(Limit(resource, 60.0, kind=kind)).floor() == 0.0


def test_what_is_known_exactly_leaves_room_for_our_errors_only() -> None:
    """A first call's doubt stands in for errors that nobody has seen yet."""
    balance = _balance(Limit("input", 600.0))
    assert balance.floor() == pytest.approx(EXACT_FLOOR * 600.0)
    doubtful = Demand(expected=Amounts(100.0), ceiling=Amounts(120.0))
    balance.charge(doubtful, NO_STREAM, 0.0)
    assert balance.floor() == pytest.approx(EXACT_FLOOR * 600.0 + 20.0)
    balance.settle(doubtful, NO_STREAM, 0.0, _used(100.0), 0.0)
    assert balance.floor() == pytest.approx(EXACT_FLOOR * 600.0)


def test_in_a_learned_window_less_room_is_left() -> None:
    doubtful = Demand(expected=Amounts(100.0), ceiling=Amounts(120.0))
    learned = _balance(Limit("input", 600.0, kind="fixed", source="header"))
    known = _balance(Limit("input", 600.0, kind="fixed"))
    learned.charge(doubtful, NO_STREAM, 0.0)
    known.charge(doubtful, NO_STREAM, 0.0)
    assert 0.0 < learned.floor() < known.floor()


def test_what_happens_within_a_bin_is_left_room_for() -> None:
    balance = _balance(Limit("output", 600.0))
    assert balance.floor() == pytest.approx(EXACT_FLOOR * 600.0 + 10.0 * BIN_S)


def test_a_rounded_reading_is_left_room_for() -> None:
    balance = Balance(Limit("input", 600.0), "produced", 1.0, 25.0, 0.0)
    assert balance.floor() == pytest.approx(EXACT_FLOOR * 600.0 + 25.0)
