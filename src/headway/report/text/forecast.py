"""Shows a forecast: time beside the bound, cost, what limits it."""

from __future__ import annotations

from collections.abc import Iterator

from headway.base.numbers import short
from headway.report.forecast import MONEY, Foreseen, Portion
from headway.report.text.table import bound_words
from headway.report.text.words import count, duration, unknown_cost, usd


def foretold(found: Foreseen | None) -> Iterator[str]:
    if found is None:
        yield "no forecast: it calls no model by itself and has not run before"
        return
    time_s = found.time_s
    least = bound_words(found.bound_s, found.binding, found.fair_s, found.fair_binding)
    yield (
        f"takes about {duration(time_s.mid)} ({duration(time_s.low)} to {duration(time_s.high)} in "
        f"eight of ten runs); at best {least}"
    )
    if found.calls.mid > 0.0:
        low, high = short(found.tokens.low), short(found.tokens.high)
        tokens = short(found.tokens.mid) if low == high else f"{low} to {high}"
        yield f"{_money(found)}: {short(found.calls.mid)} calls, {tokens} tokens"
        refused = f"{found.refused:.0f}" if found.refused >= 0.5 else "no"
        yield f"{found.width:.1f} calls in flight on average, {refused} refusals"
    for portion in found.portions:
        yield _portion(portion)
    if found.budget_width is not None:
        width = found.budget_width
        yield (
            f"the budget lets {count(width, 'call')} be in flight at once: each may cost as much "
            "as it can until it has ended"
        )
    if found.learned_calls:
        calls = count(found.learned_calls, "call" if found.calls.mid else "task")
        yield f"learned from {calls}{f' of {found.learned_from}' if found.learned_from else ''}"
    for sentence in found.assumed:
        yield f"assumed: {sentence}"


def _money(found: Foreseen) -> str:
    cost = found.microusd
    if cost is None:
        return unknown_cost(found.unpriced)
    low, high = usd(round(cost.low)), usd(round(cost.high))
    return f"costs about {usd(round(cost.mid))} ({low} to {high})"


def _portion(portion: Portion) -> str:
    left, share = short(portion.left), portion.takes.mid / max(1.0, portion.of)
    likely = "will" if portion.takes.low > portion.left else "may"
    short_of = f": it {likely} not be enough" if portion.takes.high > portion.left else ""
    if portion.resets_s is not None:
        wait = f", and the run {likely} wait for that" if short_of else ""
        return (
            f"takes {share:.0%} of the {portion.name}, which holds about {short(portion.of)} "
            f"tokens and has {left} left; it resets in {duration(portion.resets_s)}{short_of}{wait}"
        )
    of, name = f"{short(portion.of)} tokens", portion.name.removeprefix("tokens of ")
    if portion.name.startswith(MONEY):
        of, left = usd(round(portion.of)), usd(round(portion.left))
        name = portion.name.removeprefix(f"{MONEY} of ")
    return f"takes {share:.0%} of the {of} of {name}, of which {left} are left{short_of}"
