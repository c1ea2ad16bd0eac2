"""Results in pages that fit a reader's context, with what was left out stated.

Laws:
- A page has at most as many bytes of results as was asked for; a result is cut only where it
  alone is more than a page, and between two characters.
- Pages put together are everything: where one ends, `after` says how to ask for the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

BYTES: Final = 20_000
"""Of results on a page, if the caller does not say: about 5,000 tokens."""

BYTES_MIN: Final = 100
BYTES_MAX: Final = 400_000
LIMIT: Final = 50
LIMIT_MAX: Final = 1000

Result = dict[str, object]


@dataclass(frozen=True, slots=True)
class Page:
    """What is asked for."""

    offset: int = 0
    """Results before it."""
    limit: int = LIMIT
    max_bytes: int = BYTES
    from_byte: int = 0
    """Of the first result: where its text goes on."""


@dataclass(frozen=True, slots=True)
class Given:
    """What there is on it."""

    results: list[Result]
    left_out: str = ""
    """In words; empty if nothing is."""
    after: dict[str, int] | None = None
    """The arguments for the next page; None after the last."""


def page(found: Iterable[tuple[Result, bytes | None]], wanted: Page) -> Given:
    """The results from an offset on, as far as they fit."""
    shown: list[Result] = []
    room, start = wanted.max_bytes, wanted.from_byte
    for index, (result, body) in _from(found, wanted.offset):
        data = (body or b"")[start:]
        if len(shown) == wanted.limit or (shown and len(data) > room):
            return Given(shown, _more(len(shown), index), {"offset": index, "from_byte": 0})
        if len(data) > room:
            piece = _whole_characters(data[:room])
            end, size = start + len(piece), len(body or b"")
            told = {**result, "output": piece.decode(errors="replace")}
            cut = f"{result['task']} is cut: bytes {start:,} to {end:,} of {size:,} are here"
            after = {"offset": index, "from_byte": end}
            return Given([{**told, "bytes": [start, end, size]}], cut, after)
        shown.append(result if not start else _rest(result, data, start))
        room, start = room - len(data), 0
    return Given(shown)


def _rest(result: Result, data: bytes, start: int) -> Result:
    """The last piece of a result that was cut."""
    end = start + len(data)
    return {**result, "output": data.decode(errors="replace"), "bytes": [start, end, end]}


def _from(
    found: Iterable[tuple[Result, bytes | None]], offset: int
) -> Iterator[tuple[int, tuple[Result, bytes | None]]]:
    return (pair for pair in enumerate(found) if pair[0] >= offset)


def _more(shown: int, index: int) -> str:
    return f"only results {index - shown} to {index - 1} are here; there are more"


def _whole_characters(data: bytes) -> bytes:
    """Without the beginning of a character at the end; what is not UTF-8 anyway stays."""
    for back in range(1, min(4, len(data)) + 1):
        lead = data[-back]
        if lead & 0xC0 == 0x80:
            continue
        length = 1 if lead < 0x80 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
        return data[:-back] if length > back and len(data) > back else data
    return data
