"""Pairs that merge cleanly as text and are wrong end with the serial result; peers beside it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec import Struct

from tests.workspaces.pairs import Pair, pairs
from tests.workspaces.peers import merge_queue, passes, serial, text_merge
from tests.workspaces.stage import Scene, difference, staged

PAIRS = pairs()
WAIT_S = 10

WAYS = {
    "exact": "workspace: on\nland: exact\n",
    "verified": "workspace: on\nland: verified\n",
    "exact, copies": "workspace: {mode: copy}\nland: exact\n",
}
"""Keys of the plan."""


class Ending(Struct):
    """What a way made of a pair."""

    fault: str
    """Empty if it ended as the serial run, in at most two attempts for each task."""
    starts: dict[str, int] = {}


def scripts_of(scene: Scene, pair: Pair) -> tuple[dict[str, str], dict[str, str], str]:
    """Commands for a serial run, for one at the same time where A ends after B, and the test."""
    alone = {"a": scene.script("a-alone", pair.a), "b": scene.script("b-alone", pair.b)}
    at_once = {
        "a": scene.script("a", f"await b.end {WAIT_S}\n{pair.a}"),
        "b": scene.script("b", f"await a.start {WAIT_S}\n{pair.b}"),
    }
    return alone, at_once, scene.script("test", pair.test)


def plan_of(way: str, test: str) -> str:
    verify = f"    verify: {test}\n" if way == "verified" else ""
    tasks = "".join(
        f"  {name}:\n    agent: scripted\n    prompt: Please perform {name}.\n{verify}"
        for name in ("a", "b")
    )
    return f"headway: 1\n{WAYS[way]}tasks:\n{tasks}"


def through_headway(root: Path, pair: Pair, way: str) -> Ending:
    """Both at once in workspaces; what is wrong with what has landed."""
    with staged(root) as scene:
        alone, _, test = scripts_of(scene, pair)
        scene.repository(pair.files, plan_of(way, test))
        right = serial(scene, root / "serial", alone)
        before = scene.tree()
        done = scene.run("-j", "2")
        said = done.stdout + done.stderr
        starts = {name: scene.gate.starts()[name] for name in ("a", "b")}
        if done.returncode:
            return Ending(f"exit {done.returncode}: {said}", starts)
        if wrong := difference(scene.tree(), before):
            return Ending(f"the checkout has changed: {wrong}", starts)
        applied = scene.apply()
        if applied.returncode:
            return Ending(f"not applied: {applied.stderr}", starts)
        wrong = difference(scene.tree(), right.tree)
        if starts["b"] > 2 or starts["a"] > 1:
            wrong += f"\nstarted too often: {starts}"
        return Ending(f"{wrong}\n{said}" if wrong else "", starts)


def through_git(root: Path, pair: Pair) -> dict[str, Ending]:
    """What worktrees with a text merge, and with a merge queue that tests, make of it."""
    found = {}
    with staged(root) as scene:
        alone, at_once, test = scripts_of(scene, pair)
        scene.repository(pair.files, "headway: 1\n")
        right = serial(scene, root / "serial", alone)
        assert passes(scene, root / "judged", right.tree, test)
        merged = text_merge(scene, root / "merge", at_once)
        queued = merge_queue(scene, root / "queue", at_once, test, is_ordered=True)
        for name, ending in (("text merge", merged), ("merge queue", queued)):
            assert ending.is_merged, f"{name}: it does not merge as text"
            found[name] = Ending(difference(ending.tree, right.tree))
        assert not passes(scene, root / "judged", merged.tree, test)
    return found


def say_name(pair: Pair) -> str:
    return re.sub(r"\W+", "-", str(pair))


@pytest.mark.soak
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("pair", PAIRS, ids=say_name)
def test_a_pair_that_only_merges_as_text_ends_as_one_after_the_other(
    tmp_path: Path, pair: Pair, way: str
) -> None:
    assert not through_headway(tmp_path, pair, way).fault


@pytest.mark.parametrize("way", ["exact", "verified"])
def test_a_renamed_function_and_a_new_caller_end_as_one_after_the_other(
    tmp_path: Path, way: str
) -> None:
    assert not through_headway(tmp_path, PAIRS[0], way).fault
