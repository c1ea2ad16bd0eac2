"""How far callers of the MCP server may go: folders, runs, budgets, arguments."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.base.values import Budget
from headway.engine.record import Header
from headway.errors import BadValueError, UsageError
from headway.journal.folder import new_run
from headway.journal.journal import Journal
from headway.mcp import service as handover
from headway.mcp.service import McpSettings, Service
from headway.mcp.tools import TOOLS


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADWAY_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


def run_in(home: Path, folder: Path, now_s: float) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    place = new_run(str(home / "state"), now_s)
    header = Header(place.id, "n", "plan", "{}", str(folder), 1, now_s)
    Journal.create(place.folder, header).close()
    return place.id


def test_a_plans_folder_is_inside_whatever_way_it_is_named(home: Path) -> None:
    (home / "root" / "in").mkdir(parents=True)
    (home / "root" / "out").symlink_to(home)
    (home / "rootless").mkdir()
    settings = McpSettings(str(home / "root"))
    assert settings.folder("") == home / "root"
    assert settings.folder("in") == settings.folder(str(home / "root" / "in"))
    for name in ("..", "../rootless", "out", "out/rootless", "/", "in/../..", "missing", "a\0"):
        with pytest.raises(BadValueError):
            settings.folder(name)
    assert McpSettings("/").folder(str(home)) == home


def test_runs_of_other_folders_are_not_there_unless_the_user_says_so(home: Path) -> None:
    inside = run_in(home, home / "root" / "deep", 1e9)
    outside = run_in(home, home / "rootless", 2e9)
    settings = McpSettings(str(home / "root"))
    assert settings.run(inside).id == settings.run("last").id == inside
    for word in (outside, outside[:8], "", "nothing"):
        with pytest.raises(UsageError, match="no run of this folder") as caught:
            settings.run(word)
        assert inside in str(caught.value.hint)
        assert outside not in str(caught.value.hint)
    every = McpSettings(str(home / "root"), sees_every_run=True)
    assert every.run(outside).id == every.run("last").id == outside


def test_one_run_gets_no_more_than_the_user_said() -> None:
    settings = McpSettings("/", most=Budget(microusd=2_000_000))
    assert settings.budget("$2") == Budget(microusd=2_000_000)
    for text in ("$2.01", "500k"):
        with pytest.raises(BadValueError, match="within the \\$2"):
            settings.budget(text)
    assert McpSettings("/", most=Budget(tokens=10**6)).budget("1M") == Budget(tokens=10**6)


def test_arguments_are_checked_before_anything_is_done(home: Path) -> None:
    service = Service(McpSettings(str(home)))
    tools = {tool.name: tool for tool in TOOLS}
    for name, given, words in (
        ("run_status", {}, "missing required field `run`"),
        ("run_status", {"run": 5}, "Expected `str`, got `int` - at `\\$.run`"),
        ("check_plan", {"plan": "x" * 1_000_001}, "length <= 1000000"),
        ("run_results", {"run": "x", "limit": 0}, "`int` >= 1"),
        ("run_results", {"run": "x", "limit": True}, "got `bool`"),
        ("cancel_run", {"run": "x", "now": "yes"}, "Expected `bool`"),
        ("cancel_run", {"run": "x", "nwo": True}, "unknown field `nwo`"),
        ("submit_plan", {"plan": "x"}, "missing required field `budget`"),
        ("submit_plan", {"plan": "x", "budget": 2}, "Expected `str`"),
        ("check_plan", {"plan": "x", "folder": "\ud800"}, "cannot be the name of a folder"),
        ("check_plan", {"plan": "x", "folder": "\0"}, "cannot be the name of a folder"),
        ("check_plan", {"plan": "x", "model": "openai/{{ vars.x }}"}, "the name of a model"),
        ("submit_plan", {"plan": "x", "budget": "5k", "model": "a\ud800"}, "the name of a model"),
    ):
        with pytest.raises(BadValueError, match=words) as caught:
            tools[name].call(service, given)
        assert caught.value.hint


def test_a_run_whose_process_never_came_to_it_says_why(home: Path) -> None:
    run = run_in(home, home / "root", 1e9)
    log = home / "state" / "runs" / run / "process.log"
    service = Service(McpSettings(str(home / "root")))
    assert service.run_status(run)["waits_for"] == ""
    log.write_text("Traceback\nerror[HW100]: there is no \x1b[1mkey\n\n")
    status = service.run_status(run)
    assert (status["state"], status["is_over"]) == ("new", True)
    assert status["waits_for"] == "error[HW100]: there is no key"
    assert service.cancel_run(run)["accepted"] is False
    assert service.run_results(run)["results"] == []


def test_a_server_starts_only_so_many_runs_at_once(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "ALIVE_MAX", 0)
    service = Service(McpSettings(str(home), sim=""))
    plan = "headway: 1\nmodel: openai/m\ntasks: {t: {prompt: x}}\n"
    with pytest.raises(UsageError, match="go on already") as caught:
        service.submit_plan(plan, "10k")
    assert "cancel_run" in (caught.value.hint or "")
    assert not (home / "state" / "runs").exists()


def test_a_journal_that_cannot_be_read_hides_no_other(home: Path) -> None:
    good = run_in(home, home / "root", 1e9)
    bad = run_in(home, home / "root", 2e9)
    for file in (home / "state" / "runs" / bad).iterdir():
        file.write_bytes(b"spoilt")
    assert McpSettings(str(home / "root")).run("last").id == good
