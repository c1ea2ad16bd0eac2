"""Which words of a command the shell or a program reads as code.

Law: a value is refused in such a word. One spelling says that the values are commands, and is let
through: a shell by its name, `-c`, and a word that is nothing but the value (`sh -c {}`).

What a program does with its arguments is the program's business: those below are known. Others may
exist, and cannot be recognised.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

VALUE: Final = "\0"
"""Stands for a value in a word that is looked at; no template can hold it."""
SPLIT: Final = f"{VALUE}()"
"""Stands for a value that the shell splits into words: the output of `$(...)`, a bare `$x`."""
HELD: Final = f"{VALUE}$"
"""Stands for a value that the template took elsewhere first: `"$(...)"`, `"$x"`."""
PROCESS: Final = f"{VALUE}<()"
"""Stands for `<(...)` with a value in it."""

DATA_HINT: Final = (
    "give the value as data: as an argument (sh -c 'wc \"$1\"' sh {}), in a variable "
    "(V={} sh -c 'wc \"$V\"') or on stdin (printf %s {} | COMMAND)"
)
EVAL_HINT: Final = "leave out eval"
ALIAS_HINT: Final = "write the command itself instead of an alias"
SSH_HINT: Final = "send the value as data: printf '%s\\0' {} | ssh HOST 'xargs -0 COMMAND'"
NAME_HINT: Final = "name the variable in the template, and give the value as its content: v={}"
NUMBER_HINT: Final = "compare with [ {} -eq 1 ], or let a program compute: expr {} + 1"
SANDBOX_HINT: Final = "pass --sandbox to sed, or let awk take it: awk -v v={} '...'"

SHELLS: Final = re.compile(r"(?:ba|da|a|k|mk|pdk|z|fi|tc|c|rba|ya|)sh|pwsh|xonsh|nu|elvish")
REMOTE: Final = re.compile(r"ssh|autossh|slogin|rsh|mosh")
SHELL_TAKES: Final = frozenset(("-o", "+o", "-O", "+O", "--rcfile", "--init-file"))
"""Options of shells whose value is the next word."""


CodeOption = tuple[re.Pattern[str], re.Pattern[str], str, bool]
"""Programs that read the value of an option as code; the option; letters of other options whose
value is the next word; whether options end with the first word that is none, as it is a script."""


def _option(programs: str, option: str, takes: str = "", is_first: bool = True) -> CodeOption:
    return re.compile(programs), re.compile(option), takes, is_first


OPTIONS: Final = (
    _option(r"python|pypy|ipython", r"-[a-zA-Z]*c", "WXm"),
    _option(r"perl", r"-[a-zA-Z0-9]*[eE]|-[mM]", "IC"),
    _option(r"ruby|raku", r"-[a-zA-Z0-9]*e", "IrC"),
    _option(r"node|nodejs|bun|tsx|ts-node", r"-[a-z]*[ep]|--eval|--print", "r"),
    _option(r"lua|luajit|texlua|R|Rscript|osascript|elixir|groovy|scala|racket|clojure|clj|ghc",
            r"-e|--eval", "l"),
    _option(r"php", r"-[a-z]*[rBRE]|--run|--process-\w+", "dcz"),
    _option(r"julia|octave|matlab|sbcl|emacs|guile|erl",
            r"-[eE]|--?eval|--print|-batch|-r|-c", is_first=False),
    _option(r"gdb|lldb", r"--?i?ex|--?(?:init-)?eval-command|-[oOS]|--one-line", is_first=False),
    _option(r"vim|vi|nvim|gvim|ex|view|vimdiff", r"-c|--cmd|\+", is_first=False),
    _option(r"su|runuser|sg|script|flock|npx|npm|nc|ncat|netcat|expect|psql|nix-shell",
            r"-[a-z]*c|--command|--session-command|--call|--sh-exec|--exec|--run", is_first=False),
    _option(r"mysql|mariadb|dc|gnuplot", r"-[a-z]*e|--execute|--expression", is_first=False),
    _option(r"xterm|rxvt|urxvt|konsole|gnome-terminal|xfce4-terminal", r"-[ex]|--command",
            is_first=False),
    _option(r"nodemon|watchexec|entr", r"-[a-z]*[xs]|--exec|--shell", is_first=False),
    _option(r"env", r"-[a-z]*S|--split-string", is_first=False),
    _option(r"g?make|bmake", r"--eval|-E", is_first=False),
    _option(r"tar|bsdtar|gtar",
            r"-\w*[IF]|--use-compress-program|--to-command|--checkpoint-action|--rsh-command"
            r"|--info-script|--new-volume-script", is_first=False),
    _option(r"rsync", r"-\w*e|--rsh|--rsync-path", is_first=False),
    _option(r"split|sort", r"--filter|--compress-program", is_first=False),
    _option(r"zip", r"-TT|--unzip-command", is_first=False),
    _option(r"man|m|mapfile|readarray|complete|compgen|sqlite|screen",
            r"-P|--pager|-D|-C|-W|-cmd|-X", is_first=False),
    _option(r"[gmn]?awk", r"-e|--source", "Fvf"),
    _option(r"sed|gsed", r"-[a-zA-Z]*e|--expression", is_first=False),
    _option(r"git", r"-c", "C"),
    _option(r"git", r"--exec|--extcmd|--\w+-filter|--config-env|foreach", is_first=False),
    _option(r"rebase|difftool", r"-[xy]", is_first=False),
    _option(r"deno", r"eval", is_first=False),
    _option(r"ssh|scp|sftp|autossh", r"-o(?:\w*Command)?=?", is_first=False),
)  # fmt: skip
"""The option stands before the value, at the beginning of its word, or there with a `=`."""
INTERPRETERS: Final = 7
"""The programs of the first rows above read code from stdin if they have no file argument."""

MAKE: Final = re.compile(r"g?make|bmake")
SCRIPTED: Final = re.compile(r"[gmn]?awk|g?sed")
SCRIPT_GIVEN: Final = re.compile(r" (?:-[a-zA-Z]*[ef]\b|--file|--expression|--source|--sandbox)")
"""An option has the script, so that no other word is one; or the script can execute nothing."""
SSH_TAKES: Final = "BbcDEeFIiJLlmOopQRSWw"
"""Options of ssh whose value is the next word."""

UNKNOWN: Final = re.compile(r"-[a-zA-Z]*[ceEr]|--(?:eval|command|exec|run)=?|-exec")
"""What is likely to be followed by code where the program is in a variable."""

ALL_WORDS: Final = re.compile(r"watch|parallel|tmux|socat|concurrently|hyperfine|let|sem")
"""Programs and builtins that read every word as code."""
HARMLESS: Final = {"watch": ("-x", "--exec"), "hyperfine": ("-N", "--shell=none")}
"""Options after which they do not."""
TAKES: Final = {"watch": "nq", "tmux": "tsncLSf", "hyperfine": "wrmMS"}

NAMES: Final = frozenset(
    ("read", "export", "readonly", "declare", "typeset", "local", "unset", "mapfile", "readarray",
     "getopts")
)  # fmt: skip
"""Builtins whose words are names of variables: in `a[$(x)]` a shell executes x."""
COMPARES: Final = frozenset(("-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-v"))

VARIABLES: Final = re.compile(
    r"(?:BASH_ENV|ENV|PS[0-4]|PROMPT_COMMAND|SHELL|SHELLOPTS|BASHOPTS|LD_\w+|DYLD_\w+|IFS|PATH"
    r"|\w*PAGER|\w*EDITOR|VISUAL|BROWSER|GIT_(?:SSH|SSH_COMMAND|PROXY_COMMAND|EXTERNAL_DIFF"
    r"|ASKPASS|CONFIG\w*)|SSH_ASKPASS|RSYNC_RSH|CVS_RSH|LESSOPEN|LESSCLOSE|PERL5OPT|PERL5DB"
    r"|PYTHONSTARTUP|RUBYOPT|NODE_OPTIONS|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS|MAKEFLAGS|TAR_OPTIONS)=.*",
    re.DOTALL,
)
"""Variables whose content programs execute."""
EVALUATOR: Final = re.compile(
    r"(?:^|[\s/])(?:eval|(?:[a-z]*sh|python[\d.]*|perl|ruby|node)(?:\s+-\w+)*\s+-\w*[ce])\s*$"
)
"""A command in a variable that executes the word that follows."""
ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)(\[[^\]]*\])?\+?=.*", re.DOTALL)

WRAPPERS: Final = frozenset(
    ("sudo", "doas", "env", "nohup", "nice", "ionice", "time", "timeout", "stdbuf", "setsid",
     "xargs", "command", "builtin", "exec", "chroot", "flock", "strace", "ltrace", "unshare",
     "nsenter", "busybox", "taskset", "chrt", "caffeinate", "unbuffer", "firejail", "bwrap", "find",
     "docker", "podman", "kubectl", "gtimeout", "systemd-run", "srun", "torsocks", "proxychains")
)  # fmt: skip
"""Programs that start another one, which is named further on."""

RUNNERS: Final = WRAPPERS - {"find", "docker", "podman", "kubectl", "chroot", "flock"}
"""Those whose first operand is the program."""

PRINTS: Final = frozenset(("echo", "printf", "print", "basename", "dirname", "yes", "expr"))
STDIN: Final = re.compile(
    r"at|batch|crontab|ed|ex|psql|mysql|mariadb|sqlite|gdb|gnuplot|dc|parallel"
)
"""What else executes what it reads from stdin."""
STDIN_FILES: Final = frozenset(("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"))
SCRIPT_ON_STDIN: Final = re.compile(
    r" (?:-\w*f|--(?:make)?file)[= ]?(?:-|/dev/stdin|/dev/fd/0|/proc/self/fd/0)(?: |$)"
)
"""`-f -` of awk, sed and make."""
XARGS_TAKES: Final = "nPILsdEaJ"
XARGS_REPLACES: Final = re.compile(r" (?:-\w*[IJ] ?|-\w*i|--replace=)(\S+)")


def program_of(word: str) -> str:
    """`/usr/bin/python3.11` is python."""
    return word.rpartition("/")[2].rstrip("0123456789.") or word


def refusal_of(said: Sequence[str], is_fed: bool) -> str:
    """What to write instead if a value is read as code; `is_fed`: a value comes on stdin."""
    at = next((i for i, word in enumerate(said) if not ASSIGNMENT.fullmatch(word)), len(said))
    hint, words = _by_assignment(said[:at]), said[at:]
    if hint or not words:
        return hint
    if words[0] == "alias":
        return ALIAS_HINT
    if is_fed:
        words = _with_stdin(words)
    if SPLIT in words[0] or _runs_split(words):
        return EVAL_HINT
    if not is_fed and not any(VALUE in word for word in words):
        return ""
    if program_of(words[0]) in WRAPPERS and any(
        VALUE in word and VARIABLES.fullmatch(word) for word in words
    ):
        return NAME_HINT
    for program, rest in _commands(words):
        found = [
            _by_program(program, rest),
            _by_stdin(program, rest) if is_fed else "",
            _by_stdin(program, ["-"]) if PROCESS in rest else "",
        ]
        if any(found):
            return next(filter(None, found))
    return _by_option(words)


def _by_assignment(said: Sequence[str]) -> str:
    """What to write instead of these assignments before a command."""
    for word in said:
        name, _, content = word.partition("=")
        if VALUE in word and (VARIABLES.fullmatch(word) or VALUE in name):
            return NAME_HINT
        if EVALUATOR.search(content):
            return EVAL_HINT
    return ""


def prints_value(said: Sequence[str]) -> bool:
    """Whether a value of this command is in its output."""
    words = [word for word in said if not ASSIGNMENT.fullmatch(word)]
    is_printer = bool(words) and any(program in PRINTS for program, _ in _commands(words))
    return PROCESS in words or (is_printer and VALUE in "".join(words))


def _with_stdin(words: Sequence[str]) -> Sequence[str]:
    """The words with those that xargs makes of a value on stdin."""
    at = next((i for i, word in enumerate(words, 1) if program_of(word) == "xargs"), len(words))
    command = _operands(words[at:], XARGS_TAKES)
    if not command:
        return words
    # The text to replace may be taken for the first operand: `-0I %`.
    options = words[at : len(words) - len(command) + 1]
    found = XARGS_REPLACES.search(" ".join(("", *options)))
    replaced = [word.replace(found[1], HELD) if found else word for word in words[at:]]
    return [*words[:at], *replaced, SPLIT]


def _runs_split(words: Sequence[str]) -> bool:
    """Whether a program such as `env` or `sudo` starts what a value was split into."""
    if program_of(words[0]) not in RUNNERS or "-v" in words:
        return False
    is_passed = re.compile(r"[-\d].*|\w+=.*", re.DOTALL)
    rest = (w for w in words if not is_passed.fullmatch(w) and program_of(w) not in RUNNERS)
    return next(rest, "").startswith(SPLIT)


def _commands(words: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """The program that a command starts, and those that it may let that one start."""
    yield program_of(words[0]), words[1:]
    if program_of(words[0]) in WRAPPERS:
        for at, word in enumerate(words[1:], 1):
            yield program_of(word), words[at + 1 :]


def _by_program(program: str, rest: Sequence[str]) -> str:
    """Programs and builtins that need no option to read words as code or as names."""
    hint, code = DATA_HINT, list[str]()
    if program == "eval":
        hint, code = EVAL_HINT, [*rest]
    elif program == "trap":
        code = _operands(rest)[:1]
    elif ALL_WORDS.fullmatch(program):
        is_harmless = any(word in HARMLESS.get(program, ()) for word in rest)
        code = [] if is_harmless else _operands(rest, TAKES.get(program, ""))
    elif program in NAMES or program in ("printf", "wait", "test", "["):
        named = rest
        if program not in NAMES:
            named = [word for before, word in pairwise(rest) if before in ("-v", "-p")]
        is_number = is_integer(rest)
        hint = NAME_HINT
        code = [
            word if is_number or VARIABLES.fullmatch(word) else word.partition("=")[0]
            for word in named
        ]
    elif SCRIPTED.fullmatch(program) and not SCRIPT_GIVEN.search(" ".join(("", *rest))):
        hint = SANDBOX_HINT if "sed" in program else DATA_HINT
        code = _operands(rest, "Fvl")[:1]
    elif MAKE.fullmatch(program):
        code = [word for word in rest if "=" in word]
    elif program == "sqlite" and "-safe" not in rest:
        code = _operands(rest)[1:]
    elif REMOTE.fullmatch(program):
        hint, code = SSH_HINT, _operands(rest, SSH_TAKES)[1:]
    return hint if any(VALUE in word for word in code) else ""


def _by_stdin(program: str, rest: Sequence[str]) -> str:
    """Programs that execute what they read from stdin, where a value comes from."""
    text = " ".join(("", *rest))
    pairs = pairwise(("", *rest))
    operands = _operands([pair[1] for pair in pairs if SHELL_TAKES.isdisjoint(pair)])
    is_code = STDIN.fullmatch(program) is not None or ("$" in program and not operands)
    if SHELLS.fullmatch(program):
        options = rest[: len(rest) - len(operands)]
        is_code = not operands or operands[0] in STDIN_FILES
        is_code |= any(re.fullmatch(r"-[a-z]*s[a-z]*", word) for word in options)
    elif program in (".", "source"):
        is_code = any(word in STDIN_FILES for word in rest)
    elif program in ("su", "sudo"):
        is_code = not re.search(r" (?:-\w*c|--command)", text) and (
            program == "su" or re.search(r" -\w*[si]", text) is not None
        )
    elif REMOTE.fullmatch(program):
        remote = _operands(rest, SSH_TAKES)[1:]
        is_code = not remote or _by_stdin(program_of(remote[0]), remote[1:]) != ""
    elif SCRIPTED.fullmatch(program) or MAKE.fullmatch(program):
        is_code = SCRIPT_ON_STDIN.search(text) is not None
    for programs, option, takes, _ in OPTIONS[:INTERPRETERS]:
        if programs.fullmatch(program):
            named = [word for word in _operands(rest, takes) if word != "run"]
            is_given = any(option.match(word) or word.startswith("-m") for word in rest)
            is_code = named[0] in STDIN_FILES if named else not is_given
    return DATA_HINT if is_code else ""


def _by_option(words: Sequence[str]) -> str:
    """A value in the code that an option of a program introduces, wherever the program stands."""
    for at, word in enumerate(words):
        program, rest = program_of(word), words[at + 1 :]
        if SHELLS.fullmatch(program):
            if _in_shell_code(rest):
                return DATA_HINT
            continue
        is_command = at == 0 or program_of(words[0]) in WRAPPERS
        if is_command and ("$" in word or "()" in word or VALUE in word):
            if _after_option(rest, UNKNOWN, "", is_first=False):
                return DATA_HINT
            continue
        if "sed" in program and "--sandbox" in rest:
            continue
        for programs, option, takes, is_first in OPTIONS:
            if programs.fullmatch(program) and _after_option(rest, option, takes, is_first):
                return DATA_HINT
    return ""


def _in_shell_code(rest: Sequence[str]) -> bool:
    """Whether the text after `-c` has a value in it and more than that."""
    has_code = takes = False
    for word in rest:
        if takes or word in ("-", "--"):
            takes = False
        elif word in SHELL_TAKES:
            takes = True
        elif word.startswith(("-", "+")):
            is_option = re.fullmatch(r"[-+][a-zA-Z]*c[a-zA-Z]*|--command=?.*|-Command", word)
            has_code = has_code or bool(is_option)
            if is_option and VALUE in word:
                return True
        else:
            return has_code and VALUE in word and word != VALUE
    return False


def _after_option(rest: Sequence[str], option: re.Pattern[str], takes: str, is_first: bool) -> bool:
    """Whether a value is in the word after such an option, or in its own."""
    before = ""
    for word in rest:
        is_value = len(before) == 2 and before[0] == "-" and before[1] in takes
        if VALUE in word and option.fullmatch(before):
            return True
        text = word.partition(VALUE)[0].rstrip("=")
        if VALUE in word and text and option.fullmatch(text):
            return True
        if is_first and not word.startswith("-") and not is_value and not option.fullmatch(before):
            return False
        if is_first and before == "-m" and "m" in takes:
            return False  # What follows is for the module.
        before = word
    return False


def compares_value(words: Sequence[str]) -> bool:
    """`[[ {} -eq 1 ]]`: whether bash would compute with a value on one side."""
    return any(
        (word in COMPARES and VALUE in before) or (before in COMPARES and VALUE in word)
        for before, word in pairwise(words)
    )


def is_integer(words: Sequence[str]) -> bool:
    """Whether `declare` and the like are given `-i`: bash computes what is assigned."""
    return any(re.fullmatch(r"-\w*i\w*", word) for word in words)


def _operands(rest: Sequence[str], takes: str = "") -> list[str]:
    """The words that are neither options nor their values; after the first one, all of them."""
    found: list[str] = []
    before = ""
    for word in rest:
        is_value = len(before) == 2 and before[0] == "-" and before[1] in takes
        if found or not (is_value or (word.startswith("-") and len(word) > 1)):
            found.append(word)
        before = word
    return found
