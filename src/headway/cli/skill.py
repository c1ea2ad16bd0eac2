"""The `skill` verb: tells agents with a shell when and how to use headway."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headway.cli.main import add_subcommand

if TYPE_CHECKING:
    pass

EXAMPLES: Final = """\
examples:
  headway skill install                   for this project: .claude/skills and .agents/skills
  headway skill install --user            for all of your projects
  headway skill install --to opencode     claude, codex, opencode, gemini, or a folder of skills
  headway skill install --print           only show it
  headway skill uninstall

A file that you have changed is left as it is, unless --force says otherwise.
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands of `headway skill`."""
    install = _command(subparsers, "install", "put a SKILL.md where agents look for it", _install)
    install.add_argument("--print", action="store_true", dest="shows", help="only print it")
    _command(subparsers, "uninstall", "take it away again", _uninstall)


def _command(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str, summary: str, run: Callable[[argparse.Namespace], int],
) -> argparse.ArgumentParser:  # fmt: skip
    parser = add_subcommand(subparsers, name, summary, EXAMPLES, run)
    parser.add_argument("--to", metavar="AGENT", action="append", default=[],
                        help="claude, codex, opencode, gemini, or a folder; default: the first "
                        "two, whose places all four know")  # fmt: skip
    scope = parser.add_mutually_exclusive_group()
    scope.add_argument("--user", action="store_true", help="for all projects of yours")
    scope.add_argument("--project", action="store_true", help="for this one: the default")
    parser.add_argument("--force", action="store_true", help="even if somebody has changed it")
    parser.add_argument("--json", action="store_true", help="for a program")
    return parser


def _install(parsed: argparse.Namespace) -> int:
    if parsed.shows:
        from headway.mcp.skill import skill_text

        print(skill_text(), end="")
        return 0
    from headway.mcp.skill import install

    return _each(parsed, install)


def _uninstall(parsed: argparse.Namespace) -> int:
    from headway.mcp.skill import uninstall

    return _each(parsed, uninstall)


def _each(parsed: argparse.Namespace, do: Callable[[str, bool], str]) -> int:
    from headway.mcp.skill import DEFAULT, skill_path

    paths = [skill_path(to, parsed.user, os.environ) for to in parsed.to or DEFAULT]
    placed = {path: do(path, parsed.force) for path in dict.fromkeys(paths)}
    if parsed.json:
        from headway.cli.status import print_json

        return print_json([{"path": path, "done": done} for path, done in placed.items()])
    for path, done in placed.items():
        print(f"{path}  {done}")
    return 0
