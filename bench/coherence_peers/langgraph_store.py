"""LangGraph, by its store: nodes that read and write while they work, as tools of agents do."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from bench.coherence_peers.gate import Gate, Runs, perform
from tests.coherence.catalogue_plays import Case
from tests.coherence.catalogue_stores import Plain
from tests.coherence.harness import Outcome

SPACE = ("shared",)


class StoreView(Plain):
    """The store that a node is given. It has no list to add to: that is read and put."""

    def every(self) -> dict[str, object]:
        return {item.key: item.value["it"] for item in self.data.search(SPACE, limit=100)}

    def put(self, key: str, value: object) -> None:
        self.data.put(SPACE, key, {"it": value})

    def remove(self, key: str) -> None:
        self.data.delete(SPACE, key)


def prepare(case: Case) -> Runs:
    """What performs a case in a given order."""
    graphs, stores = import_module("langgraph.graph"), import_module("langgraph.store.memory")

    async def perform_all(order: Sequence[int]) -> Outcome:
        builder, store = graphs.StateGraph(dict), stores.InMemoryStore()
        gate = Gate(order)
        for key, value in case.start.items():
            StoreView(store).put(key, value)
        for n, task in enumerate(case.tasks):

            async def node(_: object, runtime: Any, n: int = n) -> None:
                await perform(n, case.tasks[n], StoreView(runtime.store), gate)

            builder.add_node(task.name, node).add_edge(graphs.START, task.name)
        await builder.compile(store=store).ainvoke({})
        return Outcome(StoreView(store).every(), gate.observed)

    return perform_all
