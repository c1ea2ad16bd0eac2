"""A verb of a verb: `headway config show`, `headway limits set`."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def add_subcommand(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    summary: str,
    examples: str,
    run: Callable[[argparse.Namespace], int],
) -> argparse.ArgumentParser:
    """With its help, which ends in examples, and what performs it."""
    parser = subparsers.add_parser(
        name,
        help=summary,
        description=summary,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    return parser
