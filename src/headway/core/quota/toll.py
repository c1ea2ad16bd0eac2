"""What one call takes of one limit: at its admission, and later on.

Laws:
- Requests and input are taken at admission. So is all of `max_tokens` where output is reserved;
  what was not used of it comes back at the end, unless the provider keeps it.
- Where output is charged as it is produced, it is taken later, along the stream.
- Money is taken at the end, and until then the call's ceiling is held back for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from headway.core.quota.outflow import Stream
from headway.core.values import Amounts, Charging, Demand, Resource


@dataclass(frozen=True, slots=True)
class TollStatistics:
    """The weights of a charging rule: what each thing counts for in one limit."""

    requests: float
    input: float
    reserved: float
    produced: float
    spend: float


class Toll:
    """The charging rule of one limit, as weights: this is asked several times for every call."""

    __slots__ = (
        "_input", "_produced", "_requests", "_reserved", "_spend", "flows", "is_certain", "keeps",
    )  # fmt: skip

    def __init__(self, resource: Resource, charging: Charging) -> None:
        output = 1.0 if resource in ("output", "tokens") else 0.0
        self.flows = charging == "produced" and output > 0
        """Whether output leaves this limit as it is produced."""
        self.keeps = charging == "kept" and output > 0
        """Whether what was reserved and not used does not come back."""
        self.is_certain = resource == "requests"
        """Whether what a call takes is known beforehand, so that its end changes nothing."""
        self._requests = 1.0 if resource == "requests" else 0.0
        self._input = 1.0 if resource in ("input", "tokens") else 0.0
        self._reserved = 0.0 if self.flows else output
        self._produced = output if self.flows else 0.0
        self._spend = 1.0 if resource == "spend" else 0.0

    def __repr__(self) -> str:
        return f"<Toll {self.statistics()}>"

    @property
    def counts_input(self) -> bool:
        """Whether a wrong estimate of the input is an error here."""
        return self._input > 0

    def need(self, demand: Demand) -> float:
        """What admission itself takes."""
        return (
            self._requests
            + self._input * demand.expected.input_tokens
            + self._reserved * demand.ceiling.output_tokens
        )

    def later(self, demand: Demand, stream: Stream) -> float:
        """What is expected to be taken after that."""
        return self._produced * stream.tokens + self._spend * demand.ceiling.spend_microusd

    def unused(self, demand: Demand, used: Amounts) -> float:
        """What was reserved for a call and not used by it."""
        return self._reserved * (demand.ceiling.output_tokens - used.output_tokens)

    def extra(self, demand: Demand, used: Amounts) -> float:
        """What a call that used so much took beyond what its admission did; negative comes back."""
        extra = self._input * (used.input_tokens - demand.expected.input_tokens)
        return extra if self.keeps else extra - self.unused(demand, used)

    def used(self, amounts: Amounts) -> float:
        """What admission should have taken of a call that really used so much."""
        return (
            self._requests
            + self._input * amounts.input_tokens
            + self._reserved * amounts.output_tokens
        )

    def used_later(self, amounts: Amounts) -> float:
        """What such a call took after that."""
        return self._produced * amounts.output_tokens + self._spend * amounts.spend_microusd

    def whole(self, amounts: Amounts) -> float:
        """All that such a call takes, sooner or later."""
        return self.used(amounts) + self.used_later(amounts)

    def cost_s(self, amounts: Amounts, rate_per_s: float) -> float:
        """Seconds for which such a call takes all of the limit; 0 where nothing refills it."""
        return self.whole(amounts) / rate_per_s if rate_per_s > 0 else 0.0

    def error(self, demand: Demand, used: Amounts, refills: bool) -> float:
        """By how much a call took more than was expected of it; a reservation is no estimate.

        In a window every answer is held in full from its admission on, so that what is left
        untouched would be lost in every period: there, only the input counts.
        """
        expected = demand.expected
        error = self._input * (used.input_tokens - expected.input_tokens)
        if refills:
            error += self._produced * (used.output_tokens - expected.output_tokens)
        return error

    def statistics(self) -> TollStatistics:
        return TollStatistics(
            self._requests, self._input, self._reserved, self._produced, self._spend
        )
