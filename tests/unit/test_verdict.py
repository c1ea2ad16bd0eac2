"""The state of a run, and how many of its tasks were worked on at once."""

from __future__ import annotations

from math import inf

import pytest

from headway.engine.events import (
    CallAdmitted,
    Ending,
    GroupExpanded,
    RunBegan,
    RunContinued,
    RunFinished,
    RunHeld,
    TaskFinished,
    TaskStarted,
    WaveBegan,
)
from headway.report.history import RunHistory, RunVerdict, Standing, stand, verdict
from headway.report.tables import effective_width, in_line, stays

CASES = (
    (Standing(), False, RunVerdict("new")),
    (Standing(1), True, RunVerdict("running")),
    (Standing(1), False, RunVerdict("interrupted", "its process is gone")),
    (Standing(1, stopping_for="interrupted"), False, RunVerdict("interrupted", "interrupted")),
    (Standing(1, stopping_for="budget"), True, RunVerdict("stopping", "budget")),
    (Standing(1, held_until_s=inf, held_for="user"), True, RunVerdict("paused", "user")),
    (Standing(1, held_until_s=9.0, held_for="empty"), True, RunVerdict("waiting", "empty", 9.0)),
    (Standing(1, held_until_s=3.0, held_for="empty"), True, RunVerdict("running")),
    (Standing(1, finished=RunFinished(4.0, 5, 0)), False, RunVerdict("done")),
    (Standing(1, finished=RunFinished(4.0, 5, 0)), True, RunVerdict("done")),
    (Standing(1, finished=RunFinished(4.0, 4, 1)), False, RunVerdict("failed")),
    (Standing(1, finished=RunFinished(4.0, 4, 0, 1)), False, RunVerdict("failed")),
    (
        Standing(1, stopping_for="budget", finished=RunFinished(4.0, 4, 1, 0, 2)),
        False,
        RunVerdict("stopped", "budget"),
    ),
    (Standing(1, finished=RunFinished(4.0, 4, 0, 0, 2)), False, RunVerdict("stopped")),
    (
        Standing(1, finished=RunFinished(4.0, 5, 0, effects=3)),
        False,
        RunVerdict("stopped", "3 effects were not performed"),
    ),
    (Standing(1, finished=RunFinished(4.0, 4, 1, effects=3)), False, RunVerdict("failed")),
)


@pytest.mark.parametrize(("standing", "is_owned", "expected"), CASES)
def test_a_run_is_in_the_state_that_its_facts_say(
    standing: Standing, is_owned: bool, expected: RunVerdict
) -> None:
    assert verdict(standing, is_owned, 5.0) == expected


def test_what_a_process_has_cannot_be_resumed_and_what_is_done_need_not() -> None:
    verdicts = [verdict(standing, is_owned, 5.0) for standing, is_owned, _ in CASES]
    assert not any(one.is_live and one.is_resumable for one in verdicts)
    over = {one.state for one in verdicts if not one.is_live and not one.is_resumable}
    assert over == {"done"}


def test_a_run_stands_where_its_facts_leave_it() -> None:
    standing = Standing()
    for event in (
        RunBegan(1.0, "waves:4"),
        WaveBegan(2, 6, 2.0),
        GroupExpanded(1, 20, 3.0),
        TaskStarted(0, 1, 3.0, "room"),
    ):
        standing = stand(standing, event)
    assert standing == Standing(1, "waves:4", 2, 6)
    held = stand(standing, RunHeld(4.0, inf, "paused"))
    assert (held.held_until_s, held.held_for) == (inf, "paused")
    assert stand(held, RunContinued(5.0)) == standing


def six_answers(last_s: float) -> RunHistory:
    history = RunHistory()
    for number in range(6):
        key, took_s = bytes([number]), last_s if number == 5 else 1.0
        history.apply(b"", RunBegan(0.0, "adaptive"))
        history.apply(key, TaskStarted(number, 1, 0.0, "room"))
        history.apply(key, CallAdmitted(number, 0.0))
        history.apply(key, TaskFinished(number, 1, took_s, Ending(output_tokens=100.0)))
    return history


def test_an_answer_that_took_far_longer_per_token_was_in_line() -> None:
    history = six_answers(last_s=10.0)
    last = history.tasks[bytes([5])]
    lines = in_line(history.tasks.values())
    assert lines == {last.key: 9.0}
    assert stays(last, 9.0) == [("provider", 5.0, 14.0), ("busy", 14.0, 15.0)]
    assert stays(last, 0.0) == [("busy", 5.0, 15.0)]
    assert in_line(six_answers(last_s=2.0).tasks.values()) == {}


def test_the_effective_width_counts_what_was_really_worked_on() -> None:
    history = RunHistory()
    for key, event in (
        (b"", RunBegan(0.0, "adaptive")),
        (b"a", TaskStarted(0, 1, 0.0, "room")),
        (b"a", CallAdmitted(0, 0.0)),
        (b"b", TaskStarted(1, 1, 0.0, "room")),
        (b"b", CallAdmitted(1, 2.0)),
        (b"a", TaskFinished(0, 1, 4.0)),
    ):
        history.apply(key, event)
    history.close(4.0)
    assert history.submitted == 2
    assert effective_width(history, {}) == (4.0 + 2.0) / 4.0
    assert effective_width(history, {b"a": 2.0}) == (2.0 + 2.0) / 4.0
    assert effective_width(RunHistory(), {}) == 0.0
