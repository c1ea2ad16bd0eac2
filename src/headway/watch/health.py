"""Accounts by how well they are: good, watch or bad, why, and when it would be better."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Final, TextIO

from headway.core.health import (
    ORDER,
    RECENT_MIN,
    Condition,
    Level,
    Thresholds,
    condition_of,
    hour_words,
)
from headway.core.quota.chronicle import HOUR_UNKNOWN, Spell, hours_of
from headway.core.quota.view import BookView, LaneView
from headway.runtime.overview import Overview
from headway.watch.accounts import NO_ACCOUNTS
from headway.watch.screen import console_for, glyphs_for
from headway.watch.stage import Frame, gauge, labelled
from headway.watch.words import count, one_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

LOOK_S: Final = 2.0
"""Between two looks of somebody who watches: each is a question to the broker."""

STYLES: Final[dict[Level, str]] = {"good": "green", "watch": "yellow", "bad": "red"}

WORDS_MAX: Final = 200
"""Of a reason: a provider's own words can be among them."""


def conditions(view: BookView, at: Thresholds) -> list[Condition]:
    """Every account and model group, the worst first."""
    found = [condition_of(lane, view.hour, at) for lane in view.lanes]
    return sorted(found, key=lambda one: -ORDER.index(one.level))


def health_line(lanes: Sequence[LaneView], at: Thresholds) -> str:
    """The accounts of a run in one line; nothing if they are good."""
    found = [condition_of(lane, HOUR_UNKNOWN, at) for lane in lanes]
    ill = [one for one in found if one.level != "good"]
    if not ill:
        return ""
    worst = max(ill, key=lambda one: ORDER.index(one.level))
    more = f"; and {count(len(ill) - 1, 'account')} more" if len(ill) > 1 else ""
    return f"{worst.level}: {one_line(worst.reasons[0], WORDS_MAX)} ({worst.group}){more}"


def health_lines(seen: Overview, at: Thresholds, console: Console) -> Iterator[Text]:
    """Every account with its limits, its reasons and its hours."""
    from rich.text import Text

    frame = Frame(console.width, glyphs_for(console))
    lanes = {(lane.account, lane.group): lane for lane in seen.view.lanes}
    if not lanes:
        yield Text(NO_ACCOUNTS)
    for one in conditions(seen.view, at):
        title = Text(f"{one.account}  {one.group}  ", "bold")
        yield title.append(one.level, STYLES[one.level])
        for shown in lanes[one.account, one.group].limits:
            binds = one.binding in (shown.limit.name, shown.limit.resource)
            yield gauge(shown, frame, binds)
        yield labelled("lately", _speed_words(one.recent))
        if one.usual.ended:
            yield labelled("usually", _speed_words(one.usual, is_usual=True))
        for index, reason in enumerate(one.reasons):
            yield labelled("" if index else "because", one_line(reason, WORDS_MAX))
        yield labelled("hours", hour_words(one))
        if one.unpaced != "good":
            words = f"{one.unpaced} for a client that does not pace itself: "
            yield labelled("unpaced", words + "; ".join(one.unpaced_reasons))
        yield Text()
    yield Text(seen.source, "dim")


def health_json(seen: Overview, at: Thresholds) -> dict[str, object]:
    """The same for a program."""
    lanes = {(lane.account, lane.group): lane for lane in seen.view.lanes}
    return {
        "source": seen.source,
        "hour": None if seen.view.hour == HOUR_UNKNOWN else seen.view.hour,
        "lanes": [
            {
                **asdict(one),
                "headroom": dict(one.headroom),
                "recent": spell_json(one.recent),
                "usual": spell_json(one.usual),
                "advice": hour_words(one),
                "hours": {
                    f"{hour:02}": spell_json(spell)
                    for hour, spell in sorted(
                        hours_of(lanes[one.account, one.group].chronicle).items()
                    )
                },
            }
            for one in conditions(seen.view, at)
        ],
    }


def spell_json(spell: Spell) -> dict[str, object]:
    """A stretch of time by what people want to know of it."""
    return {
        **{key: round(number, 3) for key, number in asdict(spell).items()},
        "calls": round(spell.ended, 3),
        "refusal_rate": spell.share(spell.refused),
        "first_byte_s": spell.first_byte_s,
        "per_token_s": spell.per_token_s,
        "company": spell.company,
        "neighbours": spell.neighbours,
    }


def draw_health(console: Console, seen: Overview, at: Thresholds) -> None:
    for line in health_lines(seen, at, console):
        console.print(line, soft_wrap=True)


def watch_health(
    look: Callable[[], Overview],
    at: Thresholds,
    stream: TextIO,
    is_json: bool = False,
    nap: Callable[[float], None] = time.sleep,
) -> None:
    """Show it again and again, until somebody interrupts: drawn on a terminal, else in lines."""
    console = console_for(stream)
    if is_json:
        while True:
            print(json.dumps(health_json(look(), at), ensure_ascii=False), file=stream, flush=True)
            nap(LOOK_S)
    if console.is_terminal and not console.is_dumb_terminal:
        _draw_on(look, at, console, nap)
    said: list[str] = []
    while True:
        seen = look()
        found = conditions(seen.view, at)
        words = [f"{one.account} {one.group}: {_brief(one)}" for one in found]
        for line in words or [seen.source]:
            if line not in said:
                console.print(line, soft_wrap=True)
        said = words or [seen.source]
        nap(LOOK_S)


def _draw_on(
    look: Callable[[], Overview], at: Thresholds, console: Console, nap: Callable[[float], None]
) -> None:
    from rich.console import Group
    from rich.live import Live

    with Live(console=console, auto_refresh=False, transient=False) as live:
        while True:
            live.update(Group(*health_lines(look(), at, console)), refresh=True)
            nap(LOOK_S)


def _brief(one: Condition) -> str:
    return f"{one.level}: {'; '.join(one.reasons)}" if one.reasons else one.level


def _speed_words(spell: Spell, is_usual: bool = False) -> str:
    """`412 calls in 10 min, 0.0% refused, 0.8 s to the first byte, 12 ms per output token`."""
    over = "remembered" if is_usual else f"in {RECENT_MIN} min"
    words = [f"{spell.ended:,.0f} calls {over}"]
    if spell.ended:
        words.append(f"{spell.share(spell.refused):.1%} refused")
    if spell.first_byte_s is not None:
        words.append(f"{spell.first_byte_s:.2g} s to the first byte")
    if spell.per_token_s is not None:
        words.append(f"{1e3 * spell.per_token_s:.3g} ms per output token")
    if spell.neighbours >= 0.01:
        words.append(f"neighbours took {spell.neighbours:.0%}")
    return ", ".join(words)
