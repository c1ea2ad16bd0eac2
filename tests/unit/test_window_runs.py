"""Runs over usage windows, in virtual time: what each takes of a window, and when it goes on."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from itertools import count, pairwise
from math import floor

import pytest
from msgspec.structs import replace

from headway.base.values import DAY_S, HOUR_S, Fault, LimitReading, Sketch, Tally
from headway.pacing.admission import Admission
from headway.pacing.call import CallId, Outcome, Request
from headway.pacing.headers import decode
from headway.pacing.memory import AccountTerms, PacingMemory
from headway.pacing.windows import PROBE_S, RUN_SHARES, Allowances, Shares, WindowState
from headway.report.forecast import across_windows
from headway.sim.account import Needs, SimulatedAccount, Terms, UsageWindow
from headway.sim.headers import headers

WALL_S = 1_800_000_000.59
"""Windows reset between two whole seconds; headers name whole ones."""
CALL = Needs(700.0, 300.0)
TOKENS = 1_000.0
FIRST_S, LAST_S = 0.5, 4.0
MODEL = "claude-sonnet-4"
WIDTH = 6


class Day:
    """Clients of one login: `ask` for calls of 1,000 tokens, then `go` on to a time."""

    def __init__(self, *windows: UsageWindow, voice: str = "anthropic") -> None:
        self.account = SimulatedAccount(Terms(windows=windows), 0.0)
        self.admission = Admission(PacingMemory(), lambda model, now: None, 0.0)
        self.voice, self.now = voice, 0.0
        self.shown: Callable[[LimitReading], LimitReading] = lambda told: told
        """What headers say of a window."""
        self.tally = Tally(700, 0, 300)
        self.sent: list[tuple[float, CallId, bool]] = []
        """When, which, and whether it was let in."""
        self.done: dict[str, list[float]] = {}
        self._left: dict[str, list[Request]] = {}
        self._numbers, self._turns = count(1), count()
        self._events: list[tuple[float, int, str, CallId]] = []

    def ask(self, run: str, calls: int, shares: Shares | None = None, model: str = MODEL) -> None:
        """So many calls, `WIDTH` of them at a time."""
        dialect = "openai" if self.voice == "codex" else "anthropic"
        sketch = Sketch(model, size_bytes=2_800, max_output_tokens=300)
        request = Request("login#1", dialect, sketch, (run,), window_shares=shares)
        self._left[run] = [request] * calls
        for _ in range(min(WIDTH, calls)):
            self._next(run)

    def _next(self, run: str) -> None:
        if self._left[run]:
            id = (run, next(self._numbers))
            self.admission.ask(id, self._left[run].pop(), self.now)

    def go(self, until_s: float) -> None:
        while True:
            decision = self.admission.decide(self.now)
            for granted in decision.grants:
                self._send(granted.id)
            at_s = min(decision.wake_s, self._events[0][0] if self._events else until_s)
            if decision.grants:
                continue
            if at_s > until_s or (at_s == until_s and not self._events):
                self.now = until_s
                return
            self.now = max(self.now, at_s)
            while self._events and self._events[0][0] <= self.now:
                self._happen(*heapq.heappop(self._events)[2:])

    def taken(self, run: str) -> float:
        """Of the first window, what the calls of a run that are done have really used."""
        begin_s = self.now - self.now % 18_000.0
        ended = [at for at in self.done.get(run, ()) if at >= begin_s]
        return len(ended) * TOKENS / self.account.terms.windows[0].tokens

    def window(self) -> WindowState:
        return self.admission.accounts[0].account.allowances.statistics(self.now)[0]

    def _later(self, after_s: float, what: str, id: CallId) -> None:
        heapq.heappush(self._events, (self.now + after_s, next(self._turns), what, id))

    def _send(self, id: CallId) -> None:
        needs = self._needs(id)
        is_in = self.account.shortage(needs, self.now) is None
        self.sent.append((self.now, id, is_in))
        if is_in:
            self.account.admit(needs, self.now, id[0])
            self._later(FIRST_S, "begin", id)
            self._later(LAST_S, "end", id)
        else:
            self._later(0.1, "refuse", id)

    def _needs(self, id: CallId) -> Needs:
        return replace(CALL, model=self.admission._calls[id].request.sketch.model)

    def _happen(self, what: str, id: CallId) -> None:
        readings = [self.shown(told) for told in self.account.readings(self.now)]
        lines = headers(self.voice, readings, WALL_S + self.now, None)
        reading, now = decode(lines, WALL_S + self.now), self.now
        dialect = "openai" if self.voice == "codex" else "anthropic"
        if what == "begin":
            self.admission.first_byte(id, reading, dialect, now)
        elif what == "end":
            self.account.finish(self._needs(id), 300.0, now)
            self.admission.settle(id, Outcome("used", self.tally, dialect=dialect), now)
            self.done.setdefault(id[0], []).append(now)
            self._next(id[0])
        else:
            fault = Fault("rate")
            outcome = Outcome("throttled", fault=fault, reading=reading, dialect=dialect)
            request = self.admission._calls[id].request
            self.admission.settle(id, outcome, now)
            self.admission.ask((id[0], next(self._numbers)), request, now)


@pytest.mark.parametrize("voice", ["anthropic", "codex"])
def test_over_a_day_of_five_hour_windows_no_call_meets_an_empty_one_but_the_probes(
    voice: str,
) -> None:
    day = Day(UsageWindow(100_000.0), UsageWindow(10e6, "7d"), voice=voice)
    day.ask("client", 450)
    day.go(DAY_S)
    assert len(day.done["client"]) == 450
    refused = [at for at, _, is_in in day.sent if not is_in]
    for reset_s in (5 * HOUR_S, 10 * HOUR_S, 15 * HOUR_S, 20 * HOUR_S):
        window = [at for at in refused if reset_s - 5 * HOUR_S <= at < reset_s]
        assert len(window) <= (5 * HOUR_S / PROBE_S if voice == "anthropic" else 1)
        assert all(late - early >= PROBE_S - 1e-3 for early, late in pairwise(window))
        assert not [at for at in window if at > reset_s - 2.0]
        woken = min(at for at, _, is_in in day.sent if is_in and at >= reset_s)
        assert woken - reset_s <= 10.0
    if voice == "codex":
        assert day.window().name == "5h"


def test_a_run_takes_its_share_of_a_window_and_other_clients_go_on() -> None:
    day = Day(UsageWindow(200_000.0))
    day.ask("warm", 10)
    day.go(60.0)
    day.ask("run", 200, (0.3, 0.3))
    day.go(1 * HOUR_S)
    assert 0.28 <= day.taken("run") <= 0.32
    waiting = next(call for call in day.admission._calls if call[0] == "run")
    wait = day.admission.why(waiting)
    assert wait is not None
    assert wait.reason == "usage window 5h: this run has used its 30% share"
    assert wait.until_s == pytest.approx(5 * HOUR_S, abs=2.0)
    day.ask("person", 60)
    day.go(2 * HOUR_S)
    assert len(day.done["person"]) == 60
    day.go(5 * HOUR_S + 10.0)
    assert min(at for at, id, _ in day.sent if id[0] == "run" and at > HOUR_S) <= 5 * HOUR_S + 10.0
    day.go(9 * HOUR_S)
    assert 0.28 <= day.taken("run") <= 0.32


def test_the_use_of_others_is_not_the_run_s() -> None:
    day = Day(UsageWindow(200_000.0))
    day.ask("warm", 10)
    day.go(60.0)
    day.ask("run", 10, (0.3, 0.3))
    day.go(HOUR_S)
    for _ in range(60):  # Elsewhere: no call of ours.
        day.account.admit(CALL, day.now, "other")
        day.account.finish(CALL, 300.0, day.now)
    day.ask("run", 200, (0.3, 0.3))
    day.go(2 * HOUR_S)
    assert 0.28 <= day.taken("run") <= 0.32


def test_two_runs_of_one_account_have_a_share_each_and_a_broker_that_restarts_goes_on() -> None:
    day = Day(UsageWindow(200_000.0))
    day.ask("warm", 10)
    day.go(60.0)
    day.ask("a", 100, (0.2, 0.2))
    day.ask("b", 100, (0.3, 0.3))
    day.go(HOUR_S)
    assert 0.18 <= day.taken("a") <= 0.23
    assert 0.28 <= day.taken("b") <= 0.33
    assert dict(day.window().runs)["a"] == pytest.approx(day.taken("a"), abs=0.03)
    memory, before = day.admission.memory(day.now), len(day.done["a"])
    day.admission = Admission(memory, lambda model, now: None, day.now)
    day.ask("a", 20, (0.2, 0.2))
    day.go(2 * HOUR_S)
    assert len(day.done["a"]) == before


def test_of_a_login_a_run_takes_most_of_a_short_window_and_half_of_a_long_one() -> None:
    short, long = Day(UsageWindow(100_000.0)), Day(UsageWindow(100_000.0, "7d"))
    for day, share in ((short, 0.8), (long, 0.5)):
        day.ask("warm", 6)
        day.go(60.0)
        day.ask("run", 100, RUN_SHARES)
        day.go(4 * HOUR_S)
        assert day.taken("run") == pytest.approx(share, abs=0.04)


OTHER = "claude-opus-4"
LUNAR = UsageWindow(400_000.0, "lunar", 2 * HOUR_S)


def test_a_window_of_an_unknown_name_holds_a_run_by_its_share_too() -> None:
    day = Day(LUNAR)
    day.ask("warm", 6)
    day.go(60.0)
    day.ask("run", 200, (0.3, 0.3))
    day.go(HOUR_S)
    assert 114 <= len(day.done["run"]) <= 120
    assert day.window().likely == (MODEL,)
    day.ask("other", 200, (0.3, 0.3), OTHER)
    day.go(2 * HOUR_S - 60.0)
    assert 114 <= len(day.done["other"]) <= 120
    assert day.window().likely == (OTHER, MODEL)
    day.go(2 * HOUR_S)
    day.ask("third", 1_500, (0.8, 0.8))
    for ended in (2, 3, 4):
        before = len(day.done.get("third", ()))
        day.go(ended * 2 * HOUR_S - 60.0)
        assert len(day.done["third"]) - before <= 320


def test_a_window_of_one_model_holds_no_run_on_another_one_that_is_used_beside_it() -> None:
    day = Day(replace(LUNAR, model=OTHER))
    day.ask("run", 300, (0.3, 0.3))
    day.ask("beside", 250, model=OTHER)
    day.go(HOUR_S)
    assert (len(day.done["run"]), len(day.done["beside"])) == (300, 250)
    assert day.window().likely == ()
    day.ask("other", 200, (0.3, 0.3), OTHER)
    day.go(2 * HOUR_S - 60.0)
    assert day.window().likely == (OTHER,)
    assert 114 <= len(day.done["other"]) <= 120


def test_a_window_that_others_used_up_holds_a_model_that_it_does_not_bind_for_one_call() -> None:
    day = Day(replace(LUNAR, model=OTHER))
    for share in (1, 40):
        for _ in range(share):  # Elsewhere, while a run uses another model.
            day.account.admit(replace(CALL, model=OTHER), day.now, "other")
            day.account.finish(replace(CALL, model=OTHER), 300.0, day.now)
        day.ask("client", 12)
        day.go(day.now + 30.0)
    assert day.window().likely == (MODEL,)
    while day.account.shortage(replace(CALL, model=OTHER), day.now) is None:
        day.account.admit(replace(CALL, model=OTHER), day.now, "other")
    began_s, before = day.now, len(day.done["client"])
    day.ask("client", 60)
    day.go(began_s + 120.0)
    assert len(day.done["client"]) == before + 60
    assert day.window().is_empty
    assert day.window().likely == ()


def test_calls_to_other_models_do_not_take_the_tries_of_an_empty_window() -> None:
    windows = Allowances()
    told = LimitReading("tokens", None, None, None, 9_000.0, 1.0, "7d_oi", is_empty=True)
    windows.observe(told, OTHER, True, 0.0, 1.0)
    windows.sent(MODEL, PROBE_S + 2.0)
    assert windows.wait(OTHER, 1.0, PROBE_S + 3.0) is None
    windows.sent(OTHER, PROBE_S + 4.0)
    assert windows.wait(OTHER, 1.0, PROBE_S + 5.0) is not None


def test_a_server_that_does_not_know_of_the_last_calls_begins_no_new_window() -> None:
    day, chance = Day(UsageWindow(400_000.0)), random.Random(3)

    def old(told: LimitReading) -> LimitReading:
        used = told.utilization or 0.0
        less = chance.uniform(0.0, 0.15) if chance.random() < 0.4 else 0.0
        return replace(told, utilization=max(0.0, used - less))

    day.shown = old
    day.ask("run", 400, (0.5, 0.5))
    day.go(4 * HOUR_S)
    assert 0.47 <= day.taken("run") <= 0.5


@pytest.mark.parametrize("voice", ["anthropic", "codex"])
def test_a_window_that_tells_a_reset_which_is_over_is_not_tried_every_second(voice: str) -> None:
    day = Day(UsageWindow(100_000.0), voice=voice)
    day.shown = lambda told: replace(told, reset_s=0.0) if told.is_empty else told
    day.ask("client", 150)
    day.go(5 * HOUR_S)
    tries = [at for at, _, is_in in day.sent if not is_in]
    # Those in flight, twice; then one call after 1, 2, 4, ... seconds.
    assert len(tries) <= 5 * HOUR_S / PROBE_S + 2 * WIDTH + 10
    assert all(late - early >= PROBE_S for early, late in pairwise(tries[2 * WIDTH + 10 :]))
    day.go(5 * HOUR_S + PROBE_S + 120.0)
    assert len(day.done["client"]) == 150


def test_a_run_goes_on_in_a_window_that_was_made_larger() -> None:
    day = Day(UsageWindow(100_000.0))
    day.ask("run", 100, (0.5, 0.5))
    day.go(HOUR_S)
    before = len(day.done["run"])
    day.account = SimulatedAccount(Terms(windows=(UsageWindow(200_000.0),)), 0.0)
    for _ in range(before):
        day.account.admit(CALL, day.now, "run")
        day.account.finish(CALL, 300.0, day.now)
    day.ask("client", 1)
    day.go(2 * HOUR_S)
    assert len(day.done["run"]) == before, "a single lower reading may be an old one"
    day.admission.refresh("login#1")
    day.ask("client", 1)
    day.go(3 * HOUR_S)
    assert 0.44 <= day.taken("run") <= 0.5


PLAN_SIZES = [*range(140_000, 220_000, 10_000), 166_700, 125_000]
"""Tokens in a window. Of the last two the plan fills its last window to the edge, or nearly."""


@pytest.mark.parametrize(("calls", "shares"), [(400, RUN_SHARES), (150, (0.3, 0.3))])
def test_a_plan_over_windows_ends_when_it_was_foreseen(calls: int, shares: Shares) -> None:
    certain = 0
    for size in PLAN_SIZES:
        day = Day(UsageWindow(float(size)))
        day.ask("warm", 80)
        day.go(60.0)
        windows, began_s = [day.window()], day.now
        busy_s = calls * LAST_S / WIDTH
        early, middle, late = [
            across_windows(busy_s, calls * TOKENS, windows, shares, 1.0, off)
            for off in (1.0, 0.0, -1.0)
        ]
        day.ask("run", calls, shares)
        day.go(2 * DAY_S)
        assert len(day.done["run"]) == calls
        took_s = day.done["run"][-1] - began_s
        needed = 1 + int(day.done["run"][-1] // (5 * HOUR_S))
        assert needed in (early[1][0], late[1][0])
        foreseen_s = early[0] if needed == early[1][0] else late[0]
        assert foreseen_s == pytest.approx(took_s, rel=0.1)
        if early[1] == late[1]:
            certain += 1
            assert middle[0] == pytest.approx(took_s, rel=0.1)
    assert certain >= 5


def test_a_run_waits_for_the_window_that_resets_last_and_never_ends_without_room() -> None:
    short = WindowState("5h", 5 * HOUR_S, 0.0, HOUR_S, 1_000.0, 0.1)
    long = WindowState("7d", 7 * DAY_S, 0.9, 2 * DAY_S, 5_000.0, 0.1)
    took_s, counts = across_windows(60.0, 20_000.0, [short, long], (1.0, 1.0), 1.0)
    # 5,000 are left of the week; then a window of 10,000 after another.
    assert 2 * DAY_S < took_s < 2 * DAY_S + 10 * HOUR_S
    assert counts[1] == 2
    assert across_windows(60.0, 20_000.0, [short], (1.0, 1.0), 0.0)[0] == float("inf")
    took_s, counts = across_windows(60.0, 500.0, [short], (1.0, 1.0), 1.0)
    assert (round(took_s, 6), counts) == (60.0, [1])


@pytest.mark.parametrize("size", [40_000.0, 60_000.0, 100_000.0, 400_000.0])
def test_what_is_reserved_of_a_window_is_left_though_much_of_it_is_in_flight(size: float) -> None:
    # Of the smallest one six calls take 15 %: at first nothing is known of its size.
    day = Day(UsageWindow(size))
    day.admission.configure("login#1", AccountTerms(reserve=0.2), 0.0)
    day.ask("fleet", 1_200)
    for window in range(1, 4):
        day.go(window * 5 * HOUR_S - 60.0)
        assert 0.78 - 2.0 * TOKENS / size <= day.taken("fleet") <= 0.80


def test_a_ceiling_holds_though_much_of_a_window_is_in_flight() -> None:
    day = Day(UsageWindow(60_000.0))
    day.admission.configure("login#1", AccountTerms(share=0.6), 0.0)
    day.ask("fleet", 1_200)
    for window in range(1, 4):
        day.go(window * 5 * HOUR_S - 60.0)
        # Nothing is known of its size before the first calls of the first window have ended.
        assert 0.55 <= day.taken("fleet") <= 0.6 + (TOKENS / 60_000.0) * (window == 1)
    (waiting, *_) = [call for call in day.admission._calls if day.admission.why(call) is not None]
    assert "the ceiling is 60%" in str(day.admission.why(waiting))


def test_calls_that_use_less_than_expected_do_not_make_a_window_look_larger() -> None:
    day = Day(UsageWindow(100_000.0))
    day.tally = Tally(400, 300, 300)
    day.admission.configure("login#1", AccountTerms(reserve=0.2), 0.0)
    day.ask("fleet", 300)
    day.go(4 * HOUR_S)
    assert day.window().size_tokens == pytest.approx(70_000.0, rel=0.03)
    assert 0.76 <= day.taken("fleet") <= 0.80


def test_what_a_run_used_before_an_idle_time_is_its_own() -> None:
    day = Day(UsageWindow(200_000.0))
    day.ask("run", 4, (0.3, 0.3))
    day.go(600.0)
    day.ask("run", 200, (0.3, 0.3))
    day.go(HOUR_S)
    assert 0.28 <= day.taken("run") <= 0.30


def test_a_call_that_waits_for_its_runs_share_can_leave() -> None:
    day = Day(UsageWindow(100_000.0))
    day.ask("run", 20, (0.05, 0.05))
    day.go(600.0)
    held = [id for id in day.admission.calls_of("run") if day.admission.why(id) is not None]
    assert len(held) == WIDTH
    for id in held:
        wait = day.admission.leave(id)
        assert wait is not None
        assert wait.resource == "usage/5h"
    assert day.admission.unsent == 0


def test_a_window_looks_no_larger_because_a_response_is_older_than_what_was_used() -> None:
    """It shows the share as it was when its call was sent, with 20 calls in flight."""
    windows, size, used = Allowances(), 20_000.0, 0.0
    events: list[tuple[float, str, float]] = []
    for number in range(60):
        at_s = number / 2.0
        events += [(at_s, "sent", 10.0), (at_s + 8.0, "began", at_s), (at_s + 10.0, "ended", 100.0)]
    shown: dict[float, float] = {}
    for at_s, what, amount in sorted(events):
        if what == "began":
            share = floor(100.0 * shown[amount]) / 100.0
            told = LimitReading("tokens", None, None, None, 9_000.0, share, "5h")
            windows.observe(told, "", False, amount, at_s)
            continue
        used += amount
        shown[at_s] = used / size
        windows.use("m", amount, "run", at_s)
    (state,) = windows.statistics(70.0)
    assert state.size_tokens == pytest.approx(size, rel=state.doubt)
    assert state.used_now == pytest.approx(used / size, abs=0.03)


def test_no_view_says_that_runs_took_more_of_a_window_than_is_used() -> None:
    """What calls in flight used before the first reading is counted by a size that is in doubt."""
    windows = Allowances()
    for share, sent_s in ((0.0, 0.0), (0.2, 10.0)):
        told = LimitReading("tokens", None, None, None, 9_000.0, share, "5h")
        windows.observe(told, "", False, sent_s, sent_s + 1.0)
        windows.use("m", 3_000.0, "one", sent_s + 5.0)
        windows.join("other", 3_000.0)
    (state,) = windows.statistics(20.0)
    assert sum(share for _, share in state.runs) > state.used_now + 0.2
    assert sum(share for _, share in state.shown().runs) == pytest.approx(state.used_now)
