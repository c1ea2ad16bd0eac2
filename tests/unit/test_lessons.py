"""What a run teaches the next one of the same plan: who waits for whom, and what is said of it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from headway.plans.graph import Graph, TaskGroup
from headway.plans.resources import ANYTHING
from headway.report.text.runs import _words
from headway.state.coherence import Coherence, Hints
from headway.state.learned_edges import FOLDER, Lesson, hints_for, lessons_of, recall, remember
from headway.state.shared import Shared

GRAPH = Graph(tuple(TaskGroup(name, 9, touches=ANYTHING) for name in ("parse", "enrich", "check")))
PLAN = "/plans/plan.yaml"


@pytest.fixture
def told(tmp_path: Path) -> dict[str, str]:
    return {"HEADWAY_STATE_DIR": str(tmp_path)}


def test_a_lesson_names_tasks_and_what_they_share() -> None:
    coherence = Coherence(GRAPH, Shared())
    coherence.learned[0, 2] = dict.fromkeys(("records/*", "records/1", "total"))
    coherence.learned[0, 1] = dict.fromkeys(("**",))
    coherence.learned[1, 2] = dict.fromkeys(f"records/{n}/a" for n in range(9))
    assert lessons_of(GRAPH, coherence) == (
        Lesson("parse", "enrich", ("",)),
        Lesson("parse", "check", ("records", "total")),
        Lesson("enrich", "check", ("records",)),
    )


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"version": 2, "plan": "/plans/plan.yaml", "lessons": []}',
             '{"version": 1, "plan": "/plans/plan.yaml", "lessons": [{"writer": 1}]}',
             '{"version": 1, "plan": "/elsewhere", "lessons": []}'],
)  # fmt: skip
def test_what_cannot_be_read_teaches_nothing(told: dict[str, str], text: str) -> None:
    remember(told, PLAN, (Lesson("parse", "check", ("a",)),))
    (name,) = os.listdir(os.path.join(told["HEADWAY_STATE_DIR"], FOLDER))
    Path(told["HEADWAY_STATE_DIR"], FOLDER, name).write_text(text)
    assert recall(told, PLAN) == ()
    remember(told, PLAN, (Lesson("parse", "check", ("b",)),))
    assert recall(told, PLAN) == (Lesson("parse", "check", ("b",)),)


def test_lessons_of_tasks_that_are_gone_are_no_hints() -> None:
    lessons = (Lesson("parse", "check", ("a",)), Lesson("parse", "enrich", ("b",)),
               Lesson("gone", "check", ("c",)), Lesson("parse", "gone", ("d",)))  # fmt: skip
    assert hints_for(GRAPH, lessons) == Hints({2: ("a",), 1: ("b",)}, {0: ("a", "b")})


def test_no_more_is_kept_than_a_plan_needs(told: dict[str, str]) -> None:
    remember(told, PLAN, (Lesson(f"t{n}", "check", ("a",)) for n in range(1_100)))
    kept = recall(told, PLAN)
    assert (len(kept), kept[-1].writer) == (1_000, "t1099")
    (name,) = os.listdir(os.path.join(told["HEADWAY_STATE_DIR"], FOLDER))
    assert json.loads(Path(told["HEADWAY_STATE_DIR"], FOLDER, name).read_text())["version"] == 1


def test_what_would_avoid_it_is_said() -> None:
    assert _words(Lesson("parse", "check", ("total",))) == (
        "`check` reads `total`, which `parse` writes. It waits next time; to say so in the plan, "
        "add `needs: parse` in `check`, or `writes: state:total` there and `reads: state:total` "
        "here"
    )
    assert "`check` is shown the whole state" in _words(Lesson("parse", "check", ("",)))
    assert _words(Lesson("check", "check", ("total",))) == (
        "tasks of `check` read `total` that others of them write; to do them one by one, add "
        "`queue: check` to `check`"
    )
