"""Why a task has not started, from a journal alone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headway.engine.events import RunBegan, TaskStarted
from headway.engine.state import Rules
from headway.errors import BadValueError
from headway.journal.reader import JournalReader
from headway.plans.graph import Graph, Need, TaskGroup
from headway.report.text.why import KnownRun, explain
from tests.integration.written_runs import BEGAN_S, Writer

NAMES = ("probe[a]", "probe[b]", "verdict")


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
                found = explain(reader, task, lambda: known(is_local))
        finally:
            journal.close()
        assert found.state in ("queued", "waiting for a task")
        assert because in found.because

    asyncio.run(whole())


def test_without_a_process_nothing_starts(tmp_path: Path) -> None:
    writer = written(tmp_path)
    run = writer.close()
    with JournalReader(writer.place.folder) as reader:
        cause = explain(reader, "verdict", known)
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
                explain(reader, word, known)
            with pytest.raises(BadValueError, match="no task `nobody`"):
                explain(reader, word, lambda: None)
        else:
            assert explain(reader, word, known).task == "probe[a]"
