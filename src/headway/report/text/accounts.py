"""Accounts: each limit with its use, source and age."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from math import inf
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from headway.base.codec import as_dict
from headway.base.numbers import short
from headway.base.values import DAY_S, MINUTE_S
from headway.broker.protocol import About
from headway.pacing.budget import Pot
from headway.pacing.view import AccountView, AdmissionView, LimitView
from headway.report.health import BudgetOutlook, Finish, Unit, lasting
from headway.report.text.terminal import print_lines
from headway.report.text.words import MICRO, cost, count, duration

PERIODS: Final = {MINUTE_S: "a minute", DAY_S: "a day", 3600.0: "an hour", 1.0: "a second"}

KEYS_SHOWN: Final = 4
"""Of an account: a login has had many tokens, of which the last ones are of interest."""

RUNS_SHOWN: Final = 5
"""Runs whose part of a usage window is shown, the last ones."""

NO_ACCOUNTS: Final = (
    "No account has been used yet. Wrap a client with headway.pace(client), make a call, and "
    "look again."
)


def draw_accounts(
    console: Console, view: AdmissionView, about: About, outlooks: Sequence[BudgetOutlook] = ()
) -> None:
    names = dict(about.clients)
    if not view.accounts:
        console.print(NO_ACCOUNTS, soft_wrap=True)
    for lane in view.accounts:
        console.print(Text(f"{lane.account}  {lane.group}", "bold"), Text(_state(lane), "dim"))
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 2), header_style="dim")
        for header in ("limit", "allowed", "used now", "known from", "confirmed"):
            table.add_column(header, justify="left" if header == "limit" else "right")
        for row in _rows(lane):
            table.add_row(*row)
        console.print(table)
        if lane.interactive:
            console.print(f"  {interactive_words(lane.interactive)}")
        for caller in lane.clients:
            who = names.get(caller.client, caller.client)
            console.print(f"  {who}: {caller.in_flight} in flight, {caller.waiting} waiting")
        console.print()
    for line in (*_keys(view), *_budgets(view)):
        console.print(line)
    print_lines(console, (f"  {outlook_words(one)}" for one in outlooks), "dim")
    print_lines(console, about.notices, "yellow")
    others = f"{len(about.clients) - 1} other clients connected"
    console.print(Text(f"broker {about.pid}, up {about.age_s:.0f} s, {others}", "dim"))


def _keys(view: AdmissionView) -> Iterator[str]:
    """The keys of each account that has another name."""
    keys: dict[str, list[str]] = {}
    for key, account in view.keys:
        keys.setdefault(account, []).append(key)
    for account, found in keys.items():
        more = f" and {len(found) - KEYS_SHOWN} more" if len(found) > KEYS_SHOWN else ""
        yield f"{account} is the account of {', '.join(found[-KEYS_SHOWN:])}{more}"


def _state(lane: AccountView) -> str:
    width = "" if lane.width == inf else f" of {int(lane.width)}"
    said = f"({lane.dialect}) {lane.in_flight}{width} in flight, {lane.granted:,} calls"
    if lane.refused:
        said += f", {lane.refused:,} refused"
    if lane.share < 1.0:
        said += f", ceiling {lane.share:.0%}"
    if lane.reserve:
        said += f", {lane.reserve:.0%} kept for interactive calls"
    return said if lane.wait is None else f"{said}, waiting for {lane.wait.words}"


def interactive_words(sessions: int) -> str:
    """`1 interactive session active; runs leave room for it`."""
    room = "it" if sessions == 1 else "them"
    return f"{count(sessions, 'interactive session')} active; runs leave room for {room}"


def _rows(lane: AccountView) -> Iterator[tuple[str, ...]]:
    for view in lane.limits:
        limit = view.limit
        period = PERIODS.get(limit.period_s, f"{limit.period_s:g} s")
        used = f"{short(view.used)} ({view.used / limit.amount:.0%})"
        source = limit.source if not view.neighbours_per_s else f"{limit.source}, shared"
        yield f"{limit.resource} {period}", short(limit.amount), used, source, _age(view)
    for window in lane.windows:
        size, models = window.size_tokens, f" ({', '.join(window.models)})" * bool(window.models)
        holds = "unknown" if size is None else f"about {short(size)} tokens"
        used = "empty" if window.is_empty else f"{window.used:.0%}"
        resets = f"resets in {duration(window.resets_s)}"
        yield f"{window.name} window{models}", holds, used, "header", resets
        for run, taken in window.runs[-RUNS_SHOWN:]:
            yield f"  run {run}", "", f"{taken:.0%}", "", ""
    if not lane.limits:
        yield "none known", "", "", "learned from outcomes", ""


def window_lines(lanes: Sequence[AccountView], run: str, tokens_left: float) -> Iterator[str]:
    """The usage windows of the accounts in use, each once: what is left, and the part of a run that
    still needs about so many tokens."""
    windows = {(lane.account, one.name): one for lane in lanes for one in lane.windows}
    for window in windows.values():
        size, taken = window.size_tokens, dict(window.runs).get(run)
        words = f"{window.name} window: {1.0 - window.used:.0%} left"
        words += f", resets in {duration(window.resets_s)}"
        if taken is not None:
            words += f"; this run has taken {taken:.0%}"
            if size is not None and tokens_left:
                words += f" and still needs about {tokens_left / size:.0%}"
        yield words


def _age(view: LimitView) -> str:
    if view.age_s is None:
        return "not yet"
    if view.age_s < 120:
        return f"{view.age_s:.0f} s ago"
    minutes = view.age_s / 60
    return f"{minutes:.0f} min ago" if minutes < 120 else f"{minutes / 60:.0f} h ago"


def _budgets(view: AdmissionView) -> Iterator[str]:
    for account, ledger in view.ledgers:
        spent = f"{view.month} {account or 'all accounts'}: {_spent(ledger)}"
        unit: Unit = "microusd" if ledger.budget.tokens is None else "tokens"
        budget = getattr(ledger.budget, unit)
        if budget is not None:
            left = amount(budget - getattr(ledger.spent, unit), unit)
            yield f"{spent} of a budget of {amount(budget, unit)}, {left} left"
        elif ledger.spent.tokens:
            yield f"{spent}, no budget"


def _spent(ledger: Pot) -> str:
    spent = f"{short(ledger.spent.tokens)} tokens"
    # Without a budget in money the broker looks up no price: then no cost is shown.
    if ledger.spent.microusd or ledger.budget.microusd is not None:
        spent += f", {cost(ledger.spent.microusd, ledger.spent.unpriced)}"
    if ledger.claimed.tokens:
        spent += f" (and up to {short(ledger.claimed.tokens)} in flight)"
    return spent


def amount(number: float, unit: Unit) -> str:
    """`4.2M`, `$20.00`."""
    return short(number) if unit == "tokens" else f"${number / MICRO:,.2f}"


def whose(outlook: BudgetOutlook) -> str:
    return outlook.account or "all accounts"


def title(outlook: BudgetOutlook) -> str:
    """`2026-11, all accounts: a budget of 5M tokens`."""
    tokens = " tokens" if outlook.unit == "tokens" else ""
    of = amount(outlook.budget, outlook.unit)
    return f"{outlook.date[:7]}, {whose(outlook)}: a budget of {of}{tokens}"


def outlook_words(outlook: BudgetOutlook) -> str:
    """`at the pace of the last 7 days (310k a day) the budget of 5M is used up on 2026-11-24, 7
    days before the month ends`; or that it lasts."""
    unit = outlook.unit
    of = amount(outlook.budget, unit)
    if outlook.spent >= outlook.budget:
        more = f"there is more on {outlook.turns_on}, or with"
        return f"the budget of {of} is used up; {more} `{raising(outlook, lasting(outlook))}`"
    if not outlook.pace_per_day:
        return f"nothing was spent in the last {count(outlook.pace_days, 'day')}"
    last = "today" if outlook.pace_days == 1 else f"the last {count(outlook.pace_days, 'day')}"
    pace = f"at the pace of {last} ({amount(outlook.pace_per_day, unit)} a day)"
    if outlook.exhausted_on is None:
        end = amount(outlook.expected, unit)
        return f"{pace} the budget of {of} lasts: {end} by the end of the month"
    ends = f"{count(outlook.days_short, 'day')} before the month turns"
    return f"{pace} the budget of {of} is used up on {outlook.exhausted_on}; {ends}"


def raising(outlook: BudgetOutlook, to: float) -> str:
    setting = f"'${to / MICRO:g}/month'" if outlook.unit == "microusd" else f"{to:.0f}/month"
    account = f" --account {shlex.quote(outlook.account)}" if outlook.account else ""
    return f"headway limits budget {setting}{account}"


def finish_words(finish: Finish, tasks: int) -> str:
    """Which budget stopped a run, what is left of it, and when the run could end."""
    one = finish.outlook
    tokens = " tokens" if one.unit == "tokens" else ""
    of, left = amount(one.budget, one.unit), amount(one.left, one.unit)
    need = "needs" if tasks == 1 else "need"
    needs = f"{count(tasks, 'task')} still {need} about {amount(finish.needs, one.unit)}{tokens}"
    when = f"it could finish from {finish.on} on, when the month turns, or now with"
    if finish.turns > 1:
        when = f"it could finish from {finish.on} on, after {finish.turns} months, or now with"
    elif not finish.turns:
        when = "no month has room for one of its calls, it can finish only with"
    return (
        f"the budget of {of}{tokens} for {whose(one)} has {left} left in {one.date[:7]}; {needs}: "
        f"{when} `{raising(one, finish.raise_to)}`"
    )


def finish_json(finish: Finish) -> dict[str, object]:
    one = finish.outlook
    return {
        "account": one.account, "unit": one.unit, "budget": one.budget, "left": one.left,
        "needs": finish.needs, "raise_to": finish.raise_to, "finishes_on": finish.on,
    }  # fmt: skip


def outlook_json(outlook: BudgetOutlook) -> dict[str, object]:
    found = {"left": outlook.left, "days_short": outlook.days_short}
    return {**as_dict(outlook), **found, "words": outlook_words(outlook)}
