"""The `completion` verb: what a shell needs in order to complete commands, options and runs."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Final

EXAMPLES: Final = """\
examples:
  headway completion bash > ~/.local/share/bash-completion/completions/headway
  headway completion zsh > "${fpath[1]}/_headway"
  headway completion fish > ~/.config/fish/completions/headway.fish
"""

SHELLS: Final = ("bash", "zsh", "fish")


def arguments(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """What `headway completion` takes."""
    parser.add_argument("shell", metavar="SHELL", nargs="?", choices=SHELLS, help=", ".join(SHELLS))
    parser.add_argument("--runs", action="store_true", help="names of runs, for the scripts")
    return _completion


def _completion(parsed: argparse.Namespace) -> int:
    if parsed.runs:
        return _print_runs()
    from headway.errors import UsageError

    if parsed.shell is None:
        raise UsageError("`headway completion` needs a shell", hint="headway completion bash")
    try:
        import shtab
    except ImportError:
        raise UsageError("completion needs shtab", hint="pip install shtab") from None
    parser = whole_parser()
    for action in _actions(parser):
        if action.metavar == "RUN":
            vars(action)["complete"] = shtab.cmd("headway completion --runs")
        elif action.metavar in ("FILE", "PLAN", "DIR"):
            vars(action)["complete"] = shtab.FILE
    print(shtab.complete(parser, parsed.shell))
    return 0


def whole_parser() -> argparse.ArgumentParser:
    """Every verb with all that it takes."""
    from headway.cli.main import VERBS, build_parser, fill_parser

    parser = build_parser()
    verbs = next(action for action in parser._actions if action.dest == "verb")
    choices = verbs.choices or {}
    for verb in VERBS:
        module = import_module(verb.module.partition(":")[0])
        if not hasattr(module, "main"):
            fill_parser(dict(choices)[verb.name], verb, module)
        elif hasattr(module, "options"):
            # A verb that parses its own words may still say which options it has.
            module.options(dict(choices)[verb.name])
    return parser


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for sub in action.choices.values():
                yield from _actions(sub)
        else:
            yield action


def _print_runs() -> int:
    from headway.journal.folder import list_runs
    from headway.report.text.runs import state_folder

    print("last")
    for place in list_runs(state_folder(), 100):
        print(place.id)
    return 0
