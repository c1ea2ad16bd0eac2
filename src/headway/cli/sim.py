"""The `sim` verb: workloads against a simulated provider, in virtual time."""

from __future__ import annotations

import argparse

from headway.errors import UsageError


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands of `headway sim`."""
    demo = subparsers.add_parser("demo", help="many agents on one small account")
    demo.set_defaults(run=_demo)


def _demo(_parsed: argparse.Namespace) -> int:
    raise UsageError("this version of headway has nothing to simulate yet")
