"""How agents and SDKs are pointed at the gateway: variables to set, and homes for some.

Claude Code, the SDKs and Gemini CLI take their addresses from variables; Codex and opencode from
configurations, which are never written to (`codex.py`, `opencode.py`, `gemini.py`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from headway.gateway import codex, gemini, opencode
from headway.gateway.found import Found
from headway.gateway.settings import (
    ALIASES,
    BEHIND_VARIABLE,
    VARIABLES,
    GatewaySettings,
    Options,
    alias_name,
    read_settings,
)
from headway.gateway.values import Upstream
from headway.runtime.accounts import GATEWAY_VARIABLE

KEY_VARIABLES: Final = {
    "anthropic": ("ANTHROPIC_API_KEY",),
    "openai": ("OPENAI_API_KEY", "CODEX_API_KEY"),
    "gemini": ("GEMINI_API_KEY",),
}

PLACEHOLDER: Final = "headway-adds-the-key"
"""Clients do not start without a key; where the gateway has the real one, they get this."""

LOCAL_HOSTS: Final = ("127.0.0.1", "localhost", "::1")

FOUND_MAX: Final = 40
"""Providers that are taken from the configurations of agents."""


def discovered(
    environ: Mapping[str, str], folder: str, options: Options = Options()
) -> dict[str, Found]:
    """The providers that the agents of this user call besides the three; by upstream."""
    is_named = options.names("openai")
    every = (*codex.found(environ, is_named), *opencode.found(environ, folder, is_named))
    return {one.name: one for one in every[:FOUND_MAX]}


def whole_settings(options: Options, environ: Mapping[str, str], folder: str) -> GatewaySettings:
    """What the command line and the environment say, and the providers of the user's agents."""
    settings = read_settings(options, environ)
    # Whoever sends everything to one address wants the agents' own providers there, too.
    every = None if options.every is None else f"{options.every}/v1"
    found = discovered(environ, folder, options)
    more = {name: Upstream(name, every or one.url) for name, one in found.items()}
    return replace(settings, upstreams={**more, **settings.upstreams})


def base_urls(base_url: str, token: str, upstreams: Mapping[str, Upstream]) -> dict[str, str]:
    """The address of each upstream, as its clients want it."""
    return {name: f"{base_url}/{token}/{name}{one.version}" for name, one in upstreams.items()}


def environment(
    base_url: str,
    token: str,
    upstreams: Mapping[str, Upstream],
    environ: Mapping[str, str] | None = None,
    folder: str | None = None,
) -> dict[str, str]:
    """What to set on top of `environ`, for programs that start in `folder`."""
    environ = os.environ if environ is None else environ
    folder = os.getcwd() if folder is None else folder
    urls = base_urls(base_url, token, upstreams)
    found = {VARIABLES[name]: url for name, url in urls.items() if name in VARIABLES}
    for variable, (provider, version) in ALIASES.items():
        at_provider = f"{base_url}/{token}/{provider}{version}"
        followed = urls.get(provider, at_provider) if version else at_provider
        found[variable] = urls.get(alias_name(variable), followed)
    for name, variables in KEY_VARIABLES.items():
        if _has_key(upstreams, name):
            found.update(dict.fromkeys(variables, PLACEHOLDER))
    for variable in ("NO_PROXY", "no_proxy"):
        found[variable] = _directly(environ.get(variable) or environ.get("NO_PROXY", ""))
    found[opencode.CONTENT] = opencode.content(urls, upstreams, environ, folder)
    found[GATEWAY_VARIABLE] = f"{base_url}/{token}"
    behind = {name: f"{one.url}{one.version}" for name, one in upstreams.items()}
    found[BEHIND_VARIABLE] = json.dumps(behind)
    return found


def write_homes(
    folder: str, urls: Mapping[str, str], upstreams: Mapping[str, Upstream],
    environ: Mapping[str, str] | None = None,
) -> dict[str, str]:  # fmt: skip
    """Make throw-away homes in this folder for agents that need one; the variables to set.

    `urls` are those of `base_urls`. Whether an agent is installed is not asked: it may be started
    by its path, by `npx` or by a script.
    """
    environ = os.environ if environ is None else environ
    at = os.path.join(folder, "codex")
    found = codex.write_home(at, urls, environ, has_key=_has_key(upstreams, "openai"))
    at = os.path.join(folder, "gemini")
    return found | gemini.write_home(at, environ, has_key=_has_key(upstreams, "gemini"))


def _has_key(upstreams: Mapping[str, Upstream], name: str) -> bool:
    return name in upstreams and bool(upstreams[name].key)


def _directly(hosts: str) -> str:
    """The hosts that no proxy is asked for, with this machine among them."""
    named = [host.strip() for host in hosts.split(",") if host.strip()]
    if "*" in named:
        return hosts
    return ",".join([*named, *(host for host in LOCAL_HOSTS if host not in named)])
