"""The questions of "The Parallelization Trap", answered for one plan in plain sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headway.core.plan.boundary import Boundary, Strand
from headway.core.plan.remark import listed

SHOWN_MAX: Final = 6
"""Couplings and sets that are told one by one: who has more reads them in the table or as JSON."""

STRANDS_SHOWN_MAX: Final = 4
DECLARED: Final = ", as far as is declared"


def answers(found: Boundary) -> tuple[str, ...]:
    """What is embarrassingly parallel, what is coupled and by what, where the boundary is."""
    return (
        *_parallel(found),
        *_coupled(found),
        *_bounded(found),
        _width(found),
    )


def _parallel(found: Boundary) -> list[str]:
    lines: list[str] = []
    for strand in found.strands[:STRANDS_SHOWN_MAX]:
        lines.append(f"Embarrassingly parallel: {_strand(strand)}.")
    if rest := found.strands[STRANDS_SHOWN_MAX:]:
        more = listed([name for strand in rest for name in strand.groups])
        lines.append(f"Embarrassingly parallel, too: {more}.")
    if found.alone:
        its, verb = ("its", "shares") if len(found.alone) == 1 else ("their", "share")
        names = listed(list(found.alone))
        line = f"On {its} own: {names} {verb} nothing with any other task"
        lines.append(f"{line}{'' if found.is_proven else DECLARED}.")
    if not lines and len(found.inside) == 1 and found.width > 1:
        return ["Nothing is embarrassingly parallel: every task has to do with another one."]
    return lines


def _strand(strand: Strand) -> str:
    many = "as many as are found" if strand.count is None else f"{strand.count:,}"
    if len(strand.groups) == 1:
        what = f"the members of `{strand.groups[0]}` ({many}), which share nothing that changes"
    else:
        chain = " -> ".join(f"`{name}`" for name in strand.groups)
        what = f"{chain} for each item ({many}): in order for one item, in any order between items"
    return what if strand.is_proven else what + DECLARED


def _coupled(found: Boundary) -> list[str]:
    if not found.couplings:
        return []
    own = {name: strand for strand in found.strands for name in strand.groups}
    shown = [
        one
        for one in found.couplings
        if not (one.memberwise and own.get(one.before) is own.get(one.after, found))
    ]
    by_after: dict[tuple[str, str, str], list[str]] = {}
    for one in shown:
        by_after.setdefault((one.before, one.by, one.what), []).append(one.after)
    lines = [
        _told(before, after, (by, what), found)
        for (before, by, what), after in list(by_after.items())[:SHOWN_MAX]
    ]
    hidden = len(by_after) - SHOWN_MAX
    if hidden > 0:
        lines.append(f"{hidden:,} more such pairs")
    return [f"Coupled: {'; '.join(lines)}."] if lines else []


def _told(before: str, after: list[str], by: tuple[str, str], found: Boundary) -> str:
    """One coupling in words."""
    them = listed(after)
    is_many = any(before in strand.groups for strand in found.strands) or before in found.turns
    every = f"all of `{before}`" if is_many else f"`{before}`"
    verb = "need" if len(after) > 1 else "needs"
    match by:
        case ("result", _):
            return f"{them} {verb} the {'results' if is_many else 'result'} of {every}"
        case ("items", _):
            have = "have" if len(after) > 1 else "has"
            return f"{them} {have} a member for each result of {every}"
        case ("path" | "key", what):
            kind = "the key " if by[0] == "key" else ""
            return f"{them} {verb} {kind}`{what}` as {every} {'leave' if is_many else 'leaves'} it"
        case ("queue", what):
            return f"`{before}` and {them} take turns in queue `{what}`"
    return f"{them} must come after {every}"


def _bounded(found: Boundary) -> list[str]:
    lines: list[str] = []
    own = {strand.groups[0]: strand for strand in found.strands}
    sets = [_row(stages, own) for stages in found.inside[:SHOWN_MAX]]
    hidden = len(found.inside) - SHOWN_MAX
    if hidden > 0:
        sets.append(f"{hidden:,} more")
    has_bars = any(len(stages) > 1 for stages in found.inside)
    bars = " What is left of a bar is done before anything right of it starts." if has_bars else ""
    if len(sets) == 1:
        lines.append(f"Coherence boundary: {sets[0]}.{bars}")
    elif sets:
        lines.append(f"Coherence boundary, around each of these: {'; '.join(sets)}.{bars} Between "
                     "them anything goes.")  # fmt: skip
    elif found.width > 1:
        lines.append("Coherence boundary: none; any task can run before any other.")
    if found.turns:
        names = listed(list(found.turns))
        lines.append(f"One at a time, in declared order: the members of {names}.")
    return lines


def _row(stages: tuple[tuple[str, ...], ...], own: Mapping[str, Strand]) -> str:
    """Stages, with bars between them."""
    shown = [_stage(names, own) for names in stages]
    if len(shown) > SHOWN_MAX:
        shown = [*shown[: SHOWN_MAX - 1], f"({len(shown) - SHOWN_MAX:,} more)", shown[-1]]
    return " | ".join(shown)


def _stage(names: tuple[str, ...], own: Mapping[str, Strand]) -> str:
    strand = own.get(names[0])
    if strand is not None and strand.groups == names:
        many = "many" if strand.count is None else f"{strand.count:,}"
        return f"{' -> '.join(f'`{name}`' for name in names)} ({many} at once)"
    return listed(list(names), SHOWN_MAX)


def _width(found: Boundary) -> str:
    if found.unknown:
        names = listed(list(found.unknown))
        return f"Largest safe width: as many as {names} {_have(found.unknown)} members."
    if found.width == 1:
        return "Largest safe width: 1. More at once would only wait."
    most = f"{found.width:,}" if found.is_exact else f"at most {found.width:,}"
    return f"Largest safe width: {most} tasks at once."


def _have(names: tuple[str, ...]) -> str:
    return "has" if len(names) == 1 else "have"
