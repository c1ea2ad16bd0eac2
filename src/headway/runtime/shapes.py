"""The shape of a run's graph, kept beside its journal: who needs whom, for readers after the run.

Laws:
- What is kept is enough to say what waited for what, and executes nothing.
- A shape that is missing or spoilt is nobody's fault: readers do with less.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from headway.core.plan.graph import Graph, Group, Need
from headway.errors import HeadwayError
from headway.runtime.codec import decode, encode
from headway.runtime.runs import keep_file

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


@dataclass(frozen=True, slots=True)
class Shape:
    """All groups of a graph, in its order."""

    groups: tuple[KeptGroup, ...]


def keep_shape(folder: str, graph: Graph) -> None:
    """Replace what is kept. A disk that is full holds the run elsewhere: here it is passed over."""
    if len(graph) > GROUPS_MAX:
        return
    groups = tuple(
        KeptGroup(one.name, one.count, tuple((n.group, n.block) for n in one.needs), one.is_local)
        for one in graph.groups
    )
    with suppress(OSError):
        keep_file(folder, NAME, encode(Shape(groups)), is_durable=False)


def kept_shape(folder: str) -> Graph | None:
    """The graph that the run last had, as far as its shape goes."""
    try:
        with open(os.path.join(folder, NAME), "rb") as file:
            groups = decode(Shape, file.read()).groups
        return Graph(
            Group(one.name, one.count, tuple(Need(*need) for need in one.needs),
                  is_local=one.is_local)
            for one in groups
        )  # fmt: skip
    except (OSError, HeadwayError, IndexError, ValueError):
        return None
