"""`headway doctor` says where things are, by which variable, and who shares them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.promises.user import User, user

VARIABLES = ("RUNTIME_DIR", "STATE_HOME", "CONFIG_HOME")


def folders(someone: User) -> dict[str, tuple[str, str]]:
    """By kind: the folder, and the variable by which it was chosen."""
    (found,) = someone.json("doctor")
    kinds = ("runtime folder", "state folder", "config folder")
    return {one["about"]: (one["path"], one["chosen_by"]) for one in found if one["about"] in kinds}


def shared(someone: User) -> str:
    """What the doctor says of the runtime folder, to people."""
    out = someone.headway("doctor").stdout
    (line,) = [line for line in out.splitlines() if "runtime folder" in line]
    return line


def plain(tmp_path: Path, name: str) -> Any:
    """A user with none of the variables set, and a folder for temporary files."""
    (tmp_path / "tmp").mkdir(exist_ok=True)
    return user(tmp_path / name, {"TMPDIR": str(tmp_path / "tmp")})


def bare(someone: User) -> User:
    for name in VARIABLES:
        someone.env.pop(f"XDG_{name}", None)
    for name in ("RUNTIME", "STATE", "CONFIG"):
        someone.env.pop(f"HEADWAY_{name}_DIR", None)
    return someone


@pytest.fixture
def closing(tmp_path: Path) -> Any:
    with plain(tmp_path, "one") as first, plain(tmp_path, "two") as second:
        kept = dict(first.env), dict(second.env)
        yield bare(first), bare(second)
        # A user is found by its folders when it is closed.
        first.env, second.env = kept


def test_two_homes_of_a_user_share_a_broker_where_nothing_is_set(
    tmp_path: Path, closing: tuple[User, User]
) -> None:
    first, second = closing
    own = str(tmp_path / "tmp" / f"headway-{os.getuid()}")
    home = str(tmp_path / "one" / "home")
    assert folders(first) == {
        "runtime folder": (own, "TMPDIR"),
        "state folder": (f"{home}/.local/state/headway", "HOME"),
        "config folder": (f"{home}/.config/headway", "HOME"),
    }
    assert folders(second)["runtime folder"] == (own, "TMPDIR")
    assert folders(second)["state folder"] != folders(first)["state folder"]
    assert "XDG_RUNTIME_DIR is not set" in shared(first)
    assert "every HOME of this user shares this folder and its broker" in shared(first)


def test_the_variables_of_the_system_and_of_headway_choose_folders(
    tmp_path: Path, closing: tuple[User, User]
) -> None:
    someone, _ = closing
    for name in VARIABLES:
        someone.env[f"XDG_{name}"] = str(tmp_path / name)
    assert folders(someone) == {
        "runtime folder": (str(tmp_path / "RUNTIME_DIR" / "headway"), "XDG_RUNTIME_DIR"),
        "state folder": (str(tmp_path / "STATE_HOME" / "headway"), "XDG_STATE_HOME"),
        "config folder": (str(tmp_path / "CONFIG_HOME" / "headway"), "XDG_CONFIG_HOME"),
    }
    assert "every HOME with the same XDG_RUNTIME_DIR shares this folder" in shared(someone)
    someone.env["HEADWAY_RUNTIME_DIR"] = str(tmp_path / "own")
    someone.env["HEADWAY_STATE_DIR"] = str(tmp_path / "kept")
    someone.env["HEADWAY_CONFIG_DIR"] = str(tmp_path / "set")
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "config.toml").write_text("ask_above_usd = 20")
    found = folders(someone)
    assert found["runtime folder"] == (str(tmp_path / "own"), "HEADWAY_RUNTIME_DIR")
    assert found["state folder"] == (str(tmp_path / "kept"), "HEADWAY_STATE_DIR")
    assert found["config folder"] == (str(tmp_path / "set"), "HEADWAY_CONFIG_DIR")
    (path,) = someone.headway("config", "path").stdout.split()
    assert path == str(tmp_path / "set" / "config.toml")
    (line, *_) = someone.headway("config").stdout.splitlines()
    assert line.split()[:2] == ["ask_above_usd", "20.0"]


def test_the_variable_of_the_temporary_folder_is_the_one_that_is_set(
    tmp_path: Path, closing: tuple[User, User]
) -> None:
    someone, _ = closing
    del someone.env["TMPDIR"]
    (tmp_path / "temp").mkdir()
    someone.env |= {"TEMP": str(tmp_path / "temp"), "TMP": "/nonexistent"}
    own = f"headway-{os.getuid()}"
    assert folders(someone)["runtime folder"] == (str(tmp_path / "temp" / own), "TEMP")
    someone.env["TEMP"] = "/nonexistent"
    path, by = folders(someone)["runtime folder"]
    assert (Path(path).name, by) == (own, "the default")
