"""Runs the same work with several strategies and sums up each.

Laws:
- Every strategy meets the same provider, the same work and the same luck, seed by seed.
- What headway knows beforehand it learned on other seeds than those that are compared.
- The bound of a seed is computed once, from the provider and the true sizes, for all strategies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from math import ceil
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from headway.base.values import Reading
from headway.engine.state import Rules
from headway.engine.strategy import ADAPTIVE, ALL_AT_ONCE, Strategy
from headway.engine.strategy import parse as parse_start
from headway.errors import BadValueError, did_you_mean
from headway.pacing.account import Account, AccountConfig, Profile
from headway.pacing.call import Call
from headway.pacing.calls import AccountCalls
from headway.pacing.estimate import OutputLength
from headway.pacing.limits import is_about
from headway.report.bound import bound
from headway.report.tables import StrategyRow, row_of
from headway.sim.clients import (  # fmt: skip
    AGGRESSIVE,
    PATIENT,
    SDK,
    Aimd,
    Cubic,
    PacedDoor,
    RetryRule,
    UnpacedDoor,
)
from headway.sim.headers import dialect_of
from headway.sim.presets import WorkloadPreset
from headway.sim.provider import Provider, ProviderSpec
from headway.sim.rehearsal import Rehearsal, Rehearsed, read_headers

LEARNING_CALLS: Final = 150
"""Headway learns from earlier runs until it has seen so many calls: seven runs of 22 agents."""

LEARNING_SEED: Final = 1_000_003
"""Added to the first seed for the runs that headway learns from: no comparison reaches it."""

SWEEP_MAX: Final = 1000
"""The most strategies that one range may stand for."""

RETRIES: Final[dict[str, RetryRule]] = {"patient": PATIENT, "sdk": SDK, "aggressive": AGGRESSIVE}
KNOWS: Final = {
    "profile": frozenset(("profile",)),
    "limits": frozenset(("limits",)),
    "known": frozenset(("profile", "limits")),
    "hidden": frozenset(("hidden",)),
    "seen": frozenset(("seen",)),
}
LAWS: Final[Mapping[str, type[Aimd]]] = {"aimd": Aimd, "cubic": Cubic}
UNPACED: Final = ("all-at-once", "waves:4", "fixed:5", "aimd", "cubic")


class Contender(Struct, frozen=True):
    """A way to run the work: how many tasks start, and how their calls reach the provider."""

    name: str
    start: Strategy
    door: str = "unpaced"
    """Or `headway`, or one of `LAWS`."""
    retry: str = "patient"
    knows: frozenset[str] = frozenset()
    """Of headway: `profile` of earlier runs, configured `limits`, what is left of each as `seen`
    in the response before; or the provider's headers are `hidden`."""


class Experiment(Struct, frozen=True):
    """Work, provider and seeds; and what the user asks of headway."""

    provider: ProviderSpec
    workload: WorkloadPreset
    seeds: tuple[int, ...]
    share: float = 1.0
    """The user's ceiling: at most this share of every limit. The fair bound keeps to it as well."""
    pace: Literal["fast", "smooth"] = "fast"


class Comparison(Struct, frozen=True):
    """One row per contender, and what the bounds come from in most seeds."""

    rows: tuple[StrategyRow, ...]
    binding: str
    fair_binding: str
    first: tuple[Rehearsed, ...]
    """Of each contender the run of the first seed, to be drawn."""


Experience = tuple[Profile | None, OutputLength | None]
"""What headway learned in earlier runs."""

Progress = Callable[[str, int, int], None]
"""Called with the contender, how many rehearsals are over, and how many there are."""


def parse_contenders(text: str) -> list[Contender]:
    """The contenders that a word of the command line stands for; a range stands for several."""
    found = re.fullmatch(r"(waves|fixed):(\d{1,6})\.\.(\d{1,6})(\+.*)?", text, re.ASCII)
    if found is None:
        return [_parse(text)]
    word, low, high, rest = found[1], int(found[2]), int(found[3]), found[4] or ""
    if not 1 <= low <= high:
        raise BadValueError(
            f"{text!r} is an empty range", hint=f"write the smaller first: `{word}:1..22`"
        )
    if high - low >= SWEEP_MAX:
        raise BadValueError(f"{text!r} is more than {SWEEP_MAX} strategies")
    return [_parse(f"{word}:{size}{rest}") for size in range(low, high + 1)]


def compare(
    experiment: Experiment, contenders: Sequence[Contender], progress: Progress | None = None
) -> Comparison:
    """Rehearse every contender on every seed."""
    drawn = [experiment.workload.draw(seed) for seed in experiment.seeds]
    bounds = [
        bound(experiment.provider, workload.calls, workload.needs, experiment.share)
        for workload in drawn
    ]
    rows: list[StrategyRow] = []
    first: list[Rehearsed] = []
    total = len(contenders) * len(experiment.seeds)
    for contender in contenders:
        ran = []
        for rehearsed in _rehearse_all(experiment, contender):
            ran.append(rehearsed)
            if progress is not None:
                progress(contender.name, len(rows) * len(experiment.seeds) + len(ran), total)
        rows.append(row_of(contender.name, ran, bounds))
        first.append(ran[0])
    names = [(least.binding, least.fair_binding) for least in bounds]
    return Comparison(tuple(rows), *max(names, key=names.count), tuple(first))


def rehearse(
    experiment: Experiment, contender: Contender, seed: int, before: Experience = (None, None)
) -> tuple[Rehearsed, Experience]:
    """One run in virtual time, and what headway knows after it."""
    spec = experiment.provider
    if "hidden" in contender.knows:
        spec = replace(spec, dialect="plain", faults=replace(spec.faults, retry_after="none"))
    provider = Provider(spec, seed)
    # A neighbour's share holds before the first call.
    provider.advance(0.0)
    timeout_s = experiment.workload.client.timeout_s
    workload = experiment.workload.draw(seed)
    if contender.door != "headway":
        # An unpaced client has its own retries; the engine starts no task again.
        rule = RETRIES[contender.retry]
        if rule is AGGRESSIVE:
            client = experiment.workload.client
            rule = replace(rule, first_s=client.retry_first_s, growth=client.retry_growth)
        door = UnpacedDoor(rule, seed, LAWS[contender.door]() if contender.door in LAWS else None)
        rules = Rules(contender.start, retries=0)
        return Rehearsal(workload, provider, door, rules, timeout_s=timeout_s).run(), before
    provider.shows_progress = True
    profile, known_lengths = before
    lengths = deepcopy(known_lengths) or OutputLength()
    limits = spec.terms.limits if "limits" in contender.knows else ()
    dialect = dialect_of(spec.dialect)
    config = AccountConfig(dialect, limits, experiment.share, experiment.pace, profile)
    calls = AccountCalls(config, 0.0)
    if "seen" in contender.knows:
        _look(calls.account, provider)
    paced, rules = PacedDoor(calls, lengths), Rules(contender.start)
    ran = Rehearsal(workload, provider, paced, rules, timeout_s=timeout_s).run()
    return ran, (calls.account.profile(), lengths)


def _look(account: Account, provider: Provider) -> None:
    """Learn what is left of every reported limit, as from a response a moment ago."""
    left = Reading(provider.account().readings(0.0))
    told = read_headers(provider.spec.dialect, left, 0.0)
    account.observe(told, Call(("", 0)), 0.0, 0.0)
    for tracked in account.limits:
        for limit in told.limits:
            if is_about(tracked.limit, limit):
                tracked.adopt(limit, 0.0, 0.0)


def _rehearse_all(experiment: Experiment, contender: Contender) -> Iterator[Rehearsed]:
    before: Experience = (None, None)
    if "profile" in contender.knows:
        calls = sum(map(len, experiment.workload.draw(experiment.seeds[0]).calls))
        for run in range(ceil(LEARNING_CALLS / calls)):
            seed = experiment.seeds[0] + LEARNING_SEED + run
            _, before = rehearse(experiment, contender, seed, before)
    for seed in experiment.seeds:
        yield rehearse(experiment, contender, seed, before)[0]


def _parse(text: str) -> Contender:
    word, *marks = text.split("+")
    is_ours = word == "headway"
    known: Mapping[str, object] = KNOWS if is_ours else RETRIES
    unknown = next((mark for mark in marks if mark not in known), "")
    if unknown or (len(marks) > 1 and not is_ours):
        message = f"{unknown or '+'.join(marks)!r} is not a way to retry"
        if is_ours:
            message = f"headway has no variant {unknown!r}"
        raise BadValueError(f"{text!r}: {message}", hint=did_you_mean(unknown, known))
    if is_ours:
        knows = frozenset[str]().union(*(KNOWS[mark] for mark in marks))
        return Contender(text, ADAPTIVE, "headway", knows=knows)
    retry = marks[0] if marks else "patient"
    if word in ("aimd", "cubic"):
        return Contender(text, ALL_AT_ONCE, word, retry)
    if re.fullmatch(r"all-at-once|(waves|fixed):[1-9]\d{0,5}", word, re.ASCII) is None:
        hint = did_you_mean(word, (*UNPACED, "headway"))
        raise BadValueError(f"{text!r} is not a strategy", hint=hint)
    return Contender(text, parse_start(word), retry=retry)
