"""The tools that a loop can be given in a plan: `agent: tools(shell, files, mcp:NAME)`."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Final

from headway.core.plan.spec import LOOP, Agent

TOOLS: Final = ("shell", "files")

EXPECTS: Final = "a name, or `tools(...)` with some of `shell`, `files` and `mcp:NAME`"

_SERVER: Final = re.compile(r"mcp:[a-z0-9][a-z0-9_-]{0,63}", re.ASCII)


def unknown_tools(agent: Agent) -> tuple[str, ...]:
    """What an agent is given and cannot be: tools that there are not, or any for a program."""
    if agent.name != LOOP:
        return agent.tools
    return tuple(tool for tool in agent.tools if not _is_known(tool))


def is_well_equipped(agent: Agent) -> bool:
    """Whether its tools are some that it can have; a loop has one at least."""
    return not unknown_tools(agent) and bool(agent.tools) == (agent.name == LOOP)


def better_agent(agent: Agent) -> str:
    """What the writer of a plan may have meant."""
    if agent.name != LOOP:
        return agent.name
    meant: list[str] = []
    for tool in agent.tools:
        near = [tool] if _is_known(tool) else get_close_matches(tool, TOOLS, n=1)
        meant += near
    return f"{LOOP}({', '.join(dict.fromkeys(meant or TOOLS))})"


def _is_known(tool: str) -> bool:
    return tool in TOOLS or _SERVER.fullmatch(tool) is not None
