"""The verbs `run` and `resume`: perform a plan, or go on with a run."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from headway.base.codec import as_dict
from headway.base.locks import look
from headway.base.values import Budget
from headway.cli.main import Body, add_json
from headway.config import foreign_allowance, read_configuration
from headway.errors import BadValueError, PlanTooLargeError, UsageError

if TYPE_CHECKING:
    from headway.journal.documents import Landing
    from headway.journal.journal import Journal
    from headway.pacing.windows import Shares
    from headway.plans.load import Loaded
    from headway.report.findings import Finding
    from headway.report.text.results import RowWriter
    from headway.run.driver import Driver
    from headway.run.observe import Observer
    from headway.run.plan_run import PlanRun, PlanSource

WARNINGS_SHOWN_MAX: Final = 5
"""Warnings of `check` that a run shows: it has a screen of its own to draw."""
BLIND: Final = (
    "the files that commands use cannot be observed here, so that lost updates are not found"
)
EXAMPLES: Final = """\
examples:
  headway run plan.yaml
  headway run plan.yaml --budget '$6'                stop before a seventh dollar could be spent
  headway run plan.yaml --budget 5M --no-wait        tokens; ends with 75 at an empty usage window
  headway run plan.yaml --window-share 30%% --wait 3d    of each usage window, over several of them
  headway run plan.yaml --finish-by 18:00 --when quiet
  headway run plan.yaml -j 8 --strategy waves:4
  headway run plan.yaml --forecast                   first the expected time beside the least
  headway run plan.yaml --sim script.yaml            against the simulated provider, free of charge
  headway run plan.yaml --observe enforce            stop at the first lost update or stale read
  headway run plan.yaml --learn                      propose `reads` and `writes` for its tasks

The results of the last tasks are printed; all of them with `headway results`.
exit codes: 0 all done, 1 some failed, 2 usage, 3 plan refused, 4 budget reached,
            75 usage window empty, 130 interrupted; the last three go on with `headway resume`
"""

RESUME: Final = """\
examples:
  headway resume                     the last run
  headway resume 20261116-0423-a7f
  headway resume RUN --changed       with the plan's file as it is now: only what changed runs again
  headway resume RUN --keep          with the plan as it was

What is finished is not executed again. Failed tasks are tried again. An agent that was cut off
goes on in its own session if it has one, else its recorded calls are replayed, else it begins anew.
"""


def arguments(parser: argparse.ArgumentParser) -> Body:
    add = parser.add_argument
    add("plan", metavar="PLAN", help="the plan's file")
    add("--strategy", metavar="S", help="adaptive, waves:4, fixed:8, all-at-once")
    add("-j", "--jobs", type=int, metavar="N", help="concurrency: exactly N tasks at a time")
    add("--retries", type=int, metavar="N", help="attempts after the first")
    add("--model", default="", metavar="M", help="for prompts that name none")
    add("--outside", action="store_true", help="allow paths outside of the plan's folder")
    add("--forecast", action="store_true", help="first the expected time and cost")
    add("--finish-by", metavar="TIME",
        help="end by 18:00, '2026-11-20 09:00' or 'in 6h': take more of usage windows if that is "
        "needed, and do not start if it is not enough")  # fmt: skip
    add("--when", choices=("now", "quiet"), default="now",
        help="quiet: begin in hours that are quiet on the account, within --finish-by")  # fmt: skip
    add_common(parser)
    parser.set_defaults(is_foreign=False)
    return _run


def add_common(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(out="", column="")
    add = parser.add_argument
    add("--budget", metavar="B", help="the most to spend: '$6', or tokens: 5M")
    add_windows(parser)
    add("--sim", nargs="?", const="", metavar="SCRIPT",
        help="use the simulated provider; its models follow a script")  # fmt: skip
    add("--observe", default="warn", choices=("warn", "enforce", "off"),
        help="which files tasks use at the same time: default warn, at the end, with exit code 1; "
        "enforce stops the run")  # fmt: skip
    add("--learn", action="store_true",
        help="propose `reads` and `writes` for the plan, from what its tasks used")  # fmt: skip
    add("--no-gateway", action="store_true", help="leave the model calls of commands alone")
    add("--yes", action="store_true", help="do not ask, whatever it may cost")
    add("--quiet", "-q", action="store_true", help="show nothing while it runs")
    add_json(parser, "a summary for a program, on stdout")


def add_windows(parser: argparse.ArgumentParser) -> None:
    """How a run uses the usage windows of a login."""
    parser.set_defaults(finish_by=None, when="now")
    add = parser.add_argument
    add(
        "--wait",
        metavar="TIME",
        help="wait at most this long for a usage window: 6h, 3d, forever (default: a day)",
    )
    add("--until", metavar="TIME", help="wait for a usage window until 18:00")
    add("--no-wait", action="store_true", help="do not wait for a usage window: exit code 75")
    add("--window-share", default="", metavar="SHARE",
        help="take at most 30%% of each usage window; if not said, 80%% of one shorter than a day, "
        "50%% of a longer one")  # fmt: skip


def _run(parsed: argparse.Namespace) -> int:
    from headway.plans.load import load_plan

    must_be_least("-j", parsed.jobs, 1)
    must_be_least("--retries", parsed.retries, 0)
    path, budget = Path(parsed.plan), budget_of(parsed.budget)
    loaded = load_plan(path, parsed.plan, parsed.outside)
    if parsed.strategy:
        loaded = loaded.with_spec(replace(loaded.expanded.spec, strategy=parsed.strategy))
    if not (parsed.quiet or parsed.json):
        warn_of(loaded, parsed.plan)
    with environment_of(parsed) as environment:
        return begin(loaded, path, parsed, environment, budget)


def begin(
    loaded: Loaded,
    path: Path,
    parsed: argparse.Namespace,
    environment: Mapping[str, str],
    budget: Budget | None,
) -> int:
    return perform(*opened_run(loaded, path, parsed, environment, budget), parsed)


def opened_run(
    loaded: Loaded, path: Path, parsed: argparse.Namespace, environment: Mapping[str, str],
    budget: Budget | None,
) -> tuple[PlanRun, PlanSource, Journal]:  # fmt: skip
    """A run that can be performed, with its journal."""
    from headway.base.folders import folders
    from headway.journal.journal import Journal
    from headway.run.plan_run import PlanSource, ready_run

    settings = read_configuration(os.environ).values
    source = PlanSource(
        str(path.resolve()), loaded.text, parsed.strategy or settings.strategy, parsed.jobs,
        parsed.retries, budget, parsed.model, parsed.outside,
        os.path.abspath(parsed.sim) if parsed.sim else parsed.sim,
        has_gateway=not parsed.no_gateway, is_foreign=parsed.is_foreign,
        window_shares=window_shares_of(parsed, loaded.expanded.spec.window_share),
        out=parsed.out, column=parsed.column,
    ).of(loaded.expanded)  # fmt: skip
    source, starts = planned_start(loaded, source, parsed, environment)
    # Refused here, it leaves no run behind that could not be resumed either.
    run = ready_run(loaded, source, environment, deadline_of(parsed))
    run = replace(run, launch=replace(run.launch, starts=starts))
    must_be_worth_it(loaded, source, parsed, environment)
    name, folder = loaded.expanded.spec.name or path.stem, str(loaded.folder.resolve())
    journal = Journal.begin(
        folders(os.environ).state, name, "plan", source.encoded(), folder, run.tasks,
        settings.keep_results,
    )  # fmt: skip
    return run, source, journal


def warn_of(loaded: Loaded, plan: str) -> None:
    """Show the warnings of `headway check`."""
    from headway.plans.check import remarks_on
    from headway.plans.document import absent

    remarks = remarks_on(loaded.survey, partial(absent, loaded.folder))
    warnings = [one for one in remarks if one.severity == "warning"]
    for one in warnings[:WARNINGS_SHOWN_MAX]:
        detail = f": {one.detail}" if one.detail else ""
        print(f"warning: {one.message}{detail}", file=sys.stderr)
    if warnings:
        hidden = len(warnings) - WARNINGS_SHOWN_MAX
        more = f"{hidden:,} more, and " if hidden > 0 else ""
        print(f"{more}what to write instead: headway check {shlex.quote(plan)}", file=sys.stderr)


def perform(run: PlanRun, source: PlanSource, journal: Journal, parsed: argparse.Namespace) -> int:
    from headway.cli.running import Show, conduct, meter_of
    from headway.report.findings import ERRORS
    from headway.report.text.notices import notices
    from headway.report.text.runs import files_of, landing_lines
    from headway.run.landing import land, most_more
    from headway.run.observe import findings_of, observer_of
    from headway.run.plan_run import has_commands, with_meter

    run.join(journal, source)
    is_metered = source.has_gateway and has_commands(run.plans.expanded)
    if (meter := meter_of(journal, is_metered, run.crew.environment)) is not None:
        run = with_meter(run, meter)
    is_shown = not parsed.quiet
    if parsed.forecast:
        _forecast(run, source, journal, is_shown and not parsed.json)
    if is_shown and not parsed.json and (words := most_more(run)):
        print(words, file=sys.stderr)
    observer = observer_of(parsed.observe, run, journal, learns=parsed.learn)
    launch = observer.around(run.launch, run.crew.shim())
    if observer.problem and observer.mode == "enforce":
        raise UsageError(
            f"`--observe enforce` is not possible: {BLIND}: {observer.problem}",
            hint="write `workspace: on` to the tasks with commands, or use `--observe warn`",
        )
    if observer.problem:
        print(f"{BLIND}: {observer.problem}", file=sys.stderr)
    show = Show(is_shown, is_shown, parsed.json, is_shown)
    writer = row_writer_of(run, source, journal) if source.out else None
    found: tuple[Finding, ...] = ()
    landing: Landing | None = None

    def added() -> dict[str, object]:
        nonlocal found, landing
        found, landing = findings_of(observer, run, journal), land(run, journal)
        return {
            "exit_code": int(any(one.kind in ERRORS for one in found)),
            "stale": run.stale,
            "landed": as_dict(landing),
            "findings": [as_dict(one) for one in found],
        }

    def last(driver: Driver) -> None:
        say_again(run, source, journal.folder, is_shown and not parsed.json)
        if is_shown and not parsed.json and landing is not None:
            print(*landing_lines(landing, journal.header.run), sep="\n", file=sys.stderr)
        if not parsed.json:
            _say_findings(observer, found, journal.header.run)
            if writer is not None:
                print(writer.words, file=sys.stderr)
            elif driver.outcome.cause != "interrupted":
                print_last(run, journal.folder)

    with notices(journal.folder):
        return conduct(
            launch, journal, show, adds=added, last=last,
            shows=None if writer is None else lambda *_: writer.advance(),
            ended=None if writer is None else writer.close,
            files=lambda view: files_of(run.plans, view),
        )  # fmt: skip


def _forecast(run: PlanRun, source: PlanSource, journal: Journal, is_shown: bool) -> None:
    from headway.report.text.forecast import foretold
    from headway.run.forecasts import foresee_run

    foreseen = foresee_run(run, source, journal)
    if is_shown:
        print(*foretold(foreseen, time.time()), sep="\n", file=sys.stderr)


def row_writer_of(run: PlanRun, source: PlanSource, journal: Journal) -> RowWriter:
    """Writes the rows of a plan of one group: its tasks have the numbers of its rows."""
    from headway.report.text.results import RowWriter

    members, work = run.plans.expanded.groups[0].known, run.works[0]
    return RowWriter(source.out, source.column, members, work.key, journal.reader)


def say_again(run: PlanRun, source: PlanSource, folder: str, is_shown: bool) -> None:
    from headway.journal.reader import JournalReader
    from headway.report.text.run_view import RunView
    from headway.report.text.runs import again_lines
    from headway.state.learned_edges import lessons_of, remember

    sharing, words = run.launch.sharing, list(run.crew.notes)
    # Under a ratchet everything is read by the objective: nothing is to be learned of that.
    if sharing is not None and sharing.coherence.learned and not run.crew.ratchet:
        lessons = lessons_of(run.launch.graph, sharing.coherence)
        remember(run.crew.environment, source.path, lessons)
        with JournalReader(folder) as reader:
            history = RunView(reader).history
            words += again_lines(history, lessons) if history.stale else ()
    for line in words if is_shown else ():
        print(line, file=sys.stderr)


def _say_findings(observer: Observer, found: tuple[Finding, ...], run: str) -> None:
    if not found and not observer.learns:
        return  # Without loading what shows them.
    from headway.report.text.check import learned_lines, print_findings

    print_findings(found, sys.stderr, f"headway status {run} --json")
    if observer.learns:
        print(*learned_lines(observer.learned()), sep="\n", file=sys.stderr)


def print_last(run: PlanRun, folder: str) -> None:
    """The results that no task needed: what the plan was for."""
    from headway.journal.reader import JournalReader

    groups = run.plans.expanded.groups
    needed = {edge.group for group in groups for edge in group.edges}
    with JournalReader(folder) as reader:
        for index, group in enumerate(groups):
            task = group.task
            if index in needed or task.output or task.output_key or group.count is None:
                continue
            for member in range(group.count):
                row = reader.row(run.works[index].key(member))
                body = reader.body(row.ending.body) if row is not None and row.ending.body else None
                if body and row is not None and row.state == "finished":
                    sys.stdout.buffer.write(body if body.endswith(b"\n") else body + b"\n")
    sys.stdout.flush()


@contextmanager
def environment_of(parsed: argparse.Namespace) -> Iterator[Mapping[str, str]]:
    """The environment that a run's prompts and commands see; with `--sim` its provider is ours."""
    if parsed.sim is None:
        yield dict(os.environ)
        return
    script = ("--script", parsed.sim) if parsed.sim else ()
    with simulated(*script) as environment:
        yield environment


@contextmanager
def simulated(*options: str) -> Iterator[Mapping[str, str]]:
    """An environment whose model calls are answered by the simulated provider."""
    from headway.client.admission import keep_apart
    from headway.sim.server import launched, variables_of

    keep_apart()
    with launched(*options) as url:
        told = variables_of(url)
        before = {name: os.environ.get(name) for name in told}
        os.environ.update(told)
        try:
            yield dict(os.environ)
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def must_be_worth_it(
    loaded: Loaded, source: PlanSource, parsed: argparse.Namespace, environment: Mapping[str, str]
) -> None:
    """Ask before a run without a budget that may cost much; refuse without a terminal."""
    from headway.run.plan_run import models_of, price_guess, with_model

    expanded = with_model(loaded.expanded, source)
    is_free = parsed.sim is not None or not [*models_of(expanded)]
    if parsed.yes or is_free or source.budget or expanded.spec.budget:
        return
    guess = price_guess(expanded, environment)
    if guess.expected_microusd <= round(read_configuration(os.environ).values.ask_above_usd * 1e6):
        return
    usd, most = guess.expected_microusd / 1e6, guess.ceiling_microusd / 1e6
    question = f"this plan will cost about ${usd:.2f}, at most ${most:.2f}, and has no budget"
    hint = f"--budget '${max(1, round(usd * 2))}', or --yes"
    confirm(question, hint)


def confirm(question: str, hint: str) -> None:
    """Go on if a person at the terminal says so; UsageError otherwise."""
    is_asked = sys.stdin.isatty() and sys.stderr.isatty()
    if not is_confirmed(f"{question}. Go on?"):
        raise UsageError("not confirmed" if is_asked else question, hint=hint)


def is_confirmed(question: str) -> bool:
    """Whether a person at the terminal says yes; without a terminal it is no."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def must_be_least(option: str, number: int | None, least: int) -> None:
    if number is not None and number < least:
        raise BadValueError(f"{option} {number} is less than {least}", hint=f"{option} {least + 3}")


def budget_of(text: str | None) -> Budget | None:
    """`$6` is money, `5M` tokens."""
    if text is None:
        return None
    from headway.api.plan_files import budget_in

    return budget_in(text)


def deadline_of(parsed: argparse.Namespace) -> float | None:
    """Until when a usage window is waited for: as the command line says, or the configuration."""
    from headway.run.launch import deadline_s, moment_s

    now_s = time.time()
    if parsed.wait or parsed.until or parsed.no_wait:
        return deadline_s(parsed.wait, parsed.until, parsed.no_wait, now_s)
    if parsed.finish_by:
        return moment_s(parsed.finish_by, now_s)
    wait = read_configuration(os.environ).values.wait
    return deadline_s(None if wait in ("", "no") else wait, None, wait == "no", now_s)


def window_shares_of(parsed: argparse.Namespace, planned: float | None = None) -> Shares | None:
    """The most that a run takes of each usage window: as the command line says, or the
    configuration where the plan says nothing."""
    from headway.run.launch import shares_in

    if parsed.window_share or planned is not None:
        return shares_in(parsed.window_share, "--window-share")
    return shares_in(read_configuration(os.environ).values.window_share, "window_share =")


def planned_start(
    loaded: Loaded, source: PlanSource, parsed: argparse.Namespace, environment: Mapping[str, str]
) -> tuple[PlanSource, tuple[float, str]]:
    """With `--finish-by` and `--when`: the source with its shares of usage windows; when the first
    task may start, and why not before. Raises PlanTooLargeError if it cannot end in time."""
    is_quiet = parsed.when == "quiet"
    if not parsed.finish_by and not is_quiet:
        return source, (-inf, "")
    from headway.report.text.forecast import late_words, start_words
    from headway.run.forecasts import start_of

    now_s = time.time()
    start = start_of(loaded.expanded, source, environment, parsed.finish_by, is_quiet, now_s)
    if start.is_late:
        message, hint = late_words(start)
        raise PlanTooLargeError(message, hint=hint)
    for line in start_words(start):
        print(line, file=sys.stderr)
    source = replace(source, window_shares=start.shares)
    if is_quiet and start.quiet_s is None:
        print("no hour is known, or set, to be quieter than this one", file=sys.stderr)
    why = "quiet hours begin then" if start.at_s == start.quiet_s else "later it is not in time"
    return source, (start.at_s, why)


def resume(parser: argparse.ArgumentParser) -> Body:
    parser.epilog = RESUME
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
    from headway.report.text.agents import coming_lines
    from headway.report.text.run_view import RunView, opened
    from headway.report.text.runs import doubt_lines
    from headway.run.launch import tell

    with opened(parsed.run_id) as (place, reader):
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

    try:
        os.chdir(header.folder)
    except OSError as fault:
        raise UsageError(
            f"{header.folder}, where this run was started, cannot be entered: {fault.strerror}",
            hint="bring it back: its paths begin there. `headway results` needs no folder",
        ) from None
    journal = Journal.open(place.folder)
    _say_in_flight(journal)
    for line in coming_lines(journal.reader, os.environ):
        print(line, file=sys.stderr)
    if header.kind == "plan":
        # Effects that were cut off are performed a second time.
        for line in doubt_lines(journal.reader, RunView(journal.reader).history.effects):
            print(line, file=sys.stderr)
    return _resume_each(journal, parsed) if header.kind == "each" else _resume_plan(journal, parsed)


def _resume_each(journal: Journal, parsed: argparse.Namespace) -> int:
    from headway.cli.each import perform
    from headway.cli.running import Show
    from headway.journal.documents import source_of
    from headway.run.each import EachSource

    source = EachSource.decoded(source_of(journal.reader))
    if parsed.no_gateway:
        source = replace(source, has_gateway=False)
    if parsed.window_share:
        source = replace(source, window_shares=window_shares_of(parsed))
    show = Show(view=False, summary=False, is_json=parsed.json)
    return perform(source, journal, show, deadline_of(parsed))


def _resume_plan(journal: Journal, parsed: argparse.Namespace) -> int:
    from headway.agents.programs import accounts_of, paid_twice
    from headway.journal.reader import JournalReader
    from headway.run.plan_run import PlanSource, ready_run
    from headway.run.resume import plan_to_resume

    told = len(accounts_of(journal.reader))
    source = PlanSource.kept(journal.reader)
    if parsed.budget:
        source = replace(source, budget=budget_of(parsed.budget))
    if parsed.no_gateway:
        source = replace(source, has_gateway=False)
    if parsed.window_share:
        source = replace(source, window_shares=window_shares_of(parsed))
    if parsed.sim is None:
        # What began on the simulated provider does not go on, paid, with a real one.
        parsed.sim = source.sim
    try:
        loaded, source, words = plan_to_resume(
            journal.reader, source, parsed.changed, parsed.keep, foreign_allowance(os.environ)
        )
        if words:
            print(f"{Path(source.path).name} was edited: {words}", file=sys.stderr)
        with environment_of(parsed) as environment:
            run = ready_run(loaded, source, environment, deadline_of(parsed))
            code = perform(run, source, journal, parsed)
    finally:
        journal.close()
    with JournalReader(journal.folder) as reader:
        if words := paid_twice(accounts_of(reader)[told:]):
            print(words, file=sys.stderr)
    return code


def _say_in_flight(journal: Journal) -> None:
    """Attempts in flight may be executed a second time: how far they came is unknown."""
    started = [row.name for row in journal.reader.rows() if row.state == "started"]
    if started:
        more = f" and {len(started) - 5} more" if len(started) > 5 else ""
        shown = ", ".join(started[:5]) + more
        print(
            f"in flight when it ended, so tried again: {shown}; calls that were sent may be billed "
            "twice, `headway report` counts them",
            file=sys.stderr,
        )
