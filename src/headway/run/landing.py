"""What the workspaces of a run come to: which tasks landed, on which commit, and how to apply it.

Laws:
- What landed is what the journal says: the kept attempts of finished tasks, in declared order.
- Landing again gives the same commits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from headway.base.folders import folders
from headway.errors import UsageError
from headway.journal.documents import (
    LANDED,
    LandedFolder,
    LandedTask,
    Landing,
    ScoredLanding,
    keep,
    kept,
)
from headway.run.resume import EVERYWHERE
from headway.run.workspaces import ROOTS, KeptAttempt, few, kept_attempt
from headway.state.coherence import TaskPositions
from headway.workspaces.store import WorkspaceStore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headway.journal.journal import Journal
    from headway.journal.reader import JournalReader
    from headway.run.plan_run import PlanRun


def land(run: PlanRun, journal: Journal) -> Landing:
    """Put what finished tasks have done in workspaces onto the run's ref, in declared order."""
    roots = kept(journal.reader, ROOTS, dict[str, tuple[str, str]])
    if not roots:
        return Landing()
    attempts = list(_finished(run, journal.reader))
    found = []
    for root, (folder, base) in sorted(roots.items()):
        tasks = tuple(
            LandedTask(name, key.hex(), one.changes, one.other_refs)
            for name, key, one in attempts
            if one.root == root
        )
        store = store_of(journal.folder, folder, base, run.crew.environment)
        commit = store.land([(task.name, task.changes) for task in tasks])
        files: dict[str, str | None] = {}
        for task in tasks:
            files |= task.changes
        summary = store.diffstat({}, files).strip().rpartition("\n")[2].strip()
        found.append(LandedFolder(root, folder, base, tasks, commit, summary))
    landing = Landing(
        tuple(found), tuple(_remarks(attempts)), _scores(run, journal, found, attempts)
    )
    keep(journal, LANDED, landing)
    return landing


def _scores(
    run: PlanRun, journal: Journal, every: Sequence[LandedFolder],
    attempts: Sequence[tuple[str, bytes, KeptAttempt]],
) -> tuple[ScoredLanding, ...]:  # fmt: skip
    from headway.run.objective import Objective, landing_scores, scored_folder

    spec, crew = run.plans.expanded.spec, run.crew
    if not spec.objective:
        return ()
    one = scored_folder(every)
    tasks = [(name, attempt) for name, _, attempt in attempts if attempt.root == one.root]
    if spec.is_ratchet:  # Each landing was judged by it.
        return tuple(
            ScoredLanding(name, *attempt.scores, attempt.has_verify or None)
            for name, attempt in tasks
        )
    sharing = run.launch.sharing
    shared = [] if sharing is None else sharing.coherence.shared.matching("**", EVERYWHERE)
    store = store_of(journal.folder, one.folder, one.base, crew.environment)
    objective = Objective(spec.objective, crew.environment, journal.folder)
    return landing_scores(objective, store, tasks, {key: data for key, data, _ in shared})


def most_more(run: PlanRun) -> str:
    """The most that a run may take on top, because work is sent back or files change, in words."""
    spec, tasks, more, rounds = run.plans.expanded.spec, 0, 0, 0
    for group in run.plans.expanded.groups:
        workspace, count = spec.workspace_of(group.task), group.count or 0
        rounds += count if group.round is not None and group.round.number > 1 else 0
        if workspace is not None:
            tasks += count
            more += count * (workspace.reruns or 0)
    words = [f"revise: up to {rounds:,} tasks more, if work is sent back"] if rounds else []
    if tasks > 1 and more:
        words.append(
            f"workspaces: {tasks} tasks; if files that they read change meanwhile, up to {more} of "
            f"their runs are repeated, at most {1 + more / tasks:.1f} times the tokens"
        )
    return "\n".join(words)


def store_of(
    run_folder: str, folder: str, base: str, environment: Mapping[str, str]
) -> WorkspaceStore:
    return WorkspaceStore.open(folder, run_folder, folders(environment).state, base)


def landing_of(reader: JournalReader) -> Landing:
    """What landed in a run, as it was kept at its end; UsageError if it had no workspaces."""
    found = kept(reader, LANDED, Landing)
    if found is None:
        raise UsageError(
            f"nothing of {reader.header.run} has landed: none of its tasks worked in a workspace, "
            "or it was killed before its end",
            hint=f"headway resume {reader.header.run}",
        )
    return found


def _finished(run: PlanRun, reader: JournalReader) -> Iterator[tuple[str, bytes, KeptAttempt]]:
    """The kept attempts of finished tasks, in declared order."""
    graph, works = run.launch.graph, run.works
    positions = TaskPositions(graph)
    members = [
        (positions.task(index, member), works[index], member)
        for index, group in enumerate(run.plans.expanded.groups)
        for member in range(group.count or 0)
    ]
    for _, work, member in sorted(members, key=lambda one: one[0]):
        key = work.key(member)
        row = reader.row(key)
        if row is not None and row.state == "finished":
            one = kept_attempt(reader, key)
            if one is not None and not one.is_failed:
                yield work.label(member), key, one


def _remarks(attempts: Sequence[tuple[str, bytes, KeptAttempt]]) -> Iterator[str]:
    outside: dict[tuple[str, ...], list[str]] = {}
    for name, _, one in attempts:
        if one.outside:
            outside.setdefault(tuple(topmost(one.outside)), []).append(name)
    for paths, names in outside.items():
        verb = "wrote outside of its workspace" if len(names) == 1 else "wrote outside of theirs"
        yield f"{few(names)} {verb}: {few(paths)}"
    for name, _, one in attempts:
        if one.refused:
            yield (
                f"{name} works in a copy and was kept from writing into your folder by absolute "
                f"paths: {few(one.refused)}"
            )
        if one.left_out:
            yield f"{name} left what cannot be kept: {few(one.left_out)}"
        if one.other_refs:
            yield (
                f"{name} left commits that its files do not show: {few([*one.other_refs])}; "
                "`--branches` makes branches of them too"
            )
        if one.checks and not one.is_checked:
            yield (
                f"{name} was checked before other work landed, and not since: "
                f"{few(one.checks)}; `verify` checks the merged files"
            )


def topmost(paths: Sequence[str]) -> list[str]:
    """Without what lies in a folder that is named too."""
    found: list[str] = []
    for path in sorted(paths):
        if not found or not path.startswith(f"{found[-1]}/"):
            found.append(path)
    return found
