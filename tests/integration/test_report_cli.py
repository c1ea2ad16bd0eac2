"""`headway report` from the shell: on journals of every age, and on runs that really happened."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from subprocess import run
from typing import Any

import pytest

from headway.base.codec import encode
from headway.base.values import CacheTokens, Fault
from headway.engine.events import (
    CallAdmitted,
    CallWaited,
    Ending,
    RunBegan,
    RunFinished,
    TaskDelayed,
    TaskFinished,
    TaskSkipped,
    TaskStarted,
)
from headway.journal.documents import FORECAST, SHAPE, kept_shape
from headway.journal.reader import JournalReader
from headway.report.forecast import Foreseen, SpreadNumber
from headway.report.text.words import limit_words
from tests.integration.test_runs_cli import Shell, shell
from tests.integration.written_runs import BEGAN_S, Writer, partial_run, put_document

__all__ = ["shell"]

FORESEEN = Foreseen(
    "adaptive", 4, SpreadNumber(3, 4, 5), SpreadNumber(4, 5, 7), SpreadNumber(3000, 4000, 5000),
    SpreadNumber(300, 400, 500), SpreadNumber(9000, 10_000, 11_000), 4.5, "input/60s", 4.8,
    "output/60s", 2.0, 0.0, 40, "runs",
)  # fmt: skip


def reported(shell: Shell) -> dict[str, Any]:
    told: dict[str, Any] = shell.json("report", "--json")  # type: ignore[assignment]
    spent = told["spent"]
    walls, tasks = (sum(one[what] for one in spent["shares"]) for what in ("wall_s", "task_s"))
    assert walls == pytest.approx(spent["wall_s"]) == pytest.approx(told["elapsed_s"])
    assert tasks == pytest.approx(spent["task_s"])
    return told


def wall(told: dict[str, Any], cause: str, what: str = "") -> float:
    shares = {(one["cause"], one["what"]): one["wall_s"] for one in told["spent"]["shares"]}
    return float(shares.get((cause, what), 0.0))


def waited(writer: Writer, number: int, ask_s: float, go_s: float, end_s: float) -> None:
    """A task that waits for input tokens, and is answered."""
    writer.tell(TaskStarted(number, 1, BEGAN_S + ask_s, "room"))
    writer.tell(CallWaited(number, BEGAN_S + ask_s))
    writer.tell(CallAdmitted(number, BEGAN_S + go_s, "input/60s"))
    ending = Ending(b"", b"", 1000.0, 100.0, 2500, 1)
    writer.tell(TaskFinished(number, 1, BEGAN_S + end_s, ending))


def limited_run(state: Path) -> str:
    """Four tasks of ten seconds, of which eight are waits for input tokens a minute."""
    writer = Writer(state, [f"probe[{number}]" for number in range(4)])
    writer.tell(RunBegan(BEGAN_S, "adaptive"))
    for number in range(4):
        waited(writer, number, 0.0, 2.0 * (number + 1), 2.0 * (number + 2))
    end = RunFinished(BEGAN_S + 10.0, 4, 0)
    return writer.tell(end).close()


def test_a_run_says_which_limit_bound_it_and_that_more_agents_would_not_help(shell: Shell) -> None:
    run_id = limited_run(shell.state)
    found = shell.process("report")
    assert (found.returncode, found.stderr) == (0, "")
    lines = found.stdout.splitlines()
    assert lines[0] == f"find bugs  {run_id}"
    assert lines[1] == "  state     done: 4 of 4 done"
    assert lines[2] == "  took      10 s, 4 calls, 4k tokens in and 400 out, $0.0100"
    assert lines[3] == "  foreseen  nothing: this run began without a forecast"
    (row,) = [line.split() for line in lines if "waited for input" in line]
    assert row[-6:] == ["8.0", "s", "80%", "20", "s", "71%"]
    assert "bound by input tokens a minute, waited for 80% of the time; more" in found.stdout
    assert "\x1b" not in found.stdout
    assert max(map(len, lines)) <= 100
    assert len(lines) <= 45
    told = reported(shell)
    assert wall(told, "quota", "input/60s") == 8.0
    assert told["bound"] == {
        "cause": "quota", "what": "input/60s", "share": 0.8, "straggler": None,
    }  # fmt: skip
    assert (told["foreseen"], told["refused"], told["retries"]) == (None, {}, 0)
    assert told["groups"][0]["usd"] == 0.01


def test_what_was_foreseen_is_compared_with_what_it_took(shell: Shell) -> None:
    put_document(shell.state / "runs" / limited_run(shell.state), FORECAST, encode(FORESEEN))
    found = shell("report").stdout
    assert "time    5.0 s (4.0 s to 7.0 s)" in found
    assert "+100%  outside" in found
    assert "calls   4 (3 to 5)" in found
    assert "45% of the best possible speed" in " ".join(found.split())
    compared = reported(shell)["foreseen"]["compared"]
    within = {one["name"]: one["is_within"] for one in compared}
    assert within == {"time": False, "cost": True, "calls": True, "tokens": True}


def test_an_interrupted_run_is_told_up_to_its_end(shell: Shell) -> None:
    partial_run(shell.state)
    told = reported(shell)
    assert (told["state"], told["elapsed_s"], told["retries"]) == ("interrupted", 5.0, 1)
    assert wall(told, "lost") > 0.0


def test_a_run_that_goes_on_is_told_so_far(shell: Shell) -> None:
    writer = Writer(shell.state)
    writer.tell(RunBegan(BEGAN_S, "adaptive")).finished(0, 0.0, 4.0, b"{}")
    writer.tell(TaskStarted(1, 1, BEGAN_S + 4.0, "room"))

    async def meanwhile() -> None:
        journal = await writer.write()
        journal.keep(FORECAST, encode(FORESEEN))
        await journal.flush()
        try:
            found = shell("report").stdout
            assert "running, so far: 1 of 4 done, 1 running here" in found
            assert "for a run in which every task is done" in found
            told = reported(shell)
            assert told["is_live"] is True
            assert told["elapsed_s"] > time.time() - BEGAN_S - 60.0
        finally:
            journal.close()

    asyncio.run(meanwhile())


def test_a_run_in_which_nothing_has_happened_says_so(shell: Shell) -> None:
    Writer(shell.state).close()
    found = shell("report").stdout
    assert "nothing took any time yet" in found
    assert "where the time went" not in found
    assert reported(shell)["bound"] is None


def test_refusals_and_what_was_paid_twice_are_counted(shell: Shell) -> None:
    writer = Writer(shell.state)
    writer.tell(RunBegan(BEGAN_S, "adaptive"))
    writer.tell(TaskStarted(0, 1, BEGAN_S, "room")).tell(CallWaited(0, BEGAN_S))
    writer.tell(CallAdmitted(0, BEGAN_S + 1.0))
    writer.tell(CallWaited(0, BEGAN_S + 1.5, "rate: input"))
    writer.tell(CallAdmitted(0, BEGAN_S + 9.0, "input/60s"))
    cache = CacheTokens(700.0, 200.0, 150.0)
    lost = Ending(b"", b"", 900.0, 100.0, 4000, 1, cache=cache)
    writer.tell(TaskDelayed(0, 1, BEGAN_S + 10.0, BEGAN_S + 11.0, Fault("broken"), lost))
    writer.tell(TaskSkipped(3, BEGAN_S + 11.0, 0))
    writer.finished(0, 11.0, 12.0, b"x").close()
    found = shell("report").stdout
    assert "  refused   1 call refused (1 rate: input), 1 retried" in found
    assert "  twice     1k tokens, $0.0040 paid for attempts that gave nothing" in found
    words = "700 tokens read from prompt caches, 200 written, 150 of them twice"
    assert f"  cache     {words}" in found
    assert "bound by refusals, 67% of the time" in found
    told = reported(shell)
    assert (told["refused"], told["lost"]) == ({"rate: input": 1}, {"tokens": 1000, "usd": 0.004})
    assert (told["cache_read_tokens"], told["cache_rewrite_tokens"]) == (700, 150)


def test_one_hung_task_is_named_as_what_bound_the_run(shell: Shell) -> None:
    writer = Writer(shell.state, [f"probe[{number}]" for number in range(5)])
    writer.tell(RunBegan(BEGAN_S, "adaptive"))
    for number in range(4):
        writer.finished(number, 0.0, 2.0, b"x")
    writer.finished(4, 0.0, 60.0, b"y").tell(RunFinished(BEGAN_S + 60.0, 5, 0)).close()
    found = " ".join(shell("report").stdout.split())
    assert "one slow task: probe[4] took 1 min, its like 2.0 s; a `timeout:`" in found
    assert reported(shell)["bound"]["straggler"] == "probe[4]"


def test_the_critical_path_is_named_by_its_tasks(shell: Shell) -> None:
    plan = shell.state / "plan.yaml"
    plan.write_text("headway: 1\ntasks:\n  one: {run: sleep 0.05}\n  two: {needs: one, run: ls}\n")
    assert shell.process("run", str(plan)).returncode == 0
    told = reported(shell)
    assert (told["path"]["chain"], told["path"]["is_known"]) == (["one", "two"], True)
    assert "one > two: " in shell("report").stdout


def test_a_shape_is_kept_and_without_it_only_the_longest_task_is_known(shell: Shell) -> None:
    plan = shell.state / "plan.yaml"
    plan.write_text(
        "headway: 1\ntasks:\n  list: {run: seq 2}\n"
        "  each: {each: list, run: 'printf %s \"$item\"'}\n  all: {needs: each, run: ls}\n"
    )
    assert shell.process("run", str(plan)).returncode == 0
    told = reported(shell)
    (folder,) = (shell.state / "runs").iterdir()
    with JournalReader(str(folder)) as reader:
        kept = kept_shape(reader)
    assert kept is not None
    assert [group.name for group in kept.graph.groups] == ["list", "each", "all"]
    assert kept.models == frozenset()
    assert told["path"]["is_known"]
    put_document(folder, SHAPE, None)
    assert not reported(shell)["path"]["is_known"]
    put_document(folder, SHAPE, b'[[{"name": "a", "count": 1, "needs": [[7, 0]]}], 1.0, [], null]')
    with JournalReader(str(folder)) as reader:
        assert kept_shape(reader) is None
    put_document(folder, SHAPE, b"[]", is_spoilt=True)
    assert not reported(shell)["path"]["is_known"]
    plan.unlink()
    assert shell("report").returncode == 0


def test_a_run_of_functions_is_told_without_its_program(shell: Shell) -> None:
    program = shell.state / "program.py"
    program.write_text(
        "import headway\n\n\ndef double(number):\n    return 2 * number\n\n\n"
        "if __name__ == '__main__':\n    headway.map(double, range(50), durable='doubled')\n"
    )
    root = Path(__file__).resolve().parents[2]
    environment = os.environ | {"PYTHONPATH": str(root / "src")}
    run([sys.executable, str(program)], check=True, env=environment, timeout=300)
    program.unlink()
    told = reported(shell)
    assert (told["kind"], told["state"]) == ("python", "done")
    assert told["groups"][0]["done"] == 50


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("input/60s", "input tokens a minute"),
        ("requests/60s", "requests a minute"),
        ("output/1s", "output tokens a second"),
        ("tokens/30s", "tokens in 30 s"),
        ("usage/18000s", "a usage window of 5 h"),
        ("concurrency", "concurrency"),
        ("requests", "requests in an estimated period"),
        ("", "a permit"),
        ("something new", "something new"),
    ],
)
def test_limits_are_told_in_words(name: str, words: str) -> None:
    assert limit_words(name) == words
