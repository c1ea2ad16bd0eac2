"""How much slower answers are at one hour of the day than at those at which calls were seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headway.core.quota.chronicle import ChronicleMemory, hours_of

ANSWERS_MIN: Final = 50.0
"""Answers of an hour below which it is not known."""

FACTOR_MAX: Final = 3.0
"""No hour is believed to be so many times slower, or faster, than another."""


def slower_at(chronicle: ChronicleMemory, hour: int, seen: Sequence[int]) -> float:
    """How many times longer a token takes at an hour than at the hours of calls that were seen.

    1 where one of the two is not known.
    """
    known = {
        one: spell.per_token_s
        for one, spell in hours_of(chronicle).items()
        if spell.answered >= ANSWERS_MIN and spell.per_token_s
    }
    then = [known[one] or 0.0 for one in seen if one in known]
    now = known.get(hour)
    if not now or not then:
        return 1.0
    return min(FACTOR_MAX, max(1.0 / FACTOR_MAX, now * len(then) / sum(then)))
