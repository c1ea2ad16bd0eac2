"""Tables of steps: what a part is asked to do, and what it has to answer.

A case is a line `name: maker` and indented lines of steps. A step is a method with its arguments,
or an attribute, and after ` = ` what it has to be. `3x` repeats a step, `set` sets an attribute,
`a :=` keeps a result. `0:9:50` is a planned stream from 0 to 9 s of 50 tokens, `told(30,5)` a
reading with 30 left that resets in 5 s, `use(0.4,60,9)` one of a share of a window. Of a wait, its
end is compared; a round of latencies is `calls at work per second`.
"""

from __future__ import annotations

import re
from contextlib import suppress
from operator import attrgetter
from typing import Any

import pytest

from headway.base.values import Amounts, Demand, LimitReading, Reading, Wait
from headway.pacing.meters import PlannedStream

WORDS = {
    "None": None, "True": True, "False": False, "''": "", "none": PlannedStream(0.0, 1e-3, 0.0),
    "doubtful": Demand(Amounts(100.0), Amounts(120.0)),
}  # fmt: skip


def _told(remaining: str = "-", reset_s: str = "0", limit: str = "600") -> LimitReading:
    left = None if remaining == "-" else float(remaining)
    return LimitReading("input", 60.0, float(limit), left, float(reset_s) or None)


def value_of(word: str) -> Any:
    """A number, a stream, a demand, a usage, a reading, or the word itself."""
    if word.count(":") == 2:
        return PlannedStream(*map(float, word.split(":")))
    if found := re.fullmatch(r"(demand|usage)\((.*)\)", word):
        read, written, cost = (float(one or 0) for one in f"{found[2]},,".split(",")[:3])
        amounts = Amounts(read, written, int(cost))
        return Demand(amounts, amounts) if found[1] == "demand" else amounts
    if found := re.fullmatch(r"(told|read)\((.*)\)", word):
        told = _told(*filter(None, found[2].split(",")))
        other = LimitReading("output", 60.0, 600.0, 7.0, None)
        return told if found[1] == "told" else Reading((other, told) if found[2] else ())
    if found := re.fullmatch(r"use\((.*),(.*),(.*)\)", word):
        used, period_s, reset_s = (None if one == "-" else float(one) for one in found.groups())
        return LimitReading("tokens", period_s, None, None, reset_s, used)
    with suppress(ValueError):
        return float(word)
    return WORDS.get(word, word)


def _performed(part: object, words: list[str], kept: dict[str, object]) -> Any:
    times, (name, *given) = 1, words
    if given and given[0] == ":=":
        kept[name] = _performed(part, given[1:], kept)
        return None
    if name == "set":
        *path, last = given[0].split(".")
        setattr(attrgetter(".".join(path))(part) if path else part, last, value_of(given[1]))
        return None
    if re.fullmatch(r"\d+x", name):
        times, (name, *given) = int(name[:-1]), given
    value = attrgetter(name)(part)
    if callable(value):
        arguments = [kept[word] if word in kept else value_of(word) for word in given]
        value = [value(*arguments) for _ in range(times)][-1]
    if isinstance(value, tuple):
        return " at ".join(f"{one:g}" for one in value)
    return value.until_s if isinstance(value, Wait) else value


def cases(table: str) -> list[Any]:
    """The makers and steps of a table, by name."""
    found = re.findall(r"^(\S.*): (\S.*)\n((?:    .*\n)+)", table, re.MULTILINE)
    assert len(found) == len(re.findall(r"^\S", table, re.MULTILINE))
    return [pytest.param(maker, steps, id=name) for name, maker, steps in found]


def perform(part: object, steps: str) -> None:
    """Do each step and compare what it has to be."""
    assert " = " in steps
    kept: dict[str, object] = {}
    for step in " ".join(steps.split()).rstrip(";").split(";"):
        words, _, expected = step.partition(" = ")
        value = _performed(part, words.split(), kept)
        if expected and isinstance(value, str):
            assert value == expected.strip().strip("'"), f"{step}, and is {value}"
        elif expected:
            wanted = value_of(expected.strip())
            close = pytest.approx(wanted, abs=1e-6) if isinstance(wanted, float) else wanted
            assert value == close, f"{step}, and is {value}"
