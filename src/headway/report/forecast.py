"""Forecasts time and cost of a plan by rehearsals on drawn sizes.

Laws:
- Nothing is sent and nothing is learned: forecasting twice gives the same numbers.
- Many draws of sizes and speeds say how uncertain the work is; a few of them are rehearsed with the
  engine, the quota and a provider like the account, and say what the fluid model leaves out.
- What is unknown is assumed, and listed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil, exp, inf, log, sqrt
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from headway.base.numbers import median, percentile
from headway.base.values import MINUTE_S, Amounts, Charging, Limit, Resource
from headway.engine.state import Rules
from headway.engine.strategy import ADAPTIVE, Strategy
from headway.pacing.account import Account, Profile
from headway.pacing.admission import ManagedAccount
from headway.pacing.estimate import OUTPUT_TOKENS_PRIOR, InputRatio, OutputLength, Price
from headway.pacing.headers import DIALECTS, PLAIN
from headway.pacing.memory import AccountMemory, AccountTerms, ChronicleMemory, lately, minutes_seen
from headway.pacing.windows import UNTOLD_S, Shares, WindowState
from headway.report.bound import Bound, bound
from headway.report.outline import DrawnPlan, Outline, OutlinePart, cropped, drawn, workload_of
from headway.report.sizes import UNKNOWN, SeenCall, Sizes, Speed, sizes_of, speed_of
from headway.sim.account import Terms
from headway.sim.clients import ClientPort, PacedDoor
from headway.sim.draw import Neighbour, normal
from headway.sim.provider import Latency, Provider, ProviderSpec
from headway.sim.rehearsal import STEPS_MAX, Rehearsal, Rehearsed, Workload

# What a run will probably take: the record that forecasts give and reports compare with.

MONEY: Final = "micro-dollars"
"""What a portion's name begins with that is not counted in tokens."""


class SpreadNumber(Struct, frozen=True):
    """A number that is not known: one in ten is lower than `low`, one in ten higher than `high`."""

    low: float
    mid: float
    high: float


class Portion(Struct, frozen=True):
    """What a run takes of something that is finite: a usage window, a month's budget."""

    name: str
    """`5h window of HOST`, `tokens of 2026-11`."""
    of: float
    used: float
    """Before the run."""
    takes: SpreadNumber
    resets_s: float | None = None
    """From now, where it is a usage window; a budget does not come back by waiting."""
    room: float = inf
    """The run's own share of one window."""
    windows: int = 1
    """How many windows, one after another, the run takes a part of..."""
    windows_low: int = 1
    windows_high: int = 1
    """...and how many it may be, as far as the size of a window is known."""

    @property
    def left(self) -> float:
        return max(0.0, min(self.of - self.used, self.room))


class Foreseen(Struct, frozen=True):
    """One way to perform a plan, in numbers."""

    strategy: str
    tasks: int
    calls: SpreadNumber
    time_s: SpreadNumber
    input_tokens: SpreadNumber
    output_tokens: SpreadNumber
    microusd: SpreadNumber | None
    """None: the price of a model in it is unknown."""
    bound_s: float
    """The least time in which the middle one of the draws can be done."""
    binding: str
    """What makes the bound so long: `input/60s`, `width`, `critical path`."""
    fair_s: float
    """The bound if the ceiling holds, neighbours keep their share and no debt is left."""
    fair_binding: str
    width: float
    refused: float
    learned_calls: int
    """Calls that sizes and speeds were learned from; 0: they are what is usual."""
    learned_from: str
    portions: tuple[Portion, ...] = ()
    unpriced: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    """What is unknown and was assumed, a sentence each."""
    budget_width: int | None = None
    """Calls that may be in flight at once for the budgets' sake: each may cost as much as it can
    until it has ended. None: no budget, or one that covers all calls at once."""
    waits_s: float = 0.0
    """Of the time, what it probably waits for resets of usage windows."""
    unknown: tuple[str, ...] = ()
    """Why only the least time is known, a sentence each; empty where the time is known."""
    account: str = ""
    """Whose limits it draws on, as far as that is known before the first call."""

    @property
    def tokens(self) -> SpreadNumber:
        """Input and output together; ends are added, so the spread is no narrower than it is."""
        one, other = self.input_tokens, self.output_tokens
        return SpreadNumber(one.low + other.low, one.mid + other.mid, one.high + other.high)


# How long work takes if calls were a fluid: the model that names what binds, and costs nothing.

WIDTH_MAX: Final = 4096

PATH: Final = "critical path"
WIDTH: Final = "width"
HERE: Final = "this machine"
FREE: Final = (PATH, WIDTH, HERE)
"""Terms that are no limits."""

LAST_SHARE: Final = 0.5
"""The last call is one of ordinary length: the middle one."""


LimitRoom = tuple[Limit, float, float, float]
"""A limit, what is free of it now and what flows in for us a second, under the ceiling; and what is
free without one: no end of it where output may go into debt."""


class Flow(Struct, frozen=True):
    """How long the work takes, and what makes it so long."""

    time_s: float
    binding: str
    width: float
    """Calls in flight on average, if it takes that long."""
    least_s: float
    """The same with the shortest call as the last one: nothing fair is faster."""
    hard_s: float
    hard_binding: str
    """The same without ceiling and neighbours."""


def flow_of(one: DrawnPlan, latency: Latency, ground: ForecastGround, times: float = 1.0) -> Flow:
    """The model, for one draw.

    A draw of a part of the work stands for so many `times` as much; its chains are no longer.
    """
    calls = [call for made in one.calls for call in made]
    works = sorted(latency.work_s(call.output_tokens) for call in calls)
    work_s = times * sum(works)
    widest = max(1, int(min(ground.width_max, max(1.0, times * len(calls)), WIDTH_MAX)))
    width = float(widest)
    if latency.sigma or latency.kappa:
        width = float(max(range(1, widest + 1), key=lambda n: n / latency.slowdown(n)))
    terms = [(PATH, path_s(one, latency)), (HERE, times * sum(one.seconds) / ground.places)]
    if calls:
        terms.append((WIDTH, work_s * latency.slowdown(width) / width))
    hard = list(terms)
    last_s = works[int(LAST_SHARE * len(works))] if works else 0.0
    given, gave = times * one.amounts.input_tokens, times * one.amounts.output_tokens
    if ground.keeps:
        gave = times * sum(call.max_tokens for call in calls)
    taken: dict[Resource, float] = {
        "requests": times * len(calls),
        "input": given,
        "output": gave,
        "tokens": given + gave,
        "spend": times * one.amounts.spend_microusd,
    }
    for limit, free, rate_per_s, free_to_all in ground.rooms:
        need = max(0.0, taken.get(limit.resource, 0.0) - free)
        if need > 0.0 and rate_per_s > 0.0:
            terms.append((limit.name, need / rate_per_s + last_s))
            rest = max(0.0, taken[limit.resource] - free_to_all)
            hard.append((limit.name, rest / limit.rate_per_s + works[0]))
    binding, time_s = max(terms, key=lambda term: term[1])
    least_s = time_s - (last_s - works[0]) if binding not in FREE else time_s
    width = min(width, work_s / max(time_s, 1e-9))
    hard_by, hard_s = max(hard, key=lambda term: term[1])
    return Flow(time_s, binding, width * latency.slowdown(width), least_s, hard_s, hard_by)


def path_s(one: DrawnPlan, latency: Latency) -> float:
    """The longest chain of tasks that need one another, each alone on the account."""
    ends: list[float] = []
    for number, calls in enumerate(one.calls):
        begins_s = max((ends[other] for other in one.needs[number]), default=0.0)
        calls_s = sum(latency.work_s(call.output_tokens) for call in calls)
        ends.append(begins_s + one.seconds[number] + calls_s)
    return max(ends, default=0.0)


# How long work takes that no usage window has room for: a window after another.

WINDOWS_MAX: Final = 10_000
"""Windows that are followed; a run that needs more of them does not end."""


def across_windows(
    time_s: float, tokens: float, windows: Sequence[WindowState], shares: Shares, ceiling: float,
    off: float = 0.0,
) -> tuple[float, list[int]]:  # fmt: skip
    """The time with all waits for resets, and how many windows of each it takes.

    Work takes `time_s` and `tokens` if nothing has to wait, evenly; windows have the known sizes,
    `off` times as much larger as these are in doubt.
    """
    sizes = [(one.size_tokens or inf) * (1.0 + off * one.doubt) for one in windows]
    whole = [
        size * min(ceiling, shares[one.is_long]) for one, size in zip(windows, sizes, strict=True)
    ]
    rooms = [
        0.0 if one.is_empty else max(0.0, min(full, (ceiling - one.used_now) * size))
        for one, full, size in zip(windows, whole, sizes, strict=True)
    ]
    resets_s = [max(one.resets_s, 1.0) for one in windows]
    began, fresh = [0] * len(windows), [True] * len(windows)
    now, per_s, left = 0.0, tokens / max(time_s, 1e-9), tokens
    for _ in range(WINDOWS_MAX):
        empty = [at for at, room in enumerate(rooms) if room <= 1e-6]
        if empty:
            now = max(now, *(resets_s[at] for at in empty))
        else:
            took = min(left, *rooms, *((at_s - now) * per_s for at_s in resets_s))
            now, left = now + took / per_s, left - took
            rooms = [room - took for room in rooms]
            began = [count + is_new for count, is_new in zip(began, fresh, strict=True)]
            fresh = [False] * len(windows)
            if left <= 1e-6 * tokens:
                return now, began
        for at, one in enumerate(windows):
            while resets_s[at] <= now + 1e-6:
                resets_s[at] += max(one.period_s or UNTOLD_S, 1.0)
                rooms[at], fresh[at] = whole[at], True
    return inf, began


# What a plan will cost, before anything is sent: about so much, and at most so much.

BYTES_PER_TOKEN: Final = 4.0
"""Of English prose. A budget takes each byte of a call for a token before it is sent."""

FRAME_TOKENS: Final = 80
"""What formats add around a prompt, at most."""


class PriceGuess(Struct, frozen=True):
    """What a plan costs."""

    expected_microusd: int = 0
    ceiling_microusd: int = 0
    """If every answer is as long as it may be, and every repair is needed."""
    calls: int = 0
    unpriced: tuple[str, ...] = ()
    """Models without a known price: what they cost is not in the sums."""


def guess_price(outline: Outline) -> PriceGuess:
    """The sum over a plan's prompts. Answers are taken to be as long as answers usually are."""
    expected = ceiling = calls = 0
    unpriced: dict[str, None] = {}
    ratio, length = InputRatio(), OutputLength()
    for part in outline.parts:
        if not part.asks or not part.count:
            continue
        calls += part.count
        if part.price is None:
            unpriced[part.model] = None
            continue
        size_bytes = _prompt_bytes(outline, part)
        tokens_in = ratio.estimate(part.model, "english", round(size_bytes), part.count)
        each_out = length.expect(part.model, tokens_in, part.max_tokens)
        expected += part.price.cost_microusd(Amounts(tokens_in, part.count * each_out))
        ceiling += _most(part, part.price, size_bytes)
    return PriceGuess(expected, ceiling, calls, tuple(unpriced))


def _prompt_bytes(outline: Outline, part: OutlinePart) -> float:
    """Of all prompts of a part, with the answers in them as long as answers usually are."""
    sizes, given = part.sizes_bytes, 0.0
    for index in part.given:
        source = outline.parts[index]
        each = min(OUTPUT_TOKENS_PRIOR, source.max_tokens)
        # A group as a whole may be in every prompt; a member's own block is in one.
        given += each * (part.count * part.block(index) or part.count * source.count)
    mean = sum(sizes) / len(sizes) if sizes else 0.0
    return part.count * mean + given * BYTES_PER_TOKEN


def _most(part: OutlinePart, price: Price, size_bytes: float) -> int:
    """First calls, and repairs that read the answers so far again: a byte is a token at most."""
    rounds = 1 + part.repairs
    outputs = rounds * part.count * part.max_tokens
    inputs = rounds * (size_bytes + part.count * FRAME_TOKENS)
    again = part.count * (part.max_tokens + FRAME_TOKENS) * rounds * part.repairs / 2
    return price.cost_microusd(Amounts(inputs + again, outputs))


REHEARSALS_MIN: Final = 3
REHEARSALS_MAX: Final = 15
"""Fewer say nothing of how they differ, and more say it no better."""

MODEL_DOUBT: Final = 0.03
"""How far off a provider is from its model though all numbers are right, as a logarithm."""

SPEED_STREAM: Final = 121
MODEL_STREAM: Final = 122
RATES_STREAM: Final = 123
REHEARSAL_SEED: Final = 104_729

LATELY_MIN: Final = 15
OTHERS_MIN: Final = 0.05
OTHERS_DOUBT: Final = 0.15
"""Less than this is an error of estimates, not a neighbour: in one minute the larger share, in many
minutes by the root of their number less."""

OTHERS_MAX: Final = 0.5
"""Neighbours are taken to go on as in the last quarter of an hour, and have half of each limit at
the most: more is not theirs."""

LENGTHS_SEEN_MAX: Final = 200
"""Calls that lengths are learned from before a rehearsal."""

LOW: Final = 0.1
HIGH: Final = 0.9


class Depth(Struct, frozen=True):
    """How much is computed for a forecast."""

    draws: int = 60
    """Ways in which a plan may go. The ends of a spread are the sixth of 60 from either side."""
    rehearsed_calls: int = 900
    """In all rehearsals together; 0: nothing is rehearsed."""
    cropped_calls: int = 300
    """A larger plan is rehearsed with fewer tasks: what the fluid leaves out is at its ends. The
    bound of a larger plan is that of its fluid."""
    drawn_calls: int = 500
    """Of a larger plan a part is drawn, which stands for all of it."""


FULL: Final = Depth()
"""About a second of CPU, however large the plan is."""

QUICK: Final = Depth(24, 120, 60, 200)
"""About a tenth of that, for a run that is about to begin."""

ROUGH: Final = Depth(24, 0, 60, 100)
"""Without rehearsals, where nothing was seen: no computation makes a guess better."""


class Knowledge(Struct, frozen=True):
    """All that a forecast is made from: what the account allows, and what earlier runs showed."""

    memory: AccountMemory
    seen: Mapping[str, Sequence[SeenCall]] = field(default_factory=dict)
    """Calls that were made, by part of the plan; under the name of a model, all of its calls."""
    learned_from: str = ""
    terms: AccountTerms = AccountTerms()
    age_s: float = 0.0
    """How long ago `memory` was so."""
    has_windows: bool = False
    """Whether sizes of usage windows are known, which are followed apart from this."""

    def account(self) -> ManagedAccount:
        """The account as the broker would take it up now, at second 0."""
        memory = self.memory
        is_known = memory.levels or memory.profile.is_measured or memory.windows
        return ManagedAccount(
            memory.account, memory.group, self.terms, DIALECTS.get(memory.dialect, PLAIN), 0.0,
            memory if is_known else None, -self.age_s,
        )  # fmt: skip

    def cropped(self, share: float) -> Knowledge:
        """The same with so much of what is free now: for a part of a plan limits bind as soon."""
        memory = self.account().memory(0.0)
        levels = tuple(
            replace(told, remaining=share * max(0.0, told.remaining or 0.0))
            for told in memory.levels
        )
        return replace(self, memory=replace(memory, levels=levels), age_s=0.0)


HIDDEN_DOUBT: Final = 0.25
"""How far off a rate is that only refusals taught, as a logarithm: of accounts whose limits are
hidden 40 calls teach rates that are 2 to 35 % too low."""


class ForecastGround(Struct, frozen=True):
    """What was made of the knowledge: sizes, speed, and the account as a provider."""

    sizes: Mapping[str, Sizes]
    speed: Speed
    spec: ProviderSpec
    rooms: tuple[LimitRoom, ...]
    width_max: float
    """Calls in flight at once."""
    places: float
    """Tasks that this machine takes at once."""
    keeps: bool
    """Whether all of `max_tokens` counts, used or not."""
    knowledge: Knowledge
    calls: int
    assumed: tuple[str, ...]
    is_known: bool
    """Whether it was learned before how many calls at once are worth it."""
    is_unlimited: bool
    """Whether no limit is known at all."""
    may_keep: bool
    """Whether output is reserved, and it is not known yet whether what is not used comes back."""
    rates_doubt: float
    """How far off the rates of the limits are, as a logarithm."""

    def keeping(self) -> ForecastGround:
        """The same where what is reserved and not used does not come back."""
        terms = replace(self.spec.terms, charging="kept")
        return replace(self, keeps=True, spec=replace(self.spec, terms=terms))

    def drawn(self, seed: int) -> ForecastGround:
        """One way in which the limits may really be."""
        ground = self.keeping() if self.may_keep and _keeps(seed) else self
        if not self.rates_doubt:
            return ground
        off = exp(self.rates_doubt * normal(seed, RATES_STREAM, 0))
        rooms = tuple(
            (replace(limit, amount=off * limit.amount), free, off * rate_per_s, hard)
            for limit, free, rate_per_s, hard in self.rooms
        )
        return replace(ground, rooms=rooms)

    def under(self, strategy: Strategy) -> ForecastGround:
        """The same where no more tasks are active at once than a strategy lets."""
        most = strategy.room(0)
        return replace(self, width_max=min(self.width_max, most), places=min(self.places, most))


def _keeps(seed: int) -> bool:
    """Whether reservations are kept in a draw, where it is not known: in every second one."""
    return seed % 2 == 1


def ground_of(knowledge: Knowledge) -> ForecastGround:
    """Fit all that was seen."""
    managed = knowledge.account()
    sizes = {name: sizes_of(seen) for name, seen in knowledge.seen.items() if seen}
    every = max(knowledge.seen.values(), key=len, default=())
    profile, dialect = managed.account.profile(), managed.account.config.dialect
    speed = speed_of(every, Latency(profile.first_byte_s, profile.per_token_s))
    if speed.calls == 0 and not profile.is_measured:
        speed = UNKNOWN
    others = _others(knowledge.memory.chronicle)
    charging: Charging = "kept" if profile.kept else dialect.charging
    rooms, used = _rooms(managed.account, knowledge.terms.share, others, charging)
    hidden = _hidden(profile, knowledge.terms.share) if not rooms else None
    if hidden is not None:
        rooms = (hidden,)
        charging = "reserved" if profile.hidden and profile.hidden[0] == "reserved" else charging
    told = (*knowledge.terms.limits, *knowledge.memory.profile.limits)
    gauges = (one.amount for one in told if one.resource == "concurrency")
    slots = min(managed.account.width.cap.limit, *gauges, inf)
    limits = tuple(limit for limit, *_ in rooms) if hidden is None else ()
    if slots < inf:
        limits = (*limits, Limit("concurrency", slots, 0.0, "gauge"))
    neighbour = Neighbour(share=others) if others > 0.0 else None
    terms = Terms(
        limits, () if hidden is None else (hidden[0],), charging, used=used, neighbour=neighbour
    )
    spec = ProviderSpec("as known", terms, speed.latency, dialect=dialect.name)
    may_keep = charging == "reserved" and not profile.kept and not profile.returned
    assumed = tuple(_assumed(speed, len(every), others, may_keep))
    return ForecastGround(
        sizes, speed, spec, rooms, slots, inf, bool(profile.kept),
        knowledge, len(every), assumed, profile.is_measured, not rooms and slots == inf,
        may_keep, 0.0 if hidden is None else HIDDEN_DOUBT,
    )  # fmt: skip


def foresee(
    outline: Outline, knowledge: Knowledge, strategy: Strategy = ADAPTIVE, seed: int = 1,
    depth: Depth = FULL,
) -> Foreseen:  # fmt: skip
    """What a plan will take, performed like this."""
    ground = ground_of(knowledge).under(strategy)
    part = cropped(outline, depth.drawn_calls)
    scale = outline.times(part)
    draws = [_draw(part, ground, seed + index, scale) for index in range(depth.draws)]
    order = sorted(range(depth.draws), key=lambda at: draws[at][1].time_s)
    small = cropped(outline, depth.cropped_calls)
    chosen = [seed + at for at in _chosen(order, small, depth)]
    stage = ground
    if small is not outline:
        stage = ground_of(knowledge.cropped(1.0 / outline.times(small))).under(strategy)
    offs, ran = _rehearsed(small, stage, strategy, chosen)
    # The least and the middle time are those of an account on which reservations come back.
    sure = [at for at in order if not (ground.may_keep and _keeps(seed + at))]
    middle, flow = draws[sure[len(sure) // 2]]
    # Every wave has an end of its own; everything else has one.
    is_alike = small is outline or (strategy.kind == "waves" and flow.binding == WIDTH)
    times = _times([flow.time_s for _, flow in draws], offs, is_alike, seed)
    mid_s = median([times[at] for at in sure])
    least = _bound(middle, flow, ground, depth)
    priced = all(part.price is not None for part in outline.parts if part.asks)
    amounts = [one.amounts for one, _ in draws]
    cost = _spread([float(amount.spend_microusd) for amount in amounts], scale)
    refused = sum(one.refused for one in ran) / max(1, len(ran))
    return Foreseen(
        strategy.name, outline.tasks, _spread([float(one.count) for one, _ in draws], scale),
        replace(_spread(times), mid=mid_s),
        _spread([amount.input_tokens for amount in amounts], scale),
        _spread([amount.output_tokens for amount in amounts], scale), cost if priced else None,
        min(least.time_s, mid_s), least.binding, min(least.fair_s, mid_s),
        least.fair_binding, _width(ran, flow, small is outline),
        refused * outline.times(small), ground.calls, knowledge.learned_from,
        unpriced=tuple({p.model: None for p in outline.parts if p.asks and p.price is None}),
        assumed=ground.assumed, unknown=tuple(_unknown(outline, ground)),
        account=knowledge.memory.account,
    )  # fmt: skip


def _draw(
    outline: Outline, ground: ForecastGround, seed: int, scale: float = 1.0
) -> tuple[DrawnPlan, Flow]:
    """One way in which the plan may go, and how long that takes as a fluid."""
    one = drawn(outline, ground.sizes, ground.speed, seed)
    return one, flow_of(one, _latency(ground.speed, seed), ground.drawn(seed), scale)


def _latency(speed: Speed, seed: int) -> Latency:
    return slower(speed.latency, exp(speed.doubt * normal(seed, SPEED_STREAM, 0)))


def slower(latency: Latency, times: float) -> Latency:
    """The same speed, so many times slower."""
    return replace(
        latency, first_byte_s=latency.first_byte_s * times,
        per_output_token_s=latency.per_output_token_s * times,
    )  # fmt: skip


def rehearse(
    work: Workload, provider: Provider, door: ClientPort, rules: Rules, steps_max: int = STEPS_MAX
) -> Rehearsed:
    """One run in virtual time; what holds at the start, as a neighbour's share, holds before it."""
    provider.advance(0.0)
    return Rehearsal(work, provider, door, rules, steps_max=steps_max).run()


def _chosen(order: Sequence[int], outline: Outline, depth: Depth) -> list[int]:
    """Draws to be rehearsed: spread over all of them by the time that they take."""
    if not depth.rehearsed_calls:
        return []
    count = ceil(depth.rehearsed_calls / max(1.0, outline.steps))
    count = min(REHEARSALS_MAX, max(REHEARSALS_MIN, count))
    return [order[(2 * at + 1) * len(order) // (2 * count)] for at in range(count)]


def _rehearsed(
    outline: Outline, ground: ForecastGround, strategy: Strategy, seeds: Sequence[int]
) -> tuple[list[tuple[float, float]], list[Rehearsed]]:
    """Of some draws the time as a fluid and as rehearsed; and the rehearsals."""
    seen = [(name, one) for name, calls in ground.knowledge.seen.items() for one in calls]
    pairs: list[tuple[float, float]] = []
    ran: list[Rehearsed] = []
    for seed in seeds:
        one, flow = _draw(outline, ground, seed)
        spec = replace(ground.drawn(seed).spec, latency=_latency(ground.speed, seed))
        provider = Provider(spec, seed + REHEARSAL_SEED)
        # Streams tell how many at once are worth it; where that is known they are only slow.
        provider.shows_progress = not ground.is_known
        lengths = OutputLength()
        for kind, call in seen[-LENGTHS_SEEN_MAX:]:
            lengths.observe(kind, call.input_tokens, call.output_tokens)
        door = PacedDoor(ground.knowledge.account(), lengths)
        done = rehearse(workload_of(one), provider, door, Rules(strategy))
        if done.makespan_s < inf:
            pairs.append((flow.time_s, done.makespan_s))
            ran.append(done)
    return pairs, ran


def _times(
    fluid: Sequence[float], pairs: Sequence[tuple[float, float]], is_alike: bool, seed: int
) -> list[float]:
    """Times of all draws: what the fluid leaves out is a factor, of a cropped plan a summand."""
    if not pairs:
        return list(fluid)
    logs = [log(max(after, 1e-6) / max(before, 1e-6)) for before, after in pairs]
    middle = median(logs)
    spread = sqrt(sum((one - middle) ** 2 for one in logs) / len(logs))
    more_s = median([after - before for before, after in pairs])
    times = []
    for at, time_s in enumerate(fluid):
        off = MODEL_DOUBT * normal(seed, MODEL_STREAM, 2 * at)
        off += spread * normal(seed, MODEL_STREAM, 2 * at + 1)
        base_s = time_s * exp(middle) if is_alike else max(time_s, time_s + more_s)
        times.append(base_s * exp(off))
    return times


def _bound(one: DrawnPlan, flow: Flow, ground: ForecastGround, depth: Depth) -> Bound:
    """The bounds of one draw.

    The bound of small plans does not know what was used of a limit before; their fluid does.
    """
    if one.count > depth.cropped_calls or not one.count:
        return Bound(flow.hard_s, flow.hard_binding, flow.time_s, flow.binding)
    found = bound(ground.spec, one.calls, one.needs, ground.knowledge.terms.share)
    hard = max((found.time_s, found.binding), (flow.hard_s, flow.hard_binding))
    return Bound(*hard, *max((found.fair_s, found.fair_binding), (flow.least_s, flow.binding)))


def _width(ran: Sequence[Rehearsed], flow: Flow, is_small: bool) -> float:
    """Calls in flight on average; those of a cropped plan are mostly its burst."""
    shown = [
        sum(end - sent for sent, end in one.calls) / one.makespan_s
        for one in ran
        if one.makespan_s > 0.0
    ]
    if not shown:
        return flow.width
    return median(shown) if is_small else min(median(shown), flow.width)


def _rooms(
    account: Account, share: float, others: float, charging: Charging
) -> tuple[tuple[LimitRoom, ...], tuple[tuple[str, float], ...]]:
    """What may be had of each limit beside others on the account, and what is used of it."""
    rooms: list[LimitRoom] = []
    used: list[tuple[str, float]] = []
    for tracked in account.limits:
        limit, capacity = tracked.limit, tracked.meter.size
        taken = max(0.0, capacity - max(0.0, tracked.level(0.0)))
        used.append((limit.name, taken))
        free = max(0.0, share * capacity - taken)
        is_produced = charging == "produced" and limit.resource in ("output", "tokens")
        hard = inf if is_produced else max(0.0, capacity - taken)
        rooms.append((limit, free, min(share, 1.0 - others) * limit.rate_per_s, hard))
    return tuple(rooms), tuple(used)


def _others(chronicle: ChronicleMemory) -> float:
    seen_min = max(1, minutes_seen(chronicle, LATELY_MIN))
    others = lately(chronicle, LATELY_MIN).neighbours
    least = max(OTHERS_MIN, OTHERS_DOUBT / sqrt(seen_min))
    return 0.0 if others < least else min(OTHERS_MAX, others)


def _hidden(profile: Profile, share: float) -> LimitRoom | None:
    """A limit that only refusals showed."""
    if profile.hidden is None:
        return None
    name, rate_per_s, burst = profile.hidden
    resource: Resource = "requests"
    if name in ("input", "output"):
        resource = "input" if name == "input" else "output"
    elif name == "reserved":
        resource = "tokens"
    limit = Limit(resource, MINUTE_S * rate_per_s, burst=burst, source="learned")
    return limit, share * burst, share * rate_per_s, burst


def _unknown(outline: Outline, ground: ForecastGround) -> Iterator[str]:
    """Why only the least time can be said, a sentence each."""
    calls, knowledge = outline.calls, ground.knowledge
    if calls and ground.is_unlimited and not knowledge.has_windows and ground.calls < calls:
        account = knowledge.memory.account or "the account"
        seen = f"{ground.calls:,} calls showed none" if ground.calls else "no call was made yet"
        yield f"the limits of {account} are unknown: {seen}"
    for part in outline.parts:
        if part.is_new and part.count:
            what = "time and calls are" if part.is_agent else "time is"
            yield f"`{part.name}` has not run on this machine: its {what} unknown"


def _assumed(speed: Speed, calls: int, others: float, may_keep: bool) -> Iterator[str]:
    if may_keep and calls:
        yield "tokens that calls reserve and do not use may come back or not: both are counted with"
    if speed.calls == 0:
        yield (
            f"answers begin after {speed.latency.first_byte_s:.1f} s and take "
            f"{speed.latency.per_output_token_s * 1000:.0f} ms a token: no call was measured"
        )
    if calls == 0:
        yield "answers are as long as is usual: none of this kind was seen"
    if others > 0.0:
        yield f"others on the account go on taking {others:.0%} of its limits"


def _spread(values: Sequence[float], scale: float = 1.0) -> SpreadNumber:
    low, middle, high = percentile(values, LOW), median(values), percentile(values, HIGH)
    return SpreadNumber(scale * low, scale * middle, scale * high)
