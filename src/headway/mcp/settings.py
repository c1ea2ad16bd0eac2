"""What the user who starts the server lets its callers do, and what callers say, made sense of.

Laws:
- No caller reaches out of the folder that the server was started in: neither with a plan nor by
  the name of a run.
- Money is never guessed: an amount that could be dollars or tokens is refused.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from headway.api import planfiles
from headway.core.plan.foreign import Allowance
from headway.core.plan.spec import Budget
from headway.errors import BadValueError, StateFileError, UsageError
from headway.runtime.configuration import foreign_allowance
from headway.runtime.folders import folders
from headway.runtime.journal_reader import JournalReader
from headway.runtime.runs import LAST, RunPlace, list_runs

TOKENS_MIN: Final = 1000
"""A smaller number without a dollar sign is more likely dollars than tokens."""

NEEDS_BUDGET: Final = 'pass the most that this run may spend: "$2" in dollars, "500k" in tokens'

SIMULATED: Final = {
    "ANTHROPIC_API_KEY": "simulated",
    "OPENAI_API_KEY": "simulated",
    "GEMINI_API_KEY": "simulated",
}
"""A run on the simulated provider needs no key; its process starts the provider."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Where the server works and how far its callers may go."""

    root: str
    """The folder that it was started in, without links."""
    sees_every_run: bool = False
    """Also runs that were started in other folders."""
    sim: str | None = None
    """Runs use the simulated provider, with this script; None: the real ones."""
    most: Budget | None = None
    """The most that one run may be given."""

    def folder(self, name: str) -> Path:
        """A plan's folder, which has to be inside."""
        if not _is_text(name):
            raise BadValueError("`folder` cannot be the name of a folder", hint="leave it out")
        real = os.path.realpath(os.path.join(self.root, name))
        if not self.holds(real):
            raise BadValueError(
                f"`folder` leads out of {self.root}, where this server was started",
                hint="name a folder inside, or leave it out",
            )
        if not os.path.isdir(real):
            raise BadValueError("`folder` is not a folder that is there", hint="leave it out")
        return Path(real)

    def holds(self, real: str) -> bool:
        """Whether a path without links is inside."""
        return real == self.root or real.startswith(self.root.rstrip("/") + "/")

    def run(self, word: str) -> RunPlace:
        """The run of an id, or the `last` one, of those that callers may see."""
        places = list_runs(folders(os.environ).state)
        for place in places:
            if word in (place.id, LAST) and self._sees(place):
                return place
        seen = [place.id for place in places if self._sees(place)][:5]
        known = f"the newest are {', '.join(seen)}" if seen else "there are none yet"
        raise UsageError(
            f"no run of this folder has the id `{word[:40]}`",
            hint=f"pass what submit_plan returned, or `{LAST}`: {known}",
        )

    def model(self, name: str) -> str:
        """The model for prompts that name none; like those in a plan, it is a name and no more."""
        if "{{" in name or not name.isprintable():
            raise BadValueError("`model` must be the name of a model", hint="provider/model")
        return name

    def allowance(self, budget: Budget | None = None) -> Allowance:
        """What a plan may contain: what the user's configuration says."""
        return replace(foreign_allowance(os.environ), budget=budget)

    def environment(self) -> Mapping[str, str]:
        """What a run will see of the keys."""
        return {**os.environ, **SIMULATED} if self.sim is not None else dict(os.environ)

    def budget(self, text: str) -> Budget:
        """`$2` is dollars, `500k` tokens; not more than the user said."""
        budget = budget_in(text)
        most = self.most
        if most is None:
            return budget
        allowed = f"${most.microusd / 1e6:g}" if most.microusd else f"{most.tokens} tokens"
        # A limit in one unit says nothing of the other: what cannot be compared is refused.
        is_within = (
            budget.microusd is not None and most.microusd is not None
            and budget.microusd <= most.microusd
        ) or (
            budget.tokens is not None and most.tokens is not None and budget.tokens <= most.tokens
        )  # fmt: skip
        if not is_within:
            raise BadValueError(
                f"a budget of {text} is not within the {allowed} that the user gives one run",
                hint=f"ask for at most {allowed}",
            )
        return budget

    def _sees(self, place: RunPlace) -> bool:
        if self.sees_every_run:
            return True
        try:
            with JournalReader(place.folder) as reader:
                return self.holds(os.path.realpath(reader.header.folder))
        except (StateFileError, OSError):
            return False


def _is_text(name: str) -> bool:
    """Whether a path can have this name: JSON can say what no disk can."""
    return "\0" not in name and name == name.encode(errors="replace").decode()


def budget_in(text: str) -> Budget:
    """An amount as callers write it."""
    amount = text.strip()
    try:
        budget = planfiles.budget_in(amount)
    except BadValueError:
        message = f"`budget` is {text[:40]!r}, which is no amount"
        raise BadValueError(message, hint=NEEDS_BUDGET) from None
    if budget.tokens is not None and budget.tokens < TOKENS_MIN:
        message = f'`budget` is {text[:40]!r}: is it "${amount}" or "{amount}k" tokens?'
        raise BadValueError(message, hint=NEEDS_BUDGET)
    return budget
