"""The `resume` verb: goes on with a run that was interrupted, or lets a paused one go on."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from headway.cli.main import Body
from headway.errors import UsageError

if TYPE_CHECKING:
    from headway.journal.journal import Journal
    from headway.plans.expand import ExpandedPlan
    from headway.plans.load import Loaded
    from headway.run.plan_run import PlanSource

EXAMPLES: Final = """\
examples:
  headway resume                     the last run
  headway resume 20261116-0423-a7f
  headway resume RUN --changed       with the plan's file as it is now: only what changed runs again
  headway resume RUN --keep          with the plan as it was

What is finished is not executed again. Failed tasks are tried again. An agent that was cut off
goes on in its own session if it has one, else its recorded calls are replayed, else it begins anew.
"""


def arguments(parser: argparse.ArgumentParser) -> Body:
    from headway.cli.run import add_common

    parser.add_argument(
        "run_id", nargs="?", default="last", metavar="RUN", help="default: the last"
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--changed", action="store_true", help="use the plan's file as it is now")
    which.add_argument("--keep", action="store_true", help="use the plan as it was")
    add_common(parser)
    parser.set_defaults(forecast=False)
    return _resume


def _resume(parsed: argparse.Namespace) -> int:
    from headway.base.folders import folders
    from headway.base.locks import look
    from headway.journal.folder import find_run
    from headway.journal.reader import JournalReader
    from headway.run.launch import tell

    place = find_run(folders(os.environ).state, parsed.run_id)
    with JournalReader(place.folder) as reader:
        owner, header = look(place.folder), reader.header
        if owner is not None and owner.is_alive:
            was_told, _, words = tell(reader, place.id, "continue")
            print(words, file=sys.stderr)
            return 0 if was_told else 1
    if header.kind == "python":
        raise UsageError(
            f"{place.id} was started by a Python program, which alone knows its functions",
            hint=f"run the program again: `durable={header.name!r}` goes on where it was",
        )
    from headway.journal.journal import Journal
    from headway.report.text.runs import coming_lines, doubt_lines, known_of

    _go_to(header.folder)
    journal = Journal.open(place.folder)
    _say_in_flight(journal)
    for line in coming_lines(journal.folder, journal.reader.rows(), os.environ):
        print(line, file=sys.stderr)
    if header.kind == "plan":
        # Effects that were cut off are performed a second time.
        for line in doubt_lines(journal.reader, known_of(journal.reader)):
            print(line, file=sys.stderr)
    return _each(journal, parsed) if header.kind == "each" else _plan(journal, parsed)


def _go_to(folder: str) -> None:
    try:
        os.chdir(folder)
    except OSError as fault:
        raise UsageError(
            f"{folder}, where this run was started, cannot be entered: {fault.strerror}",
            hint="bring it back: its paths begin there. `headway results` needs no folder",
        ) from None


def _each(journal: Journal, parsed: argparse.Namespace) -> int:
    from headway.cli.each import perform
    from headway.cli.running import Show
    from headway.journal.folder import kept_source
    from headway.run.each import EachSource

    source = EachSource.decoded(kept_source(journal.folder, journal.header.source))
    if parsed.no_gateway:
        source = replace(source, has_gateway=False)
    return perform(source, journal, Show(view=False, summary=False, is_json=parsed.json))


def _plan(journal: Journal, parsed: argparse.Namespace) -> int:
    from headway.agents.cli import accounts_of, paid_twice
    from headway.cli.run import budget_of, environment_of, perform, ready_run
    from headway.run.plan_run import PlanSource

    folder = journal.folder
    told = len(list(accounts_of(folder)))
    source = PlanSource.kept(folder, journal.header.source)
    if parsed.budget:
        source = replace(source, budget=budget_of(parsed.budget))
    if parsed.no_gateway:
        source = replace(source, has_gateway=False)
    if parsed.sim is None:
        # What began on the simulated provider does not go on, paid, with a real one.
        parsed.sim = source.sim
    try:
        loaded, source = _chosen(journal, source, parsed)
        with environment_of(parsed) as environment:
            run = ready_run(loaded, source, parsed, environment)
            code = perform(run, source, journal, parsed)
    finally:
        journal.close()
    if words := paid_twice(list(accounts_of(folder))[told:]):
        print(words, file=sys.stderr)
    return code


def _chosen(
    journal: Journal, source: PlanSource, parsed: argparse.Namespace
) -> tuple[Loaded, PlanSource]:
    """The plan as it was, or as it is now if the user says so."""
    from headway.config import foreign_allowance
    from headway.plans.load import load_foreign, plan_from
    from headway.run.plan_run import files_digest, with_model

    path = Path(source.path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        if parsed.changed:
            why = fault.strerror if isinstance(fault, OSError) else "it is not UTF-8"
            raise UsageError(f"{path} cannot be read: {why}", hint="--keep: as it was") from None
        text = source.text
    again = f"headway resume {journal.header.run} --changed"
    if parsed.keep:
        text = source.text
    # What the user has edited is the user's own.
    is_foreign = source.is_foreign and text == source.text
    if is_foreign:
        has_begun = any(row.attempt for row in journal.reader.rows())
        allowance = foreign_allowance(os.environ)
        loaded = load_foreign(text, path.parent, allowance, path.name, has_begun)
    else:
        loaded = plan_from(text, path.parent, path.name, source.may_leave)
    is_same = source.files in ("", files_digest(loaded.expanded))
    if parsed.keep and not is_same:
        raise UsageError(
            f"files that {path.name} names were edited, and only the plan itself is kept",
            hint=f"undo that, or {again}",
        )
    if text != source.text or not is_same:
        words = _what_changes(journal, with_model(loaded.expanded, source))
        if parsed.changed:
            print(f"{path.name} was edited: {words}", file=sys.stderr)
        else:
            raise UsageError(
                f"{path.name}, or a file that it names, was edited since this run began",
                detail=words,
                hint=f"{again}, or --keep for the plan as it was",
            )
    return loaded, replace(source, text=text, is_foreign=is_foreign)


def _what_changes(journal: Journal, expanded: ExpandedPlan) -> str:
    from headway.run.reduce import inner_keys
    from headway.run.tasks import Plans

    plans = Plans.of(expanded)
    keys = set(inner_keys(plans))
    for group, known in zip(expanded.groups, plans.keys, strict=True):
        if known is not None:
            keys |= {known.key(member) for member in range(group.count or 0)}
    finished = [row for row in journal.reader.rows() if row.state == "finished"]
    holds = sum(row.key in keys for row in finished)
    spent = sum(row.spent_microusd for row in finished if row.key not in keys)
    paid = f", which cost ${spent / 1e6:.4f}" if spent else ""
    return f"{holds} of {len(finished)} results still hold; {len(finished) - holds} do not{paid}"


def _say_in_flight(journal: Journal) -> None:
    """Attempts in flight may be executed a second time: nobody knows how far they came."""
    started = [row.name for row in journal.reader.rows() if row.state == "started"]
    if started:
        shown = ", ".join(started[:5]) + (
            f" and {len(started) - 5} more" if len(started) > 5 else ""
        )
        print(
            f"in flight when it ended, so tried again: {shown}; calls that were sent may be billed "
            "twice, `headway report` counts them",
            file=sys.stderr,
        )
