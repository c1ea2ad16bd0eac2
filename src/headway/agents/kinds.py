"""The agent programs that plans can name: four built in, others from the configuration.

Each has its own home, so that a session is found there again. It may do what its user's settings
allow; what would be a question is denied. Run as Claude Code 2.1.325, Codex 0.166, opencode 1.18,
Gemini CLI 0.61.

Law: a pattern is lexed once, before anything is filled in, and never meets a shell: whatever a
model's name or a path contains stays one argument.
"""

from __future__ import annotations

import glob
import json
import os
import re
import shlex
import sqlite3
import sys
import tomllib
from collections.abc import Mapping
from contextlib import closing
from typing import Final
from urllib.parse import quote

from msgspec import Struct, field

from headway.agents.programs import (
    AgentKind,
    AgentOutput,
    Errand,
    ProcessStart,
    StoredSession,
    at,
    bare_model,
    copy_into,
    lines_in,
    link_into,
    money_of,
    text_at,
    tokens_in,
    write_private,
)
from headway.base.fields import Fields, items, object_fields, parsed, text_of
from headway.errors import BadValueError
from headway.plans.grammar import PERMISSIONS

# Claude Code: `claude -p` with stream-json. Its session is pinned before it starts.

CLAUDE_FOLDER: Final = "CLAUDE_CONFIG_DIR"
CLAUDE_STATE: Final = ".claude.json"
CLAUDE_STATE_BYTES_MAX: Final = 64 * 1024 * 1024
CLAUDE_LINKS: Final = (".credentials.json", "settings.json", "remote-settings.json")
"""What is linked of the user's folder: the login, and what the user and an organisation allow."""

CLAUDE_KEPT: Final = (
    "oauthAccount", "mcpServers", "hasCompletedOnboarding", "customApiKeyResponses",
    "bypassPermissionsModeAccepted",
)  # fmt: skip
"""What is taken over of its state; the rest is a history of all projects."""

CLAUDE_TRUST: Final = (
    "hasTrustDialogAccepted", "allowedTools", "mcpServers", "enabledMcpjsonServers",
    "disabledMcpjsonServers",
)  # fmt: skip
"""What is taken over of each project: without its trust, what its own settings allow is ignored."""

CLAUDE_GIVEN: Final = {"": "", "edit": "acceptEdits", "all": "bypassPermissions"}
CLAUDE_ALL_TOOLS: Final = "Bash,Edit,Write,NotebookEdit,WebFetch,WebSearch,mcp__*"
"""`all` where it refuses to bypass: as root, outside of what is declared to be a sandbox."""

CLAUDE_KEYS: Final = (
    "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX",
)  # fmt: skip
CLAUDE_INPUTS: Final = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class Claude(AgentKind):
    name = program = "claude"
    install = "npm install -g @anthropic-ai/claude-code"
    lost = ("No conversation found", "is already in use")
    is_cost_summed = True

    def start(self, errand: Errand) -> ProcessStart:
        argv = [self.program, "-p", "--output-format", "stream-json", "--verbose"]
        is_refused = os.geteuid() == 0 and errand.environ.get("IS_SANDBOX") != "1"
        if errand.permissions == "all" and is_refused:
            argv += ["--permission-mode", "acceptEdits", "--allowedTools", CLAUDE_ALL_TOOLS]
        elif errand.permissions:
            argv += ["--permission-mode", CLAUDE_GIVEN[errand.permissions]]
        argv += ["--resume" if errand.goes_on else "--session-id", errand.session]
        if model := bare_model(errand, "anthropic", "claude"):
            argv += ["--model", model]
        variables = {"DISABLE_AUTOUPDATER": "1", "CLAUDECODE": ""}
        own = _claude_folder(errand.environ)
        # On a Mac a login is in the keychain, under a name for each folder: without a key it is
        # found in the user's own folder only.
        has_login = os.path.exists(os.path.join(own, CLAUDE_LINKS[0]))
        if sys.platform != "darwin" or has_login or any(map(errand.environ.get, CLAUDE_KEYS)):
            variables[CLAUDE_FOLDER] = folder = os.path.join(errand.home, self.name)
            link_into(folder, own, CLAUDE_LINKS)
            if not os.path.exists(os.path.join(folder, CLAUDE_STATE)):
                write_private(os.path.join(folder, CLAUDE_STATE), _claude_state(errand.environ))
        return ProcessStart(tuple(argv), variables, errand.stdin)

    def held(self, home: str, session: str, environ: Mapping[str, str]) -> StoredSession | None:
        for folder in (os.path.join(home, self.name), _claude_folder(environ)):
            pattern = os.path.join(glob.escape(folder), "projects", "*", f"{session}.jsonl")
            for path in glob.glob(pattern):
                messages = [object_fields(line.get("message")) for line in lines_in(path)]
                real = [one for one in messages if one and one.get("model") != "<synthetic>"]
                ids = {text_of(one.get("id")) for one in real if one.get("role") == "assistant"}
                is_cut = bool(real) and real[-1].get("role") == "assistant"
                return StoredSession(session, len(ids - {""}), is_cut)
        return None

    def hear(self, notes: AgentOutput, event: Fields) -> None:
        match event.get("type"):
            case "system" if event.get("subtype") == "init":
                notes.session = text_of(event.get("session_id")) or notes.session
            case "assistant":
                self._hear_reply(notes, at(event, "message"))
            case "result":
                self._hear_result(notes, event)

    def _hear_reply(self, notes: AgentOutput, message: Fields) -> None:
        """A reply comes in parts, each of which has the usage as it was at the beginning."""
        number = text_of(message.get("id"))
        if number not in notes.replies:
            notes.turns += 1
        usage = at(message, "usage")
        notes.replies[number] = (
            tokens_in(usage, *CLAUDE_INPUTS),
            tokens_in(usage, "output_tokens"),
        )
        for part in map(object_fields, items(message.get("content"))):
            if part.get("type") == "tool_use":
                notes.use(text_of(part.get("name")))
            elif part.get("type") == "text":
                notes.text = text_of(part.get("text"))

    def _hear_result(self, notes: AgentOutput, event: Fields) -> None:
        usage = at(event, "usage")
        notes.is_over = True
        notes.session = text_of(event.get("session_id")) or notes.session
        notes.input_tokens = tokens_in(usage, *CLAUDE_INPUTS)
        notes.output_tokens = tokens_in(usage, "output_tokens")
        notes.microusd = money_of(event.get("total_cost_usd"))
        text = text_of(event.get("result"))
        for denial in map(object_fields, items(event.get("permission_denials"))):
            notes.deny(text_of(denial.get("tool_name")))
        if event.get("is_error") or event.get("subtype") != "success":
            errors = [text_of(one) for one in items(event.get("errors"))]
            notes.fail(text or "; ".join(filter(None, errors)) or text_of(event.get("subtype")))
        else:
            notes.text, notes.error = text or notes.text, ""


def _claude_folder(environ: Mapping[str, str]) -> str:
    return environ.get(CLAUDE_FOLDER) or os.path.join(environ.get("HOME", ""), ".claude")


def _claude_state(environ: Mapping[str, str]) -> bytes:
    folder = environ.get(CLAUDE_FOLDER) or environ.get("HOME", "")
    try:
        with open(os.path.join(folder, CLAUDE_STATE), "rb") as file:
            found = object_fields(parsed(file.read(CLAUDE_STATE_BYTES_MAX)))
    except OSError:
        found = {}
    every = {
        path: {name: one[name] for name in CLAUDE_TRUST if name in one}
        for path, project in object_fields(found.get("projects")).items()
        if (one := object_fields(project))
    }
    projects = {path: trust for path, trust in every.items() if trust}
    kept = {name: found[name] for name in CLAUDE_KEPT if name in found}
    return json.dumps({**kept, "projects": projects}).encode()


# Codex: `codex exec --json`. Its session cannot be named before; its home has no other one.
# Commands run in the sandbox of the user's configuration, which is read-only if that says nothing.

CODEX_HOME: Final = "CODEX_HOME"
CODEX_CONFIG: Final = "config.toml"
CODEX_LINKS: Final = (
    "auth.json", "rules", "hooks.json", "managed_config.toml", "requirements.toml",
)  # fmt: skip
CODEX_TOOLS: Final = {
    "command_execution": "shell", "file_change": "edit", "mcp_tool_call": "mcp",
    "web_search": "web_search",
}  # fmt: skip
"""Items that are tools at work, and what they are called."""

_ROLLOUT: Final = re.compile(r"rollout-.*-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.jsonl")


class Codex(AgentKind):
    name = program = "codex"
    install = "npm install -g @openai/codex"
    lost = ("no rollout found", "No session found", "thread not found")
    is_summed = True

    def start(self, errand: Errand) -> ProcessStart:
        folder, environ = os.path.join(errand.home, self.name), errand.environ
        own = environ.get(CODEX_HOME) or os.path.join(environ.get("HOME", ""), ".codex")
        link_into(folder, own, CODEX_LINKS)
        copy_into(folder, os.path.join(own, CODEX_CONFIG), CODEX_CONFIG)
        argv = [self.program, "exec", "--json", "--skip-git-repo-check"]
        # A home that was made for another command leads to the user's own databases.
        argv += ["-c", f"sqlite_home={json.dumps(folder)}"]
        if errand.permissions == "all":
            argv.append("--dangerously-bypass-approvals-and-sandbox")
        elif errand.permissions == "edit" and not _codex_may_edit(folder):
            argv += ["--sandbox", "workspace-write"]
        if model := bare_model(errand, "openai", "gpt", "o1", "o3", "o4", "codex"):
            argv += ["-m", model]
        argv += ["resume", errand.session, "-"] if errand.goes_on else ["-"]
        return ProcessStart(tuple(argv), {CODEX_HOME: folder}, errand.stdin)

    def held(self, home: str, session: str, environ: Mapping[str, str]) -> StoredSession | None:
        """What the first session of the home has: those of its subagents are younger."""
        del session, environ
        pattern = os.path.join(glob.escape(home), self.name, "sessions", "**", "rollout-*.jsonl")
        for path in sorted(glob.glob(pattern, recursive=True)):
            if match := _ROLLOUT.fullmatch(os.path.basename(path)):
                return _codex_session(path, match[1])
        return None

    def hear(self, notes: AgentOutput, event: Fields) -> None:
        item = at(event, "item")
        match event.get("type"):
            case "thread.started":
                notes.session = text_of(event.get("thread_id")) or notes.session
            case "item.completed" if item.get("type") == "agent_message":
                notes.turns += 1
                notes.text = text_of(item.get("text"))
            case "item.completed" if name := CODEX_TOOLS.get(text_of(item.get("type"))):
                used = text_of(item.get("tool")) if name == "mcp" else name
                notes.use(used)
                if item.get("status") == "declined":
                    notes.deny(used)
            case "turn.completed":
                usage = at(event, "usage")
                notes.is_over, notes.error = True, ""
                notes.input_tokens = tokens_in(usage, "input_tokens")
                notes.output_tokens = tokens_in(usage, "output_tokens")
            case "turn.failed":
                notes.is_over = True
                notes.fail(text_at(event, "error.message"))
            case "error":
                notes.fail(text_of(event.get("message")))


def _codex_session(path: str, session: str) -> StoredSession:
    replies, is_cut, total = 0, False, Fields()
    for line in lines_in(path):
        payload = at(line, "payload")
        if line.get("type") == "token_usage_record":
            replies, is_cut = replies + 1, True
        elif payload.get("type") in ("function_call_output", "custom_tool_call_output"):
            is_cut = False
        if payload.get("type") == "token_count":
            total = at(payload, "info.total_token_usage")
    given, gave = (
        tokens_in(total, "input_tokens"),
        tokens_in(total, "output_tokens"),
    )
    return StoredSession(session, replies, is_cut, given, gave)


def _codex_may_edit(folder: str) -> bool:
    """Whether the user's configuration has a sandbox for all projects that is as wide, or wider."""
    try:
        with open(os.path.join(folder, CODEX_CONFIG), "rb") as file:
            mode = tomllib.load(file).get("sandbox_mode")
    except (OSError, ValueError):
        return False
    return mode in ("workspace-write", "danger-full-access")


# opencode: `opencode run --format json`. Its session cannot be named before; its data has no other.

OPENCODE_DATA: Final = "XDG_DATA_HOME"
OPENCODE_FOLDERS: Final = {
    OPENCODE_DATA: "data", "XDG_STATE_HOME": "state", "XDG_CACHE_HOME": "cache",
}  # fmt: skip
OPENCODE_PERMISSION: Final = "OPENCODE_PERMISSION"
"""JSON that it merges over the `permission` of its configuration."""

OPENCODE_SESSION: Final = (
    "SELECT id FROM session WHERE parent_id IS NULL ORDER BY time_created DESC LIMIT 1"
)
"""Subagents have parents."""
OPENCODE_DENIED: Final = ("rejected permission", "specified a rule which prevents")
"""What it says in the place of a result: a question that was rejected, a rule that denies."""

BUSY_S_MAX: Final = 2.0


class Opencode(AgentKind):
    name = program = "opencode"
    install = "npm install -g opencode-ai"
    lost = ("Session not found", "NotFoundError")

    def start(self, errand: Errand) -> ProcessStart:
        environ = errand.environ
        folders = OPENCODE_FOLDERS.items()
        variables = {name: os.path.join(errand.home, part) for name, part in folders}
        own = environ.get(OPENCODE_DATA) or os.path.join(environ.get("HOME", ""), ".local", "share")
        folder = os.path.join(variables[OPENCODE_DATA], self.name)
        link_into(folder, os.path.join(own, self.name), ("auth.json",))
        argv = [self.program, "run", "--format", "json"]
        if errand.permissions == "all":
            argv.append("--auto")
        elif errand.permissions == "edit":
            variables[OPENCODE_PERMISSION] = _opencode_edits(environ.get(OPENCODE_PERMISSION, ""))
        if errand.goes_on:
            argv += ["--session", errand.session]
        # It names models with their providers; a bare name is none to it.
        if "/" in errand.model:
            argv += ["--model", errand.model]
        variables["OPENCODE_DISABLE_AUTOUPDATE"] = "1"
        return ProcessStart(tuple(argv), variables, errand.stdin)

    def held(self, home: str, session: str, environ: Mapping[str, str]) -> StoredSession | None:
        del session, environ
        path = os.path.join(home, OPENCODE_FOLDERS[OPENCODE_DATA], self.name, "opencode.db")
        if not os.path.exists(path):
            return None
        try:
            url = f"file:{quote(path)}?mode=ro"
            with closing(sqlite3.connect(url, uri=True, timeout=BUSY_S_MAX)) as database:
                found = database.execute(OPENCODE_SESSION).fetchone()
                if found is None:
                    return None
                messages = "SELECT data FROM message WHERE session_id = ?"
                replies = sum(_is_reply(row[0]) for row in database.execute(messages, found))
                return StoredSession(str(found[0]), replies)
        except sqlite3.Error:
            return None  # A database of another version.

    def hear(self, notes: AgentOutput, event: Fields) -> None:
        part = at(event, "part")
        notes.session = text_of(event.get("sessionID")) or notes.session
        match event.get("type"):
            case "text":
                reply, text = text_of(part.get("messageID")), text_of(part.get("text"))
                notes.text = f"{notes.text}\n{text}" if reply and reply == notes.at else text
                notes.at = reply
            case "tool_use":
                notes.use(text_of(part.get("tool")))
                error = text_at(part, "state.error")
                if any(words in error for words in OPENCODE_DENIED):
                    notes.deny(text_of(part.get("tool")))
            case "step_finish":
                usage = at(part, "tokens")
                notes.turns += 1
                notes.is_over = part.get("reason") not in ("tool-calls", None)
                notes.input_tokens += tokens_in(usage, "input")
                notes.input_tokens += tokens_in(at(usage, "cache"), "read", "write")
                notes.output_tokens += tokens_in(usage, "output", "reasoning")
                notes.microusd += money_of(part.get("cost"))
            case "error":
                words = text_at(event, "error.data.message")
                notes.fail(words or text_at(event, "error.name"))


def _opencode_edits(given: str) -> str:
    """The permissions of the environment, with edits allowed; patterns that deny one stay."""
    rules, allowed = object_fields(parsed(given)), {"*": "allow"}
    return json.dumps({**rules, "edit": {**allowed, **object_fields(rules.get("edit")), **allowed}})


def _is_reply(data: object) -> bool:
    found = object_fields(parsed(data)) if isinstance(data, str) else {}
    return found.get("role") == "assistant" and "completed" in at(found, "time")


# Gemini CLI: `gemini --output-format stream-json`. Its session is pinned before it starts.
# In a folder that the user does not trust it does not start.

GEMINI_HOME: Final = "GEMINI_CLI_HOME"
GEMINI_FOLDER: Final = ".gemini"
GEMINI_LINKS: Final = (
    "oauth_creds.json", "google_accounts.json", ".env", "trustedFolders.json", "policies",
)  # fmt: skip
GEMINI_GIVEN: Final = {"edit": "auto_edit", "all": "yolo"}


class Gemini(AgentKind):
    name = program = "gemini"
    install = "npm install -g @google/gemini-cli"
    lost = ("No previous sessions found", "Error resuming session")

    def start(self, errand: Errand) -> ProcessStart:
        environ, home = errand.environ, os.path.join(errand.home, self.name)
        own = os.path.join(environ.get(GEMINI_HOME) or environ.get("HOME", ""), GEMINI_FOLDER)
        folder = os.path.join(home, GEMINI_FOLDER)
        link_into(folder, own, GEMINI_LINKS)
        copy_into(folder, os.path.join(own, "settings.json"), "settings.json")
        argv = [self.program, "--output-format", "stream-json"]
        argv += ["--resume" if errand.goes_on else "--session-id", errand.session]
        if model := bare_model(errand, "google", "gemini"):
            argv += ["--model", model.removeprefix("gemini/")]
        variables = {GEMINI_HOME: home}
        if errand.permissions:
            argv += ["--approval-mode", GEMINI_GIVEN[errand.permissions]]
            variables["GEMINI_CLI_TRUST_WORKSPACE"] = "true"
        return ProcessStart(tuple(argv), variables, errand.stdin)

    def held(self, home: str, session: str, environ: Mapping[str, str]) -> StoredSession | None:
        """What the session's file has: each reply is there again when its tools have ended."""
        del environ
        folder = os.path.join(glob.escape(home), self.name, GEMINI_FOLDER)
        replies: set[str] = set()
        is_there = is_cut = False
        for path in glob.glob(os.path.join(folder, "tmp", "*", "chats", "*.jsonl")):
            for line in lines_in(path):
                is_there = is_there or line.get("sessionId") == session
                changed = items(at(line, "$set").get("messages"))
                for one in (line, *map(object_fields, changed)):
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
                text = text_of(event.get("content"))
                _gemini_speaks(notes)
                notes.text = notes.text + text if event.get("delta") else text
            case "tool_use":
                _gemini_speaks(notes)
                notes.use(text_of(event.get("tool_name")))
            case "tool_result":
                notes.at = ""
            case "error" if event.get("severity") != "warning":
                notes.fail(text_of(event.get("message")))
            case "result":
                notes.is_over = True
                notes.input_tokens = tokens_in(at(event, "stats"), "input_tokens")
                notes.output_tokens = tokens_in(at(event, "stats"), "output_tokens")
                if event.get("status") == "success":
                    notes.error = ""
                else:
                    notes.fail(text_at(event, "error.message") or notes.error)


def _gemini_speaks(notes: AgentOutput) -> None:
    """The model says or does something: after a tool's result that is another reply."""
    if not notes.at:
        notes.at = "speaking"
        notes.turns += 1
        notes.text = ""


# Any other program, by a pattern from the configuration.

SETTING_KEYS: Final = ("command", "result", "resume", *PERMISSIONS)
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
        if key not in SETTING_KEYS:
            raise BadValueError(
                f"has a key that there is not: `{key}`", hint=" ".join(SETTING_KEYS)
            )
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
        stdin: bytes | None = errand.stdin
        if any("{prompt_file}" in word for word in words):
            write_private(path, errand.stdin)
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
    for line in reversed(text.splitlines()):
        if line.lstrip().startswith("{") and isinstance(found := parsed(line), dict):
            return found
    return parsed(text)


KINDS: Final[Mapping[str, AgentKind]] = {
    kind.name: kind for kind in (Claude(), Codex(), Opencode(), Gemini())
}


def kind_of(name: str, settings: Mapping[str, AgentSetting]) -> AgentKind | None:
    return Custom(settings[name]) if name in settings else KINDS.get(name)
