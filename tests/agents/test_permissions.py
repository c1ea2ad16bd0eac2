"""What real agents may do in plans: a command is denied by default, and allowed by `all`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.agents.agents import is_installed
from tests.agents.planned import Machine, machine

pytestmark = [
    pytest.mark.agents,
    pytest.mark.skipif(not is_installed(), reason="`make test-agents` installs the agents"),
]

PLAN = "headway: 1\ntasks:\n  one:\n    agent: {}\n    retries: 0\n{}    prompt: {}\n"
COMMAND = "Please run `echo made > made.txt`."

WRITES = {
    "claude": 'Please run `Write {"file_path": "made.txt", "content": "made"}`.',
    "gemini": 'Please run `write_file {"file_path": "made.txt", "content": "made"}`.',
    "opencode": 'Please run `write {"filePath": "made.txt", "content": "made"}`.',
    "codex": COMMAND,
}
"""How each of them writes a file without its shell; Codex has no other way."""


def prepare(where: Machine, agent: str) -> None:
    """The user's settings: a folder that is trusted, in which commands and edits are asked for."""
    home = Path(where.env["HOME"])
    if agent == "opencode":
        path = where.folder / "opencode.json"
        ask = {"permission": {"bash": "ask", "edit": "ask"}}
        path.write_text(json.dumps(json.loads(path.read_text()) | ask))
    if agent == "gemini":
        del where.env["GEMINI_CLI_TRUST_WORKSPACE"]
        trusted = {str(where.folder): "TRUST_FOLDER"}
        (home / ".gemini" / "trustedFolders.json").write_text(json.dumps(trusted))


def is_made(where: Machine, agent: str, permissions: str, prompt: str) -> bool:
    given = f"    permissions: {permissions}\n" if permissions else ""
    text = PLAN.format(agent, given, json.dumps(prompt))
    (where.folder / "plan.yaml").write_text(text)
    process = where.start("run", "plan.yaml", "--yes")
    out, err = process.communicate(timeout=200)
    # opencode gives up when a question of it is rejected; the others tell what they could not do.
    is_denied = agent == "opencode" and not permissions
    assert process.returncode == is_denied, err + out
    if agent in ("claude", "opencode") and not permissions:
        assert "one was not allowed to use " in err
    path = where.folder / "made.txt"
    found = path.exists()
    path.unlink(missing_ok=True)
    return found


@pytest.mark.parametrize("agent", ["claude", "codex", "opencode", "gemini"])
def test_a_command_is_denied_by_default_and_allowed_by_all(agent: str) -> None:
    with machine(agent, 1) as where:
        prepare(where, agent)
        assert not is_made(where, agent, "", COMMAND)
        assert is_made(where, agent, "all", COMMAND)


@pytest.mark.parametrize("agent", ["claude", "codex", "opencode", "gemini"])
def test_an_edit_is_denied_by_default_and_allowed_by_edit(agent: str) -> None:
    with machine(agent, 1) as where:
        prepare(where, agent)
        assert not is_made(where, agent, "", WRITES[agent])
        assert is_made(where, agent, "edit", WRITES[agent])
