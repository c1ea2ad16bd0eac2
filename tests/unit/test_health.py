"""Good, watch or bad, and at which hours."""

from __future__ import annotations

from math import inf

import pytest

from headway.base.values import Amounts, FaultKind, Limit, Wait
from headway.pacing.memory import Chronicle
from headway.pacing.view import AccountView, LimitView
from headway.report.health import (
    RECENT_MIN,
    USUAL_CALLS,
    Condition,
    Level,
    condition_of,
)
from headway.report.text.accounts import health_line

Answer = tuple[Amounts, float, float, int]

DAY_S = 86400.0
NOON = 12


def answer(times: float = 1.0, company: int = 4) -> Answer:
    return Amounts(1000.0, 100.0), 0.5 * times, 2.0 * times, company


class Account:
    """A chronicle that is lived through: a day of usual calls, then what a test adds at noon."""

    def __init__(self, usual: int = 200) -> None:
        self.chronicle = Chronicle()
        self.now_s = 0.0
        self.chronicle.turn(NOON, 0.0)
        for number in range(usual):
            self.chronicle.answered(number / 10.0, *answer())
        self.now_s = DAY_S
        self.chronicle.turn(NOON, self.now_s)

    def hour(self, hour: int, calls: int, answer: Answer, refused: int = 0) -> None:
        """An hour of the day, on a day of its own."""
        self.now_s += DAY_S
        self.chronicle.turn(hour, self.now_s)
        for _ in range(calls - refused):
            self.chronicle.answered(self.now_s, *answer)
        for _ in range(refused):
            self.chronicle.refused("rate", self.now_s)

    def answers(self, calls: int, answer: Answer) -> None:
        for _ in range(calls):
            self.chronicle.answered(self.now_s, *answer)

    def faults(self, calls: int, kind: FaultKind) -> None:
        for _ in range(calls):
            self.chronicle.refused(kind, self.now_s)

    def condition(
        self, hour: int = NOON, *limits: LimitView, wait: Wait | None = None
    ) -> Condition:
        lane = AccountView(
            "one", "model", "anthropic", 1.0, "fast", limits, inf, 0, 0, 0, wait, (),
            self.chronicle.memory(self.now_s),
        )  # fmt: skip
        return condition_of(lane, hour)


def use(resource: str, used: float, neighbours_per_s: float = 0.0) -> LimitView:
    limit = Limit(resource, 600.0)  # type: ignore[arg-type]
    return LimitView(limit, used, 1.0, neighbours_per_s)


def test_a_limit_that_is_all_used_is_good() -> None:
    here = Account()
    here.answers(50, answer())
    full = (use("requests", 590.0), use("input", 330.0))
    found = here.condition(NOON, *full, wait=Wait("requests/60s", 60.0, "every call counts"))
    assert (found.level, found.reasons) == ("good", ())


@pytest.mark.parametrize(
    ("refused", "kind", "level"),
    [(1, "rate", "good"), (2, "rate", "watch"), (2, "concurrency", "watch"), (9, "rate", "watch"),
     (12, "rate", "bad"), (1, "overload", "good"), (3, "overload", "watch"), (20, "server", "bad"),
     (50, "request", "good")],
)  # fmt: skip
def test_refusals_and_overload_are_alarms_and_a_single_one_is_not(
    refused: int, kind: FaultKind, level: Level
) -> None:
    here = Account()
    here.answers(90, answer())
    here.faults(refused, kind)
    found = here.condition()
    assert found.level == level
    assert bool(found.reasons) == (level != "good")


def test_reasons_say_how_many() -> None:
    here = Account()
    here.answers(80, answer())
    here.faults(12, "rate")
    here.faults(8, "concurrency")
    here.faults(2, "overload")
    here.faults(1, "timeout")
    found = here.condition()
    assert found.reasons == (
        "19.4% of calls were refused",
        "2.9% of calls found the provider overloaded or failing",
    )
    assert found.refused_share == pytest.approx(20 / 103)


@pytest.mark.parametrize(("times", "level"), [(1.4, "good"), (1.6, "watch"), (3.1, "bad")])
def test_answers_that_slow_down_are_alarms(times: float, level: Level) -> None:
    here = Account()
    here.answers(20, answer(times))
    found = here.condition()
    assert found.level == level
    assert found.slower == pytest.approx(times)
    if level != "good":
        assert found.reasons[0].startswith(f"answers come {times:.1f}x slower per token")
        assert found.reasons[1].startswith(f"first bytes come {times:.1f}x later")


def test_long_answers_are_not_slow_ones() -> None:
    here = Account()
    here.answers(20, (Amounts(1000.0, 4000.0), 0.5, 80.0, 4))
    assert here.condition().level == "good"
    assert here.condition().slower == pytest.approx(1.0)


def test_a_crowd_of_our_own_that_explains_it_is_named_and_never_bad() -> None:
    here = Account()
    here.answers(20, (Amounts(1000.0, 100.0), 0.5, 8.0, 16))
    found = here.condition()
    assert found.level == "watch"
    assert found.reasons[0].endswith(", with 16 in flight and usually 4")


def test_speed_is_not_compared_before_there_were_calls_enough() -> None:
    few = Account()
    few.answers(9, answer(5.0))
    assert few.condition().slower is None
    new = Account(usual=USUAL_CALLS - 1)
    new.answers(50, answer(5.0))
    assert new.condition().slower is None


def test_before_any_hour_is_known_the_minutes_before_are_what_is_usual() -> None:
    here = Account(usual=0)
    here.chronicle = Chronicle()
    here.now_s = 0.0
    here.answers(40, answer())
    here.now_s = 60.0 * (RECENT_MIN + 1)
    here.answers(20, answer(2.0))
    assert here.condition().slower == pytest.approx(2.0)


@pytest.mark.parametrize(("share", "level"), [(0.2, "good"), (0.3, "watch"), (0.6, "bad")])
def test_a_neighbour_who_takes_our_share_is_an_alarm(share: float, level: Level) -> None:
    taken = use("input", 100.0, share * 10.0)
    gauge = LimitView(Limit("concurrency", 5.0, 0.0, "gauge"), 1.0, None, 3.0)
    found = Account().condition(NOON, gauge, taken)
    assert found.level == level
    if level != "good":
        assert found.reasons == (f"others on the account take {share:.0%} of a limit",)


def test_an_account_that_takes_no_calls_is_bad() -> None:
    found = Account().condition(wait=Wait("account", inf, "billing: no credit"))
    assert found.reasons == ("the account takes no calls: billing: no credit",)
    assert found.level == "bad"


def test_hours_that_are_faster_are_advised_when_there_were_calls_enough_in_them() -> None:
    here = Account(usual=0)
    for hour in (20, 21, 22, 23, 0, 1, 2, 3, 4, 5, 6):
        here.hour(hour, 100, answer())
    for hour in (9, 10, 11, 13):
        here.hour(hour, 40, answer(1.8))
    here.hour(NOON, 40, answer(1.8), refused=2)
    found = here.condition()
    assert found.is_peak is True
    assert found.quiet is not None
    assert (found.quiet.from_hour, found.quiet.to_hour) == (20, 7)
    assert found.quiet.faster == pytest.approx(1.8)
    assert here.condition(22).is_peak is False
    assert here.condition(8).is_peak is None


def test_hours_with_fewer_refusals_are_better_unless_they_are_slower() -> None:
    here = Account(usual=0)
    here.hour(3, 50, answer())
    here.hour(NOON, 50, answer(), refused=5)
    found = here.condition()
    assert found.is_peak is True
    assert found.quiet is not None
    assert (found.quiet.from_hour, found.quiet.to_hour) == (3, 4)
    slower = Account(usual=0)
    slower.hour(3, 50, answer(1.2))
    slower.hour(NOON, 50, answer(), refused=5)
    assert slower.condition().quiet is None
    faster = Account(usual=0)
    faster.hour(3, 50, answer(), refused=5)
    faster.hour(NOON, 50, answer(2.0))
    assert faster.condition().quiet is None


def test_an_hour_that_was_quick_because_little_was_asked_of_it_is_no_advice() -> None:
    here = Account(usual=0)
    here.hour(3, 50, answer(company=1))
    here.hour(NOON, 50, answer(2.0, company=8))
    assert here.condition().quiet is None


def test_a_run_is_shown_the_worst_of_its_accounts_and_how_many_more_are_not_good() -> None:
    def lane(group: str, refused: int) -> AccountView:
        here = Account()
        here.answers(100, answer())
        here.faults(refused, "rate")
        memory = here.chronicle.memory(here.now_s)
        return AccountView(
            "one", group, "anthropic", 1.0, "fast", (), inf, 0, 0, 0, None, (), memory
        )

    assert health_line(()) == health_line((lane("well", 0),)) == ""
    shown = health_line((lane("well", 0), lane("a", 5), lane("b", 30)))
    assert shown == "bad: 23.1% of calls were refused (b); and 1 account more"
    assert health_line((lane("a", 5),)).startswith("watch: ")
