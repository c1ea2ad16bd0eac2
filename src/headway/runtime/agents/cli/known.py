"""Which agents there are: four that are known by name, and those of the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headway.runtime.agents.cli.claude import Claude
from headway.runtime.agents.cli.codex import Codex
from headway.runtime.agents.cli.custom import AgentSetting, Custom
from headway.runtime.agents.cli.gemini import Gemini
from headway.runtime.agents.cli.kind import Kind
from headway.runtime.agents.cli.opencode import Opencode

KINDS: Final[Mapping[str, Kind]] = {
    kind.name: kind for kind in (Claude(), Codex(), Opencode(), Gemini())
}


def kind_of(name: str, settings: Mapping[str, AgentSetting]) -> Kind | None:
    """The agent of this name, if there is one."""
    if name in settings:
        return Custom(settings[name])
    return KINDS.get(name)
