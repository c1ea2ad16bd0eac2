"""The most that a limit can let through by a given time.

Laws:
- A supply is never smaller than what any schedule got: where this file must err, it errs upwards.
- A bucket lets through what it holds and what flows in; a window its amount, once per period.
- What a neighbour wants, up to its fair share, is the neighbour's: it is taken off the supply at
  the pace at which it is wanted. Less than this supply is no fault; more is a neighbour's share.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from graphlib import TopologicalSorter
from math import floor, inf
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from headway.base.values import Limit, LimitKind
from headway.sim.account import Needs, Terms
from headway.sim.draw import FAIR_SHARE, Neighbour
from headway.sim.provider import Latency, ProviderSpec, SimulatedCall

FIRST_TOKEN: Final = 1.0
"""Where output is charged as it is produced, a call is let in if one token of it is left."""


class Layout(Struct, frozen=True):
    """Calls in one list. A head is the least time before a call starts, a down after it ended."""

    calls: tuple[SimulatedCall, ...]
    durations: tuple[float, ...]
    first_bytes: tuple[float, ...]
    heads: tuple[float, ...]
    downs: tuple[float, ...]
    tails: tuple[float, ...]
    """The least time from a call's start to the end of everything."""

    @property
    def critical_path_s(self) -> float:
        """The longest chain of calls, each alone at the provider."""
        ends = (head + tail for head, tail in zip(self.heads, self.tails, strict=True))
        return max(ends, default=0.0)


class LimitRule(Struct, frozen=True):
    """One limit as it meets the calls of a layout: a number per call for each way to count."""

    name: str
    kind: LimitKind
    amount: float
    period_s: float
    capacity: float
    """The most at one instant: the burst of a bucket, the amount of a window."""
    needs: tuple[float, ...]
    """What must be there at admission: never more than the capacity, or it would wait for ever."""
    charges: tuple[float, ...]
    """What is taken at admission."""
    refunds: tuple[float, ...]
    """What is given back at the end."""
    flows: tuple[float, ...]
    """What leaves evenly from the first byte to the end."""
    debt: float
    """How far the call that needs most goes below zero even if it comes alone to a full limit."""
    is_ceiling: bool = False
    """A ceiling counts our own calls only: a neighbour's do not matter to it."""

    @property
    def rate_per_s(self) -> float:
        return self.amount / self.period_s


def lay_out(
    latency: Latency, tasks: Sequence[Sequence[SimulatedCall]], needs: Sequence[Sequence[int]]
) -> Layout:
    """Lay the calls of all tasks flat. `needs` must have no cycle."""
    alone = latency.slowdown(1)
    first_s, token_s = latency.first_byte_s, latency.per_output_token_s
    lengths = [
        [alone * (first_s * call.luck + token_s * call.output_tokens) for call in calls]
        for calls in tasks
    ]
    order = tuple(TopologicalSorter(dict(enumerate(needs))).static_order())
    begins = [0.0] * len(tasks)
    afters = [0.0] * len(tasks)
    for task in order:
        begins[task] = max((begins[need] + sum(lengths[need]) for need in needs[task]), default=0.0)
    for task in reversed(order):
        for need in needs[task]:
            afters[need] = max(afters[need], sum(lengths[task]) + afters[task])
    heads: list[float] = []
    downs: list[float] = []
    for begin, own, after in zip(begins, lengths, afters, strict=True):
        heads += [begin + sum(own[:place]) for place in range(len(own))]
        downs += [sum(own[place + 1 :]) + after for place in range(len(own))]
    calls = tuple(call for task in tasks for call in task)
    durations = tuple(length for own in lengths for length in own)
    return Layout(
        calls,
        durations,
        tuple(alone * first_s * call.luck for call in calls),
        tuple(heads),
        tuple(downs),
        tuple(own + down for own, down in zip(durations, downs, strict=True)),
    )


def rules_of(spec: ProviderSpec, calls: Sequence[SimulatedCall], share: float) -> list[LimitRule]:
    """Every limit of the provider and, below a share of 1, the user's ceiling beside each."""
    rules = []
    for limit in spec.terms.limits + spec.terms.hidden:
        if limit.kind == "gauge":
            continue
        rules.append(_rule(spec, limit, calls, limit.name))
        if share < 1.0:
            ceiling = replace(limit, kind="sliding", amount=share * limit.amount, burst=None)
            rule = _rule(spec, ceiling, calls, f"{limit.name} ceiling")
            rules.append(replace(rule, is_ceiling=True))
    return rules


def _rule(spec: ProviderSpec, limit: Limit, calls: Sequence[SimulatedCall], name: str) -> LimitRule:
    terms = spec.terms
    reserved = terms.charging != "produced"
    counts_output = limit.resource in ("output", "tokens")
    flowing = counts_output and not reserved
    room = limit.capacity * least_factor(terms)
    first_token = FIRST_TOKEN if flowing else 0.0
    taken = (Needs(call.input_tokens, call.max_tokens if reserved else 0.0, call.spend_microusd)
             for call in calls)  # fmt: skip
    charges = tuple(of_call.of(limit.resource) for of_call in taken)
    needs = tuple(min(charge + first_token, room) for charge in charges)
    refunds = flows = (0.0,) * len(calls)
    if flowing and spec.latency.per_output_token_s > 0:
        flows = tuple(call.output_tokens for call in calls)
    elif counts_output and terms.charging != "kept":
        refunds = tuple(max(0.0, call.max_tokens - call.output_tokens) for call in calls)
    elif limit.kind != "bucket":
        # A window forgets an oversized charge as a whole: it counts as one that fills the window.
        charges = needs
    # The deepest debt that a call cannot avoid even alone: no schedule is free of it.
    refill = limit.rate_per_s * least_factor(terms) if limit.kind == "bucket" else 0.0
    if terms.neighbour is not None:
        refill *= 1.0 - FAIR_SHARE
    pace = spec.latency.per_output_token_s * spec.latency.slowdown(1)
    debt = max((max(charge - room, charge + flow - room - refill * pace * flow)
                for charge, flow in zip(charges, flows, strict=True)), default=0.0)  # fmt: skip
    return LimitRule(name, limit.kind, limit.amount, limit.period_s, limit.capacity,
                     needs, charges, refunds, flows, max(0.0, debt))  # fmt: skip


def least_factor(terms: Terms) -> float:
    """The smallest multiple of its first amount that any limit falls to."""
    return min((1.0, *(factor for _, factor in terms.changes)))


TICKS_MAX: Final = 20_000
"""A neighbour is followed for this many ticks; after that the supply counts it as gone."""

WINDOWS_MAX: Final = 20_000
"""A window's supply is followed for this many periods; what needs more is said to need these."""

SLACK: Final = 1e-9
"""Relative rounding slack, always to the side of a larger supply."""


class Season(Struct, frozen=True):
    """How much of every limit is ours, piece by piece: piece i lasts from times[i] to the next."""

    times: tuple[float, ...]
    factors: tuple[float, ...]
    """What the limits are multiplied by."""
    fairs: tuple[float, ...]
    """The share that a neighbour wants and is owed."""
    refills: tuple[float, ...]
    """Seconds of refill at the first rate that were ours by each time."""
    owed: tuple[float, ...]
    """The same for the neighbour."""

    def factor_max(self, from_s: float, to_s: float) -> float:
        """The largest factor in force between two times."""
        first = bisect_right(self.times, from_s) - 1
        return max(self.factors[first : max(first + 1, bisect_left(self.times, to_s))])

    def owed_by(self, now: float) -> float:
        place = bisect_right(self.times, now) - 1
        pace = self.factors[place] * self.fairs[place]
        return self.owed[place] + pace * (now - self.times[place])

    def refill_by(self, now: float) -> float:
        place = bisect_right(self.times, now) - 1
        pace = self.factors[place] * (1.0 - self.fairs[place])
        return self.refills[place] + pace * (now - self.times[place])


class Supply(Struct, frozen=True):
    """A rising curve: from times[i] on it is totals[i], growing with slopes[i]."""

    times: tuple[float, ...]
    totals: tuple[float, ...]
    slopes: tuple[float, ...]

    def by(self, now: float) -> float:
        """The most that can have been let through by `now`; nothing before the curve begins."""
        place = bisect_right(self.times, now) - 1
        if place < 0:
            return 0.0
        return self.totals[place] + self.slopes[place] * (now - self.times[place])

    def when(self, amount: float) -> float:
        """The least time by which `amount` can have been let through."""
        wanted = amount * (1.0 - SLACK)
        place = max(0, bisect_left(self.totals, wanted) - 1)
        if self.totals[place] >= wanted:
            return self.times[place]
        slope = self.slopes[place]
        reached = self.times[place] + (wanted - self.totals[place]) / slope if slope > 0 else inf
        following = self.times[place + 1] if place + 1 < len(self.times) else inf
        return min(reached, following)


def season_of(terms: Terms, enough_s: float) -> Season:
    """The season of an account, followed for at least `enough_s` where that needs steps."""
    factors = [(0.0, 1.0), *((max(0.0, at), factor) for at, factor in sorted(terms.changes))]
    fairs = _fairs(terms.neighbour, enough_s) if terms.neighbour else [(0.0, 0.0)]
    times: list[float] = []
    pieces: list[tuple[float, float]] = []
    for at in sorted({at for at, _ in factors + fairs}):
        piece = (_at(factors, at), _at(fairs, at))
        if not pieces or pieces[-1] != piece:
            times.append(at)
            pieces.append(piece)
    refills, owed = [0.0], [0.0]
    for place in range(1, len(times)):
        lasted = times[place] - times[place - 1]
        factor, fair = pieces[place - 1]
        refills.append(refills[-1] + factor * (1.0 - fair) * lasted)
        owed.append(owed[-1] + factor * fair * lasted)
    ours, theirs = zip(*pieces, strict=True)
    return Season(tuple(times), ours, theirs, tuple(refills), tuple(owed))


def supply_of(rule: LimitRule, season: Season, from_s: float, enough: float) -> Supply:
    """What a limit can let through from a time on, followed until it is `enough`.

    A bucket holds at most its capacity at `from_s`; from then on only the refill comes.
    """
    if rule.kind != "bucket":
        return _window_supply(rule, season, from_s, enough)
    room = rule.capacity * season.factor_max(from_s, from_s) + rule.debt
    begun = season.refill_by(from_s)
    first = bisect_right(season.times, from_s)
    times = (from_s, *season.times[first:])
    refills = (begun, *season.refills[first:])
    paces = [
        rule.rate_per_s * factor * (1.0 - fair)
        for factor, fair in zip(season.factors[first - 1 :], season.fairs[first - 1 :], strict=True)
    ]
    totals = tuple(room + rule.rate_per_s * (refill - begun) for refill in refills)
    return Supply(times, totals, tuple(paces))


def _at(steps: Sequence[tuple[float, float]], now: float) -> float:
    """The value in force at a time; of several that begin at once, the last."""
    return steps[bisect_right(steps, (now, inf)) - 1][1]


def _fairs(neighbour: Neighbour, enough_s: float) -> list[tuple[float, float]]:
    """What a neighbour is owed, tick by tick: a tick's wish is spread over the tick."""
    if neighbour.on_s == inf and neighbour.start_s <= 0:
        return [(0.0, min(neighbour.share, FAIR_SHARE))]
    ticks = min(TICKS_MAX, int(enough_s / neighbour.tick_s) + 1)
    fairs = [
        (tick * neighbour.tick_s, min(neighbour.wants(tick * neighbour.tick_s), FAIR_SHARE))
        for tick in range(ticks)
    ]
    return [*fairs, (ticks * neighbour.tick_s, 0.0)]


def _window_supply(rule: LimitRule, season: Season, from_s: float, enough: float) -> Supply:
    """One amount per window begun. In the last one the neighbour may not have come yet."""
    period = rule.period_s
    aligned = rule.kind == "fixed"
    begins = floor(from_s / period + SLACK) * period if aligned else from_s
    times: list[float] = []
    totals: list[float] = []
    spent = 0.0
    for place in range(WINDOWS_MAX):
        begin, end = begins + place * period, begins + (place + 1) * period
        amount = rule.amount * season.factor_max(begin, end) + rule.debt
        times.append(max(from_s, begin))
        totals.append(max(spent + amount, totals[-1] if totals else 0.0))
        if totals[-1] >= enough:
            break
        owed_s = 0.0 if rule.is_ceiling else season.owed_by(end) - season.owed_by(begin)
        spent += amount - rule.rate_per_s * owed_s
    totals[-1] = max(totals[-1], enough)
    return Supply(tuple(times), tuple(totals), (0.0,) * len(times))
