"""A template that was read: text and places for values, and what to execute for given arguments.

Law: the text that a shell is given depends on the template and on how many arguments there are,
never on an argument. Values are the shell's positional parameters, taken into variables at once and
then forgotten: functions and `set` of the template have their own, and `$1` is empty in a template
of GNU parallel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from headway.core.plan.replacement import Replacement

Quoting = Literal["plain", "double", "single", "bare"]
"""How the template quotes a place; `bare` is arithmetic, where only numbers are let in."""

SHELL: Final = "/bin/sh"
VARIABLE: Final = "_hw"


@dataclass(frozen=True, slots=True)
class Slot:
    """A place in the template for a value."""

    replacement: Replacement
    quoting: Quoting


Piece = str | Slot


@dataclass(frozen=True, slots=True)
class Word:
    """A word that needs no shell: its pieces, and whether quotes make it one even if empty."""

    pieces: tuple[Piece, ...]
    is_quoted: bool


@dataclass(frozen=True, slots=True)
class ShellText:
    """A template, read."""

    pieces: tuple[Piece, ...]
    words: tuple[Word, ...] | None
    """The template as one plain program call, if that is all it is: then no shell is needed."""

    def argv(self, arguments: Sequence[str], number: int) -> tuple[str, ...]:
        """What to execute for these arguments."""
        if self.words is not None:
            return _call(self.words, arguments, number)
        count = len(arguments)
        script = self.script(count)
        return (SHELL, "-c", script, "sh", *self._parameters(arguments, number))

    def script(self, count: int) -> str:
        """The text for the shell; the same for all arguments of this count."""
        names: dict[tuple[str, int], str] = {}
        texts = [
            piece if isinstance(piece, str) else _reference(piece, count, names)
            for piece in self.pieces
        ]
        assigned = " ".join(f"{name}=${{{i}}}" for i, name in enumerate(names.values(), 1))
        return (f"{assigned}; set --; " if names else "") + "".join(texts)

    def _parameters(self, arguments: Sequence[str], number: int) -> list[str]:
        values: dict[tuple[str, int], str] = {}
        for piece in self.pieces:
            if isinstance(piece, Slot):
                given = piece.replacement.values(arguments, number)
                values |= {(_name(piece), i): value for i, value in enumerate(given)}
        return list(values.values())


def _name(slot: Slot) -> str:
    """Slots that stand for the same values share their variables."""
    return slot.replacement.text


def _reference(slot: Slot, count: int, names: dict[tuple[str, int], str]) -> str:
    size = 1 if slot.replacement.is_number else len(slot.replacement.chosen(count))
    keys = [(_name(slot), i) for i in range(size)]
    found = [names.setdefault(key, f"{VARIABLE}{len(names) + 1}") for key in keys]
    expanded = [f"${{{name}}}" for name in found]
    match slot.quoting:
        case "plain":
            return " ".join(f'"{text}"' for text in expanded)
        case "single":
            return f"'\"{' '.join(expanded)}\"'" if expanded else ""
        case _:
            return " ".join(expanded)


def _call(words: tuple[Word, ...], arguments: Sequence[str], number: int) -> tuple[str, ...]:
    """The words of a program call, as a shell would have made them."""
    argv: list[str] = []
    for word in words:
        text: str | None = "" if word.is_quoted else None
        for piece in word.pieces:
            if isinstance(piece, str):
                text = (text or "") + piece
                continue
            values = piece.replacement.values(arguments, number)
            if piece.quoting != "plain":
                values = (" ".join(values),)
            for i, value in enumerate(values):
                if i > 0 and text is not None:
                    argv.append(text)
                    text = None
                text = (text or "") + value
        if text is not None:
            argv.append(text)
    return tuple(argv)
