"""Shows the health of accounts, and when it is quieter."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TextIO

from msgspec.structs import asdict
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from headway.base.codec import as_dict
from headway.base.values import DAY_S, Spend
from headway.client.overview import Overview, overview
from headway.engine.record import TaskRow
from headway.errors import HeadwayError
from headway.pacing.memory import EVERY_ACCOUNT, HOUR_UNKNOWN, Spell, hours_of
from headway.pacing.view import AccountView, AdmissionView
from headway.plans.graph import Graph
from headway.report import health as judged
from headway.report.health import ORDER, Condition, condition_of, hour_words
from headway.report.progress import TimeLeft
from headway.report.text.accounts import NO_ACCOUNTS, interactive_words, whose, window_lines
from headway.report.text.run_view import RunView
from headway.report.text.stage import gauge, labelled
from headway.report.text.terminal import print_lines
from headway.report.text.words import console_for, count, glyphs_for, one_line


def left_of(run: RunView, lanes: Sequence[AccountView]) -> TimeLeft:
    """What is left of a run that goes on."""
    return run.time_left(lanes, foreseen_of(run))


def foreseen_of(run: RunView) -> float | None:
    """What the whole run was foreseen to take."""
    from headway.run.forecasts import read_forecast

    foreseen = read_forecast(run.reader).foreseen
    return None if foreseen is None else foreseen.time_s.mid


def lanes_of(run: RunView) -> Sequence[AccountView]:
    """The accounts that a run's process calls now."""
    if run.source.get("sim") is not None:
        return ()  # The simulated provider is in the run's own process.
    lanes, clients = _every_lane()
    ids = {client for client, name in clients if name.endswith(f"[{run.pid}]")}
    return [lane for lane in lanes if any(one.client in ids for one in lane.clients)]


def run_windows(run: RunView) -> Iterator[str]:
    """The usage windows of the accounts that a run uses, and its part of each."""
    name, history = run.header.run, run.history
    each = history.taken.tokens / max(1, history.performed)
    lanes = [
        lane for lane in _every_lane()[0]
        if any(name in dict(window.runs) for window in lane.windows)
    ]  # fmt: skip
    return window_lines(lanes, name, each * run.left)


def _every_lane() -> tuple[Sequence[AccountView], Sequence[tuple[str, str]]]:
    from headway.client.admission import admission

    try:
        view, about = admission().describe()
    except HeadwayError:
        return (), ()  # Without a broker there is no bound; everything else is shown.
    return view.accounts, about.clients


LOOK_S: Final = 2.0
"""Between two looks with `--watch`: each is a request to the broker."""

STYLES: Final[dict[judged.Level, str]] = {"good": "green", "watch": "yellow", "bad": "red"}

WORDS_MAX: Final = 200
"""Of a reason, which can contain the provider's own words."""


def conditions(view: AdmissionView) -> list[Condition]:
    found = [condition_of(lane, view.hour) for lane in view.accounts]
    return sorted(found, key=lambda one: -ORDER.index(one.level))


def health_line(lanes: Sequence[AccountView]) -> str:
    """The accounts of a run in one line; nothing if they are good."""
    found = [condition_of(lane, HOUR_UNKNOWN) for lane in lanes]
    ill = [one for one in found if one.level != "good"]
    if not ill:
        return ""
    worst = max(ill, key=lambda one: ORDER.index(one.level))
    more = f"; and {count(len(ill) - 1, 'account')} more" if len(ill) > 1 else ""
    return f"{worst.level}: {one_line(worst.reasons[0], WORDS_MAX)} ({worst.group}){more}"


def health_lines(seen: Overview, console: Console) -> Iterator[Text]:
    glyphs = glyphs_for(console)
    lanes = {(lane.account, lane.group): lane for lane in seen.view.accounts}
    if not lanes:
        yield Text(NO_ACCOUNTS)
    for one in conditions(seen.view):
        title = Text(f"{one.account}  {one.group}  ", "bold")
        yield title.append(one.level, STYLES[one.level])
        for shown in lanes[one.account, one.group].limits:
            binds = one.binding in (shown.limit.name, shown.limit.resource)
            yield gauge(shown, glyphs, binds)
        if sessions := lanes[one.account, one.group].interactive:
            yield labelled("", interactive_words(sessions))
        yield labelled("lately", _speed_words(one.recent))
        if one.usual.ended:
            yield labelled("usually", _speed_words(one.usual, is_usual=True))
        for index, reason in enumerate(one.reasons):
            yield labelled("" if index else "because", one_line(reason, WORDS_MAX))
        yield labelled("hours", hour_words(one))
        yield Text()
    yield Text(seen.source, "dim")


def health_json(seen: Overview) -> dict[str, object]:
    lanes = {(lane.account, lane.group): lane for lane in seen.view.accounts}
    return {
        "source": seen.source,
        "hour": None if seen.view.hour == HOUR_UNKNOWN else seen.view.hour,
        "lanes": [
            {
                **as_dict(one),
                "headroom": dict(one.headroom),
                "interactive": lanes[one.account, one.group].interactive,
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
            for one in conditions(seen.view)
        ],
    }


def spell_json(spell: Spell) -> dict[str, object]:
    return {
        **{key: round(number, 3) for key, number in asdict(spell).items()},
        "calls": round(spell.ended, 3),
        "refusal_rate": spell.share(spell.refused),
        "first_byte_s": spell.first_byte_s,
        "per_token_s": spell.per_token_s,
        "company": spell.company,
        "neighbours": spell.neighbours,
    }


def draw_health(console: Console, seen: Overview) -> None:
    print_lines(console, health_lines(seen, console))


def watch_health(
    look: Callable[[], Overview],
    stream: TextIO,
    is_json: bool = False,
    nap: Callable[[float], None] = time.sleep,
) -> None:
    """Show it until interrupted: drawn on a terminal, else in lines that changed."""
    console = console_for(stream)
    if is_json:
        while True:
            print(json.dumps(health_json(look()), ensure_ascii=False), file=stream, flush=True)
            nap(LOOK_S)
    if console.is_terminal and not console.is_dumb_terminal:
        with Live(console=console, auto_refresh=False, transient=False) as live:
            while True:
                live.update(Group(*health_lines(look(), console)), refresh=True)
                nap(LOOK_S)
    said: list[str] = []
    while True:
        seen = look()
        words = []
        for one in conditions(seen.view):
            reasons = f": {'; '.join(one.reasons)}" if one.reasons else ""
            words.append(f"{one.account} {one.group}: {one.level}{reasons}")
        words = words or [seen.source]
        for line in words:
            if line not in said:
                console.print(line, soft_wrap=True)
        said = words
        nap(LOOK_S)


def _speed_words(spell: Spell, is_usual: bool = False) -> str:
    """`412 calls in 10 min, 0.0% refused, 0.8 s to the first byte, 12 ms per output token`."""
    over = "remembered" if is_usual else f"in {judged.RECENT_MIN} min"
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


def rest_of(graph: Graph, rows: Iterable[TaskRow], default: float) -> tuple[int, float]:
    """Tasks left, and their tokens by the mean of their group, else of the run, else `default`."""
    done: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    for row in rows:
        if row.state == "finished":
            group = row.name.partition("[")[0]
            done[group] += 1
            tokens[group] += round(row.ending.input_tokens + row.ending.output_tokens)
    mean = tokens.total() / done.total() if done else default
    left = {group.name: max(0, (group.count or 0) - done[group.name]) for group in graph.groups}
    needed = sum(
        number * (tokens[name] / done[name] if done[name] else mean)
        for name, number in left.items()
    )
    return sum(left.values()), needed


def passed_of(at_s: float) -> float:
    """How much of the day is over, in UTC like the days of budgets."""
    return at_s % DAY_S / DAY_S


_CLAIM: Final = re.compile(r"a call of (?:up to|about) ([\d,]+) tokens(?:, \$([\d,]+\.\d+))?")
"""What a refusal in a journal says of a call that no budget has room for."""


def _claim_in(words: str) -> Spend | None:
    found = _CLAIM.search(words)
    if found is None:
        return None
    dollars = float((found[2] or "0").replace(",", ""))
    return Spend(float(found[1].replace(",", "")), round(dollars * 1e6))


def finishes_now(
    graph: Graph, rows: Iterable[TaskRow], refusal: str, environ: Mapping[str, str]
) -> tuple[tuple[judged.Finish, ...], int]:
    """When a run could end, for each budget that its refusal names, and its tasks left."""
    claim = _claim_in(refusal)
    if claim is None:
        return (), 0
    try:
        view = overview(environ).view
    except HeadwayError:
        return (), 0
    tasks, tokens = rest_of(graph, rows, claim.tokens)
    # A token costs what tokens of this month cost.
    spent = next((one.spent for key, one in view.ledgers if key == EVERY_ACCOUNT), Spend())
    known = spent if spent.tokens else claim
    microusd = tokens * known.microusd / max(1.0, known.tokens)
    every = judged.outlooks(view, passed_of(time.time()))
    named = [one for one in every if f" for {whose(one)} (" in refusal]
    return judged.finishes(named, tokens, microusd, claim), tasks
