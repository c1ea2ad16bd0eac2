"""What a call will consume: tokens in, tokens out and money, learned from what calls consumed.

Laws:
- An estimate is always there: a prior at first, the account's own history soon after.
- One strange report moves an estimate a little, a lasting change moves it all the way.
- Money is integer micro-dollars and is always rounded up.

Tokens out are estimated in `length.py` and can be imported from here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, exp, log
from typing import Final

from headway.core.quota.length import OutputLength, remember
from headway.core.values import Amounts, Demand, Tally

__all__ = [
    "InputRatio",
    "InputRatioStatistics",
    "OutputLength",
    "Price",
    "RatioStatistics",
    "right_size",
]

TOKENS_PER_BYTE: Final = {"english": 0.25, "code": 0.30, "korean": 0.40, "cjk": 0.40}
"""Where ratios start, per UTF-8 byte: providers say four characters a token for English prose;
code has more symbols. Hangul, Han and kana take three bytes and, on vocabularies that know them
badly, 1 to 1.4 tokens a character. The high side is right: too low a start costs a refusal."""

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

RIGHT_SIZE_FACTOR: Final = 2.5
"""Found by experiment: few replies are truncated and asked for again, and little is reserved."""

RIGHT_SIZE_MIN: Final = 16
"""OpenAI's Responses API refuses a smaller `max_output_tokens`."""

TOKENS_PER_PRICE: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
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
        """The price of a call, rounded up; tokens read from the cache come on top of its input,
        those written into it are a part of that."""
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
        return -(-total // TOKENS_PER_PRICE)

    def most_microusd(self, amounts: Amounts, kept_tokens: float) -> int:
        """The most that a call can cost of whose input so many tokens may be written into the
        cache, in whatever way is the dearest."""
        given, gave = amounts.input_tokens, amounts.output_tokens
        ways = ((0.0, 0.0), (kept_tokens, 0.0), (kept_tokens, kept_tokens))
        return max(
            self.cost_of(Tally(given, 0.0, gave, cache_write_tokens=kept, long_write_tokens=long))
            for kept, long in ways
        )

    def spend(self, expected: Amounts, ceiling: Amounts, kind: str = "") -> Demand:
        """The demand of a call whose tokens are known, with what they will and can cost."""
        return Demand(
            expected=replace(expected, spend_microusd=self.cost_microusd(expected)),
            ceiling=replace(ceiling, spend_microusd=self.cost_microusd(ceiling)),
            kind=kind,
        )


def right_size(expected_output: float, ceiling: int, factor: float = RIGHT_SIZE_FACTOR) -> int:
    """The `max_tokens` to declare to a provider that reserves it, at most what the user allows."""
    return min(ceiling, max(RIGHT_SIZE_MIN, ceil(expected_output * factor)))


@dataclass(slots=True)
class _Ratio:
    """A least-squares fit of tokens on bytes and messages, each call weighed by 1/bytes."""

    prior: float
    per_byte: float
    per_message: float = TOKENS_PER_MESSAGE
    bytes_sum: float = 0.0
    messages: float = 0.0
    messages_squared: float = 0.0
    tokens: float = 0.0
    tokens_messages: float = 0.0
    deviation: float = DEVIATION_START
    calls: int = 0

    def estimate(self, size_bytes: float, messages: int) -> float:
        """Tokens of an input; never negative, and never nothing for something."""
        return max(1.0, size_bytes * self.per_byte + messages * self.per_message)

    def learn(self, size_bytes: float, messages: int, tokens: float) -> None:
        """Count one call, clipped to what is believable, and solve anew."""
        expected = self.estimate(size_bytes, messages)
        strange = log(tokens / expected)
        clip = CLIP_DEVIATIONS * self.deviation
        tokens = expected * exp(max(-clip, min(clip, strange)))
        # The deviation may grow by more than what is let through, so that a lasting change,
        # unlike an outlier, opens the door within a few calls.
        self.deviation += 0.1 * (min(abs(strange), 2.0 * clip) - self.deviation)
        self.deviation = max(DEVIATION_MIN, self.deviation)
        keep = 1.0 - 1.0 / RATIO_MEMORY
        self.bytes_sum = keep * self.bytes_sum + size_bytes
        self.messages = keep * self.messages + messages
        self.messages_squared = keep * self.messages_squared + messages**2 / size_bytes
        self.tokens = keep * self.tokens + tokens
        self.tokens_messages = keep * self.tokens_messages + tokens * messages / size_bytes
        self.calls += 1
        self._solve()

    def _solve(self) -> None:
        a, b = self.bytes_sum + RATIO_PRIOR_BYTES, self.messages
        c = self.messages_squared + MESSAGE_PRIOR
        right_a = self.tokens + RATIO_PRIOR_BYTES * self.prior
        right_c = self.tokens_messages + MESSAGE_PRIOR * TOKENS_PER_MESSAGE
        determinant = a * c - b * b
        self.per_byte = (right_a * c - right_c * b) / determinant
        self.per_message = (right_c * a - right_a * b) / determinant


@dataclass(frozen=True, slots=True)
class RatioStatistics:
    """What is known of the inputs of one model and content kind."""

    model: str
    kind: str
    calls: int
    tokens_per_byte: float
    tokens_per_message: float
    deviation: float


@dataclass(frozen=True, slots=True)
class InputRatioStatistics:
    """Every ratio that was learned, least recently used first."""

    ratios: tuple[RatioStatistics, ...]


class InputRatio:
    """Tokens of an input from its size: bytes x ratio + messages x constant, both learned.

    A ratio belongs to a model and a content kind. Tokens that the provider read from its cache
    are part of an input: add them to what `observe` is given.
    """

    __slots__ = ("_ratios",)

    def __init__(self) -> None:
        self._ratios: dict[tuple[str, str], _Ratio] = {}

    def __repr__(self) -> str:
        return f"<InputRatio of {len(self._ratios)} models and kinds>"

    def estimate(self, model: str, kind: str, size_bytes: int, messages: int = 1) -> float:
        """The tokens that an input of this size will probably be counted as."""
        ratio = self._ratios.get((model, kind)) or _prior_ratio(kind)
        return ratio.estimate(size_bytes, messages)

    def observe(
        self, model: str, kind: str, size_bytes: int, input_tokens: float, messages: int = 1
    ) -> None:
        """Learn from the tokens that the provider reported. An empty report teaches nothing."""
        if size_bytes > 0 and input_tokens >= 1.0:
            ratio = remember(self._ratios, (model, kind), lambda: _prior_ratio(kind))
            ratio.learn(size_bytes, messages, input_tokens)

    def statistics(self) -> InputRatioStatistics:
        """What was learned so far."""
        return InputRatioStatistics(
            tuple(
                RatioStatistics(
                    model, kind, ratio.calls, ratio.per_byte, ratio.per_message, ratio.deviation
                )
                for (model, kind), ratio in self._ratios.items()
            )
        )


def _prior_ratio(kind: str) -> _Ratio:
    prior = TOKENS_PER_BYTE.get(kind, TOKENS_PER_BYTE_OTHER)
    return _Ratio(prior, prior)
