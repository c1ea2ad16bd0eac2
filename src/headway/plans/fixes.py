"""Applies a suggested fix to a plan's text."""

from __future__ import annotations

import re
from json import dumps
from typing import Final

from headway.errors import Fix, Place, PlanFileError
from headway.plans.document import parse_document
from headway.plans.spec import DocumentList, Keyed, Leaf, Located

_BREAK: Final = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
"""What ends a line in YAML."""

_PLAIN: Final = re.compile(r"[A-Za-z$][A-Za-z0-9_./$-]*", re.ASCII)
_WORDS: Final = frozenset(("true", "false", "null", "yes", "no", "on", "off", "y", "n"))


_Owned = tuple[Located, Keyed | DocumentList | None, Leaf | None]
"""A node, what it stands in, and its key."""


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
        _, _, key = self._found(self._keys, fix)
        if key is None:
            raise _stale(fix)
        is_flow = self._text[self._at(key.place)] == '"'
        start, end = self._at(key.place), self._at(key.end)
        return self._text[:start] + _written(fix.value, is_flow) + self._text[end:]

    def replace(self, fix: Fix) -> str:
        """Another value in place of one."""
        node, owner, key = self._found(self._values, fix)
        value = str(fix.value)
        if fix.kind == "replace":
            value = _written(fix.value, _is_flow(owner))
        start, end = self._at(node.place), self._end(node)
        is_block = not isinstance(node, Leaf) and not node.is_flow
        if key is not None and (is_block or start == end):
            # What begins on a line of its own comes up to its key.
            start = self._text.index(":", self._at(key.end)) + 1
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
        node, owner, key = self._keys.get(fix.place) or self._found(self._values, fix)
        place = key.place if key is not None else node.place
        start, end = self._at(place), self._end(node)
        if key is not None:
            end = max(end, self._text.find(":", self._at(key.end)) + 1)
            # A key that YAML takes for a complex one is introduced by a question mark.
            if mark := re.search(r"\?[ \n]+$", self._text[:start]):
                start = mark.start()
        if _is_flow(owner):
            return self._without_comma(start, end)
        line = self._lines[place.line - 1]
        if not self._text[line:start].strip(" -" if key is None else " "):
            rest = _BREAK.search(self._text, end)
            is_whole = end in self._lines and end > start
            return (
                self._text[:line] + self._text[end if is_whole else rest.end() if rest else end :]
            )
        # The first key of a mapping in a list: the next one takes its place.
        pairs = owner.pairs if isinstance(owner, Keyed) else ()
        later = [at for other, _ in pairs if (at := self._at(other.place)) > start]
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
        stack: list[_Owned] = [(root, None, None)]
        while stack:
            owned = stack.pop()
            node = owned[0]
            self._values.setdefault(node.place, owned)
            if isinstance(node, DocumentList):
                stack += ((item, node, None) for item in node.items)
            elif isinstance(node, Keyed):
                self._mappings[node.place] = node
                for key, value in node.pairs:
                    self._keys[key.place] = (value, node, key)
                    stack.append((value, node, key))

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


def _is_flow(owner: Keyed | DocumentList | None) -> bool:
    return owner is not None and owner.is_flow


def _written(value: str | int | tuple[str, ...], is_flow: bool) -> str:
    """A value as YAML: plain where that is safe, otherwise as JSON, which is YAML too."""
    if isinstance(value, tuple):
        return f"[{', '.join(_written(one, is_flow) for one in value)}]"
    if isinstance(value, str) and not is_flow and _PLAIN.fullmatch(value):
        return value if value.lower() not in _WORDS else dumps(value)
    return dumps(value)


def _stale(fix: Fix) -> PlanFileError:
    place = f"{fix.place.line}:{fix.place.column}"
    return PlanFileError(f"the plan has changed: there is nothing to {fix.kind} at {place}")
