"""Reductions: which results go into which call, and what each call contains.

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

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import accumulate, pairwise
from json import JSONDecodeError, loads
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from headway.base import codec
from headway.errors import JournalError, WireError
from headway.plans.fan_in import HEADING_TOKENS, Fit, cut_at_tokens, tokens_at_most

# A text that is too large for a call, in pieces that fit, cut where its structure allows.

PIECE_TOKENS_MIN: Final = 4
"""A character is three tokens at most: whatever the room, one fits."""

DEPTH_MAX: Final = 8
"""Within how many arrays and objects the elements of JSON are looked for."""

_JSON: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{},]', re.DOTALL)
_ENDS: Final = (
    re.compile(r"\n(?=#{1,6} )"),  # before a heading of Markdown
    re.compile(r"\n[ \t]*\n+"),  # after a paragraph
    re.compile(r"\n"),
    re.compile(r"[.!?][\"')\]]*\s+|[。！？]"),  # noqa: RUF001 - where sentences of Chinese end
    re.compile(r"\s+"),
)


_Part = tuple[str, int]
"""A part of a text and its tokens: to count a megabyte takes a tenth of a second."""


def pieces_of(text: str, most: int) -> tuple[str, ...]:
    """The text in pieces of at most so many tokens."""
    most = max(PIECE_TOKENS_MIN, most)
    parts = _sized([text])
    if parts[0][1] <= most:
        return (text,)
    if _is_json(text):
        for _ in range(DEPTH_MAX):
            parts = _finer(parts, most, _elements)
    for end in _ENDS:
        parts = _finer(parts, most, partial(_cut_at, end))
    return tuple(_packed(_finer(parts, most, lambda part: cut_at_tokens(part, most)), most))


def _sized(texts: Iterable[str]) -> list[_Part]:
    return [(text, tokens_at_most(text)) for text in texts]


def _finer(parts: Iterable[_Part], most: int, cut: Callable[[str], list[str]]) -> list[_Part]:
    """Those that are too large, cut; the others as they are."""
    finer: list[_Part] = []
    for text, tokens in parts:
        texts = cut(text) if tokens > most else ()
        finer += _sized(texts) if len(texts) > 1 else [(text, tokens)]
    return finer


def _packed(parts: Iterable[_Part], most: int) -> list[str]:
    packed: list[str] = []
    held: list[str] = []
    size = 0
    for text, tokens in parts:
        if held and size + tokens > most:
            packed.append("".join(held))
            held, size = [], 0
        held.append(text)
        size += tokens
    return [*packed, "".join(held)]


def _is_json(text: str) -> bool:
    if not text.lstrip().startswith(("[", "{")):
        return False
    try:
        loads(text)
    except (JSONDecodeError, RecursionError, ValueError):
        return False
    return True


def _elements(part: str) -> list[str]:
    """Cut behind the commas of the outermost array or object that has any."""
    depth = 0
    found: list[tuple[int, int]] = []
    for token in _JSON.finditer(part):
        char = token[0]
        if char == "," and token.end() < len(part):
            found.append((depth, token.end()))
        depth += (char in "[{") - (char in "]}")
    outermost = min((level for level, _ in found), default=0)
    return _cut(part, [place for level, place in found if level == outermost])


def _cut_at(end: re.Pattern[str], part: str) -> list[str]:
    return _cut(part, [found.end() for found in end.finditer(part) if found.end() < len(part)])


def _cut(part: str, places: Iterable[int]) -> list[str]:
    edges = [0, *places, len(part)]
    return [part[start:end] for start, end in pairwise(edges)]


WORDS_PER_TOKEN: Final = 0.6
"""A model that is asked for so many words stays within its tokens."""

NO_RESULTS: Final = "There are no results. Say so."
"""Of a group that turned out to be empty: who is shown nothing would make something up."""

MISSING_SHARE: Final = 16
"""The part of a context that names of missing results may take in a prompt."""

MISSING_TOKENS: Final = 2000
"""The same where no context is given."""


class Cover(Struct, frozen=True, array_like=True):
    """The results that a text is made of, by their numbers; of one of them, perhaps a piece."""

    first: int
    last: int
    piece: int = 0
    """Its number among `pieces`, from 1; 0 is the whole."""
    pieces: int = 0


class ReductionText(Struct, frozen=True, array_like=True):
    """A text that is to be brought together with others."""

    cover: Cover
    text: str
    label: str = ""

    @property
    def section(self) -> str:
        return f"## {heading(self)}\n{self.text}"

    @property
    def tokens(self) -> int:
        """What it takes of a room at most, with what parts it from the next."""
        return tokens_at_most(self.section) + 1


class ReductionNode(Struct, frozen=True, tag_field="version", tag="headway reduction 1"):
    """What a member of an inner level gives."""

    items: tuple[ReductionText, ...]
    missing: tuple[str, ...] = ()
    parts: tuple[ReductionText, ...] = ()
    """What calls within the task gave on the way, in the order of their rounds."""
    calls: int = 0


def heading(item: ReductionText) -> str:
    cover = item.cover
    part = f" (part {cover.piece} of {cover.pieces})" if cover.pieces else ""
    return f"{item.label}{part}" if item.label else f"{span(cover)}{part}, reduced"


def span(cover: Cover) -> str:
    """`results 5 to 8`, counted from 1."""
    if cover.first == cover.last:
        return f"result {cover.first + 1}"
    return f"results {cover.first + 1} to {cover.last + 1}"


def passes(items: Sequence[ReductionText], fit: Fit) -> bool:
    """Whether a node passes its items on: they are together what it may give in any case."""
    return total(items) <= fit.share


def total(items: Iterable[ReductionText]) -> int:
    return sum(item.tokens for item in items)


def batches(
    items: Sequence[ReductionText], fit: Fit, room: int
) -> list[tuple[tuple[ReductionText, ...], bool]] | None:
    """How items come closer to fitting into one call of this room; None if they fit.

    Each batch is with whether a call brings it together; small ones need none.
    """
    items = split(items, min(fit.room, room))
    if total(items) <= room:
        return None
    sums = [0, *accumulate(item.tokens for item in items)]
    found: list[tuple[tuple[ReductionText, ...], bool]] = []
    ahead = [(0, len(items))]
    while ahead:
        start, end = ahead.pop()
        if end - start == 1 or sums[end] - sums[start] <= fit.room:
            found.append((tuple(items[start:end]), sums[end] - sums[start] > fit.share))
            continue
        middle = start + (1 << (end - start - 1).bit_length() - 1)
        ahead += [(middle, end), (start, middle)]
    return found


def split(items: Iterable[ReductionText], room: int) -> tuple[ReductionText, ...]:
    """The same items; those that are too large for a room in pieces."""
    every: list[ReductionText] = []
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


def merged(items: Sequence[ReductionText], text: str) -> ReductionText:
    first, last = items[0].cover, items[-1].cover
    if len(items) == 1:
        return ReductionText(first, text)
    return ReductionText(Cover(first.first, last.last), text)


def part_text(prompt: str, items: Sequence[ReductionText], results: int, fit: Fit) -> str:
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
    prompt: str, items: Sequence[ReductionText], missing: Sequence[str], results: int,
    context: int = 0,
) -> str:  # fmt: skip
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


def sections(text: str, items: Iterable[ReductionText]) -> str:
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


def decoded(body: bytes, name: str) -> ReductionNode:
    """The node in a task's result. Raises JournalError if it is not there."""
    try:
        return codec.decode(ReductionNode, body)
    except WireError as error:
        raise JournalError(
            f"the result of `{name}` is no part of a reduction: {error.detail}",
            hint="it is damaged, or from another version of headway: run the plan again",
        ) from error
