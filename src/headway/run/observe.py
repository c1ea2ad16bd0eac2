"""Observes which files the tasks of a run use: lost updates, stale reads.

Laws:
- Observing changes nothing: a run does what it does without, unless `enforce` stops it at the first
  lost update or stale read.
- What attempts did to files counts whether or not they gave a result.
- What could not be observed is named, and not called right.
- What was found, and the files that were used, are kept in the journal, for a resume.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Final, Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from headway.agents.shell import Command, CommandEnded, RunCommand, ShimClient, shim_key
from headway.base import codec
from headway.base.file_use import WRITE
from headway.base.values import Fault
from headway.errors import BadValueError, HeadwayError, did_you_mean
from headway.journal.documents import keep_findings
from headway.journal.journal import Journal
from headway.journal.reader import JournalReader
from headway.plans.expand import ExpandedPlan, GroupPlan
from headway.plans.graph import Graph
from headway.plans.resources import SCHEME, inside
from headway.plans.spec import Python, text_of
from headway.plans.template import template_of
from headway.report import findings as judge
from headway.report.findings import ERRORS, FileUse, Finding, TaskUse
from headway.run.agent_tasks import agent_of
from headway.run.file_watch import CURRENT, FileLog, folders_of, watch_files
from headway.run.plan_run import PlanRun
from headway.state.coherence import TaskPositions
from headway.work import Attempt, AttemptError, Result, Work
from headway.workspaces.observation import (
    observing_fault,
    read_observation,
    write_spec,
)

if TYPE_CHECKING:
    from headway.run.driver import Driver, Launch

# A plan as it is judged: in which order its tasks are, and what they are.


class ObservedPlan(Struct, frozen=True):
    """What is watched, and by what it is judged."""

    graph: Graph
    facts: judge.PlanFacts
    folder: str
    ignored: str = ""
    coded: frozenset[int] = frozenset()
    """Groups whose files this process uses: functions, loops with tools."""
    commands: frozenset[int] = frozenset()
    """Groups that start commands which work on the files of their user."""
    outputs: frozenset[int] = frozenset()


def subject_of_graph(graph: Graph) -> ObservedPlan:
    facts = judge.PlanFacts(_order(graph), TaskPositions(graph).task)
    return ObservedPlan(graph, facts, os.getcwd(), coded=frozenset(range(len(graph))))


def subject_of_plan(
    latest: Callable[[], ExpandedPlan], graph: Graph, folder: str, ignored: str
) -> ObservedPlan:
    """A run of a plan's file; `latest` gives it as far as it is known."""
    first = latest()
    tasks = [group.task for group in first.groups]

    def item(group: int, member: int) -> str:
        members = latest().groups[group].members
        found = None if members is None else members.member(member).item
        return "" if found is None else text_of(found)

    def where(group: int) -> str:
        line = tasks[group].spot("writes", "reads").key.line
        return f"{first.spec.file}:{line}" if line and first.spec.file else ""

    @cache
    def outputs(group: int, member: int) -> tuple[str, ...]:
        return _outputs(latest().groups[group], member)

    facts = judge.PlanFacts(_order(graph), TaskPositions(graph).task, item, where, outputs)
    own = {index for index, task in enumerate(tasks) if first.spec.workspace_of(task) is not None}
    shared = [(index, task) for index, task in enumerate(tasks) if index not in own]
    return ObservedPlan(
        graph, facts, folder, ignored,
        frozenset(
            index for index, task in shared
            if type(task.work) is Python or (not task.is_command and agent_of(task) is not None)
        ),
        frozenset(index for index, task in shared if task.is_command or task.verify),
        frozenset(index for index, task in enumerate(tasks) if task.output),
    )  # fmt: skip


def _order(graph: Graph) -> Callable[[tuple[int, int], tuple[int, int]], bool]:
    needs = [[(need.group, need.block) for need in group.needs] for group in graph.groups]
    return judge.order_by(needs, graph.queues.values())


def _outputs(plan: GroupPlan, member: int) -> tuple[str, ...]:
    task = plan.task
    path = inside(_filled(plan, task.output, member)) if task.output else None
    key = _filled(plan, task.output_key, member) if task.output_key else ""
    return tuple(one for one in (path, key and SCHEME + key) if one)


def _filled(plan: GroupPlan, text: str, member: int) -> str:
    if plan.members is None:
        return text
    try:
        return plan.fill(template_of(text), plan.members.member(member))
    except HeadwayError:
        return text  # An item that was found at run time lacks a field: its task fails by itself.


Mode = Literal["warn", "enforce", "off"]
MODES: Final[tuple[Mode, ...]] = get_args(Mode)

LOGS: Final = "observed"
"""In a run's folder: what commands use, until that is in the journal."""
FILES: Final = "files/"
"""What a task has used is a document of this name, by its key."""


_GAINING: Final = re.compile(r"\b(sudo|doas|pkexec|su)\b(?=\s)")
"""Programs that run others with more rights."""


class Observer:
    """Observes the tasks of one run."""

    def __init__(
        self, mode: Mode, subject: ObservedPlan, *, learns: bool = False, run_folder: str = "",
        journal: Journal | None = None,
    ) -> None:  # fmt: skip
        self.mode = mode
        self.subject = subject
        self.learns = learns
        self._journal = journal
        self._logs = os.path.join(run_folder, LOGS) if run_folder else ""
        self._folders = folders_of(subject.folder)
        self.dones: dict[tuple[int, int], TaskUse] = {}
        """By task, what its last attempt used that gave a result."""
        self._others: list[TaskUse] = []
        """Attempts that gave no result, or gave one that was not the last."""
        self._unseen: dict[int, Finding] = {}
        self._stop: Callable[[str], None] | None = None
        whole = self.learns or mode == "enforce"
        self.watched = frozenset() if mode == "off" else _concurrent(subject, whole)
        """Groups whose files are observed: where nothing runs at the same time, none."""
        self.problem = ""
        """Why commands cannot be observed, if they cannot."""

    def around(self, launch: Launch, shim: ShimClient | None = None) -> Launch:
        subject = self.subject
        seen = self.watched | subject.outputs if self.watched else frozenset()
        if self.learns:
            seen |= {n for n, one in enumerate(subject.graph.groups) if one.touches is not None}
        if not seen:
            return launch
        if self.watched & subject.coded:
            watch_files()
        if self.watched & subject.commands and shim is not None:
            self.problem = unobservable(self._logs)
            shim.around = self.command
        works = tuple(
            WatchedWork(index, work, self) if index in seen else work
            for index, work in enumerate(launch.works)
        )
        return replace(launch, works=works, meets=(*launch.meets, self.meet))

    def meet(self, driver: Driver) -> None:
        self._stop = lambda why: driver.stop("halt", why, is_now=True)

    async def command(self, run: RunCommand, command: Command) -> CommandEnded:
        """Run a command of the task that this context belongs to, and log the files it uses."""
        log = CURRENT.get()
        if log is None or self.problem:
            return await run(command)
        if os.geteuid() and (found := _GAINING.search(" ".join(command.argv))) is not None:
            # A process with a filter may not gain rights: it would fail for being observed.
            log.unseen = f"it runs `{found[0]}`, which an observed command could not"
            return await run(command)
        path = os.path.join(self._logs, f"{command.key.hex()}-{command.attempt}")
        spec = {
            "mode": "observe", "folder": self.subject.folder, "log": path,
            "cwd": command.folder or self.subject.folder,
        }  # fmt: skip
        write_spec(f"{path}.spec", spec)
        try:
            return await run(replace(command, spec=f"{path}.spec"))
        finally:
            take(log, path)

    def begin(self, group: int) -> FileLog | None:
        if group not in self.watched:
            return None
        return FileLog(self._folders, self.subject.ignored, group in self.subject.coded)

    def end(self, group: int, attempt: Attempt, log: FileLog | None) -> None:
        """An attempt has a result. Raises AttemptError if it is not to be taken."""
        if self._has_nothing(group, log):
            return
        use = self._used(group, attempt, log)
        if self.mode == "enforce":
            self._refuse_conflicts(use)
        self._keep(use)

    def _has_nothing(self, group: int, log: FileLog | None) -> bool:
        """Whether an attempt used no file: most functions do not, and are to cost nothing."""
        if self.learns or group in self.subject.commands:
            return False
        return log is None or not (log.uses or log.unseen)

    def lose(self, group: int, attempt: Attempt, log: FileLog | None) -> None:
        if self._has_nothing(group, log):
            return
        use = self._used(group, attempt, log)
        if use.files:
            self._others.append(use)

    def shown(self, group: int, member: int, name: str, from_s: float) -> None:
        """Headway itself has written the outputs of a task."""
        outputs = self.subject.facts.outputs(group, member)
        now_s = time.time()
        files = [FileUse(path, from_s, now_s, WRITE) for path in outputs if SCHEME not in path]
        if files:
            use = self.dones.get((group, member), TaskUse(group, member, name))
            self.dones[group, member] = replace(use, files=(*use.files, *files))

    def _keep(self, use: TaskUse) -> None:
        before = self.dones.get((use.group, use.member))
        if before is not None:
            self._others.append(before)
        self.dones[use.group, use.member] = use

    def tidy(self) -> None:
        """Remove the folder of logs; one of a command that goes on without this process stays."""
        with suppress(OSError):
            os.rmdir(self._logs)

    def findings(self) -> tuple[Finding, ...]:
        """Everything that was found."""
        dones = [self.dones[place] for place in sorted(self.dones)]
        found = judge.findings(dones, self.subject.facts, self._others)
        if self._unseen or self.problem or any(one.kind in ERRORS for one in found):
            found = tuple(replace(one, words=one.words.removesuffix(judge.RIGHT)) for one in found)
        return (*found, *self._unseen.values())

    def learned(self) -> tuple[judge.Learned, ...]:
        dones = [self.dones[place] for place in sorted(self.dones)]
        return judge.declarations(dones, self.subject.facts)

    def _used(self, group: int, attempt: Attempt, log: FileLog | None) -> TaskUse:
        """What an attempt used; its files are kept for a resume."""
        use = TaskUse(group, attempt.member, attempt.name)
        if self.learns and attempt.snapshot is not None:
            with attempt.lock:
                use = replace(use, access=attempt.snapshot.access())
        if log is None:
            return use
        if self._logs and group in self.subject.commands:
            adopt(log, self._logs, shim_key(attempt))
        problem = self.problem if group in self.subject.commands else ""
        why = log.unseen or problem
        if why:
            place, what = group, f"what `{attempt.name}` reads and writes"
            if why == problem:  # It holds for all commands, and is said once.
                place, what = -1, "what commands read and write"
            known = self._unseen.get(place) if place >= 0 else None
            words = f"{what} was not seen: {why}"
            self._unseen[place] = Finding(
                "unobserved", attempt.name, "files", "", words, "workspace: on",
                count=1 if known is None else known.count + 1,
            )  # fmt: skip
        files = log.ended()
        if files and self._journal is not None:
            self._journal.keep(f"{FILES}{attempt.key.hex()}", codec.encode((attempt.name, files)))
        return replace(use, files=files)

    def recall(self, run: PlanRun, reader: JournalReader) -> None:
        """The files of tasks whose results are from another process."""
        # Inner levels of reductions stand behind the declared groups, and use no files.
        for group in run.plans.expanded.groups:
            for member in range((group.count or 0) if group.index in self.watched else 0):
                place = (group.index, member)
                name = f"{FILES}{run.works[group.index].key(member).hex()}"
                data = None if place in self.dones else reader.document(name)
                if data is not None:
                    name, files = codec.decode(tuple[str, tuple[FileUse, ...]], data)
                    self.dones[place] = TaskUse(*place, name, files)

    def _refuse_conflicts(self, use: TaskUse) -> None:
        """Stop the run at its first lost update or stale read."""
        paths = {one.path for one in use.files}
        others = [
            replace(one, files=tuple(one_use for one_use in one.files if one_use.path in paths))
            for one in (*self.dones.values(), *self._others)
        ]
        found = judge.findings((use,), self.subject.facts, others)
        wrong = next((one for one in found if one.kind in ERRORS), None)
        if wrong is not None:
            self._others.append(use)
            if self._stop is not None:
                self._stop(wrong.words)
            raise AttemptError(Fault("command", detail=wrong.words))


def _concurrent(subject: ObservedPlan, whole: bool) -> frozenset[int]:
    """Groups whose files are observed: functions, which costs nothing; commands beside which others
    may run, or all of them if `whole`."""
    graph = subject.graph
    used = subject.coded | subject.commands if subject.folder else frozenset()
    if whole or not subject.commands:
        return used
    writing = used | subject.outputs
    before = [0] * len(graph)
    """Of each group: those that come before it entirely, as bits."""
    for group in graph.order:
        for need in graph.groups[group].needs:
            if not need.block:
                before[group] |= before[need.group] | 1 << need.group
    queue_of = {group: queue for queue in graph.queues.values() for group in queue}
    after = [0] * len(graph)
    for group in reversed(graph.order):
        for need in graph.groups[group].needs:
            if not need.block:
                after[need.group] |= after[group] | 1 << group
    every = sum(1 << group for group in writing)
    found = set(subject.coded)
    for group in used - subject.coded:
        turns = queue_of.get(group, ())
        is_many = graph.groups[group].count != 1 and not turns
        others = every & ~before[group] & ~after[group] & ~(1 << group)
        others &= ~sum(1 << one for one in turns)
        if is_many or others:
            found.add(group)
    return frozenset(found)


def unobservable(folder: str) -> str:
    """Why commands cannot be observed here; empty if they can."""
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as fault:
        return str(fault)
    return observing_fault(folder)


def take(log: FileLog, path: str) -> None:
    """Log what a command that has ended used."""
    seen = read_observation(path)
    log.observed(seen.uses)
    if not seen.is_whole:
        log.unseen = seen.why
    for name in (path, f"{path}.spec"):
        with suppress(OSError):
            os.unlink(name)


def adopt(log: FileLog, folder: str, key: bytes) -> None:
    """The same of a command that ended while no headway process ran."""
    with suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(key.hex()) and not name.endswith(".spec"):
                take(log, os.path.join(folder, name))


class WatchedWork:
    """A work whose attempts are watched; everything else is as it was."""

    def __init__(self, index: int, work: Work, observer: Observer) -> None:
        self._index = index
        self._work = work
        self._observer = observer
        self.name = work.name
        self.is_local = work.is_local
        self.is_idle_until_sent = work.is_idle_until_sent
        self.publishes = work.publishes
        self.timeout_s = work.timeout_s
        self.label = work.label
        self.key = work.key
        self.count = work.count

    def publish(self, member: int, body: bytes | None) -> None:
        from_s = time.time()
        self._work.publish(member, body)
        if body is not None:
            self._observer.shown(self._index, member, self._work.label(member), from_s)

    async def perform(self, attempt: Attempt) -> Result:
        log = self._observer.begin(self._index)
        token = CURRENT.set(log)
        try:
            result = await self._work.perform(attempt)
        except AttemptError:
            self._observer.lose(self._index, attempt, log)
            raise
        finally:
            CURRENT.reset(token)
        self._observer.end(self._index, attempt, log)
        return result


def observer_for(mode: Mode, graph: Graph) -> Observer:
    """Observes a run of Python functions. BadValueError if there is no such mode."""
    if mode not in MODES:
        raise BadValueError(f"`observe` cannot be `{mode}`", hint=did_you_mean(mode, MODES))
    return Observer(mode, subject_of_graph(graph))


# The observer of a plan's run: how it is made, and what is asked of it when the run is over.


def observer_of(mode: Mode, run: PlanRun, journal: Journal, *, learns: bool = False) -> Observer:
    """Observes a run of a plan's file."""
    plans = run.plans
    subject = subject_of_plan(
        lambda: plans.expanded, run.launch.graph, run.crew.folder, journal.folder
    )
    return Observer(mode, subject, learns=learns, run_folder=journal.folder, journal=journal)


def findings_of(observer: Observer, run: PlanRun, journal: Journal) -> tuple[Finding, ...]:
    """What a run that is over has shown, kept in its journal."""
    if observer.mode == "off":
        return ()
    observer.recall(run, journal.reader)
    found = observer.findings()
    keep_findings(journal, found)
    observer.tidy()
    return found
