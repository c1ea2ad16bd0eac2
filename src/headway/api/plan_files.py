"""Runs a plan file from Python and returns its results."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from headway.base.folders import folders
from headway.base.values import Budget, parse_budget
from headway.config import read_configuration
from headway.errors import (
    BadValueError,
    BudgetReachedError,
    HeadwayError,
    ProviderError,
    QueueDeadlineError,
    TasksFailedError,
)
from headway.journal.journal import Journal
from headway.journal.reader import JournalReader
from headway.plans.load import Loaded
from headway.run.driver import Driver, RunOutcome
from headway.run.filling import value_in
from headway.run.launch import launch
from headway.run.plan_run import PlanRun, PlanSource, ready_run

ENDED: Final = {
    "halt": "halted",
    "journal": "the run cannot be written down",
    "account": "the account refuses all calls",
}


class PlanResults(Struct, frozen=True):
    """What a plan's tasks gave, and what it took."""

    run: str
    """Its id: for `headway status`, `results` and `resume`."""
    results: Mapping[str, object]
    """By task: its result, or the list of its members' in order; None where there is none."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """By label, why."""
    calls: int = 0
    tokens: float = 0.0
    spend_microusd: int | None = 0
    """None if the price of any call is unknown."""

    def __repr__(self) -> str:
        return f"<PlanResults of {self.run}: {', '.join(self.results)}>"


def budget_in(text: str) -> Budget:
    """`$6` is money; `5M` and `3000` are tokens."""
    budget = parse_budget(text)
    if budget is None or not (budget.tokens or budget.microusd):
        raise BadValueError(f"a budget of {text} is not an amount", hint="write '$6' or 5M")
    return budget


class Performed(Struct, frozen=True):
    """A plan's run that is over."""

    driver: Driver
    run: PlanRun
    folder: str
    """Where its journal is."""
    results: PlanResults

    def checked(self) -> PlanResults:
        """The results, if all of them are there."""
        hint, failed = f"headway resume {self.results.run}", self.results.failed
        try:
            must_go_on(self.driver.outcome, "")
        except HeadwayError as error:
            error.hint = hint
            raise
        if self.driver.outcome.exit_code:
            label, why = next(iter(failed.items()), ("", "not everything was done"))
            many = "1 task" if len(failed) < 2 else f"{len(failed)} tasks"
            failure = TasksFailedError(f"{many} failed", detail=f"{label}: {why}", hint=hint)
            failure.results = self.results.results
            raise failure
        return self.results


async def performed(
    loaded: Loaded, source: PlanSource, stand_in: Callable[[PlanRun], PlanRun] | None = None
) -> Performed:
    """Perform a plan on a journal of its own; `stand_in` may change who performs which tasks."""
    environment = dict(os.environ)
    folder, expanded = str(loaded.folder.resolve()), loaded.expanded
    strategy = read_configuration(environment).values.strategy
    source = replace(source, strategy=strategy).of(expanded)
    run = ready_run(loaded, source, environment)
    state, tasks = folders(environment).state, expanded.count
    journal = Journal.begin(state, expanded.spec.name, "plan", source.encoded(), folder, tasks)
    try:
        run.join(journal, source)
        run = run if stand_in is None else stand_in(run)
        done = await launch(run.launch, journal)
    finally:
        journal.close()
    return Performed(done, run, journal.folder, _results(run, journal.folder, journal.header.run))


def must_go_on(outcome: RunOutcome, why: str) -> None:
    """Raise why a run ended, if it did so before its tasks were done or for a task's fault."""
    if outcome.cause == "budget":
        raise BudgetReachedError(outcome.detail or None, hint="give a larger budget")
    if outcome.cause == "window":
        raise QueueDeadlineError("the usage window is empty", detail=outcome.detail or None)
    if outcome.cause == "interrupted":
        raise KeyboardInterrupt
    if outcome.cause:
        raise HeadwayError(outcome.detail or ENDED[outcome.cause])
    if why:
        raise ProviderError(why)


def _results(run: PlanRun, folder: str, name: str) -> PlanResults:
    results: dict[str, object] = {}
    failed: dict[str, str] = {}
    with JournalReader(folder) as reader:
        for group, work in zip(run.plans.expanded.groups, run.works, strict=False):
            values: list[object] = []
            for member in range(group.count or 0):
                row = reader.row(work.key(member))
                is_there = row is not None and row.state == "finished"
                body = reader.body(row.ending.body) if row is not None and is_there else None
                values.append(None if body is None else value_in(body))
                if row is not None and row.state == "failed":
                    failed[work.label(member)] = row.fault
            results[group.name] = values if group.task.is_group else next(iter(values), None)
        rows = list(reader.rows())
        spent = [(row.ending, row.spent_microusd) for row in rows]
        unpriced = sum(row.unpriced for row in rows)
    return PlanResults(
        name, results, failed,
        sum(ending.calls for ending, _ in spent),
        sum(ending.input_tokens + ending.output_tokens for ending, _ in spent),
        None if unpriced else sum(microusd for _, microusd in spent),
    )  # fmt: skip
