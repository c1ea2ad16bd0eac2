"""Where calls to a model go, and with which key: read from the environment, once, at the edge."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from headway.errors import BadValueError, UsageError
from headway.wire.ask import VERSION
from headway.wire.values import WireName

ANTHROPIC_URL: Final = "https://api.anthropic.com"
OPENAI_URL: Final = "https://api.openai.com/v1"

PROVIDERS: Final = ("anthropic", "openai", "openai-responses")
"""What a model's name can begin with: each has its own key, which goes to no other."""

OWN_NAMES: Final = re.compile(r"gpt-[0-9]|chatgpt-|codex-|o[1-9](-|$)|ft:")
"""Names that are OpenAI's without a provider before them."""

COMPATIBLE: Final = {
    "deepseek": "https://api.deepseek.com/v1",
    "gemini": "https://generativelanguage.googleapis.com/v1beta/openai",
    "google": "https://generativelanguage.googleapis.com/v1beta/openai",
    "groq": "https://api.groq.com/openai/v1",
    "mistral": "https://api.mistral.ai/v1",
    "ollama": "http://localhost:11434/v1",
    "openrouter": "https://openrouter.ai/api/v1",
    "together": "https://api.together.xyz/v1",
    "vllm": "http://localhost:8000/v1",
    "xai": "https://api.x.ai/v1",
}
"""Where providers answer that speak Chat Completions, for the hint that says how to use them."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Who answers for a model."""

    wire: WireName
    model: str
    """Its name there, without our prefix."""
    url: str
    headers: Mapping[str, str] = field(repr=False)
    """The key is among them: never shown."""
    key_variable: str
    """Where a key is looked for."""
    has_key: bool

    @property
    def is_loopback(self) -> bool:
        """Whether it is on this machine, where nobody asks for a key."""
        host = urlsplit(self.url).hostname or ""
        try:
            return ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"

    @property
    def says_completion(self) -> bool:
        """Whether it wants `max_completion_tokens`: OpenAI does, its imitators need not know it."""
        return (urlsplit(self.url).hostname or "").endswith("openai.com")


def endpoint_of(model: str, environment: Mapping[str, str]) -> Endpoint:
    """Of `anthropic/claude-sonnet-4`, `openai/gpt-5-mini`. Any other provider is refused.

    A name without a provider is Anthropic's or OpenAI's if it looks like theirs; where
    OPENAI_BASE_URL or OPENAI_API_BASE names a server, every other one is that server's. Loops
    with tools ask `openai-responses/gpt-5-mini` by Responses; to all others it is OpenAI's as well.
    """
    prefix, slash, name = model.partition("/")
    if not slash:
        prefix, name = _bare_provider(model, environment), model
    elif prefix not in PROVIDERS:
        raise _unknown_provider(model, prefix, name, environment)
    if not name:
        raise BadValueError(f"`model: {model}` names no model", hint="write openai/gpt-5-mini")
    found = _anthropic(name, environment) if prefix == "anthropic" else _openai(name, environment)
    if not _is_address(found.url):
        variable = found.key_variable.replace("API_KEY", "BASE_URL")
        raise BadValueError(
            f"{variable} is not the address of a server", hint=f"export {variable}=http://HOST:PORT"
        )
    return found


def _bare_provider(model: str, environment: Mapping[str, str]) -> str:
    if model.startswith("claude"):
        return "anthropic"
    if OWN_NAMES.match(model) or _base("OPENAI", environment) or not model:
        return "openai"
    raise BadValueError(
        f"`model: {model}` names no provider, and could be any provider's",
        hint=f"write openai/{model} or anthropic/{model}",
    )


def _unknown_provider(
    model: str, prefix: str, name: str, environment: Mapping[str, str]
) -> BadValueError:
    server = _base("OPENAI", environment)
    url = COMPATIBLE.get(prefix, "https://HOST/v1")
    said = f"`model: {model}` names the provider `{prefix}`, which headway does not know"
    if server:
        hint = f"write openai/{name} or openai/{model}, as {server} calls it"
    else:
        hint = (
            f"known: {', '.join(PROVIDERS)}; for a server that speaks OpenAI's Chat Completions, "
            f"write openai/{name} and export OPENAI_BASE_URL={url} OPENAI_API_KEY=..."
        )
    return BadValueError(said, hint=hint)


def must_be_ready(models: Iterable[str], environment: Mapping[str, str]) -> None:
    """Refuse to start when the key of any of these models is missing, before anything is spent."""
    missing: dict[str, list[str]] = {}
    for model in dict.fromkeys(models):
        found = endpoint_of(model, environment)
        if not found.has_key and not found.is_loopback:
            missing.setdefault(found.key_variable, []).append(model)
    if missing:
        keyless = [model for models in missing.values() for model in models]
        raise UsageError(
            f"there is no key for {_listed(keyless)}",
            detail=f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set",
            hint=" ".join(["export", *(f"{name}=..." for name in missing)]),
        )


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # A port that is no number, a bracket that is not closed.
        return False


def _base(provider: str, environment: Mapping[str, str]) -> str:
    """The address that is set for a provider. LiteLLM and aider read the second name."""
    names = (f"{provider}_BASE_URL", f"{provider}_API_BASE")
    return next(filter(None, map(environment.get, names)), "")


def _anthropic(model: str, environment: Mapping[str, str]) -> Endpoint:
    base = _base("ANTHROPIC", environment) or ANTHROPIC_URL
    key, bearer = environment.get("ANTHROPIC_API_KEY"), environment.get("ANTHROPIC_AUTH_TOKEN")
    headers = {"anthropic-version": VERSION}
    if key:
        headers["x-api-key"] = key
    elif bearer:
        headers["authorization"] = f"Bearer {bearer}"
    url = f"{base.rstrip('/').removesuffix('/v1')}/v1/messages"
    return Endpoint("anthropic", model, url, headers, "ANTHROPIC_API_KEY", bool(key or bearer))


def _openai(model: str, environment: Mapping[str, str]) -> Endpoint:
    base = _base("OPENAI", environment) or OPENAI_URL
    key = environment.get("OPENAI_API_KEY")
    headers = {"authorization": f"Bearer {key}"} if key else {}
    for header, variable in (
        ("openai-organization", "OPENAI_ORG_ID"),
        ("openai-project", "OPENAI_PROJECT_ID"),
    ):
        if value := environment.get(variable):
            headers[header] = value
    url = f"{base.rstrip('/')}/chat/completions"
    return Endpoint("openai-chat", model, url, headers, "OPENAI_API_KEY", bool(key))


def _listed(models: list[str]) -> str:
    shown = ", ".join(f"`{model}`" for model in models[:5])
    return shown if len(models) <= 5 else f"{shown} and {len(models) - 5} more"
