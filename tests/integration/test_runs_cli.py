"""Looking at runs from the shell, on journals that were really written."""

from __future__ import annotations

import asyncio
import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from msgspec import Struct

from headway.base.values import Fault
from headway.cli.main import main
from headway.engine.events import (
    CallWaited,
    RunBegan,
    RunFinished,
    TaskFailed,
    TaskFinished,
    TaskSkipped,
    TaskStarted,
)
from tests.integration.written_runs import BEGAN_S, Writer, partial_run, whole_run

ROOT = Path(__file__).resolve().parents[2]


class Said(Struct, frozen=True):
    """What a command left behind."""

    returncode: int
    stdout: str
    stderr: str


class Shell:
    """Runs headway on a state folder of its own: in this process, or as users start it."""

    def __init__(self, state: Path) -> None:
        self.state = state

    def __call__(self, *arguments: str) -> Said:
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = main(list(arguments))
        return Said(code, out.getvalue(), err.getvalue())

    def process(self, *arguments: str) -> Said:
        ended = subprocess.run(
            [sys.executable, "-m", "headway", *arguments], capture_output=True, check=False,
            cwd=self.state, env=os.environ | {"PYTHONPATH": str(ROOT / "src")}, timeout=300,
        )  # fmt: skip
        return Said(ended.returncode, ended.stdout.decode(), ended.stderr.decode())

    def json(self, *arguments: str) -> object:
        found = self(*arguments)
        assert found.returncode in (0, 1), found.stderr
        return json.loads(found.stdout)


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv("HEADWAY_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("HEADWAY_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PYTHONIOENCODING", "utf-8")
    return Shell(tmp_path)


def test_bare_headway_lists_runs_and_which_can_be_resumed(shell: Shell) -> None:
    assert "No runs yet" in shell().stdout
    done, cut = whole_run(shell.state), partial_run(shell.state)
    found = shell.process()
    assert (found.returncode, found.stderr) == (0, "")
    lines = found.stdout.splitlines()
    assert lines[1].startswith(cut)
    assert "interrupted" in lines[1]
    assert lines[2].startswith(done)
    assert f"headway resume {cut}" in lines
    assert f"headway resume {done}" not in lines
    assert lines[-1] == "headway --help"


def test_a_journal_that_cannot_be_read_does_not_hide_the_others(shell: Shell) -> None:
    done, cut = whole_run(shell.state), partial_run(shell.state)
    (shell.state / "runs" / cut / "journal.db").write_bytes(b"not a database" * 100)
    found = shell()
    assert found.returncode == 0
    assert "unreadable" in found.stdout
    assert done in found.stdout


def test_status_says_what_failed_and_what_to_do(shell: Shell) -> None:
    run = partial_run(shell.state)
    found = shell.process("status", run[:-1])
    assert (found.returncode, found.stderr) == (0, "")
    assert "state     interrupted: its process is gone" in found.stdout
    assert "tasks     2 of 4 done, 1 failed, 1 not started" in found.stdout
    assert "used      2k tokens in, 200 out, $0.0050" in found.stdout
    words = (
        "failed    1 with server: 500 Internal Server Error, for instance probe[b]; headway resume"
    )
    assert words in found.stdout
    assert f"headway resume {run}" in found.stdout
    assert "\x1b" not in found.stdout


def test_a_wrong_run_is_a_usage_error_with_the_nearest(shell: Shell) -> None:
    run = whole_run(shell.state)
    found = shell("status", run[:-1] + "z")
    assert found.returncode == 2
    assert run in found.stderr
    assert found.stdout == ""


def test_a_run_that_a_process_has_is_running_and_its_pid_is_told(shell: Shell) -> None:
    async def whole() -> None:
        writer = Writer(shell.state)
        writer.tell(RunBegan(BEGAN_S, "adaptive"))
        writer.tell(TaskStarted(0, 1, BEGAN_S, "room")).tell(CallWaited(0, BEGAN_S))
        journal = await writer.write()
        try:
            assert f"state     running, process {os.getpid()}" in shell("status").stdout
            assert "attempt 1 for" in shell("why", "last", "probe[a]").stdout
        finally:
            journal.close()
        assert "1 cut off" in shell("status").stdout
        assert "had no end" in shell("why", "last", "probe[a]").stdout

    asyncio.run(whole())


def test_a_timeline_shows_who_waited_and_how_many_at_once(shell: Shell) -> None:
    whole_run(shell.state)
    found = shell("timeline")
    assert found.returncode == 0
    lines = found.stdout.splitlines()
    first = next(line for line in lines if line.startswith("probe[0]"))
    third = next(line for line in lines if line.startswith("probe[2]"))
    assert first.index("█") == third.index("·")
    assert third.index("█") > first.index("✓")
    assert "Submitted 2, effectively 2.0 at once." in lines


def test_results_are_in_declared_order_also_of_a_partial_run(shell: Shell) -> None:
    run = partial_run(shell.state)
    found = shell.process("results", run, "--all", "--parse")
    told = [json.loads(line) for line in found.stdout.splitlines()]
    assert [one["task"] for one in told] == ["probe[a]", "probe[b]", "probe[버그 찾기]"]
    assert [one["output"] for one in told] == [{"bugs": 2}, None, "없음"]
    assert told[1]["reason"].startswith("server: 500")
    assert (told[0]["attempts"], told[0]["input_tokens"], told[0]["usd"]) == (1, 1000, 0.0025)
    assert found.returncode == 1
    assert found.stderr.startswith("2 of 4 results are missing: interrupted.")


def test_results_as_files_never_leave_their_folder(shell: Shell) -> None:
    names = ["../../evil", "a/b", "A?b", "a_b"]
    writer = Writer(shell.state, names).tell(RunBegan(BEGAN_S, "adaptive"))
    for number in range(4):
        writer.finished(number, 0.0, 1.0, b"%d" % number)
    writer.tell(RunFinished(BEGAN_S + 1, 4, 0)).close()
    found = shell("results", "last", "--folder", str(shell.state / "out"))
    assert found.returncode == 0
    files = {path.name: path.read_text() for path in (shell.state / "out").iterdir()}
    assert files == {"evil.txt": "0", "a_b.txt": "1", "A_b-2.txt": "2", "a_b-3.txt": "3"}


def test_results_of_some_tasks_or_groups(shell: Shell) -> None:
    partial_run(shell.state)
    found = shell("results", "last", "--task", "probe[a]")
    assert (found.returncode, len(found.stdout.splitlines())) == (0, 1)
    assert len(shell("results", "last", "--task", "probe").stdout.splitlines()) == 3
    wrong = shell("results", "last", "--task", "prob[a]")
    assert wrong.returncode == 2
    assert "did you mean `probe[a]`?" in wrong.stderr


def test_logs_for_a_program_are_one_event_a_line(shell: Shell) -> None:
    partial_run(shell.state)
    told = [json.loads(line) for line in shell("logs", "--json").stdout.splitlines()]
    assert [one["seq"] for one in told] == list(range(1, len(told) + 1))
    assert told[0]["event"] == "RunBegan"
    assert told[-1]["fault"]["kind"] == "server"
    assert shell("logs", "--follow").returncode == 0


def test_why_a_task_failed_or_was_skipped(shell: Shell) -> None:
    names = ("probe", "verdict")
    writer = Writer(shell.state, names).tell(RunBegan(BEGAN_S, "adaptive"))
    writer.tell(TaskStarted(0, 1, BEGAN_S, "room"))
    writer.tell(TaskFailed(0, 1, BEGAN_S + 1, Fault("billing", detail="no credit")))
    writer.tell(TaskSkipped(1, BEGAN_S + 1, 0)).tell(RunFinished(BEGAN_S + 1, 0, 1, 1))
    run = writer.close()
    failed = shell("why", run, "probe").stdout
    assert failed.startswith("probe is failed: 1 attempt failed, the last with billing: no credit")
    assert "hint: the account has no credit: pay, then resume" in failed
    skipped = shell("why", run, "verdict").stdout
    assert skipped.startswith("verdict is skipped: `probe`, which it needs, has failed")
    assert f"hint: headway why {run} 'probe'" in skipped


def test_stopping_what_does_not_run_says_so(shell: Shell) -> None:
    run = whole_run(shell.state)
    for verb in ("stop", "pause"):
        found = shell(verb, run)
        assert found.returncode == 1
        assert f"{run} is not running: nothing to {verb}" in found.stdout
    assert shell.json("stop", run, "--json") == {"run": run, "accepted": False, "pid": None}


def test_pausing_a_process_that_does_not_listen_leaves_it_alone(shell: Shell) -> None:
    if not os.path.exists("/proc/self/status"):
        pytest.skip("whether a process listens is only known where the kernel tells")

    async def whole() -> None:
        journal = await Writer(shell.state).tell(RunBegan(BEGAN_S, "adaptive")).write()
        try:
            found = shell.process("pause")
        finally:
            journal.close()
        assert found.returncode == 1
        assert "does not listen" in found.stdout

    asyncio.run(whole())


def test_the_doctor_and_the_configuration_speak_to_programs(shell: Shell) -> None:
    findings = shell.json("doctor", "--json")
    assert isinstance(findings, list)
    assert {one["about"] for one in findings} >= {"Python", "SQLite", "folders", "disk", "keys"}
    values = shell.json("config", "--json")
    assert isinstance(values, list)
    assert {"key": "ask_above_usd", "value": 5.0, "source": "default"} in values
    path = shell("config", "path").stdout.strip()
    assert path == str(shell.state / "config" / "headway" / "config.toml")
    schema = shell.json("config", "schema")
    assert isinstance(schema, dict)
    assert "tasks" in schema["properties"]


def test_a_spoilt_journal_is_saved_and_old_runs_are_removed(shell: Shell) -> None:
    run = whole_run(shell.state)
    journal = shell.state / "runs" / run / "journal.db"
    data = journal.read_bytes()
    page = data.index(b"result 0") // 4096 * 4096
    journal.write_bytes(data[:page] + bytes(4096) + data[page + 4096 :])
    found = shell("doctor", "--salvage", run)
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith(f"{run}: saved ")
    left = shell("results", run)
    assert (left.returncode, left.stdout) == (1, ""), "all results were on the spoilt page"
    assert '"state": "interrupted"' in shell("status", run, "--json").stdout
    assert shell.json("doctor", "--prune", "1d", "--json") == {"removed": [run]}
    assert "No runs yet" in shell().stdout


def test_completion_knows_verbs_options_and_runs(shell: Shell) -> None:
    pytest.importorskip("shtab")
    run = whole_run(shell.state)
    assert shell("completion", "--runs").stdout.splitlines() == ["last", run]
    for name in ("bash", "zsh", "fish"):
        found = shell("completion", name)
        assert found.returncode == 0, found.stderr
        assert "timeline" in found.stdout
        assert "headway completion --runs" in found.stdout
    script = shell.state / "completion.bash"
    script.write_text(shell("completion", "bash").stdout)
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0
    assert shell("completion").returncode == 2


def test_a_result_without_a_kept_body_has_no_output(shell: Shell) -> None:
    writer = Writer(shell.state, ["a"]).tell(RunBegan(BEGAN_S, "adaptive"))
    writer.tell(TaskStarted(0, 1, BEGAN_S, "room")).tell(TaskFinished(0, 1, BEGAN_S + 1))
    writer.tell(RunFinished(BEGAN_S + 1, 1, 0)).close()
    assert json.loads(shell("results", "--all").stdout)["output"] is None
