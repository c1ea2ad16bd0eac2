"""The gateway inside a run: one key for every attempt of a command.

Laws:
- A command that calls no model costs nothing: a socket is bound, and the server is imported at the
  first connection.
- A key is valid as long as its attempt lasts, and the usage of its calls is known when it ends.
- A command that cannot go on, for the budget or for a usage window that its run does not wait for,
  is ended when it asks for more, and not before.
- The environment of a command that already leads to a gateway stays as it is.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Final

from headway.agents.metering import MeteredUsage, PriceLookup
from headway.base.values import Spend
from headway.client.accounts import GATEWAY_VARIABLE
from headway.gateway import environment
from headway.gateway.guard import Keyring
from headway.gateway.settings import VARIABLES, GatewayOptions, GatewaySettings, leads_to_gateway
from headway.gateway.values import GatewayKey
from headway.pacing.windows import Shares
from headway.work import Attempt, OverBudgetError, WindowEmptyError

if TYPE_CHECKING:
    from headway.client.exchange import Port
    from headway.gateway.server import Gateway
    from headway.journal.journal import Journal

BACKLOG: Final = 4096
"""Connections that wait while the server is being started, and later to be taken up."""
LAST_S_MAX: Final = 2.0
LOOK_S: Final = 0.01
"""How long to wait for a command's last calls to be counted, and how often to look: its processes
are gone, so that its answers are not read any more."""
MONEY_S_MAX: Final = 30.0
"""How long a call waits for others to give back what they set aside. It holds a permit meanwhile,
and its client gets nothing: less than the timeout of the least patient client."""
TOKEN: Final = "A-TOKEN-OF-THE-GATEWAY"
"""Stands for a key's token in the environment of all commands."""

Window = Callable[[float, str], bool]
"""Takes an empty usage window; returns whether the run waits for its reset."""


class _Metered:
    """One attempt and its key: the budget, clock and usage windows that its calls count towards."""

    def __init__(
        self, attempt: Attempt, stop: Callable[[], object], window: Window | None, keys: Keyring,
        home: str, ended: Callable[[_Metered], None],
    ) -> None:  # fmt: skip
        self._attempt = attempt
        self._stop = stop
        self._window = window
        self._keys = keys
        self._home = home
        self._ended = ended
        self._waiting = 0
        self._rest: asyncio.TimerHandle | None = None
        """Set while a client that was sent away has not called again."""
        self._is_doomed = False
        """The run does not wait for the window that is empty: the next call has no answer."""
        self._limits: set[asyncio.Timeout] = set()
        """Of calls that wait for the budget."""
        self.spare = attempt.spare
        self._is_closed = False
        self.stopped: OverBudgetError | None = None
        self.empty: WindowEmptyError | None = None
        self.is_ended = False
        self.carried = MeteredUsage()
        self.environment: Mapping[str, str] = {}
        self.key = GatewayKey("", "")

    @property
    def is_queued(self) -> bool:
        return self._waiting > 0

    def waits(self, why: str = "", /) -> None:
        self._end_rest()
        self._waiting += 1
        self._attempt.clock.stop(is_refused=bool(why))
        if self._waiting == 1:
            self._attempt.waits(why)
        if self._is_doomed:
            self._end()

    def goes(self, why: str = "", /) -> None:
        self._waiting -= 1
        self._attempt.clock.start()
        if not self._waiting:
            self._attempt.goes(why)

    def rests(self, seconds: float) -> None:
        self._end_rest()
        self._attempt.clock.stop()
        self._rest = asyncio.get_running_loop().call_later(seconds, self._end_rest)

    def _end_rest(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
            self._attempt.clock.start()

    async def reserve(self, more: Spend) -> None:
        if self.stopped is not None:
            raise self.stopped
        if self._is_closed:
            # A process that outlived its attempt: its money would never be settled.
            raise OverBudgetError("the attempt that this call is charged to has ended")
        limit = asyncio.timeout(MONEY_S_MAX)
        self._limits.add(limit)
        try:
            async with limit:
                await self._attempt.reserve(more)
        except (OverBudgetError, TimeoutError) as error:
            why = f"the budget has no room for {more}: others that do not end have the rest"
            over = OverBudgetError(why) if isinstance(error, TimeoutError) else error
            self._give_up(over)
            raise over from None
        finally:
            self._limits.discard(limit)

    def _give_up(self, over: OverBudgetError) -> None:
        if not self._is_closed:
            self.stopped = self.stopped or over
            self._end()

    def window(self, resets_at_s: float, detail: str) -> None:
        self.empty = WindowEmptyError(resets_at_s, detail)
        if self._window is not None and not self._window(resets_at_s, detail):
            self._is_doomed = True
            if self._waiting:
                self._end()

    def _end(self) -> None:
        if not self.is_ended:
            self.is_ended = True
            self._stop()

    def usage(self) -> MeteredUsage:
        """The usage of its calls so far, and of the interrupted attempt that it continues."""
        totals, carried = self.key.totals or MeteredUsage(), self.carried
        return MeteredUsage(
            totals.calls + carried.calls, totals.input_tokens + carried.input_tokens,
            totals.output_tokens + carried.output_tokens,
            totals.microusd + carried.microusd, replayed=totals.replayed,
            charged_tokens=carried.charged_tokens,
            unpriced=totals.unpriced + carried.unpriced, cache=totals.cache + carried.cache,
        )  # fmt: skip

    async def close(self) -> MeteredUsage:
        self._keys.end(self.key)
        self._is_closed = True
        loop = asyncio.get_running_loop()
        for limit in self._limits:
            if not limit.expired():
                limit.reschedule(loop.time())
        until_s = loop.time() + LAST_S_MAX
        while self.key.in_flight and loop.time() < until_s:
            await asyncio.sleep(LOOK_S)
        environment.remove_home(self._home)
        self._ended(self)
        return self.usage()


class TaskGateway:
    """The meter of a run's commands. Used within the run's event loop."""

    def __init__(
        self, run: str, folder: str, run_folder: str, environ: Mapping[str, str],
        settings: GatewaySettings, *, prices: PriceLookup | None = None,
        admission: Port | None = None,
    ) -> None:  # fmt: skip
        """Commands run in `folder`; their homes are made in `run_folder`."""
        self._run = run
        self._folder = folder
        self._homes = os.path.join(run_folder, "homes")
        self._environ = environ
        self._url = ""
        self._environment: dict[str, str] = {}
        """Of all commands, with `TOKEN` in place of their token."""
        self._settings = settings
        self._prices = PriceLookup() if prices is None else prices
        self._admission = admission
        self._journal: Journal | None = None
        self._keys = Keyring()
        self._window: Window | None = None
        self._shares: Shares | None = None
        self._listening: socket.socket | None = None
        self._starting: asyncio.Task[None] | None = None
        self._gateway: Gateway | None = None
        self._open: dict[int, _Metered] = {}
        """By task: the attempts that are open."""
        self._before: dict[str, MeteredUsage] = {}
        """By name: what was recorded when the recording was last read."""
        self._recent: set[str] = set()
        """Names that have recorded calls since then."""

    def meet(self, window: Window, must_be_priced: bool, shares: Shares) -> None:
        """`window` takes empty usage windows, of each of which the run takes at most its `shares`;
        `must_be_priced`: there is a budget in money."""
        self._window, self._shares = window, shares
        self._prices.is_needed = must_be_priced

    def open(self, attempt: Attempt, stop: Callable[[], object]) -> _Metered:
        """A key for an attempt. Its home has one path in all attempts: agents tell models of it."""
        if self._listening is None:
            self._listen()
        home = os.path.join(self._homes, str(attempt.task))
        opened = _Metered(
            attempt, stop, self._window, self._keys, home, partial(self._ended, attempt.task)
        )
        name = attempt.name
        if self._journal is not None:
            # A name that is not in the recording: its calls are answered by the provider.
            name = f"{name}~attempt {attempt.number}"
        key = opened.key = self._keys.issue(name, (self._run,), payer=opened)
        key.window_shares = self._shares
        upstreams = self._settings.upstreams
        told = {one: value.replace(TOKEN, key.token) for one, value in self._environment.items()}
        urls = environment.base_urls(self._url, key.token, upstreams)
        opened.environment = told | environment.write_homes(home, urls, upstreams, self._environ)
        self._open[attempt.task] = opened
        return opened

    def record(self, journal: Journal) -> None:
        """Record calls in the run's journal, and answer from what is recorded there."""
        from headway.gateway.recording import recorded_in

        self._journal, self._before = journal, recorded_in(journal.reader)

    def known_as(self, attempt: Attempt, name: str) -> MeteredUsage:
        """An attempt goes on with what was recorded under a name."""
        from headway.gateway.recording import recorded_in

        self._open[attempt.task].key.name = name
        if name in self._recent and self._gateway is not None and self._journal is not None:
            self._recent.clear()
            self._before = recorded_in(self._journal.reader)
            self._gateway.rewind()
        return self._before.get(name, MeteredUsage())

    def carry(self, attempt: Attempt, taken: MeteredUsage) -> None:
        self._open[attempt.task].carried = taken

    def seen(self, attempt: Attempt) -> MeteredUsage:
        opened = self._open.get(attempt.task)
        return MeteredUsage() if opened is None else opened.usage()

    def _ended(self, task: int, closed: _Metered) -> None:
        self._open.pop(task, None)
        if self._journal is not None and closed.usage().calls:
            self._recent.add(closed.key.name)

    def is_calling(self, attempt: Attempt) -> bool:
        opened = self._open.get(attempt.task)
        return opened is not None and opened.key.in_flight > 0

    def queued(self) -> int:
        return sum(opened.is_queued for opened in self._open.values())

    async def aclose(self) -> None:
        """Listen no more. Raises what kept the server from starting, if anything did."""
        listening, self._listening = self._listening, None
        if self._starting is not None:
            await self._starting
        elif listening is not None:
            asyncio.get_running_loop().remove_reader(listening)
            listening.close()
        if self._gateway is not None:
            await self._gateway.stop()
        environment.remove_home(self._homes)

    def _listen(self) -> None:
        """Take a port, and start the server at the first connection."""
        address = (self._settings.host, self._settings.port)
        listening = self._listening = socket.create_server(address, backlog=BACKLOG)
        listening.setblocking(False)
        self._url = f"http://{address[0]}:{listening.getsockname()[1]}"
        upstreams = self._settings.upstreams
        self._environment = environment.environment(
            self._url, TOKEN, upstreams, self._environ, self._folder
        )
        environment.remove_home(self._homes)  # Left behind by a process that was killed.
        loop = asyncio.get_running_loop()

        def knocked() -> None:
            loop.remove_reader(listening)
            self._starting = loop.create_task(self._serve(listening))

        loop.add_reader(listening, knocked)

    async def _serve(self, listening: socket.socket) -> None:
        try:
            # To import a server takes a third of a second, and not on this loop.
            server = await asyncio.to_thread(import_module, "headway.gateway.server")
            gateway: Gateway = server.Gateway(
                self._settings,
                self._keys,
                admission=self._admission,
                prices=self._prices,
                journal=self._journal,
            )
            await gateway.start(listening)
        except BaseException:
            listening.close()  # Clients that have connected must not wait.
            raise
        self._gateway = gateway


def task_gateway(
    run: str, folder: str, run_folder: str, environ: Mapping[str, str]
) -> TaskGateway | None:
    """A gateway for a run's commands, unless the environment leads to one. Raises BadValueError."""
    if environ.get(GATEWAY_VARIABLE):
        return None
    if any(leads_to_gateway(environ.get(name, ""), environ) for name in VARIABLES.values()):
        return None
    settings = environment.whole_settings(GatewayOptions(), environ, folder)
    return TaskGateway(run, folder, run_folder, environ, settings)
