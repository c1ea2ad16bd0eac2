"""Estimates what a call will consume, and learns from what it did.

Laws:
- An estimate is always there: a prior at first, the history of the kind soon after.
- Lengths of answers are learned from calls that ended; streams that outlive their plan are
  planned anew one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, erfc, exp, log, sqrt
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from headway.base.numbers import remember
from headway.base.values import Amounts, Demand, Sketch, Spend, Tally
from headway.pacing.headers import Dialect

TOKENS_PER_BYTE: Final = {"english": 0.25, "code": 0.30, "korean": 0.40, "cjk": 0.40}
"""Where ratios start, per UTF-8 byte; on the high side, because too low a start costs a refusal."""
TOKENS_PER_BYTE_OTHER: Final = 0.30
TOKENS_PER_MESSAGE: Final = 4.0
"""Role and separators around each message of a chat."""
RATIO_KEEP: Final = 0.99
"""What an input still counts after each further call: a third after a hundred."""
RATIO_PRIOR_BYTES: Final = 2000.0
"""The prior ratio weighs as much as so many bytes that were seen."""
MESSAGE_PRIOR: Final = 0.001
"""Ties the constant per message to its prior: 25 tokens off are as strange as a 5 % error. With
the prior alone, Korean (o200k) is off by 13 % in place of 8 %, chats in English by 5.2, not 4.7."""
DEVIATION_START: Final = 0.5
DEVIATION_MIN: Final = 0.02
CLIP_DEVIATIONS: Final = 4.0
"""An input stranger than four mean deviations counts as if it were at four: after 20 calls, one
that is reported twice as large moves the next by 6 % at most, and by 14 % if it counts in full."""


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
    deviation: float = DEVIATION_START
    size_bytes: float = 0.0
    """Sums over past calls, each weighed by 1/bytes: of bytes^2..."""
    messages: float = 0.0
    """...bytes x messages, messages^2, tokens x bytes, tokens x messages."""
    squares: float = 0.0
    tokens: float = 0.0
    products: float = 0.0

    def learn(self, size_bytes: float, messages: int, tokens: float) -> None:
        """Count one call, clipped to what is believable, and solve anew."""
        expected = max(1.0, size_bytes * self.per_byte + messages * self.per_message)
        strange = log(tokens / expected)
        deviation = self.deviation
        clip = CLIP_DEVIATIONS * deviation
        if not -clip <= strange <= clip:
            tokens = expected * exp(clip if strange > 0.0 else -clip)
        # The deviation may grow by more than what is let through, so that a lasting change,
        # unlike an outlier, opens the door within a few calls.
        deviation += 0.1 * (min(abs(strange), 2.0 * clip) - deviation)
        self.deviation = max(DEVIATION_MIN, deviation)
        a = self.size_bytes = RATIO_KEEP * self.size_bytes + size_bytes
        b = self.messages = RATIO_KEEP * self.messages + messages
        c = self.squares = RATIO_KEEP * self.squares + messages * messages / size_bytes
        right_a = self.tokens = RATIO_KEEP * self.tokens + tokens
        right_c = self.products = RATIO_KEEP * self.products + tokens * messages / size_bytes
        a += RATIO_PRIOR_BYTES
        c += MESSAGE_PRIOR
        right_a += RATIO_PRIOR_BYTES * self.prior
        right_c += MESSAGE_PRIOR * TOKENS_PER_MESSAGE
        determinant = a * c - b * b
        self.per_byte = (right_a * c - right_c * b) / determinant
        self.per_message = (right_c * a - right_a * b) / determinant


class InputRatio:
    """Tokens of an input, cached ones too: bytes x ratio + messages x constant, both learned."""

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


OUTPUT_TOKENS_PRIOR: Final = 500.0
INPUT_TOKENS_REFERENCE: Final = 1000.0
"""Logs of inputs are centred on it, so that the level is that of an ordinary call."""
SPREAD_PRIOR: Final = 0.8
"""One standard deviation is a factor of 2.2: typical of replies of one kind."""
SPREAD_MAX: Final = 3.0
"""A factor of 20; beyond this a kind has no length that is worth estimating."""
LENGTH_PRIOR_CALLS: Final = 0.2
PRIOR_CALLS: Final = 4.0
"""Ties the spread to its prior as firmly as so many calls, and the slope to zero as firmly as so
many whose inputs differ by a factor of e."""
LENGTH_MEMORY: Final = 512.0
"""Calls after which a length counts for a third."""
SQRT_2: Final = sqrt(2.0)
_KEEP: Final = exp(-1.0 / LENGTH_MEMORY)
_LEVEL_PRIOR: Final = log(OUTPUT_TOKENS_PRIOR) - 0.5 * SPREAD_PRIOR**2


class OutputLength:
    """How long replies will be, by kind of call, learned from calls that ended.

    Lengths are lognormal around a line, log(out) = level + slope log(in) + spread e, fitted by
    least squares with priors.
    """

    def __init__(self) -> None:
        self._kinds: dict[str, Sequence[float]] = {}
        """By kind, the weighted sums over calls of 1, x, y, x^2, xy, y^2; y is the log length."""

    def observe(self, kind: str, input_tokens: float, output_tokens: float) -> None:
        """Learn from a call that has ended."""
        x, y = log(max(1.0, input_tokens) / INPUT_TOKENS_REFERENCE), log(max(1.0, output_tokens))
        sums = remember(self._kinds, kind, _no_sums)
        n, sx, sy, sxx, sxy, syy = sums
        self._kinds[kind] = (
            _KEEP * n + 1.0, _KEEP * sx + x, _KEEP * sy + y,
            _KEEP * sxx + x * x, _KEEP * sxy + x * y, _KEEP * syy + y * y,
        )  # fmt: skip

    def expect(self, kind: str, input_tokens: float, ceiling: float) -> float:
        """The mean length of a reply, lognormal as it is, that is cut at `ceiling`."""
        sums = self._kinds.get(kind)
        if sums is None:
            return min(ceiling, OUTPUT_TOKENS_PRIOR)
        if ceiling <= 0.0:
            return 0.0
        n, x, y, xx, xy, yy = sums
        calls = n + PRIOR_CALLS
        n += LENGTH_PRIOR_CALLS
        y += LENGTH_PRIOR_CALLS * _LEVEL_PRIOR
        yy += LENGTH_PRIOR_CALLS * _LEVEL_PRIOR**2 + PRIOR_CALLS * SPREAD_PRIOR**2
        slope = (xy - x * y / n) / (xx + PRIOR_CALLS - x * x / n)
        level = (y - slope * x) / n
        mean = level + slope * log(max(1.0, input_tokens) / INPUT_TOKENS_REFERENCE)
        spread = min(SPREAD_MAX, sqrt((yy - level * y - slope * xy) / calls))
        # The share of a standard normal above z is erfc(z / sqrt(2)) / 2.
        z = (log(ceiling) - mean) / spread
        whole = exp(mean + 0.5 * spread * spread) * 0.5 * erfc((spread - z) / SQRT_2)
        return min(ceiling, whole + ceiling * 0.5 * erfc(z / SQRT_2))


def _no_sums() -> Sequence[float]:
    return (0.0,) * 6


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
        self._tokens_in = self._inputs.estimate
        self.outputs = OutputLength()

    def size(
        self, sketch: Sketch, dialect: Dialect, cached_bytes: int = 0, is_interactive: bool = False
    ) -> Demand:
        """What the call will probably and at most consume if so much of it is read from a cache."""
        tokens_in = self._tokens_in(
            sketch.model, sketch.content, sketch.size_bytes, sketch.messages
        )
        most = sketch.max_output_tokens
        tokens_out = self.outputs.expect(sketch.kind, tokens_in, _longest(most))
        reserved = UNDECLARED * tokens_out if most is None else _longest(most)
        counted = tokens_in
        if cached_bytes and dialect.input_charge == "uncached":
            cached = self._tokens_in(sketch.model, sketch.content, cached_bytes, 0)
            counted = max(1.0, tokens_in - cached)
        price = self._prices(sketch.model, ceil(tokens_in))
        cost = most_cost = 0
        if price is not None:
            cost = price.cost_of(Tally(tokens_in, 0.0, tokens_out))
            most_cost = self.claim(sketch).microusd
        return Demand(
            Amounts(counted, tokens_out, cost), Amounts(INPUT_DOUBT * counted, reserved, most_cost),
            sketch.kind, sketch.is_whole, is_interactive,
        )  # fmt: skip

    def claim(self, sketch: Sketch, is_soft: bool = False) -> Spend:
        """What to claim of a budget: the most that the call can take, where what is not text counts
        as expected; if soft, what it is expected to take."""
        tokens_in = self._tokens_in(
            sketch.model, sketch.content, sketch.size_bytes, sketch.messages
        )
        if not is_soft:
            return ceiling_of(sketch, self._prices, ceil(INPUT_DOUBT * tokens_in))
        longest = _longest(sketch.max_output_tokens)
        return self.grown(sketch, max(1.0, self.outputs.expect(sketch.kind, tokens_in, longest)))

    def grown(self, sketch: Sketch, output_tokens: float) -> Spend:
        """What the call takes of a budget with an answer of this length."""
        tokens_in = self._tokens_in(
            sketch.model, sketch.content, sketch.size_bytes, sketch.messages
        )
        tally = Tally(INPUT_DOUBT * tokens_in, 0.0, output_tokens)
        return spend_on(sketch.model, tally, self._prices)

    def has_price(self, sketch: Sketch) -> bool:
        """Whether the price of the call is known."""
        return self._prices(sketch.model, 0) is not None

    def learn(self, sketch: Sketch, demand: Demand, tally: Tally) -> None:
        """An answer is complete. Only what its provider reported teaches."""
        if tally.known != "reported":
            return
        self.outputs.observe(demand.kind, demand.expected.input_tokens, tally.output_tokens)
        read = tally.input_tokens + tally.cache_read_tokens
        self._inputs.observe(sketch.model, sketch.content, sketch.size_bytes, read, sketch.messages)

    def usage(self, demand: Demand, tally: Tally, spend: Spend, dialect: Dialect) -> Amounts:
        """What the call took of the limits. What was not reported is what was expected."""
        tokens_in = tally.input_tokens
        if dialect.input_charge == "all":
            tokens_in += tally.cache_read_tokens
        if not tally.input_tokens and not tally.cache_read_tokens:
            tokens_in = demand.expected.input_tokens
        tokens_out = tally.output_tokens
        if tally.known == "unknown":
            tokens_out = max(tokens_out, demand.expected.output_tokens)
        return Amounts(tokens_in, tokens_out, spend.microusd)

    def spend(
        self, sketch: Sketch, tally: Tally, claim: Callable[[], Spend], is_soft: bool = False
    ) -> Spend:
        """What the call took of a budget: in doubt, all of a hard claim or an estimate."""
        if is_soft and tally.known != "unknown":
            unread = sketch.size_bytes - sketch.prefix_bytes * bool(tally.cache_read_tokens)
            tokens_in = self._tokens_in(sketch.model, sketch.content, unread, sketch.messages)
            tokens_in = tally.input_tokens or tokens_in
            tally = replace(tally, input_tokens=tokens_in, known="reported")
        if is_told(tally):
            return spend_on(sketch.model, tally, self._prices)
        return claim().at_least(self.grown(sketch, tally.output_tokens)) if is_soft else claim()


def _longest(most: int | None) -> float:
    """A call that asks for a longer answer is refused, and reserves nothing until then."""
    return float(OUTPUT_TOKENS_MAX if most is None else min(max(0, most), OUTPUT_TOKENS_MAX))


def is_told(tally: Tally) -> bool:
    """Whether the input and all of the answer were reported."""
    return tally.known == "reported" and bool(tally.input_tokens or tally.cache_read_tokens)


def spend_of(model: str, ceiling: Spend, tally: Tally, prices: Prices) -> Spend:
    """What a call took: its ceiling, where its tokens were not told."""
    return spend_on(model, tally, prices) if is_told(tally) else ceiling


def spend_on(model: str, tally: Tally, prices: Prices) -> Spend:
    """What a call with these tokens takes of a budget."""
    read = tally.input_tokens + tally.cache_read_tokens
    tokens = read + tally.output_tokens
    price = prices(model, ceil(read))
    cost = 0 if price is None else price.cost_of(tally)
    return Spend(tokens, cost, int(price is None and tokens > 0.0))


def ceiling_of(sketch: Sketch, prices: Prices, expected_in: int = 0) -> Spend:
    """The most that a call can take: a token per byte, or what is expected, and the answer."""
    most_in, most_out = max(sketch.most_input_tokens, expected_in), sketch.max_output_tokens
    whole = Amounts(float(most_in), float(OUTPUT_TOKENS_MAX if most_out is None else most_out))
    price = prices(sketch.model, most_in)
    written = whole.input_tokens if sketch.may_write_cache else 0.0
    cost = 0 if price is None else price.most_microusd(whole, written)
    return Spend(whole.input_tokens + whole.output_tokens, cost, int(price is None))
