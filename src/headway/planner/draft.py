"""A plan that a model wrote and that every check has accepted: to look at, to keep, to run."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headway.api.how import wait_for
from headway.core.foresight.price_guess import PriceGuess
from headway.core.plan.foreign import Allowance
from headway.core.plan.spec import Budget
from headway.errors import BadValueError, Fix, ForeignPlanError, UsageError
from headway.planfile import Loaded, apply_fix
from headway.planfile.foreign import load_foreign
from headway.runtime import newfile
from headway.runtime.planrun import price_guess
from headway.runtime.work import Result

if TYPE_CHECKING:
    from headway.api.planfiles import PlanResults

NAME: Final = "plan.yaml"
_FENCE: Final = re.compile(
    r"^([ \t]*+)(`{3,}+|~{3,}+)[ \t]*+([A-Za-z]*+)[^\n]*+\n(.*?)(?:^\1\2[ \t]*+$|\Z)", re.M | re.S
)
"""A fenced block ends with a line like the one that it begins with: blocks within it are deeper.
Nothing is tried twice, so that a long line of backticks takes no longer than other text."""

_FIRST: Final = re.compile(r"^headway:[ \t]*1[ \t]*\n", re.M)
_PLAIN: Final = re.compile(r"[$A-Za-z0-9][A-Za-z0-9_./-]*")


@dataclass(frozen=True, slots=True)
class Draft:
    """A plan that a model wrote, checked. Nothing of it has run, and no file is written."""

    text: str
    loaded: Loaded
    took: Result = Result(b"")
    """What it took to write it: calls, tokens, micro-dollars."""
    budget: Budget | None = None
    """What is left of the budget that was given."""

    def __repr__(self) -> str:
        return f"<Draft {self.name!r}, {self.loaded.expanded.count} tasks>"

    @property
    def name(self) -> str:
        """As its runs are called."""
        return self.loaded.expanded.spec.name

    @property
    def is_single(self) -> bool:
        """Whether it is one call and no more: a plan was not needed."""
        groups = self.loaded.expanded.groups
        return len(groups) == 1 and groups[0].count == 1

    def price(self, environment: Mapping[str, str] | None = None) -> PriceGuess:
        """What running it will cost, as far as can be known."""
        return price_guess(self.loaded.expanded, environment or os.environ)

    def save(self, path: str | os.PathLike[str] = NAME, *, force: bool = False) -> Path:
        """Write it into a file, whole or not at all; one that is there only with `force`."""
        place = self.loaded.folder / path
        if place.parent.resolve() != self.loaded.folder.resolve():
            raise BadValueError(
                f"{place} is not in {self.loaded.folder}, where the plan's paths begin",
                hint="plan with `folder=` where it is to be",
            )
        write_new(place, self.text, force)
        return place

    def run(self, *, budget: str | Budget | None = None, name: str = NAME) -> PlanResults:
        """Perform it to its end, durably; TasksFailedError if something failed."""
        return wait_for(self.run_async(budget=budget, name=name), "draft.run_async")

    async def run_async(
        self, *, budget: str | Budget | None = None, name: str = NAME
    ) -> PlanResults:
        """`run`, for code that runs in an event loop."""
        from headway.api.planfiles import budget_in, perform_plan

        most = budget_in(budget) if isinstance(budget, str) else budget or self.budget
        if most is None:
            raise UsageError(
                "a plan that a model wrote is run within a budget",
                hint="draft.run(budget='$2'), or tokens: '5M'",
            )
        return await perform_plan(self.loaded, str(self.loaded.folder.resolve() / name), most)


def plan_in(reply: str) -> str:
    """The plan in a model's reply: in a fenced block, or all of it."""
    reply = reply.removeprefix("\ufeff")
    blocks = [(found[3].lower(), found[4]) for found in _FENCE.finditer(reply)]
    for language, text in blocks:
        if language in ("yaml", "yml", "json") or "headway" in text:
            return text
    return blocks[0][1] if blocks else reply


def examined(
    text: str, folder: Path, allowance: Allowance, defaults: Mapping[str, str]
) -> tuple[str, Loaded]:
    """A plan's text with what it left to the user, and loaded. Raises `PlanError`."""
    name = "plan.json" if text.lstrip().startswith("{") else NAME
    loaded = load_foreign(text, folder, allowance, name)
    spec = loaded.expanded.spec
    if spec.budget is not None and allowance.budget is None:
        raise ForeignPlanError(
            "`budget` says what may be spent, which is for the user to say",
            where=f"{name}:{spec.body.line}", hint="leave `budget` out",
        )  # fmt: skip
    missing = {"model": spec.model, "budget": spec.budget}
    for key, value in defaults.items():
        if not missing[key]:
            text = _with(text, Fix("add", spec.body, key, value))
    return text, load_foreign(text, folder, allowance, name)


def _with(text: str, fix: Fix) -> str:
    """A plan with one more key, below its first line where it is written in lines."""
    first, value = _FIRST.search(text), str(fix.value)
    if first is None or _PLAIN.fullmatch(value) is None:
        return apply_fix(text, fix)
    return f"{text[: first.end()]}{fix.key}: {value}\n{text[first.end() :]}"


def write_new(path: Path, text: str, force: bool) -> None:
    """Put a text where nothing is, in one step; what is there stays unless it is forced."""
    try:
        # A model may write halves of characters, which no file can hold.
        newfile.write_new(str(path), text.encode(errors="replace"), force)
    except FileExistsError:
        raise UsageError(f"{path} is there already", hint="--force, or another name") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
