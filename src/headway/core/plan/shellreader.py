"""Reads the command line of a template as a shell would, to know how each `{}` is quoted.

What cannot be kept apart from the text is refused with what to write instead: values within
arithmetic, backticks, `${...}`, here-documents, and after a bare `$`.

A place that is misread (shells have dark corners) may split a value into words, or leave it out; it
can never make a value part of the text, because no value is there when the text is made.
"""

from __future__ import annotations

from typing import Final

from headway.core.plan.replacement import PATTERN, found_at
from headway.core.plan.shelltext import ShellText
from headway.core.plan.shellwords import VALUE, Scan

NESTING_MAX: Final = 32
"""`$(` within `$(`: nobody reads more, and the functions below call each other."""

LITERAL: Final = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=@%+,-"
)
"""What no shell gives a meaning to within a word."""
BETWEEN_WORDS: Final = frozenset(" \t\n;&|<>()")
BETWEEN_COMMANDS: Final = frozenset("\n;&|()")


def read(template: str) -> ShellText:
    """Read a command line; UsageError where a value could not be kept apart from the text."""
    scan = Scan(template)
    if "\0" in template:
        raise scan.refused("a command cannot hold a zero byte", "leave it out")
    if any(match["place"] for match in PATTERN.finditer(template)):
        raise scan.refused("{%} is not known here", "use {#}, the task's own number")
    _plain(scan, is_nested=False)
    return ShellText(tuple(scan.pieces), scan.simple_words())


def _plain(scan: Scan, is_nested: bool) -> None:
    """Text outside of quotes, to its end or to the parenthesis that closes it."""
    cases = 0
    while not scan.is_at_end:
        character = scan.text[scan.at]
        if character in BETWEEN_WORDS:
            ended = scan.end_word()
            cases += (ended == "case") - (ended == "esac")
            if character == ")" and is_nested and cases <= 0:
                return
            _operator(scan, character)
        elif character == "#" and scan.word is None:
            scan.needs_shell()
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
            _backticks(scan)
        case _:
            if character not in LITERAL:
                scan.needs_shell()
            scan.take(1, character)


def _operator(scan: Scan, character: str) -> None:
    """What stands between words; an opening parenthesis with all that it holds."""
    if character not in " \t":
        scan.needs_shell()
    if character in BETWEEN_COMMANDS:
        scan.said.clear()
    is_string = scan.text.startswith("<<<", scan.at)
    if scan.text.startswith("<<", scan.at) and not is_string:
        if PATTERN.search(scan.text, scan.at):
            hint = "printf '%s\\n' {} | COMMAND"
            raise scan.refused("a value cannot follow a here-document", hint)
        scan.emit(len(scan.text) - scan.at)
        return
    scan.emit(3 if is_string else 1)
    if character == "(":
        _nested(scan)


def _nested(scan: Scan) -> None:
    """A subshell or a substitution, whose opening parenthesis has been passed."""
    if scan.depth == NESTING_MAX:
        raise scan.refused("parentheses are nested too deep", f"use at most {NESTING_MAX}")
    outer = scan.said, scan.word
    before = len(scan.pieces)
    scan.said, scan.word, scan.depth = [], None, scan.depth + 1
    _plain(scan, is_nested=True)
    scan.said, scan.word = outer
    scan.depth -= 1
    # What a substitution makes of a value is as little a program as the value.
    holds_value = any(not isinstance(piece, str) for piece in scan.pieces[before:])
    if scan.word is not None:
        scan.word += f"{VALUE}()" if holds_value else "()"
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
            _backticks(scan)
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
        scan.needs_shell()
    scan.take(2, follows)


def _escaped_in_double(scan: Scan) -> None:
    scan.needs_shell()
    if found_at(scan.text, scan.at + 1):
        # Alone it would escape the dollar sign of the variable that follows.
        scan.pieces.append("\\")
        scan.take(1, "\\")
    else:
        scan.take(2, scan.text[scan.at + 1 : scan.at + 2])


def _dollar(scan: Scan, is_double: bool) -> None:
    scan.needs_shell()
    if found_at(scan.text, scan.at + 1):
        raise scan.refused("a value would become a variable's name", "write \\$ for the sign $")
    rest = scan.text[scan.at + 1 : scan.at + 3]
    if rest == "((":
        _arithmetic(scan)
    elif rest.startswith("("):
        scan.word = scan.word or ""
        scan.emit(2)
        _nested(scan)
    elif rest.startswith("{"):
        _braces(scan)
    elif rest.startswith("'") and not is_double:
        raise scan.refused("$'...' means different things to different shells", "use printf")
    else:
        scan.take(1, "$")


def _arithmetic(scan: Scan) -> None:
    depth = 0
    while not scan.is_at_end:
        found = found_at(scan.text, scan.at)
        if found is not None and not found.is_number:
            hint = "let a program compute: expr {} + 1"
            raise scan.refused("a value in arithmetic would be evaluated", hint)
        character = scan.text[scan.at]
        if not scan.slot("bare"):
            scan.take(1, character)
        depth += (character == "(") - (character == ")")
        if character == ")" and depth == 0:
            return
    raise scan.refused("an arithmetic expansion is not closed", "close it with ))")


def _braces(scan: Scan) -> None:
    depth, end = 0, scan.at
    while end < len(scan.text):
        if found_at(scan.text, end):
            raise scan.refused("a value cannot be within ${...}", "put {} beside it")
        character = scan.text[end]
        depth += (character == "{") - (character == "}")
        end += 2 if character == "\\" else 1
        if character == "}" and depth == 0:
            scan.take(end - scan.at, "$")
            return
    raise scan.refused("${ is not closed", "close it with }")


def _backticks(scan: Scan) -> None:
    scan.needs_shell()
    end = scan.at + 1
    while not scan.text.startswith("`", end):
        if end >= len(scan.text):
            raise scan.refused("a backtick is not closed", "write $(...)")
        if found_at(scan.text, end):
            raise scan.refused("a value cannot be within backticks", "write $(...)")
        end += 2 if scan.text[end] == "\\" else 1
    scan.take(end + 1 - scan.at, "$")
