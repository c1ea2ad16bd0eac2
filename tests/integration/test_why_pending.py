"""Why a task has not started, from a journal alone; and words that reach a run's process."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headway.engine.events import RunBegan, TaskStarted
from headway.engine.state import Rules
from headway.errors import BadValueError
from headway.journal.reader import JournalReader
from headway.plans.graph import Graph, Need, TaskGroup
from headway.report.text.why import KnownRun, cause_of
from headway.run.launch import tell
from tests.integration.written_runs import BEGAN_S, Writer

NAMES = ("probe[a]", "probe[b]", "verdict")

OWNER = """
import os, signal, sys
from headway.base import locks as owner
lock = owner.take(sys.argv[1])
# Not by `print`: a signal may come in the middle of one.
signal.signal(signal.SIGUSR1, lambda *_: os.write(1, b"paused\\n"))
signal.signal(signal.SIGUSR2, lambda *_: os.write(1, b"goes on\\n"))
signal.signal(signal.SIGINT, lambda *_: os.write(1, b"stops\\n"))
os.write(1, b"ready\\n")
while True:
    signal.pause()
"""


def known(is_local: bool = False) -> KnownRun:
    graph = Graph((TaskGroup("probe", 2, is_local=is_local), TaskGroup("verdict", 1, (Need(0),))))
    return KnownRun(graph, Rules(), lambda group, member: NAMES[2 * group + member])


def written(state: Path, strategy: str = "fixed:1") -> Writer:
    writer = Writer(state, NAMES).tell(RunBegan(BEGAN_S, strategy))
    return writer.tell(TaskStarted(0, 1, BEGAN_S, "room"))


PLACES = "all 1 places are taken"


@pytest.mark.parametrize(
    ("strategy", "task", "is_local", "because"),
    [
        ("fixed:1", "verd", False, "needs probe[a] and probe[b], which are not finished"),
        ("fixed:1", "probe[b]", False, PLACES),
        ("fixed:1", "probe[b]", True, PLACES),
        ("adaptive", "probe[b]", True, "this machine has no room beside 1 task of this run"),
    ],
)
def test_a_task_that_has_not_started_is_told_what_keeps_it(
    tmp_path: Path, strategy: str, task: str, is_local: bool, because: str
) -> None:
    async def whole() -> None:
        writer = written(tmp_path, strategy)
        journal = await writer.write()
        try:
            with JournalReader(writer.place.folder) as reader:
                found = cause_of(reader, task, lambda: known(is_local))
        finally:
            journal.close()
        assert found.state == "not started"
        assert because in found.because

    asyncio.run(whole())


def test_without_a_process_nothing_starts(tmp_path: Path) -> None:
    writer = written(tmp_path)
    run = writer.close()
    with JournalReader(writer.place.folder) as reader:
        cause = cause_of(reader, "verdict", known)
    assert cause.because.startswith("no process performs the run (interrupted")
    assert "needs probe[a] and probe[b]" in cause.because
    assert cause.advice == f"headway resume {run}"


@pytest.mark.parametrize("word", ["nobody", "probe["])
def test_a_name_that_fits_none_or_several_is_refused(tmp_path: Path, word: str) -> None:
    writer = written(tmp_path)
    writer.close()
    with JournalReader(writer.place.folder) as reader:
        if word == "nobody":
            with pytest.raises(BadValueError, match="no task `nobody`"):
                cause_of(reader, word, known)
            with pytest.raises(BadValueError, match="no task `nobody`"):
                cause_of(reader, word, lambda: None)
        else:
            assert cause_of(reader, word, known).task == "probe[a]"


def test_words_reach_the_process_of_a_run(tmp_path: Path) -> None:
    writer = written(tmp_path)
    writer.close()
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, writer.place.folder], stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    try:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "ready\n"
        with JournalReader(writer.place.folder) as reader:
            for word, heard in (("pause", "paused"), ("continue", "goes on"), ("stop", "stops")):
                assert tell(reader, writer.place.id, word)[:2] == (True, owner.pid)
                assert owner.stdout.readline() == f"{heard}\n"
            assert tell(reader, writer.place.id, "end")[0]
            assert owner.wait(10) == -signal.SIGTERM
            assert not tell(reader, writer.place.id, "pause")[0]
    finally:
        owner.kill()
        owner.wait()
        if owner.stdout is not None:
            owner.stdout.close()
