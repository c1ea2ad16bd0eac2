"""Where advice on a plan gets its numbers from: the seam between a plan and what it would take."""

from __future__ import annotations

from functools import partial

from headway.core.foresight.account_guess import AccountGuess
from headway.core.foresight.options import Option, options_for
from headway.core.foresight.planned_situation import situation_of
from headway.core.foresight.situation import Situation
from headway.core.plan.check import check
from headway.planfile import Loaded, absent


def planned_situation(loaded: Loaded, asked: Situation) -> Situation:
    """What a plan is, as far as that can be told without running it."""
    report = check(loaded.survey, partial(absent, loaded.folder))
    return situation_of(loaded.expanded, report, asked)


def foreseen_options(
    loaded: Loaded | None, situation: Situation, guess: AccountGuess, width: int
) -> tuple[Option, ...]:
    """Every way to do it, in numbers.

    Without a plan, and for now with one too, agents of the situation's sizes are rehearsed. What
    foresees a plan itself gives `Foreseen` records: `options.priced` makes options of them.
    """
    del loaded
    return options_for(situation, guess, width)
