"""What was foreseen of a run when it began, kept beside its journal to be compared with the truth.

Laws:
- What was kept is read back equal; later versions may add to it.
- A forecast is never a reason why a run fails: one that cannot be kept or read is told in a word.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headway.core.engine.strategy import Fixed
from headway.core.foresight.foreseen import Foreseen
from headway.errors import HeadwayError, WireError
from headway.runtime.codec import decode, encode
from headway.runtime.folders import folders
from headway.runtime.observing import CAST_NAME, cast_of
from headway.runtime.planrun import PlanRun, PlanSource
from headway.runtime.runs import keep_file, list_runs

NAME: Final = "forecast.json"
"""In a run's folder."""

NONE: Final = "none"

ITSELF: Final = 1
"""A run that begins is among all runs."""


@dataclass(frozen=True, slots=True)
class KeptForecast:
    """What is known of a run's forecast: what it says, or why there is none."""

    foreseen: Foreseen | None
    word: str = ""
    """`none`, `spoilt` or `unreadable`; empty if there is one."""


def foresee_run(run: PlanRun, source: PlanSource, run_folder: str) -> Foreseen | None:
    """Keep what is foreseen of a run that is about to begin, and what later forecasts need of it.

    None of one that goes on, and of a plan of which nothing was seen: what is usual is no forecast.
    Nothing that goes wrong here is a reason not to run.
    """
    is_new = not os.path.exists(os.path.join(run_folder, CAST_NAME))
    cast_of(run.plans).keep(run_folder)
    if not is_new or len(list_runs(folders(run.crew.environment).state, ITSELF + 1)) <= ITSELF:
        return None
    # Whoever has nothing to learn from does not load what forecasts are made with.
    from headway.core.foresight.forecast import QUICK
    from headway.runtime.foreseeing import foreseen_plan

    rules = run.launch.rules
    is_narrower = rules.ceiling < rules.strategy.room(0)
    strategy = Fixed(int(rules.ceiling)).name if is_narrower else rules.strategy.name
    try:
        found = foreseen_plan(
            run.plans.expanded, Path(source.path), run.crew.environment, strategy, source.budget,
            QUICK,
        )  # fmt: skip
    except HeadwayError:
        return None
    if found is None or not found.learned_calls:
        return None
    keep_forecast(run_folder, found)
    return found


def keep_forecast(folder: str, foreseen: Foreseen) -> bool:
    """Keep what was foreseen; whether that worked."""
    try:
        keep_file(folder, NAME, encode(foreseen))
    except OSError:
        return False
    return True


def kept_forecast(folder: str) -> Foreseen | None:
    """What was foreseen; None if nothing was, or nobody can read it."""
    return read_forecast(folder).foreseen


def read_forecast(folder: str) -> KeptForecast:
    """The same, with the reason why there is none."""
    try:
        with open(os.path.join(folder, NAME), "rb") as file:
            return KeptForecast(decode(Foreseen, file.read()))
    except FileNotFoundError:
        return KeptForecast(None, NONE)
    except OSError:
        return KeptForecast(None, "unreadable")
    except WireError:
        return KeptForecast(None, "spoilt")
