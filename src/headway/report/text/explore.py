"""Shows what `headway explore` found."""

from __future__ import annotations

import shlex
from collections import Counter
from typing import TYPE_CHECKING, Final, TextIO

from headway.base.codec import as_dict
from headway.errors import PlanError
from headway.report.text.terminal import clean, print_lines
from headway.report.text.words import console_for, count, counts, one_line

if TYPE_CHECKING:
    from headway.report.explore import Difference, Explored, PairVerdict

JUDGED: Final = "shared state only; files and commands are not judged"
"""What a verdict covers: declared files are modelled, what commands really do is not."""

VERDICTS: Final = {
    "blocked": "blocked by edges", "commutes": "commute", "re-ran": "re-ran", "differs": "DIFFER",
    "untried": "not tried",
}  # fmt: skip

PAIRS_SHOWN_MAX: Final = 40
"""Pairs that are listed; of more, those that were done again or differ."""

FAILURES_SHOWN_MAX: Final = 3
NAME_CELLS_MAX: Final = 34
EDGE_CELLS_MAX: Final = 90


def print_explored(
    found: Explored, refusal: PlanError | None, command: str, stream: TextIO
) -> None:
    console = console_for(stream)
    lines = [*_pair_lines(found), *_differences(found, command)]
    if found.nondeterministic is not None:
        changed = found.nondeterministic
        lines += (
            f"nondeterministic: `{changed.where}` gives another {changed.kind} on the same reads",
            *_excerpt(changed),
            "  fix: take time and chance from `ctx` (ctx.time_s, ctx.random)",
        )
    lines += (
        f"warning: fails in the serial run too: {one_line(fault, 200)}" for fault in found.failed
    )
    if refusal is not None:
        lines.append(f"warning: `headway check` refuses this plan: {refusal.message}")
    print_lines(console, (*lines, summary(found), f"judged: {JUDGED}"))


def _pair_lines(found: Explored) -> list[str]:
    listed = [pair for pair in found.pairs if pair.verdict != "differs"]
    if len(listed) > PAIRS_SHOWN_MAX:
        listed = [pair for pair in listed if pair.verdict not in ("blocked", "commutes")]
    lines = [_pair_line(pair) for pair in listed[:PAIRS_SHOWN_MAX]]
    return [*lines, ""] if lines else []


def _differences(found: Explored, command: str) -> list[str]:
    """Of pairs; of whole schedules too, if no pair says why."""
    lines: list[str] = []
    for pair in found.pairs:
        if pair.verdict == "differs":
            lines += (*_difference_lines(pair, command), "")
    for failure in () if lines else found.failures[:FAILURES_SHOWN_MAX]:
        lines += ("DIFFERS from the serial run", *_excerpt(failure.difference))
        lines += (_again(command, failure.replay), "")
    return lines


def summary(found: Explored) -> str:
    if found.nondeterministic is not None:
        return f"{count(found.tasks, 'task')}; nothing was compared"
    parts: list[str] = []
    if found.pairs:
        verdicts = Counter[str](pair.verdict for pair in found.pairs)
        words = ", ".join(counts(*((verdicts[one], word) for one, word in VERDICTS.items())))
        alike = sum(pair.count for pair in found.pairs)
        whole = f" (for {alike:,} of members)" if alike > len(found.pairs) else ""
        parts.append(f"{count(len(found.pairs), 'pair')}{whole}: {words}")
    if found.apart:
        parts.append(f"{found.apart:,} more share nothing")
    if found.schedules:
        kind = {"reduced": " (one of each kind)", "drawn": " (drawn)"}.get(found.search, "")
        text = f"{count(found.schedules, 'schedule')}{kind}"
        if found.crashes:
            text += f" and {found.crashes:,} crash{'es' if found.crashes > 1 else ''}"
        is_equal = "all equal to the serial run"
        differ = f"{found.differing:,} DIFFER from the serial run"
        parts.append(f"{text}, {differ if found.differing else is_equal}")
        if found.search != "none" and not found.is_complete:
            parts.append("not every order was tried")
    return "; ".join(parts) or f"{count(found.tasks, 'task')}: no pairs"


def as_json(found: Explored, refusal: PlanError | None) -> dict[str, object]:
    return {
        **as_dict(found), "differs": found.differs, "summary": summary(found), "judged": JUDGED,
        "refused": None if refusal is None else refusal.message,
    }  # fmt: skip


def _pair_line(pair: PairVerdict) -> str:
    both = f"{one_line(pair.first, NAME_CELLS_MAX)}, {one_line(pair.second, NAME_CELLS_MAX)}"
    if pair.count > 1:
        both += f" (for {pair.count:,} pairs)"
    match pair.verdict:
        case "blocked":
            return f"blocked by edge  {both}: {one_line(pair.edge, EDGE_CELLS_MAX)}"
        case "re-ran":
            return f"re-ran           {both}: {count(pair.reran, 'attempt')} again, same result"
        case "untried":
            return f"not tried        {both}"
    return f"commutes         {both}"


def _difference_lines(pair: PairVerdict, command: str) -> list[str]:
    first, second = one_line(pair.first, 80), one_line(pair.second, 80)
    lines = [f"DIFFERS          {first}, {second}"]
    if pair.count > 1:
        lines[0] += f" (for {pair.count:,} pairs)"
    lines.append(f"  if `{second}` runs before `{first}` completes:")
    if pair.difference is not None:
        lines += _excerpt(pair.difference)
    if pair.shares:
        lines.append(f"  both touch {', '.join(pair.shares[:3])}")
    if any(share.startswith("variable") for share in pair.shares):
        lines.append(
            "  fix: keep it in the shared state (`ctx.put`, `ctx.get`), or put them in order:"
        )
    else:
        lines.append("  fix: put them in order:")
    lines += (f"    {line}" for line in pair.fix.split("\n"))
    if pair.other_fix:
        lines.append(f"  or, if `{first}` is to see what `{second}` does:")
        lines += (f"    {line}" for line in pair.other_fix.split("\n"))
    lines.append(_again(command, pair.replay))
    return lines


def _excerpt(found: Difference) -> list[str]:
    what = {
        "prompt": f"the prompt of `{found.where}` is another, from line {found.line} on",
        "result": f"the result of `{found.where}` is another",
        "failure": f"`{found.where}` ends differently",
        "missing": f"`{found.where}` is not always there",
        "state": f"the shared state ends with something else under `{found.where}`",
        "file": f"the file `{found.where}` is another in the end",
        "effects": f"the effects on `{found.where}` come in another order, or others do",
    }[found.kind]
    lines = [f"  {what}"]
    if found.before:
        lines.append(f"      {one_line(found.before, 160)}")
    lines.append(f"    - {_shown(found.serial)}")
    lines.append(f"    + {_shown(found.got)}")
    return lines


def _shown(text: str) -> str:
    return " | ".join(clean(text).splitlines()[:4]) or "(nothing)"


def _again(command: str, replay: str) -> str:
    return f"  again: {command} --replay {shlex.quote(replay)}"
