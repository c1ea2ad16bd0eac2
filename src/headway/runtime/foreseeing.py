"""Forecasts of real plans: what the plan says, what earlier runs showed, what the account allows.

Laws:
- Nothing is sent, started or imported: journals and the broker's memory are read as they are.
- Whoever cannot be read is as good as nobody: a forecast from less says from how much it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from headway.core.engine.strategy import Fixed, Strategy, parse
from headway.core.foresight.forecast import FULL, ROUGH, Depth, Footing, Knowledge, foresee
from headway.core.foresight.foreseen import MONEY, Foreseen, Portion, Spread
from headway.core.foresight.outline import Outline, Part
from headway.core.foresight.planned import Facts, outline_of
from headway.core.plan.expand import Expanded
from headway.core.plan.spec import Budget
from headway.core.quota.belief import Profile
from headway.core.quota.dialect import PLAIN
from headway.core.quota.lanes import terms_of
from headway.core.quota.terms import EVERY_ACCOUNT, LaneMemory, Memory, Spend, model_group
from headway.core.values import Amounts
from headway.errors import HeadwayError, WireError
from headway.runtime.accounts import DIALECT_OF_WIRE, account_name, host_name
from headway.runtime.agents.endpoint import endpoint_of
from headway.runtime.clock import hour
from headway.runtime.folders import Folders, folders
from headway.runtime.observing import (
    EACH,
    Earlier,
    earlier_each,
    earlier_plans,
    mean,
)
from headway.runtime.prices import price_of
from headway.runtime.runs import list_runs
from headway.runtime.store import Kept, Store

RUN_BUDGET: Final = "the run's budget"

BYTES_PER_TOKEN: Final = 4.0
"""Of English prose. A budget takes each byte of a call for a token before it is sent."""


@dataclass(frozen=True, slots=True)
class Prospect:
    """A plan with all that is known for its forecast: several strategies can be asked for."""

    outline: Outline
    knowledge: Knowledge
    memory: Memory
    account: str
    budget: Budget | None = None
    assumed: tuple[str, ...] = ()

    def foresee(self, strategy: Strategy, depth: Depth = FULL) -> Foreseen:
        """What it takes, performed like this."""
        found = foresee(self.outline, self.knowledge, strategy, depth=depth)
        windows, unsized = self._windows(found)
        assumed = (*self.assumed, *found.assumed, *unsized)
        portions = (*self._portions(found), *windows)
        width = self._width(found, portions)
        return replace(found, portions=portions, assumed=assumed, budget_width=width)

    def _width(self, found: Foreseen, portions: tuple[Portion, ...]) -> int | None:
        """How many calls the budgets let be in flight: each is claimed at the most it can cost."""
        asking = [part for part in self.outline.parts if part.asks]
        calls = max(1.0, found.calls.mid)
        tokens_in = BYTES_PER_TOKEN * found.input_tokens.mid / calls
        most_out = max((part.max_tokens for part in asking), default=0.0)
        prices = [part.price for part in asking if part.price is not None]
        cost = max((one.cost_microusd(Amounts(tokens_in, most_out)) for one in prices), default=0)
        widths = [
            portion.left
            / max(1.0, cost if portion.name.startswith(MONEY) else tokens_in + most_out)
            for portion in portions
            if portion.resets_s is None
        ]
        least = min(widths, default=inf)
        return None if least >= found.calls.high else int(least)

    def _windows(self, found: Foreseen) -> tuple[list[Portion], list[str]]:
        """What it takes of every usage window, and a word on those of unknown size."""
        portions, unsized = list[Portion](), list[str]()
        footing = self.knowledge.footing
        for one in footing.lane().quota.belief.allowances.statistics(0.0):
            name, size = f"{one.word} window of {self.account}", one.size_tokens
            if size is None:
                unsized.append(f"the {name}, {one.used:.0%} used, is taken to be large enough")
                continue
            tokens, doubt = found.tokens, one.doubt
            takes = Spread(tokens.low * (1 - doubt), tokens.mid, tokens.high * (1 + doubt))
            portion = Portion(
                name, footing.terms.share * size, one.used * size, takes, one.resets_s
            )
            portions.append(portion)
        return portions, unsized

    def _portions(self, found: Foreseen) -> tuple[Portion, ...]:
        """What it takes of every budget."""
        memory, portions = self.memory, list[Portion]()
        budgets = [
            (
                f"{key or 'all accounts'} in {memory.month}",
                terms.budget,
                dict(memory.spent).get(key),
            )
            for key, terms in memory.terms
            if key in (EVERY_ACCOUNT, self.account)
        ]
        rows = [(name, one.tokens, one.microusd, spent) for name, one, spent in budgets]
        if self.budget is not None:
            rows.append((RUN_BUDGET, self.budget.tokens, self.budget.microusd, None))
        for name, tokens, microusd, spent in rows:
            used = spent or Spend()
            if tokens is not None:
                portions.append(Portion(f"tokens of {name}", tokens, used.tokens, found.tokens))
            if microusd is not None and found.microusd is not None:
                portions.append(
                    Portion(f"{MONEY} of {name}", microusd, used.microusd, found.microusd)
                )
        return tuple(portions)


def prospect_of(
    expanded: Expanded, path: Path, environment: Mapping[str, str], budget: Budget | None = None
) -> Prospect:
    """All that is known of a plan before it runs."""
    place = folders(environment)
    earlier = _earlier(place, path)
    answers = {
        name: sum(one.output_tokens for one in seen) / len(seen)
        for name, seen in earlier.seen.items()
    }
    facts = Facts(
        lambda model: price_of(_name(model, environment)),
        earlier.seconds, answers, {name: mean(made) for name, made in earlier.calls.items()},
        earlier.counts,
    )  # fmt: skip
    outline, assumed = outline_of(expanded, facts)
    kept = look(place)
    asked = max((part for part in outline.parts if part.asks), key=_weight, default=None)
    others = {part.model for part in outline.parts if part.asks} - {asked.model if asked else ""}
    if others:
        assumed = (
            *assumed,
            f"all calls are taken to draw on the account of {asked.model if asked else ''}",
        )
    footing, account = footing_of(asked.model if asked else "", kept, environment)
    footing = replace(footing, hour=hour())
    knowledge = Knowledge(footing, earlier.seen, earlier.words, hours=tuple(earlier.hours))
    return Prospect(
        outline, knowledge, kept.memory, account, budget or expanded.spec.budget, assumed
    )


def foreseen_plan(
    expanded: Expanded,
    path: Path,
    environment: Mapping[str, str],
    strategy: str,
    budget: Budget | None = None,
    depth: Depth = FULL,
) -> Foreseen | None:
    """What a plan will take; None if it asks nobody and nothing of it was measured."""
    prospect = prospect_of(expanded, path, environment, budget)
    parts = prospect.outline.parts
    if not any(part.asks or part.seconds for part in parts):
        return None
    is_seen = bool(prospect.knowledge.seen) or any(part.seconds for part in parts)
    return prospect.foresee(parse(strategy), depth if is_seen else ROUGH)


def foreseen_each(
    count: int, template: str, environment: Mapping[str, str], jobs: float
) -> Foreseen | None:
    """What a command for each of many inputs will take; None if it was never run before."""
    place = folders(environment)
    try:
        earlier = earlier_each(list_runs(place.state), template)
    except HeadwayError:
        return None
    if not earlier.seconds:
        return None
    calls = mean(earlier.calls[EACH])
    part = Part(EACH, count, seconds=tuple(earlier.seconds[EACH]))
    footing = Footing(LaneMemory("", "", PLAIN.name, Profile()))
    width = max(1, int(min(jobs, earlier.active)))
    known = Knowledge(footing, {}, earlier.words, width)
    found = foresee(Outline((part,)), known, Fixed(width))
    seen = earlier.seen.get(EACH, [])
    tokens_in = count * mean(one.input_tokens * one.calls for one in seen)
    tokens_out = count * mean(one.output_tokens * one.calls for one in seen)
    return replace(
        found,
        calls=Spread(*[count * calls] * 3),
        input_tokens=Spread(*[tokens_in] * 3),
        output_tokens=Spread(*[tokens_out] * 3),
        microusd=None,
        learned_calls=len(earlier.seconds[EACH]),
        assumed=(f"{width} at once, as in the runs before",),
    )


def look(place: Folders) -> Kept:
    """What the broker last wrote down; nothing if there is none that can be read."""
    try:
        return Store(place.memory).look()
    except (OSError, WireError):
        return Kept(Memory())


def footing_of(model: str, kept: Kept, environment: Mapping[str, str]) -> tuple[Footing, str]:
    """What is known of the account that a model is asked on, and the account's name."""
    account, group, dialect = "", "", PLAIN.name
    if model and "{{" not in model:
        try:
            endpoint = endpoint_of(model, environment)
        except HeadwayError:
            endpoint = None
        if endpoint is not None:
            parts = urlsplit(endpoint.url)
            host = host_name(parts.scheme, parts.hostname or "", parts.port)
            account = account_name(host, endpoint.headers)
            group = model_group(endpoint.model)
            dialect = DIALECT_OF_WIRE[endpoint.wire].name
    terms = terms_of(dict(kept.memory.terms), account, group)
    for lane in kept.memory.lanes:
        if (lane.account, lane.group) == (account, group):
            return Footing(lane, terms, kept.age_s), account
    return Footing(LaneMemory(account, group, dialect, Profile()), terms), account


def _earlier(place: Folders, path: Path) -> Earlier:
    try:
        return earlier_plans(list_runs(place.state), str(path.resolve()))
    except HeadwayError:
        return Earlier()


def _weight(part: Part) -> float:
    return part.count * max(1.0, part.calls)


def _name(model: str, environment: Mapping[str, str]) -> str:
    """A model as its provider calls it."""
    try:
        return endpoint_of(model, environment).model
    except HeadwayError:
        return model
