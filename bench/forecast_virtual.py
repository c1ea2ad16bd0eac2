"""A forecast and its truth in virtual time: 40 calls are made, the rest is foreseen, then made."""

from __future__ import annotations

from collections.abc import Callable
from math import exp
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from bench.forecast_cases import LATER, LEARNED, OUTPUT_MAX, Case, Item
from headway.base.values import Amounts, Demand
from headway.engine.state import Rules
from headway.engine.strategy import ADAPTIVE
from headway.pacing.admission import ManagedAccount
from headway.pacing.calls import AccountCalls
from headway.pacing.estimate import OutputLength, Price
from headway.pacing.memory import AccountTerms
from headway.plans.graph import Graph, Task
from headway.report.forecast import Foreseen, Knowledge, foresee
from headway.report.outline import Outline, OutlinePart
from headway.report.sizes import AnsweredTask, SeenCall, seen_of
from headway.sim.clients import PacedDoor
from headway.sim.draw import normal, uniform
from headway.sim.headers import dialect_of
from headway.sim.provider import Provider, SimulatedCall
from headway.sim.rehearsal import Rehearsal, Rehearsed, Workload

LUCK: Final = 0.15
"""Log-deviation of a call's time to its first byte."""

PRICE: Final = Price(1_000_000, 5_000_000)
PAUSE_S: Final = 45.0
"""At most so long between learning and the run."""


class Outcome(Struct, frozen=True):
    """What was foreseen, and what it took."""

    case: str
    family: str
    count: int
    foreseen: Foreseen
    time_s: float
    microusd: int
    refused: int


D = TypeVar("D", bound=PacedDoor)


def performed(
    case: Case, door_of: Callable[[AccountCalls, OutputLength], D]
) -> tuple[Outcome, Rehearsed, D]:
    """One case from beginning to end, its calls let through by a door of this kind."""
    provider = Provider(case.spec, case.seed)
    provider.shows_progress = True
    provider.advance(0.0)
    dialect = dialect_of(case.spec.dialect)
    managed = ManagedAccount("account", "model", AccountTerms(), dialect, 0.0)
    lengths, first = OutputLength(), case.items(0, LEARNED)
    door = PacedDoor(managed, lengths)
    learned = Rehearsal(_work(first, case.seed, 0), provider, door, Rules(ADAPTIVE)).run()
    memory = managed.memory(learned.makespan_s)
    pause_s = PAUSE_S * uniform(case.seed, 907, 0)
    later = case.items(LATER, case.count)
    sizes = tuple(item.size_bytes for item in later)
    part = OutlinePart("ask", case.count, model="model", sizes_bytes=sizes, max_tokens=OUTPUT_MAX,
                price=PRICE)  # fmt: skip
    seen = seen_of(_answered(first, learned))
    found = foresee(Outline((part,)), Knowledge(memory, seen, age_s=pause_s), seed=case.seed)
    then = _later(provider, case, learned.makespan_s + pause_s)
    managed = ManagedAccount("account", "model", AccountTerms(), dialect, 0.0, memory, -pause_s)
    watched = door_of(managed, lengths)
    later_work, rules = _work(later, case.seed, LATER), Rules(ADAPTIVE)
    ran = Rehearsal(later_work, then, watched, rules, keep_events=True).run()
    cost = sum(
        PRICE.cost_microusd(Amounts(item.input_tokens, item.output_tokens)) for item in later
    )
    outcome = Outcome(
        case.kind, case.family, case.count, found, ran.makespan_s, cost, ran.refused
    )  # fmt: skip
    return outcome, ran, watched


def _work(items: list[Item], seed: int, first: int) -> Workload:
    tasks, calls = list[Task](), list[tuple[SimulatedCall, ...]]()
    for number, item in enumerate(items):
        luck = exp(LUCK * normal(seed, 906, first + number))
        calls.append(
            (SimulatedCall(number, item.input_tokens, item.output_tokens, OUTPUT_MAX, luck),)
        )
        # What is known of an input beforehand are its bytes.
        guess = item.size_bytes / 4.0 + 4.0
        demand = Demand(Amounts(guess, 500.0), Amounts(1.2 * guess, OUTPUT_MAX), "ask")
        tasks.append(Task(f"t{number}", (), (demand,), 1.0, kind="ask"))
    return Workload("case", Graph.of(tasks), tuple(calls))


def _answered(items: list[Item], ran: Rehearsed) -> list[AnsweredTask]:
    spans = {span.task: (span.from_s, span.to_s) for span in ran.spans if span.kind == "busy"}
    return [
        ("ask", *spans[task], SeenCall(item.input_tokens, item.output_tokens, item.size_bytes))
        for task, item in enumerate(items)
    ]


def _later(provider: Provider, case: Case, now_s: float) -> Provider:
    """The same provider some time later, with what was used of its limits until then."""
    provider.advance(now_s)
    limits = {(limit.resource, limit.period_s): limit for limit in case.spec.terms.limits}
    readings = provider.account().readings(now_s)
    named = [(limits[told.resource, told.period_s or 0.0], told.remaining) for told in readings]
    left = tuple((limit.name, limit.capacity - (remaining or 0.0)) for limit, remaining in named)
    then = Provider(replace(case.spec, terms=replace(case.spec.terms, used=left)), case.seed + 1)
    then.shows_progress = True
    then.advance(0.0)
    return then
