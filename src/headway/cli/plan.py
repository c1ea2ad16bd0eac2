"""The `plan` verb: a goal in, a plan's file out, written by a model and judged by every check."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headway.cli.main import Body
from headway.errors import NoPlanError, QueueDeadlineError, UsageError

if TYPE_CHECKING:
    from headway.planner.planning import Draft, Goal

SIMULATED: Final = "openai/script"
"""The model on the simulated provider, if none is named."""

DRAFTS_MAX: Final = 1000
GOAL_BYTES_MAX: Final = 100_000

EXAMPLES: Final = """\
examples:
  headway plan 'Compare PostgreSQL, SQLite and DuckDB for a small shop' --model openai/gpt-5-mini
  headway plan 'Explain each module' -o explain.yaml --files 'src/**/*.py' --model claude-sonnet-4
  headway plan GOAL --model M --dry-run                 the request; sends nothing
  headway plan GOAL --model M --run --budget '$2'       go on and run it, planning included
  headway plan - --model M < goal.txt

The model is given the goal, the plan's grammar and the names of your files, not what is in them.
Nothing of its plan is executed before you run it; what it may do then is in docs/planner.md.
exit codes: 0 written (or, with --run, as of `headway run`), 2 usage, 3 no plan that can be used,
            4 budget reached, 75 usage window empty
"""


def arguments(parser: argparse.ArgumentParser) -> Body:
    from headway.cli.run import add_common

    add = parser.add_argument
    add("goal", metavar="GOAL", help="what you want; - reads it from stdin")
    add("-o", "--output", default="plan.yaml", metavar="FILE",
        help="where the plan goes: default plan.yaml; - is stdout")  # fmt: skip
    add("--force", action="store_true", help="replace a file that is there")
    add("--model", action="append", default=[], metavar="M",
        help="writes the plan, and is its model; again: other models that it may use")  # fmt: skip
    add("--files", action="append", default=[], metavar="GLOB",
        help="tell the model of these files only")  # fmt: skip
    add("--run", action="store_true", dest="goes_on", help="then run it")
    add("--dry-run", action="store_true", help="print what would be asked")
    add_common(parser)
    parser.set_defaults(strategy=None, jobs=None, retries=None, outside=False, is_foreign=True,
                        forecast=False)  # fmt: skip
    return _plan


def _plan(parsed: argparse.Namespace) -> int:
    from headway.cli.run import begin, environment_of
    from headway.report.text.check import refusal_of
    from headway.run.driver import EXITS

    path = Path(parsed.output)
    _must_make_sense(parsed, path)
    with environment_of(parsed) as environment:
        goal = _goal(parsed, path, environment)
        if parsed.dry_run:
            print(f"{goal.system}\n\n{goal.request}")
            return 0
        try:
            draft = _drafted(goal, parsed, path)
        except QueueDeadlineError as error:
            print(error.render(), file=sys.stderr)
            return EXITS["window"]
        except NoPlanError as error:
            if not parsed.json:
                raise
            every = (error, *error.others)
            print(json.dumps({"refused": [refusal_of(one) for one in every]}))
            return error.exit_code
        if parsed.output == "-":
            sys.stdout.write(draft.text)
        else:
            draft.save(path.name, force=parsed.force)
            _say(draft, parsed, path, environment)
        if not parsed.goes_on:
            return 0
        options = argparse.Namespace(**{**vars(parsed), "model": ""})
        return begin(draft.loaded, path, options, environment, draft.budget)


def _must_make_sense(parsed: argparse.Namespace, path: Path) -> None:
    """Refuse before anything is spent."""
    if parsed.goes_on and not parsed.budget:
        raise UsageError("a plan that a model wrote is run within a budget",
                         hint="--run --budget '$2', or tokens: 5M")  # fmt: skip
    if parsed.output == "-":
        if parsed.goes_on or parsed.json:
            raise UsageError("`--run` and `--json` need a file for the plan", hint="-o FILE")
    elif os.path.lexists(path) and not (parsed.force or parsed.dry_run):
        raise UsageError(f"{path} is there already", hint="--force, or another name with -o")
    elif not path.parent.is_dir():
        raise UsageError(f"{path.parent} is no folder", hint=f"mkdir -p {path.parent}")
    elif not (parsed.dry_run or os.access(path.parent, os.W_OK)):
        raise UsageError(f"nothing can be written into {path.parent}", hint="another -o FILE")


def _goal(parsed: argparse.Namespace, path: Path, environment: Mapping[str, str]) -> Goal:
    from headway.planner.planning import goal_of

    text = parsed.goal
    if text == "-":
        text = sys.stdin.buffer.read(GOAL_BYTES_MAX).decode("utf-8", "replace")
    models = parsed.model or ([SIMULATED] if parsed.sim is not None else [""])
    folder = Path() if parsed.output == "-" else path.parent
    return goal_of(
        text,
        {
            "model": models[0], "models": models[1:], "files": parsed.files, "folder": folder,
            "budget": parsed.budget,
        },
        environment,
    )  # fmt: skip


def _drafted(goal: Goal, parsed: argparse.Namespace, path: Path) -> Draft:
    from headway.cli.run import deadline_of
    from headway.planner.planning import drafted

    tell = None if parsed.quiet else partial(print, file=sys.stderr)
    try:
        return asyncio.run(drafted(goal, tell=tell, waits_until_s=deadline_of(parsed)))
    except NoPlanError as error:
        if error.draft.strip():
            error.hint = f"what it gave last is in {_keep(error, path)}; {error.hint}"
        raise


def _keep(error: NoPlanError, path: Path) -> Path:
    """What was refused and why, beside where the plan would be, under a name of its own."""
    from headway.planner.planning import write_new
    from headway.plans.section import shown

    stem = "plan" if path.name == "-" else path.stem
    names = (f"{stem}.refused{number or ''}.yaml" for number in range(DRAFTS_MAX))
    place = next((path.with_name(name) for name in names if not path.with_name(name).exists()),
                 path.with_name(f"{stem}.refused.yaml"))  # fmt: skip
    why = "\n".join(f"# {one.code}: {shown(one.message)}" for one in error.others)
    write_new(
        place, f"# A model wrote this, and it was refused:\n{why}\n{error.draft}", force=False
    )
    return place


def _say(
    draft: Draft, parsed: argparse.Namespace, path: Path, environment: Mapping[str, str]
) -> None:
    from headway.plans.check import check
    from headway.plans.document import absent
    from headway.report.text.check import print_check
    from headway.report.text.words import known_usd, unknown_cost

    guess, took = draft.price(environment), draft.took
    report = check(draft.loaded.survey, partial(absent, draft.loaded.folder))
    if parsed.json and not parsed.goes_on:
        shown = {
            "plan": str(path), "text": draft.text, "tasks": report.tasks,
            "groups": [group.name for group in report.groups], "is_single": draft.is_single,
            "expected_usd": known_usd(guess.expected_microusd, len(guess.unpriced)),
            "ceiling_usd": known_usd(guess.ceiling_microusd, len(guess.unpriced)),
            "unpriced": guess.unpriced,
            "took": {"calls": took.calls, "input_tokens": took.input_tokens,
                     "output_tokens": took.output_tokens,
                     "usd": known_usd(took.spend_microusd, took.unpriced)},
        }  # fmt: skip
        print(json.dumps(shown))
    if parsed.quiet or parsed.json:
        return
    print_check(report, sys.stderr)
    print(file=sys.stderr)
    if draft.is_single:
        print("one call is enough for this: nothing is gained by a plan", file=sys.stderr)
    usd, most = guess.expected_microusd / 1e6, guess.ceiling_microusd / 1e6
    cost = f"its calls will cost: about ${usd:.2f}, at most ${most:.2f}"
    print(unknown_cost(guess.unpriced) if guess.unpriced else cost, file=sys.stderr)
    tokens = round(took.input_tokens + took.output_tokens)
    print(f"{path} is written, in {took.calls} calls and {tokens:,} tokens", file=sys.stderr)
    if not parsed.goes_on:
        print(f"hint: look at it, then headway run {path} --budget '$2'", file=sys.stderr)
