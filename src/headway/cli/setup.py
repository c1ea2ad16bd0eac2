"""The verbs about an installation: `doctor`, `config`, `completion`, `skill` and `mcp`."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Final

from headway.cli import main as cli
from headway.cli.main import Body, add_command, add_commands, add_json, print_json, show
from headway.errors import BadValueError, UsageError

DOCTOR: Final = """\
examples:
  headway doctor                  everything that runs depend on
  headway doctor --salvage RUN    save what can be read of a spoilt journal; the old file is kept
  headway doctor --prune 30d      remove runs that began longer ago and that no process has

Exits with 1 if something has to be mended before runs can be trusted. Keys are never shown.
"""

CONFIG: Final = """\
examples:
  headway config                          every value, and where it comes from
  headway config path                     the file
  headway config schema > plan.schema.json
  # yaml-language-server: $schema=plan.schema.json      as the first line of a plan

The file is TOML, all keys optional:
  ask_above_usd = 5          # ask before a run without a budget that may cost more
  strategy = "adaptive"      # or "fixed:8", "waves:4", "all-at-once"
  wait = "2h"                # for an empty usage window: "no", "forever" or a time; else a day
  keep_results = true        # false: journals keep that there was a result, not the result
  foreign_agents = "claude"  # agents that plans by agents may use; none otherwise
  foreign_works = "run"      # what such plans may execute: run, python; nothing otherwise
  [agents.hermes]            # a program that plans may name: `agent: hermes`
  command = "hermes -p @{prompt_file} --model {model}"
  [mcp.git]                  # a server that `agent: tools(mcp:git)` may use
  command = ["git-mcp", "--stdio"]
"""

COMPLETION: Final = """\
examples:
  headway completion bash > ~/.local/share/bash-completion/completions/headway
  headway completion zsh > "${fpath[1]}/_headway"
  headway completion fish > ~/.config/fish/completions/headway.fish
"""
SHELLS: Final = ("bash", "zsh", "fish")

SKILL: Final = """\
examples:
  headway skill install              for this project: .claude/skills and .agents/skills
  headway skill install --user       for all of your projects
  headway skill install --to DIR     into another folder of skills
  headway skill install --print      only show it

A file that you have changed is left as it is, except with --force.
"""

MCP: Final = """\
examples:
  claude mcp add headway -- headway mcp     Claude Code; the same with codex; see docs/mcp.md
  headway mcp --budget '$2'                 no run is given more
  headway mcp --sim script.yaml             runs on the simulated provider, free of charge

Speaks the protocol on stdin and stdout until stdin ends; runs that were submitted go on.
Tools: check_plan, submit_plan, run_status, run_results, cancel_run, quota.
"""


def doctor(parser: argparse.ArgumentParser) -> Body:
    parser.epilog = DOCTOR
    add_json(parser)
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--salvage", metavar="RUN", help="save what a spoilt journal still holds")
    instead.add_argument("--prune", metavar="AGE", help="remove runs older than 30d, 12h ...")
    return _doctor


def _doctor(parsed: argparse.Namespace) -> int:
    if parsed.salvage is not None:
        return _salvage(parsed)
    if parsed.prune is not None:
        return _prune(parsed)
    from headway.base.codec import as_dict
    from headway.report.text.check import draw_findings
    from headway.run.doctor import check_up

    findings = check_up(os.environ)
    show(
        parsed, lambda: [as_dict(finding) for finding in findings],
        lambda console: draw_findings(console, findings),
    )  # fmt: skip
    return 1 if any(finding.judgement == "fail" for finding in findings) else 0


def _salvage(parsed: argparse.Namespace) -> int:
    from headway.base.codec import as_dict
    from headway.journal.folder import find_run
    from headway.journal.salvage import salvage
    from headway.report.text.run_view import state_folder

    place = find_run(state_folder(), parsed.salvage)
    saved = salvage(place.folder)
    if parsed.json:
        return print_json({"run": place.id, **as_dict(saved)})
    print(
        f"{place.id}: saved {saved.rows} tasks, {saved.events} events, {saved.bodies} results; "
        f"{saved.missing_events} events are lost. Tasks without a result run again: "
        f"{saved.lost_results} that had finished. The old file is {saved.kept_as}"
    )
    print(f"hint: headway resume {place.id}", file=sys.stderr)
    return 0


def _prune(parsed: argparse.Namespace) -> int:
    from headway.journal.folder import prune
    from headway.report.text.run_view import state_folder
    from headway.run.launch import span_s
    from headway.workspaces.snapshot import prune_caches

    before_s = time.time() - span_s(parsed.prune)
    gone = prune(state_folder(), before_s)
    prune_caches(state_folder(), before_s)  # Copies of folders, which later runs make again.
    if parsed.json:
        return print_json({"removed": [place.id for place in gone]})
    for place in gone:
        print(place.id)
    print(f"{len(gone)} runs removed", file=sys.stderr)
    return 0


def config(parser: argparse.ArgumentParser) -> Body:
    parser.epilog = CONFIG
    commands = add_commands(parser, _show_config)
    about = "every value, and where it comes from"
    add_json(add_command(commands, "show", about, CONFIG, _show_config))
    add_command(commands, "path", "where the file is, or would be", CONFIG, _show_path)
    add_command(commands, "schema", "the JSON Schema of plans", CONFIG, _show_schema)
    return _show_config


def _show_config(parsed: argparse.Namespace) -> int:
    from headway.config import settings

    found = settings(os.environ)
    if parsed.json:
        keys = ("key", "value", "source")
        return print_json([dict(zip(keys, row, strict=True)) for row in found])
    widest = max(len(key) for key, _, _ in found)
    longest = max(len(str(value)) for _, value, _ in found)
    for key, value, source in found:
        print(f"{key.ljust(widest)}  {str(value).ljust(longest)}  {source}")
    return 0


def _show_path(_: argparse.Namespace) -> int:
    from headway.config import configuration_path

    print(configuration_path(os.environ))
    return 0


def _show_schema(_: argparse.Namespace) -> int:
    from headway.plans.grammar import json_schema

    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))
    return 0


def completion(parser: argparse.ArgumentParser) -> Body:
    parser.epilog = COMPLETION
    parser.add_argument("shell", metavar="SHELL", nargs="?", choices=SHELLS, help=", ".join(SHELLS))
    parser.add_argument("--runs", action="store_true", help="names of runs, for the scripts")
    return _completion


def _completion(parsed: argparse.Namespace) -> int:
    if parsed.runs:
        from headway.journal.folder import list_runs
        from headway.report.text.run_view import state_folder

        print("last", *(place.id for place in list_runs(state_folder(), 100)), sep="\n")
        return 0
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
    parser = cli.build_parser()
    verbs = next(action for action in parser._actions if action.dest == "verb")
    choices = dict(verbs.choices or {})
    for verb in cli.VERBS:
        module = cli.module_of(verb)
        if not hasattr(module, "main"):
            cli.fill_parser(choices[verb.name], verb, module)
        elif hasattr(module, "options"):
            # A verb that parses its own words may still say which options it has.
            module.options(choices[verb.name])
    return parser


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for sub in action.choices.values():
                yield from _actions(sub)
        else:
            yield action


def skill(parser: argparse.ArgumentParser) -> Body:
    parser.epilog = SKILL
    about = "put a SKILL.md where agents look for it"
    install = add_command(add_commands(parser), "install", about, SKILL, _skill)
    add = install.add_argument
    add("--user", action="store_true", help="for all projects of yours")
    add("--to", metavar="DIR", default="", help="into another folder of skills")
    add("--force", action="store_true", help="also if it was changed")
    add("--print", action="store_true", dest="shows", help="only print it")
    add_json(install)
    return _skill


def _skill(parsed: argparse.Namespace) -> int:
    from headway.mcp.skill import install, skill_paths, skill_text

    if parsed.shows:
        print(skill_text(), end="")
        return 0
    paths = skill_paths(parsed.to, parsed.user, os.environ)
    placed = [{"path": path, "done": install(path, parsed.force)} for path in paths]
    if parsed.json:
        return print_json(placed)
    for one in placed:
        print(f"{one['path']}  {one['done']}")
    return 0


def mcp(parser: argparse.ArgumentParser) -> Body:
    parser.epilog = MCP
    add = parser.add_argument
    add("--folder", default=".", metavar="DIR",
        help="where plans may work: default the current folder")  # fmt: skip
    add("--budget", metavar="B", help="the most for one run: '$2', or tokens: 500k")
    add("--every-run", action="store_true", help="also show runs of other folders")
    add("--sim", nargs="?", const="", metavar="SCRIPT",
        help="runs use the simulated provider, by a script")  # fmt: skip
    return _mcp


def _mcp(parsed: argparse.Namespace) -> int:
    if find_spec("mcp") is None or find_spec("mcp_types") is None:
        raise UsageError(
            "`headway mcp` needs the package `mcp`, of 2.3 or newer",
            hint="pip install 'headway[mcp]'",
        )
    from headway.cli.run import budget_of
    from headway.mcp.service import McpSettings

    root = os.path.realpath(parsed.folder)
    if not os.path.isdir(root):
        raise BadValueError(f"{parsed.folder} is not a folder", hint="--folder .")
    settings = McpSettings(
        root, parsed.every_run, os.path.abspath(parsed.sim) if parsed.sim else parsed.sim,
        budget_of(parsed.budget),
    )  # fmt: skip
    from headway.mcp.server import serve

    serve(settings)
    return 0
