"""Estimates stay sane for any history, and money is never rounded in our favour."""

from __future__ import annotations

from fractions import Fraction
from math import inf, isfinite

from hypothesis import given
from hypothesis import strategies as st

from headway.base.values import Amounts, Tally
from headway.pacing.estimate import InputRatio, OutputLength, Price

TOKENS = st.floats(0.0, 1e7)
ENDED = st.lists(st.tuples(TOKENS, TOKENS), max_size=60)


@given(ENDED, TOKENS, st.floats(1.0, 1e6))
def test_whatever_happened_an_estimate_is_between_nothing_and_the_ceiling(
    ended: list[tuple[float, float]], input_tokens: float, ceiling: float
) -> None:
    lengths = OutputLength()
    for read, written in ended:
        lengths.observe("kind", read, written)
    assert 0.0 <= lengths.expect("kind", input_tokens, ceiling) <= ceiling
    assert isfinite(lengths.expect("kind", input_tokens, 1e30))


@given(
    st.lists(
        st.tuples(st.integers(0, 10**8), st.floats(0.0, 1e8), st.integers(0, 1000)), max_size=40
    ),
    st.integers(0, 10**8),
    st.integers(0, 1000),
)
def test_an_input_is_always_estimated_as_something(
    reports: list[tuple[int, float, int]], size_bytes: int, messages: int
) -> None:
    ratio = InputRatio()
    for reported_bytes, tokens, reported_messages in reports:
        ratio.observe("m", "code", reported_bytes, tokens, reported_messages)
    estimate = ratio.estimate("m", "code", size_bytes, messages)
    assert 1.0 <= estimate < inf


PRICES = st.integers(0, 10**9)
COUNTS = st.integers(0, 10**9)


@given(st.tuples(*[PRICES] * 5), st.tuples(*[COUNTS] * 5))
def test_a_cost_is_the_exact_one_rounded_up(
    prices: tuple[int, ...], counts: tuple[int, ...]
) -> None:
    plain, output, read, written, long = counts
    tally = Tally(plain + written + long, read, output, "reported", written + long, long)
    exact = Fraction(sum(one * each for one, each in zip(counts, prices, strict=True)), 10**6)
    assert 0 <= Price(*prices).cost_of(tally) - exact < 1


@given(st.tuples(*[PRICES] * 5), st.tuples(*[COUNTS] * 4))
def test_no_way_to_write_into_the_cache_costs_more_than_the_most(
    prices: tuple[int, ...], counts: tuple[int, ...]
) -> None:
    plain, output, kept, long = counts
    price, given = Price(*prices), float(plain + kept)
    tally = Tally(given, 0.0, output, "reported", kept, min(kept, long))
    assert price.cost_of(tally) <= price.most_microusd(Amounts(given, output), kept)
