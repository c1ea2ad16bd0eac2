"""Carries out what a hint says: one edit of a plan's text, leaving the rest as it was written."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from json import dumps
from typing import Final

from headway.errors import Fix, Place, PlanFileError
from headway.plans.document import parse_document
from headway.plans.spec import DocumentList, Keyed, Leaf, Located

_BREAK: Final = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
"""What ends a line in YAML."""

_PLAIN: Final = re.compile(r"[A-Za-z$][A-Za-z0-9_./$-]*", re.ASCII)
_WORDS: Final = frozenset(("true", "false", "null", "yes", "no", "on", "off", "y", "n"))


@dataclass(frozen=True, slots=True)
class _Owned:
    """A node with what it stands in."""

    node: Located
    owner: Keyed | DocumentList | None = None
    key: Leaf | None = None


def apply_fixes(text: str, fixes: Iterable[Fix]) -> str:
    """A plan's text with several edits, the last place first, so that places stay true."""
    for fix in sorted(fixes, key=lambda fix: fix.place, reverse=True):
        text = apply_fix(text, fix)
    return text


def apply_fix(text: str, fix: Fix) -> str:
    """A plan's text with one edit. Raises `PlanFileError` if it does not apply to this text."""
    if fix.kind == "text":
        return str(fix.value)
    if fix.kind == "spaces":
        return re.sub(r"^[ \t]+", lambda found: found[0].replace("\t", "  "), text, flags=re.M)
    source = _Source(text)
    match fix.kind:
        case "rename":
            return source.rename(fix)
        case "add":
            return source.add(fix)
        case "remove":
            return source.remove(fix)
    return source.replace(fix)


class _Source:
    """A text with its nodes."""

    __slots__ = ("_keys", "_lines", "_mappings", "_text", "_values")

    def __init__(self, text: str) -> None:
        self._text = text
        self._lines = [0, *(found.end() for found in _BREAK.finditer(text))]
        self._keys: dict[Place, _Owned] = {}
        self._values: dict[Place, _Owned] = {}
        self._mappings: dict[Place, Keyed] = {}
        self._index(parse_document(text.replace("\t", " "), "plan", is_lenient=True).root)

    def rename(self, fix: Fix) -> str:
        """Another key in place of one."""
        key = self._found(self._keys, fix).key
        if key is None:
            raise _stale(fix)
        is_flow = self._text[self._at(key.place)] == '"'
        return self._cut(key.place, self._at(key.end), _written(fix.value, is_flow))

    def replace(self, fix: Fix) -> str:
        """Another value in place of one."""
        owned = self._found(self._values, fix)
        node, value = owned.node, str(fix.value)
        if fix.kind == "replace":
            value = _written(fix.value, _is_flow(owned.owner))
        start, end = self._at(node.place), self._end(node)
        is_block = not isinstance(node, Leaf) and not node.is_flow
        if owned.key is not None and (is_block or start == end):
            # What begins on a line of its own comes up to its key.
            start = self._text.index(":", self._at(owned.key.end)) + 1
            value = f" {value}"
        if self._text[start:end].endswith(("\n", "\r")):
            value += "\n"
        return self._text[:start] + value + self._text[max(start, end) :]

    def add(self, fix: Fix) -> str:
        """A key with its value at the beginning of a mapping."""
        mapping = self._mappings.get(fix.place)
        if mapping is None:
            raise _stale(fix)
        key, *inner = fix.key.split(".")
        value: str = _written(fix.value, mapping.is_flow)
        if inner:
            value = dumps(fix.value)
            for name in reversed(inner):
                value = f"{{{dumps(name)}: {value}}}"
        start = self._at(mapping.place)
        if mapping.is_flow:
            comma = ", " if mapping.pairs else ""
            pair = f"{dumps(key)}: {value}{comma}"
            return self._text[: start + 1] + pair + self._text[start + 1 :]
        indent = " " * (mapping.place.column - 1)
        return self._text[:start] + f"{key}: {value}\n{indent}" + self._text[start:]

    def remove(self, fix: Fix) -> str:
        """Without a key and its value, or without an element of a list."""
        owned = self._keys.get(fix.place) or self._found(self._values, fix)
        place = owned.key.place if owned.key is not None else owned.node.place
        start, end = self._at(place), self._end(owned.node)
        if owned.key is not None:
            end = max(end, self._text.index(":", self._at(owned.key.end)) + 1)
            # A key that YAML takes for a complex one is introduced by a question mark.
            if mark := re.search(r"\?[ \n]+$", self._text[:start]):
                start = mark.start()
        if _is_flow(owned.owner):
            return self._without_comma(start, end)
        line = self._lines[place.line - 1]
        if not self._text[line:start].strip(" -" if owned.key is None else " "):
            rest = _BREAK.search(self._text, end)
            is_whole = end in self._lines and end > start
            return (
                self._text[:line] + self._text[end if is_whole else rest.end() if rest else end :]
            )
        return self._moved_up(owned, start, end)

    def _moved_up(self, owned: _Owned, start: int, end: int) -> str:
        """The first key of a mapping in a list: the next one takes its place."""
        pairs = owned.owner.pairs if isinstance(owned.owner, Keyed) else ()
        starts = [self._at(key.place) for key, _ in pairs]
        later = [place for place in starts if place > start]
        if later:
            return self._text[:start] + self._text[min(later) :]
        return self._text[:start] + "{}" + self._text[end:]

    def _without_comma(self, start: int, end: int) -> str:
        after = re.compile(r"\s*,\s*").match(self._text, end)
        if after is not None:
            return self._text[:start] + self._text[after.end() :]
        before = re.search(r",\s*$", self._text[:start])
        return self._text[: before.start() if before else start] + self._text[end:]

    def _index(self, root: Located) -> None:
        stack = [_Owned(root)]
        while stack:
            owned = stack.pop()
            node = owned.node
            self._values.setdefault(node.place, owned)
            if isinstance(node, DocumentList):
                stack += (_Owned(item, node) for item in node.items)
            elif isinstance(node, Keyed):
                self._mappings[node.place] = node
                for key, value in node.pairs:
                    self._keys[key.place] = _Owned(value, node, key)
                    stack.append(_Owned(value, node, key))

    def _found(self, nodes: dict[Place, _Owned], fix: Fix) -> _Owned:
        if fix.place not in nodes:
            raise _stale(fix)
        return nodes[fix.place]

    def _at(self, place: Place) -> int:
        line = min(place.line, len(self._lines)) - 1
        return min(self._lines[line] + place.column - 1, len(self._text))

    def _end(self, node: Located) -> int:
        """The end of a node; of a block, that of the last thing in it."""
        while not isinstance(node, Leaf) and not node.is_flow:
            node = node.items[-1] if isinstance(node, DocumentList) else node.pairs[-1][1]
        return self._at(node.end)

    def _cut(self, start: Place, end: int, new: str) -> str:
        return self._text[: self._at(start)] + new + self._text[end:]


def _is_flow(owner: Keyed | DocumentList | None) -> bool:
    return owner is not None and owner.is_flow


def _written(value: str | int | tuple[str, ...], is_flow: bool) -> str:
    """A value as YAML: plain where that is safe, otherwise as JSON, which is YAML too."""
    if isinstance(value, tuple):
        return f"[{', '.join(_written(one, is_flow) for one in value)}]"
    if isinstance(value, str) and not is_flow and _is_plain(value):
        return value
    return dumps(value)


def _is_plain(text: str) -> bool:
    return _PLAIN.fullmatch(text) is not None and text.lower() not in _WORDS


def _stale(fix: Fix) -> PlanFileError:
    place = f"{fix.place.line}:{fix.place.column}"
    return PlanFileError(f"the plan has changed: there is nothing to {fix.kind} at {place}")
