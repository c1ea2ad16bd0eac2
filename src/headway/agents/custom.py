"""Runs any other agent program by a pattern from the configuration.

Law: a pattern is lexed once, before anything is filled in, and never meets a shell: whatever a
model's name or a path contains stays one argument.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field

from headway.agents.cli import (
    AgentKind,
    Errand,
    ProcessStart,
    StoredSession,
    write_private,
)
from headway.errors import BadValueError
from headway.plans.grammar import PERMISSIONS

KEYS: Final = ("command", "result", "resume", *PERMISSIONS)
PLACES: Final = ("prompt_file", "model", "session")
WORDS_MAX: Final = 200

_PLACE: Final = re.compile(r"\{([A-Za-z_]*)\}")
_RESULT: Final = re.compile(r"stdout|(?:last-)?json:[\w.-]+")


class AgentSetting(Struct, frozen=True):
    """One table under `agents`."""

    name: str
    command: tuple[str, ...]
    """Words with places in them. Without `{prompt_file}` the prompt is given on stdin."""
    result: str = "stdout"
    """`stdout`, or where in the only or the last JSON object of it: `json:data.text`."""
    resume: tuple[str, ...] = ()
    """How it goes on with `{session}`; empty if it cannot."""
    permissions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By `edit` or `all`: words that are put at the end of its command."""

    def __str__(self) -> str:
        return shlex.join(self.command)


def setting_of(name: str, table: Mapping[str, object]) -> AgentSetting:
    """A table of the configuration, checked; raises BadValueError."""
    for key in table:
        if key not in KEYS:
            raise BadValueError(f"has a key that there is not: `{key}`", hint=" ".join(KEYS))
    if "command" not in table:
        raise BadValueError("has no `command`", hint='command = "hermes -p @{prompt_file}"')
    result = table.get("result", "stdout")
    if not isinstance(result, str) or not _RESULT.fullmatch(result):
        hint = "`stdout`, `json:PATH` or `last-json:PATH`, where PATH is like `data.text`"
        raise BadValueError(f"has `result` {result!r}", hint=hint)
    resume = words_of("resume", table["resume"]) if "resume" in table else ()
    command = words_of("command", table["command"])
    if resume and not any("{session}" in word for word in (*command, *resume)):
        hint = "name the session when it begins and when it goes on: `--session {session}`"
        raise BadValueError("has a `resume` that names no session", hint=hint)
    every = {key: table[key] for key in PERMISSIONS if key in table}
    given = {key: words_of(key, one) if one != [] else () for key, one in every.items()}
    return AgentSetting(name, command, result, resume, given)


def words_of(key: str, value: object, places: tuple[str, ...] = PLACES) -> tuple[str, ...]:
    """A command as words, from a list or a text, with places to fill in. Raises BadValueError."""
    if isinstance(value, str):
        try:
            words = shlex.split(value)
        except ValueError as fault:
            raise BadValueError(f"has a `{key}` that is no command: {fault}") from None
    elif isinstance(value, list) and all(isinstance(word, str) for word in value):
        words = [str(word) for word in value]
    else:
        raise BadValueError(f"has a `{key}` that is neither text nor a list of texts")
    if not 0 < len(words) <= WORDS_MAX or not words[0] or "{" in words[0]:
        raise BadValueError(f"has a `{key}` that names no program")
    for word in words:
        for place in _PLACE.findall(word):
            if places and place not in places:
                hint = "there are {prompt_file}, {model} and {session}"
                raise BadValueError(f"has `{{{place}}}` in its `{key}`", hint=hint)
        if "\0" in word:
            raise BadValueError(f"has a zero byte in its `{key}`")
    return tuple(words)


class Custom(AgentKind):
    """An agent of the configuration, as a kind."""

    def __init__(self, setting: AgentSetting) -> None:
        self.setting = setting
        self.name = setting.name
        self.program = setting.command[0]
        self.permissions = tuple(setting.permissions)
        self.install = f"`[agents.{setting.name}]` in the configuration names it"

    def start(self, errand: Errand) -> ProcessStart:
        setting = self.setting
        words = setting.resume if errand.goes_on else setting.command
        words += setting.permissions.get(errand.permissions, ())
        path = os.path.join(errand.home, "prompt.txt")
        stdin: bytes | None = errand.prompt.encode("utf-8", "replace")
        if any("{prompt_file}" in word for word in words):
            write_private(path, errand.prompt.encode("utf-8", "replace").decode())
            stdin = None
        given = {"prompt_file": path, "model": errand.model, "session": errand.session}
        argv = [_PLACE.sub(lambda match: given[match[1]], word) for word in words]
        return ProcessStart(tuple(word.replace("\0", "") for word in argv), {}, stdin)

    def held(self, home: str, session: str, environ: Mapping[str, str]) -> StoredSession | None:
        """Sessions are its own affair: it is started with `resume`, and fails if there is none."""
        del home, environ
        return StoredSession(session, None) if self.setting.resume else None


def result_in(setting: AgentSetting, output: bytes) -> str | None:
    """The result in what a program wrote; None if it is not where it should be."""
    from headway.wire.values import parsed

    text = output.decode("utf-8", "replace")
    where, _, path = setting.result.partition(":")
    if where == "stdout":
        return text.strip() or None
    value = parsed(text) if where == "json" else _last(text)
    for step in path.split("."):
        if isinstance(value, list) and step.lstrip("-").isdigit() and step.count("-") <= 1:
            value = value[int(step)] if -len(value) <= int(step) < len(value) else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    if value is None:
        return None
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _last(text: str) -> object:
    """The last line that is a JSON object; else the whole, which may be spread over lines."""
    from headway.wire.values import parsed

    for line in reversed(text.splitlines()):
        if line.lstrip().startswith("{") and isinstance(found := parsed(line), dict):
            return found
    return parsed(text)
