"""Gathers what `advise` needs to know of a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from headway.base.folders import folders
from headway.base.values import Amounts
from headway.engine.strategy import ADAPTIVE as STRATEGY
from headway.plans.check import check
from headway.plans.document import absent
from headway.plans.load import Loaded
from headway.plans.spec import Prompt
from headway.report.advise import situation_of
from headway.report.forecast import QUICK
from headway.report.options import (
    ADAPTIVE,
    ONE,
    AccountGuess,
    Option,
    Situation,
    cost_of,
    option_of,
    options_for,
    priced,
)
from headway.run.forecasts import Prospect, known_account, look, prospect_of


def planned_situation(loaded: Loaded, asked: Situation) -> Situation:
    """Agents, sizes and shape of a plan that has not run."""
    report = check(loaded.survey, partial(absent, loaded.folder))
    return situation_of(loaded.expanded, report, asked)


def model_asked_most(loaded: Loaded) -> str:
    """The model that most tasks of a plan ask; empty if they ask none."""
    counts = Counter[str]()
    for group in loaded.expanded.groups:
        work = group.task.work
        if isinstance(work, Prompt) and not group.task.is_command:
            counts[work.model or loaded.expanded.spec.model] += max(1, group.count or 0)
    return max(counts, key=lambda model: counts[model], default="")


def account_of_model(model: str, environment: Mapping[str, str]) -> tuple[str, str]:
    """The account that a run would ask a model on, and the group of its limits; of a model whose
    provider is not named, only the group."""
    knowledge, account = known_account(model, look(folders(environment)), environment)
    return account, knowledge.memory.group or model


def planned_prospect(loaded: Loaded, path: Path, environment: Mapping[str, str]) -> Prospect | None:
    """What earlier runs of a plan have shown; None if it never ran here."""
    prospect = prospect_of(loaded.expanded, path, environment)
    asking = [part.name for part in prospect.outline.parts if part.asks]
    seen = prospect.knowledge.seen
    return prospect if asking and any(seen.get(name) for name in asking) else None


def foreseen_options(
    prospect: Prospect | None, situation: Situation, guess: AccountGuess
) -> tuple[Option, ...]:
    """One agent and several, in numbers.

    For a plan that ran before, several agents are forecast from its own runs, and one agent that
    does it all is rehearsed with the sizes that its tasks had. Otherwise agents of the situation's
    sizes are rehearsed.
    """
    if prospect is None or situation.agents == 1:
        return options_for(situation, guess)
    found = replace(prospect.foresee(STRATEGY, QUICK), strategy=ADAPTIVE)
    amounts = Amounts(found.input_tokens.mid, found.output_tokens.mid)
    paid = cost_of(guess, amounts) if found.microusd is None else found.microusd.mid
    several = priced(situation, ADAPTIVE, found, paid)
    return option_of(situation, guess, ONE), several


def with_sizes_seen(prospect: Prospect, situation: Situation) -> Situation:
    """The situation with tasks as large as those that ran."""
    found = prospect.foresee(STRATEGY, QUICK)
    output = found.output_tokens.mid / situation.agents
    tokens = found.tokens.mid / situation.agents
    return replace(situation, tokens_each=max(2.0, tokens), output_each=max(1.0, output))
