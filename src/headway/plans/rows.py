"""Reads rows: CSV or TSV with a header, JSON Lines of objects, or a plain list of lines.

Laws:
- A row is a member's item: a mapping from column to value, or the text of a line.
- What cannot be read is refused with its line; no row is left out or changed in silence.
- Rows stay text: each is read when it is used, so that a large file takes little more memory than
  its size.
"""

from __future__ import annotations

import csv
from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from io import StringIO
from json import JSONDecodeError, dumps, loads
from typing import Final, overload

from headway.plans.spec import Value, text_of, whole

SEPARATORS: Final = {".csv": ",", ".tsv": "\t"}
JSON_LINES: Final = (".jsonl", ".ndjson")
CELL_CHARS_MAX: Final = 16 * 1024 * 1024
"""Of one cell of a CSV: more than any context."""


class RowError(Exception):
    """Why a text has no rows; becomes an error of the plan once its place is known."""


Record = tuple[int, int, int]
"""Where a row begins and ends in its text, and the number of its line."""


class Rows(Sequence[Value]):
    """The rows of a text."""

    __slots__ = ("_ends", "_read", "_starts", "_text", "columns", "every_column")

    def __init__(
        self, text: str, records: Iterator[Record], read: Callable[[str, int], Value], key: str
    ) -> None:
        self._text, self._read = text, read
        self._starts, self._ends = array("q"), array("q")
        every: dict[str, None] = {}
        common: dict[str, None] | None = None
        places: dict[str, int] = {}
        for start, end, line in records:
            row = read(text[start:end], line)
            self._starts.append(start)
            self._ends.append(end)
            names = row if isinstance(row, dict) else {}
            if common is None or common.keys() != names.keys():
                common = {one: None for one in common or names if one in names}
                every |= dict.fromkeys(names)
            if key:
                _note(places, names, key, line)
        self.columns: Final = tuple(common or ())
        """Those that every row has, in the order of the first one."""
        self.every_column: Final = tuple(every)

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, at: int) -> Value: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Value, ...]: ...
    def __getitem__(self, at: int | slice) -> Value | tuple[Value, ...]:
        if isinstance(at, slice):
            return tuple(self[one] for one in range(*at.indices(len(self))))
        return self._read(self._text[self._starts[at] : self._ends[at]], at)


def suffix_of(path: str) -> str:
    """`.csv` of `data/tickets.CSV`; empty if the name has none."""
    _, dot, suffix = path.rpartition("/")[2].rpartition(".")
    return dot + suffix.lower() if dot else ""


@lru_cache(maxsize=2)
def rows_in(text: str, suffix: str, key: str = "") -> Rows:
    """The rows of a file with this suffix; with a `key`, no two have the same value there."""
    if suffix in SEPARATORS:
        csv.field_size_limit(CELL_CHARS_MAX)
        header, records = _table(text, SEPARATORS[suffix])
        return Rows(text, records, _cells(header, SEPARATORS[suffix]), key)
    if suffix in JSON_LINES:
        return Rows(text, _lines(text), _object, key)
    return Rows(text, _lines(text), lambda line, _: line, key)


def text_with(rows: Sequence[Value], suffix: str) -> str:
    """A text in which `rows_in` finds these rows: a part of a file, to be tried first."""
    if suffix in SEPARATORS:
        tables = [row for row in rows if isinstance(row, dict)]
        stream = StringIO()
        writer = csv.writer(stream, delimiter=SEPARATORS[suffix])
        writer.writerow(tables[0] if tables else ())
        writer.writerows([text_of(cell) for cell in row.values()] for row in tables)
        return stream.getvalue()
    return "".join(f"{dumps(row) if isinstance(row, dict) else row}\n" for row in rows)


def _note(places: dict[str, int], row: dict[str, Value], key: str, line: int) -> None:
    """Note where the key of a row stands; RowError if it has none, or another row's."""
    if key not in row:
        raise RowError(f"has no `{key}` in line {line:,}, which is to be the key of its rows")
    name = text_of(row[key])
    if name in places:
        raise RowError(
            f"has the key `{name[:60]}` twice: in line {places[name]:,} and line {line:,}"
        )
    places[name] = line


def _lines(text: str) -> Iterator[Record]:
    """Lines that are not empty, without the white space around them."""
    start = 0
    for number, line in enumerate(text.split("\n"), 1):
        if plain := line.strip():
            begins = start + line.index(plain[0])
            yield begins, begins + len(plain), number
        start += len(line) + 1


def _object(line: str, number: int) -> Value:
    try:
        value = whole(loads(line))
    except JSONDecodeError as error:
        raise RowError(f"is not JSON in line {number:,}: {error.msg}") from error
    except (RecursionError, ValueError) as error:
        raise RowError(f"has a value that cannot be used in line {number:,}") from error
    if not isinstance(value, dict):
        raise RowError(f"has no object in line {number:,}: a row is {{...}} with its columns")
    return value


def _table(text: str, separator: str) -> tuple[list[str], Iterator[Record]]:
    """The header of a table, and where its rows are: a cell in quotes may have several lines."""
    ends = array("q")

    def lines() -> Iterator[str]:
        for line in StringIO(text, newline=""):
            ends.append(ends[-1] + len(line) if ends else len(line))
            yield line

    reader = csv.reader(lines(), delimiter=separator, strict=True)

    def records() -> Iterator[tuple[list[str], Record]]:
        start = 0
        try:
            for cells in reader:
                if cells:
                    yield cells, (start, ends[-1], reader.line_num)
                start = ends[-1]
        except csv.Error as error:
            raise RowError(f"is not CSV in line {reader.line_num:,}: {error}") from error

    found = records()
    first = next(found, None)
    header = [] if first is None else [cell.strip() for cell in first[0]]
    for name in header:
        if not name:
            raise RowError("has a column without a name in its first line")
        if header.count(name) > 1:
            raise RowError(f"has the column `{name}` twice in its first line")
    return header, (record for _, record in found)


def _cells(header: list[str], separator: str) -> Callable[[str, int], Value]:
    def read(text: str, line: int) -> Value:
        (cells,) = csv.reader(StringIO(text, newline=""), delimiter=separator, strict=True)
        if len(cells) != len(header):
            raise RowError(f"has {len(cells)} cells in line {line:,}, and {len(header)} columns")
        return dict(zip(header, cells, strict=True))

    return read
