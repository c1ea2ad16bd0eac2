"""The command lines on which headway and GNU parallel are compared, and how each is run.

`probe` is a program that says which arguments it got. Where the two differ on purpose, the case
says why, and what headway gives instead.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from msgspec import Struct, field

HOSTILE: Final = (
    "$(touch pwned)",
    "`touch pwned`",
    "; touch pwned",
    "a && touch pwned",
    "| touch pwned",
    "> pwned",
    "'; touch pwned; '",
    '"; touch pwned; "',
    "it's",
    'say "x"',
    "back\\slash",
    "-n",
    "--help",
    "{}",
    "{1}{#}",
    "$HOME",
    "*",
    "~",
    "#x",
    "größe 漢字",
    "tab\there",
    "  spaces  ",
    "!x",
    "a=b",
    "%s",
    "",
)

PROBE: Final = f"""#!{sys.executable} -IS
import os, sys
said = ascii([os.fsencode(word) for word in sys.argv[1:]]) + "\\n"
fd = os.open(os.environ["PROBE_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
os.write(fd, said.encode())
sys.stdout.write(said)
"""


class Case(Struct, frozen=True):
    name: str
    words: tuple[str, ...]
    options: tuple[str, ...] = ()
    stdin: str | None = None
    files: dict[str, str] = field(default_factory=dict)
    differs: str = ""
    ours: tuple[tuple[str, ...], ...] | None = None
    """The argv lists that headway gives instead, in order; None where it refuses."""


class Outcome(Struct, frozen=True):
    argv: list[list[str]]
    stdout: str
    is_zero: bool
    joblog: list[str]
    """The columns' names; empty where none was written."""
    joblog_types: list[str]
    shown: str


def _case(name: str, *words: str, **more: object) -> Case:
    return Case(name, words, **more)  # type: ignore[arg-type]


A, B, C = "dir/a.txt", "b.tar.gz", "c"
TWO = {"one": "a b\nc\n", "two": "1\n2\n3\n"}
QUOTES = "within quotes GNU parallel puts a quoted value, so that its quotes become part of it"

CASES: Final = (
    _case("one word is a command line", "probe x {}", ":::", "a", "b", "c"),
    _case("words are joined", "probe", "x", "{}", ":::", "a", "b"),
    _case("a place is added", "probe", "x", ":::", "a", "b"),
    _case("a place is added to a line", "probe x y", ":::", "a b", "c"),
    _case("twice", "probe {} {}", ":::", "a", "b"),
    _case("within a word", "probe pre{}post", ":::", "a b", "c"),
    _case("without extension", "probe {.}", ":::", A, B, C, ".hidden", "d.e/f"),
    _case("name", "probe {/}", ":::", A, B, C, "/x/y/", "/"),
    _case("folder", "probe {//}", ":::", A, B, C, "/x", "/a/b/", "x/y/z", "./k"),
    _case("name without extension", "probe {/.}", ":::", A, B, C, "d.e/f", "x/.hid"),
    _case("number", "probe {#} {}", ":::", "a", "b", "c"),
    _case("number alone", "probe {#}", ":::", "a", "b"),
    _case("all parts", "probe {} {.} {/} {//} {/.} {#}", ":::", A, "a b/c d.e f"),
    _case("positions", "probe {2} {1}", ":::", "a", "b", ":::", "1", "2"),
    _case("positions from the end", "probe {-1} {-2}", ":::", "a", "b", ":::", "1", "2"),
    _case("positions with parts", "probe {1.} {2/} {1//} {2/.}", ":::", A, ":::", B, C),
    _case("parts from the end", "probe {-1.} {-2/}", ":::", A, ":::", B),
    _case("no such position", "probe x {3} y", ":::", "a"),
    _case("no such position in quotes", 'probe x "{3}" y', ":::", "a"),
    _case("combinations", "probe", ":::", "a", "b", ":::", "1", "2", ":::", "x", "y"),
    _case("combinations in a place", "probe {}", ":::", "a", "b", ":::", "1", "2"),
    _case("linked", "probe {1} {2}", ":::", "a", "b", ":::+", "1", "2"),
    _case("linked, the shorter counts", "probe", ":::", "a", "b", "c", ":::+", "1", "2"),
    _case("linked and combined", "probe", ":::", "a", "b", ":::+", "1", "2", ":::", "X", "Y"),
    _case("two links", "probe", ":::", "a", "b", ":::+", "1", "2", ":::+", "x", "y"),
    _case("linked at the end", "probe", ":::", "X", ":::", "a", "b", ":::+", "1", "2"),
    _case("no values", "probe", ":::"),
    _case("an empty source among others", "probe", ":::", "a", ":::", ":::", "b"),
    _case("an empty link", "probe", ":::", "a", "b", ":::+"),
    _case("a file", "probe {}", "::::", "one", files=TWO),
    _case("two files", "probe {2} {1}", "::::", "one", "two", files=TWO),
    _case("linked files", "probe", "::::", "one", "::::+", "two", files=TWO),
    _case("a file and values", "probe", "::::", "one", ":::", "x", "y", files=TWO),
    _case("values and a file", "probe", ":::", "x", "y", "::::", "two", files=TWO),
    _case("a file by option", "probe {}", options=("-a", "two"), files=TWO),
    _case("stdin", "probe {}", stdin="a\nb c\n\nd"),
    _case("stdin keeps spaces", "probe {}", stdin=" a \n\tb\n"),
    _case("stdin is empty", "probe {}", stdin=""),
    _case("stdin without empty lines", "probe {}", options=("-r",), stdin="a\n\nb\n"),
    _case("stdin with zeros", "probe {}", options=("-0",), stdin="a\nb\0c d\0"),
    _case("stdin by name", "probe", "::::", "-", ":::", "x", stdin="a\nb\n"),
    _case("two at a time", "probe {}", ":::", "a", "b", "c", options=("-n2",)),
    _case("two at a time, added", "probe x", ":::", "a", "b c", "d", options=("-n", "2")),
    _case("two at a time, by place", "probe {2} {1}", ":::", "a", "b", "c", options=("-N2",)),
    _case("two in a word", "probe x{}y", ":::", "a", "b", "c", options=("-n2",)),
    _case("two with parts", "probe {/.} {1.}", ":::", A, B, C, options=("-N2",)),
    _case("two combinations", "probe", ":::", "a", "b", ":::", "1", "2", "3", options=("-N2",)),
    _case("none at a time", "probe x", ":::", "a", "b", options=("-n0",)),
    _case("columns", "probe {2} {1}", options=("--colsep", ","), stdin="a,b\nc, d e\n"),
    _case("words kept apart", "probe", "a b", "$x", "p{}q", "it's", ":::", "x y", options=("-q",)),
    _case("hostile values", "probe {}", ":::", *HOSTILE),
    _case("hostile values within a word", "probe x{}y; probe z", ":::", *HOSTILE),
    _case("hostile values and a pipe", "echo x | probe {} | cat", ":::", *HOSTILE),
    _case("hostile values, substituted", "probe $(probe {} >/dev/null; echo x)", ":::", *HOSTILE),
    _case("a redirection", "probe {} >{#}.out", ":::", "a b", "c"),
    _case("some fail", 'probe {}; test {} != "b"', ":::", "a", "b", "c"),
    _case("an exit code", "probe {}; exit 3", ":::", "a"),
    _case("no such program", "no-such-program {}", ":::", "a"),
    _case(
        "within double quotes", 'probe "x {}"', ":::", "a", "b c", "$(touch pwned)",
        differs=QUOTES, ours=(("x a",), ("x b c",), ("x $(touch pwned)",)),
    ),
    _case(
        "within single quotes", "probe 'x {}'", ":::", "a", "b c", "'; touch pwned; '",
        differs=QUOTES, ours=(("x a",), ("x b c",), ("x '; touch pwned; '",)),
    ),
    _case(
        "a newline", "probe {}", ":::", "a\nb",
        differs="GNU parallel takes the lines of a value for values", ours=(("a\nb",),),
    ),
    _case(
        "values as commands", ":::", "probe a", "probe b",
        differs="values are data: headway executes none by itself",
    ),
    _case(
        "a value for another shell", "sh -c 'probe {}'", ":::", "a", "b",
        differs="headway does not write programs from values",
    ),
    _case(
        "a value in backticks", "probe `probe {}`", ":::", "a",
        differs="how quotes nest within backticks differs between shells",
    ),
)  # fmt: skip


def prepare(case: Case, folder: Path) -> dict[str, str]:
    """Make the folder in which a case runs; its environment."""
    programs = folder / "bin"
    programs.mkdir()
    (programs / "probe").write_text(PROBE)
    (programs / "probe").chmod(0o755)
    here = folder / "here"
    here.mkdir()
    for name, text in case.files.items():
        (here / name).write_text(text)
    path = f"{programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    return {
        "PATH": path,
        "HOME": str(folder),
        "PROBE_LOG": str(folder / "probed"),
        "PARALLEL_SHELL": "/bin/sh",
        "LC_ALL": "C.UTF-8",
    }


def probed(folder: Path) -> list[list[str]]:
    """What the probe was given, each time that it was started, sorted."""
    log = folder / "probed"
    lines = log.read_text().splitlines() if log.exists() else []
    return sorted([os.fsdecode(word) for word in ast.literal_eval(line)] for line in lines)


def run_parallel(case: Case, folder: Path) -> Outcome:
    """Run a case by the real GNU parallel."""
    environment = prepare(case, folder)

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["parallel", "-k", *options, *case.options, *case.words],
            input=case.stdin or "",
            capture_output=True,
            text=True,
            cwd=folder / "here",
            env=environment,
            timeout=60,
            check=False,
        )

    done = run("--joblog", str(folder / "joblog"))
    columns, types = joblog_of(folder / "joblog")
    shown = run("--dry-run").stdout
    argv = probed(folder)
    return Outcome(argv, done.stdout, done.returncode == 0, columns, types, shown)


def joblog_of(path: Path) -> tuple[list[str], list[str]]:
    """The columns of a log, and of what type the first command's entry in each is."""
    columns, *entries = [line.split("\t") for line in path.read_text().splitlines()]
    first = [entry for entry in entries if entry[0] == "1"]
    return columns, [_type(text) for text in first[0]] if first else []


def _type(text: str) -> str:
    for kind in (int, float):
        try:
            kind(text)
        except ValueError:
            continue
        return kind.__name__
    return "str"
