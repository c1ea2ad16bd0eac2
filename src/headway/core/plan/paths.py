"""Paths of a plan as text: what lies within its folder, and what lies within what."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import Final

PATH_CHARS_MAX: Final = 4_096
WILD: Final = "*?["


def inside(path: str) -> str | None:
    """The path in its shortest form, relative to the plan's folder; `None` if it leads out."""
    if path.startswith(("/", "~")) or "\0" in path or len(path) > PATH_CHARS_MAX:
        return None
    if "." not in path and "//" not in path and not path.endswith("/"):
        return path
    parts: list[str] = []
    for part in path.split("/"):
        if part == ".." and not parts:
            return None
        if part == "..":
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def led_back(path: str) -> str:
    """A path that leads out, without what leads out: what its writer may have meant."""
    parts = [part for part in path.replace("\0", "").split("/") if part not in ("", ".", "..", "~")]
    return "/".join(parts)[:PATH_CHARS_MAX] or "."


def fixed_part(path: str, wild: str = WILD) -> str:
    """The folders of a pattern before the first one with something variable in it."""
    is_fixed = frozenset(wild).isdisjoint
    return path if is_fixed(path) else "/".join(takewhile(is_fixed, path.split("/")))


def above(path: str) -> Iterator[str]:
    """Every folder that a path lies in, from the nearest to the plan's own."""
    while path:
        path = path.rpartition("/")[0]
        yield path
