"""The one boundary of the command line: arguments in, exit code out, every error as text.

A verb's module is imported only when that verb is asked for, so `--help` stays instant. Such a
module exposes `register(subparsers)`, which adds the verb's own commands; each of them sets
`run`, a function from the parsed arguments to an exit code.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, NoReturn

from headway import __version__
from headway.errors import HeadwayError, InternalError, UsageError, did_you_mean

EXIT_OK: Final = 0
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130
EXIT_BROKEN_PIPE: Final = 141

DEBUG_VARIABLE: Final = "HEADWAY_DEBUG"

EXAMPLES: Final = """\
examples:
  headway sim demo          many agents on one small account, in virtual time
  headway sim --help        everything that can be simulated
  headway limits            your accounts: limits, use, callers, budget

exit codes: 0 done, 1 some tasks failed, 2 usage, 3 plan refused, 4 budget reached,
            69 no broker, 70 a bug, 130 interrupted
"""


@dataclass(frozen=True, slots=True)
class Verb:
    """A first word after `headway`, and the module that knows the rest."""

    name: str
    module: str
    summary: str
    stands_alone: bool = False
    """Whether it means something without a command; `register` returns what."""


VERBS: Final = (
    Verb(
        "sim", "headway.cli.sim", "run a workload against a simulated provider, without a network"
    ),
    Verb("limits", "headway.cli.limits", "what each account allows, uses and may spend", True),
)


class Parser(argparse.ArgumentParser):
    """Argparse, but mistakes are raised as `UsageError` instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        """Turn argparse's own complaint into ours, with the place to look."""
        raise UsageError(message, hint=f"see `{self.prog} --help`")

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
    debug = os.environ.get(DEBUG_VARIABLE) == "1"
    try:
        code = _run(arguments)
        # What is still buffered meets a closed pipe here, inside the boundary.
        sys.stdout.flush()
    except HeadwayError as error:
        return _tell(error, debug)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _discard_stdout()
        return EXIT_BROKEN_PIPE
    except Exception as error:
        # The boundary: whatever else comes up is a bug of ours and is shown as one.
        return _tell(_as_bug(error, arguments), debug)
    return code


def _run(arguments: list[str]) -> int:
    parser = _parser(arguments)
    try:
        parsed = parser.parse_args(arguments)
    except SystemExit:
        # Only `--help` and `--version` end this way: mistakes are raised as `UsageError`.
        return EXIT_OK
    run: Callable[[argparse.Namespace], int] | None = getattr(parsed, "run", None)
    if run is None:
        parser.print_help(sys.stderr)
        return EXIT_USAGE
    return run(parsed)


def _parser(arguments: list[str]) -> Parser:
    """All verbs by name; only the one that is asked for with its commands."""
    parser = Parser(
        prog="headway",
        description="Run many agents on one account as fast as its limits allow.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"headway {__version__}")
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", dest="verb")
    asked = next((word for word in arguments if not word.startswith("-")), None)
    for verb in VERBS:
        verb_parser = verbs.add_parser(verb.name, help=verb.summary, description=verb.summary)
        if verb.name == asked:
            commands = verb_parser.add_subparsers(
                title="commands", metavar="COMMAND", dest="command", required=not verb.stands_alone
            )
            module = import_module(verb.module)
            alone = module.register(commands)
            verb_parser.epilog = getattr(module, "EXAMPLES", None)
            verb_parser.formatter_class = argparse.RawDescriptionHelpFormatter
            if verb.stands_alone:
                verb_parser.add_argument("--json", action="store_true", help="for a program")
                verb_parser.set_defaults(run=alone)
    return parser


def _tell(error: HeadwayError, debug: bool) -> int:
    """Results go to stdout, so errors never do."""
    if debug:
        import traceback

        traceback.print_exception(error, file=sys.stderr)
    print(error.render(), file=sys.stderr)
    return error.exit_code


def _as_bug(error: Exception, arguments: list[str]) -> InternalError:
    import shlex

    again = shlex.join(["headway", *arguments])
    bug = InternalError(
        f"{type(error).__name__}: {error}",
        hint=f"this is a bug in headway: report it with what `{DEBUG_VARIABLE}=1 {again}` prints",
    )
    bug.__cause__ = error
    return bug


def _discard_stdout() -> None:
    """Keep the interpreter from flushing into the closed pipe again when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
