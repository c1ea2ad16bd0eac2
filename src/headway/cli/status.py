"""The `status` verb: how far a run is; and, for bare `headway`, all runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Final

from headway.base.codec import as_dict

EXAMPLES: Final = """\
examples:
  headway status                    the last run
  headway status 20261116-0423      by the beginning of its id
  headway status --watch            until it is over
  headway status last --json        for a program
  headway status --health           your accounts: good, watch or bad, why, and when it is better
  headway status --health --watch   the same, again and again, until you interrupt it
  headway status --health --json | jq '.lanes[] | {group, level, reasons, advice}'

Exits with 0 whatever state the run, or the account, is in; --json says which.
"""


def arguments(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """What `headway status` takes."""
    parser.add_argument("name", metavar="RUN", nargs="?", default="last", help="default: the last")
    parser.add_argument("--watch", action="store_true", help="show it until it is over")
    parser.add_argument("--json", action="store_true", help="for a program")
    parser.add_argument(
        "--health", action="store_true", help="the accounts instead of a run: are they well?"
    )
    return _status


def show_runs() -> int:
    """The newest runs, and what can be done with them."""
    from headway.report.text.runs import draw_runs, recent_runs
    from headway.report.text.words import console_for

    draw_runs(console_for(sys.stdout), recent_runs())
    return 0


def _status(parsed: argparse.Namespace) -> int:
    if parsed.health:
        return _health(parsed)
    from headway.report.text.check import kept_findings, print_findings
    from headway.report.text.runs import as_json, draw_status, look, opened
    from headway.report.text.words import console_for

    with opened(parsed.name) as (place, reader):
        if parsed.watch:
            from headway.report.text.logs import watch_status

            watch_status(reader, console_for(sys.stderr))
        found = kept_findings(place.folder)
        if parsed.json:
            findings = [as_dict(one) for one in found]
            return print_json({**as_json(look(reader), reader), "findings": findings})
        draw_status(console_for(sys.stdout), look(reader), reader)
        print_findings(found, sys.stdout, f"headway status {place.id} --json")
    return 0


def _health(parsed: argparse.Namespace) -> int:
    """How the accounts are; no run is needed, and no broker is started."""
    import os

    from headway.client.overview import overview
    from headway.report.text.health import draw_health, health_json, watch_health
    from headway.report.text.words import console_for

    if parsed.watch:
        watch_health(lambda: overview(os.environ), sys.stdout, parsed.json)
    seen = overview(os.environ)
    if parsed.json:
        return print_json(health_json(seen))
    draw_health(console_for(sys.stdout), seen)
    return 0


def print_json(shown: object) -> int:
    """One line for a program."""
    import json

    from headway.report.text.runs import finite

    print(json.dumps(finite(shown), ensure_ascii=False, allow_nan=False))
    return 0
