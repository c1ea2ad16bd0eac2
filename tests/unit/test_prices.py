"""What tokens of a model cost, by the price data that is installed."""

from __future__ import annotations

import pytest

from headway.wire.prices import LONG_TOKENS, price_at, price_of


def test_what_is_written_into_the_cache_costs_more_where_its_provider_says_so() -> None:
    price = price_of("claude-haiku-4-5")
    assert price is not None
    usual = price.input_microusd_per_mtok
    assert price.cache_read_microusd_per_mtok == usual // 10
    assert price.cache_write_microusd_per_mtok == usual * 5 // 4
    assert price.long_write_microusd_per_mtok == usual * 2


def test_where_nothing_is_said_of_writing_it_costs_what_input_costs() -> None:
    price = price_of("gpt-5-mini")
    assert price is not None
    assert price.cache_write_microusd_per_mtok == price.input_microusd_per_mtok
    assert price.long_write_microusd_per_mtok == price.input_microusd_per_mtok


@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "gemini-2.5-pro"])
def test_a_long_input_is_dearer_in_all_its_prices(model: str) -> None:
    usual, long = price_of(model), price_at(model, 3 * LONG_TOKENS)
    assert usual is not None
    assert long is not None
    assert long.input_microusd_per_mtok == 2 * usual.input_microusd_per_mtok
    assert long.cache_write_microusd_per_mtok == 2 * (usual.cache_write_microusd_per_mtok or 0)
    assert long.long_write_microusd_per_mtok == 2 * (usual.long_write_microusd_per_mtok or 0)


def test_nobody_knows_the_price_of_what_there_is_not() -> None:
    assert price_of("no-such-model") is None
    assert price_at("no-such-model", 3 * LONG_TOKENS) is None
