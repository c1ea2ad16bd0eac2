"""A stand-in for a coding agent: writes down how it was started, and answers as its name does.

    claude|codex|opencode|gemini|hermes ...   < prompt

`RECORD` names a folder; a file for each start goes there. What the settings of its user are is
read from where the real program would read them.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

HOME = os.environ.get("HOME", "")
CLAUDE = Path(os.environ.get("CLAUDE_CONFIG_DIR") or f"{HOME}/.claude")
CODEX = Path(os.environ.get("CODEX_HOME") or f"{HOME}/.codex")
GEMINI = Path(os.environ.get("GEMINI_CLI_HOME") or HOME, ".gemini")
OPENCODE = Path(os.environ.get("XDG_CONFIG_HOME") or f"{HOME}/.config", "opencode")

SETTINGS = {
    "claude": (CLAUDE / "settings.json", CLAUDE / ".claude.json"),
    "codex": (CODEX / "config.toml", CODEX / "rules" / "default.rules"),
    "opencode": (OPENCODE / "opencode.json",),
    "gemini": (
        GEMINI / "settings.json",
        GEMINI / "trustedFolders.json",
        GEMINI / "policies" / "own.toml",
    ),
}


def events(name: str) -> list[dict[str, object]]:
    """What the real program prints when its model says `done` and one tool was refused."""
    match name:
        case "claude":
            denied = [{"tool_name": "Bash", "tool_use_id": "1", "tool_input": {"command": "id"}}]
            return [
                {"type": "system", "subtype": "init", "session_id": "s"},
                {"type": "result", "subtype": "success", "session_id": "s", "result": "done",
                 "permission_denials": denied if "DENIES" in os.environ else []},
            ]  # fmt: skip
        case "codex":
            return [
                {"type": "thread.started", "thread_id": "s"},
                {"type": "item.completed", "item": {"type": "agent_message", "text": "done"}},
                {"type": "turn.completed", "usage": {"input_tokens": 1, "output_tokens": 1}},
            ]
        case "opencode":
            said = {"messageID": "m", "text": "done"}
            return [
                {"type": "text", "sessionID": "s", "part": said},
                {"type": "step_finish", "sessionID": "s", "part": {"reason": "stop"}},
            ]
        case "gemini":
            return [
                {"type": "init", "session_id": "s"},
                {"type": "message", "role": "assistant", "content": "done"},
                {"type": "result", "status": "success", "stats": {}},
            ]
    return []


def main() -> None:
    name, folder = Path(sys.argv[0]).name, Path(os.environ["RECORD"])
    seen = {path.name: path.read_text() for path in SETTINGS.get(name, ()) if path.exists()}
    prompt = sys.stdin.read()
    record = {
        "name": name, "argv": sys.argv[1:], "environ": dict(os.environ), "settings": seen,
        "prompt": prompt,
    }  # fmt: skip
    (folder / f"{name}-{os.getpid()}.json").write_text(json.dumps(record))
    for event in events(name) or [{"text": "done"}]:
        print(json.dumps(event), flush=True)


main()
