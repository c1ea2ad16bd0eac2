"""From what can be seen of a call to what it will consume, and back from what it did.

One place turns a `Sketch` into a `Demand`, and one turns a `Tally` into a `Usage`: whoever asks
for a permit, in whatever process, is estimated by what all of them have learned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil
from typing import Final

from headway.core.quota.demand import InputRatio, InputRatioStatistics, Price
from headway.core.quota.dialect import Dialect
from headway.core.quota.length import OutputLength, OutputLengthStatistics
from headway.core.quota.terms import Spend
from headway.core.values import Amounts, Demand, Sketch, Tally, Usage

OUTPUT_TOKENS_MAX: Final = 128_000
"""The longest answer of current models; what a call that names no limit may grow to."""

INPUT_DOUBT: Final = 1.2
"""Ordinary text rarely exceeds its estimate by more, once a few calls were counted. Rate limits and
soft claims count on that; a hard claim does not."""

UNDECLARED: Final = 2.0
"""A call that names no longest answer is taken to reserve so many times the expected one."""

Prices = Callable[[str, int], Price | None]
"""The price of a model's tokens for a given number of input tokens, if it is known."""


@dataclass(frozen=True, slots=True)
class EstimatesStatistics:
    """Everything that was learned about sizes."""

    inputs: InputRatioStatistics
    outputs: OutputLengthStatistics


class Estimates:
    """Sizes of calls, learned from all of them."""

    __slots__ = ("_inputs", "_outputs", "_prices")

    def __init__(self, prices: Prices) -> None:
        self._prices = prices
        self._inputs = InputRatio()
        self._outputs = OutputLength()

    def __repr__(self) -> str:
        return f"<Estimates {self._inputs!r} {self._outputs!r}>"

    def demand(self, sketch: Sketch, dialect: Dialect, is_warm: bool) -> Demand:
        """What the call will probably and at most consume."""
        tokens_in = self._input_tokens(sketch, sketch.size_bytes, sketch.messages)
        most = sketch.max_output_tokens
        # A call that asks for more is refused, and reserves nothing until then.
        ceiling = OUTPUT_TOKENS_MAX if most is None else min(max(0, most), OUTPUT_TOKENS_MAX)
        tokens_out = self._outputs.expect(sketch.kind, tokens_in, float(ceiling))
        reserved = float(ceiling) if most is not None else UNDECLARED * tokens_out
        counted = tokens_in
        if is_warm and dialect.input_charge == "uncached":
            counted = max(1.0, tokens_in - self._input_tokens(sketch, sketch.prefix_bytes, 0))
        expected = Amounts(counted, tokens_out, self._cost(sketch, tokens_in, tokens_out))
        highest = Amounts(INPUT_DOUBT * counted, reserved, self._most(sketch).microusd)
        return Demand(expected, highest, sketch.kind, sketch.is_whole)

    def claim(self, sketch: Sketch, demand: Demand, is_soft: bool = False) -> Spend:
        """The most that the call can take of a budget, if it names its longest answer.

        A soft claim is what it is expected to take, and something in any case.
        """
        if is_soft:
            return self.grown(sketch, max(1.0, demand.expected.output_tokens))
        return self._most(sketch)

    def grown(self, sketch: Sketch, output_tokens: float) -> Spend:
        """What the call takes of a budget with an answer of this length."""
        tokens_in = INPUT_DOUBT * self._input_tokens(sketch, sketch.size_bytes, sketch.messages)
        cost = self._cost(sketch, tokens_in, output_tokens)
        return Spend(tokens_in + output_tokens, cost, int(not self.has_price(sketch)))

    def has_price(self, sketch: Sketch) -> bool:
        """Whether the price of the call is known."""
        return self._prices(sketch.model, 0) is not None

    def began(self, number: int, demand: Demand) -> None:
        """The call was sent; that it has not ended yet is evidence of its length."""
        self._outputs.started(number, demand.kind, demand.expected.input_tokens)

    def progressed(self, number: int, output_tokens: float) -> None:
        self._outputs.progressed(number, output_tokens)

    def ended(self, number: int, sketch: Sketch, tally: Tally | None) -> None:
        """The call is over. Only what the provider reported of a whole answer teaches."""
        reported = tally is not None and tally.known == "reported"
        if tally is None or not reported:
            self._outputs.ended(number, None)
            return
        self._outputs.ended(number, tally.output_tokens)
        whole = tally.input_tokens + tally.cache_read_tokens
        self._inputs.observe(
            sketch.model, sketch.content, sketch.size_bytes, whole, sketch.messages
        )

    def usage(self, demand: Demand, tally: Tally, spend: Spend, dialect: Dialect) -> Usage:
        """What the call took of the limits. What nobody reported is what was expected."""
        tokens_in = tally.input_tokens
        if dialect.input_charge == "all":
            tokens_in += tally.cache_read_tokens
        if not tally.input_tokens and not tally.cache_read_tokens:
            tokens_in = demand.expected.input_tokens
        tokens_out = tally.output_tokens
        if tally.known == "unknown":
            tokens_out = max(tokens_out, demand.expected.output_tokens)
        return Usage(Amounts(tokens_in, tokens_out, spend.microusd), tally.known)

    def spend(self, sketch: Sketch, claim: Spend, tally: Tally, is_soft: bool = False) -> Spend:
        """What the call took of a budget: in doubt, all that was claimed for it.

        A soft claim is not in doubt where text was counted: what is missing is estimated.
        """
        if is_soft and tally.known != "unknown":
            unread = sketch.size_bytes - sketch.prefix_bytes * bool(tally.cache_read_tokens)
            tokens_in = tally.input_tokens or self._input_tokens(sketch, unread, sketch.messages)
            tally = replace(tally, input_tokens=tokens_in, known="reported")
        return spend_of(sketch.model, claim, tally, self._prices)

    def statistics(self) -> EstimatesStatistics:
        return EstimatesStatistics(self._inputs.statistics(), self._outputs.statistics())

    def _input_tokens(self, sketch: Sketch, size_bytes: int, messages: int) -> float:
        return self._inputs.estimate(sketch.model, sketch.content, max(0, size_bytes), messages)

    def _most(self, sketch: Sketch) -> Spend:
        """The ceiling of the call. What is not text, or is added by the provider, has none: it is
        taken at what is expected of it."""
        expected = INPUT_DOUBT * self._input_tokens(sketch, sketch.size_bytes, sketch.messages)
        most = max(sketch.most_input_tokens, ceil(expected))
        return ceiling_of(replace(sketch, most_input_tokens=most), self._prices)

    def _cost(self, sketch: Sketch, input_tokens: float, output_tokens: float) -> int:
        price = self._prices(sketch.model, ceil(input_tokens))
        return 0 if price is None else price.cost_microusd(Amounts(input_tokens, output_tokens))


def spend_of(model: str, ceiling: Spend, tally: Tally, prices: Prices) -> Spend:
    """What a call took: its ceiling, unless its input and all of its answer were reported."""
    read = tally.input_tokens + tally.cache_read_tokens
    if tally.known != "reported" or not read:
        return ceiling
    price = prices(model, ceil(read))
    cost = 0 if price is None else price.cost_of(tally)
    return Spend(read + tally.output_tokens, cost, int(price is None))


def ceiling_of(sketch: Sketch, prices: Prices) -> Spend:
    """The most that a call can take: each byte of its text as a token, at the dearest price of
    input, and the longest answer."""
    most_in, most_out = sketch.most_input_tokens, sketch.max_output_tokens
    whole = Amounts(float(most_in), float(OUTPUT_TOKENS_MAX if most_out is None else most_out))
    price = prices(sketch.model, most_in)
    written = whole.input_tokens if sketch.may_write_cache else 0.0
    cost = 0 if price is None else price.most_microusd(whole, written)
    return Spend(whole.input_tokens + whole.output_tokens, cost, int(price is None))
