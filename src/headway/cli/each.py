"""The `each` verb: a command for each of many inputs, in GNU parallel's grammar."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from math import ceil, inf
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from headway.agents.shell import Adopted, ShimClient
from headway.base.folders import folders
from headway.cli.main import HelpText, Parser, add_json
from headway.engine.events import Event, TaskFailed, TaskFinished, TaskReused
from headway.engine.record import Header
from headway.engine.strategy import ADAPTIVE
from headway.errors import BadValueError, UsageError
from headway.pacing.windows import RUN_SHARES
from headway.plans.each import ValueSource, arrange, lines, parse
from headway.report.text.outputs import Outputs
from headway.run.each import EachSource, EachWork
from headway.run.machine import Machine, cores

if TYPE_CHECKING:
    from headway.cli.running import Show
    from headway.engine.state import Halt
    from headway.journal.journal import Journal
    from headway.report.text.live import Watcher

EXAMPLES: Final = """\
examples:
  headway each 'printf "%s\\n" {}' ::: a b c
  headway each -j 4 --retries 2 'claude -p "Find races in {}" > {/.}.md' ::: src/*.py
  headway each -k --tag wc -l ::: *.txt              in the order of the inputs, each line named
  headway each 'convert {1} -resize {2} {1.}-{2}.png' ::: *.jpg ::: 100 200
  headway each 'cp {1} {2}' ::: a b :::+ x y         linked, not combined
  find . -name '*.log' | headway each gzip           inputs from a pipe
  headway each --resume 'work {}' :::: items.txt     only what is not done yet
  headway each --agent claude --permissions edit 'Fix the tests of {}' ::: src/*.py
            a prompt for each, each agent in a workspace of its own; then `headway results --apply`

replacement strings: {} the input; {.} without its extension; {/} its name; {//} its folder;
  {/.} its name without extension; {#} its number; {1} {2.} ... of one source
inputs: ::: values, :::: files with a value on each line (- is the pipe), :::+ ::::+ linked
exit codes: 0 all done, 1 some failed, 2 usage, 75 usage window empty, 130 interrupted; the last
            two go on with `headway resume`
"""


def main(arguments: Sequence[str]) -> int:
    """Words after the options belong to the command, whatever they look like."""
    try:
        parsed = _parser().parse_args(_joined(list(arguments)))
    except SystemExit:
        return 0
    words = parsed.words
    if parsed.agent:
        return _by_agent(parsed, words[1:] if words[:1] == ["--"] else words)
    source = _source(parsed, words[1:] if words[:1] == ["--"] else words)
    if parsed.forecast:
        from headway.report.text.forecast import foretold
        from headway.run.forecasts import foreseen_each

        found = foreseen_each(source.plan().count(), source.template, os.environ, source.jobs)
        print(*foretold(found), sep="\n", file=sys.stderr)
    if parsed.dry_run:
        plan = source.plan()
        for member in range(plan.count()):
            sys.stdout.buffer.write(os.fsencode(f"{plan.display(member)}\n"))
        return 0
    from headway.cli.run import deadline_of
    from headway.cli.running import Show

    Outputs(source, sys.stdout.buffer, sys.stderr.buffer)  # Refused here, it leaves no run behind.
    wants_view = bool(parsed.eta or parsed.bar or parsed.progress)
    waits_until_s = deadline_of(parsed)  # As above.
    show = Show(wants_view, wants_view, parsed.json)
    return perform(source, _journal(parsed, source), show, waits_until_s)


def _by_agent(parsed: argparse.Namespace, words: list[str]) -> int:
    """A prompt for each input, performed by an agent: a plan of one task."""
    from headway.cli.run import begin, environment_of
    from headway.plans.load import plan_from

    template, named = parse(words)
    prompt = " ".join(template)
    if (found := re.search(r"\{(?!\})[^ {}]*\}", prompt)) is not None:
        raise UsageError(f"`{found[0]}` cannot be used in a prompt for an agent", hint="use {}")
    sources = [_file_values(name, parsed) for name in parsed.arg_file or ()]
    sources += [tuple(one) if kind == "values" else _file_values(one[0], parsed)
                for kind, one, _ in named]  # fmt: skip
    if len(sources) > 1:
        raise UsageError("a prompt for an agent takes inputs of one source", hint="write a plan")
    items = list(sources[0] if sources else _file_values("-", parsed))
    task: dict[str, object] = {
        "each": items,
        "prompt": (prompt if "{}" in prompt else f"{prompt} {{}}").replace("{}", "{{ item }}"),
        "agent": parsed.agent,
        "workspace": "on" if parsed.workspace else "off",
    }
    for key, value in (("timeout", parsed.timeout), ("stuck", parsed.stuck),
                       ("model", parsed.model), ("verify", parsed.verify),
                       ("permissions", parsed.permissions)):  # fmt: skip
        task |= {key: value} if value else {}
    text = json.dumps({"headway": 1, "name": "each", "tasks": {"each": task}}, indent=1)
    path = Path.cwd() / "each.json"
    loaded = plan_from(text, Path.cwd(), path.name)
    parsed.strategy, parsed.outside, parsed.is_foreign, parsed.sim = "", False, False, None
    parsed.yes, parsed.quiet, parsed.observe, parsed.learn = True, False, "warn", False
    jobs = _jobs(parsed.jobs) if parsed.jobs else None
    parsed.jobs = None if jobs is None or jobs == inf else int(jobs)
    with environment_of(parsed) as environment:
        return begin(loaded, path, parsed, environment, None)


def perform(
    source: EachSource, journal: Journal, show: Show, waits_until_s: float | None = None
) -> int:
    from headway.cli.running import conduct, meter_of
    from headway.engine.state import Rules
    from headway.plans.graph import Graph, TaskGroup
    from headway.run.driver import Launch

    plan = source.plan()
    folder = journal.header.folder
    shim = ShimClient(journal.folder)
    meter = meter_of(journal, source.has_gateway, os.environ)
    adopted = Adopted(journal.folder)
    work = EachWork(plan, folder, shim, source.timeout_s, adopted, meter, source.stuck_s)
    outputs = Outputs(source, sys.stdout.buffer, sys.stderr.buffer)
    graph = Graph((TaskGroup("each", plan.count(), retries=source.retries, is_local=True),))
    halt = halt_of(source.halt, plan.count())
    rules = Rules(ADAPTIVE, source.retries, halt, ceiling=source.jobs, is_patient=True)

    def show_outputs(events: Sequence[Event], watcher: Watcher | None) -> None:
        """Show the output of each command when its end is durable."""
        for event in events:
            if isinstance(event, TaskFinished | TaskFailed | TaskReused):
                done = work.ended.pop(event.task, None)
                outputs.ended(event.task, done, nullcontext if watcher is None else watcher.aside)

    machine = Machine(shim, meter)
    run = Launch(
        graph, (work,), rules, waits_until_s=waits_until_s, closes=(shim.close,), machine=machine
    )
    if meter is not None:
        shares = source.window_shares or RUN_SHARES
        meets = (lambda driver: meter.meet(driver.window_empty, False, shares),)
        closes = (shim.close, meter.aclose)
        run = replace(run, meets=meets, closes=closes)
    return conduct(run, journal, show, show_outputs, lambda: outputs.close(nullcontext))


def halt_of(text: str, tasks: int) -> Halt | None:
    """`now,fail=1`, `soon,fail=10%`, `never`."""
    from headway.engine.state import Halt

    if text in ("", "never", "0"):
        return None
    if text in ("1", "2"):  # As GNU parallel still understands them.
        return Halt(1, text == "2")
    when, _, rest = text.partition(",")
    what, _, amount = rest.partition("=")
    number = amount.removesuffix("%")
    if when not in ("now", "soon") or what != "fail" or not number.isdecimal() or not int(number):
        raise BadValueError(f"--halt {text} is not understood", hint="--halt now,fail=1")
    count = ceil(tasks * int(number) / 100) if amount.endswith("%") else int(number)
    return Halt(max(1, count), when == "now")


def _joined(arguments: list[str]) -> list[str]:
    """`-j -1` as one word: to argparse a word like `-1` is an option, of which there is none."""
    for index, word in enumerate(arguments[:-1]):
        if word in ("-j", "--jobs") and re.fullmatch(r"-[0-9]+%?", arguments[index + 1]):
            return [*arguments[:index], f"--jobs={arguments[index + 1]}", *arguments[index + 2 :]]
        if not word.startswith("-"):
            break
    return arguments


def _parser() -> Parser:
    from headway.cli.run import add_windows

    parser = Parser(
        prog="headway each",
        usage="headway each [options] COMMAND... [::: INPUT...] [:::: FILE...]",
        description="run a command for each of many inputs",
        epilog=EXAMPLES,
        formatter_class=HelpText,
    )
    add = parser.add_argument
    add("-j", "--jobs", metavar="N", help="concurrency: exactly N at a time (default: what fits)")
    add("-k", "--keep-order", action="store_true", help="outputs in the order of the inputs")
    add("-n", "--max-args", "-N", type=int, metavar="N", help="N inputs to each command")
    add("-a", "--arg-file", metavar="FILE", action="append", help="inputs, one a line")
    add("-0", "--null", action="store_true", help="inputs are separated by zero bytes")
    add("-r", "--no-run-if-empty", action="store_true", help="skip empty inputs")
    add("-q", "--quote", action="store_true", help="the command's words are not text for a shell")
    add("-C", "--colsep", metavar="REGEX", help="split each input into {1}, {2} ...")
    add("--tag", action="store_true", help="begin each line of output with its input")
    add("--dry-run", action="store_true", help="print the commands, run nothing")
    add("--forecast", action="store_true", help="first the expected time, if it has run before")
    add("--retries", type=int, default=0, metavar="N", help="try a failed command again")
    add("--agent", default="", metavar="NAME", help="COMMAND is a prompt for claude, codex ...")
    add("--workspace", action=argparse.BooleanOptionalAction, default=True,
        help="with --agent: each works on its own view of the folder (default)")  # fmt: skip
    add("--model", default="", metavar="M", help="with --agent: the model that it asks")
    add("--verify", default="", metavar="CMD", help="with --agent: a command that must pass")
    add("--permissions", default="", choices=("edit", "all"),
        help="with --agent: what it may do beyond your own settings of it")  # fmt: skip
    add("--timeout", metavar="TIME", help="end a command after 90s, 10m ... of its own time")
    add("--stuck", metavar="TIME", help="end a command that does nothing for so long")
    add("--halt", default="", metavar="WHEN", help="now,fail=1; soon,fail=10%%; never")
    add("--joblog", metavar="FILE", default="", help="a line for each command that ended")
    add("--results", metavar="DIR", default="", help="keep stdout and stderr of each in a folder")
    add("--resume", action="store_true", help="go on with the last run of the same command")
    add_windows(parser)
    add("--no-gateway", action="store_true", help="leave the commands' model calls alone")
    add("--eta", action="store_true", help="show the view of a run on a terminal")
    add("--bar", action="store_true", help=argparse.SUPPRESS)
    add("--progress", action="store_true", help=argparse.SUPPRESS)
    add_json(parser, "print a summary for a program at the end, on stdout")
    add("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def _source(parsed: argparse.Namespace, words: list[str]) -> EachSource:
    from headway.cli.run import window_shares_of

    template, named = parse(words)
    sources: list[ValueSource] = [
        *((_file_values(name, parsed), False) for name in parsed.arg_file or ()),
        *(
            (words if kind == "values" else _file_values(words[0], parsed), is_linked)
            for kind, words, is_linked in named
        ),
    ]
    if not sources:
        sources = [(_file_values("-", parsed), False)]
    plan = arrange(template, sources, parsed.max_args, parsed.colsep, parsed.quote)
    axes = tuple(tuple(tuple(values) for values in axis) for axis in plan.axes)
    halt_of(parsed.halt, plan.count())
    return EachSource(
        plan.template, axes, parsed.max_args, parsed.colsep, parsed.quote, _jobs(parsed.jobs),
        max(0, parsed.retries), _timeout("--timeout", parsed.timeout),
        _timeout("--stuck", parsed.stuck), parsed.halt, parsed.keep_order,
        parsed.tag, parsed.joblog and os.path.abspath(parsed.joblog),
        parsed.results and os.path.abspath(parsed.results), not parsed.no_gateway,
        window_shares_of(parsed),
    )  # fmt: skip


def _file_values(name: str, parsed: argparse.Namespace) -> tuple[str, ...]:
    if name == "-" and sys.stdin.isatty():
        raise UsageError(
            "there are no inputs", hint="headway each 'echo {}' ::: a b c, or pipe them in"
        )
    try:
        if name == "-":
            data = sys.stdin.buffer.read()
        else:
            with open(name, "rb") as file:
                data = file.read()
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}") from error
    return lines(os.fsdecode(data), parsed.null, parsed.no_run_if_empty)


def _journal(parsed: argparse.Namespace, source: EachSource) -> Journal:
    from headway.journal.journal import Journal

    if parsed.resume:
        found = _earlier(source)
        if found is not None:
            return found
    here, tasks = os.getcwd(), source.plan().count()
    title = " ".join(source.template.split())
    title = title if len(title) <= 60 else title[:59] + "…"
    return Journal.begin(folders(os.environ).state, title, "each", source.encoded(), here, tasks)


def _earlier(source: EachSource) -> Journal | None:
    """The last run of the same command from the same folder; it may have had other inputs."""
    from headway.journal.documents import SOURCE
    from headway.journal.folder import list_runs
    from headway.journal.journal import Journal
    from headway.journal.reader import latest

    def is_it(header: Header) -> bool:
        is_each = header.kind == "each" and header.folder == os.getcwd()
        return is_each and EachSource.decoded(header.source).template == source.template

    place = latest(list_runs(folders(os.environ).state), is_it)
    if place is None:
        return None
    journal = Journal.open(place.folder)
    # A later resume goes on with these inputs, not with those it began with.
    journal.keep(SOURCE, source.encoded().encode())
    return journal


def _jobs(text: str | None) -> float:
    """`4`, `+2`, `50%` of the cores; 0 is as many as fit."""
    if text is None or text == "0":
        return inf
    number = text.removesuffix("%").lstrip("+-")
    if not number.isdecimal():
        raise BadValueError(f"-j {text} is not a number", hint="-j 4")
    count = int(number)
    if text.endswith("%"):
        return max(1, round(cores() * count / 100))
    if text[0] in "+-":
        return max(1, cores() + int(text))
    return max(1, count)


def _timeout(option: str, text: str | None) -> float | None:
    from headway.run.launch import span_s

    if text is None:
        return None
    seconds = span_s(text)
    if not seconds:
        raise BadValueError(f"{option} {text} leaves no time at all", hint=f"{option} 90s")
    return seconds
