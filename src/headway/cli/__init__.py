"""The command line: one short function per verb, no logic."""

from headway.cli.main import main

__all__ = ["main"]
