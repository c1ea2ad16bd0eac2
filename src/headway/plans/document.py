"""Reads a YAML or JSON file as values with their places, within bounds.

Laws:
- Nothing in a file is executed, imported or constructed: only text, numbers, lists and mappings.
- What could grow is refused: anchors, aliases, merge keys, tags, depth, and size beyond a bound.
- No key is there twice.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from functools import partial
from json import JSONDecodeError, loads
from pathlib import Path
from typing import Any, Final, cast

from headway.errors import Fix, Place, PlanError, PlanFileError
from headway.plans.section import shown, where
from headway.plans.spec import Document, DocumentList, Keyed, Leaf, Located, Scalar

Event = Any
"""Of a YAML parser, which is imported late."""

FILE_BYTES_MAX: Final = 4_000_000
"""A plan of 20,000 tasks takes two; a larger one has its items in a file of lines."""

DEPTH_MAX: Final = 30
NODES_MAX: Final = 500_000
"""Values of one file: as many as take a second to read."""

SLOW_CHARS_MAX: Final = 200_000
"""What the slow parser reads in two seconds."""

_HALF_ESCAPED: Final = re.compile(r"\\u[dD][89a-fA-F]")
_INTEGER: Final = re.compile(r"[-+]?[0-9]{1,300}", re.ASCII)
_REAL: Final = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.?[0-9]+)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_HALVES: Final = re.compile("[\ud800-\udfff]")
_QUOTES: Final = frozenset("'\"|>")
_NUMERIC: Final = frozenset("+-.0123456789")
"""What a number can begin with: most words are told from numbers by that."""

_WORDS: Final[dict[str, Scalar]] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
"""What a word without quotes means; `yes`, `no`, `on` and `off` are only words."""


def read_document(path: Path, name: str = "") -> tuple[Document, str]:
    """A plan's file as a document, and its text."""
    name = name or str(path)
    try:
        text = read_text(path, FILE_BYTES_MAX)
    except UnusableError as fault:
        raise PlanFileError(f"the file {fault}", where=name) from fault
    return parse_document(text, name, is_json=path.suffix == ".json"), text


def parse_document(text: str, name: str, is_json: bool = False) -> Document:
    """A text as a document. Raises `PlanFileError`."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    if len(text) <= SLOW_CHARS_MAX and _HALF_ESCAPED.search(text):
        # The fast parser does not take a character that JSON writes as two halves.
        loader = yaml.SafeLoader
    builder = _Builder(name, text)
    try:
        if is_json:
            loads(text)
            # Outside of strings, where a tab is white space, YAML does not take it.
            text = text.replace("\t", " ")
        parser = loader(text)
        try:
            builder.take(parser.get_event)
        finally:
            parser.dispose()
    except JSONDecodeError as error:
        at = where(name, Place(error.lineno, error.colno))
        raise PlanFileError(f"this is not JSON: {error.msg}", where=at) from error
    except yaml.MarkedYAMLError as error:
        raise _not_yaml(text, name, error.problem_mark, error.problem) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise PlanFileError("this is neither YAML nor JSON", where=name) from error
    if builder.twice:
        raise PlanError.together(builder.twice)
    if builder.root is None:
        raise PlanFileError("the file is empty", where=f"{name}:1:1")
    return Document(name, builder.root)


_Open = tuple[Place, bool, list[Located], set[str]]
"""An incomplete list or mapping: its place, whether it is a list, what stands in it (of a
mapping, keys and values in turn), and the texts of its keys."""


class _Builder:
    """Makes a tree of a parser's events, without recursion."""

    def __init__(self, name: str, text: str) -> None:
        self.twice: list[PlanError] = []
        """Keys that are there twice: reported only of a file that can be read to its end."""
        self._name = name
        self._text = text
        self._nodes = 0
        self._open: list[_Open] = []
        self.root: Located | None = None

    def take(self, following: Callable[[], Event | None]) -> None:
        """All events of a parser, which gives the next one and at the end nothing."""
        from yaml import events

        # By kind in a table: a large plan has ten events for every task.
        takers: dict[type, Callable[[Any], None]] = {
            events.ScalarEvent: self._scalar,
            events.MappingStartEvent: partial(self._begin, False),
            events.SequenceStartEvent: partial(self._begin, True),
            events.MappingEndEvent: self._end,
            events.SequenceEndEvent: self._end,
            events.AliasEvent: self._must_be_plain,
            events.DocumentStartEvent: self._document,
        }
        find = takers.get
        while (event := following()) is not None:
            taker = find(type(event))
            if taker is not None:
                taker(event)

    def _document(self, event: Event) -> None:
        if self.root is not None:
            raise self._wrong(event, "a plan is one document: `---` begins another")

    def _begin(self, is_list: bool, event: Event) -> None:
        self._must_be_plain(event)
        self._open.append((_place(event.start_mark), is_list, [], set()))

    def _end(self, _: Event) -> None:
        place, is_list, nodes, _keys = self._open.pop()
        if is_list:
            self._put(DocumentList(tuple(nodes), place))
        else:
            keys = cast("list[Leaf]", nodes[::2])
            self._put(Keyed(tuple(zip(keys, nodes[1::2], strict=True)), place))

    def _must_be_plain(self, event: Event) -> None:
        """Refuse what could grow or would be constructed."""
        self._nodes += 1
        if self._nodes > NODES_MAX:
            raise self._wrong(event, f"the file has more than {NODES_MAX:,} values")
        if len(self._open) >= DEPTH_MAX:
            raise self._wrong(event, f"this is nested more than {DEPTH_MAX} deep")
        if event.anchor is not None:
            message = f"`{event.anchor}` is an anchor: a plan says everything where it stands"
            error = self._wrong(event, message)
            error.detail = "values that are used more than once belong into `vars`"
            raise error
        if event.tag is not None:
            what = shown(str(event.tag))
            raise self._wrong(event, f"`{what}` is a tag: a plan has plain values only")

    def _scalar(self, event: Event) -> None:
        self._must_be_plain(event)
        text, style = event.value, event.style
        if "\0" in text:
            raise self._wrong(event, "this has a zero byte, which no text of a plan can hold")
        if not text.isascii() and _HALVES.search(text):
            whole = _paired(text)
            if whole is None:
                raise self._wrong(event, "half of a character: write it in full")
            text = whole
        value = text if style and style in _QUOTES else _meant(text)
        self._put(Leaf(value, text, _place(event.start_mark)))

    def _put(self, node: Located) -> None:
        if not self._open:
            self.root = node
            return
        _, is_list, nodes, keys = self._open[-1]
        if not is_list and len(nodes) % 2 == 0:
            self._check_key(node, keys)
        nodes.append(node)

    def _check_key(self, node: Located, keys: set[str]) -> None:
        where_is = where(self._name, node.place)
        if not isinstance(node, Leaf):
            hole = _unquoted(self._text, node.place)
            if hole is not None:
                quoted, repaired = hole
                message = "`{{ }}` without quotes is a mapping to YAML, not a text"
                fix = Fix("text", Place(1, 1), value=repaired)
                raise PlanFileError(
                    message, where=where_is, hint=f"put it in quotes: {quoted}", fixes=(fix,)
                )
            raise PlanFileError("a key is a word, not a list or a mapping", where=where_is)
        if node.text == "<<":
            raise PlanFileError("`<<` merges mappings: write the keys out", where=where_is)
        if node.text in keys:
            fix = Fix("remove", node.place)
            message = f"`{shown(node.text)}` is there twice"
            error = PlanFileError(message, where=where_is, hint="remove one of them", fixes=(fix,))
            self.twice.append(error)
        keys.add(node.text)

    def _wrong(self, event: Event, message: str) -> PlanFileError:
        return PlanFileError(message, where=where(self._name, _place(event.start_mark)))


def _place(mark: Any) -> Place:
    return Place(1, 1) if mark is None else Place(mark.line + 1, mark.column + 1)


def _meant(text: str) -> Scalar:
    """A word without quotes: nothing, a truth, a number or text."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMERIC:
        return text
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _REAL.fullmatch(text) and abs(float(text)) < float("inf") else text


def _unquoted(text: str, inner: Place) -> tuple[str, str] | None:
    """A value in quotes that begins with two braces, the second of them at this place; and the plan
    with it."""
    lines = text.splitlines(keepends=True)
    line, begins = lines[inner.line - 1], max(0, inner.column - 2)
    value = line[begins:].strip()
    if not value.startswith("{{"):
        return None
    quoted = f"'{value}'" if '"' in value else f'"{value}"'
    lines[inner.line - 1] = line[:begins] + line[begins:].replace(value, quoted, 1)
    return quoted, "".join(lines)


def _paired(text: str) -> str | None:
    """Two halves of a character, as JSON writes it, made one."""
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        return None


def _not_yaml(text: str, name: str, mark: Any, problem: str | None) -> PlanError:
    place = _place(mark)
    if re.search(r"^ *\t", text, re.M):
        message, fixes = "a line begins with a tab", (Fix("spaces", place),)
        return PlanFileError(message, where=where(name, place), hint="use spaces", fixes=fixes)
    return PlanFileError(f"this is not YAML: {problem}", where=where(name, place))


class UnusableError(Exception):
    """Why a path or a pattern cannot be used; becomes a plan's error once its place is known."""


def read_text(path: str | Path, most: int) -> str:
    """The text of a file, within a bound; `UnusableError` says why there is none."""
    try:
        with open(path, "rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise UnusableError(f"cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UnusableError("cannot be the name of a file") from error
    if len(content) > most:
        raise UnusableError(f"is larger than {most:,} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnusableError("is not UTF-8 text") from error


# Which of the paths that a plan reads are there before its run; none of them is opened.


def absent(folder: Path, paths: Sequence[str]) -> frozenset[str]:
    """Those of some paths, relative to the plan's folder, at which nothing is."""
    root = os.fspath(folder)
    return frozenset(path for path in paths if not os.path.lexists(os.path.join(root, path)))
