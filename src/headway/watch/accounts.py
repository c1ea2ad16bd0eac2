"""Accounts as a person reads them: each limit with its use, its source and its age, and by whom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from typing import TYPE_CHECKING, Final

from headway.core.numbers import short
from headway.core.outlook import Outlook
from headway.core.quota.ledger import LedgerStatistics
from headway.core.quota.view import BookView, LaneView, LimitView
from headway.core.values import DAY_S, MINUTE_S
from headway.watch.budgets import outlook_words
from headway.watch.words import cost, duration

if TYPE_CHECKING:
    from rich.console import Console

    from headway.runtime.protocol import About

PERIODS: Final = {MINUTE_S: "a minute", DAY_S: "a day", 3600.0: "an hour", 1.0: "a second"}

NO_ACCOUNTS: Final = (
    "No account has been used yet. Wrap a client with headway.pace(client), make a call, and "
    "look again."
)


def draw_accounts(
    console: Console, view: BookView, about: About, outlooks: Sequence[Outlook] = ()
) -> None:
    """Every account, then the budgets, then who keeps all this."""
    from rich.table import Table
    from rich.text import Text

    names = dict(about.clients)
    if not view.lanes:
        console.print(NO_ACCOUNTS, soft_wrap=True)
    for lane in view.lanes:
        console.print(Text(f"{lane.account}  {lane.group}", "bold"), Text(_state(lane), "dim"))
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 2), header_style="dim")
        for header in ("limit", "allowed", "used now", "known from", "confirmed"):
            table.add_column(header, justify="left" if header == "limit" else "right")
        for row in _rows(lane):
            table.add_row(*row)
        console.print(table)
        for caller in lane.callers:
            who = names.get(caller.client, caller.client)
            console.print(f"  {who}: {caller.in_flight} in flight, {caller.waiting} waiting")
        console.print()
    for line in _budgets(view):
        console.print(line)
    for outlook in outlooks:
        console.print(Text(f"  {outlook_words(outlook)}", "dim"), soft_wrap=True)
    for notice in about.notices:
        console.print(Text(notice, "yellow"), soft_wrap=True)
    console.print(Text(_keeper(about), "dim"))


def _state(lane: LaneView) -> str:
    width = "" if lane.width == inf else f" of {int(lane.width)}"
    said = f"({lane.dialect}) {lane.in_flight}{width} in flight, {lane.granted:,} calls"
    if lane.refused:
        said += f", {lane.refused:,} refused"
    if lane.share < 1.0:
        said += f", ceiling {lane.share:.0%}"
    return f"{said}, waiting for {lane.waits_for}" if lane.waits_for else said


def _rows(lane: LaneView) -> Iterator[tuple[str, ...]]:
    for view in lane.limits:
        limit = view.limit
        period = PERIODS.get(limit.period_s, f"{limit.period_s:g} s")
        used = f"{short(view.used)} ({view.used / limit.amount:.0%})"
        source = limit.source if not view.neighbours_per_s else f"{limit.source}, shared"
        yield f"{limit.resource} {period}", short(limit.amount), used, source, _age(view)
    for window in lane.windows:
        size = window.size_tokens
        yield (
            f"{window.word} window", "unknown" if size is None else f"about {short(size)} tokens",
            f"{window.used:.0%}", "header", f"resets in {duration(window.resets_s)}",
        )  # fmt: skip
    if not lane.limits:
        yield "none known", "", "", "learned from outcomes", ""


def _age(view: LimitView) -> str:
    if view.age_s is None:
        return "not yet"
    if view.age_s < 120:
        return f"{view.age_s:.0f} s ago"
    return (
        f"{view.age_s / 60:.0f} min ago" if view.age_s < 7200 else f"{view.age_s / 3600:.0f} h ago"
    )


def _budgets(view: BookView) -> Iterator[str]:
    for account, ledger in view.ledgers:
        whose = account or "all accounts"
        spent = f"{view.month} {whose}: {_spent(ledger)}"
        if ledger.budget.tokens is not None:
            left = ledger.budget.tokens - ledger.spent.tokens
            yield f"{spent} of a budget of {short(ledger.budget.tokens)}, {short(left)} left"
        elif ledger.budget.microusd is not None:
            left = ledger.budget.microusd - ledger.spent.microusd
            yield f"{spent} of a budget of {_usd(ledger.budget.microusd)}, {_usd(left)} left"
        elif ledger.spent.tokens:
            yield f"{spent}, no budget"


def _spent(ledger: LedgerStatistics) -> str:
    spent = f"{short(ledger.spent.tokens)} tokens"
    # Without a budget in money the broker looks up no price: then nothing is said of money.
    if ledger.spent.microusd or ledger.budget.microusd is not None:
        spent += f", {cost(ledger.spent.microusd, ledger.spent.unpriced)}"
    if ledger.claimed.tokens:
        spent += f" (and up to {short(ledger.claimed.tokens)} in flight)"
    return spent


def _usd(microusd: int) -> str:
    return f"${microusd / 1e6:,.2f}"


def _keeper(about: About) -> str:
    others = len(about.clients) - 1
    return f"broker {about.pid}, up {about.age_s:.0f} s, {others} other clients connected"
