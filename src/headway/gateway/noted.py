"""A permit of a call through the gateway, and how it ended."""

from __future__ import annotations

import time

from headway.core.quota.book import Outcome
from headway.core.values import Permit, Reading
from headway.errors import HeadwayError
from headway.gateway.values import Payer
from headway.runtime.agents.gate import emptied
from headway.runtime.exchange import Held


class Noted:
    """A permit and how it ended, for the counters. Tells the payer of an empty usage window."""

    __slots__ = ("_payer", "_ticket", "outcome", "output_tokens")

    def __init__(self, ticket: Held, payer: Payer | None) -> None:
        self._ticket = ticket
        self._payer = payer
        self.outcome: Outcome | None = None
        self.output_tokens = 0.0

    def __repr__(self) -> str:
        return f"<Noted {self._ticket!r}>"

    @property
    def permit(self) -> Permit:
        return self._ticket.permit

    @property
    def cut(self) -> HeadwayError | None:
        """Why the answer is to be ended here; one that is over is handed on as it is."""
        return self._ticket.cut if self.outcome is None else None

    @property
    def was_sent(self) -> bool:
        """Whether the provider may have seen the call, once that is known."""
        return self.outcome is not None and self.outcome.how != "unused"

    def began(self, reading: Reading, dialect: str) -> None:
        self._ticket.began(reading, dialect)
        self._tell(reading)

    def progressed(self, output_tokens: float) -> None:
        self.output_tokens = output_tokens
        self._ticket.progressed(output_tokens)

    def still_alive(self) -> None:
        self._ticket.still_alive()

    def settle(self, outcome: Outcome) -> None:
        if self.outcome is None:
            self.outcome = outcome
        self._ticket.settle(outcome)
        self._tell(outcome.reading)

    def statistics(self) -> Outcome | None:
        """How it ended."""
        return self.outcome

    def _tell(self, reading: Reading) -> None:
        if self._payer is not None and reading.limits:
            for empty in emptied(reading, time.time()):
                self._payer.window(empty.resets_at_s, empty.detail)
