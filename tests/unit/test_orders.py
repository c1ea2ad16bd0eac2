"""The orders of the demo: a model answers for what it is shown, and truth comes from elsewhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.sim.coherence_demo import (
    ADDED,
    CORRECT,
    ENRICH,
    PARSE,
    VALIDATE,
    DemoOrder,
    Flag,
    OrderItem,
    answer_to,
    draw_orders,
    fields_of,
    flags_of,
)

ORDER = DemoOrder(
    1001, "Acme Tools", "Berlin", (OrderItem(3, "drill", 4990), OrderItem(2, "saw", 1250)), 17470
)
RECORD = """\
order: 1001
customer: Acme Tools
item0: 3 drill 4990
item1: 2 saw 1250
stated: 17470
city: Berlin
"""


def in_turn(order: DemoOrder) -> tuple[str, list[Flag]]:
    """What the three make of an order, each shown what the one before has finished."""
    parsed = answer_to(f"{PARSE}\n{order.text}")
    enriched = answer_to(f"{ENRICH}\n{parsed}")
    return enriched, flags_of(answer_to(f"{VALIDATE}\n{enriched}"))


def test_the_parser_makes_a_record_of_an_order() -> None:
    assert answer_to(f"{PARSE}\n{ORDER.text}") == RECORD


def test_the_enricher_adds_what_follows_and_keeps_the_rest() -> None:
    added = "country: DE\nnet: 17470\nvat: 3319\ngross: 20789\n"
    assert answer_to(f"{ENRICH}\n{RECORD}") == RECORD + added
    assert answer_to(f"{ENRICH}\n{RECORD}{added}") == RECORD + added


@given(st.integers(0, 2**62))
def test_agents_that_work_in_turn_find_what_is_true_and_nothing_else(seed: int) -> None:
    for order in draw_orders(4, seed):
        record, flags = in_turn(order)
        assert fields_of(record) == order.record
        assert {flag.field for flag in flags} == order.flaws


def test_some_orders_have_an_error_and_most_have_none() -> None:
    flaws = [bool(order.flaws) for order in draw_orders(1000, 1)]
    assert 100 < sum(flaws) < 300


@pytest.mark.parametrize("shown", [0, 20, 45, 60, 68])
def test_whoever_is_shown_a_part_answers_for_that_part(shown: int) -> None:
    said = fields_of(answer_to(f"{ENRICH}\n{RECORD[:shown]}"))
    assert set(ADDED) <= set(said)
    assert said != ORDER.record
    assert said["country"] == "unknown"
    assert int(said["net"]) < 17470


def test_a_validator_that_is_shown_half_an_answer_flags_what_is_not_wrong() -> None:
    half = f"{RECORD}country: DE\nnet: 174"
    flags = flags_of(answer_to(f"{VALIDATE}\n{half}"))
    assert flags == [Flag("net", "17470"), Flag("vat", "3319"), Flag("gross", "20789")]


def test_an_enricher_does_as_it_is_told() -> None:
    told = f"{ENRICH}\n{RECORD}{CORRECT}net: 1\n{CORRECT}net: 2\n"
    assert fields_of(answer_to(told))["net"] == "2"


def test_nothing_is_parsed_of_nothing() -> None:
    assert fields_of(answer_to(f"{PARSE}\nhello")) == {}
