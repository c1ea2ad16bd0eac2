"""The `config` verb: what is set and from where, and the grammar of plans for editors."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Final

from headway.cli.main import add_subcommand

EXAMPLES: Final = """\
examples:
  headway config                          every value, and where it comes from
  headway config path                     the file
  headway config schema > plan.schema.json
  # yaml-language-server: $schema=plan.schema.json      as the first line of a plan

The file is TOML, all keys optional:
  ask_above_usd = 5          # ask before a run without a budget that may cost more
  strategy = "adaptive"      # or "fixed:8", "waves:4", "all-at-once"
  wait = "2h"                # for an empty usage window: "no", "forever" or a time
  keep_results = true        # false: journals keep that there was a result, not the result
  foreign_agents = "claude"  # agents that plans by agents may use; none otherwise
  foreign_works = "run"      # what such plans may execute: run, python; nothing otherwise
  [agents.hermes]            # a program that plans may name: `agent: hermes`
  command = "hermes -p @{prompt_file} --model {model}"
  [mcp.git]                  # a server that `agent: tools(mcp:git)` may use
  command = ["git-mcp", "--stdio"]
"""


def register(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser],
) -> Callable[[argparse.Namespace], int]:
    """Add the commands of `headway config`; without one, everything is shown."""
    about = "every value, and where it comes from"
    show = add_subcommand(subparsers, "show", about, EXAMPLES, _show)
    show.add_argument("--json", action="store_true", help="for a program")
    add_subcommand(subparsers, "path", "where the file is, or would be", EXAMPLES, _path)
    add_subcommand(subparsers, "schema", "the JSON Schema of plans", EXAMPLES, _schema)
    return _show


def _show(parsed: argparse.Namespace) -> int:
    from headway.report.text.doctor import settings

    found = settings(os.environ)
    if parsed.json:
        from headway.cli.status import print_json

        keys = ("key", "value", "source")
        return print_json([dict(zip(keys, row, strict=True)) for row in found])
    widest = max(len(key) for key, _, _ in found)
    longest = max(len(str(value)) for _, value, _ in found)
    for key, value, source in found:
        print(f"{key.ljust(widest)}  {str(value).ljust(longest)}  {source}")
    return 0


def _path(parsed: argparse.Namespace) -> int:
    del parsed
    from headway.config import configuration_path

    print(configuration_path(os.environ))
    return 0


def _schema(parsed: argparse.Namespace) -> int:
    del parsed
    import json

    from headway.plans.grammar import json_schema

    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))
    return 0
