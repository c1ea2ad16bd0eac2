"""Plans that are checked and really run, to see what `check` and the detector say of them."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, cast

import yaml
from msgspec import Struct
from msgspec.structs import replace

from headway.errors import PlanError
from headway.plans.check import check
from headway.plans.hazards import Remark
from headway.plans.load import plan_from
from headway.report.findings import Finding
from headway.run.launch import launch
from headway.run.observe import Mode, Observer, subject_of_plan
from headway.run.plan_run import PlanSource, plan_run
from headway.run.run_context import Crew
from tests.coherence.doing import Scene, on
from tests.coherence.handwritten import Hand
from tests.coherence.plans import Declared, Generated, Mutant, Touch, mutants

MODULE = "tests.coherence.doing"


class Mutated(Struct, frozen=True):
    """What was done to a plan: whoever finds it names the task or what is concerned."""

    task: str
    """Its declared name, or that of a member."""
    what: str = ""
    """The path, the key, the channel or the queue, as declared."""

    def __str__(self) -> str:
        return f"{self.task} {self.what}".strip()

    def is_named(self, words: str) -> bool:
        """Whether somebody speaks of this, and not of something else in the same plan."""
        return _is_named(self.task, words) or _is_named(self.what, words)


def _is_named(name: str, words: str) -> bool:
    """A name by itself; of one with holes or wildcards, the folder before them."""
    fixed = re.split(r"/?(?:\{\{|[*?])", name.partition(":")[2] or name)[0]
    return bool(fixed) and re.search(rf"(?<![\w-]){re.escape(fixed)}(?![\w-])", words) is not None


class Verdict(Struct, frozen=True):
    refused: str = ""
    remarks: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What `check` says of a plan that gives what is meant all the same, but costs more."""
    findings: tuple[Finding, ...] = ()
    failed: int = 0

    @property
    def is_clean(self) -> bool:
        return not self.said and not self.failed

    @property
    def said(self) -> list[str]:
        found = [f"{one.kind}: {one.task} {one.what} {one.other}: {one.words}"
                 for one in self.findings]  # fmt: skip
        return [one for one in (self.refused, *self.remarks, *self.notes, *found) if one]

    def __str__(self) -> str:
        return "\n".join(self.said) or "nothing"


def judged(text: str, folder: Path, mode: Mode = "warn", *, learns: bool = False) -> Verdict:
    """Check a plan, and if it is not refused, run it."""
    try:
        loaded = plan_from(text, folder, "plan.yaml", False)
    except PlanError as error:
        return Verdict(refused=error.render())
    remarks = check(loaded.survey).remarks
    warnings = tuple(in_words(one) for one in remarks if one.severity == "warning")
    notes = tuple(in_words(one) for one in remarks if one.kind == "runs again")
    source = PlanSource(str(folder / "plan.yaml"), text)
    state = folder.parent / "state"
    environment = {"XDG_STATE_HOME": str(state), "HOME": str(state)}
    run = plan_run(loaded.expanded, source, Crew(str(folder), str(state), "run", environment))
    subject = subject_of_plan(
        lambda: run.plans.expanded, run.launch.graph, run.crew.channels, str(folder), str(state)
    )
    observer = Observer(mode, subject, learns=learns, run_folder=str(state))
    over = asyncio.run(launch(observer.around(run.launch, run.crew.shim())))
    return Verdict("", warnings, notes, observer.findings(), over.outcome.finished.failed)


def in_words(remark: Remark) -> str:
    return f"{remark.kind}: {remark.task} {remark.what}: {remark.message} ({remark.detail})"


def verdict_on(plan: Generated, folder: Path, aliasing: str = "", changes: str = "read") -> Verdict:
    """What is said of a generated plan whose tasks do what the truth says."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in plan.files if not plan.scheme else ():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)

    def work(task: Declared) -> dict[str, object]:
        return {"python": f"{MODULE}:act", "vars": {"task": task.name}}

    with on(Scene(str(folder), plan.truth, aliasing, changes)):
        return judged(plan.text(work), folder)


def seeded(plan: Generated) -> Generated:
    """The same plan, where a task puts what is there before the run: keys come from tasks."""
    if not plan.scheme:
        return plan
    first = Declared("seed", writes=plan.files)
    truth = {"seed": Touch((), plan.files), **plan.truth}
    return replace(plan, tasks=(first, *plan.tasks), truth=truth)


def one_of(plan: Generated, kinds: tuple[str, ...]) -> Mutant | None:
    """One mutant of these kinds, chosen by the plan's seed."""
    choices = [
        one
        for one in mutants(plan)
        if one.kind in kinds and one.task != "seed" and not _is_declared(plan, one)
    ]
    return Random(plan.seed).choice(choices) if choices else None


def _is_declared(plan: Generated, mutant: Mutant) -> bool:
    """Whether what an intruder writes is what its task may write anyway."""
    task = next(one for one in plan.tasks if one.name == mutant.task)
    return mutant.kind == "undeclared write" and mutant.entry in task.writes


def alias_of(plan: Generated) -> tuple[str, str]:
    """A task of a plan that may change a value in place, and which."""
    rng = Random(plan.seed)
    changes = rng.choice(("read", "put"))
    every = [
        label
        for label, touch in plan.truth.items()
        if label != "seed" and (touch.reads if changes == "read" else touch.writes)
    ]
    return rng.choice(every), changes


def verdict_on_hand(hand: Hand, text: str, folder: Path) -> Verdict:
    """What is said of a plan that was written by hand, as it is or changed."""
    folder.mkdir(parents=True)
    for name, content in hand.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    here = os.getcwd()
    os.chdir(folder)
    try:
        return judged(text, folder)
    finally:
        os.chdir(here)


def hand_mutants(text: str) -> Iterator[tuple[str, Mutated, str]]:
    """Every kind of change of a plan, what it is, and the plan that comes of it."""
    plan = yaml.safe_load(text)
    for name, task in plan["tasks"].items():
        for key in ("reads", "writes"):
            for entry in _listed(task.get(key)):
                rest = [one for one in _listed(task[key]) if one != entry]
                mutated = Mutated(name, entry)
                yield "deleted", mutated, _changed(plan, name, {key: rest or None})
        if "python" not in task:
            continue
        for other, what in _written(plan):
            if other != name and not _may_write(task, what):
                how = "puts" if what.startswith("state:") else "writes"
                meddles = f"{how} {what.removeprefix('state:')}"
                yield "undeclared", Mutated(name, what), _meddling(plan, name, meddles)
                break
        for entry in _listed(task.get("reads")):
            if entry.startswith("state:"):
                what = entry.removeprefix("state:").replace("{{ item }}", "ITEM")
                kind = plan.get("state", {}).get(what, "value")
                if kind not in ("counter", "max"):
                    mutated = Mutated(name, entry)
                    yield "aliasing", mutated, _meddling(plan, name, f"changes {what}")


def _listed(entries: object) -> list[str]:
    return [entries] if isinstance(entries, str) else list(cast("list[str]", entries or []))


def _changed(plan: dict[str, Any], name: str, change: dict[str, object]) -> str:
    task = {**plan["tasks"][name], **change}
    task = {key: value for key, value in task.items() if value is not None}
    return json.dumps({**plan, "tasks": {**plan["tasks"], name: task}})


def _meddling(plan: dict[str, Any], name: str, meddles: str) -> str:
    variables = {"target": plan["tasks"][name]["python"], "meddles": meddles}
    return _changed(plan, name, {"python": f"{MODULE}:meddled", "vars": variables})


def _written(plan: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What tasks write, of each member the first: values and paths, nothing that adds up."""
    kinds = plan.get("state", {})
    for name, task in plan["tasks"].items():
        for entry in _listed(task.get("writes")):
            key = entry.removeprefix("state:")
            if not entry.startswith("effect:") and kinds.get(key, "value") == "value":
                yield name, entry.replace("{{ item }}", str(task.get("each", [""])[0]))


def _may_write(task: dict[str, Any], what: str) -> bool:
    own = [entry.partition("{{")[0] for entry in _listed(task.get("writes"))]
    return any(what.startswith(entry) for entry in own)
