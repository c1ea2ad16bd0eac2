"""The objective of a plan: what its command says of the merged files and the shared state.

Laws:
- It never sees one task's output alone: always what has landed, and what would land with it.
- The same files and the same state are judged once in a process.
- A command that fails, or prints no number, gives no score: less than any score, and never a zero.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import isfinite
from signal import SIGKILL
from typing import Final

from headway.agents.shell import Command
from headway.base.digest import digest
from headway.base.folders import folders
from headway.errors import UsageError
from headway.journal.documents import LandedFolder, Landing, Score, ScoredLanding
from headway.journal.reader import JournalReader
from headway.plans.spec import WorkspaceSpec
from headway.run.plan_run import PlanSource
from headway.run.resume import committed, plan_of_run
from headway.run.workspaces import (
    FIRST_PORT,
    KeptAttempt,
    OpenWorkspace,
    kept_attempt,
    merged_changes,
)
from headway.state.folder import write_values
from headway.workspaces.observation import launch_argv, probe
from headway.workspaces.store import WorkspaceStore

TIMEOUT_S: Final = 600.0
"""How long an objective may take: it runs for every landing."""
OUTPUT_CHARS_MAX: Final = 2_000
"""Of its last words, which a task is given that lowered the score."""
STATE: Final = "HEADWAY_STATE"


class Objective:
    """Runs the command of a plan in workspaces of one store."""

    def __init__(self, command: str, environment: Mapping[str, str], run_folder: str) -> None:
        self.command, self.environment, self.run_folder = command, environment, run_folder
        self.runs = 0
        self._mode = ""
        self._known: dict[tuple[str, str], Score] = {}

    def key(
        self, store: WorkspaceStore, files: Mapping[str, str | None], state: Mapping[str, bytes]
    ) -> tuple[str, str]:
        """What files and state are told apart by."""
        told = "\0".join(f"{key}={data.hex()}" for key, data in sorted(state.items()))
        return store.state_key(files), digest(told.encode()).hex()

    def score(
        self, store: WorkspaceStore, files: Mapping[str, str | None], state: Mapping[str, bytes]
    ) -> Score:
        key = self.key(store, files, state)
        if key not in self._known:
            self._known[key] = self._judged(store, files, state)
        return self._known[key]

    def _judged(
        self, store: WorkspaceStore, files: Mapping[str, str | None], state: Mapping[str, bytes]
    ) -> Score:
        self.runs += 1
        self._mode = self._mode or probe(self.run_folder).mode
        make = partial(store.prepare, "objective", files, self._mode)
        with tempfile.TemporaryDirectory(dir=self.run_folder, prefix="objective-") as aside:
            write_values(os.path.join(aside, "state"), state)
            told = {**self.environment, STATE: os.path.join(aside, "state")}
            opened = OpenWorkspace(store, make(), WorkspaceSpec(), aside, FIRST_PORT, make)
            try:
                asked = Command(b"objective", 1, ("/bin/sh", "-c", self.command), told)
                return self._ran(opened.command(asked, is_observed=False))
            finally:
                store.discard(opened.place)

    def _ran(self, command: Command) -> Score:
        process = subprocess.Popen(
            launch_argv(command.spec, command.argv), env=dict(command.environment),
            cwd=self.run_folder, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            out, err = process.communicate(timeout=TIMEOUT_S)
        except BaseException as cut:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, SIGKILL)
            process.communicate()
            if isinstance(cut, subprocess.TimeoutExpired):
                return Score(None, f"it has not ended after {TIMEOUT_S:.0f} s")
            raise
        return score_of(
            process.returncode, out.decode(errors="replace"), err.decode(errors="replace")
        )


def score_of(code: int, out: str, err: str) -> Score:
    """What a command that ended says: the number in its last line."""
    words = f"{out.strip()}\n{err.strip()}".strip()[-OUTPUT_CHARS_MAX:]
    if code:
        return Score(None, f"exit code {code}\n{words}".strip())
    last = out.strip().rpartition("\n")[2].strip()
    with suppress(ValueError):
        if isfinite(value := float(last)):
            return Score(value, words)
    return Score(None, f"its last line is no number: {last[:80]!r}")


def is_lower(after: Score, before: Score) -> bool:
    """Whether a landing lowers the score; where there was none, nothing can be lowered."""
    return before.value is not None and (after.value is None or after.value < before.value)


def bounce_words(before: Score, after: Score) -> str:
    """The evidence: the score before and after, and what the command said."""
    told = "no score" if after.value is None else f"{after.value:g}"
    was = "no score" if before.value is None else f"{before.value:g}"
    return f"the objective of the plan fell from {was} to {told} with it:\n{after.output}"


# What landed, one after another, and what each of it contributes.

LANDINGS_MAX: Final = 200
"""Landings that are scored one by one."""


def landing_scores(
    objective: Objective, store: WorkspaceStore, tasks: Sequence[tuple[str, KeptAttempt]],
    state: Mapping[str, bytes],
) -> tuple[ScoredLanding, ...]:  # fmt: skip
    """The score before and after the work of each task, in the order of landing."""
    if not tasks or len(tasks) > LANDINGS_MAX:
        return ()
    files: dict[str, str | None] = {}
    found, before = [], objective.score(store, files, state).value
    for name, one in tasks:
        files |= one.changes
        after = objective.score(store, files, state).value
        found.append(ScoredLanding(name, before, after, one.has_verify or None))
        before = after
    return tuple(found)


class MergedWork:
    """The work of any of the tasks that landed, merged anew."""

    def __init__(
        self, objective: Objective, store: WorkspaceStore, attempts: Sequence[KeptAttempt],
        state: Mapping[str, bytes],
    ) -> None:  # fmt: skip
        self.objective, self.store, self.attempts, self.state = objective, store, attempts, state
        self.conflicts = 0
        """Merges in which some task's work could not be merged, and was left out."""
        self.unscored = 0

    def value(self, some: frozenset[int]) -> float | None:
        files: dict[str, str | None] = {}
        has_conflict = False
        for number in sorted(some):
            changes = merged_changes(self.store, self.attempts[number], files)
            has_conflict |= changes is None
            files |= changes or {}
        self.conflicts += has_conflict
        found = self.objective.score(self.store, files, self.state).value
        self.unscored += found is None
        return found


def merged_work(
    reader: JournalReader, landing: Landing, command: str, environment: Mapping[str, str]
) -> tuple[MergedWork, list[str], list[bytes]]:
    """What a run has landed where its objective looks, with names and keys of its tasks."""
    folder = scored_folder(landing.folders)
    found = [(one, kept_attempt(reader, bytes.fromhex(one.key))) for one in folder.tasks]
    known = [(one, attempt) for one, attempt in found if attempt is not None]
    where = folders(environment).state
    store = WorkspaceStore.open(folder.folder, reader.folder, where, folder.base)
    objective = Objective(command, environment, reader.folder)
    work = MergedWork(objective, store, [one for _, one in known], committed(reader)[0])
    return work, [one.name for one, _ in known], [bytes.fromhex(one.key) for one, _ in known]


def objective_in(reader: JournalReader) -> str:
    """The objective of a run's plan; UsageError if it has none."""
    plan = plan_of_run(reader, PlanSource.kept(reader)) if reader.header.kind == "plan" else None
    command = "" if plan is None else plan.expanded.spec.objective
    if not command:
        raise UsageError(
            f"the plan of {reader.header.run} has no `objective`",
            hint="add `objective: CMD`, a command that prints one number, and run it again",
        )
    return command


def scored_folder(every: Sequence[LandedFolder]) -> LandedFolder:
    """The folder that an objective is about: the plan's own, or the first that has landings."""
    return next((one for one in every if one.root == "."), every[0])
