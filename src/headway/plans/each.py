"""The grammar of `each`, which is GNU parallel's: a template, sources of values, one task for each.

Laws:
- A value is data: it never becomes part of a text that a shell reads (`shelltext.py`).
- Nothing is expanded before it is asked for: `member(i)` computes the i-th task from the sources.

As GNU parallel: several words of a template are joined by spaces and read by a shell (`-q` keeps
them apart); `{}` is added where no replacement string is; sources are combined, the first one
slowest, or linked; a source without values among others has one, which is empty.

Unlike GNU parallel: `{}` within quotes is the value itself, not a quoted value within quotes; a
value with a newline is one value; a task always has a command, values alone are not executed; `{%}`
and what `shellreader.py` refuses are refused; `{= =}` is text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Final, Literal

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


@dataclass(frozen=True, slots=True)
class NamedSource:
    """A source as the command line names it: its values, or a file that has them (`-` is stdin)."""

    kind: SourceKind
    words: tuple[str, ...]
    is_linked: bool = False


@dataclass(frozen=True, slots=True)
class EachWords:
    """The words of `each` after its options, told apart."""

    template: tuple[str, ...]
    sources: tuple[NamedSource, ...]


@dataclass(frozen=True, slots=True)
class ValueSource:
    """Values, one for each task or combination; linked ones go along with the source before."""

    values: Sequence[str]
    is_linked: bool = False


@dataclass(frozen=True, slots=True)
class Arrangement:
    """How values become arguments of tasks."""

    arguments_max: int | None = None
    """`-n`: values (or combinations) for each task; None is one, 0 is none at all."""
    column_separator: str | None = None
    """`--colsep`: a regular expression that splits each value into several."""
    is_quoted: bool = False
    """`-q`: the template's words are words, not text for a shell."""


@dataclass(frozen=True, slots=True)
class Invocation:
    """What one task executes."""

    argv: tuple[str, ...]
    environment: dict[str, str]


def parse(words: Sequence[str]) -> EachWords:
    """Tell the template from the sources; files are named, not read."""
    template: list[str] = []
    sources: list[NamedSource] = []
    group: list[str] = template
    groups: list[tuple[str, list[str]]] = []
    for word in words:
        if word in SEPARATORS:
            group = []
            groups.append((word, group))
        else:
            group.append(word)
    for separator, members in groups:
        kind, is_linked = SEPARATORS[separator]
        if kind == "values":
            sources.append(NamedSource(kind, tuple(members), is_linked))
        else:
            sources += [NamedSource(kind, (name,), is_linked) for name in members]
    return EachWords(tuple(template), tuple(sources))


def lines(text: str, is_null: bool = False, skips_empty: bool = False) -> tuple[str, ...]:
    """The values in the text of a file: one a line, or between zero bytes (`-0`); `-r` skips."""
    values = text.split("\0" if is_null else "\n")
    if not values[-1]:
        values.pop()
    return tuple(value for value in values if value or not skips_empty)


@dataclass(frozen=True)
class ArgumentPlan:
    """All tasks of an `each`, computed when asked for."""

    template: str
    """The command line with its replacement strings."""
    axes: tuple[tuple[Sequence[str], ...], ...]
    """Sources that are combined; those within one are linked."""
    arrangement: Arrangement = Arrangement()

    @cached_property
    def text(self) -> ShellText:
        """The template, read; UsageError if it has a value where none can be."""
        return read(self.template)

    @cached_property
    def _columns(self) -> re.Pattern[str] | None:
        separator = self.arrangement.column_separator
        return re.compile(separator) if separator is not None else None

    @cached_property
    def _lengths(self) -> tuple[int, ...]:
        return tuple(min(map(len, axis)) for axis in self.axes)

    @cached_property
    def _combinations(self) -> int:
        return prod(self._lengths)

    def count(self) -> int:
        """How many tasks there are."""
        return -(-self._combinations // self._batch)

    def arguments(self, member: int) -> tuple[str, ...]:
        """A task's values, in order."""
        if self.arrangement.arguments_max == 0:
            return ()
        first = member * self._batch
        last = min(first + self._batch, self._combinations)
        return tuple(value for i in range(first, last) for value in self._record(i))

    def member(self, member: int) -> Invocation:
        """What a task executes."""
        number = member + 1
        argv = self.text.argv(self.arguments(member), number)
        return Invocation(argv, {"PARALLEL_SEQ": str(number)})

    def display(self, member: int) -> str:
        """A task as GNU parallel prints it: the template with its values quoted for a shell."""
        arguments = self.arguments(member)

        def shown(match: re.Match[str]) -> str:
            found = found_at(match.string, match.start())
            values = found.values(arguments, member + 1) if found else ()
            return " ".join(map(quoted, values))

        return PATTERN.sub(shown, self.template)

    @property
    def _batch(self) -> int:
        return self.arrangement.arguments_max or 1

    def _record(self, index: int) -> Iterable[str]:
        """One combination; the first source changes slowest."""
        found: list[str] = []
        rest = self._combinations
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
    arrangement: Arrangement = Arrangement(),
) -> ArgumentPlan:
    """Check a template and its sources; UsageError says what is wrong and what to write."""
    if not "".join(template).strip():
        raise UsageError(
            "there is no command: values are not executed by themselves",
            hint="headway each 'sh -c {}' ::: ... if the values are commands",
        )
    for source in sources:
        if any("\0" in value for value in source.values):
            raise UsageError(
                "a value has a zero byte in it", hint="use -0 if zeros separate values"
            )
    plan = ArgumentPlan(_line(template, arrangement), _axes(sources), arrangement)
    _check(plan)
    return plan


def _line(template: Sequence[str], arrangement: Arrangement) -> str:
    words = [_literal(word) for word in template] if arrangement.is_quoted else template
    line = " ".join(words)
    return line if PATTERN.search(line) else line + " {}"


def _literal(word: str) -> str:
    """A word whose text means itself; only its replacement strings are replaced."""
    pieces: list[str] = []
    end = 0
    for match in PATTERN.finditer(word):
        pieces += [_quoted_if_any(word[end : match.start()]), match[0]]
        end = match.end()
    return "".join([*pieces, _quoted_if_any(word[end:])]) or "''"


def _quoted_if_any(text: str) -> str:
    return quoted(text) if text else ""


def _axes(sources: Sequence[ValueSource]) -> tuple[tuple[Sequence[str], ...], ...]:
    axes: list[list[Sequence[str]]] = []
    for source in sources:
        values = source.values or (("",) if len(sources) > 1 else ())
        if source.is_linked and axes:
            axes[-1].append(values)
        else:
            axes.append([values])
    return tuple(map(tuple, axes))


def _check(plan: ArgumentPlan) -> None:
    """Everything that can be wrong is wrong before the first task starts."""
    separator = plan.arrangement.column_separator
    try:
        re.compile(separator or "")
    except re.error as fault:
        raise UsageError(
            f"--colsep {separator!r} is no regular expression: {fault}", hint="--colsep ,"
        ) from None
    number = plan.arrangement.arguments_max or 0
    if not 0 <= number <= ARGUMENTS_MAX:
        raise UsageError(f"-n {number} is not between 0 and {ARGUMENTS_MAX}", hint="-n 100")
    if plan.count() > TASKS_MAX:
        raise UsageError(
            f"{plan.count():,} combinations, at most {TASKS_MAX:,}", hint="link sources with :::+"
        )
    plan.text.script(0)
