"""From what can be seen of a call to what it will consume, and back from what it did.

One place turns a `Sketch` into a `Demand`, and one turns a `Tally` into a `Usage`: whoever asks
for a permit, in whatever process, is estimated by what all of them have learned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from headway.core.quota.demand import InputRatio, InputRatioStatistics, Price
from headway.core.quota.dialect import Dialect
from headway.core.quota.length import OutputLength, OutputLengthStatistics
from headway.core.quota.terms import Spend
from headway.core.values import Amounts, Demand, Sketch, Tally, Usage

OUTPUT_TOKENS_MAX: Final = 128_000
"""The longest answer of current models; what a call that names no limit may grow to."""

INPUT_DOUBT: Final = 1.2
"""No input has been seen to exceed its estimate by more, once a few calls were counted."""

UNDECLARED: Final = 2.0
"""A call that names no longest answer is taken to reserve so many times the expected one."""

Prices = Callable[[str], Price | None]
"""What a model's tokens cost, where that is known."""


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
        price = self._prices(sketch.model)
        expected = Amounts(counted, tokens_out, _cost(price, tokens_in, tokens_out))
        kept = self._input_tokens(sketch, sketch.prefix_bytes, 0) if sketch.prefix else 0.0
        whole = Amounts(INPUT_DOUBT * tokens_in, float(ceiling))
        dearest = 0 if price is None else price.most_microusd(whole, INPUT_DOUBT * kept)
        highest = Amounts(INPUT_DOUBT * counted, reserved, dearest)
        return Demand(expected, highest, sketch.kind, sketch.is_whole)

    def claim(self, sketch: Sketch, demand: Demand, is_soft: bool = False) -> Spend:
        """The most that the call can take of a budget, if it names its longest answer.

        A soft claim is what it is expected to take, and something in any case.
        """
        if is_soft:
            return self.grown(sketch, max(1.0, demand.expected.output_tokens))
        tokens_in = INPUT_DOUBT * self._input_tokens(sketch, sketch.size_bytes, sketch.messages)
        tokens = tokens_in + demand.ceiling.output_tokens
        return Spend(tokens, demand.ceiling.spend_microusd)

    def grown(self, sketch: Sketch, output_tokens: float) -> Spend:
        """What the call takes of a budget with an answer of this length."""
        tokens_in = INPUT_DOUBT * self._input_tokens(sketch, sketch.size_bytes, sketch.messages)
        cost = _cost(self._prices(sketch.model), tokens_in, output_tokens)
        return Spend(tokens_in + output_tokens, cost)

    def has_ceiling(self, sketch: Sketch, is_soft: bool = False) -> bool:
        """Whether it is known what to claim: for a soft claim its price is enough, for a hard one
        its longest answer has to be known, too."""
        is_bounded = is_soft or sketch.max_output_tokens is not None
        return is_bounded and self._prices(sketch.model) is not None

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

    def spend(self, sketch: Sketch, claim: Spend, tally: Tally) -> Spend:
        """What the call took of a budget: in doubt, all that was kept for it."""
        if tally.known == "unknown":
            return claim
        tokens_in = tally.input_tokens or self._input_tokens(
            sketch, sketch.size_bytes - sketch.prefix_bytes * bool(tally.cache_read_tokens),
            sketch.messages,
        )  # fmt: skip
        tokens = tokens_in + tally.cache_read_tokens + tally.output_tokens
        price = self._prices(sketch.model)
        if price is None:
            return Spend(tokens)
        return Spend(tokens, price.cost_of(replace(tally, input_tokens=tokens_in)))

    def statistics(self) -> EstimatesStatistics:
        return EstimatesStatistics(self._inputs.statistics(), self._outputs.statistics())

    def _input_tokens(self, sketch: Sketch, size_bytes: int, messages: int) -> float:
        return self._inputs.estimate(sketch.model, sketch.content, max(0, size_bytes), messages)


def _cost(price: Price | None, input_tokens: float, output_tokens: float) -> int:
    return 0 if price is None else price.cost_microusd(Amounts(input_tokens, output_tokens))
