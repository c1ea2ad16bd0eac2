"""Which account and header dialect a request belongs to.

Laws:
- A key never leaves the process: an account is named by a digest.
- A name holds the address of a provider that is listed here, and of no other server: that may be a
  proxy of the user's own.
- A request names its key, and the login that it belongs to where that is known: a login's token
  changes every few hours. Admission decides which account both mean (`pacing/memory.py`).
- The same key names the same account in every process, thread and client of a machine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import repeat
from typing import Final
from urllib.parse import parse_qsl

from headway.base.numbers import REMEMBERED_MAX
from headway.pacing import headers as dialects
from headway.wire.values import WireName

KEY_HEADERS: Final = ("x-api-key", "api-key", "x-goog-api-key", "authorization")
"""Anthropic, Azure, Gemini, all others."""
KEY_PARAMETER: Final = "key"
"""Of a query: Gemini takes its key there, too."""
SCOPE_HEADERS: Final = ("openai-organization", "openai-project")
"""One key can spend for several organisations and projects, each with limits of its own."""
LOGIN_HEADER: Final = "chatgpt-account-id"
"""The account of a ChatGPT login."""
LOGIN_PREFIX: Final = "sk-ant-oat"
"""Of the access tokens of Anthropic's logins."""
PAYER_HEADERS: Final = (*KEY_HEADERS, *SCOPE_HEADERS, LOGIN_HEADER)
GATEWAY_VARIABLE: Final = "HEADWAY_GATEWAY"
"""The gateway that the variables of this environment lead to, token and all."""
DIALECT_OF_HOST: Final[dict[str, dialects.Dialect]] = {
    "api.anthropic.com": dialects.ANTHROPIC,
    "api.cerebras.ai": dialects.CEREBRAS,
    "api.groq.com": dialects.GROQ,
    "api.openai.com": dialects.OPENAI,
    "generativelanguage.googleapis.com": dialects.GEMINI,
}

PROVIDER_DOMAINS: Final = (
    "amazonaws.com", "anthropic.com", "azure.com", "cerebras.ai", "chatgpt.com", "cohere.com",
    "deepseek.com", "fireworks.ai", "googleapis.com", "groq.com", "mistral.ai", "openai.com",
    "openrouter.ai", "together.xyz", "x.ai",
)  # fmt: skip
"""Of providers that many use: an address in one of them shows who is paid."""
OTHER_SERVER: Final = "server"
"""What stands in a name in place of any other address."""
DIALECT_OF_WIRE: Final[dict[WireName, dialects.Dialect]] = {
    "anthropic": dialects.ANTHROPIC,
    "openai-chat": dialects.OPENAI,
    "openai-responses": dialects.OPENAI,
    "gemini": dialects.GEMINI,
}
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


@lru_cache(REMEMBERED_MAX)
def host_name(scheme: str, host: str, port: int | None) -> str:
    """`api.openai.com`, `127.0.0.1:8080`, `[::1]:8080`: local servers differ by their ports."""
    name = f"[{host}]" if ":" in host else host.lower()
    return name if port is None or port == _DEFAULT_PORTS.get(scheme) else f"{name}:{port}"


_USER_ID: Final = re.compile(
    rb'"metadata"\s*:\s*\{[^{}]*"user_id"\s*:\s*"((?:[^"\\]|\\.){0,1000})"'
)
_ACCOUNT_ID: Final = re.compile(rb"account(?:_uuid)?[^0-9a-z]{1,8}([0-9a-f-]{36})")
"""Claude Code names its account in every request. In a text of a prompt quotes are escaped."""


def account_name(
    host: str, headers: Mapping[str, str], query: str = "", body: bytes = b""
) -> tuple[str, str]:
    """`api.anthropic.com#1a2b3c4d`: the provider's host (`server` for one that is not known) and a
    digest of the key, or the account that a ChatGPT login names; and the key's login."""
    login = ""
    if LOGIN_PREFIX in headers.get("authorization", ""):
        user = _USER_ID.search(body)
        match = None if user is None else _ACCOUNT_ID.search(user[1])
        login = "" if match is None else dialects.account_digest("anthropic", match[1].decode())
    return _account_name(host, query, *map(headers.get, PAYER_HEADERS, repeat(""))), login


@lru_cache(REMEMBERED_MAX)
def _account_name(host: str, query: str, *payer_headers: str) -> str:
    keys = payer_headers[: len(KEY_HEADERS)]
    *scopes, chatgpt = payer_headers[len(KEY_HEADERS) :]
    if chatgpt:
        return dialects.account_digest("chatgpt", chatgpt)
    key = "".join(map(_lasting_part, keys))
    if not key and query:
        key = "".join([value for name, value in parse_qsl(query) if name == KEY_PARAMETER])
    if any(f".{host}".endswith(f".{domain}") for domain in PROVIDER_DOMAINS):
        return dialects.account_digest(host, key, *scopes)
    return dialects.account_digest(OTHER_SERVER, host, key, *scopes)


def _lasting_part(value: str) -> str:
    """The key without its scheme. AWS signs each request anew: `Credential=KEY/...` keeps KEY."""
    scheme, _, rest = value.partition(" ")
    if scheme.lower().startswith("aws4"):
        return rest.partition("/")[0]
    return rest.strip() if scheme.lower() in ("bearer", "basic") else value


def expected_dialect(account: str, wire: WireName) -> dialects.Dialect:
    """What the first response will probably be written in."""
    return DIALECT_OF_HOST.get(account.partition("#")[0]) or DIALECT_OF_WIRE[wire]


def dialect_of(account: str, wire: WireName, status: int, headers: Mapping[str, str]) -> str:
    """The dialect of a response: PLAIN for an answer without limits, none for a failure."""
    named = DIALECT_OF_HOST.get(account.partition("#")[0])
    if named is not None:
        return named.name
    told = _guessed(headers.get("server", ""), *headers)
    if told is dialects.PLAIN:
        return "gemini" if wire == "gemini" else "" if status >= 300 else told.name
    return told.name


@lru_cache(REMEMBERED_MAX)
def _guessed(server: str, *names: str) -> dialects.Dialect:
    """The responses of one provider have the same header names."""
    return dialects.guess({**dict.fromkeys(names, ""), "server": server})
