"""How runs are written for people: times, money, other people's text, and each fact as a line."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from headway.base.values import Fault
from headway.engine.events import (
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
from headway.engine.record import EffectDone, EffectIntended, Fact, MoneyReserved, ReplyKept
from headway.report.text.logs import event_words
from headway.report.text.results import guarded, safe_name
from headway.report.text.terminal import clean
from headway.report.text.words import count, duration, json_line, one_line, usd


@pytest.mark.parametrize(
    ("time_s", "words"),
    [
        (-1.0, "0.0 s"), (0.44, "0.4 s"), (12.4, "12 s"), (59.6, "1 min"), (200.0, "3 min 20 s"),
        (3599.7, "1 h"), (7500.0, "2 h 5 min"), (86399.0, "1 d"), (4e5, "4 d 15 h"),
        (inf, "forever"),
    ],
)  # fmt: skip
def test_a_duration_has_at_most_two_units(time_s: float, words: str) -> None:
    assert duration(time_s) == words


def test_money_below_a_dollar_keeps_what_matters() -> None:
    assert [usd(0), usd(2500), usd(1_234_500_000)] == ["$0.00", "$0.0025", "$1,234.50"]
    assert [count(1, "task"), count(1200, "task")] == ["1 task", "1,200 tasks"]


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]52;c;aGk=\x1b\\after", "after"),
        ("a\x9b31mb", "ab"),
        ("a\x1bcb", "ab"),
        ("a\x08\x7f\x00b", "ab"),
        ("a\r\nb\rc\td", "a\nb\nc\td"),
        ("txt\u202eexe.", "txtexe."),
        ("한국어 ✓", "한국어 ✓"),
    ],
)
def test_nothing_in_a_tasks_text_is_obeyed(text: str, plain: str) -> None:
    assert clean(text) == plain


@given(st.text())
def test_clean_text_holds_no_control_character(text: str) -> None:
    assert not [char for char in clean(text) if ord(char) < 32 and char not in "\n\t"]
    assert "\x9b" not in clean(text)


@given(st.text(), st.integers(1, 30))
def test_a_part_of_a_line_is_never_wider_than_its_place(text: str, cells: int) -> None:
    line = one_line(text, cells)
    assert cell_len(line) <= cells
    assert "\n" not in line


LINES: tuple[tuple[Fact, str], ...] = (
    (TaskStarted(0, 1, 0.0, "there is room"), "t  started: there is room"),
    (TaskStarted(0, 2, 0.0, "again"), "t  started, attempt 2: again"),
    (CallWaited(0, 0.0), "t  waits for a limit"),
    (CallAdmitted(0, 0.0), "t  has its permit"),
    (MoneyReserved(0, 1, 0.0, 5000), "t  may take up to $0.0050"),
    (MoneyReserved(0, 1, 0.0, 0, 1200), "t  may take up to 1,200 tokens"),
    (MoneyReserved(0, 1, 0.0, 5000, 1200), "t  may take up to 1,200 tokens, $0.0050"),
    (ReplyKept(0, 1, 0.0, b""), "t  a reply is kept"),
    (EffectIntended(0, 0.0, "mail", 1, "ab12"), "t  effect mail is performed, key ab12"),
    (
        EffectIntended(0, 0.0, "mail", 1, "ab12", is_now=True),
        "t  effect mail is performed, at once, key ab12",
    ),
    (EffectDone(0, 0.0, 1, "ab12"), "t  effect ab12 is done"),
    (TaskProposed(0, 1, 0.0), "t  has a result, and waits for those before it"),
    (
        TaskProposed(0, 1, 0.0, Ending(), Fault("command", detail="exit code 3")),
        "t  failed, unless those before it change what it read: command: exit code 3",
    ),
    (
        TaskStale(0, 1, 0.0, "total", 1, Ending(spend_microusd=4100)),
        "t  runs again: `total`, which it had read, has changed: $0.0041",
    ),
    (TaskStale(0, 1, 0.0, ""), "t  runs again: what it had read has changed"),
    (TaskFinished(0, 1, 0.0), "t  done"),
    (
        TaskFinished(0, 1, 0.0, Ending(b"", b"", 1200.0, 80.0, 4100, 1)),
        "t  done: 1.2k tokens in, 80 out, $0.0041",
    ),
    (TaskReused(0, 0.0), "t  reused: its result from before still holds"),
    (
        TaskDelayed(0, 1, 0.0, 2.0, Fault("rate", detail="429\n\x1b[1mslow down")),
        "t  attempt 1 failed, again in 2.0 s: rate: 429 slow down",
    ),
    (TaskFailed(0, 3, 0.0, Fault("timeout")), "t  failed after 3 attempts: timeout"),
    (TaskSkipped(0, 0.0, 1), "t  skipped: something that it needs has failed"),
    (RunBegan(0.0, "waves:4"), "the run begins, waves:4"),
    (GroupExpanded(0, 3, 0.0), "a group has 3 tasks"),
    (WaveBegan(2, 6, 0.0), "wave 2 of 6"),
    (RunHeld(0.0, inf, "by the user"), "held: by the user"),
    (RunContinued(0.0), "goes on"),
    (RunStopping(0.0, "interrupted"), "stops: interrupted"),
    (RunStopping(0.0, "interrupted", True), "stops now: interrupted"),
    (RunFinished(0.0, 20, 1, 1, 2), "over: 20 finished, 1 failed, 1 skipped, 2 not started"),
)


@pytest.mark.parametrize(("fact", "line"), LINES)
def test_each_fact_is_a_line_of_words(fact: Fact, line: str) -> None:
    assert event_words(fact, "t") == line


def test_waiting_for_a_window_says_until_when() -> None:
    assert event_words(RunHeld(0.0, 3600.0, "empty"), "").endswith(":00:00: empty")


def test_a_long_reason_is_cut() -> None:
    assert len(event_words(TaskFailed(0, 1, 0.0, Fault("server", detail="x" * 900)), "t")) < 400


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_no_cell_is_a_formula(start: str) -> None:
    assert guarded(f"{start}cmd|' /C calc'!A0") == f"'{start}cmd|' /C calc'!A0"
    assert guarded("plain") == "plain"
    assert guarded(-3.5) == -3.5


@given(st.lists(st.text(max_size=200), max_size=8))
def test_file_names_are_harmless_and_never_shared(names: list[str]) -> None:
    taken: set[str] = set()
    chosen = [safe_name(name, taken) for name in names]
    assert len({name.lower() for name in chosen}) == len(names)
    for name in chosen:
        assert not set(name) & set('/\\\0:*?"<>|\n')
        assert not name.startswith(".")
        assert len(name.encode()) < 255


def test_a_line_of_json_has_nothing_that_a_terminal_obeys() -> None:
    line = json_line({"a": "\x1b[31m\x9b31m\u202e한국"})
    assert line == '{"a": "\\u001b[31m\\u009b31m\\u202e한국"}'
