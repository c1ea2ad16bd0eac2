"""`headway sim` as people and programs meet it: what is printed where, and how mistakes end."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from io import BytesIO, StringIO, TextIOWrapper
from math import inf
from pathlib import Path
from typing import Any

import pytest

from headway.cli.main import main
from headway.report.bound import Bound
from headway.report.tables import StrategyRow, row_of
from headway.report.text.table import caption, conclusion, draw_table
from headway.report.text.timeline import draw_timeline
from headway.report.text.words import ASCII, console_for, glyphs_for
from headway.sim.rehearsal import Rehearsed

ROOT = Path(__file__).resolve().parent.parent

DEMO_ROWS = [
    "all at once, aggressive retries", "all at once, SDK retries", "waves of 4", "pool of 5",
    "headway, cold", "headway, known limits",
]  # fmt: skip

Captured = pytest.CaptureFixture[str]


def _environment(**more: str) -> dict[str, str]:
    ours = ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "TERM", "PYTHONIOENCODING", "LC_", "LANG")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return kept | {"PYTHONPATH": str(ROOT / "src"), "TERM": "xterm-256color"} | more


def _rows(capsys: Captured, *arguments: str) -> list[dict[str, Any]]:
    assert main(["sim", *arguments, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    rows: list[dict[str, Any]] = json.loads(out)
    return rows


def _mistake(capsys: Captured, *arguments: str) -> str:
    assert main(["sim", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    return err


def test_the_demo_shows_table_timelines_and_conclusion(capsys: Captured) -> None:
    assert main(["sim", "demo", "--seeds", "2"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "no key, nothing is sent" in out
    for strategy in DEMO_ROWS:
        assert strategy in out
    assert out.count("agent 22  ") == 3
    assert "▒ turned away" in out
    assert "Fastest without losing a task: " in out.splitlines()[-1]
    assert "\x1b" not in out
    assert max(len(line) for line in out.splitlines() if line.startswith("agent")) <= 100


def test_the_demo_for_programs_is_a_list_of_rows(capsys: Captured) -> None:
    rows = _rows(capsys, "demo", "--preset", "slots", "--seeds", "2", "--seed", "7")
    assert [row["strategy"] for row in rows] == DEMO_ROWS
    for row in rows:
        assert row.keys() == set(StrategyRow.__struct_fields__)
        is_whole = row["failed_max"] == 0
        share = pytest.approx(row["makespan_s"] / row["bound_s"]) if is_whole else None
        assert row["ratio"] == share
        assert row["bound_s"] <= row["fair_s"]
        assert row["seeds"] == 2


def test_the_same_seed_gives_the_same_rows(capsys: Captured) -> None:
    asked = ("compare", "--provider", "burst-60s", "--strategy", "headway", "--seeds", "1")
    assert _rows(capsys, *asked) == _rows(capsys, *asked)
    assert _rows(capsys, *asked) != _rows(capsys, *asked, "--seed", "2")


def test_a_range_stands_for_one_row_per_width(capsys: Captured) -> None:
    rows = _rows(capsys, "compare", "--provider", "wide", "--strategy", "fixed:2..4+sdk", "aimd")
    names = ["fixed:2+sdk", "fixed:3+sdk", "fixed:4+sdk", "aimd"]
    assert [row["strategy"] for row in rows] == names


def test_every_strategy_runs(capsys: Captured) -> None:
    strategies = [
        "all-at-once", "waves:4", "fixed:5", "aimd", "cubic+patient", "headway",
        "headway+profile", "headway+limits", "headway+known+hidden", "headway+hidden",
    ]  # fmt: skip
    asked = ("compare", "--provider", "cap-7", "--seeds", "1", "--strategy", *strategies)
    assert [row["failed"] for row in _rows(capsys, *asked)] == [0] * len(strategies)


def test_a_ceiling_binds_headway_and_the_fair_bound(capsys: Captured) -> None:
    asked = ("compare", "--provider", "cap-7", "--strategy", "headway+known", "--seeds", "1")
    (whole,) = _rows(capsys, *asked)
    (half,) = _rows(capsys, *asked, "--share", "50%")
    assert half["in_flight_most"] == 3
    assert half["fair_s"] > 1.5 * whole["fair_s"]
    assert half["bound_s"] == whole["bound_s"]
    assert _rows(capsys, *asked, "--share", "0.5") == [half]


def test_a_smooth_pace_takes_longer_than_a_burst(capsys: Captured) -> None:
    asked = ("compare", "--provider", "burst-60s", "--strategy", "headway+known", "--seeds", "1")
    (fast,) = _rows(capsys, *asked)
    (smooth,) = _rows(capsys, *asked, "--pace", "smooth")
    assert smooth["makespan_s"] > fast["makespan_s"]


def test_what_never_ends_is_null(capsys: Captured, tmp_path: Path) -> None:
    silent = tmp_path / "silent.yaml"
    silent.write_text("faults: {hang_share: 1}")
    (row,) = _rows(capsys, "compare", "--provider", str(silent), "--strategy", "fixed:1")
    assert (row["makespan_s"], row["ratio"], row["failed"]) == (None, None, 22)
    assert main(["sim", "compare", "--provider", str(silent), "--strategy", "fixed:1"]) == 0
    assert "never" in capsys.readouterr().out


def test_files_can_be_compared(capsys: Captured, tmp_path: Path) -> None:
    provider, workload = tmp_path / "account.yaml", tmp_path / "work.json"
    provider.write_text("about: roomy\nterms: {limits: [{resource: concurrency, amount: 2}]}")
    workload.write_text('{"agents": [{"name": "見直し"}, {"name": "b", "needs": ["見直し"]}]}')
    asked = ("compare", "--provider", str(provider), "--workload", str(workload))
    assert main(["sim", *asked, "--seeds", "1", "--strategy", "all-at-once"]) == 0
    assert capsys.readouterr().out.startswith("2 agents on one account (account, work): roomy\n")


def test_presets_are_listed(capsys: Captured) -> None:
    assert main(["sim", "presets"]) == 0
    assert re.search(r"^  trap +the documents' account", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["demo", "--preset", "trp"], "hint: did you mean `trap`?"),
        (["demo", "--preset", "nowhere.yaml"], "cannot read the file"),
        (["demo", "--seeds", "0"], "`--seeds` is '0'"),
        (["demo", "--seed", "x"], "`--seed` is 'x'"),
        (["compare", "--workload", "agent-22"], "did you mean `agents-22`?"),
        (["compare", "--strategy", "fixd:5"], "did you mean `fixed:5`?"),
        (["compare", "--strategy", "fixed:0"], "'fixed:0' is not a strategy"),
        (["compare", "--strategy", "fixed:5..1"], "is an empty range"),
        (["compare", "--strategy", "fixed:1..9999"], "more than 1000 strategies"),
        (["compare", "--strategy", "headway+profil"], "did you mean `profile`?"),
        (["compare", "--strategy", "waves:4+sdk+sdk"], "is not a way to retry"),
        (["compare", "--strategy"], "--strategy"),
        (["compare", "--share", "0%"], "`--share` is '0%'"),
        (["compare", "--share", "nan"], "`--share` is 'nan'"),
        (["compare", "--pace", "smoth"], "did you mean `smooth`?"),
    ],
)
def test_a_mistake_is_one_clear_message(
    arguments: list[str], message: str, capsys: Captured
) -> None:
    assert message in _mistake(capsys, *arguments)


def test_a_terminal_of_80_columns_is_not_overrun_and_no_color_is_kept() -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 80, 0, 0))
    command = [sys.executable, "-m", "headway", "sim", "demo", "--seeds", "1"]
    environment = _environment(NO_COLOR="1")
    sent = b""
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL, env=environment
    ):
        os.close(theirs)
        # A terminal whose other end is closed ends with an error, not with nothing.
        with suppress(OSError):
            while piece := os.read(ours, 65536):
                sent += piece
    os.close(ours)
    text = sent.decode()
    assert "\x1b[1m" in text
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", text)
    lines = re.sub(r"\x1b\[[0-9;]*[mK]", "", text).splitlines()
    drawn = [line for line in lines if line.startswith(("agent ", "headway", "pool", "waves"))]
    assert len(drawn) > 3 * 22
    assert max(map(len, drawn)) <= 80


def test_an_output_without_these_characters_gets_plain_ones() -> None:
    console = console_for(TextIOWrapper(BytesIO(), encoding="ascii"))
    assert glyphs_for(console) == ASCII


def _row(strategy: str, makespan_s: float, refused: int = 0, failed: int = 0) -> StrategyRow:
    least = Bound(50.0, "width", 55.0, "requests/60s")
    return row_of(strategy, [Rehearsed(makespan_s, refused, failed=failed)], [least])


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([_row("all-at-once", 30.0, failed=3), _row("headway", 60.0), _row("waves:4", 180.0)],
         "Fastest without losing a task: headway, 60.0 s, nothing refused, 83% of the best "
         "possible speed. Slowest: waves:4, 3.0 times as long. Loses 3 tasks: all-at-once."),
        ([_row("fixed:5", 60.0, refused=2), _row("headway", 63.0), _row("waves:4", 61.0)],
         "Fastest without losing a task: fixed:5, 60.0 s, refused 2 times, 83% of the best "
         "possible speed. Behind by 5.0%: headway."),
        ([_row("a", 60.0, failed=1)], "Every strategy lost tasks or never ended."),
        ([_row("a", 60.0), _row("b", inf)],
         "Fastest without losing a task: a, 60.0 s, nothing refused, 83% of the best possible "
         "speed. Never ends: b."),
    ],
    ids=["wins", "defeat", "nothing works", "never ends"],
)  # fmt: skip
def test_the_conclusion_names_the_fastest_and_hides_no_defeat(
    rows: list[StrategyRow], words: str
) -> None:
    assert conclusion(rows) == words


def test_the_caption_says_what_the_bound_comes_from() -> None:
    rows = [_row("a", 60.0)]
    assert caption(rows, "tokens/60s", "requests/60s") == (
        "Times in seconds, one seed. Best possible: 50.0 s, bound by tokens a minute; 55.0 s, "
        "bound by requests a minute, within the ceiling, beside neighbours and without debt."
    )


def test_a_table_is_aligned_with_wide_characters() -> None:
    stream = StringIO()
    console = console_for(stream)
    draw_table(console, [_row("並列", 60.0), _row("waves:4", 61.0)])
    lines = stream.getvalue().splitlines()
    assert lines[2].index("60.0") + 2 == lines[3].index("61.0")


def test_a_timeline_is_aligned_with_wide_characters_and_cut() -> None:
    stream = StringIO()
    labels = ["見直し", "a", "a name that is longer than there is room for"]
    labels += [f"agent {number}" for number in range(97)]
    draw_timeline(console_for(stream), "run", [((), None)] * len(labels), labels, 10.0)
    lines = stream.getvalue().splitlines()
    assert lines[2].index("·") + 3 == lines[3].index("·") == lines[4].index("·") == 22
    assert "and 60 more" in stream.getvalue()
