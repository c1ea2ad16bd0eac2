"""The `doctor` verb: whether this machine is fit, and what to mend."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import Final

EXAMPLES: Final = """\
examples:
  headway doctor                  everything that runs depend on
  headway doctor --json           for a program
  headway doctor --salvage RUN    save what can be read of a spoilt journal; the old file is kept
  headway doctor --prune 30d      remove runs that began longer ago and that no process has

Exits with 1 if something has to be mended before runs can be trusted. Keys are never shown.
"""


def arguments(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """What `headway doctor` takes."""
    parser.add_argument("--json", action="store_true", help="for a program")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--salvage", metavar="RUN", help="save what a spoilt journal still holds")
    instead.add_argument("--prune", metavar="AGE", help="remove runs older than 30d, 12h ...")
    return _doctor


def _doctor(parsed: argparse.Namespace) -> int:
    if parsed.salvage is not None:
        return _salvage(parsed)
    if parsed.prune is not None:
        return _prune(parsed)
    from headway.base.codec import as_dict
    from headway.run.doctor import check_up

    findings = check_up(os.environ)
    if parsed.json:
        from headway.cli.status import print_json

        print_json([as_dict(finding) for finding in findings])
    else:
        from headway.report.text.doctor import draw_findings
        from headway.report.text.words import console_for

        draw_findings(console_for(sys.stdout), findings)
    return 1 if any(finding.judgement == "fail" for finding in findings) else 0


def _salvage(parsed: argparse.Namespace) -> int:
    from headway.base.codec import as_dict
    from headway.journal.folder import find_run
    from headway.journal.salvage import salvage
    from headway.report.text.runs import state_folder

    place = find_run(state_folder(), parsed.salvage)
    saved = salvage(place.folder)
    if parsed.json:
        from headway.cli.status import print_json

        return print_json({"run": place.id, **as_dict(saved)})
    print(
        f"{place.id}: saved {saved.rows} tasks, {saved.events} events, {saved.bodies} results; "
        f"{saved.missing_events} events are lost. Tasks without a result run again: "
        f"{saved.lost_results} that had finished. The old file is {saved.kept_as}"
    )
    print(f"hint: headway resume {place.id}", file=sys.stderr)
    return 0


def _prune(parsed: argparse.Namespace) -> int:
    import time

    from headway.journal.folder import prune
    from headway.report.text.runs import state_folder
    from headway.run.launch import span_s

    gone = prune(state_folder(), time.time() - span_s(parsed.prune))
    if parsed.json:
        from headway.cli.status import print_json

        return print_json({"removed": [place.id for place in gone]})
    for place in gone:
        print(place.id)
    print(f"{len(gone)} runs removed", file=sys.stderr)
    return 0
