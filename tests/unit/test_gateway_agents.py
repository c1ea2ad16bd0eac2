"""Agents find the gateway, and nothing of a user's own configuration is written to."""

from __future__ import annotations

import json
import os
import stat
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.errors import StateFileError
from headway.gateway.environment import (
    PLACEHOLDER,
    base_urls,
    command_environment,
    environment,
    plain_json,
    toml_text,
    whole_settings,
    write_homes,
)
from headway.gateway.settings import BEHIND_VARIABLE, GatewayOptions
from headway.gateway.values import Upstream

URL = "http://127.0.0.1:4929"
TOKEN = "Co7-syenADWHQFryEYGHZMrjMrdV8lYS-TAxpXiz52Y"
THREE = {name: Upstream(name, f"https://{name}.example")
         for name in ("anthropic", "openai", "gemini")}  # fmt: skip


def at_home(home: Path, **files: str) -> dict[str, str]:
    """A user's variables, with files at home: `a__b.toml` is `a/b.toml`."""
    for name, text in files.items():
        path = home / name.replace("__", "/").replace("DOT", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return {"HOME": str(home), "PATH": "/nowhere"}


def homes(folder: Path, environ: dict[str, str], more: dict[str, Upstream] = {}) -> dict[str, str]:  # noqa: B006
    upstreams = {**THREE, **more}
    return write_homes(str(folder), base_urls(URL, TOKEN, upstreams), upstreams, environ)


def codex_config(told: dict[str, str]) -> dict[str, object]:
    return tomllib.loads((Path(told["CODEX_HOME"]) / "config.toml").read_text())


@pytest.mark.parametrize(
    ("before", "after"),
    [("", "127.0.0.1,localhost,::1"), ("corp.example", "corp.example,127.0.0.1,localhost,::1"),
     ("localhost, 127.0.0.1", "localhost,127.0.0.1,::1"), ("*", "*")],
)  # fmt: skip
def test_no_proxy_swallows_what_is_for_this_machine(
    before: str, after: str, tmp_path: Path
) -> None:
    told = environment(URL, TOKEN, THREE, {"NO_PROXY": before}, str(tmp_path))
    assert (told["NO_PROXY"], told["no_proxy"]) == (after, after)


def test_where_the_gateway_adds_the_key_the_client_has_none(tmp_path: Path) -> None:
    upstreams = {**THREE, "anthropic": Upstream("anthropic", "https://a.example", "sk-secret")}
    environ = {**at_home(tmp_path), "WORK_KEY": "sk-secret\n", "OTHER": "stays"}
    told = command_environment(URL, TOKEN, upstreams, environ, str(tmp_path / "throw"))
    assert "sk-secret" not in json.dumps(told)
    assert "WORK_KEY" not in told
    assert (told["ANTHROPIC_API_KEY"], told["OTHER"]) == (PLACEHOLDER, "stays")
    assert "OPENAI_API_KEY" not in told


def test_codex_gets_a_home_that_is_the_users_own_but_for_the_address(tmp_path: Path) -> None:
    config = 'model = "gpt-5"\nopenai_base_url = "https://mine.example/v1"\n[tui]\nx = true\n'
    environ = at_home(tmp_path, DOTcodex__configDOTtoml=config, DOTcodex__authDOTjson="{}",
                      DOTcodex__sessions__one="said")  # fmt: skip
    more = {"codex-openai": Upstream("codex-openai", "https://mine.example/v1")}
    told = homes(tmp_path / "throw", environ, more)
    home = Path(told["CODEX_HOME"])
    found = codex_config(told)
    assert found["openai_base_url"] == f"{URL}/{TOKEN}/codex-openai"
    assert (found["model"], found["tui"]) == ("gpt-5", {"x": True})
    assert found["sqlite_home"] == str(tmp_path / ".codex")
    assert (home / "auth.json").is_symlink()
    assert (home / "sessions" / "one").read_text() == "said"
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE((home / "config.toml").stat().st_mode) == 0o600
    assert (tmp_path / ".codex" / "config.toml").read_text() == config


def test_the_providers_of_codex_go_through_the_gateway(tmp_path: Path) -> None:
    config = ('[model_providers.azure]\nbase_url = "https://az.example/openai/v1"\n'
              'env_key = "AZ"\n[model_providers."Odd Name"]\nbase_url = "https://odd.example"\n'
              '[model_providers.broken]\nbase_url = "nowhere"\n')  # fmt: skip
    environ = at_home(tmp_path, DOTcodex__configDOTtoml=config)
    upstreams = dict(whole_settings(GatewayOptions(), environ, str(tmp_path)).upstreams)
    assert upstreams["codex-azure"].url == "https://az.example/openai/v1"
    told = homes(tmp_path / "throw", environ, upstreams)
    providers = codex_config(told)["model_providers"]
    assert isinstance(providers, dict)
    assert providers["azure"] == {"base_url": f"{URL}/{TOKEN}/codex-azure", "env_key": "AZ"}
    assert providers["Odd Name"] == {"base_url": "https://odd.example"}


def test_a_login_with_chatgpt_goes_where_it_is_of_use(tmp_path: Path) -> None:
    login = json.dumps({"OPENAI_API_KEY": None, "tokens": {"id_token": "x"}})
    environ = at_home(tmp_path, DOTcodex__authDOTjson=login)
    upstreams = dict(whole_settings(GatewayOptions(), environ, str(tmp_path)).upstreams)
    assert upstreams["codex-chatgpt"].url == "https://chatgpt.com/backend-api/codex"
    found = codex_config(homes(tmp_path / "throw", environ, upstreams))
    assert found["openai_base_url"] == f"{URL}/{TOKEN}/codex-chatgpt"
    with_key = {**environ, "CODEX_API_KEY": "k"}
    assert (
        "codex-chatgpt" not in whole_settings(GatewayOptions(), with_key, str(tmp_path)).upstreams
    )


def test_a_login_with_chatgpt_is_not_sent_to_another_provider(tmp_path: Path) -> None:
    login = json.dumps({"OPENAI_API_KEY": None, "tokens": {"id_token": "x"}})
    environ = at_home(tmp_path, DOTcodex__authDOTjson=login)
    assert "openai_base_url" not in codex_config(homes(tmp_path / "throw", environ))


def test_where_the_gateway_adds_openais_key_codex_needs_no_login(tmp_path: Path) -> None:
    login = json.dumps({"OPENAI_API_KEY": None, "tokens": {"id_token": "x"}})
    environ = at_home(tmp_path, DOTcodex__authDOTjson=login)
    more = {"openai": Upstream("openai", "https://o.example", "sk")}
    found = codex_config(homes(tmp_path / "throw", environ, more))
    assert found["openai_base_url"] == f"{URL}/{TOKEN}/openai/v1"


def test_a_configuration_that_codex_refuses_stays_its_own(tmp_path: Path) -> None:
    environ = at_home(tmp_path, DOTcodex__configDOTtoml="model = ")
    home = Path(homes(tmp_path / "throw", environ)["CODEX_HOME"])
    assert (home / "config.toml").is_symlink()


def test_a_home_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "throw").write_text("a file")
    with pytest.raises(StateFileError):
        homes(tmp_path / "throw", at_home(tmp_path))


def test_gemini_cli_is_told_that_it_has_a_key(tmp_path: Path) -> None:
    text = '{"ui": {"theme": "x"}, // mine\n "security": {"auth": {"more": 1},},}'
    environ = at_home(tmp_path, DOTgemini__settingsDOTjson=text, DOTgemini__history="h")
    told = homes(tmp_path / "throw", {**environ, "GEMINI_API_KEY": "k"})
    folder = Path(told["GEMINI_CLI_HOME"]) / ".gemini"
    assert json.loads((folder / "settings.json").read_text()) == {
        "ui": {"theme": "x"},
        "security": {"auth": {"more": 1, "selectedType": "gemini-api-key"}},
    }
    assert (folder / "history").read_text() == "h"
    assert (tmp_path / ".gemini" / "settings.json").read_text() == text


@pytest.mark.parametrize(
    ("text", "key"),
    [('{"security": {"auth": {"selectedType": "oauth-personal"}}}', "k"), ("{}", ""), ("{", "k")],
)
def test_gemini_cli_keeps_its_home_otherwise(text: str, key: str, tmp_path: Path) -> None:
    environ = {**at_home(tmp_path, DOTgemini__settingsDOTjson=text), "GEMINI_API_KEY": key}
    assert "GEMINI_CLI_HOME" not in homes(tmp_path / "throw", environ)


def opencode(environ: dict[str, str], folder: Path, upstreams: dict[str, Upstream]) -> object:
    told = environment(URL, TOKEN, upstreams, environ, str(folder))
    return json.loads(told["OPENCODE_CONFIG_CONTENT"])


def test_opencode_gets_addresses_only_of_providers_that_it_has(tmp_path: Path) -> None:
    environ = {**at_home(tmp_path), "ANTHROPIC_API_KEY": "k"}
    assert opencode(environ, tmp_path, THREE) == {
        "provider": {"anthropic": {"options": {"baseURL": f"{URL}/{TOKEN}/anthropic/v1"}}}
    }
    assert opencode(at_home(tmp_path), tmp_path, THREE) == {}


def test_opencodes_logins_count_as_providers(tmp_path: Path) -> None:
    login = '{"google": {"type": "api", "key": "k"}, "openai": {}}'
    environ = at_home(tmp_path, DOTlocal__share__opencode__authDOTjson=login)
    assert opencode(environ, tmp_path, THREE) == {
        "provider": {
            "openai": {"options": {"baseURL": f"{URL}/{TOKEN}/openai/v1"}},
            "google": {"options": {"baseURL": f"{URL}/{TOKEN}/gemini/v1beta"}},
        }
    }


def test_opencodes_own_providers_go_through_the_gateway(tmp_path: Path) -> None:
    text = """{ // a project's
      "provider": {"local": {"npm": "@ai-sdk/openai-compatible",
                             "options": {"baseURL": "http://10.1.2.3:8000/v1",},},
                   "odd": {"options": {"baseURL": "{env:WHERE}"}}}}"""
    environ = at_home(tmp_path, project__opencodeDOTjsonc=text)
    below = tmp_path / "project" / "src"
    below.mkdir()
    upstreams = dict(whole_settings(GatewayOptions(), environ, str(below)).upstreams)
    assert upstreams["opencode-local"].url == "http://10.1.2.3:8000/v1"
    assert "opencode-odd" not in upstreams
    assert opencode(environ, below, upstreams) == {
        "provider": {"local": {"options": {"baseURL": f"{URL}/{TOKEN}/opencode-local"}}}
    }


def test_a_gateway_that_is_gone_is_looked_behind(tmp_path: Path) -> None:
    gone = "http://127.0.0.1:1/" + TOKEN
    config = f'[model_providers.azure]\nbase_url = "{gone}/codex-azure"\n'
    environ = {**at_home(tmp_path, DOTcodex__configDOTtoml=config),
               BEHIND_VARIABLE: '{"codex-azure": "https://az.example"}'}  # fmt: skip
    upstreams = whole_settings(GatewayOptions(), environ, str(tmp_path)).upstreams
    assert upstreams["codex-azure"].url == "https://az.example"
    environ.pop(BEHIND_VARIABLE)
    assert set(whole_settings(GatewayOptions(), environ, str(tmp_path)).upstreams) == set(THREE)


def test_files_that_cannot_be_read_are_left_alone(tmp_path: Path) -> None:
    environ = at_home(tmp_path, opencodeDOTjson="[" * 10, DOTcodex__authDOTjson="]")
    (tmp_path / ".codex" / "config.toml").write_bytes(b"\xff\xfe")
    (tmp_path / "opencode.jsonc").write_bytes(b"\xff")
    assert set(whole_settings(GatewayOptions(), environ, str(tmp_path)).upstreams) == set(THREE)
    assert "CODEX_HOME" in homes(tmp_path / "throw", environ)


def test_json_with_comments_is_read_and_strings_are_not_touched() -> None:
    text = '{"a": "// no, /* no */, ,}", /* yes\n */ "b": [1, 2,], // yes\n "c": "\\"//"}'
    assert json.loads(plain_json(text)) == {"a": "// no, /* no */, ,}", "b": [1, 2], "c": '"//'}


def _values(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)


PLAIN = (st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
         | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
         | st.dates() | st.times() | st.datetimes())  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
                       st.recursive(PLAIN, _values, max_leaves=8), max_size=4))  # fmt: skip
def test_a_table_that_is_written_is_read_as_it_was(table: dict[str, object]) -> None:
    assert tomllib.loads(toml_text(table)) == table


def test_only_so_much_of_a_configuration_is_taken(tmp_path: Path) -> None:
    config = "".join(f'[model_providers.p{i}]\nbase_url = "https://p{i}.example"\n'
                     for i in range(100))  # fmt: skip
    environ = at_home(tmp_path, DOTcodex__configDOTtoml=config)
    assert len(whole_settings(GatewayOptions(), environ, str(tmp_path)).upstreams) < 50
    assert os.listdir(tmp_path / ".codex") == ["config.toml"]
