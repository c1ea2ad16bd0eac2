"""The words of a command line as it is read: which commands they form, and where values are.

Laws:
- A word that is read as code (`codewords.py`) has no value in it.
- A variable that has a value is a value from then on: `x={}; eval "$x"` is refused as `eval {}` is.
- A value that is piped into a group, a loop or a function is on the stdin of all that follows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from headway.core.plan.codewords import (
    ASSIGNMENT,
    HELD,
    NAME_HINT,
    NAMES,
    NUMBER_HINT,
    PROCESS,
    SPLIT,
    VALUE,
    VARIABLES,
    compares_value,
    is_integer,
    prints_value,
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
OPENING: Final = frozenset(
    ("if", "then", "else", "elif", "while", "until", "do", "!", "{", "time", "coproc")
)
"""Words after which a command begins."""
GROUPS: Final = frozenset(("{", "if", "while", "until", "for", "case", "select"))
"""Words that begin several commands with one stdin."""
CLOSING: Final = frozenset(("}", "fi", "done", "esac", "exec"))
"""Words whose redirections are those of other commands."""
SUBSCRIPT: Final = re.compile(r"[A-Za-z_]\w*\[([^\]]*)\](?:\+?=.*)?", re.DOTALL)

POSITIONS: Final = frozenset("123456789@*")
"""Names of the parameters of a function or of `set`."""
ALL_FED: Final = "<"
"""Stands among the variables that have a value for the stdin of all commands."""


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
    is_printed: bool = False
    """A command before printed a value."""
    is_comparing: bool = False
    """Within `[[ ]]`."""
    codes: list[str] = field(default_factory=list)
    """What the template gives to `eval` and `trap`."""
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
            if operator == "<<<" and VALUE in word:
                self.is_fed = True
                if not self.said or self.said[0] in CLOSING:
                    self.tainted.add(ALL_FED)
            return ""
        is_first = not self.said
        if is_first and (word == "coproc" or (self.is_fed and word in GROUPS)):
            self.tainted.add(ALL_FED)
        self.is_comparing = (self.is_comparing or (is_first and word == "[[")) and word != "]]"
        if word == "{" and self.said[:1] == ["function"]:
            self.said.clear()
        elif not (is_first and word in OPENING):
            self.said.append(word)
        return word if is_first else ""

    def end_command(self, operator: str) -> None:
        """Judge the command that ends here; with a pipe its output goes to the next one."""
        said, self.said = self.said, []
        if not said and operator in ("\n", "("):
            return  # A pipe goes on in the next line, or in a group.
        is_fed = self.is_fed or ALL_FED in self.tainted
        hint = refusal_of(said, is_fed) or self._number_hint(said)
        if not hint and self._calls_function(said):
            hint = refusal_of(said[1:], is_fed)
        if hint:
            raise self.refused("a value would be read as program text", hint)
        if said and said[0] in ("eval", "trap") and self.has_tainted(" ".join(said)):
            self.codes += [" ".join(said[1:])] if said[0] == "eval" else said[1:]
        self._taint(said, is_fed)
        is_printed = prints_value(said)
        self.is_printed |= is_printed
        has_function = self.tainted >= POSITIONS
        is_group = not said or said[0] in CLOSING
        if (self.is_fed and has_function) or (is_group and PROCESS in said):
            self.tainted.add(ALL_FED)
        is_printed |= self.is_printed and (is_group or has_function)
        self.is_fed = operator == "|" and (is_printed or is_fed)

    def _calls_function(self, said: list[str]) -> bool:
        """Whether a function of the template is given a command: `f() { "$@"; }; f eval {}`."""
        if len(said) < 2 or VALUE in said[1]:
            return False
        name = re.escape(said[0])
        pattern = rf"(?<![\w-]){name}\s*\(\s*\)|\bfunction\s+{name}\b"
        return re.search(pattern, self.text) is not None

    def _number_hint(self, said: list[str]) -> str:
        """What to write instead, if bash would compute with a value, or with a variable of one."""
        name = said[0] if said else ""
        numbers = [VALUE if self.has_tainted(word) else word for word in said]
        is_code = (self.is_comparing or "]]" in said) and compares_value(numbers)
        is_code |= name == "let" and VALUE in numbers
        is_code |= name in NAMES and is_integer(said) and VALUE in numbers
        for word in said:
            found = SUBSCRIPT.fullmatch(word)
            is_code |= found is not None and self.has_tainted(found[1])
        return NUMBER_HINT if is_code else ""

    def _taint(self, said: list[str], is_fed: bool) -> None:
        """Remember which variables this command gives a value to."""
        words = [word for word in said if word not in ("command", "builtin")]
        while words and ASSIGNMENT.fullmatch(words[0]):
            del words[0]
        name, has_value = words[0] if words else "", VALUE in "".join(words)
        names = _assigned(said, self.tainted)
        if name == "set" and has_value:
            names |= POSITIONS
        has_positions = "@" in self.tainted
        if name in ("for", "select") and (has_value or (len(words) == 2 and has_positions)):
            names.add(words[1])
        if name == "getopts" and (has_value or has_positions):
            names.add("OPTARG")
        if name == "printf" and has_value:
            names.update(re.findall(r" -v ?(\w+)", " ".join(words)))
        if name in ("read", "mapfile", "readarray") and is_fed:
            names.update(words[1:], ("REPLY", "MAPFILE"))
        if name in ("declare", "typeset", "local"):
            if any(re.fullmatch(r"-\w*n\w*", word) for word in words):
                names.update(*(word.split("=") for word in words if self.has_tainted(word)))
            if is_integer(words):
                self.tainted.update(f"{word.partition('=')[0]}#" for word in words)
        for one in names:
            if VARIABLES.fullmatch(f"{one}=") or f"{one}#" in self.tainted:
                raise self.refused("a variable with a value would be executed", NAME_HINT)
        self.tainted |= names

    def meaning_of(self, text: str, is_double: bool) -> str:
        """What an expansion with these names in it stands for: a value, if one of them has one."""
        if not self.has_tainted(text):
            return "$"
        self.marks += 1
        return HELD if is_double else SPLIT

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


def _assigned(said: list[str], tainted: set[str]) -> set[str]:
    """Variables that are assigned a value, or the name of one that has a value.

    In arithmetic, the name of a variable stands for its content.
    """
    names = set[str]()
    for word in said:
        found, content = ASSIGNMENT.fullmatch(word), word.partition("=")[2]
        if found and (VALUE in word or (content.isidentifier() and content in tainted)):
            names.add(found[1])
    return names
