"""Runs Gemini CLI as an agent: `gemini --output-format stream-json`, in its own home.

Its session is pinned by `--session-id` before it starts and gone on with by `--resume`. It may do
what the user's settings and policies allow, in a folder that the user trusts; elsewhere it does not
start. What would be a question is denied. It has been run as 0.61.
"""

from __future__ import annotations

import glob
import os
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
from headway.wire.values import Fields, items, object_fields, text_of

HOME: Final = "GEMINI_CLI_HOME"
FOLDER: Final = ".gemini"
SETTINGS: Final = "settings.json"
SEEDS: Final = (
    "oauth_creds.json", "google_accounts.json", ".env", "trustedFolders.json", "policies",
)  # fmt: skip
"""What is linked of the user's folder: the login, and what says what is allowed."""

GIVEN: Final = {"edit": "auto_edit", "all": "yolo"}
TRUST: Final = "GEMINI_CLI_TRUST_WORKSPACE"


class Gemini(AgentKind):
    """How Gemini CLI is started, and where its sessions are."""

    name = "gemini"
    program = "gemini"
    install = "npm install -g @google/gemini-cli"
    lost = ("No previous sessions found", "Error resuming session")

    def start(self, errand: Errand) -> ProcessStart:
        environ = errand.environ
        own = os.path.join(environ.get(HOME) or environ.get("HOME", ""), FOLDER)
        home = os.path.join(errand.home, self.name)
        link_into(os.path.join(home, FOLDER), own, SEEDS)
        copy_into(os.path.join(home, FOLDER), os.path.join(own, SETTINGS), SETTINGS)
        argv = [self.program, "--output-format", "stream-json"]
        argv += ["--resume" if errand.goes_on else "--session-id", errand.session]
        if model := bare_model(errand, "google", "gemini"):
            argv += ["--model", model.removeprefix("gemini/")]
        told = {HOME: home}
        if errand.permissions:
            argv += ["--approval-mode", GIVEN[errand.permissions]]
            told[TRUST] = "true"
        return ProcessStart(tuple(argv), told, errand.prompt.encode("utf-8", "replace"))

    def held(self, home: str, session: str, environ: Mapping[str, str]) -> StoredSession | None:
        """What the session's file has: each reply is there again when its tools have ended."""
        del environ
        pattern = os.path.join(glob.escape(home), self.name, FOLDER, "tmp", "*", "chats", "*.jsonl")
        replies: set[str] = set()
        is_there = is_cut = False
        for path in glob.glob(pattern):
            for line in lines_in(path):
                is_there = is_there or line.get("sessionId") == session
                told = items(object_fields(line.get("$set")).get("messages"))
                for one in (line, *map(object_fields, told)):
                    if one.get("type") in ("gemini", "user"):
                        is_cut = one.get("type") == "gemini"
                    if one.get("type") == "gemini":
                        replies.add(text_of(one.get("id")))
        return StoredSession(session, len(replies), is_cut) if is_there else None

    def hear(self, notes: AgentOutput, event: Fields) -> None:
        match event.get("type"):
            case "init":
                notes.session = text_of(event.get("session_id")) or notes.session
            case "message" if event.get("role") == "assistant":
                said = text_of(event.get("content"))
                _speak(notes)
                notes.text = notes.text + said if event.get("delta") else said
            case "tool_use":
                _speak(notes)
                notes.use(text_of(event.get("tool_name")))
            case "tool_result":
                notes.at = ""
            case "error":
                if event.get("severity") != "warning":
                    notes.fail(text_of(event.get("message")))
            case "result":
                _hear_result(notes, event)


def _speak(notes: AgentOutput) -> None:
    """The model says or does something: after a tool's result that is another reply."""
    if not notes.at:
        notes.at = "speaking"
        notes.turns += 1
        notes.text = ""


def _hear_result(notes: AgentOutput, event: Fields) -> None:
    told = object_fields(event.get("stats"))
    notes.is_over = True
    notes.input_tokens = count_of(told.get("input_tokens"))
    notes.output_tokens = count_of(told.get("output_tokens"))
    if event.get("status") == "success":
        notes.error = ""
    else:
        notes.fail(text_of(object_fields(event.get("error")).get("message")) or notes.error)
