"""The engines that `bench.engine` compares: a small adapter each, run where its peer is installed.

    python -m bench.engine_peers NAME LAYERS WIDTH SPREAD FOLDER

Every adapter performs the same graph of tasks: LAYERS layers of WIDTH tasks, each of which needs
SPREAD tasks of the layer before. A task does next to nothing: it adds up what it is given, so that
the last layer proves that every result arrived where it was needed. Adapters prepare, and give a
function that performs; only that is timed. Peers are written as their documentation says.
"""

from __future__ import annotations

import asyncio
import json
import operator
import os
import sqlite3
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from importlib import import_module, metadata
from pathlib import Path
from time import perf_counter, process_time
from typing import Annotated, Any, Final, TypedDict

from msgspec import Struct

from headway.base.codec import as_dict

IN_FLIGHT: Final = 64
MODULO: Final = 1_000_003
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


class Shape(Struct, frozen=True):
    """The graph: the task at (layer, index) has the number layer * width + index."""

    layers: int
    width: int
    spread: int = 1

    @property
    def tasks(self) -> int:
        return self.layers * self.width

    def needs(self, task: int) -> list[int]:
        """The tasks whose results this one is given."""
        layer, index = divmod(task, self.width)
        before = (layer - 1) * self.width
        return [before + (index + k) % self.width for k in range(self.spread)] if layer else []

    def last_layer(self) -> list[int]:
        """What the last layer must give."""
        values: list[int] = []
        for task in range(self.tasks):
            values.append(value_of(task, [values[need] for need in self.needs(task)]))
        return values[-self.width :]


class Ground(Struct):
    """Where an adapter works: a graph, a folder, what is closed at the end, when it began."""

    shape: Shape
    folder: Path
    closing: ExitStack
    first_s: float = 0.0

    def perform(self, task: int, given: Sequence[int]) -> int:
        """What every task does."""
        if not self.first_s:
            self.first_s = perf_counter()
        return value_of(task, given)


def value_of(task: int, given: Sequence[int]) -> int:
    """A task's result."""
    return (sum(given) + task + 1) % MODULO


Go = Callable[[], list[int]]
"""Performs everything; the results of the last layer."""


class Pending:
    """The tasks of a graph that can start, and how many results the others still miss."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.ready: asyncio.Queue[int] = asyncio.Queue()
        self.values = [0] * shape.tasks
        self._missing = [shape.spread] * shape.tasks
        self._needed_by: list[list[int]] = [[] for _ in range(shape.tasks)]
        for task in range(shape.tasks):
            for need in shape.needs(task):
                self._needed_by[need].append(task)
        for task in range(shape.width):
            self.ready.put_nowait(task)

    def given(self, task: int) -> list[int]:
        return [self.values[need] for need in self.shape.needs(task)]

    def finished(self, task: int, value: int) -> None:
        self.values[task] = value
        for after in self._needed_by[task]:
            self._missing[after] -= 1
            if not self._missing[after]:
                self.ready.put_nowait(after)
        self.ready.task_done()

    async def performed_by(self, worker: Callable[[], Coroutine[Any, Any, None]]) -> list[int]:
        """With so many workers at once; the results of the last layer."""
        workers = [asyncio.create_task(worker()) for _ in range(IN_FLIGHT)]
        await self.ready.join()
        for one in workers:
            one.cancel()
        return self.values[-self.shape.width :]


def asyncio_alone(ground: Ground) -> Go:
    """Workers that take the next task: nothing is kept, so nothing is waited for."""

    async def run() -> list[int]:
        pending = Pending(ground.shape)

        async def worker() -> None:
            while True:
                task = await pending.ready.get()
                pending.finished(task, ground.perform(task, pending.given(task)))

        return await pending.performed_by(worker)

    return lambda: asyncio.run(run())


class Committer:
    """Results into SQLite by groups: what arrives during a commit is the next one."""

    def __init__(self, path: Path, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._turn = threading.Semaphore(0)
        self._is_idle = True
        self._thread = threading.Thread(target=self._write, args=(path,))
        self._thread.start()

    def keep(self, task: int, value: int) -> asyncio.Future[None]:
        """Done when the result is on disk."""
        kept = self._loop.create_future()
        self._waiting.append((task, value, kept))
        if self._is_idle:
            self._is_idle = False
            # What becomes ready at the same time goes along.
            self._loop.call_soon(self._turn.release)
        return kept

    def close(self) -> None:
        self._turn.release()
        self._thread.join()

    def _write(self, path: Path) -> None:
        database = sqlite3.connect(path, isolation_level=None)
        database.executescript(
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
            "CREATE TABLE results (task INTEGER PRIMARY KEY, value BLOB)"
        )
        while self._turn.acquire() and self._waiting:
            group, self._waiting = self._waiting, []
            database.execute("BEGIN")
            rows = [(task, b"%d" % value) for task, value, _ in group]
            database.executemany("INSERT INTO results VALUES (?, ?)", rows)
            database.execute("COMMIT")
            self._loop.call_soon_threadsafe(self._committed, group)
        database.close()

    def _committed(self, group: list[tuple[int, int, asyncio.Future[None]]]) -> None:
        for _, _, kept in group:
            kept.set_result(None)
        # After those who waited: their next results make the next group.
        self._loop.call_soon(self._next)

    def _next(self) -> None:
        self._is_idle = not self._waiting
        if self._waiting:
            self._turn.release()


def floor(ground: Ground) -> Go:
    """The same workers, and every result is on disk before anything is done with it."""

    async def run() -> list[int]:
        pending = Pending(ground.shape)
        committer = Committer(ground.folder / "floor.db", asyncio.get_running_loop())

        async def worker() -> None:
            while True:
                task = await pending.ready.get()
                value = ground.perform(task, pending.given(task))
                await committer.keep(task, value)
                pending.finished(task, value)

        values = await pending.performed_by(worker)
        committer.close()
        return values

    return lambda: asyncio.run(run())


class Layers(TypedDict):
    """What LangGraph keeps between layers."""

    values: Annotated[dict[int, int], operator.or_]


def langgraph(ground: Ground, at_once: int | None = IN_FLIGHT) -> Go:
    """Map-reduce by `Send`, a layer at a time, each task's writes kept in SQLite as it ends."""
    graphs, types = import_module("langgraph.graph"), import_module("langgraph.types")
    saver = import_module("langgraph.checkpoint.sqlite.aio").AsyncSqliteSaver
    shape = ground.shape

    async def perform(state: dict[str, Any]) -> dict[str, Any]:
        return {"values": {state["task"]: ground.perform(state["task"], state["given"])}}

    def spread(state: dict[str, Any]) -> list[Any] | str:
        values, begin = state["values"], len(state["values"])
        if begin == shape.tasks:
            return str(graphs.END)
        return [
            types.Send("perform", {"task": task, "given": [values[n] for n in shape.needs(task)]})
            for task in range(begin, begin + shape.width)
        ]

    async def run() -> list[int]:
        builder = graphs.StateGraph(Layers)
        builder.add_node("perform", perform)
        builder.add_node("collect", lambda _: {})
        builder.add_conditional_edges(graphs.START, spread, ["perform"])
        builder.add_edge("perform", "collect")
        builder.add_conditional_edges("collect", spread, ["perform", graphs.END])
        config: dict[str, Any] = {"configurable": {"thread_id": "1"}, "recursion_limit": 1000}
        if at_once is not None:
            config["max_concurrency"] = at_once
        async with saver.from_conn_string(str(ground.folder / "checkpoints.db")) as checkpointer:
            graph = builder.compile(checkpointer=checkpointer)
            values = (await graph.ainvoke({"values": {}}, config))["values"]
        return [values[task] for task in range(shape.tasks - shape.width, shape.tasks)]

    return lambda: asyncio.run(run())


def langgraph_unlimited(ground: Ground) -> Go:
    """The same without a limit on how many are active."""
    return langgraph(ground, None)


def _dbos(ground: Ground) -> Any:
    """DBOS on SQLite, started."""
    dbos = import_module("dbos").DBOS
    url = f"sqlite:///{ground.folder / 'dbos.sqlite'}"
    dbos(config={"name": "bench", "system_database_url": url, "log_level": "ERROR"})
    ground.closing.callback(dbos.destroy)
    return dbos


def dbos_gather(ground: Ground) -> Go:
    """One workflow, a step for each task, many steps of a layer at the same time."""
    dbos, shape = _dbos(ground), ground.shape

    @dbos.step()  # type: ignore[untyped-decorator]
    async def perform(task: int, given: list[int]) -> int:
        return ground.perform(task, given)

    @dbos.workflow()  # type: ignore[untyped-decorator]
    async def run() -> list[int]:
        values: list[int] = []
        for begin in range(0, shape.tasks, shape.width):
            # More at once than its connections can serve end in a timeout of its database.
            for first in range(begin, begin + shape.width, IN_FLIGHT):
                group = range(first, min(first + IN_FLIGHT, begin + shape.width))
                given = [[values[need] for need in shape.needs(task)] for task in group]
                values += await asyncio.gather(*map(perform, group, given))
        return values[-shape.width :]

    dbos.launch()
    return lambda: asyncio.run(run())


def dbos_one_by_one(ground: Ground) -> Go:
    """One workflow, its steps one after another: with no-ops that is the fastest."""
    dbos, shape = _dbos(ground), ground.shape

    @dbos.step()  # type: ignore[untyped-decorator]
    def perform(task: int, given: list[int]) -> int:
        return ground.perform(task, given)

    @dbos.workflow()  # type: ignore[untyped-decorator]
    def run() -> list[int]:
        values: list[int] = []
        for task in range(shape.tasks):
            values.append(perform(task, [values[need] for need in shape.needs(task)]))
        return values[-shape.width :]

    dbos.launch()
    return run  # type: ignore[no-any-return]


def ray(ground: Ground) -> Go:
    """A remote task each, given references: pipelined, and nothing is kept on disk."""
    peer, shape = import_module("ray"), ground.shape
    peer.init(num_cpus=2, include_dashboard=False, logging_level="error", log_to_driver=False)
    ground.closing.callback(peer.shutdown)
    stamp = ground.folder / "first"

    @peer.remote  # type: ignore[untyped-decorator]
    def perform(task: int, *given: int) -> int:
        if task == 0:
            stamp.write_text(str(perf_counter()))
        return (sum(given) + task + 1) % 1_000_003

    def run() -> list[int]:
        refs: list[Any] = []
        for task in range(shape.tasks):
            refs.append(perform.remote(task, *(refs[need] for need in shape.needs(task))))
        values: list[int] = peer.get(refs[-shape.width :])
        ground.first_s = float(stamp.read_text())
        return values

    return run


def headway(ground: Ground) -> Go:
    """headway, durable, through its public API."""
    ours, shape = import_module("bench.engine_headway"), ground.shape
    ours.start(ground.folder)

    def run() -> list[int]:
        values: list[int] = ours.graph(
            shape.layers, shape.width, shape.spread, ground.perform, ground.folder
        )
        return values

    return run


class Peer(Struct, frozen=True):
    """An engine, what it needs installed, and whether its results survive a kill."""

    name: str
    prepare: Callable[[Ground], Go]
    packages: tuple[str, ...] = ()
    is_durable: bool = True


PEERS: Final = {
    "asyncio": Peer("bare asyncio", asyncio_alone, is_durable=False),
    "floor": Peer("asyncio + SQLite group commit (the floor)", floor),
    "headway": Peer("**headway**", headway),
    "langgraph": Peer(
        f"LangGraph, SQLite checkpointer, {IN_FLIGHT} at once", langgraph,
        ("langgraph", "langgraph-checkpoint-sqlite"),
    ),
    "langgraph-unlimited": Peer(
        "LangGraph, SQLite checkpointer, all at once", langgraph_unlimited,
        ("langgraph", "langgraph-checkpoint-sqlite"),
    ),
    "dbos": Peer("DBOS on SQLite, gathered steps", dbos_gather, ("dbos",)),
    "dbos-serial": Peer("DBOS on SQLite, one by one", dbos_one_by_one, ("dbos",)),
    "ray": Peer("Ray", ray, ("ray",), is_durable=False),
}  # fmt: skip


class Taken(Struct, frozen=True):
    """What one engine took for one graph."""

    seconds: float
    first_s: float
    cpu_s: float
    memory_mb: float
    """At its most, of the process alone; whoever starts it adds the others."""
    before_mb: float
    """Before it was given anything to do."""
    versions: str


def measure(name: str, shape: Shape, folder: Path) -> Taken:
    """Prepare, perform, compare with what must come out."""
    peer = PEERS[name]
    with ExitStack() as closing:
        ground = Ground(shape, folder, closing)
        go = peer.prepare(ground)
        before_mb, before_cpu_s = _memory_mb(), _cpu_s()
        began_s = perf_counter()
        values = go()
        seconds, cpu_s = perf_counter() - began_s, _cpu_s() - before_cpu_s
        if values != shape.last_layer():
            raise AssertionError(f"{name} gave wrong results")
        versions = ", ".join(f"{each} {metadata.version(each)}" for each in peer.packages)
        first_s = ground.first_s - began_s
        return Taken(seconds, first_s, cpu_s, _memory_mb(), before_mb, versions)


def _memory_mb() -> float:
    """The most that this process ever had; what getrusage says includes whoever started it."""
    text = Path("/proc/self/status").read_text()
    return int(text.partition("VmHWM:")[2].split()[0]) / 1024


def _cpu_s() -> float:
    """Of this process and of all that descend from it."""
    return process_time() + sum(map(_cpu_of_s, descendants(os.getpid())))


def _cpu_of_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def descendants(pid: int) -> list[int]:
    """Processes that were started by this one, or by those that it started."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found, todo = [], [pid]
    while todo:
        inner = parents.get(todo.pop(), [])
        found += inner
        todo += inner
    return found


def main() -> None:
    """Measure one engine on one graph and print it as JSON."""
    name, layers, width, spread, folder = sys.argv[1:]
    taken = measure(name, Shape(int(layers), int(width), int(spread)), Path(folder))
    print(json.dumps(as_dict(taken)), flush=True)


if __name__ == "__main__":
    main()
