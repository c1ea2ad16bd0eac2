"""One measurement: one workload, one provider, one way to send its calls, in virtual time.

Ways: `cold`, `profile` (after one warm-up run of another seed), `known` (the provider's own limits
configured) and `smooth` are headway; after `first:` they are the first version, from its commit.
`waves:4`, `fixed:5`, `aimd`, `cubic` send without a quota and retry for as long as it takes; `sdk`
sends everything at once and retries twice. `bound` computes the least time instead of running
anything, `fair` the least time that leaves a neighbour its share.
"""

from __future__ import annotations

import signal
from collections import deque
from math import ceil, inf
from time import process_time
from types import FrameType
from typing import Final, Literal, cast

from msgspec import Struct
from msgspec.structs import replace

from bench.first import FirstDoor
from headway.base.values import Fault, Limit, Reading
from headway.engine.state import Rules
from headway.engine.strategy import ADAPTIVE, ALL_AT_ONCE, Strategy, parse
from headway.pacing.account import AccountConfig
from headway.pacing.calls import AccountCalls
from headway.pacing.estimate import OutputLength
from headway.report.bound import bound
from headway.sim.clients import (
    PATIENT,
    SDK,
    Aimd,
    ClientPort,
    Cubic,
    PacedDoor,
    RetryRule,
    UnpacedDoor,
)
from headway.sim.headers import dialect_of
from headway.sim.provider import Provider, ProviderSpec
from headway.sim.rehearsal import Rehearsal, Rehearsed, WorkloadSpec, draw_workload

WARM_UP: Final = 7000
"""Added to a seed, it gives the seed of the warm-up run."""

REFUSALS_PER_TASK_MAX: Final = 60
"""A way without a quota that is refused more often livelocks: it is cut off and never finishes.
Where refusals are charged, those who come again too soon keep the limit empty for themselves."""

CPU_S_MAX: Final = 120.0
"""The last resort against a trial that does not end."""

PACED: Final = ("cold", "profile", "known", "smooth")
"""The ways that go through a quota."""

FIRST: Final = "first:"
"""Before a way of headway: as the first version goes it."""

Kind = Literal["paced", "first", "unpaced", "bound"]


class Trial(Struct, frozen=True):
    """What is run. Two trials with equal fields have equal outcomes."""

    spec: ProviderSpec
    work: WorkloadSpec
    seed: int
    way: str

    @property
    def kind(self) -> Kind:
        """Which part of the code its outcome depends on."""
        if self.way in ("bound", "fair"):
            return "bound"
        if self.way.startswith(FIRST):
            return "first"
        return "paced" if self.way in PACED else "unpaced"


class Outcome(Struct, frozen=True):
    """What came of it, read at the provider. A bound has only its time and its name."""

    makespan_s: float
    refused: int = 0
    failed: int = 0
    kept: float = 1.0
    """Share of what a neighbour wanted, up to its fair share, that it got."""
    first_s: float = 0.0
    """When the first task was done."""
    task_p95_s: float = 0.0
    """95 % of the tasks took at most this long, from their first request to their result."""
    requests_most_per_s: int = 0
    """The most requests that came within one second."""
    binding: str = ""
    cpu_s: float = 0.0


class TooLongError(Exception):
    """The trial will not end."""


class _BoundedDoor(UnpacedDoor):
    """Sends without a quota, up to a number of refusals."""

    __slots__ = ("_left",)

    def __init__(
        self, refusals: int, rule: RetryRule, seed: int, gate: Aimd | Cubic | None
    ) -> None:
        super().__init__(rule, seed, gate)
        self._left = refusals

    def refused(self, call_id: int, fault: Fault, reading: Reading, now: float) -> bool:
        self._left -= 1
        if self._left < 0:
            raise TooLongError
        return super().refused(call_id, fault, reading, now)


def run(trial: Trial) -> Outcome:
    """Run one trial; the outcome depends on nothing but the trial and the code."""
    if trial.kind == "bound":
        return _bound(trial)
    began_s = process_time()
    before = signal.signal(signal.SIGVTALRM, _cut_off)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_S_MAX)
    try:
        runs = {"paced": _paced, "first": _paced_first, "unpaced": _unpaced}
        outcome = runs[trial.kind](trial)
    except TooLongError:
        refused = REFUSALS_PER_TASK_MAX * trial.work.tasks if trial.kind == "unpaced" else 0
        outcome = Outcome(inf, refused, trial.work.tasks)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    return replace(outcome, cpu_s=round(process_time() - began_s, 3))


def _cut_off(_signal: int, _frame: FrameType | None) -> None:
    raise TooLongError


def _bound(trial: Trial) -> Outcome:
    workload, terms = draw_workload(trial.work, trial.seed), trial.spec.terms
    spec = trial.spec
    if trial.way == "bound":
        spec = replace(spec, terms=replace(terms, neighbour=None))
    least = bound(spec, workload.calls, workload.needs)
    return Outcome(least.time_s, binding=least.binding)


def _paced(trial: Trial) -> Outcome:
    lengths = OutputLength()
    profile = None
    limits: tuple[Limit, ...] = ()
    if trial.way == "profile":
        warm_up = AccountCalls(AccountConfig(dialect_of(trial.spec.dialect)), 0.0)
        _rehearse(trial, PacedDoor(warm_up, lengths), Rules(ADAPTIVE), trial.seed + WARM_UP)
        profile = warm_up.account.profile()
    elif trial.way == "known":
        limits = trial.spec.terms.limits + trial.spec.terms.hidden
    config = AccountConfig(
        dialect_of(trial.spec.dialect), limits,
        pace="smooth" if trial.way == "smooth" else "fast", profile=profile,
    )  # fmt: skip
    door = PacedDoor(AccountCalls(config, 0.0), lengths)
    return _rehearse(trial, door, Rules(ADAPTIVE), trial.seed)


def _paced_first(trial: Trial) -> Outcome:
    way, dialect = trial.way.removeprefix(FIRST), trial.spec.dialect
    lengths = profile = None
    limits: tuple[Limit, ...] = ()
    if way == "profile":
        warm_up = FirstDoor(dialect)
        _rehearse(trial, warm_up, Rules(ADAPTIVE), trial.seed + WARM_UP)
        profile, lengths = warm_up.quota.belief.profile(), warm_up.lengths
    elif way == "known":
        limits = trial.spec.terms.limits + trial.spec.terms.hidden
    door = FirstDoor(dialect, limits, profile, lengths)
    return _rehearse(trial, door, Rules(ADAPTIVE), trial.seed)


def _unpaced(trial: Trial) -> Outcome:
    gate = Aimd() if trial.way == "aimd" else Cubic() if trial.way == "cubic" else None
    strategy: Strategy = ALL_AT_ONCE
    if gate is None and trial.way != "sdk":
        strategy = parse(trial.way)
    is_sdk = trial.way == "sdk"
    rules = Rules(strategy, retries=0) if is_sdk else Rules(strategy)
    refusals = REFUSALS_PER_TASK_MAX * trial.work.tasks
    door = _BoundedDoor(refusals, SDK if is_sdk else PATIENT, trial.seed, gate)
    return _rehearse(trial, door, rules, trial.seed)


def _rehearse(trial: Trial, door: ClientPort | FirstDoor, rules: Rules, seed: int) -> Outcome:
    provider = Provider(trial.spec, seed)
    provider.shows_progress = isinstance(door, PacedDoor | FirstDoor)
    client = cast(ClientPort, door)  # The first version's door has the same methods.
    found = Rehearsal(draw_workload(trial.work, seed), provider, client, rules).run()
    presence = provider.account().presence
    wanted = presence.wanted if presence else 0.0
    return Outcome(
        found.makespan_s,
        found.refused,
        found.failed,
        min(1.0, presence.served / wanted) if presence and wanted else 1.0,
        min((one.ended_s for one in found.tasks if one.done), default=inf),
        _percentile(_task_times_s(found), 0.95),
        _most_within(provider.arrivals, 1.0),
    )


def _task_times_s(found: Rehearsed) -> list[float]:
    """From a task's first request, refused or not, to its result."""
    sent_s: dict[int, float] = {}
    for span in found.spans:
        if span.kind != "here":
            sent_s[span.task] = min(span.from_s, sent_s.get(span.task, inf))
    return [one.ended_s - sent_s.get(one.task, one.ended_s) for one in found.tasks if one.done]


def _percentile(values: list[float], share: float) -> float:
    """Nearest rank; 0 if there is nothing to rank."""
    return sorted(values)[ceil(share * len(values)) - 1] if values else 0.0


def _most_within(times_s: list[float], span_s: float) -> int:
    """The most of these times, which are in order, that lie within any span of this length."""
    recent: deque[float] = deque()
    most = 0
    for at_s in times_s:
        recent.append(at_s)
        while recent[0] <= at_s - span_s:
            recent.popleft()
        most = max(most, len(recent))
    return most
