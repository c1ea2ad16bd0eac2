"""What one call takes of one limit: at its admission, and later on.

Laws:
- Requests and input are taken at admission. So is all of `max_tokens` where output is reserved.
- Where output is charged as it is produced, it is taken later, along the stream.
- Money is taken at the end, and until then the call's ceiling is held back for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from headway.core.quota.outflow import Stream
from headway.core.values import Amounts, Charging, Demand, Resource


@dataclass(frozen=True, slots=True)
class Toll:
    """The charging rule of one limit."""

    resource: Resource
    charging: Charging

    @property
    def flows(self) -> bool:
        """Whether output leaves this limit as it is produced."""
        return self.charging == "produced" and self.resource in ("output", "tokens")

    @property
    def counts_input(self) -> bool:
        """Whether a wrong estimate of the input is an error here."""
        return self.resource in ("input", "tokens")

    def error(self, demand: Demand, used: Amounts, refills: bool) -> float:
        """By how much a call took more than was expected of it; a reservation is no estimate.

        In a window every answer is held in full from its admission on, so that what is left
        untouched would be lost in every period: there, only the input counts.
        """
        error = 0.0
        if self.counts_input:
            error = used.input_tokens - demand.expected.input_tokens
        if self.flows and refills:
            error += used.output_tokens - demand.expected.output_tokens
        return error

    def need(self, demand: Demand) -> float:
        """What admission itself takes."""
        output = 0.0 if self.charging == "produced" else demand.ceiling.output_tokens
        return self._at_once(demand.expected.input_tokens, output)

    def later(self, demand: Demand, stream: Stream) -> float:
        """What is expected to be taken after that."""
        if self.resource == "spend":
            return float(demand.ceiling.spend_microusd)
        return stream.tokens if self.flows else 0.0

    def used(self, amounts: Amounts) -> float:
        """What admission should have taken of a call that really used so much."""
        output = 0.0 if self.charging == "produced" else amounts.output_tokens
        return self._at_once(amounts.input_tokens, output)

    def used_later(self, amounts: Amounts) -> float:
        """What such a call took after that."""
        if self.resource == "spend":
            return float(amounts.spend_microusd)
        return amounts.output_tokens if self.flows else 0.0

    def whole(self, amounts: Amounts) -> float:
        """All that such a call takes, sooner or later."""
        return self.used(amounts) + self.used_later(amounts)

    def _at_once(self, input_tokens: float, output_tokens: float) -> float:
        if self.resource == "requests":
            return 1.0
        if self.resource == "input":
            return input_tokens
        if self.resource == "tokens":
            return input_tokens + output_tokens
        return output_tokens if self.resource == "output" else 0.0
