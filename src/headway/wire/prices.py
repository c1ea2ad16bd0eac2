"""Prices of models; the only importer of the price data, an extra.

Importing it takes half a second, so it waits until somebody has a budget in money.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil
from typing import Final

from headway.errors import UsageError
from headway.pacing.estimate import Price

SAMPLE_TOKENS: Final = 1000
"""Prices with steps start with their lowest one; no step is below this."""

LONG_TOKENS: Final = 100_000
"""No price has a step below this, except for inputs of all sizes."""

MICRO: Final = 1_000_000
MODELS_MAX: Final = 1024


def must_have_prices() -> None:
    """UsageError if the price data are not installed."""
    try:
        import genai_prices  # noqa: F401
    except ImportError:
        raise UsageError(
            "a budget in money needs the price data, which is not installed",
            hint="pip install 'headway[prices]', or set a budget in tokens: 5M/month",
        ) from None


@lru_cache(maxsize=MODELS_MAX)
def price_of(model: str) -> Price | None:
    """The price of a model, or None if it is unknown."""
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
                *(Usage(**met) for met in _met(SAMPLE_TOKENS)),
            )
        ]
    except LookupError:
        return None
    return Price(*(_microusd_per_mtok(float(one)) for one in cost))


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
    met = [float(calc_price(Usage(**one), model).total_price) for one in _met(input_tokens)]
    return Price(
        ceil(alone / input_tokens * 1e6 * MICRO),
        _microusd_per_mtok(float(calc_price(both, model).total_price) - alone),
        *(ceil(one / input_tokens * 1e6 * MICRO) for one in met),
    )


def _met(count: int) -> tuple[dict[str, int], ...]:
    """An input that the cache gave; one that was written into it; and one for an hour."""
    return (
        {"input_tokens": count, "cache_read_tokens": count},
        {"input_tokens": count, "cache_write_tokens": count},
        {"input_tokens": count, "cache_write_tokens": count, "cache_write_1h_tokens": count},
    )


def _microusd_per_mtok(sample_usd: float) -> int:
    return round(sample_usd / SAMPLE_TOKENS * 1e6 * MICRO)
