"""A month's budget as a picture: what is left by day, and what will be; as SVG and on a terminal.

It computes text from an outlook and knows no clock, no file and no terminal. The SVG has its
colours for light and for dark pages in itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from headway.base.numbers import date_of, day_of
from headway.report.health import BudgetOutlook
from headway.report.text.accounts import amount, outlook_words, title
from headway.report.text.words import Glyphs

WIDTH: Final = 860
HEIGHT: Final = 440
LEFT: Final = 84
RIGHT: Final = 28
TOP: Final = 92
BOTTOM: Final = 58
TICKS: Final = 5
"""Lines across, the budget's own included."""

ROWS: Final = 12
CELLS: Final = 2
"""A day's cells on a terminal."""

STYLE: Final = """
    text { font: 13px system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #1f2328 }
    .over { paint-order: stroke; stroke: #ffffff; stroke-width: 4px; stroke-linejoin: round }
    .page { fill: #ffffff }
    .title { font-size: 17px; font-weight: 600 }
    .quiet { fill: #59636e }
    .grid { stroke: #d1d9e0; stroke-width: 1 }
    .axis { stroke: #59636e; stroke-width: 1 }
    .budget { stroke: #1a7f37; stroke-width: 1.5; stroke-dasharray: 2 4 }
    .budgetword { fill: #1a7f37; font-weight: 600 }
    .even { stroke: #59636e; stroke-width: 1; stroke-dasharray: 1 4; fill: none }
    .spent { stroke: #0969da; stroke-width: 2.5; fill: none; stroke-linejoin: round }
    .under { fill: #0969da; fill-opacity: 0.10 }
    .range { fill: #bc4c00; fill-opacity: 0.16 }
    .ahead { stroke: #bc4c00; stroke-width: 2; stroke-dasharray: 6 4; fill: none }
    .today { stroke: #1f2328; stroke-width: 1; stroke-dasharray: 3 3 }
    .dot { fill: #0969da; stroke: #ffffff; stroke-width: 2 }
    .out { fill: #cf222e }
    .outword { fill: #cf222e; font-weight: 600 }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3 }
      .page { fill: #0d1117 }
      .over { stroke: #0d1117 }
      .quiet { fill: #9198a1 }
      .grid { stroke: #2a313c }
      .axis, .even { stroke: #9198a1 }
      .budget { stroke: #3fb950 }
      .budgetword { fill: #3fb950 }
      .spent { stroke: #4493f8 }
      .under, .dot { fill: #4493f8 }
      .dot { stroke: #0d1117 }
      .range { fill: #db6d28; fill-opacity: 0.28 }
      .ahead { stroke: #f0883e }
      .today { stroke: #e6edf3 }
      .out, .outword { fill: #ff7b72 }
    }
"""


@dataclass(frozen=True, slots=True)
class BudgetCurve:
    """What is left, at times within the month: days from its beginning. Below 0 where it is
    exceeded."""

    past: tuple[tuple[float, float], ...]
    ahead: tuple[tuple[float, float, float, float], ...]
    """When, and what is expected, at least and at most left."""
    days: int
    now: float


def curve_of(outlook: BudgetOutlook, passed: float) -> BudgetCurve:
    """From the month's first moment to its last, as far as either is known."""
    first = day_of(f"{outlook.date[:7]}-01")
    now = day_of(outlook.date) - first + passed
    past = [(0.0, outlook.budget)]
    past += [
        (day_of(date) - first + 1.0, outlook.budget - total) for date, total in outlook.past[:-1]
    ]
    past.append((now, outlook.budget - outlook.spent))
    left = outlook.budget - outlook.spent
    ahead = [(now, left, left, left)]
    ahead += [
        (day_of(day.date) - first + 1.0, outlook.budget - day.expected,
         outlook.budget - day.most, outlook.budget - day.least)
        for day in outlook.ahead
    ]  # fmt: skip
    return BudgetCurve(tuple(past), tuple(ahead), day_of(outlook.turns_on) - first, now)


def svg(outlook: BudgetOutlook, passed: float) -> str:
    """The picture as a file of its own."""
    curve = curve_of(outlook, passed)
    words = outlook_words(outlook)
    head, tail = _folded(words, 112)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{escape(title(outlook))}">',
        f"<title>{escape(title(outlook))}</title>",
        f"<desc>{escape(words)}</desc>",
        f"<style>{STYLE}</style>",
        f'<clipPath id="plot"><rect x="{LEFT}" y="{TOP - 2}" width="{WIDTH - LEFT - RIGHT}" '
        f'height="{HEIGHT - BOTTOM - TOP + 2}"/></clipPath>',
        f'<rect class="page" width="{WIDTH}" height="{HEIGHT}"/>',
        f'<text class="title" x="{LEFT}" y="30">{escape(title(outlook))}</text>',
        f'<text class="quiet" x="{LEFT}" y="51">{escape(head)}</text>',
        f'<text class="quiet" x="{LEFT}" y="69">{escape(tail)}</text>',
        *_axes(outlook, curve),
        '<g clip-path="url(#plot)">',
        *_lines(outlook, curve),
        "</g>",
        *_marks(outlook, curve),
        "</svg>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _axes(outlook: BudgetOutlook, curve: BudgetCurve) -> Iterator[str]:
    """Amounts across, days down, both with their units."""
    right, floor = WIDTH - RIGHT, HEIGHT - BOTTOM
    for tick in range(TICKS + 1):
        left = outlook.budget * tick / TICKS
        y = _y(left, outlook.budget)
        kind = "axis" if tick == 0 else "grid"
        if tick < TICKS:
            yield f'<line class="{kind}" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield (
            f'<text class="quiet" x="{LEFT - 10}" y="{y + 4:.1f}" text-anchor="end">'
            f"{escape(amount(left, outlook.unit))}</text>"
        )
    unit = "tokens left" if outlook.unit == "tokens" else "dollars left"
    middle = (TOP + floor) / 2
    yield (
        f'<text class="quiet" transform="translate(20 {middle:.0f}) rotate(-90)" '
        f'text-anchor="middle">{unit}</text>'
    )
    first = day_of(f"{outlook.date[:7]}-01")
    for day in range(0, curve.days, 5):
        x = _x(day, curve)
        yield f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{floor}" y2="{floor + 5}"/>'
        label = date_of(first + day)[8:].lstrip("0")
        at = f'x="{x:.1f}" y="{floor + 20}"'
        yield f'<text class="quiet" {at} text-anchor="middle">{label}</text>'
    yield (
        f'<text class="quiet" x="{(LEFT + right) / 2:.0f}" y="{HEIGHT - 14}" '
        f'text-anchor="middle">day of {outlook.date[:7]} (UTC); the month turns on '
        f"{outlook.turns_on}</text>"
    )


def _lines(outlook: BudgetOutlook, curve: BudgetCurve) -> Iterator[str]:
    """The budget, an even use of it, what is left so far, and what will be."""
    of, right = outlook.budget, WIDTH - RIGHT
    yield f'<line class="budget" x1="{LEFT}" x2="{right}" y1="{TOP}" y2="{TOP}"/>'
    ends = (_x(0, curve), _y(of, of), _x(curve.days, curve), _y(0.0, of))
    yield '<line class="even" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>'.format(*ends)
    upper = [(at, most) for at, _, _, most in curve.ahead]
    lower = [(at, least) for at, _, least, _ in curve.ahead]
    yield f'<polygon class="range" points="{_points([*upper, *reversed(lower)], curve, of)}"/>'
    middle = [(at, expected) for at, expected, _, _ in curve.ahead]
    yield f'<polyline class="ahead" points="{_points(middle, curve, of)}"/>'
    past = list(curve.past)
    under = [(past[0][0], 0.0), *past, (past[-1][0], 0.0)]
    yield f'<polygon class="under" points="{_points(under, curve, of)}"/>'
    yield f'<polyline class="spent" points="{_points(past, curve, of)}"/>'


def _marks(outlook: BudgetOutlook, curve: BudgetCurve) -> Iterator[str]:
    """The budget, an even use of it, today, and the day on which nothing is left."""
    yield (
        f'<text class="budgetword" x="{WIDTH - RIGHT}" y="{TOP - 7}" text-anchor="end">'
        f"budget {escape(amount(outlook.budget, outlook.unit))}</text>"
    )
    even = (_x(0.88 * curve.days, curve), _y(0.12 * outlook.budget, outlook.budget) - 10)
    yield '<text class="quiet" x="{:.1f}" y="{:.1f}">even use</text>'.format(*even)
    x, y, floor = _x(curve.now, curve), _y(outlook.left, outlook.budget), HEIGHT - BOTTOM
    yield f'<line class="today" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{floor}"/>'
    told = f"today: {amount(outlook.left, outlook.unit)} left"
    # Where there is nothing else: over what is to come, or under it at the floor.
    height = y - 12 if outlook.left < outlook.budget / 2 else floor - 12
    anchor, aside = ("start", 10) if curve.now < 0.7 * curve.days else ("end", -10)
    yield (
        f'<text class="over" x="{x + aside:.1f}" y="{height:.1f}" text-anchor="{anchor}">'
        f"{escape(told)}</text>"
    )
    yield f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="5"/>'
    if outlook.exhausted_on is not None and outlook.left > 0:
        out = _x(_crossing(curve), curve)
        anchor, aside = ("start", 10) if out < 0.7 * WIDTH else ("end", -10)
        yield f'<circle class="out" cx="{out:.1f}" cy="{floor}" r="5"/>'
        yield (
            f'<text class="over outword" x="{out + aside:.1f}" y="{floor - 10}" '
            f'text-anchor="{anchor}">used up on {outlook.exhausted_on}</text>'
        )


def terminal(outlook: BudgetOutlook, passed: float, glyphs: Glyphs) -> Iterator[str]:
    """The same in cells: full for what is left, dotted for what will be."""
    curve = curve_of(outlook, passed)
    yield title(outlook)
    yield outlook_words(outlook)
    yield ""
    labels = [amount(outlook.budget * row / ROWS, outlook.unit) for row in range(ROWS + 1)]
    wide = max(map(len, labels))
    for row in range(ROWS, 0, -1):
        label = labels[row] if row % 3 == 0 else ""
        # A cell is full where more is left than its middle.
        level = outlook.budget * (row - 0.5) / ROWS
        cells = "".join(_cell(curve, day, level, glyphs) * CELLS for day in range(curve.days))
        yield f"{label.rjust(wide)} {cells}".rstrip()
    marks = [" "] * (curve.days * CELLS + 8)
    for day in range(0, curve.days, 5):
        _write(marks, day * CELLS, str(day + 1))
    yield f"{'0'.rjust(wide)} {''.join(marks).rstrip()}"
    now = int(min(curve.now, curve.days - 1)) * CELLS
    yield f"{' ' * (wide + 1 + now)}^ today"
    yield f"{glyphs.busy} left  {glyphs.provider} expected  {glyphs.here} in the range"


def _cell(curve: BudgetCurve, day: int, level: float, glyphs: Glyphs) -> str:
    """What is left in the middle of a day, seen at one height."""
    at = day + 0.5
    if at <= curve.now or day == int(curve.now):
        left = _between(curve.past, min(at, curve.now))
        return " " if left is None or left < level else glyphs.busy
    expected = _between([(when, one) for when, one, _, _ in curve.ahead], at) or 0.0
    most = _between([(when, one) for when, _, _, one in curve.ahead], at) or 0.0
    return glyphs.provider if expected >= level else glyphs.here if most >= level else " "


def _between(points: Sequence[tuple[float, float]], at: float) -> float | None:
    """The height of a line at a place; `None` before it begins."""
    previous: tuple[float, float] | None = None
    for when, height in points:
        if when >= at:
            if previous is None:
                return height if when == at else None
            share = (at - previous[0]) / (when - previous[0]) if when > previous[0] else 1.0
            return previous[1] + share * (height - previous[1])
        previous = (when, height)
    return None if previous is None else previous[1]


def _crossing(curve: BudgetCurve) -> float:
    """When what is expected to be left comes to nothing."""
    before = curve.ahead[0]
    for one in curve.ahead[1:]:
        if one[1] <= 0.0:
            share = before[1] / (before[1] - one[1]) if before[1] > one[1] else 1.0
            return before[0] + share * (one[0] - before[0])
        before = one
    return float(curve.days)


def _points(points: list[tuple[float, float]], curve: BudgetCurve, budget: float) -> str:
    return " ".join(f"{_x(at, curve):.1f},{_y(left, budget):.1f}" for at, left in points)


def _x(at: float, curve: BudgetCurve) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * at / curve.days


def _y(left: float, budget: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - (left / budget if budget else 0.0))


def _write(cells: list[str], at: int, text: str) -> None:
    cells[at : at + len(text)] = text


def _folded(words: str, most: int) -> tuple[str, str]:
    """Words in two lines."""
    if len(words) <= most:
        return words, ""
    cut = words.rfind(" ", 0, most)
    return words[:cut], words[cut + 1 :]
