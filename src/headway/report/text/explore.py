"""Shows what `headway explore` found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, TextIO

from headway.base.codec import as_dict
from headway.errors import PlanError
from headway.report.text.terminal import clean, print_lines
from headway.report.text.words import console_for, count, counts, one_line

if TYPE_CHECKING:
    from headway.report.explore import Difference, Explored, PairVerdict

HEADINGS: Final = {
    "ordered": "in order", "kept": "in order", "independent": "independent", "fails": "B fails",
    "differs": "B differs", "implied": "depends", "unjudged": "not judged",
}  # fmt: skip

PAIRS_SHOWN_MAX: Final = 40
"""Pairs that are listed; of more, those that depend on each other or were not judged."""
NAME_CELLS_MAX: Final = 34


def print_explored(found: Explored, refusal: PlanError | None, stream: TextIO) -> None:
    lines = [*_pair_lines(found), *(f"note: {note}" for note in found.notes)]
    lines += (
        f"note: only the first members of `{name}` were tried (--members N)"
        for name in found.cropped
    )
    if refusal is not None:
        lines.append(f"warning: `headway check` refuses this plan: {refusal.message}")
    print_lines(console_for(stream), (*lines, summary(found), verdict_of(found)))


def _pair_lines(found: Explored) -> Iterator[str]:
    wrong = [pair for pair in found.pairs if pair.verdict in ("fails", "differs")]
    rest = [pair for pair in found.pairs if pair not in wrong]
    if len(rest) > PAIRS_SHOWN_MAX:
        rest = [pair for pair in rest if pair.verdict in ("implied", "unjudged")]
    for pair in rest[:PAIRS_SHOWN_MAX]:
        both = f"{one_line(pair.first, NAME_CELLS_MAX)}, {one_line(pair.second, NAME_CELLS_MAX)}"
        why = f": {_why(pair)}" if pair.why else ""
        yield f"{HEADINGS[pair.verdict]:<12} {both}{one_line(why, 200)}"
    if (hidden := len(rest) - PAIRS_SHOWN_MAX) > 0:
        yield f"and {hidden:,} more of these"
    for pair in wrong:
        yield ""
        yield from _difference_lines(pair)
    if found.pairs:
        yield ""


def _why(pair: PairVerdict) -> str:
    if pair.verdict == "ordered":
        return f"by `{pair.why}`" if pair.why != "other tasks" else "by way of other tasks"
    if pair.verdict == "implied":
        return f"by way of `{pair.why}`"
    return "both orders were tried" if pair.why == "tried" else pair.why


def _difference_lines(pair: PairVerdict) -> Iterator[str]:
    first, second = one_line(pair.first, 80), one_line(pair.second, 80)
    found = pair.difference
    assert found is not None
    if found.kind == "early":
        yield f"B DIFFERS    {first}, {second}"
        yield f"  `{found.where}` is read for `{second}` before the run begins; `{first}` writes it"
        return
    is_first = found.where == pair.first
    letter = "A" if is_first else "B"
    yield f"{letter} {'FAILS' if found.kind == 'fails' else 'DIFFERS'}    {first}, {second}"
    yield f"  if `{second}` runs before `{first}`:"
    yield from _excerpt(found)
    yield "  fix: put them in order:"
    yield from (f"    {line}" for line in pair.fix.split("\n"))


def _excerpt(found: Difference) -> Iterator[str]:
    if found.kind == "fails":
        yield f"  `{found.where}` fails: {one_line(found.got, 200)}"
        return
    what = {
        "result": f"the result of `{found.where}` is another",
        "state": f"`{found.where}` puts something else into the shared state, or other effects",
        "file": f"the file `{found.where}` is another in the end",
    }[found.kind]
    yield f"  {what}"
    yield f"    - {one_line(clean(found.serial), 160)}"
    yield f"    + {one_line(clean(found.got), 160)}"


def summary(found: Explored) -> str:
    number = found.counts
    words = counts(
        (number["independent"], "independent"),
        (number["ordered"] + number["kept"], "in order"),
        (found.depends, "depend on an order that the plan does not say"),
        (number["unjudged"], "not judged"),
    )
    tries = count(found.tries, "task") + " performed again"
    return f"{count(len(found.pairs), 'pair')} of {count(found.tasks, 'task')}: " + (
        f"{', '.join(words)}; {tries}" if words else "nothing to compare"
    )


def verdict_of(found: Explored) -> str:
    """The last line, which says no more than was judged."""
    if found.depends:
        return "not safe in parallel: put these tasks in order, or give them workspaces"
    if not found.is_clear:
        return "no all-clear: not every pair was judged"
    tried = " of those that were tried" if found.cropped else ""
    return f"every pair{tried} is independent or in order; judged by running commands and functions"


def as_json(found: Explored, refusal: PlanError | None) -> dict[str, object]:
    return {
        **as_dict(found), "depends": found.depends, "is_clear": found.is_clear,
        "summary": summary(found), "verdict": verdict_of(found),
        "refused": None if refusal is None else refusal.message,
    }  # fmt: skip
