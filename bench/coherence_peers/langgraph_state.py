"""LangGraph, by the state of the graph: a node for each task, a channel for each key.

A node is given the state and returns what it changes. A key takes one value in a step of the
graph; where tasks add to a list its channel has a reducer, as LangGraph advises.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

from bench.coherence_peers.gate import Gate, Runs, perform
from tests.coherence.catalogue_plays import Case
from tests.coherence.catalogue_stores import Buffered
from tests.coherence.harness import Outcome


def prepare(case: Case) -> Runs:
    """What performs a case in a given order."""
    graphs, errors = import_module("langgraph.graph"), import_module("langgraph.errors")
    written = {key for task in case.tasks for key in task.writes if "*" not in key}
    keys: dict[str, Any] = dict.fromkeys({*case.start, *written}, object)
    keys |= dict.fromkeys(case.channels, Annotated[list[Any], operator.add])
    builder = graphs.StateGraph(type("State", (), {"__annotations__": keys}), dict)
    for number, task in enumerate(case.tasks):

        async def node(state: dict[str, Any], runtime: Any, n: int = number) -> object:
            view = Buffered({key: value for key, value in state.items() if value is not None})
            play = await perform(n, case.tasks[n], view, runtime.context["gate"])
            return {} if play.is_failed else view.puts | {key: [value] for key, value in view.adds}

        builder.add_node(task.name, node)
        builder.add_edge(graphs.START, task.name)
    graph = builder.compile()

    async def perform_all(order: Sequence[int]) -> Outcome:
        gate = Gate(order)
        try:
            state = await graph.ainvoke(case.start, context={"gate": gate})
        except errors.InvalidUpdateError:
            return Outcome({}, (), aborts=1)
        return Outcome({key: value for key, value in state.items() if value}, gate.observed)

    return perform_all
