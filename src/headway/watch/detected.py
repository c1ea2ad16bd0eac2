"""What the detector found, as people read it: what, where, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, TextIO

from headway.watch.words import count, one_line

if TYPE_CHECKING:
    from headway.core.declaring import Learned
    from headway.core.detect import Finding

SHOWN_MAX: Final = 10
"""Findings that are shown: whoever has more starts with these."""
LINE_CELLS_MAX: Final = 300


def print_findings(found: Sequence[Finding], stream: TextIO, hint: str = "") -> None:
    """All of them, in a few lines each."""
    for line in finding_lines(found, hint):
        print(line, file=stream)


def finding_lines(found: Sequence[Finding], hint: str = "") -> Iterator[str]:
    """The findings of a run; `hint` is where the rest of them can be seen."""
    for one in found[:SHOWN_MAX]:
        others = one.count - 1
        more = f" (and so do {count(others, 'more task')})" if others else ""
        yield one_line(f"warning[{one.kind}]: {one.words}{more}", LINE_CELLS_MAX)
        where = f"{one.where}  " if one.where else ""
        yield f"  {where}fix: {one_line(one.fix, LINE_CELLS_MAX)}"
    if len(found) > SHOWN_MAX:
        yield f"and {len(found) - SHOWN_MAX} more{hint and f': {hint}'}"


def learned_lines(learned: Sequence[Learned]) -> Iterator[str]:
    """Declarations to paste into a plan."""
    yield "# what the tasks of this run touched, to be pasted under their names"
    yield "tasks:"
    for one in learned:
        yield from one.lines()
