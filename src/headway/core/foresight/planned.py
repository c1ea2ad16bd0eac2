"""A plan as an outline: what its tasks ask, how large their prompts are, who needs whom.

Prompts are written as far as they can be now; results of other tasks come into them as the answers
that are drawn. Of a group that is found at run time nobody knows the size: it is taken to be small,
and that is said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from headway.core.foresight.outline import Outline, Part
from headway.core.plan.expand import Expanded, GroupPlan
from headway.core.plan.fanin import Shape, shapes_of
from headway.core.plan.graph import Need
from headway.core.plan.spec import Prompt
from headway.core.plan.written import prompt_bytes, prompt_of
from headway.core.quota.demand import Price
from headway.core.quota.length import OUTPUT_TOKENS_PRIOR

UNKNOWN_MEMBERS: Final = 10
"""Members that a group of unknown size is taken to have."""

MAX_TOKENS: Final = 4096.0
"""The longest answer where a plan names none."""

PROMPTS_MAX: Final = 400
"""Prompts of a group that are written to be measured; of more, these are spread over all."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What an outline needs to know beside the plan."""

    price: Callable[[str], Price | None]
    """Of a model, as the plan names it."""
    seconds: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """By part, what its tasks took on this machine before."""
    answers: Mapping[str, float] = field(default_factory=dict)
    """By part, the tokens of a usual answer."""
    calls: Mapping[str, float] = field(default_factory=dict)
    """By part, calls of a task that is no prompt."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """By part, how many tasks there were when answers were learned."""


def outline_of(expanded: Expanded, facts: Facts) -> tuple[Outline, tuple[str, ...]]:
    """The outline of a plan, and what was assumed for it."""
    assumed: list[str] = []
    parts = [_part(expanded, group, facts) for group in expanded.groups]
    for group in expanded.groups:
        if group.count is None and group.leader == group.index:
            assumed.append(
                f"`{group.name}` is found at run time: it is taken to have {UNKNOWN_MEMBERS} tasks"
            )
    parts = [_with_before(parts, part, facts) for part in parts]
    for shape in shapes_of(expanded):
        _add_levels(parts, expanded, shape, facts)
    return Outline(in_order(parts)), tuple(assumed)


def in_order(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Every part after those that it needs, otherwise as they stand."""
    order: list[int] = []
    while len(order) < len(parts):
        order.append(
            next(
                place
                for place, part in enumerate(parts)
                if place not in order and all(need.group in order for need in part.needs)
            )
        )
    at = {place: new for new, place in enumerate(order)}
    return tuple(
        replace(
            parts[place],
            needs=tuple(replace(need, group=at[need.group]) for need in parts[place].needs),
            given=tuple(sorted(at[one] for one in parts[place].given)),
        )
        for place in order
    )


def _part(expanded: Expanded, group: GroupPlan, facts: Facts) -> Part:
    count = UNKNOWN_MEMBERS if group.count is None else group.count
    needs = tuple(Need(edge.group, block=int(edge.memberwise)) for edge in group.edges)
    seconds = tuple(facts.seconds.get(group.name, ()))
    work = group.task.work
    if not isinstance(work, Prompt) or group.task.is_command:
        calls = facts.calls.get(group.name, 0.0)
        model = expanded.spec.model if calls else ""
        return Part(
            group.name, count, needs, model, calls=calls, seconds=seconds,
            price=facts.price(model) if model else None,
        )  # fmt: skip
    model = work.model or expanded.spec.model
    sizes: tuple[float, ...] = (float(len(work.text.encode())),)
    refs: frozenset[str] = frozenset()
    if group.members is not None:
        chosen = range(0, count, max(1, count // PROMPTS_MAX))
        sizes = tuple(prompt_bytes(expanded, group, chosen))
        refs = prompt_of(expanded, group, 0)[1]
    names = {one.name: one.index for one in expanded.groups}
    given = {names[ref] for ref in refs if ref in names}
    given |= {edge.group for edge in group.edges if edge.key == "reduce"}
    return Part(
        group.name, count, needs, model, sizes, tuple(sorted(given)),
        max_tokens=float(work.max_tokens or MAX_TOKENS), seconds=seconds, price=facts.price(model),
    )  # fmt: skip


def _with_before(parts: Sequence[Part], part: Part, facts: Facts) -> Part:
    """A part whose sizes are known, with what other tasks' answers were of its inputs then."""
    if part.name not in facts.answers:
        return part
    before = 0.0
    for source in part.given:
        blocks = [need.block for need in part.needs if need.group == source]
        count = blocks[0] if blocks and blocks[0] else facts.counts.get(parts[source].name, 0)
        before += count * facts.answers.get(parts[source].name, 0.0)
    return replace(part, given_before=before)


def _add_levels(parts: list[Part], expanded: Expanded, shape: Shape, facts: Facts) -> None:
    """The inner calls of a reduction whose results do not fit one call, as parts of their own."""
    last, source = parts[shape.group], parts[shape.source]
    answer = facts.answers.get(source.name, min(OUTPUT_TOKENS_PRIOR, source.max_tokens))
    given, below = source.count * answer, shape.source
    is_found = expanded.groups[shape.source].count is None
    results = UNKNOWN_MEMBERS if is_found else source.count
    count_below = results
    for level, members in enumerate(shape.sizes(results), 1):
        if given <= members * shape.fit.share:
            continue
        block = -(-count_below // members)
        parts.append(
            Part(
                f"{last.name}/{level}", members, (Need(below, block=block),), last.model,
                last.sizes_bytes, (below,), max_tokens=float(shape.fit.answer), price=last.price,
            )
        )  # fmt: skip
        below, count_below = len(parts) - 1, members
        given = members * min(float(shape.fit.answer), answer * 2.0)
    if below == shape.source:
        return
    needs = (*(need for need in last.needs if need.group != shape.source), Need(below))
    given_parts = tuple(below if one == shape.source else one for one in last.given)
    parts[shape.group] = replace(last, needs=needs, given=given_parts)
