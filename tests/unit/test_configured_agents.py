"""Agents and MCP servers in the configuration, and plans that name them."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.config import Configuration, parsed, read_configuration, settings
from headway.errors import PlanValueError, StateFileError, UsageError
from headway.plans.load import plan_from
from headway.plans.spec import LOOP
from headway.run.agent_tasks import has_programs, must_be_known, must_be_there

BOTH = b"""
[agents.hermes]
command = "hermes -p @{prompt_file} --model {model}"
result = "last-json:data.text"
resume = ["hermes", "--resume", "{session}"]

[mcp.git]
command = ["git-mcp", "--stdio"]
environment = {TOKEN = "very secret"}

[mcp.web]
url = "https://mcp.test/sse"
"""


def test_tables_are_read_into_records() -> None:
    values = parsed(BOTH, "config.toml").values
    (hermes,) = values.agents
    assert hermes.command == ("hermes", "-p", "@{prompt_file}", "--model", "{model}")
    assert (hermes.result, hermes.resume[1]) == ("last-json:data.text", "--resume")
    git, web = values.mcp
    assert (git.command, git.environment) == (("git-mcp", "--stdio"), (("TOKEN", "very secret"),))
    assert (web.url, web.command) == ("https://mcp.test/sse", ())


def test_they_are_shown_without_what_is_secret(tmp_path: Path) -> None:
    (tmp_path / "headway").mkdir()
    (tmp_path / "headway" / "config.toml").write_bytes(BOTH)
    shown = {key: value for key, value, _ in settings({"XDG_CONFIG_HOME": str(tmp_path)})}
    assert shown["agents.hermes"] == "hermes -p '@{prompt_file}' --model '{model}'"
    assert (shown["mcp.git"], shown["mcp.web"]) == ("git-mcp --stdio", "https://mcp.test/sse")
    assert "secret" not in str(shown)
    assert "agents" not in shown


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("agents = 3", "has to be tables"), ("[agents]\nhermes = 3", "is no table"),
        ('[agents.claude]\ncommand = "x"', "cannot be named so"),
        ('[agents.tools]\ncommand = "x"', "cannot be named so"),
        ('[agents.Hermes]\ncommand = "x"', "cannot be named so"),
        ("[agents.hermes]", "[agents.hermes] has no `command`"),
        ('[agents.hermes]\ncommand = "x {y}"', "`{y}`"),
        ("[mcp.git]", "either a `command` or a `url`"),
        ('[mcp.git]\ncommand = "x"\nurl = "http://x"', "either a `command` or a `url`"),
        ('[mcp.git]\nurl = "file:///x"', "no address"), ("[mcp.git]\nurl = 3", "no address"),
        ('[mcp.git]\ncommand = "x"\nenvironment = {A = 1}', "not a table of texts"),
        ('[mcp.git]\ncomand = "x"', "`comand`"),
    ],
)  # fmt: skip
def test_a_table_that_will_not_do_is_refused_with_its_name(text: str, why: str) -> None:
    with pytest.raises(StateFileError) as raised:
        parsed(text.encode(), "config.toml")
    assert why in raised.value.message
    assert raised.value.hint


PLAN = """\
headway: 1
model: openai/gpt-5-mini
tasks:
  one:
    agent: {agent}
    prompt: Hello.
"""


def test_an_agent_that_nobody_knows_is_refused_with_its_place(tmp_path: Path) -> None:
    spec = plan_from(PLAN.format(agent="hermse"), tmp_path).expanded.spec
    with pytest.raises(PlanValueError) as raised:
        must_be_known(spec, parsed(BOTH, "").values)
    assert raised.value.where is not None
    assert raised.value.where.endswith(":5:12")
    assert raised.value.hint is not None
    assert "did you mean `hermes`?" in raised.value.hint
    with pytest.raises(PlanValueError):
        must_be_known(spec, Configuration())


def test_a_loop_is_no_program_and_its_servers_are_known(tmp_path: Path) -> None:
    spec = plan_from(PLAN.format(agent=f"{LOOP}(files, mcp:git)"), tmp_path).expanded.spec
    must_be_known(spec, parsed(BOTH, "").values)
    assert not has_programs(spec)
    assert not spec.tasks[0].is_command
    with pytest.raises(PlanValueError, match="MCP server `git`"):
        must_be_known(spec, Configuration())


def test_an_agent_that_is_not_installed_is_missed_before_anything_is_spent(tmp_path: Path) -> None:
    spec = plan_from(PLAN.format(agent="codex"), tmp_path, "plan.yaml").expanded.spec
    environ = {"PATH": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    assert read_configuration(environ).values == Configuration()
    with pytest.raises(UsageError, match="no `codex` on the PATH") as raised:
        must_be_there(spec, environ)
    assert raised.value.hint == "npm install -g @openai/codex"
    (tmp_path / "codex").write_text("#!/bin/sh\n")
    (tmp_path / "codex").chmod(0o755)
    must_be_there(spec, environ)
