"""The one boundary of the command line: arguments in, exit code out, every error as text.

A verb's module is imported only when that verb is asked for, so `--help` stays instant. The module
has a function that adds the verb's arguments to a parser and returns what performs it: `arguments`,
or the one that `VERBS` names. `main(arguments)` instead takes all words after the verb as they are.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from itertools import takewhile
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, TypeAlias

from headway import __version__
from headway.errors import (
    HeadwayError,
    InternalError,
    StateFileError,
    UsageError,
    did_you_mean,
    nearest,
)
from headway.interrupts import EXIT_INTERRUPTED, last_words, listening
from headway.report.text.terminal import guard_terminals

if TYPE_CHECKING:
    from rich.console import Console

EXIT_OK: Final = 0
EXIT_BROKEN_PIPE: Final = 141

ENDS: Final = ("--", ":::", ":::+", "::::", "::::+")
"""Words after these are no options of ours."""

DEBUG_VARIABLE: Final = "HEADWAY_DEBUG"

FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""A disk, or whatever is behind stdout, takes nothing more: not a bug."""

EXAMPLES: Final = """\
examples:
  headway each 'claude -p "Find races in {}"' ::: src/*.py
  headway run plan.yaml     perform a plan, at the width that the account allows
  headway plan GOAL         let a model write a plan; checked, not run
  headway                   your runs, and which can be resumed
  headway status            the last run: how far, what it took, what failed
  headway limits            your accounts: limits, use, callers, budget
  headway gateway -- claude pace an agent as it is
  headway sim demo          many agents on one small account, in virtual time

exit codes: 0 done, 1 some tasks failed, 2 usage, 3 plan refused, 4 budget reached,
            69 no broker, 70 a bug, 75 usage window empty, 130 interrupted
"""


class Verb(NamedTuple):
    name: str
    module: str
    """With `:function` where several verbs share one."""
    summary: str


VERBS: Final = (
    Verb("each", "each", "run a command for each of many inputs"),
    Verb("run", "run", "perform a plan"),
    Verb("plan", "plan", "let a model write a plan for a goal; checked, not run"),
    Verb("check", "check", "what a plan would do; performs nothing"),
    Verb("advise", "advise", "one agent or several, now or later, and why"),
    Verb("explore", "explore", "what if B runs before A completes? tries every pair"),
    Verb("resume", "run:resume", "go on with a run, or let a paused one go on"),
    Verb("stop", "runs:stop", "let a run end early; it can be resumed"),
    Verb("pause", "runs:pause", "let a run start nothing more for now"),
    Verb("status", "runs:status", "how far a run is, what it took, what failed"),
    Verb("why", "runs:why", "why a task has not started, or failed, or when it started"),
    Verb("timeline", "runs:timeline", "where tasks waited and worked, over time"),
    Verb("results", "runs:results", "what the tasks gave, in declared order"),
    Verb("logs", "runs:logs", "what happened, line by line"),
    Verb("report", "runs:report", "what a run took, where its time went, what bound it"),
    Verb("ui", "ui", "your runs and accounts in a browser, live"),
    Verb("limits", "limits", "what each account allows, uses and may spend"),
    Verb("gateway", "gateway", "pace any agent or SDK: a local endpoint"),
    Verb("sim", "sim", "run a workload against a simulated provider, without a network"),
    Verb("mcp", "setup:mcp", "let an agent hand over its fan-out: an MCP server on stdio"),
    Verb("skill", "setup:skill", "teach agents with a shell when and how to use headway"),
    Verb("doctor", "setup:doctor", "whether this machine is fit, and what to mend"),
    Verb("config", "setup:config", "the configuration in force, and the plan's schema"),
    Verb("completion", "setup:completion", "complete commands in bash, zsh or fish"),
)

Body = Callable[[argparse.Namespace], int]
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


class HelpText(argparse.RawDescriptionHelpFormatter):
    """Help as wide as the terminal. Argparse would load `shutil`, which takes 10 ms."""

    def __init__(self, prog: str, **options: Any) -> None:
        columns = os.environ.get("COLUMNS", "")
        width = int(columns) if columns.isdecimal() else 0
        if not width:
            try:
                width = os.get_terminal_size(sys.stdout.fileno()).columns
            except (AttributeError, OSError, ValueError):
                width = 0
        super().__init__(prog, width=(width or 80) - 2, **options)


class Parser(argparse.ArgumentParser):
    """Argparse, but mistakes are raised as `UsageError` instead of ending the process."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse unknown arguments here, where the options that they may mean are known."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        hint = f"see `{self.prog} --help`"
        unknown = message.removeprefix("unrecognized arguments: ").split()
        if len(unknown) and message.startswith("unrecognized") and unknown[0].startswith("-"):
            options = [name for action in self._actions for name in action.option_strings]
            near = nearest(unknown[0].partition("=")[0], options)
            hint = f"did you mean `{near}`?" if near else hint
        raise UsageError(message, hint=hint)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Name the nearest choice: argparse of Python 3.11 to 3.13 only lists them all."""
        if action.choices is not None and value not in action.choices:
            noun = action.metavar if isinstance(action.metavar, str) else action.dest
            choices = [str(choice) for choice in action.choices]
            raise UsageError(
                f"`{self.prog}` has no {noun.lower()} `{value}`",
                hint=did_you_mean(str(value), choices),
            )


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; nothing is raised to the caller."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    is_json = "--json" in list(takewhile(lambda word: word not in ENDS, arguments))
    debug = os.environ.get(DEBUG_VARIABLE) == "1"
    _open_streams()
    guard_terminals()
    try:
        with listening():
            code = _run(arguments)
        # What is still buffered meets a closed pipe here, inside the boundary.
        sys.stdout.flush()
    except HeadwayError as error:
        return _tell(error, debug, is_json)
    except KeyboardInterrupt:
        _say(last_words())
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        return EXIT_BROKEN_PIPE
    except Exception as error:
        if isinstance(error, OSError) and error.errno in FULL:
            _discard_output()
            name = "the output" if error.filename is None else os.fsdecode(error.filename)
            words = f"{name} cannot be written: {error.strerror}"
            fault = StateFileError(words, hint="make room; what is finished is kept")
            return _tell(fault, debug, False)
        # The boundary: whatever else comes up is a bug of ours and is shown as one.
        import shlex

        again = f"{DEBUG_VARIABLE}=1 {shlex.join(['headway', *arguments])}"
        hint = f"this is a bug in headway: report it with what `{again}` prints"
        bug = InternalError(f"{type(error).__name__}: {error}", hint=hint)
        bug.__cause__ = error
        return _tell(bug, debug, is_json)
    return code


def _run(arguments: list[str]) -> int:
    try:
        os.getcwd()
    except FileNotFoundError:
        raise UsageError("the current folder is gone", hint="cd to another one") from None
    if arguments in ([], ["--json"]):
        from headway.cli.runs import show_runs

        return show_runs(is_json=bool(arguments))
    asked = next((word for word in arguments if not word.startswith("-")), "")
    verb = next((verb for verb in VERBS if verb.name == asked), None)
    module = None if verb is None else module_of(verb)
    if module is not None and hasattr(module, "main") and arguments[0] == asked:
        code: int = module.main(arguments[1:])
        return code
    parser = build_parser(verb, module)
    try:
        parsed = parser.parse_args(arguments)
    except SystemExit:
        # Only `--help` and `--version` end this way: mistakes are raised as `UsageError`.
        return EXIT_OK
    run: Body = parsed.run
    return run(parsed)


def build_parser(asked: Verb | None = None, module: ModuleType | None = None) -> Parser:
    """All verbs by name; only the one that is asked for with what it takes."""
    parser = Parser(
        prog="headway",
        description="Run many agents on one account as fast as its limits allow.",
        epilog=EXAMPLES,
        formatter_class=HelpText,
    )
    parser.add_argument("--json", action="store_true", help="your runs, or an error, for a program")
    parser.add_argument("--version", action="version", version=f"headway {__version__}")
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", dest="verb")
    for verb in VERBS:
        verb_parser = verbs.add_parser(verb.name, help=verb.summary, description=verb.summary)
        if verb is asked and module is not None and not hasattr(module, "main"):
            fill_parser(verb_parser, verb, module)
    return parser


def module_of(verb: Verb) -> ModuleType:
    return import_module(f"headway.cli.{verb.module.partition(':')[0]}")


def fill_parser(parser: argparse.ArgumentParser, verb: Verb, module: ModuleType) -> None:
    parser.epilog = getattr(module, "EXAMPLES", None)
    parser.formatter_class = HelpText
    add = getattr(module, verb.module.partition(":")[2] or "arguments")
    parser.set_defaults(run=add(parser))


def _tell(error: HeadwayError, debug: bool, is_json: bool) -> int:
    if debug:
        import traceback

        traceback.print_exception(error, file=sys.stderr)
    if is_json:
        import json

        from headway.report.text.words import finite

        every = [error, *getattr(error, "others", ())]
        with suppress(OSError):
            print(json.dumps({"errors": [finite(one.as_dict()) for one in every]}), flush=True)
    else:
        _say(f"{error.render()}\n")
    return error.exit_code


def _say(words: str) -> None:
    try:
        print(words, end="", file=sys.stderr, flush=True)
    except OSError:
        # The reader has left, or nothing can be written: the exit code still tells.
        _discard_output()


def _discard_output() -> None:
    """Keep the interpreter from flushing into what is closed or full again when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _open_streams() -> None:
    """With 0, 1 or 2 closed, a journal would get that number, and prints would go into it."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            try:
                os.fstat(number)
            except OSError:
                os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115


def add_json(parser: argparse._ActionsContainer, words: str = "for a program") -> None:
    parser.add_argument("--json", action="store_true", help=words)


def add_commands(parser: argparse.ArgumentParser, alone: Body | None = None) -> Commands:
    if alone is not None:
        add_json(parser)
    return parser.add_subparsers(
        title="commands", metavar="COMMAND", dest="command", required=alone is None
    )


def add_command(
    commands: Commands, name: str, summary: str, examples: str, run: Body, about: str = ""
) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name, help=summary, description=about or summary, epilog=examples, formatter_class=HelpText
    )
    parser.set_defaults(run=run)
    return parser


def print_json(shown: object) -> int:
    import json

    from headway.report.text.words import finite

    print(json.dumps(finite(shown), ensure_ascii=False, allow_nan=False))
    return 0


def show(
    parsed: argparse.Namespace, as_json: Callable[[], object], draw: Callable[[Console], None]
) -> int:
    if parsed.json:
        return print_json(as_json())
    from headway.report.text.words import console_for

    draw(console_for(sys.stdout))
    return 0
