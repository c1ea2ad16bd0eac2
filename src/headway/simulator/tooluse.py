"""Tools of the simulated provider: what coding agents offer, and what a model does with it.

Laws:
- A tool that was not offered is never asked for.
- What a turn needs done is asked for one tool at a time, so that each answer follows one result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from json import dumps
from typing import Final

from headway.wire.asked import TOOL
from headway.wire.values import Conversation, ToolUse

SHELL: Final = "shell"
"""Stands for whichever shell a client offers."""

COMMAND: Final = "echo headway"
"""What is run for a prompt that names no command."""

_COMMAND: Final = re.compile(r"`([^`\n]+)`")
_GO_ON: Final = re.compile(r"^You were interrupted\b", re.MULTILINE)
_LOST: Final = re.compile(r"\[Tool call interrupted|aborted\Z|\[Request interrupted")
"""What Claude Code and Codex say in the place of a result that never came."""

_NAMED: Final = re.compile(r"([A-Za-z0-9_-]+) (\{.*\})")


def _described(command: str) -> object:
    return {"command": command, "description": "Run what was asked for"}


SHELLS: Final[Mapping[str, Callable[[str], object]]] = {
    "Bash": _described,
    "bash": _described,
    "run_shell_command": _described,
    "exec_command": lambda command: {"cmd": command},
    "shell_command": lambda command: {"command": command},
    "shell": lambda command: {"command": ["bash", "-lc", command]},
}
"""What shells are given: those of Claude Code, opencode, Gemini CLI and, the last three, Codex."""


@dataclass(frozen=True, slots=True)
class Episode:
    """The turns since the model last had nothing more to do."""

    commands: tuple[str, ...]
    """What the user wants run."""
    results: tuple[str, ...]
    """What tools gave so far."""


def episode_of(conversation: Conversation) -> Episode:
    """Commands are between backticks, in the last line of the user that has any.

    Clients tell of themselves in the user's name, before the prompt and after it; the last line
    with backticks is the user's own in all of them. Who was interrupted and shall go on has more
    to do; a tool that was cut off gave nothing.
    """
    turns = [turn for turn in conversation.turns if not _LOST.match(turn[1])]
    start = 0
    for place, (role, _) in enumerate(turns, 1):
        goes_on = place < len(turns) and (
            turns[place][0] in ("assistant", TOOL) or _GO_ON.search(turns[place][1]) is not None
        )
        if role == "assistant" and not goes_on:
            start = place
    told = [line for role, text in turns[start:] if role == "user" for line in text.splitlines()]
    commands = next((found for line in reversed(told) if (found := _COMMAND.findall(line))), [])
    results = tuple(text for role, text in turns[start:] if role == TOOL)
    return Episode(tuple(commands), results)


def shell_of(conversation: Conversation) -> str | None:
    """The shell that is offered, if there is one."""
    return next((name for name in conversation.tools if name in SHELLS), None)


def named_use(conversation: Conversation, command: str, digest: str) -> ToolUse | None:
    """A wish to use a tool that is called by its name, with JSON behind it, if it is offered."""
    found = _NAMED.fullmatch(command)
    if found is None or found[1] not in conversation.tools:
        return None
    return ToolUse(f"call_{digest[:24]}", found[1], found[2])


def use_of(name: str, given: object, digest: str) -> ToolUse:
    """A wish to use a tool. Its id follows from the conversation, as everything else does."""
    return ToolUse(f"call_{digest[:24]}", name, dumps(given, ensure_ascii=False))


def command_of(name: str, command: str, digest: str) -> ToolUse:
    """A wish to run a command in a shell."""
    return use_of(name, SHELLS[name](command), digest)
