"""The `check` verb: what a plan would do. Executes and imports nothing."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from headway.base.codec import as_dict
from headway.cli.main import Body, add_json, print_json
from headway.errors import PlanError
from headway.report.text.check import print_check, refusal_of

REFUSED: Final = 3

EXAMPLES: Final = """\
examples:
  headway check plan.yaml
  headway check plan.yaml --strict       refuse what it warns of, too
  headway check plan.yaml --forecast     also the expected time and cost

exit codes: 0 the plan can be run, 3 it is refused
"""


def arguments(parser: argparse.ArgumentParser) -> Body:
    parser.add_argument("plan", metavar="PLAN", help="the plan's file")
    parser.add_argument("--outside", action="store_true",
                        help="allow paths outside of the plan's folder")  # fmt: skip
    parser.add_argument("--strict", action="store_true", help="refuse a plan with warnings, too")
    parser.add_argument("--forecast", action="store_true", help="expected time and cost, too")
    add_json(parser)
    return _check


def _check(parsed: argparse.Namespace) -> int:
    from headway.config import read_configuration
    from headway.plans.check import check
    from headway.plans.document import absent
    from headway.plans.load import in_one_go, load_plan
    from headway.plans.references import check_named
    from headway.plans.spec import Prompt

    try:
        with in_one_go():
            loaded = load_plan(Path(parsed.plan), parsed.plan, parsed.outside)
            spec = loaded.expanded.spec
            has_prompts = any(isinstance(task.work, Prompt) for task in spec.tasks)
            if has_prompts:
                from headway.run.agent_tasks import must_be_known, must_have_providers

                must_be_known(spec, read_configuration(os.environ).values)
            remarks = check_named(loaded.expanded, str(loaded.folder))
            if has_prompts:
                must_have_providers(loaded.expanded, os.environ)
            report = check(loaded.survey, partial(absent, loaded.folder))
            report = replace(report, remarks=(*report.remarks, *remarks))
    except PlanError as error:
        if not parsed.json:
            raise
        print(json.dumps({"refused": [refusal_of(one) for one in (error, *error.others)]}))
        return error.exit_code
    found = None
    if parsed.forecast:
        from headway.run.forecasts import foreseen_plan
        from headway.run.launch import shares_in

        settings = read_configuration(os.environ).values
        shares = shares_in("" if spec.window_share else settings.window_share, "window_share =")
        found = foreseen_plan(
            loaded.expanded, Path(parsed.plan), os.environ, spec.strategy or settings.strategy,
            shares=shares,
        )  # fmt: skip
    if parsed.json:
        print_json({**as_dict(report), "forecast": None if found is None else as_dict(found)})
    else:
        print_check(report, sys.stdout)
        if parsed.forecast:
            from headway.report.text.forecast import foretold

            print("", *foretold(found, time.time()), sep="\n")
    return REFUSED if parsed.strict and report.warnings else 0
