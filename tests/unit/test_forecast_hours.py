"""Neighbours and depth of a forecast."""

from __future__ import annotations

import pytest

from headway.base.values import Limit
from headway.pacing.account import Profile
from headway.pacing.memory import AccountTerms, Chronicle, LaneMemory, ObservedAnswer
from headway.report.forecast import QUICK, ROUGH, Footing, Foreseen, Knowledge, foresee
from headway.report.outline import Outline, OutlinePart

MINUTE_S = 60.0


def test_neighbours_of_the_last_minutes_are_foreseen_to_go_on() -> None:
    def foreseen(neighbours: float, minutes: int = 1) -> Foreseen:
        chronicle = Chronicle()
        for number in range(20):
            answer = ObservedAnswer(100.0, 100.0, 0.5, 1.0, neighbours=neighbours)
            chronicle.answered(answer, MINUTE_S * (number * minutes // 20))
        end_s = MINUTE_S * (minutes - 1)
        limits = (Limit("requests", 60.0), Limit("output", 6000.0))
        terms = AccountTerms(limits)
        memory = LaneMemory(
            "account",
            "model",
            "anthropic",
            Profile(curve=((4, 9.0, 0.01),)),
            (),
            chronicle.memory(end_s),
        )
        outline = Outline((OutlinePart("ask", 180, model="model", sizes_bytes=(400.0,)),))
        return foresee(outline, Knowledge(Footing(memory, terms)), depth=QUICK)

    alone, beside = foreseen(0.0), foreseen(0.4)
    assert beside.time_s.mid > 1.3 * alone.time_s.mid
    assert any("40%" in words for words in beside.assumed)
    assert not any("others" in words for words in alone.assumed)
    # A tenth may be what estimates are off by, unless it goes on.
    assert foreseen(0.1) == alone
    assert any("10%" in words for words in foreseen(0.1, minutes=10).assumed)


def test_a_rough_forecast_rehearses_nothing_and_says_as_much() -> None:
    memory = LaneMemory("account", "model", "anthropic", Profile())
    outline = Outline((OutlinePart("ask", 8, model="model", sizes_bytes=(400.0,)),))
    rough = foresee(outline, Knowledge(Footing(memory)), depth=ROUGH)
    quick = foresee(outline, Knowledge(Footing(memory)), depth=QUICK)
    assert rough.refused == 0.0
    assert rough.time_s.mid == pytest.approx(quick.time_s.mid, rel=0.8)
    assert len(rough.assumed) == 3
