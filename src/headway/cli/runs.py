"""The verbs about one run: what it did, its results, why; and `stop` and `pause`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from typing import Final

from headway.base.codec import as_dict
from headway.cli.main import Body, add_json, print_json, show
from headway.errors import UsageError
from headway.journal.folder import LAST
from headway.report.text import runs
from headway.report.text.run_view import RunView, opened
from headway.report.text.terminal import print_lines
from headway.report.text.words import console_for

STATUS: Final = """\
examples:
  headway status                    the last run
  headway status 20261116-0423      by the beginning of its id
  headway status --watch            until it is over

Exits with 0 in every state of the run; --json has it. Accounts: headway limits.
"""

REPORT: Final = """\
examples:
  headway report                    the last run
  headway report 20261116-0423      by the beginning of its id
  headway report -o run.html        as a page, in one file, to look at and to send
  headway report A B -o both.html   two runs or more on one axis
  headway report -o run.html --no-content   without prompts, results and outputs
  headway report --credit           what each task contributed to the plan's objective

Works while a run goes on; exits with 0. docs/runs.md explains the causes.
"""

TIMELINE: Final = """\
examples:
  headway timeline                  the last run
  headway timeline 20261116-0423    by the beginning of its id
  headway timeline last --all       every task, however many
  headway timeline last --json      every stay of every task, in seconds

`effectively m at once` is how many were really worked on, on average: docs/runs.md.
"""

WHY: Final = """\
examples:
  headway why 'review[security]'          a task of the last run, by its name
  headway why security                    or by a part that no other name has
  headway why 20261116-0423 security      of another run
"""

LOGS: Final = """\
examples:
  headway logs                          everything of the last run
  headway logs RUN --follow             and what still happens, until it is over
  headway logs RUN 'review[security]'   of one task, and what its attempts put out

On a terminal, control sequences in the text of tasks are left out.
"""

RESULTS: Final = """\
examples:
  headway results                              what the last run is for: tasks that no other needs
  headway results RUN --all                    every task, in declared order
  headway results RUN --parse | jq .output     results that are JSON as such, not as text
  headway results RUN --prompt 'review[a]'     the prompt of a task, with all that was filled in
  headway results RUN --format csv > out.csv   a table; formulas in it are made harmless
  headway results RUN --folder out             one file per result
  headway results RUN --task review verdict    only these tasks or groups
  headway results --apply                      what tasks in workspaces did, into your files
  headway results RUN --branches               a git branch for each of them, for review
  headway results RUN --state                  what its tasks have put into the shared state
  headway results RUN --state 'records/*' --json

On a terminal a table, elsewhere JSON Lines.
Of a run that is not complete, what there is; stderr says how many are missing. Exits with 1 then.
"""

CONTROL: Final = """\
examples:
  headway pause             the last run starts nothing more; what has started goes on
  headway resume last       and here it starts again
  headway stop              nothing more starts; the run ends when what has started has ended
  headway stop --now RUN    what has started is ended too; results that are there are kept

A run that was stopped can be resumed. Exits with 1 if no process performs the run.
"""


def _add_run(parser: argparse.ArgumentParser, examples: str) -> Callable[..., argparse.Action]:
    parser.epilog = examples
    parser.add_argument("name", metavar="RUN", nargs="?", default="last", help="default: the last")
    return parser.add_argument


def show_runs(*, is_json: bool = False) -> int:
    if is_json:
        return print_json({"runs": runs.runs_json()})
    runs.draw_runs(console_for(sys.stdout))
    return 0


def status(parser: argparse.ArgumentParser) -> Body:
    add = _add_run(parser, STATUS)
    add("--watch", action="store_true", help="show it until it is over")
    add_json(parser)
    return _status


def _status(parsed: argparse.Namespace) -> int:
    from headway.journal.documents import kept_findings

    with opened(parsed.name) as (place, reader):
        if parsed.watch:
            from headway.report.text.live import watch_run

            watch_run(reader, sys.stderr)
        found = kept_findings(reader)
        if parsed.json:
            findings = [as_dict(one) for one in found]
            return print_json({**runs.as_json(RunView(reader)), "findings": findings})
        console = console_for(sys.stdout)
        print_lines(console, runs.status_lines(RunView(reader), console.width))
        if found:
            from headway.report.text.check import print_findings

            print_findings(found, sys.stdout, f"headway status {place.id} --json")
    return 0


def report(parser: argparse.ArgumentParser) -> Body:
    parser.epilog = REPORT
    add = parser.add_argument
    add("names", metavar="RUN", nargs="*", default=["last"], help="default: the last")
    add("-o", dest="output", metavar="FILE", help="write a page instead: one file for a browser")
    add("--credit", action="store_true", help="what each landed task contributes to the objective")
    add("--permutations", metavar="N", type=int, default=0,
        help="with --credit: over N drawn orders, instead of left out and alone")  # fmt: skip
    add("--yes", action="store_true", help="run the objective without a question")
    add("--no-content", action="store_true",
        help="leave prompts, results and outputs out of the page")  # fmt: skip
    add_json(parser)
    return _report


def _report(parsed: argparse.Namespace) -> int:
    if parsed.output:
        from headway.report.page.document import write_report

        size = write_report(parsed.names, parsed.output, has_content=not parsed.no_content)
        print(f"{parsed.output}: {size / 1e6:.1f} MB; open it in a browser", file=sys.stderr)
        return 0
    if len(parsed.names) > 1 or parsed.no_content:
        what = "several runs are" if len(parsed.names) > 1 else "--no-content is"
        raise UsageError(f"{what} for a page", hint="headway report A B -o both.html")
    if parsed.credit:
        return _credit(parsed)
    if parsed.permutations:
        raise UsageError("--permutations is for the credit", hint="headway report RUN --credit")
    from headway.report.text.report import as_json, report_lines, report_of

    with opened(parsed.names[0]) as (_, reader):
        run = report_of(reader)
        return show(
            parsed, lambda: as_json(run),
            lambda console: print_lines(console, report_lines(run, console.width)),
        )  # fmt: skip


PERMUTATIONS_MAX: Final = 10_000


def _credit(parsed: argparse.Namespace) -> int:
    """Merge the work of some of the tasks, again and again, and run the objective on it."""
    from headway.cli.run import confirm
    from headway.report.credit import credits_of
    from headway.report.text.credit import credit_json, credit_lines
    from headway.run.landing import landing_of
    from headway.run.objective import merged_work, objective_in

    orders = parsed.permutations
    if not 0 <= orders <= PERMUTATIONS_MAX:
        raise UsageError(f"--permutations takes 0 to {PERMUTATIONS_MAX:,}, not {orders}")
    with opened(parsed.names[0]) as (_, reader):
        landing, command = landing_of(reader), objective_in(reader)
        work, names, keys = merged_work(reader, landing, command, os.environ)
        count = len(names) * max(1, orders) if orders else 2 * len(names) + 2
        if not parsed.yes:
            question = f"this runs the objective up to {count:,} times: `{command}`"
            confirm(question, "--yes runs it without a question")
        tasks = RunView(reader, is_whole=True).history.tasks
        tokens = [round(tasks[key].taken.tokens) if key in tasks else 0 for key in keys]
        found = credits_of(names, tokens, work.value, orders)
        runs = work.objective.runs
        lines = credit_lines(found, runs, work.conflicts, work.unscored, orders)
        return show(
            parsed, lambda: credit_json(found, runs, work.conflicts),
            lambda console: print_lines(console, lines),
        )  # fmt: skip


def timeline(parser: argparse.ArgumentParser) -> Body:
    add = _add_run(parser, TIMELINE)
    add("--all", action="store_true", help="every task, not the first 40")
    add_json(parser)
    return _timeline


def _timeline(parsed: argparse.Namespace) -> int:
    from headway.report.text.timeline import as_json, draw_played, played

    with opened(parsed.name) as (_, reader):
        run = played(reader)
    return show(
        parsed, lambda: as_json(run), lambda console: draw_played(console, run, is_whole=parsed.all)
    )


def why(parser: argparse.ArgumentParser) -> Body:
    parser.epilog = WHY
    parser.usage = "headway why [-h] [--json] [RUN] TASK"
    parser.add_argument(
        "words", metavar="TASK", nargs="+", help="its name, or a part of it; before it the run's id"
    )
    add_json(parser)
    return _why


def _why(parsed: argparse.Namespace) -> int:
    from headway.report.text.why import draw_explanation, explain, known

    *runs, task = parsed.words
    if len(runs) > 1:
        raise UsageError(
            f"`why` takes one task, and got {len(parsed.words)} words",
            hint=f"headway why '{' '.join(parsed.words)}', if that is its name",
        )
    with opened(runs[0] if runs else "last") as (_, reader):
        found = explain(reader, task, lambda: known(reader))
    return show(parsed, lambda: as_dict(found), lambda console: draw_explanation(console, found))


def logs(parser: argparse.ArgumentParser) -> Body:
    add = _add_run(parser, LOGS)
    add("task", metavar="TASK", nargs="?", help="default: all")
    add("-f", "--follow", action="store_true", help="until the run is over")
    add_json(parser)
    return _logs


def _logs(parsed: argparse.Namespace) -> int:
    from headway.report.text.logs import write_logs

    with opened(parsed.name) as (place, reader):
        write_logs(
            sys.stdout, reader, place.folder, parsed.task,
            is_json=parsed.json, is_followed=parsed.follow,
        )  # fmt: skip
    return 0


def stop(parser: argparse.ArgumentParser) -> Body:
    parser.add_argument("--now", action="store_true", help="also end what has started")
    _add_run(parser, CONTROL)
    add_json(parser)
    return lambda parsed: _tell(parsed, "end" if parsed.now else "stop")


def pause(parser: argparse.ArgumentParser) -> Body:
    _add_run(parser, CONTROL)
    add_json(parser)
    return lambda parsed: _tell(parsed, "pause")


def _tell(parsed: argparse.Namespace, word: str) -> int:
    from headway.run.launch import tell

    with opened(parsed.name) as (place, reader):
        was_accepted, pid, words = tell(reader, place.id, word)
    if parsed.json:
        print_json({"run": place.id, "accepted": was_accepted, "pid": pid})
    else:
        print(words)
    return 0 if was_accepted else 1


def results(parser: argparse.ArgumentParser) -> Body:
    add = _add_run(parser, RESULTS)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--format", choices=("table", "jsonl", "csv"),
                      help="default: a table on a terminal, else jsonl")  # fmt: skip
    form.add_argument("--folder", metavar="DIR", help="one file per result, in this folder")
    add("--all", action="store_true", help="every task, not only those that no other needs")
    add("--parse", action="store_true", help="results that are JSON, as JSON")
    add("--task", metavar="NAME", nargs="+", action="extend", default=[],
        help="only these tasks, or all of these groups")  # fmt: skip
    add("--json", action="store_const", dest="format", const="jsonl",
        help="the same as --format jsonl")  # fmt: skip
    form.add_argument("--state", nargs="?", const="**", metavar="PATTERN",
                      help="the shared state instead, or its keys of a pattern")  # fmt: skip
    form.add_argument("--prompt", metavar="TASK", help="the prompt of a task, filled in")
    form.add_argument("--apply", action="store_true",
                      help="put what landed from workspaces into your files")  # fmt: skip
    form.add_argument("--branches", action="store_true",
                      help="a git branch for each task that landed, and one with all")  # fmt: skip
    form.add_argument("--patch", action="store_true", help="what landed, as a patch on stdout")
    return _results


def _results(parsed: argparse.Namespace) -> int:
    from headway.report.text import results as written
    from headway.report.text.agents import accounts_by_key

    if parsed.state is not None:
        return _state(parsed)
    if parsed.apply or parsed.branches or parsed.patch:
        return _landed(parsed)
    with opened(parsed.name) as (_, reader):
        if parsed.prompt is not None:
            print(written.prompt_of(reader, parsed.prompt))
            return 0
        run = RunView(reader)
        found = written.harvest(reader, parsed.task, is_final=not parsed.all)
        is_table = parsed.format == "table" or (
            parsed.format is None and not parsed.parse and sys.stdout.isatty()
        )
        if parsed.folder is not None:
            done = written.write_folder(parsed.folder, found)
            print(f"{done} files in {parsed.folder}", file=sys.stderr)
        elif parsed.format == "csv":
            written.write_table(sys.stdout, found)
        elif is_table:
            written.draw_results(console_for(sys.stdout), found)
        else:
            agents = accounts_by_key(reader)
            written.write_lines(sys.stdout, found, is_parsed=parsed.parse, agents=agents)
        words, inner = run.words(), run.inner().values()
    # Tasks that only bring results together for a reduction are no results of their own.
    total = run.total - sum(of for _, of in inner)
    done = words["done"] + words["reused"] - sum(done for done, _ in inner)
    missing = 0 if parsed.task else total - done
    if missing:
        again = f"headway resume {run.header.run}"
        print(f"{missing} of {total} results are missing: {run.verdict.state}. "
              f"See `headway status {run.header.run}`, or go on with `{again}`",
              file=sys.stderr)  # fmt: skip
    return 1 if missing else 0


def _landed(parsed: argparse.Namespace) -> int:
    """What tasks in workspaces did: into the user's files, as branches, or as a patch."""
    from headway.run.landing import landing_of
    from headway.workspaces.apply import apply_files, list_stores, make_branches, patch_of

    with opened(parsed.name) as (place, reader):
        landed = landing_of(reader).folders
        stores, run = list_stores(place.folder), reader.header.run
    tops, here = [f"{store.folder}/" for store in stores], f"{os.path.realpath('.')}/"
    is_here = any(top.startswith(here) or here.startswith(top) for top in tops)
    if parsed.name == LAST and not is_here and not parsed.patch:
        verb = "--apply" if parsed.apply else "--branches"
        raise UsageError(
            f"the last run worked in {', '.join(store.folder for store in stores)}, not here",
            hint=f"headway results {run} {verb}",
        )
    if parsed.patch:
        for store in stores:
            sys.stdout.write(patch_of(store))
        return 0
    for store in stores:
        others = {
            f"{task.name}-{name}": commit
            for one in landed if os.path.realpath(one.folder).startswith(store.folder)
            for task in one.tasks for name, commit in task.other_refs.items()
        }  # fmt: skip
        done = apply_files(store) if parsed.apply else make_branches(store, run, others)
        for name in done:
            print(name if name.isprintable() else repr(name))
        what = "file" if parsed.apply else "branch"
        plural = {"file": "files", "branch": "branches"}[what] if len(done) != 1 else what
        verb = "written" if parsed.apply else "made"
        print(f"{len(done)} {plural} {verb} in {store.folder}", file=sys.stderr)
    return 0


def _state(parsed: argparse.Namespace) -> int:
    """What was committed, and its digest, by which two runs can be compared."""
    from headway.run.resume import committed

    with opened(parsed.name) as (_, reader):
        values, digest = committed(reader, parsed.state)
        verdict = RunView(reader).verdict
    if parsed.format:
        parsed_values = {key: json.loads(data) for key, data in values.items()}
        print(json.dumps(parsed_values, ensure_ascii=False))
    else:
        cells = max(map(len, values), default=0)
        for key, data in values.items():
            print(f"{key.ljust(cells)}  {data.decode()}")
    count = f"{len(values)} keys" if len(values) != 1 else "1 key"
    print(f"{count}, digest {digest.hex()}; the run is {verdict.state}", file=sys.stderr)
    return 0
