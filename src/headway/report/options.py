"""Ways to do the same work, each rehearsed on the account.

Laws:
- Every way meets the same provider, the same sizes and the same luck, and is paced as a run is.
- One agent reads once what all need, and its calls come one after another; several each read it.
- What is too large to be rehearsed in a second is rehearsed in part, twice, and continued as a
  line, never below the bound; that is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, exp, inf
from typing import Final, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from headway.base.values import HOUR_S, MINUTE_S, Amounts, Budget, Demand, Limit, Spend
from headway.engine.state import Rules
from headway.engine.strategy import ADAPTIVE as STRATEGY
from headway.engine.strategy import Strategy
from headway.pacing.account import AccountConfig, Profile
from headway.pacing.calls import AccountCalls
from headway.pacing.estimate import OutputLength, Price
from headway.pacing.headers import DIALECTS, PLAIN
from headway.pacing.memory import AccountMemory
from headway.pacing.view import AccountView
from headway.pacing.width import ELASTIC, Curve
from headway.plans.graph import Graph, Task
from headway.report.bound import bound
from headway.report.forecast import Foreseen, Portion, SpreadNumber, rehearse, slower
from headway.report.outline import MAX_TOKENS, amounts_of
from headway.sim.account import Terms
from headway.sim.clients import PacedDoor
from headway.sim.draw import Neighbour, lognormal
from headway.sim.headers import dialect_of
from headway.sim.provider import FaultModel, Latency, Provider, ProviderSpec, SimulatedCall
from headway.sim.rehearsal import Rehearsed, Workload

# What is asked, by whom and under which circumstances: all that advice is given on.

COMMON_SHARE: Final = 11 / 17
"""Share of its tokens that an agent has in common with all others: a review by four agents takes
68,000 tokens and one by a single agent 35,000, so 11,000 of the 17,000 of each are common."""

HOUR_MICROUSD: Final = 60_000_000
"""An hour of waiting, at what an hour of a person costs."""

REHEARSED_CALLS_MAX: Final = 32
"""Calls of one rehearsal: more of them, and all ways together would take longer than a second."""

Shape = Literal["slices", "views", "coupled"]
"""Each its own part | each another view of the same thing | each needs what others found."""


class AccountState(Struct, frozen=True):
    """How the account is now, as far as that was measured."""

    used: tuple[tuple[str, float], ...] = ()
    """Of each limit by its name, the share that is taken: `("tokens/60s", 0.4)`."""
    refused_share: float | None = None
    slowdown: float | None = None
    is_peak: bool | None = None
    """As the user says or the hours of the day show; if None, the slowdown decides."""


class Situation(Struct, frozen=True):
    """The work, the month's budget, and the state of the account."""

    agents: int = 4
    tokens_each: float = 17_000.0
    output_each: float = 1_000.0
    """Of these, its answers: about what a review writes."""
    calls_each: int = 1
    common: float | None = None
    """Share of its tokens that each agent has in common with all others; None: as usual."""
    shape: Shape = "slices"
    coupled: float | None = None
    """Share of the agents that need what another one found; None: as the shape says."""
    budget: Budget = Budget()
    spent: Spend = Spend()
    state: AccountState = field(default_factory=AccountState)

    @property
    def common_tokens(self) -> float:
        """What all agents read; an answer is never common."""
        share = COMMON_SHARE if self.common is None else self.common
        return min(share * self.tokens_each, self.tokens_each - self.output_each)

    @property
    def rehearsed_agents(self) -> int:
        """How many of the agents are rehearsed."""
        return min(self.agents, max(2, REHEARSED_CALLS_MAX // self.calls_each))

    @property
    def coupled_share(self) -> float:
        """Of the agents, those that need what another one found."""
        if self.coupled is not None:
            return self.coupled
        return 1.0 if self.shape == "coupled" else 0.0


def waiting_microusd(time_s: float) -> float:
    """What waiting so long costs; infinite if the work never ends."""
    return HOUR_MICROUSD * time_s / HOUR_S if time_s < inf else inf


# An account as far as it is known, as a provider that can be rehearsed against.

DOCUMENTED: Final = (
    Limit("requests", 500), Limit("tokens", 100_000), Limit("concurrency", 20, 0.0, "gauge"),
)  # fmt: skip
"""The account of "Concurrent vs. Parallel Execution"."""

PRICE_GUESS: Final = Price(3_000_000, 15_000_000)
"""Three dollars a million tokens in and fifteen out, for a model without a known price."""

CURVE_WIDTHS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
CURVE_WEIGHT: Final = 5.0
"""At which widths, and with how many samples each, a described account counts as measured."""

DRAW_LEAST: Final = 0.02
"""A neighbour that takes less of a limit is none."""


class AccountGuess(Struct, frozen=True):
    """A provider to rehearse against, and what headway would know of it beforehand."""

    spec: ProviderSpec
    profile: Profile | None = None
    price: Price | None = None
    share: float = 1.0
    learned_calls: int = 0
    learned_from: str = ""
    state: AccountState = field(default_factory=AccountState)
    assumed: tuple[str, ...] = ()
    account: str = ""
    """Its name, as far as it is known."""


def unknown_account(price: Price | None = None, account: str = "") -> AccountGuess:
    """Nothing was ever called: the documents' limits, which headway would have to find."""
    spec = ProviderSpec(
        "unknown", Terms(hidden=DOCUMENTED), Latency(), FaultModel(retry_after="none"), "plain"
    )
    said = (
        f"nothing is known of {account or 'any account'}: 500 requests and 100,000 tokens a minute "
        "and 20 at once are assumed, which headway would first have to find out"
    )
    return AccountGuess(spec, None, price, learned_from="nothing", assumed=(said,), account=account)


def described_account(spec: ProviderSpec, price: Price | None = None) -> AccountGuess:
    """An account that was described: as well known as after some runs."""
    said = f"the account is `{spec.name}` as described, as well known as after earlier runs"
    profile = profile_of(spec)
    return AccountGuess(
        spec, profile, price, learned_from=f"`{spec.name}`", assumed=(said,), account=spec.name
    )


def profile_of(spec: ProviderSpec) -> Profile:
    """What headway would have learned of a provider in earlier runs."""
    latency = spec.latency
    first_bytes, pieces = (
        tuple((float(n), CURVE_WEIGHT, alone_s * latency.slowdown(n), 1.0) for n in CURVE_WIDTHS)
        for alone_s in (latency.first_byte_s, latency.per_output_token_s)
    )
    fit = Curve(pieces).fit()
    worth = inf if fit is None else fit.worth(ELASTIC)
    caps = [limit.amount for limit in spec.terms.limits + spec.terms.hidden
            if limit.resource == "concurrency"]  # fmt: skip
    cap = min(caps, default=inf)
    # Who tells no limits has them found by outcomes, anew in every run.
    told = () if spec.dialect == PLAIN.name else spec.terms.limits
    return Profile(
        tuple(replace(limit, source="profile") for limit in told
              if limit.resource != "concurrency"),
        width=min(worth, cap, float(CURVE_WIDTHS[-1])), cap=cap,
        first_byte_s=latency.first_byte_s * latency.slowdown(1),
        per_token_s=latency.per_output_token_s * latency.slowdown(1),
        curves=(first_bytes, pieces),
    )  # fmt: skip


def remembered_account(
    lane: AccountMemory, view: AccountView, price: Price | None = None
) -> AccountGuess:
    """An account that was used before, as the broker remembers it, and as it stands now."""
    profile = lane.profile
    limits = tuple(one.limit for one in view.limits)
    hidden = () if profile.cap == inf else (Limit("concurrency", profile.cap, 0.0, "gauge"),)
    known = any(limit.kind == "gauge" for limit in limits)
    dialect = DIALECTS.get(lane.dialect, PLAIN)
    shares = [one.neighbours_per_s / one.limit.rate_per_s for one in view.limits
              if one.limit.rate_per_s > 0]  # fmt: skip
    share = max(shares, default=0.0)
    neighbour = Neighbour(min(1.0, share)) if share >= DRAW_LEAST else None
    spec = ProviderSpec(
        view.group or view.account, Terms(
            limits, () if known else hidden, dialect.charging, neighbour=neighbour,
        ), latency_of(profile), dialect=dialect.name,
    )  # fmt: skip
    said = () if limits or hidden else ("the account has told of no limit: none is assumed",)
    learned = round(2 * sum(weight for _, weight, _, _ in profile.curves[1]))
    name = f"{view.account} {view.group}".strip()
    used = tuple((one.limit.name, min(1.0, one.used / max(1.0, one.limit.amount)))
                 for one in view.limits)  # fmt: skip
    state = AccountState(used, view.refused / view.granted if view.granted else None)
    return AccountGuess(
        spec, profile, price, view.share, max(learned, view.granted), name, state, said, name
    )


def latency_of(profile: Profile) -> Latency:
    """Speeds alone and in company, from what was measured at several widths."""
    fit = Curve(profile.curves[1]).fit()
    if fit is None or not fit.has_contrast:
        return Latency(profile.first_byte_s, profile.per_token_s)
    sigma, kappa = fit.linear / fit.alone, fit.square / fit.alone
    # Of whole answers the curve is of their time: speeds are those of the company they had.
    company = max(1.0, profile.per_token_s / fit.alone)
    return Latency(profile.first_byte_s / company, profile.per_token_s / company, sigma, kappa)


def as_it_is_now(guess: AccountGuess, state: AccountState) -> AccountGuess:
    """The same account in this state: so much of it is taken, and it is so slow."""
    spec, slowdown = guess.spec, state.slowdown
    if slowdown is not None and slowdown != 1.0:
        spec = replace(spec, latency=slower(spec.latency, slowdown))
    taken = max((share for _, share in state.used), default=0.0)
    if taken > 0.0 and spec.terms.neighbour is None:
        # A neighbour that has taken it before the start, and then is silent.
        gone = Neighbour(taken, shape="burst", on_s=MINUTE_S, off_s=inf)
        spec = replace(spec, terms=replace(spec.terms, neighbour=gone))
    return replace(guess, spec=spec, state=state)


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

STEPS_MAX: Final = 50_000
"""A rehearsal of this many steps is taken to have no end: fifty times as many as are usual."""

LESSONS: Final = 8
"""Answers that headway is taken to have seen of this kind, for how long they are."""

KIND: Final = "advised"

Way = Literal["one agent", "adaptive"]
"""One agent does it all; or several, as many at once as the quota feeds."""
ONE: Final[Way] = "one agent"
ADAPTIVE: Final[Way] = "adaptive"


class Option(Struct, frozen=True):
    """One way in numbers."""

    way: Way
    foreseen: Foreseen
    microusd: float
    """What its tokens cost, at a guessed price where it is unknown."""
    runs_a_month: int | None
    """That the whole budget pays for; None without one."""

    @property
    def time_s(self) -> float:
        return self.foreseen.time_s.mid

    @property
    def tokens(self) -> float:
        return self.foreseen.tokens.mid


def value_of(option: Option) -> float:
    """What an option costs, with time at its worth: micro-dollars."""
    return option.microusd + waiting_microusd(option.time_s)


def work_of(
    situation: Situation, way: Way, seed: int = 1, scale: float = 1.0, agents: int = 0
) -> Workload:
    """The calls that a way makes, by all or so many agents, all sizes multiplied by `scale`.

    An agent's first call reads what all agents read.
    """
    own = _own_calls(situation, seed, scale, agents or situation.agents)
    common = scale * situation.common_tokens
    if way == ONE:
        own = [[call for mine in own for call in mine]]
    for mine in own:
        mine[0] = replace(mine[0], input_tokens=mine[0].input_tokens + common)
    tasks = []
    for number, mine in enumerate(own):
        demands = tuple(
            Demand(Amounts(call.input_tokens, call.output_tokens),
                   Amounts(call.input_tokens, call.max_tokens), KIND)
            for call in mine
        )  # fmt: skip
        weight_s = sum(1.0 + 0.02 * call.output_tokens for call in mine)
        tasks.append(Task(f"agent {number + 1}", (), demands, weight_s, kind=KIND))
    return Workload(KIND, Graph.of(tasks), tuple(tuple(mine) for mine in own))


def rehearsed(
    work: Workload, guess: AccountGuess, seed: int = 1, strategy: Strategy = STRATEGY
) -> Rehearsed:
    """One run in virtual time, paced as headway paces."""
    provider = Provider(guess.spec, seed)
    provider.shows_progress = True
    dialect = dialect_of(guess.spec.dialect)
    config = AccountConfig(dialect, (), guess.share, "fast", guess.profile)
    door = PacedDoor(AccountCalls(config, 0.0), _lengths(work))
    return rehearse(work, provider, door, Rules(strategy), STEPS_MAX)


def option_of(situation: Situation, guess: AccountGuess, way: Way) -> Option:
    """One way, rehearsed with small, stated and large sizes."""
    scales = (exp(-TENTH * DOUBT), 1.0, exp(TENTH * DOUBT))
    work = work_of(situation, way)
    least = bound(guess.spec, work.calls, work.needs, guess.share)
    if situation.rehearsed_agents < situation.agents:
        mid = _continued(situation, guess, way, least.time_s)
        runs = [
            replace(
                mid, time_s=mid.time_s * scale,
                amounts=Amounts(mid.amounts.input_tokens * scale,
                                mid.amounts.output_tokens * scale),
            )
            for scale in scales
        ]  # fmt: skip
    else:
        works = (work_of(situation, way, scale=scale) for scale in scales)
        runs = [_run(work, guess) for work in works]
    mid = runs[1]
    foreseen = Foreseen(
        way, 1 if way == ONE else situation.agents,
        _spread([run.calls for run in runs]), _spread([run.time_s for run in runs]),
        _spread([run.amounts.input_tokens for run in runs]),
        _spread([run.amounts.output_tokens for run in runs]),
        None if guess.price is None else _spread([cost_of(guess, run.amounts) for run in runs]),
        least.time_s, least.binding, least.fair_s, least.fair_binding, mid.width, mid.refused,
        guess.learned_calls, guess.learned_from, assumed=guess.assumed, account=guess.account,
    )  # fmt: skip
    return priced(situation, way, foreseen, cost_of(guess, mid.amounts))


def priced(situation: Situation, way: Way, foreseen: Foreseen, microusd: float) -> Option:
    """A way whose numbers are known, beside the budget."""
    budget, spent = situation.budget, situation.spent
    portions, runs = list(foreseen.portions), None
    if budget.tokens is not None:
        portions.append(
            Portion("tokens of the month", budget.tokens, spent.tokens, foreseen.tokens)
        )
        runs = int(budget.tokens // max(1.0, foreseen.tokens.mid))
    if budget.microusd is not None:
        takes = foreseen.microusd or SpreadNumber(microusd, microusd, microusd)
        portions.append(Portion("money of the month", budget.microusd, spent.microusd, takes))
        paid = int(budget.microusd // max(1.0, takes.mid))
        runs = paid if runs is None else min(runs, paid)
    return Option(way, replace(foreseen, portions=tuple(portions)), microusd, runs)


def ways_of(situation: Situation) -> tuple[Way, ...]:
    return (ONE,) if situation.agents == 1 else (ONE, ADAPTIVE)


def options_for(situation: Situation, guess: AccountGuess) -> tuple[Option, ...]:
    """Every way there is."""
    return tuple(option_of(situation, guess, way) for way in ways_of(situation))


class _Run(Struct, frozen=True):
    """What one rehearsal gave."""

    time_s: float
    amounts: Amounts
    calls: float
    refused: float
    width: float


def _run(work: Workload, guess: AccountGuess) -> _Run:
    ran, amounts = rehearsed(work, guess), amounts_of(work.calls)
    beyond = max(0.0, ran.used_tokens - amounts.input_tokens - amounts.output_tokens)
    busy_s = sum(ended_s - sent_s for sent_s, ended_s in ran.calls)
    return _Run(
        ran.makespan_s if not ran.failed else inf,
        replace(amounts, input_tokens=amounts.input_tokens + beyond),
        float(sum(map(len, work.calls))), float(ran.refused), busy_s / max(1e-9, ran.makespan_s),
    )  # fmt: skip


def _continued(situation: Situation, guess: AccountGuess, way: Way, least_s: float) -> _Run:
    """All agents, by a line through a part and half of it, and no faster than the bound."""
    part = situation.rehearsed_agents
    whole, half = (
        _run(work_of(situation, way, agents=agents), guess) for agents in (part, part // 2)
    )
    more = (situation.agents - part) / (part - part // 2)
    work = work_of(situation, way)
    time_s = max(least_s, whole.time_s + more * max(0.0, whole.time_s - half.time_s))
    return _Run(
        time_s, amounts_of(work.calls), float(sum(map(len, work.calls))),
        whole.refused + more * max(0.0, whole.refused - half.refused), whole.width,
    )  # fmt: skip


def _own_calls(
    situation: Situation, seed: int, scale: float, count: int
) -> list[list[SimulatedCall]]:
    """What each agent does for itself, in as many calls as it makes.

    Agents differ, and all of them together take what was said.
    """
    calls = situation.calls_each
    own_tokens = situation.tokens_each - situation.common_tokens
    own_input = scale * (own_tokens - situation.output_each) / calls
    output = scale * situation.output_each / calls
    inputs = _factors(seed, OWN_STREAM, count * calls)
    outputs = _factors(seed, OUTPUT_STREAM, count * calls)
    every = [
        SimulatedCall(index, own_input * inputs[index], output * outputs[index],
             max(MAX_TOKENS, ceil(output * outputs[index])),
             lognormal(seed, LUCK_STREAM, index, LUCK_SPREAD))
        for index in range(count * calls)
    ]  # fmt: skip
    return [every[first : first + calls] for first in range(0, len(every), calls)]


def _factors(seed: int, stream: int, count: int) -> list[float]:
    drawn = [lognormal(seed, stream, index, SIZES_SPREAD) for index in range(count)]
    mean = sum(drawn) / count
    return [one / mean for one in drawn]


def _lengths(work: Workload) -> OutputLength:
    """Earlier answers of this kind were about as long as those to come."""
    lengths, calls = OutputLength(), [call for mine in work.calls for call in mine]
    typical = sum(call.output_tokens for call in calls) / len(calls)
    for lesson in range(LESSONS):
        factor = lognormal(LESSONS, OUTPUT_STREAM, lesson, SIZES_SPREAD)
        lengths.observe(KIND, calls[lesson % len(calls)].input_tokens, typical * factor)
    return lengths


def cost_of(guess: AccountGuess, amounts: Amounts) -> float:
    """What some tokens cost, at an assumed price where the real one is not known."""
    return float((guess.price or PRICE_GUESS).cost_microusd(amounts))


def _spread(values: Sequence[float]) -> SpreadNumber:
    low, mid, high = values
    return SpreadNumber(min(low, mid), mid, max(high, mid))
