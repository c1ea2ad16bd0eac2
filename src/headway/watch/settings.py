"""Everything that is set for headway here, and where each value comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from headway.runtime.configuration import read_configuration
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
    for key, value in asdict(configured.values).items():
        shown = str(value).lower() if isinstance(value, bool) else value
        found.append((key, shown, configured.path if key in configured.set_here else "default"))
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
