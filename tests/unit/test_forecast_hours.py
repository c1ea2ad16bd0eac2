"""How the hour of the day changes what is foreseen."""

from __future__ import annotations

import pytest

from headway.base.values import Limit
from headway.pacing.account import Profile
from headway.pacing.memory import (
    AccountTerms,
    Chronicle,
    ChronicleMemory,
    LaneMemory,
    ObservedAnswer,
)
from headway.report.forecast import QUICK, ROUGH, Footing, Foreseen, Knowledge, foresee
from headway.report.health import FACTOR_MAX, slower_at
from headway.report.outline import Outline, OutlinePart

MINUTE_S = 60.0


def told(*hours: tuple[int, float, int]) -> ChronicleMemory:
    """A chronicle with so many answers of 100 tokens at each hour, each token taking so long."""
    chronicle, now = Chronicle(), 0.0
    for hour, per_token_s, answers in hours:
        chronicle.turn(hour, now)
        for _ in range(answers):
            chronicle.answered(ObservedAnswer(10.0, 100.0, 0.5, 100.0 * per_token_s), now)
        now += 2 * MINUTE_S
    chronicle.turn(0, now + MINUTE_S)
    return chronicle.memory(now + 2 * MINUTE_S)


def test_an_hour_at_which_tokens_take_twice_as_long_makes_twice_as_long_a_forecast() -> None:
    chronicle = told((3, 0.01, 80), (15, 0.02, 80))
    assert slower_at(chronicle, 15, (3,)) == pytest.approx(2.0, rel=0.01)
    assert slower_at(chronicle, 3, (15,)) == pytest.approx(0.5, rel=0.01)
    assert slower_at(chronicle, 15, (3, 3, 15)) == pytest.approx(1.5, rel=0.01)


def test_calls_that_were_seen_at_the_same_hour_change_nothing() -> None:
    assert slower_at(told((3, 0.01, 80), (15, 0.02, 80)), 15, (15, 15)) == pytest.approx(1.0)


def test_an_hour_of_which_little_is_known_changes_nothing() -> None:
    chronicle = told((3, 0.01, 80), (15, 0.02, 20))
    assert slower_at(chronicle, 15, (3,)) == 1.0
    assert slower_at(chronicle, 3, (15,)) == 1.0
    assert slower_at(chronicle, 3, ()) == 1.0


def test_no_hour_is_believed_to_be_many_times_slower_than_another() -> None:
    chronicle = told((3, 0.01, 80), (15, 0.5, 80))
    assert slower_at(chronicle, 15, (3,)) == FACTOR_MAX
    assert slower_at(chronicle, 3, (15,)) == pytest.approx(1.0 / FACTOR_MAX)


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


def test_a_plan_at_a_slow_hour_is_foreseen_to_take_longer_and_says_why() -> None:
    chronicle = told((3, 0.01, 80), (15, 0.02, 80))
    memory = LaneMemory("account", "model", "anthropic", Profile(), (), chronicle)
    outline = Outline((OutlinePart("ask", 8, model="model", sizes_bytes=(400.0,)),))

    def foreseen(hour: int) -> Foreseen:
        knowledge = Knowledge(Footing(memory, hour=hour), hours=(3,))
        return foresee(outline, knowledge, depth=ROUGH)

    at_night, at_day = foreseen(3), foreseen(15)
    assert at_day.time_s.mid == pytest.approx(2.0 * at_night.time_s.mid, rel=0.02)
    assert any("2.0 times as long" in words for words in at_day.assumed)
    assert not any("at this hour" in words for words in at_night.assumed)


def test_a_rough_forecast_rehearses_nothing_and_says_as_much() -> None:
    memory = LaneMemory("account", "model", "anthropic", Profile())
    outline = Outline((OutlinePart("ask", 8, model="model", sizes_bytes=(400.0,)),))
    rough = foresee(outline, Knowledge(Footing(memory)), depth=ROUGH)
    quick = foresee(outline, Knowledge(Footing(memory)), depth=QUICK)
    assert rough.refused == 0.0
    assert rough.time_s.mid == pytest.approx(quick.time_s.mid, rel=0.8)
    assert len(rough.assumed) == 3
