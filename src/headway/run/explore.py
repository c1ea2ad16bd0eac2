"""Performs a plan in a copy of its folder, in declared order, and pairs of its tasks the other way.

Laws:
- Nothing that a task writes within the plan's folder reaches the user's: commands see the copy in
  its place (an overlay), or work in the copy where the system has none.
- No call reaches a model: prompts are answered by a hash of what they ask, or by what an earlier
  run was answered; effects are not performed.
- Before each try the copy is what it was before that task, to the date of every file.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import Struct
from msgspec.structs import replace

from headway.agents.function import takes
from headway.agents.shell import Command
from headway.base.clock import wall_s
from headway.base.digest import digest
from headway.base.folders import folders
from headway.base.values import Fault
from headway.errors import UsageError, did_you_mean
from headway.journal.folder import find_run
from headway.journal.journal import NullJournal
from headway.journal.reader import JournalReader
from headway.plans.expand import ExpandedPlan, keys_of
from headway.plans.spec import CommandSpec, Prompt, Python, TaskSpec, WorkspaceSpec
from headway.report import explore as judge
from headway.report.explore import (
    Changes,
    Difference,
    Explored,
    KnownOrder,
    PairVerdict,
    Performance,
)
from headway.report.findings import order_by
from headway.run.driver import Driver
from headway.run.plan_run import PlanRun, PlanSource, plan_run
from headway.run.run_context import Crew
from headway.run.scratch import ScratchFolder
from headway.run.tasks import function_of
from headway.state.context import Commons
from headway.state.shared import UNTOUCHED, Access, Shared, Snapshot
from headway.work import Attempt, AttemptError, Result, Work
from headway.workspaces.observation import (
    Observation,
    probe,
    read_observation,
    write_spec,
)
from headway.workspaces.store import must_be_apart

if TYPE_CHECKING:
    from headway.agents.prompt import PromptAgent, PromptCall
    from headway.plans.load import Loaded
    from headway.run.filling import Filling
    from headway.run.workspaces import Perform, Verify, Workspaces

LIMIT_S: Final = 30.0
"""How long a task may take that is tried again, or `SLOWER` times as long as in declared order."""
SLOWER: Final = 10
TASKS_MAX: Final = 2_000
"""Tasks that are performed: pairs of more are millions."""
# How tasks are performed in the copy: as a run does it, with other places, models and effects.


class TaskView:
    """The copy as one performance of a task sees it, in the place of a workspace."""

    is_resumed = False
    rejected = ""

    def __init__(self, site: ExploreSite, spec: WorkspaceSpec, start: str) -> None:
        self.site, self.spec, self.start = site, spec, start
        self.logs: list[str] = []

    def reset(self) -> None:
        """There is nothing that an earlier attempt has left."""

    def file(self, kind: str) -> str:
        return self.site.path(kind)

    def command(self, command: Command, *, is_observed: bool = True) -> Command:
        site = self.site
        path, log = site.path("spec"), site.path("observed")
        spec = {
            "mode": site.mode, "folder": site.folder, "cwd": self.start, "log": log,
            "observe": site.is_observed,
            "own": [site.run_folder, "/run/user"], **site.mounts,
        }  # fmt: skip
        write_spec(path, spec)
        del is_observed  # Whatever it starts is a part of what it does.
        self.logs.append(log)
        return replace(command, spec=path)


class ExploreSite:
    """Where a plan is tried: the copy, and how commands get to see it."""

    def __init__(self, folder: str, root: str) -> None:
        self.folder = os.path.realpath(folder)
        self.root = root
        self.run_folder = os.path.join(root, "run")
        tree = os.path.join(root, "tree")
        none, work = os.path.join(tree, "none"), os.path.join(tree, "work")
        for place in (self.run_folder, tree, none, work):
            os.mkdir(place)
        found = probe(tree)
        self.mode, self.is_observed, self.words = found.mode, found.is_observed, found.words
        self.files = ScratchFolder(self.folder, os.path.join(tree, "files"))
        is_overlay = self.mode == "overlay"
        self.start = self.folder if is_overlay else self.files.place
        """The copy, as commands see it."""
        self.mounts: dict[str, object] = {"place": self.files.place}
        if is_overlay:
            self.mounts = {
                "lower": [none], "upper": self.files.place,
                "work": work, "hidden": [tree],
            }  # fmt: skip
        self._number = 0

    def path(self, kind: str) -> str:
        self._number += 1
        return os.path.join(self.run_folder, f"{self._number}.{kind}")


class CopyViews:
    """In the place of a run's workspaces: shows every task the one copy."""

    def __init__(self, site: ExploreSite) -> None:
        self.site = site
        self.current: TaskView | None = None
        """What the task sees that was performed last."""

    async def perform(
        self, spec: WorkspaceSpec, filling: Filling, work: Perform, verify: Verify | None
    ) -> Result:
        del verify  # It is a part of the work, as in a run that lands exactly.
        start = os.path.normpath(os.path.join(self.site.start, filling.text(spec.path)))
        self.current = TaskView(self.site, spec, start)
        return await work(replace(filling, workspace=cast("Any", self.current)))


class ExploreCrew(Crew):
    """Performs tasks as a run does, in the copy and without models."""

    site: ExploreSite | None = None
    views: CopyViews | None = None
    answers: KnownAnswers | None = None

    def workspaces(self) -> Workspaces:
        return cast("Workspaces", self.views)

    async def prompts(self) -> PromptAgent:
        return cast("PromptAgent", self.answers)

    @contextmanager
    def in_copy(self) -> Iterator[None]:
        """Where this process itself writes: outputs, functions that take `ctx`."""
        assert self.site is not None
        before, self.folder = self.folder, self.site.files.place
        try:
            yield
        finally:
            self.folder = before


class KnownAnswers:
    """Answers a prompt as an earlier run was answered, or with a hash of its text."""

    def __init__(self, plan: ExpandedPlan, answers: Mapping[tuple[bytes, bytes], bytes]) -> None:
        self._answers = answers
        self._keys = {
            group.label(member): keys.key(member)
            for group, keys in zip(plan.groups, keys_of(plan), strict=True)
            if keys is not None and answers
            for member in range(group.count or 0)
        }

    async def perform(self, call: PromptCall, attempt: Attempt) -> Result:
        text = digest(f"{call.model}\0{call.system}\0{call.prompt}".encode()).hex()
        asked = self._keys.get(attempt.name, b""), attempt.inputs
        return Result(self._answers.get(asked, text.encode()))


class TriedTask(Struct, eq=False):
    """A task that was performed in declared order, and what that did."""

    group: int
    member: int
    label: str
    work: Work | None = None
    attempt: Attempt | None = None
    done: Performance = Performance()


class TriedWork:
    """A work whose performances are recorded; everything else is as it was."""

    def __init__(self, index: int, work: Work, trial: PlanTrial) -> None:
        self._index, self._work, self._trial = index, work, trial
        self.name = work.name
        self.is_local = work.is_local
        self.is_idle_until_sent = work.is_idle_until_sent
        self.publishes = work.publishes
        self.timeout_s = work.timeout_s
        self.label = work.label
        self.key = work.key
        self.count = work.count

    def publish(self, member: int, body: bytes | None) -> None:
        with self._trial.crew.in_copy():
            self._work.publish(member, body)
        if body is not None:
            self._trial.published(self._index, member)

    async def perform(self, attempt: Attempt) -> Result:
        return await self._trial.first(self._index, self._work, attempt)


class PlanTrial:
    """One plan that is tried: in declared order, then pairs of its tasks the other way."""

    def __init__(self, original: ExpandedPlan, run: PlanRun, crew: ExploreCrew) -> None:
        self.original, self.run, self.crew = original, run, crew
        assert crew.site is not None
        assert crew.views is not None
        self.files, self._views = crew.site.files, crew.views
        self.tasks: list[TriedTask] = []
        """In the order in which they were performed, which is the declared one."""
        self.tries = 0
        sharing = run.launch.sharing
        self._shared: Shared | None = None if sharing is None else sharing.coherence.shared
        self._memories: dict[int, frozenset[str]] = {}
        self._same_without: dict[int, frozenset[int]] = {}
        """By task: those before it without all of which it does the same."""
        self._same_behind: dict[int, frozenset[int]] = {}
        """By task: those after it behind all of which it does the same."""
        self._is_steady: dict[str, bool] = {}
        """Whether a task does the same again on the same files."""

    async def serial(self) -> None:
        """Perform all tasks, one after another."""
        launch = self.run.launch
        works = (
            *(TriedWork(n, work, self) for n, work in enumerate(self.run.works[: self._count])),
            *self.run.works[self._count :],
        )
        for lend in () if launch.sharing is None else launch.sharing.lends:
            lend(Commons())
        await Driver(replace(launch, works=works), NullJournal(), wall_s).run()
        known = {(task.group, task.member) for task in self.tasks}
        for group in self.run.plans.expanded.groups:
            for member in range(1 if group.count is None else group.count):
                if (group.index, member) not in known:
                    label = group.name if group.count is None else group.label(member)
                    why = "it was not performed: what it needs has failed"
                    done = Performance(fault=why)
                    self.tasks.append(TriedTask(group.index, member, label, done=done))

    @property
    def _count(self) -> int:
        return len(self.original.groups)

    async def first(self, group: int, work: Work, attempt: Attempt) -> Result:
        """Perform a task in declared order. Raises AttemptError."""
        task = TriedTask(group, attempt.member, attempt.name, work, attempt)
        self.tasks.append(task)
        if len(self.tasks) > TASKS_MAX:
            raise AttemptError(Fault("request", detail=f"more than {TASKS_MAX:,} tasks"))
        # The driver takes the snapshot back when the attempt ends.
        task.done, ended = await self._performed(task, attempt)
        task.attempt = _twin(attempt)
        if isinstance(ended, AttemptError):
            raise ended
        return ended

    def published(self, group: int, member: int) -> None:
        task = next(one for one in self.tasks if (one.group, one.member) == (group, member))
        task.done = _with_output(task.done, self.files.scan())

    async def again(self, task: TriedTask, files: Changes) -> Performance:
        """Perform it once more, on other files, but the same results and shared state."""
        assert task.attempt is not None
        assert task.work is not None
        self.tries += 1
        self.files.restore(files)
        attempt = _twin(task.attempt)
        if attempt.snapshot is not None and self._shared is not None:
            attempt.snapshot = Snapshot(self._shared, attempt.snapshot.position)
        limit_s = max(LIMIT_S, SLOWER * task.done.took_s)
        try:
            async with asyncio.timeout(limit_s):
                done, ended = await self._performed(task, attempt)
        except TimeoutError:
            return Performance(fault=f"it has not ended after {limit_s:.0f} s")
        if task.work.publishes and isinstance(ended, Result):
            try:
                with self.crew.in_copy():
                    task.work.publish(task.member, ended.body)
            except OSError as wrong:
                return replace(done, fault=wrong.strerror or str(wrong))
            done = _with_output(done, self.files.scan())
        return done

    async def _performed(
        self, task: TriedTask, attempt: Attempt
    ) -> tuple[Performance, Result | AttemptError]:
        assert task.work is not None
        snapshot, began_s = attempt.snapshot, time.monotonic()
        self._views.current = None
        ended: Result | AttemptError
        is_inside = self._is_inside(task.group)
        try:
            with self.crew.in_copy() if is_inside else nullcontext():
                ended = await task.work.perform(attempt)
        except AttemptError as lost:
            ended = lost
        logs = self._observed()
        changes = self.files.scan()
        used: frozenset[str] | None = None
        # Of a search not everything is known that it looked at.
        if not is_inside and all(log.is_whole and not log.searches for log in logs):
            paths = [path for log in logs for path in (*log.reads, *log.listed, *log.writes)]
            used = judge.with_above([*paths, *changes])
        access = UNTOUCHED if snapshot is None else snapshot.access()
        lost_result = ended.result if isinstance(ended, AttemptError) else ended
        done = Performance(
            "" if isinstance(ended, Result) else ended.fault.detail or ended.fault.kind,
            b"" if lost_result is None else lost_result.body,
            changes, used, frozenset(path for log in logs for path in log.listed),
            _puts(access), tuple(look.what for look in access.reads), _outside(logs),
            time.monotonic() - began_s,
        )  # fmt: skip
        return done, ended

    def _observed(self) -> list[Observation]:
        """What the commands of the task have read and written that was performed last."""
        view = self._views.current
        return [] if view is None else [read_observation(log) for log in view.logs]

    def _is_inside(self, group: int) -> bool:
        """Whether this process itself performs it, which is not observed."""
        plan = self.run.plans.expanded
        task = plan.groups[group].task
        return isinstance(task.work, Python) and plan.spec.workspace_of(task) is None

    # Pairs.

    async def pairs(self, named: Sequence[str]) -> AsyncIterator[PairVerdict]:
        """Every pair, or those of two names; those in between are known when a pair is judged."""
        graph = self.run.launch.graph
        needs = [[(need.group, need.block) for need in group.needs] for group in graph.groups]
        is_ordered = order_by(needs, graph.queues.values())
        tasks = self.tasks
        order = KnownOrder(len(tasks), lambda one, other: is_ordered(
            *((tasks[n].group, tasks[n].member) for n in (one, other))
        ))  # fmt: skip
        for second, after in enumerate(tasks):
            for first in reversed(range(second)):
                if is_wanted((tasks[first].label, after.label), named):
                    found = await self._pair(first, second, order)
                    if found.verdict in ("fails", "differs"):
                        order.add(first, second)
                    yield found

    async def _pair(self, first: int, second: int, order: KnownOrder) -> PairVerdict:
        before, after = self.tasks[first], self.tasks[second]
        pair = PairVerdict(before.label, after.label, "independent")
        if path := judge.read_early(self.original, after.group, before.done.changes):
            early = Difference("early", path, "", "")
            return replace(pair, verdict="differs", difference=early)
        if order.declares(first, second):
            return replace(pair, verdict="ordered", why=self._edge(before.group, after.group))
        if self._keeps_files(before.group) and self._keeps_files(after.group):
            return replace(pair, verdict="kept", why="each works on files of its own")
        if why := self._unknown(before) or self._unknown(after):
            return replace(pair, verdict="unjudged", why=why)
        if judge.uses(after.done, before.done.changes) or judge.uses(
            before.done, after.done.changes
        ):
            middle = order.between(first, second)
            if middle is not None:
                return replace(pair, verdict="implied", why=self.tasks[middle].label)
            pair = await self._turned(pair, first, second, order)
        return self._beyond_files(pair, before, after) if pair.verdict == "independent" else pair

    def _beyond_files(self, pair: PairVerdict, before: TriedTask, after: TriedTask) -> PairVerdict:
        """The same, if nothing that was not compared can come between them."""
        for task in (before, after):
            if task.done.outside:
                why = f"`{task.label}` writes {task.done.outside[0]}, outside of the plan's folder"
                return replace(pair, verdict="unjudged", why=why)
        if names := self._memory(before.group) & self._memory(after.group):
            why = f"both use `{min(names)}`, which the functions of a run share in memory"
            return replace(pair, verdict="unjudged", why=why)
        if key := judge.common_key(before.done, after.done):
            why = f"a run keeps the order of what they do with `state:{key}`"
            return replace(pair, verdict="kept", why=why)
        return pair

    def _memory(self, group: int) -> frozenset[str]:
        """Values in memory that the function of a group names and that can change."""
        work = self.original.groups[group].task.work
        if not isinstance(work, Python):
            return frozenset()
        if group not in self._memories:
            with suppress(UsageError):
                function = function_of(work.target, self.crew.folder)
                self._memories[group] = frozenset(values_named(function))
        return self._memories.get(group, frozenset())

    async def _turned(
        self, pair: PairVerdict, first: int, second: int, order: KnownOrder
    ) -> PairVerdict:
        """Perform the second one before the first one, then the first one after it."""
        before, after = self.tasks[first], self.tasks[second]
        dones = [task.done for task in self.tasks]
        behind = order.behind(first, second)
        base = judge.files_before(dones, second, {first, *behind})
        start, whole = (judge.files_before(dones, number, set()) for number in (first, second))
        early, late = after.done, before.done
        if any(judge.uses(after.done, dones[n].changes) for n in (first, *behind)):
            early = await self._without(first, second, base, order)
            if found := judge.compare(after.label, after.done, early):
                return await self._changed(pair, found, after, whole)
        if judge.uses(before.done, early.changes):
            late = await self._behind(first, second, {**start, **early.changes}, order)
            if found := judge.compare(before.label, before.done, late):
                return await self._changed(pair, found, before, start)
        ends = {**base, **early.changes, **late.changes}
        for number in behind:
            ends |= dones[number].changes
        serial = {**whole, **after.done.changes}
        found = judge.compare_files(serial, ends, self.files.base, self.files.text)
        if found is None:
            return replace(pair, why="tried")
        if found.where in early.changes and found.where in late.changes:
            # Both write it, in whichever way: which of them comes last decides what is left.
            return self._dependent(pair, found)
        if early is not after.done:
            return await self._changed(pair, found, after, whole)
        return await self._changed(pair, found, before, start)

    async def _without(
        self, first: int, second: int, base: Changes, order: KnownOrder
    ) -> Performance:
        """The second task without the first one: together with all others that it may depend on,
        if it does the same without all of them."""
        task, dones = self.tasks[second], [task.done for task in self.tasks]
        if second not in self._same_without:
            self._same_without[second] = frozenset()
            others = [one for one in range(second) if self._may_come_before(one, second, order)]
            changes = [task.done.changes, *(dones[one].changes for one in others)]
            if len(others) > 1 and judge.are_apart(changes):
                left_out = {n for one in others for n in (one, *order.behind(one, second))}
                done = await self.again(task, judge.files_before(dones, second, left_out))
                if judge.is_same(task.done, done):
                    self._same_without[second] = frozenset(others)
        if first in self._same_without[second]:
            return task.done
        return await self.again(task, base)

    async def _behind(
        self, first: int, second: int, files: Changes, order: KnownOrder
    ) -> Performance:
        """The first task after the second one: after all others that it may depend on, if it does
        the same after all of them."""
        task, dones = self.tasks[first], [task.done for task in self.tasks]
        if first not in self._same_behind:
            self._same_behind[first] = frozenset()
            others = [
                one for one in range(first + 1, len(dones))
                if judge.uses(task.done, dones[one].changes) and not order.declares(first, one)
            ]  # fmt: skip
            changes = [task.done.changes, *(dones[one].changes for one in others)]
            if len(others) > 1 and judge.are_apart(changes):
                every = judge.files_before(dones, first, set())
                for one in others:
                    every |= dones[one].changes
                if judge.is_same(task.done, await self.again(task, every)):
                    self._same_behind[first] = frozenset(others)
        if second in self._same_behind[first]:
            return task.done
        return await self.again(task, files)

    def _may_come_before(self, one: int, second: int, order: KnownOrder) -> bool:
        is_free = not order.declares(one, second) and not self._unknown(self.tasks[one])
        return is_free and judge.uses(self.tasks[second].done, self.tasks[one].done.changes)

    async def _changed(
        self, pair: PairVerdict, found: Difference, task: TriedTask, files: Changes
    ) -> PairVerdict:
        """Something is different: because of the order, unless it is so on the same files too."""
        if task.label not in self._is_steady:
            control = await self.again(task, files)
            self._is_steady[task.label] = judge.is_same(task.done, control)
        if not self._is_steady[task.label]:
            why = f"`{task.label}` does something else each time, on the same files too"
            return replace(pair, verdict="unjudged", why=why)
        return self._dependent(pair, found)

    def _dependent(self, pair: PairVerdict, found: Difference) -> PairVerdict:
        group = self.original.groups[self._group(pair.second)]
        return replace(
            pair, verdict="fails" if found.kind == "fails" else "differs", difference=found,
            fix=judge.fix_of(pair.first, pair.second, group.task.needs),
        )  # fmt: skip

    def _group(self, label: str) -> int:
        return next(task.group for task in self.tasks if task.label == label)

    def _edge(self, before: int, after: int) -> str:
        """The key that orders two tasks."""
        groups = self.original.groups
        keys = [edge.key for edge in groups[after].edges if edge.group == before]
        if keys:
            return next((key for key in keys if key != "reads"), "reads")
        is_queue = (
            groups[after].task.queue and groups[after].task.queue == groups[before].task.queue
        )
        return "queue" if is_queue else "other tasks"

    def _keeps_files(self, group: int) -> bool:
        """Whether a run gives it files of its own, which land in declared order."""
        spec = self.original.spec
        made = spec.workspace_of(self.original.groups[group].task)
        return made is not None and made.land != "merge"

    def _unknown(self, task: TriedTask) -> str:
        """Why nothing can be said of a task; empty if it was performed as in a run."""
        spec = self.original.groups[task.group].task
        if isinstance(spec.work, Prompt) and spec.work.agent is not None:
            return (
                f"`{task.label}` is performed by the agent `{spec.work.agent}`, which costs tokens"
            )
        made = self.original.spec.workspace_of(spec)
        if made is not None and (made.setup or made.setup_each or made.base):
            return f"`{task.label}` begins with files that its `workspace` makes"
        if task.done.fault:
            return f"`{task.label}` fails in declared order: {task.done.fault}"
        return ""


def is_wanted(labels: tuple[str, str], named: Sequence[str]) -> bool:
    """Whether a pair is one of two tasks, or groups, that were named."""
    if not named:
        return True
    return any(
        judge.is_named(labels[0], one) and judge.is_named(labels[1], other)
        for one, other in (named, named[::-1])
    )


def values_named(function: object, seen: set[int] | None = None) -> Iterator[str]:
    """Lists, dicts, sets and objects of modules that a function, or one that it calls, names."""
    seen = set() if seen is None else seen
    code, module = getattr(function, "__code__", None), getattr(function, "__globals__", {})
    if code is None or id(code) in seen:
        return
    seen.add(id(code))
    for name in code.co_names:
        value = module.get(name)
        if isinstance(value, (list, dict, set, bytearray)):
            yield f"{module.get('__name__')}.{name}"
        elif getattr(value, "__module__", None) == module.get("__name__"):
            if hasattr(value, "__code__"):
                yield from values_named(value, seen)
            elif not isinstance(value, type) and hasattr(value, "__dict__"):
                yield f"{module.get('__name__')}.{name}"


def _with_output(done: Performance, changes: Changes) -> Performance:
    used = None if done.used is None else done.used | judge.with_above(changes)
    return replace(done, changes={**done.changes, **changes}, used=used)


def _puts(access: Access) -> tuple[str, ...]:
    puts = (
        f"{put.key}: {'gone' if put.data is None else put.data.decode()}" for put in access.writes
    )
    return (*puts, *(f"{act.channel}: {act.data.decode()}" for act in access.acts))


def _outside(logs: list[Observation]) -> tuple[str, ...]:
    """What was written elsewhere and is still there; temporary files are gone by now."""
    every = (path for log in logs for path in (*filter(os.path.lexists, log.outside), *log.refused))
    return tuple(dict.fromkeys(every))


async def _nothing(*_: object) -> None:
    """Nothing is set aside, and nothing kept."""


def _wait(why: str = "", /) -> None:
    """No call waits."""


def _twin(one: Attempt) -> Attempt:
    """Another attempt that is given the same."""
    return Attempt(
        one.task, one.member, one.number, one.key, one.name, one.needed, _wait, _wait, _nothing,
        _nothing, one.inputs, snapshot=one.snapshot, missing=one.missing,
    )  # fmt: skip


# A plan, as it is tried.


def as_tried(expanded: ExpandedPlan, folder: str) -> ExpandedPlan:
    """The plan with one task at a time, as declared, each in the copy; no agent and no model."""
    tasks = {task.name: _tried_task(task, n, folder) for n, task in enumerate(expanded.spec.tasks)}
    spec = replace(expanded.spec, tasks=tuple(tasks.values()), budget=None, strategy="",
                   workspace=WorkspaceSpec())  # fmt: skip
    groups = tuple(replace(group, task=tasks[group.name]) for group in expanded.groups)
    return replace(expanded, spec=spec, groups=groups)


def _tried_task(task: TaskSpec, number: int, folder: str) -> TaskSpec:
    work, path = task.work, task.workspace.path
    task = replace(task, priority=float(-number), retries=0, budget=None, revise=None)
    if isinstance(work, Prompt):
        # What stands for an answer fits no schema.
        return replace(task, work=replace(work, agent=None), schema="", verify="")
    is_on = isinstance(work, CommandSpec) or not takes_context(work, folder)
    return replace(task, workspace=WorkspaceSpec(is_on, path, land="exact", reruns=0))


def takes_context(work: Python, folder: str) -> bool:
    """Whether a function is given the shared state, for which it has to be in this process."""
    try:
        return takes(function_of(work.target, folder), "ctx")
    except UsageError:
        return False  # Its task says so.


async def _explored(
    loaded: Loaded, site: ExploreSite, crew: ExploreCrew, options: ExploreOptions
) -> Explored:
    original, less = judge.cropped(loaded.expanded, options.members)
    source = PlanSource("", loaded.text, "fixed:1", 1, 0)
    crew.answers = KnownAnswers(original, options.answers)
    run = plan_run(as_tried(original, site.folder), source, crew)
    trial = PlanTrial(original, run, crew)
    found = Explored(loaded.expanded.spec.name, 0, cropped=less)
    try:
        await trial.serial()
        names = {
            name for task in trial.tasks for name in (task.label, task.label.partition("[")[0])
        }
        for name in options.named:
            if name not in names:
                raise UsageError(f"the plan has no task `{name}`", hint=did_you_mean(name, names))
        found.tasks = len(trial.tasks)
        total = found.tasks * (found.tasks - 1) // 2
        async for pair in trial.pairs(options.named):
            found.pairs.append(pair)
            options.tell(f"{len(found.pairs):,} of {total:,} pairs, {trial.tries:,} tries")
    finally:
        await crew.aclose()
    place = {task.label: number for number, task in enumerate(trial.tasks)}
    found.pairs.sort(key=lambda pair: (place[pair.first], place[pair.second]))
    found.tries = trial.tries
    unknown = [group.name for group in run.plans.expanded.groups if group.count is None]
    found.notes = (*((site.words,) if site.words else ()),
                   *(f"the members of `{name}` are not known" for name in unknown))  # fmt: skip
    return found


class ExploreOptions(Struct, frozen=True):
    members: int = judge.MEMBERS_MAX
    named: tuple[str, ...] = ()
    tell: Callable[[str], object] = str
    answers: Mapping[tuple[bytes, bytes], bytes] = {}


def explore(loaded: Loaded, environment: Mapping[str, str], options: ExploreOptions) -> Explored:
    """Perform a plan and pairs of its tasks in a copy of its folder, which is removed."""
    folder, state = str(loaded.folder.resolve()), folders(environment).state
    must_be_apart(folder, state)
    os.makedirs(state, mode=0o700, exist_ok=True)
    root = tempfile.mkdtemp(prefix="explore-", dir=state)
    here, path, writes_code = os.getcwd(), list(sys.path), sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        site = ExploreSite(folder, root)
        os.chdir(site.files.place)
        crew = ExploreCrew(
            site.start, site.run_folder, os.path.basename(root), environment, site=site,
            views=CopyViews(site),
        )  # fmt: skip
        return asyncio.run(_explored(loaded, site, crew, options))
    finally:
        os.chdir(here)
        sys.path[:], sys.dont_write_bytecode = path, writes_code
        shutil.rmtree(root, ignore_errors=True)


def answers_of(run: str, environment: Mapping[str, str]) -> dict[tuple[bytes, bytes], bytes]:
    """What the tasks of a run gave, by their keys and the digests of what they were given."""
    place = find_run(folders(environment).state, run)
    with JournalReader(place.folder) as reader:
        found = {
            (row.key, row.ending.inputs): reader.body(row.ending.body)
            for row in reader.rows("finished")
        }
    return {key: body for key, body in found.items() if body is not None}
