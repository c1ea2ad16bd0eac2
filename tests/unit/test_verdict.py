"""What state a run is in, by its facts and by whether a process has it."""

from __future__ import annotations

from math import inf

import pytest

from headway.engine.events import RunFinished
from headway.report.history import RunVerdict, Standing, verdict

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
