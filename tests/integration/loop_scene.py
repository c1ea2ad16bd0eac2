"""Loops with tools without a plan: a provider over HTTP, a shim, and attempts that write down."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from headway.agents.prompt import PromptAgent, PromptSettings
from headway.agents.shell import ShimClient
from headway.agents.toolloop import LoopCall, LoopDependencies, perform_loop
from headway.agents.tools_models import LoopModels
from headway.client.admission import AdmissionPort
from headway.pacing.estimate import Price
from headway.sim.server import account_of, truth_of
from headway.work import Result
from tests.unit.attempts import Told

PRICE = Price(3_000_000, 15_000_000)
WIRES = ("anthropic", "openai", "openai-responses")
Anything = TypeVar("Anything")


class Scene(Struct, frozen=True):
    url: str
    port: AdmissionPort
    folder: Path
    key: str = "k"
    fault: str = ""
    quiet_s: float = 30.0

    def settings(self) -> PromptSettings:
        environment = {
            "ANTHROPIC_BASE_URL": self.url, "ANTHROPIC_API_KEY": self.key,
            "OPENAI_BASE_URL": f"{self.url}/v1", "OPENAI_API_KEY": self.key,
        }  # fmt: skip
        headers = {"x-sim-fault": self.fault} if self.fault else {}
        return PromptSettings(
            "run-1", environment, self.port, headers=headers, prices=lambda _, __: PRICE,
            quiet_s=self.quiet_s,
        )  # fmt: skip

    def call(self, prompt: str, wire: str = "openai", **how: Any) -> LoopCall:
        tools = how.pop("tools", ("shell", "files"))
        model = how.pop("model", "agent")
        (self.folder / "work").mkdir(exist_ok=True)
        folder = str(self.folder / "work")
        return LoopCall(prompt, f"{wire}/{model}", tools=tools, folder=folder, **how)

    def perform(self, call: LoopCall, told: Told | None = None, **means: Any) -> Result:
        """One attempt, which knows what `told` has kept."""
        told = told if told is not None else Told()

        async def main(given: LoopDependencies) -> Result:
            attempt = told.attempt(kept=tuple(told.kept))
            return await perform_loop(call, attempt, replace(given, **means))

        return self.run(main)

    def perform_each(self, call: LoopCall, every: Sequence[Told]) -> list[Result]:
        """Attempts one after the other, each with what its `told` has kept."""

        async def main(given: LoopDependencies) -> list[Result]:
            attempts = [told.attempt(kept=tuple(told.kept)) for told in every]
            return [await perform_loop(call, one, given) for one in attempts]

        return self.run(main)

    def perform_all(self, calls: Sequence[LoopCall], at_once: int = 100) -> list[Result]:
        async def main(given: LoopDependencies) -> list[Result]:
            room = asyncio.Semaphore(at_once)

            async def one(number: int, call: LoopCall) -> Result:
                async with room:
                    return await perform_loop(call, Told().attempt(f"task-{number}"), given)

            return await asyncio.gather(*(one(*each) for each in enumerate(calls)))

        return self.run(main)

    def run(self, work: Callable[[LoopDependencies], Awaitable[Anything]]) -> Anything:
        async def main() -> Anything:
            shim = ShimClient(str(self.folder))
            try:
                async with (
                    aclosing(PromptAgent(self.settings())) as agent,
                    aclosing(LoopModels(agent)) as models,
                ):
                    return await work(LoopDependencies(models, shim.run))
            finally:
                await shim.close()

        return asyncio.run(main())

    def account(self) -> dict[str, Any]:
        """What the provider saw of this scene's account, when nothing is in flight."""
        until_s = time.monotonic() + 20.0
        while True:
            found: dict[str, Any] = truth_of(self.url)["accounts"][account_of(self.key)]
            if found["in_flight"] == 0 or time.monotonic() > until_s:
                return found
