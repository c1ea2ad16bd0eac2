"""Where advice on a plan gets its numbers from: the seam between a plan and what it would take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from headway.base.values import Amounts
from headway.plans.check import check
from headway.plans.document import absent
from headway.plans.load import Loaded
from headway.report.advise import situation_of
from headway.report.forecast import QUICK, Foreseen
from headway.report.options import (
    AccountGuess,
    Option,
    Situation,
    option_of,
    options_for,
    priced,
    ways_at,
)
from headway.run.forecasts import Prospect, prospect_of


def planned_situation(loaded: Loaded, asked: Situation) -> Situation:
    """What a plan is, as far as that can be told without running it."""
    report = check(loaded.survey, partial(absent, loaded.folder))
    return situation_of(loaded.expanded, report, asked)


def planned_prospect(loaded: Loaded, path: Path, environment: Mapping[str, str]) -> Prospect | None:
    """What is known of a plan from its own runs; None if it never ran here."""
    prospect = prospect_of(loaded.expanded, path, environment)
    asking = [part.name for part in prospect.outline.parts if part.asks]
    seen = prospect.knowledge.seen
    return prospect if asking and any(seen.get(name) for name in asking) else None


def foreseen_options(
    prospect: Prospect | None, situation: Situation, guess: AccountGuess, width: int
) -> tuple[Option, ...]:
    """Every way to do it, in numbers.

    Of a plan that ran before, several agents are foreseen as its own runs will go, and one agent
    that would do it all is rehearsed with the sizes that its tasks had. Otherwise agents of the
    situation's sizes are rehearsed.
    """
    if prospect is None:
        return options_for(situation, guess, width)
    options: list[Option] = []
    for way in ways_at(situation, width):
        if not way.is_several:
            options.append(option_of(situation, guess, way))
            continue
        found = replace(prospect.foresee(way.strategy, QUICK), strategy=way.name)
        options.append(priced(situation, way, found, _cost(found, guess)))
    return tuple(options)


def with_sizes_seen(prospect: Prospect, situation: Situation) -> Situation:
    """The situation with tasks as large as those that ran."""
    found = prospect.foresee(ways_at(situation, 1)[-1].strategy, QUICK)
    output = found.output_tokens.mid / situation.agents
    tokens = found.tokens.mid / situation.agents
    return replace(situation, tokens_each=max(2.0, tokens), output_each=max(1.0, output))


def _cost(found: Foreseen, guess: AccountGuess) -> float:
    if found.microusd is not None:
        return found.microusd.mid
    amounts = Amounts(found.input_tokens.mid, found.output_tokens.mid)
    return float(guess.priced.cost_microusd(amounts))
