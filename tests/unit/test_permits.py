"""Permits in use: granted, undone, answered, growing, outliving their plan, ended once."""

from __future__ import annotations

import pytest

from headway.base.values import Amounts, Demand, Limit, LimitReading, Permit, Reading
from headway.pacing.account import Belief, QuotaConfig
from headway.pacing.latency import Delivery, Round
from headway.pacing.limits import PlannedStream
from headway.pacing.quota import OVERRUN, OVERRUN_S_MIN, PermitInUse, Permits

CALL = Demand(Amounts(100.0, 50.0), Amounts(100.0, 400.0))
OUTPUT = Limit("output", 6000.0)
REQUESTS = Limit("requests", 60.0)


def _permits(*limits: Limit) -> tuple[Belief, Permits]:
    belief = Belief(QuotaConfig(limits=limits), 0.0)
    return belief, Permits(belief)


def _grant(belief: Belief, permits: Permits, now: float, demand: Demand = CALL) -> Permit:
    stream = belief.tempo.plan(demand.expected.output_tokens, now)
    return permits.grant(demand, ("run", "session"), stream, "every limit has room", now)


def _held(permits: Permits, permit: Permit) -> PermitInUse:
    held = permits.get(permit.id)
    assert held is not None
    return held


def test_a_grant_charges_every_limit_and_is_known_until_it_ends() -> None:
    belief, permits = _permits(REQUESTS, OUTPUT)
    permit = _grant(belief, permits, 0.0)
    assert (permit.id, permit.flow, permit.reason) == (1, "run", "every limit has room")
    assert _held(permits, permit).levels == (59.0, 6000.0)
    assert [one.balance.count.planned for one in belief.mirrors] == [0.0, 50.0]
    assert (permits.granted, len(permits)) == (1, 1)


def test_an_answer_flows_from_its_first_byte_on() -> None:
    belief, permits = _permits(OUTPUT)
    held = _held(permits, _grant(belief, permits, 0.0))
    permits.answered(held, 3.0)
    assert belief.tempo.first_byte_s == 3.0
    assert held.stream == PlannedStream(3.0, 4.0, 50.0)


def test_a_discovered_limit_counts_what_is_in_flight_and_what_was_sent_since() -> None:
    belief, permits = _permits()
    first = _grant(belief, permits, 0.0)
    _grant(belief, permits, 1.0)
    told = LimitReading("requests", 60.0, 60.0, 40.0, 20.0)
    permits.observe(_held(permits, first), Reading((told,)), 0.0, 2.0)
    [mirror] = belief.mirrors
    # Of the 40 left at 0, one went to the second call, and two seconds refilled two.
    assert mirror.balance.level(2.0) == pytest.approx(41.0)


def test_the_pace_is_learned_from_pieces_of_an_answer_in_the_company_it_had() -> None:
    belief, permits = _permits()
    held = _held(permits, _grant(belief, permits, 0.0))
    permits.answered(held, 1.0)
    permits.moved(held, 20.0, 2.0)
    assert belief.tempo.per_token_s == pytest.approx(0.05)
    assert (held.seen_s, held.seen_tokens) == (2.0, 20.0)
    [(company, _, per_token_s)] = belief.width.congestion.curve()
    assert (company, per_token_s) == (1, belief.tempo.per_token_s)


class _HeardDelivery(Delivery):
    """Keeps the rounds that it tells."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[Round] = []

    def ended(self, work: float, integral: float, now: float) -> Round | None:
        done = super().ended(work, integral, now)
        self.heard += [done] if done is not None else []
        return done


def test_work_is_counted_as_it_comes_and_the_first_byte_with_the_first_piece() -> None:
    belief, permits = _permits()
    delivery = belief.width.delivery = _HeardDelivery()
    held = [_held(permits, _grant(belief, permits, 0.0)) for _ in range(4)]
    for one in held:
        permits.answered(one, 1.0)
        permits.moved(one, 20.0, 2.0)
    for one in held[:3]:
        permits.ended(one, 24.0, 4.0)
    # The provider counts less than was seen: nothing is taken back.
    permits.ended(held[3], 18.0, 4.0)
    # Four first bytes of one second at 0.05 s a token, four times 20, three times 4, and 1.
    work = 4 * 20.0 + 4 * 20.0 + 3 * 4.0 + 1.0
    [done] = delivery.heard
    assert done.in_flight == pytest.approx(4.0)
    assert done.work_per_s == pytest.approx(work / 4.0)


def test_rounds_of_pieces_move_the_width_where_pieces_are_irregular() -> None:
    belief, permits = _permits()
    held = [_held(permits, _grant(belief, permits, 0.0)) for _ in range(4)]
    for one in held:
        permits.answered(one, 0.5)
    changes, now = [], 0.5
    for piece in range(1, 20):
        # Every other piece is five times as slow as the one before it.
        now += 1.0 if piece % 2 else 0.2
        changes += [permits.moved(one, 10.0 * piece, now) for one in held]
    assert not belief.width.congestion.is_steady
    assert changes.count(True) >= 2
    assert belief.width.reason.startswith("throughput follows the width")


@pytest.mark.parametrize(("tokens", "now"), [(4.0, 2.0), (20.0, 1.0)])
def test_too_few_tokens_or_no_time_say_nothing_about_the_pace(tokens: float, now: float) -> None:
    belief, permits = _permits()
    held = _held(permits, _grant(belief, permits, 0.0))
    permits.answered(held, 1.0)
    assert not permits.moved(held, tokens, now)
    assert belief.width.congestion.samples == 0


def test_a_stream_that_outlives_its_plan_is_expected_to_go_on() -> None:
    belief, permits = _permits(OUTPUT)
    held = _held(permits, _grant(belief, permits, 0.0))
    ends_s = held.stream.to_s
    permits.extend_overruns(ends_s - 0.1)
    assert held.stream.tokens == 50.0
    permits.extend_overruns(ends_s)
    assert held.stream.tokens == pytest.approx(50.0 * (1 + OVERRUN) + 1.0)
    assert held.stream.to_s >= ends_s + OVERRUN_S_MIN


def test_a_stream_never_outgrows_what_the_call_may_produce() -> None:
    belief, permits = _permits(OUTPUT)
    held = _held(permits, _grant(belief, permits, 0.0))
    for second in range(2, 60):
        permits.extend_overruns(float(second))
    assert held.stream.tokens == CALL.ceiling.output_tokens


def test_calls_that_ended_or_were_planned_anew_are_not_extended() -> None:
    belief, permits = _permits(OUTPUT)
    ended, slow = _grant(belief, permits, 0.0), _grant(belief, permits, 0.0)
    held = _held(permits, slow)
    permits.end(ended.id)
    permits.answered(held, 1.9)
    permits.extend_overruns(2.0)
    assert held.stream == belief.tempo.replan(50.0, 1.9, 1.9)
