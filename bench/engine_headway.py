"""headway as the engine benches use it: through its public Python API, durable.

The only place in these benches that knows how headway is called.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, cast

import headway
from headway.api.plans import TaskHandle

IN_FLIGHT: Final = 64
"""As many as the floor has, so that the same number of results shares a sync."""

Perform = Callable[[int, Sequence[int]], int]
"""A task by its number, given the results that it needs."""


def start(folder: Path) -> None:
    """Import everything: one task, elsewhere."""

    async def one(task: int) -> int:
        return task

    fan_out(1, one, folder / "start")


def graph(layers: int, width: int, spread: int, perform: Perform, folder: Path) -> list[int]:
    """Layers of tasks, each given `spread` results of the layer before: the last layer's."""
    os.environ["HEADWAY_STATE_DIR"] = str(folder)
    if layers == 1:

        async def one(task: int) -> int:
            return perform(task, ())

        return fan_out(width, one, folder)
    if spread == 1:
        return _stages(layers, width, perform)
    return _tasks(layers, width, spread, perform)


def fan_out(
    count: int, perform: Callable[[int], Awaitable[int]], folder: Path, width: int | None = None
) -> list[int]:
    """One task for each number below `count`; with the same folder again, nothing is repeated."""
    os.environ["HEADWAY_STATE_DIR"] = str(folder)
    return headway.map(
        perform, range(count), durable="bench", strategy=f"fixed:{width or IN_FLIGHT}"
    )


def _stages(layers: int, width: int, perform: Perform) -> list[int]:
    """A group a layer; each member goes on when its own predecessor has ended."""

    async def first(task: int) -> list[int]:
        return [task, perform(task, ())]

    async def later(given: list[int]) -> list[int]:
        task = given[0] + width
        return [task, perform(task, given[1:])]

    plan = headway.Plan("bench")
    layer = plan.task("layer-0", first, each=range(width))
    for number in range(1, layers):
        layer = plan.task(f"layer-{number}", later, each=layer)
    results = plan.run(durable="bench", strategy=f"fixed:{IN_FLIGHT}").results
    return [value for _, value in cast("list[list[int]]", results[layer.name])]


def _tasks(layers: int, width: int, spread: int, perform: Perform) -> list[int]:
    """A task each, with needs of its own."""
    plan = headway.Plan("bench")
    handles: list[TaskHandle] = []
    for task in range(layers * width):
        layer, index = divmod(task, width)
        before = (layer - 1) * width
        needs = [handles[before + (index + k) % width] for k in range(spread)] if layer else []
        handles.append(plan.task(f"t{task}", _one(task, perform), needs=needs))
    results = plan.run(durable="bench", strategy=f"fixed:{IN_FLIGHT}").results
    return [cast(int, results[handle.name]) for handle in handles[-width:]]


def _one(task: int, perform: Perform) -> Callable[..., Awaitable[int]]:
    async def one(*given: int) -> int:
        return perform(task, given)

    return one
