"""Keys for attempts: what a command is told, what its calls ask of the run, how an attempt ends."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from msgspec import Struct, field
from msgspec.structs import replace

from headway.agents.metering import Metered, MeteredUsage, PriceLookup, metered
from headway.base.values import Amounts, Fault, Spend, Tally
from headway.errors import BudgetReachedError
from headway.gateway.call import counted
from headway.gateway.settings import GatewayOptions, read_settings
from headway.gateway.tasks import MONEY_S_MAX, TaskGateway
from headway.gateway.values import GatewayKey, Payer, Upstream
from headway.pacing.call import Outcome
from headway.pacing.estimate import Price
from headway.pacing.windows import RUN_SHARES
from headway.testing import run_virtual
from headway.work import Attempt, AttemptError, OverBudgetError, Result, WindowEmptyError
from tests.unit.attempts import Told

TEN = Spend(0, 10)
BROKEN = Upstream("x", "http://provider.test:not-a-port")
ENVIRON = {"ANTHROPIC_BASE_URL": "http://provider.test", "PATH": "/nowhere"}


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Homes of agents are made below the run's folder."""
    monkeypatch.chdir(tmp_path)


class Opened(Struct):
    """One attempt of a gateway that nobody has connected to."""

    told: Told = field(default_factory=Told)
    stops: list[str] = field(default_factory=list)
    windows: list[tuple[float, str]] = field(default_factory=list)
    waits_for_windows: bool = True

    def window(self, resets_at_s: float, detail: str) -> bool:
        self.windows.append((resets_at_s, detail))
        return self.waits_for_windows

    @asynccontextmanager
    async def attempt(self) -> AsyncIterator[tuple[TaskGateway, Metered, GatewayKey, Payer]]:
        meter = gateway()
        meter.meet(self.window, False, RUN_SHARES)
        try:
            seen = meter.open(self.told.attempt("review[a]"), lambda: self.stops.append("stop"))
            key = key_of(meter, seen.environment)
            assert key.payer is not None
            yield meter, seen, key, key.payer
        finally:
            await meter.aclose()


def gateway(upstreams: Mapping[str, Upstream] | None = None) -> TaskGateway:
    settings = read_settings(GatewayOptions(), ENVIRON)
    if upstreams is not None:
        settings = replace(settings, upstreams=upstreams)
    return TaskGateway("run-1", "here", "here/run", ENVIRON, settings)


def key_of(meter: TaskGateway, told: Mapping[str, str]) -> GatewayKey:
    token = urlsplit(told["HEADWAY_GATEWAY"]).path.strip("/")
    found = meter._keys.find(token)
    assert found is not None
    return found


def test_a_command_is_told_where_its_key_opens() -> None:
    async def main() -> None:
        async with Opened().attempt() as (_, seen, key, _payer):
            told = seen.environment
            assert told["ANTHROPIC_BASE_URL"].startswith("http://127.0.0.1:")
            assert told["ANTHROPIC_BASE_URL"].endswith(f"/{key.token}/anthropic")
            assert told["OPENAI_BASE_URL"].endswith(f"/{key.token}/openai/v1")
            assert (key.name, key.path) == ("review[a]", ("run-1",))
            port = urlsplit(told["HEADWAY_GATEWAY"]).port
            with socket.create_connection(("127.0.0.1", port or 0)):
                pass  # Somebody listens, although nothing serves yet.

    asyncio.run(main())


def test_a_gateway_that_cannot_serve_turns_its_callers_away_and_says_so_at_the_end() -> None:
    async def main() -> None:
        meter = gateway({"x": BROKEN})
        told = meter.open(Told().attempt(), print).environment
        port = urlsplit(told["HEADWAY_GATEWAY"]).port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        with pytest.raises(ValueError, match="port"):
            await meter.aclose()

    asyncio.run(main())


def test_calls_that_are_being_entered_in_the_books_are_waited_for() -> None:
    async def main() -> None:
        async with Opened().attempt() as (_, seen, key, _payer):
            key.in_flight = 1

            def ended() -> None:
                key.in_flight, key.totals = 0, MeteredUsage(1, 10.0, 5.0)

            asyncio.get_running_loop().call_later(0.05, ended)
            assert (await seen.close()).calls == 1

    asyncio.run(main())


def test_an_attempt_is_queued_while_any_of_its_calls_waits() -> None:
    async def main() -> None:
        async with Opened().attempt() as (meter, _seen, _key, payer):
            assert meter.queued() == 0
            payer.waits()
            payer.waits()
            payer.goes()
            assert meter.queued() == 1
            payer.goes()
            assert meter.queued() == 0

    asyncio.run(main())


class Slow(Struct):
    """A run that sets nothing aside."""

    told: Told
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    def attempt(self) -> Attempt:
        attempt = self.told.attempt("t")
        attempt.reserve = self.reserve
        return attempt

    async def reserve(self, _: Spend) -> None:
        self.asked.set()
        await asyncio.Event().wait()


def test_a_call_that_waits_for_money_ends_with_its_attempt() -> None:
    async def main() -> None:
        meter, slow = gateway(), Slow(Told())
        seen = meter.open(slow.attempt(), print)
        payer = key_of(meter, seen.environment).payer
        assert payer is not None
        waiting = asyncio.ensure_future(payer.reserve(TEN))
        await slow.asked.wait()
        await seen.close()
        with pytest.raises(OverBudgetError):
            await waiting
        assert seen.stopped is None
        await meter.aclose()

    asyncio.run(main())


def test_money_that_does_not_come_is_not_there() -> None:
    async def main() -> None:
        stops: list[str] = []
        meter = gateway()
        seen = meter.open(Slow(Told()).attempt(), lambda: stops.append("stop"))
        payer = key_of(meter, seen.environment).payer
        assert payer is not None
        began_s = asyncio.get_running_loop().time()
        with pytest.raises(OverBudgetError, match="others that do not end have the rest"):
            await payer.reserve(TEN)
        assert asyncio.get_running_loop().time() - began_s == pytest.approx(MONEY_S_MAX)
        assert stops == ["stop"]
        await meter.aclose()

    run_virtual(main())


def test_an_attempt_that_the_budget_has_no_room_for_is_stopped_once() -> None:
    async def main() -> None:
        opened = Opened(Told(reservations_max=0))
        async with opened.attempt() as (_, seen, _key, payer):
            for _ in range(2):
                with pytest.raises(OverBudgetError, match="the budget is spent"):
                    await payer.reserve(TEN)
            assert opened.stops == ["stop"]
            assert seen.stopped is not None

    asyncio.run(main())


def test_a_command_that_failed_at_an_empty_window_is_put_back() -> None:
    async def main() -> None:
        meter = gateway()
        meter.meet(lambda *_: True, False, RUN_SHARES)

        async def bad(told: Mapping[str, str]) -> Result:
            key = key_of(meter, told)
            assert key.payer is not None
            key.payer.window(99.0, "empty")
            key.totals = MeteredUsage(2, 30.0, 4.0, 500)
            raise AttemptError(Fault("command", detail="exit code 7"), Result(b"half", exit_code=7))

        with pytest.raises(WindowEmptyError) as empty:
            await metered(meter, Told().attempt(), bad)
        assert empty.value.resets_at_s == 99.0
        assert empty.value.result is not None
        assert empty.value.result.calls == 2
        await meter.aclose()

    asyncio.run(main())


EXPECTED = Amounts(1000, 100)


@pytest.mark.parametrize(
    ("seen", "is_finished", "counted_as"),
    [
        (Tally(0, 0, 0, "unknown"), False, (1000, 0, 100)),
        (Tally(10, 0, 3, "estimated"), False, (1000, 0, 100)),
        (Tally(2000, 0, 300, "estimated"), False, (2000, 0, 300)),
        (Tally(0, 200, 200, "estimated"), False, (800, 200, 200)),
        (Tally(0, 0, 3, "estimated"), True, (1000, 0, 3)),
        (Tally(10, 0, 3, "reported"), False, (10, 0, 3)),
    ],
)
def test_what_was_not_reported_is_counted_as_expected_or_as_seen(
    seen: Tally, is_finished: bool, counted_as: tuple[int, int, int]
) -> None:
    found = counted(Outcome("used", seen), EXPECTED, is_finished)
    assert (found.input_tokens, found.cache_read_tokens, found.output_tokens) == counted_as


def test_price_data_is_loaded_once_and_beside_the_loop() -> None:
    threads: list[bool] = []

    def look_up(_: str, __: int) -> Price | None:
        threads.append(threading.current_thread() is threading.main_thread())
        return None

    async def main() -> None:
        prices = PriceLookup(look_up)
        await asyncio.gather(*(prices.load(f"m{n}") for n in range(5)))
        assert threads == [False]
        prices.is_needed = True
        with pytest.raises(BudgetReachedError, match="no price is known for `my-model`"):
            await prices.load("m0", "my-model")

    asyncio.run(main())
