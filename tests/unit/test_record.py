"""A row is a fold of its task's events, and nothing that was paid is forgotten on the way."""

from __future__ import annotations

from math import inf

import pytest
from msgspec.structs import replace

from headway.base.digest import digest
from headway.base.values import Fault
from headway.engine.events import (
    NOTHING,
    Ending,
    TaskDelayed,
    TaskFailed,
    TaskFinished,
    TaskReused,
    TaskSkipped,
    TaskStarted,
)
from headway.engine.record import (
    Fact,
    MoneyReserved,
    ReplyKept,
    TaskRow,
    TaskState,
    fold,
    without_lost,
)

KEY = b"k" * 16
FIRST = TaskStarted(7, 1, 10.0, "ready")
PAID = Ending(digest(b"answer"), b"i" * 16, 100.0, 20.0, 500, 1)


def folded(*events: Fact) -> TaskRow:
    row = None
    for event in events:
        row = fold(row, event, KEY, "review[7]")
    assert row is not None
    return row


def test_a_delay_says_why_and_its_cost_is_added_to_the_next_attempt() -> None:
    delayed = folded(FIRST, TaskDelayed(7, 1, 12.0, 20.0, Fault("overload", detail="529"), PAID))
    assert (delayed.state, delayed.fault) == ("delayed", "overload: 529")
    again = fold(delayed, TaskStarted(7, 2, 20.0, "again"), KEY, "review[7]")
    assert (again.state, again.attempt, again.started_s) == ("started", 2, 20.0)
    done = fold(again, TaskFinished(7, 2, 22.0, PAID), KEY, "review[7]")
    assert (done.fault, done.spent_microusd, done.ended_s) == ("", 1000, 22.0)
    assert done.spent_tokens == 240


def test_money_is_set_aside_until_the_attempt_ends() -> None:
    held = folded(FIRST, MoneyReserved(7, 1, 10.5, 900, 300))
    assert (held.reserved_microusd, held.spent_microusd) == (900, 0)
    assert (held.reserved_tokens, held.spent_tokens) == (300, 0)
    done = fold(held, TaskFinished(7, 1, 12.0, PAID), KEY, "review[7]")
    assert (done.reserved_microusd, done.spent_microusd) == (0, 500)
    assert (done.reserved_tokens, done.spent_tokens) == (0, 120)


def test_what_is_in_doubt_counts_towards_tokens_beside_what_is_known() -> None:
    lost = replace(PAID, extra_tokens=180, is_in_doubt=True)
    row = folded(FIRST, TaskFailed(7, 1, 12.0, Fault("broken"), lost))
    assert row.spent_tokens == 300
    assert replace(PAID, input_tokens=inf).spend_tokens == 0


def test_an_attempt_that_never_ended_is_charged_with_all_that_was_set_aside() -> None:
    row = folded(FIRST, MoneyReserved(7, 1, 10.5, 900, 300), TaskStarted(7, 2, 30.0, "again"))
    assert (row.reserved_microusd, row.spent_microusd) == (0, 900)
    assert (row.reserved_tokens, row.spent_tokens) == (0, 300)


def test_replies_are_kept_for_the_next_attempt_after_a_kill_or_a_delay() -> None:
    kept = (FIRST, ReplyKept(7, 1, 11.0, b"a" * 16), ReplyKept(7, 1, 12.0, b"b" * 16))
    both = (b"a" * 16, b"b" * 16)
    assert folded(*kept, TaskStarted(7, 2, 30.0, "again")).kept == both
    assert folded(*kept, TaskDelayed(7, 1, 13.0, 20.0, Fault("server"))).kept == both
    assert folded(*kept, TaskFinished(7, 1, 13.0)).kept == ()
    assert folded(*kept, TaskFailed(7, 1, 13.0, Fault("request"))).kept == ()


def test_a_result_that_is_taken_again_stays_as_it_was() -> None:
    done = (FIRST, TaskFinished(7, 1, 12.0, PAID))
    assert folded(*done, TaskReused(7, 40.0)) == folded(*done)
    asked = folded(*done, TaskStarted(7, 2, 39.0, "resumed"), TaskReused(7, 40.0))
    assert (asked.state, asked.ending, asked.ended_s) == ("finished", PAID, 12.0)


def test_a_task_may_be_skipped_before_it_ever_started() -> None:
    assert folded(TaskSkipped(7, 5.0, because=3)) == TaskRow(
        KEY, "review[7]", "skipped", ended_s=5.0
    )


def row_of(state: TaskState, ending: Ending, kept: tuple[bytes, ...] = ()) -> TaskRow:
    return TaskRow(b"k", "task", state, 1, 1.0, 2.0, ending, kept=kept)


@pytest.mark.parametrize(
    ("row", "has", "state"),
    [
        (row_of("finished", Ending(b"result")), {b"result"}, "finished"),
        (row_of("finished", Ending(b"result")), set(), "delayed"),
        (row_of("finished", NOTHING), set(), "delayed"),
        (row_of("finished", Ending(b"result", access=b"touched")), {b"result"}, "delayed"),
        (row_of("proposed", Ending(b"result", access=b"touched")), {b"touched"}, "delayed"),
        (row_of("proposed", NOTHING), set(), "proposed"),
        (row_of("started", Ending(b"result")), set(), "started"),
        (row_of("failed", NOTHING), set(), "failed"),
    ],
)
def test_a_task_whose_result_is_lost_is_not_finished(
    row: TaskRow, has: set[bytes], state: TaskState
) -> None:
    found = without_lost(row, has.__contains__)
    assert found.state == state
    assert not found.ending.body or found.ending.body in has
    assert not found.ending.access or found.ending.access in has
    assert (found == row) == (found.state == row.state and found.ending == row.ending)


def test_replies_behind_a_lost_one_are_forgotten() -> None:
    row = row_of("started", NOTHING, (b"1", b"2", b"3"))
    assert without_lost(row, {b"1", b"3"}.__contains__).kept == (b"1",)
    assert without_lost(row, {b"1", b"2", b"3"}.__contains__) is row


def test_calls_without_a_price_are_counted_over_all_attempts() -> None:
    unpriced = Ending(input_tokens=10.0, calls=1, unpriced=1)
    facts: list[Fact] = [
        TaskStarted(0, 1, 1.0, ""),
        TaskDelayed(0, 1, 2.0, 3.0, Fault("server"), unpriced),
        TaskStarted(0, 2, 3.0, ""),
        TaskFinished(0, 2, 4.0, unpriced),
    ]
    row: TaskRow | None = None
    for fact in facts:
        row = fold(row, fact, b"key", "ask")
    assert row is not None
    assert row.unpriced == 2
    assert row.spent_microusd == 0


def test_a_call_without_a_price_that_was_in_flight_at_an_end_counts() -> None:
    held = folded(FIRST, MoneyReserved(7, 1, 10.5, 0, 300))
    assert (held.unpriced, held.unpriced_in_flight) == (0, 1)
    for event in (TaskStarted(7, 2, 30.0, "again"), TaskReused(7, 30.0)):
        row = fold(held, event, KEY, "review[7]")
        assert (row.unpriced, row.unpriced_in_flight) == (1, 0)
