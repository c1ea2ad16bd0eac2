"""A chronicle loses no call, fades as it says, and is the same after it was written down."""

from __future__ import annotations

from collections import Counter
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.base.codec import decode, encode
from headway.base.values import Amounts, FaultKind
from headway.pacing.memory import (
    KEEP,
    MINUTES_KEPT,
    Chronicle,
    ChronicleMemory,
    hours_of,
    lately,
    total,
)

Step = tuple[float, str, int]

STEPS = st.lists(
    st.tuples(
        st.floats(0.0, 4000.0),
        st.sampled_from(["answer", "turn", "restart", *get_args(FaultKind)]),
        st.integers(0, 23),
    ),
    max_size=60,
)


def _performed(steps: list[Step]) -> tuple[Chronicle, list[tuple[int, int, int]], float]:
    """The chronicle, every call's minute, hour and tokens, and the time at the end."""
    chronicle, now, hour = Chronicle(), 0.0, -1
    calls: list[tuple[int, int, int]] = []
    began = {0: -1}
    for gap_s, what, number in steps:
        now += gap_s
        minute = int(now // 60.0)
        if what == "turn":
            hour = number
            chronicle.turn(hour, now)
            if not any(at == minute for at, _, _ in calls):
                began[minute] = hour
            continue
        if what == "restart":
            memory = chronicle.memory(now)
            again = decode(ChronicleMemory, encode(memory))
            assert again == memory
            chronicle = Chronicle(again, now)
            assert chronicle.memory(now) == memory
            chronicle.turn(hour, now)
            if not any(at == minute for at, _, _ in calls):
                began[minute] = hour
            continue
        if what == "answer":
            chronicle.answered(now, Amounts(3.0 * number, float(number)), 0.1, 1.0, number)
        else:
            chronicle.refused(what, now)  # type: ignore[arg-type]
        began.setdefault(minute, hour)
        calls.append((minute, began[minute], number if what == "answer" else 0))
    return chronicle, calls, now


@given(STEPS)
def test_no_call_of_the_last_hour_is_lost_and_none_is_counted_twice(steps: list[Step]) -> None:
    chronicle, calls, now = _performed(steps)
    at = int(now // 60.0)
    memory = chronicle.memory(now)
    by_age = Counter(at - minute for minute, _, _ in calls)
    for age in range(MINUTES_KEPT):
        assert lately(memory, age + 1, age).ended == by_age[age]
    recent = [tokens for minute, _, tokens in calls if at - minute < MINUTES_KEPT]
    assert lately(memory, MINUTES_KEPT).output_tokens == sum(recent)
    assert lately(memory, MINUTES_KEPT).input_tokens == 3 * sum(recent)
    assert len(memory.minutes) <= MINUTES_KEPT
    assert len(memory.hours) <= 24


@given(STEPS)
def test_hours_hold_every_call_less_what_has_faded(steps: list[Step]) -> None:
    chronicle, calls, now = _performed(steps)
    at = int(now // 60.0)
    expected: dict[int, float] = {}
    for minute, hour, _ in calls:
        if hour >= 0:
            expected[hour] = expected.get(hour, 0.0) + KEEP ** (at - minute)
    found = {hour: spell.ended for hour, spell in hours_of(chronicle.memory(now)).items()}
    # The minute that goes on has not begun to fade.
    assert found == pytest.approx(expected, rel=0.01)
    assert total(hours_of(chronicle.memory(now)).values()).ended == pytest.approx(
        sum(expected.values()), rel=0.01
    )
