"""Who writes a shared beginning, and how long the others wait for that."""

from __future__ import annotations

from headway.pacing.length import KINDS_MAX
from headway.pacing.queue import FOLLOWER_S_MAX, LEADER_S_MAX, WARM_S, Leaders

BEGINNING = ("account/group", "digest")
FIRST, SECOND = ("client", 1), ("client", 2)


def test_the_first_one_leads_and_the_others_wait_a_bounded_time() -> None:
    leaders = Leaders()
    assert leaders.until_s(BEGINNING, FIRST, 5.0, 5.0) == 5.0
    assert leaders.until_s(BEGINNING, SECOND, 6.0, 6.0) == 6.0 + FOLLOWER_S_MAX
    leaders.sent(BEGINNING, SECOND, 7.0)
    assert leaders.until_s(BEGINNING, SECOND, 6.0, 7.0) == 6.0 + FOLLOWER_S_MAX
    leaders.sent(BEGINNING, FIRST, 8.0)
    assert leaders.until_s(BEGINNING, SECOND, 6.0, 8.0) == 8.0 + LEADER_S_MAX
    assert leaders.until_s(BEGINNING, SECOND, 6.0, 50.0) == 50.0
    assert leaders.until_s(BEGINNING, FIRST, 5.0, 50.0) == 50.0


def test_after_a_first_byte_nobody_waits_until_the_cache_forgets() -> None:
    leaders = Leaders()
    leaders.until_s(BEGINNING, FIRST, 0.0, 0.0)
    assert not leaders.is_warm(BEGINNING, 0.0)
    leaders.answered(BEGINNING, 1.0)
    assert leaders.is_warm(BEGINNING, WARM_S)
    assert leaders.until_s(BEGINNING, SECOND, 2.0, 2.0) == 2.0
    assert not leaders.is_warm(BEGINNING, 1.0 + WARM_S)
    assert leaders.until_s(BEGINNING, SECOND, 300.0, 300.0) == 300.0
    assert leaders.until_s(BEGINNING, FIRST, 301.0, 301.0) == 301.0 + FOLLOWER_S_MAX


def test_a_leader_that_ends_leads_no_more() -> None:
    leaders = Leaders()
    assert not leaders.ended(BEGINNING, FIRST)
    leaders.sent(BEGINNING, FIRST, 0.0)
    leaders.until_s(BEGINNING, FIRST, 0.0, 0.0)
    leaders.sent(BEGINNING, FIRST, 1.0)
    assert not leaders.ended(BEGINNING, SECOND)
    assert leaders.ended(BEGINNING, FIRST)
    assert leaders.until_s(BEGINNING, SECOND, 2.0, 2.0) == 2.0
    assert leaders.until_s(BEGINNING, FIRST, 3.0, 3.0) == 3.0 + FOLLOWER_S_MAX


def test_beginnings_that_were_not_used_for_long_are_forgotten() -> None:
    leaders = Leaders()
    for number in range(KINDS_MAX + 5):
        leaders.until_s(("lane", str(number)), FIRST, 0.0, 0.0)
    assert len(leaders._cached) == KINDS_MAX
