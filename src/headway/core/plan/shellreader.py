"""Reads the command line of a template as a shell would, to know how each `{}` is quoted.

What cannot be kept apart from the text is refused with what to write instead: values within
arithmetic, backticks, `${...}`, here-documents, and after a bare `$`.

A place that is misread (shells have dark corners) may split a value into words, or leave it out; it
can never make a value part of the text, because no value is there when the text is made.
"""

from __future__ import annotations

import re
from typing import Final

from headway.core.plan.codewords import ASSIGNMENT, HELD, PROCESS, SPLIT, VALUE
from headway.core.plan.replacement import PATTERN, found_at
from headway.core.plan.shelltext import ShellText
from headway.core.plan.shellwords import ALL_FED, POSITIONS, Scan

NESTING_MAX: Final = 32
"""`$(` within `$(`: nobody reads more, and the functions below call each other."""

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
            _backticks(scan, is_double=False)
        case _:
            if character not in LITERAL:
                scan.needs_shell()
            scan.take(1, character)


def _operator(scan: Scan, character: str) -> None:
    """What stands between words; an opening parenthesis with all that it holds."""
    if character not in " \t":
        scan.needs_shell()
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
    scan.needs_shell()
    end = scan.at + 1
    while not scan.text.startswith("`", end):
        if end >= len(scan.text):
            raise scan.refused("a backtick is not closed", "write $(...)")
        if found_at(scan.text, end):
            raise scan.refused("a value cannot be within backticks", "write $(...)")
        end += 2 if scan.text[end] == "\\" else 1
    text = scan.text[scan.at : end]
    scan.take(end + 1 - scan.at, scan.meaning_of(text, is_double))
