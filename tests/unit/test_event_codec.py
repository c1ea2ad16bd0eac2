"""Events are facts on disk: read back equal, or refused with a reason."""

from __future__ import annotations

from math import inf

import pytest

from headway.base.values import Fault
from headway.engine.events import (
    VERSION,
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
    MoneyReserved,
    ReplyKept,
    decode,
    encode,
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
    RunFinished(11.0, 20, 1, 1, 0, 0, 1.25, 50_000_000),
    MoneyReserved(7, 1, 3.3, 5000, 1200),
    TaskFinished(7, 1, 4.0, Ending(b"b" * 16, extra_tokens=-9)),
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


def test_what_is_usual_is_not_written() -> None:
    assert encode(TaskFinished(7, 1, 4.0)) == ("task_finished", '{"task":7,"attempt":1,"at_s":4.0}')
    assert encode(RunStopping(1.0, "x")) == ("run_stopping", '{"at_s":1.0,"reason":"x"}')


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


def test_a_field_that_is_not_known_is_passed_over() -> None:
    assert decode("run_continued", 1, '{"at_s":2.0,"mood":"good"}') == RunContinued(2.0)
