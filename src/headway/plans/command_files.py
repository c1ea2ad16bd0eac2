"""Which files the text of a command reads and writes, as far as that can be seen.

Laws:
- Nothing is executed or expanded but variables whose values are known.
- A program that is not in the tables makes the command unknown: its paths are named, no more.
- Comments, here-documents and the words of `echo` name no files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final, Literal

from msgspec import Struct, field

from headway.plans.resources import PATH_CHARS_MAX, WILD, fixed_part, inside

How = Literal["writes", "reads", "names", "searches"]
"""It changes it | reads it | is given it, whatever the program does with it | looks for something
in it, which may be there or not."""


class FileMention(Struct, frozen=True):
    """A path that a command names. With `*` it is a pattern."""

    path: str
    how: How
    is_tree: bool = False
    """What is in the folder counts, too."""
    is_made: bool = False
    """It is made if it is not there, and left as it is otherwise."""


class CommandFiles(Struct):
    """What a command names."""

    mentions: list[FileMention] = field(default_factory=list)
    unknown: str = ""
    """The first program of which is not known what it reads and writes; empty if there is none."""


NO_FILES: Final = frozenset((
    "echo", "printf", "true", "false", ":", "exit", "sleep", "date", "seq", "expr", "set",
    "export", "unset", "read", "wait", "pwd", "return", "shift", "trap", "tr", "yes",
    "basename", "dirname", "env", "uname", "whoami", "hostname", "kill", "type", "command",
    "mktemp", "local",
))  # fmt: skip
READERS: Final = frozenset((
    "cat", "head", "tail", "wc", "cut", "sort", "uniq", "cmp", "diff", "comm", "paste", "nl",
    "od", "cksum", "md5sum", "sha1sum", "sha256sum", "stat", "file", "du", "tac", "rev", "fold",
    "strings", "less", "more", "readlink", "realpath", "column", ".", "source",
))  # fmt: skip
SEARCHES: Final = frozenset((
    "grep", "egrep", "fgrep", "sed", "awk", "gawk", "mawk", "jq", "rg",
))  # fmt: skip
"""Their first argument is no file."""
WRITERS: Final = frozenset((
    "touch", "mkdir", "rm", "rmdir", "tee", "truncate", "unlink",
))  # fmt: skip
MODES: Final = frozenset((
    "chmod", "chown", "chgrp",
))  # fmt: skip
COPIES: Final = frozenset((
    "cp", "install", "ln",
))  # fmt: skip
LISTS: Final = frozenset((
    "ls", "find",
))  # fmt: skip
VALUED: Final = {
    "head": "nc", "tail": "nc", "cut": "dfbc", "sort": "tkST", "grep": "mABCd", "awk": "Fv",
    "wc": "", "uniq": "fsw", "mkdir": "m", "touch": "dt", "truncate": "s", "nl": "bw", "od": "tAN",
    "fold": "w", "column": "ts", "paste": "d", "du": "d", "install": "mog",
}  # fmt: skip
"""Options of one letter whose value is the next word, and no file."""
KEYWORDS: Final = frozenset((
    "{", "}", "!", "if", "then", "else", "elif", "fi", "do", "done", "while", "until", "case",
    "esac", "time",
))  # fmt: skip
OUTPUTS: Final = re.compile(r"(?:-o|--out(?:put)?(?:-?(?:file|dir))?|of)(?:=(.+))?")
"""An option whose value is written, whatever program it belongs to."""
ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
NAME: Final = re.compile(r"\{?([A-Za-z_][A-Za-z0-9_]*)\}?")
OPERATOR: Final = re.compile(r"\d?(?:<<-?|<<<|>>|>\||>&|<&|<>|>|<)|&>>?|&&|\|\||;;|[;|&()\n]")
HEREDOC: Final = re.compile(r"""[ \t]*(["']?)([A-Za-z_][A-Za-z0-9_]*)\1""")
UNKNOWN: Final = "\x1a"
"""Stands for a value that is not known."""
ELSEWHERE: Final = "/tmp/-"
"""Stands for a path that `mktemp` gives: nothing else names it."""
DEPTH_MAX: Final = 5


def files_of(command: str, values: Mapping[str, str], depth: int = 0) -> CommandFiles:
    """The files that a command names; `values` are the variables that are known."""
    reader = _Reader(command, dict(values), depth)
    reader.read()
    return reader.found


class _Reader:
    """Reads a command from left to right."""

    def __init__(self, text: str, values: dict[str, str], depth: int) -> None:
        self.text, self.values, self.depth = text, values, depth
        self.at = 0
        self.found = CommandFiles()
        self.folder = ""
        self._folders: list[str] = []
        """Where the commands around a subshell work."""
        self._words: list[str] = []
        self._ends: list[str] = []
        """Of here-documents that begin behind this line."""

    def read(self) -> None:
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in " \t\r":
                self.at += 1
            elif char == "#":
                self.at = self._line_end()
            elif (operator := OPERATOR.match(self.text, self.at)) is not None:
                self.at = operator.end()
                self._operator(operator[0])
            else:
                self._words.append(self._word())
        self._end()

    def _operator(self, text: str) -> None:
        plain = text.lstrip("0123456789")
        if plain in ("<<", "<<-"):
            if (found := HEREDOC.match(self.text, self.at)) is not None:
                self.at = found.end()
                self._ends.append(found[2])
        elif plain in (">", ">>", ">|", "&>", "&>>", "<", "<>", "<<<", ">&", "<&"):
            self.at += len(self.text[self.at :]) - len(self.text[self.at :].lstrip(" \t"))
            target = self._word()
            if plain not in ("<<<", ">&", "<&"):
                self._name(target, "reads" if plain == "<" else "writes")
        else:
            self._end()
            if text == "(":
                self._folders.append(self.folder)
            elif text == ")" and self._folders:
                self.folder = self._folders.pop()
            elif text == "\n":
                self._skip_documents()

    def _skip_documents(self) -> None:
        for end in self._ends:
            while self.at < len(self.text):
                line_end = self._line_end()
                line, self.at = self.text[self.at : line_end], line_end + 1
                if line.strip() == end:
                    break
        self._ends = []

    def _line_end(self) -> int:
        end = self.text.find("\n", self.at)
        return len(self.text) if end < 0 else end

    def _word(self) -> str:
        """The next word, its quotes taken off and its variables filled in."""
        parts: list[str] = []
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in " \t\r" or OPERATOR.match(self.text, self.at):
                break
            if char == "'":
                end = self.text.find("'", self.at + 1)
                end = len(self.text) if end < 0 else end
                parts.append(self.text[self.at + 1 : end])
                self.at = end + 1
            elif char == '"':
                self.at += 1
                parts.append(self._quoted())
            elif char == "\\":
                parts.append(self.text[self.at + 1 : self.at + 2].replace("\n", ""))
                self.at += 2
            elif char in "$`":
                parts.append(self._value())
            else:
                parts.append(char)
                self.at += 1
        return "".join(parts)

    def _quoted(self) -> str:
        parts: list[str] = []
        while self.at < len(self.text) and self.text[self.at] != '"':
            char = self.text[self.at]
            if char == "\\":
                parts.append(self.text[self.at + 1 : self.at + 2])
                self.at += 2
            elif char in "$`":
                parts.append(self._value())
            else:
                parts.append(char)
                self.at += 1
        self.at += 1
        return "".join(parts)

    def _value(self) -> str:
        """What stands for `$name`, `${...}`, `$(...)` or backticks."""
        if self.text[self.at] == "`":
            end = self.text.find("`", self.at + 1)
            return self._inner(self.at + 1, len(self.text) if end < 0 else end)
        if self.text.startswith("$(", self.at):
            end, level = self.at + 2, 1
            while end < len(self.text) and level:
                level += {"(": 1, ")": -1}.get(self.text[end], 0)
                end += 1
            return self._inner(self.at + 2, end - 1)
        self.at += 1
        if self.text.startswith("{", self.at):
            end = self.text.find("}", self.at)
            end = len(self.text) if end < 0 else end
            name, self.at = self.text[self.at + 1 : end], end + 1
            return self.values.get(name, UNKNOWN)
        if (found := NAME.match(self.text, self.at)) is not None:
            self.at = found.end()
            return self.values.get(found[1], UNKNOWN)
        self.at += 1
        return UNKNOWN

    def _inner(self, first: int, last: int) -> str:
        """A command within: what it names counts, what it prints is not known."""
        self.at = last + 1
        text = self.text[first:last]
        if self.depth < DEPTH_MAX:
            self._add(files_of(text, self.values, self.depth + 1))
        return ELSEWHERE if text.lstrip().startswith("mktemp") else UNKNOWN

    def _add(self, other: CommandFiles) -> None:
        self.found.mentions += other.mentions
        self.found.unknown = self.found.unknown or other.unknown

    def _end(self) -> None:
        """A simple command is complete."""
        words, self._words = self._words, []
        while words and words[0] in KEYWORDS:
            words = words[1:]
        while words and (found := ASSIGNMENT.fullmatch(words[0])) is not None:
            words = words[1:]
            if not words or "/" not in found[2]:
                self.values[found[1]] = found[2]
            if words:
                # A program may look for what its environment names.
                self._name(found[2], "names")
        if words and words[0] == "for":
            self.values[words[1] if len(words) > 1 else ""] = UNKNOWN
        elif words:
            self._command(
                words[0].rpartition("/")[2] if words[0][0] == "/" else words[0], words[1:]
            )

    def _command(self, program: str, words: list[str]) -> None:
        if program in ("cd", "pushd"):
            self.folder = self._path(words[0]) or "" if words else self.folder
        elif program in ("[", "test", "[["):
            for before, word in pairwise(words):
                if re.fullmatch("-[a-zA-Z]", before) and before not in ("-n", "-z", "-a", "-o"):
                    self._name(word, "reads")
        elif program == "dd":
            for word in words:
                key, _, path = word.partition("=")
                if key in ("if", "of"):
                    self._name(path, "reads" if key == "if" else "writes")
        elif program == "tar":
            self._tar(words)
        elif program not in NO_FILES:
            self._program(program, words)

    def _program(self, program: str, words: list[str]) -> None:
        options = "".join(word[1:] for word in words if re.fullmatch("-[a-zA-Z]+", word))
        rest = [*self._arguments(program, words)]
        is_tree = "r" in options or "R" in options
        if program in READERS:
            self._each(rest, "reads")
        elif program in SEARCHES:
            is_edit = program == "sed" and any(word.startswith("-i") for word in words)
            has_expression = any(word in ("-e", "-f") for word in words)
            how: How = "searches" if is_tree else "writes" if is_edit else "reads"
            self._each(rest[not has_expression :], how, is_tree)
        elif program in WRITERS:
            is_made = program == "touch" or (program == "mkdir" and "p" in options)
            self._each(rest, "writes", program == "rm" and is_tree, is_made=is_made)
        elif program in MODES:
            self._each(rest[1:], "writes", is_tree)
        elif program in COPIES or program == "mv":
            is_link = program == "ln"
            self._each([] if is_link else rest[:-1], "writes" if program == "mv" else "reads",
                       is_tree or "a" in options)  # fmt: skip
            self._each(rest[-1:], "writes", is_tree)
        elif program in LISTS:
            self._list(program, words, rest)
        else:
            self._unknown(program, rest)

    def _list(self, program: str, words: list[str], rest: list[str]) -> None:
        if program == "find":
            first = next((n for n, word in enumerate(words) if word[:1] in "-(!"), len(words))
            rest = words[:first] or ["."]
            names = [name for option, name in pairwise(words) if option == "-name"]
            if len(names) == 1:
                self._each([f"{folder}/**/{names[0]}" for folder in rest], "reads")
                rest = []
            if any(word in ("-delete", "-exec", "-execdir", "-ok") for word in words):
                self.found.unknown = self.found.unknown or program
        elif not rest:
            rest = ["."]
        self._each(rest, "reads", is_tree=True)

    def _unknown(self, program: str, rest: list[str]) -> None:
        self.found.unknown = self.found.unknown or program
        if "/" in program:
            self._name(program, "reads")
        for word in rest:
            if "/" in word or "." in word:
                self._name(word, "names")

    def _arguments(self, program: str, words: list[str]) -> Iterator[str]:
        """The words that are no options; values of options that are written are named."""
        skips, is_output = False, False
        for word in words:
            output = OUTPUTS.fullmatch(word)
            if is_output:
                self._name(word, "writes")
                is_output = False
            elif skips:
                skips = False
            elif output is not None and (program not in READERS or program == "sort"):
                if output[1]:
                    self._name(output[1], "writes")
                is_output = not output[1]
            elif word[:1] == "-" and len(word) > 1:
                skips = len(word) == 2 and word[1] in VALUED.get(program, "")
                if "=" in word:
                    self._name(word.partition("=")[2], "names")
            elif word != "-":
                yield word

    def _tar(self, words: list[str]) -> None:
        letters, rest = words[0].lstrip("-") if words else "", words[1:]
        rest = [word for word in rest if word[:1] != "-"]
        archive = rest[:1] if "f" in letters else []
        if "c" in letters:
            self._each(archive, "writes")
            self._each(rest[len(archive) :], "reads", is_tree=True)
            return
        self._each(archive, "reads")
        if "t" not in letters:
            self.found.unknown = self.found.unknown or "tar"

    def _each(
        self, words: list[str], how: How, is_tree: bool = False, *, is_made: bool = False
    ) -> None:
        for word in words:
            self._name(word, how, is_tree, is_made)

    def _path(self, word: str) -> str | None:
        """A path within the plan's folder; None if it is elsewhere."""
        return inside(word if word.startswith("/") else f"{self.folder}/{word}".lstrip("/"))

    def _name(self, word: str, how: How, is_tree: bool = False, is_made: bool = False) -> None:
        path = None if word.startswith(("/dev/", "~")) else self._path(word)
        if path is None or path.strip("/") == UNKNOWN or len(path) > PATH_CHARS_MAX:
            if path is not None and how != "names":
                # Any file may be meant.
                self.found.unknown = self.found.unknown or "a path that is not known"
            return
        is_guess = how == "names" and UNKNOWN in path
        if (path or is_tree) and not is_guess:
            self.found.mentions.append(FileMention(path, how, is_tree, is_made))


def meets(one: FileMention, other: FileMention) -> bool:
    """Whether two mentions may be of the same file, or of one within the other."""
    if one.path == other.path:
        return True
    for outer, inner in ((one, other), (other, one)):
        if outer.is_tree and (not outer.path or inner.path.startswith(f"{outer.path}/")):
            return True
        # A folder that is made, moved or removed, and what is in it.
        if outer.how == "writes" and inner.path.startswith(f"{outer.path}/"):
            return True
        if is_wild(outer.path):
            plain = inner.path.replace("*", "x").replace(UNKNOWN, "x")
            if pattern_of(outer.path).fullmatch(plain):
                return True
    return False


def folder_of(path: str) -> str:
    """The path up to where it stops to be known."""
    return fixed_part(path, WILD + UNKNOWN)


def is_wild(path: str) -> bool:
    return any(char in path for char in WILD + UNKNOWN)


def pattern_of(glob: str) -> re.Pattern[str]:
    """What a pattern of files stands for."""
    parts = re.split(rf"(\*\*/|\*|\?|\[[^]]*\]|{UNKNOWN})", glob)
    meant = {"**/": "(?:.*/)?", "*": "[^/]*", "?": "[^/]", UNKNOWN: ".*"}
    return re.compile("".join(
        meant.get(part, part.replace("[!", "[^") if part[:1] == "[" else re.escape(part))
        for part in parts
    ))  # fmt: skip
