"""Observes what the tasks of a run touch: lost updates, stale reads, and what is undeclared.

Laws:
- Observing changes nothing: a run does what it does without, unless `enforce` stops it.
- To enforce is also to keep a task from what it does not declare, before it is done: what it does
  with the shared state, and with files in its own Python code. A command is judged at its end.
- What attempts did to files counts whether or not they gave a result; of what is undeclared, the
  last result of a task, or if it has none, its last failure.
- What could not be observed is named, and not called right.
- What was found, and the files that were used, are kept in the journal, for a resume.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Final, Literal, get_args

from msgspec import Struct, field
from msgspec.structs import replace

from headway.agents.shell import Command, CommandEnded, RunCommand, ShimClient, shim_key
from headway.base import codec
from headway.base.file_use import WRITE
from headway.base.folders import folders
from headway.base.values import Fault
from headway.errors import BadValueError, HeadwayError, UndeclaredError, did_you_mean
from headway.journal.documents import keep_findings
from headway.journal.folder import list_runs
from headway.journal.journal import Journal
from headway.journal.reader import JournalReader
from headway.plans.expand import ExpandedPlan, GroupPlan
from headway.plans.graph import Graph
from headway.plans.resources import ANYTHING, SCHEME, WILD, Touches, fixed_part, inside
from headway.plans.spec import CommandSpec, Python, text_of
from headway.plans.template import template_of
from headway.report import findings as judge
from headway.report.findings import ERRORS, FileUse, Finding, FinishedAccess
from headway.run.agent_tasks import agent_of
from headway.run.file_watch import CURRENT, FileLog, folders_of, watch_files
from headway.run.plan_run import PlanRun
from headway.state.coherence import TaskPositions
from headway.state.context import Watch
from headway.state.learned_edges import earlier, recalled
from headway.state.shared import UNTOUCHED, Channels
from headway.work import Attempt, AttemptError, Result, Work
from headway.workspaces.observation import (
    launch_argv,
    observing_fault,
    read_observation,
    write_spec,
)

if TYPE_CHECKING:
    from headway.run.driver import Driver, Launch

# A plan as it is judged: what its tasks declare, in which order they are, what they are.


class ObservedPlan(Struct, frozen=True):
    """What is watched, and by what it is judged."""

    graph: Graph
    ground: judge.PlanFacts
    folder: str = ""
    ignored: str = ""
    functions: frozenset[int] = frozenset()
    """Groups that are Python functions, of which it is known what they depend on."""
    coded: frozenset[int] = frozenset()
    """Groups whose files this process uses: functions, loops with tools."""
    commands: frozenset[int] = frozenset()
    """Groups that start commands which work on the files of their user."""
    outputs: frozenset[int] = frozenset()
    lets: Callable[[int, int], judge.DeclaredAccess] | None = None
    """What a task may do without a complaint, if that is more than what it declares."""

    def may(self, group: int, member: int) -> judge.DeclaredAccess:
        return (self.lets or self.ground.declared)(group, member)


def subject_of_graph(graph: Graph, channels: Channels | None = None) -> ObservedPlan:
    def declared(group: int, member: int) -> judge.DeclaredAccess:
        return judge.DeclaredAccess(_touches(graph, group, member))

    every = [one.touches for one in graph.groups if one.touches is not None]
    is_declared = any(one.reads or one.writes or one.acts for one in every)
    ground = judge.PlanFacts(
        _order(graph), declared, _state_rooms(is_declared), channels or Channels(),
        place=TaskPositions(graph).task,
    )  # fmt: skip
    every_group = frozenset(range(len(graph)))
    return ObservedPlan(graph, ground, os.getcwd(), functions=every_group, coded=every_group)


def subject_of_plan(
    latest: Callable[[], ExpandedPlan], graph: Graph, channels: Channels, folder: str, ignored: str
) -> ObservedPlan:
    """A run of a plan's file; `latest` gives it as far as it is known."""
    first = latest()
    tasks = [group.task for group in first.groups]
    rooms: set[tuple[judge.Room, bool]] = set()
    rooms |= _state_rooms(
        any(task.state_reads or task.state_writes or task.effects for task in tasks)
    )
    rooms |= {("path", False)} if any(task.paths_read for task in tasks) else set()
    # A task that declares reads only probably writes too; inputs need no declaration.
    says_paths = any(task.paths_read or task.paths_written for task in tasks)
    rooms |= {("path", True)} if says_paths else set()

    @cache
    def lets(group: int, member: int) -> judge.DeclaredAccess:
        plan = latest().groups[group]
        paths = Touches(
            _paths(plan, plan.task.paths_read, member),
            _paths(plan, plan.task.paths_written, member),
        )
        return judge.DeclaredAccess(_touches(graph, group, member), paths, _outputs(plan, member))

    def declared(group: int, member: int) -> judge.DeclaredAccess:
        said = lets(group, member)
        if isinstance(tasks[group].work, CommandSpec) and said.state.reads is None:
            # A command is given all that it may read; that is no choice of its own.
            return replace(said, state=replace(said.state, reads=("",)))
        return said

    def item(group: int, member: int) -> str:
        members = latest().groups[group].members
        found = None if members is None else members.member(member).item
        return "" if found is None else text_of(found)

    def where(group: int, key: str) -> str:
        line = tasks[group].spot(key).key.line
        return f"{first.spec.file}:{line}" if line and first.spec.file else ""

    ground = judge.PlanFacts(
        _order(graph), declared, frozenset(rooms), channels, item, where, TaskPositions(graph).task
    )
    own = {index for index, task in enumerate(tasks) if first.spec.workspace_of(task) is not None}
    shared = [(index, task) for index, task in enumerate(tasks) if index not in own]
    functions = frozenset(index for index, task in enumerate(tasks) if type(task.work) is Python)
    loops = (index for index, task in shared if not task.is_command and agent_of(task) is not None)
    return ObservedPlan(
        graph, ground, folder, ignored, functions, (functions - own) | frozenset(loops),
        frozenset(index for index, task in shared if task.is_command or task.verify),
        frozenset(index for index, task in enumerate(tasks) if task.output), lets,
    )  # fmt: skip


def _touches(graph: Graph, group: int, member: int) -> Touches:
    touches = graph.groups[group].touches
    return ANYTHING if touches is None else touches.of(member)


def _state_rooms(is_declared: bool) -> frozenset[tuple[judge.Room, bool]]:
    """A plan that declares keys for one task is taken to declare them for all."""
    every: tuple[tuple[judge.Room, bool], ...] = (
        ("state", False),
        ("state", True),
        ("effect", True),
    )
    return frozenset(every) if is_declared else frozenset()


def _order(graph: Graph) -> Callable[[tuple[int, int], tuple[int, int]], bool]:
    needs = [[(need.group, need.block) for need in group.needs] for group in graph.groups]
    return judge.order_by(needs, graph.queues.values())


def _paths(plan: GroupPlan, texts: tuple[str, ...], member: int) -> tuple[str, ...]:
    found = (_filled(plan, text, member) for text in texts)
    inner = (inside(text) for text in found)
    return tuple(fixed_part(path, WILD) for path in inner if path is not None)


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


class _Open(Struct):
    group: int
    attempt: Attempt
    may: judge.DeclaredAccess
    files: FileLog | None = None
    handed: list[judge.Handed] = field(default_factory=list)
    is_timed: bool = False


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
        self._folders = folders_of(subject.folder) if subject.folder else ()
        self._open: dict[int, _Open] = {}
        self.dones: dict[tuple[int, int], FinishedAccess] = {}
        self._lost: dict[tuple[int, int], FinishedAccess] = {}
        self._others: list[FinishedAccess] = []
        """Attempts that gave no result, or gave one that was not the last."""
        self._found: list[Finding] = []
        """What is known before the end of the run."""
        self._unseen: dict[int, Finding] = {}
        self._written: set[str] = set()
        self._stop: Callable[[str], None] | None = None
        whole = self.learns or mode == "enforce"
        self.watched = frozenset() if mode == "off" else _concurrent(subject, whole)
        """Groups whose files are observed: where nothing runs at the same time, none."""
        self.problem = ""
        """Why commands cannot be observed, if they cannot."""

    def around(self, launch: Launch, shim: ShimClient | None = None) -> Launch:
        subject = self.subject
        seen = [
            group in self.watched
            or one.touches is not None
            or (bool(self.watched) and group in subject.outputs)
            for group, one in enumerate(subject.graph.groups)
        ]
        if self.mode == "off" or not any(seen):
            return launch
        if self.watched & subject.coded:
            watch_files()
        if self.watched & subject.commands and shim is not None:
            self.problem = unobservable(self._logs)
            shim.around = self.command
        works = tuple(
            WatchedWork(index, work, self) if seen[index] else work
            for index, work in enumerate(launch.works)
        )
        sharing = launch.sharing and replace(launch.sharing, watch=self.watch)
        return replace(launch, works=works, sharing=sharing, meets=(*launch.meets, self.meet))

    def meet(self, driver: Driver) -> None:
        self._stop = lambda why: driver.stop("halt", why, is_now=True)

    def watch(self, attempt: Attempt) -> Watch | None:
        opened = self._open.get(attempt.task)
        return None if opened is None else _StateWatch(opened, self.mode == "enforce")

    async def command(self, run: RunCommand, command: Command) -> CommandEnded:
        """Run a command of the task that this context belongs to, and log the files it uses."""
        log = CURRENT.get()
        if log is None or self.problem:
            return await run(command)
        path = os.path.join(self._logs, f"{command.key.hex()}-{command.attempt}")
        spec = {
            "mode": "observe", "folder": self.subject.folder, "log": path,
            "cwd": command.folder or self.subject.folder,
        }  # fmt: skip
        write_spec(f"{path}.spec", spec)
        try:
            return await run(
                replace(command, argv=tuple(launch_argv(f"{path}.spec", command.argv)))
            )
        finally:
            take(log, path)

    def begin(self, group: int, attempt: Attempt) -> _Open:
        opened = _Open(group, attempt, self.subject.may(group, attempt.member))
        if group in self.watched:
            is_coded = group in self.subject.coded
            refuse = (
                partial(_judge, opened, "path") if self.mode == "enforce" and is_coded else None
            )
            opened.files = FileLog(self._folders, self.subject.ignored, is_coded, refuse)
        self._open[attempt.task] = opened
        return opened

    def leave(self, opened: _Open) -> None:
        if self._open.get(opened.attempt.task) is opened:
            del self._open[opened.attempt.task]

    def end(self, opened: _Open, result: Result) -> None:
        """An attempt has a result. Raises AttemptError if it is not to be taken."""
        done = replace(self._touched(opened), calls=result.calls)
        if self.mode == "enforce":
            self._refuse_conflicts(done)
            _must_keep_to(opened, done, self._written, self.subject.ground.channels)
        self._found += _slips(opened, done, result, self.subject)
        self.note(done)

    def lose(self, opened: _Open) -> None:
        done = self._touched(opened)
        self._lost[opened.group, opened.attempt.member] = done
        if done.files:
            self._others.append(done)

    def shown(self, group: int, member: int, name: str, from_s: float) -> None:
        """Headway itself has written the outputs of a task."""
        outputs = [one for one in self.subject.may(group, member).outputs if SCHEME not in one]
        now_s = time.time()
        files = tuple(FileUse(path, from_s, now_s, WRITE) for path in outputs)
        if files:
            empty = FinishedAccess(group, member, name, is_function=False)
            done = self.dones.get((group, member), empty)
            self.dones[group, member] = replace(done, files=(*done.files, *files))
            self._written.update(outputs)

    def note(self, done: FinishedAccess) -> None:
        """This is what a task has touched; with an earlier attempt of it this is compared."""
        if done.access == UNTOUCHED and not done.files:
            return
        self._written.update(one.path for one in done.files if one.is_write)
        place = (done.group, done.member)
        before = self.dones.get(place)
        if before is not None:
            self._found += judge.unsteady((before,), (done,))
            if before.files:
                self._others.append(before)
        self.dones[place] = done

    def tidy(self) -> None:
        """Remove the folder of logs; one of a command that goes on without this process stays."""
        with suppress(OSError):
            os.rmdir(self._logs)

    def findings(self, earlier: Iterable[FinishedAccess] = ()) -> tuple[Finding, ...]:
        """Everything that was found; `earlier` is what tasks touched in another run."""
        dones = [self.dones[place] for place in sorted(self.dones)]
        every = {**self._lost, **self.dones}
        last = [every[place] for place in sorted(every)]
        found = judge.findings(last, self.subject.ground, self._others)
        unlike = judge.across(earlier, dones)
        if self._unseen or self.problem or any(one.kind in ERRORS for one in found):
            found = tuple(replace(one, words=one.words.removesuffix(judge.RIGHT)) for one in found)
        return judge.merged((*found, *self._unseen.values(), *self._found, *unlike))

    def learned(self) -> tuple[judge.Learned, ...]:
        dones = [self.dones[place] for place in sorted(self.dones)]
        return judge.declarations(dones, self.subject.ground)

    def _touched(self, opened: _Open) -> FinishedAccess:
        attempt, snapshot, log = opened.attempt, opened.attempt.snapshot, opened.files
        access = UNTOUCHED
        if snapshot is not None:
            with attempt.lock:
                access = snapshot.access()
        files = () if log is None else self._used(opened, log)
        return FinishedAccess(
            opened.group, attempt.member, attempt.name, access, files, attempt.key,
            attempt.inputs, is_function=opened.group in self.subject.functions,
            is_timed=opened.is_timed,
        )  # fmt: skip

    def _used(self, opened: _Open, log: FileLog) -> tuple[FileUse, ...]:
        """The files that an attempt used; kept for a resume."""
        group, attempt = opened.group, opened.attempt
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
        return files

    def _refuse_conflicts(self, done: FinishedAccess) -> None:
        """Stop the run at its first lost update or stale read."""
        paths = {one.path for one in done.files}
        others = [
            replace(one, files=tuple(use for use in one.files if use.path in paths))
            for one in (*self.dones.values(), *self._others)
        ]
        found = judge.findings((done,), self.subject.ground, others)
        wrong = next((one for one in found if one.kind in ERRORS), None)
        if wrong is not None:
            self._others.append(done)
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
        opened = self._observer.begin(self._index, attempt)
        token = CURRENT.set(opened.files)
        try:
            result = await self._work.perform(attempt)
            self._observer.end(opened, result)
        except AttemptError:
            self._observer.lose(opened)
            raise
        finally:
            CURRENT.reset(token)
            self._observer.leave(opened)
        return result


class _StateWatch:
    def __init__(self, opened: _Open, is_strict: bool) -> None:
        self._opened = opened
        self._is_strict = is_strict

    def reads(self, what: str) -> None:
        if self._is_strict:
            _judge(self._opened, "state", what, False)

    def writes(self, key: str) -> None:
        if self._is_strict:
            _judge(self._opened, "state", key, True)

    def acts(self, channel: str, is_now: bool) -> None:
        del is_now  # Whenever it is done, it is declared or not.
        if self._is_strict:
            _judge(self._opened, "effect", channel, True)

    def handed(self, every: Sequence[judge.Handed], is_timed: bool) -> None:
        self._opened.is_timed = is_timed
        self._opened.handed += (one for one in every if one.after != one.before)


def _must_keep_to(
    opened: _Open, done: FinishedAccess, written: Collection[str], channels: Channels
) -> None:
    """AttemptError if an attempt did what it does not declare and what cannot be prevented."""
    for touch in judge.touches_of(done, channels):
        is_own = touch.is_loose and touch.what not in written
        if not is_own and not judge.is_allowed(opened.may, touch):
            detail = _complaint(touch, judge.said_of(opened.may, touch)).render()
            raise AttemptError(Fault("command", detail=detail))


def _slips(
    opened: _Open, done: FinishedAccess, result: Result, subject: ObservedPlan
) -> tuple[Finding, ...]:
    """Values of the shared state that an attempt changed in place."""
    if not opened.handed:
        return ()
    puts = [put.data for put in done.access.writes if put.data is not None]
    acts = [act.data for act in done.access.acts]
    item = subject.ground.item(done.group, done.member)
    return judge.aliased(done.name, item, opened.handed, puts, (*acts, result.body))


def _judge(opened: _Open, room: judge.Room, what: str, is_write: bool) -> None:
    """UndeclaredError if a task touches what it does not declare."""
    attempt = opened.attempt
    touch = judge.ObservedTouch(opened.group, attempt.member, attempt.name, room, what, is_write)
    if not judge.is_allowed(opened.may, touch):
        raise _complaint(touch, judge.said_of(opened.may, touch))


def _complaint(touch: judge.ObservedTouch, said: Sequence[str] | None = None) -> UndeclaredError:
    key = "writes" if touch.is_write else "reads"
    verb = "asks for" if touch.room == "effect" else key
    return UndeclaredError(
        f"`{touch.name}` {verb} `{touch.shown}` and does not declare it",
        detail=f"`{key}` has: {', '.join(said)}"[:200] if said else None,
        hint=f"add `{touch.shown}` to its `{key}`",
    )


def observer_for(mode: Mode, graph: Graph, channels: Channels) -> Observer:
    """Observes a run of Python functions. BadValueError if there is no such mode."""
    if mode not in MODES:
        raise BadValueError(f"`observe` cannot be `{mode}`", hint=did_you_mean(mode, MODES))
    return Observer(mode, subject_of_graph(graph, channels))


# The observer of a plan's run: how it is made, and what is asked of it when the run is over.


def observer_of(mode: Mode, run: PlanRun, journal: Journal, *, learns: bool = False) -> Observer:
    """Observes a run of a plan's file."""
    plans, crew = run.plans, run.crew
    subject = subject_of_plan(
        lambda: plans.expanded, run.launch.graph, crew.channels, crew.folder, journal.folder
    )
    return Observer(mode, subject, learns=learns, run_folder=journal.folder, journal=journal)


def findings_of(observer: Observer, run: PlanRun, journal: Journal) -> tuple[Finding, ...]:
    """What a run that is over has shown, kept in its journal."""
    if observer.mode == "off":
        return ()
    stateful = [group.touches is not None for group in run.launch.graph.groups]
    before: list[FinishedAccess] = []
    _recall(observer, run, journal.reader, stateful)
    if any(stateful):
        before = earlier(list_runs(folders(run.crew.environment).state), journal.header)
    found = observer.findings(before)
    keep_findings(journal, found)
    observer.tidy()
    return found


def _recall(
    observer: Observer, run: PlanRun, reader: JournalReader, stateful: Sequence[bool]
) -> None:
    """Tell the observer what tasks touched whose results are from another process."""
    # Inner levels of reductions stand behind the declared groups, and touch nothing.
    counts = {
        group.index: group.count or 0
        for group in run.plans.expanded.groups
        if stateful[group.index] or group.index in observer.watched
    }
    known: dict[tuple[int, int], FinishedAccess] = {}
    if len(observer.dones) >= sum(counts.values()):
        return  # Everything was done here.
    states = [counts.get(group, 0) * is_one for group, is_one in enumerate(stateful)]
    for done in recalled(reader, run.works, states) if any(states) else ():
        known[done.group, done.member] = done
    for group, count in counts.items():
        for member in range(count if group in observer.watched else 0):
            data = reader.document(f"{FILES}{run.works[group].key(member).hex()}")
            if data is not None and (group, member) not in observer.dones:
                name, files = codec.decode(tuple[str, tuple[FileUse, ...]], data)
                done = known.get((group, member), FinishedAccess(group, member, name))
                known[group, member] = replace(done, files=files)
    for place, done in known.items():
        if place not in observer.dones:
            observer.note(replace(done, is_function=place[0] in observer.subject.functions))
