"""The catalogue of anomalies, on headway and on others: `python -m bench.coherence`.

Every interleaving of every case, on each of them; what counts is how many gave a result other than
that of declared order. The frameworks are installed below `.venv/peers`, and kept there.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import astuple

from bench.coherence_commands import STEPS
from bench.coherence_commands import perform as commands
from bench.coherence_functions import Where
from bench.coherence_functions import perform as functions
from bench.coherence_peers import SEED
from bench.engine import ENVIRONMENTS
from bench.engine_own import environment
from bench.markdown import table
from bench.results import ROOT, say
from tests.coherence import catalogue, catalogue_isolation
from tests.coherence.catalogue_engine import Engine
from tests.coherence.catalogue_plays import Case
from tests.coherence.catalogue_stores import LastWriter, SharedDict, SnapshotIsolation
from tests.coherence.harness import Begin, Tally, chosen, serial, steps, tally

EXECUTORS: Final[Mapping[str, tuple[Where | Literal["commands"], int]]] = {
    "async functions": ("async", 100),
    "functions in threads": ("threads", 100),
    "functions in worker processes": ("processes", 6),
    "commands of a plan file": ("commands", 6),
}
"""Who performs tasks, and how many interleavings of each case are tried here."""

REPORT: Final = ROOT / "docs" / "agent-hermitage.md"
PACKAGES: Final = ("langgraph==1.2.20", "google-adk==2.13.0")
AT_ONCE: Final = 2
"""Frameworks that are tried at the same time."""

PEERS: Final = {
    "LangGraph, state": "langgraph_state",
    "LangGraph, store": "langgraph_store",
    "Google ADK": "adk",
}
OWN: Final[Mapping[str, Begin]] = {
    "shared dict": SharedDict,
    "last writer wins": LastWriter,
    "snapshot isolation": partial(SnapshotIsolation, is_retried=False),
    "the same, retried": partial(SnapshotIsolation, is_retried=True),
    "headway": Engine,
}
CASES: Final = (*catalogue.CASES, *catalogue_isolation.CASES)


class Executed(Struct, frozen=True):
    """What interleavings of all cases led to on real runs."""

    name: str
    runs: int
    deviations: int
    aborts: int
    reran: int
    """Attempts in vain."""


SUMS: Final[Mapping[str, Callable[[Tally], bool]]] = {
    "cases that go wrong": lambda found: found.deviations > 0,
    "cases that depend on the schedule": lambda found: found.depends_on_schedule,
}

Column = Mapping[str, Tally]
"""By case."""

INTRODUCTION: Final = """\
# Hermitage, for agents

Written by `make bench-coherence`. Several tasks share a state and run at the same time. Does the
result depend on who was faster?

[Hermitage](https://github.com/ept/hermitage) by Martin Kleppmann asks that of databases, for ten
classes of anomalies. Here are the same classes, with variants, the read-only anomaly and the
Parser, Enricher and Validator of "The Parallelization Trap", as two or three small tasks each
(`tests/coherence/catalogue.py`). A task looks at keys, searches by pattern, puts, adds and removes;
whatever it puts carries a hash of all that it has seen, as the answer of a model depends on its
prompt. So one stale look anywhere changes the result. **Right** is the result of the tasks one
after another, in the order in which they are declared: the final state, and what every task has
seen. Serializable is not enough: Validator before Enricher is a legal serial history.

Each case runs in *every* interleaving of its tasks' steps: a step is one look, one put, or the end
of a task. The tasks declare nothing about each other, and nothing orders them: with an edge from
each task to the next every system would be right, and nothing would run at the same time.
"""

LEGEND: Final = """\
The number is of interleavings with a result other than declared order, `0` is right every time;
*n refused*: in n of them a task got an error instead of a result.

- **shared dict**: what is put is seen by all at once. **Last writer wins**: it is seen when its
  task ends. **Snapshot isolation**: a task sees the state of its first step; of two that wrote the
  same key, the second to end is refused, or (*retried*) begins again.
- **LangGraph {langgraph}, state**: a node for each task, all in one step of a `StateGraph`; each
  key is a channel, with a reducer where tasks add to a list. A node is given the state and returns
  what it changes. No result depends on the schedule: all nodes see the state from before the step,
  so no node sees what a task declared earlier did. Two nodes that write one key end the run with
  `InvalidUpdateError`. With a reducer that keeps the last value they would not: then both G0 are
  right, and the others go on with what is stale.
- **LangGraph, store**: the same nodes read and write an `InMemoryStore` while they work.
- **Google ADK {adk}**: function nodes of a `Workflow`, all after its start, on `ctx.state`. A node
  that fails ends without a result; what it put stays.
- **headway**: the engine that runs plans, with nothing declared. Tasks that read too early run
  again; none is refused. With `reads` and `writes` declared, and with agents that cannot be
  stopped once they work on something stale, the counts are the same (`tests/coherence`).

The adapters are in `bench/coherence_peers`, at most 50 lines each. None of the others promises
declared order, so a number above 0 is not a defect of theirs: it says what is left to the author
of the tasks.
"""

ISOLATION: Final = """\
## Six puzzles from PostgreSQL's isolation tests

Written anew from their descriptions, and in every interleaving
(`tests/coherence/catalogue_isolation.py`). A serializable database gives a right state by ending
some transactions with an error, and their caller begins them again; here no caller sees an error.
"""


EXECUTED: Final = """\
## On real runs

The tables above drive the engine step by step, to reach every interleaving exactly. The same 26
cases as runs, where functions and commands wait for their turns in an order chosen with a fixed
seed; `make soak` tries every interleaving of functions in the event loop and in threads, and for
processes with more than 100 and for commands every one in which each task goes half its way at
once (a command reads when it starts, and what it wrote is taken when it ends).
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.coherence")
    parser.add_argument("--sample", type=int, default=0, help="so many interleavings of a case")
    parser.add_argument("--peers-python", metavar="PYTHON", help="one that has the frameworks")
    parser.add_argument("--output", type=Path, default=REPORT)
    parsed = parser.parse_args(arguments)
    columns = measure(parsed.peers_python or peers_python(), parsed.sample)
    executed = [execute(name, parsed.sample) for name in EXECUTORS]
    text = report(columns, executed)
    if not parsed.sample:
        parsed.output.write_text(text)
    print(text)
    wrong = sum(one.deviations for one in columns["headway"].values())
    return 1 if wrong + sum(one.deviations for one in executed) else 0


def measure(python: str | None, sample: int) -> dict[str, Column]:
    """Everything, frameworks first; without an interpreter that has them they are left out."""
    columns: dict[str, Column] = {}
    if python is not None:
        with ThreadPoolExecutor(AT_ONCE) as threads:
            found = threads.map(lambda name: _peer(python, name, sample), PEERS.values())
            columns |= dict(zip(PEERS, found, strict=True))
    for name, begin in OWN.items():
        say(f"{name}: {len(CASES)} cases")
        columns[name] = {case.name: tally(case, begin, _orders(case, sample)) for case in CASES}
    return columns


def execute(name: str, sample: int) -> Executed:
    """All cases on real runs, some interleavings of each."""
    say(f"{name}: {len(CASES)} cases")
    where, most = EXECUTORS[name]
    runs = deviations = aborts = reran = 0
    for case in CASES:
        counts = [STEPS] * len(case.tasks) if where == "commands" else steps(case)
        orders = chosen(counts, min(sample or most, most), SEED)
        ran = commands(case, orders) if where == "commands" else functions(case, where, orders)
        right = serial(case)
        runs += len(orders)
        deviations += sum(one != right for one in ran.outcomes)
        aborts += sum(one.aborts > 0 for one in ran.outcomes)
        reran += ran.reran
    return Executed(name, runs, deviations, aborts, reran)


def report(columns: Mapping[str, Column], executed: Iterable[Executed]) -> str:
    """The document."""
    versions = dict(package.split("==") for package in PACKAGES)
    legend = LEGEND.format(langgraph=versions["langgraph"], adk=versions["google-adk"])
    parts = [
        INTRODUCTION,
        _table(catalogue.CASES, columns),
        legend,
        ISOLATION,
        _table(catalogue_isolation.CASES, columns),
        EXECUTED,
        table(
            ["tasks are", "interleavings", "other than declared order", "refused", "ran again"],
            ([one.name, *(f"{n:,}" for n in astuple(one)[1:])] for one in executed),
        ),
    ]
    return "\n".join(parts)


def peers_python() -> str | None:
    """The interpreter of an environment that has the frameworks; made when first wanted."""
    folder = ENVIRONMENTS / "coherence"
    python, stamp = folder / "bin" / "python", folder / ".installed"
    if not stamp.exists() or stamp.read_text() != " ".join(PACKAGES):
        say(f"installing {' '.join(PACKAGES)} into an environment of their own")
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        if subprocess.run([*pip, *PACKAGES], check=False).returncode != 0:
            say("the frameworks could not be installed and are left out")
            return None
        stamp.write_text(" ".join(PACKAGES))
    return str(python)


def _peer(python: str, adapter: str, sample: int) -> Column:
    say(f"{adapter}: {len(CASES)} cases")
    command = [python, "-m", "bench.coherence_peers", adapter, str(sample)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True, check=True
    )
    found = {}
    for line in done.stdout.splitlines():
        name, said = json.loads(line)
        found[name] = Tally(**said)
    return found


def _orders(case: Case, sample: int) -> list[tuple[int, ...]]:
    return chosen(steps(case), sample, SEED)


def _table(cases: Sequence[Case], columns: Mapping[str, Column]) -> str:
    rows = [
        [f"**{case.name}**", case.says, f"{next(iter(columns.values()))[case.name].runs:,}",
         *(_cell(column[case.name]) for column in columns.values())]
        for case in cases
    ]  # fmt: skip
    for words, is_so in SUMS.items():
        sums = (sum(is_so(column[case.name]) for case in cases) for column in columns.values())
        rows.append(["", words, "", *(f"**{n} of {len(cases)}**" for n in sums)])
    return table(["case", "what goes wrong", "interleavings", *columns], rows)


def _cell(found: Tally) -> str:
    if not found.deviations:
        return "0"
    refused = f"<br>{found.aborts:,} refused" if found.aborts else ""
    return f"{found.deviations:,}{refused}"


if __name__ == "__main__":
    sys.exit(main())
