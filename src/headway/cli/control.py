"""The verbs `stop` and `pause`: a message to the process that performs a run."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final

EXAMPLES: Final = """\
examples:
  headway pause             the last run starts nothing more; what has started goes on
  headway resume last       and here it starts again
  headway stop              nothing more starts; the run ends when what has started has ended
  headway stop --now RUN    what has started is ended too; results that are there are kept

A run that was stopped can be resumed. Exits with 1 if no process performs the run.
"""


def stop(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """What `headway stop` takes."""
    parser.add_argument("--now", action="store_true", help="also end what has started")
    _add_run(parser)
    return lambda parsed: _tell(parsed, "end" if parsed.now else "stop")


def pause(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """What `headway pause` takes."""
    _add_run(parser)
    return lambda parsed: _tell(parsed, "pause")


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="RUN", nargs="?", default="last", help="default: the last")
    parser.add_argument("--json", action="store_true", help="for a program")


def _tell(parsed: argparse.Namespace, word: str) -> int:
    from headway.report.text.runs import opened
    from headway.run.launch import tell

    with opened(parsed.name) as (place, reader):
        was_told, pid, words = tell(reader, place.id, word)
    if parsed.json:
        from headway.cli.status import print_json

        print_json({"run": place.id, "told": was_told, "pid": pid})
    else:
        print(words)
    return 0 if was_told else 1
