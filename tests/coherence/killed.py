"""Random programs as one durable run of functions: `python -m tests.coherence.killed FIRST COUNT`.

Every program has a folder of the shared state to itself. What came of them is told as JSON.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path

import headway
from headway.api.plans import TaskHandle, TaskHow
from headway.plans.resources import ANYTHING
from headway.state.shared import Act, canonical
from tests.coherence.programs import COMBINED, Programs, drawn, steps

KINDS = dict(zip(COMBINED, ("append", "counter", "set", "max"), strict=True))
SENT = Path("sent")
TIMES = Path("times")
PAUSE_S = 0.002


def programs_of(seed: int) -> Programs:
    return drawn(random.Random(seed), is_declared=seed % 2 == 0)


class Own:
    """A folder of the state, as programs look at it."""

    def __init__(self, ctx: headway.Context, folder: str) -> None:
        self._ctx = ctx
        self._folder = folder

    def get(self, key: str) -> bytes | None:
        found = self._ctx.get(self._folder + key)
        return None if found is None else canonical(found, key)

    def scan(self, pattern: str) -> list[tuple[str, bytes]]:
        found = self._ctx.scan(self._folder + pattern)
        return [(key.removeprefix(self._folder), canonical(one, key)) for key, one in found.items()]

    def put(self, key: str, value: object) -> None:
        self._ctx.put(self._folder + key, value)

    def add(self, key: str, value: object) -> None:
        self._ctx.add(self._folder + key, value)

    def remove(self, key: str) -> None:
        self._ctx.remove(self._folder + key)

    def act(self, act: Act) -> int:
        self._ctx.effect(act.channel, json.loads(act.data))
        return 0


def function(seed: int, group: int) -> Callable[..., Coroutine[None, None, str]]:
    """What performs a task of a program, with pauses in which others go on."""
    programs, pauses = programs_of(seed), random.Random()

    async def perform(_item: int, *_needed: str, ctx: headway.Context) -> str:
        every: list[bytes] = []
        with TIMES.open("a") as file:
            file.write(f"{ctx.time_s}\n")
        for seen in steps(programs.ops[group], Own(ctx, f"{seed}/"), programs.named(group)):
            every.append(seen)
            await asyncio.sleep(pauses.random() * PAUSE_S)
        return every[-1].hex()

    return perform


def send(payload: object, key: str) -> None:
    with SENT.open("a") as file:
        file.write(json.dumps([key, payload]) + "\n")


def declare(plan: headway.Plan, seed: int) -> None:
    programs, folder = programs_of(seed), f"{seed}/"
    handles: list[TaskHandle] = []
    for index, group in enumerate(programs.graph.groups):
        how = TaskHow(queue=f"{seed}" if group.queue else "")
        touches = group.touches or ANYTHING
        if touches.reads is not None:
            how["reads"] = [(folder + key).rstrip("/") for key in touches.reads]
        if touches.writes is not None:
            acts = [f"effect:{channel}" for channel in touches.acts or ()]
            how["writes"] = [folder + key for key in touches.writes] + acts
        needs = [handles[need.group] for need in group.needs]
        name = f"{seed}-{group.name}"
        handles.append(plan.task(name, function(seed, index), each=[seed], needs=needs, **how))


def main() -> None:
    first, count = map(int, sys.argv[1:])
    plan = headway.Plan(
        "killed", state={f"*/{key}": kind for key, kind in KINDS.items()}, effects={"mail": send}
    )
    for seed in range(first, first + count):
        declare(plan, seed)
    run = plan.run(durable="killed", strategy="all-at-once", return_exceptions=True)
    errors = {name: str(error) for name, error in run.errors.items()}
    print(json.dumps({"state": run.state, "results": run.results, "errors": errors}, default=str))


if __name__ == "__main__":
    main()
