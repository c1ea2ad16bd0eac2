"""What the agents of a plan may do: what their user's settings allow, and what the plan adds."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.promises.user import SOON_S, User, speak, user

STAND_IN = Path(__file__).parent / "stand_in.py"
AGENTS = ("claude", "codex", "opencode", "gemini")

RAISING = {
    "--permission-mode", "--allowedTools", "--allowed-tools", "--dangerously-skip-permissions",
    "--sandbox", "-s", "--full-auto", "--dangerously-bypass-approvals-and-sandbox", "--auto",
    "--approval-mode", "--yolo", "-y", "--skip-trust", "--policy",
}  # fmt: skip
"""Options of the four programs by which they may do more."""

NOTHING: dict[str, dict[str, Any]] = {agent: {} for agent in AGENTS}

HERMES = '[agents.hermes]\ncommand = "hermes --fast"\nresult = "json:text"\n'


@pytest.fixture
def someone(tmp_path: Path) -> Iterator[User]:
    """A user with four agents and one of their own, which write down how they are started."""
    programs, record = tmp_path / "bin", tmp_path / "record"
    programs.mkdir()
    record.mkdir()
    for name in (*AGENTS, "hermes"):
        program = programs / name
        program.write_text(f"#!{sys.executable} -S\n" + STAND_IN.read_text())
        program.chmod(0o755)
    more = {"PATH": f"{programs}:/usr/bin:/bin", "RECORD": str(record), "GEMINI_API_KEY": "none"}
    with user(tmp_path, more) as found:
        for name in ("CLAUDECODE", "IS_SANDBOX", "XDG_CONFIG_HOME"):
            found.env.pop(name, None)
        yield found


CONFIG = ".config/headway/config.toml"


def write(someone: User, name: str, text: str) -> None:
    """A file of the user's home; headway's own configuration where the environment places it."""
    path = someone.root / "home" / name
    if name == CONFIG and "HEADWAY_CONFIG_DIR" in someone.env:
        path = Path(someone.env["HEADWAY_CONFIG_DIR"]) / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def plan_of(agent: str, permissions: str = "", top: str = "") -> str:
    given = f"    permissions: {permissions}\n" if permissions else ""
    return f"headway: 1\n{top}tasks:\n  fix:\n    agent: {agent}\n{given}    prompt: Mend it.\n"


def all_four(permissions: str = "", top: str = "") -> str:
    """A plan with a task for each of the four."""
    given = f", permissions: {permissions}" if permissions else ""
    tasks = "".join(f"  t-{one}: {{agent: {one}, prompt: Mend it.{given}}}\n" for one in AGENTS)
    return f"headway: 1\n{top}tasks:\n{tasks}"


def starts(someone: User) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in (someone.root / "record").iterdir()]


def done(someone: User, *words: str) -> dict[str, dict[str, Any]]:
    """Let headway do something; how the programs were started that it started, by their names."""
    before = starts(someone)
    ended = someone.headway(*words)
    assert ended.returncode == 0, ended.stderr
    return {one["name"]: one for one in starts(someone) if one not in before}


def performed(someone: User, plan: str, *words: str) -> dict[str, dict[str, Any]]:
    """Perform a plan; how its agents were started, by their names."""
    someone.write("plan.yaml", plan)
    return done(someone, "run", "plan.yaml", "--yes", *words)


def raised(start: dict[str, Any]) -> dict[str, Any]:
    """The options and variables by which a program may do more."""
    argv = start["argv"]
    options = {one: argv[place + 1 : place + 2] for place, one in enumerate(argv) if one in RAISING}
    configured = [one for one in argv if "sandbox" in one and "=" in one]
    variables = ("OPENCODE_PERMISSION", "GEMINI_CLI_TRUST_WORKSPACE")
    told = {name: start["environ"][name] for name in variables if name in start["environ"]}
    return {**options, **told, **dict.fromkeys(configured)}


def all_raised(found: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name: raised(start) for name, start in found.items()}


def test_agents_are_started_without_any_option_that_gives_rights(someone: User) -> None:
    assert all_raised(performed(someone, all_four())) == NOTHING


@pytest.mark.parametrize("how", [(), ("--no-gateway",)])
def test_the_settings_of_the_user_are_those_that_the_agents_find(
    someone: User, how: tuple[str, ...]
) -> None:
    project = str(someone.folder)
    trusted = {"projects": {project: {"hasTrustDialogAccepted": True, "history": ["secret"]}}}
    files = {
        ".claude/settings.json": '{"permissions": {"allow": ["Bash(git *)"]}}',
        ".claude.json": json.dumps(trusted),
        ".codex/config.toml": 'approval_policy = "never"\nsandbox_mode = "workspace-write"\n',
        ".codex/rules/default.rules": 'prefix_rule(pattern=["rm"], decision="forbidden")\n',
        ".config/opencode/opencode.json": '{"permission": {"bash": "ask"}}',
        ".gemini/settings.json": '{"general": {"defaultApprovalMode": "auto_edit"}}',
        ".gemini/trustedFolders.json": json.dumps({project: "TRUST_FOLDER"}),
        ".gemini/policies/own.toml": '[[rule]]\ntoolName = "run_shell_command"\n',
    }
    for name, text in files.items():
        write(someone, name, text)
    found = performed(someone, all_four(), *how)
    seen = {name: start["settings"] for name, start in found.items()}
    claude = json.loads(seen["claude"][".claude.json"])["projects"]
    assert claude == {project: {"hasTrustDialogAccepted": True}}, "and nothing of its history"
    assert seen["claude"]["settings.json"] == files[".claude/settings.json"]
    assert 'sandbox_mode = "workspace-write"' in seen["codex"]["config.toml"]
    assert 'approval_policy = "never"' in seen["codex"]["config.toml"]
    assert seen["codex"]["default.rules"] == files[".codex/rules/default.rules"]
    assert seen["opencode"]["opencode.json"] == files[".config/opencode/opencode.json"]
    assert seen["gemini"]["trustedFolders.json"] == files[".gemini/trustedFolders.json"]
    assert seen["gemini"]["own.toml"] == files[".gemini/policies/own.toml"]
    settings = json.loads(seen["gemini"]["settings.json"])
    assert settings["general"] == {"defaultApprovalMode": "auto_edit"}
    assert all_raised(found) == NOTHING


EDIT = {
    "claude": {"--permission-mode": ["acceptEdits"]},
    "codex": {"--sandbox": ["workspace-write"]},
    "opencode": {"OPENCODE_PERMISSION": '{"edit": {"*": "allow"}}'},
    "gemini": {"--approval-mode": ["auto_edit"], "GEMINI_CLI_TRUST_WORKSPACE": "true"},
}
ALL = {
    "claude": {"--permission-mode": ["bypassPermissions"]},
    "codex": {"--dangerously-bypass-approvals-and-sandbox": ["-"]},
    "opencode": {"--auto": []},
    "gemini": {"--approval-mode": ["yolo"], "GEMINI_CLI_TRUST_WORKSPACE": "true"},
}


def test_a_plan_gives_more_and_a_task_decides_for_itself(someone: User) -> None:
    assert all_raised(performed(someone, all_four(top="permissions: edit\n"))) == EDIT
    someone.env["IS_SANDBOX"] = "1"  # As root Claude Code bypasses nothing elsewhere.
    someone.write("plan.yaml", all_four("all", top="permissions: edit\n"))
    assert all_raised(done(someone, "resume", "--changed")) == ALL, "it is another task"
    assert all_raised(performed(someone, all_four("edit", top="permissions: all\n"))) == EDIT


def test_a_plan_takes_nothing_away_that_settings_give(someone: User) -> None:
    write(someone, ".codex/config.toml", 'sandbox_mode = "danger-full-access"\n')
    assert raised(performed(someone, plan_of("codex", "edit"))["codex"]) == {}


def test_an_agent_of_the_configuration_gets_what_that_says(someone: User) -> None:
    path = CONFIG
    write(someone, path, HERMES)
    someone.write("plan.yaml", plan_of("hermes", "all"))
    for verb in (("check", "plan.yaml"), ("run", "plan.yaml", "--yes")):
        refused = someone.headway(*verb)
        assert refused.returncode == 3, refused.stderr
        assert "permissions: all" in refused.stderr
        assert "[agents.hermes]" in refused.stderr
    assert starts(someone) == []
    write(someone, path, f'{HERMES}edit = ["--edits"]\nall = "--yes --shell"\n')
    found = performed(someone, plan_of("hermes", "all"))
    assert found["hermes"]["argv"] == ["--fast", "--yes", "--shell"]
    found = performed(someone, plan_of("hermes"))
    assert found["hermes"]["argv"] == ["--fast"], "it is started as it is configured"


@pytest.mark.parametrize(
    "plan",
    [
        plan_of("claude", "some"),
        plan_of("claude", top="permissions: yes\n"),
        plan_of("tools(shell)", "all"),
        "headway: 1\ntasks:\n  fix:\n    run: id\n    permissions: all\n",
        "headway: 1\ntasks:\n  fix:\n    prompt: Hello.\n    permissions: all\n",
    ],
)
def test_other_permissions_are_refused(someone: User, plan: str) -> None:
    someone.write("plan.yaml", plan)
    refused = someone.headway("check", "plan.yaml")
    assert refused.returncode == 3, refused.stdout
    assert "permissions" in refused.stderr


CHECKED = """\
headway: 1
model: openai/gpt-5-mini
permissions: edit
tasks:
  own: {agent: claude, each: [1, 2, 3], permissions: all, prompt: "Mend {{ item }}."}
  top: {agent: codex, prompt: Mend it.}
  bare: {agent: codex, permissions: all, prompt: Mend it.}
  loop: {agent: tools(files), prompt: Mend it.}
  answer: {prompt: Hello.}
  command: {run: make}
"""


def test_check_lists_which_tasks_may_do_what(someone: User) -> None:
    someone.write("plan.yaml", CHECKED)
    told = someone.headway("check", "plan.yaml")
    assert told.returncode == 0, told.stderr
    lines = {line.split(" may do: ")[0]: line for line in told.stdout.splitlines()}
    assert lines["own (claude)"].endswith("everything without a question (permissions: all)")
    assert lines["bare (codex)"].endswith("(permissions: all); Codex without its sandbox")
    assert "your settings of codex allow, and edit files" in lines["top (codex)"]
    assert lines["loop (tools(files))"].endswith("use tools(files)")
    assert "run with all your rights: command" in told.stdout.splitlines()
    (report,) = someone.json("check", "plan.yaml")
    groups = {one["name"]: (one["agent"], one["permissions"]) for one in report["groups"]}
    assert groups == {
        "own": ("claude", "all"),
        "top": ("codex", "edit"),
        "bare": ("codex", "all"),
        "loop": ("tools(files)", ""),
        "answer": ("", ""),
        "command": ("", ""),
    }
    assert all(one["may"] for one in report["groups"])
    someone.write("plan.yaml", plan_of("gemini"))
    told = someone.headway("check", "plan.yaml")
    assert "fix (gemini) may do: what your settings of gemini allow" in told.stdout.splitlines()


def test_an_agent_that_starts_a_run_gives_no_rights(someone: User) -> None:
    """As the skill lets it: in the shell that it has."""
    someone.write("plan.yaml", plan_of("claude", "edit"))
    plain = dict(someone.env)
    for variable in ("CLAUDECODE", "CODEX_THREAD_ID", "GEMINI_CLI", "OPENCODE", "HEADWAY_AGENT"):
        someone.env = {**plain, variable: "1"}
        refused = someone.headway("run", "plan.yaml", "--yes")
        assert refused.returncode == 2, refused.stderr
        assert f"`{variable}` is set" in refused.stderr
    assert starts(someone) == []
    found = performed(someone, plan_of("claude"))
    assert found["claude"]["environ"]["HEADWAY_AGENT"] == "claude", "without them it is performed"


def test_the_skill_gives_no_rights(someone: User) -> None:
    text = someone.headway("skill", "install", "--print").stdout
    assert "permissions: " not in text
    assert "`permissions` is for the user to give" in text


def test_a_plan_by_mcp_gives_no_rights_whatever_the_configuration_allows(someone: User) -> None:
    pytest.importorskip("mcp")
    write(someone, CONFIG, f'foreign_agents = "claude"\n{HERMES}')
    plans = (plan_of("claude"), plan_of("claude", "edit"), plan_of("claude", "", WHOLE))
    own, task, whole = called(someone, [("check_plan", {"plan": one}) for one in plans])
    assert own["accepted"], own
    for told, given in ((task, "tasks.fix.permissions"), (whole, "permissions")):
        assert not told["accepted"]
        (refused,) = told["refused"]
        assert refused["message"].startswith(f"`{given}` raises what")
    plan = {"plan": plans[1], "budget": "$1"}
    (refused,) = called(someone, [("submit_plan", plan)])
    assert "raises what its agent may do" in json.dumps(refused)
    assert starts(someone) == []


PROXIES = (
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "npm_config_proxy",
    "yarn_registry",
)


def test_a_plan_sets_no_variable_by_which_an_agent_calls_elsewhere(someone: User) -> None:
    pytest.importorskip("mcp")
    write(someone, CONFIG, 'foreign_agents = "claude"\n')
    values = "".join(f"  {name}: [x.example]\n" for name in PROXIES)
    matrix = plan_of("claude", "") + "    matrix:\n" + values.replace("  ", "      ")
    plans = [plan_of("claude", "", "vars:\n" + values.replace("[x.example]", "x")), matrix]
    for plan, name in zip(plans, ("vars", "tasks.fix.matrix"), strict=True):
        someone.write("plan.yaml", plan)
        refused = someone.headway("run", "plan.yaml", "--yes")
        assert refused.returncode == 3, refused.stderr
        for one in PROXIES:
            assert f"`{name}.{one}` cannot be called so: programs read" in refused.stderr
        assert "call it `my_http`" in refused.stderr
    own = plan_of("claude", "", "vars: {http_proxy: x.example}\n")
    (told,) = called(someone, [("submit_plan", {"plan": own, "budget": "$1"})])
    assert "vars.http_proxy" in json.dumps(told)
    assert starts(someone) == []


WHOLE = "permissions: all\n"


def called(someone: User, calls: list[tuple[str, dict[str, str]]]) -> list[dict[str, Any]]:
    """What the tools of `headway mcp` answer, called one after the other."""
    process = someone.start("mcp", stdin=subprocess.PIPE)
    results = speak(process, calls)
    process.communicate(timeout=SOON_S)
    return [one.get("structuredContent") or one for one in results]


def test_what_an_agent_was_not_allowed_to_do_is_told(someone: User) -> None:
    someone.env["DENIES"] = "1"
    someone.write("plan.yaml", plan_of("claude"))
    ended = someone.headway("run", "plan.yaml", "--yes")
    assert ended.returncode == 0, ended.stderr
    assert (
        "fix was not allowed to use Bash (1). Allow it in your settings of claude, or with "
        "`permissions: edit` or `all` (of `each`: `--permissions`); a rule that denies it stays in "
        "force" in " ".join(ended.stderr.split())
    )
    (row,) = someone.json("results", "--all")
    assert row["agent"]["denied"] == {"Bash": 1}
    assert "not allowed: Bash" in someone.headway("status").stdout
