"""Everything that is set for headway here, and where each value comes from."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import fields

from headway.runtime.configuration import HEALTH, NAMES, read_configuration
from headway.runtime.folders import RUNTIME_DIR, STATE_DIR, folders

SWITCHES = {
    "HEADWAY_UNPACED": "1: go on without pacing when there is no broker",
    "HEADWAY_DEBUG": "1: show tracebacks",
    "NO_COLOR": "set: no colours",
}
"""Variables of the environment that are looked at, besides those of the folders."""


def settings(environ: Mapping[str, str]) -> list[tuple[str, object, str]]:
    """(key, value, source) of all there is."""
    configured = read_configuration(environ)
    found: list[tuple[str, object, str]] = []
    values = configured.values
    for field in fields(values):
        key, value = field.name, getattr(values, field.name)
        shown = str(value).lower() if isinstance(value, bool) else value
        if key not in NAMES and key != HEALTH:
            found.append((key, shown, configured.path if key in configured.set_here else "default"))
    # Of a server's environment nothing is shown: keys are in it.
    for agent in values.agents:
        found.append((f"agents.{agent.name}", str(agent), configured.path))
    for server in values.mcp:
        how = shlex.join(server.command) or server.url
        found.append((f"mcp.{server.name}", how, configured.path))
    for name, number in values.health:
        found.append((f"{HEALTH}.{name}", number, configured.path))
    place = folders(environ)
    for name, path, variable, shared in (
        ("state", place.state, STATE_DIR, "XDG_STATE_HOME"),
        ("runtime", place.runtime, RUNTIME_DIR, "XDG_RUNTIME_DIR"),
    ):
        source = variable if environ.get(variable) else shared if environ.get(shared) else "default"
        found.append((f"{name} folder", path, source))
    for variable in SWITCHES:
        if environ.get(variable):
            found.append((variable, environ[variable], "environment"))
    return found
