"""Environment variables and homes that point agents and SDKs at the gateway.

Claude Code, the SDKs and Gemini CLI take their addresses from variables; Codex and opencode from
configurations, which are never written to.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import date, datetime, time
from typing import Final

from msgspec.structs import replace

from headway.base.folders import Folders, prepare
from headway.client.accounts import GATEWAY_VARIABLE
from headway.errors import BadValueError, StateFileError
from headway.gateway import settings as conf
from headway.gateway.background import RunningGateway
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
    options: conf.GatewayOptions, environ: Mapping[str, str], folder: str
) -> conf.GatewaySettings:
    """What the command line and the environment say, and the providers of the user's agents."""
    settings = conf.read_settings(options, environ)
    is_named = options.names("openai")
    found = (
        *_codex_upstreams(environ, is_named), *_opencode_upstreams(environ, folder, is_named)
    )  # fmt: skip
    # With one address for everything, the agents' own providers are there, too.
    every = None if options.every is None else f"{options.every}/v1"
    more = {one.name: replace(one, url=every or one.url) for one in found[:FOUND_MAX]}
    return replace(settings, upstreams={**more, **settings.upstreams})


def base_urls(base_url: str, token: str, upstreams: Mapping[str, Upstream]) -> dict[str, str]:
    return {name: f"{base_url}/{token}/{name}{one.version}" for name, one in upstreams.items()}


def environment(
    base_url: str, token: str, upstreams: Mapping[str, Upstream], environ: Mapping[str, str],
    folder: str | None = None,
) -> dict[str, str]:  # fmt: skip
    """The variables to set on top of `environ`, for programs that start in `folder`."""
    folder = os.getcwd() if folder is None else folder
    urls = base_urls(base_url, token, upstreams)
    found = {conf.VARIABLES[name]: url for name, url in urls.items() if name in conf.VARIABLES}
    for variable, (provider, version) in conf.ALIASES.items():
        at_provider = f"{base_url}/{token}/{provider}{version}"
        followed = urls.get(provider, at_provider) if version else at_provider
        found[variable] = urls.get(conf.alias_name(variable), followed)
    for name, variables in KEY_VARIABLES.items():
        if _has_key(upstreams, name):
            found.update(dict.fromkeys(variables, PLACEHOLDER))
    for variable in ("NO_PROXY", "no_proxy"):
        found[variable] = _directly(environ.get(variable) or environ.get("NO_PROXY", ""))
    found[OPENCODE_CONTENT] = _opencode_content(urls, upstreams, environ, folder)
    found[GATEWAY_VARIABLE] = f"{base_url}/{token}"
    upstream_urls = {name: f"{one.url}{one.version}" for name, one in upstreams.items()}
    found[conf.BEHIND_VARIABLE] = json.dumps(upstream_urls)
    return found


def write_homes(
    folder: str,
    urls: Mapping[str, str],
    upstreams: Mapping[str, Upstream],
    environ: Mapping[str, str],
) -> dict[str, str]:
    at = os.path.join(folder, "codex")
    found = _codex_home(at, urls, environ, _has_key(upstreams, "openai"))
    at = os.path.join(folder, "gemini")
    return found | _gemini_home(at, environ, _has_key(upstreams, "gemini"))


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


# Codex takes its address from no variable: it reads `openai_base_url` and the `base_url` of each
# provider in `$CODEX_HOME/config.toml` (0.166; older ones too). Of a login only its kind is read:
# with ChatGPT, calls go to another provider than with a key.

CODEX_HOME: Final = "CODEX_HOME"
CODEX_CONFIG: Final = "config.toml"
CODEX_OPENAI: Final = "codex-openai"
CHATGPT: Final = Upstream("codex-chatgpt", "https://chatgpt.com/backend-api/codex")


def _codex_upstreams(environ: Mapping[str, str], is_named: bool) -> Iterator[Upstream]:
    """Codex does not follow the variables; `is_named`: the user says where OpenAI is."""
    config = _codex_config(environ) or {}
    own = config.get("openai_base_url")
    openai = tuple(_found_at(CODEX_OPENAI, own, environ))
    if not openai and _is_chatgpt(environ):
        openai = (CHATGPT,)
    elif own is None and not is_named:
        variables = ("OPENAI_BASE_URL", "OPENAI_API_BASE")
        openai = tuple(_openai_itself(CODEX_OPENAI, environ, *variables))
    yield from openai
    for name, provider in table(config.get("model_providers")).items():
        yield from _found_at(f"codex-{name}", table(provider).get("base_url"), environ)


def _codex_home(
    folder: str, urls: Mapping[str, str], environ: Mapping[str, str], has_key: bool
) -> dict[str, str]:
    """Make a home whose calls go to the gateway; `has_key`: the gateway adds OpenAI's key."""
    own, config, text = _own_codex_home(environ), _codex_config(environ), None
    if config is not None:
        openai = urls.get("openai")
        if not has_key and CODEX_OPENAI in urls:
            openai = urls[CODEX_OPENAI]
        elif not has_key and _is_chatgpt(environ):
            # A login with ChatGPT is of use at one provider only.
            openai = urls.get(CHATGPT.name)
        if openai is not None:
            config["openai_base_url"] = openai
        providers = table(config.get("model_providers"))
        for name, provider in providers.items():
            if url := urls.get(name) or urls.get(f"codex-{name}"):
                providers[name] = {**table(provider), "base_url": url}
        if providers:
            config["model_providers"] = providers
        if os.path.isdir(own):
            # Its databases are opened where they are: new ones would be lost with this home.
            config.setdefault("sqlite_home", own)
        text = toml_text(config)
    _make_home(folder, own, CODEX_CONFIG, text)
    return {CODEX_HOME: folder}


def _own_codex_home(environ: Mapping[str, str]) -> str:
    named = environ.get(CODEX_HOME)
    return os.path.abspath(named or os.path.join(environ.get("HOME", ""), ".codex"))


def _codex_config(environ: Mapping[str, str]) -> dict[str, object] | None:
    """What the user has configured; `None` if Codex itself will refuse it."""
    text = _text(os.path.join(_own_codex_home(environ), CODEX_CONFIG))
    try:
        return None if text is None else tomllib.loads(text)
    except ValueError:
        return None


def _is_chatgpt(environ: Mapping[str, str]) -> bool:
    login = _json(_text(os.path.join(_own_codex_home(environ), "auth.json"))) or {}
    is_own = bool(table(login.get("tokens"))) and not login.get("OPENAI_API_KEY")
    return is_own and not environ.get("CODEX_API_KEY")


# opencode merges the JSON in `OPENCODE_CONFIG_CONTENT` over all its files (1.18), so that nothing
# has to be written. A provider that is merely mentioned there counts as configured and may become
# the default: only those are mentioned that the user has.

OPENCODE_CONTENT: Final = "OPENCODE_CONFIG_CONTENT"
OPENCODE_FILES: Final = ("opencode.json", "opencode.jsonc", "config.json")
OPENCODE_PROVIDERS: Final = {
    "anthropic": ("anthropic", "/v1", ("ANTHROPIC_API_KEY",)),
    "openai": ("openai", "", ("OPENAI_API_KEY",)),
    "google": ("gemini", "/v1beta", ("GOOGLE_GENERATIVE_AI_API_KEY", "GEMINI_API_KEY")),
}
"""opencode's name: the upstream's, the version in its address, the variables with its key."""

PARENTS_MAX: Final = 30
"""Folders above the current one in which a project's configuration is looked for."""


def _opencode_upstreams(
    environ: Mapping[str, str], folder: str, is_named: bool
) -> Iterator[Upstream]:
    """The providers with addresses of their own; `is_named`: the user says where OpenAI is."""
    if not is_named and not environ.get("OPENAI_BASE_URL", "").strip():
        yield from _openai_itself("opencode-openai", environ, "OPENAI_API_BASE")
    for name, provider in _opencode_providers(environ, folder).items():
        url = table(table(provider).get("options")).get("baseURL")
        yield from _found_at(f"opencode-{name}", url, environ)


def _opencode_content(
    urls: Mapping[str, str], upstreams: Mapping[str, Upstream], environ: Mapping[str, str],
    folder: str,
) -> str:  # fmt: skip
    """What the variable must hold so that opencode's calls go to the gateway."""
    own = environ.get("XDG_DATA_HOME") or os.path.join(environ.get("HOME", ""), ".local", "share")
    # Of the logins only the names of the providers are read.
    logins = _json(_text(os.path.join(own, "opencode", "auth.json"))) or {}
    used = {**logins, **_opencode_providers(environ, folder)}
    given = _json(environ.get(OPENCODE_CONTENT, "")) or {}
    providers = table(given.get("provider"))
    for name in {**OPENCODE_PROVIDERS, **used}:
        upstream, version, variables = OPENCODE_PROVIDERS.get(name, (name, "", ()))
        url = urls.get(f"opencode-{name}")
        if url is None and upstream in urls:
            url = f"{urls[upstream]}{version}"
        is_used = name in used or _has_key(upstreams, upstream) or any(map(environ.get, variables))
        if is_used and url is not None:
            provider = table(providers.get(name))
            options = {**table(provider.get("options")), "baseURL": url}
            providers[name] = {**provider, "options": options}
    return json.dumps({**given, "provider": providers} if providers else given)


def _opencode_providers(environ: Mapping[str, str], folder: str) -> dict[str, object]:
    texts = [*map(_text, _opencode_files(environ, folder)), environ.get(OPENCODE_CONTENT, "")]
    merged: dict[str, object] = {}
    for config in map(_json, texts):
        merged.update(table((config or {}).get("provider")))
    return merged


def _opencode_files(environ: Mapping[str, str], folder: str) -> Iterator[str]:
    own = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME", ""), ".config")
    yield from (os.path.join(own, "opencode", name) for name in OPENCODE_FILES)
    if environ.get("OPENCODE_CONFIG"):
        yield environ["OPENCODE_CONFIG"]
    above = [folder]
    while len(above) < PARENTS_MAX and os.path.dirname(above[-1]) != above[-1]:
        above.append(os.path.dirname(above[-1]))
    for one in reversed(above):
        for inner in (one, os.path.join(one, ".opencode")):
            yield from (os.path.join(inner, name) for name in OPENCODE_FILES[:2])


# Gemini CLI refuses to start with an address in `GOOGLE_GEMINI_BASE_URL` and no login chosen (0.61:
# "Invalid auth method selected"), although there is a key. Then it gets a throw-away home in which
# an API key is chosen.

GEMINI_HOME: Final = "GEMINI_CLI_HOME"
GEMINI_FOLDER: Final = ".gemini"
GEMINI_SETTINGS: Final = "settings.json"


def _gemini_home(folder: str, environ: Mapping[str, str], has_key: bool) -> dict[str, str]:
    """Make the home if it is needed; `has_key`: the gateway adds Gemini's key."""
    own = os.path.join(environ.get(GEMINI_HOME) or environ.get("HOME", ""), GEMINI_FOLDER)
    settings = _json(_text(os.path.join(own, GEMINI_SETTINGS)))
    if settings is None:
        return {}  # Gemini CLI itself reports what is wrong with it.
    security = table(settings.get("security"))
    auth = table(security.get("auth"))
    if auth.get("selectedType") or not (has_key or environ.get("GEMINI_API_KEY")):
        return {}
    security["auth"] = {**auth, "selectedType": "gemini-api-key"}
    text = json.dumps({**settings, "security": security}, indent=2)
    _make_home(os.path.join(folder, GEMINI_FOLDER), own, GEMINI_SETTINGS, text)
    return {GEMINI_HOME: folder}


# Configurations of agents: their providers are read, and files like them are written.

FILE_BYTES_MAX: Final = 1024 * 1024
"""A configuration is a page; what is larger is left alone."""
_STRING_OR_COMMENT: Final = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_STRING_OR_COMMA: Final = re.compile(r'"(?:\\.|[^"\\])*"|,(?=\s*[}\]])', re.DOTALL)
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


def _found_at(name: str, url: object, environ: Mapping[str, str]) -> Iterator[Upstream]:
    """The provider at a valid address; for the address of a gateway, the one behind it."""
    if isinstance(url, str) and conf.leads_to_gateway(url, environ):
        url = conf.behind(environ).get(name)
    if isinstance(url, str) and url and conf.fit_name(name):
        # The agent itself reports an address that is none.
        with suppress(BadValueError):
            yield Upstream(name, conf.checked_url(url, name))


def _openai_itself(name: str, environ: Mapping[str, str], *variables: str) -> Iterator[Upstream]:
    """OpenAI, for an agent that does not follow these variables, if they lead elsewhere."""
    url = next(filter(None, (environ.get(one, "").strip() for one in variables)), "")
    if conf.leads_to_gateway(url, environ):
        url = conf.behind(environ).get("openai", "")
    if url and conf.without_version(url.rstrip("/")) != conf.DEFAULTS["openai"]:
        yield Upstream(name, f"{conf.DEFAULTS['openai']}/v1")


def table(value: object) -> dict[str, object]:
    return {str(key): one for key, one in value.items()} if isinstance(value, dict) else {}


def _text(path: str) -> str | None:
    """A file's text, which is empty where there is none; `None` if it cannot be read."""
    try:
        with open(path, "rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
        return None if len(content) > FILE_BYTES_MAX else content.decode()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, ValueError):
        return None


def _json(text: str | None) -> dict[str, object] | None:
    """The object in a text, which may have comments; `None` if it is no JSON."""
    try:
        return None if text is None else table(json.loads(plain_json(text) or "{}"))
    except ValueError:
        return None


def plain_json(text: str) -> str:
    """JSON without the comments and last commas that people write."""

    def kept(match: re.Match[str]) -> str:
        return match[0] if match[0].startswith('"') else " "

    return _STRING_OR_COMMA.sub(kept, _STRING_OR_COMMENT.sub(kept, text))


def toml_text(table: Mapping[str, object]) -> str:
    """The whole table as a file. Comments and the order of writing are not kept."""
    return "".join(f"{line}\n" for line in _lines(table, ()))


def _lines(table: Mapping[str, object], path: tuple[str, ...]) -> Iterator[str]:
    """Plain values first: what comes after a table's head belongs to it."""
    for key, value in table.items():
        if not isinstance(value, dict):
            yield f"{_key(key)} = {_value(value)}"
    for key, value in table.items():
        if isinstance(value, dict):
            below = (*path, key)
            yield f"\n[{'.'.join(map(_key, below))}]"
            yield from _lines(value, below)


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _string(key)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, dict):
        inner = ", ".join(f"{_key(key)} = {_value(one)}" for key, one in value.items())
        return f"{{{inner}}}"
    raise TypeError(f"TOML has no {type(value).__name__}")


def _string(text: str) -> str:
    """As in JSON, whose escapes TOML has too; and TOML wants DEL escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


ENTRIES_MAX: Final = 1000
"""Entries of a home that are linked."""


def _make_home(folder: str, own: str, name: str, text: str | None) -> None:
    """Make a home like `own`, in which the file of this name has this text; its own if `None`."""
    try:
        remove_home(folder)
        os.makedirs(folder, mode=0o700)
        for entry in _entries(own):
            if entry != name or text is None:
                os.symlink(os.path.join(own, entry), os.path.join(folder, entry))
        if text is not None:
            handle = os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT, 0o600)
            with open(handle, "w", encoding="utf-8") as file:
                file.write(text)
    except OSError as fault:
        raise StateFileError(
            f"{folder} cannot be made: {fault.strerror}", hint="agents need a home of their own"
        ) from None


def remove_home(folder: str) -> None:
    """Links go, what they lead to stays."""
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)


def _entries(own: str) -> list[str]:
    try:
        return sorted(os.listdir(own))[:ENTRIES_MAX]
    except OSError:
        return []
