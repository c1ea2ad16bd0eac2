"""A plan as parts, drawn into calls: who needs whom, what answers add to inputs, what is cut."""

from __future__ import annotations

from statistics import mean

import pytest
from hypothesis import strategies as st

from headway.pacing.estimate import Price
from headway.plans.graph import Need
from headway.report.outline import Outline, OutlinePart, cropped, drawn, needs_of, workload_of
from headway.report.sizes import SeenCall, Sizes, Speed, sizes_of
from headway.sim.provider import Latency

STEADY = Speed(Latency(1.0, 0.01), 0.0, 0.0, 40)
PRICE = Price(1_000_000, 5_000_000)


def same(input_tokens: float, output_tokens: float, calls: int = 1) -> Sizes:
    """Calls that are all alike: draws differ by next to nothing."""
    return sizes_of([SeenCall(input_tokens, output_tokens, calls=calls)] * 40)


def test_who_needs_a_block_needs_its_own() -> None:
    memberwise = Outline((OutlinePart("a", 3), OutlinePart("b", 3, (Need(0, block=1),))))
    assert needs_of(memberwise)[3:] == ((0,), (1,), (2,))
    fours = Outline(
        (
            OutlinePart("a", 10),
            OutlinePart("b", 3, (Need(0, block=4),)),
            OutlinePart("c", 1, (Need(1),)),
        )
    )
    assert needs_of(fours)[10:] == ((0, 1, 2, 3), (4, 5, 6, 7), (8, 9), (10, 11, 12))
    # More members than there is to share: the last of them need nothing.
    assert needs_of(Outline((OutlinePart("a", 2), OutlinePart("b", 4, (Need(0, block=1),)))))[
        4:
    ] == ((), ())


def test_answers_of_others_are_read_by_who_is_given_them() -> None:
    outline = Outline(
        (
            OutlinePart("ask", 8, model="m"),
            OutlinePart("pair", 4, (Need(0, block=2),), "m", given=(0,)),
            OutlinePart("sum", 1, (Need(1),), "m", given=(1,)),
            OutlinePart("aside", 1, (Need(0),), "m"),
        )
    )
    known = {"m": same(500.0, 100.0)}
    calls = [one[0] for one in drawn(outline, known, STEADY, 1).calls]
    answers = [call.output_tokens for call in calls]
    for member in range(4):
        given = answers[2 * member] + answers[2 * member + 1]
        assert calls[8 + member].input_tokens == pytest.approx(500.0 + given, rel=0.02)
    assert calls[12].input_tokens == pytest.approx(500.0 + sum(answers[8:12]), rel=0.02)
    assert calls[13].input_tokens == pytest.approx(500.0, rel=0.02)


def test_answers_that_were_in_the_inputs_before_are_not_counted_twice() -> None:
    """Its inputs were learned with 4 answers of 100 tokens in them; now there are 8."""
    before = OutlinePart("sum", 1, (Need(0),), "m", given=(0,), given_before=400.0)
    outline = Outline((OutlinePart("ask", 8, model="m"), before))
    known = {"ask": same(500.0, 100.0), "sum": same(900.0, 50.0)}
    (last,) = drawn(outline, known, STEADY, 1).calls[8]
    assert last.input_tokens == pytest.approx(900.0 + 800.0 - 400.0, rel=0.03)
    # However much was read then, an input is no less than a token.
    tiny = Outline(
        (
            OutlinePart("ask", 1, model="m"),
            OutlinePart("sum", 1, (Need(0),), "m", given=(0,), given_before=9e9),
        )
    )
    assert drawn(tiny, known, STEADY, 1).calls[1][0].input_tokens == 1.0


def test_no_answer_is_longer_than_it_may_be_and_every_call_has_its_price() -> None:
    outline = Outline((OutlinePart("a", 5, model="m", max_tokens=64.0, price=PRICE),))
    one = drawn(outline, {"m": same(100.0, 900.0)}, STEADY, 1)
    assert all(call.output_tokens == 64 and call.max_tokens == 64.0 for (call,) in one.calls)
    assert one.amounts.output_tokens == 5 * 64
    expected = sum(call.input_tokens + 5 * call.output_tokens for (call,) in one.calls)
    assert one.amounts.spend_microusd == pytest.approx(expected, abs=5)
    assert one.count == 5
    free = drawn(Outline((OutlinePart("a", 5, model="m"),)), {}, STEADY, 1)
    assert free.amounts.spend_microusd == 0


def test_a_call_costs_as_much_more_than_the_list_says_as_those_that_were_seen() -> None:
    outline = Outline((OutlinePart("a", 5, model="m", price=PRICE),))
    listed = drawn(outline, {"m": same(100.0, 20.0)}, STEADY, 1).amounts.spend_microusd
    # 200 by the list: a provider that tells nothing is charged the most, a cache makes it cheap.
    for paid in (1000.0, 50.0):
        seen = sizes_of([SeenCall(100.0, 20.0, microusd=paid)] * 40)
        found = drawn(outline, {"m": seen}, STEADY, 1).amounts.spend_microusd
        assert found == pytest.approx(listed * paid / 200.0, rel=1e-3)


def test_a_draw_becomes_work_for_the_engine() -> None:
    outline = Outline(
        (
            OutlinePart("ask", 4, model="m", calls=2.0),
            OutlinePart("sum", 1, (Need(0),), "m", given=(0,)),
            OutlinePart("save", 1, (Need(1),), seconds=(3.0,)),
        )
    )
    one = drawn(outline, {"m": same(100.0, 50.0, calls=2)}, STEADY, 1)
    work = workload_of(one)
    assert [list(needs) for needs in work.needs] == [[], [], [], [], [0, 1, 2, 3], [4]]
    assert work.calls == one.calls
    assert work.seconds == (0.0, 0.0, 0.0, 0.0, 0.0, 3.0)
    tasks = work.graph.tasks
    assert [tasks[at].kind for at in range(6)] == ["ask"] * 4 + ["sum", "save"]
    # Nobody knows which task of a part will be the longest.
    assert len({tasks[at].weight_s for at in range(4)}) == 1
    assert tasks[5].weight_s == 3.0
    first = tasks[0].calls[0]
    assert first.expected.input_tokens == one.calls[0][0].input_tokens
    assert first.ceiling.output_tokens == 4096.0


def test_a_large_plan_is_cropped_evenly_and_no_part_is_lost() -> None:
    sizes = tuple(float(at) for at in range(1000))
    outline = Outline((
        OutlinePart("ask", 1000, model="m", sizes_bytes=sizes),
        OutlinePart("check", 1000, (Need(0, block=1),), "m"),
        OutlinePart("sum", 1, (Need(1),), "m"), OutlinePart("none", 0, model="m"),
    ))  # fmt: skip
    small = cropped(outline, 100)
    assert [part.count for part in small.parts] == [50, 50, 1, 0]
    assert small.parts[1].needs == outline.parts[1].needs
    kept = small.parts[0].sizes_bytes
    assert len(kept) == 50
    assert mean(kept) == pytest.approx(mean(sizes), rel=0.03)
    assert needs_of(small)[100] == tuple(range(50, 100))
    assert outline.times(small) == pytest.approx(20.0, rel=0.02)
    here = Outline((OutlinePart("build", 1000, seconds=(1.0,)),))
    assert (here.calls, here.steps, cropped(here, 100).tasks) == (0.0, 1000.0, 100)
    assert here.times(cropped(here, 100)) == 10.0
    assert Outline(()).times(Outline(())) == 0.0


COUNTS = st.lists(st.integers(0, 3000), min_size=1, max_size=6)
