"""Estimates what a call will consume, and learns from what it did."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, exp, log
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from headway.base.values import Amounts, Demand, Sketch, Tally, Usage
from headway.pacing.call import CallId, Spend
from headway.pacing.headers import Dialect
from headway.pacing.length import OutputLength, remember

TOKENS_PER_BYTE: Final = {"english": 0.25, "code": 0.30, "korean": 0.40, "cjk": 0.40}
"""Where ratios start, per UTF-8 byte. Hangul, Han and kana take three bytes and 1 to 1.4 tokens a
character on some vocabularies. The high side is right: too low a start costs a refusal."""

TOKENS_PER_BYTE_OTHER: Final = 0.30
TOKENS_PER_MESSAGE: Final = 4.0
"""Role and separators around each message of a chat."""

RATIO_MEMORY: Final = 100.0
"""Calls after which an input counts for a third."""

RATIO_PRIOR_BYTES: Final = 2000.0
"""The prior ratio weighs as much as so many bytes that were seen."""

MESSAGE_PRIOR: Final = 0.001
"""Ties the constant per message to its prior: 25 tokens off are as strange as a 5 % error."""

DEVIATION_START: Final = 0.5
DEVIATION_MIN: Final = 0.02
CLIP_DEVIATIONS: Final = 4.0
"""An input stranger than four mean deviations counts as if it were at four."""


class Price(Struct, frozen=True):
    """What a model's tokens cost, in micro-dollars per million tokens."""

    input_microusd_per_mtok: int
    output_microusd_per_mtok: int
    cache_read_microusd_per_mtok: int | None = None
    """`None`: as dear as any other input."""
    cache_write_microusd_per_mtok: int | None = None
    long_write_microusd_per_mtok: int | None = None
    """Of input that is written into the cache, and kept there for an hour. `None` is the same."""

    def cost_microusd(self, amounts: Amounts) -> int:
        """The price of so many tokens, rounded up, none of which meets a cache."""
        return self.cost_of(Tally(amounts.input_tokens, 0.0, amounts.output_tokens))

    def cost_of(self, tally: Tally) -> int:
        """The price of a call, rounded up; its input contains cache writes and not cache reads."""
        usual = self.input_microusd_per_mtok
        read, written, long = (
            usual if price is None else price
            for price in (
                self.cache_read_microusd_per_mtok,
                self.cache_write_microusd_per_mtok,
                self.long_write_microusd_per_mtok,
            )
        )
        kept_long = ceil(tally.long_write_tokens)
        kept = max(0, ceil(tally.cache_write_tokens) - kept_long)
        total = (
            max(0, ceil(tally.input_tokens) - kept - kept_long) * usual
            + kept * written
            + kept_long * long
            + ceil(tally.cache_read_tokens) * read
            + ceil(tally.output_tokens) * self.output_microusd_per_mtok
        )
        return -(-total // 1_000_000)

    def most_microusd(self, amounts: Amounts, kept_tokens: float) -> int:
        """The most that a call can cost if so many of its input tokens may be cached."""
        given, gave = amounts.input_tokens, amounts.output_tokens
        ways = ((0.0, 0.0), (kept_tokens, 0.0), (kept_tokens, kept_tokens))
        return max(
            self.cost_of(Tally(given, 0.0, gave, cache_write_tokens=kept, long_write_tokens=long))
            for kept, long in ways
        )


class _Ratio(Struct):
    """A least-squares fit of tokens on bytes and messages, each call weighed by 1/bytes."""

    prior: float
    per_byte: float
    per_message: float = TOKENS_PER_MESSAGE
    sums: Sequence[float] = (0.0,) * 5
    """Over past calls: of bytes, messages, messages^2, tokens, tokens x messages."""
    deviation: float = DEVIATION_START

    def learn(self, size_bytes: float, messages: int, tokens: float) -> None:
        """Count one call, clipped to what is believable, and solve anew."""
        expected = max(1.0, size_bytes * self.per_byte + messages * self.per_message)
        strange = log(tokens / expected)
        clip = CLIP_DEVIATIONS * self.deviation
        tokens = expected * exp(max(-clip, min(clip, strange)))
        # The deviation may grow by more than what is let through, so that a lasting change,
        # unlike an outlier, opens the door within a few calls.
        self.deviation += 0.1 * (min(abs(strange), 2.0 * clip) - self.deviation)
        self.deviation = max(DEVIATION_MIN, self.deviation)
        keep = 1.0 - 1.0 / RATIO_MEMORY
        squared, product = messages**2 / size_bytes, tokens * messages / size_bytes
        more = (size_bytes, messages, squared, tokens, product)
        self.sums = [keep * past + new for past, new in zip(self.sums, more, strict=True)]
        a, b, c, right_a, right_c = self.sums
        a += RATIO_PRIOR_BYTES
        c += MESSAGE_PRIOR
        right_a += RATIO_PRIOR_BYTES * self.prior
        right_c += MESSAGE_PRIOR * TOKENS_PER_MESSAGE
        determinant = a * c - b * b
        self.per_byte = (right_a * c - right_c * b) / determinant
        self.per_message = (right_c * a - right_a * b) / determinant


class InputRatio:
    """Tokens of an input, cached ones included: bytes x ratio + messages x constant, both learned
    for each model and content kind."""

    def __init__(self) -> None:
        self._ratios: dict[tuple[str, str], _Ratio] = {}

    def estimate(self, model: str, kind: str, size_bytes: int, messages: int = 1) -> float:
        """The tokens that an input of this size will probably be counted as; one at least."""
        ratio = self._ratios.get((model, kind)) or _prior_ratio(kind)
        return max(1.0, size_bytes * ratio.per_byte + messages * ratio.per_message)

    def observe(
        self, model: str, kind: str, size_bytes: int, input_tokens: float, messages: int = 1
    ) -> None:
        """Learn from the tokens that the provider reported. An empty report teaches nothing."""
        if size_bytes > 0 and input_tokens >= 1.0:
            ratio = remember(self._ratios, (model, kind), lambda: _prior_ratio(kind))
            ratio.learn(size_bytes, messages, input_tokens)


def _prior_ratio(kind: str) -> _Ratio:
    prior = TOKENS_PER_BYTE.get(kind, TOKENS_PER_BYTE_OTHER)
    return _Ratio(prior, prior)


OUTPUT_TOKENS_MAX: Final = 128_000
"""The longest answer of current models; what a call that names no limit may grow to."""

INPUT_DOUBT: Final = 1.2
"""Ordinary text rarely exceeds its estimate by more; a hard claim does not count on that."""

UNDECLARED: Final = 2.0
"""A call that names no longest answer is taken to reserve so many times the expected one."""

Prices = Callable[[str, int], Price | None]
"""The price of a model's tokens for a given number of input tokens, if it is known."""


class Estimates:
    """Sizes of calls, learned from all of them."""

    def __init__(self, prices: Prices) -> None:
        self._prices = prices
        self._inputs = InputRatio()
        self.outputs = OutputLength()

    def size(self, sketch: Sketch, dialect: Dialect, is_warm: bool) -> tuple[Demand, Spend]:
        """What the call will probably and at most consume, and the most that it can take of a
        budget; of that, what is not text counts as expected."""
        tokens_in = self._input_tokens(sketch, sketch.size_bytes, sketch.messages)
        most = sketch.max_output_tokens
        # A call that asks for more is refused, and reserves nothing until then.
        ceiling = OUTPUT_TOKENS_MAX if most is None else min(max(0, most), OUTPUT_TOKENS_MAX)
        tokens_out = self.outputs.expect(sketch.kind, tokens_in, float(ceiling))
        reserved = float(ceiling) if most is not None else UNDECLARED * tokens_out
        counted = tokens_in
        if is_warm and dialect.input_charge == "uncached":
            counted = max(1.0, tokens_in - self._input_tokens(sketch, sketch.prefix_bytes, 0))
        claim = ceiling_of(sketch, self._prices, ceil(INPUT_DOUBT * tokens_in))
        cost = 0 if claim.unpriced else self._cost(sketch, tokens_in, tokens_out)
        expected = Amounts(counted, tokens_out, cost)
        highest = Amounts(INPUT_DOUBT * counted, reserved, claim.microusd)
        return Demand(expected, highest, sketch.kind, sketch.is_whole), claim

    def claim(self, sketch: Sketch, demand: Demand, is_soft: bool = False) -> Spend:
        """The most that a call can take of a budget; if soft, what it is expected to take."""
        if is_soft:
            return self.grown(sketch, max(1.0, demand.expected.output_tokens))
        tokens_in = self._input_tokens(sketch, sketch.size_bytes, sketch.messages)
        return ceiling_of(sketch, self._prices, ceil(INPUT_DOUBT * tokens_in))

    def grown(self, sketch: Sketch, output_tokens: float) -> Spend:
        """What the call takes of a budget with an answer of this length."""
        tokens_in = INPUT_DOUBT * self._input_tokens(sketch, sketch.size_bytes, sketch.messages)
        cost = self._cost(sketch, tokens_in, output_tokens)
        return Spend(tokens_in + output_tokens, cost, int(not self.has_price(sketch)))

    def has_price(self, sketch: Sketch) -> bool:
        """Whether the price of the call is known."""
        return self._prices(sketch.model, 0) is not None

    def ended(self, id: CallId, sketch: Sketch, tally: Tally | None) -> None:
        """The call is over. Only what the provider reported of a whole answer teaches."""
        if tally is None or tally.known != "reported":
            self.outputs.ended(id, None)
            return
        self.outputs.ended(id, tally.output_tokens)
        read = tally.input_tokens + tally.cache_read_tokens
        self._inputs.observe(sketch.model, sketch.content, sketch.size_bytes, read, sketch.messages)

    def usage(self, demand: Demand, tally: Tally, spend: Spend, dialect: Dialect) -> Usage:
        """What the call took of the limits. What was not reported is what was expected."""
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
        """What the call took of a budget: in doubt, all of a hard claim or an estimate."""
        if is_soft and tally.known != "unknown":
            unread = sketch.size_bytes - sketch.prefix_bytes * bool(tally.cache_read_tokens)
            tokens_in = tally.input_tokens or self._input_tokens(sketch, unread, sketch.messages)
            tally = replace(tally, input_tokens=tokens_in, known="reported")
        return spend_of(sketch.model, claim, tally, self._prices)

    def _input_tokens(self, sketch: Sketch, size_bytes: int, messages: int) -> float:
        return self._inputs.estimate(sketch.model, sketch.content, max(0, size_bytes), messages)

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


def ceiling_of(sketch: Sketch, prices: Prices, expected_in: int = 0) -> Spend:
    """The most that a call can take: a token per byte of text, or what is expected if that is more,
    and the longest answer."""
    most_in, most_out = max(sketch.most_input_tokens, expected_in), sketch.max_output_tokens
    whole = Amounts(float(most_in), float(OUTPUT_TOKENS_MAX if most_out is None else most_out))
    price = prices(sketch.model, most_in)
    written = whole.input_tokens if sketch.may_write_cache else 0.0
    cost = 0 if price is None else price.most_microusd(whole, written)
    return Spend(whole.input_tokens + whole.output_tokens, cost, int(price is None))
