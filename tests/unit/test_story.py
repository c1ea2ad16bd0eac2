"""What a journal tells of a run: spans, ends, how many at once, and where a run stands."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.base.values import Fault
from headway.engine.events import (
    CallAdmitted,
    CallWaited,
    Ending,
    Event,
    GroupExpanded,
    RunBegan,
    RunContinued,
    RunHeld,
    TaskDelayed,
    TaskFailed,
    TaskFinished,
    TaskProposed,
    TaskStarted,
    WaveBegan,
)
from headway.engine.record import Fact
from headway.report.history import (
    Standing,
    Story,
    Tale,
    effective_width,
    in_line,
    scene,
    stand,
    with_lines,
)

A, B = b"a", b"b"
REFUSED = Fault("rate", detail="429")
BROKEN = Fault("server", detail="500")


def told(*facts: tuple[bytes, Fact]) -> Story:
    story = Story()
    for key, fact in facts:
        story.hear(key, fact)
    return story


def answered(key: bytes, task: int, from_s: float, to_s: float, tokens: float) -> Story:
    return told(
        (b"", RunBegan(0.0, "adaptive")),
        (key, TaskStarted(task, 1, from_s, "room")),
        (key, CallAdmitted(task, from_s)),
        (key, TaskFinished(task, 1, to_s, Ending(output_tokens=tokens))),
    )


def test_a_task_is_busy_from_its_permit_to_its_end() -> None:
    story = told(
        (b"", RunBegan(100.0, "adaptive")),
        (A, TaskStarted(0, 1, 101.0, "room")),
        (A, CallAdmitted(0, 102.0)),
        (A, CallWaited(0, 103.0)),
        (A, CallAdmitted(0, 105.0)),
        (A, TaskFinished(0, 1, 106.0)),
    )
    tale = story.tales[A]
    assert tale.spans == [("busy", 2.0, 3.0), ("busy", 5.0, 6.0)]
    assert (tale.state, tale.ended_s, tale.calls) == ("finished", 6.0, 2)


def test_a_command_is_busy_until_its_agent_first_waits_and_between_its_calls() -> None:
    story = told(
        (b"", RunBegan(100.0, "adaptive")),
        (A, TaskStarted(0, 1, 101.0, "room")),
        (A, CallWaited(0, 103.0)),
        (A, CallAdmitted(0, 105.0)),
        (A, CallWaited(0, 107.0)),
        (A, TaskFailed(0, 1, 108.0, BROKEN)),
    )
    assert story.tales[A].spans == [("busy", 1.0, 3.0), ("busy", 5.0, 7.0)]


@pytest.mark.parametrize(("fault", "kind"), [(REFUSED, "provider"), (BROKEN, None)])
def test_a_task_that_is_turned_away_stands_in_the_providers_line(
    fault: Fault, kind: str | None
) -> None:
    story = told(
        (b"", RunBegan(0.0, "adaptive")),
        (A, TaskStarted(0, 1, 0.0, "room")),
        (A, TaskDelayed(0, 1, 1.0, 3.0, fault)),
        (A, TaskStarted(0, 2, 3.0, "its delay is over")),
        (A, TaskFinished(0, 2, 4.0)),
    )
    spans = [("busy", 0.0, 1.0), ("busy", 3.0, 4.0)]
    if kind is not None:
        spans.insert(1, ("provider", 1.0, 3.0))
    assert story.tales[A].spans == spans
    assert story.tales[A].attempt == 2


def test_the_time_between_two_processes_is_left_out() -> None:
    story = told(
        (b"", RunBegan(100.0, "adaptive")),
        (A, TaskStarted(0, 1, 101.0, "room")),
        (A, CallAdmitted(0, 101.0)),
        (B, TaskStarted(1, 1, 102.0, "room")),
        (B, TaskFinished(1, 1, 103.0)),
        (b"", RunBegan(9000.0, "adaptive")),
        (A, TaskStarted(0, 2, 9001.0, "room")),
        (A, TaskFinished(0, 2, 9002.0)),
    )
    assert story.tales[A].spans == [("busy", 1.0, 3.0), ("busy", 4.0, 5.0)]
    assert (story.elapsed_s, story.parts, story.submitted) == (5.0, 2, 2)
    assert story.active_s == 3.0


def test_a_scene_holds_what_is_open_until_now() -> None:
    story = told(
        (b"", RunBegan(0.0, "adaptive")),
        (A, TaskStarted(0, 1, 0.0, "room")),
        (A, CallAdmitted(0, 1.0)),
        (B, TaskStarted(1, 1, 1.0, "room")),
        (B, TaskFinished(1, 1, 2.0)),
    )
    shown = scene(story.in_order(), 5.0)
    spans = [(span.task, span.kind, span.from_s, span.to_s) for span in shown.spans]
    assert spans == [(0, "busy", 1.0, 5.0), (1, "busy", 1.0, 2.0)]
    assert [(end.task, end.ended_s, end.done) for end in shown.tasks] == [(1, 2.0, True)]


def six_answers(last_s: float) -> list[Tale]:
    tales = []
    for number in range(6):
        took_s = last_s if number == 5 else 1.0
        story = answered(bytes([number]), number, 0.0, took_s, 100.0)
        tales += story.in_order()
    return tales


def test_an_answer_that_took_far_longer_per_token_was_in_line() -> None:
    tales = six_answers(last_s=10.0)
    lines = in_line(tales, lambda key: "review")
    assert lines == {bytes([5]): 9.0}
    split = with_lines(tales[5], lines[bytes([5])])
    assert split.spans == [("provider", 0.0, 9.0), ("busy", 9.0, 10.0)]
    assert with_lines(tales[0], 0.0) is tales[0]


def test_the_effective_width_counts_what_was_really_worked_on() -> None:
    story = told(
        (b"", RunBegan(0.0, "adaptive")),
        (A, TaskStarted(0, 1, 0.0, "room")),
        (A, CallAdmitted(0, 0.0)),
        (B, TaskStarted(1, 1, 0.0, "room")),
        (B, CallAdmitted(1, 2.0)),
        (A, TaskFinished(0, 1, 4.0)),
    )
    assert effective_width(story, {}, 4.0) == (4.0 + 2.0) / 4.0
    assert effective_width(story, {A: 2.0}, 4.0) == (2.0 + 2.0) / 4.0
    assert effective_width(Story(), {}, 0.0) == 0.0


def test_a_run_stands_where_its_facts_leave_it() -> None:
    standing = Standing()
    for event in (
        RunBegan(1.0, "waves:4"),
        WaveBegan(2, 6, 2.0),
        GroupExpanded(1, 20, 3.0),
        TaskStarted(0, 1, 3.0, "room"),
    ):
        standing = stand(standing, event)
    assert standing == Standing(1, "waves:4", 1.0, 20, 2, 6)
    held = stand(standing, RunHeld(4.0, inf, "paused"))
    assert (held.held_until_s, held.held_for) == (inf, "paused")
    assert stand(held, RunContinued(5.0)) == standing


def test_a_task_waits_between_its_attempt_and_its_commit() -> None:
    story = told(
        (A, TaskStarted(0, 1, 0.0, "room")),
        (A, TaskProposed(0, 1, 2.0)),
    )
    tale = story.tales[A]
    assert (tale.state, tale.ended_s, tale.spans) == ("proposed", None, [("busy", 0.0, 2.0)])
    story.hear(A, TaskFinished(0, 1, 5.0))
    assert (tale.state, tale.ended_s, tale.spans) == ("finished", 5.0, [("busy", 0.0, 2.0)])


EVENTS = st.lists(
    st.tuples(st.sampled_from([A, B]), st.integers(0, 6), st.floats(0.0, 100.0)), max_size=25
)


def _event(key: bytes, kind: int, at_s: float) -> tuple[bytes, Event]:
    task = 0 if key == A else 1
    events: tuple[Event, ...] = (
        TaskStarted(task, 1, at_s, "room"),
        CallAdmitted(task, at_s),
        CallWaited(task, at_s),
        TaskFinished(task, 1, at_s),
        TaskDelayed(task, 1, at_s, at_s, REFUSED),
        TaskFailed(task, 1, at_s, BROKEN),
        RunBegan(at_s, "adaptive"),
    )
    return (b"" if kind == 6 else key), events[kind]


@settings(max_examples=150)
@given(EVENTS)
def test_whatever_happens_no_stay_ends_before_it_began_or_overlaps_another(
    drawn: list[tuple[bytes, int, float]],
) -> None:
    story = told(*(_event(*one) for one in drawn))
    for tale in story.tales.values():
        last_s = 0.0
        for _, from_s, to_s in tale.spans:
            assert last_s <= from_s <= to_s
            last_s = to_s
    assert 0.0 <= story.active_s <= story.elapsed_s
    assert 0 <= story.submitted <= 2
