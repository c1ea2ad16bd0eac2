"""The bench of patterns, on five repositories: its ways work, and a plan is faster than a loop."""

from __future__ import annotations

import pytest

from bench.examples import EXAMPLES, MARK, PAGE, PLANS
from bench.patterns import QUICK, REPORT, TITLES, between, measure, report


@pytest.mark.soak
def test_a_plan_is_faster_than_a_serial_loop_and_all_ways_find_the_same() -> None:
    measured = {one.way: one for one in measure(QUICK)}
    assert all(one.is_right and one.found for one in measured.values())
    assert measured["serial"].calls == QUICK.count + 1
    # One that plans, one for each repository, one that summarises: so few need no tree.
    assert measured["plan"].calls == QUICK.count + 2
    assert measured["sub-agents"].calls == 2 * QUICK.count + 2
    assert measured["plan"].time_s < measured["serial"].time_s
    for one in measured.values():
        assert one.time_s >= 0.99 * one.bound_s
        assert one.refused == 0
    assert report(list(measured.values())).count("10 of 10") == 4


def test_a_table_is_renewed_between_its_marks() -> None:
    text = "a\n<!-- x -->\nold\n<!-- /x -->\nb\n"
    assert between(text, "x", "new\n") == "a\n<!-- x -->\nnew\n<!-- /x -->\nb\n"


def test_the_page_of_examples_has_a_line_for_every_worked_example() -> None:
    lines = PAGE.read_text().split(f"<!-- {MARK} -->")[1].split(f"<!-- /{MARK} -->")[0]
    for example in EXAMPLES:
        path = f"examples/plans/{example.folder}/{example.plan}"
        assert (PLANS / example.folder / example.plan).is_file()
        assert f"[{example.title}](../{path})" in lines


def test_the_document_has_a_line_for_every_pattern() -> None:
    text = REPORT.read_text()
    assert all(f"| {title} |" in text for title in TITLES.values())
