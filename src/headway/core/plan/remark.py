"""What `headway check` remarks on in a plan that can be run: what is odd, where, and the fix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headway.core.plan.spec import TaskSpec
from headway.errors import Fix, Place

Severity = Literal["warning", "note"]
"""It will hardly give what is meant; or it can be meant, and whoever reads it knows."""

Kind = Literal[
    "undeclared", "nobody writes", "read too early", "nobody reads", "carries nothing",
    "runs again", "unused variable", "no model", "not judged",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Remark:
    """One thing that looks odd."""

    severity: Severity
    kind: Kind
    task: str
    """The declared task; empty if it is about the plan."""
    message: str
    detail: str = ""
    """What would go wrong."""
    hint: str = ""
    fixes: tuple[Fix, ...] = ()
    """What the hint says, as edits of the plan."""
    where: str = ""
    """File, line and column."""
    what: str = ""
    """The path or key that it is about, as declared."""


def where(file: str, place: Place) -> str:
    """A place as people read it."""
    return f"{file}:{place.line}:{place.column}" if place.line else file


def with_entry(task: TaskSpec, key: Literal["reads", "writes"], entry: str) -> Fix:
    """The edit that adds an entry to what a task declares."""
    entries = task.reads if key == "reads" else task.writes
    if any(name == key for name, _ in task.spots):
        value = (*entries, entry) if entries else entry
        return Fix("replace", task.spot(key).value, value=value)
    return Fix("add", task.body, key, entry)


def listed(names: list[str], most: int = 3) -> str:
    """Names in a sentence: `a`, `b` and 7 more."""
    shown = [f"`{name}`" for name in names[:most]]
    if len(names) > most:
        return f"{', '.join(shown)} and {len(names) - most:,} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else "".join(shown)
