"""A small MCP server over stdio: it remembers notes, and knows what it was started with."""

from __future__ import annotations

import os

from mcp.server import MCPServer

server = MCPServer("notes")
notes: list[str] = []


@server.tool()
def note(text: str) -> str:
    """Remember a note; gives all of them."""
    notes.append(text)
    return ", ".join(notes)


@server.tool()
def environment(name: str) -> str:
    """What a variable of the server says."""
    return os.environ.get(name, "(not set)")


@server.tool()
def fail() -> str:
    """Always fails."""
    raise ValueError("this note cannot be read")


if __name__ == "__main__":
    server.run("stdio")
