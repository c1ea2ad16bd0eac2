"""Reads the command line of a template as a shell would, to know how each `{}` is quoted.

What cannot be kept apart from the text is refused with what to write instead: values within
arithmetic, backticks, `${...}`, here-documents, and after a bare `$`.

A place that is misread (shells have dark corners) may split a value into words, or leave it out; it
can never make a value part of the text, because no value is there when the text is made.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal

from msgspec import Struct, field

from headway.errors import UsageError
from headway.plans.code_words import (
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

# What `{}` and its relatives stand for: which arguments, and which part of each.

PATTERN: Final = re.compile(
    r"\{(?:(?P<number>#)|(?P<place>%)|(?P<position>-?[1-9][0-9]{0,5})?(?P<part>\.|//|/\.|/)?)\}"
)
"""`{}` `{.}` `{/}` `{//}` `{/.}`, each also with a position, `{#}`, and `{%}`, which is refused."""

SAFE: Final = re.compile(r"[-_.+a-zA-Z0-9/]+")
"""What GNU parallel prints without quotes."""


class Replacement(Struct, frozen=True):
    """One replacement string."""

    text: str
    position: int | None = None
    """The argument that is meant, from 1 on, or from the last with -1; None means all."""
    part: str = ""
    """`.` without extension, `/` the name, `//` the folder, `/.` the name without extension."""
    is_number: bool = False
    """`{#}`: the task's own number, from 1 on."""

    def chosen(self, count: int) -> tuple[int, ...]:
        """Which of so many arguments it stands for, from 0 on; none if there is no such one."""
        if self.position is None:
            return tuple(range(count))
        index = self.position - 1 if self.position > 0 else count + self.position
        return (index,) if 0 <= index < count else ()

    def values(self, arguments: Sequence[str], number: int) -> tuple[str, ...]:
        """What it stands for among these arguments of this task."""
        if self.is_number:
            return (str(number),)
        return tuple(part_of(arguments[i], self.part) for i in self.chosen(len(arguments)))


def found_at(text: str, at: int) -> Replacement | None:
    """The replacement string that begins there, if one does."""
    match = PATTERN.match(text, at)
    if match is None:
        return None
    position = match["position"]
    return Replacement(
        text=match[0],
        position=int(position) if position else None,
        part=match["part"] or "",
        is_number=match["number"] is not None,
    )


def part_of(value: str, part: str) -> str:
    """A value without its extension, its folder, or both; or the folder alone."""
    if part == "//":  # As dirname(1): `.` for a bare name, without slashes at the end.
        kept = value.rstrip("/")
        if not kept:
            return "/" if value else "."
        head, slash, _ = kept.rpartition("/")
        return (head.rstrip("/") or "/") if slash else "."
    if part.startswith("/"):
        value = value.rpartition("/")[2]
    if part.endswith("."):
        stem, dot, extension = value.rpartition(".")
        value = stem if dot and "/" not in extension else value
    return value


def quoted(value: str) -> str:
    """A value as GNU parallel prints it for a shell: to be read, never to be executed."""
    if SAFE.fullmatch(value):
        return value
    if not value:
        return "''"
    text = "'" + value.replace("'", "'\"'\"'") + "'"
    return text.removeprefix("''").removesuffix("''")


# A template that was read: text and places for values, and what to execute for given arguments.

Quoting = Literal["plain", "double", "single", "bare"]
"""How the template quotes a place; `bare` is arithmetic, where only numbers are let in."""

SHELL: Final = "/bin/sh"
VARIABLE: Final = "_hw"


Slot = tuple[Replacement, Quoting]
"""A place in the template for a value."""

Piece = str | Slot

ShellWord = tuple[tuple[Piece, ...], bool]
"""A word that needs no shell: its pieces, and whether quotes make it one even if empty."""


class ShellText(Struct, frozen=True):
    """A template, read."""

    pieces: tuple[Piece, ...]
    words: tuple[ShellWord, ...] | None
    """The template as one plain program call, if that is all it is: then no shell is needed."""

    def argv(self, arguments: Sequence[str], number: int) -> tuple[str, ...]:
        """What to execute for these arguments."""
        if self.words is not None:
            return _call(self.words, arguments, number)
        values: dict[tuple[str, int], str] = {}
        for piece in self.pieces:
            if not isinstance(piece, str):
                given = piece[0].values(arguments, number)
                values |= {(piece[0].text, i): value for i, value in enumerate(given)}
        return (SHELL, "-c", self.script(len(arguments)), "sh", *values.values())

    def script(self, count: int) -> str:
        """The text for the shell; the same for all arguments of this count."""
        names: dict[tuple[str, int], str] = {}
        texts = [
            piece if isinstance(piece, str) else _reference(piece, count, names)
            for piece in self.pieces
        ]
        assigned = " ".join(f"{name}=${{{i}}}" for i, name in enumerate(names.values(), 1))
        return (f"{assigned}; set --; " if names else "") + "".join(texts)


def _reference(slot: Slot, count: int, names: dict[tuple[str, int], str]) -> str:
    """A slot in the text for the shell; slots of the same values share their variables."""
    replacement, quoting = slot
    size = 1 if replacement.is_number else len(replacement.chosen(count))
    keys = [(replacement.text, i) for i in range(size)]
    found = [names.setdefault(key, f"{VARIABLE}{len(names) + 1}") for key in keys]
    expanded = [f"${{{name}}}" for name in found]
    match quoting:
        case "plain":
            return " ".join(f'"{text}"' for text in expanded)
        case "single":
            return f"'\"{' '.join(expanded)}\"'" if expanded else ""
        case _:
            return " ".join(expanded)


def _call(words: tuple[ShellWord, ...], arguments: Sequence[str], number: int) -> tuple[str, ...]:
    argv: list[str] = []
    for pieces, is_quoted in words:
        text: str | None = "" if is_quoted else None
        for piece in pieces:
            if isinstance(piece, str):
                text = (text or "") + piece
                continue
            values = piece[0].values(arguments, number)
            if piece[1] != "plain":
                values = (" ".join(values),)
            for i, value in enumerate(values):
                if i > 0 and text is not None:
                    argv.append(text)
                    text = None
                text = (text or "") + value
        if text is not None:
            argv.append(text)
    return tuple(argv)


# The words of a command line as it is read: which commands they form, and where values are.

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


class Scan(Struct):
    """Where the reader is in a template, and what it has understood so far."""

    text: str
    at: int = 0
    depth: int = 0
    pieces: list[Piece] = field(default_factory=list)
    is_simple: bool = True
    """Nothing so far needs a shell."""
    words: list[ShellWord] = field(default_factory=list)
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

    def slot(self, quoting: Quoting) -> bool:
        """Take the replacement string that is here, if one is."""
        found = found_at(self.text, self.at)
        if found is None:
            return False
        # The task's own number is harmless wherever it stands.
        self.word = (self.word or "") + ("0" if found.is_number else VALUE)
        self.marks += not found.is_number
        self.parts.append((found, quoting))
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
        self.words.append((tuple(self.parts), self.is_quoted))
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

    def simple_words(self) -> tuple[ShellWord, ...] | None:
        """The words, if the template is one program call and nothing else."""
        name = self.said[0] if self.said else VALUE
        is_program = VALUE not in name and "=" not in name and not BUILT_IN.fullmatch(name)
        return tuple(self.words) if self.is_simple and is_program else None

    def refused(self, what: str, hint: str) -> UsageError:
        """The error for what is here."""
        return UsageError(what, where=f"column {self.at + 1}", detail=self.text, hint=hint)


def _assigned(said: list[str], tainted: set[str]) -> set[str]:
    """Variables that are assigned a value, or the name of one: arithmetic reads its content."""
    names = set[str]()
    for word in said:
        found, content = ASSIGNMENT.fullmatch(word), word.partition("=")[2]
        if found and (VALUE in word or (content.isidentifier() and content in tainted)):
            names.add(found[1])
    return names


NESTING_MAX: Final = 32
"""`$(` within `$(`: the functions below call each other, and stop here."""

LITERAL: Final = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=@%+,-"
)
"""What no shell gives a meaning to within a word."""
NAME: Final = re.compile(r"[A-Za-z_]\w*|[0-9@*]")
FUNCTION: Final = re.compile(r"\w\s*\(\s*\)|\bfunction\s")
COMPUTED: Final = re.compile(r"\$\{(?:!(?=\w)|\w+\[|\w+:(?=[^-=?+]))")
"""`${!x}`, `${a[x]}`, `${a:x}`: what follows is a name, or a number that bash computes."""
EVALUATED: Final = re.compile(r"\$\{[^}]*@P\}")
"""`${x@P}`: bash executes `$(...)` in the content of x."""
DEFAULT: Final = re.compile(r"\$\{(\w+):?=(.*)", re.DOTALL)
"""`${x:=y}` assigns."""
FILTER: Final = re.compile(r"\(\s*(?:<|(?:cat|head|tail|tee|tr|sed|grep|cut|sort|awk|jq)\b)")
"""A substitution that is likely to print its stdin."""
BETWEEN_WORDS: Final = frozenset(" \t\n;&|<>()")
BETWEEN_COMMANDS: Final = frozenset("\n;&|()")


def read(template: str) -> ShellText:
    """Read a command line; UsageError where a value could not be kept apart from the text."""
    scan = Scan(template)
    if "\0" in template:
        raise scan.refused("a command cannot hold a zero byte", "leave it out")
    if any(match["place"] for match in PATTERN.finditer(template)):
        raise scan.refused("{%} is not known here", "use {#}, the task's own number")
    tainted = {"_", *(POSITIONS if FUNCTION.search(template) else ())}
    while True:
        scan = Scan(template, tainted=set(tainted))
        _plain(scan, is_nested=False)
        words = scan.simple_words()
        scan.end_command("")
        _read_codes(scan)
        if scan.tainted == tainted:
            return ShellText(tuple(scan.pieces), words)
        tainted = scan.tainted  # In a loop, what stands before may use what is set behind.


def _read_codes(scan: Scan) -> None:
    """Read what `eval` and `trap` will execute: it may use variables that have a value."""
    for code in scan.codes:
        inner = Scan(code, tainted=scan.tainted)
        _plain(inner, is_nested=False)
        inner.end_command("")
        _read_codes(inner)


def _plain(scan: Scan, is_nested: bool) -> None:
    """Text outside of quotes, to its end or to the parenthesis that closes it."""
    cases = 0
    while not scan.is_at_end:
        character = scan.text[scan.at]
        if character in BETWEEN_WORDS:
            ended = scan.end_word()
            cases += (ended == "case") - (ended == "esac")
            if character == ")" and is_nested and cases <= 0:
                scan.end_command("")
                return
            _operator(scan, character)
        elif character == "#" and scan.word is None:
            scan.is_simple = False
            end = scan.text.find("\n", scan.at)
            scan.emit((end if end >= 0 else len(scan.text)) - scan.at)
        elif not scan.slot("plain"):
            _within_word(scan, character)
    scan.end_word()
    if is_nested:
        raise scan.refused("a parenthesis is not closed", "close it with )")


def _within_word(scan: Scan, character: str) -> None:
    match character:
        case "'":
            _single(scan)
        case '"':
            _double(scan)
        case "\\":
            _escaped(scan)
        case "$":
            _dollar(scan, is_double=False)
        case "`":
            _backticks(scan, is_double=False)
        case _:
            if character not in LITERAL:
                scan.is_simple = False
            scan.take(1, character)


def _operator(scan: Scan, character: str) -> None:
    """What stands between words; an opening parenthesis with all that it holds."""
    if character not in " \t":
        scan.is_simple = False
    before, follows = scan.text[max(0, scan.at - 1) : scan.at], scan.text[scan.at + 1 : scan.at + 2]
    is_process = character == "(" and before in ("<", ">")
    is_redirection = character == "&" and (before in ("<", ">", "|") or follows == ">")
    if character == "(" and follows == "(" and scan.said in ([], ["for"]):
        _must_hold_no_value(scan, scan.text.partition("))")[0][scan.at :])
    array = ASSIGNMENT.fullmatch(scan.said[-1]) if before == "=" and scan.said else None
    if is_process:
        scan.redirects = ""
    elif character in BETWEEN_COMMANDS and not is_redirection:
        is_or = character == "|" and "|" in (before, follows)
        scan.end_command("" if is_or else character)
    is_string = scan.text.startswith("<<<", scan.at)
    if scan.text.startswith("<<", scan.at) and not is_string:
        if PATTERN.search(scan.text, scan.at):
            hint = "printf '%s\\n' {} | COMMAND"
            raise scan.refused("a value cannot follow a here-document", hint)
        scan.emit(len(scan.text) - scan.at)
        return
    if character in "<>":
        if before.isdigit() and scan.said[-1:] and scan.said[-1].isdigit():
            scan.said.pop()  # The number of a stream is no word.
        scan.redirects = "<<<" if is_string else character
    scan.emit(3 if is_string else 1)
    if character == "(":
        marks, is_fed = scan.marks, scan.is_fed
        if is_fed and not is_process:
            scan.tainted.add(ALL_FED)
        scan.is_fed |= before == ">"
        _nested(scan, is_double=True)
        scan.is_fed = is_fed
        if is_process:
            scan.said.append(PROCESS if scan.marks > marks and before == "<" else "<()")
        elif array is not None and scan.marks > marks:
            scan.tainted.add(array[1])


def _must_hold_no_value(scan: Scan, arithmetic: str) -> None:
    numbers = PATTERN.sub(lambda found: "" if found["number"] else VALUE, arithmetic)
    if VALUE in numbers or scan.has_tainted(numbers):
        hint = "let a program compute: expr {} + 1"
        raise scan.refused("a value in arithmetic would be evaluated", hint)


def _nested(scan: Scan, is_double: bool) -> None:
    """A subshell or a substitution, whose opening parenthesis has been passed."""
    if scan.depth == NESTING_MAX:
        raise scan.refused("parentheses are nested too deep", f"use at most {NESTING_MAX}")
    outer = scan.said, scan.word, scan.is_fed
    was_printed, was_comparing = scan.is_printed, scan.is_comparing
    marks = scan.marks
    if scan.word is not None:
        scan.is_comparing = False
        scan.marks += ALL_FED in scan.tainted and FILTER.match(scan.text, scan.at - 1) is not None
    scan.said, scan.word, scan.depth = [], None, scan.depth + 1
    _plain(scan, is_nested=True)
    scan.said, scan.word, scan.is_fed = outer
    scan.depth -= 1
    # What a substitution makes of a value is as little a program as the value.
    if scan.word is not None:
        scan.is_printed, scan.is_comparing = was_printed, was_comparing
        scan.word += (HELD if is_double else SPLIT) if scan.marks > marks else "()"
    scan.emit(1)


def _single(scan: Scan) -> None:
    scan.open_quote()
    while not scan.text.startswith("'", scan.at):
        if scan.is_at_end:
            raise scan.refused("a single quote is not closed", "close it with '")
        if not scan.slot("single"):
            scan.take(1, scan.text[scan.at])
    scan.emit(1)


def _double(scan: Scan) -> None:
    scan.open_quote()
    while not scan.text.startswith('"', scan.at):
        if scan.is_at_end:
            raise scan.refused("a double quote is not closed", 'close it with "')
        character = scan.text[scan.at]
        if scan.slot("double"):
            continue
        if character == "$":
            _dollar(scan, is_double=True)
        elif character == "`":
            _backticks(scan, is_double=True)
        elif character == "\\":
            _escaped_in_double(scan)
        else:
            scan.take(1, character)
    scan.emit(1)


def _escaped(scan: Scan) -> None:
    """A backslash; before a value it has nothing to do, since values are quoted anyway."""
    if found_at(scan.text, scan.at + 1):
        scan.at += 1
        return
    follows = scan.text[scan.at + 1 : scan.at + 2]
    if follows in ("", "\n"):
        scan.is_simple = False
    scan.take(2, follows)


def _escaped_in_double(scan: Scan) -> None:
    scan.is_simple = False
    if found_at(scan.text, scan.at + 1):
        # Alone it would escape the dollar sign of the variable that follows.
        scan.pieces.append("\\")
        scan.take(1, "\\")
    else:
        scan.take(2, scan.text[scan.at + 1 : scan.at + 2])


def _dollar(scan: Scan, is_double: bool) -> None:
    scan.is_simple = False
    if found_at(scan.text, scan.at + 1):
        raise scan.refused("a value would become a variable's name", "write \\$ for the sign $")
    rest = scan.text[scan.at + 1 : scan.at + 3]
    if rest == "((":
        _arithmetic(scan)
    elif rest.startswith("("):
        scan.word = scan.word or ""
        scan.emit(2)
        _nested(scan, is_double)
    elif rest.startswith("{"):
        _braces(scan, is_double)
    elif rest.startswith("["):
        _must_hold_no_value(scan, scan.text[scan.at :].partition("]")[0])
        scan.take(1, "$")
    elif rest.startswith("'") and not is_double:
        raise scan.refused("$'...' means different things to different shells", "use printf")
    else:
        name = NAME.match(scan.text, scan.at + 1)
        text = name[0] if name is not None else ""
        scan.take(1 + len(text), scan.meaning_of(text, is_double))


def _arithmetic(scan: Scan) -> None:
    depth, begin = 0, scan.at
    while not scan.is_at_end:
        character = scan.text[scan.at]
        if not scan.slot("bare"):
            scan.take(1, character)
        depth += (character == "(") - (character == ")")
        if character == ")" and depth == 0:
            _must_hold_no_value(scan, scan.text[begin : scan.at])
            return
    raise scan.refused("an arithmetic expansion is not closed", "close it with ))")


def _braces(scan: Scan, is_double: bool) -> None:
    depth, end = 0, scan.at
    while end < len(scan.text):
        if found_at(scan.text, end):
            raise scan.refused("a value cannot be within ${...}", "put {} beside it")
        character = scan.text[end]
        depth += (character == "{") - (character == "}")
        end += 2 if character == "\\" else 1
        if character == "}" and depth == 0:
            text = scan.text[scan.at : end]
            if computed := COMPUTED.match(text):
                _must_hold_no_value(scan, text[computed.end() - 1 :])
            if EVALUATED.match(text) and scan.has_tainted(text):
                raise scan.refused("bash would execute a value in ${...@P}", "leave out @P")
            default = DEFAULT.match(text)
            if default is not None and scan.has_tainted(default[2]):
                scan.tainted.add(default[1])
            scan.take(end - scan.at, scan.meaning_of(text, is_double))
            return
    raise scan.refused("${ is not closed", "close it with }")


def _backticks(scan: Scan, is_double: bool) -> None:
    scan.is_simple = False
    end = scan.at + 1
    while not scan.text.startswith("`", end):
        if end >= len(scan.text):
            raise scan.refused("a backtick is not closed", "write $(...)")
        if found_at(scan.text, end):
            raise scan.refused("a value cannot be within backticks", "write $(...)")
        end += 2 if scan.text[end] == "\\" else 1
    text = scan.text[scan.at : end]
    scan.take(end + 1 - scan.at, scan.meaning_of(text, is_double))
