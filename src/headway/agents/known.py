"""The agent programs that plans can name: four built in, others from the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headway.agents.claude import Claude
from headway.agents.cli import AgentKind
from headway.agents.codex import Codex
from headway.agents.custom import AgentSetting, Custom
from headway.agents.gemini import Gemini
from headway.agents.opencode import Opencode

KINDS: Final[Mapping[str, AgentKind]] = {
    kind.name: kind for kind in (Claude(), Codex(), Opencode(), Gemini())
}


def kind_of(name: str, settings: Mapping[str, AgentSetting]) -> AgentKind | None:
    if name in settings:
        return Custom(settings[name])
    return KINDS.get(name)
