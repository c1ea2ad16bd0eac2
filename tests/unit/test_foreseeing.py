"""Forecasts of real plans: accounts, budgets, prices, and what earlier runs of commands showed."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from headway.base.folders import folders
from headway.base.values import Budget, Spend
from headway.broker.store import Store, StoredMemory
from headway.config import configuration_path
from headway.engine.events import Ending, Event, RunBegan, RunFinished, TaskFinished, TaskStarted
from headway.engine.strategy import Strategy
from headway.errors import BadValueError
from headway.journal.folder import list_runs
from headway.pacing import memory as learned
from headway.pacing.account import Profile
from headway.pacing.memory import AccountMemory, AccountTerms, PacingMemory
from headway.pacing.windows import RUN_SHARES, WindowState
from headway.plans.graph import TaskGroup
from headway.plans.load import plan_from
from headway.report.forecast import MONEY, Depth
from headway.report.text.forecast import late_words, start_words
from headway.run.forecasts import (
    RUN_BUDGET,
    PlannedStart,
    Prospect,
    earlier_plans,
    known_account,
    prospect_of,
    start_of,
)
from headway.run.plan_run import ObservedTasks, PlanSource
from tests.unit.viewed import live_run

QUICKLY = Depth(8, 30, 10, 20)
MODEL = "anthropic/claude-haiku-4-5"
TASKS = """\
  ask:
    each: [a, b, c, d, e, f]
    prompt: "About {{ item }}"
    max_tokens: 100
"""


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    return {
        "HEADWAY_STATE_DIR": str(tmp_path / "state"), "HEADWAY_RUNTIME_DIR": str(tmp_path / "run"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"), "ANTHROPIC_API_KEY": "k",
    }  # fmt: skip


def prospect(
    home: dict[str, str], folder: Path, tasks: str = TASKS, budget: Budget | None = None,
    model: str = MODEL,
) -> Prospect:  # fmt: skip
    plan = plan_from(f"headway: 1\nmodel: {model}\ntasks:\n{tasks}", folder)
    return prospect_of(plan.expanded, folder / "plan.yaml", home, budget)


def test_a_plan_that_nobody_ran_is_foreseen_from_what_is_usual(
    home: dict[str, str], tmp_path: Path
) -> None:
    found = prospect(home, tmp_path)
    assert found.knowledge.seen == {}
    assert found.knowledge.learned_from == ""
    assert found.assumed == ()
    foreseen = found.foresee(Strategy("fixed", 2), QUICKLY)
    assert (foreseen.tasks, foreseen.strategy, foreseen.portions) == (6, "fixed:2", ())
    assert foreseen.microusd is not None
    assert foreseen.budget_width is None


def test_of_several_models_the_one_with_most_calls_is_the_account(
    home: dict[str, str], tmp_path: Path
) -> None:
    more = TASKS + "  sum:\n    reduce: ask\n    model: nobody/sells-this\n    prompt: Sum up.\n"
    found = prospect(home, tmp_path, more)
    assert found.assumed == (f"all calls are taken to draw on the account of {MODEL}",)
    foreseen = found.foresee(Strategy("fixed", 2), QUICKLY)
    assert foreseen.microusd is None
    assert foreseen.unpriced == ("nobody/sells-this",)
    assert foreseen.assumed[0] == found.assumed[0]


def test_budgets_are_those_of_the_month_the_account_and_the_run(
    home: dict[str, str], tmp_path: Path
) -> None:
    budget = Budget(microusd=1_000_000, tokens=50_000)
    found = prospect(home, tmp_path, budget=budget)
    terms = AccountTerms(budget=Budget(tokens=1e6, microusd=2_000_000))
    tight = AccountTerms(budget=Budget(tokens=9e6))
    memory = PacingMemory(
        month="2026-11", terms=(("", terms), (found.account, tight), ("somebody else", tight)),
        days=(("", (("2026-11-02", Spend(4e5, 500_000)),)),),
    )  # fmt: skip
    portions = replace(found, memory=memory).foresee(Strategy("fixed", 2), QUICKLY).portions
    assert [(one.name, one.of, one.used) for one in portions] == [
        ("tokens of all accounts in 2026-11", 1e6, 4e5),
        (f"{MONEY} of all accounts in 2026-11", 2_000_000, 500_000),
        (f"tokens of {found.account} in 2026-11", 9e6, 0.0),
        (f"tokens of {RUN_BUDGET}", 50_000, 0.0),
        (f"{MONEY} of {RUN_BUDGET}", 1_000_000, 0),
    ]
    assert all(one.takes.mid > 0.0 for one in portions)


def test_usage_windows_are_foreseen_by_what_was_used_of_them(
    home: dict[str, str], tmp_path: Path
) -> None:
    found = prospect(home, tmp_path, budget=Budget(tokens=100_000))
    windows = (
        WindowState("5h", 18_000.0, 0.4, 3_600.0, 50_000.0, 0.1),
        WindowState("7d", 7 * 86_400.0, 0.2, 9e4),
    )
    memory = replace(found.knowledge.memory, windows=windows)
    known = replace(found, knowledge=replace(found.knowledge, memory=memory, age_s=600.0))
    foreseen = known.foresee(Strategy("fixed", 6), QUICKLY)
    assert foreseen.budget_width is None
    tokens, window = foreseen.portions
    assert window.name == f"5h window of {found.account}"
    assert (window.of, window.used, window.resets_s) == pytest.approx((5e5, 2e5, 3_000.0))
    assert tokens.takes.mid == window.takes.mid
    # How large it is is known to a tenth.
    assert window.takes.high == pytest.approx(1.1 * tokens.takes.high)
    assert window.takes.low == pytest.approx(0.9 * tokens.takes.low)
    said = f"the 7d window of {found.account}, 20% used, is taken to be large enough"
    assert said in foreseen.assumed


def test_a_budget_may_let_only_a_few_calls_be_in_flight(
    home: dict[str, str], tmp_path: Path
) -> None:
    """Six calls of 100 tokens at most: a budget of 250 tokens holds two of them at once."""
    narrow = prospect(home, tmp_path, budget=Budget(tokens=250)).foresee(
        Strategy("fixed", 6), QUICKLY
    )
    assert narrow.budget_width == 2
    wide = prospect(home, tmp_path, budget=Budget(tokens=100_000)).foresee(
        Strategy("fixed", 6), QUICKLY
    )
    assert wide.budget_width is None
    # A call costs at most 100 x 5 and a little micro-dollars.
    money = prospect(home, tmp_path, budget=Budget(microusd=1_200)).foresee(
        Strategy("fixed", 6), QUICKLY
    )
    assert money.budget_width == 2
    none = prospect(home, tmp_path, "  build:\n    run: make\n", Budget(tokens=5))
    assert none.foresee(Strategy("fixed", 6), QUICKLY).budget_width is None


def test_an_account_is_known_by_its_host_and_key(home: dict[str, str]) -> None:
    blank, account = known_account(MODEL, StoredMemory(PacingMemory()), home)
    assert (blank.memory.account, blank.memory.group) == (account, "claude-haiku-4")
    assert blank.memory.dialect == "anthropic"
    known = AccountMemory(account, "claude-haiku-4", "anthropic", Profile(width=9.0))
    share = AccountTerms(share=0.5)
    kept = StoredMemory(PacingMemory(terms=((account, share),), accounts=(known,)), age_s=3.0)
    account_known, _ = known_account(MODEL, kept, home)
    assert (account_known.memory, account_known.terms, account_known.age_s) == (known, share, 3.0)
    other, _ = known_account(MODEL, kept, home | {"ANTHROPIC_API_KEY": "another"})
    assert other.memory.profile == Profile()


@pytest.mark.parametrize("model", ["", "{{ vars.model }}", "openai/"])
def test_a_model_that_nobody_can_ask_has_no_account(home: dict[str, str], model: str) -> None:
    unknown, account = known_account(model, StoredMemory(PacingMemory()), home)
    assert account == ""
    assert unknown.memory.dialect == "plain"


def test_commands_teach_their_own_plan_only_and_each_call_once(
    home: dict[str, str], tmp_path: Path
) -> None:
    facts: list[Event] = [RunBegan(0.0, "adaptive")]
    ended = Ending(b"", b"", 900.0, 90.0, calls=1)
    for task in range(2):
        facts += TaskStarted(task, 1, 1.0, "room"), TaskFinished(task, 1, 3.0, ended)
    groups, path = [TaskGroup("look", 2, is_local=True)], str(tmp_path / "plan.yaml")
    with live_run(tmp_path / "state", groups, ["look[a]", "look[b]"], *facts) as run:
        plan = plan_from("headway: 1\ntasks:\n  look: {each: [a, b], run: ls}\n", tmp_path)
        PlanSource(path, "").save(run.journal, plan.expanded.sources)
        ObservedTasks({"look": ("", 2)}, {}).keep(run.journal)
        run.tell(RunFinished(4.0, 2, 0))
    runs = list_runs(str(tmp_path / "state"))
    own = earlier_plans(runs, path, lambda *_: False)
    assert {name: len(seen) for name, seen in own.seen.items()} == {"look": 2}
    assert earlier_plans(runs, str(tmp_path / "other.yaml"), lambda *_: False).seen == {}


NOON_S = datetime(2026, 11, 18, 12, 30).timestamp()
BUSY = learned.Spell(answered=60, rate=40, output_tokens=6_000, begun=60, first_byte_us=6e7)
QUIET = learned.Spell(answered=100, output_tokens=10_000, begun=100, first_byte_us=5e7)


def store(
    home: dict[str, str], folder: Path, *windows: WindowState, quiet: tuple[int, ...] = ()
) -> None:
    """What a broker has stored: usage windows, and hours of the day of which some are `quiet`."""
    hours = [(0, hour, QUIET if hour in quiet else BUSY) for hour in range(24)]
    lane = AccountMemory(
        prospect(home, folder).account, learned.model_group("claude-haiku-4-5"), "anthropic",
        Profile(), chronicle=learned.ChronicleMemory(hours=tuple(hours)), windows=windows,
    )  # fmt: skip
    os.makedirs(os.path.dirname(folders(home).memory), exist_ok=True)
    Store(folders(home).memory).write(PacingMemory(accounts=(lane,)))


def start(home: dict[str, str], folder: Path, by: str | None, quiet: bool = False) -> PlannedStart:
    text = f"headway: 1\nmodel: {MODEL}\ntasks:\n{TASKS}"
    source = PlanSource(str(folder / "plan.yaml"), text)
    return start_of(plan_from(text, folder).expanded, source, home, by, quiet, NOON_S)


def test_a_run_takes_more_of_a_window_to_end_in_time_and_is_refused_where_that_is_too_little(
    home: dict[str, str], tmp_path: Path
) -> None:
    tokens = prospect(home, tmp_path).foresee(Strategy("adaptive"), QUICKLY).tokens.high
    store(home, tmp_path, WindowState("5h", 18_000.0, 0.0, 18_000.0, 0.55 * tokens, 0.5))
    # A window holds 1.1 times the plan: with the usual share it needs two.
    assert start(home, tmp_path, "in 6h").shares == RUN_SHARES
    assert start(home, tmp_path, "in 4h").shares == pytest.approx((0.95, 0.95))
    soon = start(home, tmp_path, "in 2s")
    assert soon.is_late
    assert soon.shares == (1.0, 1.0)
    message, hint = late_words(soon)
    assert message.startswith("the plan cannot end by 2026-11-18 12:30, even with all of each")
    assert hint == "--finish-by '2026-11-18 12:30'"
    (line,) = start_words(replace(start(home, tmp_path, None), shares=(0.9, 0.9)))
    assert line.startswith("takes up to 90% of each usage window shorter than a day and 90%")


def test_a_forecast_knows_the_windows_of_an_account_from_all_of_its_models(
    home: dict[str, str], tmp_path: Path
) -> None:
    used = WindowState("5h", 18_000.0, 0.5, 3_600.0, 50_000.0, 0.1)
    other = (learned.model_group("claude-haiku-4-5"),)
    names = ("7d_oi", "lunar")
    binds = replace(used, name=names[0], models=other), replace(used, name=names[1], likely=other)
    store(home, tmp_path, used, *binds)
    found = prospect(home, tmp_path, model="anthropic/claude-sonnet-4-5").foresee(
        Strategy("adaptive"), QUICKLY
    )
    assert [one.name.partition(" ")[0] for one in found.portions] == ["5h"]
    assert found.portions[0].resets_s == pytest.approx(3_600.0, abs=60.0)
    found = prospect(home, tmp_path).foresee(Strategy("adaptive"), QUICKLY)
    assert [one.name.partition(" ")[0] for one in found.portions] == ["5h", *names]


def test_a_run_waits_for_quiet_hours_unless_it_could_not_end_in_time(
    home: dict[str, str], tmp_path: Path
) -> None:
    store(home, tmp_path, quiet=(20, 21, 22))
    assert start(home, tmp_path, None).at_s == NOON_S
    assert start(home, tmp_path, None, quiet=True).at_s == NOON_S + 7.5 * 3_600.0
    assert start(home, tmp_path, "21:00", quiet=True).at_s == NOON_S + 7.5 * 3_600.0
    early = start(home, tmp_path, "18:00", quiet=True)
    assert early.time_s is not None
    assert early.at_s == pytest.approx(NOON_S + 5.5 * 3_600.0 - early.time_s.high)
    store(home, tmp_path)
    assert start(home, tmp_path, None, quiet=True).quiet_s is None


@pytest.mark.parametrize(
    ("hours", "begins_h"), [(None, 9.5), ('"18-2"', 5.5), ('"10-14"', None), ('"7"', ValueError)]
)
def test_hours_that_are_set_are_quiet_while_the_account_is_not_known(
    home: dict[str, str], tmp_path: Path, hours: str | None, begins_h: float | type | None
) -> None:
    if hours is not None:
        path = Path(configuration_path(home))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"quiet_hours = {hours}\n", encoding="utf-8")
    if begins_h is ValueError:
        with pytest.raises(BadValueError, match="hours of a day"):
            start(home, tmp_path, None, quiet=True)
        return
    found = start(home, tmp_path, None, quiet=True)
    wait_h = None if found.quiet_s is None else (found.quiet_s - NOON_S) / 3_600.0
    assert wait_h == begins_h
