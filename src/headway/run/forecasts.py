"""The forecast of a run, kept in its journal.

Laws:
- What was kept is read back equal; later versions may add to it.
- A forecast is never a reason why a run fails: one that cannot be kept or read is told in a word.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from math import inf
from pathlib import Path
from typing import Final

from msgspec import Struct, field
from msgspec.structs import astuple, replace

from headway.agents.prompt import endpoint_of
from headway.base.folders import Folders, folders
from headway.base.values import Amounts, Budget, Spend
from headway.broker.store import StoredMemory, recall
from headway.client.accounts import DIALECT_OF_WIRE
from headway.client.admission import own_memory
from headway.config import read_configuration
from headway.engine.strategy import Strategy, parse
from headway.errors import BadValueError, HeadwayError
from headway.journal.documents import FORECAST, keep
from headway.journal.folder import RunPlace, list_runs
from headway.journal.journal import Journal
from headway.journal.reader import JournalReader
from headway.pacing import memory as learned
from headway.pacing.account import Profile
from headway.pacing.budget import spent_in
from headway.pacing.headers import PLAIN
from headway.pacing.memory import terms_of
from headway.pacing.windows import RUN_SHARES, Shares, WindowState, shares_of
from headway.plans.expand import ExpandedPlan
from headway.plans.load import Loaded
from headway.report.forecast import (
    BYTES_PER_TOKEN,
    FULL,
    MONEY,
    QUICK,
    ROUGH,
    Depth,
    Foreseen,
    Knowledge,
    Portion,
    SpreadNumber,
    across_windows,
    foresee,
)
from headway.report.health import quiet_from
from headway.report.history import RunHistory
from headway.report.outline import Outline, OutlineFacts, outline_of
from headway.report.sizes import AnsweredTask, SeenCall, seen_of
from headway.run.launch import moment_s
from headway.run.plan_run import (
    ObservedTasks,
    PlanRun,
    PlanSource,
    account_key,
    plan_shares,
    with_model,
)
from headway.wire.prices import price_of


def foresee_run(run: PlanRun, source: PlanSource, journal: Journal) -> Foreseen | None:
    """The forecast of a run that is about to begin, kept in its journal.

    None if nothing is known of the plan, or the forecast fails: that is no reason not to run.
    """
    rules = run.launch.rules
    is_narrower = rules.ceiling < rules.strategy.room(0)
    strategy = Strategy("fixed", int(rules.ceiling)).name if is_narrower else rules.strategy.name
    try:
        found = foreseen_plan(
            run.plans.declared, Path(source.path), run.crew.environment, strategy, source.budget,
            QUICK, run.crew.window_shares,
        )  # fmt: skip
    except HeadwayError:
        return None
    if found is not None:
        keep(journal, FORECAST, found)
    return found


# What earlier runs tell of the next one: sizes and times of their calls, from their journals.

UNREADABLE: Final = (HeadwayError, OSError, ValueError, TypeError, KeyError)
"""What a journal, or what is kept beside it, may fail with: then another one has to do."""

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

    @property
    def words(self) -> str:
        """Where it is known from, for people."""
        return f"{self.runs} earlier run{'s' if self.runs != 1 else ''}" if self.runs else ""


def earlier_plans(
    places: Iterable[RunPlace], path: str, is_elsewhere: Callable[[str, str], bool]
) -> Earlier:
    """What runs of the plan at this path have shown, and other runs of the models they asked.

    Runs on a simulated provider teach nothing. `is_elsewhere` says of a model and the name of a key
    whether that is another account than the model is asked on now: its calls teach nothing, either.
    """
    found, same, others = Earlier(), list[RunPlace](), list[RunPlace]()
    for place in list(places)[:RUNS_MAX]:
        try:
            with JournalReader(place.folder) as reader:
                if reader.header.kind != "plan":
                    continue
                source = PlanSource.kept(reader)
            if source.sim is not None:
                continue
            is_same = source.path == path
        except UNREADABLE:
            continue
        group, most = (same, SAME_MAX) if is_same else (others, OTHERS_MAX)
        if len(group) < most:
            group.append(place)
    for chosen, is_same in ((others, False), (same, True)):
        for place in reversed(chosen):
            with suppress(*UNREADABLE), JournalReader(place.folder) as reader:
                cast = ObservedTasks.kept(reader)
                elsewhere = {one for one, key in cast.accounts.items() if is_elsewhere(one, key)}
                _hear(found, reader, cast, is_same, elsewhere)
    return found


def _hear(
    found: Earlier, reader: JournalReader, cast: ObservedTasks, is_same: bool,
    elsewhere: Container[str] = (),
) -> None:  # fmt: skip
    """Learn from a run, but for calls of the models that were asked on another account."""
    history = RunHistory()
    for one in reader.events(max(0, reader.last_event() - EVENTS_MAX)):
        history.apply(one.key, one.event)
    answered: list[tuple[AnsweredTask, str]] = []
    measured = 0
    for row in reader.rows("finished"):
        part = row.name.partition("[")[0]
        task = history.tasks.get(row.key)
        if part not in cast.parts or task is None or task.state != "finished":
            continue
        model, _ = cast.parts[part]
        if model in elsewhere:
            continue
        if not model and is_same:
            measured += 1
            found.seconds.setdefault(part, []).append(max(0.0, row.ended_s - row.started_s))
            found.calls.setdefault(part, []).append(float(row.ending.calls))
        # Of another plan only its calls of a model say something: parts have the plan's own names.
        if row.ending.calls and task.reached_s < inf and (model or is_same):
            span, ending = task.last_service, row.ending
            size = float(cast.sizes_bytes.get(row.key.hex(), 0))
            total = SeenCall(
                ending.input_tokens, ending.output_tokens, size, calls=ending.calls,
                microusd=float(ending.spend_microusd),
            )  # fmt: skip
            answered.append(((part, span.from_s, span.to_s, total), model))
    if is_same:
        _add(found, [one for one, _ in answered])
        found.counts |= {name: count or 0 for name, (_, count) in cast.parts.items()}
    _add(found, [(model, *one[1:]) for one, model in answered if model])
    if answered or measured:
        found.runs += 1


def _add(found: Earlier, answered: list[AnsweredTask]) -> None:
    for name, seen in seen_of(answered).items():
        found.seen.setdefault(name, []).extend(seen)


def mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else 0.0


# Forecasts of real plans: what the plan says, what earlier runs showed, what the account allows.

SHARE_STEP: Final = 5
"""Percent by which the share of usage windows is raised for a run that has to end in time."""

RUN_BUDGET: Final = "the run's budget"


class Prospect(Struct, frozen=True):
    """A plan with all that is known for its forecast: several strategies can be asked for."""

    outline: Outline
    knowledge: Knowledge
    memory: learned.PacingMemory
    account: str
    budget: Budget | None = None
    assumed: tuple[str, ...] = ()
    shares: Shares = RUN_SHARES
    """The most that the run takes of each usage window."""

    def foresee(self, strategy: Strategy, depth: Depth = FULL) -> Foreseen:
        return self.over_windows(self.unheld(strategy, depth))

    def in_time(self, strategy: Strategy, within_s: float, depth: Depth) -> tuple[Shares, Foreseen]:
        """The least shares of usage windows, from those of the plan on, with which nine of ten runs
        end within a time, and the forecast; all of each window, if no shares are enough."""
        free, before = self.unheld(strategy, depth), self.shares
        for percent in range(0, 101, SHARE_STEP):
            shares = max(before[0], percent / 100.0), max(before[1], percent / 100.0)
            found = replace(self, shares=shares).over_windows(free)
            if found.time_s.high <= within_s:
                break
        return shares, found

    def unheld(self, strategy: Strategy, depth: Depth) -> Foreseen:
        """The forecast of a run that waits for no usage window: they last longer than rehearsals
        should. It is a rough one where nothing was seen."""
        is_seen = self.knowledge.seen or any(part.seconds for part in self.outline.parts)
        windows = self._windows()
        free = replace(
            self.knowledge, memory=replace(self.knowledge.memory, windows=()),
            has_windows=any(one.size_tokens is not None for one in windows),
        )  # fmt: skip
        return foresee(self.outline, free, strategy, depth=depth if is_seen else ROUGH)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to forecast: it asks no model and nothing of it was measured."""
        return not any(part.asks or part.seconds for part in self.outline.parts)

    def over_windows(self, free: Foreseen) -> Foreseen:
        """The forecast of a run that waits for nothing, with its waits for usage windows."""
        windows, assumed = list[WindowState](), [*self.assumed, *free.assumed]
        for one in self._windows():
            if one.size_tokens is None:
                name = f"{one.name} window of {self.account}"
                assumed.append(f"the {name}, {one.used_now:.0%} used, is taken to be large enough")
            else:
                windows.append(one)
        if windows and free.unknown:
            # What is known of its windows says when it ends, if no other limit binds.
            assumed += free.unknown
            free = replace(free, unknown=())
        found, counts, ceiling = free, [[1] * len(windows)] * 3, self.knowledge.terms.share
        if windows and free.tokens.mid > 0.0:
            draws = zip(astuple(free.time_s), astuple(free.tokens), (1.0, 0.0, -1.0), strict=True)
            ends = [
                across_windows(time_s, tokens, windows, self.shares, ceiling, off)
                for time_s, tokens, off in draws
            ]
            counts, time_s = [one for _, one in ends], SpreadNumber(*(end_s for end_s, _ in ends))
            found = replace(free, time_s=time_s, waits_s=time_s.mid - free.time_s.mid)
        portions = (
            *self._portions(free),
            *(self._window(one, free, *n) for one, *n in zip(windows, *counts, strict=True)),
        )
        width = self._width(free, portions)
        return replace(found, portions=portions, assumed=tuple(assumed), budget_width=width)

    def _windows(self) -> Sequence[WindowState]:
        """Those that count what the plan's model uses, as far as that is known."""
        windows = self.knowledge.account().account.allowances.statistics(0.0)
        return [one for one in windows if one.counts(self.knowledge.memory.group)]

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

    def _window(self, one: WindowState, found: Foreseen, low: int, mid: int, high: int) -> Portion:
        """What it takes of a usage window of known size, and how many such windows it needs."""
        size, tokens, doubt = one.size_tokens or 0.0, found.tokens, one.doubt
        takes = SpreadNumber(tokens.low * (1 - doubt), tokens.mid, tokens.high * (1 + doubt))
        return Portion(
            f"{one.name} window of {self.account}", self.knowledge.terms.share * size,
            one.used_now * size, takes, one.resets_s, self.shares[one.is_long] * size,
            mid, low, high,
        )  # fmt: skip

    def _portions(self, found: Foreseen) -> tuple[Portion, ...]:
        month = self.memory.month
        spent = {key: spent_in(month, days) for key, days in self.memory.days}
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
    shares: Shares | None = None,
    sample: JournalReader | None = None,
) -> Prospect:
    """`shares` of usage windows are those of the plan, if none are given; a `sample` is a run of a
    part of the plan, from which alone sizes and times are known."""
    place = folders(environment)
    kept = look(place)
    if sample is None:
        earlier = _earlier(place, path, kept, environment)
    else:
        earlier, own = Earlier(), own_memory()
        _hear(earlier, sample, ObservedTasks.kept(sample), True)
        kept = kept if own is None else StoredMemory(own)
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
        outline, knowledge, kept.memory, account, budget or expanded.spec.budget, assumed,
        shares or shares_of(expanded.spec.window_share),
    )  # fmt: skip


def foreseen_plan(
    expanded: ExpandedPlan, path: Path, environment: Mapping[str, str], strategy: str,
    budget: Budget | None = None, depth: Depth = FULL, shares: Shares | None = None,
) -> Foreseen | None:  # fmt: skip
    """What a plan will take; None if it asks no model and nothing of it was measured."""
    prospect = prospect_of(expanded, path, environment, budget, shares)
    return None if prospect.is_empty else prospect.foresee(parse(strategy), depth)


def foreseen_rest(
    loaded: Loaded,
    source: PlanSource,
    done: frozenset[int],
    environment: Mapping[str, str],
    sample: JournalReader,
) -> Foreseen | None:
    """What the rows of a plan of one group will take that were not in its sample."""
    expanded = with_model(loaded.expanded, source)
    shares = plan_shares(expanded.spec, source)
    prospect = prospect_of(expanded, Path(source.path), environment, source.budget, shares, sample)
    strategy = Strategy("fixed", int(source.jobs)) if source.jobs else parse(source.strategy)
    knowledge = replace(prospect.knowledge, learned_from="the sample")
    (part,) = prospect.outline.parts
    sizes = [size for row, size in enumerate(part.sizes_bytes) if row not in done]
    part = replace(part, count=part.count - len(done), sizes_bytes=tuple(sizes))
    prospect = replace(prospect, knowledge=knowledge, outline=Outline((part,)))
    return None if prospect.is_empty else prospect.foresee(strategy, QUICK)


class PlannedStart(Struct, frozen=True):
    """When a run begins that has to end by a time, or that waits for quiet hours."""

    now_s: float
    shares: Shares
    """The most that it takes of each usage window..."""
    usual: Shares
    """...and what it would take if it had no end to keep."""
    end_s: float = inf
    """When it has to end..."""
    time_s: SpreadNumber | None = None
    """...and how long it probably takes; None if that is not known."""
    unknown: tuple[str, ...] = ()
    """Why only the least time is known."""
    quiet_s: float | None = None
    """When quiet hours begin; None if they have begun, or are not wanted."""

    @property
    def is_late(self) -> bool:
        """Whether it probably cannot end in time."""
        if self.time_s is None:
            return False
        return self.now_s + (self.time_s.low if self.unknown else self.time_s.mid) > self.end_s

    @property
    def at_s(self) -> float:
        """When it begins: as early as nine of ten runs must that end in time."""
        if self.quiet_s is None or (self.time_s is None and self.end_s < inf):
            return self.now_s
        latest_s = self.end_s - (0.0 if self.time_s is None else self.time_s.high)
        return max(self.now_s, min(self.quiet_s, latest_s))


def hours_in(text: str) -> tuple[int, int]:
    """`22-6`: from 22:00 to 6:00."""
    begins, _, ends = text.partition("-")
    if begins.isdecimal() and ends.isdecimal() and max(int(begins), int(ends)) <= 23:
        return int(begins), int(ends)
    raise BadValueError(f"`{text}` are not hours of a day", hint='quiet_hours = "22-6"')


def start_of(
    expanded: ExpandedPlan, source: PlanSource, environment: Mapping[str, str],
    finish_by: str | None, is_quiet: bool, now_s: float,
) -> PlannedStart:  # fmt: skip
    """Choose the start of a run, and its shares of usage windows."""
    usual = shares = plan_shares(expanded.spec, source)
    whole = with_model(expanded, source)
    prospect = prospect_of(whole, Path(source.path), environment, source.budget, usual)
    end_s, time_s = inf, None
    unknown: tuple[str, ...] = ()
    if finish_by is not None:
        end_s = moment_s(finish_by, now_s)
        if not prospect.is_empty:
            strategy = parse(expanded.spec.strategy or source.strategy)
            shares, found = prospect.in_time(strategy, end_s - now_s, QUICK)
            time_s, unknown = found.time_s, found.unknown
    quiet_s = None
    if is_quiet:
        hour = datetime.fromtimestamp(now_s).hour
        preset = hours_in(read_configuration(environment).values.quiet_hours)
        begins = quiet_from(prospect.knowledge.memory.chronicle, hour, preset)
        quiet_s = None if begins is None else moment_s(f"{begins}:00", now_s)
    return PlannedStart(now_s, shares, usual, end_s, time_s, unknown, quiet_s)


def look(place: Folders) -> StoredMemory:
    """What the broker last wrote down; nothing if there is none that can be read."""
    return recall(place.memory) or StoredMemory(learned.PacingMemory())


def known_account(
    model: str, kept: StoredMemory, environment: Mapping[str, str]
) -> tuple[Knowledge, str]:
    """What is known of the account that a model is asked on, and the account's name."""
    account, group, dialect = "", "", PLAIN.name
    key, login = account_key(model, environment)
    if key:
        endpoint = endpoint_of(model, environment)
        names, owners = dict(kept.memory.names), dict(kept.memory.owners)
        account = learned.account_of(names, owners, key, login)
        group = learned.model_group(endpoint.model)
        dialect = DIALECT_OF_WIRE[endpoint.wire].name
    terms = terms_of(dict(kept.memory.terms), account, group)
    lanes = [lane for lane in kept.memory.accounts if lane.account == account]
    nothing = learned.AccountMemory(account, group, dialect, Profile())
    found = next((lane for lane in lanes if lane.group == group), nothing)
    # All models share the windows of an account: the model that was used last knows them best.
    latest = min(lanes, key=lambda lane: lane.age_s, default=found)
    later_s = found.age_s - latest.age_s
    windows = tuple([replace(one, resets_s=one.resets_s + later_s) for one in latest.windows])
    found = replace(found, windows=windows)
    return Knowledge(found, terms=terms, age_s=kept.age_s + found.age_s), account


def _earlier(
    place: Folders, path: Path, kept: StoredMemory, environment: Mapping[str, str]
) -> Earlier:
    """What runs on the accounts that are asked now have shown."""

    names, owners = dict(kept.memory.names), dict(kept.memory.owners)
    account = partial(learned.account_of, names, owners)

    def is_elsewhere(model: str, key: str) -> bool:
        return account(key) != account(*account_key(model, environment))

    try:
        return earlier_plans(list_runs(place.state), str(path.resolve()), is_elsewhere)
    except HeadwayError:
        return Earlier()


def _name(model: str, environment: Mapping[str, str]) -> str:
    try:
        return endpoint_of(model, environment).model
    except HeadwayError:
        return model
