"""Advice as a whole: the sizes of the documents, the best way, now or later, what was assumed."""

from __future__ import annotations

from math import inf

import pytest
from msgspec.structs import replace

from headway.base.values import Budget
from headway.report.advise import advise
from headway.report.forecast import Portion, SpreadNumber
from headway.report.options import (
    ADAPTIVE,
    ONE,
    AccountState,
    Situation,
    described_account,
    options_for,
    unknown_account,
    ways_of,
)
from headway.sim.presets import PROVIDERS
from tests.unit.advised import both, weigh

WIDE = described_account(PROVIDERS["wide"].spec)


def test_a_month_of_five_million_tokens_pays_for_142_reviews_by_one_and_73_by_four() -> None:
    options = options_for(Situation(budget=Budget(tokens=5e6)), WIDE)
    assert [one.runs_a_month for one in options] == [142, 73]
    assert [round(one.tokens) for one in options] == [35_000, 68_000]


def test_a_budget_in_money_pays_for_as_many_as_the_dearer_of_both_allows() -> None:
    (one, *_) = options_for(Situation(budget=Budget(microusd=5_000_000)), WIDE)
    assert one.runs_a_month == 5e6 // one.microusd
    small = Situation(budget=Budget(tokens=70_000.0, microusd=5_000_000))
    (one, several, *_) = options_for(small, WIDE)
    assert (one.runs_a_month, several.runs_a_month) == (2, 1)
    assert [portion.name for portion in one.foreseen.portions] == [
        "tokens of the month", "money of the month",
    ]  # fmt: skip


def test_an_answer_is_nobodys_but_ones_so_it_is_never_common() -> None:
    assert Situation(tokens_each=1000.0, output_each=900.0, common=0.5).common_tokens == 100.0
    assert Situation(coupled=0.3).coupled_share == 0.3
    assert Situation(shape="coupled").coupled_share == 1.0


def test_a_single_agent_has_one_way_and_nothing_to_decide() -> None:
    situation = Situation(agents=1)
    assert ways_of(situation) == (ONE,)
    assert ways_of(Situation(agents=10)) == (ONE, ADAPTIVE)
    advice = advise(situation, WIDE)
    assert (advice.side, advice.best.way, advice.reasons) == ("one", ONE, ())


@pytest.mark.parametrize(
    ("situation", "one_s", "words"),
    [
        (Situation(state=AccountState(slowdown=1.8)), 100.0, "1.8 times"),
        (Situation(), inf, "would not end"),
        (Situation(budget=Budget(tokens=50_000.0)), 100.0, "does not pay for a run"),
        (Situation(budget=Budget(tokens=5e6)), 100.0, ""),
    ],
)
def test_it_is_later_if_answers_are_slow_or_never_come_or_cannot_be_paid(
    situation: Situation, one_s: float, words: str
) -> None:
    advice = weigh(situation, both(situation, one_s=one_s))
    assert advice.when == ("later" if words else "now")
    assert words in advice.when_reason


def test_a_usage_window_that_is_too_small_makes_it_later_until_its_reset() -> None:
    situation, takes = Situation(), SpreadNumber(1.0, 900.0, 1_000.0)
    for used, when in ((0.0, "now"), (200.0, "later")):
        window = Portion("5h window of api", 1_000.0, used, takes, 5_400.0)
        options = [
            replace(one, foreseen=replace(one.foreseen, portions=(window,)))
            for one in both(situation)
        ]
        advice = weigh(situation, options)
        assert advice.when == when
        assert ("5h window of api; it resets in 1.5 h" in advice.when_reason) is (when == "later")


def test_what_nobody_said_or_measured_is_assumed_aloud() -> None:
    said = " ".join(advise(Situation(agents=2), unknown_account()).assumed)
    for words in (
        "65%", "not measured lately", "as fast as usual", "price is not known",
        "500 requests",
    ):  # fmt: skip
        assert words in said
    known = Situation(agents=2, common=0.5, state=AccountState((("tokens/60s", 0.1),), 0.0, 1.0))
    assert weigh(known, both(known)).assumed == ()
    many = replace(known, agents=1_000)
    assert "of 1,000 agents a part was rehearsed" in weigh(many, both(many)).assumed[0]


def test_one_agent_is_advised_where_tokens_are_what_takes_the_time() -> None:
    """22 agents that read almost the same, on an account of 100,000 tokens a minute."""
    account = described_account(PROVIDERS["limit-tokens"].spec)
    situation = Situation(22, 17_000.0, 100.0, common=0.9)
    advice = advise(situation, account)
    assert advice.best.way == ONE
    assert advice.one.time_s < 0.6 * min(one.time_s for one in advice.options if one.way != ONE)
