"""Lets `python -m headway` do what the `headway` command does."""

from __future__ import annotations

import sys

from headway.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
