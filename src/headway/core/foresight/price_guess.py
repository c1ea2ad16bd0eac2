"""What a plan will cost, before anything is sent: about so much, and at most so much.

Pure arithmetic over sizes and prices, for the question whether to ask before spending.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from headway.core.quota.demand import InputRatio, OutputLength, Price
from headway.core.values import Amounts

ASK_MICROUSD: Final = 5_000_000
"""Above five dollars nobody's plan should start by accident."""

FRAME_TOKENS: Final = 80
"""What formats add around a prompt, at most."""


@dataclass(frozen=True, slots=True)
class Asking:
    """Calls of one model that a plan will make."""

    model: str
    price: Price | None
    """`None`: nobody knows it."""
    members: int
    prompt_bytes: int
    """Of all members together."""
    max_tokens: int
    """The longest answer of each."""
    repairs: int = 0
    """How often each may be asked again, with its answer in the prompt."""
    content: str = "english"


@dataclass(frozen=True, slots=True)
class PriceGuess:
    """What a plan costs."""

    expected_microusd: int = 0
    ceiling_microusd: int = 0
    """If every answer is as long as it may be, and every repair is needed."""
    calls: int = 0
    unpriced: tuple[str, ...] = ()
    """Models whose price nobody knows: what they cost is not in the sums."""

    def is_above(self, microusd: int) -> bool:
        """Whether it will probably cost more than this."""
        return self.expected_microusd > microusd


def guess_price(askings: Iterable[Asking]) -> PriceGuess:
    """The sum over a plan's prompts. Answers are taken to be as long as answers usually are."""
    expected = ceiling = calls = 0
    unpriced: dict[str, None] = {}
    ratio, length = InputRatio(), OutputLength()
    for asking in askings:
        calls += asking.members
        if asking.price is None:
            unpriced[asking.model] = None
            continue
        tokens_in = ratio.estimate(
            asking.model, asking.content, asking.prompt_bytes, asking.members
        )
        each_out = length.expect(asking.model, tokens_in, float(asking.max_tokens))
        if asking.members:
            expected += asking.price.cost_microusd(Amounts(tokens_in, asking.members * each_out))
            ceiling += _most(asking, asking.price)
    return PriceGuess(expected, ceiling, calls, tuple(unpriced))


def _most(asking: Asking, price: Price) -> int:
    """The first calls, and repairs that read the answers so far again: a byte is a token at most.

    An answer is read again as at most as many tokens as it was written in.
    """
    rounds = 1 + asking.repairs
    outputs = rounds * asking.members * asking.max_tokens
    inputs = rounds * (asking.prompt_bytes + asking.members * FRAME_TOKENS)
    again = asking.members * (asking.max_tokens + FRAME_TOKENS) * rounds * asking.repairs // 2
    return price.cost_microusd(Amounts(float(inputs + again), float(outputs)))
