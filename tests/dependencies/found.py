"""What `explore` and `check` say of the collected plans: `python -m tests.dependencies.found`."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from bench.markdown import table
from headway.errors import PlanError
from headway.plans.check import CheckReport, check
from headway.plans.document import absent
from headway.plans.load import load_plan, load_unrefused
from headway.report.text.explore import HEADINGS, as_json
from headway.run.explore import ExploreOptions, explore
from tests.dependencies.judge import Subject, subjects
from tests.promises.user import provider, user

DEPENDS = ("fails", "differs", "implied")


def explored(subject: Subject, folder: Path) -> dict[str, Any]:
    """What `headway explore` finds out about a plan, as for a program."""
    loaded, refusal = load_unrefused(subject.put(folder / "plan"), "plan.yaml", False)
    environment = {**os.environ, "HEADWAY_STATE_DIR": str(folder / "state")}
    before = set(sys.modules)
    try:
        return as_json(explore(loaded, environment, ExploreOptions()), refusal)
    finally:
        # Two plans may have modules of one name; a command explores one plan.
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(tempfile.gettempdir()):
                del sys.modules[name]


def said_of_pair(subject: Subject, found: dict[str, Any]) -> str:
    """The worst that is said of the pair that a plan is about."""
    said = [
        one["verdict"] for one in found["pairs"]
        if {one["first"], one["first"].partition("[")[0]} & {subject.pair[0]}
        and {one["second"], one["second"].partition("[")[0]} & {subject.pair[1]}
    ]  # fmt: skip
    order = (*DEPENDS, "unjudged", "kept", "ordered", "independent")
    return min(said, key=order.index) if said else "missing"


def checked(subject: Subject, folder: Path) -> CheckReport | None:
    """What `headway check` says of a plan; None if it refuses it."""
    try:
        loaded = load_plan(subject.put(folder / "plan"), "plan.yaml")
    except PlanError:
        return None
    return check(loaded.survey, partial(absent, loaded.folder))


def warnings(report: CheckReport | None) -> int:
    return 1 if report is None else len(report.warnings)


def is_cleared(report: CheckReport | None) -> bool:
    """Whether every task was judged, and nothing was found."""
    return report is not None and not (
        report.warnings or report.not_judged or any(one.other for one in report.remarks)
    )


def workflow_rows(folder: Path) -> list[list[str]]:
    """What is said of the workflows of the docs, before any of them runs."""
    rows = []
    for number, subject in enumerate(subjects("workflows")):
        report = checked(subject, folder / f"c{number}")
        found = explored(subject, folder / f"e{number}")
        assert report is not None
        said = [one.message for one in report.remarks if one.severity == "warning"]
        said += [f"not judged: {', '.join(f'`{name}`' for name in report.not_judged)}"] * bool(
            report.not_judged
        )
        verdicts = "; ".join(
            f"{one['first']}, {one['second']}: {HEADINGS[one['verdict']]}" for one in found["pairs"]
        )
        rows.append([subject.name, "; ".join(said) or report.answers[-1], verdicts])
    return rows


TWENTY = ["plan", "order matters", "embarrassingly parallel?", "judged by"]


def twenty() -> list[tuple[Subject, bool]]:
    """Ten plans whose order matters, and ten others: the first of each way, as far as they go."""
    first: dict[str, dict[str, Subject]] = {"broken": {}, "good": {}}
    for kind, ways in first.items():
        for subject in subjects(kind):
            ways.setdefault(subject.way, subject)
    good = [*first["good"].values(), *subjects("good")[-3:]]
    broken = list(first["broken"].values())
    return [(one, True) for one in broken[:10]] + [(one, False) for one in good[:10]]


def parallel_rows(folder: Path) -> list[list[str]]:
    rows = []
    for number, (subject, is_broken) in enumerate(twenty()):
        report = checked(subject, folder / str(number))
        assert report is not None
        told = ["yes" if is_broken else "no", report.answers[0], report.answers[-1]]
        rows.append([str(subject), *told])
    return rows


CLAUDE = Path(__file__).parents[1] / "integration" / "fake_claude.py"
"""Speaks as Claude Code does."""


def said_by_runs(folder: Path) -> list[str]:
    """What a run says of each workflow that performs one task after another, in declared order."""
    agent = folder / "bin" / "claude"
    agent.parent.mkdir(parents=True)
    agent.write_text(f'#!/bin/sh\nexec {sys.executable} {CLAUDE} "$@"\n')
    agent.chmod(0o755)
    said = []
    with provider() as api:
        told = {"ANTHROPIC_BASE_URL": api.url, "ANTHROPIC_API_KEY": "k",
                "PATH": os.pathsep.join((str(agent.parent), os.environ["PATH"]))}  # fmt: skip
        for number, subject in enumerate(subjects("workflows")):
            with user(folder / str(number), told) as owner:
                subject.put(owner.folder)
                ran = owner.headway("run", "-j", "1", "--json", "--yes", "plan.yaml")
                found = [json.loads(line) for line in ran.stdout.splitlines()]
                said.append(_run_words(found[-1] if found else {}, ran.stderr))
    return said


def _run_words(end: dict[str, Any], err: str) -> str:
    words = [one["words"] for one in end.get("findings", ())]
    words += [folder["diffstat"] or "landed, in declared order"
              for folder in end.get("landed", {}).get("folders", ())]  # fmt: skip
    return "; ".join(words) or err.strip().partition("\n")[0] or "nothing"


WORKFLOWS = [
    "workflow",
    "`headway check` warns",
    "`headway explore` finds",
    "`headway run -j 1` says",
]


def main() -> None:
    """Prints the table of the docs; what is wrong stands above it."""
    counts: Counter[tuple[str, str]] = Counter()
    for kind in ("broken", "good"):
        for subject in subjects(kind):
            with tempfile.TemporaryDirectory() as folder:
                found = explored(subject, Path(folder))
                report = checked(subject, Path(folder))
            said = said_of_pair(subject, found)
            counts[kind, "plans"] += 1
            counts[kind, "explore: depend"] += said in DEPENDS
            counts[kind, "explore: all-clear"] += found["is_clear"]
            counts[kind, "check: warns"] += warnings(report) > 0
            counts[kind, "check: all judged, no warning"] += is_cleared(report)
            if found["is_clear"] is (kind == "broken"):
                print(kind, subject, said, found["pairs"])
    said_of = list(dict.fromkeys(what for _, what in counts))
    rows = [[kind, *(str(counts[kind, what]) for what in said_of)] for kind in ("broken", "good")]
    print(table(["plans that are", *said_of], rows))


if __name__ == "__main__":
    main()
