"""Text with holes: `{{ name }}` stands for a value and computes nothing.

Laws:
- A template is read once; filling it joins pieces and looks at no piece again, so that a value
  that contains `{{ }}` is only text.
- `{{ "{{" }}` is how two braces are written: whatever stands between quotes is taken as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

REFERENCES_MAX: Final = 1_000
"""Holes of one template: more are a mistake and slow to fill."""

NAMES_SHOWN_MAX: Final = 12
ESCAPED: Final = '{{ "{{" }}'
RESULTS: Final = ("output", "stdout")
"""What can be asked of a task: both are its result."""

_HOLE: Final = re.compile(
    r'\s*(?:"(?P<text>[^"\n]*)"|(?P<name>[A-Za-z_][\w-]*(?:\.[\w-]+)*))\s*\}\}', re.ASCII
)


@dataclass(frozen=True, slots=True)
class Ref:
    """The name in a hole: `matrix.view` is (`matrix`, `view`)."""

    names: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(self.names)

    @property
    def task(self) -> str:
        """The task whose result it is; empty if it is not a result."""
        is_result = len(self.names) == 3 and self.names[0] == "tasks" and self.names[2] in RESULTS
        return self.names[1] if is_result else ""

    @property
    def var(self) -> str:
        """The variable that it is; empty if it is none."""
        return self.names[1] if len(self.names) == 2 and self.names[0] == "vars" else ""


@dataclass(frozen=True, slots=True)
class Template:
    """Text and holes in turn."""

    source: str
    parts: tuple[str | Ref, ...]

    @property
    def refs(self) -> tuple[Ref, ...]:
        """The names in its holes."""
        return tuple(part for part in self.parts if isinstance(part, Ref))

    def render(self, fill: Callable[[Ref], str]) -> str:
        """The text with its holes filled."""
        return "".join([part if isinstance(part, str) else fill(part) for part in self.parts])


@dataclass(frozen=True, slots=True)
class Broken:
    """Why a text is no template, where, and the text without that fault."""

    offset: int
    reason: str
    repaired: str


@dataclass(frozen=True, slots=True)
class Scope:
    """The names that one task's templates can use."""

    fields: tuple[str, ...] | None = ()
    """Of an item; `None` if any may be there."""
    has_item: bool = False
    has_index: bool = False
    matrix: tuple[str, ...] = ()
    vars: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    """Whose results it is given, because it needs them."""
    state: tuple[str, ...] | None = None
    """Keys of the shared state that the plan names; others can be used too. `None`: none can."""
    effects: tuple[str, ...] = ()
    """Keys that cannot be read."""

    def names(self) -> list[str]:
        """All of them, as they are written."""
        item = ["item", *(f"item.{field}" for field in self.fields or ())] if self.has_item else []
        return [
            *item,
            *(["index"] if self.has_index else []),
            *(f"matrix.{name}" for name in self.matrix),
            *(f"vars.{name}" for name in self.vars),
            *(f"tasks.{name}.output" for name in self.tasks),
            *(["state", *(f"state.{key}" for key in self.state)] if self.state else []),
        ]

    def has(self, ref: Ref) -> bool:
        """Whether the name can be filled."""
        match ref.names:
            case ("item", first, *_) if self.has_item:
                return self.fields is None or first in self.fields
            case ("tasks", name, last):
                return name in self.tasks and last in RESULTS
            case ("state",):
                return self.state is not None
            case ("state", key):
                return self.state is not None and key not in self.effects
        return str(ref) in self.names()

    def nearest(self, ref: Ref) -> str:
        """The name that was probably meant; empty if none is near."""
        near = get_close_matches(str(ref), self.names()[:REFERENCES_MAX], n=1)
        return near[0] if near else ""

    def shown(self) -> str:
        """What there is, for a hint."""
        names = self.names()
        more = [f"and {len(names) - NAMES_SHOWN_MAX} more"] if len(names) > NAMES_SHOWN_MAX else []
        return ", ".join([*names[:NAMES_SHOWN_MAX], *more]) or "nothing"


def parse_template(text: str) -> Template | Broken:
    """A text as text and holes, or what is wrong with it."""
    parts: list[str | Ref] = []
    place, refs = 0, 0
    while (start := text.find("{{", place)) >= 0:
        found = _HOLE.match(text, start + 2)
        refs += 1
        if found is None or refs > REFERENCES_MAX:
            reason = _reason(text, start) if found is None else f"more than {REFERENCES_MAX} holes"
            return Broken(start, reason, text[:start] + _escaped(text[start:], found is None))
        name = found["name"]
        parts += [text[place:start], Ref(tuple(name.split("."))) if name else found["text"]]
        place = found.end()
    parts.append(text[place:])
    return Template(text, tuple(part for part in parts if part))


def references(text: str) -> Iterator[tuple[str, Ref]]:
    """Every hole of a text as it is written, with its name; what is no hole is passed over."""
    for start in re.finditer(r"\{\{", text):
        found = _HOLE.match(text, start.end())
        if found is not None and found["name"]:
            yield text[start.start() : found.end()], Ref(tuple(found["name"].split(".")))


def _escaped(text: str, keeps_names: bool) -> str:
    """The text with braces that are no hole, or all braces, written as text."""
    pieces: list[str] = []
    place = 0
    while (start := text.find("{{", place)) >= 0:
        found = _HOLE.match(text, start + 2) if keeps_names else None
        end = start + 2 if found is None else found.end()
        pieces += [text[place:start], ESCAPED if found is None else text[start:end]]
        place = end
    return "".join([*pieces, text[place:]])


def _reason(text: str, start: int) -> str:
    end = text.find("}}", start)
    if end < 0:
        return "`{{` is never closed"
    hole = text[start : min(end + 2, start + 40)]
    return f"`{hole}` is not a name: templates have no logic"
