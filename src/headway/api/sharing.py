"""Channels and declared accesses of the shared state, for plans in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from importlib import import_module
from json import loads
from typing import Final, cast

from msgspec import Struct, field
from msgspec.structs import replace

from headway.agents.worker import place_of
from headway.api.functions import FunctionWork, How, agent_of, journal_of, rules_of
from headway.base.digest import digest
from headway.engine.events import Event
from headway.errors import BadValueError
from headway.plans.graph import Graph, TaskGroup
from headway.plans.ready import DONE
from headway.plans.resources import (
    ACTS,
    ANYTHING,
    SCHEME,
    Channel,
    Prefixes,
    Touches,
    channel_of,
    is_well_formed,
    prefix_of,
)
from headway.run.driver import Driver, Launch, Sharing
from headway.run.launch import launch
from headway.run.reduce import reducer
from headway.state.coherence import Coherence
from headway.state.outbox import Function, senders
from headway.state.shared import Channels, Shared

Reducer = Callable[[object, object], object]
Keys = str | Sequence[str] | Callable[[object], str | Sequence[str]] | None
"""Keys and patterns of the shared state, or a function that gives those of an item."""

EVERYWHERE: Final = 1 << 62
"""A position behind all tasks."""


class Shares(Struct, frozen=True):
    """What the tasks of a plan share, as a program declares it."""

    channels: Channels = field(default_factory=Channels)
    functions: Mapping[str, Function] = field(default_factory=dict)
    """Who performs effects, by target."""

    @property
    def salt(self) -> bytes:
        """What was put in under other channels is something else."""
        named = sorted((key, str(channel)) for key, channel in self.channels.declared.items())
        return digest(repr(named).encode()) if named else b""


def shares_of(
    state: Mapping[str, str | Reducer] | None, effects: Mapping[str, str | Function] | None
) -> Shares:
    """The channels that a program declares; BadValueError if one cannot be."""
    declared: dict[str, Channel] = {}
    reducers: dict[str, Reducer] = {}
    functions: dict[str, Function] = {}
    for key, given in (state or {}).items():
        _must_be_key(key, declared)
        channel = Channel("reduce", _name(given, key)) if callable(given) else _channel(key, given)
        if channel.kind == "reduce":
            function = given if callable(given) else _loaded(channel.target)
            reducers[channel.target] = reducer(channel.target, function)
        declared[key] = channel
    for key, send in (effects or {}).items():
        _must_be_key(key, declared)
        target = _name(send, key) if callable(send) else send
        if callable(send):
            functions[target] = send
        declared[key] = Channel("effect", target)
    return Shares(Channels(declared, reducers), functions)


def touches_of(work: FunctionWork, count: int, reads: Keys, writes: Keys) -> Touches | None:
    """What tasks may touch whose function is given so many arguments; None: nothing at all."""
    if work.function is None:
        takes = [place_of(cast("Callable[..., object]", one), 0) for one in work.items or ()]
        return ANYTHING if any(place is not None for place in takes) else None
    if place_of(work.function, count) is None:
        if reads is not None or writes is not None:
            raise BadValueError(
                f"`{work.name}` declares keys of the shared state and cannot reach them",
                hint="give its function a parameter named `ctx`",
            )
        return None
    if not callable(reads) and not callable(writes):
        return _touches(reads, writes)
    if any(is_own for _, is_own in work.sources) or count == 0:
        raise BadValueError(
            f"what a member of `{work.name}` touches can be told by items that are known only",
            hint="declare a pattern: reads='records/*'",
        )
    by_member = partial(_of_member, work, reads, writes)
    if work.items is None:
        return replace(ANYTHING, by_member=by_member)
    every = [by_member(member) for member in range(len(work.items))]
    return Touches(
        _all(one.reads for one in every),
        _all(one.writes for one in every),
        _all(one.acts for one in every),
        by_member,
    )


def sharing_of(shares: Shares, graph: Graph, works: Sequence[FunctionWork]) -> Sharing | None:
    """The shared state of a run that is about to begin; None if no task can reach it."""
    if all(group.touches is None for group in graph.groups):
        return None
    find = senders(shares.channels, shares.functions, _loaded)
    coherence = Coherence(graph, Shared(shares.channels))
    return Sharing(
        coherence, find, lends=tuple(partial(setattr, work, "commons") for work in works)
    )


async def performed(
    works: Sequence[FunctionWork],
    groups: Sequence[TaskGroup],
    how: How,
    shares: Shares,
    watch: Callable[[Sequence[Event]], None] | None,
    began: Callable[[Driver], None] | None = None,
    around: Callable[[Launch], Launch] | None = None,
) -> Driver:
    """Perform works of one agent to their end; they know their values and errors then."""
    graph = Graph(groups)
    sharing = sharing_of(shares, graph, works)
    run = Launch(graph, works, rules_of(how), watch=watch, sharing=sharing)
    run = run if around is None else around(run)
    async with aclosing(works[0].agent if works else agent_of(how)):
        with journal_of(how, sum(group.count or 0 for group in groups)) as journal:
            done = await launch(run, journal, began)
            _take_over(works, done)
    return done


def _take_over(works: Sequence[FunctionWork], done: Driver) -> None:
    """Tell the works how many members they had, what earlier processes gave, and what failed."""
    ready_set = done.state.ready_set
    for index, work in enumerate(works):
        tasks = ready_set.numbers.members(index)
        work.size = len(tasks)
        states = enumerate(ready_set.states[tasks.start : tasks.stop])
        ended = {member for member, state in states if state == DONE}
        # What a stale attempt gave is no result, if no other one has given any.
        for member in [member for member in work.values if member not in ended]:
            del work.values[member]
        if done.saved.rows:
            work.recall(done.saved.recall(work, sorted(ended)))
    for task, why in done.failures.items():
        index, member = ready_set.numbers.place(task)
        works[index].note(member, why)


def state_in(coherence: Coherence | None) -> dict[str, object]:
    """All that is committed."""
    if coherence is None:
        return {}
    return {key: loads(data) for key, data, _ in coherence.shared.matching("**", EVERYWHERE)}


def _of_member(work: FunctionWork, reads: Keys, writes: Keys, member: int) -> Touches:
    item = work.items[member] if work.items is not None else None
    return _touches(
        reads(item) if callable(reads) else reads, writes(item) if callable(writes) else writes
    )


def _touches(reads: str | Sequence[str] | None, writes: str | Sequence[str] | None) -> Touches:
    may_write = _listed(writes)
    return Touches(
        _prefixes(_listed(reads)),
        None if may_write is None else _prefixes(k for k in may_write if not k.startswith(ACTS)),
        None if may_write is None
        else tuple(k.removeprefix(ACTS) for k in may_write if k.startswith(ACTS)),
    )  # fmt: skip


def _listed(keys: str | Sequence[str] | None) -> tuple[str, ...] | None:
    if keys is None:
        return None
    listed = (keys,) if isinstance(keys, str) else tuple(keys)
    for key in listed:
        if not is_well_formed(key.removeprefix(ACTS).removeprefix(SCHEME)):
            raise BadValueError(
                f"`{key}` cannot be a key of the shared state",
                hint="use names with slashes between them: records/42, records/*, effect:mail",
            )
    return listed


def _prefixes(keys: Iterable[str] | None) -> Prefixes:
    if keys is None:
        return None
    return tuple(dict.fromkeys(prefix_of(key.removeprefix(SCHEME)) for key in keys))


def _all(every: Iterable[Prefixes]) -> Prefixes:
    found: dict[str, None] = {}
    for one in every:
        if one is None:
            return None
        found |= dict.fromkeys(one)
    return tuple(found)


def _must_be_key(key: str, declared: Mapping[str, Channel]) -> None:
    if key in declared or not is_well_formed(key):
        raise BadValueError(
            f"`{key}` is declared twice" if key in declared else f"`{key}` cannot be a key",
            hint="use names with slashes between them: records/*",
        )


def _channel(key: str, text: str) -> Channel:
    found = channel_of(text)
    if isinstance(found, str):
        raise BadValueError(f"state[{key!r}]: {found}")
    if found.kind == "effect":
        raise BadValueError(
            f"state[{key!r}] is an effect", hint=f"write effects={{{key!r}: function}}"
        )
    return found


def _name(function: object, key: str) -> str:
    """What a function is called, with its key: two may have one name."""
    return f"{key}:{getattr(function, '__qualname__', type(function).__qualname__)}"


def _loaded(target: str) -> Callable[[object, object], object]:
    module, _, name = target.partition(":")
    try:
        function = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise BadValueError(f"`{target}` cannot be imported: {error}") from error
    if not callable(function):
        raise BadValueError(f"`{target}` is no function")
    return cast("Callable[[object, object], object]", function)
