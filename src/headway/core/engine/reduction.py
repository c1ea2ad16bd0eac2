"""A reduction: which results come together in which call, what a call is told, what a node gives.

Laws:
- Every result is covered exactly once, in declared order, whatever its size: what is too large for
  a call is read in pieces that joined are the result.
- A call takes what its room holds. The shape depends on the sizes of results and on nothing else:
  one that changes, and does not outgrow its place, changes the calls above it and no other.
- A node of an inner level makes no call where what is below it is small enough to be passed on.
- What a node gives says what it covers; a body that is damaged is one clear error.

Items come together in aligned halves: of eight that do not fit the first four and the last four are
looked at, then the pairs. An item that is changed leaves the halves of all others as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final

from headway.core.engine.pieces import pieces_of
from headway.core.plan.fanin import HEADING_TOKENS, Fit
from headway.core.tokens import tokens_at_most
from headway.errors import JournalError

VERSION: Final = "headway reduction 1"
"""Of the body of an inner node."""

WORDS_PER_TOKEN: Final = 0.6
"""A model that is asked for so many words stays within its tokens."""

NO_RESULTS: Final = "There are no results. Say so."
"""Of a group that turned out to be empty: who is shown nothing would make something up."""

MISSING_SHARE: Final = 16
"""The part of a context that names of missing results may take in a prompt."""

MISSING_TOKENS: Final = 2000
"""The same where no context is given."""


@dataclass(frozen=True, slots=True)
class Cover:
    """The results that a text is made of, by their numbers; of one of them, perhaps a piece."""

    first: int
    last: int
    piece: int = 0
    """Its number among `pieces`, from 1; 0 is the whole."""
    pieces: int = 0


@dataclass(frozen=True, slots=True)
class Item:
    """A text that is to be brought together with others."""

    cover: Cover
    text: str
    label: str = ""
    """Of the result that it is; empty for what a call made of several."""

    @property
    def section(self) -> str:
        """As a call reads it."""
        return f"## {heading(self)}\n{self.text}"

    @property
    def tokens(self) -> int:
        """What it takes of a room at most, with what parts it from the next."""
        return tokens_at_most(self.section) + 1


@dataclass(frozen=True, slots=True)
class Node:
    """What a member of an inner level gives."""

    items: tuple[Item, ...] = ()
    missing: tuple[str, ...] = ()
    """Labels of results that are not there."""
    parts: tuple[Item, ...] = ()
    """What calls within the task gave on the way, in the order of their rounds."""
    calls: int = 0


@dataclass(frozen=True, slots=True)
class Batch:
    """Items that come together in one call, or are so small that they need not."""

    items: tuple[Item, ...]
    is_called: bool


def heading(item: Item) -> str:
    """The line before an item."""
    cover = item.cover
    part = f" (part {cover.piece} of {cover.pieces})" if cover.pieces else ""
    return f"{item.label}{part}" if item.label else f"{span(cover)}{part}, reduced"


def span(cover: Cover) -> str:
    """`results 5 to 8`, counted from 1."""
    if cover.first == cover.last:
        return f"result {cover.first + 1}"
    return f"results {cover.first + 1} to {cover.last + 1}"


def passes(items: Sequence[Item], fit: Fit) -> bool:
    """Whether a node passes its items on: they are together what it may give in any case."""
    return total(items) <= fit.share


def total(items: Iterable[Item]) -> int:
    """What they take of a room."""
    return sum(item.tokens for item in items)


def batches(items: Sequence[Item], fit: Fit, room: int) -> tuple[Batch, ...] | None:
    """How items come closer to fitting into one call of this room; None if they fit."""
    items = split(items, min(fit.room, room))
    if total(items) <= room:
        return None
    sums = [0, *accumulate(item.tokens for item in items)]
    found: list[Batch] = []
    ahead = [(0, len(items))]
    while ahead:
        start, end = ahead.pop()
        if end - start == 1 or sums[end] - sums[start] <= fit.room:
            group = tuple(items[start:end])
            found.append(Batch(group, sums[end] - sums[start] > fit.share))
            continue
        middle = start + (1 << (end - start - 1).bit_length() - 1)
        ahead += [(middle, end), (start, middle)]
    return tuple(found)


def split(items: Iterable[Item], room: int) -> tuple[Item, ...]:
    """The same items; those that are too large for a room in pieces."""
    every: list[Item] = []
    for item in items:
        if item.tokens <= room:
            every.append(item)
            continue
        head = tokens_at_most(f"## {heading(item)}\n") + HEADING_TOKENS
        texts = pieces_of(item.text, room - head)
        every += (
            replace(item, text=text, cover=replace(item.cover, piece=number, pieces=len(texts)))
            for number, text in enumerate(texts, 1)
        )
    return tuple(every)


def merged(items: Sequence[Item], text: str) -> Item:
    """What a call made of these."""
    first, last = items[0].cover, items[-1].cover
    if len(items) == 1:
        return Item(first, text)
    return Item(Cover(first.first, last.last), text)


def part_text(prompt: str, items: Sequence[Item], results: int, fit: Fit) -> str:
    """What an inner call is asked: the task, that this is a part of it, and the part."""
    cover = Cover(items[0].cover.first, items[-1].cover.last)
    words = max(20, int(fit.answer * WORDS_PER_TOKEN))
    told = (
        f"The text above is what will be asked in the end. You see only a part: {span(cover)} of "
        f"{results}. Others see the other parts, and what all of you write is merged later. Do not "
        "answer yet. Keep everything in these results that the final answer needs: findings, "
        "names, numbers, places, and which result they are from. Leave out what is said twice, add "
        f"nothing, and write at most {words} words."
    )
    return sections(f"{prompt}\n\n{told}", items)


def last_text(
    prompt: str, items: Sequence[Item], missing: Sequence[str], results: int, context: int = 0
) -> str:
    """What the last call is asked: the task, what is missing, and everything that there is."""
    if not results:
        return f"{prompt}\n\n{NO_RESULTS}"
    if not missing:
        return sections(prompt, items)
    most = context // MISSING_SHARE if context else MISSING_TOKENS
    told = (
        f"Missing: {listed(missing, most)}. {len(missing)} of {results} results are not there, "
        "because their tasks failed. Say so in your answer."
    )
    return sections(f"{prompt}\n\n{told}", items)


def sections(text: str, items: Iterable[Item]) -> str:
    """A prompt, and each item under its heading."""
    return "\n\n".join([text, *(item.section for item in items)])


def listed(labels: Sequence[str], most: int) -> str:
    """Labels, as many as so many tokens allow, and how many more there are."""
    shown: list[str] = []
    for label in labels:
        most -= tokens_at_most(label) + 1
        if most < 0 and shown:
            return f"{', '.join(shown)} and {len(labels) - len(shown)} more"
        shown.append(label)
    return ", ".join(shown)


def encoded(node: Node) -> bytes:
    """A node as its task's result."""
    body = {
        "version": VERSION,
        "items": [_written(item) for item in node.items],
        "missing": node.missing,
        "parts": [_written(item) for item in node.parts],
        "calls": node.calls,
    }
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def decoded(body: bytes, name: str) -> Node:
    """The node in a task's result. Raises JournalError if it is not there."""
    try:
        told = json.loads(body)
        if told["version"] != VERSION:
            raise ValueError("another version")
        return Node(
            tuple(map(_read, told["items"])), tuple(map(str, told["missing"])),
            tuple(map(_read, told["parts"])), int(told["calls"]),
        )  # fmt: skip
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise JournalError(
            f"the result of `{name}` is no part of a reduction: {type(error).__name__}",
            hint="it is damaged, or from another version of headway: run the plan again",
        ) from error


def _written(item: Item) -> list[object]:
    cover = item.cover
    return [cover.first, cover.last, cover.piece, cover.pieces, item.label, item.text]


def _read(told: Sequence[object]) -> Item:
    first, last, piece, pieces, label, text = told
    numbers = (first, last, piece, pieces)
    if not all(isinstance(number, int) for number in numbers):
        raise TypeError("a number is none")
    if not isinstance(label, str) or not isinstance(text, str):
        raise TypeError("a text is none")
    return Item(Cover(*(int(str(number)) for number in numbers)), text, label)
