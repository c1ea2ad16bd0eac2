"""The demo of coherence: loose is wrong and dear for every seed, headway is right for every one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from headway.cli.main import main
from headway.sim.coherence_demo import (
    DemoOrder,
    DemoOutcome,
    DemoRecord,
    Flag,
    Model,
    compare,
    draw_orders,
    judge,
)
from headway.testing import run_virtual
from tests.unit.demo_law import must_be_right, must_be_worse, the_three

SEEDS = range(40)
PORTION = 20


@pytest.mark.parametrize("first", SEEDS[::PORTION])
def test_loose_is_wrong_and_dear_and_headway_is_right_for_every_seed(first: int) -> None:
    for seed in range(first, first + PORTION):
        loose, ordered, free = the_three(12, seed)
        must_be_worse(loose, ordered, seed)
        must_be_right((ordered, free), seed)


def test_all_ways_but_one_are_right() -> None:
    for seed in range(3):
        one, loose, *others = compare(12, seed)
        must_be_right((one, *others), seed)
        assert one.tokens == others[0].tokens
        must_be_worse(loose, one, seed)


def test_what_the_demo_must_show_can_fail() -> None:
    loose, ordered, _ = the_three(12, 1)
    for worse in (replace(loose, wrong_records=0), replace(loose, tokens=1), ordered):
        with pytest.raises(AssertionError):
            must_be_worse(worse, ordered, 1)
    for wrong in (replace(ordered, wrong_records=1), replace(ordered, false_errors=1), loose):
        with pytest.raises(AssertionError):
            must_be_right((wrong,), 1)


def test_the_same_seed_gives_the_same_figures() -> None:
    assert compare(8, 5) == compare(8, 5)


def test_headway_runs_stale_attempts_again_until_it_knows_better() -> None:
    _, _, ordered, free, learned = compare(12, 3)
    assert (ordered.reran, learned.reran) == (0, 0)
    assert free.reran > 0
    assert free.calls == ordered.calls + free.reran
    assert learned.tokens == ordered.tokens < free.tokens


def test_the_figures_are_judged_against_the_orders_alone() -> None:
    orders, others = draw_orders(8, 1), draw_orders(8, 2)
    told = DemoRecord()
    for number, order in enumerate(orders):
        told.records[number] = "".join(f"{key}: {text}\n" for key, text in order.record.items())
        told.checks[number] = [Flag(field, "") for field in order.flaws]
    told.flagged = [(0, Flag("net", "1")), (0, Flag("gross", orders[0].record["gross"]))]
    told.corrections = list(told.flagged)

    async def judged(truth: list[DemoOrder]) -> DemoOutcome:
        return judge("by hand", told, truth, Model(1))

    right = run_virtual(judged(orders))
    assert (right.wrong_records, right.false_errors, right.contradictory) == (0, 2, 1)
    assert run_virtual(judged(others)).wrong_records == 8
    told.checks[3] = [Flag("net", "1")]
    assert run_virtual(judged(orders)).wrong_records == 1


def test_the_command_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "demo", "coherence", "--records", "8", "--seeds", "2"]) == 0
    said = capsys.readouterr().out
    assert "8 orders, three agents (Parser, Enricher, Validator), means over 2 seeds" in said
    for way in ("one agent after another", "loose: ", "headway: `needs` removed"):
        assert way in said
    assert "of 8 records are wrong in the end" in said
    assert max(map(len, said.splitlines())) <= 100


def test_the_documentation_shows_what_the_command_prints(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["sim", "demo", "coherence"]) == 0
    document = Path(__file__).parents[2] / "docs" / "coherence.md"
    assert capsys.readouterr().out in document.read_text(encoding="utf-8")


def test_the_command_gives_rows_for_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "demo", "coherence", "--seed", "3", "--seeds", "1", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["seed"] for row in rows] == [3] * 5
    assert rows[1]["wrong_records"] > 0 == rows[2]["wrong_records"]


@pytest.mark.parametrize(
    "words",
    [
        ("coherence", "--records", "7"), ("coherence", "--preset", "slots"),
        ("coherence", "--no-timeline"), ("--records", "9"), ("nothing",),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["sim", "demo", *words])
    except SystemExit as end:  # By argparse.
        code = int(end.code or 0)
    assert code == 2
    assert capsys.readouterr().err
