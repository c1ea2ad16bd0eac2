"""Environment variables and homes that point agents and SDKs at the gateway.

Claude Code, the SDKs and Gemini CLI take their addresses from variables; Codex and opencode from
configurations, which are never written to (`codex.py`, `opencode.py`, `gemini.py`).
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from msgspec.structs import replace

from headway.base.folders import Folders, prepare
from headway.client.accounts import GATEWAY_VARIABLE
from headway.errors import StateFileError
from headway.gateway import codex, gemini, opencode
from headway.gateway.config_files import remove_home
from headway.gateway.daemon import RunningGateway
from headway.gateway.settings import (
    ALIASES,
    BEHIND_VARIABLE,
    VARIABLES,
    GatewayOptions,
    GatewaySettings,
    alias_name,
    read_settings,
)
from headway.gateway.values import Upstream

KEY_VARIABLES: Final = {
    "anthropic": ("ANTHROPIC_API_KEY",),
    "openai": ("OPENAI_API_KEY", "CODEX_API_KEY"),
    "gemini": ("GEMINI_API_KEY",),
}

PLACEHOLDER: Final = "headway-adds-the-key"
"""Clients do not start without a key; where the gateway has the real one, they get this."""

LOCAL_HOSTS: Final = ("127.0.0.1", "localhost", "::1")

FOUND_MAX: Final = 40
"""Providers that are taken from the configurations of agents, besides the three."""


def whole_settings(
    options: GatewayOptions, environ: Mapping[str, str], folder: str
) -> GatewaySettings:
    """What the command line and the environment say, and the providers of the user's agents."""
    settings = read_settings(options, environ)
    is_named = options.names("openai")
    found = (*codex.found(environ, is_named), *opencode.found(environ, folder, is_named))
    # With one address for everything, the agents' own providers are there, too.
    every = None if options.every is None else f"{options.every}/v1"
    more = {one.name: replace(one, url=every or one.url) for one in found[:FOUND_MAX]}
    return replace(settings, upstreams={**more, **settings.upstreams})


def base_urls(base_url: str, token: str, upstreams: Mapping[str, Upstream]) -> dict[str, str]:
    """The address of each upstream, as its clients want it."""
    return {name: f"{base_url}/{token}/{name}{one.version}" for name, one in upstreams.items()}


def environment(
    base_url: str,
    token: str,
    upstreams: Mapping[str, Upstream],
    environ: Mapping[str, str],
    folder: str | None = None,
) -> dict[str, str]:
    """The variables to set on top of `environ`, for programs that start in `folder`."""
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
    folder: str,
    urls: Mapping[str, str],
    upstreams: Mapping[str, Upstream],
    environ: Mapping[str, str],
) -> dict[str, str]:
    """Make throw-away homes for agents that need one; returns the variables to set."""
    at = os.path.join(folder, "codex")
    found = codex.write_home(at, urls, environ, has_key=_has_key(upstreams, "openai"))
    at = os.path.join(folder, "gemini")
    return found | gemini.write_home(at, environ, has_key=_has_key(upstreams, "gemini"))


def _has_key(upstreams: Mapping[str, Upstream], name: str) -> bool:
    return name in upstreams and bool(upstreams[name].key)


def _directly(hosts: str) -> str:
    named = [host.strip() for host in hosts.split(",") if host.strip()]
    if "*" in named:
        return hosts
    return ",".join([*named, *(host for host in LOCAL_HOSTS if host not in named)])


# What a command or a shell gets, so that all its agents find the gateway; and cleaning up after.

SHARED: Final = "shared"

HOMES_MAX: Final = 10_000
"""Commands with a gateway of their own at a time."""

_NAME: Final = re.compile(r"[1-9][0-9]{0,4}")


@contextmanager
def made_home(place: Folders, wanted: str = "") -> Iterator[str]:
    """A throw-away home for one command; `wanted`, the home of a recording, if that is free."""
    prepare(place)
    folder, name = os.path.split(wanted)
    is_here = folder == os.path.realpath(_homes(place)) and _NAME.fullmatch(name)
    names = [name] if is_here else []
    try:
        # Not below a folder for temporary files: Codex warns of homes there.
        os.makedirs(_homes(place), mode=0o700, exist_ok=True)
        lock, home = _taken(place, (*names, *map(str, range(1, HOMES_MAX))))
    except OSError as fault:
        raise StateFileError(
            f"{_homes(place)} cannot be written to: {fault.strerror}",
            hint="agents need a home of their own",
        ) from None
    try:
        yield home
    finally:
        remove_home(home)
        os.close(lock)


def _taken(place: Folders, names: Iterable[str]) -> tuple[int, str]:
    for name in names:
        home = os.path.join(_homes(place), name)
        lock = os.open(f"{home}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        return lock, home
    raise StateFileError(
        f"{HOMES_MAX} commands run under a gateway of their own",
        hint="start one for all of them: `headway gateway --detach`",
    )


def command_environment(
    url: str, token: str, upstreams: Mapping[str, Upstream], environ: Mapping[str, str], home: str
) -> dict[str, str]:
    keys = {one.key for one in upstreams.values() if one.key}
    own = {name: value for name, value in environ.items() if value.strip() not in keys}
    found = own | environment(url, token, upstreams, environ)
    return found | write_homes(home, base_urls(url, token, upstreams), upstreams, environ)


def shared_environment(
    running: RunningGateway, place: Folders, environ: Mapping[str, str]
) -> dict[str, str]:
    """The variables of a shell whose programs are to use the running gateway."""
    upstreams = running.behind()
    found = environment(running.url, running.token, upstreams, environ)
    shared = shared_home(place)
    # In a shell that was told before, the homes to be made would be those to be linked.
    if not environ.get("CODEX_HOME", "").startswith(shared):
        urls = base_urls(running.url, running.token, upstreams)
        found |= write_homes(shared, urls, upstreams, environ)
    return found


def shared_home(place: Folders) -> str:
    return os.path.join(_homes(place), SHARED)


def _homes(place: Folders) -> str:
    return os.path.join(place.state, "homes")
