"""The grammar of `each`, which is GNU parallel's.

Laws:
- A value is data: it never becomes part of a text that a shell reads (`shell.py`).
- Nothing is expanded before it is asked for: `member(i)` computes the i-th task from the sources.

As GNU parallel: several words of a template are joined by spaces and read by a shell (`-q` keeps
them apart); `{}` is added where no replacement string is; sources are combined, the first one
slowest, or linked; a source without values among others has one, which is empty.

Unlike GNU parallel: `{}` within quotes is the value itself, not a quoted value within quotes; a
value with a newline is one value; a task always has a command, values alone are not executed; `{%}`
and what `shell.py` refuses are refused; `{= =}` is text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from math import prod
from typing import Final, Literal

from msgspec import Struct

from headway.errors import UsageError
from headway.plans.shell import PATTERN, ShellText, found_at, quoted, read

TASKS_MAX: Final = 10_000_000
"""Combinations grow fast, and a mistake should cost a message, not a day."""
ARGUMENTS_MAX: Final = 1_000
"""Values of one task: the text that names them all has to fit in one argument of a shell."""

SourceKind = Literal["values", "file"]
SEPARATORS: Final[dict[str, tuple[SourceKind, bool]]] = {
    ":::": ("values", False),
    ":::+": ("values", True),
    "::::": ("file", False),
    "::::+": ("file", True),
}


NamedSource = tuple[SourceKind, tuple[str, ...], bool]
"""A source as the command line names it: its values, or a file that has them (`-` is stdin), and
whether it is linked with the source before."""

ValueSource = tuple[Sequence[str], bool]
"""Values, one for each task or combination; linked ones go along with the source before."""


def parse(words: Sequence[str]) -> tuple[list[str], list[NamedSource]]:
    """Tell the template from the sources; files are named, not read."""
    template: list[str] = []
    group: list[str] = template
    groups: list[tuple[str, list[str]]] = []
    for word in words:
        if word in SEPARATORS:
            group = []
            groups.append((word, group))
        else:
            group.append(word)
    sources: list[NamedSource] = []
    for separator, members in groups:
        kind, is_linked = SEPARATORS[separator]
        if kind == "values":
            sources.append((kind, tuple(members), is_linked))
        else:
            sources += [(kind, (name,), is_linked) for name in members]
    return template, sources


def lines(text: str, is_null: bool = False, skips_empty: bool = False) -> tuple[str, ...]:
    """The values in the text of a file: one a line, or between zero bytes (`-0`); `-r` skips."""
    values = text.split("\0" if is_null else "\n")
    if not values[-1]:
        values.pop()
    return tuple(value for value in values if value or not skips_empty)


class ArgumentPlan(Struct, frozen=True, dict=True):
    """All tasks of an `each`, computed when asked for."""

    template: str
    """The command line with its replacement strings."""
    axes: tuple[tuple[Sequence[str], ...], ...]
    """Sources that are combined; those within one are linked."""
    arguments_max: int | None = None
    """`-n`: values (or combinations) for each task; None is one, 0 is none at all."""
    column_separator: str | None = None
    """`--colsep`: a regular expression that splits each value into several."""

    @cached_property
    def text(self) -> ShellText:
        """The template, read; UsageError if it has a value where none can be."""
        return read(self.template)

    @cached_property
    def _columns(self) -> re.Pattern[str] | None:
        separator = self.column_separator
        return re.compile(separator) if separator is not None else None

    @cached_property
    def _lengths(self) -> tuple[int, ...]:
        return tuple(min(map(len, axis)) for axis in self.axes)

    def count(self) -> int:
        return -(-prod(self._lengths) // (self.arguments_max or 1))

    def arguments(self, member: int) -> tuple[str, ...]:
        """A task's values, in order."""
        batch = self.arguments_max if self.arguments_max is not None else 1
        first = member * batch
        last = min(first + batch, prod(self._lengths))
        return tuple(value for i in range(first, last) for value in self._record(i))

    def argv(self, member: int) -> tuple[str, ...]:
        return self.text.argv(self.arguments(member), member + 1)

    def display(self, member: int) -> str:
        """A task as GNU parallel prints it: the template with its values quoted for a shell."""
        arguments = self.arguments(member)

        def shown(match: re.Match[str]) -> str:
            found = found_at(match.string, match.start())
            values = found.values(arguments, member + 1) if found else ()
            return " ".join(map(quoted, values))

        return PATTERN.sub(shown, self.template)

    def _record(self, index: int) -> Iterable[str]:
        found: list[str] = []
        rest = prod(self._lengths)
        for axis, length in zip(self.axes, self._lengths, strict=True):
            rest //= length
            place = index // rest % length
            found += [values[place] for values in axis]
        if self._columns is None:
            return found
        return [part.strip() for value in found for part in self._columns.split(value)]


def arrange(
    template: Sequence[str],
    sources: Sequence[ValueSource],
    arguments_max: int | None = None,
    column_separator: str | None = None,
    is_quoted: bool = False,
) -> ArgumentPlan:
    """Check a template and its sources; with `is_quoted` (`-q`) its words are no shell text."""
    if not "".join(template).strip():
        raise UsageError(
            "there is no command: values are not executed by themselves",
            hint="headway each 'sh -c {}' ::: ... if the values are commands",
        )
    for values, _ in sources:
        if any("\0" in value for value in values):
            raise UsageError(
                "a value has a zero byte in it", hint="use -0 if zeros separate values"
            )
    line = " ".join(map(_literal, template) if is_quoted else template)
    line = line if PATTERN.search(line) else line + " {}"
    plan = ArgumentPlan(line, _axes(sources), arguments_max, column_separator)
    _check(plan)
    return plan


def _literal(word: str) -> str:
    """A word whose text means itself; only its replacement strings are replaced."""
    pieces: list[str] = []
    end = 0
    for match in PATTERN.finditer(word):
        pieces += [word[end : match.start()], match[0]]
        end = match.end()
    pieces.append(word[end:])
    pieces[::2] = [quoted(text) if text else "" for text in pieces[::2]]
    return "".join(pieces) or "''"


def _axes(sources: Sequence[ValueSource]) -> tuple[tuple[Sequence[str], ...], ...]:
    axes: list[list[Sequence[str]]] = []
    for given, is_linked in sources:
        values = given or (("",) if len(sources) > 1 else ())
        if is_linked and axes:
            axes[-1].append(values)
        else:
            axes.append([values])
    return tuple(map(tuple, axes))


def _check(plan: ArgumentPlan) -> None:
    """Everything that can be wrong is wrong before the first task starts."""
    separator = plan.column_separator
    try:
        re.compile(separator or "")
    except re.error as fault:
        raise UsageError(
            f"--colsep {separator!r} is no regular expression: {fault}", hint="--colsep ,"
        ) from None
    number = plan.arguments_max or 0
    if not 0 <= number <= ARGUMENTS_MAX:
        raise UsageError(f"-n {number} is not between 0 and {ARGUMENTS_MAX}", hint="-n 100")
    if plan.count() > TASKS_MAX:
        raise UsageError(
            f"{plan.count():,} combinations, at most {TASKS_MAX:,}", hint="link sources with :::+"
        )
    plan.text.script(0)
