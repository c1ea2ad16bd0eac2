"""What tokens of a model cost: the only importer of the price data, which comes as an extra.

Importing it takes half a second, so it waits until somebody has a budget in money.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil
from typing import Final

from headway.core.quota.demand import Price
from headway.errors import UsageError

SAMPLE_TOKENS: Final = 1000
"""Prices with steps start with their lowest one; no step is below this."""

LONG_TOKENS: Final = 100_000
"""No price has a step below this, except for inputs of all sizes."""

MICRO: Final = 1_000_000
MODELS_MAX: Final = 1024


def must_have_prices() -> None:
    """Refuse a budget in money where nobody knows a price."""
    try:
        import genai_prices  # noqa: F401
    except ImportError:
        raise UsageError(
            "a budget in money needs the price data, which is not installed",
            hint="pip install 'headway[prices]', or set a budget in tokens: 5M/month",
        ) from None


@lru_cache(maxsize=MODELS_MAX)
def price_of(model: str) -> Price | None:
    """The price of a model, or None if nobody knows it."""
    try:
        from genai_prices import Usage, calc_price
    except ImportError:
        return None
    try:
        cost = [
            calc_price(usage, model).total_price
            for usage in (
                Usage(input_tokens=SAMPLE_TOKENS),
                Usage(output_tokens=SAMPLE_TOKENS),
                Usage(input_tokens=SAMPLE_TOKENS, cache_read_tokens=SAMPLE_TOKENS),
            )
        ]
    except LookupError:
        return None
    tokens_in, tokens_out, cached = (_microusd_per_mtok(float(one)) for one in cost)
    return Price(tokens_in, tokens_out, cached)


def price_at(model: str, input_tokens: int) -> Price | None:
    """The price of a model for an input of this size: long ones can be twice as dear, and so is
    then the answer."""
    return price_of(model) if input_tokens <= LONG_TOKENS else _long_price(model, input_tokens)


@lru_cache(maxsize=MODELS_MAX)
def _long_price(model: str, input_tokens: int) -> Price | None:
    usual = price_of(model)
    if usual is None:
        return None
    from genai_prices import Usage, calc_price

    alone = float(calc_price(Usage(input_tokens=input_tokens), model).total_price)
    both = Usage(input_tokens=input_tokens, output_tokens=SAMPLE_TOKENS)
    cached = Usage(input_tokens=input_tokens, cache_read_tokens=input_tokens)
    return Price(
        ceil(alone / input_tokens * 1e6 * MICRO),
        _microusd_per_mtok(float(calc_price(both, model).total_price) - alone),
        ceil(float(calc_price(cached, model).total_price) / input_tokens * 1e6 * MICRO),
    )


def _microusd_per_mtok(sample_usd: float) -> int:
    return round(sample_usd / SAMPLE_TOKENS * 1e6 * MICRO)
