"""Shows accounts (each limit with its use, source and age; health, budgets) and the gateway."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from headway.base.codec import as_dict
from headway.base.numbers import date_of, day_of, short
from headway.pacing.budget import Pot
from headway.pacing.memory import HOUR_UNKNOWN
from headway.pacing.view import AccountView, AdmissionView
from headway.report.health import ORDER, BudgetOutlook, Condition, Unit, condition_of, outlooks
from headway.report.text.terminal import clean, print_lines
from headway.report.text.words import (
    MICRO,
    cost,
    count,
    counts,
    duration,
    limit_words,
    one_line,
    wait_words,
)

if TYPE_CHECKING:
    from rich.console import Console

    from headway.client.overview import Overview

STYLES: Final = {"good": "", "watch": "yellow", "bad": "red"}

KEYS_SHOWN: Final = 4
"""Of an account: a login has had many tokens, of which the last ones are of interest."""

RUNS_SHOWN: Final = 5
"""Runs whose part of a usage window is shown, the last ones."""

REASON_MAX: Final = 200
"""Of a reason, which can contain the provider's own words."""

NO_ACCOUNTS: Final = (
    "No account has been used yet. Wrap a client with headway.pace(client), make a call, and "
    "look again."
)


class AccountTable(Struct, frozen=True):
    """One account and model group, in words."""

    title: str
    state: str
    rows: tuple[tuple[str, ...], ...]
    """Limits and usage windows, as `HEADERS` names them."""
    level: str
    reasons: tuple[str, ...]
    more: tuple[str, ...]


HEADERS: Final = ("limit", "allowed", "used now", "known from", "confirmed")


def account_tables(seen: Overview) -> Iterator[AccountTable]:
    names = dict(seen.about.clients) if seen.about is not None else {}
    for lane, condition in zip(seen.view.accounts, conditions(seen.view), strict=True):
        yield AccountTable(
            f"{lane.account}  {lane.group}", _state(lane), tuple(_rows(lane)), condition.level,
            tuple(one_line(reason, REASON_MAX) for reason in condition.reasons),
            tuple(_more(lane, condition, names)),
        )  # fmt: skip


def budget_lines(seen: Overview, passed: float) -> Iterator[str]:
    """Keys of accounts, and budgets; `passed` is how much of the day is over, 0 to 1."""
    yield from _keys(seen.view)
    yield from _budgets(seen.view, outlooks(seen.view, passed))


def draw_accounts(console: Console, seen: Overview, passed: float) -> None:
    """Every account; `passed` is how much of the day is over, 0 to 1."""
    from rich.table import Table
    from rich.text import Text

    if not seen.view.accounts:
        console.print(NO_ACCOUNTS, soft_wrap=True)
    for one in account_tables(seen):
        console.print(Text(one.title, "bold"), Text(one.state, "dim"))
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 2), header_style="dim")
        for header in HEADERS:
            table.add_column(header, justify="left" if header == "limit" else "right")
        for row in one.rows:
            table.add_row(*row)
        console.print(table)
        for reason in one.reasons:
            console.print(Text(f"  {one.level}: {reason}", STYLES[one.level]), soft_wrap=True)
        print_lines(console, (f"  {words}" for words in one.more))
        console.print()
    print_lines(console, budget_lines(seen, passed))
    if seen.about is not None:
        print_lines(console, seen.about.notices, "yellow")
    console.print(Text(seen.source, "dim"))


def as_json(seen: Overview, passed: float) -> dict[str, Any]:
    """The same for a program, without the minutes that the health of an account is judged by."""
    shown = as_dict(seen.view)
    for lane in shown["accounts"]:
        del lane["chronicle"]
    found = outlooks(seen.view, passed)
    shown |= {
        "source": seen.source,
        "broker": None if seen.about is None else as_dict(seen.about),
        "health": [as_dict(one) for one in conditions(seen.view)],
        "budgets": [{**as_dict(one), "words": outlook_words(one)} for one in found],
    }
    return {name: _with_unknown(value) for name, value in shown.items()}


def _with_unknown(value: object) -> object:
    """Money that does not contain all calls is null; what is known of it is `known_microusd`."""
    if isinstance(value, list | tuple):
        return [_with_unknown(one) for one in value]
    if not isinstance(value, dict):
        return value
    found = {key: _with_unknown(one) for key, one in value.items()}
    if found.get("unpriced"):
        found |= {"microusd": None, "known_microusd": found["microusd"]}
    return found


def conditions(view: AdmissionView) -> list[Condition]:
    return [condition_of(lane, view.hour) for lane in view.accounts]


def health_line(lanes: Sequence[AccountView]) -> str:
    """The worst account of a run in one line; nothing if all are good."""
    found = [condition_of(lane, HOUR_UNKNOWN) for lane in lanes]
    ill = [one for one in found if one.level != "good"]
    if not ill:
        return ""
    worst = max(ill, key=lambda one: ORDER.index(one.level))
    more = f"; and {count(len(ill) - 1, 'account')} more" if len(ill) > 1 else ""
    return f"{worst.level}: {one_line(worst.reasons[0], REASON_MAX)} ({worst.group}){more}"


def _more(lane: AccountView, condition: Condition, names: dict[str, str]) -> Iterator[str]:
    if (quiet := condition.quiet) is not None:
        hours = f"{quiet.from_hour:02}:00 to {quiet.to_hour:02}:00"
        faster = f", answers {quiet.faster:.1f}x faster" if quiet.faster > 1.05 else ""
        yield f"quieter from {hours}{faster}"
    if lane.interactive:
        yield interactive_words(lane.interactive)
    for caller in lane.clients:
        name = names.get(caller.client, caller.client)
        yield f"{name}: {caller.in_flight} in flight, {caller.waiting} waiting"


def _keys(view: AdmissionView) -> Iterator[str]:
    """The keys of each account that has another name."""
    keys: dict[str, list[str]] = {}
    for key, account in view.keys:
        keys.setdefault(account, []).append(key)
    for account, found in keys.items():
        more = f" and {len(found) - KEYS_SHOWN} more" if len(found) > KEYS_SHOWN else ""
        yield f"{account} is the account of {', '.join(found[-KEYS_SHOWN:])}{more}"


def _state(lane: AccountView) -> str:
    words = f"({lane.dialect}) {in_flight_words(lane)}, {lane.granted:,} calls"
    if lane.refused:
        words += f", {lane.refused:,} refused"
    if lane.share < 1.0:
        words += f", ceiling {lane.share:.0%}"
    if lane.reserve:
        words += f", {lane.reserve:.0%} kept for interactive calls"
    return words if lane.wait is None else f"{words}, waiting for {wait_words([lane])}"


def in_flight_words(lane: AccountView) -> str:
    """`3 of 20 in flight`."""
    width = "" if lane.width == inf else f" of {int(lane.width)}"
    return f"{lane.in_flight}{width} in flight"


def interactive_words(sessions: int) -> str:
    """`1 interactive session active; runs leave room for it`."""
    room = "it" if sessions == 1 else "them"
    return f"{count(sessions, 'interactive session')} active; runs leave room for {room}"


def _rows(lane: AccountView) -> Iterator[tuple[str, ...]]:
    for view in lane.limits:
        limit = view.limit
        used = f"{short(view.used)} ({view.used / limit.amount:.0%})"
        source = limit.source if not view.neighbours_per_s else f"{limit.source}, shared"
        age = "not yet" if view.age_s is None else f"{duration(view.age_s)} ago"
        yield limit_words(limit.name), short(limit.amount), used, source, age
    for window in lane.windows:
        models = ", ".join([*window.models, *(f"{one}, it seems" for one in window.likely)])
        size, models = window.size_tokens, f" ({models})" * bool(models)
        holds = "unknown" if size is None else f"about {short(size)} tokens"
        used = "empty" if window.is_empty else f"{window.used_now:.0%}"
        resets = f"resets in {duration(window.resets_s)}"
        yield f"{window.name} window{models}", holds, used, "header", resets
        for run, taken in window.runs[-RUNS_SHOWN:]:
            yield f"  run {run}", "", f"{taken:.0%}", "", ""
    if not lane.limits:
        yield "none known", "", "", "learned from outcomes", ""


def window_lines(
    lanes: Sequence[AccountView], run: str = "", tokens_left: float = 0.0
) -> Iterator[str]:
    """The usage windows of the accounts in use, each once: what is left, and the part of a run that
    still needs about so many tokens; that of all runs, if none is named."""
    windows = {(lane.account, one.name): one for lane in lanes for one in lane.windows}
    for window in windows.values():
        size, taken = window.size_tokens, dict(window.runs).get(run)
        words = f"{window.name} window: {1.0 - window.used_now:.0%} left"
        words += f", resets in {duration(window.resets_s)}"
        if taken is not None:
            words += f"; this run has taken {taken:.0%}"
            if size is not None and tokens_left:
                words += f" and still needs about {tokens_left / size:.0%}"
        elif window.runs and not run:
            words += f"; runs have taken {sum(share for _, share in window.runs):.0%}"
        yield words


def _budgets(view: AdmissionView, found: Sequence[BudgetOutlook]) -> Iterator[str]:
    for account, ledger in view.ledgers:
        spent = f"{view.month} {account or 'all accounts'}: {_spent(ledger)}"
        unit: Unit = "microusd" if ledger.budget.tokens is None else "tokens"
        budget = getattr(ledger.budget, unit)
        if budget is not None:
            left = amount(budget - getattr(ledger.spent, unit), unit)
            yield f"{spent} of a budget of {amount(budget, unit)}, {left} left"
        elif ledger.spent.tokens:
            yield f"{spent}, no budget"
        yield from (f"  {outlook_words(one)}" for one in found if one.account == account)


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


def outlook_words(outlook: BudgetOutlook) -> str:
    """`budget 5M tokens: 789k expected to be used by 2026-11-30`, or when it is used up."""
    unit = outlook.unit
    words = f"budget {amount(outlook.budget, unit)}{' tokens' if unit == 'tokens' else ''}"
    if outlook.spent >= outlook.budget:
        return f"{words}: used up; the month ends before {outlook.turns_on}"
    pace = f"at {amount(outlook.pace_per_day, unit)} a day"
    if outlook.exhausted_on is not None:
        return f"{words}: expected to be used up on {outlook.exhausted_on}, {pace}"
    last = date_of(day_of(outlook.turns_on) - 1)
    return f"{words}: {amount(outlook.expected, unit)} expected to be used by {last}, {pace}"


# The gateway: calls that wait now, totals, callers.


def gateway_lines(status: dict[str, Any]) -> Iterator[str]:
    held = f"{status['held']:,} held"
    if status["held"]:
        held += f", the longest for {duration(status['held_longest_s'])}"
    yield f"up {duration(status['up_s'])}: {count(status['in_flight'], 'call')} in flight, {held}"
    yield _sums(status["total"])
    for title, key in (("upstream", "by_upstream"), ("model", "by_model"),
                       ("caller", "by_caller"), ("key", "by_key")):  # fmt: skip
        rows = status[key]
        if rows and list(rows) != ["default"]:
            yield f"by {title}:"
            for name, sums in rows.items():
                yield f"  {clean(name)}: {_sums(sums)}"
    for title, key in (("waited for a permit", "queued"), ("then for a first byte", "first_byte")):
        for upstream, spread in status[key].items():
            times = (f"half {duration(spread['p50_s'])}, 99 of 100 {duration(spread['p99_s'])}, "
                     f"longest {duration(spread['longest_s'])}")  # fmt: skip
            yield f"{clean(upstream)}: {title} {times}"
    for upstream, kinds in status["faults"].items():
        faults = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
        yield f"{clean(upstream)}: failed: {faults}"
    if refused := status["turned_away"]:
        codes = ", ".join(f"{number} {clean(code)}" for code, number in refused.items())
        yield f"refused by the gateway: {codes}"
    if status["resent"]:
        yield f"{status['resent']} sent again by their client while they were held"


def _sums(sums: dict[str, Any]) -> str:
    read = sums["cache_read_tokens"]
    cached = f" + {short(read)} from the cache" if read else ""
    parts = [
        count(sums["calls"], "call"), f"{short(sums['input_tokens'])}{cached} tokens in",
        f"{short(sums['output_tokens'])} out",
    ]  # fmt: skip
    if written := sums["cache_write_tokens"]:
        twice = sums["cache_rewrite_tokens"]
        again = f" ({short(twice)} of it twice)" if twice else ""
        parts.append(f"{short(written)} written into the cache{again}")
    if sums["spend_microusd"] or sums["unpriced"]:
        parts.append(cost(sums["spend_microusd"], sums["unpriced"]))
    words = (("held", "held"), ("refusals_absorbed", "refusals absorbed"), ("failed", "failed"),
             ("replayed", "replayed"), ("kept_alive", "kept alive"))  # fmt: skip
    return ", ".join([*parts, *counts(*((sums[key], word) for key, word in words))])
