"""What a program can do to a file that its observer could miss: all end as one after the other.

A ends after B, which has looked at what A changes in a way that is not a plain read. Each was wrong
once, or is a way to read and write that the filter has to know.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests.workspaces.pairs import COMMIT, Pair
from tests.workspaces.test_pairs import WAYS, say_name, through_headway

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has seccomp")

CHANGE_F = "echo changed > f\n" + COMMIT
MAKE_NEW = "echo 1 > new\n"
CALL = """\
import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True)
def call(*words):
    made = [word if isinstance(word, bytes) else ctypes.c_long(word) for word in words]
    return libc.syscall(*made)
def content(fd):
    return os.read(fd, 100).decode()
HERE = -100
"""
"""The numbers of calls are those of x86_64, or those that are the same everywhere."""


def python(code: str) -> str:
    return f"python3 -I - > said <<'END'\n{CALL}{code}\nEND\n"


def fault_of(code: str) -> str:
    """What a call that fails says: whether something is there."""
    return python(f"try:\n    {code}\n    print('done')\nexcept OSError as fault:\n"
                  "    print(type(fault).__name__)")  # fmt: skip


FILES = {"f": "first\n", "g": "other\n", "d/one": "1\n", "d/two": "2\n", "z/c": "linked\n"}
ROWS = {
    "mkdir where something may stand": ("mkdir new\necho 1 > new/x\n", fault_of("os.mkdir('new')")),
    "symlink where something may stand": (MAKE_NEW, fault_of("os.symlink('f', 'new')")),
    "link where something may stand": (MAKE_NEW, fault_of("os.link('f', 'new')")),
    "rename of a folder onto one": ("echo 3 > d/new\nrm d/one d/two\n",
                                    "mkdir e\n" + fault_of("os.rename('e', 'd')")),
    "times of a file": (MAKE_NEW, fault_of("os.utime('new')")),
    "extended attributes": (MAKE_NEW, fault_of("os.getxattr('new', 'user.x')")),
    "a path below what is not there": ("ln -s z a\n", "cat a/c > said || echo none > said\n"),
    "the kind of an entry": (
        "cd d\nrm one\nln -s two one\n",
        python("print([one.name for one in os.scandir('d') if one.is_symlink()])"),
    ),
    "an exchange": (CHANGE_F, python("print(call(316, HERE, b'g', HERE, b'f', 2))")),
    "a rename that replaces nothing": (
        MAKE_NEW, "echo 2 > h\n" + python("print(call(316, HERE, b'h', HERE, b'new', 1))"),
    ),
    "a write where a folder comes": ("mkdir new\necho 1 > new/x\n",
                                     "(echo 2 > new) || echo folder > said\n"),
    "a write that fails, then a read": (
        "mkdir new\necho 1 > new/f\n",
        "(echo 2 > new/f) || cat new/f > said || echo none > said\n",
    ),
    "git puts a file back": (CHANGE_F, "echo junk > f\ngit checkout -q -- f\necho done > said\n"),
    "git stashes a file": (CHANGE_F, "echo junk > f\ngit stash -q\ncp f said\n"),
    "a file of the last commit": (CHANGE_F, "git checkout -q HEAD~0 -- f\ncp f said\n"),
    "a program of the folder that is called as a search": (
        CHANGE_F, "printf '#!/bin/sh\\ncat f > said\\n' > find\nchmod +x find\n./find\n",
    ),
    "openat2": (
        CHANGE_F, python("print(content(call(437, HERE, b'f', struct.pack('QQQ', 0, 0, 0), 24)))")
    ),
    "a file without a name": (
        CHANGE_F,
        python("new = os.open('.', os.O_RDWR | os.O_TMPFILE)\n"
               "os.write(new, open('f', 'rb').read())\n"
               "print(call(265, HERE, b'/proc/self/fd/%d' % new, HERE, b'copied', 0x400))"),
    ),
    "a folder that is open": (
        "echo 3 > d/one\n",
        python("there = os.open('d', os.O_PATH)\n"
               "print(open(f'/proc/self/fd/{there}/one').read())\n"
               "print(open(f'/dev/fd/{there}/one').read())"),
    ),
    "through its own number": (CHANGE_F, "cat /proc/$$/cwd/f > said\n"),
    "a program by its descriptor": (
        "printf '#!/bin/sh\\necho changed\\n' > g\nchmod +x g\n",
        "chmod +x g 2> said || true\n" + python(
            "there = os.open('g', os.O_PATH)\nprint(oct(os.stat(there).st_mode))"),
    ),
    "memory that is written through": (
        CHANGE_F,
        python("import mmap\nwith open('f', 'r+b') as file:\n"
               "    with mmap.mmap(file.fileno(), 0) as text:\n        text[0:1] = b'F'"),
    ),
    "a file of nothing becomes a folder": (
        ": > g\n", python("print(os.path.getsize('g'), sorted(os.listdir('.')))"),
    ),
    "a name in capitals": ("git mv f F\n" + COMMIT, "ls > said\ncat f >> said || true\n"),
    "a name of any bytes": (
        "printf 1 > \"$(printf 'a\\nb')\"\n",
        "printf 1 > \"$(printf 'a\\377 \\tb')\"\ncat a* > said\n",
    ),
    "holes": (CHANGE_F, "truncate -s 1M h\ncat f >> h\n"),
    "a mount of its own": (
        CHANGE_F,
        "unshare -rm sh -c 'mount --bind f g && cat g' > said 2> /dev/null || cat f > said\n",
    ),
}  # fmt: skip
WAYS["exact, checks"] = "workspace: on\nland: exact\nchecks: ['*count*']\n"


@pytest.mark.parametrize("name", ROWS)
def test_each_ends_as_one_after_the_other(tmp_path: Path, name: str) -> None:
    if re.search("call\\((316|265)", ROWS[name][1]) and os.uname().machine != "x86_64":
        pytest.skip("the numbers of its calls are others")
    a, b = ROWS[name]
    pair = Pair("attack", name, FILES, a, b, "true")
    assert not through_headway(tmp_path, pair, "exact").fault, say_name(pair)


def test_what_a_check_lists_counts_in_exact(tmp_path: Path) -> None:
    files = {**FILES, "count.py": "import os\nprint(len(os.listdir('d')))\n"}
    pair = Pair("attack", "", files, "echo 3 > d/three\n", "python3 count.py > said\n", "true")
    assert not through_headway(tmp_path, pair, "exact, checks").fault
