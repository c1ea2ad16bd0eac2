"""What the tasks of a run share: shim, models, functions, made on first use."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, aclosing, suppress
from typing import TYPE_CHECKING

from msgspec import Struct, field

from headway.agents.metering import CallMeter
from headway.agents.shell import Adopted, Command, ShimClient, shim_key
from headway.journal.journal import Journal
from headway.pacing.windows import RUN_SHARES, Shares
from headway.run.machine import Machine
from headway.state.context import Commons
from headway.state.folder import VIEWS, sweep
from headway.state.shared import Channels
from headway.work import Attempt

if TYPE_CHECKING:
    from headway.agents.function import FunctionAgent
    from headway.agents.prompt import PromptAgent
    from headway.agents.tools_models import LoopModels
    from headway.run.driver import Driver
    from headway.run.workspaces import Workspaces


class Crew(Struct):
    """Who performs the tasks of one run; each is made when it is first needed."""

    folder: str
    run_folder: str
    run: str
    environment: Mapping[str, str]
    journal: Journal | None = None
    adopted: Adopted | None = None
    """Ends of commands that an interrupted process did not come to journal."""
    must_be_priced: bool = False
    """Whether there is a budget in money, towards which every call must count."""
    is_foreign: bool = False
    """Whether an agent wrote the plan: it replaces no file."""
    may_leave: bool = False
    """Whether links may lead `output` out of the plan's folder."""
    window: Callable[[float, str], object] | None = None
    """Told when an answer shows that the account's usage window is empty."""
    window_shares: Shares = RUN_SHARES
    """The most that the run takes of each usage window."""
    meter: CallMeter | None = None
    ratchet: str = ""
    """The command that must not give less with what lands; empty if there is no such rule."""
    channels: Channels = field(default_factory=Channels)
    commons: Commons = field(default_factory=Commons)
    keeps_results: bool = True
    """Off: what models answered stays in no file of the run, either."""
    notes: list[str] = field(default_factory=list)
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    _shim: ShimClient | None = None
    _prompts: PromptAgent | None = None
    _models: LoopModels | None = None
    _functions: FunctionAgent | None = None
    _workspaces: Workspaces | None = None
    _numbers: int = 0

    def join(self, journal: Journal) -> None:
        """Perform the run of a journal, and go on with what its commands have left."""
        self.journal, self.run_folder, self.run = journal, journal.folder, journal.header.run
        self.adopted, self.keeps_results = Adopted(journal.folder), journal.header.keeps_bodies
        self.shim().folder = os.path.abspath(journal.folder)

    def command(self, attempt: Attempt, script: str, environment: Mapping[str, str]) -> Command:
        argv = ("/bin/sh", "-c", script)
        return Command(shim_key(attempt), attempt.number, argv, environment, self.folder)

    def part_key(self) -> bytes:
        """For a command that is a part of an attempt, and is not adopted."""
        self._numbers += 1
        return b"part%012d" % self._numbers

    def shim(self) -> ShimClient:
        """Starts its process with the first command."""
        if self._shim is None:
            self._shim = ShimClient(self.run_folder)
            self._stack.push_async_callback(self._shim.close)
        return self._shim

    def machine(self) -> Machine:
        return Machine(self.shim())

    async def prompts(self) -> PromptAgent:
        if self._prompts is None:
            from headway.agents.prompt import PromptAgent, PromptSettings

            settings = PromptSettings(
                self.run, self.environment, window=self.window, must_be_priced=self.must_be_priced,
                window_shares=self.window_shares,
            )  # fmt: skip
            self._prompts = await self._stack.enter_async_context(aclosing(PromptAgent(settings)))
        return self._prompts

    async def models(self) -> LoopModels:
        """Asks for the loops, through the connections of the prompts."""
        if self._models is None:
            from headway.agents.tools_models import LoopModels

            self._models = await self._stack.enter_async_context(
                aclosing(LoopModels(await self.prompts()))
            )
        return self._models

    async def functions(self) -> FunctionAgent:
        if self._functions is None:
            from headway.agents.function import FunctionAgent

            self._functions = await self._stack.enter_async_context(aclosing(FunctionAgent()))
        return self._functions

    def workspaces(self) -> Workspaces:
        if self._workspaces is None:
            from headway.run.workspaces import Workspaces

            self._workspaces = Workspaces(self)
        return self._workspaces

    def lend(self, commons: Commons) -> None:
        """Tasks touch the shared state by this from now on."""
        self.commons = commons
        sweep(self.run_folder)

    def meet(self, driver: Driver) -> None:
        """A call that finds the usage window empty tells the run at once."""
        self.window = driver.window_empty
        if self.meter is not None:
            self.meter.meet(driver.window_empty, self.must_be_priced, self.window_shares)

    async def aclose(self) -> None:
        """End everything that was started; commands first, whose calls are seen to the end."""
        await self._stack.aclose()
        with suppress(OSError):
            os.rmdir(os.path.join(self.run_folder, VIEWS))
        if self.meter is not None:
            await self.meter.aclose()
