"""The `why` verb: why a task has not started, or failed, or when and why it started."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Final

EXAMPLES: Final = """\
examples:
  headway why last 'review[security]'     a task by its name
  headway why last security               or by a part that no other name has
  headway why RUN verdict --json          for a program
"""


def arguments(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """What `headway why` takes."""
    parser.add_argument("name", metavar="RUN", help="its id, the beginning of one, or last")
    parser.add_argument("task", metavar="TASK", help="its name, or a part of it")
    parser.add_argument("--json", action="store_true", help="for a program")
    return _why


def _why(parsed: argparse.Namespace) -> int:
    from headway.base.codec import as_dict
    from headway.report.text.runs import opened
    from headway.report.text.why import cause_of, draw_cause, known
    from headway.report.text.words import console_for

    with opened(parsed.name) as (place, reader):
        found = cause_of(reader, parsed.task, lambda: known(reader.header, place.folder))
    if parsed.json:
        from headway.cli.status import print_json

        return print_json(as_dict(found))
    draw_cause(console_for(sys.stdout), found)
    return 0
