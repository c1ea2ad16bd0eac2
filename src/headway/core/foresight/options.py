"""Ways to do the same work, each rehearsed on the account as far as it is known.

Laws:
- Every way meets the same provider, the same sizes and the same luck, and is paced as a run is.
- One agent reads once what all need, and its calls come one after another; several each read it.
- What is too large to be rehearsed in a second is rehearsed in part, twice, and continued as a
  line, never below the bound; that is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, exp, inf
from typing import Final, Literal

from headway.core.engine.engine import Rules
from headway.core.engine.strategy import Adaptive, Fixed, Strategy, Waves
from headway.core.foresight.account_guess import AccountGuess
from headway.core.foresight.bound import bound
from headway.core.foresight.door import PacedDoor
from headway.core.foresight.draw import lognormal
from headway.core.foresight.foreseen import Foreseen, Portion, Spread
from headway.core.foresight.provider import Call, Provider
from headway.core.foresight.rehearsal import Rehearsal, Rehearsed, Setup
from headway.core.foresight.sample import Workload
from headway.core.foresight.situation import Situation, runs_within
from headway.core.plan.graph import Graph, Task
from headway.core.quota.belief import QuotaConfig
from headway.core.quota.dialect import DIALECTS
from headway.core.quota.length import OutputLength
from headway.core.quota.quota import Quota
from headway.core.values import Amounts, Demand

OWN_STREAM: Final = 91
OUTPUT_STREAM: Final = 92
LUCK_STREAM: Final = 93

SIZES_SPREAD: Final = 0.3
"""Log-deviation of what each agent has for itself: agents of one kind differ by about a third."""
LUCK_SPREAD: Final = 0.1
"""The same for the time to a call's first byte."""

DOUBT: Final = 0.2
"""Log-deviation of how large everything is: who says 17k means 14k to 21k."""
TENTH: Final = 1.2816
"""Deviations below which, and above which, one in ten lies."""

REHEARSED_CALLS_MAX: Final = 32
"""Calls of one rehearsal: more of them, and all ways together would take longer than a second."""

STEPS_MAX: Final = 50_000
"""A rehearsal of this many steps is taken to have no end: fifty times as many as are usual."""

EXACT_CALLS_MAX: Final = 4
"""Calls whose best order is searched for, for the bound: five can take seconds."""

MAX_TOKENS: Final = 4096.0
"""The longest answer that a call allows, unless it needs longer ones."""

LESSONS: Final = 8
"""Answers that headway is taken to have seen of this kind, for how long they are."""

KIND: Final = "advised"

Kind = Literal["one", "serial", "waves", "pool", "adaptive"]


@dataclass(frozen=True, slots=True)
class Way:
    """How to do it: by one agent or by several, and how many of them at once."""

    kind: Kind
    width: int | None = None
    """Agents at once; None: as many as the quota feeds."""

    @property
    def name(self) -> str:
        """For people; the strategies' own names where headway has one."""
        if self.kind == "one":
            return "one agent"
        if self.kind == "serial":
            return "one at a time"
        return self.strategy.name

    @property
    def strategy(self) -> Strategy:
        """As `headway run --strategy` takes it."""
        if self.kind == "adaptive":
            return Adaptive()
        return Waves(self.width or 1) if self.kind == "waves" else Fixed(self.width or 1)

    @property
    def is_several(self) -> bool:
        return self.kind != "one"


ONE: Final = Way("one", 1)
SERIAL: Final = Way("serial", 1)
ADAPTIVE: Final = Way("adaptive")


@dataclass(frozen=True, slots=True)
class Option:
    """One way in numbers."""

    way: Way
    foreseen: Foreseen
    microusd: float
    """What its tokens cost, at a price that was guessed where nobody knows it."""
    runs_a_month: int | None
    """That the whole budget pays for; None without one."""

    @property
    def time_s(self) -> float:
        return self.foreseen.time_s.mid

    @property
    def tokens(self) -> float:
        return self.foreseen.tokens.mid

    @property
    def refusal_risk(self) -> float:
        """Calls that are turned away, of those that are made."""
        return self.foreseen.refused / max(1.0, self.foreseen.calls.mid)


@dataclass(frozen=True, slots=True)
class Drawn:
    """One draw of the work: which one, how large everything is, how many agents of it."""

    seed: int = 1
    scale: float = 1.0
    agents: int | None = None


def work_of(situation: Situation, way: Way, drawn: Drawn = Drawn()) -> Workload:
    """The calls that a way makes. An agent's first call reads what all agents read."""
    count = drawn.agents or situation.agents
    own = _own_calls(situation, drawn, count)
    common = drawn.scale * situation.common_tokens
    if way.is_several:
        return _workload([[_with_input(mine[0], common), *mine[1:]] for mine in own])
    every = [call for mine in own for call in mine]
    return _workload([[_with_input(every[0], common), *every[1:]]])


def rehearsed(work: Workload, guess: AccountGuess, strategy: Strategy, seed: int = 1) -> Rehearsed:
    """One run in virtual time, paced as headway paces."""
    provider = Provider(guess.spec, seed)
    # Whatever holds at the start, such as a neighbour's share, holds before the first call.
    provider.advance(0.0)
    provider.shows_progress = True
    config = QuotaConfig(DIALECTS[guess.spec.dialect], (), guess.share, "fast", guess.profile)
    door = PacedDoor(Quota(config, 0.0), _lengths(work))
    return Rehearsal(Setup(work, provider, door, Rules(strategy), steps_max=STEPS_MAX)).run()


def option_of(situation: Situation, guess: AccountGuess, way: Way, seed: int = 1) -> Option:
    """One way, rehearsed small, as told and large."""
    scales = (exp(-TENTH * DOUBT), 1.0, exp(TENTH * DOUBT))
    work = work_of(situation, way, Drawn(seed))
    least = bound(guess.spec, work.calls, work.needs, guess.share, EXACT_CALLS_MAX)
    if _part(situation) < situation.agents:
        whole = _continued(situation, guess, way, Drawn(seed), least.time_s)
        runs = [whole.times(scale) for scale in scales]
    else:
        runs = [_Run.of(situation, guess, way, Drawn(seed, scale)) for scale in scales]
    mid = runs[1]
    foreseen = Foreseen(
        way.name, situation.agents if way.is_several else 1,
        _spread([run.calls for run in runs]), _spread([run.time_s for run in runs]),
        _spread([run.amounts.input_tokens for run in runs]),
        _spread([run.amounts.output_tokens for run in runs]),
        None if guess.price is None else _spread([_cost(guess, run.amounts) for run in runs]),
        least.time_s, least.binding, mid.width, mid.refused,
        guess.learned_calls, guess.learned_from, assumed=guess.assumed,
    )  # fmt: skip
    return priced(situation, way, foreseen, _cost(guess, mid.amounts))


def priced(situation: Situation, way: Way, foreseen: Foreseen, microusd: float) -> Option:
    """A way whose numbers are known, beside the budget."""
    budget, spent = situation.budget, situation.spent
    portions, runs = list(foreseen.portions), None
    if budget.tokens is not None:
        portions.append(
            Portion("tokens of the month", budget.tokens, spent.tokens, foreseen.tokens)
        )
        runs = runs_within(budget.tokens, foreseen.tokens.mid)
    if budget.microusd is not None:
        takes = foreseen.microusd or Spread(microusd, microusd, microusd)
        portions.append(Portion("money of the month", budget.microusd, spent.microusd, takes))
        paid = runs_within(budget.microusd, takes.mid)
        runs = paid if runs is None else min(runs, paid)
    return Option(way, replace(foreseen, portions=tuple(portions)), microusd, runs)


def options_for(situation: Situation, guess: AccountGuess, width: int) -> tuple[Option, ...]:
    """Every way there is; `width` is the one worth having, for those that must be told one."""
    return tuple(option_of(situation, guess, way) for way in ways_at(situation, width))


def ways_at(situation: Situation, width: int) -> tuple[Way, ...]:
    """One agent; one at a time; waves; a pool; adaptive. Waves are as even as they can be."""
    rounds = ceil(situation.agents / width)
    if situation.agents == 1:
        return (ONE,)
    even = ceil(situation.agents / rounds)
    waves = (Way("waves", even),) if even > 1 else ()
    pool = (Way("pool", width),) if width > 1 else ()
    return (ONE, SERIAL, *waves, *pool, ADAPTIVE)


@dataclass(frozen=True, slots=True)
class _Run:
    """What one rehearsal gave."""

    time_s: float
    amounts: Amounts
    calls: float
    refused: float
    width: float

    @staticmethod
    def of(situation: Situation, guess: AccountGuess, way: Way, drawn: Drawn) -> _Run:
        part = replace(drawn, agents=drawn.agents or _part(situation))
        work = work_of(situation, way, part)
        ran = rehearsed(work, guess, way.strategy, drawn.seed)
        amounts = _amounts(work)
        beyond = max(0.0, ran.used_tokens - amounts.input_tokens - amounts.output_tokens)
        busy_s = sum(ended_s - sent_s for sent_s, ended_s in ran.calls)
        return _Run(
            ran.makespan_s if not ran.failed else inf,
            replace(amounts, input_tokens=amounts.input_tokens + beyond),
            float(sum(map(len, work.calls))), float(ran.refused),
            busy_s / max(1e-9, ran.makespan_s),
        )  # fmt: skip

    def times(self, scale: float) -> _Run:
        """The same, if everything were so many times as large."""
        amounts = Amounts(self.amounts.input_tokens * scale, self.amounts.output_tokens * scale)
        return replace(self, time_s=self.time_s * scale, amounts=amounts)


def _part(situation: Situation) -> int:
    """How many of the agents are rehearsed."""
    return min(situation.agents, max(2, REHEARSED_CALLS_MAX // situation.calls_each))


def _continued(
    situation: Situation, guess: AccountGuess, way: Way, drawn: Drawn, least_s: float
) -> _Run:
    """All agents, by a line through a part and half of it, and no faster than the bound."""
    part = _part(situation)
    whole = _Run.of(situation, guess, way, replace(drawn, agents=part))
    half = _Run.of(situation, guess, way, replace(drawn, agents=part // 2))
    more = (situation.agents - part) / (part - part // 2)
    work = work_of(situation, way, drawn)
    time_s = max(least_s, whole.time_s + more * max(0.0, whole.time_s - half.time_s))
    return _Run(
        time_s, _amounts(work), float(sum(map(len, work.calls))),
        whole.refused + more * max(0.0, whole.refused - half.refused), whole.width,
    )  # fmt: skip


def _own_calls(situation: Situation, drawn: Drawn, count: int) -> list[list[Call]]:
    """What each agent does for itself, in as many calls as it makes.

    Agents differ, and all of them together take what was said.
    """
    calls = situation.calls_each
    own_input = drawn.scale * (situation.own_tokens - situation.output_each) / calls
    output = drawn.scale * situation.output_each / calls
    inputs = _factors(drawn.seed, OWN_STREAM, count * calls)
    outputs = _factors(drawn.seed, OUTPUT_STREAM, count * calls)
    every = [
        Call(index, own_input * inputs[index], output * outputs[index],
             max(MAX_TOKENS, ceil(output * outputs[index])),
             lognormal(drawn.seed, LUCK_STREAM, index, LUCK_SPREAD))
        for index in range(count * calls)
    ]  # fmt: skip
    return [every[first : first + calls] for first in range(0, len(every), calls)]


def _factors(seed: int, stream: int, count: int) -> list[float]:
    drawn = [lognormal(seed, stream, index, SIZES_SPREAD) for index in range(count)]
    mean = sum(drawn) / count
    return [one / mean for one in drawn]


def _with_input(call: Call, more: float) -> Call:
    return replace(call, input_tokens=call.input_tokens + more)


def _workload(calls: Sequence[Sequence[Call]]) -> Workload:
    tasks = []
    for number, mine in enumerate(calls):
        demands = tuple(
            Demand(Amounts(call.input_tokens, call.output_tokens),
                   Amounts(call.input_tokens, call.max_tokens), KIND)
            for call in mine
        )  # fmt: skip
        weight_s = sum(1.0 + 0.02 * call.output_tokens for call in mine)
        tasks.append(Task(f"agent {number + 1}", (), demands, weight_s, kind=KIND))
    return Workload(KIND, Graph.of(tasks), tuple(tuple(mine) for mine in calls))


def _lengths(work: Workload) -> OutputLength:
    """Earlier answers of this kind were about as long as those to come."""
    lengths, calls = OutputLength(), [call for mine in work.calls for call in mine]
    typical = sum(call.output_tokens for call in calls) / len(calls)
    for lesson in range(LESSONS):
        factor = lognormal(LESSONS, OUTPUT_STREAM, lesson, SIZES_SPREAD)
        lengths.observe(KIND, calls[lesson % len(calls)].input_tokens, typical * factor)
    return lengths


def _amounts(work: Workload) -> Amounts:
    every = [call for mine in work.calls for call in mine]
    return Amounts(
        sum(call.input_tokens for call in every), sum(call.output_tokens for call in every)
    )


def cost_of(guess: AccountGuess, work: Workload) -> float:
    """What the tokens of some work cost."""
    return _cost(guess, _amounts(work))


def _cost(guess: AccountGuess, amounts: Amounts) -> float:
    return float(guess.priced.cost_microusd(amounts))


def _spread(values: Sequence[float]) -> Spread:
    low, mid, high = values
    return Spread(min(low, mid), mid, max(high, mid))
