"""Codex behind the gateway: a temporary home with the gateway's address.

Codex takes its address from no variable: it reads `openai_base_url` and the `base_url` of each
provider in `$CODEX_HOME/config.toml` (0.166; older ones too).

Of a login only its kind is read: with ChatGPT, calls go to another provider than with a key.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from typing import Final

from headway.gateway.config_files import make_home, toml_text
from headway.gateway.settings import found_at, openai_itself, table, text_of
from headway.gateway.values import Upstream

HOME: Final = "CODEX_HOME"
CONFIG: Final = "config.toml"

OPENAI: Final = "codex-openai"
CHATGPT: Final = Upstream("codex-chatgpt", "https://chatgpt.com/backend-api/codex")
"""Where Codex sends its calls when one has logged in with ChatGPT."""


def found(environ: Mapping[str, str], is_named: bool = False) -> Iterator[Upstream]:
    """The providers that Codex calls besides OpenAI. It does not follow the variables with OpenAI's
    address; `is_named`: the user says where OpenAI is."""
    config = _config(environ) or {}
    own = config.get("openai_base_url")
    openai = tuple(found_at(OPENAI, own, environ)) if isinstance(own, str) else ()
    if not openai and _is_chatgpt(environ):
        openai = (CHATGPT,)
    elif own is None and not is_named:
        openai = tuple(openai_itself(OPENAI, environ, "OPENAI_BASE_URL", "OPENAI_API_BASE"))
    yield from openai
    for name, provider in table(config.get("model_providers")).items():
        url = table(provider).get("base_url")
        if isinstance(url, str):
            yield from found_at(f"codex-{name}", url, environ)


def write_home(
    folder: str, urls: Mapping[str, str], environ: Mapping[str, str], *, has_key: bool = False
) -> dict[str, str]:
    """Make a home whose calls go to the gateway; `has_key`: the gateway adds OpenAI's key."""
    own = _home(environ)
    config = _config(environ)
    text = None
    if config is not None:
        pointed = _pointed(config, urls, _openai(urls, environ, has_key))
        if os.path.isdir(own):
            # Its databases are opened where they are: new ones would be lost with this home.
            pointed.setdefault("sqlite_home", own)
        text = toml_text(pointed)
    make_home(folder, own, CONFIG, text)
    return {HOME: folder}


def _openai(urls: Mapping[str, str], environ: Mapping[str, str], has_key: bool) -> str | None:
    """Where calls to OpenAI go; a login with ChatGPT is of use at one provider only."""
    if not has_key and OPENAI in urls:
        return urls[OPENAI]
    if not has_key and _is_chatgpt(environ):
        return urls.get(CHATGPT.name)
    return urls.get("openai")


def _pointed(
    config: Mapping[str, object], urls: Mapping[str, str], openai: str | None
) -> dict[str, object]:
    pointed = dict(config)
    if openai is not None:
        pointed["openai_base_url"] = openai
    providers = table(config.get("model_providers"))
    for name, provider in providers.items():
        url = urls.get(name) or urls.get(f"codex-{name}")
        if url:
            providers[name] = {**table(provider), "base_url": url}
    return {**pointed, "model_providers": providers} if providers else pointed


def _home(environ: Mapping[str, str]) -> str:
    named = environ.get(HOME)
    return os.path.abspath(named or os.path.join(environ.get("HOME", ""), ".codex"))


def _config(environ: Mapping[str, str]) -> dict[str, object] | None:
    """What the user has configured; `None` if Codex itself will refuse it."""
    try:
        content = text_of(os.path.join(_home(environ), CONFIG))
        return {} if content is None else tomllib.loads(content)
    except (ValueError, OSError):
        return None


def _is_chatgpt(environ: Mapping[str, str]) -> bool:
    if environ.get("CODEX_API_KEY"):
        return False
    try:
        login = json.loads(text_of(os.path.join(_home(environ), "auth.json")) or "{}")
    except (ValueError, OSError):
        return False
    return bool(table(table(login).get("tokens"))) and not table(login).get("OPENAI_API_KEY")
