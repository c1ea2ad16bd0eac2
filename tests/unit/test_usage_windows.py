"""Usage windows: of a simulated account, told as a share; and who waits for them until when."""

from __future__ import annotations

from itertools import pairwise

import pytest

from headway.base.values import DAY_S, HOUR_S, Fault, Limit, LimitReading, Reading, Sketch
from headway.pacing.admission import Admission
from headway.pacing.call import Outcome, Request
from headway.pacing.headers import decode
from headway.pacing.memory import PacingMemory
from headway.pacing.windows import PROBE_S
from headway.sim.account import Needs, SimulatedAccount, Terms, UsageWindow
from headway.sim.headers import headers

FIVE_HOURS = UsageWindow(1000.0)
SHORT = UsageWindow(1000.0, lasts_s=10.0)


def test_a_window_counts_input_at_once_and_output_at_the_end() -> None:
    account = SimulatedAccount(Terms(windows=(FIVE_HOURS,)), 0.0)
    account.admit(Needs(200.0, 700.0), 0.0, "a")
    assert [one.utilization for one in account.readings(1.0)] == [0.2]
    account.finish(Needs(200.0, 700.0), 300.0, 2.0)
    assert [one.utilization for one in account.readings(2.0)] == [0.5]


def test_calls_are_let_in_while_anything_is_left_and_refused_until_the_window_ends() -> None:
    account = SimulatedAccount(Terms(windows=(SHORT,)), 3.0)
    account.admit(Needs(999.0, 0.0), 4.0, "a")
    assert account.shortage(Needs(500.0, 0.0), 5.0) is None
    account.admit(Needs(500.0, 0.0), 5.0, "b")
    assert account.shortage(Needs(1.0, 0.0), 6.0) == ("tokens", 13.0)
    [told] = account.readings(6.0)
    assert (told.period_s, told.utilization, told.reset_s) == (5 * HOUR_S, 1.0, 7.0)
    assert account.shortage(Needs(500.0, 0.0), 13.0) is None
    [told] = account.readings(13.0)
    assert (told.utilization, told.reset_s) == (0.0, 10.0)


def test_the_longest_wait_of_all_limits_is_the_one_that_is_told() -> None:
    terms = Terms((Limit("requests", 1),), windows=(UsageWindow(10.0, lasts_s=20.0),))
    account = SimulatedAccount(terms, 0.0)
    account.admit(Needs(10.0, 0.0), 0.0, "a")
    assert account.shortage(Needs(1.0, 0.0), 0.0) == ("requests", 60.0)
    assert account.shortage(Needs(1.0, 0.0), 19.0) == ("requests", 60.0)


def test_several_windows_are_reported_in_headers_of_anthropic_only() -> None:
    terms = Terms(windows=(FIVE_HOURS, UsageWindow(4000.0, "7d")))
    account = SimulatedAccount(terms, 0.0)
    account.admit(Needs(1000.0, 0.0), 0.0, "a")
    said = headers("anthropic", account.readings(60.0), 0.0, None)
    assert ("anthropic-ratelimit-unified-5h-status", "rejected") in said
    assert ("anthropic-ratelimit-unified-7d-utilization", "0.25") in said
    assert [(one.period_s, one.utilization) for one in decode(said, 0.0).limits] == [
        (5 * HOUR_S, 1.0), (7 * DAY_S, 0.25)
    ]  # fmt: skip
    assert len(headers("openai", account.readings(60.0), 0.0, None)) == 1


class Login:
    """An account with a login, asked by hand: one call at a time, for two models."""

    def __init__(self, dialect: str = "anthropic", memory: PacingMemory | None = None) -> None:
        self.dialect = dialect
        self.admission = Admission(memory or PacingMemory(), lambda model, now: None, 0.0)
        self.count = 0

    def asks(self, now: float, model: str = "claude-opus-4") -> bool:
        """Whether a call is sent at once."""
        self.count += 1
        id = ("c", self.count)
        self.admission.ask(id, Request("login#1", self.dialect, Sketch(model)), now)
        if self.admission.decide(now).grants:
            return True
        self.admission.leave(id)
        return False

    def hears(self, now: float, *windows: LimitReading, refused: bool = True) -> None:
        """The last call is answered, or refused, with these windows."""
        fault = Fault("rate") if refused else None
        outcome = Outcome("throttled" if refused else "used", fault=fault,
                          reading=Reading(windows), dialect=self.dialect)  # fmt: skip
        if not refused:
            self.admission.first_byte(("c", self.count), Reading(windows), self.dialect, now)
        self.admission.settle(("c", self.count), outcome, now)


def empty(name: str, reset_s: float | None, period_s: float | None = None) -> LimitReading:
    return LimitReading("tokens", period_s, None, None, reset_s, 1.0, name, is_empty=True)


SONNET = "claude-sonnet-4"


def test_an_empty_window_holds_all_models_until_its_reset_and_no_longer() -> None:
    login = Login("openai")
    assert login.asks(0.0)
    login.hears(1.0, empty("5h", 3.85 * HOUR_S))
    sent = [at for at in range(2, int(5 * HOUR_S), 5) if login.asks(float(at), SONNET)]
    assert 0.0 <= sent[0] - (1.0 + 3.85 * HOUR_S) <= 10.0


def test_a_window_of_one_model_holds_no_other() -> None:
    login = Login()
    assert login.asks(0.0)
    login.hears(1.0, empty("7d_oi", 2 * DAY_S), LimitReading(
        "tokens", 7 * DAY_S, None, None, 2 * DAY_S, 0.4, "7d"))  # fmt: skip
    assert not login.asks(2.0)
    assert login.asks(3.0, SONNET)
    login.hears(4.0, refused=False)
    (opus, sonnet) = login.admission.accounts
    assert [one.name for one in opus.account.allowances.statistics(5.0)] == ["7d_oi", "7d"]
    assert opus.account.allowances is sonnet.account.allowances


@pytest.mark.parametrize(("dialect", "probes"), [("anthropic", 16), ("openai", 0)])
def test_an_empty_window_is_tried_rarely_and_only_where_that_is_free(
    dialect: str, probes: int
) -> None:
    login = Login(dialect)
    assert login.asks(0.0)
    login.hears(0.0, empty("lunar", 4.1 * HOUR_S))
    tried: list[float] = []
    for at in range(1, int(4.1 * HOUR_S), 7):
        if login.asks(float(at)):
            tried.append(float(at))
            login.hears(at + 1.0, empty("lunar", 4.1 * HOUR_S - at - 1.0))
    assert len(tried) == probes
    assert all(late - early >= PROBE_S for early, late in pairwise(tried))


def test_a_window_that_was_filled_early_is_found_out_by_one_call() -> None:
    login = Login()
    assert login.asks(0.0)
    login.hears(0.0, empty("5h", 4 * HOUR_S))
    assert not login.asks(10.0)
    login.admission.refresh("login#1")
    assert login.asks(11.0)
    assert not login.asks(12.0)
    login.count -= 1
    login.hears(13.0, LimitReading("tokens", None, None, None, HOUR_S, 0.0, "5h"), refused=False)
    assert login.asks(14.0)


def test_a_window_that_is_only_remembered_is_tried_by_one_call() -> None:
    login = Login()
    assert login.asks(0.0)
    login.hears(0.0, empty("5h", 4 * HOUR_S))
    memory = login.admission.memory(1.0)
    later = Login(memory=memory)
    assert later.asks(5.0)
    assert not later.asks(6.0)


def test_what_is_used_beyond_the_plan_is_let_in_while_the_provider_does() -> None:
    login = Login()
    assert login.asks(0.0)
    used_up = LimitReading("tokens", 5 * HOUR_S, None, None, HOUR_S, 1.0, "5h")
    login.hears(1.0, used_up, refused=False)
    assert login.asks(2.0)


def test_an_answer_that_was_asked_for_before_a_refusal_opens_no_window() -> None:
    login = Login()
    assert login.asks(0.0)
    assert login.asks(0.0)
    login.hears(1.0, empty("5h", HOUR_S))
    login.count -= 1
    nearly = LimitReading("tokens", 5 * HOUR_S, None, None, HOUR_S, 0.99, "5h")
    login.hears(2.0, nearly, refused=False)
    login.count += 1
    assert not login.asks(3.0)
