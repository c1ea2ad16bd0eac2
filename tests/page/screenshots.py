"""Writes the pictures of the page in docs/, from a run that is written here: nothing is drawn by
hand. `make page-screenshots`."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from headway.report.page.document import write_report
from tests.page.chromium import MISSING, PROGRAM, opened
from tests.page.scene import busy_run

DOCS = Path(__file__).parents[2] / "docs"
SIZES = (("desk", 1280, 860, "dark"), ("wide", 1680, 1000, "light"), ("phone", 390, 800, "dark"))


async def draw(one: Path) -> None:
    async with opened() as browser:
        for name, width, height, scheme in SIZES:
            await browser.open(f"file://{one}", width, height, scheme)
            await browser.picture(DOCS / f"page-{name}.png")
        await browser.open(f"file://{one}", 1280, 860)
        await browser.evaluate("document.querySelectorAll('.chips button')[1].click()")
        await browser.evaluate("document.querySelector('#graph').scrollIntoView()")
        await browser.evaluate("document.querySelector('.grid .row').click()")
        await browser.picture(DOCS / "page-task.png")


def main() -> int:
    if PROGRAM is None:
        print(MISSING, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        state, one = Path(folder) / "state", Path(folder) / "one.html"
        os.environ["HEADWAY_STATE_DIR"] = str(state)
        write_report([busy_run(state, 96, width=14)], str(one))
        asyncio.run(draw(one))
    return 0


if __name__ == "__main__":
    sys.exit(main())
