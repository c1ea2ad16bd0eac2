"""The `logs` verb: what happened in a run, line by line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Final

EXAMPLES: Final = """\
examples:
  headway logs                          everything of the last run
  headway logs RUN --follow             and what still happens, until it is over
  headway logs RUN 'review[security]'   of one task, and what its attempts put out
  headway logs RUN --json               one event a line, for a program

On a terminal, control sequences in the text of tasks are left out.
"""


def arguments(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """What `headway logs` takes."""
    parser.add_argument("name", metavar="RUN", nargs="?", default="last", help="default: the last")
    parser.add_argument("task", metavar="TASK", nargs="?", help="default: all")
    parser.add_argument("-f", "--follow", action="store_true", help="until the run is over")
    parser.add_argument("--json", action="store_true", help="for a program")
    return _logs


def _logs(parsed: argparse.Namespace) -> int:
    from headway.report.text.logs import write_logs
    from headway.report.text.runs import opened

    with opened(parsed.name) as (place, reader):
        write_logs(
            sys.stdout, reader, place.folder, parsed.task,
            is_json=parsed.json, is_followed=parsed.follow,
        )  # fmt: skip
    return 0
