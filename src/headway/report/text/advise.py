"""Shows advice: options side by side, the recommendation, reasons, assumptions."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from headway.base.numbers import short
from headway.report.advise import Advice, WidthCurve
from headway.report.options import HOUR_MICROUSD, Option, waiting_microusd
from headway.report.text.forecast import portion_words, window_waits
from headway.report.text.table import bound_words
from headway.report.text.terminal import print_lines
from headway.report.text.words import Glyphs, cents, duration, glyphs_for, usd

NAMES: Final = {
    "one": "one agent", "serial": "one at a time", "waves": "waves of {}", "pool": "a pool of {}",
    "adaptive": "adaptive",
}  # fmt: skip


def draw_advice(console: Console, advice: Advice) -> None:
    _draw_options(console, advice)
    console.print()
    console.print(Text(sentence(advice), "bold"), soft_wrap=True)
    if advice.when_reason:
        console.print(f"Later, because {advice.when_reason}.", soft_wrap=True)
    print_lines(console, reason_lines(advice))
    console.print()
    print_lines(console, plot_lines(advice.curve, console.width, glyphs_for(console)))
    if advice.assumed:
        console.print()
        print_lines(console, ("Assumed:", *(f"  {one}" for one in advice.assumed)), "dim")


def sentence(advice: Advice) -> str:
    best, one = advice.best, advice.one
    took = f"about {duration(best.time_s)} and {short(best.tokens)} tokens ({_money(best)})"
    start = "" if advice.when == "now" else ", later"
    if not best.way.is_several:
        several = [option for option in advice.options if option.way.is_several]
        other = min(several, key=lambda option: option.time_s, default=None)
        beside = "" if other is None else (
            f"; several would take {duration(other.time_s)} and {short(other.tokens)}"
        )  # fmt: skip
        return f"Use one agent{start}: {took}{beside}."
    beside = f"one agent would take {duration(one.time_s)} and {short(one.tokens)}"
    share = min(1.0, best.foreseen.bound_s / best.time_s) if 0 < best.time_s < inf else 0.0
    return (
        f"Use {advice.situation.agents} agents, {name_of(best)}{start}: {took}, "
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


def name_of(option: Option) -> str:
    return NAMES[option.way.kind].format(option.way.width)


def _draw_options(console: Console, advice: Advice) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    has_budget = any(option.runs_a_month is not None for option in advice.options)
    heads = ["way", "time", "from", "to", "tokens", "cost", "refused", "at once"]
    for head in [*heads, *(["runs a month"] if has_budget else [])]:
        table.add_column(head, justify="left" if head == "way" else "right", no_wrap=True)
    for option in advice.options:
        seen = option.foreseen
        cells = [
            name_of(option), duration(option.time_s), duration(seen.time_s.low),
            duration(seen.time_s.high), short(option.tokens), _money(option),
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
        f"Best possible for {name_of(advice.best)}: {least}. In eight of ten runs the time lies "
        "between `from` and `to`, if sizes are known to a fifth.",
        soft_wrap=True,
    )
    windows = (one for one in seen.portions if one.resets_s is not None)
    print_lines(console, (*window_waits(seen, None), *map(portion_words, windows)))


def _money(option: Option) -> str:
    about = "" if option.foreseen.microusd is not None else "~"
    return f"{about}{cents(option.microusd)}"


ROOM: Final = 36

BAR_LEAST: Final = 10
BAR_MOST: Final = 60


def plot_lines(curve: WidthCurve, columns: int, glyphs: Glyphs) -> Iterator[str]:
    """A pool of each width; a bar is as long as it takes, and the bound is marked in it."""
    ends = [point.time_s for point in curve.points if point.time_s < inf]
    longest = max(ends, default=1.0)
    cells = max(BAR_LEAST, min(BAR_MOST, columns - ROOM))
    yield (
        f"Fixed concurrency, unpaced: time (| is the bound, {duration(curve.bound_s)}) and "
        f"cost with time at {usd(HOUR_MICROUSD)} an hour:"
    )
    mark = min(cells - 1, round(cells * curve.bound_s / longest))
    for point in curve.points:
        filled = cells if point.time_s == inf else round(cells * point.time_s / longest)
        bar = (glyphs.busy * filled).ljust(cells)
        value = point.microusd + waiting_microusd(point.time_s)
        worth = "" if value == inf else f" {cents(value):>8}"
        spot = "  <- sweet spot" if point.width == curve.sweet else ""
        took = f"{duration(point.time_s):>12}{worth}{spot}"
        yield f"{point.width:4}  {bar[:mark]}|{bar[mark + 1 :]}  {took}"
