"""Hard budgets are never exceeded, by no text and by no kill: judged by the provider's record."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.promises.budget_cases import (
    SERVED,
    Case,
    Share,
    case_of,
    judged,
    tell,
    text_of,
)
from tests.promises.user import Provider, provider

CASES = 500
CHUNK = 25
SLICE = (14,)
"""Of the campaign, for every test run."""


@pytest.fixture(scope="module")
def served() -> Iterator[Provider]:
    with provider(*SERVED) as found:
        yield found


@pytest.mark.parametrize(("unit", "amount"), [("tokens", 40_000), ("dollars", 6_000)])
def test_a_months_budget_holds_for_texts_of_random_symbols(
    served: Provider, tmp_path: Path, unit: str, amount: int
) -> None:
    chance = random.Random(1)
    texts = tuple(text_of("symbols", 8_000, chance) for _ in range(40))
    share = Share("run", "openai", texts, 100)
    found = judged(Case(0, "month", unit, amount, (share,)), served, tmp_path, f"symbols-{unit}")
    assert found.codes == [4]
    assert found.charged[0] > amount / 2, "most of the budget can be used"


def test_calls_in_flight_at_a_kill_count_at_their_ceiling_in_a_runs_tokens(
    served: Provider, tmp_path: Path
) -> None:
    texts = tuple(f"say {number}" for number in range(60))
    kills = (("run", 3), ("both", 3))
    case = Case(0, "run", "tokens", 5_000, (Share("run", "openai", texts, 200),), kills)
    found = judged(case, served, tmp_path, "killed")
    assert found.codes == [4]
    assert found.cut


@pytest.mark.parametrize("seed", SLICE)
def test_a_budget_holds_in_a_random_case(served: Provider, tmp_path: Path, seed: int) -> None:
    judged(case_of(seed), served, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("chunk", range(0, CASES, CHUNK))
def test_budgets_hold_in_random_cases(tmp_path: Path, chunk: int) -> None:
    with provider(*SERVED) as found:
        seeds = range(chunk, chunk + CHUNK)
        cases = [
            (case, judged(case, found, tmp_path / str(case.seed))) for case in map(case_of, seeds)
        ]
    tell(cases, print)
