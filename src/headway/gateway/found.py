"""What is read from the configurations of agents: their providers."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from headway.errors import BadValueError
from headway.gateway.settings import (
    DEFAULTS,
    behind,
    checked_url,
    fit_name,
    leads_to_gateway,
    without_version,
)

FILE_BYTES_MAX: Final = 1024 * 1024
"""A configuration is a page; what is larger is left alone."""

_STRING_OR_COMMENT: Final = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_STRING_OR_COMMA: Final = re.compile(r'"(?:\\.|[^"\\])*"|,(?=\s*[}\]])', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Found:
    """A provider that an agent calls."""

    name: str
    """Of the upstream that it becomes: the agent's, then its own."""
    url: str
    """As the agent has it: its address at the gateway stands for the whole of it."""


def found_at(name: str, url: str, environ: Mapping[str, str]) -> Iterator[Found]:
    """The provider, unless its address is none; what is behind a gateway, if it is a gateway's."""
    if leads_to_gateway(url, environ):
        url = behind(environ).get(name, "")
    if not fit_name(name) or not url:
        return
    try:
        yield Found(name, checked_url(url, name))
    except BadValueError:
        # Whoever wrote it will hear of it from the agent.
        return


def openai_itself(name: str, environ: Mapping[str, str], *variables: str) -> Iterator[Found]:
    """OpenAI, for an agent that does not follow these variables, if they lead elsewhere."""
    set_ = (environ.get(variable, "").strip() for variable in variables)
    url = next(filter(None, set_), "")
    if leads_to_gateway(url, environ):
        url = behind(environ).get("openai", "")
    if url and without_version(url.rstrip("/")) != DEFAULTS["openai"]:
        yield Found(name, f"{DEFAULTS['openai']}/v1")


def table(value: object) -> dict[str, object]:
    """A table of a configuration; what is none is an empty one."""
    return {str(key): one for key, one in value.items()} if isinstance(value, dict) else {}


def text_of(path: str) -> str | None:
    """A file's text, or `None` if there is none; raises OSError and ValueError."""
    try:
        with open(path, "rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if len(content) > FILE_BYTES_MAX:
        raise ValueError(f"{os.path.basename(path)} is too large")
    return content.decode()


def plain_json(text: str) -> str:
    """JSON without the comments and last commas that people write."""

    def kept(match: re.Match[str]) -> str:
        return match[0] if match[0].startswith('"') else " "

    return _STRING_OR_COMMA.sub(kept, _STRING_OR_COMMENT.sub(kept, text))
