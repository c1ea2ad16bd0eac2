"""Prices of models; the only importer of the price data, an extra.

Importing it takes half a second, so it waits until there is a budget in money.
"""

from __future__ import annotations

from decimal import Decimal
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


def price_of(model: str) -> Price | None:
    return _price(model, SAMPLE_TOKENS)


def price_at(model: str, input_tokens: int) -> Price | None:
    """The price of a model for an input of this size: long ones can be twice as dear, and so is
    then the answer."""
    return _price(model, input_tokens if input_tokens > LONG_TOKENS else SAMPLE_TOKENS)


@lru_cache(maxsize=MODELS_MAX)
def _price(model: str, count: int) -> Price | None:
    try:
        from genai_prices import Usage, calc_price
    except ImportError:
        return None

    def usd(**used: int) -> Decimal:
        return calc_price(Usage(input_tokens=count, **used), model).total_price

    try:
        given = usd()
    except LookupError:
        return None
    read, written = usd(cache_read_tokens=count), usd(cache_write_tokens=count)
    kept = usd(cache_write_tokens=count, cache_write_1h_tokens=count)
    output = usd(output_tokens=SAMPLE_TOKENS) - given
    of_input = (ceil(one / count * 10**6 * MICRO) for one in (read, written, kept))
    return Price(
        ceil(given / count * 10**6 * MICRO), ceil(output / SAMPLE_TOKENS * 10**6 * MICRO), *of_input
    )
