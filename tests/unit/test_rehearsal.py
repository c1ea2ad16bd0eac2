"""Whole runs in virtual time: makespans by hand, refusals, faults, timeouts, stalls, livelocks."""

from __future__ import annotations

from itertools import pairwise
from math import inf

import pytest
from msgspec.structs import replace

from headway.base.values import Limit
from headway.engine.events import (
    TaskFailed,
)
from headway.engine.state import Rules
from headway.engine.strategy import ADAPTIVE, ALL_AT_ONCE, Strategy
from headway.pacing.account import AccountConfig
from headway.pacing.calls import AccountCalls
from headway.pacing.estimate import OutputLength
from headway.pacing.headers import DIALECTS
from headway.plans.graph import Graph
from headway.sim import rehearsal
from headway.sim.account import Terms
from headway.sim.clients import PATIENT, SDK, ClientPort, PacedDoor, RetryRule, UnpacedDoor
from headway.sim.draw import Neighbour
from headway.sim.provider import FaultModel, Provider, ProviderSpec
from headway.sim.rehearsal import (
    Rehearsal,
    Rehearsed,
    Workload,
    WorkloadSpec,
    draw_workload,
)

CALL_S = 9.0
"""One call of the plain workload alone: a second to the first byte, 400 tokens of 20 ms."""

PLAIN = WorkloadSpec("plain", 6)
PROVIDER = ProviderSpec("calm")
HANGING = ProviderSpec("hanging", faults=FaultModel(hang_share=1.0))
NO_RETRIES = RetryRule(0)


def _paced(spec: ProviderSpec) -> PacedDoor:
    return PacedDoor(AccountCalls(AccountConfig(DIALECTS[spec.dialect]), 0.0), OutputLength())


def _run(
    spec: ProviderSpec = PROVIDER,
    strategy: Strategy = ALL_AT_ONCE,
    workload: WorkloadSpec | Workload = PLAIN,
    door: ClientPort | None = None,
    retries: int = 3,
    timeout_s: float = inf,
) -> Rehearsed:
    provider = Provider(spec, 1)
    provider.shows_progress = True
    # What holds at the start, such as a neighbour's share, holds before the first call.
    provider.advance(0.0)
    work = draw_workload(workload, 1) if isinstance(workload, WorkloadSpec) else workload
    rules = Rules(strategy, retries)
    door = door or UnpacedDoor(PATIENT, 1)
    rehearsal = Rehearsal(work, provider, door, rules, timeout_s=timeout_s, keep_events=True)
    return rehearsal.run()


@pytest.mark.parametrize(
    ("strategy", "rounds"),
    [
        (ALL_AT_ONCE, 1),
        (Strategy("waves", 2), 3),
        (Strategy("fixed", 3), 2),
        (Strategy("fixed", 1), 6),
        (ADAPTIVE, 1),
    ],
)
def test_equal_tasks_take_as_many_rounds_as_the_strategy_has(
    strategy: Strategy, rounds: int
) -> None:
    result = _run(strategy=strategy)
    assert result.makespan_s == pytest.approx(rounds * CALL_S)
    assert (result.failed, result.refused, result.timeouts) == (0, 0, 0)
    assert result.in_flight_most == 6 / rounds
    assert result.latencies_s == pytest.approx([CALL_S] * 6)


def test_a_refused_call_is_sent_again_until_it_is_served() -> None:
    spec = ProviderSpec("small", Terms((Limit("concurrency", 2.0, 0.0, "gauge"),)))
    result = _run(spec)
    assert (result.refused > 0, result.failed, result.in_flight_most) == (True, 0, 2)
    # Spans cover the time of every task without gaps.
    for time in result.tasks:
        spans = [span for span in result.spans if span.task == time.task]
        assert (spans[0].from_s, spans[-1].to_s) == (time.began_s, time.ended_s)
        assert all(before.to_s == after.from_s for before, after in pairwise(spans))


@pytest.mark.parametrize("paced", [False, True])
def test_a_call_whose_first_byte_does_not_come_is_given_up(paced: bool) -> None:
    door: ClientPort = _paced(HANGING) if paced else UnpacedDoor(NO_RETRIES, 1)
    result = _run(HANGING, door=door, timeout_s=5.0)
    assert result.failed == 6
    # Four attempts of six tasks; through admission each call is sent four times within one.
    assert result.timeouts == (96 if paced else 24)
    ended = [event for event in result.events if isinstance(event, TaskFailed)]
    assert {event.fault.kind for event in ended} == {"timeout"}
    assert all(to_s - from_s == 5.0 for from_s, to_s in result.calls)


def test_a_timer_does_not_touch_what_was_sent_again_or_waits_to_be() -> None:
    # Every call breaks off, waits half a second at the door and is sent again: the first timer
    # comes while the call is at the door, or while a later send is in flight.
    spec = ProviderSpec("breaking", faults=FaultModel(share=1.0, kinds=("broken",)))
    many, door = replace(PLAIN, tasks=40), UnpacedDoor(SDK, 1)
    result = _run(spec, workload=many, door=door, retries=0, timeout_s=8.2)
    assert result.failed == 40
    assert all(to_s - from_s <= 8.2 + 1e-9 for from_s, to_s in result.calls)
    assert result.timeouts < len(result.calls) == 120


def test_tries_that_are_all_in_vain_take_the_time_of_a_round_trip() -> None:
    """Who hears of a refusal at once and tries at once would never see the limit refill."""
    window = Limit("requests", 3, 2.0, "fixed")
    used = Neighbour(1.0, shape="burst", on_s=2.0, off_s=inf)
    spec = ProviderSpec("used up", Terms((window,), neighbour=used), dialect="plain")
    hasty = UnpacedDoor(RetryRule(1_000_000, first_s=0.0, obeys_retry_after=False), 1)
    result = _run(spec, workload=replace(PLAIN, tasks=2), door=hasty)
    assert 2.0 <= result.makespan_s <= 2.1 + CALL_S
    assert result.refused > rehearsal.IN_VAIN_MAX


def _here(seconds: tuple[float, ...], calls: int, strategy: Strategy = ALL_AT_ONCE) -> Rehearsed:
    """Tasks that take these seconds on this machine before they make so many calls."""
    drawn = draw_workload(WorkloadSpec("here", len(seconds), max(1, calls)), 1)
    work = replace(drawn, seconds=seconds)
    if not calls:
        tasks = [replace(task, calls=()) for task in drawn.graph.tasks]
        work = replace(work, graph=Graph.of(tasks), calls=((),) * len(seconds))
    return _run(strategy=strategy, workload=work)


def test_a_task_is_busy_here_before_its_first_call() -> None:
    done = _here((5.0, 0.0), 1)
    ends = {time.task: time.ended_s for time in done.tasks}
    assert ends == {0: pytest.approx(5.0 + CALL_S), 1: pytest.approx(CALL_S)}
    assert sorted(sent for sent, _ in done.calls) == [0.0, 5.0]
    # Only before the first of its calls.
    assert _here((5.0,), 3).makespan_s == pytest.approx(5.0 + 3 * CALL_S)


def test_a_task_without_calls_takes_what_it_takes_here() -> None:
    assert _here((2.0, 3.0), 0).makespan_s == 3.0
    assert _here((2.0, 3.0, 0.0), 0, Strategy("fixed", 1)).makespan_s == 5.0
    assert _here((2.0, 3.0, 4.0), 0, Strategy("fixed", 2)).makespan_s == 6.0
    assert not _here((2.0, 3.0), 0).calls
