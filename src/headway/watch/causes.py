"""The answer to `why`, as a person reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headway.watch.cause import Cause
from headway.watch.terminal import clean
from headway.watch.words import one_line

if TYPE_CHECKING:
    from rich.console import Console


def draw_cause(console: Console, cause: Cause) -> None:
    """The state and why; below it what happened, and what can be done."""
    from rich.text import Text

    name = one_line(cause.task, 80)
    line = Text.assemble((name, "bold"), f" is {cause.state}: {clean(cause.because)}")
    console.print(line, soft_wrap=True)
    for told in cause.story:
        console.print(Text(f"  {told}", "dim"), soft_wrap=True)
    if cause.advice:
        console.print(f"hint: {cause.advice}", soft_wrap=True)
