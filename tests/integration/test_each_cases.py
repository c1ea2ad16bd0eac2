"""What a template and values become is what GNU parallel makes of them, as recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.errors import UsageError
from tests.parallel.cases import CASES, HOSTILE, Case, Outcome
from tests.parallel.ours import plan_of, run_all
from tests.parallel.record import recorded

RECORDED = recorded()
SAME = tuple(case for case in CASES if not case.differs)
BETTER = tuple(case for case in CASES if case.differs and case.ours is not None)
REFUSED = tuple(case for case in CASES if case.differs and case.ours is None)

SHOWN_OTHERWISE = {"words kept apart"}
"""With -q GNU parallel shows a word in one pair of quotes, headway its value in one."""


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    folder = tmp_path_factory.mktemp("cases")
    outcomes = run_all(SAME + BETTER, folder)
    assert not list(folder.rglob("pwned")), "a value was executed"
    return outcomes


def test_there_are_enough_cases_and_each_was_recorded() -> None:
    assert len(SAME) + len(BETTER) >= 60
    assert [case.name for case in CASES] == list(RECORDED)
    assert len(HOSTILE) >= 20


@pytest.mark.parametrize("case", SAME, ids=[case.name for case in SAME])
def test_each_gives_programs_what_parallel_gives_them(case: Case, ours: dict[str, Outcome]) -> None:
    got, wanted = ours[case.name], RECORDED[case.name]
    assert got.argv == wanted.argv
    assert got.stdout == wanted.stdout
    assert got.is_zero == wanted.is_zero
    assert got.joblog == wanted.joblog
    assert got.joblog_types == wanted.joblog_types


@pytest.mark.parametrize("case", SAME, ids=[case.name for case in SAME])
def test_each_shows_commands_as_parallel_shows_them(case: Case, ours: dict[str, Outcome]) -> None:
    if case.name not in SHOWN_OTHERWISE:
        assert ours[case.name].shown == RECORDED[case.name].shown


@pytest.mark.parametrize("case", BETTER, ids=[case.name for case in BETTER])
def test_where_each_differs_values_stay_whole(case: Case, ours: dict[str, Outcome]) -> None:
    assert case.ours is not None
    assert ours[case.name].argv == sorted(map(list, case.ours))
    assert ours[case.name].argv != RECORDED[case.name].argv


@pytest.mark.parametrize("case", REFUSED, ids=[case.name for case in REFUSED])
def test_what_each_does_not_do_is_refused_with_a_hint(case: Case, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        plan_of(case, tmp_path)
    assert refused.value.hint
