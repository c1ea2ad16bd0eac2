"""A part of Python's standard library is counted by a model and summed by a tree of its calls."""

from __future__ import annotations

from pathlib import Path
from random import Random

from tests.integration.stdlib_scene import counted, must_be_paid_once, must_be_true, true_files

EVERY = 20
"""Of the library's files, in the order of their names."""

SEED = 7


def test_sums_of_two_contexts_and_of_a_killed_run_are_what_ast_says(tmp_path: Path) -> None:
    assert len(true_files(EVERY)) >= 35
    killed = counted(tmp_path / "small", 2000, EVERY, [Random(SEED).randrange(20, 180)])
    assert len(killed.kills) == 1
    must_be_true(killed, 2000, EVERY)
    must_be_paid_once(killed)
    assert killed.levels >= 3
    other = counted(tmp_path / "large", 8000, EVERY)
    must_be_true(other, 8000, EVERY)
    assert other.paid_twice == other.cut_off == 0
    assert other.total == killed.total
    assert len(other.visits) < len(killed.visits) / 2
