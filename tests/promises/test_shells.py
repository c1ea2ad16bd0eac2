"""`headway each`: no shell reads an input as text, and known programs are not given one as code."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.promises.templates import EXECUTING, HARMLESS, RUN
from tests.promises.user import User, user

PROBE = '#!/bin/sh\nfor one in "$@"; do printf \'%s\\n\' "$one"; done\n'
NASTY = "$(touch canary) `touch canary`; touch canary & 'it' \"is\" a[$(touch canary)] * ~ \\ %s\té"
SLICE = 15
"""Of so many templates one is tried by default, and all of them in `make soak`."""


def sliced(templates: tuple[object, ...]) -> list[object]:
    return [
        pytest.param(one, marks=() if at % SLICE == 0 else pytest.mark.soak, id=str(one)[:70])
        for at, one in enumerate(templates)
    ]


@pytest.fixture
def someone(tmp_path: Path) -> Iterator[User]:
    with user(tmp_path) as made:
        for name, text in {
            "probe": PROBE,
            "script.sh": '#!/bin/sh\nfor a; do case $a in -[ce]) ;; *) probe "$a";; esac; done',
            "script.py": "import sys\nprint(sys.argv[-1])\n",
            "script.pl": 'print "$ARGV[-1]\\n";\n',
        }.items():
            path = made.write(name, text)
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
        made.env["PATH"] = f"{made.folder}:{made.env['PATH']}"
        yield made


@pytest.mark.parametrize("case", sliced(EXECUTING))
def test_an_input_is_never_executed(someone: User, case: tuple[str, str]) -> None:
    template, given = case
    words = [word for value in given.split("\t") for word in (":::", value)]
    ended = someone.headway("each", "--timeout", "20s", template, *words)
    assert not (someone.folder / "canary").exists()
    assert ended.returncode == 2, ended
    assert "hint" in ended.stderr


@pytest.mark.parametrize("template", sliced(HARMLESS))
def test_a_harmless_template_passes_an_input_as_it_is(someone: User, template: str) -> None:
    ended = someone.headway("each", template, ":::", NASTY)
    assert NASTY in ended.stdout, ended
    assert not (someone.folder / "canary").exists()


def test_values_are_commands_where_the_template_says_so(someone: User) -> None:
    ended = someone.headway("each", "sh -c {}", ":::", RUN)
    assert ended.returncode == 0, ended.stderr
    assert (someone.folder / "canary").exists()
