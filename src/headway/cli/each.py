"""The `each` verb: a command for each of many inputs, in GNU parallel's grammar."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
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
from headway.errors import BadValueError, UsageError, did_you_mean
from headway.pacing.windows import RUN_SHARES
from headway.plans.each import SEPARATORS, NamedSource, ValueSource, arrange, lines, parse
from headway.plans.template import Ref
from headway.report.text.outputs import Outputs
from headway.run.each import EachSource, EachWork
from headway.run.machine import Machine, cores

if TYPE_CHECKING:
    from headway.base.values import Budget
    from headway.cli.running import Show
    from headway.engine.state import Halt
    from headway.journal.journal import Journal
    from headway.plans.load import Loaded
    from headway.report.text.live import Watcher

PROMPT: Final = "prompt"
"""The agent that is one call of a model."""

EXAMPLES: Final = """\
examples:
  headway each 'printf "%s\\n" {}' ::: a b c
  headway each -j 4 --retries 2 'claude -p "Find races in {}" > {/.}.md' ::: src/*.py
  headway each -k --tag wc -l ::: *.txt              in the order of the inputs, each line named
  headway each 'convert {1} -resize {2} {1.}-{2}.png' ::: *.jpg ::: 100 200
  headway each 'cp {1} {2}' ::: a b :::+ x y         linked, not combined
  find . -name '*.log' | headway each gzip           inputs from a pipe
  headway each --resume 'work {}' :::: items.txt     only what is not done yet
  headway each --agent prompt --model M 'Classify: {text}' --rows tickets.jsonl --out labels.jsonl
            a call for each row; --sample 50 does 50 first and forecasts the others
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
    if parsed.rows:
        raise UsageError("--rows needs a prompt", hint="headway each --agent prompt ... --rows F")
    source = _source(parsed, words[1:] if words[:1] == ["--"] else words)
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
    from headway.cli.run import begin, budget_of, environment_of
    from headway.plans.load import plan_from

    words = _with_later_options(parsed, words)
    template, named = parse(words)
    prompt = " ".join(template)
    if not prompt.strip():
        raise UsageError("there is no prompt", hint="headway each --agent prompt 'Classify: {}'")
    items: object
    if parsed.rows:
        prompt = _row_prompt(prompt, parsed)
        items = {"rows": parsed.rows} | ({"key": parsed.key} if parsed.key else {})
        if named or parsed.arg_file:
            raise UsageError("--rows are the inputs", hint=f"leave {named[0][1]} out")
    else:
        prompt, items = _input_prompt(prompt), _inputs(parsed, named)
    task: dict[str, object] = {"each": items, "prompt": prompt}
    if parsed.agent != PROMPT:
        task |= {"agent": parsed.agent, "workspace": "on" if parsed.workspace else "off"}
    for key, value in (("timeout", parsed.timeout), ("stuck", parsed.stuck),
                       ("model", parsed.model), ("verify", parsed.verify),
                       ("max_tokens", parsed.max_tokens), ("schema", parsed.schema),
                       ("permissions", parsed.permissions)):  # fmt: skip
        task |= {key: value} if value else {}
    text = json.dumps({"headway": 1, "name": "each", "tasks": {"each": task}}, indent=1)
    path = Path.cwd() / "each.json"
    loaded = plan_from(text, Path.cwd(), path.name, bool(parsed.rows))
    parsed.strategy, parsed.outside, parsed.is_foreign = "", bool(parsed.rows), False
    parsed.yes, parsed.quiet = parsed.yes or not parsed.rows, False
    parsed.out = _outlet(parsed) if parsed.rows else ""
    if parsed.agent == PROMPT:
        parsed.retries = parsed.retries or None
    parsed.observe, parsed.learn, parsed.forecast = "warn", False, False
    jobs = _jobs(parsed.jobs) if parsed.jobs else None
    parsed.jobs = None if jobs is None or jobs == inf else int(jobs)
    budget = budget_of(parsed.budget)
    with environment_of(parsed) as environment:
        if parsed.rows and parsed.sample:
            return _sampled(loaded, path, parsed, environment, budget)
        return begin(loaded, path, parsed, environment, budget)


def _with_later_options(parsed: argparse.Namespace, words: list[str]) -> list[str]:
    """The words of a prompt and its inputs, without options that follow the prompt: unlike a
    command, a prompt has none of its own."""
    first = next((n for n, word in enumerate(words) if word in SEPARATORS), len(words))
    later = next((n for n, word in enumerate(words[:first]) if n and word.startswith("-")), first)
    _parser().parse_args(words[later:first], parsed)
    more = parsed.words[1:] if parsed.words[:1] == ["--"] else parsed.words
    return [*words[:later], *more, *words[first:]]


def _row_prompt(prompt: str, parsed: argparse.Namespace) -> str:
    """The template of a plan that a prompt with `{column}` is; braces of JSON stay as they are."""
    from headway.plans.document import UnusableError, read_text
    from headway.plans.load import LINES_BYTES_MAX, rows_of

    try:
        text = read_text(parsed.rows, LINES_BYTES_MAX)
        columns = rows_of(text, parsed.rows, parsed.key).columns
    except UnusableError as fault:
        raise UsageError(f"{parsed.rows} {fault}") from None

    def hole(found: re.Match[str]) -> str:
        name = found[1].strip()
        if not name:
            return "{{ item }}"
        if name in columns:
            return f"{{{{ {Ref(('item', name))} }}}}"
        if re.fullmatch(r"[\w .-]+", name):
            raise UsageError(
                f"not every row of {parsed.rows} has a column `{name}`",
                hint=did_you_mean(name, columns) if columns else "{} is the whole line",
            )
        return found[0]

    filled = re.sub(r"\{([^{}\n]*)\}", hole, prompt)
    return filled if filled != prompt else f"{prompt} {{{{ item }}}}"


def _outlet(parsed: argparse.Namespace) -> str:
    """Where rows are written to; a file that is there is left alone."""
    if parsed.out in ("", "-"):
        return "-"
    if os.path.exists(parsed.out):
        raise UsageError(
            f"{parsed.out} is there already",
            hint="`headway resume` goes on with the run that writes it; else name another file",
        )
    path: str = parsed.out
    return os.path.abspath(path)


def _input_prompt(prompt: str) -> str:
    if (found := re.search(r"\{(?!\})[^ {}]*\}", prompt)) is not None:
        raise UsageError(
            f"`{found[0]}` cannot be used in a prompt for an agent",
            hint="use {}, or --rows FILE for rows with columns",
        )
    return (prompt if "{}" in prompt else f"{prompt} {{}}").replace("{}", "{{ item }}")


def _inputs(parsed: argparse.Namespace, named: Sequence[NamedSource]) -> list[str]:
    sources = [_file_values(name, parsed) for name in parsed.arg_file or ()]
    sources += [tuple(one) if kind == "values" else _file_values(one[0], parsed)
                for kind, one, _ in named]  # fmt: skip
    if len(sources) > 1:
        raise UsageError("a prompt for an agent takes inputs of one source", hint="write a plan")
    return list(sources[0] if sources else _file_values("-", parsed))


def _sampled(
    loaded: Loaded, path: Path, parsed: argparse.Namespace, environment: Mapping[str, str],
    budget: Budget | None,
) -> int:  # fmt: skip
    """Perform a sample of the rows, forecast the others, ask, go on with them in the same run."""
    from headway.cli import run as plans
    from headway.journal.journal import Journal
    from headway.journal.reader import JournalReader
    from headway.plans.expand import sample_of, with_rows
    from headway.report.text.forecast import foretold
    from headway.run.forecasts import foreseen_rest
    from headway.run.plan_run import ready_run

    chosen = sample_of(loaded.expanded, parsed.sample)
    rest = loaded.expanded.count - len(chosen)
    part = loaded.with_expanded(with_rows(loaded.expanded, chosen))
    run, source, journal = plans.opened_run(part, path, parsed, environment, budget)
    code = plans.perform(run, source, journal, parsed)
    if not rest or code not in (0, 1):
        return code
    with JournalReader(journal.folder) as reader:
        found = foreseen_rest(loaded, source, chosen, environment, reader)
    print(f"{len(chosen):,} rows are done. The other {rest:,} rows:", file=sys.stderr)
    print(*(f"  {line}" for line in foretold(found)), sep="\n", file=sys.stderr)
    if not (parsed.yes or plans.is_confirmed("Go on?")):
        print(f"`headway resume {journal.header.run}` does the rest", file=sys.stderr)
        return code
    journal = Journal.open(journal.folder)
    run = ready_run(loaded, source, environment, plans.deadline_of(parsed))
    return plans.perform(run, source, journal, parsed)


def perform(
    source: EachSource, journal: Journal, show: Show, waits_until_s: float | None = None
) -> int:
    from headway.cli.running import conduct, meter_of
    from headway.engine.state import Rules
    from headway.plans.graph import Graph, TaskGroup
    from headway.report.text.notices import notices
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
    with notices(journal.folder):
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
    add("--retries", type=int, default=0, metavar="N", help="try a failed command again")
    _add_agent(add)
    add("--timeout", metavar="TIME", help="end a command after 90s, 10m ... of its own time")
    add("--stuck", metavar="TIME", help="end a command that is idle for this long")
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


def _add_agent(add: Callable[..., object]) -> None:
    """Options of a prompt for each input or row."""
    add("--agent", default="", metavar="NAME",
        help="COMMAND is a prompt for claude, codex ..., or for a model alone: prompt")  # fmt: skip
    add("--workspace", action=argparse.BooleanOptionalAction, default=True,
        help="with --agent: each works on its own view of the folder (default)")  # fmt: skip
    add("--model", default="", metavar="M", help="with --agent: the model that it asks")
    add("--verify", default="", metavar="CMD", help="with --agent: a command that must pass")
    add("--permissions", default="", choices=("edit", "all"),
        help="with --agent: what it may do beyond your own settings of it")  # fmt: skip
    add("--rows", default="", metavar="FILE",
        help="with --agent: a prompt for each row of a CSV, TSV or JSON Lines file, or of a list; "
        "{column} is a value of the row")  # fmt: skip
    add("--key", default="", metavar="COLUMN", help="with --rows: the column that names a row")
    add("--out", default="", metavar="FILE",
        help="with --rows: the rows with their results, in order, as .jsonl or .csv "
        "(default: JSON Lines on stdout)")  # fmt: skip
    add("--column", default="output", metavar="NAME", help="with --rows: the column of results")
    add("--sample", type=int, default=0, metavar="N",
        help="with --rows: do N rows, forecast the others, and ask before going on")  # fmt: skip
    add("--max-tokens", default="", metavar="N", help="with --agent: the longest answer")
    add("--schema", default="", metavar="FILE",
        help="with --agent: a JSON Schema that answers must meet")  # fmt: skip
    add("--budget", metavar="B", help="with --agent: the most to spend: '$6', or tokens: 5M")
    add("--sim", nargs="?", const="", metavar="SCRIPT",
        help="with --agent: use the simulated provider")  # fmt: skip
    add("--yes", action="store_true", help="do not ask, whatever it may cost")


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
