"""Runs Claude Code as an agent: `claude -p` with stream-json, in its own configuration folder.

Its session is pinned by `--session-id` before it starts and gone on with by `--resume`. It may do
what the user's settings allow; what would be a question is denied, and told at the end
(`permission_denials`). It has been run as 2.1.325.
"""

from __future__ import annotations

import glob
import json
import os
import sys
from collections.abc import Mapping
from typing import Final

from headway.agents.cli import (
    AgentKind,
    AgentOutput,
    Errand,
    ProcessStart,
    StoredSession,
    bare_model,
    count_of,
    lines_in,
    link_into,
    money_of,
    write_private,
)
from headway.wire.values import Fields, items, object_fields, parsed, text_of

FOLDER: Final = "CLAUDE_CONFIG_DIR"
STATE: Final = ".claude.json"
SEEDS: Final = (".credentials.json", "settings.json", "remote-settings.json")
"""What is linked of the user's folder: the login, and what the user and an organisation allow."""

KEPT: Final = (
    "oauthAccount", "mcpServers", "hasCompletedOnboarding", "customApiKeyResponses",
    "bypassPermissionsModeAccepted",
)  # fmt: skip
"""What is taken over of its state; the rest is a history of all projects."""

TRUST: Final = (
    "hasTrustDialogAccepted", "allowedTools", "mcpServers", "enabledMcpjsonServers",
    "disabledMcpjsonServers",
)  # fmt: skip
"""What is taken over of each project: without its trust, what its own settings allow is ignored."""

GIVEN: Final = {
    "": (),
    "edit": ("--permission-mode", "acceptEdits"),
    "all": ("--permission-mode", "bypassPermissions"),
}
AS_ROOT: Final = (
    "--permission-mode", "acceptEdits",
    "--allowedTools", "Bash,Edit,Write,NotebookEdit,WebFetch,WebSearch,mcp__*",
)  # fmt: skip
"""`all` where it refuses to bypass: as root, outside of what is declared to be a sandbox."""

KEYS: Final = (
    "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX",
)  # fmt: skip

STATE_BYTES_MAX: Final = 64 * 1024 * 1024


class Claude(AgentKind):
    """How Claude Code is started, and where its sessions are."""

    name = "claude"
    program = "claude"
    install = "npm install -g @anthropic-ai/claude-code"
    lost = ("No conversation found", "is already in use")
    is_cost_summed = True

    def start(self, errand: Errand) -> ProcessStart:
        argv = [
            self.program, "-p", "--output-format", "stream-json", "--verbose",
            *_permissions(errand),
        ]  # fmt: skip
        argv += ["--resume" if errand.goes_on else "--session-id", errand.session]
        if model := bare_model(errand, "anthropic", "claude"):
            argv += ["--model", model]
        told = {"DISABLE_AUTOUPDATER": "1", "CLAUDECODE": ""}
        if _has_own(errand):
            folder = os.path.join(errand.home, self.name)
            _seed(folder, errand.environ)
            told[FOLDER] = folder
        return ProcessStart(tuple(argv), told, errand.prompt.encode("utf-8", "replace"))

    def held(self, home: str, session: str, environ: Mapping[str, str]) -> StoredSession | None:
        """What the session on the disk has; nothing if there is none."""
        for folder in (os.path.join(home, self.name), _own(environ)):
            pattern = os.path.join(glob.escape(folder), "projects", "*", f"{session}.jsonl")
            for path in glob.glob(pattern):
                messages = [object_fields(line.get("message")) for line in lines_in(path)]
                said = [one for one in messages if one and one.get("model") != "<synthetic>"]
                ids = {text_of(one.get("id")) for one in said if one.get("role") == "assistant"}
                is_cut = bool(said) and said[-1].get("role") == "assistant"
                return StoredSession(session, len(ids - {""}), is_cut)
        return None

    def hear(self, notes: AgentOutput, event: Fields) -> None:
        match event.get("type"):
            case "system" if event.get("subtype") == "init":
                notes.session = text_of(event.get("session_id")) or notes.session
            case "assistant":
                _hear_reply(notes, object_fields(event.get("message")))
            case "result":
                _hear_result(notes, event)


def _hear_reply(notes: AgentOutput, message: Fields) -> None:
    """A reply comes in parts, each of which tells the usage as it was at the beginning."""
    number = text_of(message.get("id"))
    if number not in notes.replies:
        notes.turns += 1
    usage = object_fields(message.get("usage"))
    given = sum(count_of(usage.get(name)) for name in INPUTS)
    notes.replies[number] = (given, count_of(usage.get("output_tokens")))
    for part in map(object_fields, items(message.get("content"))):
        if part.get("type") == "tool_use":
            notes.use(text_of(part.get("name")))
        elif part.get("type") == "text":
            notes.text = text_of(part.get("text"))


INPUTS: Final = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def _hear_result(notes: AgentOutput, event: Fields) -> None:
    usage = object_fields(event.get("usage"))
    notes.is_over = True
    notes.session = text_of(event.get("session_id")) or notes.session
    notes.input_tokens = sum(count_of(usage.get(name)) for name in INPUTS)
    notes.output_tokens = count_of(usage.get("output_tokens"))
    notes.microusd = money_of(event.get("total_cost_usd"))
    said = text_of(event.get("result"))
    for denial in map(object_fields, items(event.get("permission_denials"))):
        notes.deny(text_of(denial.get("tool_name")))
    if event.get("is_error") or event.get("subtype") != "success":
        told = [text_of(one) for one in items(event.get("errors"))]
        notes.fail(said or "; ".join(filter(None, told)) or text_of(event.get("subtype")))
    else:
        notes.text, notes.error = said or notes.text, ""


def _permissions(errand: Errand) -> tuple[str, ...]:
    is_refused = os.geteuid() == 0 and errand.environ.get("IS_SANDBOX") != "1"
    return AS_ROOT if errand.permissions == "all" and is_refused else GIVEN[errand.permissions]


def _has_own(errand: Errand) -> bool:
    """On a Mac a login is in the keychain, under a name for each folder: without a key it is found
    in the user's own folder only."""
    has_file = os.path.exists(os.path.join(_own(errand.environ), SEEDS[0]))
    return sys.platform != "darwin" or has_file or any(map(errand.environ.get, KEYS))


def _own(environ: Mapping[str, str]) -> str:
    return environ.get(FOLDER) or os.path.join(environ.get("HOME", ""), ".claude")


def _seed(folder: str, environ: Mapping[str, str]) -> None:
    own = _own(environ)
    link_into(folder, own, SEEDS)
    path = os.path.join(own if environ.get(FOLDER) else environ.get("HOME", ""), STATE)
    try:
        with open(path, "rb") as file:
            found = object_fields(parsed(file.read(STATE_BYTES_MAX)))
    except OSError:
        found = {}
    if not os.path.exists(os.path.join(folder, STATE)):
        kept: dict[str, object] = {name: found[name] for name in KEPT if name in found}
        kept["projects"] = {
            path: trust
            for path, one in object_fields(found.get("projects")).items()
            if (
                trust := {
                    name: object_fields(one)[name] for name in TRUST if name in object_fields(one)
                }
            )
        }
        write_private(os.path.join(folder, STATE), json.dumps(kept))
