"""A mirror follows a provider's limit: readings correct it, and the past is not replayed."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from headway.base.values import Amounts, Demand, Limit, LimitKind, LimitReading, Usage
from headway.pacing.balance import (
    Mirror,
    discover,
    is_about,
)
from headway.pacing.headers import ANTHROPIC, GEMINI, OPENAI, Dialect
from headway.pacing.limits import PlannedStream

NO_STREAM = PlannedStream(0.0, 0.0, 0.0)
LEARNED = Limit("input", 600.0, source="header")


def _mirror(limit: Limit) -> Mirror:
    return Mirror(limit, "produced", 1.0, 0.0, 0.0)


def _told(remaining: float | None, reset_s: float | None = None) -> LimitReading:
    return LimitReading("input", 60.0, 600.0, remaining, reset_s)


def test_a_changed_limit_changes_its_burst_in_proportion_and_is_kept_for_the_next_run() -> None:
    mirror = _mirror(replace(LEARNED, burst=60.0))
    mirror.observe(replace(_told(60.0), limit=1200.0), None, 1.0, 1.0)
    changed = replace(LEARNED, amount=1200.0, burst=120.0)
    assert (mirror.limit, mirror.count.size) == (changed, 120.0)
    assert mirror.as_profile() == replace(changed, source="profile")
    window = replace(LEARNED, kind="fixed")
    assert _mirror(window).as_profile() == replace(window, source="profile")


@pytest.mark.parametrize(
    ("told", "dialect", "found"),
    [
        (_told(None), OPENAI, None),
        (replace(_told(5.0), limit=None), OPENAI, None),
        (_told(100.0, 20.0), ANTHROPIC, replace(LEARNED, burst=300.0)),
        (_told(100.0), OPENAI, LEARNED),
        (_told(590.0, 50.0), OPENAI, replace(LEARNED, kind="fixed")),
        (replace(_told(100.0), period_s=None), GEMINI, replace(LEARNED, kind="fixed")),
    ],
)
def test_a_first_reading_shows_a_limit_its_kind_and_its_burst(
    told: LimitReading, dialect: Dialect, found: Limit | None
) -> None:
    assert discover(told, dialect) == found


def test_a_reading_is_about_the_limit_of_its_resource_and_period() -> None:
    told = _told(1.0)
    others = [replace(told, period_s=None), replace(told, period_s=3600.0)]
    readings = [told, *others, replace(told, resource="output")]
    assert [is_about(LEARNED, one) for one in readings] == [True, True, False, False]


TOKENS = Limit("tokens", 60_000.0, source="header")
RESERVING = Demand(Amounts(100.0, 50.0), Amounts(100.0, 900.0))
ANSWERED = Usage(Amounts(100.0, 20.0))


class Keeping:
    """A provider that gives reservations back, or does not, and its mirror; four calls a second."""

    def __init__(self, limit: Limit = TOKENS, *, keeps: bool = True) -> None:
        self.mirror = Mirror(limit, "reserved", 1.0, 0.0, 0.0)
        self.keeps = keeps
        self.left = limit.capacity
        self.rate_per_s = 0.0 if limit.kind == "fixed" else limit.rate_per_s
        self.now = 0.0

    def call(self, times: int, neighbour: float = 0.0) -> Mirror:
        for _ in range(times):
            self.now += 0.25
            self.left = min(TOKENS.capacity, self.left + self.rate_per_s / 4.0) - 1000.0 - neighbour
            snapshot = self.mirror.charge(RESERVING, NO_STREAM, self.now)
            told = LimitReading("tokens", 60.0, TOKENS.amount, self.left, 60.0)
            self.mirror.observe(told, snapshot, self.now, self.now)
            self.mirror.settle(RESERVING, NO_STREAM, self.now, ANSWERED, self.now)
            self.left += 0.0 if self.keeps else 880.0
        return self.mirror


@pytest.mark.parametrize("kind", ["bucket", "fixed"])
def test_reservations_that_do_not_come_back_are_kept_by_the_provider(kind: LimitKind) -> None:
    provider = Keeping(replace(TOKENS, kind=kind))
    assert not provider.call(8).toll.keeps
    mirror = provider.call(6)
    assert mirror.toll.keeps
    # What was missing was nobody's draw, and nothing is missing any more.
    shift = provider.call(20).shift
    assert mirror.draw_per_s < 0.05 * TOKENS.rate_per_s
    assert provider.call(20).shift == pytest.approx(shift, abs=1.0)
    assert mirror.level(provider.now) == pytest.approx(provider.left, abs=1.0)


def test_reservations_that_come_back_are_not_kept() -> None:
    mirror = Keeping(keeps=False).call(40)
    assert not mirror.toll.keeps
    assert mirror.shift == pytest.approx(0.0)


def test_a_small_neighbour_does_not_keep_our_reservations() -> None:
    mirror = Keeping(keeps=False).call(40, neighbour=200.0)
    assert not mirror.toll.keeps
    assert mirror.draw_per_s > 100.0


def test_a_provider_that_gives_them_back_after_all_is_believed() -> None:
    provider = Keeping()
    assert provider.call(20).toll.keeps
    provider.keeps = False
    mirror = provider.call(20)
    assert not mirror.toll.keeps
    assert mirror.level(provider.now) == pytest.approx(provider.left, abs=1.0)


def test_what_calls_hold_and_give_back_is_told_until_it_is_known_to_be_kept() -> None:
    provider = Keeping(keeps=False)
    balance = provider.call(6)
    assert balance.holds() == pytest.approx(1000.0)
    nobody = balance.spare()
    assert nobody == balance.floor()
    for _ in range(3):
        balance.charge(RESERVING, NO_STREAM, provider.now)
    assert balance.spare() == pytest.approx(balance.floor() - 3 * 880.0)
    kept = Keeping().call(20)
    assert kept.toll.keeps
    assert kept.holds() == 0.0
    kept.charge(RESERVING, NO_STREAM, 9.0)
    assert kept.spare() == kept.floor()
