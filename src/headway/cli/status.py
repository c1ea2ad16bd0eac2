"""The `status` verb: how far a run is; and, for bare `headway`, all runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Final

EXAMPLES: Final = """\
examples:
  headway status                    the last run
  headway status 20261116-0423      by the beginning of its id
  headway status --watch            until it is over
  headway status last --json        for a program

Exits with 0 whatever state the run is in; --json says which.
"""


def arguments(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """What `headway status` takes."""
    parser.add_argument("name", metavar="RUN", nargs="?", default="last", help="default: the last")
    parser.add_argument("--watch", action="store_true", help="show it until it is over")
    parser.add_argument("--json", action="store_true", help="for a program")
    return _status


def show_runs() -> int:
    """The newest runs, and what can be done with them."""
    from headway.watch.runs import draw_runs, recent_runs
    from headway.watch.screen import console_for

    draw_runs(console_for(sys.stdout), recent_runs())
    return 0


def _status(parsed: argparse.Namespace) -> int:
    from headway.runtime.detector import kept_findings
    from headway.watch.detected import print_findings
    from headway.watch.follow import watch_status
    from headway.watch.glance import look, opened
    from headway.watch.screen import console_for
    from headway.watch.status import as_json, draw_status

    with opened(parsed.name) as (place, reader):
        if parsed.watch:
            watch_status(reader, console_for(sys.stderr))
        if parsed.json:
            found = [asdict(one) for one in kept_findings(place.folder)]
            return print_json({**as_json(look(reader), reader), "findings": found})
        draw_status(console_for(sys.stdout), look(reader), reader)
        print_findings(kept_findings(place.folder), sys.stdout, f"headway status {place.id} --json")
    return 0


def print_json(shown: object) -> int:
    """One line for a program."""
    import json

    from headway.watch.glance import finite

    print(json.dumps(finite(shown), ensure_ascii=False, allow_nan=False))
    return 0
