"""What a call through the gateway sets aside, by how much it is extended, and what it cost."""

from __future__ import annotations

import asyncio
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct, field

from headway.base.values import Amounts, Tally
from headway.engine.budget import NOTHING, Cost
from headway.errors import BudgetReachedError
from headway.gateway.call import counted
from headway.gateway.spending import Prices, Spending
from headway.pacing.budget import STEP_TOKENS
from headway.pacing.call import Outcome
from headway.pacing.estimate import Price

PRICE = Price(3_000_000, 15_000_000, 300_000)


class Purse(Struct):
    """A payer who grants everything and writes it down."""

    spared: list[Cost] = field(default_factory=list)

    def waits(self, why: str = "", /) -> None: ...

    def goes(self, why: str = "", /) -> None: ...

    async def reserve(self, microusd: int, tokens: int, /) -> None: ...

    def rests(self, seconds: float) -> None:
        """Its time is not measured."""

    def spares(self, microusd: int, tokens: int, /) -> None:
        self.spared.append(Cost(microusd, tokens))

    def window(self, resets_at_s: float, detail: str) -> None: ...


def spending(purse: Purse) -> Spending:
    return Spending(purse, lambda _: PRICE)


def test_what_a_call_is_expected_to_cost_is_set_aside_before_it_is_sent() -> None:
    call = spending(Purse())
    assert call.before(1000, 100) == Cost(3000 + 1500, 1100)


def test_a_call_that_is_sent_again_sets_nothing_aside_twice() -> None:
    call = spending(Purse())
    call.before(1000, 100)
    assert call.before(1000, 100) == NOTHING
    assert call.before(1000, 200) == Cost(1500, 100)


def test_a_stream_is_extended_when_it_exceeds_what_was_expected_and_not_before() -> None:
    call = spending(Purse())
    call.before(1000, 100)
    assert call.grew(100) is None
    assert call.grew(101) == Cost(15 * (1 + STEP_TOKENS), 1 + STEP_TOKENS)
    assert call.grew(101 + STEP_TOKENS) is None
    assert call.grew(102 + STEP_TOKENS) is not None


def test_what_was_set_aside_and_not_used_is_free_when_the_call_ends() -> None:
    purse = Purse()
    call = spending(purse)
    call.before(1000, 100)
    assert call.cost(Tally(500, 0, 20)) == 1500 + 300
    assert purse.spared == [Cost(4500 - 1800, 1100 - 520)]


EXPECTED = Amounts(1000, 100)


@pytest.mark.parametrize(
    ("seen", "is_finished", "counted_as"),
    [
        (Tally(0, 0, 0, "unknown"), False, (1000, 0, 100)),
        (Tally(10, 0, 3, "estimated"), False, (1000, 0, 100)),
        (Tally(2000, 0, 300, "estimated"), False, (2000, 0, 300)),
        (Tally(0, 200, 200, "estimated"), False, (800, 200, 200)),
        (Tally(0, 0, 3, "estimated"), True, (1000, 0, 3)),
        (Tally(10, 0, 3, "reported"), False, (10, 0, 3)),
    ],
)
def test_what_was_not_reported_is_counted_as_expected_or_as_seen(
    seen: Tally, is_finished: bool, counted_as: tuple[int, int, int]
) -> None:
    found = counted(Outcome("used", seen), EXPECTED, is_finished)
    assert (found.input_tokens, found.cache_read_tokens, found.output_tokens) == counted_as


def test_without_a_price_tokens_count_all_the_same() -> None:
    purse = Purse()
    call = Spending(purse, lambda _: None)
    assert call.before(1000, 100) == Cost(0, 1100)
    assert call.cost(Tally(900, 0, 50)) is None
    assert purse.spared == [Cost(0, 150)]


@given(
    st.integers(0, 10_000),
    st.integers(0, 1000),
    st.lists(st.integers(0, 5000), max_size=20),
    st.integers(0, 20_000),
)
def test_what_is_set_aside_covers_every_token_that_was_passed_on(
    input_tokens: int, expected: int, growth: list[int], read: int
) -> None:
    purse = Purse()
    call = spending(purse)
    total, seen = call.before(input_tokens, expected), 0
    for tokens in growth:
        seen += tokens
        more = call.grew(seen)
        total = total if more is None else total.plus(more)
        assert total.tokens >= input_tokens + seen
    call.cost(Tally(read, 0, seen))
    used = Cost(PRICE.cost_microusd(Amounts(read, seen)), read + seen)
    assert total.minus(purse.spared[0]) == used


def test_price_data_is_loaded_once_and_beside_the_loop() -> None:
    threads: list[bool] = []

    def look_up(_: str, input_tokens: int) -> Price | None:
        threads.append(threading.current_thread() is threading.main_thread())
        return PRICE if input_tokens < 10 else None

    async def main() -> None:
        prices = Prices(look_up)
        price, *_ = await asyncio.gather(*(prices.of(f"m{n}") for n in range(5)))
        assert threads == [False]
        assert (price(5), price(50)) == (PRICE, None)

    asyncio.run(main())


def test_with_a_budget_in_money_a_call_without_a_price_is_not_made() -> None:
    async def main() -> None:
        await Prices(lambda *_: None, is_needed=True).of("stranger")

    with pytest.raises(BudgetReachedError, match="nobody knows what a call to `stranger` costs"):
        asyncio.run(main())
