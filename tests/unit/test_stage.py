"""The picture of a run that goes on: aligned in every script, honest about the time to the end."""

from __future__ import annotations

from math import inf

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from headway.base.values import Fault, Limit, Wait
from headway.engine.events import (
    CallAdmitted,
    Ending,
    Event,
    RunHeld,
    RunStopping,
    TaskDelayed,
    TaskFailed,
    TaskFinished,
    TaskStarted,
    WaveBegan,
)
from headway.pacing.view import AccountView, ClientCalls, LimitView
from headway.report.progress import RunProgress, TaskNames, TimeLeft
from headway.report.text.stage import LiveState, picture, rest_words
from headway.report.text.words import ASCII, Glyphs

NAMES = ("코드 경로 탐색", "path 1", "path 2", "verdict")
LIMITS = (
    LimitView(Limit("input", 30_000.0, 60.0, source="header"), 18_300.0, 0.4, 0.0),
    LimitView(Limit("concurrency", 4.0, 0.0, "gauge"), 3.0, None, 0.0),
)
LANE = AccountView(
    "api.example#1a2b", "model", "anthropic", 1.0, "fast", LIMITS, 4.0, 3, 10, 0,
    Wait("input", 13.0, "400 more"), (ClientCalls("me", 3, 2),),
)  # fmt: skip


def view(*events: Event, lanes: tuple[AccountView, ...] = ()) -> LiveState:
    cast = TaskNames(
        "find bugs", ("탐색", "verdict"), (3, 1), lambda task: task // 3, NAMES.__getitem__,
        6_000_000,
    )  # fmt: skip
    run = RunProgress(cast)
    run.hear(events)
    return LiveState(
        90, ASCII, cast, 10.0, 10.0, run.standing, run.statistics(), run.groups,
        list(run.running.values()), run.rest((), 10.0), lanes, 2, (0.02, 58_000_000),
    )  # fmt: skip


BUSY = (
    TaskStarted(0, 1, 1.0, "room"),
    CallAdmitted(0, 1.0),
    TaskStarted(1, 2, 3.0, "room"),
    TaskStarted(2, 1, 4.0, "room"),
    TaskFinished(2, 1, 5.0, Ending(b"", b"", 1200.0, 80.0, 4100, 1)),
)


def lines(shown: LiveState) -> list[str]:
    return [line.plain for line in picture(shown)]


def test_a_picture_shows_how_far_each_group_is() -> None:
    drawn = lines(view(*BUSY))
    assert drawn[0] == "find bugs  10 s"
    assert drawn[1] == "  탐색     ##########.................... 1/3  2 running"
    assert drawn[2] == "  verdict  .............................. 0/1"


def test_names_of_every_script_are_aligned() -> None:
    drawn = [line for line in lines(view(*BUSY)) if line.startswith(("  running", "    "))]
    assert drawn[0] == "  running  코드 경로 탐색     9.0 s"
    assert drawn[1] == "           path 1             7.0 s  attempt 2  waits for a permit"
    ends = [cell_len(line[: line.index(" s") + 2]) for line in drawn[:2]]
    assert ends[0] == ends[1]


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_no_line_is_wider_than_the_screen(columns: int) -> None:
    drawn = lines(replace(view(*BUSY, lanes=(LANE,)), columns=columns, glyphs=Glyphs()))
    assert max(map(cell_len, drawn)) <= columns


def test_gauges_say_how_much_from_where_and_which_binds() -> None:
    drawn = lines(view(*BUSY, lanes=(LANE,)))
    quota = drawn.index("  quota    api.example#1a2b model: 3 of 4 in flight, 2 waiting")
    assert drawn[quota + 1].strip() == (
        "input a minute     ######....  61%  18.3k of 30k  binds  header, 0.4 s ago"
    )
    assert "binds" not in drawn[quota + 2]
    assert "3 of 4  configured" in drawn[quota + 2]


def test_what_was_used_stands_against_the_budget() -> None:
    failed = TaskFailed(1, 1, 6.0, Fault("server"), Ending(spend_microusd=900))
    again = TaskDelayed(0, 1, 6.0, 7.0, Fault("rate"))
    drawn = lines(view(*BUSY, failed, again))
    used = next(line for line in drawn if line.startswith("  used"))
    assert (
        used
        == (
            "  used     1.2k tokens in, 80 out, $0.0050 of $6.00, $0.0009 for nothing, 3 refused, "
            "1 tried again"
        )[:89]
        + "…"
    )
    assert "1 failed" in drawn[1]


@pytest.mark.parametrize(
    ("rest", "words"),
    [
        (TimeLeft(0), []),
        (TimeLeft(4), ["4 tasks; the speed is not known yet"]),
        (TimeLeft(4, None, 2.5), ["4 tasks and more to come, 2.5 tasks a second"]),
        (TimeLeft(4, 20.0, 0.2), ["4 tasks, 12 tasks a minute; bound unknown"]),
        (
            TimeLeft(4, 20.0, 0.2, 18.0, "input/60s"),
            [
                "4 tasks, 20 s at 12 tasks a minute",
                "90% of the best possible speed: at best 18 s, bound by input tokens a minute",
            ],
        ),
        (
            TimeLeft(1, 0.0, 3.0, 1.0, "requests/60s"),
            [
                "1 task, 0.0 s at 3 tasks a second",
                "100% of the best possible speed: at best 1.0 s, bound by requests a minute",
            ],
        ),
    ],
)
def test_no_time_to_the_end_without_its_bound(rest: TimeLeft, words: list[str]) -> None:
    assert list(rest_words(rest)) == words


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (WaveBegan(2, 6, 1.0), "find bugs  10 s, wave 2 of 6"),
        (RunHeld(1.0, inf, "by the user"), "find bugs  10 s, paused: by the user"),
        (RunStopping(1.0, "interrupted"), "find bugs  10 s, stopping: interrupted"),
        (RunHeld(1.0, 5.0, "empty"), "find bugs  10 s"),
    ],
)
def test_the_title_says_what_the_run_is_doing(event: Event, words: str) -> None:
    assert lines(view(event))[0] == words


def test_many_groups_and_tasks_are_counted_not_listed() -> None:
    cast = TaskNames(
        "wide", tuple(f"group-{i}" for i in range(20)), (5,) * 20, lambda t: t // 5, str
    )
    run = RunProgress(cast)
    run.hear([TaskStarted(task, 1, 1.0, "room") for task in range(60, 75)])
    shown = LiveState(
        90, ASCII, cast, 2.0, 1.0, run.standing, run.statistics(), run.groups,
        list(run.running.values())[:6], run.rest((), 2.0), notice="the broker does not answer",
    )  # fmt: skip
    drawn = lines(shown)
    assert "  group-12  .............................. 0/5  5 running" in drawn
    assert "           and 13 groups more, 0/65" in drawn
    assert "           and 9 more" in drawn
    assert drawn[-1] == "  note     the broker does not answer"


def test_what_is_wrong_with_the_accounts_is_shown_and_nothing_if_nothing_is() -> None:
    well = lines(view(*BUSY, lanes=(LANE,)))
    assert not any(line.startswith("  health") for line in well)
    ill = replace(view(*BUSY, lanes=(LANE,)), health="bad: 12.0% of calls were refused (model)")
    assert "  health   bad: 12.0% of calls were refused (model)" in lines(ill)
