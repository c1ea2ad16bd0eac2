"""The catalogue, in every interleaving: headway gives declared order, other stores do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from itertools import permutations

import pytest

from headway.state.coherence import Coherence, Verdict
from headway.state.shared import Access
from tests.coherence import catalogue, catalogue_isolation
from tests.coherence.catalogue_engine import Engine
from tests.coherence.catalogue_plays import Case, Get, Operation, Play, Scan, Task, plain
from tests.coherence.catalogue_stores import LastWriter, SharedDict, SnapshotIsolation
from tests.coherence.harness import (
    Begin,
    Tally,
    chosen,
    count,
    serial,
    steps,
    tally,
)

SAMPLE = 150
"""Interleavings of a case in `make test`, where a variant is tried that is not the default."""
SEED = 6

ALL = (*catalogue.CASES, *catalogue_isolation.CASES)
VARIANTS: dict[str, Begin] = {
    "declared": partial(Engine, is_declared=True),
    "unstoppable": partial(Engine, is_stoppable=False),
    "declared, unstoppable": partial(Engine, is_declared=True, is_stoppable=False),
}
OTHERS: dict[str, Begin] = {
    "shared dict": SharedDict,
    "last writer wins": LastWriter,
    "snapshot isolation": partial(SnapshotIsolation, is_retried=False),
    "snapshot isolation, retried": partial(SnapshotIsolation, is_retried=True),
}


class Hasty(Coherence):
    def judge(self, task: int, access: Access) -> Verdict:
        return None


class Careless(Engine):
    judging = Hasty


each_case = pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)


@each_case
def test_headway_gives_declared_order_in_every_interleaving(case: Case) -> None:
    found = tally(case, Engine)
    assert found == Tally(count(steps(case)), deviations=0, aborts=0, results=1)


@pytest.mark.parametrize("sample", [SAMPLE, pytest.param(0, marks=pytest.mark.soak)])
@pytest.mark.parametrize("variant", VARIANTS)
@each_case
def test_declarations_and_unstoppable_agents_change_no_result(
    case: Case, variant: str, sample: int
) -> None:
    orders = chosen(steps(case), sample, SEED)
    found = tally(case, VARIANTS[variant], orders)
    assert found == Tally(len(orders), deviations=0, aborts=0, results=1)


@pytest.mark.parametrize(("other", "passed"), [
    ("shared dict", set()),
    ("last writer wins", {"G1a"}),
    ("snapshot isolation", {"G1a"}),
    ("snapshot isolation, retried", {"G1a"}),
])  # fmt: skip
def test_the_catalogue_tells_other_stores_from_headway(other: str, passed: set[str]) -> None:
    found = {case.name: tally(case, OTHERS[other]) for case in ALL}
    assert {name for name, one in found.items() if not one.deviations} == passed
    assert {name for name, one in found.items() if not one.depends_on_schedule} == passed


def test_the_catalogue_finds_an_engine_that_takes_what_is_stale() -> None:
    found = {case.name for case in ALL if tally(case, Careless, _sample(case)).deviations}
    # Of these the order of versions is enough: nobody reads what somebody before him writes.
    assert {case.name for case in ALL} - found == {
        "G0", "G0, removal", "G1a", "PMP", "P4, list", "G-single", "G-single, predicate"
    }  # fmt: skip


def test_snapshot_isolation_refuses_what_headway_runs_again() -> None:
    refused = [
        case.name for case in ALL if tally(case, OTHERS["snapshot isolation"], _sample(case)).aborts
    ]
    assert refused == ["G0", "G0, removal", "OTV", "PMP, write", "P4", "G-single, write",
                       "read-write unique"]  # fmt: skip


@each_case
def test_every_task_keeps_to_what_it_declares(case: Case) -> None:
    """Otherwise `declared` would not try what it says."""
    for order in permutations(range(len(case.tasks))):
        store = LastWriter(case)
        for number in order:
            task = case.tasks[number]
            play = Play(task)
            while (operation := play.operation) is not None:
                assert _is_declared(task, operation), operation
                play.step(store.views()[number])
            store.finish(number, play.is_failed)


def test_what_is_right_is_what_one_after_another_gives() -> None:
    by_name = {case.name: serial(case) for case in ALL}
    assert _plain(by_name["P4"].state)["rows/1"] == 12
    assert _plain(by_name["Pipeline"].state)["verdict"] == "valid"
    assert _plain(by_name["Read-only"].state) == {"checking": -10, "savings": 20}
    assert by_name["G1a"].observed[0].endswith("failed")
    assert _plain(by_name["G1a"].state) == {"rows/1": 10, "rows/2": 11}


def _is_declared(task: Task, operation: Operation) -> bool:
    if isinstance(operation, Get | Scan):
        what = operation.key if isinstance(operation, Get) else operation.pattern
        return any(what == one or fnmatchcase(what, one) for one in task.reads)
    return any(fnmatchcase(operation.key, one) for one in task.writes)


def _plain(state: Mapping[str, object]) -> dict[str, object]:
    return {key: plain(value) for key, value in state.items()}


def _sample(case: Case) -> Sequence[tuple[int, ...]]:
    return chosen(steps(case), SAMPLE, SEED)
