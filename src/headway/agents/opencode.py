"""Runs opencode as an agent: `opencode run --format json`, with its own data folders.

Its session cannot be named before; its data has no other one, so it is found there. It may do what
the user's configuration allows; what would be a question is rejected. It has been run as 1.18.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from typing import Final
from urllib.parse import quote

from headway.agents.cli import (
    AgentKind,
    AgentOutput,
    Errand,
    ProcessStart,
    StoredSession,
    count_of,
    link_into,
    money_of,
)
from headway.wire.values import Fields, object_fields, parsed, text_of

DATA: Final = "XDG_DATA_HOME"
FOLDERS: Final = {DATA: "data", "XDG_STATE_HOME": "state", "XDG_CACHE_HOME": "cache"}
SEEDS: Final = ("auth.json",)
PERMISSION: Final = "OPENCODE_PERMISSION"
"""JSON that it merges over the `permission` of its configuration."""

SESSIONS: Final = (
    "SELECT id FROM session WHERE parent_id IS NULL ORDER BY time_created DESC LIMIT 1"
)
"""Subagents have parents."""
EDITS: Final = {"*": "allow"}
DENIED: Final = ("rejected permission", "specified a rule which prevents")
"""What it says in the place of a result: a question that was rejected, a rule that denies."""

MESSAGES: Final = "SELECT data FROM message WHERE session_id = ?"
BUSY_S_MAX: Final = 2.0


class Opencode(AgentKind):
    """How opencode is started, and where its sessions are."""

    name = "opencode"
    program = "opencode"
    install = "npm install -g opencode-ai"
    lost = ("Session not found", "NotFoundError")

    def start(self, errand: Errand) -> ProcessStart:
        environ = errand.environ
        told = {name: os.path.join(errand.home, part) for name, part in FOLDERS.items()}
        own = environ.get(DATA) or os.path.join(environ.get("HOME", ""), ".local", "share")
        link_into(os.path.join(told[DATA], self.name), os.path.join(own, self.name), SEEDS)
        argv = [self.program, "run", "--format", "json"]
        if errand.permissions == "all":
            argv.append("--auto")
        elif errand.permissions == "edit":
            told[PERMISSION] = _editing(environ.get(PERMISSION, ""))
        if errand.goes_on:
            argv += ["--session", errand.session]
        # It names models with their providers; a bare name is none to it.
        if "/" in errand.model:
            argv += ["--model", errand.model]
        told["OPENCODE_DISABLE_AUTOUPDATE"] = "1"
        return ProcessStart(tuple(argv), told, errand.prompt.encode("utf-8", "replace"))

    def held(self, home: str, session: str, environ: Mapping[str, str]) -> StoredSession | None:
        del session, environ
        path = os.path.join(home, FOLDERS[DATA], self.name, "opencode.db")
        if not os.path.exists(path):
            return None
        try:
            url = f"file:{quote(path)}?mode=ro"
            with closing(sqlite3.connect(url, uri=True, timeout=BUSY_S_MAX)) as database:
                found = database.execute(SESSIONS).fetchone()
                if found is None:
                    return None
                replies = sum(_is_reply(row[0]) for row in database.execute(MESSAGES, found))
                return StoredSession(str(found[0]), replies)
        except sqlite3.Error:
            # A database of another version: its program knows better what to do with it.
            return None

    def hear(self, notes: AgentOutput, event: Fields) -> None:
        part = object_fields(event.get("part"))
        notes.session = text_of(event.get("sessionID")) or notes.session
        match event.get("type"):
            case "text":
                reply, said = text_of(part.get("messageID")), text_of(part.get("text"))
                notes.text = f"{notes.text}\n{said}" if reply and reply == notes.at else said
                notes.at = reply
            case "tool_use":
                notes.use(text_of(part.get("tool")))
                error = text_of(object_fields(part.get("state")).get("error"))
                if any(words in error for words in DENIED):
                    notes.deny(text_of(part.get("tool")))
            case "step_finish":
                told = object_fields(part.get("tokens"))
                cache = object_fields(told.get("cache"))
                notes.turns += 1
                notes.is_over = part.get("reason") not in ("tool-calls", None)
                notes.input_tokens += count_of(told.get("input")) + sum(
                    count_of(cache.get(name)) for name in ("read", "write")
                )
                notes.output_tokens += count_of(told.get("output"))
                notes.output_tokens += count_of(told.get("reasoning"))
                notes.microusd += money_of(part.get("cost"))
            case "error":
                failure = object_fields(event.get("error"))
                said = text_of(object_fields(failure.get("data")).get("message"))
                notes.fail(said or text_of(failure.get("name")))


def _editing(given: str) -> str:
    """The permissions of the environment, with edits allowed; patterns that deny one stay."""
    rules = object_fields(parsed(given))
    return json.dumps({**rules, "edit": {**EDITS, **object_fields(rules.get("edit")), **EDITS}})


def _is_reply(data: object) -> bool:
    """Whether a message is the model's, and all of it came."""
    found = object_fields(parsed(data)) if isinstance(data, str) else {}
    return found.get("role") == "assistant" and "completed" in object_fields(found.get("time"))
