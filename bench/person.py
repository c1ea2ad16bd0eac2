"""A person beside a run of 500 tasks that uses all of an account: how long the person waits.

The person makes 40 calls, one after another, and reads and types between them. Three times in
virtual time: the person alone; beside the run, with calls that are not marked; beside it, with
interactive calls. `python -m bench.person` prints the table of docs/benchmarks/person.md.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable
from math import ceil
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from bench.scenes import PRESETS
from headway.base.values import Demand, Limit
from headway.engine.state import Rules
from headway.engine.strategy import ALL_AT_ONCE
from headway.pacing.account import AccountConfig
from headway.pacing.call import Call
from headway.pacing.calls import AccountCalls
from headway.pacing.estimate import OutputLength
from headway.plans.graph import Graph, Task
from headway.sim.account import Terms
from headway.sim.clients import PacedDoor
from headway.sim.draw import uniform
from headway.sim.headers import dialect_of
from headway.sim.provider import Provider, ProviderSpec
from headway.sim.rehearsal import Rehearsal, Rehearsed, Workload, WorkloadSpec, draw_workload

RUN: Final = WorkloadSpec(
    "run", 500, 5, input_spread=0.5, output_spread=0.4, luck_spread=0.1, input_error=0.03
)
PERSON: Final = WorkloadSpec(
    "person", 40, input_tokens=8000.0, output_tokens=500.0, input_spread=0.3, output_spread=0.4,
    luck_spread=0.1, input_error=0.03,
)  # fmt: skip
THINK_S: Final = (4.0, 30.0)
"""Between an answer and the next call of a person: tools of an agent, or reading and typing."""

THINK_STREAM: Final = 91

PROVIDERS: Final = {
    **{name: PRESETS[name] for name in ("burst-60s", "burst-3s", "fixed-window", "cap-7")},
    "sliding": ProviderSpec(
        "sliding",
        Terms((Limit("requests", 600.0, 60.0, "sliding"), Limit("tokens", 480e3, 60.0, "sliding"))),
        dialect="openai",
    ),
}


class Met(Struct, frozen=True):
    """What happened to the person, and how long the run took."""

    waits_s: tuple[float, ...]
    calls_s: tuple[float, ...]
    run_s: float
    refused: int

    def wait_s(self, share: float) -> float:
        return sorted(self.waits_s)[ceil(share * len(self.waits_s)) - 1]


def work(run: WorkloadSpec | None, person: WorkloadSpec | None, is_marked: bool) -> Workload:
    """A run and a person's chain of calls as one workload; the person's tasks come last."""
    tasks: list[Task] = []
    calls = []
    seconds: list[float] = []
    if run is not None:
        drawn = draw_workload(run, 1)
        tasks, calls = list(drawn.graph.tasks), list(drawn.calls)
        seconds = [0.0] * len(tasks)
    if person is not None:
        drawn = draw_workload(person, 2)
        for number, (task, mine) in enumerate(zip(drawn.graph.tasks, drawn.calls, strict=True)):
            needs = (f"person-{number - 1}",) if number else ()
            demands = tuple(replace(one, is_interactive=is_marked) for one in task.calls)
            tasks.append(Task(f"person-{number}", needs, demands, task.weight_s, kind="person"))
            calls.append(mine)
            least, most = THINK_S
            seconds.append(least + (most - least) * uniform(3, THINK_STREAM, number))
    return Workload("beside", Graph.of(tasks), tuple(calls), tuple(seconds))


class _Flows(PacedDoor):
    """The run and the person are two flows, whose calls wait in order of arrival."""

    def knock(self, call_id: int, demand: Demand, key: tuple[float, ...]) -> None:  # noqa: ARG002
        self._wishes[call_id] = demand, (0.0,)
        call = Call(("", call_id), self._now, (demand.kind,), (0.0,), demand)
        self._size(call, self._now)
        self._known[call_id] = call
        self.calls.ask(call)


def beside(
    spec: ProviderSpec, run: WorkloadSpec | None, person: WorkloadSpec | None, is_marked: bool
) -> Met:
    provider = Provider(spec, 1)
    provider.advance(0.0)
    provider.shows_progress = True
    calls = AccountCalls(AccountConfig(dialect_of(spec.dialect)), 0.0)
    door = _Flows(calls, OutputLength())
    workload = work(run, person, is_marked)
    ran = Rehearsal(workload, provider, door, Rules(ALL_AT_ONCE)).run()
    return met(ran, 0 if run is None else run.tasks)


def met(ran: Rehearsed, tasks: int) -> Met:
    """Tasks from `tasks` on are the person's."""
    waits: dict[int, float] = {one.task: 0.0 for one in ran.tasks if one.task >= tasks}
    busy = dict(waits)
    for span in ran.spans:
        if span.task in waits:
            spent = busy if span.kind == "busy" else waits
            spent[span.task] += span.to_s - span.from_s
    run_s = max((one.ended_s for one in ran.tasks if one.task < tasks), default=0.0)
    return Met(tuple(waits.values()), tuple(busy.values()), run_s, ran.refused)


def main(say: Callable[[str], None] = print) -> None:
    ArgumentParser(description=__doc__).parse_args()
    say("| account | alone p95 | unmarked p95 | interactive p50, p95, most | one call | "
        "run alone | run, unmarked | run, interactive | refused |")  # fmt: skip
    say("|---|---|---|---|---|---|---|---|---|")
    for name, spec in PROVIDERS.items():
        alone, run_alone = beside(spec, None, PERSON, True), beside(spec, RUN, None, True)
        before, now = beside(spec, RUN, PERSON, False), beside(spec, RUN, PERSON, True)
        call_s = sorted(alone.calls_s)[len(alone.calls_s) // 2]
        waits = " ".join(f"{now.wait_s(share):.1f}" for share in (0.5, 0.95, 1.0))
        say(f"| {name} | {alone.wait_s(0.95):.1f} s | {before.wait_s(0.95):.1f} s | {waits} s "
            f"| {call_s:.1f} s | {run_alone.run_s:.0f} s | {before.run_s:.0f} s "
            f"| {now.run_s:.0f} s | {now.refused} |")  # fmt: skip


if __name__ == "__main__":
    main()
