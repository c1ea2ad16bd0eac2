"""Paths that the text of a command names: what it reads or writes, as far as one can see that.

A command is only looked at. What is seen is never taken for what it declares: a path in it may be
an argument that is never opened, and a script opens what its caller does not name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from headway.core.plan.expand import GroupPlan
from headway.core.plan.paths import WILD, inside
from headway.core.plan.spec import Run
from headway.core.plan.template import Template, parse_template

COMMAND_CHARS_MAX: Final = 20_000
"""Of a longer command only the beginning is looked at."""

MEMBERS_SEEN_MAX: Final = 100
"""Members whose command is looked at: they have the same one, with other values."""

_WORD: Final = re.compile(
    r"(?P<to>\d?>>?\|?|&>>?)?(?P<of><)?[ \t]*"
    r"""(?P<quote>["']?)(?P<path>[^\s"'<>|&;()`=,]+)(?P=quote)"""
)
_VALUE: Final = re.compile(r"\$(?:\{(?P<in>[a-z][a-z0-9_]*)\}|(?P<name>[a-z][a-z0-9_]*))")
_MOVES: Final = re.compile(r"(?:^|[\s;&|(])(?:cd|pushd)\s|<<")
"""Paths after these are relative to something else, or are no paths."""

How = Literal["writes", "reads", "names"]
"""It is redirected to | or from | an argument, whatever the command does with it."""


@dataclass(frozen=True, slots=True)
class Mention:
    """A path that one member's command names."""

    member: int
    path: str
    how: How


def mentions(group: GroupPlan) -> Iterator[Mention]:
    """The paths that a group's commands name, member by member."""
    work = group.task.work
    if not isinstance(work, Run) or group.members is None or _MOVES.search(work.command):
        return
    words = list(_words(group, work.command[:COMMAND_CHARS_MAX]))
    for member in range(min(group.members.count, MEMBERS_SEEN_MAX)):
        for template, how in words:
            text = group.fill(template, group.members.member(member))
            path = inside(text) if how != "names" or _looks_like_a_path(text) else None
            if path and not any(char in path for char in WILD):
                yield Mention(member, path, how)
        if not any(template.refs for template, _ in words):
            return


def _words(group: GroupPlan, command: str) -> Iterator[tuple[Template, How]]:
    """Words that can be paths, with the values of variables as holes: a value may be one, too."""
    known = _values(group) if "$" in command else {}
    for found in _WORD.finditer(command):
        text = found["path"]
        is_redirected = found["to"] or found["of"]
        if "{{" in text or not (is_redirected or "$" in text or _looks_like_a_path(text)):
            continue
        if found["quote"] != "'":
            text = _VALUE.sub(lambda name: known.get(name["in"] or name["name"], name[0]), text)
        template = parse_template(text)
        if isinstance(template, Template) and "$" not in text and not text.startswith("-"):
            yield template, "writes" if found["to"] else "reads" if found["of"] else "names"


def _looks_like_a_path(text: str) -> bool:
    return "/" in text or "." in text


def _values(group: GroupPlan) -> dict[str, str]:
    """By the name of an environment variable, the hole that stands for its value."""
    own = {"item": "{{ item }}", "index": "{{ index }}"}
    members = group.known
    if members.items is None:
        del own["item"]
    own |= {name: f"{{{{ matrix.{name} }}}}" for name, _ in members.matrix}
    for name, value in group.vars.items():
        if not (isinstance(value, Template) and any(ref.task for ref in value.refs)):
            own[name] = f"{{{{ vars.{name} }}}}"
    return own
