"""The cost of a task's calls through the gateway: reserved, extended, charged.

Laws:
- Before a call is sent, what it is expected to cost is set aside; a stream that exceeds that sets
  more aside before it goes on. A stream for which no more can be set aside is ended.
- With a budget in money, a call whose price is unknown is not made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from math import ceil

from headway.base.values import Amounts, Tally
from headway.engine.budget import NOTHING, Cost
from headway.errors import BudgetReachedError
from headway.gateway.values import Payer
from headway.pacing.budget import STEP_SHARE, STEP_TOKENS
from headway.pacing.estimate import Price
from headway.wire.prices import price_at

PriceAt = Callable[[int], Price | None]
"""The price of a model in a call whose input has so many tokens, where that is known."""


class Prices:
    """What models cost: the data takes half a second to load, and is loaded beside the loop."""

    def __init__(
        self, look_up: Callable[[str, int], Price | None] = price_at, is_needed: bool = False
    ) -> None:
        """`is_needed`: there is a budget in money, towards which every call must count."""
        self._look_up = look_up
        self.is_needed = is_needed
        self._loading: asyncio.Task[None] | None = None
        self._is_loaded = False

    async def of(self, model: str) -> PriceAt:
        """The price of a model. The first calls wait until the data is loaded."""
        if not self._is_loaded:
            if self._loading is None:
                self._loading = asyncio.create_task(self._load(model))
            await asyncio.shield(self._loading)
        if self.is_needed and self._look_up(model, 0) is None:
            raise BudgetReachedError(
                f"there is a budget, and nobody knows what a call to `{model}` costs",
                hint="use a model with a known price, or budget in tokens",
            )
        return partial(self._look_up, model)

    async def _load(self, model: str) -> None:
        try:
            await asyncio.to_thread(self._look_up, model, 0)
        finally:
            self._is_loaded, self._loading = True, None


class Spending:
    """One call of a task: what is set aside for it, and what it cost in the end."""

    __slots__ = ("_input", "_output", "_payer", "_price_at", "_reserved")

    def __init__(self, payer: Payer, price_at: PriceAt) -> None:
        self._payer = payer
        self._price_at = price_at
        self._input = 0
        self._output = 0
        """What is set aside for the answer: what was expected, then what it grew to."""
        self._reserved = NOTHING

    def before(self, input_tokens: float, output_tokens: float) -> Cost:
        """What to set aside before the call is sent; again, as often as it is sent."""
        self._input = ceil(input_tokens)
        self._output = max(self._output, 1, ceil(output_tokens))
        return self._more()

    def grew(self, output_tokens: float) -> Cost | None:
        """What to set aside before this much of the answer is passed on; None is nothing."""
        if output_tokens <= self._output:
            return None
        step = max(STEP_TOKENS, self._output * STEP_SHARE)
        self._output = ceil(output_tokens + step)
        return self._more()

    def cost(self, tally: Tally) -> int | None:
        """The call is over: its cost in micro-dollars, if known. What was set aside is free."""
        read = tally.input_tokens + tally.cache_read_tokens
        price = self._price_at(ceil(read))
        is_priced = price is not None or not (read or tally.output_tokens)
        money = 0 if price is None else price.cost_of(tally)
        used = Cost(money, ceil(read + tally.output_tokens))
        left, self._reserved = self._reserved.minus(used), NOTHING
        self._payer.spares(left.microusd, left.tokens)
        return used.microusd if is_priced else None

    def _more(self) -> Cost:
        """What is not set aside yet of what is expected now; it is, when this returns."""
        price = self._price_at(self._input)
        amounts = Amounts(self._input, self._output)
        money = 0 if price is None else price.cost_microusd(amounts)
        held, tokens = self._reserved, self._input + self._output
        whole = Cost(max(money, held.microusd), max(tokens, held.tokens))
        more, self._reserved = whole.minus(self._reserved), whole
        return more
