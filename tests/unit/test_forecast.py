"""Forecasts of whole plans: what makes them longer, dearer, wider, and what they cost to make."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from headway.base.values import Amounts, Limit, LimitReading
from headway.engine.strategy import Strategy
from headway.pacing.account import Profile
from headway.pacing.estimate import Price
from headway.pacing.memory import AccountMemory, AccountTerms, Chronicle
from headway.pacing.width import Samples
from headway.plans.graph import Need
from headway.report import forecast
from headway.report.forecast import (
    QUICK,
    Depth,
    Foreseen,
    Knowledge,
    SpreadNumber,
    foresee,
    ground_of,
)
from headway.report.outline import Outline, OutlinePart
from headway.report.sizes import UNKNOWN, SeenCall
from headway.sim.draw import uniform
from headway.sim.provider import Latency
from headway.sim.rehearsal import Rehearsal, Rehearsed

PRICE = Price(1_000_000, 5_000_000)
QUICKLY = Depth(20, 90, 60, 200)
CUT = Depth(12, 150, 60, 100)
LATENCY = Latency(0.5, 0.005)

REQUESTS = Limit("requests", 60.0, source="header")


def memory(*limits: Limit, left: float | None = None, pieces: Samples = ()) -> AccountMemory:
    """An account whose limits are known; of each the share `left` is free."""
    profile = Profile(limits=limits, curves=((), pieces), first_byte_s=0.5, per_token_s=0.005)
    levels = tuple(
        LimitReading(one.resource, one.period_s, one.amount, one.amount * left, None)
        for one in limits
        if left is not None
    )
    return AccountMemory("account", "m", "plain", profile, levels)


def seen(count: int = 40, spread: float = 1.0) -> dict[str, list[SeenCall]]:
    """Calls of 1,000 tokens in and about 200 out."""
    found = []
    for at in range(count):
        tokens = round(200.0 * (1.0 + spread * (uniform(1, 1, at) - 0.5)))
        found.append(SeenCall(1000.0, tokens, 4000.0, LATENCY.work_s(tokens)))
    return {"ask": found}


def asks(count: int, price: Price | None = PRICE) -> Outline:
    part = OutlinePart(
        "ask", count, model="m", sizes_bytes=(4000.0,), max_tokens=1000.0, price=price
    )
    return Outline((part,))


def told(
    count: int,
    *limits: Limit,
    left: float | None = 1.0,
    terms: AccountTerms = AccountTerms(),
    depth: Depth = QUICKLY,
) -> Foreseen:
    known = Knowledge(memory(*limits, left=left), seen(), "2 earlier runs", terms=terms)
    return foresee(asks(count), known, depth=depth)


def test_a_forecast_says_what_it_was_asked_and_from_what_it_is() -> None:
    found = told(120, REQUESTS)
    assert (found.strategy, found.tasks, found.learned_calls) == ("adaptive", 120, 40)
    assert found.learned_from == "2 earlier runs"
    assert found.calls == SpreadNumber(120.0, 120.0, 120.0)
    # A minute's worth at once, another at one a second, and the last call.
    assert found.binding == "requests/60s"
    assert found.bound_s == pytest.approx(60.0, abs=3.0)
    assert 60.0 < found.time_s.mid < 70.0
    assert found.bound_s <= found.time_s.mid
    for spread in (found.time_s, found.input_tokens, found.output_tokens, found.tokens):
        assert spread.low <= spread.mid <= spread.high
    assert found.input_tokens.mid == pytest.approx(120_000.0, rel=0.02)
    assert found.output_tokens.mid == pytest.approx(24_000.0, rel=0.1)
    assert found.microusd is not None
    cost = found.input_tokens.mid + 5.0 * found.output_tokens.mid
    assert found.microusd.mid == pytest.approx(cost, rel=0.02)
    assert found.refused < 1.0
    assert found.width == pytest.approx(120 * 1.5 / found.time_s.mid, rel=0.1)
    assert found.assumed == ()


def test_where_reservations_may_come_back_or_not_the_middle_is_that_they_do() -> None:
    """The dialect reserves 1,000 tokens of each answer, of which 200 are used."""

    def time_s(**known: tuple[str, ...]) -> SpreadNumber:
        kept = memory(Limit("tokens", 40_000.0, source="header"), left=1.0)
        profile = replace(kept.profile, **known)
        account = replace(kept, dialect="openai", profile=profile)
        return foresee(asks(120), Knowledge(account, seen()), depth=QUICKLY).time_s

    name = Limit("tokens", 40_000.0).name
    returned, open_, kept = time_s(returned=(name,)), time_s(), time_s(kept=(name,))
    assert kept.mid > 1.4 * returned.mid
    assert open_.mid == pytest.approx(returned.mid, rel=0.1)
    assert open_.low <= returned.mid
    assert kept.mid <= open_.high, "both are within the spread"


def test_what_was_used_up_has_to_flow_in_again() -> None:
    full, empty = told(40, REQUESTS), told(40, REQUESTS, left=0.0)
    assert full.time_s.mid < 10.0
    assert empty.time_s.mid == pytest.approx(full.time_s.mid + 40.0, rel=0.15)
    # What was empty some time ago has flowed in since.
    lane = memory(REQUESTS, left=0.0)
    rested = foresee(asks(40), Knowledge(lane, seen(), age_s=60.0), depth=QUICKLY)
    assert rested.time_s.mid == pytest.approx(full.time_s.mid, rel=0.15)


def test_more_that_was_seen_makes_it_surer() -> None:
    limit = Limit("output", 2000.0, source="header")
    widths = []
    for count in (10, 160):
        knowledge = Knowledge(memory(limit, left=0.0), seen(count))
        found = foresee(asks(60), knowledge, depth=replace(QUICKLY, draws=60)).output_tokens
        widths.append((found.high - found.low) / found.mid)
    assert widths[1] < 0.6 * widths[0]
    nothing = foresee(asks(60), Knowledge(memory(limit, left=0.0)), depth=QUICKLY)
    blind = nothing.output_tokens
    assert (blind.high - blind.low) / blind.mid > 2.0 * widths[0]
    assert nothing.learned_calls == 0


@pytest.mark.parametrize(
    ("strategy", "about_s"), [(Strategy("fixed", 4), 400 * 1.5 / 4), (Strategy("waves", 4), 180.0)]
)
def test_a_large_plan_takes_as_long_as_its_strategy_lets_it(
    strategy: Strategy, about_s: float
) -> None:
    """A cropped plan shows what a wave loses, and not how many there are."""
    wide = memory(Limit("requests", 60_000.0, source="header"), left=1.0)
    found = foresee(asks(400), Knowledge(wide, seen()), strategy, depth=QUICKLY)
    assert found.time_s.mid == pytest.approx(about_s, rel=0.1)
    assert found.binding == "width"
    assert found.width == pytest.approx(600.0 / found.time_s.mid, rel=0.15)


def test_a_model_without_a_price_is_named_and_the_cost_is_not() -> None:
    lane = memory(REQUESTS, left=1.0)
    parts = (
        OutlinePart("ask", 5, model="m", price=PRICE), OutlinePart("more", 5, model="mine"),
        OutlinePart("again", 5, model="mine"), OutlinePart("here", 5),
    )  # fmt: skip
    found = foresee(Outline(parts), Knowledge(lane), depth=QUICKLY)
    assert found.microusd is None
    assert found.unpriced == ("mine",)
    assert found.tasks == 20


def test_speeds_are_those_of_calls_or_of_the_account_or_usual() -> None:
    pieces = ((4.0, 10.0, 0.005, 1.0),)
    lane = memory(REQUESTS, left=1.0, pieces=pieces)
    by_calls = ground_of(Knowledge(lane, seen()))
    assert by_calls.speed.latency.work_s(200.0) == pytest.approx(1.5, rel=0.03)
    assert by_calls.is_known
    by_account = ground_of(Knowledge(lane))
    assert by_account.speed.latency.first_byte_s == pytest.approx(0.5)
    assert by_account.speed.calls == 0
    usual = ground_of(Knowledge(replace(lane, profile=replace(lane.profile, curves=((), ())))))
    assert usual.speed == UNKNOWN
    assert not usual.is_known


class _Counting(Rehearsal):
    """Counts the calls of all rehearsals."""

    calls = 0

    def run(self) -> Rehearsed:
        done = super().run()
        _Counting.calls += len(done.calls)
        return done


def test_a_large_plan_costs_no_more_to_foresee_than_a_middling_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forecast, "Rehearsal", _Counting)
    fast = Limit("requests", 6000.0, source="header")
    told(200, fast, depth=CUT)
    middling, _Counting.calls = _Counting.calls, 0
    large = told(10_000, fast, depth=CUT)
    assert 0 < _Counting.calls <= 2 * middling
    # Two minutes' worth: what is not let go at once goes by 100 a second.
    assert 40.0 < large.time_s.mid < 50.0
    assert large.bound_s == pytest.approx(40.0, rel=0.05)
    assert large.calls.mid == pytest.approx(10_000.0)
    assert large.input_tokens.mid == pytest.approx(1e7, rel=0.03)


def test_a_plan_that_asks_nobody_takes_what_it_took_here() -> None:
    part = OutlinePart("build", 10, seconds=(2.0, 2.0, 2.0))
    blank = AccountMemory("", "", "plain", Profile())
    found = foresee(Outline((part,)), Knowledge(blank), Strategy("fixed", 2), depth=QUICKLY)
    assert found.time_s.mid == pytest.approx(10.0, rel=0.1)
    assert found.binding == "this machine"
    assert found.bound_s == pytest.approx(10.0, rel=0.1)
    assert found.calls.mid == 0.0
    assert found.width == 0.0
    many = Outline((replace(part, count=20_000),))
    found = foresee(many, Knowledge(blank), Strategy("fixed", 2), depth=QUICKLY)
    assert found.time_s.mid == pytest.approx(20_000.0, rel=0.1)
    none = foresee(Outline((OutlinePart("nothing", 0),)), Knowledge(blank), depth=QUICKLY)
    assert none.time_s == SpreadNumber(0.0, 0.0, 0.0)


def test_a_chain_takes_as_long_as_its_links() -> None:
    """Ten after another on an account that is wide: Amdahl's law."""
    parts = tuple(
        OutlinePart(f"p{at}", 1, (Need(at - 1),) if at else (), "ask", (4000.0,), price=PRICE)
        for at in range(10)
    )
    wide = memory(Limit("requests", 6000.0, source="header"), left=1.0)
    found = foresee(Outline(parts), Knowledge(wide, seen()), depth=QUICKLY)
    assert found.binding == "critical path"
    assert found.time_s.mid == pytest.approx(15.0, rel=0.15)


def test_neighbours_of_the_last_minutes_are_foreseen_to_go_on() -> None:
    def foreseen(neighbours: float, minutes: int = 1) -> Foreseen:
        chronicle = Chronicle()
        for number in range(20):
            at_s = 60.0 * (number * minutes // 20)
            chronicle.answered(at_s, Amounts(100.0, 100.0), 0.5, 1.0, neighbours=neighbours)
        terms = AccountTerms((Limit("requests", 60.0), Limit("output", 6000.0)))
        profile, seen_to = (
            Profile(curves=((), ((4.0, 9.0, 0.01, 1.0),))),
            chronicle.memory(60.0 * (minutes - 1)),
        )
        memory = AccountMemory("account", "model", "anthropic", profile, (), seen_to)
        outline = Outline((OutlinePart("ask", 180, model="model", sizes_bytes=(400.0,)),))
        return foresee(outline, Knowledge(memory, terms=terms), depth=QUICK)

    alone, beside = foreseen(0.0), foreseen(0.4)
    assert beside.time_s.mid > 1.3 * alone.time_s.mid
    assert any("40%" in words for words in beside.assumed)
    assert not any("others" in words for words in alone.assumed)
    # A tenth may be what estimates are off by, unless it goes on.
    assert foreseen(0.1) == alone
    assert any("10%" in words for words in foreseen(0.1, minutes=10).assumed)
