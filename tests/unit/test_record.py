"""Events and rows as a journal has them: read back equal, folded, and nothing paid is forgotten."""

from __future__ import annotations

from math import inf

import pytest
from msgspec.structs import replace

from headway.base.digest import digest
from headway.base.values import Fault
from headway.engine.events import (
    NOTHING,
    VERSION,
    AttemptStuck,
    CallAdmitted,
    CallWaited,
    Ending,
    GroupExpanded,
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
    TaskSkipped,
    TaskStale,
    TaskStarted,
    WaveBegan,
)
from headway.engine.record import (
    KINDS,
    EffectDone,
    EffectIntended,
    Fact,
    LimitsSeen,
    LimitUse,
    MoneyReserved,
    ReplyKept,
    TaskRow,
    TaskState,
    decode,
    encode,
    fold,
    without_lost,
)
from headway.errors import JournalError

FULL = Ending(b"b" * 16, b"i" * 16, 12.5, 3.0, 42, 2, 1, True)
EVENTS: tuple[Fact, ...] = (
    RunBegan(1.5, "adaptive"),
    GroupExpanded(3, 22, 2.0),
    WaveBegan(1, 6, 2.5),
    TaskStarted(7, 1, 3.0, 'ready: "needs" \u2713 \udc80'),
    TaskFinished(7, 1, 4.0),
    TaskFinished(7, 1, 4.0, FULL),
    TaskFinished(7, 1, 4.0, Ending(b"b" * 16)),
    TaskFinished(7, 1, 4.0, Ending(input_tokens=inf)),
    TaskFinished(7, 1, 4.0, Ending(exit_code=0)),
    TaskReused(7, 5.0),
    TaskDelayed(7, 1, 6.0, 9.0, Fault("rate", "input", 2.5, "429"), FULL),
    TaskFailed(7, 2, 7.0, Fault("request")),
    TaskSkipped(8, 7.5, because=7),
    CallWaited(7, 3.1),
    CallAdmitted(7, 3.2),
    AttemptStuck(7, 2, 303.2, 300.0),
    AttemptStuck(7, 2, 304.2),
    RunHeld(8.0, inf, "paused"),
    RunContinued(9.0),
    RunStopping(10.0, "interrupted", True),
    RunFinished(11.0, 20, 1, 1, 0),
    MoneyReserved(7, 1, 3.3, 5000),
    ReplyKept(7, 1, 3.4, b"r" * 16),
    TaskFinished(7, 1, 4.0, Ending(b"b" * 16, access=b"a" * 16)),
    TaskProposed(7, 1, 4.0, Ending(b"b" * 16, access=b"a" * 16)),
    TaskProposed(7, 1, 4.0, FULL, Fault("function", detail="it raised")),
    TaskStale(7, 1, 4.5, "records/*", 12, FULL),
    EffectIntended(7, 5.1, "mail", 0, "ab12"),
    EffectDone(7, 5.2, 0, "ab12", b"r" * 16),
    CallWaited(7, 3.1, "rate: input"),
    CallAdmitted(7, 3.2, "input/60s"),
    RunFinished(11.0, 20, 1, 1, 0, 0),
    MoneyReserved(7, 1, 3.3, 5000, 1200),
    TaskFinished(7, 1, 4.0, Ending(b"b" * 16, extra_tokens=-9)),
    LimitsSeen(4.1, (LimitUse("anthropic", "input/60s", 12_000.0, 50_000.0),)),
)


@pytest.mark.parametrize(
    "event",
    [*EVENTS, TaskFinished(7, 1, 4.0, Ending(b"", unpriced=1))],
    ids=lambda event: type(event).__name__,
)
def test_what_is_written_is_read_back_equal(event: Fact) -> None:
    kind, text = encode(event)
    assert decode(kind, VERSION, text) == event


def test_every_kind_has_an_example_here() -> None:
    assert {type(event) for event in EVENTS} == set(KINDS.values())


@pytest.mark.parametrize(("kind", "version"), [("task_started", VERSION + 1), ("dreamt", 1)])
def test_an_event_of_a_newer_headway_is_refused(kind: str, version: int) -> None:
    with pytest.raises(JournalError, match="newer headway") as caught:
        decode(kind, version, "{}")
    assert caught.value.hint is not None


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("task_started", "{"),
        ("task_started", "[]"),
        ("task_started", '{"task":1,"attempt":1}'),
        ("task_started", '{"task":"1","attempt":1,"reason":""}'),
        ("task_finished", '{"task":1,"attempt":1,"ending":{"body":"xyz"}}'),
        ("task_finished", '{"task":1,"attempt":1,"ending":{"body":5}}'),
        ("task_finished", '{"task":1,"attempt":1,"ending":7}'),
        ("task_failed", '{"task":1,"attempt":1,"fault":{"kind":"bad luck"}}'),
    ],
)
def test_what_is_no_event_is_a_journal_error(kind: str, text: str) -> None:
    with pytest.raises(JournalError, match="cannot be read"):
        decode(kind, 1, text)


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
    assert folded(*done, CallWaited(7, 40.0)) == folded(*done), "it is of no row"
    asked = folded(*done, TaskStarted(7, 2, 39.0, "resumed"), TaskReused(7, 40.0))
    assert (asked.state, asked.ending, asked.ended_s) == ("finished", PAID, 12.0)


def test_a_task_may_be_skipped_before_it_ever_started() -> None:
    skipped = TaskRow(KEY, "review[7]", "skipped", ended_s=5.0)
    assert folded(TaskSkipped(7, 5.0, because=3)) == skipped


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


def test_a_call_without_a_price_that_was_in_flight_at_an_end_counts() -> None:
    held = folded(FIRST, MoneyReserved(7, 1, 10.5, 0, 300))
    assert (held.unpriced, held.unpriced_in_flight) == (0, 1)
    for event in (TaskStarted(7, 2, 30.0, "again"), TaskReused(7, 30.0)):
        row = fold(held, event, KEY, "review[7]")
        assert (row.unpriced, row.unpriced_in_flight) == (1, 0)
