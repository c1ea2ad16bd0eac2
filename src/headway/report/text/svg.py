"""The parts of an SVG: text, lines, dots, boxes; everything a user wrote is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


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
