"""Time and money against width: how the account answers to 1, 2, 3... agents at once.

The curve is what a plain pool of that width would take, whose calls are sent as they come and sent
again as the SDKs do it until they are let in. So it shows where an account's throughput peaks,
which pacing would hide: paced, nobody is sent beyond it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from headway.core.engine.engine import Rules
from headway.core.engine.strategy import Fixed
from headway.core.foresight.account_guess import AccountGuess
from headway.core.foresight.bound import bound
from headway.core.foresight.door import PATIENT, UnpacedDoor
from headway.core.foresight.options import (
    EXACT_CALLS_MAX,
    REHEARSED_CALLS_MAX,
    SERIAL,
    STEPS_MAX,
    Drawn,
    cost_of,
    work_of,
)
from headway.core.foresight.provider import Provider
from headway.core.foresight.rehearsal import Rehearsal, Setup
from headway.core.foresight.situation import Situation

NEARLY: Final = 0.02
"""The sweet spot is the smallest width whose time is within this share of the best one's."""

WIDTHS: Final = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 18, 20, 22, 24, 28)
EVERY_WIDTH_MAX: Final = 12
"""Of so many agents every width is tried; of more, those above."""

PEAKS: Final = 1.05
"""A curve peaks if its widest point takes this many times as long as its best one."""

HOPELESS: Final = 4.0
"""No wider pool is tried once one takes this many times as long as the best one."""


@dataclass(frozen=True, slots=True)
class WidthPoint:
    """A pool of one width."""

    width: int
    time_s: float
    microusd: float
    """Of its tokens, those of calls that were given up included."""
    refused: int


@dataclass(frozen=True, slots=True)
class WidthCurve:
    """All widths that were tried."""

    agents: int
    """Whom it was tried with: fewer than asked for, if these are many."""
    points: tuple[WidthPoint, ...]
    bound_s: float
    binding: str
    sweet: int
    """The smallest width within 2 % of the best."""
    hour_microusd: int

    @property
    def best_s(self) -> float:
        return min(point.time_s for point in self.points)

    @property
    def has_peak(self) -> bool:
        """Whether more at once becomes slower again."""
        return self.points[-1].time_s >= PEAKS * self.best_s

    def at(self, width: int) -> WidthPoint:
        """The widest point that is not wider than this."""
        return max((one for one in self.points if one.width <= width), key=lambda one: one.width)


def width_curve(situation: Situation, guess: AccountGuess, seed: int = 1) -> WidthCurve:
    """Rehearse a pool of every width that there are agents for."""
    agents = min(situation.agents, max(2, REHEARSED_CALLS_MAX // situation.calls_each))
    work = work_of(situation, SERIAL, Drawn(seed, agents=agents))
    points: list[WidthPoint] = []
    for width in widths_up_to(agents):
        if points and points[-1].time_s > HOPELESS * min(one.time_s for one in points):
            break
        provider = Provider(guess.spec, seed)
        provider.advance(0.0)
        door = UnpacedDoor(PATIENT, seed)
        rules = Rules(Fixed(width), retries=0)
        ran = Rehearsal(Setup(work, provider, door, rules, steps_max=STEPS_MAX)).run()
        wasted = guess.priced.input_microusd_per_mtok * ran.wasted_tokens / 1e6
        points.append(WidthPoint(width, inf if ran.failed else ran.makespan_s, wasted, ran.refused))
    least = bound(guess.spec, work.calls, work.needs, guess.share, EXACT_CALLS_MAX)
    cost = cost_of(guess, work)
    paid = tuple(
        WidthPoint(one.width, one.time_s, one.microusd + cost, one.refused) for one in points
    )
    return WidthCurve(
        agents, paid, least.time_s, least.binding, sweet_spot(paid), situation.hour_microusd
    )


def widths_up_to(agents: int) -> tuple[int, ...]:
    """Every width of few agents; of many, closer together where it matters."""
    if agents <= EVERY_WIDTH_MAX:
        return tuple(range(1, agents + 1))
    return (*(width for width in WIDTHS if width < agents), agents)


def sweet_spot(points: Sequence[WidthPoint]) -> int:
    """The smallest width that is nearly as fast as the fastest."""
    best_s = min(point.time_s for point in points)
    return min(one.width for one in points if one.time_s <= best_s * (1.0 + NEARLY))
