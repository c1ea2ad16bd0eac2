"""The `check` verb: what a plan would do. Executes and imports nothing."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Final

EXAMPLES: Final = """\
examples:
  headway check plan.yaml
  headway check plan.yaml --json


exit codes: 0 the plan can be run, 3 it is refused
"""


def arguments(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """What the verb takes."""
    parser.add_argument("plan", metavar="PLAN", help="the plan's file")
    parser.add_argument("--outside", action="store_true",
                        help="allow paths outside of the plan's folder")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="for a program")
    return _check


def _check(parsed: argparse.Namespace) -> int:
    from headway.core.plan.check import check
    from headway.planfile import load_plan

    loaded = load_plan(Path(parsed.plan), parsed.plan, parsed.outside)
    report = check(loaded.expanded)
    if parsed.json:
        print(json.dumps(asdict(report)))
        return 0
    from headway.watch.checked import print_check

    print_check(report, sys.stdout)
    return 0
