"""Agents that are programs: Claude Code, Codex, opencode, Gemini CLI, any other by a pattern."""
