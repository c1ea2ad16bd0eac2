"""How many more tasks may start, and how users write it."""

from __future__ import annotations

import pytest

from headway.engine.strategy import ADAPTIVE, ALL_AT_ONCE, Strategy, parse
from headway.errors import BadValueError


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
