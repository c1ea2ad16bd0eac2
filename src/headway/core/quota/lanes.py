"""Every account and model group in use, and the user's terms for each of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from headway.core.quota.chronicle import HOUR_UNKNOWN
from headway.core.quota.dialect import DIALECTS, PLAIN, Dialect
from headway.core.quota.lane import Lane, LaneStatistics, Request, lane_of, new_lane
from headway.core.quota.terms import (
    EVERY_ACCOUNT,
    AccountTerms,
    LaneMemory,
    Memory,
    model_group,
)

LANES_MAX: Final = 1024
"""Lanes that are kept; beyond this, the idle one that was made first makes room."""


@dataclass(frozen=True, slots=True)
class LanesStatistics:
    """Every lane at an instant."""

    lanes: tuple[LaneStatistics, ...]


class Lanes:
    """Lanes by account and model group, made when first asked for."""

    __slots__ = ("_lanes", "_terms", "hour")

    def __init__(self, memory: Memory, known_s: float, now: float) -> None:
        self._terms = dict(memory.terms)
        self.hour = HOUR_UNKNOWN
        self._lanes: dict[tuple[str, str], Lane] = {}
        for kept in memory.lanes:
            terms, dialect = self._terms_of(kept.account, kept.group), _dialect(kept.dialect)
            lane = lane_of(kept, terms, dialect, known_s, now)
            self._lanes[kept.account, kept.group] = lane

    def __repr__(self) -> str:
        return f"<Lanes {list(self._lanes)}>"

    def __iter__(self) -> Iterator[Lane]:
        return iter(self._lanes.values())

    def of(self, request: Request, now: float) -> Lane:
        """The lane that a request belongs to."""
        account, group = request.account, model_group(request.sketch.model)
        lane = self._lanes.get((account, group))
        if lane is None:
            self._make_room()
            terms, dialect = self._terms_of(account, group), _dialect(request.dialect)
            lane = self._lanes[account, group] = new_lane(account, group, terms, dialect, now)
            lane.chronicle.turn(self.hour, now)
        return lane

    def spoken(self, request: Request, dialect: str, now: float) -> Lane:
        """The lane of a call that was answered in this dialect; an unknown one says nothing."""
        lane, spoken = self.of(request, now), DIALECTS.get(dialect)
        if spoken is not None and spoken is not lane.dialect:
            belief = lane.quota.belief
            lane.lasting.dialect = spoken
            belief.config = replace(belief.config, dialect=spoken)
        return lane

    def turn(self, hour: int, now: float) -> None:
        """It is this hour of the day now."""
        self.hour = hour
        for lane in self:
            lane.chronicle.turn(hour, now)

    def configure(self, key: str, terms: AccountTerms, now: float) -> None:
        """The user's terms for an account, one `account/group` of it, or every account.

        A budget is not a lane's matter: a change of it alone leaves every quota as it is.
        """
        self._terms[key] = terms
        for name, lane in self._lanes.items():
            wanted = self._terms_of(*name)
            if replace(wanted, budget=lane.lasting.terms.budget) != lane.lasting.terms:
                lane.retermed(wanted, now)

    def terms(self) -> tuple[tuple[str, AccountTerms], ...]:
        """What the user has set."""
        return tuple(self._terms.items())

    def memory(self, now: float) -> tuple[LaneMemory, ...]:
        return tuple(lane.memory(now) for lane in self)

    def statistics(self) -> LanesStatistics:
        return LanesStatistics(tuple(lane.statistics() for lane in self))

    def _terms_of(self, account: str, group: str) -> AccountTerms:
        return terms_of(self._terms, account, group)

    def _make_room(self) -> None:
        if len(self._lanes) >= LANES_MAX:
            idle = [
                name for name, lane in self._lanes.items() if not lane.queued and not lane.calling
            ]
            for name in idle[:1]:
                del self._lanes[name]


def terms_of(terms: Mapping[str, AccountTerms], account: str, group: str) -> AccountTerms:
    """The terms set for the nearest of: this model group, this account, every account."""
    for key in (f"{account}/{group}", account, EVERY_ACCOUNT):
        if key in terms:
            return terms[key]
    return AccountTerms()


def _dialect(name: str) -> Dialect:
    return DIALECTS.get(name, PLAIN)
