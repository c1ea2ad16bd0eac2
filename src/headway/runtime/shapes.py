"""The shape of a run's graph, kept beside its journal: who needs whom, for readers after the run.

Laws:
- What is kept is enough to say what waited for what, and executes nothing.
- A shape that is missing or spoilt is nobody's fault: readers do with less.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final

from headway.core.plan.graph import Graph, Group, Need
from headway.core.plan.touches import ANYTHING
from headway.errors import HeadwayError
from headway.runtime.codec import decode, encode
from headway.runtime.runs import keep_file

if TYPE_CHECKING:
    from headway.runtime.work import Work

NAME: Final = "shape.json"
"""In a run's folder."""

GROUPS_MAX: Final = 20_000
"""Larger graphs are not kept: a run begins at once, and nobody reads so many groups."""


@dataclass(frozen=True, slots=True)
class KeptGroup:
    """One group: how many, what it needs as (group, block), and whether it uses this machine."""

    name: str
    count: int | None
    needs: tuple[tuple[int, int], ...] = ()
    is_local: bool = False
    queue: str = ""
    is_sharing: bool = False
    """Whether it touches the shared state."""
    asks_models: bool = False
    """Whether its tasks do nothing but ask a model, as prompts do."""


@dataclass(frozen=True, slots=True)
class Shape:
    """All groups of a graph, in its order."""

    groups: tuple[KeptGroup, ...]
    ceiling: float = inf


@dataclass(frozen=True, slots=True)
class Kept:
    """What a run was to do, as far as is needed to understand its time."""

    graph: Graph
    ceiling: float = inf
    """How many tasks the user allows at once."""
    models: frozenset[str] | None = None
    """The groups whose tasks do nothing but ask a model; None where nobody knows."""


def keep_shape(folder: str, graph: Graph, works: Sequence[Work], ceiling: float) -> None:
    """Replace what is kept. A disk that is full holds the run elsewhere: here it is passed over."""
    if len(graph) > GROUPS_MAX:
        return
    groups = tuple(
        KeptGroup(
            one.name, one.count, tuple((need.group, need.block) for need in one.needs),
            one.is_local, one.queue, one.touches is not None, work.is_idle_until_sent,
        )
        for one, work in zip(graph.groups, works, strict=True)
    )  # fmt: skip
    with suppress(OSError):
        keep_file(folder, NAME, encode(Shape(groups, ceiling)), is_durable=False)


def kept_shape(folder: str) -> Kept | None:
    """The graph that the run last had, as far as its shape goes."""
    try:
        with open(os.path.join(folder, NAME), "rb") as file:
            shape = decode(Shape, file.read())
        models = frozenset(one.name for one in shape.groups if one.asks_models)
        return Kept(Graph(map(_group, shape.groups)), shape.ceiling, models)
    except (OSError, HeadwayError, IndexError, ValueError):
        return None


def _group(one: KeptGroup) -> Group:
    return Group(
        one.name, one.count, tuple(Need(*need) for need in one.needs), queue=one.queue,
        is_local=one.is_local, touches=ANYTHING if one.is_sharing else None,
    )  # fmt: skip
