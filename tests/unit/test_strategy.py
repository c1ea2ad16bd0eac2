"""How many more tasks may start, and how users write it."""

from __future__ import annotations

from math import inf

import pytest

from headway.engine.strategy import ADAPTIVE, ALL_AT_ONCE, LOOKAHEAD, Strategy, parse
from headway.errors import BadValueError


def test_all_at_once_always_has_room() -> None:
    assert ALL_AT_ONCE.room(1000) == inf


def test_a_wave_starts_only_when_the_last_one_has_ended() -> None:
    assert [Strategy("waves", 4).room(active) for active in (0, 1, 4)] == [4, 0, 0]


def test_a_fixed_number_of_places_is_kept_busy() -> None:
    assert [Strategy("fixed", 5).room(active) for active in (3, 5)] == [2, 0]


def test_adaptive_starts_callers_until_enough_of_them_wait_for_a_permit() -> None:
    assert ADAPTIVE.room(500) == inf
    assert [ADAPTIVE.callers(waiting) for waiting in (0, LOOKAHEAD - 1, LOOKAHEAD)] == [
        LOOKAHEAD, 1, 0,
    ]  # fmt: skip


def test_the_others_do_not_look_at_who_waits() -> None:
    assert {
        strategy.callers(1000)
        for strategy in (ALL_AT_ONCE, Strategy("waves", 2), Strategy("fixed", 2))
    } == {inf}


@pytest.mark.parametrize(
    ("text", "strategy", "reason"),
    [
        ("all-at-once", ALL_AT_ONCE, "everything starts at once"),
        ("waves:4", Strategy("waves", 4), "wave of 4"),
        ("fixed:5", Strategy("fixed", 5), "one of 5 places is free"),
        ("adaptive", ADAPTIVE, "there is room for one more"),
    ],
)
def test_a_strategy_is_read_as_users_write_it(text: str, strategy: Strategy, reason: str) -> None:
    assert parse(text) == strategy
    assert parse(text).name == text
    assert parse(text).reason == reason


@pytest.mark.parametrize(
    ("text", "strategy"), [("waves(4)", Strategy("waves", 4)), ("fixed(12)", Strategy("fixed", 12))]
)
def test_a_size_may_stand_in_brackets(text: str, strategy: Strategy) -> None:
    assert parse(text) == strategy


@pytest.mark.parametrize(
    "text",
    ["", "wave", "waves", "waves:", "waves:0", "waves:-4", "waves:4.5", "waves:four", "fixed:+5",
     "fixed: 5", "adaptive:5", "all-at-once:3", "waves:\N{SUPERSCRIPT TWO}", "waves:4:4", "waves(4",
     "waves4)", "waves:(4)", "waves()", "waves(0)", "adaptive()", "all-at-once(3)"],
)  # fmt: skip
def test_what_is_not_a_strategy_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(BadValueError, match="is not a strategy") as refused:
        parse(text)
    assert refused.value.hint


def test_the_hint_for_a_slip_is_the_nearest_strategy() -> None:
    with pytest.raises(BadValueError) as refused:
        parse("adaptve")
    assert refused.value.hint == "did you mean `adaptive`?"
