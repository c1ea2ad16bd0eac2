"""The detector of a plan's run: how it is made, and what is asked of it when the run is over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

from headway.core.detect import Done
from headway.runtime.detector import Detector, Mode, keep_findings
from headway.runtime.earlier import earlier, recalled
from headway.runtime.folders import folders
from headway.runtime.journal_reader import JournalReader
from headway.runtime.planrun import PlanRun
from headway.runtime.runs import list_runs
from headway.runtime.subject import subject_of_plan


def detector_of(mode: Mode, run: PlanRun, run_folder: str) -> Detector:
    """Whoever watches a run of a plan's file."""
    plans, crew = run.plans, run.crew
    subject = subject_of_plan(
        lambda: plans.expanded, run.launch.graph, crew.channels, crew.folder, run_folder
    )
    return Detector(mode, subject)


def findings_of(
    detector: Detector, run: PlanRun, run_folder: str, environment: Mapping[str, str]
) -> list[dict[str, object]]:
    """What was found in a run that is over; it is kept beside its journal too."""
    if detector.mode == "off":
        return []
    stateful = [group.touches is not None for group in run.launch.graph.groups]
    before: list[Done] = []
    if any(stateful):
        with JournalReader(run_folder) as reader:
            header = reader.header
            _recall(detector, run, reader, stateful)
        before = earlier(list_runs(folders(environment).state), header)
    found = detector.findings(before)
    keep_findings(run_folder, found)
    return [asdict(one) for one in found]


def _recall(
    detector: Detector, run: PlanRun, reader: JournalReader, stateful: Sequence[bool]
) -> None:
    """Tell the detector what tasks touched whose results are from another process."""
    # Inner levels of reductions stand behind the declared groups, and touch nothing.
    counts = [
        group.count or 0 if stateful[group.index] else 0 for group in run.plans.expanded.groups
    ]
    if detector.statistics().done >= sum(counts):
        return  # Everything was done here.
    for done in recalled(reader, run.works, counts):
        if not detector.knows(done.group, done.member):
            is_function = done.group in detector.subject.functions
            detector.note(replace(done, is_function=is_function))
