"""The words of a command line as it is read: which commands they form, and where values are.

Laws:
- A word that is read as code (`codewords.py`) has no value in it.
- A variable that has a value is a value from then on: `x={}; eval "$x"` is refused as `eval {}` is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from headway.core.plan.codewords import (
    ASSIGNMENT,
    PRINTS,
    SPLIT,
    VALUE,
    program_of,
    refusal_of,
)
from headway.core.plan.replacement import found_at
from headway.core.plan.shelltext import Piece, Quoting, Slot, Word
from headway.errors import UsageError

BUILT_IN: Final = re.compile(
    r"\.|:|\[|alias|bg|break|builtin|case|cd|command|continue|declare|do|done|echo|elif|else|esac"
    r"|eval|exec|exit|export|false|fc|fg|fi|for|function|getopts|hash|help|history|if|in|jobs|kill"
    r"|let|local|logout|printf|pwd|read|readonly|return|select|set|shift|source|suspend|test|then"
    r"|time|times|trap|true|type|typeset|ulimit|umask|unalias|unset|until|wait|while"
)
"""Names that mean something else to a shell than the program of that name, if there is one."""
OPENING: Final = frozenset(("if", "then", "else", "elif", "while", "until", "do", "!", "{", "time"))
"""Words after which a command begins."""

POSITIONS: Final = frozenset("123456789@*")
"""Names of the parameters of a function or of `set`."""


@dataclass(slots=True)
class Scan:
    """Where the reader is in a template, and what it has understood so far."""

    text: str
    at: int = 0
    depth: int = 0
    pieces: list[Piece] = field(default_factory=list)
    is_simple: bool = True
    """Nothing so far needs a shell."""
    words: list[Word] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    """The words of the current command, without those that name files of redirections."""
    redirects: str = ""
    """The operator before the next word, if it redirects."""
    is_fed: bool = False
    """A value is on the current command's stdin."""
    tainted: set[str] = field(default_factory=set)
    """Variables that have a value."""
    marks: int = 0
    """Values and such variables that were met."""
    word: str | None = None
    """The current word with its quotes removed, if one has begun."""
    parts: list[Piece] = field(default_factory=list)
    is_quoted: bool = False

    @property
    def is_at_end(self) -> bool:
        return self.at >= len(self.text)

    def emit(self, length: int) -> None:
        """Pass some text on that is part of no word: operators, quotes, comments."""
        self.pieces.append(self.text[self.at : self.at + length])
        self.at += length

    def take(self, length: int, meaning: str) -> None:
        """Pass some text on that means this within the current word."""
        self.word = (self.word or "") + meaning
        self.parts.append(meaning)
        self.emit(length)

    def needs_shell(self) -> None:
        """What was read can only be executed by a shell."""
        self.is_simple = False

    def slot(self, quoting: Quoting) -> bool:
        """Take the replacement string that is here, if one is."""
        found = found_at(self.text, self.at)
        if found is None:
            return False
        # The task's own number is harmless wherever it stands.
        self.word = (self.word or "") + ("0" if found.is_number else VALUE)
        self.marks += not found.is_number
        self.parts.append(Slot(found, quoting))
        self.pieces.append(self.parts[-1])
        self.at += len(found.text)
        return True

    def open_quote(self) -> None:
        """A quote makes a word, even an empty one."""
        self.word = self.word or ""
        self.is_quoted = True
        self.emit(1)

    def end_word(self) -> str:
        """What the word was that ends here, if it began a command; nothing otherwise."""
        word, self.word = self.word, None
        if word is None:
            return ""
        self.words.append(Word(tuple(self.parts), self.is_quoted))
        self.parts, self.is_quoted = [], False
        operator, self.redirects = self.redirects, ""
        if operator:
            self.is_fed |= operator == "<<<" and VALUE in word
            return ""
        is_first = not self.said
        if not (is_first and word in OPENING):
            self.said.append(word)
        return word if is_first else ""

    def end_command(self, operator: str) -> None:
        """Judge the command that ends here; with a pipe its output goes to the next one."""
        said, self.said = self.said, []
        hint = refusal_of(said, self.is_fed)
        if hint:
            raise self.refused("a value would be read as program text", hint)
        self._taint(said)
        prints = bool(said) and program_of(said[0]) in PRINTS and VALUE in "".join(said)
        self.is_fed = operator == "|" and (prints or self.is_fed)

    def _taint(self, said: list[str]) -> None:
        """Remember which variables this command gives a value to."""
        name = said[0] if said else ""
        for word in said:
            found = ASSIGNMENT.fullmatch(word)
            if found is not None and VALUE in word:
                self.tainted.add(found[1])
        if name == "set" and VALUE in "".join(said):
            self.tainted |= POSITIONS
        if name in ("for", "select") and VALUE in "".join(said):
            self.tainted.add(said[1])
        if name in ("read", "mapfile", "readarray") and self.is_fed:
            self.tainted.update(said[1:])

    def meaning_of(self, text: str, is_double: bool) -> str:
        """What an expansion with these names in it stands for: a value, if one of them has one."""
        if not self.has_tainted(text):
            return "$"
        self.marks += 1
        return VALUE if is_double else SPLIT

    def has_tainted(self, text: str) -> bool:
        """Whether a variable that has a value is named in a text."""
        return not self.tainted.isdisjoint(re.findall(r"[A-Za-z_]\w*|[0-9@*]", text))

    def simple_words(self) -> tuple[Word, ...] | None:
        """The words, if the template is one program call and nothing else."""
        name = self.said[0] if self.said else VALUE
        is_program = VALUE not in name and "=" not in name and not BUILT_IN.fullmatch(name)
        return tuple(self.words) if self.is_simple and is_program else None

    def refused(self, what: str, hint: str) -> UsageError:
        """The error for what is here."""
        return UsageError(what, where=f"column {self.at + 1}", detail=self.text, hint=hint)
