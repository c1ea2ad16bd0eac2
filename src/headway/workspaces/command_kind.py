"""What kind of command a program and its arguments are, which decides how its reads count.

A search counts by its answer, a check only where the plan says so, git's own work not at all;
everything else is direct.
"""

from __future__ import annotations

import os

SEARCHES = frozenset(
    b"grep egrep fgrep rg ag ack fd fdfind find ls dir tree locate wc du stat file diff cmp".split()
)
"""Programs whose answer can be asked for again and compared. They write nothing, except with:"""
SEARCH_ACTIONS = (
    b"-exec", b"-ok", b"-delete", b"-fprint", b"-fls", b"-x", b"-X", b"--exec", b"--pre", b"-o",
    b"--output", b"--ext-diff", b"--open-files-in-pager", b"-O", b"--pager", b"--textconv",
    b"--batch", b"--stdin", b"--files0-from", b"--pathspec-from-file",
)  # fmt: skip
SAFE_ACTIONS = {
    b"-o": (b"grep", b"egrep", b"fgrep", b"rg", b"ag", b"ack", b"find", b"ls"),
    b"-x": (b"grep", b"egrep", b"fgrep", b"rg", b"ls", b"du", b"diff", b"ack"),
    b"-X": (b"ls", b"diff", b"du"),
    b"-O": (b"find", b"rg"),
}
"""Options that mean something harmless to these."""
GIT_SEARCHES = frozenset(
    b"status diff ls-files grep log show blame shortlog describe rev-parse rev-list ls-tree "
    b"cat-file diff-files diff-index diff-tree check-ignore".split()
)
GIT_WORK = frozenset(
    b"add commit stash checkout switch restore reset rm mv "
    b"fetch push gc maintenance clean init worktree update-index write-tree read-tree branch tag "
    b"remote config symbolic-ref update-ref reflog commit-tree".split()
)

GIT_TAKES = frozenset((b"checkout", b"restore", b"reset", b"switch", b"read-tree"))
"""These put files of another commit in place, which may be one that landed."""

DIRECT, SEARCH, CHECK, WORK = range(4)


def command_kind(argv: tuple[bytes, ...], path: bytes, checks: list[bytes]) -> int:
    """DIRECT, SEARCH, CHECK (it matches a pattern of the plan) or WORK."""
    program = argv[0].rpartition(b"/")[2] or path.rpartition(b"/")[2]
    if checks:
        for words in (argv, (program, *argv[1:])):
            text = b" ".join(words)
            if any(is_match(text, pattern) for pattern in checks):
                return CHECK
    if program == b"git":
        return _git_kind(argv)
    if program in SEARCHES and not _acts(program, argv):
        return SEARCH
    return DIRECT


def _acts(program: bytes, argv: tuple[bytes, ...]) -> bool:
    for word in argv[1:]:
        if word[:1] != b"-":
            continue
        for action in SEARCH_ACTIONS:
            is_it = word == action if len(action) == 2 else word.startswith(action)
            if is_it and program not in SAFE_ACTIONS.get(action, ()):
                return True
    return False


def _git_verb(argv: tuple[bytes, ...]) -> tuple[int, bytes]:
    at = 1
    while at < len(argv) and argv[at][:1] == b"-":
        at += 2 if argv[at] in (b"-C", b"-c", b"--git-dir", b"--work-tree", b"--namespace") else 1
    return at, argv[at] if at < len(argv) else b""


def history_verb(argv: tuple[bytes, ...]) -> str | None:
    """The verb of a git command that is no search and may read more than files; else None."""
    if argv[0].rpartition(b"/")[2] != b"git":
        return None
    verb = _git_verb(argv)[1]
    return None if verb in (b"", b"version", b"help", b"apply") else os.fsdecode(verb)


def _git_kind(argv: tuple[bytes, ...]) -> int:
    at, verb = _git_verb(argv)
    if verb in GIT_SEARCHES:
        return DIRECT if _acts(b"git", argv[at:]) else SEARCH
    marks = (b"~", b"^", b"@{")
    if verb in GIT_TAKES and any(mark in word for word in argv[at:] for mark in marks):
        return DIRECT
    return WORK if verb in GIT_WORK else DIRECT


def is_match(text: bytes, pattern: bytes) -> bool:
    """Whether a text matches a shell-like pattern."""
    if b"?" in pattern or b"[" in pattern:
        import fnmatch  # 8 ms, for few.

        return fnmatch.fnmatchcase(os.fsdecode(text), os.fsdecode(pattern))
    first, *rest = pattern.split(b"*")
    if not rest:
        return text == pattern
    if not text.startswith(first) or not text.endswith(rest[-1]):
        return False
    at = len(first)
    for part in rest[:-1]:
        at = text.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return len(text) - len(rest[-1]) >= at
