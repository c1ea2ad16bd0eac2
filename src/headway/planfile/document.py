"""Reads a YAML or JSON file as values with their places, within bounds.

Laws:
- Nothing in a file is executed, imported or constructed: only text, numbers, lists and mappings.
- What could grow is refused: anchors, aliases, merge keys, tags, depth, and size beyond a bound.
- No key is there twice.
"""

from __future__ import annotations

import re
from json import JSONDecodeError, loads
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from headway.core.plan.section import shown
from headway.core.plan.spec import Document, Keyed, Leaf, Listing, Located, Scalar
from headway.errors import Fix, Place, PlanError, PlanFileError

if TYPE_CHECKING:
    from yaml.events import CollectionStartEvent, Event, NodeEvent, ScalarEvent

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
_WORDS: Final[dict[str, Scalar]] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
"""What a word without quotes means; `yes`, `no`, `on` and `off` are only words."""


def read_document(path: Path, name: str = "") -> tuple[Document, str]:
    """A plan's file as a document, and its text."""
    name = name or str(path)
    text = _content(path, name)
    return parse_document(text, name, is_json=path.suffix == ".json"), text


def parse_document(
    text: str, name: str, is_json: bool = False, is_lenient: bool = False
) -> Document:
    """A text as a document; leniently, with keys that are there twice. Raises `PlanFileError`."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    if len(text) <= SLOW_CHARS_MAX and _HALF_ESCAPED.search(text):
        # The fast parser does not take a character that JSON writes as two halves.
        loader = yaml.SafeLoader
    builder = _Builder(name)
    try:
        if is_json:
            loads(text)
            # Outside of strings, where a tab is white space, YAML does not take it.
            text = text.replace("\t", " ")
        for event in yaml.parse(text, Loader=loader):
            builder.take(event)
    except JSONDecodeError as error:
        where = f"{name}:{error.lineno}:{error.colno}"
        raise PlanFileError(f"this is not JSON: {error.msg}", where=where) from error
    except yaml.MarkedYAMLError as error:
        raise _not_yaml(text, name, error.problem_mark, error.problem) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise PlanFileError("this is neither YAML nor JSON", where=name) from error
    if builder.twice and not is_lenient:
        raise PlanError.together(builder.twice)
    if builder.root is None:
        raise PlanFileError("the file is empty", where=f"{name}:1:1")
    return Document(name, builder.root)


class _Open:
    """A list or a mapping whose end has not come yet."""

    __slots__ = ("event", "items", "keys", "place")

    def __init__(self, event: CollectionStartEvent) -> None:
        self.event = event
        self.place = _place(event.start_mark)
        self.items: list[Located] = []
        self.keys: set[str] = set()


class _Builder:
    """Makes a tree of a parser's events, without recursion."""

    __slots__ = ("_name", "_nodes", "_open", "root", "twice")

    def __init__(self, name: str) -> None:
        self.twice: list[PlanError] = []
        """Keys that are there twice: told only of a file that can be read to its end."""
        self._name = name
        self._nodes = 0
        self._open: list[_Open] = []
        self.root: Located | None = None

    def __repr__(self) -> str:
        return f"<_Builder {self._name}: {self._nodes} values>"

    def take(self, event: Event) -> None:
        """One event of the parser."""
        from yaml import events

        match event:
            case events.AliasEvent():
                raise self._refused(event, f"`*{event.anchor}` stands for something else")
            case events.ScalarEvent():
                self._bound(event, event.tag)
                self._put(self._leaf(event))
            case events.CollectionStartEvent():
                self._bound(event, event.tag)
                self._open.append(_Open(event))
            case events.CollectionEndEvent():
                self._close(_place(event.end_mark))
            case events.DocumentStartEvent() if self.root is not None:
                raise self._wrong(event, "a plan is one document: `---` begins another")

    def _bound(self, event: NodeEvent, tag: str | None) -> None:
        self._nodes += 1
        if self._nodes > NODES_MAX:
            raise self._wrong(event, f"the file has more than {NODES_MAX:,} values")
        if len(self._open) >= DEPTH_MAX:
            raise self._wrong(event, f"this is nested more than {DEPTH_MAX} deep")
        if event.anchor is not None:
            raise self._refused(event, f"`&{event.anchor}` names a value for use elsewhere")
        if tag is not None:
            raise self._wrong(event, f"`{shown(tag)}` is a tag: a plan has plain values only")

    def _leaf(self, event: ScalarEvent) -> Leaf:
        text, style = str(event.value), event.style or ""
        is_plain = style == "" or style not in "'\"|>"
        if _HALVES.search(text):
            whole = _paired(text)
            if whole is None:
                raise self._wrong(event, "half of a character: write it in full")
            text = whole
        value = _scalar(text) if is_plain else text
        place, end = _place(event.start_mark), _place(event.end_mark)
        return Leaf(value, text, place, end, "" if is_plain else style)

    def _put(self, node: Located) -> None:
        if not self._open:
            self.root = node
            return
        top = self._open[-1]
        is_key = not isinstance(top.event, _sequence()) and len(top.items) % 2 == 0
        if is_key:
            self._check_key(top, node)
        top.items.append(node)

    def _check_key(self, top: _Open, node: Located) -> None:
        where = f"{self._name}:{node.place.line}:{node.place.column}"
        if not isinstance(node, Leaf):
            raise PlanFileError("a key is a word, not a list or a mapping", where=where)
        if node.text == "<<" and not node.style:
            raise PlanFileError("`<<` merges mappings: write the keys out", where=where)
        if node.text in top.keys:
            fix = Fix("remove", node.place)
            message = f"`{shown(node.text)}` is there twice"
            self.twice.append(
                PlanFileError(message, where=where, hint="remove one of them", fixes=(fix,))
            )
        top.keys.add(node.text)

    def _close(self, end: Place) -> None:
        top = self._open.pop()
        is_flow = bool(top.event.flow_style)
        if isinstance(top.event, _sequence()):
            self._put(Listing(tuple(top.items), top.place, end, is_flow))
            return
        keys = (key for key in top.items[::2] if isinstance(key, Leaf))
        pairs = tuple(zip(keys, top.items[1::2], strict=True))
        self._put(Keyed(pairs, top.place, end, is_flow))

    def _wrong(self, event: Event, message: str) -> PlanFileError:
        place = _place(event.start_mark)
        return PlanFileError(message, where=f"{self._name}:{place.line}:{place.column}")

    def _refused(self, event: Event, message: str) -> PlanFileError:
        error = self._wrong(event, f"{message}: a plan says everything where it stands")
        error.detail = "values that are used more than once belong into `vars`"
        return error


def _sequence() -> type:
    from yaml.events import SequenceStartEvent

    return SequenceStartEvent


class _Mark(Protocol):
    """Both of the parser's implementations have one of their own."""

    @property
    def line(self) -> int: ...

    @property
    def column(self) -> int: ...


def _place(mark: _Mark | None) -> Place:
    return Place(1, 1) if mark is None else Place(mark.line + 1, mark.column + 1)


def _scalar(text: str) -> Scalar:
    """A word without quotes: nothing, a truth, a number or text."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _REAL.fullmatch(text) and abs(float(text)) < float("inf") else text


def _paired(text: str) -> str | None:
    """Two halves of a character, as JSON writes it, made one."""
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        return None


def _not_yaml(text: str, name: str, mark: _Mark | None, problem: str | None) -> PlanError:
    place = _place(mark)
    where = f"{name}:{place.line}:{place.column}"
    if re.search(r"^ *\t", text, re.M):
        fix = Fix("spaces", place)
        message = "a line begins with a tab"
        return PlanFileError(message, where=where, hint="use spaces", fixes=(fix,))
    return PlanFileError(f"this is not YAML: {problem}", where=where)


def _content(path: Path, name: str) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise PlanFileError(f"cannot read the file: {error.strerror}", where=name) from error
    except ValueError as error:
        raise PlanFileError("this cannot be the name of a file", where=name) from error
    if len(content) > FILE_BYTES_MAX:
        raise PlanFileError(f"the file is larger than {FILE_BYTES_MAX:,} bytes", where=name)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PlanFileError("the file is not UTF-8 text", where=name) from error
