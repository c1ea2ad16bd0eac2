"""The gateway's settings: addresses, upstreams, waiting times."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from headway.base.numbers import seconds_of
from headway.client.accounts import GATEWAY_VARIABLE
from headway.errors import BadValueError, did_you_mean
from headway.gateway.values import Upstream

PORT_DEFAULT: Final = 4929
"""HWAY on a telephone; registered for nothing."""
PORT_MAX: Final = 65_535

WAIT_S_MAX: Final = 7 * 86_400.0
"""The longest usage window; no connection is held for longer."""

DEFAULTS: Final = {
    "anthropic": "https://api.anthropic.com",
    "openai": "https://api.openai.com",
    "gemini": "https://generativelanguage.googleapis.com",
}

VARIABLES: Final = {
    "anthropic": "ANTHROPIC_BASE_URL",
    "openai": "OPENAI_BASE_URL",
    "gemini": "GOOGLE_GEMINI_BASE_URL",
}
"""Where clients look for their provider's address."""

ALIASES: Final = {
    "OPENAI_API_BASE": ("openai", "/v1"),
    "OPENAI_HOST": ("openai", ""),
    "ANTHROPIC_API_BASE": ("anthropic", ""),
    "ANTHROPIC_HOST": ("anthropic", ""),
}
"""Where LiteLLM, aider and older LangChain (`_API_BASE`) and goose (`_HOST`) look for it: the
provider, and what they want behind its address."""

BEHIND_VARIABLE: Final = "HEADWAY_GATEWAY_UPSTREAMS"
"""The providers behind it, as JSON: what the variables said before."""
VERSIONS: Final = ("/v1", "/v1beta")
"""What addresses of the three providers may end with."""
OWN_PAGES: Final = ("status", "metrics")
"""The gateway's own pages; no upstream has such a name."""
UPSTREAMS_MAX: Final = 50
KEY_CHARACTERS_MAX: Final = 4096

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,39}")
_BARE: Final = re.compile(r"https?://", re.IGNORECASE)
_VARIABLE: Final = re.compile(r"[A-Z][A-Z0-9_]{0,99}")
_GATEWAY_PATH: Final = re.compile(r"/[A-Za-z0-9_-]{22,128}/[a-z0-9][a-z0-9_.-]*(?:/.*)?")
"""A token of the gateway's length, then an upstream: no other server has such addresses."""


class GatewaySettings(Struct, frozen=True):
    upstreams: Mapping[str, Upstream]
    host: str = "127.0.0.1"
    port: int = 0
    """0 is any that is free."""
    is_port_fixed: bool = True
    """Whether no other port is taken when this one is not free."""
    wait_s: float | None = None
    """A call is held for so long at most; `None` is for as long as its caller bears it."""
    silent_s: float | None = None
    """After so long a held stream is begun and kept alive; `None`: as late as its caller bears."""
    record: str | None = None
    replay: str | None = None
    home: str = ""
    """The path of the throw-away home of its agents, which recordings keep."""
    drain_s: float = 0.0
    is_interactive: bool = False
    """A person waits for the answers of the command that it accompanies."""


class GatewayOptions(Struct, frozen=True):
    upstreams: tuple[str, ...] = ()
    """`NAME=URL`, or `URL` for everything."""
    keys: tuple[str, ...] = ()
    """`NAME=VARIABLE`: the gateway adds the key that is in this variable."""
    host: str = "127.0.0.1"
    port: str | None = "0"
    """`None`: the default one, or another if that is taken."""
    wait: str | None = None
    silent: str | None = None
    record: str | None = None
    replay: str | None = None
    drain: str = "0"
    is_interactive: bool = False

    @property
    def needs_own(self) -> bool:
        """Whether a gateway that runs already cannot be meant."""
        return self != GatewayOptions(host=self.host, port=self.port, drain=self.drain)

    def names(self, provider: str) -> bool:
        """Whether the user says where this provider is, or gives its key."""
        return self.every is not None or any(
            text.startswith(f"{provider}=") for text in (*self.upstreams, *self.keys)
        )

    @property
    def every(self) -> str | None:
        """Where all calls go, if an address without a name says so."""
        bare = [text for text in self.upstreams if _BARE.match(text)]
        return without_version(checked_url(bare[-1], "--upstream")) if bare else None


def read_settings(options: GatewayOptions, environ: Mapping[str, str]) -> GatewaySettings:
    named = dict(_named(options.upstreams))
    asked = {name: _of_environment(name, environ) for name in DEFAULTS if name not in named}
    upstreams = asked | dict(_of_aliases(options, environ)) | named
    if len(upstreams) > UPSTREAMS_MAX:
        raise BadValueError(f"{len(upstreams)} upstreams are more than {UPSTREAMS_MAX}")
    for text in options.keys:
        name, key = _key(text, upstreams, environ)
        upstreams[name] = replace(upstreams[name], key=key)
    record, replay = _recordings(options)
    return GatewaySettings(
        upstreams, _loopback(options.host),
        PORT_DEFAULT if options.port is None else _port(options.port), options.port is not None,
        wait_s=_time_s("--wait", options.wait), silent_s=_time_s("--silent", options.silent),
        record=record, replay=replay, drain_s=_drain_s(options.drain),
        is_interactive=options.is_interactive,
    )  # fmt: skip


def leads_to_gateway(url: str, environ: Mapping[str, str]) -> bool:
    """Whether this is the address of a headway gateway: forwarding to it could go in a circle."""
    own = environ.get(GATEWAY_VARIABLE, "").rstrip("/")
    if own and (url == own or url.startswith(f"{own}/")):
        return True
    found = urlsplit(url)
    return is_loopback(found.hostname or "") and bool(_GATEWAY_PATH.fullmatch(found.path))


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def fit_name(name: str) -> bool:
    return bool(_NAME.fullmatch(name)) and name not in OWN_PAGES


def checked_url(text: str, where: str) -> str:
    """A provider's address, without a slash at its end; raises `BadValueError`."""
    try:
        found = urlsplit(text)
        is_fit = found.scheme in ("http", "https") and bool(found.hostname)
        is_fit = is_fit and (found.port is None or found.port > 0)
    except ValueError:
        is_fit = False
    if not is_fit or not text.isascii() or not text.isprintable() or " " in text:
        raise BadValueError(
            f"`{where}` is {_without_secrets(text)!r}: that is not the address of a provider",
            hint="an address is like `https://api.example.com`",
        )
    if found.username is not None or found.password is not None:
        raise BadValueError(
            f"`{where}` has a password in it", hint="give the key with `--key NAME=VARIABLE`"
        )
    if "?" in text or "#" in text:
        raise BadValueError(f"`{where}` has a query in it: an address ends with its path")
    return text.rstrip("/")


def without_version(url: str) -> str:
    """The address of one of the three providers: their clients, or the gateway, add the version."""
    version = next((one for one in VERSIONS if url.endswith(one)), "")
    return url.removesuffix(version).rstrip("/")


def upstream_at(name: str, address: str, key: str = "") -> Upstream:
    """The provider at an address. Only `/v1` is taken off OpenAI's: its SDKs add no version."""
    if name != "openai":
        return Upstream(name, without_version(address) if name in DEFAULTS else address, key)
    url = address.removesuffix("/v1")
    return Upstream(name, url, key, is_whole=url == address)


def _named(texts: tuple[str, ...]) -> Iterator[tuple[str, Upstream]]:
    for text in texts:
        if _BARE.match(text):
            url = without_version(checked_url(text, "--upstream"))
            yield from ((name, Upstream(name, url)) for name in DEFAULTS)
            continue
        name, equals, url = text.partition("=")
        if not equals:
            hint = "write `--upstream https://...` or `--upstream NAME=https://...`"
            raise BadValueError(f"`--upstream` is {text!r}", hint=hint)
        if not fit_name(name):
            raise BadValueError(
                f"an upstream cannot have the name {name!r}",
                hint="small letters, digits, `-`, `_` and `.`; not `status` or `metrics`",
            )
        url = checked_url(url, f"--upstream {name}")
        yield name, Upstream(name, without_version(url) if name in DEFAULTS else url)


def _of_environment(name: str, environ: Mapping[str, str]) -> Upstream:
    variable = VARIABLES[name]
    # LiteLLM reads the first of them that is set: its key is for that address.
    if name == "openai" and not environ.get(variable, "").strip():
        variable = "OPENAI_API_BASE"
    url = environ.get(variable, "").strip()
    if not url:
        return Upstream(name, DEFAULTS[name])
    if leads_to_gateway(url, environ):
        url = behind(environ).get(name, "")
        if not url or leads_to_gateway(url, environ):
            raise BadValueError(
                f"{variable} leads to a headway gateway, and a gateway to itself would be a circle",
                hint=f"unset {variable}, or add `--upstream {name}={DEFAULTS[name]}`",
            )
    return upstream_at(name, checked_url(url, variable))


def alias_name(variable: str) -> str:
    return variable.lower().replace("_", "-")


def _of_aliases(
    options: GatewayOptions, environ: Mapping[str, str]
) -> Iterator[tuple[str, Upstream]]:
    """Addresses in other variables stay what they are: a key goes where it went before."""
    for variable, (provider, _) in ALIASES.items():
        name, url = alias_name(variable), environ.get(variable, "").strip()
        if url and leads_to_gateway(url, environ):
            url = behind(environ).get(name, "")
        if url and not options.names(provider):
            yield name, Upstream(name, checked_url(url, variable))


def behind(environ: Mapping[str, str]) -> dict[str, str]:
    try:
        found = json.loads(environ.get(BEHIND_VARIABLE, ""))
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: url for name, url in found.items() if isinstance(url, str)}


def _key(
    text: str, upstreams: Mapping[str, Upstream], environ: Mapping[str, str]
) -> tuple[str, str]:
    """`anthropic=WORK_KEY`: the name and what the variable holds. What it holds is never shown."""
    name, equals, variable = text.partition("=")
    if not equals or not variable:
        # A user who wrote the key itself here must not find it in a log.
        hint = "write `--key anthropic=MY_KEY_VARIABLE`, with the name of an environment variable"
        raise BadValueError("`--key` is not `NAME=VARIABLE`", hint=hint)
    if name not in upstreams:
        raise BadValueError(f"there is no upstream `{name}`", hint=did_you_mean(name, upstreams))
    key = environ.get(variable, "").strip()
    if not key or not key.isascii() or not key.isprintable() or len(key) > KEY_CHARACTERS_MAX:
        fault = "holds no key" if key else "is not set"
        shown = variable if _VARIABLE.fullmatch(variable) else "that variable"
        raise BadValueError(
            f"`--key {name}=...`: {shown} {fault}",
            hint="name an environment variable that holds the provider's key",
        )
    return name, key


def _recordings(options: GatewayOptions) -> tuple[str | None, str | None]:
    record = None if options.record is None else os.path.abspath(options.record)
    replay = None if options.replay is None else os.path.abspath(options.replay)
    if replay is not None and not os.path.isfile(replay):
        raise BadValueError(f"`--replay` is {options.replay!r}: there is no such file")
    if record is not None and not os.path.isdir(os.path.dirname(record)):
        raise BadValueError(f"`--record` is {options.record!r}: there is no such folder")
    if record is not None and os.path.isdir(record):
        raise BadValueError(f"`--record` is {options.record!r}: that is a folder")
    return record, replay


def _loopback(host: str) -> str:
    if not is_loopback(host.strip("[]")):
        raise BadValueError(
            f"`--host` is {host!r}: the gateway listens only where other machines cannot reach it",
            hint="use 127.0.0.1 or ::1",
        )
    return "127.0.0.1" if host == "localhost" else host.strip("[]")


def _port(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= PORT_MAX:
        return int(text)
    raise BadValueError(f"`--port` is {text!r}: it must be a whole number from 0 to {PORT_MAX}")


def _drain_s(text: str) -> float:
    found_s = 0.0 if text == "0" else seconds_of(text)
    if found_s is None:
        hint = "write it like `--drain 30s`"
        raise BadValueError(f"`--drain` is {text!r}: it must be a time", hint=hint)
    return found_s


def _time_s(option: str, text: str | None) -> float | None:
    if text is None:
        return None
    found_s = seconds_of(text)
    if found_s is None or not 1.0 <= found_s <= WAIT_S_MAX:
        raise BadValueError(
            f"`{option}` is {text!r}: it must be a time from 1s to 7d",
            hint=f"write it like `{option} 90s`, `{option} 10m` or `{option} 2h`",
        )
    return found_s


def _without_secrets(text: str) -> str:
    """What was written, for an error: never more than the place that it leads to."""
    return re.sub(r"//[^/@]*@", "//...@", text)[:200]
