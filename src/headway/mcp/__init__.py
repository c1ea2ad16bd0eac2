"""Plans handed over by agents: an MCP server, and a skill for agents with a shell.

Reading order: `tools`, `service`, `server`, `skill`.
"""
