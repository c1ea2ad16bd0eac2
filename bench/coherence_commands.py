"""The catalogue on a real run of a plan file whose tasks are commands.

A command has two steps: it starts, and sees the state of that moment; it ends, and what it left is
taken. So that the first can be put off, every task needs one of its own that only waits.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from bench import coherence_command
from bench.coherence_conductor import Conductor, Ends, doorway
from bench.coherence_functions import Ran
from headway.engine.events import Event, TaskFinished, TaskStarted
from headway.plans.load import plan_from
from headway.run.launch import launch
from headway.run.plan_run import PlanSource, plan_run
from headway.run.run_context import Crew
from tests.coherence.catalogue_plays import Case
from tests.coherence.harness import Outcome

STEPS: Final = 2
EVERYWHERE: Final = 1 << 62
"""A position behind all tasks."""


def perform(case: Case, orders: Sequence[Sequence[int]], is_declared: bool = False) -> Ran:
    """Interleavings of starts and ends, each in a run of its own."""
    found = [_run(case, order, is_declared) for order in orders]
    return Ran(tuple(outcome for outcome, _ in found), sum(reran for _, reran in found))


def _run(case: Case, order: Sequence[int], is_declared: bool) -> tuple[Outcome, int]:
    count = len(case.tasks)
    conductor = Conductor(_with_doors(order, count), first=count)

    def told(events: Sequence[Event]) -> None:
        conductor.told(_noted(events, count, is_declared))

    with tempfile.TemporaryDirectory() as place:
        folder, door = Path(place), Path(place) / "door"
        text = json.dumps(_plan(case, str(door), is_declared))
        expanded = plan_from(text, folder, "plan.yaml", False).expanded
        environment = dict(os.environ) | {"XDG_STATE_HOME": place, "HOME": place}
        own = folder / "runs" / "run"
        own.mkdir(parents=True)
        crew = Crew(place, str(own), "run", environment)
        source = PlanSource(str(folder / "plan.yaml"), text, "all-at-once", has_gateway=False)
        run = replace(plan_run(expanded, source, crew).launch, watch=told)
        with doorway(conductor.turn_of_current, door):
            over = asyncio.run(launch(run))
        observed = tuple((folder / f"observed-{n}").read_text() for n in range(count))
    assert run.sharing is not None
    shared = run.sharing.coherence.shared
    state = {key: _value(data) for key, data, _ in shared.matching("**", EVERYWHERE)}
    failed = sum(one.endswith("failed") for one in observed)
    aborts = over.outcome.finished.failed - failed
    return Outcome(state, observed, aborts), run.sharing.coherence.reruns


def _value(data: bytes) -> object:
    """A value that a command wrote: JSON as it sees it, and a text as its file was taken."""
    found: object = json.loads(data)
    return json.loads(found) if isinstance(found, str) else found


def _noted(
    events: Sequence[Event], count: int, is_declared: bool
) -> Iterator[tuple[int, TaskStarted | Ends]]:
    """What concerns the conductor. Whoever has waited is followed by the task that needs it.

    Of a plan that declares what its tasks touch that is not certain: they wait for each other.
    """
    for event in events:
        if isinstance(event, TaskStarted | Ends) and event.task:
            yield event.task - 1, event
            if isinstance(event, TaskFinished) and event.task <= count and not is_declared:
                after = event.task + count
                yield after - 1, TaskStarted(after, 1, event.at_s, "its need is done")


def _with_doors(order: Sequence[int], count: int) -> list[int]:
    """The first step of a task is that of the one that it needs."""
    begun: set[int] = set()
    found = []
    for task in order:
        found.append(task + count if task in begun else task)
        begun.add(task)
    return found


def _plan(case: Case, door: str, is_declared: bool) -> dict[str, object]:
    """A plan: what the state begins with, who waits, and the tasks; in this order."""
    count = len(case.tasks)
    tasks: dict[str, dict[str, object]] = {
        "begin": {
            "run": _command("begin", case.name),
            "reads": [],
            "writes": [f"state:{key}" for key in case.start],
        }
    }
    for number in range(count):
        run = _command("open", door, number)
        tasks[f"open-{number}"] = {"run": run, "needs": "begin", "reads": [], "writes": []}
    for number, task in enumerate(case.tasks):
        said: dict[str, object] = {
            "run": _command("play", door, number + count, case.name, number),
            "needs": f"open-{number}",
        }
        if is_declared:
            said["reads"] = [f"state:{key}" for key in task.reads]
            said["writes"] = [f"state:{key}" for key in task.writes]
        tasks[f"task-{number}"] = said
    return {
        "headway": 1,
        "name": "case",
        "state": dict(case.channels),
        "retries": 0,
        "tasks": tasks,
    }


def _command(*arguments: object) -> str:
    return shlex.join([sys.executable, "-S", coherence_command.__file__, *map(str, arguments)])
