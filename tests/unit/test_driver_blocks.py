"""Blocks and lenient needs as works see them: who is given or missing, what a resume repeats."""

from __future__ import annotations

import pytest

from headway.plans.graph import Graph, Need, TaskGroup
from headway.work import Attempt, Result
from tests.unit.driven import Scene, ScriptedWork, after, fails


async def _given(attempt: Attempt) -> Result:
    """Who is given to it of whatever it needs, and who is missing."""
    for name in ("map", "sum/1"):
        given = " ".join(one.body.decode() for one in attempt.needed(name))
        missing = " ".join(attempt.missing(name))
        if given or missing:
            return Result(f"<{given}|{missing}>".encode())
    return Result(b"nothing")


def _tree(count: int | None, *, is_lenient: bool = True) -> Graph:
    """A list, a map over it, blocks of three of it, and all of those."""
    return Graph([
        TaskGroup("list", 1),
        TaskGroup("map", count, (Need(0),)),
        TaskGroup("sum", 1, (Need(3),)),
        TaskGroup("sum/1", None if count is None else -(-count // 3), (Need(1, 3, is_lenient),)),
    ])  # fmt: skip


def _works(*failing: int, words: bytes = b"a b c d e") -> tuple[ScriptedWork, ...]:
    return (
        ScriptedWork("list", after(1.0, words), is_group=False),
        ScriptedWork("map", fails(*failing), spread_over="list"),
        ScriptedWork("sum", _given, is_group=False),
        ScriptedWork("sum/1", _given),
    )


def _result(scene: Scene, name: str) -> str:
    row = next(row for row in scene.record.rows.values() if row.name == name)
    return scene.record.bodies[row.ending.body].decode()


@pytest.mark.parametrize("count", [5, None])
def test_a_member_is_given_its_block_and_told_who_is_missing(count: int | None) -> None:
    scene = Scene(_tree(count), _works(1))
    finished = scene.run().finished
    assert (finished.finished, finished.failed, finished.skipped) == (8, 1, 0)
    assert _result(scene, "sum/1[0]") == "<map[0] map[2]|map[1]>"
    assert _result(scene, "sum/1[1]") == "<map[3] map[4]|>"
    assert _result(scene, "sum") == "<<map[0] map[2]|map[1]> <map[3] map[4]|>|>"


def test_a_group_behind_an_empty_one_that_follows_an_empty_one_is_found() -> None:
    graph = Graph([
        TaskGroup("words"),
        TaskGroup("list"),
        TaskGroup("map", None, (Need(1),)),
        TaskGroup("sum/1", None, (Need(2, block=4),)),
        TaskGroup("each", None, (Need(0), Need(3))),
    ])  # fmt: skip
    works = (
        ScriptedWork("words", after(1.0, b"a b c"), is_group=False),
        ScriptedWork("list", after(2.0, b""), is_group=False),
        ScriptedWork("map", spread_over="list"),
        ScriptedWork("sum/1"),
        ScriptedWork("each", spread_over="words"),
    )
    assert Scene(graph, works).run().finished.finished == 5
