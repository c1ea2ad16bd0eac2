"""The interface between a command and the gateway that meters its model calls.

Laws:
- The usage of a command's calls is part of its attempt, however that attempt ends.
- A command whose calls the budget has no room for is ended: that is not its fault, and what it
  writes without an answer is not its result.
- A command that fails while the account's usage window is empty is put back, and not blamed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from headway.base.values import NO_CACHE, CacheTokens, Fault
from headway.errors import HeadwayError, InternalError
from headway.pacing.budget import unpriced
from headway.wire.prices import price_at
from headway.work import Attempt, AttemptError, OverBudgetError, Result, WindowEmptyError, charged

if TYPE_CHECKING:
    import asyncio

    from headway.journal.journal import Journal
    from headway.pacing.estimate import Prices
    from headway.pacing.windows import Shares


class MeteredUsage(Struct, frozen=True):
    calls: int = 0
    input_tokens: float = 0.0
    output_tokens: float = 0.0
    microusd: int = 0

    def on(self, result: Result) -> Result:
        taken = Result(
            b"", None, self.input_tokens, self.output_tokens, self.microusd, self.calls,
            extra_tokens=-self.charged_tokens, unpriced=self.unpriced, cache=self.cache,
        )  # fmt: skip
        return charged(result, taken) if self.calls else result

    in_flight: int = 0
    """Of the calls, those that may or may not have been answered."""
    replayed: int = 0
    """Calls that were answered from a recording: not among `calls`, and free."""
    charged_tokens: int = 0
    """Of the tokens, those that a budget was charged with when the attempt was interrupted."""
    paid: int = 0
    """In a recording: all calls that were answered and paid. Tokens and money are theirs."""
    unpriced: int = 0
    cache: CacheTokens = NO_CACHE


class PriceLookup:
    """The prices of models: the data takes half a second to load, and is loaded beside the loop."""

    def __init__(self, look_up: Prices = price_at, is_needed: bool = False) -> None:
        """`is_needed`: there is a budget in money, towards which every call must count."""
        self.look_up = look_up
        self.is_needed = is_needed
        self._loading: asyncio.Task[object] | None = None

    async def load(self, model: str, name: str = "") -> None:
        """Wait until the data is there. Raises BudgetReachedError if the price of the model, which
        the user calls `name`, is needed and not known."""
        import asyncio

        if self._loading is None:
            self._loading = asyncio.create_task(asyncio.to_thread(self.look_up, model, 0))
        await asyncio.shield(self._loading)
        if self.is_needed and self.look_up(model, 0) is None:
            raise unpriced(name or model)


class Metered(Protocol):
    """One attempt, while it lasts."""

    environment: Mapping[str, str]
    """The variables of its command, beside those that headway itself was started with."""
    empty: WindowEmptyError | None
    is_ended: bool
    """Whether the meter has ended its command: for the budget, or for a usage window that the
    run does not wait for."""

    @property
    def stopped(self) -> OverBudgetError | None:
        """Why it may not go on, if it may not."""

    async def close(self) -> MeteredUsage:
        """It has ended: none of its processes can call any more."""


class CallMeter(Protocol):
    """Stands between the commands of a run and the models that they call."""

    def open(self, attempt: Attempt, stop: Callable[[], object]) -> Metered:
        """An attempt begins; `stop` ends its command. Raises HeadwayError or OSError."""

    def meet(
        self, window: Callable[[float, str], bool], must_be_priced: bool, shares: Shares
    ) -> None:
        """Before anything starts: `window` takes an empty usage window (until when, a description)
        and returns whether the run waits for it; `must_be_priced`: there is a budget in money."""

    def record(self, journal: Journal) -> None:
        """Before anything starts: record calls in the run's journal, and answer from it those that
        an attempt makes again which was interrupted."""

    def known_as(self, attempt: Attempt, name: str) -> MeteredUsage:
        """An open attempt goes on with what was recorded under a name; returns its usage.
        Attempts without one are never answered from a recording. From any thread."""

    def carry(self, attempt: Attempt, taken: MeteredUsage) -> None:
        """The unreported usage of an interrupted attempt is part of this one. From any thread."""

    def seen(self, attempt: Attempt) -> MeteredUsage:
        """The usage of an open attempt so far. From any thread."""

    def is_calling(self, attempt: Attempt) -> bool:
        """Whether a call of an open attempt is in flight, or waits."""

    def queued(self) -> int:
        """How many of the attempts that are open wait for a permit."""

    async def aclose(self) -> None:
        """The run is over."""


async def metered(
    meter: CallMeter | None,
    attempt: Attempt,
    perform: Callable[[Mapping[str, str]], Awaitable[Result]],
) -> Result:
    import asyncio

    runner = asyncio.current_task()
    if meter is None or runner is None:
        return await perform({})
    try:
        seen = meter.open(attempt, runner.cancel)
    except (HeadwayError, OSError) as error:
        raise AttemptError(Fault("request", detail=f"its calls cannot be seen: {error}")) from error
    result, lost, is_whole = Result(b""), None, False
    try:
        result = await perform(seen.environment)
        is_whole = True
    except AttemptError as error:
        result, lost = error.result or result, error
    except asyncio.CancelledError:
        # Unless another caller wants its end as well.
        if not seen.is_ended or runner.uncancel():
            raise
    finally:
        taken = await seen.close()
    result = taken.on(result)
    if seen.stopped is not None:
        raise OverBudgetError(str(seen.stopped), result)
    if is_whole:
        return result
    if seen.empty is not None:
        raise WindowEmptyError(seen.empty.resets_at_s, seen.empty.detail, result) from lost
    if lost is None:
        raise InternalError("a command was ended without a reason")
    raise AttemptError(lost.fault, result, lost.is_in_doubt) from lost
