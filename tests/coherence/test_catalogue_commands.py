"""The catalogue on commands of a plan file, which read when they start and write when they end."""

from __future__ import annotations

import pytest

from bench.coherence_commands import STEPS, perform
from bench.coherence_functions import CASES
from tests.coherence.catalogue_plays import Case
from tests.coherence.harness import interleavings, serial

SLICE = ("G0", "G1a", "G1b, removal", "PMP, write", "P4, list", "G2-item, ring", "Pipeline")
"""Cases in `make test`: a run takes about a second, for it starts seven processes and more."""


@pytest.mark.parametrize("name", SLICE)
def test_commands_give_declared_order(name: str) -> None:
    case = CASES[name]
    last_first = [task for task in reversed(range(len(case.tasks))) for _ in range(STEPS)]
    all_at_once = [*range(len(case.tasks)), *reversed(range(len(case.tasks)))]
    ran = perform(case, [last_first, all_at_once])
    assert ran.outcomes == (serial(case),) * 2


def test_commands_that_start_too_early_run_again() -> None:
    case = CASES["P4"]
    ran = perform(case, [(1, 0, 1, 0)])
    assert ran.outcomes == (serial(case),)
    assert ran.reran == 1


def test_commands_that_declare_what_they_touch_never_run_again() -> None:
    case = CASES["Pipeline"]
    ran = perform(case, [(2, 1, 0, 2, 1, 0)], is_declared=True)
    assert ran.outcomes == (serial(case),)
    assert ran.reran == 0


@pytest.mark.soak
@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.name)
def test_commands_give_declared_order_in_every_interleaving(case: Case) -> None:
    orders = list(interleavings([STEPS] * len(case.tasks)))
    right = serial(case)
    ran = perform(case, orders)
    wrong = [order for order, one in zip(orders, ran.outcomes, strict=True) if one != right]
    assert not wrong, f"{len(wrong)} of {len(orders)}, first {wrong[0]}"
