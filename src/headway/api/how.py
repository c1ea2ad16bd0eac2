"""How a run of functions is to be performed: the options that every front door shares."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf
from typing import Any, TypedDict, TypeVar

from headway.core.engine.engine import Rules
from headway.core.engine.events import Event
from headway.core.engine.record import Header
from headway.core.engine.strategy import parse
from headway.core.plan.graph import Graph
from headway.errors import BadValueError, UsageError, did_you_mean
from headway.runtime.agents.function import FunctionAgent
from headway.runtime.journal import Journal
from headway.runtime.launch import Launch, Sharing
from headway.runtime.machine import cores
from headway.runtime.work import Work

T = TypeVar("T")


class How(TypedDict, total=False):
    """Options; each has a default."""

    strategy: str
    """`adaptive` (default), `waves:4`, `fixed:8`, `all-at-once`."""
    ceiling: int
    """Never more at once than this, whatever the strategy."""
    retries: int
    """Further attempts of a task whose function raised; default 0."""
    timeout_s: float
    """How long one attempt may take."""
    in_processes: bool
    """Call the function in other processes: for work that keeps a processor busy."""
    durable: str
    """A name: results are kept under it, and the same call in a later process goes on from them."""
    return_exceptions: bool
    """Give exceptions in place of results, instead of raising at the end."""


def must_be_known(how: Mapping[str, object], options: type = How) -> None:
    """Refuse an option that is not there: typing does not hold for everybody."""
    names = options.__annotations__
    for name in how:
        if name not in names:
            raise BadValueError(f"there is no option `{name}`", hint=did_you_mean(name, names))


def rules_of(how: How) -> Rules:
    """The engine's rules for these options."""
    retries = how.get("retries", 0)
    ceiling = how.get("ceiling", inf)
    if retries < 0 or ceiling < 1:
        raise BadValueError("`retries` is at least 0 and `ceiling` at least 1")
    return Rules(parse(how.get("strategy", "adaptive")), retries, ceiling=ceiling, is_patient=True)


def launch_of(
    graph: Graph, works: Sequence[Work], how: How,
    watch: Callable[[Sequence[Event]], None] | None = None, sharing: Sharing | None = None,
) -> Launch:  # fmt: skip
    return Launch(graph, works, rules_of(how), watch=watch, sharing=sharing)


def agent_of(how: How) -> FunctionAgent:
    """Whoever calls the functions: in processes as many at once as the machine can feed."""
    return FunctionAgent(processes=how.get("ceiling") or cores())


@contextmanager
def journal_of(how: How, tasks: int) -> Iterator[Journal | None]:
    """The journal under the name that `durable` gives, a new one or that of an earlier process."""
    name = how.get("durable")
    if not name:
        yield None
        return
    from headway.runtime.folders import folders
    from headway.runtime.journal_reader import latest
    from headway.runtime.runs import list_runs, new_run

    state, here = folders(os.environ).state, os.getcwd()
    wanted = ("python", name, here)
    found = latest(list_runs(state), lambda one: (one.kind, one.name, one.folder) == wanted)
    if found is not None:
        journal = Journal.open(found.folder)
    else:
        now_s = time.time()
        place = new_run(state, now_s)
        header = Header(place.id, name, "python", "", here, tasks, now_s)
        journal = Journal.create(place.folder, header)
    try:
        yield journal
    finally:
        journal.close()


def wait_for(coroutine: Coroutine[Any, Any, T], instead: str) -> T:
    """The one synchronous door: run a coroutine to its end in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    coroutine.close()
    raise UsageError(
        "this thread runs an event loop already, which a blocking call would stop",
        hint=f"write `await {instead}(...)`",
    )
