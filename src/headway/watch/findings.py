"""What the doctor found, one line each, and under it what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from headway.runtime.checkup import Finding
from headway.watch.words import count

if TYPE_CHECKING:
    from rich.console import Console

STYLES: Final = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def draw_findings(console: Console, findings: Sequence[Finding]) -> None:
    """Print them, and how bad it is."""
    from rich.text import Text

    about = max(len(finding.about) for finding in findings)
    for finding in findings:
        mark = (finding.judgement.ljust(4), STYLES[finding.judgement])
        line = Text.assemble(mark, "  ", finding.about.ljust(about), "  ", finding.detail)
        console.print(line, soft_wrap=True)
        if finding.fix:
            indent = " " * (about + 8)
            console.print(Text(f"{indent}fix: {finding.fix}", "dim"), soft_wrap=True)
    failed = sum(finding.judgement == "fail" for finding in findings)
    warned = sum(finding.judgement == "warn" for finding in findings)
    if failed:
        console.print(f"\n{count(failed, 'thing')} to mend first.")
    elif warned:
        console.print(f"\nFit, with {count(warned, 'warning')}.")
    else:
        console.print("\nFit.")
