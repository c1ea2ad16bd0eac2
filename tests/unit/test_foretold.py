"""A forecast as people read it: every sentence, and when it is not said."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from headway.report.forecast import MONEY, Foreseen, Portion, SpreadNumber
from headway.report.text.forecast import clock, foretold
from headway.report.text.words import limit_words

FOUND = Foreseen(
    "adaptive", 40, SpreadNumber(40.0, 40.0, 40.0), SpreadNumber(55.0, 60.0, 75.0),
    SpreadNumber(38_000.0, 40_000.0, 42_000.0), SpreadNumber(9000.0, 10_000.0, 12_000.0),
    SpreadNumber(900_000.0, 1_000_000.0, 1_200_000.0), 50.0, "input/60s", 50.1, "width",
    6.25, 0.0, 80,
    "2 earlier runs",
)  # fmt: skip


def lines(found: Foreseen) -> list[str]:
    return list(foretold(found))


def test_all_that_is_known_is_said_in_four_lines() -> None:
    assert lines(FOUND) == [
        "takes about 1 min (55 s to 1 min 15 s in eight of ten runs); at best 50 s, "
        "bound by input tokens a minute",
        "costs about $1.00 ($0.9000 to $1.20): 40 calls, 47k to 54k tokens",
        "6.2 calls in flight on average, no refusals",
        "learned from 80 calls of 2 earlier runs",
    ]


def test_a_later_fair_bound_stands_beside_the_hard_one() -> None:
    assert lines(replace(FOUND, fair_s=58.0, fair_binding="output/60s"))[0].endswith(
        "at best 50 s, bound by input tokens a minute; 58 s, bound by output tokens a minute, "
        "within the ceiling, beside neighbours and without debt"
    )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("input/60s", "input tokens a minute"),
        ("output/3600s", "output tokens an hour"),
        ("tokens/86400s", "tokens a day"),
        ("requests/10s", "requests in 10 s"),
        ("critical path", "the longest chain of tasks"),
        ("width", "how many calls are worth having in flight at once"),
        ("this machine", "how many tasks this machine takes at once"),
        ("concurrency", "concurrency"),
    ],
)
def test_what_binds_is_said_in_words(name: str, words: str) -> None:
    assert limit_words(name) == words


def test_what_nobody_knows_the_price_of_is_named() -> None:
    found = lines(replace(FOUND, microusd=None, unpriced=("mine", "yours")))
    assert found[1].startswith(
        "cost unknown: no price for mine, yours (pip install 'headway[prices]'): 40 calls"
    )


def test_what_is_not_is_not_said() -> None:
    same = SpreadNumber(50_000.0, 50_000.0, 50_000.0)
    none = SpreadNumber(0.0, 0.0, 0.0)
    assert "50k tokens" in lines(replace(FOUND, input_tokens=none, output_tokens=same))[1]
    silent = lines(replace(FOUND, calls=none, learned_calls=0))
    assert len(silent) == 1
    assert lines(replace(FOUND, learned_from=""))[-1] == "learned from 80 calls"
    assert lines(replace(FOUND, refused=2.6))[2].endswith("3 refusals")


def test_a_budget_is_compared_with_what_is_taken() -> None:
    takes = SpreadNumber(40_000.0, 50_000.0, 60_000.0)
    enough = Portion("tokens of all accounts in 2026-11", 100_000.0, 10_000.0, takes)
    (line,) = lines(replace(FOUND, portions=(enough,)))[3:-1]
    assert line == (
        "takes 50% of the 100k tokens of all accounts in 2026-11, of which 90k are left"
    )
    may = replace(enough, used=45_000.0)
    assert lines(replace(FOUND, portions=(may,)))[3].endswith("55k are left: it may not be enough")
    will = replace(enough, used=70_000.0)
    assert lines(replace(FOUND, portions=(will,)))[3].endswith("left: it will not be enough")
    money = Portion(f"{MONEY} of the run's budget", 4_000_000.0, 0.0, SpreadNumber(1e6, 2e6, 3e6))
    assert lines(replace(FOUND, portions=(money,)))[3] == (
        "takes 50% of the $4.00 of the run's budget, of which $4.00 are left"
    )


def test_a_usage_window_comes_back_by_waiting() -> None:
    takes = SpreadNumber(40_000.0, 50_000.0, 60_000.0)
    window = Portion("5h window of api#1", 100_000.0, 10_000.0, takes, 7_800.0)
    (line,) = lines(replace(FOUND, portions=(window,)))[3:-1]
    assert line == (
        "takes 50% of the 5h window of api#1, which holds about 100k tokens and has 90k left; "
        "it resets in 2 h 10 min"
    )
    for used, word in ((45_000.0, "may"), (70_000.0, "will")):
        line = lines(replace(FOUND, portions=(replace(window, used=used),)))[3]
        assert line.endswith(f": it {word} not be enough, and the run {word} wait for that")


def test_a_plan_that_fills_its_last_window_to_the_edge_has_two_ends() -> None:
    takes = SpreadNumber(290_000.0, 300_000.0, 310_000.0)
    edge = Portion("5h window of api#1", 1e5, 0.0, takes, 7_800.0, 1e5, 3, 3, 4)
    time_s = SpreadNumber(7_200.0, 7_300.0, 25_200.0)
    found = replace(FOUND, portions=(edge,), time_s=time_s, waits_s=7_000.0)
    said = list(foretold(found, 0.0))
    assert said[-2].endswith(": it takes 3 or 4 windows, one after another")
    assert said[1] == (
        "1 h 57 min of it are waits for usage windows; "
        f"it ends at {clock(7_300.0)}, or at {clock(25_200.0)} with a window more"
    )
    found = replace(found, portions=(replace(edge, windows=4, windows_low=2),))
    assert list(foretold(found, 0.0))[1].endswith(f"or at {clock(7_200.0)} with a window less")
    assert "2 to 4 windows" in list(foretold(found, 0.0))[-2]


def test_how_many_calls_a_budget_lets_be_in_flight() -> None:
    found = lines(replace(FOUND, budget_width=1))
    assert found[3] == (
        "the budget lets 1 call be in flight at once: each may cost as much as it can until it has "
        "ended"
    )
