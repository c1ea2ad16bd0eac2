"""A mirror follows a provider's limit: readings correct it, and the past is not replayed."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from headway.base.values import Amounts, Demand, Limit, LimitKind, LimitReading, Reading, Usage
from headway.pacing.balance import (
    DRAW_FLOOR,
    RESET_MARGIN_S,
    SIZES_MIN,
    WAIT_UNTOLD_S,
    Balance,
    Mirror,
    discover,
    is_about,
)
from headway.pacing.headers import ANTHROPIC, GEMINI, OPENAI
from headway.pacing.limits import PlannedStream

NO_STREAM = PlannedStream(0.0, 0.0, 0.0)
LEARNED = Limit("input", 600.0, source="header")
CALL = Demand(Amounts(100.0), Amounts(100.0))


def _mirror(limit: Limit = LEARNED, share: float = 1.0, rounding: float = 0.0) -> Mirror:
    return Mirror(Balance(limit, "produced", share, rounding, 0.0))


def _window(kind: LimitKind = "fixed") -> Mirror:
    return _mirror(replace(LEARNED, kind=kind))


def _told(
    remaining: float | None, reset_s: float | None = None, limit: float | None = 600.0
) -> LimitReading:
    return LimitReading("input", 60.0, limit, remaining, reset_s)


def _charged(mirror: Mirror, now: float) -> float:
    return mirror.balance.charge(CALL, NO_STREAM, now)


def test_a_bucket_starts_from_its_first_reading_and_what_was_refilled_since() -> None:
    mirror = _mirror()
    mirror.adopt(_told(200.0), 1.0, 3.0)
    assert mirror.balance.level(3.0) == pytest.approx(220.0)


def test_a_reading_that_does_not_say_what_is_left_starts_from_nothing() -> None:
    mirror = _mirror()
    mirror.adopt(_told(None), 1.0, 1.0)
    assert mirror.balance.level(1.0) == 0.0


def test_an_aligned_window_starts_with_the_edge_it_was_told() -> None:
    mirror = _window()
    mirror.adopt(_told(200.0, reset_s=12.0), 1.0, 2.0)
    assert mirror.balance.level(12.9) == 200.0
    assert mirror.balance.level(13.0 + RESET_MARGIN_S) == 600.0


def test_an_aligned_window_of_unknown_edge_starts_with_a_whole_period() -> None:
    mirror = _window()
    mirror.adopt(_told(200.0), 1.0, 2.0)
    assert mirror.balance.level(60.9) == 200.0
    assert mirror.balance.level(61.0 + RESET_MARGIN_S) == 600.0


def test_a_sliding_window_starts_with_what_is_used() -> None:
    mirror = _window("sliding")
    mirror.adopt(_told(200.0), 1.0, 2.0)
    assert mirror.balance.level(2.0) == 200.0
    assert mirror.balance.level(62.0) == 600.0


def test_a_reading_is_compared_with_what_was_held_at_admission() -> None:
    """The call after it is no part of the difference, which is carried to the present."""
    mirror = _mirror()
    snapshot = _charged(mirror, 1.0)
    _charged(mirror, 2.0)
    mirror.observe(_told(snapshot - 50.0), snapshot, 1.0, 2.0)
    assert mirror.balance.level(2.0) == pytest.approx(410.0 - 50.0)


def test_a_difference_that_was_carried_once_is_not_carried_again() -> None:
    mirror = _mirror()
    first, second = _charged(mirror, 1.0), _charged(mirror, 1.0)
    mirror.observe(_told(first - 50.0), first, 1.0, 1.0)
    mirror.observe(_told(second - 50.0), second, 1.0, 1.0)
    assert mirror.balance.level(1.0) == pytest.approx(350.0)


def test_a_difference_within_the_rounding_teaches_nothing() -> None:
    mirror = _mirror(rounding=60.0)
    snapshot = _charged(mirror, 1.0)
    mirror.observe(_told(snapshot - 50.0), snapshot, 1.0, 1.0)
    assert mirror.balance.level(1.0) == 500.0


def test_more_may_be_left_than_was_believed() -> None:
    mirror = _mirror()
    _charged(mirror, 1.0)
    snapshot = _charged(mirror, 2.0)
    mirror.observe(_told(snapshot + 40.0), snapshot, 2.0, 2.0)
    assert mirror.balance.level(2.0) == pytest.approx(450.0)


def test_nothing_left_may_be_debt_and_raises_nothing() -> None:
    mirror = _mirror()
    for _ in range(8):
        snapshot = _charged(mirror, 1.0)
    mirror.observe(_told(0.0), snapshot, 1.0, 1.0)
    assert mirror.balance.level(1.0) == -200.0


def test_a_bucket_that_was_full_since_has_lost_what_a_reading_would_add() -> None:
    mirror = _mirror()
    snapshot = _charged(mirror, 1.0)
    mirror.balance.level(30.0)
    _charged(mirror, 30.0)
    mirror.observe(_told(snapshot + 40.0), snapshot, 1.0, 30.0)
    assert mirror.balance.level(30.0) == 500.0


def test_a_neighbours_draw_lowers_the_refill_but_never_below_its_floor() -> None:
    mirror = _mirror()
    snapshot = _charged(mirror, 1.0)
    mirror.observe(_told(snapshot), snapshot, 1.0, 1.0)
    was_shared = mirror.balance.shared
    snapshot = _charged(mirror, 2.0)
    mirror.observe(_told(snapshot - 300.0), snapshot, 2.0, 2.0)
    assert mirror.draw_per_s == (1 - DRAW_FLOOR) * 10.0
    assert (was_shared, mirror.balance.shared) == (False, True)
    level = mirror.balance.level(2.0)
    assert mirror.balance.level(4.0) == pytest.approx(level + 2.0 * DRAW_FLOOR * 10.0)


def test_an_older_reading_and_one_without_a_remainder_teach_nothing() -> None:
    mirror = _mirror()
    snapshot = _charged(mirror, 1.0)
    mirror.observe(_told(snapshot), snapshot, 1.0, 1.0)
    mirror.observe(_told(0.0), snapshot, 0.5, 1.0)
    mirror.observe(_told(None), snapshot, 1.0, 1.0)
    assert mirror.balance.level(1.0) == 500.0


def test_a_reading_without_a_call_of_ours_can_only_lower_the_level() -> None:
    mirror = _mirror()
    _charged(mirror, 1.0)
    mirror.observe(_told(300.0), None, 1.0, 3.0)
    assert mirror.balance.level(3.0) == pytest.approx(320.0)
    mirror.observe(_told(590.0), None, 3.0, 3.0)
    assert mirror.balance.level(3.0) == pytest.approx(320.0)


def test_the_mean_of_several_resets_tells_the_size_of_a_bucket() -> None:
    mirror = _mirror()
    for _ in range(SIZES_MIN):
        assert mirror.balance.count.size == 600.0
        mirror.observe(_told(200.0, reset_s=10.0), 200.0, 1.0, 1.0)
    assert mirror.balance.count.size == pytest.approx(300.0)
    assert mirror.as_profile() == replace(LEARNED, burst=300.0, source="profile")


def test_the_size_that_a_user_configured_is_not_learned() -> None:
    mirror = _mirror(replace(LEARNED, source="configured"))
    for _ in range(SIZES_MIN):
        mirror.observe(_told(200.0, reset_s=10.0), 200.0, 1.0, 1.0)
    assert mirror.balance.count.size == 600.0


def test_a_changed_limit_changes_its_burst_in_proportion() -> None:
    mirror = _mirror(replace(LEARNED, burst=60.0))
    mirror.observe(_told(60.0, limit=1200.0), None, 1.0, 1.0)
    assert mirror.balance.limit == replace(LEARNED, amount=1200.0, burst=120.0)
    assert mirror.balance.count.size == 120.0


def test_a_changed_limit_changes_a_users_share_of_it_in_proportion() -> None:
    """Half of 600 has no room for 100 and 250; half of 1,200 has."""
    mirror = _mirror(share=0.5)
    larger = Demand(Amounts(250.0), Amounts(250.0))
    _charged(mirror, 1.0)
    assert mirror.balance.when(larger, NO_STREAM, 1.0) > 60.0
    mirror.observe(_told(1100.0, limit=1200.0), None, 1.0, 1.0)
    assert mirror.balance.when(larger, NO_STREAM, 1.0) == 1.0


def test_a_reading_from_before_a_change_was_noticed_can_only_lower_the_level() -> None:
    """What was held then was counted by another measure."""
    mirror = _mirror()
    before = _charged(mirror, 1.0)
    mirror.observe(_told(900.0, limit=1200.0), None, 2.0, 2.0)
    level = mirror.balance.level(2.0)
    mirror.observe(_told(1100.0, limit=1200.0), before, 2.0, 2.0)
    assert mirror.balance.level(2.0) == level


def test_a_window_takes_over_a_changed_limit() -> None:
    mirror = _window()
    mirror.observe(_told(900.0, limit=1200.0), None, 1.0, 1.0)
    assert mirror.balance.count.size == 1200.0
    assert mirror.balance.limit.burst is None


def test_a_window_loses_what_somebody_else_took_and_regains_nothing() -> None:
    mirror = _window()
    first = _charged(mirror, 1.0)
    mirror.observe(_told(first - 50.0), first, 1.0, 1.0)
    assert mirror.balance.level(1.0) == 450.0
    second = _charged(mirror, 2.0)
    mirror.observe(_told(500.0), second, 2.0, 2.0)
    assert mirror.balance.level(2.0) == 350.0


def test_a_reading_of_a_window_that_is_over_teaches_nothing() -> None:
    mirror = _window()
    snapshot = _charged(mirror, 59.0)
    mirror.observe(_told(0.0, reset_s=30.0), snapshot, 59.0, 61.0)
    assert mirror.balance.level(61.0) == 600.0
    assert mirror.balance.level(100.0) == 600.0


def test_an_edge_moves_only_by_more_than_its_rounding() -> None:
    mirror = _window()
    _charged(mirror, 1.0)
    mirror.observe(_told(500.0, reset_s=58.0), None, 1.0, 1.0)
    assert mirror.balance.level(59.5) == 500.0
    mirror = _window()
    _charged(mirror, 1.0)
    mirror.observe(_told(500.0, reset_s=30.0), None, 1.0, 1.0)
    assert mirror.balance.level(31.0 + RESET_MARGIN_S) == 600.0


def test_a_sliding_window_is_not_corrected_by_readings() -> None:
    mirror = _window("sliding")
    snapshot = _charged(mirror, 1.0)
    mirror.observe(_told(100.0), snapshot, 1.0, 1.0)
    assert mirror.balance.level(1.0) == 500.0
    assert mirror.read_s == 1.0


def test_what_is_left_is_what_the_response_says_or_what_we_believe() -> None:
    mirror = _mirror()
    other = LimitReading("output", 60.0, 600.0, 7.0, None)
    assert mirror.left(Reading((other, _told(30.0))), 0.0) == 30.0
    assert mirror.left(Reading((_told(None),)), 0.0) == 600.0
    assert mirror.left(Reading((other,)), 0.0) == 600.0


def test_a_refusal_empties_a_bucket_until_the_wait_that_it_names() -> None:
    mirror = _mirror()
    assert not mirror.refused(CALL, Reading(), 4.0, 0.0)
    assert mirror.balance.level(4.0) == pytest.approx(100.0)


def test_a_refusal_that_names_no_wait_costs_a_short_one() -> None:
    mirror = _mirror()
    assert not mirror.refused(CALL, Reading((_told(105.0),)), None, 0.0)
    assert mirror.balance.level(WAIT_UNTOLD_S) == pytest.approx(100.0)


def test_a_refusal_although_enough_is_left_hides_a_smaller_limit() -> None:
    mirror = _mirror()
    assert mirror.refused(CALL, Reading((_told(300.0),)), 4.0, 0.0)
    assert mirror.balance.level(0.0) == 600.0


def test_a_refusal_closes_an_aligned_window_until_the_wait_is_over() -> None:
    mirror = _window()
    assert not mirror.refused(CALL, Reading(), 4.0, 0.0)
    assert mirror.balance.level(4.0) == 0.0
    assert mirror.balance.level(4.0 + RESET_MARGIN_S) == 600.0


def test_a_refusal_fills_a_sliding_window() -> None:
    mirror = _window("sliding")
    assert not mirror.refused(CALL, Reading(), 4.0, 0.0)
    assert mirror.balance.level(0.0) == 0.0


def test_a_window_starts_the_next_run_without_a_burst() -> None:
    assert _window().as_profile() == replace(LEARNED, kind="fixed", source="profile")


def test_a_reading_is_about_the_limit_of_its_resource_and_period() -> None:
    assert is_about(LEARNED, _told(1.0))
    assert is_about(LEARNED, replace(_told(1.0), period_s=None))
    assert not is_about(LEARNED, replace(_told(1.0), period_s=3600.0))
    assert not is_about(LEARNED, replace(_told(1.0), resource="output"))


def test_a_reading_that_says_too_little_discovers_nothing() -> None:
    assert discover(_told(None), OPENAI) is None
    assert discover(_told(5.0, limit=None), OPENAI) is None


def test_a_bucket_is_discovered_with_the_burst_that_its_reset_implies() -> None:
    assert discover(_told(100.0, reset_s=20.0), ANTHROPIC) == replace(LEARNED, burst=300.0)
    assert discover(_told(100.0), OPENAI) == LEARNED


def test_a_reset_far_beyond_the_refill_discovers_a_window() -> None:
    assert discover(_told(590.0, reset_s=50.0), OPENAI) == replace(LEARNED, kind="fixed")


def test_the_kind_that_is_published_and_a_period_untold_are_taken_as_given() -> None:
    told = replace(_told(100.0), period_s=None)
    assert discover(told, GEMINI) == replace(LEARNED, kind="fixed")


TOKENS = Limit("tokens", 60_000.0, source="header")
RESERVING = Demand(Amounts(100.0, 50.0), Amounts(100.0, 900.0))
ANSWERED = Usage(Amounts(100.0, 20.0))


class Keeping:
    """A provider that gives reservations back, or does not, and its mirror; four calls a second."""

    def __init__(self, limit: Limit = TOKENS, *, keeps: bool = True) -> None:
        self.mirror = Mirror(Balance(limit, "reserved", 1.0, 0.0, 0.0))
        self.keeps = keeps
        self.left = limit.capacity
        self.rate_per_s = 0.0 if limit.kind == "fixed" else limit.rate_per_s
        self.now = 0.0

    def call(self, times: int, neighbour: float = 0.0) -> Mirror:
        for _ in range(times):
            self.now += 0.25
            self.left = min(TOKENS.capacity, self.left + self.rate_per_s / 4.0) - 1000.0 - neighbour
            snapshot = self.mirror.balance.charge(RESERVING, NO_STREAM, self.now)
            told = LimitReading("tokens", 60.0, TOKENS.amount, self.left, 60.0)
            self.mirror.observe(told, snapshot, self.now, self.now)
            self.mirror.balance.settle(RESERVING, NO_STREAM, self.now, ANSWERED, self.now)
            self.left += 0.0 if self.keeps else 880.0
        return self.mirror


@pytest.mark.parametrize("kind", ["bucket", "fixed"])
def test_reservations_that_do_not_come_back_are_kept_by_the_provider(kind: LimitKind) -> None:
    provider = Keeping(replace(TOKENS, kind=kind))
    assert not provider.call(8).balance.toll.keeps
    mirror = provider.call(6)
    assert mirror.balance.toll.keeps
    # What was missing was nobody's draw, and nothing is missing any more.
    shift = provider.call(20).balance.shift
    assert mirror.draw_per_s < 0.05 * TOKENS.rate_per_s
    assert provider.call(20).balance.shift == pytest.approx(shift, abs=1.0)
    assert mirror.balance.level(provider.now) == pytest.approx(provider.left, abs=1.0)


def test_reservations_that_come_back_are_not_kept() -> None:
    mirror = Keeping(keeps=False).call(40)
    assert not mirror.balance.toll.keeps
    assert mirror.balance.shift == pytest.approx(0.0)


def test_a_small_neighbour_does_not_keep_our_reservations() -> None:
    mirror = Keeping(keeps=False).call(40, neighbour=200.0)
    assert not mirror.balance.toll.keeps
    assert mirror.draw_per_s > 100.0


def test_a_provider_that_gives_them_back_after_all_is_believed() -> None:
    provider = Keeping()
    assert provider.call(20).balance.toll.keeps
    provider.keeps = False
    mirror = provider.call(20)
    assert not mirror.balance.toll.keeps
    assert mirror.balance.level(provider.now) == pytest.approx(provider.left, abs=1.0)


def test_what_calls_hold_and_give_back_is_told_until_it_is_known_to_be_kept() -> None:
    provider = Keeping(keeps=False)
    balance = provider.call(6).balance
    assert balance.holds() == pytest.approx(1000.0)
    nobody = balance.spare()
    assert nobody == balance.floor()
    for _ in range(3):
        balance.charge(RESERVING, NO_STREAM, provider.now)
    assert balance.spare() == pytest.approx(balance.floor() - 3 * 880.0)
    kept = Keeping().call(20).balance
    assert kept.toll.keeps
    assert kept.holds() == 0.0
    kept.charge(RESERVING, NO_STREAM, 9.0)
    assert kept.spare() == kept.floor()
