"""`headway advise` as people see it: a table, a sentence, reasons, a picture, clear refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headway.base.clock import today
from headway.base.values import Amounts, Budget, Limit, LimitReading, Spend
from headway.broker.store import Store
from headway.cli.main import main
from headway.pacing.account import Profile
from headway.pacing.memory import (
    AccountMemory,
    AccountTerms,
    Chronicle,
    ChronicleMemory,
    PacingMemory,
)

ACCOUNT = "api.anthropic.com#1a2b3c4d"


@pytest.fixture(autouse=True)
def nobody_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without a broker, who has never called anybody."""
    monkeypatch.setenv("HEADWAY_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("HEADWAY_RUNTIME_DIR", str(tmp_path / "runtime"))
    return tmp_path


def two_hours() -> ChronicleMemory:
    """Calls of two hours of the day, one four times as slow as the other."""
    chronicle, now = Chronicle(), 0.0
    for hour, per_token_s in ((3, 0.005), (12, 0.02)):
        for _ in range(60):
            chronicle.turn(hour, now)
            for _ in range(5):
                chronicle.answered(now, Amounts(100.0, 100.0), 0.5, 100.0 * per_token_s)
            now += 60.0
    return chronicle.memory(now)


def remember(folder: Path, budget: Budget = Budget(), hours: bool = False) -> None:
    """An account with 40 % of its tokens used, and 30,000 of them spent this month."""
    tokens = Limit("tokens", 200_000, kind="fixed", source="header")
    levels = (LimitReading("tokens", 60.0, 200_000, 120_000, 30.0),)
    profile = Profile((tokens,), first_byte_s=0.8, per_token_s=0.01)
    chronicle = two_hours() if hours else ChronicleMemory()
    lane = AccountMemory(
        ACCOUNT, "claude-sonnet-4", "anthropic", profile, levels, chronicle=chronicle
    )
    other = AccountMemory("api.openai.com#99", "gpt-5-mini", "openai", Profile())
    terms = (("", AccountTerms(budget=budget)),)
    days = (("", ((today(), Spend(30_000.0)),)),)
    memory = PacingMemory(month=today()[:7], terms=terms, accounts=(lane, other), days=days)
    assert Store(str(folder / "memory.dat")).write(memory) == ""


def told(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    assert main(["advise", *words, "--json"]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_the_documents_review_in_a_table_a_sentence_and_reasons(
    capsys: pytest.CaptureFixture[str], nobody_known: Path
) -> None:
    assert main(["advise", "--budget", "5M/month"]) == 0
    out = capsys.readouterr().out
    for words in (
        "one agent", "adaptive", "35k", "68k",
        "142", "73", "Use 4 agents: about 34 s and 68k tokens", "decided", "agrees",
        "Assumed:", "runs a month", "of the best possible speed",
    ):  # fmt: skip
        assert words in out
    assert not (nobody_known / "runtime").exists(), "a broker was started"


def test_one_agent_is_said_when_that_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", "--coupled", "--preset", "wide"]) == 0
    out = capsys.readouterr().out
    assert "Use one agent: about 1 min 24 s and 35k tokens" in out
    assert "decided    coupled -> one: 100% of the parts need what another one finds" in out
    assert "overruled  time and cost -> several" in out
    assert "(by coupled)" in out


def test_programs_get_all_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, "--views", "--off-peak", "--calls", "2")
    assert found["side"] == "several"
    assert str(found["recommendation"]).startswith("Use 4 agents")
    assert found["reasons"][0]["rule"] == "perspectives"  # type: ignore[index]
    assert len(found["options"]) == 2  # type: ignore[arg-type]
    assert found["situation"]["calls_each"] == 2  # type: ignore[index]


def test_what_was_learned_of_an_account_is_used_and_no_broker_is_started(
    capsys: pytest.CaptureFixture[str], nobody_known: Path
) -> None:
    remember(nobody_known, Budget(tokens=100_000.0))
    found = told(capsys, "--account", "api.anthropic.com", "--model", "anthropic/claude-sonnet-4-5")
    state = found["situation"]["state"]  # type: ignore[index]
    assert state["used"] == [["tokens/60s", pytest.approx(0.4, abs=0.01)]]
    options = found["options"]
    assert options[0]["foreseen"]["learned_from"] == f"{ACCOUNT} claude-sonnet-4"  # type: ignore[index]
    assert options[0]["foreseen"]["microusd"] is not None  # type: ignore[index]
    # 70,000 are left: several take 68,000 of them.
    assert found["reasons"][0]["rule"] == "limited budget"  # type: ignore[index]
    assert not (nobody_known / "runtime").exists()


def test_without_a_name_it_is_the_account_that_most_is_known_of(
    capsys: pytest.CaptureFixture[str], nobody_known: Path
) -> None:
    remember(nobody_known)
    found = told(capsys, "--agents", "2")
    assert found["options"][0]["foreseen"]["learned_from"].startswith("api.")  # type: ignore[index]


def test_the_account_is_the_one_that_a_run_would_ask(
    capsys: pytest.CaptureFixture[str], nobody_known: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    remember(nobody_known)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        "headway: 1\nmodel: openai/gpt-5-mini\ntasks:\n"
        "  look:\n    each: [a, b, c]\n    prompt: Look at {{ item }}\n"
    )
    for words in ((str(plan),), ("--model", "openai/gpt-5-mini")):
        one = told(capsys, *words)["options"][0]["foreseen"]  # type: ignore[index]
        # The account of this key was never used, whatever is known of others.
        assert one["account"].startswith("api.openai.com#")
        assert one["learned_from"] == "nothing"
    assert main(["advise", str(plan)]) == 0
    assert "On the account api.openai.com#" in capsys.readouterr().out


def test_peak_and_off_peak_differ_where_hours_are_known_and_are_said_not_to_be_where_not(
    capsys: pytest.CaptureFixture[str], nobody_known: Path
) -> None:
    times = {
        flag: told(capsys, "--preset", "off-peak", "--views", flag)["best"]["foreseen"]["time_s"]  # type: ignore[index]
        for flag in ("--peak", "--off-peak")
    }
    assert times["--peak"]["mid"] > 1.5 * times["--off-peak"]["mid"]
    found = told(capsys, "--preset", "trap", "--peak")["assumed"]
    assert "`trap` has no busy or quiet hours: times are the same at any hour" in found  # type: ignore[operator]
    remember(nobody_known)
    found = told(capsys, "--peak")["assumed"]
    assert "too few hours of this account are known" in str(found)
    remember(nobody_known, hours=True)
    slower = [
        told(capsys, "--account", ACCOUNT, flag)["situation"]["state"]["slowdown"]  # type: ignore[index]
        for flag in ("--peak", "--off-peak")
    ]
    assert slower == [pytest.approx(1.6, abs=0.05), pytest.approx(0.4, abs=0.05)]


def test_a_socket_that_was_left_behind_is_nobody(
    capsys: pytest.CaptureFixture[str], nobody_known: Path
) -> None:
    (nobody_known / "runtime").mkdir(mode=0o700)
    (nobody_known / "runtime" / "broker.sock").write_text("")
    remember(nobody_known)
    assert told(capsys, "--agents", "2")["side"] in ("one", "several")


def test_a_plan_has_its_own_sizes_and_the_command_line_the_last_word(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        "headway: 1\nmodel: openai/gpt-5-mini\ntasks:\n"
        "  look:\n    each: [a, b, c]\n    prompt: Look at {{ item }}\n"
    )
    found = told(capsys, str(plan))
    assert found["situation"]["agents"] == 3  # type: ignore[index]
    assert told(capsys, str(plan), "--tokens", "9k")["situation"]["tokens_each"] == 9000  # type: ignore[index]
    plan.write_text("headway: 1\ntasks:\n  list:\n    run: ls\n")
    assert main(["advise", str(plan)]) == 2
    assert "asks no model" in capsys.readouterr().err
    assert main(["advise", str(tmp_path / "none.yaml")]) == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--agents", "0"), "`--agents` is '0': it must be a whole number"),
        (("--agents", "inf"), "`--agents` is 'inf'"),
        (("--tokens", "many"), "`--tokens` is 'many': it must be a number of at least"),
        (("--tokens", "1k", "--output", "2k"), "nothing is left to read"),
        (("--budget", "much"), "is not a budget"),
        (("--account", "nobody"), "no account `nobody` was used here yet"),
        (("--views", "--slices"), "not allowed with"),
        (("--preset", "trpa"), "trap"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["advise", *words]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert "Traceback" not in err
