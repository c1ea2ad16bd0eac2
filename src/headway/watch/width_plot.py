"""Time against width on a terminal: a bar for each width, the bound, the sweet spot."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Final

from headway.core.foresight.situation import waiting_microusd
from headway.core.foresight.width import WidthCurve, WidthPoint
from headway.watch.screen import Glyphs
from headway.watch.words import cents, duration, usd

ROOM: Final = 36
"""Columns beside the bars, for numbers and words."""

BAR_LEAST: Final = 10
BAR_MOST: Final = 60


def plot_lines(curve: WidthCurve, columns: int, glyphs: Glyphs) -> Iterator[str]:
    """A pool of each width; a bar is as long as it takes, and the bound is marked in it."""
    ends = [point.time_s for point in curve.points if point.time_s < inf]
    longest = max(ends, default=1.0)
    cells = max(BAR_LEAST, min(BAR_MOST, columns - ROOM))
    yield (
        f"A pool of so many at once, unpaced: time (| is the bound, {duration(curve.bound_s)}) and "
        f"cost with time at {usd(curve.hour_microusd)} an hour:"
    )
    for point in curve.points:
        bar = _bar(curve, point, longest, cells, glyphs)
        yield f"{point.width:4}  {bar}  {_said(curve, point)}"


def _bar(curve: WidthCurve, point: WidthPoint, longest: float, cells: int, glyphs: Glyphs) -> str:
    filled = cells if point.time_s == inf else round(cells * point.time_s / longest)
    mark = min(cells - 1, round(cells * curve.bound_s / longest))
    bar = [glyphs.busy if place < filled else " " for place in range(cells)]
    bar[mark] = "|"
    return "".join(bar)


def _said(curve: WidthCurve, point: WidthPoint) -> str:
    value = point.microusd + waiting_microusd(curve.hour_microusd, point.time_s)
    worth = "" if value == inf else f" {cents(value):>8}"
    spot = "  <- sweet spot" if point.width == curve.sweet else ""
    return f"{duration(point.time_s):>12}{worth}{spot}"
