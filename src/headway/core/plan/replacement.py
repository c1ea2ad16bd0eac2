"""What `{}` and its relatives stand for: which arguments, and which part of each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

PATTERN: Final = re.compile(
    r"\{(?:(?P<number>#)|(?P<place>%)|(?P<position>-?[1-9][0-9]{0,5})?(?P<part>\.|//|/\.|/)?)\}"
)
"""`{}` `{.}` `{/}` `{//}` `{/.}`, each also with a position, `{#}`, and `{%}`, which is refused."""

SAFE: Final = re.compile(r"[-_.+a-zA-Z0-9/]+")
"""What GNU parallel prints without quotes."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """One replacement string."""

    text: str
    position: int | None = None
    """The argument that is meant, from 1 on, or from the last with -1; None means all."""
    part: str = ""
    """`.` without extension, `/` the name, `//` the folder, `/.` the name without extension."""
    is_number: bool = False
    """`{#}`: the task's own number, from 1 on."""

    def chosen(self, count: int) -> tuple[int, ...]:
        """Which of so many arguments it stands for, from 0 on; none if there is no such one."""
        if self.position is None:
            return tuple(range(count))
        index = self.position - 1 if self.position > 0 else count + self.position
        return (index,) if 0 <= index < count else ()

    def values(self, arguments: Sequence[str], number: int) -> tuple[str, ...]:
        """What it stands for among these arguments of this task."""
        if self.is_number:
            return (str(number),)
        return tuple(part_of(arguments[i], self.part) for i in self.chosen(len(arguments)))


def found_at(text: str, at: int) -> Replacement | None:
    """The replacement string that begins there, if one does."""
    match = PATTERN.match(text, at)
    if match is None:
        return None
    position = match["position"]
    return Replacement(
        text=match[0],
        position=int(position) if position else None,
        part=match["part"] or "",
        is_number=match["number"] is not None,
    )


def part_of(value: str, part: str) -> str:
    """A value without its extension, its folder, or both; or the folder alone."""
    if part == "//":
        return _folder(value)
    if part.startswith("/"):
        value = value.rpartition("/")[2]
    if part.endswith("."):
        stem, dot, extension = value.rpartition(".")
        value = stem if dot and "/" not in extension else value
    return value


def quoted(value: str) -> str:
    """A value as GNU parallel prints it for a shell: to be read, never to be executed."""
    if SAFE.fullmatch(value):
        return value
    if not value:
        return "''"
    text = "'" + value.replace("'", "'\"'\"'") + "'"
    return text.removeprefix("''").removesuffix("''")


def _folder(value: str) -> str:
    """As dirname(1): `.` for a bare name, without slashes at the end."""
    kept = value.rstrip("/")
    if not kept:
        return "/" if value else "."
    head, slash, _ = kept.rpartition("/")
    return (head.rstrip("/") or "/") if slash else "."
