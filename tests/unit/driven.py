"""A driver's surroundings for tests: works that follow a script, records that take their time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from msgspec import Struct, field

from headway.base.values import Fault, FaultKind
from headway.engine.events import Event, TaskFinished, TaskReused, TaskStarted
from headway.engine.record import JournalEntry, TaskRow
from headway.engine.state import Rules
from headway.engine.strategy import parse
from headway.plans.graph import Graph, Need, TaskGroup
from headway.run.driver import Driver, Launch, RunOutcome
from headway.run.results import Saved
from headway.testing import run_virtual
from headway.work import Attempt, AttemptError, Needed, Result

Act = Callable[[Attempt], Awaitable[Result]]


async def passes(seconds: float) -> None:
    """So much virtual time."""
    over = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, over.set)
    await over.wait()


async def echo(attempt: Attempt) -> Result:
    """Gives its own name."""
    return Result(attempt.name.encode())


class ScriptedWork(Struct):
    """Performs whatever it is told to, and writes down what it performed."""

    name: str
    act: Act = echo
    is_local: bool = False
    is_idle_until_sent: bool = False
    publishes: bool = False
    timeout_s: float | None = None
    version: str = ""
    """Another one is another content key."""
    is_group: bool = True
    spread_over: str = ""
    performed: list[int] = field(default_factory=list)
    published: list[tuple[int, bytes]] = field(default_factory=list)

    def label(self, member: int) -> str:
        return f"{self.name}[{member}]" if self.is_group else self.name

    def key(self, member: int) -> bytes:
        return f"{self.name}{self.version}/{member}".encode().ljust(16, b".")[-16:]

    def count(self, needed: Callable[[str], list[Needed]]) -> int:
        (one,) = needed(self.spread_over)
        return len(one.body.split())

    def publish(self, member: int, body: bytes | None) -> None:
        if body is not None:
            self.published.append((member, body))

    async def perform(self, attempt: Attempt) -> Result:
        self.performed.append(attempt.member)
        return await self.act(attempt)


class SlowRecord(Struct):
    """Keeps everything; nothing is durable before somebody says so, or a time has passed."""

    delay_s: float | None = 0.0
    """None: only `release` makes anything durable."""
    entries: list[JournalEntry] = field(default_factory=list)
    bodies: dict[bytes, bytes] = field(default_factory=dict)
    rows: dict[bytes, TaskRow] = field(default_factory=dict)
    waiting: list[tuple[Sequence[JournalEntry], Callable[[], None] | None]] = field(
        default_factory=list
    )
    durable: list[JournalEntry] = field(default_factory=list)

    def write(
        self, entries: Sequence[JournalEntry], then: Callable[[], None] | None = None
    ) -> None:
        self.entries += entries
        self.waiting.append((entries, then))
        if self.delay_s is not None:
            asyncio.get_running_loop().call_later(self.delay_s, self.release, 1)

    def release(self, count: int | None = None) -> None:
        """Make the oldest durable, or all."""
        for _ in range(len(self.waiting) if count is None else count):
            entries, then = self.waiting.pop(0)
            for entry in entries:
                self.durable.append(entry)
                if entry.row is not None:
                    self.rows[entry.key] = entry.row
                self.bodies |= dict(entry.bodies)
            if then is not None:
                then()

    async def flush(self) -> None:
        while self.waiting:
            if self.delay_s is None:
                self.release()
            await passes(self.delay_s or 0.0)

    def saved(self) -> Saved:
        """What a later process finds."""
        return Saved(dict(self.rows), self.bodies.get)

    def states(self) -> dict[str, str]:
        return {row.name: row.state for row in self.rows.values()}


class Scene(Struct):
    """One run in virtual time."""

    graph: Graph
    works: Sequence[ScriptedWork]
    strategy: str = "all-at-once"
    retries: int = 0
    record: SlowRecord = field(default_factory=SlowRecord)
    told: list[Event] = field(default_factory=list)
    setup: Mapping[str, object] = field(default_factory=dict)

    def driver(self) -> Driver:
        loop = asyncio.get_running_loop()
        given = {name: one for name, one in self.setup.items() if name in Launch.__struct_fields__}
        rest = {name: one for name, one in self.setup.items() if name not in given}
        launch = Launch(
            self.graph, self.works, Rules(parse(self.strategy), self.retries),
            **{"watch": self.told.extend, **given},  # type: ignore[arg-type]
        )  # fmt: skip
        return Driver(launch, self.record, loop.time, **rest)  # type: ignore[arg-type]

    def run(self, meanwhile: Callable[[Driver], Awaitable[None]] | None = None) -> RunOutcome:
        async def main() -> RunOutcome:
            driver = self.driver()
            if meanwhile is None:
                return await driver.run()
            running = asyncio.ensure_future(driver.run())
            await meanwhile(driver)
            return await running

        return run_virtual(main())

    def started(self) -> list[int]:
        return [event.task for event in self.told if isinstance(event, TaskStarted)]

    def starts_s(self) -> dict[int, float]:
        """When each task last started."""
        return {event.task: event.at_s for event in self.told if isinstance(event, TaskStarted)}

    def finished(self) -> list[int]:
        return [event.task for event in self.told if isinstance(event, TaskFinished)]

    def reused(self) -> list[int]:
        return [event.task for event in self.told if isinstance(event, TaskReused)]


def flat(count: int, **how: object) -> tuple[Graph, ScriptedWork]:
    """One group without needs."""
    work = ScriptedWork("one", **how)  # type: ignore[arg-type]
    return Graph((TaskGroup("one", count, is_local=work.is_local),)), work


def alone(
    count: int, strategy: str = "all-at-once", retries: int = 0, record: SlowRecord | None = None,
    setup: Mapping[str, object] | None = None, **how: object,
) -> Scene:  # fmt: skip
    """A run of one group without needs."""
    graph, work = flat(count, **how)
    return Scene(graph, (work,), strategy, retries, record or SlowRecord(), setup=setup or {})


def stopped(detail: str, *, is_now: bool = False) -> Callable[[Driver], Awaitable[None]]:
    """Stops a run after a second."""

    async def meanwhile(driver: Driver) -> None:
        await passes(1.0)
        driver.stop("interrupted", detail, is_now=is_now)

    return meanwhile


def chain(*works: ScriptedWork, count: int | None = 1, memberwise: bool = True) -> Graph:
    """Each group needs the one before it, member by member or as a whole."""
    groups = []
    for index, work in enumerate(works):
        needs = (Need(index - 1, block=int(memberwise)),) if index else ()
        groups.append(TaskGroup(work.name, count, needs, is_local=work.is_local))
    return Graph(groups)


def after(seconds: float, body: bytes = b"x") -> Act:
    """Takes so long, then gives this."""

    async def act(attempt: Attempt) -> Result:
        del attempt
        await passes(seconds)
        return Result(body)

    return act


def fails(*members: int, kind: FaultKind = "request") -> Act:
    """These members fail, the others give their names."""

    async def act(attempt: Attempt) -> Result:
        if attempt.member in members:
            raise AttemptError(Fault(kind, detail="on purpose"))
        return Result(attempt.name.encode())

    return act


async def settle() -> None:
    """Let everything happen that happens at once."""
    for _ in range(20):
        await passes(0.0)


def spread(body: bytes, *, further: bool = True) -> tuple[Graph, tuple[ScriptedWork, ...]]:
    """A list, one task for each of its words, and one that needs all of them."""
    works = (
        ScriptedWork("list", after(1.0, body), is_group=False),
        ScriptedWork("word", spread_over="list"),
        ScriptedWork("follower"),
        ScriptedWork("all", is_group=False),
    )
    groups = (
        TaskGroup("list", 1),
        TaskGroup("word", None, (Need(0),)),
        TaskGroup("follower", None, (Need(1, block=1),)),
        TaskGroup("all", 1, (Need(2),)),
    )
    count = 4 if further else 2
    return Graph(groups[:count]), works[:count]
