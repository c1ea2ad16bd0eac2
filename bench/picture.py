"""Draws the README's picture: what `headway sim demo` prints, every third agent, as an SVG.

Run by `make picture`; the file is docs/demo.svg.
"""

from __future__ import annotations

import contextlib
import os
import re
from io import StringIO
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from headway.cli.main import main

TARGET: Final = Path(__file__).resolve().parent.parent / "docs" / "demo.svg"
COLUMNS: Final = 100


def draw() -> str:
    """The demo's output in a terminal of 100 columns; all agents take two screens."""
    said = StringIO()
    os.environ.update({"FORCE_COLOR": "1", "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"})
    with contextlib.redirect_stdout(said):
        main(["sim", "demo"])
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    lines = [line for line in said.getvalue().splitlines() if not _is_left_out(line)]
    console.print(Text.from_ansi("\n".join(lines)))
    drawn = console.export_svg(title="headway sim demo (every third agent)", unique_id="headway")
    # Rich names a font on a server; the picture is to be seen without a request.
    return re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)


def _is_left_out(line: str) -> bool:
    agent = re.match(r"agent (\d+)\b", Text.from_ansi(line).plain)
    return agent is not None and int(agent[1]) % 3 != 1


if __name__ == "__main__":
    TARGET.write_text(draw(), encoding="utf-8")
    print(f"wrote {TARGET.name}")
