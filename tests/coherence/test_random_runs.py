"""Any program, any durations, any moment of death: the driver leaves what the serial run leaves.

Time is virtual. A process that dies leaves what was durable; the next one goes on from there.
"""

from __future__ import annotations

import asyncio
import random

import pytest
from msgspec import Struct, field

from headway.base.values import Fault
from headway.engine.events import Event, TaskFailed, TaskFinished, TaskReused, TaskSkipped
from headway.run.driver import Sharing
from headway.state.coherence import Coherence
from headway.state.shared import Act, Shared
from headway.testing import run_virtual
from headway.work import Attempt, AttemptError, Result
from tests.coherence.programs import CHANNELS, Left, Programs, drawn, serial, state_of, steps
from tests.unit.driven import Scene, ScriptedWork, SlowRecord, passes

STRATEGIES = ("all-at-once", "fixed:1", "fixed:2", "waves:2", "adaptive")


class World(Struct):
    """What outlives a process: what is durable, and what was done to the world."""

    record: SlowRecord
    done: dict[bytes, list[tuple[int, bytes]]] = field(default_factory=dict)
    released: set[int] = field(default_factory=set)
    """Tasks whose effects the process that lives now has released."""
    ran: list[int] = field(default_factory=list)

    def release(self, task: int, key: bytes, name: str, acts: tuple[Act, ...]) -> None:
        """Once in each process; what an earlier one has done is done, by its receipt."""
        assert task not in self.released, f"{name} is released twice"
        self.released.add(task)
        self.done.setdefault(key, [(task, act.data) for act in acts])

    async def drained(self) -> None:
        """Everything is done at once."""


class Life(Struct):
    programs: Programs
    world: World
    rng: random.Random
    strategy: str
    shared: Shared = field(default_factory=lambda: Shared(CHANNELS))
    told: list[Event] = field(default_factory=list)

    def live(self, dies_after_s: float | None) -> bool:
        graph = self.programs.graph
        works = [self._work(group) for group in range(len(graph))]
        setup = {
            "saved": self.world.record.saved(),
            "sharing": Sharing(Coherence(graph, self.shared)),
            "outbox": self.world,
        }
        scene = Scene(
            graph, works, strategy=self.strategy, record=self.world.record, told=self.told,
            setup=setup,
        )  # fmt: skip

        async def main() -> bool:
            running = asyncio.ensure_future(scene.driver().run())
            done, _ = await asyncio.wait((running,), timeout=dies_after_s)
            if not done:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
                self.world.record.waiting.clear()
                return False
            running.result()
            return True

        return run_virtual(main())

    def left(self) -> Left:
        """What the last process of a run leaves behind."""
        ends: dict[int, str] = {}
        for event in self.told:
            if isinstance(event, (TaskFinished, TaskReused)):
                ends[event.task] = f"done {self._result(event.task)}"
            elif isinstance(event, TaskFailed):
                ends[event.task] = f"failed {event.fault.detail}"
            elif isinstance(event, TaskSkipped):
                ends[event.task] = "skipped"
        effects = [one for done in self.world.done.values() for one in done]
        return Left(ends, state_of(self.shared), tuple(effects))

    def _result(self, task: int) -> str:
        key = self._work(task).key(0)
        return self.world.record.bodies[self.world.record.rows[key].ending.body].decode()

    def _work(self, group: int) -> ScriptedWork:
        async def act(attempt: Attempt) -> Result:
            self.world.ran.append(group)
            assert attempt.snapshot is not None
            every: list[bytes] = []
            await passes(self.rng.random() * 3)
            try:
                for seen in steps(self.programs.ops[group], attempt.snapshot, attempt.name):
                    every.append(seen)
                    await passes(self.rng.random() * 3)
            except ValueError as stumbled:
                raise AttemptError(Fault("function", detail=str(stumbled))) from None
            return Result(every[-1].hex().encode())

        return ScriptedWork(self.programs.named(group), act, is_group=False)


def must_be_serial(seed: int) -> int:
    """One program through up to three deaths; how often that was."""
    rng = random.Random(seed)
    programs = drawn(rng, is_declared=seed % 2 == 0)
    world = World(SlowRecord(delay_s=rng.random()))
    strategy = rng.choice(STRATEGIES)
    deaths = rng.randint(0, 3)
    for death in range(deaths + 1):
        before = _committed(world.record, programs)
        world.ran.clear()
        world.released.clear()
        life = Life(programs, world, rng, strategy)
        is_over = life.live(rng.random() * 20 if death < deaths else None)
        assert not before & {programs.named(task) for task in world.ran}, f"seed {seed}"
        if is_over:
            break
    assert life.left() == serial(programs), f"seed {seed}"
    return death


def _committed(record: SlowRecord, programs: Programs) -> set[str]:
    del programs
    return {row.name for row in record.rows.values() if row.state == "finished"}


@pytest.mark.parametrize("first", range(0, 1200, 300))
def test_a_run_leaves_what_the_serial_run_leaves_whenever_it_dies(first: int) -> None:
    deaths = sum(map(must_be_serial, range(first, first + 300)))
    assert deaths > 100


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, 20_000, 2000))
def test_twenty_thousand_runs_leave_what_the_serial_run_leaves(first: int) -> None:
    assert sum(map(must_be_serial, range(first, first + 2000))) > 1000
