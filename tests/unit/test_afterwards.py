"""A run looked back upon: foreseen and real, groups, slow tasks, what bound it."""

from __future__ import annotations

from math import isclose

import pytest

from headway.plans.graph import Graph, Need, TaskGroup
from headway.report.forecast import Foreseen, SpreadNumber
from headway.report.history import AttemptUsage, GroupHistory, Kind, Piece, TaskHistory
from headway.report.time_use import (
    Cause,
    CauseShare,
    Lineage,
    Spent,
    binding,
    compared,
    lineage,
    slowest,
)

FORESEEN = Foreseen(
    "adaptive", 22, SpreadNumber(20, 22, 30), SpreadNumber(35, 41, 60),
    SpreadNumber(1e5, 2e5, 3e5), SpreadNumber(1e4, 2e4, 3e4),
    SpreadNumber(100_000, 200_000, 300_000), 40.0, "input/60s", 40.0, "input/60s",
    4.0, 0.0, 12, "earlier runs",
)  # fmt: skip


def way(name: str, number: int, from_s: float, to_s: float, state: str = "finished") -> TaskHistory:
    """A task that was worked on for all of its time."""
    pieces = [Piece("idle", 0.0, from_s), Piece("service", from_s, to_s)]
    ended_s = None if state == "started" else to_s
    group = GroupHistory(name.partition("[")[0])
    return TaskHistory(
        name.encode(), group, number=number, pieces=pieces, ended_s=ended_s, reached_s=from_s,
        state="finished" if state == "finished" else None,
    )  # fmt: skip


def test_what_was_foreseen_stands_beside_what_it_was() -> None:
    taken = AttemptUsage(31, 150_000.0, 30_000.0, 250_000)
    rows = compared(FORESEEN, 60.0, taken)
    assert [row.name for row in rows] == ["time", "cost", "calls", "tokens"]
    assert [row.is_within for row in rows] == [True, True, False, True]
    assert [row.error for row in rows] == pytest.approx([19 / 41, 0.25, 9 / 22, -40 / 220])


def test_the_critical_path_goes_through_the_longest_of_those_that_are_needed() -> None:
    graph = Graph(
        (
            TaskGroup("read", 2),
            TaskGroup("check", 2, (Need(0, 1),)),
            TaskGroup("all", 1, (Need(1),)),
        )
    )
    ways = [
        way("read[a]", 0, 0.0, 3.0), way("read[b]", 1, 0.0, 1.0), way("check[a]", 2, 3.0, 4.0),
        way("check[b]", 3, 1.0, 6.0), way("all", 4, 6.0, 8.0),
    ]  # fmt: skip
    kin = lineage(ways, graph)
    assert kin.ready_s == {
        b"read[a]": 0.0, b"read[b]": 0.0, b"check[a]": 3.0, b"check[b]": 1.0, b"all": 6.0,
    }  # fmt: skip
    assert (kin.critical_path_s, kin.is_known) == (8.0, True)
    assert kin.chain == (b"read[b]", b"check[b]", b"all")


def test_blocks_of_a_reduction_are_waited_for_and_nobody_else() -> None:
    graph = Graph((TaskGroup("map", 4), TaskGroup("merge/1", 2, (Need(0, 2),))))
    ways = [way(f"map[{n}]", n, 0.0, n + 1.0) for n in range(4)]
    ways += [way("merge/1[1]", 4, 2.0, 2.5), way("merge/1[2]", 5, 4.0, 4.5)]
    kin = lineage(ways, graph)
    assert (kin.ready_s[b"merge/1[1]"], kin.ready_s[b"merge/1[2]"]) == (2.0, 4.0)


def test_an_empty_group_passes_on_what_it_needs_itself() -> None:
    graph = Graph(
        (TaskGroup("a", 1), TaskGroup("none", 0, (Need(0),)), TaskGroup("b", 1, (Need(1),)))
    )
    kin = lineage([way("a", 0, 0.0, 3.0), way("b", 1, 3.0, 5.0)], graph)
    assert (kin.ready_s[b"b"], kin.critical_path_s) == (3.0, 5.0)
    assert kin.chain == (b"a", b"b")


def test_without_a_graph_the_longest_task_is_all_that_is_known() -> None:
    kin = lineage([way("a", 0, 0.0, 1.0), way("b", 1, 0.0, 3.0)], None)
    assert (kin.critical_path_s, kin.chain, kin.is_known) == (3.0, (b"b",), False)
    assert lineage([], None) == Lineage({}, 0.0, (), is_known=False)


def test_groups_tell_how_alike_their_tasks_were() -> None:
    group = GroupHistory("a", times_s=[1.0 + n for n in range(20)])
    assert (group.p50_s, group.p95_s) == (10.5, 19.0)
    assert GroupHistory("c").p95_s == 0.0


def test_the_slowest_tasks_come_with_what_they_mostly_did() -> None:
    def piece(kind: Kind, from_s: float, to_s: float, what: str = "") -> Piece:
        return Piece(kind, from_s, to_s, what)

    waited = TaskHistory(b"a", GroupHistory(""), ended_s=9.0)
    waited.pieces = [
        piece("idle", 0.0, 2.0), piece("quota", 2.0, 5.0, "input/60s"), piece("service", 5.0, 7.0),
        piece("quota", 7.0, 8.0, "input/60s"), piece("service", 8.0, 9.0),
    ]  # fmt: skip
    never = TaskHistory(b"c", GroupHistory(""), ended_s=50.0, pieces=[piece("idle", 0.0, 50.0)])
    short = way("b", 1, 0.0, 3.0)
    found = slowest([waited, never, short, way("d", 2, 0.0, 99.0, "started")], 2)
    assert [(one.key, one.took_s, one.kind, one.kind_s) for one in found] == [
        (b"a", 7.0, "quota", 4.0),
        (b"b", 3.0, "service", 3.0),
    ]
    assert found[0].what == "input/60s"


def went(*shares: tuple[Cause, str, float]) -> Spent:
    wall_s = sum(share[2] for share in shares)
    return Spent(tuple(CauseShare(cause, what, 0.0, s) for cause, what, s in shares), 0.0, wall_s)


def test_what_most_of_the_time_went_to_bound_the_run() -> None:
    spent = went(("quota", "input/60s", 5.0), ("machine", "", 3.0), ("provider", "", 4.0))
    bound = binding(spent, Lineage({}, 0.0, (), is_known=True), {}, {})
    assert bound is not None
    assert (bound.cause, bound.what, bound.straggler) == ("provider", "", b"")
    assert isclose(bound.share, 7 / 12)
    assert binding(went(), Lineage({}, 0.0, (), is_known=True), {}, {}) is None


@pytest.mark.parametrize(
    ("slow_s", "others", "is_straggler"),
    [(40.0, 5, True), (40.0, 1, False), (8.0, 5, False), (12.0, 5, False)],
)
def test_one_hung_task_is_named(slow_s: float, others: int, is_straggler: bool) -> None:
    """Far longer than its like, and a good part of the run's time: both."""
    ways = [way(f"a[{n}]", n, 0.0, 4.0) for n in range(others)]
    ways.append(way("a[slow]", 9, 0.0, slow_s))
    wall_s = 45.0 if slow_s < 40.0 else slow_s
    kin = Lineage({}, slow_s, (b"a[slow]",), is_known=True)
    tasks = {one.key: one for one in ways}
    groups = {"a": GroupHistory("a", times_s=[one.served_s for one in ways])}
    bound = binding(went(("provider", "", wall_s)), kin, tasks, groups)
    assert bound is not None
    assert (bound.straggler == b"a[slow]") is is_straggler
    if is_straggler:
        assert (bound.straggler_s, bound.usual_s) == (40.0, 4.0)
