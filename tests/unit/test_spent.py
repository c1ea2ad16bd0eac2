"""Where time went: by hand, and that it always adds up."""

from __future__ import annotations

from collections import Counter
from math import inf, isclose

import pytest
from hypothesis import given, settings

from headway.base.values import Limit
from headway.engine.events import Event
from headway.engine.state import Rules
from headway.engine.strategy import ADAPTIVE, Strategy
from headway.pacing.account import AccountConfig
from headway.pacing.calls import AccountCalls
from headway.pacing.estimate import OutputLength
from headway.pacing.headers import DIALECTS
from headway.plans.graph import Graph
from headway.report.history import CALL, GroupHistory, Kind, Piece, RunHistory, TaskHistory
from headway.report.time_use import PRECEDENCE, Nature, Spent, lineage, spent
from headway.sim.account import Terms
from headway.sim.clients import PATIENT, PacedDoor, UnpacedDoor
from headway.sim.provider import FaultModel, Provider, ProviderSpec
from headway.sim.rehearsal import Rehearsal, WorkloadSpec, draw_workload
from tests.property.engine_runs import RULES, TROUBLE, Moment, Run, begun, graphs

MODEL = Nature("provider")
COMMAND = Nature("machine", is_local=True)


def way(
    key: bytes, *pieces: tuple[Kind, float, float] | tuple[Kind, float, float, str]
) -> TaskHistory:
    return TaskHistory(
        key, GroupHistory(""), pieces=[Piece(*piece) for piece in pieces], ended_s=pieces[-1][2]
    )


def gone(
    *ways: TaskHistory,
    ready_s: float = 0.0,
    nature: Nature = MODEL,
    holds: tuple[tuple[float, float], ...] = (),
    is_bounded: bool = False,
) -> dict[tuple[str, str], tuple[float, float]]:
    """Of each cause, the tasks' time and the run's."""
    ready = {one.key: ready_s for one in ways}
    elapsed_s = max(one.pieces[-1].to_s for one in ways)
    found = spent(ways, ready, lambda _: nature, holds, is_bounded, elapsed_s)
    assert isclose(found.wall_s, elapsed_s)
    assert isclose(found.task_s, sum(one.pieces[-1].to_s for one in ways))
    return {(one.cause, one.what): (one.task_s, one.wall_s) for one in found.shares}


def test_who_waits_for_a_limit_is_why_the_run_is_not_faster_though_others_are_served() -> None:
    served = way(b"a", ("service", 0.0, 4.0, CALL))
    waits = way(b"b", ("quota", 0.0, 3.0, "input/60s"), ("service", 3.0, 5.0, CALL))
    assert gone(served, waits) == {
        ("quota", "input/60s"): (3.0, 3.0),
        ("provider", ""): (6.0, 2.0),
    }


def test_what_lies_before_a_task_was_ready_is_for_its_needs() -> None:
    first = way(b"a", ("service", 0.0, 2.0))
    second = way(b"b", ("idle", 0.0, 2.5), ("start", 2.5, 2.75), ("service", 2.75, 4.0))
    found = gone(first, second, ready_s=2.0)
    assert found[("needs", "")] == (2.0, 0.0)
    assert found[("headway", "")] == (0.75, 0.75)


@pytest.mark.parametrize(
    ("nature", "is_bounded", "cause"),
    [
        (COMMAND, False, "room"),
        (COMMAND, True, "place"),
        (MODEL, False, "headway"),
        (MODEL, True, "place"),
        (Nature("function"), False, "place"),
        (Nature("provider", is_ordered=True), True, "order"),
    ],
)
def test_what_keeps_a_task_that_could_start(nature: Nature, is_bounded: bool, cause: str) -> None:
    works = way(b"a", ("service", 0.0, 2.0))
    behind = way(b"b", ("idle", 0.0, 2.0), ("service", 2.0, 3.0))
    found = gone(works, behind, nature=nature, is_bounded=is_bounded)
    # While somebody is served, what headway itself takes is in nobody's way.
    expected = (2.0, 0.0 if cause == "headway" else 2.0)
    assert found[(cause, "")] == expected


def test_refusals_holds_and_losses_have_their_place() -> None:
    turned_away = way(b"a", ("lost", 0.0, 1.0), ("refused", 1.0, 3.0), ("service", 3.0, 4.0))
    behind = way(b"b", ("idle", 0.0, 5.0), ("service", 5.0, 6.0))
    assert gone(turned_away, behind, holds=((4.0, 5.0),)) == {
        ("refused", ""): (4.0, 2.0),
        ("provider", ""): (2.0, 2.0),
        ("held", ""): (1.0, 1.0),
        ("headway", ""): (2.0, 0.0),
        ("lost", ""): (1.0, 1.0),
    }


def test_a_fan_in_is_its_own_kind_of_work_and_a_call_of_a_command_is_a_model_s() -> None:
    merge = way(b"m", ("service", 0.0, 2.0, CALL))
    assert gone(merge, nature=Nature("fan-in")) == {("fan-in", ""): (2.0, 2.0)}
    agent = way(b"c", ("service", 0.0, 1.0), ("service", 1.0, 3.0, CALL))
    assert gone(agent, nature=COMMAND) == {
        ("provider", ""): (2.0, 2.0),
        ("machine", ""): (1.0, 1.0),
    }


def test_instants_in_which_nobody_does_anything_are_headway_s() -> None:
    found = spent([], {}, lambda _: MODEL, (), False, 2.0)
    assert [(one.cause, one.wall_s) for one in found.shares] == [("headway", 2.0)]
    assert spent([], {}, lambda _: MODEL, (), False, 0.0) == Spent((), 0.0, 0.0)


def counts_agree(whole: RunHistory, small: RunHistory) -> None:
    """However many tasks' histories are kept, the sums of the run are the same."""

    def words(history: RunHistory) -> Counter[str]:
        found = Counter[str](one.word for one in history.tasks.values())
        return found + Counter(history.ended.values())

    assert words(whole) == words(small)
    assert (whole.taken, whole.lost) == (small.taken, small.lost)
    assert (whole.refusals, whole.performed, whole.busy_s) == (
        small.refusals, small.performed, small.busy_s,
    )  # fmt: skip
    assert whole.groups.keys() == small.groups.keys()
    for name, group in whole.groups.items():
        assert +group.states == +small.groups[name].states
        assert min(group.states.values(), default=0) >= 0
        own = [one for one in whole.tasks.values() if one.group is group]
        assert group.states.total() == sum(one.state is not None for one in own)
        assert group.taken.calls == sum(one.taken.calls for one in own)


def adds_up(graph: Graph, events: list[Event], group_of: dict[bytes, int], is_sized: bool) -> None:
    """Both sums, and that nothing is left out or counted twice."""
    names = [group.name for group in graph.groups]
    ways = RunHistory(lambda key: names[group_of[key]])
    small = RunHistory(lambda key: names[group_of[key]], keeps_ended=False)
    for event in events:
        number = getattr(event, "task", None)
        for history in (ways, small):
            history.apply(b"" if number is None else b"%d" % number, event)
    counts_agree(ways, small)
    now_s = ways.elapsed_s + 1.0
    ways.close(now_s)
    tasks = ways.tasks.values()
    for one in tasks:
        assert sum(piece.to_s - piece.from_s for piece in one.pieces) == pytest.approx(
            now_s if one.ended_s is None else one.ended_s
        )
        assert all(a.to_s == b.from_s for a, b in zip(one.pieces, one.pieces[1:], strict=False))
    natures = [
        Nature("machine" if group.is_local else "provider", group.is_local, bool(group.queue))
        for group in graph.groups
    ]
    kin = lineage(tasks, graph)
    nature_of = dict(zip(names, natures, strict=True))
    found = spent(tasks, kin.ready_s, nature_of.__getitem__, ways.holds, is_sized, now_s)
    whole_s = sum(now_s if one.ended_s is None else one.ended_s for one in tasks)
    assert found.task_s == pytest.approx(whole_s)
    assert found.wall_s == pytest.approx(now_s)
    assert all(one.wall_s >= 0.0 and one.task_s >= 0.0 for one in found.shares)
    assert {one.cause for one in found.shares if one.wall_s} <= set(PRECEDENCE)
    work_s = sum(one.task_s for one in found.shares if one.cause in ("provider", "machine"))
    assert kin.critical_path_s <= work_s + 1e-9
    assert kin.critical_path_s <= now_s + 1e-9


def places(run: Run) -> dict[bytes, int]:
    total = run.state.ready_set.numbers.total
    return {b"%d" % number: run.state.place(number)[0] for number in range(total)}


@settings(max_examples=200, deadline=None)
@given(graphs(), RULES, TROUBLE)
def test_the_parts_of_any_run_add_up(graph: Graph, rules: Rules, course: list[Moment]) -> None:
    run = begun(graph, rules, course)
    is_sized = rules.strategy.size > 0 or rules.ceiling < inf
    adds_up(graph, run.events, places(run), is_sized)
    again = begun(graph, rules, course[::2])
    adds_up(graph, [*run.events, *again.events], places(run) | places(again), is_sized)


@pytest.mark.parametrize("is_paced", [True, False])
def test_the_parts_of_a_rehearsed_run_add_up(is_paced: bool) -> None:
    terms = Terms((Limit("input", 4000.0, burst=1500.0), Limit("concurrency", 4.0, 0.0, "gauge")))
    spec = ProviderSpec("tight", terms=terms, faults=FaultModel(0.1))
    calls = AccountCalls(AccountConfig(DIALECTS[spec.dialect]), 0.0)
    door = PacedDoor(calls, OutputLength()) if is_paced else UnpacedDoor(PATIENT, 1)
    workload = draw_workload(WorkloadSpec("plain", 12), 1)
    rules = Rules(ADAPTIVE if is_paced else Strategy("waves", 3))
    events = Rehearsal(workload, Provider(spec, 1), door, rules, keep_events=True).run().events
    group_of = {b"%d" % number: number for number in range(len(workload.graph))}
    adds_up(workload.graph, events, group_of, not is_paced)
