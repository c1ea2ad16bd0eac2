"""The calls of a graph laid flat: their lengths alone, their order, and what each limit sees.

Both halves of the bound read the same records, the relaxations and the exact search, so that
neither can misread the provider's charging rule in its own way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from headway.core.foresight.account import Needs, Terms
from headway.core.foresight.neighbour import FAIR_SHARE
from headway.core.foresight.provider import Call, Latency, ProviderSpec
from headway.core.values import Limit, LimitKind, Resource

FIRST_TOKEN: Final = 1.0
"""Where output is charged as it is produced, a call is let in if one token of it is left."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Calls in one list. A head is the least time before a call starts, a down after it ended."""

    calls: tuple[Call, ...]
    durations: tuple[float, ...]
    first_bytes: tuple[float, ...]
    heads: tuple[float, ...]
    downs: tuple[float, ...]
    tails: tuple[float, ...]
    """The least time from a call's start to the end of everything."""
    before: tuple[frozenset[int], ...]
    """The calls that must have ended, without those that follow from them."""

    @property
    def critical_path_s(self) -> float:
        """The longest chain of calls, each alone at the provider."""
        ends = (head + tail for head, tail in zip(self.heads, self.tails, strict=True))
        return max(ends, default=0.0)


@dataclass(frozen=True, slots=True)
class Rule:
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
    debt: float = 0.0
    """How far the call that needs most goes below zero even if it comes alone to a full limit."""
    is_ceiling: bool = False
    """A ceiling counts our own calls only: a neighbour's do not matter to it."""

    @property
    def rate_per_s(self) -> float:
        return self.amount / self.period_s


def lay_out(
    latency: Latency, tasks: Sequence[Sequence[Call]], needs: Sequence[Sequence[int]]
) -> Layout:
    """Lay the calls of all tasks flat. `needs` must have no cycle."""
    alone = latency.slowdown(1)
    lengths = [[alone * _work_s(latency, call) for call in calls] for calls in tasks]
    order = _in_order(needs)
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
        tuple(alone * latency.first_byte_s * call.luck for call in calls),
        tuple(heads),
        tuple(downs),
        tuple(own + down for own, down in zip(durations, downs, strict=True)),
        _before(tasks, needs, order),
    )


def rules_of(spec: ProviderSpec, calls: Sequence[Call], share: float) -> list[Rule]:
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


def _work_s(latency: Latency, call: Call) -> float:
    return latency.first_byte_s * call.luck + latency.per_output_token_s * call.output_tokens


def _in_order(needs: Sequence[Sequence[int]]) -> list[int]:
    """Tasks, each after those that it needs."""
    missing = [len(set(of)) for of in needs]
    users: list[list[int]] = [[] for _ in needs]
    for task, of in enumerate(needs):
        for need in set(of):
            users[need].append(task)
    order = [task for task, count in enumerate(missing) if count == 0]
    for task in order:
        for user in users[task]:
            missing[user] -= 1
            if missing[user] == 0:
                order.append(user)
    return order


def _before(
    tasks: Sequence[Sequence[Call]], needs: Sequence[Sequence[int]], order: Sequence[int]
) -> tuple[frozenset[int], ...]:
    """Direct predecessors of each call; a task without calls passes on those of its needs."""
    first = [0]
    for calls in tasks:
        first.append(first[-1] + len(calls))
    lasts: list[frozenset[int]] = [frozenset()] * len(tasks)
    before: list[frozenset[int]] = [frozenset()] * first[-1]
    for task in order:
        entry = frozenset[int]().union(*(lasts[need] for need in needs[task]))
        for place in range(first[task], first[task + 1]):
            before[place] = entry
            entry = frozenset((place,))
        lasts[task] = entry
    return tuple(before)


def _rule(spec: ProviderSpec, limit: Limit, calls: Sequence[Call], name: str) -> Rule:
    reserved = spec.terms.charging != "produced"
    counts_output = limit.resource in ("output", "tokens")
    flowing = counts_output and not reserved
    room = limit.capacity * least_factor(spec.terms)
    first_token = FIRST_TOKEN if flowing else 0.0
    charges = tuple(_taken(call, limit.resource, reserved) for call in calls)
    needs = tuple(min(charge + first_token, room) for charge in charges)
    nothing = (0.0,) * len(calls)
    refunds = flows = nothing
    if flowing and spec.latency.per_output_token_s > 0:
        flows = tuple(call.output_tokens for call in calls)
    elif counts_output and spec.terms.charging != "kept":
        refunds = tuple(max(0.0, call.max_tokens - call.output_tokens) for call in calls)
    elif limit.kind != "bucket":
        # A window forgets an oversized charge as a whole: it counts as one that fills the window.
        charges = needs
    rule = Rule(name, limit.kind, limit.amount, limit.period_s, limit.capacity,
                needs, charges, refunds, flows)  # fmt: skip
    return replace(rule, debt=_debt(rule, spec, room))


def _taken(call: Call, resource: Resource, reserved: bool) -> float:
    """What a call is charged at admission."""
    output = call.max_tokens if reserved else 0.0
    return Needs(call.input_tokens, output, call.spend_microusd).of(resource)


def _debt(rule: Rule, spec: ProviderSpec, room: float) -> float:
    """The deepest debt that a call cannot avoid even alone: no schedule is free of it."""
    refill = rule.rate_per_s * least_factor(spec.terms) if rule.kind == "bucket" else 0.0
    if spec.terms.neighbour is not None:
        refill *= 1.0 - FAIR_SHARE
    pace = spec.latency.per_output_token_s * spec.latency.slowdown(1)
    deepest = 0.0
    for charge, flow in zip(rule.charges, rule.flows, strict=True):
        deepest = max(deepest, charge - room, charge + flow - room - refill * pace * flow)
    return deepest


def least_factor(terms: Terms) -> float:
    """The smallest multiple of its first amount that any limit falls to."""
    return min((1.0, *(factor for _, factor in terms.changes)))
