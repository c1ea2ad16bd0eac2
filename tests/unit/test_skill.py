"""The skill that agents are given: what it says is true, and it gets where agents look."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path

import pytest

from headway.cli.main import main
from headway.cli.setup import whole_parser
from headway.errors import StateFileError
from headway.mcp.skill import install, skill_paths, skill_text
from headway.plans.grammar import KEYS

SKILL_BYTES_MAX = 9_000
"""It is read as a whole by its user: about 2,000 tokens."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return tmp_path / "project"


def test_the_skill_is_small_and_has_every_key() -> None:
    text = skill_text()
    assert len(text.encode()) <= SKILL_BYTES_MAX
    for key in KEYS:
        is_told = f"- `{key.name}: {key.example}`" in text
        assert is_told is (key.name != "permissions"), key.name


def test_every_example_of_the_skill_passes_the_check(here: Path) -> None:
    (here / "src").mkdir()
    for name in ("src/a.py", "src/b.py", "records.txt"):
        (here / name).write_text("x\n")
    examples = re.findall(r"```yaml\n(.*?)```", skill_text(), re.DOTALL)
    assert len(examples) == 3
    for text in examples:
        (here / "plan.yaml").write_text(text)
        assert main(["check", "plan.yaml", "--strict"]) == 0


def test_every_command_of_the_skill_is_there() -> None:
    parser = whole_parser()
    commands = re.findall(r"`(headway [a-z][^`]*)`", skill_text())
    assert len(commands) > 5
    for command in commands:
        parser.parse_args(shlex.split(command.replace("NAME", "x"))[1:])


def test_it_is_put_where_agents_look(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = [here / ".claude/skills/headway/SKILL.md", here / ".agents/skills/headway/SKILL.md"]
    assert main(["skill", "install"]) == 0
    assert [path.read_text() for path in places] == [skill_text()] * 2
    assert capsys.readouterr().out == "".join(f"{path}  installed\n" for path in places)
    assert main(["skill", "install", "--json"]) == 0
    assert {one["done"] for one in json.loads(capsys.readouterr().out)} == {"is there already"}
    assert main(["skill", "install", "--user"]) == 0
    assert len(list((here.parent / "home").rglob("SKILL.md"))) == 2


def test_what_was_changed_is_kept_except_with_force(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = here / "s" / "headway" / "SKILL.md"
    assert main(["skill", "install", "--to", "s"]) == 0
    path.write_text(path.read_text().replace("headway check", "headway guess"))
    assert main(["skill", "install", "--to", "s"]) == 2
    assert "--force" in capsys.readouterr().err
    assert "headway guess" in path.read_text()
    assert main(["skill", "install", "--to", "s", "--force"]) == 0
    assert path.read_text() == skill_text()


def test_nothing_is_written_through_a_link_in_the_place_of_a_draft(here: Path) -> None:
    path = skill_paths("", False, {})[0]
    Path(path).parent.mkdir(parents=True)
    (here / "mine").write_text("mine")
    for name in ("SKILL.md.draft", f".SKILL.md.{os.getpid()}"):
        (Path(path).parent / name).symlink_to(here / "mine")
    install(path)
    assert (here / "mine").read_text() == "mine"


def test_what_is_no_file_is_one_error_and_is_not_waited_for(here: Path) -> None:
    path = skill_paths("", False, {})[0]
    Path(path).parent.mkdir(parents=True)
    os.mkfifo(path)
    with pytest.raises(StateFileError, match="it is no file"):
        install(path)


def test_a_link_is_replaced_and_not_followed(here: Path) -> None:
    path = here / "s" / "headway" / "SKILL.md"
    path.parent.mkdir(parents=True)
    path.symlink_to(here / "elsewhere")
    assert main(["skill", "install", "--to", "s"]) == 0
    assert not (here / "elsewhere").exists()
    assert not path.is_symlink()
