"""The configuration file: few keys, checked, each with where it comes from."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.config import (
    ABOUT,
    FILE_BYTES_MAX,
    Configuration,
    Configured,
    configuration_path,
    read_configuration,
    settings,
)
from headway.errors import StateFileError


def configured(home: Path, text: str | bytes) -> Configured:
    folder = home / "headway"
    folder.mkdir(exist_ok=True)
    content = text if isinstance(text, bytes) else text.encode()
    (folder / "config.toml").write_bytes(content)
    return read_configuration({"XDG_CONFIG_HOME": str(home)})


def test_a_file_sets_what_it_names_and_the_rest_has_defaults(tmp_path: Path) -> None:
    found = read_configuration({"XDG_CONFIG_HOME": str(tmp_path)})
    assert (found.values, found.is_there) == (Configuration(), False)
    assert found.path == str(tmp_path / "headway" / "config.toml")
    assert configuration_path({}) == str(Path.home() / ".config/headway/config.toml")
    found = configured(tmp_path, 'ask_above_usd = 20\nwait = "2h"\nkeep_results = false\n')
    assert found.values == Configuration(20.0, wait="2h", keep_results=False)
    assert found.set_here == {"ask_above_usd", "wait", "keep_results"}


def test_an_unknown_key_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(StateFileError, match="`ask_above`") as raised:
        configured(tmp_path, "ask_above = 20")
    assert raised.value.hint == "did you mean `ask_above_usd`?"


@pytest.mark.parametrize(
    "text",
    [
        "ask_above_usd = true", "ask_above_usd = -1", "ask_above_usd = inf", 'ask_above_usd = "5"',
        "strategy = 4", 'strategy = ""', 'keep_results = "no"', "keep_results = 1", "wait = false",
    ],
)  # fmt: skip
def test_a_value_of_another_kind_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(StateFileError, match="which has to be"):
        configured(tmp_path, text)


@pytest.mark.parametrize("content", ["a = = 1", b"\xff = 1", "a" * (FILE_BYTES_MAX + 1)])
def test_what_is_no_configuration_is_refused(tmp_path: Path, content: str | bytes) -> None:
    with pytest.raises(StateFileError):
        configured(tmp_path, content)
    (tmp_path / "headway" / "config.toml").unlink()
    (tmp_path / "headway" / "config.toml").mkdir()
    with pytest.raises(StateFileError, match="cannot be read"):
        read_configuration({"XDG_CONFIG_HOME": str(tmp_path)})


def test_every_key_is_explained() -> None:
    assert set(ABOUT) == set(Configuration.__struct_fields__)


def test_every_value_says_where_it_comes_from(tmp_path: Path) -> None:
    configured(tmp_path, "ask_above_usd = 20")
    environ = {
        "XDG_CONFIG_HOME": str(tmp_path),
        "HEADWAY_STATE_DIR": "/state",
        "XDG_RUNTIME_DIR": "/run/user/1",
        "NO_COLOR": "1",
    }
    found = {key: (value, source) for key, value, source in settings(environ)}
    assert found["ask_above_usd"] == (20.0, str(tmp_path / "headway" / "config.toml"))
    assert found["keep_results"] == ("true", "default")
    assert found["state folder"] == ("/state", "HEADWAY_STATE_DIR")
    assert found["runtime folder"] == ("/run/user/1/headway", "XDG_RUNTIME_DIR")
    assert found["NO_COLOR"] == ("1", "environment")
