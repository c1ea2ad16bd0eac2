"""Shows a forecast (time beside the bound, cost, what limits it) and advice."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from time import localtime, strftime
from typing import TYPE_CHECKING

from headway.base.numbers import short
from headway.report.forecast import MONEY, Foreseen, Portion, SpreadNumber
from headway.report.text.terminal import print_lines
from headway.report.text.words import (
    bound_words,
    cents,
    count,
    duration,
    unknown_cost,
    usd,
)

if TYPE_CHECKING:
    from rich.console import Console

    from headway.report.advise import Advice
    from headway.report.options import Option
    from headway.run.forecasts import PlannedStart


def clock(moment_s: float) -> str:
    """`2026-11-18 16:40`, by the clock of this machine."""
    return strftime("%Y-%m-%d %H:%M", localtime(moment_s))


def foretold(found: Foreseen | None, now_s: float | None = None) -> Iterator[str]:
    """With the time of its end, if the run begins at `now_s`."""
    if found is None:
        yield "no forecast: it calls no model by itself and has not run before"
        return
    time_s = found.time_s
    least = bound_words(found.bound_s, found.binding, found.fair_s, found.fair_binding)
    if found.unknown:
        yield f"takes at least {duration(time_s.low)}: {'; '.join(found.unknown)}"
    else:
        yield (
            f"takes about {duration(time_s.mid)} ({duration(time_s.low)} to "
            f"{duration(time_s.high)} in eight of ten runs); at best {least}"
        )
    if found.account:
        yield f"on the account {found.account}"
    yield from window_waits(found, now_s)
    if found.calls.mid > 0.0:
        low, high = short(found.tokens.low), short(found.tokens.high)
        tokens = short(found.tokens.mid) if low == high else f"{low} to {high}"
        yield f"{_money(found)}: {short(found.calls.mid)} calls, {tokens} tokens"
        if not found.unknown:
            refused = f"{found.refused:.0f}" if found.refused >= 0.5 else "no"
            yield f"{found.width:.1f} calls in flight on average, {refused} refusals"
    for portion in found.portions:
        yield portion_words(portion)
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


def window_waits(found: Foreseen, now_s: float | None) -> Iterator[str]:
    """How long a run waits for usage windows, and when it ends if it begins at `now_s`."""
    if found.waits_s >= 1.0:
        yield f"{duration(found.waits_s)} of it are waits for usage windows{_ends(found, now_s)}"


def _ends(found: Foreseen, now_s: float | None) -> str:
    """The end; two or three of them, where the last usage window is just or just not enough."""
    time_s, portions = found.time_s, found.portions
    if now_s is None or time_s.mid == inf or found.unknown:
        return ""
    words = f"; it ends at {clock(now_s + time_s.mid)}"
    if any(one.windows_low < one.windows for one in portions):
        words += f", or at {clock(now_s + time_s.low)} with a window less"
    if any(one.windows_high > one.windows for one in portions) and time_s.high < inf:
        words += f", or at {clock(now_s + time_s.high)} with a window more"
    return words


def start_words(start: PlannedStart) -> Iterator[str]:
    """When a run begins and ends, and why with these shares of usage windows."""
    now_s, time_s = start.now_s, start.time_s
    if time_s is not None and start.unknown:
        yield f"ends at {clock(now_s + time_s.low)} or later: {'; '.join(start.unknown)}"
    elif time_s is not None:
        ends, latest = clock(now_s + time_s.mid), clock(now_s + time_s.high)
        yield f"ends about {ends}, nine of ten runs by {latest}"
    elif start.end_s < inf:
        yield "--finish-by is not checked: the plan calls no model by itself and has not run before"
    if start.shares != start.usual:
        yield (
            f"takes up to {start.shares[0]:.0%} of each usage window shorter than a day and "
            f"{start.shares[1]:.0%} of a longer one to end in time; usually {start.usual[0]:.0%} "
            f"and {start.usual[1]:.0%}"
        )
    if start.quiet_s is not None and start.at_s < start.quiet_s:
        yield f"quiet hours begin at {clock(start.quiet_s)}, too late to end in time"


def late_words(start: PlannedStart) -> tuple[str, str]:
    """Why a run cannot end in time, and what to do."""
    time_s = start.time_s or SpreadNumber(inf, inf, inf)
    whole = "" if start.shares == start.usual else ", even with all of each usage window"
    message = f"the plan cannot end by {clock(start.end_s)}{whole}: it takes about "
    if time_s.high == inf:
        return f"{message}{duration(time_s.mid)}", "make the plan smaller"
    end, latest = clock(start.now_s + time_s.mid), clock(start.now_s + time_s.high)
    return f"{message}{duration(time_s.mid)}, until {end}", f"--finish-by '{latest}'"


def _money(found: Foreseen) -> str:
    cost = found.microusd
    if cost is None:
        return unknown_cost(found.unpriced)
    low, high = usd(round(cost.low)), usd(round(cost.high))
    return f"costs about {usd(round(cost.mid))} ({low} to {high})"


def portion_words(portion: Portion) -> str:
    left, share = short(portion.left), portion.takes.mid / max(1.0, portion.of)
    likely = "will" if portion.takes.low > portion.left else "may"
    short_of = f": it {likely} not be enough" if portion.takes.high > portion.left else ""
    if portion.resets_s is not None:
        if portion.windows_high > 1:
            low, high = portion.windows_low, portion.windows_high
            several = (
                f"{low}" if low == high else f"{low} {'or' if high == low + 1 else 'to'} {high}"
            )
            short_of = f": it takes {several} windows, one after another"
        elif short_of:
            short_of += f", and the run {likely} wait for that"
        whose = " for this run" if portion.room < portion.of - portion.used else ""
        return (
            f"takes {share:.0%} of the {portion.name}, which holds about {short(portion.of)} "
            f"tokens and has {left} left{whose}; it resets in {duration(portion.resets_s)}"
            f"{short_of}"
        )
    of, name = f"{short(portion.of)} tokens", portion.name.removeprefix("tokens of ")
    if portion.name.startswith(MONEY):
        of, left = usd(round(portion.of)), usd(round(portion.left))
        name = portion.name.removeprefix(f"{MONEY} of ")
    return f"takes {share:.0%} of the {of} of {name}, of which {left} are left{short_of}"


# Advice: options side by side, the recommendation, reasons, assumptions.


def draw_advice(console: Console, advice: Advice) -> None:
    from rich.text import Text

    _draw_options(console, advice)
    console.print()
    console.print(Text(sentence(advice), "bold"), soft_wrap=True)
    if advice.when_reason:
        console.print(f"Later, because {advice.when_reason}.", soft_wrap=True)
    print_lines(console, reason_lines(advice))
    if advice.assumed:
        console.print()
        print_lines(console, ("Assumed:", *(f"  {one}" for one in advice.assumed)), "dim")


def sentence(advice: Advice) -> str:
    best, one, several = advice.best, advice.one, advice.options[-1]
    took = f"about {duration(best.time_s)} and {short(best.tokens)} tokens ({_option_cost(best)})"
    start = "" if advice.when == "now" else ", later"
    if advice.side == "one":
        beside = "" if several is one else (
            f"; several would take {duration(several.time_s)} and {short(several.tokens)}"
        )  # fmt: skip
        return f"Use one agent{start}: {took}{beside}."
    beside = f"one agent would take {duration(one.time_s)} and {short(one.tokens)}"
    share = min(1.0, best.foreseen.bound_s / best.time_s) if 0 < best.time_s < inf else 0.0
    return (
        f"Use {advice.situation.agents} agents{start}: {took}, "
        f"{best.foreseen.width:.1f} at once on average, {share:.0%} of the best possible speed; "
        f"{beside}."
    )


def reason_lines(advice: Advice) -> Iterator[str]:
    if not advice.reasons:
        yield "No rule favours several: one agent is as good, and simpler."
        return
    for place, reason in enumerate(advice.reasons):
        by = f" (by {reason.overruled_by})" if reason.overruled_by else ""
        role = "decided" if place == 0 else "overruled" if by else "agrees"
        yield f"  {role:10} {reason.rule} -> {reason.side}: {reason.reason}{by}"


def _draw_options(console: Console, advice: Advice) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    has_budget = any(option.runs_a_month is not None for option in advice.options)
    heads = ["way", "time", "from", "to", "tokens", "cost", "refused", "at once"]
    for head in [*heads, *(["runs a month"] if has_budget else [])]:
        table.add_column(head, justify="left" if head == "way" else "right", no_wrap=True)
    for option in advice.options:
        seen = option.foreseen
        cells = [
            option.way, duration(option.time_s), duration(seen.time_s.low),
            duration(seen.time_s.high), short(option.tokens), _option_cost(option),
            f"{seen.refused / max(1.0, seen.calls.mid):.0%}", f"{seen.width:.1f}",
        ]  # fmt: skip
        if has_budget:
            cells.append("" if option.runs_a_month is None else f"{option.runs_a_month:,}")
        table.add_row(*cells, style="bold green" if option is advice.best else "")
    console.print(table)
    seen = advice.best.foreseen
    if seen.account:
        learned = f", known from {seen.learned_calls:,} calls" if seen.learned_calls else ""
        console.print(f"On the account {seen.account}{learned}.", soft_wrap=True)
    least = bound_words(seen.bound_s, seen.binding, seen.fair_s, seen.fair_binding)
    console.print(
        f"Best possible for {advice.best.way}: {least}. In eight of ten runs the time lies "
        "between `from` and `to`, if sizes are known to a fifth.",
        soft_wrap=True,
    )
    windows = (one for one in seen.portions if one.resets_s is not None)
    print_lines(console, (*window_waits(seen, None), *map(portion_words, windows)))


def _option_cost(option: Option) -> str:
    about = "" if option.foreseen.microusd is not None else "~"
    return f"{about}{cents(option.microusd)}"
