"""The one place that knows what the output can show: width, colour, characters.

Nothing but text is written when it is not a terminal. `NO_COLOR` and `TERM=dumb` are kept by
rich, which is imported here and only when something is drawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Final, TextIO

from headway.watch.terminal import clean, drawable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

PLAIN_COLUMNS: Final = 100
"""A file or a pipe has no width; tables for it are made as wide as a wide screen."""

COLUMNS_MIN: Final = 40
"""On a narrower screen lines are as long as on one of this width, and the screen folds them."""


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The characters that are not letters."""

    here: str = "·"
    provider: str = "▒"
    busy: str = "█"
    done: str = "✓"
    failed: str = "✗"
    dash: str = "\N{EN DASH}"


ASCII: Final = Glyphs(".", "-", "#", "+", "x", "-")
"""For an output that cannot encode the others."""


def console_for(stream: TextIO) -> Console:
    """A console that interprets nothing in the text and is never too narrow to draw on."""
    from rich.console import Console

    class Plain(Console):
        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterator[Segment]:
            """On a terminal, nothing in the text is obeyed; what rich draws is."""
            for segment in super().render(renderable, options):
                is_text = self.is_terminal and not segment.control
                yield segment._replace(text=clean(segment.text)) if is_text else segment

        def on_broken_pipe(self) -> None:
            """Leave a reader that is gone to the boundary of the command line."""
            raise  # noqa: PLE0704 - called by rich while it handles the error

    console = Plain(
        file=drawable(stream), highlight=False, markup=False, emoji=False, soft_wrap=False
    )
    columns = console.width if console.is_terminal else PLAIN_COLUMNS
    console.width = max(COLUMNS_MIN, columns)
    return console


def glyphs_for(console: Console) -> Glyphs:
    """Every character, if the output can encode them."""
    every = Glyphs()
    try:
        "".join(astuple(every)).encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return every
