"""The forecast of a run, kept beside its journal.

Laws:
- What was kept is read back equal; later versions may add to it.
- A forecast is never a reason why a run fails: one that cannot be kept or read is told in a word.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct, field
from msgspec.structs import replace

from headway.agents.prompt import endpoint_of
from headway.base.codec import decode, encode
from headway.base.folders import Folders, folders
from headway.base.values import Amounts
from headway.broker.store import StoredMemory, recall
from headway.client.accounts import DIALECT_OF_WIRE, account_name, host_name
from headway.engine.strategy import Strategy, parse
from headway.errors import HeadwayError, WireError
from headway.journal.folder import RunPlace, keep_file, kept_source, list_runs
from headway.journal.reader import JournalReader
from headway.pacing import memory as learned
from headway.pacing.account import Profile
from headway.pacing.admission import terms_of
from headway.pacing.budget import Budget, Spend
from headway.pacing.headers import PLAIN
from headway.plans.expand import ExpandedPlan
from headway.report.forecast import (
    FULL,
    MONEY,
    QUICK,
    ROUGH,
    Depth,
    Foreseen,
    Knowledge,
    Portion,
    SpreadNumber,
    foresee,
)
from headway.report.history import Passages
from headway.report.outline import Outline, OutlineFacts, OutlinePart, outline_of
from headway.report.sizes import AnsweredTask, SeenCall, seen_of
from headway.run.each import EachSource
from headway.run.plan_run import ObservedTasks, PlanRun, PlanSource
from headway.wire.prices import price_of

NAME: Final = "forecast.json"

NONE: Final = "none"


class KeptForecast(Struct, frozen=True):
    """What is known of a run's forecast: what it says, or why there is none."""

    foreseen: Foreseen | None
    word: str = ""
    """`none`, `spoilt` or `unreadable`; empty if there is one."""


def foresee_run(run: PlanRun, source: PlanSource, run_folder: str) -> Foreseen | None:
    """The forecast of a run that is about to begin, kept beside its journal.

    None if nothing is known of the plan, or the forecast fails: that is no reason not to run.
    """
    rules = run.launch.rules
    is_narrower = rules.ceiling < rules.strategy.room(0)
    strategy = Strategy("fixed", int(rules.ceiling)).name if is_narrower else rules.strategy.name
    try:
        found = foreseen_plan(
            run.plans.expanded, Path(source.path), run.crew.environment, strategy, source.budget,
            QUICK,
        )  # fmt: skip
    except HeadwayError:
        return None
    if found is not None:
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
    """What was foreseen; None if nothing was, or it is unreadable."""
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


# What earlier runs tell of the next one: sizes and times of their calls, from their journals.

UNREADABLE: Final = (HeadwayError, OSError, ValueError, TypeError, KeyError)
"""What a journal, or what is kept beside it, may fail with: then another one has to do."""

EACH: Final = "each"

RUNS_MAX: Final = 30

SAME_MAX: Final = 5
OTHERS_MAX: Final = 3
"""Of these, runs of the same plan, and runs of others, that are read."""

EVENTS_MAX: Final = 20_000
"""Facts of a run that are read, the latest: a few tenths of a second."""


class Earlier(Struct):
    """What earlier runs have shown, oldest first."""

    seen: dict[str, list[SeenCall]] = field(default_factory=dict)
    """By part of the plan, and by model."""
    seconds: dict[str, list[float]] = field(default_factory=dict)
    calls: dict[str, list[float]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    """By part, how many tasks it had in the last of these runs; 0 if that was found as it ran."""
    runs: int = 0
    active: int = 1

    @property
    def words(self) -> str:
        """Where it is known from, for people."""
        return f"{self.runs} earlier run{'s' if self.runs != 1 else ''}" if self.runs else ""


def earlier_plans(places: Iterable[RunPlace], path: str) -> Earlier:
    """What runs of the plan at this path have shown, and other runs of the models they asked."""
    found, same, others = Earlier(), list[RunPlace](), list[RunPlace]()
    for place in list(places)[:RUNS_MAX]:
        try:
            with JournalReader(place.folder) as reader:
                header = reader.header
            if header.kind != "plan":
                continue
            is_same = PlanSource.kept(place.folder, header.source).path == path
        except UNREADABLE:
            continue
        group, most = (same, SAME_MAX) if is_same else (others, OTHERS_MAX)
        if len(group) < most:
            group.append(place)
    for chosen, is_same in ((others, False), (same, True)):
        for place in reversed(chosen):
            with suppress(*UNREADABLE), JournalReader(place.folder) as reader:
                _hear(found, reader, ObservedTasks.kept(place.folder), is_same)
    return found


def earlier_each(places: Iterable[RunPlace], template: str) -> Earlier:
    """What runs of the same command have shown."""
    found, chosen = Earlier(), list[RunPlace]()
    for place in list(places)[:RUNS_MAX]:
        with suppress(*UNREADABLE), JournalReader(place.folder) as reader:
            source = kept_source(place.folder, reader.header.source)
            is_same = reader.header.kind == "each" and (
                EachSource.decoded(source).template == template
            )
            if is_same and len(chosen) < SAME_MAX:
                chosen.append(place)
    for place in reversed(chosen):
        with suppress(*UNREADABLE), JournalReader(place.folder) as reader:
            _hear(found, reader, ObservedTasks({EACH: ("", None)}, {}), True)
    return found


def _hear(found: Earlier, reader: JournalReader, cast: ObservedTasks, is_same: bool) -> None:
    history = Passages()
    for one in reader.events(max(0, reader.summary().events - EVENTS_MAX)):
        history.hear(one.key, one.event)
    answered: list[tuple[AnsweredTask, str]] = []
    measured = 0
    for row in reader.rows("finished"):
        part = EACH if EACH in cast.parts else row.name.partition("[")[0]
        task = history.tasks.get(row.key)
        if part not in cast.parts or task is None or task.state != "finished":
            continue
        model, _ = cast.parts[part]
        if not model and is_same:
            measured += 1
            found.seconds.setdefault(part, []).append(max(0.0, row.ended_s - row.started_s))
            found.calls.setdefault(part, []).append(float(row.ending.calls))
        if row.ending.calls and task.reached_s < inf:
            span, ending = task.last_service, row.ending
            size = float(cast.sizes_bytes.get(row.key.hex(), 0))
            total = SeenCall(
                ending.input_tokens, ending.output_tokens, size, calls=ending.calls,
                microusd=float(ending.spend_microusd),
            )  # fmt: skip
            answered.append(((part, span.from_s, span.to_s, total), model or part))
    if is_same:
        _add(found, [one for one, _ in answered])
        found.counts |= {name: count or 0 for name, (_, count) in cast.parts.items()}
    _add(found, [(model, *one[1:]) for one, model in answered])
    if answered or measured:
        found.runs += 1
        found.active = max(found.active, history.submitted)


def _add(found: Earlier, answered: list[AnsweredTask]) -> None:
    for name, seen in seen_of(answered).items():
        found.seen.setdefault(name, []).extend(seen)


def mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else 0.0


# Forecasts of real plans: what the plan says, what earlier runs showed, what the account allows.

RUN_BUDGET: Final = "the run's budget"

BYTES_PER_TOKEN: Final = 4.0
"""Of English prose. A budget takes each byte of a call for a token before it is sent."""


class Prospect(Struct, frozen=True):
    """A plan with all that is known for its forecast: several strategies can be asked for."""

    outline: Outline
    knowledge: Knowledge
    memory: learned.PacingMemory
    account: str
    budget: Budget | None = None
    assumed: tuple[str, ...] = ()

    def foresee(self, strategy: Strategy, depth: Depth = FULL) -> Foreseen:
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
        for one in self.knowledge.account().account.allowances.statistics(0.0):
            name, size = f"{one.name} window of {self.account}", one.size_tokens
            if size is None:
                unsized.append(f"the {name}, {one.used:.0%} used, is taken to be large enough")
                continue
            tokens, doubt = found.tokens, one.doubt
            takes = SpreadNumber(tokens.low * (1 - doubt), tokens.mid, tokens.high * (1 + doubt))
            portion = Portion(
                name, self.knowledge.terms.share * size, one.used * size, takes, one.resets_s
            )
            portions.append(portion)
        return portions, unsized

    def _portions(self, found: Foreseen) -> tuple[Portion, ...]:
        spent, month = dict(self.memory.spent), self.memory.month
        portions: list[Portion] = []
        budgets: list[tuple[str, Budget, Spend]] = [
            (f"{key or 'all accounts'} in {month}", terms.budget, spent.get(key, Spend()))
            for key, terms in self.memory.terms
            if key in (learned.EVERY_ACCOUNT, self.account)
        ]
        if self.budget is not None:
            budgets.append((RUN_BUDGET, self.budget, Spend()))
        for name, one, used in budgets:
            if one.tokens is not None:
                portions.append(Portion(f"tokens of {name}", one.tokens, used.tokens, found.tokens))
            if one.microusd is not None and found.microusd is not None:
                portions.append(
                    Portion(f"{MONEY} of {name}", one.microusd, used.microusd, found.microusd)
                )
        return tuple(portions)


def prospect_of(
    expanded: ExpandedPlan,
    path: Path,
    environment: Mapping[str, str],
    budget: Budget | None = None,
) -> Prospect:
    place = folders(environment)
    earlier = _earlier(place, path)
    answers = {
        name: sum(one.output_tokens for one in seen) / len(seen)
        for name, seen in earlier.seen.items()
    }
    facts = OutlineFacts(
        lambda model: price_of(_name(model, environment)),
        earlier.seconds, answers, {name: mean(made) for name, made in earlier.calls.items()},
        earlier.counts,
    )  # fmt: skip
    outline, assumed = outline_of(expanded, facts)
    kept = look(place)
    asking = (part for part in outline.parts if part.asks)
    asked = max(asking, key=lambda part: part.count * max(1.0, part.calls), default=None)
    others = {part.model for part in outline.parts if part.asks} - {asked.model if asked else ""}
    if others:
        assumed = (
            *assumed,
            f"all calls are taken to draw on the account of {asked.model if asked else ''}",
        )
    knowledge, account = known_account(asked.model if asked else "", kept, environment)
    knowledge = replace(knowledge, seen=earlier.seen, learned_from=earlier.words)
    return Prospect(
        outline, knowledge, kept.memory, account, budget or expanded.spec.budget, assumed
    )


def foreseen_plan(
    expanded: ExpandedPlan, path: Path, environment: Mapping[str, str], strategy: str,
    budget: Budget | None = None, depth: Depth = FULL,
) -> Foreseen | None:  # fmt: skip
    """What a plan will take; None if it asks no model and nothing of it was measured."""
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
    part = OutlinePart(EACH, count, seconds=tuple(earlier.seconds[EACH]))
    width = max(1, int(min(jobs, earlier.active)))
    nothing = learned.AccountMemory("", "", PLAIN.name, Profile())
    known = Knowledge(nothing, {}, earlier.words, width)
    found = foresee(Outline((part,)), known, Strategy("fixed", width))
    seen = earlier.seen.get(EACH, [])
    tokens_in = count * mean(one.input_tokens * one.calls for one in seen)
    tokens_out = count * mean(one.output_tokens * one.calls for one in seen)
    return replace(
        found, calls=SpreadNumber(*[count * calls] * 3),
        input_tokens=SpreadNumber(*[tokens_in] * 3), output_tokens=SpreadNumber(*[tokens_out] * 3),
        microusd=None, learned_calls=len(earlier.seconds[EACH]),
        assumed=(f"{width} at once, as in the runs before",),
    )  # fmt: skip


def look(place: Folders) -> StoredMemory:
    """What the broker last wrote down; nothing if there is none that can be read."""
    return recall(place.memory) or StoredMemory(learned.PacingMemory())


def known_account(
    model: str, kept: StoredMemory, environment: Mapping[str, str]
) -> tuple[Knowledge, str]:
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
            names, owners = dict(kept.memory.names), dict(kept.memory.owners)
            account = learned.account_of(names, owners, *account_name(host, endpoint.headers))
            group = learned.model_group(endpoint.model)
            dialect = DIALECT_OF_WIRE[endpoint.wire].name
    terms = terms_of(dict(kept.memory.terms), account, group)
    for lane in kept.memory.accounts:
        if (lane.account, lane.group) == (account, group):
            return Knowledge(lane, terms=terms, age_s=kept.age_s + lane.age_s), account
    nothing = learned.AccountMemory(account, group, dialect, Profile())
    return Knowledge(nothing, terms=terms), account


def _earlier(place: Folders, path: Path) -> Earlier:
    try:
        return earlier_plans(list_runs(place.state), str(path.resolve()))
    except HeadwayError:
        return Earlier()


def _name(model: str, environment: Mapping[str, str]) -> str:
    try:
        return endpoint_of(model, environment).model
    except HeadwayError:
        return model
