"""What a plan will cost, before anything is sent."""

from __future__ import annotations

from headway.pacing.estimate import Price
from headway.report.forecast import PriceGuess, guess_price
from headway.report.outline import Outline, OutlinePart

PRICE = Price(3_000_000, 15_000_000)
"""Three dollars a million tokens in, fifteen out."""


def asking(
    model: str, price: Price | None, count: int, each_bytes: int, most: int, repairs: int = 0
) -> OutlinePart:
    return OutlinePart(
        model, count, (), model, (float(each_bytes),), max_tokens=float(most), price=price,
        repairs=repairs,
    )  # fmt: skip


def guess(*parts: OutlinePart) -> PriceGuess:
    return guess_price(Outline(parts))


def test_the_ceiling_is_every_byte_a_token_and_every_answer_at_its_longest() -> None:
    found = guess(asking("m", PRICE, 10, 100, 100))
    assert found.ceiling_microusd == (1000 + 10 * 80) * 3 + 10 * 100 * 15
    assert found.calls == 10
    # A quarter of a token a byte, four a message, and answers as long as they may be.
    assert found.expected_microusd == (250 + 40) * 3 + 10 * 100 * 15


def test_answers_are_expected_to_be_as_long_as_answers_usually_are() -> None:
    found = guess(asking("m", PRICE, 10, 100, 100_000))
    assert found.expected_microusd == (250 + 40) * 3 + 10 * 500 * 15


def test_a_repair_reads_the_answer_again_and_writes_another() -> None:
    once = guess(asking("m", PRICE, 1, 1000, 100))
    again = guess(asking("m", PRICE, 1, 1000, 100, repairs=1))
    assert again.ceiling_microusd == 2 * once.ceiling_microusd + (100 + 80) * 3
    assert again.expected_microusd == once.expected_microusd


def test_a_model_without_a_price_is_named_and_not_counted() -> None:
    found = guess(
        asking("mine", None, 5, 2, 10), asking("m", PRICE, 1, 0, 10), asking("mine", None, 1, 1, 1)
    )
    assert guess(asking("m", PRICE, 0, 0, 4096)) == PriceGuess()
    assert found.unpriced == ("mine",)
    assert found.calls == 7
    assert found.expected_microusd <= 5_000_000
    many = guess(asking("m", PRICE, 1000, 4_000, 4096))
    assert many.expected_microusd > 5_000_000
