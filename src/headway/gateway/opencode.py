"""opencode behind the gateway: addresses merged over the user's configuration.

opencode merges the JSON in `OPENCODE_CONFIG_CONTENT` over all its files (1.18), so that nothing has
to be written. A provider that is merely mentioned there counts as configured and may become the
default: only those are mentioned that the user has.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Final

from headway.gateway.settings import found_at, openai_itself, plain_json, table, text_of
from headway.gateway.values import Upstream

CONTENT: Final = "OPENCODE_CONFIG_CONTENT"

PROVIDERS: Final = {
    "anthropic": ("anthropic", "/v1", ("ANTHROPIC_API_KEY",)),
    "openai": ("openai", "", ("OPENAI_API_KEY",)),
    "google": ("gemini", "/v1beta", ("GOOGLE_GENERATIVE_AI_API_KEY", "GEMINI_API_KEY")),
}
"""opencode's name: the upstream's, the version in its address, the variables with its key."""

PARENTS_MAX: Final = 30
"""Folders above the current one in which a project's configuration is looked for."""

FILES: Final = ("opencode.json", "opencode.jsonc", "config.json")


def found(environ: Mapping[str, str], folder: str, is_named: bool = False) -> Iterator[Upstream]:
    """The providers with addresses of their own; `is_named`: the user says where OpenAI is."""
    if not is_named and not environ.get("OPENAI_BASE_URL", "").strip():
        yield from openai_itself("opencode-openai", environ, "OPENAI_API_BASE")
    for name, provider in _configured(environ, folder).items():
        url = table(table(provider).get("options")).get("baseURL")
        if isinstance(url, str):
            yield from found_at(f"opencode-{name}", url, environ)


def content(
    urls: Mapping[str, str], upstreams: Mapping[str, Upstream], environ: Mapping[str, str],
    folder: str,
) -> str:  # fmt: skip
    """What the variable must hold so that opencode's calls go to the gateway."""
    configured = _configured(environ, folder)
    logins = _logins(environ)
    changes: dict[str, object] = {}
    for name in {**dict.fromkeys(PROVIDERS), **dict.fromkeys(configured), **dict.fromkeys(logins)}:
        upstream, version, variables = PROVIDERS.get(name, (name, "", ()))
        custom = urls.get(f"opencode-{name}")
        has_key = upstream in upstreams and bool(upstreams[upstream].key)
        is_used = (
            name in configured or name in logins or has_key or any(map(environ.get, variables))
        )
        if is_used and custom is not None:
            changes[name] = custom
        elif is_used and upstream in urls:
            changes[name] = f"{urls[upstream]}{version}"
    given = _parsed(environ.get(CONTENT, ""))
    providers = table(given.get("provider"))
    for name, url in changes.items():
        provider = table(providers.get(name))
        options = {**table(provider.get("options")), "baseURL": url}
        providers[name] = {**provider, "options": options}
    return json.dumps({**given, "provider": providers} if providers else given)


def _configured(environ: Mapping[str, str], folder: str) -> dict[str, object]:
    merged: dict[str, object] = {}
    for path in _files(environ, folder):
        try:
            text = text_of(path) or ""
        except (OSError, ValueError):
            continue
        merged.update(table(_parsed(text).get("provider")))
    merged.update(table(_parsed(environ.get(CONTENT, "")).get("provider")))
    return merged


def _files(environ: Mapping[str, str], folder: str) -> Iterator[str]:
    home = environ.get("HOME", "")
    own = environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    yield from (os.path.join(own, "opencode", name) for name in FILES)
    if environ.get("OPENCODE_CONFIG"):
        yield environ["OPENCODE_CONFIG"]
    above = [folder]
    while len(above) < PARENTS_MAX and os.path.dirname(above[-1]) != above[-1]:
        above.append(os.path.dirname(above[-1]))
    for one in reversed(above):
        yield from (os.path.join(one, name) for name in FILES[:2])
        yield from (os.path.join(one, ".opencode", name) for name in FILES[:2])


def _logins(environ: Mapping[str, str]) -> frozenset[str]:
    """The names of the providers that opencode has a login for; nothing else of it is looked at."""
    home = environ.get("HOME", "")
    own = environ.get("XDG_DATA_HOME") or os.path.join(home, ".local", "share")
    try:
        text = text_of(os.path.join(own, "opencode", "auth.json")) or ""
    except (OSError, ValueError):
        return frozenset()
    return frozenset(_parsed(text))


def _parsed(text: str) -> dict[str, object]:
    try:
        return table(json.loads(plain_json(text)))
    except ValueError:
        return {}
