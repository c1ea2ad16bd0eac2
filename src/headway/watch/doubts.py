"""Effects on the world as people are told of them: what may have happened, what asked no leave."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headway.core.engine.codec import EFFECTS
from headway.core.engine.effects import Doubt, Known
from headway.runtime.journal_reader import JournalReader
from headway.watch.words import one_line

LISTED_MAX: Final = 20
"""Effects in doubt that are named one by one: a crash leaves at most one for each channel."""
NAME_CELLS_MAX: Final = 60


def known_of(reader: JournalReader) -> Known:
    """What a run's journal says of its effects."""
    known = Known()
    for recorded in reader.events(kinds=EFFECTS):
        known.apply(recorded.key, recorded.event)
    return known


def doubt_lines(reader: JournalReader, known: Known) -> Iterator[str]:
    """A line for each effect that may have happened."""
    doubts = known.doubts()
    for doubt in doubts[:LISTED_MAX]:
        yield _line(reader, doubt)
    if len(doubts) > LISTED_MAX:
        yield f"in doubt: {len(doubts) - LISTED_MAX} more"


def done_words(known: Known) -> str:
    """`12 performed, 3 at once, outside the guarantee`; empty if there was none."""
    numbers = known.statistics()
    if not (numbers.done or numbers.in_doubt):
        return ""
    words = f"{numbers.done:,} performed"
    return f"{words}, {numbers.now} at once, outside the guarantee" if numbers.now else words


def _line(reader: JournalReader, doubt: Doubt) -> str:
    """`in doubt: mail of notify[3], key ab12...: it may have been sent; ...`."""
    row = reader.row(doubt.task)
    name = one_line(row.name if row is not None else doubt.task.hex(), NAME_CELLS_MAX)
    channel = one_line(doubt.channel, NAME_CELLS_MAX)
    again = "it is sent again with the same key"
    if doubt.is_now:
        again = "it is outside the guarantee, and sent again if its task runs again"
    return f"in doubt: {channel} of {name}, key {doubt.key}: it may have been sent; {again}"
