"""The collected plans: what each is said to be is true, and what headway says of it is right."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from bench.markdown import table
from headway.plans.load import load_plan
from tests.dependencies.found import (
    DEPENDS,
    TWENTY,
    WORKFLOWS,
    checked,
    explored,
    is_cleared,
    parallel_rows,
    said_by_runs,
    said_of_pair,
    warnings,
    workflow_rows,
)
from tests.dependencies.judge import (
    Subject,
    commutes,
    is_ordered,
    subjects,
    units_of,
    verdicts,
)
from tests.unit.plan_texts import apply_fixes

BROKEN, GOOD = subjects("broken"), subjects("good")


def some(every: list[Subject]) -> list[object]:
    """One of each way in every test run, all of them in `make soak`."""
    seen: set[str] = set()
    found: list[object] = []
    for subject in every:
        marks = [pytest.mark.soak] if subject.way in seen else []
        seen.add(subject.way)
        found.append(pytest.param(subject, id=str(subject), marks=marks))
    return found


def test_there_are_enough_of_them() -> None:
    assert len(BROKEN) >= 40
    assert len(GOOD) >= 40
    assert len({subject.way for subject in BROKEN}) >= 10


@pytest.mark.parametrize("subject", some(BROKEN))
def test_the_order_of_a_broken_plan_matters_and_explore_finds_it(
    tmp_path: Path, subject: Subject
) -> None:
    assert not commutes(subject)
    found = explored(subject, tmp_path)
    assert not found["is_clear"]
    assert said_of_pair(subject, found) in DEPENDS
    fixes = [pair["fix"] for pair in found["pairs"] if pair["fix"]]
    plan = deepcopy(subject.plan)
    for fix in fixes:
        for name, keys in yaml.safe_load(fix).items():
            plan["tasks"][name] |= keys
    assert are_in_order(subject, plan) or not fixes


@pytest.mark.parametrize("subject", some(GOOD))
def test_the_order_of_a_good_plan_does_not_matter_and_explore_clears_it(
    tmp_path: Path, subject: Subject
) -> None:
    assert all(is_same for _, _, is_same in verdicts(subject))
    found = explored(subject, tmp_path)
    assert found["is_clear"], found["pairs"]


def are_in_order(subject: Subject, plan: dict[str, Any]) -> bool:
    """Whether a mended plan is accepted and puts the pair in order, judged without headway."""
    mended = replace(subject, plan=plan)
    with TemporaryDirectory() as folder:
        load_plan(mended.put(Path(folder)))
    units = units_of(mended)
    first, second = (
        [unit for unit in units if name in (unit.name, unit.group)] for name in subject.pair
    )
    return all(
        is_ordered(units, one, other) or one.task.get("queue") == other.group == one.group
        for one in first
        for other in second
    )


def test_check_finds_most_and_clears_nothing_that_is_broken(tmp_path: Path) -> None:
    reports = {n: checked(one, tmp_path / f"b{n}") for n, one in enumerate(BROKEN)}
    assert sum(warnings(report) > 0 for report in reports.values()) >= 0.75 * len(BROKEN)
    assert [str(BROKEN[n]) for n, report in reports.items() if is_cleared(report)] == []


def test_check_clears_half_of_the_good_plans_and_warns_of_one_at_most(tmp_path: Path) -> None:
    reports = [checked(one, tmp_path / f"g{n}") for n, one in enumerate(GOOD)]
    assert sum(warnings(report) > 0 for report in reports) <= 1
    assert sum(map(is_cleared, reports)) >= 20


@pytest.mark.parametrize("subject", BROKEN, ids=str)
def test_every_hint_of_check_gives_a_plan_that_is_accepted_and_right(
    tmp_path: Path, subject: Subject
) -> None:
    plan, text = deepcopy(subject.plan), subject.text
    for number in range(4):
        report = checked(replace(subject, plan=plan), tmp_path / str(number))
        assert report is not None, text
        fixes = [one.fixes for one in report.remarks if one.severity == "warning" and one.fixes]
        if not fixes:
            break
        text = apply_fixes(text, fixes[0])
        plan = yaml.safe_load(text)
    if number:
        assert are_in_order(subject, plan), text


def test_the_table_of_workflows_in_the_docs_is_what_is_said_of_them(tmp_path: Path) -> None:
    docs = (Path(__file__).parents[2] / "docs" / "explore.md").read_text().splitlines()
    for row in table(WORKFLOWS[:3], workflow_rows(tmp_path)).strip().splitlines():
        assert any(line.startswith(row) for line in docs), row


def test_twenty_plans_are_told_whether_they_are_parallel_and_by_what(tmp_path: Path) -> None:
    docs = (Path(__file__).parents[2] / "docs" / "check.md").read_text().splitlines()
    rows = parallel_rows(tmp_path)
    assert len(rows) == 20
    for line in table(TWENTY, rows).strip().splitlines():
        assert line in docs
    for name, matters, answer, judged in rows:
        if matters == "yes" and "Largest safe width: 1" not in answer:
            assert "as far as is declared" in answer, name
            assert "Not judged: 2 of 2 tasks" in judged, name


@pytest.mark.soak
def test_the_table_of_workflows_has_what_runs_say_of_them(tmp_path: Path) -> None:
    docs = (Path(__file__).parents[2] / "docs" / "explore.md").read_text().splitlines()
    (tmp_path / "rows").mkdir()
    rows = workflow_rows(tmp_path / "rows")
    said = said_by_runs(tmp_path)
    whole = [[*row, words] for row, words in zip(rows, said, strict=True)]
    for line in table(WORKFLOWS, whole).strip().splitlines():
        assert line in docs


TASKS = 20
SHAPES = {
    "share nothing": ({}, "echo {n} > out{n}", 20),
    "are a chain": ({"f0": "x\n"}, "cat f{n} > f{m}", 60),
    "search what all write": ({"s/a": "x\n"}, "grep -rl x s | sort; echo > s/f{n}", 60),
    "append to one file": ({}, "echo {n} >> log", 60),
}
"""By what twenty tasks do: the files, their command, and how many tasks are performed at most."""


@pytest.mark.parametrize("shape", SHAPES)
def test_twenty_tasks_are_explored_in_few_performances(tmp_path: Path, shape: str) -> None:
    files, command, most = SHAPES[shape]
    runs = {f"t{n}": {"run": command.format(n=n, m=n + 1)} for n in range(TASKS)}
    plan = {"headway": 1, "tasks": runs}
    found = explored(Subject("cost", shape, files, plan, ("t0", "t1")), tmp_path)
    assert len(found["pairs"]) == TASKS * (TASKS - 1) // 2
    assert TASKS + found["tries"] <= most
