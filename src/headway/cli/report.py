"""The `report` verb: where the time and money of a run went."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Final

EXAMPLES: Final = """\
examples:
  headway report                    the last run
  headway report 20261116-0423      by the beginning of its id
  headway report last --json        for a program

Each instant of the run has one cause, the first of these that holds: tasks wait for a limit, were
turned away, are held, wait for their turn, for this machine, for a place; models, functions or
commands work; results are brought together; headway itself. The tasks' time is that of every task
from the run's beginning to its own end. Works while a run goes on; exits with 0 whatever it says.
"""


def arguments(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """What `headway report` takes."""
    parser.add_argument("name", metavar="RUN", nargs="?", default="last", help="default: the last")
    parser.add_argument("--json", action="store_true", help="for a program")
    return _report


def _report(parsed: argparse.Namespace) -> int:
    from headway.report.text.afterwards import afterwards
    from headway.report.text.report import as_json, draw_report
    from headway.report.text.runs import opened
    from headway.report.text.words import console_for

    with opened(parsed.name) as (place, reader):
        run = afterwards(reader, place.folder)
    if parsed.json:
        from headway.cli.status import print_json

        return print_json(as_json(run))
    draw_report(console_for(sys.stdout), run)
    return 0
