"""`Plan`: tasks with needs, as Python functions; `Run`: one execution."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from msgspec import Struct, field
from msgspec.structs import replace

from headway.agents.function import FunctionAgent
from headway.api.functions import FunctionWork, How, agent_of, must_be_known, wait_for
from headway.api.sharing import Keys, Reducer, performed, shares_of, state_in, touches_of
from headway.engine.events import Event
from headway.errors import (
    BadValueError,
    DuplicateTaskError,
    EffectFailedError,
    TasksFailedError,
    did_you_mean,
)
from headway.plans.graph import Graph, Need, TaskGroup
from headway.run.driver import Launch, RunOutcome, Sharing
from headway.state.coherence import Coherence

if TYPE_CHECKING:
    from headway.report.findings import Finding
    from headway.run.observe import Observer


class TaskHandle(Struct, frozen=True):
    """A task of a plan, for `each` and `needs` of later ones."""

    name: str
    index: int


class TaskHow(TypedDict, total=False):
    """Options of a task; each has a default."""

    queue: str
    """Tasks of one queue run one after another, in declared order."""
    timeout_s: float | None
    """How long one attempt may take."""
    reads: Keys
    """Keys and patterns of the shared state that its function reads, or a function of the item that
    gives them. Without it: anything."""
    writes: Keys
    """The same for what it writes, and `effect:NAME` for the effects that it asks for."""


class PlanHow(How, total=False):
    """Options of a run; each has a default."""

    observe: Literal["warn", "enforce", "off"]
    """Whether lost updates and stale reads of files are found: `warn` (default) names them in
    `run.findings`, `enforce` stops at the first."""


class Plan:
    """Functions that need each other's results. Each starts when its own needs are done.

    plan = headway.Plan("records")
    parsed = plan.task("parse", parse, each=files)        # parse(file)
    checked = plan.task("check", check, each=parsed)      # check(result), as each is parsed
    plan.task("report", report, needs=checked)            # report([result, ...])
    results = plan.run(retries=2).results

    `state` says how what tasks put under a key of the shared state combines ("append", "set",
    "counter", "max", or a function of two values), `effects` who performs effects on the world, as
    `send(payload, key)`. Functions reach both by a parameter named `ctx`.
    """

    def __init__(
        self,
        name: str,
        *,
        state: Mapping[str, str | Reducer] | None = None,
        effects: Mapping[str, str | Callable[[Any, str], object]] | None = None,
    ) -> None:
        self.name = name
        self.shares = shares_of(state, effects)
        self._agent = FunctionAgent()
        self._declared: list[tuple[FunctionWork, TaskGroup]] = []
        self._names: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<Plan {self.name!r}, {len(self._declared)} tasks>"

    def task(
        self,
        name: str,
        function: Callable[..., object],
        *,
        each: Sequence[object] | TaskHandle | None = None,
        needs: TaskHandle | Sequence[TaskHandle] = (),
        **how: Unpack[TaskHow],
    ) -> TaskHandle:
        """Add a task, or one for each item, or one for each result of another task.

        Its function is given the item, then the results of what it needs, in this order.
        """
        must_be_known(how, TaskHow)
        if name in self._names:
            raise DuplicateTaskError(f"two tasks have the name `{name}`", hint="rename one of them")
        work = FunctionWork(
            name, function, self._agent, own_s=how.get("timeout_s"), shared=self.shares.salt
        )
        edges: list[Need] = []
        count: int | None = 1
        if isinstance(each, TaskHandle):
            count = self._over(work, each, edges)
        elif each is not None:
            work.items, count = each, len(each)
        for need in (needs,) if isinstance(needs, TaskHandle) else needs:
            other, _ = self._must_know(need)
            work.sources += ((other, False),)
            edges.append(Need(need.index))
        given = (each is not None) + len(edges) - isinstance(each, TaskHandle)
        touches = touches_of(work, given, how.get("reads"), how.get("writes"))
        group = TaskGroup(name, count, tuple(edges), queue=how.get("queue", ""), touches=touches)
        handle = TaskHandle(name, len(self._declared))
        self._names[name] = handle.index
        self._declared.append((work, group))
        return handle

    def run(self, **how: Unpack[PlanHow]) -> Run:
        """Perform it to its end; TasksFailedError if something failed."""
        return wait_for(self.run_async(**how), "plan.run_async", how.get("durable"))

    async def run_async(self, **how: Unpack[PlanHow]) -> Run:
        """`run`, for code that runs in an event loop."""
        run = Run(self, how)
        await run.perform()
        return run.checked()

    def start(self, **how: Unpack[PlanHow]) -> Run:
        """Perform it in a thread of its own; look at `run.events()`, and `wait` for it."""
        run = Run(self, how)
        run.begin()
        return run

    @property
    def graph(self) -> Graph:
        """Its tasks, checked."""
        return Graph(self.groups)

    @property
    def groups(self) -> tuple[TaskGroup, ...]:
        """Its tasks as they were declared."""
        return tuple(group for _, group in self._declared)

    @property
    def works(self) -> tuple[FunctionWork, ...]:
        return tuple(work for work, _ in self._declared)

    def _over(self, work: FunctionWork, each: TaskHandle, edges: list[Need]) -> int | None:
        """Spread over a group: one for each of its members; over one task: for each of its list."""
        other, group = self._must_know(each)
        if other.is_single:
            work.spread_over = other
            edges.append(Need(each.index))
            return None
        work.sources = ((other, True),)
        edges.append(Need(each.index, block=1))
        return group.count

    def _must_know(self, handle: TaskHandle) -> tuple[FunctionWork, TaskGroup]:
        if self._names.get(handle.name) != handle.index:
            raise BadValueError(
                f"`{handle.name}` is not a task of this plan",
                hint=did_you_mean(handle.name, self._names) if self._names else None,
            )
        return self._declared[handle.index]


class Run(Struct):
    """One execution of a plan."""

    plan: Plan
    how: PlanHow
    outcome: RunOutcome | None = None
    """How it ended; None while it goes on."""
    _told: list[Event] = field(default_factory=list)
    _news: threading.Condition = field(default_factory=threading.Condition)
    _thread: threading.Thread | None = None
    _error: BaseException | None = None
    _sharing: Sharing | None = None
    _coherence: Coherence | None = None
    _observer: Observer | None = None
    _unperformed: tuple[str, ...] = ()
    """What stopped effects on the world, in words."""

    def __repr__(self) -> str:
        # Short: asyncio shows the result of a coroutine to a replaced signal handler.
        return f"<Run {'ended' if self.outcome else 'running'}>"

    @property
    def state(self) -> Mapping[str, object]:
        """What the tasks have put into the shared state, when the run has ended."""
        return state_in(self._coherence)

    @property
    def reran(self) -> int:
        """How many attempts were in vain, because what they had read has changed."""
        return 0 if self._coherence is None else self._coherence.reruns

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Files that tasks used at the same time, or in an order that only luck gave."""
        return () if self._observer is None else self._observer.findings()

    @property
    def results(self) -> Mapping[str, object]:
        """By task: its result, or the list of its members' in order; None where there is none."""
        return {work.name: _result(work) for work in self.plan.works}

    @property
    def errors(self) -> Mapping[str, BaseException]:
        """By label, of what failed."""
        return {
            work.label(member): error
            for work in self.plan.works
            for member, error in sorted(work.errors.items())
        }

    def events(self) -> Iterator[Event]:
        """Everything that happened and, until it ends, happens."""
        told = 0
        while True:
            while told < len(self._told):
                yield self._told[told]
                told += 1
            with self._news:
                while told == len(self._told):
                    if self.outcome is not None or self._error is not None:
                        return
                    self._news.wait()

    def begin(self) -> None:
        """Perform it in the background."""
        self._thread = threading.Thread(target=self._background, name="headway-run", daemon=True)
        self._thread.start()

    def wait(self) -> Run:
        """Until it has ended; TasksFailedError if something failed."""
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error
        return self.checked()

    async def perform(self) -> None:
        """Perform it here."""
        must_be_known(self.how, PlanHow)
        retries, in_processes = self.how.get("retries", 0), self.how.get("in_processes", False)
        groups = self.plan.groups
        if retries or in_processes:  # No retries at all is what the run's own rule says.
            groups = tuple(
                replace(one, retries=retries or one.retries, is_local=in_processes)
                for one in groups
            )
        works, agent = self.plan.works, agent_of(self.how)
        for work in works:
            work.begin(agent, bool(self.how.get("durable")), in_processes)
            work.timeout_s = self.how.get("timeout_s") if work.own_s is None else work.own_s
        shares = self.plan.shares
        done = await performed(works, groups, self.how, shares, self._watch, around=self._watched)
        with self._news:
            self._coherence = None if self._sharing is None else self._sharing.coherence
            if done.outbox is not None:
                self._unperformed = tuple(done.outbox.failures())
            self.outcome = done.outcome
            self._news.notify_all()

    def checked(self) -> Run:
        """Itself, if nothing failed and nothing is left undone."""
        errors = self.errors
        if errors and not self.how.get("return_exceptions"):
            name, first = next(iter(errors.items()))
            error = TasksFailedError(f"{len(errors)} tasks failed", detail=f"{name}: {first!r}")
            error.results = dict(self.results)
            raise error from first
        if self._unperformed and not self.how.get("return_exceptions"):
            raise EffectFailedError(
                self._unperformed[0],
                detail="all tasks are finished",
                hint="with `durable=` the next run performs what was not, and nothing else",
            )
        return self

    def _watched(self, launched: Launch) -> Launch:
        self._sharing = launched.sharing
        mode = self.how.get("observe", "warn")
        if mode == "off" or self.how.get("in_processes"):
            return launched
        from headway.run.observe import observer_for

        self._observer = observer_for(mode, launched.graph)
        return self._observer.around(launched)

    def _watch(self, events: Sequence[Event]) -> None:
        with self._news:
            self._told.extend(events)
            self._news.notify_all()

    def _background(self) -> None:
        try:
            asyncio.run(self.perform())
        except BaseException as error:
            with self._news:
                self._error = error
                self._news.notify_all()


def _result(work: FunctionWork) -> object:
    if work.is_single:
        return work.values.get(0)
    return [work.values.get(member) for member in range(work.size)]
