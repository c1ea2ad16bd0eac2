"""The burn-down of a month's budget, as SVG and on a terminal.

Amounts are below 0 where the budget is exceeded. The SVG has colours for light and dark pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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

Point = tuple[float, float]

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
      .ahead { stroke: #f0883e }
      .today { stroke: #e6edf3 }
      .out, .outword { fill: #ff7b72 }
    }
"""


def _days(outlook: BudgetOutlook) -> int:
    """Days of the month."""
    return day_of(outlook.turns_on) - day_of(f"{outlook.date[:7]}-01")


def _curve(outlook: BudgetOutlook, passed: float) -> tuple[list[Point], list[Point]]:
    """What is left by day, counted from the first of the month: until now, and expected."""
    first = day_of(f"{outlook.date[:7]}-01")
    past = [(0.0, outlook.budget)]
    past += [
        (day_of(date) - first + 1.0, outlook.budget - total) for date, total in outlook.past[:-1]
    ]
    past.append((day_of(outlook.date) - first + passed, outlook.budget - outlook.spent))
    return past, [past[-1], (float(_days(outlook)), outlook.budget - outlook.expected)]


def svg(outlook: BudgetOutlook, passed: float) -> str:
    """The picture as a file of its own."""
    past, ahead = _curve(outlook, passed)
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
        *_axes(outlook),
        '<g clip-path="url(#plot)">',
        *_lines(outlook, past, ahead),
        "</g>",
        *_marks(outlook, ahead),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _axes(outlook: BudgetOutlook) -> Iterator[str]:
    """Amounts across, days down, both with their units."""
    right, floor = WIDTH - RIGHT, HEIGHT - BOTTOM
    for tick in range(TICKS + 1):
        left = outlook.budget * tick / TICKS
        y = _y(left, outlook)
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
    for day in range(0, _days(outlook), 5):
        x = _x(day, outlook)
        yield f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{floor}" y2="{floor + 5}"/>'
        label = date_of(first + day)[8:].lstrip("0")
        at = f'x="{x:.1f}" y="{floor + 20}"'
        yield f'<text class="quiet" {at} text-anchor="middle">{label}</text>'
    yield (
        f'<text class="quiet" x="{(LEFT + right) / 2:.0f}" y="{HEIGHT - 14}" '
        f'text-anchor="middle">day of {outlook.date[:7]} (UTC); the month turns on '
        f"{outlook.turns_on}</text>"
    )


def _lines(outlook: BudgetOutlook, past: list[Point], ahead: list[Point]) -> Iterator[str]:
    """The budget, an even use of it, what is left so far, and what is expected."""
    yield f'<line class="budget" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{TOP}" y2="{TOP}"/>'
    even = [(0.0, outlook.budget), (float(_days(outlook)), 0.0)]
    under = [(past[0][0], 0.0), *past, (past[-1][0], 0.0)]
    for shape, kind, points in (
        ("polyline", "even", even), ("polyline", "ahead", ahead), ("polygon", "under", under),
        ("polyline", "spent", past),
    ):  # fmt: skip
        places = " ".join(f"{_x(at, outlook):.1f},{_y(left, outlook):.1f}" for at, left in points)
        yield f'<{shape} class="{kind}" points="{places}"/>'


def _marks(outlook: BudgetOutlook, ahead: list[Point]) -> Iterator[str]:
    """The budget, an even use of it, today, and the day on which nothing is left."""
    yield (
        f'<text class="budgetword" x="{WIDTH - RIGHT}" y="{TOP - 7}" text-anchor="end">'
        f"budget {escape(amount(outlook.budget, outlook.unit))}</text>"
    )
    days, (now, _) = _days(outlook), ahead[0]
    even = (_x(0.88 * days, outlook), _y(0.12 * outlook.budget, outlook) - 10)
    yield '<text class="quiet" x="{:.1f}" y="{:.1f}">even use</text>'.format(*even)
    x, y, floor = _x(now, outlook), _y(outlook.left, outlook), HEIGHT - BOTTOM
    yield f'<line class="today" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{floor}"/>'
    words = f"today: {amount(outlook.left, outlook.unit)} left"
    # Where there is nothing else: over what is to come, or under it at the floor.
    height = y - 12 if outlook.left < outlook.budget / 2 else floor - 12
    anchor, aside = ("start", 10) if now < 0.7 * days else ("end", -10)
    yield (
        f'<text class="over" x="{x + aside:.1f}" y="{height:.1f}" text-anchor="{anchor}">'
        f"{escape(words)}</text>"
    )
    yield f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="5"/>'
    if outlook.exhausted_on is not None and outlook.left > 0:
        share = outlook.left / (outlook.expected - outlook.spent)
        out = _x(now + share * (days - now), outlook)
        anchor, aside = ("start", 10) if out < 0.7 * WIDTH else ("end", -10)
        yield f'<circle class="out" cx="{out:.1f}" cy="{floor}" r="5"/>'
        yield (
            f'<text class="over outword" x="{out + aside:.1f}" y="{floor - 10}" '
            f'text-anchor="{anchor}">used up on {outlook.exhausted_on}</text>'
        )


def terminal(outlook: BudgetOutlook, passed: float, glyphs: Glyphs) -> Iterator[str]:
    """The same in cells: full for what is left, dotted for what is expected."""
    past, ahead = _curve(outlook, passed)
    days, (now, _) = _days(outlook), ahead[0]
    yield title(outlook)
    yield outlook_words(outlook)
    yield ""
    labels = [amount(outlook.budget * row / ROWS, outlook.unit) for row in range(ROWS + 1)]
    wide = max(map(len, labels))
    lefts = [_between(past, min(day + 0.5, now)) if day <= now else _between(ahead, day + 0.5)
             for day in range(days)]  # fmt: skip
    for row in range(ROWS, 0, -1):
        label = labels[row] if row % 3 == 0 else ""
        # A cell is full where more is left than its middle.
        level = outlook.budget * (row - 0.5) / ROWS
        cells = "".join(
            (" " if left < level else glyphs.busy if day <= now else glyphs.provider) * CELLS
            for day, left in enumerate(lefts)
        )
        yield f"{label.rjust(wide)} {cells}".rstrip()
    marks = "".join(str(day + 1).ljust(5 * CELLS) for day in range(0, days, 5))
    yield f"{'0'.rjust(wide)} {marks.rstrip()}"
    yield f"{' ' * (wide + 1 + int(min(now, days - 1)) * CELLS)}^ today"
    yield f"{glyphs.busy} left  {glyphs.provider} expected"


def _between(points: Sequence[Point], at: float) -> float:
    """The height of a line at a place."""
    before = points[0]
    for point in points:
        if point[0] >= at > before[0]:
            share = (at - before[0]) / (point[0] - before[0])
            return before[1] + share * (point[1] - before[1])
        before = point
    return before[1] if at >= before[0] else points[0][1]


def _x(at: float, outlook: BudgetOutlook) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * at / _days(outlook)


def _y(left: float, outlook: BudgetOutlook) -> float:
    share = left / outlook.budget if outlook.budget else 0.0
    return TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - share)


def _folded(words: str, most: int) -> tuple[str, str]:
    """Words in two lines."""
    if len(words) <= most:
        return words, ""
    cut = words.rfind(" ", 0, most)
    return words[:cut], words[cut + 1 :]
