"""A task's way through a run: pieces without a gap, what was paid, what was lost."""

from __future__ import annotations

from math import inf

import pytest

from headway.base.values import Fault
from headway.engine.events import (
    CallAdmitted,
    CallWaited,
    Ending,
    RunBegan,
    RunContinued,
    RunFinished,
    RunHeld,
    RunStopping,
    TaskDelayed,
    TaskFailed,
    TaskFinished,
    TaskProposed,
    TaskReused,
    TaskStale,
    TaskStarted,
)
from headway.engine.record import Fact, MoneyReserved, ReplyKept
from headway.report.history import AttemptUsage, RunHistory, TaskHistory

A, B = b"a", b"b"
ANSWER = Ending(b"r" * 16, b"", 100.0, 10.0, 500, 1)
TURNED_AWAY = Fault("rate", "input", detail="429")


def heard(
    *facts: tuple[bytes, Fact], now_s: float | None = None, alone: bool = False
) -> RunHistory:
    ways = RunHistory(works_alone=lambda _: alone)
    for key, fact in facts:
        ways.apply(key, fact)
    ways.close(ways.elapsed_s if now_s is None else now_s)
    return ways


def pieces(passage: TaskHistory) -> list[tuple[str, float, float, str]]:
    return [(piece.kind, piece.from_s, piece.to_s, piece.what) for piece in passage.pieces]


BEGAN = (b"", RunBegan(10.0, "adaptive"))


def test_a_prompt_from_the_run_s_beginning_to_its_answer() -> None:
    ways = heard(
        BEGAN,
        (A, TaskStarted(3, 1, 11.0, "room")),
        (A, CallWaited(3, 11.5)),
        (A, CallAdmitted(3, 14.0, "input/60s")),
        (A, TaskFinished(3, 1, 16.0, ANSWER)),
        (b"", RunFinished(16.5, 1, 0)),
    )
    passage = ways.tasks[A]
    assert pieces(passage) == [
        ("idle", 0.0, 1.0, ""),
        ("start", 1.0, 1.5, ""),
        ("quota", 1.5, 4.0, "input/60s"),
        ("service", 4.0, 6.0, "call"),
    ]
    assert (passage.number, passage.state, passage.ended_s) == (3, "finished", 6.0)
    assert (passage.reached_s, passage.served_s) == (4.0, 2.0)
    assert passage.taken == AttemptUsage(1, 100.0, 10.0, 500)
    assert passage.taken.tokens == 110.0
    assert passage.lost == AttemptUsage()
    assert (ways.elapsed_s, ways.parts) == (6.5, 1)


def test_a_command_works_before_its_first_call_and_a_prompt_does_not() -> None:
    facts = (
        BEGAN,
        (A, TaskStarted(0, 1, 10.0, "")),
        (A, CallWaited(0, 12.0)),
        (A, CallAdmitted(0, 13.0)),
        (A, TaskFinished(0, 1, 14.0)),
    )
    assert pieces(heard(*facts, alone=True).tasks[A])[0] == ("service", 0.0, 2.0, "")
    assert pieces(heard(*facts).tasks[A])[0] == ("start", 0.0, 2.0, "")


def test_a_call_that_was_turned_away_waits_in_the_provider_s_line() -> None:
    ways = heard(
        BEGAN,
        (A, TaskStarted(0, 1, 10.0, "")),
        (A, CallWaited(0, 10.0)),
        (A, CallAdmitted(0, 11.0)),
        (A, CallWaited(0, 11.5, "rate: input")),
        (A, CallAdmitted(0, 14.0, "input/60s")),
        (A, TaskFinished(0, 1, 15.0, ANSWER)),
    )
    passage = ways.tasks[A]
    assert pieces(passage) == [
        ("quota", 0.0, 1.0, ""),
        ("refused", 1.0, 1.5, "call"),
        ("refused", 1.5, 4.0, "input/60s"),
        ("service", 4.0, 5.0, "call"),
    ]
    assert ways.refusals == {"rate: input": 1}
    assert (ways.refused, ways.retries) == (1, 0)


def test_what_a_failed_attempt_worked_is_lost_and_what_it_took_was_paid_twice() -> None:
    ways = heard(
        BEGAN,
        (A, TaskStarted(0, 1, 10.0, "")),
        (A, CallAdmitted(0, 10.0)),
        (A, TaskDelayed(0, 1, 12.0, 13.0, Fault("server", detail="500"), ANSWER)),
        (A, TaskStarted(0, 2, 13.0, "")),
        (A, CallAdmitted(0, 13.0)),
        (A, TaskFinished(0, 2, 14.0, ANSWER)),
    )
    passage = ways.tasks[A]
    assert [kind for kind, *_ in pieces(passage)] == ["lost", "again", "service"]
    assert ways.retries == 1
    assert (passage.taken.microusd, passage.lost.microusd) == (1000, 500)


@pytest.mark.parametrize(
    "then", [TaskReused(1, 21.0), TaskProposed(1, 2, 21.0, Ending(is_renewed=True))]
)
def test_a_stale_result_that_is_taken_after_a_resume_ran_nothing_again(
    then: TaskReused | TaskProposed,
) -> None:
    facts = (
        BEGAN,
        (B, TaskStarted(1, 1, 10.0, "")),
        (B, TaskProposed(1, 1, 12.0, ANSWER)),
        (B, TaskStale(1, 1, 13.0, "key", 0, ANSWER)),
    )
    assert heard(*facts).stale == 1
    again = (b"", RunBegan(20.0, "adaptive")), (B, TaskStarted(1, 2, 20.0, ""))
    history = heard(*facts, *again, (B, then))
    assert (history.stale, history.lost) == (0, AttemptUsage())
    ran = (B, TaskStarted(1, 2, 14.0, "")), (B, TaskProposed(1, 2, 15.0, ANSWER))
    assert heard(*facts, *ran, *again, (B, then)).stale == 1


def test_an_attempt_that_was_refused_is_counted_by_what_it_was_refused_for() -> None:
    facts = (BEGAN, (A, TaskStarted(0, 1, 10.0, "")), (A, CallAdmitted(0, 10.0)))
    sent = Ending(calls=1)
    later = heard(*facts, (A, TaskDelayed(0, 1, 11.0, 15.0, TURNED_AWAY, sent)), now_s=3.0)
    assert pieces(later.tasks[A]) == [("lost", 0.0, 1.0, "call"), ("refused", 1.0, 3.0, "")]
    assert later.refusals == {"rate: input": 1}
    never = heard(*facts, (A, TaskFailed(0, 1, 11.0, Fault("overload"), sent)))
    assert never.refusals == {"overload": 1}
    assert never.tasks[A].state == "failed"


def test_what_was_put_back_before_it_was_sent_was_not_refused() -> None:
    """The run stops, or a usage window is empty: that is no fault of the task's."""
    ways = heard(
        BEGAN,
        (A, TaskStarted(0, 1, 10.0, "")),
        (A, CallWaited(0, 10.0)),
        (A, TaskDelayed(0, 1, 12.0, 12.0, Fault("rate", detail="interrupted"))),
        now_s=5.0,
    )
    assert pieces(ways.tasks[A]) == [("quota", 0.0, 2.0, ""), ("idle", 2.0, 5.0, "")]
    assert (ways.refusals, ways.retries) == ({}, 0)


def test_a_proposed_result_waits_and_is_paid_once() -> None:
    ways = heard(
        BEGAN,
        (A, TaskStarted(0, 1, 10.0, "")),
        (B, TaskStarted(1, 1, 10.0, "")),
        (B, TaskProposed(1, 1, 11.0, ANSWER)),
        (A, TaskProposed(0, 1, 12.0, ANSWER)),
        (B, TaskStale(1, 1, 13.0, "key", 0, ANSWER)),
        (A, TaskFinished(0, 1, 15.0, ANSWER)),
        now_s=6.0,
    )
    assert pieces(ways.tasks[A]) == [("service", 0.0, 2.0, ""), ("commit", 2.0, 5.0, "")]
    assert ways.tasks[A].taken.microusd == 500
    stale = ways.tasks[B]
    assert pieces(stale) == [
        ("lost", 0.0, 1.0, ""), ("commit", 1.0, 3.0, ""), ("idle", 3.0, 6.0, ""),
    ]  # fmt: skip
    assert (ways.stale, stale.taken.microusd, stale.lost.microusd) == (1, 500, 500)


def test_what_was_in_flight_when_a_process_died_is_lost_and_the_time_between_is_left_out() -> None:
    ways = heard(
        BEGAN,
        (A, TaskStarted(0, 1, 10.0, "")),
        (b"", RunStopping(12.0, "x")),
        (b"", RunBegan(100.0, "adaptive")),
        (A, TaskStarted(0, 1, 101.0, "")),
        (A, TaskFinished(0, 1, 103.0)),
        (b"", RunFinished(103.0, 1, 0)),
    )
    assert pieces(ways.tasks[A]) == [
        ("lost", 0.0, 2.0, ""), ("idle", 2.0, 3.0, ""), ("service", 3.0, 5.0, ""),
    ]  # fmt: skip
    assert ways.parts == 2


def test_holds_are_known_with_their_ends() -> None:
    ways = heard(
        BEGAN,
        (b"", RunHeld(11.0, inf, "paused")),
        (b"", RunContinued(13.0)),
        (b"", RunHeld(14.0, 99.0, "window")),
        (b"", RunHeld(15.0, inf, "paused")),
        now_s=8.0,
    )
    assert ways.holds == [(1.0, 3.0), (4.0, 5.0), (5.0, 8.0)]


@pytest.mark.parametrize("at_s", [5.0, 11.0])
def test_the_time_of_a_run_never_goes_back(at_s: float) -> None:
    ways = RunHistory()
    for event_s in (10.0, 11.0, at_s):
        ways.apply(b"", RunStopping(event_s, ""))
    assert ways.elapsed_s == 1.0


def test_calls_without_an_end_are_counted_when_their_process_ends() -> None:
    admitted = (
        BEGAN,
        (A, TaskStarted(0, 1, 10.0, "")),
        (A, MoneyReserved(0, 1, 10.1, 5, 700)),
        (A, CallAdmitted(0, 10.2)),
        (B, TaskStarted(1, 1, 10.0, "")),
        (B, CallAdmitted(1, 10.2)),
        (B, ReplyKept(1, 1, 11.0, b"r")),
    )
    killed = heard(*admitted, (b"", RunBegan(20.0, "adaptive")))
    assert (killed.cut_calls, killed.cut_tokens) == (1, 700), "the other call was answered"
    again = heard(
        *admitted,
        (b"", RunBegan(20.0, "adaptive")),
        (A, TaskStarted(0, 1, 21.0, "")),
        (A, TaskFinished(0, 1, 22.0)),
        (b"", RunFinished(23.0, 1, 0)),
    )
    assert (again.cut_calls, again.cut_tokens) == (1, 700)
    gone, live = heard(*admitted), heard(*admitted)
    gone.cut_off()
    live.close(2.0)
    assert (gone.cut_calls, live.cut_calls) == (1, 0)


def test_a_call_in_doubt_was_cut_off_and_a_price_that_is_unknown_stays_so() -> None:
    lost = Ending(calls=3, is_in_doubt=True, extra_tokens=9)
    late = TaskFailed(0, 1, 14.0, Fault("timeout"), lost)
    ways = heard(BEGAN, (A, TaskStarted(0, 1, 10.0, "ready")), (A, late))
    assert (ways.cut_calls, ways.cut_tokens) == (1, 9)
    killed = heard(
        BEGAN,
        (A, TaskStarted(0, 1, 10.0, "ready")),
        (A, MoneyReserved(0, 1, 10.1, 0, 700)),
        (A, CallAdmitted(0, 10.2)),
        (b"", RunBegan(20.0, "adaptive")),
    )
    assert killed.tasks[A].lost.unpriced == killed.tasks[A].taken.unpriced == 1


def test_a_limit_whose_period_is_estimated_has_one_name() -> None:
    ways = heard(
        BEGAN,
        (A, TaskStarted(3, 1, 11.0, "room")),
        (A, CallWaited(3, 11.5)),
        (A, CallAdmitted(3, 14.0, "requests/54.2339s")),
        (A, CallWaited(3, 15.0)),
        (A, CallAdmitted(3, 16.0, "requests/52.1s")),
    )
    waits = [piece.what for piece in ways.tasks[A].pieces if piece.kind == "quota"]
    assert waits == ["requests", "requests"]
