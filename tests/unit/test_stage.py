"""The picture of a run that goes on: aligned in every script, honest about the time to the end."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest
from rich.cells import cell_len

from headway.base.values import Budget, Fault, Limit, Wait
from headway.engine.events import (
    CallAdmitted,
    CallWaited,
    Ending,
    Event,
    RunBegan,
    RunHeld,
    RunStopping,
    TaskDelayed,
    TaskFailed,
    TaskFinished,
    TaskProposed,
    TaskStarted,
    WaveBegan,
)
from headway.pacing.view import AccountView, ClientCalls, LimitView
from headway.plans.graph import Need, TaskGroup
from headway.report.history import verdict
from headway.report.progress import TimeLeft
from headway.report.text.stage import LiveState, picture, rest_words
from headway.report.text.words import ASCII, Glyphs, clock
from tests.unit.viewed import live_run

NAMES = ("탐색[코드 경로 탐색]", "탐색[path 1]", "탐색[path 2]", "verdict", "lint")
GROUPS = (
    TaskGroup("탐색", 3),
    TaskGroup("verdict", 1, (Need(0),)),
    TaskGroup("lint", 1, is_local=True),
)
LIMITS = (
    LimitView(Limit("input", 30_000.0, 60.0, source="header"), 18_300.0, 0.4, 0.0),
    LimitView(Limit("concurrency", 4.0, 0.0, "gauge"), 3.0, None, 0.0),
)
LANE = AccountView(
    "api.example#1a2b", "model", "anthropic", 1.0, "fast", LIMITS, 4.0, 3, 10, 0,
    Wait("input/60s", 13.0, "400 more"), (ClientCalls("me", 3, 2),),
)  # fmt: skip
BUSY: tuple[Event, ...] = (
    RunBegan(0.0, "adaptive"),
    TaskStarted(0, 1, 1.0, "room"),
    CallAdmitted(0, 1.0),
    TaskStarted(1, 2, 3.0, "room"),
    CallWaited(1, 3.0),
    TaskStarted(2, 1, 4.0, "room"),
    TaskFinished(2, 1, 5.0, Ending(b"", b"", 1200.0, 80.0, 4100, 1)),
    TaskStarted(4, 1, 5.0, "room"),
)


def lines(
    path: Path, *events: Event, state: LiveState | None = None, columns: int = 100,
    glyphs: Glyphs = ASCII, budget: Budget | None = None,
) -> list[str]:  # fmt: skip
    with live_run(path, GROUPS, NAMES, *events, budget=budget) as run, run.view(10.0) as view:
        drawn = picture(view, state or LiveState(), columns, glyphs)
    return [line.plain for line in drawn]


def test_a_picture_shows_how_far_each_group_is(tmp_path: Path) -> None:
    drawn = lines(tmp_path, *BUSY)
    assert drawn[0] == "find bugs  10 s, running"
    bar = "#" * 10 + "." * 20
    assert drawn[1] == f"  탐색     {bar} 1/3  1 in flight  1 waiting for a limit"
    assert drawn[2] == f"  verdict  {'.' * 30} 0/1"
    assert drawn[3] == f"  lint     {'.' * 30} 0/1  1 running here"


def test_names_are_aligned_and_each_task_says_where_it_is(tmp_path: Path) -> None:
    drawn = [line for line in lines(tmp_path, *BUSY) if line.startswith(("  running", "    "))]
    assert drawn[0] == "  running   탐색[코드 경로 탐색]     9.0 s  in flight"
    assert drawn[1] == "            탐색[path 1]             7.0 s  attempt 2  waiting for a limit"
    assert drawn[2] == "            lint                     5.0 s  running here"
    ends = [cell_len(line[: line.index(" s") + 2]) for line in drawn[:3]]
    assert len(set(ends)) == 1


def test_every_task_that_waits_says_why(tmp_path: Path) -> None:
    more = (
        TaskProposed(0, 1, 6.0),
        TaskDelayed(4, 1, 6.0, inf, Fault("access", detail="wrong key")),
    )
    drawn = lines(tmp_path, *BUSY, *more, state=LiveState((LANE,)))
    first = next(n for n, line in enumerate(drawn) if line.startswith("  waiting"))
    assert drawn[first] == "  waiting   1 waiting for a limit: input tokens a minute: 400 more"
    assert drawn[first + 1].strip() == "1 held: earlier tasks may change what they read"
    assert drawn[first + 2].strip() == "1 queued to be tried again, when the run is resumed"
    assert drawn[first + 3].strip() == "1 of verdict waiting for a task: 탐색 is not done"


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_no_line_is_wider_than_the_screen(tmp_path: Path, columns: int) -> None:
    drawn = lines(tmp_path, *BUSY, state=LiveState((LANE,)), columns=columns, glyphs=Glyphs())
    assert max(map(cell_len, drawn)) <= columns


def test_gauges_say_how_much_from_where_and_which_binds(tmp_path: Path) -> None:
    drawn = lines(tmp_path, *BUSY, state=LiveState((LANE,)))
    quota = drawn.index("  quota     api.example#1a2b model: 3 of 4 in flight, 2 waiting")
    assert drawn[quota + 1].strip() == (
        "input tokens a minute  ######....  61%  18.3k of 30k  binds  header, 0.4 s ago"
    )
    assert "binds" not in drawn[quota + 2]
    assert "3 of 4  configured" in drawn[quota + 2]


def test_nothing_is_tried_again_while_the_run_is_held(tmp_path: Path) -> None:
    again = TaskDelayed(0, 1, 6.0, 7.0, Fault("rate"), Ending(calls=1))
    drawn = lines(tmp_path, *BUSY, again, RunHeld(6.0, 50.0, "the window is empty"))
    words = f"1 queued to be tried again, {clock(50.0, 10.0)} at first"
    assert any(line.endswith(words) for line in drawn), drawn


def test_a_run_that_waits_does_not_end_before_it_goes_on(tmp_path: Path) -> None:
    names = [f"probe[{task}]" for task in range(6)]
    done: list[Event] = [RunBegan(0.0, "adaptive")]
    for task in range(4):
        done += TaskStarted(task, 1, float(task), "room"), TaskFinished(task, 1, task + 1.0)
    held = RunHeld(4.0, 900.0, "the window is empty")
    groups = [TaskGroup("probe", 6)]
    with live_run(tmp_path, groups, names, *done, held) as run, run.view(5.0) as view:
        view.verdict = verdict(view.history.standing, True, view.now_s)
        left = view.time_left(())
    assert left.eta_s is not None
    assert left.eta_s >= 895.0


def test_what_was_used_stands_against_the_budget(tmp_path: Path) -> None:
    failed = TaskFailed(1, 2, 6.0, Fault("server"), Ending(spend_microusd=900, calls=1))
    again = TaskDelayed(0, 1, 6.0, 7.0, Fault("rate"), Ending(calls=1))
    drawn = lines(
        tmp_path, *BUSY, failed, again, columns=140, budget=Budget(microusd=6_000_000)
    )  # fmt: skip
    assert (
        "  used      1.2k tokens in, 80 out, $0.0050, of a budget of $6.00, "
        "$0.0009 for nothing, 1 refused, 1 tried again"
    ) in drawn
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
        (WaveBegan(2, 6, 1.0), "find bugs  10 s, running, wave 2 of 6"),
        (RunHeld(1.0, inf, "by the user"), "find bugs  10 s, paused: by the user"),
        (RunStopping(1.0, "interrupted"), "find bugs  10 s, stopping: interrupted"),
        (RunHeld(1.0, 5.0, "empty"), "find bugs  10 s, running"),
    ],
)
def test_the_title_says_what_the_run_is_doing(tmp_path: Path, event: Event, words: str) -> None:
    assert lines(tmp_path, RunBegan(0.0, "adaptive"), event)[0] == words


def test_many_groups_and_tasks_are_counted_not_listed(tmp_path: Path) -> None:
    groups = [TaskGroup(f"group-{number}", 5) for number in range(20)]
    names = [f"group-{number // 5}[{number % 5}]" for number in range(100)]
    events = [TaskStarted(task, 1, 1.0, "room") for task in range(60, 75)]
    began = RunBegan(1.0, "adaptive")
    state = LiveState(notice="the broker does not answer", health="bad: 12.0% were refused")
    with live_run(tmp_path, groups, names, began, *events) as run, run.view(2.0) as view:
        drawn = [line.plain for line in picture(view, state, 90, ASCII)]
    assert f"  group-12  {'.' * 30} 0/5  5 in flight" in drawn
    assert "            and 13 groups more, 0/65" in drawn
    assert "            and 9 more" in drawn
    assert "  health    bad: 12.0% were refused" in drawn
    assert drawn[-1] == "  note      the broker does not answer"
