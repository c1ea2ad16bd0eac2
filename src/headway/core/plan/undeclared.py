"""What commands seem to touch without saying so: a path in the text that another task writes.

Only what matters is told: a path that is redirected to and that others touch, or one that is named
by a task which is in no order with those who write it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final, Literal

from headway.core.plan.hazard import Survey
from headway.core.plan.mention import Mention, mentions
from headway.core.plan.paths import above
from headway.core.plan.remark import Remark, where, with_entry
from headway.core.plan.section import shown

REMARKS_MAX: Final = 100
"""That are told of one plan; whoever has more has not declared anything yet."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """One mention, and somebody else who touches the path."""

    group: int
    mention: Mention
    other: int
    path: str
    """As the other one says it."""
    is_write: bool
    """The other one writes it."""
    is_ordered: bool


def undeclared(survey: Survey) -> Iterator[Remark]:
    """Remarks on paths that commands name and tasks do not declare, one for each task."""
    seen = {
        group.index: found for group in survey.expanded.groups if (found := tuple(mentions(group)))
    }
    writes = _written(survey, seen)
    every = (_worst(survey, index, found, writes) for index, found in seen.items())
    for one in islice((one for one in every if one is not None), REMARKS_MAX):
        yield _remark(survey, one)


def _written(survey: Survey, seen: Mapping[int, tuple[Mention, ...]]) -> Mapping[str, set[int]]:
    """Which groups write what, or something in it, by what is declared and by what is shown."""
    writes: dict[str, set[int]] = {}
    named = {mention.path for found in seen.values() for mention in found}
    for path, groups in survey.touched.writes.items() if seen else ():
        writes.setdefault(path, set()).update(groups)
        for outer in above(path):
            if outer in named:
                writes.setdefault(outer, set()).update(groups)
    for index, found in seen.items():
        for mention in found:
            if mention.how == "writes":
                writes.setdefault(mention.path, set()).add(index)
    return writes


def _worst(
    survey: Survey, index: int, found: tuple[Mention, ...], writes: Mapping[str, set[int]]
) -> _Seen | None:
    """What a task does not declare and matters: a write before a read, a hazard before the rest."""
    every = [
        one
        for mention in dict.fromkeys(found)
        if not _is_declared(survey, index, mention, writes)
        for one in _others(survey, index, mention, writes)
        if not one.is_ordered or _is_sure(survey, one)
    ]
    return min(every, key=lambda one: (one.is_ordered, one.mention.how != "writes"), default=None)


def _is_declared(
    survey: Survey, index: int, mention: Mention, writes: Mapping[str, set[int]]
) -> bool:
    """Whoever writes a path may read it, too."""
    touched = survey.touched
    paths = (mention.path, *above(mention.path))
    if any(index in touched.writes.get(path, ()) for path in paths):
        return True
    if mention.how == "writes":
        return False
    is_own = index in writes.get(mention.path, ())
    return is_own or any(index in touched.reads.get(path, ()) for path in paths)


def _others(
    survey: Survey, index: int, mention: Mention, writes: Mapping[str, set[int]]
) -> Iterator[_Seen]:
    """Those who write what a command names; of what it writes, those who read it, too."""
    entirely, reads = survey.order.entirely, survey.touched.reads

    def seen(other: int, path: str, is_write: bool) -> _Seen:
        is_ordered = bool(entirely[index] >> other & 1 or entirely[other] >> index & 1)
        return _Seen(index, mention, other, path, is_write, is_ordered)

    for path in (mention.path, *above(mention.path)):
        others = sorted(writes.get(path, ()))
        yield from (seen(other, path, True) for other in others if other != index)
        if mention.how == "writes":
            others = sorted(reads.get(path, ()))
            yield from (seen(other, path, False) for other in others if other != index)


def _is_sure(survey: Survey, seen: _Seen) -> bool:
    """A redirection is more than a name, and the other one does say what it shares."""
    task = survey.expanded.groups[seen.other].task
    return seen.mention.how != "names" and bool(
        (task.writes or task.output) if seen.is_write else task.reads
    )


def _remark(survey: Survey, seen: _Seen) -> Remark:
    groups = survey.expanded.groups
    group, other = groups[seen.group], groups[seen.other]
    mention = seen.mention
    key: Literal["reads", "writes"] = "writes" if mention.how == "writes" else "reads"
    who = f"`{group.label(mention.member)}`"
    does = f"{mention.how} `{shown(mention.path)}`"
    verb = "writes" if seen.is_write else "reads"
    detail = f"`{other.name}` {verb} it; as long as the other needs stay, they are in order"
    if not seen.is_ordered and key == "reads":
        detail = f"`{other.name}` writes it: if {who} runs first, it reads the old version"
    elif not seen.is_ordered:
        detail = f"if {who} runs first, `{other.name}` overwrites it"
        if not seen.is_write:
            detail = f"if `{other.name}` runs first, it reads the version from before the run"
    is_hazard = not seen.is_ordered or key == "writes"
    return Remark(
        "warning" if is_hazard else "note",
        "undeclared",
        group.name,
        f"the command of {who} {does}, and `{group.name}` does not declare it",
        detail,
        f"add `{key}: {shown(seen.path)}` to `{group.name}`",
        (with_entry(group.task, key, seen.path),),
        where(survey.expanded.spec.file, group.task.spot("run").value),
        seen.path,
    )
