"""The `timeline` verb: time to the right, one line per task."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Final

EXAMPLES: Final = """\
examples:
  headway timeline                  the last run
  headway timeline 20261116-0423    by the beginning of its id
  headway timeline last --all       every task, however many
  headway timeline last --json      every stay of every task, in seconds

`effectively m at once` is how many were really worked on, on average. What a provider does not
say is estimated: an answer that takes over twice as long per token as the fastest tenth of its
group is shown as queued there first.
"""


def arguments(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """What `headway timeline` takes."""
    parser.add_argument("name", metavar="RUN", nargs="?", default="last", help="default: the last")
    parser.add_argument("--all", action="store_true", help="every task, not the first 40")
    parser.add_argument("--json", action="store_true", help="for a program")
    return _timeline


def _timeline(parsed: argparse.Namespace) -> int:
    from headway.report.text.runs import opened
    from headway.report.text.timeline import as_json, draw_played, played
    from headway.report.text.words import console_for

    with opened(parsed.name) as (_, reader):
        run = played(reader)
    if parsed.json:
        from headway.cli.status import print_json

        return print_json(as_json(run))
    draw_played(console_for(sys.stdout), run, is_whole=parsed.all)
    return 0
