"""The `ui` verb: runs and accounts in a browser."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from contextlib import suppress
from typing import Final

from headway.base.folders import folders
from headway.cli.main import Body
from headway.errors import BadValueError

EXAMPLES: Final = """\
examples:
  headway ui                    until Ctrl-C; prints the link, which has the key to it
  headway ui last               the link of the last run
  headway ui --control          with buttons to pause, stop and resume runs
  headway ui --no-content       without prompts, results and outputs of tasks
  headway ui --port 8123        a port of your choice, for a tunnel

Listens on this machine only. `headway run` prints the link of its run while it serves.
"""

PORT_MAX: Final = 65_535


def arguments(parser: argparse.ArgumentParser) -> Body:
    add = parser.add_argument
    add("name", metavar="RUN", nargs="?", default="", help="print the link of this run")
    add("--port", metavar="N", type=int, default=0, help="default: any that is free")
    add("--control", action="store_true", help="allow to pause, stop and resume runs")
    add("--no-content", action="store_true", help="show no prompts, results and outputs of tasks")
    return _serve


def _serve(parsed: argparse.Namespace) -> int:
    from headway.journal.folder import find_run
    from headway.report.page.server import PageServer, announce
    from headway.report.text.run_view import state_folder

    if not 0 <= parsed.port <= PORT_MAX:
        raise BadValueError(f"--port {parsed.port} is no port", hint="--port 8123")
    run = find_run(state_folder(), parsed.name).id if parsed.name else ""

    async def serve() -> None:
        server = PageServer(
            controls=parsed.control, has_content=not parsed.no_content, port=parsed.port
        )
        async with server.served():
            path = announce(server, os.environ)
            print(f"{server.url}#{run}", flush=True)
            tunnel = f"ssh -N -L {server.port}:127.0.0.1:{server.port} THIS-MACHINE"
            print(f"from another machine: {tunnel}; end it with Ctrl-C", file=sys.stderr)
            try:
                await asyncio.Event().wait()
            finally:
                with suppress(OSError):
                    os.unlink(path)

    with suppress(asyncio.CancelledError):
        asyncio.run(serve())
    return 0


def link_of(run: str) -> str:
    """The link of a run on the page that this user serves; empty if there is none."""
    path = os.path.join(folders(os.environ).runtime, "page.json")
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        os.kill(int(found["pid"]), 0)
        return f"{found['url']}#{run}"
    except (OSError, ValueError, KeyError, TypeError):
        return ""
