"""`headway each` in the hands of strangers: odd bytes, closed streams, wrong words."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from headway.cli.main import main
from tests.integration.strangers_shell import Stranger


def test_bytes_that_are_no_text_are_a_command_and_a_name_like_any(stranger: Stranger) -> None:
    said = stranger(b"each", b"test {} != caf\xc3\xa9\xff || echo \xff | od -An -tx1", b":::", b"a")
    assert (said.code, said.err) == (0, "")
    dry = stranger.shell("$headway each --dry-run 'echo {}' ::: $'\\xff' | od -An -tx1")
    assert "ff" in dry.out.split()
    asked = stranger(b"why", b"last", b"nobody\xff")
    assert asked.code == 2
    assert "HW103" in asked.err


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_are_not_taken_for_journals(
    stranger: Stranger, closed: str
) -> None:
    said = stranger.shell(f"$headway each 'echo {{}}' ::: a b {closed}")
    assert (said.code, said.err) == (0, "")
    assert stranger.status()["tasks"] == {"total": 2, "done": 2}


def test_a_full_output_is_no_bug_and_loses_nothing(stranger: Stranger) -> None:
    said = stranger.shell("$headway each 'echo {}' ::: a b > /dev/full")
    assert said.code == 2
    assert "error[HW208]: the output cannot be written: No space left" in said.err
    assert "Errno" not in said.err
    assert "Traceback" not in said.err
    assert stranger.results() == {"each[1: a]": "a\n", "each[2: b]": "b\n"}


def test_nobody_who_reads_errors_is_no_traceback(stranger: Stranger) -> None:
    said = stranger.shell("$headway each 'exit 1' ::: a 2>&1 | true; echo ${PIPESTATUS[0]}")
    assert said.err == ""
    assert said.out.strip() in ("1", "141")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--halt", "someday"), "--halt someday"),
        (("--timeout", "0"), "no time at all"),
        (("--joblog", "/nowhere/log"), "/nowhere/log cannot be written"),
        (("--results", "/dev/null/x"), "/dev/null/x cannot be written"),
    ],
)
def test_what_is_refused_leaves_no_run_behind(
    stranger: Stranger,
    words: tuple[str, ...],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("os.environ", stranger.environment)
    assert main(["each", *words, "echo", ":::", "a"]) == 2
    assert said in capfd.readouterr().err
    assert stranger.runs() == []


def test_fewer_than_all_cores_may_be_asked_for(stranger: Stranger) -> None:
    said = stranger("each", "-j", "-1", "echo", ":::", "a")
    assert (said.code, said.out) == (0, "a\n")


def test_a_resume_goes_on_with_the_inputs_that_were_asked_for_last(stranger: Stranger) -> None:
    command = "echo {} >> done; test -e go"
    assert stranger("each", command, ":::", "a").code == 1
    assert stranger("each", "--resume", command, ":::", "a", "b").code == 1
    stranger.write("go", "")
    again = stranger("resume", "--json")
    assert again.code == 0
    assert '"finished": 2' in again.out
    assert stranger.status()["tasks"] == {"total": 2, "done": 2}


def test_a_folder_that_is_gone_is_said_to_be(stranger: Stranger) -> None:
    gone = stranger.shell("mkdir x && cd x && rmdir ../x && $headway each echo ::: a")
    assert (gone.code, "the current folder is gone" in gone.err) == (2, True)
    stranger.shell("mkdir y && cd y && $headway each 'exit 1' ::: a; rmdir ../y")
    resumed = stranger("resume")
    assert resumed.code == 2
    assert "where this run was started, cannot be entered" in resumed.err


def test_a_run_that_is_held_says_so_although_it_shows_nothing_else(stranger: Stranger) -> None:
    command = "touch began{}; while ! test -e go; do sleep 0.05; done"
    with subprocess.Popen(
        [sys.executable, "-m", "headway", "each", "-j", "1", command, ":::", "1", "2"],
        cwd=stranger.here, env=stranger.environment, stderr=subprocess.PIPE, text=True,
    ) as running:  # fmt: skip
        _wait_for((stranger.here / "began1").exists)
        assert stranger("pause").code == 0
        _wait_for(lambda: stranger.status()["state"] == "paused")
        stranger.write("go", "")
        _wait_for(lambda: stranger.status()["tasks"]["done"] == 1)
        assert stranger("resume").code == 0
        assert running.wait(30) == 0
        assert running.stderr is not None
        assert running.stderr.read() == "held: paused by the user\ngoes on\n"


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 30.0
    while not condition():
        assert time.monotonic() < deadline_s, "it did not come about"
        time.sleep(0.05)
