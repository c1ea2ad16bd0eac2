"""Functions of plans from the shell: what they are given, and what becomes of a text."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.strangers_shell import Stranger

PLAN = """
headway: 1
vars: {tone: brief, unused: 1}
tasks:
  read:
    each: 'texts/*.txt'
    python: headway.files:text
  told:
    each: read
    vars: {text: "{{ tasks.read.output }}"}
    run: cat "$text_file"
  shout:
    each: read
    python: own:shout
    vars: {mark: "!"}
  joined:
    reduce: shout
    python: headway.reducers:concat
    output: build/joined.txt
"""
OWN = """
def shout(item, text, mark, tone):
    return f"{text.upper()}{mark} {tone}"
"""


@pytest.fixture
def stranger(tmp_path: Path) -> Stranger:
    found = Stranger(tmp_path)
    found.write("plan.yaml", PLAN)
    found.write("own.py", OWN)
    found.write("texts/a.txt", 'he said "hello"\n')
    found.write("texts/b.txt", "two\nlines\n")
    return found


def test_a_text_is_filled_in_and_put_out_as_it_is(stranger: Stranger) -> None:
    ended = stranger("run", "plan.yaml", "--quiet")
    assert ended.code == 0, ended.err
    results = stranger.results()
    assert results["told[texts/a.txt]"] == 'he said "hello"\n'
    assert results["told[texts/b.txt]"] == "two\nlines\n"
    joined = (stranger.here / "build" / "joined.txt").read_text()
    assert joined == 'HE SAID "HELLO"! brief\n\nTWO\nLINES! brief'
