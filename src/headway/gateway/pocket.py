"""What one attempt has set aside of its run's budget, for all the calls that its command makes.

Laws:
- It covers what the calls in flight are expected to take and what those that ended took: what one
  spares is there for the next.
- The run is asked for more one question at a time, each to its end: a client that leaves meanwhile
  must not leave a question behind that the attempt's next one would be taken for.
- Nobody waits for ever with a permit in hand: money that does not come within `MONEY_S_MAX` is
  not there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from headway.core.engine.budget import NOTHING, Cost
from headway.runtime.work import Attempt, OverBudgetError

MONEY_S_MAX: Final = 30.0
"""How long a call waits for others to give back what they set aside. It holds a permit meanwhile,
and its client hears nothing: less than the least patient of them bears."""


class Pocket:
    """The money of one attempt. Used within the run's event loop."""

    __slots__ = ("_ask", "_asking", "_attempt", "_held", "_is_closed", "_tell_over", "_wanted",
                 "over")  # fmt: skip

    def __init__(self, attempt: Attempt, tell_over: Callable[[], object]) -> None:
        """`tell_over` is told, once, that the budget has no room for this attempt."""
        self._attempt = attempt
        self._tell_over = tell_over
        self._ask = asyncio.Lock()
        self._asking: set[asyncio.Task[None]] = set()
        self._wanted = NOTHING
        self._held = NOTHING
        """What the run has set aside for this attempt."""
        self._is_closed = False
        self.over: OverBudgetError | None = None

    def __repr__(self) -> str:
        return f"<Pocket of {self._attempt.name}, {self._held} set aside>"

    def statistics(self) -> Cost:
        """What is set aside."""
        return self._held

    def want(self, cost: Cost) -> None:
        """Some more is needed, and waited for with `covered`; or less, if that is negative."""
        self._wanted = self._wanted.plus(cost)

    async def covered(self) -> None:
        """Until the run has set aside what is wanted now. Raises OverBudgetError."""
        if self.over is not None:
            raise self.over
        if self._is_closed:
            # A process that got away from its attempt: nobody would ever settle its money.
            raise OverBudgetError("the attempt that this call is charged to has ended")
        if self._short() == NOTHING:
            return
        asking = asyncio.ensure_future(self._more())
        self._asking.add(asking)
        asking.add_done_callback(self._asked)
        await asyncio.shield(asking)

    async def close(self) -> None:
        """Nobody asks for anything any more."""
        self._is_closed = True
        if self._asking:
            asking = list(self._asking)
            for one in asking:
                one.cancel()
            await asyncio.gather(*asking, return_exceptions=True)

    async def _more(self) -> None:
        async with self._ask:
            short = self._short()
            if short == NOTHING:
                return
            try:
                async with asyncio.timeout(MONEY_S_MAX):
                    await self._attempt.reserve(short.microusd, short.tokens)
            except OverBudgetError as over:
                raise self._no_room(over) from None
            except TimeoutError:
                why = f"the budget has no room for {short}: others that do not end have the rest"
                raise self._no_room(OverBudgetError(why)) from None
            self._held = self._held.plus(short)

    def _short(self) -> Cost:
        lacks = self._wanted.minus(self._held)
        return Cost(max(0, lacks.microusd), max(0, lacks.tokens))

    def _no_room(self, over: OverBudgetError) -> OverBudgetError:
        if self.over is None:
            self.over = over
            self._tell_over()
        return over

    def _asked(self, asking: asyncio.Task[None]) -> None:
        self._asking.discard(asking)
        if not asking.cancelled():
            asking.exception()  # Whoever asked has heard of it, or is gone.
