"""The `explore` verb: what happens if B runs before A completes? Runs a plan, in a copy."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headway.cli.main import Body, add_json
from headway.errors import UsageError
from headway.report.text.terminal import progress_line

if TYPE_CHECKING:
    from headway.plans.load import Loaded

MEMBERS: Final = 3
"""Members of a group that are tried, if the user does not say how many."""
MEMBERS_MAX: Final = 1_000

EXAMPLES: Final = """\
Commands and functions really run, in a copy of the plan's folder: once in declared order, then
again where a task may depend on another one. Prompts are answered by a hash: no tokens are used,
and no effect is performed. docs/explore.md.

examples:
  headway explore plan.yaml                    every pair
  headway explore plan.yaml parse enrich       this pair
  headway explore plan.yaml --yes --json       without a question, for a program
  headway explore plan.yaml --answers RUN      prompts as that run was answered

exit codes: 0 every pair is independent or in order, 1 some are not or were not judged,
            3 the plan cannot be read
"""


def arguments(parser: argparse.ArgumentParser) -> Body:
    add = parser.add_argument
    add("plan", metavar="PLAN", help="the plan's file")
    add("named", metavar="TASK", nargs="*", help="two tasks or groups: only they are compared")
    add("--members", metavar="N", type=int, default=MEMBERS,
        help="members of each group that are tried (3)")  # fmt: skip
    add("--answers", metavar="RUN", help="answer prompts as this run was answered")
    add("--yes", action="store_true", help="run commands and functions without a question")
    add("--outside", action="store_true", help="allow paths outside of the plan's folder")
    add_json(parser)
    return _explore


def _explore(parsed: argparse.Namespace) -> int:
    from headway.plans.load import load_unrefused
    from headway.report.text.explore import as_json, print_explored
    from headway.run.explore import ExploreOptions, answers_of, explore

    if not 2 <= parsed.members <= MEMBERS_MAX:
        raise UsageError(f"--members takes 2 to {MEMBERS_MAX:,}, not {parsed.members}")
    if len(parsed.named) not in (0, 2):
        raise UsageError("explore compares two tasks, or all", hint="name two tasks, or none")
    loaded, refusal = load_unrefused(Path(parsed.plan), parsed.plan, parsed.outside)
    answers = answers_of(parsed.answers, os.environ) if parsed.answers else {}
    _must_be_wanted(loaded, parsed.yes)
    with _without_models(loaded) as environment, progress_line(sys.stderr) as say:
        options = ExploreOptions(parsed.members, tuple(parsed.named), say, answers)
        found = explore(loaded, environment, options)
    if parsed.json:
        print(json.dumps(as_json(found, refusal)))
    else:
        print_explored(found, refusal, sys.stdout)
    return 0 if found.is_clear else 1


def _must_be_wanted(loaded: Loaded, is_wanted: bool) -> None:
    """Ask before anything of the plan is executed."""
    own = [task.name for task in loaded.expanded.spec.tasks if _runs(loaded, task.name)]
    if is_wanted or not own:
        return
    question = f"this runs the commands and functions of {', '.join(own[:6])}"
    question += f" and {len(own) - 6} more" if len(own) > 6 else ""
    question += f", in a copy of {loaded.folder.resolve()}"
    from headway.cli.run import confirm

    confirm(question, "--yes runs them without a question")


def _runs(loaded: Loaded, name: str) -> bool:
    from headway.plans.spec import Prompt

    return any(
        task.name == name and not isinstance(task.work, Prompt)
        for task in loaded.expanded.spec.tasks
    )


@contextmanager
def _without_models(loaded: Loaded) -> Iterator[Mapping[str, str]]:
    """An environment in which calls of commands and functions are answered by a hash."""
    if not any(_runs(loaded, task.name) for task in loaded.expanded.spec.tasks):
        yield dict(os.environ)
        return
    from headway.cli.run import simulated

    with simulated("--model", "hash") as environment:
        yield environment
