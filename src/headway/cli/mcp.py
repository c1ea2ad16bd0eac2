"""The `mcp` verb: lets an agent hand over its fan-out as a plan, by the Model Context Protocol."""

from __future__ import annotations

import argparse
import os
from typing import Final

from headway.cli.main import Body
from headway.errors import BadValueError, UsageError

INSTALL: Final = "pip install 'headway[mcp]'"

EXAMPLES: Final = """\
examples:
  claude mcp add headway -- headway mcp     Claude Code; the same with codex; see docs/mcp.md
  headway mcp --budget '$2'                 no run is given more
  headway mcp --sim script.yaml             runs on the simulated provider, free of charge

Speaks the protocol on stdin and stdout until stdin ends; runs that were submitted go on.
Tools: check_plan, submit_plan, run_status, run_results, cancel_run, quota.
"""


def arguments(parser: argparse.ArgumentParser) -> Body:
    add = parser.add_argument
    add("--folder", default=".", metavar="DIR",
        help="where plans may work: default the current folder")  # fmt: skip
    add("--budget", metavar="B", help="the most for one run: '$2', or tokens: 500k")
    add("--every-run", action="store_true", help="also show runs of other folders")
    add("--sim", nargs="?", const="", metavar="SCRIPT",
        help="runs use the simulated provider, by a script")  # fmt: skip
    return _mcp


def _mcp(parsed: argparse.Namespace) -> int:
    from importlib.util import find_spec

    if find_spec("mcp") is None or find_spec("mcp_types") is None:
        raise UsageError("`headway mcp` needs the package `mcp`, of 2.3 or newer", hint=INSTALL)
    from headway.cli.run import budget_of
    from headway.mcp.service import McpSettings

    root = os.path.realpath(parsed.folder)
    if not os.path.isdir(root):
        raise BadValueError(f"{parsed.folder} is not a folder", hint="--folder .")
    settings = McpSettings(
        root, parsed.every_run, os.path.abspath(parsed.sim) if parsed.sim else parsed.sim,
        budget_of(parsed.budget),
    )  # fmt: skip
    from headway.mcp.server import serve

    serve(settings)
    return 0
