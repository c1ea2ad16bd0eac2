"""The `explore` verb: what happens if B runs before A completes? Performs a plan in a model."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headway.cli.main import Body, add_json
from headway.errors import UsageError
from headway.report.text.terminal import progress_line

if TYPE_CHECKING:
    from headway.plans.load import Loaded
    from headway.report.explore import ExploreSubject

COUNT_MAX: Final = 10_000_000
MEMBERS: Final = 3
"""Members of a group that are tried, if the user does not say how many."""

EXAMPLES: Final = """\
Prompts and commands are not performed: each gives a hash of all that it is given. Functions are
called, in a copy of the plan's folder, without network and without programs: docs/explore.md.

examples:
  headway explore plan.yaml                    every pair, every order that matters, crashes
  headway explore plan.yaml --pairs            pairs only
  headway explore plan.yaml --schedules 20000 --seed 7
  headway explore plan.yaml --replay 'pct:seed=7:d=3'
  headway explore plan.yaml --no-python        functions give a hash too

judged: shared state only; files and commands are not judged
exit codes: 0 nothing differs, 1 something does, 3 the plan cannot be read
"""


def arguments(parser: argparse.ArgumentParser) -> Body:
    add = parser.add_argument
    add("plan", metavar="PLAN", help="the plan's file")
    add("--pairs", action="store_true", help="turn pairs around, and no more")
    add("--schedules", metavar="N", type=int, help="so many schedules beside the pairs")
    add("--seed", metavar="S", type=int, default=1, help="of what is drawn")
    add("--depth", metavar="D", type=int, default=3,
        help="how many orderings a drawn error may need (3)")  # fmt: skip
    add("--members", metavar="N", type=int, default=MEMBERS,
        help="members of each group that are tried (3)")  # fmt: skip
    add("--replay", metavar="SCHEDULE", help="one schedule, as it was printed")
    add("--no-python", action="store_true", help="do not call functions: they give a hash")
    add("--outside", action="store_true", help="allow paths outside of the plan's folder")
    add_json(parser)
    return _explore


def _explore(parsed: argparse.Namespace) -> int:
    from headway.plans.load import load_unrefused
    from headway.report.explore import ExploreOptions, Explorer, explore
    from headway.report.text.explore import as_json, print_explored

    for name, least in (("schedules", 1), ("depth", 1), ("members", 2), ("seed", 0)):
        value = getattr(parsed, name)
        if value is not None and not least <= value <= COUNT_MAX:
            raise UsageError(f"--{name} takes {least} to {COUNT_MAX:,}, not {value}")
    loaded, refusal = load_unrefused(Path(parsed.plan), parsed.plan, parsed.outside)
    options = ExploreOptions(
        parsed.schedules, parsed.seed, parsed.depth, parsed.pairs or bool(parsed.replay)
    )
    with _subject(loaded, parsed) as subject, progress_line(sys.stderr) as say:

        def tell(what: str, done: int, of: int) -> None:
            say(f"{what}: {done:,} of {of:,}")

        if parsed.replay:
            found = Explorer(subject, options, tell).replay(parsed.replay)
        else:
            found = explore(subject, options, tell)
    if parsed.json:
        print(json.dumps(as_json(found, refusal)))
    else:
        print_explored(found, refusal, _command(parsed), sys.stdout)
    return 1 if found.differs else 0


def _command(parsed: argparse.Namespace) -> str:
    """What has to be typed to try the same plan in the same way."""
    words = ["headway", "explore", parsed.plan]
    words += ["--no-python"] if parsed.no_python else []
    words += ["--outside"] if parsed.outside else []
    words += ["--members", str(parsed.members)] if parsed.members != MEMBERS else []
    return shlex.join(words)


@contextmanager
def _subject(loaded: Loaded, parsed: argparse.Namespace) -> Iterator[ExploreSubject]:
    from headway.report.explore import subject_of
    from headway.run.explore import calls_functions, rehearsed

    subject = subject_of(loaded.expanded, parsed.members)
    if parsed.no_python or not calls_functions(subject.expanded.groups):
        yield subject
        return
    with rehearsed(subject, str(loaded.folder.resolve())) as called:
        yield called
