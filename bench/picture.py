"""Draws the README's picture: what `headway sim demo` prints, as an SVG.

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
    """The demo's output in a terminal of 100 columns."""
    said = StringIO()
    os.environ.update({"FORCE_COLOR": "1", "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"})
    with contextlib.redirect_stdout(said):
        main(["sim", "demo"])
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    console.print(Text.from_ansi(said.getvalue()))
    drawn = console.export_svg(title="headway sim demo", unique_id="headway")
    # Rich names a font on a server; whoever opens the picture should ask nobody for it.
    return re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)


if __name__ == "__main__":
    TARGET.write_text(draw(), encoding="utf-8")
    print(f"wrote {TARGET.name}")
