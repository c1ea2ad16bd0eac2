"""Draws pictures as SVG: their parts, and time and cost against width.

Everything that a user wrote is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from math import ceil, floor, inf, log10
from typing import Final

from msgspec import Struct

from headway.report.advise import WidthCurve, WidthPoint
from headway.report.options import HOUR_MICROUSD, waiting_microusd
from headway.report.text.words import duration


def page(wide: float, high: float, title: str, style: str, parts: Iterable[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {high:.0f}" '
        f'width="{wide:.0f}" height="{high:.0f}" role="img" aria-label="{escape(title)}">'
    )
    about, look = f"<title>{escape(title)}</title>", f"<style>{style}</style>"
    return "\n".join([head, about, look, rect(0, 0, wide, high, "page", 10), *parts, "</svg>", ""])


def text(x: float, y: float, kind: str, words: str, anchor: str = "start") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} class="{kind}">{escape(words)}</text>'


def line(
    x1: float, y1: float, x2: float, y2: float, kind: str, thick: float = 1.0, dashes: str = ""
) -> str:
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}" '
        f'stroke-width="{thick}"{dashed}/>'
    )


def dot(x: float, y: float, radius: float, kind: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" class="{kind}"/>'


def rect(x: float, y: float, wide: float, high: float, kind: str, corner: float = 0) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{max(0.0, high):.1f}" '
        f'class="{kind}" rx="{corner}"/>'
    )


# Time and cost against width.

WIDE: Final = 860.0
HIGH: Final = 668.0
LEFT: Final = 84.0
RIGHT: Final = 176.0
TIME_TOP: Final = 116.0
TIME_HIGH: Final = 270.0
COST_TOP: Final = 462.0
COST_HIGH: Final = 130.0
TICKS: Final = 5

STYLE: Final = """
.page{fill:#fff}.ink{fill:#1f2937}.soft{fill:#6b7280}.grid{stroke:#e5e7eb}.axis{stroke:#9ca3af}
.time{stroke:#2563eb}.timef{fill:#2563eb}.bound{stroke:#059669}.boundf{fill:#059669}
.one{stroke:#9333ea}.onef{fill:#9333ea}.ours{stroke:#db2777}.oursf{fill:#db2777}
.spot{fill:#f59e0b}.spotl{stroke:#f59e0b}.spott{fill:#b45309}.money{fill:#0d9488}.wait{fill:#93c5fd}
@media (prefers-color-scheme:dark){.page{fill:#0f172a}.ink{fill:#e5e7eb}.soft{fill:#94a3b8}
.grid{stroke:#1e293b}.axis{stroke:#475569}.time{stroke:#60a5fa}.timef{fill:#60a5fa}
.bound{stroke:#34d399}.boundf{fill:#34d399}.one{stroke:#c084fc}.onef{fill:#c084fc}
.ours{stroke:#f472b6}.oursf{fill:#f472b6}.spott{fill:#fbbf24}.money{fill:#14b8a6}.wait{fill:#1d4ed8}}
text{font-family:system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;font-size:13px}
.ring{fill:none;stroke-width:2.5}
.title{font-size:18px;font-weight:600}.small{font-size:12px}.name{font-size:13px;font-weight:600}
"""


class WidthPicture(Struct, frozen=True):
    curve: WidthCurve
    title: str
    about: str
    one_s: float | None = None
    one_microusd: float | None = None
    adaptive_s: float | None = None

    @property
    def points(self) -> tuple[WidthPoint, ...]:
        return tuple(one for one in self.curve.points if one.time_s < inf)


def width_svg(picture: WidthPicture) -> str:
    parts = [text(28, 36, "ink title", picture.title), text(28, 58, "soft", picture.about)]
    if picture.points:
        parts += [*_time_panel(picture), *_cost_panel(picture)]
    else:
        parts.append(text(LEFT, TIME_TOP, "ink", "No pool of any width ends."))
    return page(WIDE, HIGH, picture.title, STYLE, parts)


def _time_panel(picture: WidthPicture) -> list[str]:
    curve, points = picture.curve, picture.points
    lines = _references(picture)
    top = max([point.time_s for point in points] + [value for value, _, _ in lines])
    scale = _Scale.of(top, TIME_TOP, TIME_HIGH)
    unit, factor = ("min", 60.0) if scale.top >= 600 else ("s", 1.0)
    parts = [text(28, TIME_TOP - 14, "ink name", f"time, {unit}")]
    parts += _grid(scale, factor)
    sweet = next(point for point in points if point.width == curve.sweet)
    across = _x(picture, sweet.width)
    bottom = TIME_TOP + TIME_HIGH
    parts.append(line(across, scale.y(sweet.time_s), across, bottom, "spotl", 1.5, "2 4"))
    path = " ".join(
        f"{'L' if place else 'M'}{_x(picture, point.width):.1f},{scale.y(point.time_s):.1f}"
        for place, point in enumerate(points)
    )
    parts.append(f'<path d="{path}" class="time" fill="none" stroke-width="2.5" '
                 'stroke-linejoin="round"/>')  # fmt: skip
    parts += [dot(_x(picture, one.width), scale.y(one.time_s), 3.5, "timef") for one in points]
    parts.append(dot(across, scale.y(sweet.time_s), 7, "spot"))
    parts += _labelled(scale, lines)
    said = f"sweet spot: {curve.sweet} at once, {duration(sweet.time_s)}"
    # Below the bound nothing is ever drawn: there is room for words.
    is_right = across > LEFT + 0.6 * (WIDE - LEFT - RIGHT)
    parts.append(text(across + (-10 if is_right else 10), bottom - 14, "spott name", said,
                       "end" if is_right else "start"))  # fmt: skip
    return [*parts, *_widths(picture, bottom)]


def _references(picture: WidthPicture) -> list[tuple[float, str, str]]:
    """(seconds, class, words), the slowest first."""
    found = [(picture.curve.bound_s, "bound", "best possible")]
    if picture.one_s is not None and picture.one_s < inf:
        found.append((picture.one_s, "one", "one agent"))
    if picture.adaptive_s is not None and picture.adaptive_s < inf:
        found.append((picture.adaptive_s, "ours", "headway, adaptive"))
    return sorted(found, reverse=True)


def _labelled(scale: _Scale, lines: list[tuple[float, str, str]]) -> list[str]:
    parts, free = [], TIME_TOP - 40.0
    right = WIDE - RIGHT
    for value, kind, words in lines:
        y = scale.y(value)
        place = max(y - 4.0, free)
        free = place + 34.0
        dashes = "7 5" if kind == "bound" else "2 4"
        parts.append(line(LEFT, y, right, y, kind, 1.6, dashes))
        parts.append(text(right + 10, place, f"{kind}f name", words))
        parts.append(text(right + 10, place + 15, "soft small", duration(value)))
    return parts


def _cost_panel(picture: WidthPicture) -> list[str]:
    curve, points = picture.curve, picture.points
    totals = [one.microusd + waiting_microusd(one.time_s) for one in points]
    one_total = None
    if picture.one_microusd is not None and picture.one_s is not None and picture.one_s < inf:
        one_total = picture.one_microusd + waiting_microusd(picture.one_s)
    scale = _Scale.of(max([*totals, one_total or 0.0]) / 1e6, COST_TOP, COST_HIGH, 3)
    parts = [text(28, COST_TOP - 14, "ink name", "cost, $ a run")]
    parts += _grid(scale)
    room = (WIDE - LEFT - RIGHT) / max(point.width for point in points)
    half = min(16.0, 0.36 * room)
    for point, total in zip(points, totals, strict=True):
        x = _x(picture, point.width) - half
        paid, all_of_it = scale.y(point.microusd / 1e6), scale.y(total / 1e6)
        parts.append(rect(x, all_of_it, 2 * half, paid - all_of_it, "wait"))
        parts.append(rect(x, paid, 2 * half, scale.y(0.0) - paid, "money"))
        if point.width == curve.sweet:
            high = scale.y(0.0) - all_of_it
            parts.append(rect(x - 2, all_of_it - 2, 2 * half + 4, high + 2, "spotl ring", 3))
    right = WIDE - RIGHT + 10
    hour = f"${HOUR_MICROUSD / 1e6:g} an hour"
    for row, (kind, words) in enumerate((("wait", f"time at {hour}"), ("money", "tokens"))):
        y = COST_TOP + 10 + 22 * row
        parts.append(rect(right, y - 10, 12, 12, kind, 2))
        parts.append(text(right + 18, y, "soft small", words))
    if one_total is not None:
        y = scale.y(one_total / 1e6)
        parts.append(line(LEFT, y, WIDE - RIGHT, y, "one", 1.6, "2 4"))
        place = max(y + 4.0, COST_TOP + 60.0)
        parts.append(text(right, place, "onef name", "one agent"))
        parts.append(text(right, place + 15, "soft small", f"${one_total / 1e6:.2f} in all"))
    bottom = COST_TOP + COST_HIGH
    parts += _widths(picture, bottom)
    middle = (LEFT + WIDE - RIGHT) / 2
    parts.append(text(middle, bottom + 44, "ink", "agents at once", "middle"))
    return parts


class _Scale(Struct, frozen=True):
    top: float
    step: float
    from_y: float
    high: float

    @staticmethod
    def of(most: float, from_y: float, high: float, ticks: int = TICKS) -> _Scale:
        rough = max(most, 1e-9) / ticks
        unit = 10.0 ** floor(log10(rough))
        step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= rough)
        return _Scale(step * ceil(most / step - 1e-9), step, from_y, high)

    def y(self, value: float) -> float:
        return self.from_y + self.high * (1.0 - value / self.top)


def _grid(scale: _Scale, factor: float = 1.0) -> list[str]:
    """Lines at round numbers in the unit that is written, a factor of the scale's own."""
    unit = scale if factor == 1.0 else _Scale.of(scale.top / factor, scale.from_y, scale.high)
    parts = []
    for place in range(floor(scale.top / factor / unit.step + 1e-9) + 1):
        y = scale.y(unit.step * factor * place)
        parts.append(line(LEFT, y, WIDE - RIGHT, y, "grid"))
        parts.append(text(LEFT - 10, y + 4, "soft small", f"{unit.step * place:g}", "end"))
    return parts


def _x(picture: WidthPicture, width: int) -> float:
    most = max(point.width for point in picture.points)
    room = (WIDE - LEFT - RIGHT) / most
    return LEFT + room * (width - 0.5)


def _widths(picture: WidthPicture, bottom: float) -> list[str]:
    parts = [line(LEFT, bottom, WIDE - RIGHT, bottom, "axis", 1.2)]
    last = -inf
    for point in picture.points:
        x = _x(picture, point.width)
        if x - last >= 22.0:
            parts.append(text(x, bottom + 19, "soft small", str(point.width), "middle"))
            last = x
    return parts
