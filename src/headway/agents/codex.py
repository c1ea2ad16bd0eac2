"""Runs Codex as an agent: `codex exec --json`, in its own CODEX_HOME.

Its session cannot be named before; its home has no other one, so it is found there. Commands run in
the sandbox of the user's configuration, which is read-only if that says nothing; `exec` asks no
question. It has been run as 0.166.
"""

from __future__ import annotations

import glob
import json
import os
import re
import tomllib
from collections.abc import Mapping
from typing import Final

from headway.agents.cli import (
    AgentKind,
    AgentOutput,
    Errand,
    ProcessStart,
    StoredSession,
    bare_model,
    copy_into,
    count_of,
    lines_in,
    link_into,
)
from headway.wire.values import Fields, object_fields, text_of

HOME: Final = "CODEX_HOME"
CONFIG: Final = "config.toml"
SEEDS: Final = ("auth.json", "rules", "hooks.json", "managed_config.toml", "requirements.toml")
"""What is linked of the user's home: the login, and what says what is allowed."""

EDIT: Final = ("--sandbox", "workspace-write")
ALL: Final = "--dangerously-bypass-approvals-and-sandbox"

TOOLS: Final = {
    "command_execution": "shell", "file_change": "edit", "mcp_tool_call": "mcp",
    "web_search": "web_search",
}  # fmt: skip
"""Items that are tools at work, and what they are called."""

_ROLLOUT: Final = re.compile(r"rollout-.*-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.jsonl")


class Codex(AgentKind):
    """How Codex is started, and where its sessions are."""

    name = "codex"
    program = "codex"
    install = "npm install -g @openai/codex"
    lost = ("no rollout found", "No session found", "thread not found")
    is_summed = True

    def start(self, errand: Errand) -> ProcessStart:
        folder = os.path.join(errand.home, self.name)
        own = errand.environ.get(HOME) or os.path.join(errand.environ.get("HOME", ""), ".codex")
        link_into(folder, own, SEEDS)
        copy_into(folder, os.path.join(own, CONFIG), CONFIG)
        argv = [self.program, "exec", "--json", "--skip-git-repo-check"]
        # A home that was made for another command leads to the user's own databases.
        argv += ["-c", f"sqlite_home={json.dumps(folder)}"]
        if errand.permissions == "all":
            argv.append(ALL)
        elif errand.permissions == "edit" and not _may_edit(folder):
            argv += EDIT
        if model := bare_model(errand, "openai", "gpt", "o1", "o3", "o4", "codex"):
            argv += ["-m", model]
        argv += ["resume", errand.session, "-"] if errand.goes_on else ["-"]
        return ProcessStart(tuple(argv), {HOME: folder}, errand.prompt.encode("utf-8", "replace"))

    def held(self, home: str, session: str, environ: Mapping[str, str]) -> StoredSession | None:
        """What the first session of the home has: those of its subagents are younger."""
        del session, environ
        pattern = os.path.join(glob.escape(home), self.name, "sessions", "**", "rollout-*.jsonl")
        found = {path: _ROLLOUT.fullmatch(os.path.basename(path))
                 for path in sorted(glob.glob(pattern, recursive=True))}  # fmt: skip
        for path, match in found.items():
            if match is not None:
                return _held(path, match[1])
        return None

    def hear(self, notes: AgentOutput, event: Fields) -> None:
        item = object_fields(event.get("item"))
        match event.get("type"):
            case "thread.started":
                notes.session = text_of(event.get("thread_id")) or notes.session
            case "item.completed" if item.get("type") == "agent_message":
                notes.turns += 1
                notes.text = text_of(item.get("text"))
            case "item.completed" if (name := TOOLS.get(text_of(item.get("type")))) is not None:
                used = text_of(item.get("tool")) if name == "mcp" else name
                notes.use(used)
                if item.get("status") == "declined":
                    notes.deny(used)
            case "turn.completed":
                usage = object_fields(event.get("usage"))
                notes.is_over, notes.error = True, ""
                notes.input_tokens = count_of(usage.get("input_tokens"))
                notes.output_tokens = count_of(usage.get("output_tokens"))
            case "turn.failed":
                notes.is_over = True
                notes.fail(text_of(object_fields(event.get("error")).get("message")))
            case "error":
                notes.fail(text_of(event.get("message")))


def _held(path: str, session: str) -> StoredSession:
    replies, is_cut, given, gave = 0, False, 0.0, 0.0
    for line in lines_in(path):
        payload = object_fields(line.get("payload"))
        if line.get("type") == "token_usage_record":
            replies, is_cut = replies + 1, True
        elif payload.get("type") in ("function_call_output", "custom_tool_call_output"):
            is_cut = False
        if payload.get("type") == "token_count":
            total = object_fields(object_fields(payload.get("info")).get("total_token_usage"))
            given = count_of(total.get("input_tokens"))
            gave = count_of(total.get("output_tokens"))
    return StoredSession(session, replies, is_cut, given, gave)


def _may_edit(folder: str) -> bool:
    """Whether the user's configuration has a sandbox for all projects that is as wide, or wider."""
    try:
        with open(os.path.join(folder, CONFIG), "rb") as file:
            return tomllib.load(file).get("sandbox_mode") in (
                "workspace-write",
                "danger-full-access",
            )
    except (OSError, ValueError):
        return False
