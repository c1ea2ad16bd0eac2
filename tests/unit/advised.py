"""Options with numbers that are written down, for rules to be asked about."""

from __future__ import annotations

from collections.abc import Sequence

from headway.report.advise import Advice, recommend
from headway.report.forecast import Foreseen, SpreadNumber
from headway.report.options import (
    ADAPTIVE,
    ONE,
    PRICE_GUESS,
    AccountGuess,
    Option,
    Situation,
    Way,
    priced,
)
from headway.sim.provider import ProviderSpec


def exactly(value: float) -> SpreadNumber:
    return SpreadNumber(value, value, value)


def option(
    situation: Situation, way: Way, time_s: float, usd: float = 1.0, tokens: float = 100_000.0
) -> Option:
    """A way that takes this, for certain."""
    foreseen = Foreseen(
        way, 4, exactly(4.0), exactly(time_s), exactly(0.9 * tokens), exactly(0.1 * tokens),
        exactly(usd * 1e6), 10.0, "width", 10.0, "width", 2.0, 0.0, 0, "a test",
    )  # fmt: skip
    return priced(situation, way, foreseen, usd * 1e6)


def both(
    situation: Situation, times: float = 1.0, dearer: float = 1.0, one_s: float = 100.0
) -> tuple[Option, Option]:
    """One agent, and several that take so many times as long and cost so many times as much."""
    return (
        option(situation, ONE, one_s, 1.0),
        option(situation, ADAPTIVE, one_s * times, dearer, 100_000.0 * dearer),
    )


def weigh(situation: Situation, options: Sequence[Option]) -> Advice:
    """The recommendation among options, on an account of which everything is known."""
    account = AccountGuess(ProviderSpec("known"), price=PRICE_GUESS)
    return recommend(situation, options, account)
