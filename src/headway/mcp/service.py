"""What each tool does: texts and numbers in, records for JSON out. Knows no protocol.

Laws:
- Nothing that a caller says is executed or imported, and nothing is started without a budget.
- Every method may run on any thread, at the same time as every other.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from functools import partial
from itertools import islice
from typing import Final

from headway.core.plan.check import check
from headway.core.progress import Rest
from headway.errors import BadValueError, HeadwayError, PlanError
from headway.mcp.handover import (
    Handover,
    HandoverStatistics,
    last_detail,
    last_words,
    must_be_runnable,
    written,
)
from headway.mcp.pages import Page, page
from headway.mcp.settings import NEEDS_BUDGET, Settings
from headway.planfile import Loaded, absent
from headway.planfile.foreign import load_foreign
from headway.runtime.agentwork import must_have_providers
from headway.runtime.configuration import read_configuration
from headway.runtime.control import tell
from headway.runtime.declared import declared
from headway.runtime.journal_reader import JournalReader
from headway.runtime.planrun import PlanSource, price_guess, with_model
from headway.runtime.runs import RunPlace
from headway.watch.checked import refusal_of
from headway.watch.glance import LISTED_MAX, Glance, finite, look
from headway.watch.harvest import as_json, harvest
from headway.watch.outlook import outlook, source_of
from headway.watch.status import count_words, state_words
from headway.watch.terminal import clean
from headway.watch.words import known_usd

Told = dict[str, object]
"""What JSON can hold."""

ASK_AGAIN_S: Final = (2, 60)
"""The least and the most time between two questions about one run that are worth their tokens."""

START_S_MAX: Final = 60.0
"""A process that has not come to its run by then never will."""

REMARKS_MAX: Final = 50
REASON_CHARS_MAX: Final = 500


class Service:
    """The work behind the tools, for one folder."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._handover = Handover()

    def __repr__(self) -> str:
        return f"<Service of {self.settings.root}: {self.statistics()}>"

    def statistics(self) -> HandoverStatistics:
        return self._handover.statistics()

    def check_plan(self, plan: str, folder: str = "", model: str = "") -> Told:
        """All that is wrong with a plan, or what it would do."""
        place, model = self.settings.folder(folder), self.settings.model(model)
        try:
            loaded = load_foreign(plan, place, self.settings.allowance())
            must_have_providers(loaded.expanded, self.settings.environment())
        except PlanError as error:
            return {
                "accepted": False,
                "refused": [refusal_of(one) for one in (error, *error.others)],
            }
        report = check(loaded.survey, partial(absent, loaded.folder))
        remarks = [asdict(remark) for remark in report.remarks]
        return {
            "accepted": True,
            "refused": [],
            "tasks": report.tasks,
            "groups": [asdict(group) for group in report.groups],
            "levels": report.levels,
            "width": report.width,
            "longest_chain": report.critical_path,
            "input_tokens": round(report.input_tokens),
            "remarks": remarks[:REMARKS_MAX],
            "remarks_left_out": max(0, len(remarks) - REMARKS_MAX),
            "answers": report.answers,
            **self._price(loaded, model),
        }

    def submit_plan(
        self, plan: str, budget: str, folder: str = "", model: str = "", name: str = ""
    ) -> Told:
        """Start a run in a process of its own; its id, at once."""
        if not budget:
            raise BadValueError("submit_plan needs a `budget`", hint=NEEDS_BUDGET)
        self._handover.must_have_room()
        settings, amount = self.settings, self.settings.budget(budget)
        place, model = settings.folder(folder), settings.model(model)
        loaded = load_foreign(plan, place, settings.allowance(amount))
        strategy = read_configuration(os.environ).values.strategy
        source = PlanSource(
            "", loaded.text, strategy, budget=amount, model=model, sim=settings.sim,
            is_foreign=True,
        )  # fmt: skip
        must_be_runnable(loaded, source, settings.environment())
        run = written(loaded, source, clean(name).strip())
        self._handover.start(run, str(place))
        return {
            "run": run.id,
            "tasks": loaded.expanded.count,
            "budget": asdict(amount),
            "folder": os.path.relpath(place, settings.root),
            "next": f"It goes on by itself. Ask run_status({run.id!r}) now and then, and at the "
            "end run_results.",
        }

    def run_status(self, run: str) -> Told:
        """How far a run is, what it took, and what it waits for."""
        place = self.settings.run(run)
        with JournalReader(place.folder) as reader:
            glance = look(reader)
            source = source_of(reader)
            ahead = outlook(reader, glance, source) if glance.verdict.is_live else None
            failed = list(islice(glance.rows(reader, "failed"), LISTED_MAX))
        state, reason = self._state(place, glance)
        is_over = self._is_over(place, state, glance)
        rest = Rest(0) if ahead is None else ahead.rest
        words = state if state == "starting" else state_words(glance)
        told = {
            "run": place.id,
            "name": clean(glance.header.name),
            "state": state,
            "is_over": is_over,
            "in_words": f"{words}; {count_words(glance)}",
            "waits_for": reason or ("" if ahead is None else ahead.waits_for),
            "until_s": glance.verdict.until_s,
            **_counted(glance, source),
            "elapsed_s": round(glance.elapsed_s, 1),
            "eta_s": _short(rest.eta_s),
            "bound_s": _short(rest.bound_s),
            "bound_by": rest.binding,
            "failed": [
                {"task": clean(row.name), "attempts": row.attempt,
                 "reason": clean(row.fault)[:REASON_CHARS_MAX]}
                for row in failed
            ],
            "ask_again_in_s": None if is_over else _pause_s(rest.eta_s, glance.elapsed_s),
            "next": _next(place.id, state, is_over),
        }  # fmt: skip
        return _plain(told)

    def run_results(self, run: str, task: str, wanted: Page) -> Told:
        """A page of what the tasks gave, in declared order."""
        place = self.settings.run(run)
        with JournalReader(place.folder) as reader:
            glance = look(reader)
            plan = declared(reader, place.folder)
            names = [task] if task else []
            found = harvest(reader, names, None if plan is None else plan.places)
            given = page(((as_json(one, is_parsed=False), one.body) for one in found), wanted)
        ended = sum(glance.of(state) for state in ("finished", "failed", "skipped"))
        state, _ = self._state(place, glance)
        words = f"{ended} of {glance.total} tasks of the run have ended; it is {state}"
        told = {
            "run": place.id,
            "state": state,
            "results": given.results,
            "left_out": given.left_out,
            "next": given.after,
            "in_words": f"{words}. {given.left_out}" if given.left_out else words,
        }
        return _plain(told)

    def cancel_run(self, run: str, now: bool = False) -> Told:
        """Let a run end early; what is finished is kept."""
        place = self.settings.run(run)
        word = "end" if now else "stop"
        with JournalReader(place.folder) as reader:
            glance = look(reader)
            if glance.verdict.state == "stopping" and not now:
                # A second word would mean: now.
                words = f"{place.id} is stopping already"
                return {"run": place.id, "told": True, "in_words": words}
            told = tell(reader, place.id, word)
        if not told.was_told and glance.verdict.state == "new":
            return self._cancel_new(place)
        return {"run": place.id, "told": told.was_told, "in_words": told.words}

    def quota(self) -> Told:
        """What the accounts allow and use now, as `headway limits` shows it."""
        from headway.runtime.admission import admission

        view, _ = admission().describe()
        lanes = [
            {
                "account": lane.account,
                "model_group": lane.group,
                "in_flight": lane.in_flight,
                "at_once_max": lane.width,
                "waits_for": lane.waits_for,
                "refused": lane.refused,
                "share": lane.share,
                "limits": [
                    {
                        "name": one.limit.name, "amount": one.limit.amount,
                        "used": _short(one.used), "known_from": one.limit.source,
                        "age_s": _short(one.age_s),
                        "neighbours_per_s": round(one.neighbours_per_s, 3),
                    }
                    for one in lane.limits
                ],
            }
            for lane in view.lanes
        ]  # fmt: skip
        budgets = [{"account": name, **asdict(ledger)} for name, ledger in view.ledgers]
        return _plain({"month": view.month, "accounts": lanes, "budgets": budgets})

    def _state(self, place: RunPlace, glance: Glance) -> tuple[str, str]:
        """A run's state and why; the process of a new one may be on its way."""
        state, reason = glance.verdict.state, clean(glance.verdict.reason)
        if state == "done":
            return state, clean(last_detail(place))
        if state != "new":
            return state, reason
        if self._handover.is_starting(place.id):
            return "starting", ""
        return state, clean(last_words(place))

    def _is_over(self, place: RunPlace, state: str, glance: Glance) -> bool:
        """Whether nothing more will happen by itself."""
        if state != "new":
            return state != "starting" and not glance.verdict.is_live
        # Another server of this folder may have started it just now.
        age_s = glance.now_s - glance.header.created_s
        return age_s > START_S_MAX or self._handover.has_ended(place.id)

    def _cancel_new(self, place: RunPlace) -> Told:
        """Its process has not come to its journal yet, or never will."""
        was_told = self._handover.end(place.id)
        words = f"{place.id} has not begun, and no process is on its way to it"
        if was_told:
            words = f"{place.id} was stopped before it began"
        return {"run": place.id, "told": was_told, "in_words": words}

    def _price(self, loaded: Loaded, model: str) -> Told:
        """What a plan would cost, as far as its models and their prices are known."""
        source = PlanSource("", loaded.text, model=model)
        try:
            guess = price_guess(with_model(loaded.expanded, source), self.settings.environment())
        except HeadwayError as error:
            return {"price_unknown": error.message}
        return {
            "calls": guess.calls,
            "expected_usd": known_usd(guess.expected_microusd, len(guess.unpriced)),
            "ceiling_usd": known_usd(guess.ceiling_microusd, len(guess.unpriced)),
            "unpriced_models": guess.unpriced,
        }


def _counted(glance: Glance, source: PlanSource | None) -> Told:
    """Tasks by where they are, and what was spent of what may be."""
    summary, budget = glance.summary, None if source is None else source.budget
    most = None if budget is None else {
        "usd": None if budget.microusd is None else budget.microusd / 1e6,
        "tokens": budget.tokens,
    }  # fmt: skip
    return {
        "tasks": {"total": glance.total, **{str(s): n for s, n in summary.counts.items()}},
        "spent": {
            "usd": known_usd(summary.spent_microusd, summary.unpriced),
            "known_usd": summary.spent_microusd / 1e6,
            "reserved_usd": summary.reserved_microusd / 1e6,
            "input_tokens": round(summary.input_tokens),
            "output_tokens": round(summary.output_tokens),
        },
        "budget": most,
    }


def _pause_s(eta_s: float | None, elapsed_s: float) -> int:
    """A quarter of what is left; of a run whose speed is not known, of what has passed."""
    least, most = ASK_AGAIN_S
    return round(min(most, max(least, (elapsed_s if eta_s is None else eta_s) / 4)))


def _next(run: str, state: str, is_over: bool) -> str:
    if not is_over:
        return "It goes on by itself; do something else meanwhile."
    if state == "done":
        return f"Read run_results({run!r})."
    return (
        f"What there is: run_results({run!r}). The rest is done by `headway resume {run}` in a "
        "shell: finished tasks are not paid for again."
    )


def _short(number: float | None) -> float | None:
    """Digits that nobody needs cost whoever reads them."""
    return None if number is None else round(number, 1)


def _plain(told: object) -> Told:
    """What JSON can hold, as a dictionary."""
    found = finite(told)
    return found if isinstance(found, dict) else {}
