"""From what is seen of a call to what it will take, and back from what it took."""

from __future__ import annotations

from math import ceil

import pytest
from msgspec.structs import replace

from headway.base.values import Amounts, Demand, Sketch, Spend, Tally
from headway.pacing.estimate import (
    INPUT_DOUBT,
    OUTPUT_TOKENS_MAX,
    OUTPUT_TOKENS_PRIOR,
    UNDECLARED,
    Estimates,
    Price,
)
from headway.pacing.headers import ANTHROPIC, CEREBRAS

PRICE = Price(3_000_000, 15_000_000, 300_000)
CALL = Sketch("known", size_bytes=4000, most_input_tokens=4100, max_output_tokens=1000)
CACHED = Sketch(
    "known", size_bytes=4000, most_input_tokens=4100, max_output_tokens=1000, prefix="p",
    prefix_bytes=3000, may_write_cache=True,
)  # fmt: skip


def _estimates() -> Estimates:
    return Estimates(lambda model, _: PRICE if model == "known" else None)


def test_a_demand_is_expected_and_at_most() -> None:
    demand = _estimates().size(CALL, ANTHROPIC, cached_bytes=0)
    assert demand.expected == Amounts(1004.0, OUTPUT_TOKENS_PRIOR, 1004 * 3 + 500 * 15)
    assert demand.ceiling == Amounts(INPUT_DOUBT * 1004.0, 1000.0, 4100 * 3 + 1000 * 15)


def test_a_call_that_names_no_longest_answer_may_grow_to_the_longest() -> None:
    demand = _estimates().size(Sketch("known", size_bytes=4000), ANTHROPIC, cached_bytes=0)
    assert demand.ceiling.output_tokens == UNDECLARED * OUTPUT_TOKENS_PRIOR
    assert demand.ceiling.spend_microusd == 1205 * 3 + OUTPUT_TOKENS_MAX * 15


@pytest.mark.parametrize(("asked", "reserved"), [(-5, 0.0), (10**30, float(OUTPUT_TOKENS_MAX))])
def test_nobody_reserves_what_no_model_can_answer(asked: int, reserved: float) -> None:
    sketch = Sketch("known", size_bytes=4000, max_output_tokens=asked)
    demand = _estimates().size(sketch, CEREBRAS, cached_bytes=0)
    assert demand.ceiling.output_tokens == reserved
    assert 0.0 <= demand.expected.output_tokens <= reserved


def test_what_is_in_the_cache_does_not_count_where_it_does_not() -> None:
    estimates = _estimates()
    cold = estimates.size(CACHED, ANTHROPIC, cached_bytes=0).expected.input_tokens
    warm = estimates.size(CACHED, ANTHROPIC, cached_bytes=CACHED.prefix_bytes).expected.input_tokens
    counted = estimates.size(
        CACHED, CEREBRAS, cached_bytes=CACHED.prefix_bytes
    ).expected.input_tokens
    assert (cold, warm, counted) == (1004.0, 254.0, 1004.0)


def test_a_hard_claim_is_every_byte_as_a_token_and_the_longest_answer() -> None:
    estimates = _estimates()
    claim = estimates.claim(CACHED)
    assert claim == Spend(5100.0, 4100 * 3 + 1000 * 15)
    many = replace(CALL, max_output_tokens=4 * OUTPUT_TOKENS_MAX)
    assert estimates.claim(many).tokens == 4100.0 + 4 * OUTPUT_TOKENS_MAX


def test_a_claim_is_no_less_than_what_is_expected_of_what_is_not_text() -> None:
    estimates = _estimates()
    image = Sketch("known", "media", size_bytes=5000, most_input_tokens=80, max_output_tokens=10)
    assert estimates.claim(image).tokens == ceil(INPUT_DOUBT * 1504.0) + 10.0


def test_a_long_input_is_claimed_and_paid_at_its_own_price() -> None:
    estimates = Estimates(lambda _, tokens: Price(2, 2) if tokens <= 1000 else Price(4, 4))
    claim = estimates.claim(CALL)
    assert claim.microusd == Price(4, 4).cost_microusd(Amounts(4100, 1000))
    tally = Tally(900.0, 200.0, 10**6)
    assert estimates.spend(CALL, tally, Spend).microusd == Price(4, 4).cost_of(tally)


def test_a_claim_is_for_what_writing_into_the_cache_can_cost() -> None:
    estimates = Estimates(lambda *_: Price(3_000_000, 15_000_000, 300_000, 3_750_000, 6_000_000))
    tally = Tally(1004, 0, 1000, cache_write_tokens=750, long_write_tokens=750)
    claim = estimates.claim(CACHED)
    assert claim.microusd == 4100 * 6 + 1000 * 15
    assert estimates.spend(CACHED, tally, lambda: claim).microusd == 254 * 3 + 750 * 6 + 1000 * 15


def test_a_soft_claim_is_for_the_expected_answer_and_for_something() -> None:
    estimates = _estimates()
    soft = estimates.claim(CALL, is_soft=True)
    assert soft == Spend(1204.8 + OUTPUT_TOKENS_PRIOR, 1205 * 3 + 500 * 15)
    assert soft == estimates.grown(CALL, OUTPUT_TOKENS_PRIOR)
    nothing = replace(CALL, max_output_tokens=0)
    assert estimates.claim(nothing, is_soft=True) == Spend(1205.8, 1205 * 3 + 15)


def test_only_reported_whole_answers_teach() -> None:
    estimates = _estimates()
    demand = estimates.size(CALL, ANTHROPIC, cached_bytes=0)
    estimates.learn(CALL, demand, Tally(9.0, 0.0, 9.0, "estimated"))
    assert estimates.size(CALL, ANTHROPIC, cached_bytes=0) == demand
    estimates.learn(CALL, demand, Tally(1500.0, 508.0, 90.0))
    again = estimates.size(CALL, ANTHROPIC, cached_bytes=0).expected
    assert again.input_tokens > 1400.0
    assert again.output_tokens < 400.0


def test_usage_is_what_was_reported_and_where_nothing_was_what_was_expected() -> None:
    estimates = _estimates()
    demand = Demand(Amounts(100.0, 50.0), Amounts(120.0, 1000.0))
    tally = Tally(70.0, 30.0, 9.0)
    spend = Spend(0.0, 77)
    assert estimates.usage(demand, tally, spend, ANTHROPIC) == Amounts(70.0, 9.0, 77)
    assert estimates.usage(demand, tally, spend, CEREBRAS) == Amounts(100.0, 9.0, 77)
    silent = estimates.usage(demand, Tally(known="unknown"), spend, ANTHROPIC)
    assert silent == Amounts(100.0, 50.0, 77)
    longer = estimates.usage(demand, Tally(0.0, 0.0, 60.0, "unknown"), spend, ANTHROPIC)
    assert longer.output_tokens == 60.0
    all_cached = estimates.usage(demand, Tally(0.0, 40.0, 1.0), spend, ANTHROPIC)
    assert all_cached.input_tokens == 0.0


def test_spend_is_the_price_of_what_was_reported_and_in_doubt_all_that_was_kept() -> None:
    estimates = _estimates()
    claim = Spend(5000.0, 999)
    assert estimates.spend(CALL, Tally(known="unknown"), lambda: claim) == claim
    cost = 100 * 3 + 10 * 15 + 3  # ten tokens from the cache cost three
    assert estimates.spend(CALL, Tally(100.0, 10.0, 10.0), lambda: claim) == Spend(120.0, cost)
    unpriced = Sketch("new", size_bytes=4000)
    assert estimates.spend(unpriced, Tally(100.0, 10.0, 10.0), lambda: claim) == Spend(
        120.0, unpriced=1
    )
    seen = Tally(0.0, 0.0, 10.0, "estimated")
    assert estimates.spend(CALL, seen, lambda: claim) == claim
    assert estimates.spend(CALL, Tally(0.0, 0.0, 10.0), lambda: claim) == claim, (
        "no input was reported"
    )
    in_doubt = estimates.spend(CALL, Tally(known="unknown"), lambda: claim, is_soft=True)
    assert in_doubt == claim.at_least(estimates.grown(CALL, 0.0))
    counted = estimates.spend(CALL, seen, lambda: claim, is_soft=True)
    assert counted == Spend(1014.0, 1004 * 3 + 10 * 15)
    partly = Tally(0.0, 750.0, 10.0, "estimated")
    cached = estimates.spend(CACHED, partly, lambda: claim, is_soft=True)
    assert cached.tokens == 254.0 + 750.0 + 10.0
