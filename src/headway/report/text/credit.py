"""The objective of a plan over its landings, and what each task contributes to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headway.journal.documents import LANDED, Landing, ScoredLanding, kept
from headway.journal.reader import JournalReader
from headway.report.credit import TaskCredit
from headway.report.text.words import clean_name, one_line

BAR_CELLS = 24
NAME_CELLS = 32


def scores_of(reader: JournalReader) -> tuple[ScoredLanding, ...]:
    landing = kept(reader, LANDED, Landing)
    return () if landing is None else landing.scores


def objective_lines(scores: Sequence[ScoredLanding]) -> Iterator[str]:
    """What all landings came to, and the score after each beside what the task says of itself."""
    if not scores:
        return
    first, last = scores[0].before, scores[-1].after
    falls = [one for one in scores if is_fall(one)]
    fell = f"{len(falls)} of {len(scores)} landings" if falls else "no landing"
    fell = f"{fell} lowered it"
    told = sum(one.is_verified is not None for one in scores)
    own = f"; {told} of {len(scores)} passed their own verify" if told else ""
    yield f"{number(first)} -> {number(last)}: {fell}{own}"
    values = [one.after for one in scores if one.after is not None] + [first or 0.0]
    low, high = min(values), max(values)
    for one in scores:
        name = clean_name(one_line(one.task, NAME_CELLS)).ljust(NAME_CELLS)
        part = 0.0 if one.after is None or high == low else (one.after - low) / (high - low)
        bar = "#" * max(1, round(part * BAR_CELLS))
        mark = f" fell from {number(one.before)}" if is_fall(one) else ""
        yield f"  {name} {number(one.after):>10} {bar}{mark}"


def is_fall(one: ScoredLanding) -> bool:
    return one.before is not None and (one.after is None or one.after < one.before)


def number(value: float | None) -> str:
    return "no score" if value is None else f"{value:,.6g}"


def credit_lines(
    found: Sequence[TaskCredit], runs: int, conflicts: int, unscored: int, orders: int
) -> Iterator[str]:
    """A line for each task, the largest credit first, and those that should not have run."""
    by = f"mean over {orders:,} drawn orders" if orders else "mean of left out and alone"
    yield f"credit: {by}; the objective ran {runs:,} times, no task ran again"
    heads = "".join(f" {head:>10}" for head in ("credit", "left out", "alone", "/1k tokens"))
    yield f"  {'task':<{NAME_CELLS}}{heads}"
    for one in sorted(found, key=lambda one: -one.credit):
        name = clean_name(one_line(one.task, NAME_CELLS))
        rate = "-" if one.per_1000 is None else number(one.per_1000)
        cells = f"{number(one.credit):>10} {number(one.left_out):>10} {number(one.alone):>10}"
        yield f"  {name:<{NAME_CELLS}} {cells} {rate:>10}  {one.word}".rstrip()
    for word, why in (("harmful", "the whole is better without"), ("redundant", "others do the "
                      "same as")):  # fmt: skip
        if names := [one.task for one in found if one.word == word]:
            yield f"{word}: {why} {', '.join(one_line(name, NAME_CELLS) for name in names)}"
    if conflicts:
        yield f"{conflicts:,} merges left out work that did not merge"
    if unscored:
        yield f"{unscored:,} merges have no score: they count as nothing gained"


def credit_json(found: Sequence[TaskCredit], runs: int, conflicts: int) -> dict[str, object]:
    return {
        "objective_runs": runs,
        "conflicts": conflicts,
        "tasks": [
            {"task": one.task, "credit": one.credit, "left_out": one.left_out, "alone": one.alone,
             "tokens": one.tokens, "per_1000_tokens": one.per_1000, "word": one.word}
            for one in found
        ],
    }  # fmt: skip
