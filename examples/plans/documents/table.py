"""Makes a CSV of what was extracted: `python: table:rows` beside `reduce`."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence

COLUMNS = ("file", "kind", "number", "date", "supplier", "total", "currency")
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet calculates a cell that begins with one of these: so its author could."""

AMOUNTS = ("total",)
"""Checked by the schema to be a number and nothing else, also where it begins with a minus."""


def rows(results: Sequence[Mapping[str, object]], missing: Sequence[str] = ()) -> str:
    """A line for each document; those that could not be read are named at the end."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for one in results:
        writer.writerow([_cell(name, one.get(name)) for name in COLUMNS])
    for name in missing:
        writer.writerow([_cell("file", name), "missing"] + [""] * (len(COLUMNS) - 2))
    return file.getvalue()


def _cell(name: str, value: object) -> str:
    text = "" if value is None else str(value)
    return f"'{text}" if text.startswith(FORMULA) and name not in AMOUNTS else text
