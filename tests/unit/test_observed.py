"""Calls of earlier runs with the company that they had; and values by their rank."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.base.numbers import median, percentile
from headway.report.sizes import AnsweredTask, SeenCall, seen_of

GRID = 64
"""Instants are multiples of 1/64 s, so that a sum over cells is the integral."""


def answered(from_s: float, to_s: float, part: str = "ask", calls: int = 1) -> AnsweredTask:
    return part, from_s, to_s, SeenCall(100.0, 10.0, 400.0, calls=calls)


def brute_force(spans: list[tuple[int, int]], one: tuple[int, int]) -> float:
    """Calls in flight in every cell of one span, averaged."""
    cells = range(*one)
    if not cells:
        return 1.0
    inside = (sum(begin <= cell < end for begin, end in spans) for cell in cells)
    return max(1.0, sum(inside) / len(cells))


SPAN = st.tuples(st.integers(0, 200), st.integers(0, 60)).map(lambda one: (one[0], one[0] + one[1]))


@given(st.lists(SPAN, min_size=1, max_size=12))
def test_company_is_the_mean_of_all_in_flight(spans: list[tuple[int, int]]) -> None:
    seen = seen_of([answered(begin / GRID, end / GRID) for begin, end in spans])["ask"]
    for one, span in zip(seen, spans, strict=True):
        assert one.beside == pytest.approx(brute_force(spans, span))
        assert one.took_s == (span[1] - span[0]) / GRID


def test_of_a_task_of_several_calls_the_mean_call_is_seen_and_no_time() -> None:
    (one,) = seen_of([answered(0.0, 3.0, calls=4)])["ask"]
    assert (one.input_tokens, one.output_tokens, one.calls) == (25.0, 2.5, 4)
    assert one.took_s == 0.0
    assert one.size_bytes == 400.0
    (none,) = seen_of([answered(0.0, 3.0, calls=0)])["ask"]
    assert (none.input_tokens, none.calls, none.took_s) == (100.0, 1, 0.0)


def test_inputs_that_a_provider_does_not_tell_are_what_their_bytes_usually_are() -> None:
    told, untold, unknown = (
        seen_of([("ask", 0.0, 1.0, SeenCall(tokens, 10.0, size, calls=2, microusd=70.0))])["ask"][0]
        for tokens, size in ((100.0, 400.0), (0.0, 400.0), (0.0, 0.0))
    )
    assert (told.input_tokens, told.microusd) == (50.0, 35.0)
    assert 80.0 < untold.input_tokens < 140.0
    assert unknown.input_tokens == 0.0


def test_the_median_of_an_even_number_lies_between_two() -> None:
    assert median([3.0, 1.0, 2.0]) == 2.0
    assert median([4.0, 1.0, 2.0, 3.0]) == 2.5
    assert percentile([], 0.5) == inf


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.floats(0.01, 1.0))
def test_at_least_the_share_does_not_exceed_its_percentile(
    values: list[float], share: float
) -> None:
    found = percentile(values, share)
    assert found in values
    assert sum(one <= found for one in values) >= share * len(values) - 1e-9
    assert sum(one < found for one in values) < share * len(values) + 1e-9
