"""The catalogue on real runs: async functions, threads and processes give declared order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import pytest

from bench.coherence_functions import CASES, Where, perform
from tests.coherence import catalogue
from tests.coherence.catalogue_plays import Case
from tests.coherence.harness import chosen, halves, interleavings, serial, steps

SAMPLE = 12
"""Interleavings of a case, in `make test`. One that makes tasks run again costs a process its life,
and a new one takes half a second: there it is the one that goes against declared order."""
SEED = 6
PROCESSES_MAX = 100
"""Where there are more interleavings, processes go half their way at once."""

each_case = pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.name)


@pytest.mark.parametrize(("sample", "is_declared"), [
    (SAMPLE, False), (SAMPLE, True), pytest.param(0, False, marks=pytest.mark.soak),
])  # fmt: skip
@pytest.mark.parametrize("where", ["async", "threads"])
@each_case
def test_functions_give_declared_order(
    case: Case, where: Where, sample: int, is_declared: bool
) -> None:
    _must_be_right(case, where, chosen(steps(case), sample, SEED), is_declared)


@pytest.mark.parametrize("case", catalogue.CASES, ids=lambda case: case.name)
def test_processes_give_declared_order(case: Case) -> None:
    _must_be_right(case, "processes", [_backwards(case)])


@pytest.mark.parametrize("where", get_args(Where))
def test_what_goes_against_declared_order_is_really_performed(where: Where) -> None:
    case = CASES["Pipeline"]
    ran = perform(case, where, [_backwards(case)])
    assert ran.reran >= 2, "the enricher and the validator came too early"
    assert ran.outcomes == (serial(case),)


@pytest.mark.soak
@each_case
def test_processes_give_declared_order_in_every_interleaving(case: Case) -> None:
    orders = list(interleavings(steps(case)))
    if len(orders) > PROCESSES_MAX:
        orders = list(halves(steps(case)))
    _must_be_right(case, "processes", orders)


def _must_be_right(
    case: Case, where: Where, orders: Sequence[Sequence[int]], is_declared: bool = False
) -> None:
    right = serial(case)
    ran = perform(case, where, orders, is_declared)
    assert len(ran.outcomes) == len(orders)
    wrong = [order for order, one in zip(orders, ran.outcomes, strict=True) if one != right]
    assert not wrong, f"{len(wrong)} of {len(orders)}, first {wrong[0]}"


def _backwards(case: Case) -> tuple[int, ...]:
    counts = steps(case)
    return tuple(task for task in reversed(range(len(counts))) for _ in range(counts[task]))
