"""A run that a month's budget has stopped: what it still needs, and when it could end."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping

from headway.core.engine.record import Row
from headway.core.outlook import Finish, Rest, finishes, outlooks
from headway.core.plan.graph import Graph
from headway.core.quota.growth import claim_in
from headway.core.quota.terms import EVERY_ACCOUNT, Spend
from headway.core.values import DAY_S
from headway.watch.budgets import whose


def rest_of(graph: Graph, rows: Iterable[Row], refusal: str, spent: Spend) -> Rest | None:
    """What is left of a run, by what its finished tasks took; `None` if no call was refused.

    Of a group of which nothing has finished, tasks are taken to be like the others; of a run of
    which nothing has, like the call that was refused. A token costs what tokens of this month cost,
    which is `spent`.
    """
    claim = claim_in(refusal)
    if claim is None:
        return None
    done: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    for row in rows:
        if row.state == "finished":
            group = row.name.partition("[")[0]
            done[group] += 1
            tokens[group] += round(row.ending.input_tokens + row.ending.output_tokens)
    mean = tokens.total() / done.total() if done else claim.tokens
    left = {group.name: max(0, (group.count or 0) - done[group.name]) for group in graph.groups}
    needed = sum(
        number * (tokens[name] / done[name] if done[name] else mean)
        for name, number in left.items()
    )
    known = spent if spent.tokens else claim
    price = known.microusd / max(1.0, known.tokens)
    return Rest(sum(left.values()), needed, needed * price, claim)


def passed_of(at_s: float) -> float:
    """How much of the day has gone, by universal time, as days of budgets are."""
    return at_s % DAY_S / DAY_S


def finishes_now(
    graph: Graph, rows: Iterable[Row], refusal: str, environ: Mapping[str, str]
) -> tuple[tuple[Finish, ...], int]:
    """When it could end, for each of the budgets that its refusal names, and how many tasks that
    are. Nothing, if the accounts cannot be looked at: how a run ended is said in any case."""
    from headway.errors import HeadwayError
    from headway.runtime.overview import overview

    if claim_in(refusal) is None:
        return (), 0
    try:
        view = overview(environ).view
    except HeadwayError:
        return (), 0
    spent = next((one.spent for key, one in view.ledgers if key == EVERY_ACCOUNT), Spend())
    rest = rest_of(graph, rows, refusal, spent)
    if rest is None:
        return (), 0
    named = [
        one for one in outlooks(view, passed_of(time.time())) if f" for {whose(one)} (" in refusal
    ]
    return finishes(named, rest), rest.tasks
