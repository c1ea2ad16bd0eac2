"""The words of a command line as it is read: which are whose arguments, and which are programs.

Law: a word that a program reads as program text (`sh -c '... {} ...'`, `eval`, `ssh`) has no value
in it, except one that is nothing but a value: then the user's values are the programs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from headway.core.plan.replacement import found_at
from headway.core.plan.shelltext import Piece, Quoting, Slot, Word
from headway.errors import UsageError

VALUE: Final = "\0"
"""Stands for a value in a word that is looked at; no template can hold it."""

BUILT_IN: Final = re.compile(
    r"\.|:|\[|alias|bg|break|builtin|case|cd|command|continue|declare|do|done|echo|elif|else|esac"
    r"|eval|exec|exit|export|false|fc|fg|fi|for|function|getopts|hash|help|history|if|in|jobs|kill"
    r"|let|local|logout|printf|pwd|read|readonly|return|select|set|shift|source|suspend|test|then"
    r"|time|times|trap|true|type|typeset|ulimit|umask|unalias|unset|until|wait|while"
)
"""Names that mean something else to a shell than the program of that name, if there is one."""
OPENING: Final = frozenset(("if", "then", "else", "elif", "while", "until", "do", "!", "{", "time"))
"""Words after which a command begins."""

SCRIPTS: Final = (
    (re.compile(r"(?:ba|da|a|k|mk|z|fi|tc|c|)sh|su|script|sg|python|pypy"), re.compile(r"-\w*c")),
    (re.compile(r"perl|ruby|node|bun|lua|R|Rscript|osascript"), re.compile(r"-\w*[eEp]|--eval")),
    (re.compile(r"php"), re.compile(r"-r")),
)
"""Programs that read an argument as a program, and the option before it."""
SSH_OPTIONS: Final = frozenset("-" + letter for letter in "BbcDEeFIiJLlmOopQRSWw")
"""Options of ssh whose value is the next word."""

SCRIPT_HINT: Final = "give the value to the program as an argument: sh -c 'wc \"$1\"' sh {}"
EVAL_HINT: Final = "leave out eval"
SSH_HINT: Final = "send the value as data: printf '%s\\0' {} | ssh HOST 'xargs -0 COMMAND'"


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
    """The words of the current command."""
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
        self.word = (self.word or "") + VALUE
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
        hint = _script_hint(self.said, word)
        if VALUE in word and hint:
            raise self.refused("a value would be read as program text", hint)
        is_first = not self.said
        if not (is_first and word in OPENING):
            self.said.append(word)
        return word if is_first else ""

    def simple_words(self) -> tuple[Word, ...] | None:
        """The words, if the template is one program call and nothing else."""
        name = self.said[0] if self.said else VALUE
        is_program = VALUE not in name and "=" not in name and not BUILT_IN.fullmatch(name)
        return tuple(self.words) if self.is_simple and is_program else None

    def refused(self, what: str, hint: str) -> UsageError:
        """The error for what is here."""
        return UsageError(what, where=f"column {self.at + 1}", detail=self.text, hint=hint)


def _script_hint(said: list[str], word: str) -> str:
    """What to write instead, if this word after those is program text; nothing if it is not."""
    if said[:1] == ["eval"] or said[:2] in (["command", "eval"], ["builtin", "eval"]):
        return EVAL_HINT
    names = [one.rpartition("/")[2].rstrip("0123456789.") for one in said]
    if word != VALUE:
        for programs, option in SCRIPTS:
            if names and option.fullmatch(said[-1]) and any(map(programs.fullmatch, names)):
                return SCRIPT_HINT
    if "ssh" in names and _has_destination(said[names.index("ssh") + 1 :]):
        return SSH_HINT
    return ""


def _has_destination(words: Sequence[str]) -> bool:
    """Whether the host has been named, after which ssh takes a command."""
    is_value = False
    for word in words:
        if not is_value and not word.startswith("-"):
            return True
        is_value = not is_value and word in SSH_OPTIONS
    return False
