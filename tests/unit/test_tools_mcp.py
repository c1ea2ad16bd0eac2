"""What the tools of MCP servers are called."""

from __future__ import annotations

import re

from headway.agents.tools_mcp import NAME_CHARS_MAX, tool_name


def test_every_tool_has_a_name_of_its_own_in_letters_that_providers_take() -> None:
    tools = ["note", "a.b", "a_b", "a/b", "x" * 100, "x" * 101, "\N{HANGUL SYLLABLE GA}"]
    names = [tool_name("notes", tool) for tool in tools]
    assert names[0] == "notes__note"
    assert len(set(names)) == len(tools)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]+", name) for name in names)
    assert max(map(len, names)) <= NAME_CHARS_MAX
