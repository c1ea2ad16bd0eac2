"""The burn-down of a month's budget, as SVG and on a terminal.

Amounts are below 0 where the budget is exceeded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from headway.base.numbers import day_of
from headway.report.health import BudgetOutlook
from headway.report.text.accounts import amount, outlook_words, title
from headway.report.text.svg import dot, line, page, text
from headway.report.text.words import Glyphs

WIDTH: Final = 860
HEIGHT: Final = 440
LEFT: Final = 84
RIGHT: Final = 28
TOP: Final = 92
FLOOR: Final = 382
FOLD: Final = 112

TICKS: Final = 5
"""Lines across, the budget's own included."""

ROWS: Final = 12
CELLS: Final = 2

Point = tuple[float, float]

STYLE: Final = """
text{font:13px system-ui,'Segoe UI','DejaVu Sans',sans-serif;fill:#1f2328}
.over{paint-order:stroke;stroke:#fff;stroke-width:4px;stroke-linejoin:round}.page{fill:#fff}
.title{font-size:17px;font-weight:600}.quiet{fill:#59636e}.grid{stroke:#d1d9e0}.axis{stroke:#59636e}
.budget{stroke:#1a7f37}.budgetword{fill:#1a7f37;font-weight:600}
.even{stroke:#59636e;stroke-dasharray:1 4;fill:none}
.spent{stroke:#0969da;stroke-width:2.5;fill:none;stroke-linejoin:round}
.under{fill:#0969da;fill-opacity:0.10}
.ahead{stroke:#bc4c00;stroke-width:2;stroke-dasharray:6 4;fill:none}.today{stroke:#1f2328}
.dot{fill:#0969da;stroke:#fff;stroke-width:2}.out{fill:#cf222e}.outword{fill:#cf222e;font-weight:600}
@media (prefers-color-scheme: dark){text{fill:#e6edf3}.page{fill:#0d1117}.over{stroke:#0d1117}
.quiet{fill:#9198a1}.grid{stroke:#2a313c}.axis,.even{stroke:#9198a1}.budget{stroke:#3fb950}
.budgetword{fill:#3fb950}.spent{stroke:#4493f8}.under,.dot{fill:#4493f8}.dot{stroke:#0d1117}
.ahead{stroke:#f0883e}.today{stroke:#e6edf3}.out,.outword{fill:#ff7b72}}
"""


def _days(outlook: BudgetOutlook) -> int:
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
    past, ahead = _curve(outlook, passed)
    words = outlook_words(outlook)
    head, tail = words, ""
    if len(words) > FOLD:
        cut = words.rfind(" ", 0, FOLD)
        head, tail = words[:cut], words[cut + 1 :]
    parts = [
        f"<desc>{escape(words)}</desc>",
        f'<clipPath id="plot"><rect x="{LEFT}" y="{TOP - 2}" width="{WIDTH - LEFT - RIGHT}" '
        f'height="{FLOOR - TOP + 2}"/></clipPath>',
        text(LEFT, 30, "title", title(outlook)),
        text(LEFT, 51, "quiet", head),
        text(LEFT, 69, "quiet", tail),
        *_axes(outlook),
        '<g clip-path="url(#plot)">',
        *_lines(outlook, past, ahead),
        "</g>",
        *_marks(outlook, ahead),
    ]
    return page(WIDTH, HEIGHT, title(outlook), STYLE, parts)


def _axes(outlook: BudgetOutlook) -> Iterator[str]:
    for tick in range(TICKS + 1):
        left = outlook.budget * tick / TICKS
        y = _y(left, outlook)
        if tick < TICKS:
            yield line(LEFT, y, WIDTH - RIGHT, y, "grid" if tick else "axis")
        yield text(LEFT - 10, y + 4, "quiet", amount(left, outlook.unit), "end")
    unit = "tokens left" if outlook.unit == "tokens" else "dollars left"
    yield (
        f'<text class="quiet" transform="translate(20 {(TOP + FLOOR) / 2:.0f}) rotate(-90)" '
        f'text-anchor="middle">{unit}</text>'
    )
    for day in range(0, _days(outlook), 5):
        x = _x(day, outlook)
        yield line(x, FLOOR, x, FLOOR + 5, "axis")
        yield text(x, FLOOR + 20, "quiet", f"{day + 1}", "middle")
    month = f"day of {outlook.date[:7]} (UTC); the month turns on {outlook.turns_on}"
    yield text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, "quiet", month, "middle")


def _lines(outlook: BudgetOutlook, past: list[Point], ahead: list[Point]) -> Iterator[str]:
    yield line(LEFT, TOP, WIDTH - RIGHT, TOP, "budget", 1.5, "2 4")
    even = [(0.0, outlook.budget), (float(_days(outlook)), 0.0)]
    under = [(past[0][0], 0.0), *past, (past[-1][0], 0.0)]
    for shape, kind, points in (
        ("polyline", "even", even), ("polyline", "ahead", ahead), ("polygon", "under", under),
        ("polyline", "spent", past),
    ):  # fmt: skip
        places = " ".join(f"{_x(at, outlook):.1f},{_y(left, outlook):.1f}" for at, left in points)
        yield f'<{shape} class="{kind}" points="{places}"/>'


def _marks(outlook: BudgetOutlook, ahead: list[Point]) -> Iterator[str]:
    budget = f"budget {amount(outlook.budget, outlook.unit)}"
    yield text(WIDTH - RIGHT, TOP - 7, "budgetword", budget, "end")
    days, (now, _) = _days(outlook), ahead[0]
    even_y = _y(0.12 * outlook.budget, outlook) - 10
    yield text(_x(0.88 * days, outlook), even_y, "quiet", "even use")
    x, y = _x(now, outlook), _y(outlook.left, outlook)
    yield line(x, TOP, x, FLOOR, "today", 1.0, "3 3")
    # Where there is nothing else: over what is to come, or under it at the floor.
    height = y - 12 if outlook.left < outlook.budget / 2 else FLOOR - 12
    words = f"today: {amount(outlook.left, outlook.unit)} left"
    yield _beside(x, height, "over", words, now < 0.7 * days)
    yield dot(x, y, 5, "dot")
    if outlook.exhausted_on is not None and outlook.left > 0:
        share = outlook.left / (outlook.expected - outlook.spent)
        out = _x(now + share * (days - now), outlook)
        yield dot(out, FLOOR, 5, "out")
        words = f"used up on {outlook.exhausted_on}"
        yield _beside(out, FLOOR - 10, "over outword", words, out < 0.7 * WIDTH)


def _beside(x: float, y: float, kind: str, words: str, is_right: bool) -> str:
    return text(x + (10 if is_right else -10), y, kind, words, "start" if is_right else "end")


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
    return TOP + (FLOOR - TOP) * (1.0 - share)
