"""Shows the findings of `doctor`, and every setting with its source."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from rich.console import Console
from rich.text import Text

from headway.base.folders import RUNTIME_DIR, STATE_DIR, folders
from headway.config import NAMES, read_configuration
from headway.report.text.words import count
from headway.run.doctor import DoctorFinding

STYLES: Final = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def draw_findings(console: Console, findings: Sequence[DoctorFinding]) -> None:
    about = max(len(finding.about) for finding in findings)
    for finding in findings:
        mark = (finding.judgement.ljust(4), STYLES[finding.judgement])
        line = Text.assemble(mark, "  ", finding.about.ljust(about), "  ", finding.detail)
        console.print(line, soft_wrap=True)
        if finding.fix:
            indent = " " * (about + 8)
            console.print(Text(f"{indent}fix: {finding.fix}", "dim"), soft_wrap=True)
    failed = sum(finding.judgement == "fail" for finding in findings)
    warned = sum(finding.judgement == "warn" for finding in findings)
    if failed:
        console.print(f"\n{count(failed, 'thing')} to mend first.")
    elif warned:
        console.print(f"\nFit, with {count(warned, 'warning')}.")
    else:
        console.print("\nFit.")


SWITCHES: Final = ("HEADWAY_UNPACED", "HEADWAY_DEBUG", "NO_COLOR")


def settings(environ: Mapping[str, str]) -> list[tuple[str, object, str]]:
    """(key, value, source) of all there is."""
    configured = read_configuration(environ)
    found: list[tuple[str, object, str]] = []
    values = configured.values
    for key in values.__struct_fields__:
        value = getattr(values, key)
        shown = str(value).lower() if isinstance(value, bool) else value
        if key not in NAMES:
            found.append((key, shown, configured.path if key in configured.set_here else "default"))
    # Of a server's environment nothing is shown: keys are in it.
    for agent in values.agents:
        found.append((f"agents.{agent.name}", str(agent), configured.path))
    for server in values.mcp:
        how = shlex.join(server.command) or server.url
        found.append((f"mcp.{server.name}", how, configured.path))
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
