"""Google ADK: function nodes of a `Workflow`, all after its start, on the state of the session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from bench.coherence_peers.gate import Gate, Runs, perform
from tests.coherence.catalogue_plays import Case
from tests.coherence.catalogue_stores import Plain
from tests.coherence.harness import Outcome


class State(Plain):
    """`ctx.state` of a node. It cannot take a key away: None stands for that."""

    def every(self) -> Mapping[str, object]:
        return dict(self.data.to_dict())

    def remove(self, key: str) -> None:
        self.data[key] = None


def prepare(case: Case) -> Runs:
    """What performs a case in a given order."""
    flows, runners = import_module("google.adk.workflow"), import_module("google.adk.runners")
    types, agents = import_module("google.genai.types"), import_module("google.adk.agents.context")

    async def perform_all(order: Sequence[int]) -> Outcome:
        gate = Gate(order)

        def node(number: int) -> Any:
            async def agent(ctx: Any) -> None:
                await perform(number, case.tasks[number], State(ctx.state), gate)

            agent.__annotations__["ctx"] = agents.Context
            return flows.FunctionNode(func=agent, name=f"agent_{number}")

        nodes = [(flows.START, node(number)) for number in range(len(case.tasks))]
        runner = runners.InMemoryRunner(node=flows.Workflow(name="all", edges=nodes))
        who, app = {"user_id": "someone"}, {"app_name": runner.app_name}
        session = await runner.session_service.create_session(**who, **app, state=case.start)
        go = types.Content(role="user", parts=[types.Part(text="go")])
        async for _ in runner.run_async(**who, session_id=session.id, new_message=go):
            pass
        session = await runner.session_service.get_session(**who, **app, session_id=session.id)
        return Outcome(Plain(session.state).scan("*"), gate.observed)

    return perform_all
