"""Watches what tasks touch, and reports what they should have declared.

Laws:
- Watching changes nothing: a run with a detector does what it does without, unless it enforces.
- To enforce is to keep a task from what it does not declare, before it is done: what it does with
  the shared state, and with files in its own Python code. A command is judged when it has ended.
- Of each task its last result is judged; only of one that has none, what its failure touched.
- What was found is kept in the journal, for later commands.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Final, Literal, get_args

from msgspec import Struct, field
from msgspec.structs import replace

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
from headway.plans.spec import CommandSpec, Prompt, Python, text_of
from headway.plans.template import template_of
from headway.report import detect
from headway.run.file_watch import CURRENT, FileLog, FolderTrace, folders_of, watch_files
from headway.run.launch import Launch
from headway.run.plan_run import PlanRun
from headway.state.context import Watch
from headway.state.learned_edges import earlier, recalled
from headway.state.shared import UNTOUCHED, Channels
from headway.work import Attempt, AttemptError, Result, Work

# A run as the detector sees it: what its tasks declare, in which order they are, what they are.


class DetectorSubject(Struct, frozen=True):
    """What is watched, and by what it is judged."""

    graph: Graph
    ground: detect.DetectorGround
    folder: str = ""
    ignored: str = ""
    functions: frozenset[int] = frozenset()
    """Groups that are Python functions, of which it is known what they depend on."""
    commands: frozenset[int] = frozenset()
    lets: Callable[[int, int], detect.DeclaredAccess] | None = None
    """What a task may do without a complaint, if that is more than what it declares."""

    def may(self, group: int, member: int) -> detect.DeclaredAccess:
        return (self.lets or self.ground.declared)(group, member)


def subject_of_graph(graph: Graph, channels: Channels | None = None) -> DetectorSubject:
    def declared(group: int, member: int) -> detect.DeclaredAccess:
        return detect.DeclaredAccess(_touches(graph, group, member))

    every = [one.touches for one in graph.groups if one.touches is not None]
    is_declared = any(one.reads or one.writes or one.acts for one in every)
    ground = detect.DetectorGround(
        _order(graph), declared, _state_rooms(is_declared),
        channels or Channels(),
    )  # fmt: skip
    return DetectorSubject(graph, ground, functions=frozenset(range(len(graph))))


def subject_of_plan(
    latest: Callable[[], ExpandedPlan], graph: Graph, channels: Channels, folder: str, ignored: str
) -> DetectorSubject:
    """A run of a plan's file; `latest` gives it as far as it is known."""
    first = latest()
    tasks = [group.task for group in first.groups]
    rooms: set[tuple[detect.Room, bool]] = set()
    rooms |= _state_rooms(
        any(task.state_reads or task.state_writes or task.effects for task in tasks)
    )
    rooms |= {("path", False)} if any(task.paths_read for task in tasks) else set()
    # A task that declares reads only probably writes too; inputs need no declaration.
    says_paths = any(task.paths_read or task.paths_written for task in tasks)
    rooms |= {("path", True)} if says_paths else set()

    @cache
    def lets(group: int, member: int) -> detect.DeclaredAccess:
        plan = latest().groups[group]
        paths = Touches(
            _paths(plan, plan.task.paths_read, member),
            _paths(plan, plan.task.paths_written, member),
        )
        return detect.DeclaredAccess(_touches(graph, group, member), paths, _outputs(plan, member))

    def declared(group: int, member: int) -> detect.DeclaredAccess:
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

    ground = detect.DetectorGround(_order(graph), declared, frozenset(rooms), channels, item, where)
    kinds = [type(task.work) for task in tasks]
    return DetectorSubject(
        graph, ground, folder, ignored,
        frozenset(group for group, kind in enumerate(kinds) if kind is Python),
        frozenset(group for group, kind in enumerate(kinds) if kind not in (Python, Prompt)),
        lets,
    )  # fmt: skip


def _touches(graph: Graph, group: int, member: int) -> Touches:
    touches = graph.groups[group].touches
    return ANYTHING if touches is None else touches.of(member)


def _state_rooms(is_declared: bool) -> frozenset[tuple[detect.Room, bool]]:
    """A plan that declares keys for one task is taken to declare them for all."""
    every: tuple[tuple[detect.Room, bool], ...] = (
        ("state", False),
        ("state", True),
        ("effect", True),
    )
    return frozenset(every) if is_declared else frozenset()


def _order(graph: Graph) -> Callable[[tuple[int, int], tuple[int, int]], bool]:
    needs = [[(need.group, need.block) for need in group.needs] for group in graph.groups]
    return detect.order_by(needs, graph.queues.values())


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


Mode = Literal["warn", "enforce", "learn", "off"]
MODES: Final[tuple[Mode, ...]] = get_args(Mode)


class _Open(Struct):
    group: int
    attempt: Attempt
    may: detect.DeclaredAccess
    files: FileLog | None = None
    handed: list[detect.Handed] = field(default_factory=list)
    is_timed: bool = False


class Detector:
    def __init__(self, mode: Mode, subject: DetectorSubject) -> None:
        self.mode = mode
        self.subject = subject
        self._folders = folders_of(subject.folder) if subject.folder else ()
        self._open: dict[int, _Open] = {}
        self.dones: dict[tuple[int, int], detect.FinishedAccess] = {}
        self._lost: dict[tuple[int, int], detect.FinishedAccess] = {}
        self._found: list[detect.DetectorFinding] = []
        """What is known before the end of the run."""
        self._written: set[str] = set()
        self._outputs: set[str] = set()
        # To watch a folder costs something: that is done where it is asked for.
        is_traced = mode in ("enforce", "learn") and subject.folder and subject.commands
        self._trace = FolderTrace(subject.folder, subject.ignored) if is_traced else None
        if self._trace is not None:
            self._trace.is_ours = partial(_is_ours, self._open, self._outputs)

    def around(self, launch: Launch) -> Launch:
        subject, traces = self.subject, self._trace is not None
        seen = [_sees(subject, group, traces) for group in range(len(subject.graph))]
        if self.mode == "off" or not any(seen):
            return launch
        if self._folders and self.subject.functions:
            watch_files()
        works = tuple(
            WatchedWork(index, work, self) if seen[index] else work
            for index, work in enumerate(launch.works)
        )
        sharing = launch.sharing and replace(launch.sharing, watch=self.watch)
        trace = () if self._trace is None else (self._trace.aclose,)
        return replace(launch, works=works, sharing=sharing, closes=(*launch.closes, *trace))

    def watch(self, attempt: Attempt) -> Watch | None:
        opened = self._open.get(attempt.task)
        return None if opened is None else _StateWatch(opened, self.mode == "enforce")

    def begin(self, group: int, attempt: Attempt) -> _Open:
        opened = _Open(group, attempt, self.subject.may(group, attempt.member))
        if self._folders and group in self.subject.functions:
            judge = partial(_judge, opened, "path") if self.mode == "enforce" else None
            opened.files = FileLog(self._folders, self.subject.ignored, judge)
        if self._trace is not None and group in self.subject.commands:
            self._trace.begin(attempt.task, group, attempt.name, opened.may)
        self._open[attempt.task] = opened
        return opened

    def leave(self, opened: _Open) -> None:
        task = opened.attempt.task
        if self._open.get(task) is opened:
            del self._open[task]
        if self._trace is not None:
            self._trace.end(task)

    def end(self, opened: _Open, result: Result) -> None:
        """An attempt has a result. Raises AttemptError if it is not to be taken."""
        outputs = tuple(one for one in opened.may.outputs if not one.startswith(SCHEME))
        self._outputs.update(outputs)
        done = self._touched(opened)
        done = replace(done, calls=result.calls, paths_written=(*done.paths_written, *outputs))
        if self.mode == "enforce":
            _must_keep_to(opened, done, self._written, self.subject.ground.channels)
        self._found += _slips(opened, done, result, self.subject)
        self.note(done)

    def lose(self, opened: _Open) -> None:
        self._lost[opened.group, opened.attempt.member] = self._touched(opened)

    def note(self, done: detect.FinishedAccess) -> None:
        """This is what a task has touched; with an earlier attempt of it this is compared."""
        if done.access == UNTOUCHED and not done.paths_read and not done.paths_written:
            return
        self._written.update(done.paths_written)
        place = (done.group, done.member)
        before = self.dones.get(place)
        if before is not None:
            self._found += detect.unsteady((before,), (done,))
        self.dones[place] = done

    def findings(
        self, earlier: Iterable[detect.FinishedAccess] = ()
    ) -> tuple[detect.DetectorFinding, ...]:
        """Everything that was found; `earlier` is what tasks touched in another run."""
        dones = [self.dones[place] for place in sorted(self.dones)]
        every = {**self._lost, **self.dones}
        found = detect.findings([every[place] for place in sorted(every)], self.subject.ground)
        unclear = _unclear(self._trace.unclear if self._trace is not None else {})
        unlike = detect.across(earlier, dones)
        return detect.merged((*found, *self._found, *unclear, *unlike))

    @property
    def problem(self) -> str:
        """Why something cannot be seen, if it cannot."""
        return "" if self._trace is None else self._trace.problem

    def learned(self) -> tuple[detect.Learned, ...]:
        dones = [self.dones[place] for place in sorted(self.dones)]
        return detect.declarations(dones, self.subject.ground)

    def _touched(self, opened: _Open) -> detect.FinishedAccess:
        attempt, snapshot = opened.attempt, opened.attempt.snapshot
        access = UNTOUCHED
        if snapshot is not None:
            with attempt.lock:
                access = snapshot.access()
        if self._trace is not None and opened.group in self.subject.commands:
            opened.files = self._trace.end(attempt.task)
        files = opened.files
        read, written = ((), ()) if files is None else (tuple(files.read), tuple(files.written))
        return detect.FinishedAccess(
            opened.group, attempt.member, attempt.name, access, read, written, attempt.key,
            attempt.inputs, is_function=opened.group in self.subject.functions,
            is_timed=opened.is_timed,
        )  # fmt: skip


class WatchedWork:
    """A work whose attempts are watched; everything else is as it was."""

    def __init__(self, index: int, work: Work, detector: Detector) -> None:
        self._index = index
        self._work = work
        self._detector = detector
        self.name = work.name
        self.is_local = work.is_local
        self.is_idle_until_sent = work.is_idle_until_sent
        self.publishes = work.publishes
        self.timeout_s = work.timeout_s
        self.label = work.label
        self.key = work.key
        self.count = work.count
        self.publish = work.publish

    async def perform(self, attempt: Attempt) -> Result:
        opened = self._detector.begin(self._index, attempt)
        token = CURRENT.set(opened.files)
        try:
            result = await self._work.perform(attempt)
            self._detector.end(opened, result)
        except AttemptError:
            self._detector.lose(opened)
            raise
        finally:
            CURRENT.reset(token)
            self._detector.leave(opened)
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

    def handed(self, every: Sequence[detect.Handed], is_timed: bool) -> None:
        self._opened.is_timed = is_timed
        self._opened.handed += (one for one in every if one.after != one.before)


def _sees(subject: DetectorSubject, group: int, traces: bool) -> bool:
    if subject.graph.groups[group].touches is not None:
        return True
    is_command = traces and group in subject.commands
    return is_command or (bool(subject.folder) and group in subject.functions)


def _is_ours(opened: Mapping[int, _Open], outputs: Collection[str], path: str) -> bool:
    """Whether a function touches a file now, or headway shows a result there."""
    logs = (one.files for one in opened.values() if one.files is not None)
    return path in outputs or any(path in log.read or path in log.written for log in logs)


def _must_keep_to(
    opened: _Open, done: detect.FinishedAccess, written: Collection[str], channels: Channels
) -> None:
    """AttemptError if an attempt did what it does not declare and what cannot be prevented."""
    for touch in detect.touches_of(done, channels):
        is_own = touch.is_loose and touch.what not in written
        if not is_own and not detect.is_allowed(opened.may, touch):
            detail = _complaint(touch, detect.said_of(opened.may, touch)).render()
            raise AttemptError(Fault("command", detail=detail))


def _slips(
    opened: _Open, done: detect.FinishedAccess, result: Result, subject: DetectorSubject
) -> tuple[detect.DetectorFinding, ...]:
    """Values of the shared state that an attempt changed in place."""
    if not opened.handed:
        return ()
    puts = [put.data for put in done.access.writes if put.data is not None]
    acts = [act.data for act in done.access.acts]
    item = subject.ground.item(done.group, done.member)
    return detect.aliased(done.name, item, opened.handed, puts, (*acts, result.body))


def _judge(opened: _Open, room: detect.Room, what: str, is_write: bool) -> None:
    """UndeclaredError if a task touches what it does not declare."""
    attempt = opened.attempt
    touch = detect.ObservedTouch(opened.group, attempt.member, attempt.name, room, what, is_write)
    if not detect.is_allowed(opened.may, touch):
        raise _complaint(touch, detect.said_of(opened.may, touch))


def _complaint(touch: detect.ObservedTouch, said: Sequence[str] | None = None) -> UndeclaredError:
    key = "writes" if touch.is_write else "reads"
    verb = "asks for" if touch.room == "effect" else key
    return UndeclaredError(
        f"`{touch.name}` {verb} `{touch.shown}` and does not declare it",
        detail=f"`{key}` has: {', '.join(said)}"[:200] if said else None,
        hint=f"add `{touch.shown}` to its `{key}`",
    )


def _unclear(written: Mapping[str, tuple[str, ...]]) -> Iterator[detect.DetectorFinding]:
    """Files that one of several commands has written, none of which declares that."""
    for path, names in written.items():
        others = " or ".join(f"`{name}`" for name in names)
        words = f"{others} writes `{path}`, and none of them declares it"
        yield detect.DetectorFinding(
            "undeclared-write", names[0], path, names[1], words, f"writes: {path}"
        )


def detector_for(mode: Mode, graph: Graph, channels: Channels) -> Detector:
    """The watcher of a run of Python functions. BadValueError if there is no such mode."""
    if mode not in MODES:
        raise BadValueError(f"`detect` cannot be `{mode}`", hint=did_you_mean(mode, MODES))
    return Detector(mode, subject_of_graph(graph, channels))


# The detector of a plan's run: how it is made, and what is asked of it when the run is over.


def detector_of(mode: Mode, run: PlanRun, run_folder: str) -> Detector:
    """The watcher of a run of a plan's file."""
    plans, crew = run.plans, run.crew
    subject = subject_of_plan(
        lambda: plans.expanded, run.launch.graph, crew.channels, crew.folder, run_folder
    )
    return Detector(mode, subject)


def findings_of(
    detector: Detector, run: PlanRun, journal: Journal
) -> tuple[detect.DetectorFinding, ...]:
    """What a run that is over has shown, kept in its journal."""
    if detector.mode == "off":
        return ()
    stateful = [group.touches is not None for group in run.launch.graph.groups]
    before: list[detect.FinishedAccess] = []
    if any(stateful):
        _recall(detector, run, journal.reader, stateful)
        before = earlier(list_runs(folders(run.crew.environment).state), journal.header)
    found = detector.findings(before)
    keep_findings(journal, found)
    return found


def _recall(
    detector: Detector, run: PlanRun, reader: JournalReader, stateful: Sequence[bool]
) -> None:
    """Tell the detector what tasks touched whose results are from another process."""
    # Inner levels of reductions stand behind the declared groups, and touch nothing.
    counts = [
        group.count or 0 if stateful[group.index] else 0 for group in run.plans.expanded.groups
    ]
    if len(detector.dones) >= sum(counts):
        return  # Everything was done here.
    for done in recalled(reader, run.works, counts):
        if (done.group, done.member) not in detector.dones:
            is_function = done.group in detector.subject.functions
            detector.note(replace(done, is_function=is_function))
