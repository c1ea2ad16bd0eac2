"""A key for every attempt that is a command: the gateway inside a run's own process.

Laws:
- A command that calls no model pays nothing for it: a socket is bound, and what serves it is
  imported when somebody first connects.
- A key opens as long as its attempt lasts, and what its calls took is known when it ends.
- A command that cannot go on, for the budget or for a usage window that its run does not wait for,
  is ended when it asks for more, and not before.
- The environment of a command that already leads to a gateway stays as it is.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Final

from headway.agents.metering import MeteredUsage
from headway.client.accounts import GATEWAY_VARIABLE
from headway.engine.budget import Cost
from headway.engine.strategy import Resting
from headway.errors import StateFileError
from headway.gateway.agents import base_urls, environment, whole_settings, write_homes
from headway.gateway.config_files import remove_home
from headway.gateway.guard import Keyring
from headway.gateway.settings import VARIABLES, GatewayOptions, GatewaySettings, leads_to_gateway
from headway.gateway.spending import Pocket
from headway.gateway.values import GatewayKey, Upstream
from headway.work import Attempt, OverBudgetError, WindowEmptyError

if TYPE_CHECKING:
    from headway.client.exchange import Port
    from headway.gateway.server import Gateway
    from headway.gateway.spending import Prices

BACKLOG: Final = 4096
"""Connections that wait while the server is being started, and later to be taken up."""

LAST_S_MAX: Final = 2.0
LOOK_S: Final = 0.01
"""How long the books of a command's last calls are waited for, and how often they are looked at:
its processes are gone, so that nobody reads their answers any more."""

HOMES: Final = "homes"

TOKEN: Final = "A-TOKEN-OF-THE-GATEWAY"
"""Stands for a key's token in what all commands are told."""

Window = Callable[[float, str], bool]
"""Told of an empty usage window; whether the run waits for its reset."""


class _Payer:
    """What the calls of one attempt ask of its run."""

    __slots__ = (
        "_attempt", "_is_doomed", "_rest", "_stop", "_waiting", "_window", "empty", "is_ended",
        "pocket",
    )  # fmt: skip

    def __init__(self, attempt: Attempt, stop: Callable[[], object], window: Window | None) -> None:
        self._attempt = attempt
        self._stop = stop
        self._window = window
        self._waiting = 0
        self._rest: asyncio.TimerHandle | None = None
        """Set while a client that was sent away has not called again."""
        self._is_doomed = False
        """The run does not wait for the window that is empty: the next call has no answer."""
        self.pocket = Pocket(attempt, self._end)
        self.empty: WindowEmptyError | None = None
        self.is_ended = False

    def __repr__(self) -> str:
        return f"<_Payer {self.pocket!r}>"

    def statistics(self) -> Cost:
        """What is set aside."""
        return self.pocket.statistics()

    @property
    def is_queued(self) -> bool:
        """Whether any of its calls waits for a permit."""
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

    def reserve(self, microusd: int, tokens: int, /) -> Awaitable[None]:
        self.pocket.want(Cost(microusd, tokens))
        return self.pocket.covered()

    def spares(self, microusd: int, tokens: int, /) -> None:
        self.pocket.want(Cost(-microusd, -tokens))

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


class _Metered:
    """One attempt and its key."""

    __slots__ = ("_ended", "_folder", "_key", "_keys", "_payer", "carried", "environment")

    def __init__(
        self, key: GatewayKey, keys: Keyring, payer: _Payer, told: _Told,
        ended: Callable[[str, MeteredUsage], None],
    ) -> None:  # fmt: skip
        self._key = key
        self._ended = ended
        self._keys = keys
        self._payer = payer
        self.environment = told.environment
        self._folder = told.folder
        self.carried = MeteredUsage()

    def __repr__(self) -> str:
        return f"<_Metered {self._key.name}>"

    @property
    def stopped(self) -> OverBudgetError | None:
        return self._payer.pocket.over

    @property
    def empty(self) -> WindowEmptyError | None:
        return self._payer.empty

    @property
    def is_ended(self) -> bool:
        return self._payer.is_ended

    def statistics(self) -> MeteredUsage:
        """What its calls came to so far, with what it carries on."""
        totals, carried = self._key.totals, self.carried
        return MeteredUsage(
            totals.calls + carried.calls, totals.input_tokens + carried.input_tokens,
            totals.output_tokens + carried.output_tokens,
            totals.spend_microusd + carried.microusd, replayed=totals.replayed,
            charged_tokens=carried.charged_tokens,
            unpriced=totals.unpriced + carried.unpriced,
        )  # fmt: skip

    def known_as(self, name: str) -> None:
        """Its calls are recorded, and found in recordings, under this name."""
        self._key.name = name

    async def close(self) -> MeteredUsage:
        key = self._key
        self._keys.end(key)
        await self._payer.pocket.close()
        loop = asyncio.get_running_loop()
        until_s = loop.time() + LAST_S_MAX
        while key.in_flight and loop.time() < until_s:
            await asyncio.sleep(LOOK_S)
        if self._folder:
            remove_home(self._folder)
        taken = self.statistics()
        self._ended(key.name, taken)
        return taken


@dataclass(frozen=True, slots=True)
class _Told:
    """What a command has to know, and the folder that was made for it, if one was."""

    environment: Mapping[str, str]
    folder: str = ""


class _Teller:
    """Tells commands where the gateway is; all are told the same but for their key."""

    __slots__ = ("_count", "_place", "_told", "_upstreams", "_url")

    def __init__(self, place: TaskRun, upstreams: Mapping[str, Upstream]) -> None:
        self._upstreams = upstreams
        self._place = place
        self._told: dict[str, str] = {}
        self._url = ""
        self._count = 0

    def __repr__(self) -> str:
        return f"<_Teller of {self._url}, told {self._count}>"

    def listens_at(self, url: str) -> None:
        """Known once the socket is bound."""
        self._url = url
        place = self._place
        self._told = environment(url, TOKEN, self._upstreams, place.environ, place.folder)
        # What a process left behind that was killed.
        remove_home(os.path.join(place.run_folder, HOMES))

    def told(self, token: str, task: int) -> _Told:
        """What one command has to know. Its home has the same path in every attempt of its task:
        agents tell it to the model."""
        self._count += 1
        found = {name: value.replace(TOKEN, token) for name, value in self._told.items()}
        home = os.path.join(self._place.run_folder, HOMES, str(task))
        urls = base_urls(self._url, token, self._upstreams)
        return _Told(found | write_homes(home, urls, self._upstreams, self._place.environ), home)

    def statistics(self) -> int:
        """How many commands were told."""
        return self._count


@dataclass(frozen=True, slots=True)
class TaskRun:
    """A run, as its commands see it."""

    run: str
    folder: str
    """Where they run."""
    run_folder: str
    """Where throw-away folders are made for them."""
    environ: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TaskGatewayStatistics:
    """What a run's own gateway has done."""

    attempts: int
    """Keys that were issued."""
    is_serving: bool
    """Whether anybody has connected."""


class TaskGateway:
    """The meter of a run's commands. Used within the run's event loop."""

    def __init__(
        self,
        place: TaskRun,
        settings: GatewaySettings,
        *,
        prices: Prices | None = None,
        admission: Port | None = None,
    ) -> None:
        """`admission` admits calls; `None` is the process's own port."""
        self._run = place.run
        self._teller = _Teller(place, settings.upstreams)
        self._settings = settings
        self._prices = prices
        self._must_be_priced = False
        self._admission = admission
        self._keys = Keyring()
        self._window: Window | None = None
        self._listening: socket.socket | None = None
        self._starting: asyncio.Task[None] | None = None
        self._gateway: Gateway | None = None
        self._open: dict[int, _Metered] = {}
        """By task: the attempts that are open."""
        self._before: dict[str, MeteredUsage] = {}
        """By name: what was recorded when the recording was last read."""
        self._recent: set[str] = set()
        """Names that have recorded calls since then."""

    def __repr__(self) -> str:
        return f"<TaskGateway of {self._run}, {self.statistics()}>"

    def statistics(self) -> TaskGatewayStatistics:
        return TaskGatewayStatistics(self._keys.statistics().issued, self._gateway is not None)

    def meet(self, window: Window, must_be_priced: bool) -> None:
        """Who is told of an empty usage window; whether every call must have a price."""
        self._window = window
        self._must_be_priced = must_be_priced

    def open(self, attempt: Attempt, stop: Callable[[], object]) -> _Metered:
        """A key for an attempt, and what its command has to be told."""
        if self._listening is None:
            self._listen()
        payer = _Payer(attempt, stop, self._window)
        name = attempt.name
        if self._settings.record is not None:
            # Nobody else is ever called so: its calls are answered by the provider.
            name = f"{name}~attempt {attempt.number}"
        key = self._keys.issue(name, (self._run, attempt.name), payer=payer)
        opened = _Metered(
            key,
            self._keys,
            payer,
            self._teller.told(key.token, attempt.task),
            partial(self._ended, attempt.task),
        )
        self._open[attempt.task] = opened
        return opened

    def record(self, path: str) -> None:
        """Record calls, and answer from what an interrupted process has recorded.

        A recording that is spoilt is put aside: it is only worth what its calls cost.
        """
        from headway.gateway.recording import recorded_in

        try:
            self._before = recorded_in(path)
        except StateFileError:
            os.replace(path, f"{path}.spoilt")
        replay = path if self._before else None
        self._settings = replace(self._settings, record=path, replay=replay)

    def known_as(self, attempt: Attempt, name: str) -> MeteredUsage:
        """An attempt goes on with what was recorded under a name."""
        from headway.gateway.recording import recorded_in

        self._open[attempt.task].known_as(name)
        if name in self._recent and self._gateway is not None and self._settings.record:
            self._recent.clear()
            self._before = recorded_in(self._settings.record)
            self._gateway.rewind()
        return self._before.get(name, MeteredUsage())

    def carry(self, attempt: Attempt, taken: MeteredUsage) -> None:
        """What an interrupted attempt took is part of this one."""
        self._open[attempt.task].carried = taken

    def seen(self, attempt: Attempt) -> MeteredUsage:
        """What the calls of an attempt came to so far."""
        opened = self._open.get(attempt.task)
        return MeteredUsage() if opened is None else opened.statistics()

    def _ended(self, task: int, name: str, taken: MeteredUsage) -> None:
        """An attempt is over; another one may go on with what it was answered."""
        self._open.pop(task, None)
        if self._settings.record is not None and taken.calls:
            self._recent.add(name)

    def resting(self) -> Resting:
        """Commands whose agents wait for a model, or for their turn."""
        calling = [key for key in self._keys if key.in_flight]
        queued = sum(isinstance(key.payer, _Payer) and key.payer.is_queued for key in calling)
        return Resting(len(calling), queued)

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

    def _listen(self) -> None:
        """Take a port, and wait for whoever comes first."""
        address = (self._settings.host, self._settings.port)
        listening = self._listening = socket.create_server(address, backlog=BACKLOG)
        listening.setblocking(False)
        self._teller.listens_at(f"http://{address[0]}:{listening.getsockname()[1]}")
        loop = asyncio.get_running_loop()

        def knocked() -> None:
            loop.remove_reader(listening)
            self._starting = loop.create_task(self._serve(listening))

        loop.add_reader(listening, knocked)

    async def _serve(self, listening: socket.socket) -> None:
        try:
            # To import a server takes a third of a second, and not on this loop.
            server = await asyncio.to_thread(import_module, "headway.gateway.server")
            from headway.gateway.spending import Prices

            prices = Prices() if self._prices is None else self._prices
            prices.is_needed = self._must_be_priced
            gateway: Gateway = server.Gateway(
                self._settings, self._keys, admission=self._admission, prices=prices
            )
            await gateway.start(listening)
        except BaseException:
            # Whoever has connected is turned away, not left standing.
            listening.close()
            raise
        self._gateway = gateway


def task_gateway(place: TaskRun) -> TaskGateway | None:
    """A gateway for the commands of a run, unless this environment has one or wants none.

    Raises BadValueError when a provider's address in the environment is none.
    """
    environ = place.environ
    if environ.get(GATEWAY_VARIABLE):
        return None
    if any(leads_to_gateway(environ.get(name, ""), environ) for name in VARIABLES.values()):
        return None
    return TaskGateway(place, whole_settings(GatewayOptions(), environ, place.folder))
