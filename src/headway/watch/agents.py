"""What the agents of a run have told, taken and paid twice; how those that were cut off go on."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from headway.core.engine.record import Row
from headway.core.numbers import short
from headway.errors import HeadwayError
from headway.gateway.recorded import doubts_of, recorded_in
from headway.runtime.agents.cli.accounts import COMING, WORDS, Account, How, accounts_of
from headway.runtime.agents.cli.homes import sessions_of
from headway.runtime.agents.cli.known import kind_of
from headway.runtime.agents.cli.perform import outset_of
from headway.runtime.configuration import read_configuration
from headway.runtime.metering import Taken
from headway.runtime.planrun import CALLS
from headway.watch.words import cost, count, known_usd, one_line

NAME_CELLS: Final = 30


def coming_lines(folder: str, rows: Iterable[Row], environ: Mapping[str, str]) -> Iterator[str]:
    """Of every agent whose task is not done, how it would go on now."""
    left = {row.key.hex(): row for row in rows if row.state not in ("finished", "skipped")}
    settings = {one.name: one for one in read_configuration(environ).values.agents}
    recorded, is_replayed = _recorded(folder), False
    for home, session in sessions_of(folder):
        row, kind = left.get(session.key), kind_of(session.agent, settings)
        if row is None or kind is None:
            continue
        journalled = row.attempt - (row.state == "started")
        outset = outset_of(kind, home, replace(session, said=None), environ, journalled)
        how, made = outset.how, recorded.get(f"{session.task}~{session.number}", Taken())
        if how == "replay" and made.calls == made.in_flight:
            how = "start"
        is_replayed = is_replayed or how == "replay"
        yield _coming(session.task, session.agent, how, made.calls)
    if is_replayed:
        yield from doubts_of(os.path.join(folder, CALLS))


def _coming(task: str, agent: str, how: How, calls: int) -> str:
    made = f", after {count(calls, 'call')}" if calls and how in ("session", "replay") else ""
    return f"{one_line(task, NAME_CELLS)} {COMING[how]} ({agent}{made})"


def _recorded(folder: str) -> dict[str, Taken]:
    try:
        return recorded_in(os.path.join(folder, CALLS))
    except (HeadwayError, OSError):
        return {}


def accounts_by_key(folder: str) -> dict[str, list[Account]]:
    """By content key, in hexadecimal digits: what the attempts of each task told."""
    found: dict[str, list[Account]] = {}
    for account in accounts_of(folder):
        found.setdefault(account.key, []).append(account)
    return found


def as_json(accounts: list[Account]) -> dict[str, object]:
    """All attempts of one task, for a program: what its agent told, and what the gateway saw."""
    last = accounts[-1]
    seen = [one for one in accounts if one.metered_calls is not None]
    return {
        "name": last.agent,
        "session": last.session,
        "how": last.how,
        "turns": sum(one.turns for one in accounts),
        "tools": _summed(one.tools for one in accounts),
        "denied": _summed(one.denied for one in accounts),
        "told": {
            "input_tokens": sum(one.input_tokens for one in accounts),
            "output_tokens": sum(one.output_tokens for one in accounts),
            "usd": known_usd(*_told_cost(accounts)),
        },
        "metered": {
            "calls": sum(one.metered_calls or 0 for one in seen),
            "input_tokens": sum(one.metered_input_tokens for one in seen),
            "output_tokens": sum(one.metered_output_tokens for one in seen),
            "usd": known_usd(*_metered_cost(seen)),
        } if seen else None,
        "replayed": sum(one.replayed for one in accounts),
        "calls_again": sum(one.calls_again for one in accounts),
    }  # fmt: skip


def _summed(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total = Counter[str]()
    for one in counts:
        total.update(one)
    return dict(total)


def _metered_cost(accounts: Sequence[Account]) -> tuple[int, int]:
    """What the gateway saw: micro-dollars, and calls whose price is unknown."""
    unpriced = sum(one.metered_unpriced for one in accounts)
    return sum(one.metered_microusd for one in accounts), unpriced


def _told_cost(accounts: Sequence[Account]) -> tuple[int, int]:
    """What agents say of themselves. Some tell no cost."""
    silent = sum(one.turns for one in accounts if not one.microusd)
    return sum(one.microusd for one in accounts), silent


def account_lines(folder: str, width: int) -> Iterator[str]:
    """A line for each task that an agent has performed, or tried to."""
    for accounts in accounts_by_key(folder).values():
        last = accounts[-1]
        seen = [one for one in accounts if one.metered_calls is not None]
        used = sum(sum(one.tools.values()) for one in accounts)
        words = [f"{count(sum(one.turns for one in accounts), 'turn')}", count(used, "tool use")]
        if seen:
            calls = sum(one.metered_calls or 0 for one in seen)
            given = sum(one.metered_input_tokens for one in seen)
            gave = sum(one.metered_output_tokens for one in seen)
            words += [count(calls, "call"), f"{short(given)} in", f"{short(gave)} out"]
            words.append(cost(*_metered_cost(seen)))
        given = sum(one.input_tokens for one in accounts)
        gave = sum(one.output_tokens for one in accounts)
        told = f"{short(given)} in, {short(gave)} out, {cost(*_told_cost(accounts))}"
        words.append(f"itself says {told}" if seen else told)
        if last.how != "first":
            words.append(WORDS[last.how])
        if denied := _summed(one.denied for one in accounts):
            words.append(f"not allowed: {', '.join(denied)}")
        if again := sum(one.calls_again for one in accounts):
            words.append(f"{count(again, 'call')} paid twice")
        who = f"{one_line(last.task, NAME_CELLS)}  {last.agent}"
        yield one_line(f"{who}: {', '.join(words)}", width)
