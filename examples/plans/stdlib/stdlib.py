"""Python's standard library in pieces that a call can hold, cut where its structure allows.

Laws:
- The pieces of a file joined are the file.
- A piece begins between two words of Python. Only what is longer than a call, a string, is cut
  within, and the name of a piece that begins there says so: a reader of one knows what it is in.
"""

from __future__ import annotations

import io
import sysconfig
import tokenize
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Final, NamedTuple

from headway.plans.fan_in import cut_at_tokens, tokens_at_most

LIBRARY: Final = Path(sysconfig.get_path("stdlib"))
LEFT_OUT: Final = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}
FOLDER: Final = Path(__file__).parent / "build" / "pieces"
INSIDE: Final = "-inside-a-string"

CALL_TOKENS: Final = 400
"""What a call takes beside its piece: the prompt, and the longest answer."""

WITHIN_STATEMENT: Final = 1000
WITHIN_LINE: Final = 2000


class Mark(NamedTuple):
    """A place where a file may be cut; the lower its level, the better."""

    offset: int
    level: int


def pieces(context: str, every: str = "1") -> list[str]:
    """Writes the pieces of every n-th file: their names, such as `json/tool.py/0-3339`."""
    names: list[str] = []
    for file in files()[:: int(every)]:
        content = (LIBRARY / file).read_bytes().decode()
        (FOLDER / file).mkdir(parents=True, exist_ok=True)
        for start, end, is_inside in cut(content, int(context) - CALL_TOKENS):
            names.append(f"{file}/{start}-{end}{INSIDE if is_inside else ''}")
            (FOLDER / names[-1]).write_bytes(content[start:end].encode())
    return names


def files() -> list[str]:
    """The modules of the library, without its tests, sorted."""
    found = (path.relative_to(LIBRARY) for path in LIBRARY.rglob("*.py"))
    return sorted(path.as_posix() for path in found if not LEFT_OUT & set(path.parts))


def cut(content: str, room: int) -> Iterator[tuple[int, int, bool]]:
    """Where pieces of at most so many tokens begin and end, and whether one begins in a string."""
    if tokens_at_most(content) <= room:
        yield 0, len(content), False
        return
    marks = _marks(content, room)
    sizes = (tokens_at_most(content[a.offset : b.offset]) for a, b in pairwise(marks))
    sums = [0, *accumulate(sizes)]
    start = 0
    while start < len(marks) - 1:
        # Two texts joined are at most as many tokens as they are apart, so what adds up fits.
        last = bisect_right(sums, sums[start] + room) - 1
        if last == start:
            yield from _cut_inside(content, marks[start].offset, marks[start + 1].offset, room)
            start += 1
            continue
        half = range(bisect_right(sums, sums[start] + room // 2), last + 1)
        end = min(half, key=lambda place: (marks[place].level, -place), default=last)
        end = last if last == len(marks) - 1 else end
        yield marks[start].offset, marks[end].offset, False
        start = end


def _cut_inside(content: str, start: int, end: int, room: int) -> Iterator[tuple[int, int, bool]]:
    first = start
    for piece in cut_at_tokens(content[start:end], room):
        yield start, start + len(piece), start > first
        start += len(piece)


def _marks(content: str, room: int) -> list[Mark]:
    """Line ends that are in no string, and within a line that is too long the ends of words."""
    every = _words(content)
    lines = [mark for mark in every if mark.level < WITHIN_LINE]
    ends = [*lines, Mark(len(content), 0)]
    long = [
        (a.offset, b.offset)
        for a, b in pairwise(ends)
        if tokens_at_most(content[a.offset : b.offset]) > room
    ]
    words = [mark for mark in every if any(a < mark.offset < b for a, b in long)]
    return sorted({*ends, *words})


def _words(content: str) -> list[Mark]:
    """Where every word of Python begins; the first of a line stands for the line's beginning."""
    starts = [0, *accumulate(len(line) for line in io.StringIO(content))]
    marks = [Mark(0, 0)]
    row, depth, is_first = 0, 0, True
    for word in tokenize.generate_tokens(io.StringIO(content).readline):
        kind = tokenize.tok_name[word.type]
        if kind in ("NL", "NEWLINE", "INDENT", "DEDENT"):
            is_first |= kind != "NL"  # Which also ends lines between brackets.
            continue
        line, column = word.start
        if depth == 0 and line > row:
            marks.append(Mark(starts[line - 1], column if is_first else WITHIN_STATEMENT))
        elif depth == 0:
            marks.append(Mark(starts[line - 1] + column, WITHIN_LINE))
        # Newer versions of Python give a string with values in it as several words.
        depth += kind.endswith("STRING_START") - kind.endswith("STRING_END")
        row, is_first = max(row, word.end[0]), is_first and kind == "COMMENT"
    return marks
