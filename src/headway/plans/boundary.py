"""The coherence boundary of a plan: what may run in parallel and what must not.

Three answers, from what a plan declares:
- strands: members that share nothing, and so are embarrassingly parallel;
- couplings: which task must come before which, and by what: a result, a path, a key, a queue;
- boundaries: sets of tasks that are coupled with each other and with no other. Inside of one the
  order counts; between them anything goes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, Literal

from msgspec import Struct

from headway.plans.accesses import ANYONE, StateTouched
from headway.plans.expand import GroupPlan, results_used
from headway.plans.hazards import Survey
from headway.plans.links import Edges, levels, reversed_edges
from headway.plans.spec import Prompt, Python, TaskSpec

# How many tasks of a plan can be active at once: the largest set of which none waits for another.

TRANSITIVE_GROUPS_MAX: Final = 200
"""Groups up to which chains over tasks between them are looked for."""


def breadth(sizes: Sequence[int], before: Sequence[int], direct: Edges) -> tuple[int, bool]:
    """The most tasks at once of groups of these sizes, and whether it is exact: it may be less.

    `before` has for each group all that come before it, as bits; `direct` those that it waits for
    itself. Tasks in one chain never run at once, so that the chains that cover all tasks are a
    bound; all tasks of one level can run at once, so that the bound is exact if a level reaches it.
    """
    after = reversed_edges(direct)
    spare, room = list(sizes), list(sizes)
    steps = [
        (one, other)
        for other, needs in enumerate(direct)
        for one in sorted(needs, key=lambda need: len(after[need]))
    ]
    if len(sizes) <= TRANSITIVE_GROUPS_MAX:
        groups = range(len(sizes))
        steps += [(one, n) for n, mask in enumerate(before) for one in groups if mask >> one & 1]
    for one, other in steps:
        amount = min(spare[one], room[other])
        spare[one] -= amount
        room[other] -= amount
    bound = sum(room)
    widest = max((sum(sizes[one] for one in level) for level in levels(direct, after)), default=0)
    return bound, bound == widest


By = Literal["result", "items", "order", "path", "key", "queue"]
"""Its result is used | it says who the members are | nothing gets over, but it comes first | a file
or folder | a key of the shared state | turns."""


class Strand(Struct, frozen=True):
    """Tasks of one item each, one after another; strands of different items share nothing."""

    groups: tuple[str, ...]
    """In order; usually one."""
    count: int | None
    """How many strands there are; `None` if that is found at run time."""
    is_proven: bool
    """They declare all that they touch, or are prompts, which touch nothing."""


class Coupling(Struct, frozen=True):
    """One group that must come before another, and why."""

    before: str
    after: str
    by: By
    what: str
    """The path, the key or the queue."""
    memberwise: bool
    """Each member before the same member of the other group only."""


class Boundary(Struct, frozen=True):
    """A plan, as far as coherence goes."""

    strands: tuple[Strand, ...]
    alone: tuple[str, ...]
    """Single tasks that share nothing with any other."""
    is_proven: bool
    """Those say all that they touch, or are prompts."""
    couplings: tuple[Coupling, ...]
    inside: tuple[tuple[tuple[str, ...], ...], ...]
    """Sets of groups that are coupled. Each is a row of stages: all of a stage is done before
    anything of the next one starts."""
    turns: tuple[str, ...]
    """Groups whose members run one at a time."""
    width: int
    """The most tasks that can be active at once without one seeing a half-done other."""
    is_exact: bool
    """If not, it may be less."""
    unknown: tuple[str, ...]
    """Groups whose members are found at run time; they count as one each."""


def boundary(survey: Survey) -> Boundary:
    """What may run beside what, in a plan that was ordered."""
    groups = survey.expanded.groups
    strands = _strands(survey)
    sizes = [1 if group.task.queue or group.count is None else group.count for group in groups]
    width, is_exact = breadth(sizes, survey.order.somehow, survey.order.direct)
    inside = _components(survey)
    coupled = {name for stages in inside for names in stages for name in names}
    striped = {name for strand in strands for name in strand.groups}
    alone = [
        group
        for group in groups
        if group.name not in coupled and group.name not in striped and not group.task.queue
    ]
    return Boundary(
        strands=strands,
        alone=tuple(group.name for group in alone),
        is_proven=all(_is_proven(group.task) for group in alone),
        couplings=tuple(_couplings(survey)),
        inside=inside,
        turns=tuple(group.name for group in groups if group.task.queue and group.count != 1),
        width=width,
        is_exact=is_exact,
        unknown=tuple(
            group.name for group in groups if group.count is None and not group.task.queue
        ),
    )


def _components(survey: Survey) -> tuple[tuple[tuple[str, ...], ...], ...]:
    direct = survey.order.direct
    root = list(range(len(direct)))

    def find(one: int) -> int:
        while root[one] != one:
            root[one] = root[root[one]]
            one = root[one]
        return one

    for one, needs in enumerate(direct):
        for need in needs:
            root[find(one)] = find(need)
    for one, other in _shared_keys(survey.state):
        root[find(one)] = find(other)
    sets: dict[int, list[int]] = {}
    for one in sorted(range(len(direct)), key=survey.order.position.__getitem__):
        sets.setdefault(find(one), []).append(one)
    return tuple(tuple(_stages(survey, some)) for some in sets.values() if len(some) > 1)


def _stages(survey: Survey, some: list[int]) -> Iterator[tuple[str, ...]]:
    """Groups in serial order, cut wherever all that is left comes after all that went before."""
    groups, entirely = survey.expanded.groups, survey.order.entirely
    shared = [-1] * (len(some) + 1)
    """Of those from each place on: who comes before all of them, as bits."""
    for place in range(len(some) - 1, -1, -1):
        shared[place] = shared[place + 1] & entirely[some[place]]
    stage: list[str] = []
    seen = 0
    for place, one in enumerate(some):
        stage.append(groups[one].name)
        seen |= 1 << one
        if not seen & ~shared[place + 1]:
            yield tuple(stage)
            stage = []


def _shared_keys(state: StateTouched) -> Iterator[tuple[int, int]]:
    """Groups that share the state in some way, in a row: nobody keeps those apart who say less."""
    keys = state.keys
    for prefix, writers in keys.writes.items():
        first = next(iter(writers))
        for is_write in (False, True):
            for groups in keys.overlapping(prefix, is_write):
                yield from ((first, other) for other in groups)
    free = {*state.readers, *state.writers}
    if free:
        named = (*keys.reads.values(), *keys.writes.values())
        yield from pairwise(sorted(free.union(*named)))


def _strands(survey: Survey) -> tuple[Strand, ...]:
    """Groups of several members that share nothing, those of the same items together."""
    groups = survey.expanded.groups
    loose = {group.index for group in groups if _is_loose(survey.state, group)}
    chains: dict[int, list[int]] = {}
    chain_of: dict[int, int] = {}
    for one in sorted(loose, key=survey.order.position.__getitem__):
        total = {edge.group for edge in groups[one].edges if not edge.memberwise}
        paced = {edge.group for edge in groups[one].edges if edge.memberwise} - total
        first = next((chain_of[need] for need in sorted(paced) if need in chain_of), one)
        # A member that waits for all of an earlier group of its strand is where strands meet.
        if first != one and total.intersection(chains[first]):
            first = one
        chain_of[one] = first
        chains.setdefault(first, []).append(one)
    return tuple(
        Strand(
            tuple(groups[one].name for one in chain),
            groups[first].count,
            all(_is_proven(groups[one].task) for one in chain),
        )
        for first, chain in chains.items()
    )


def _is_loose(state: StateTouched, group: GroupPlan) -> bool:
    """Whether members of a group share nothing that one of them changes."""
    index = group.index
    if group.count in (0, 1) or group.task.queue:
        return False
    reads, writes = state.keys.of_group(index)
    if index in state.readers and (writes or index in state.writers):
        return False
    if index in state.writers and reads:
        return False
    for what in writes:
        who = state.keys.writes[what][index]
        readers = state.keys.overlapping(what, False)
        if any(index in found and (found[index] != who or who == ANYONE) for found in readers):
            return False
    return True


def _is_proven(task: TaskSpec) -> bool:
    return task.says_all or isinstance(task.work, Prompt)


def _couplings(survey: Survey) -> Iterator[Coupling]:
    """Every edge and every turn, with what gets over it."""
    groups = survey.expanded.groups
    last: dict[str, GroupPlan] = {}
    for group in groups:
        used: frozenset[str] | None = None
        for edge in group.edges:
            if used is None:
                used = results_used(survey.expanded, group)
            before = groups[edge.group]
            by, what = _carried(survey, before, group, edge.key)
            if by == "order" and (before.name in used or isinstance(group.task.work, Python)):
                by = "result"
            yield Coupling(before.name, group.name, by, what, edge.memberwise)
        if queue := group.task.queue:
            if queue in last:
                yield Coupling(last[queue].name, group.name, "queue", queue, False)
            last[queue] = group


def _carried(survey: Survey, before: GroupPlan, after: GroupPlan, key: str) -> tuple[By, str]:
    """What gets from one group to another, as far as that can be seen without their texts."""
    if key == "each" and not before.task.is_group:
        return "items", ""
    if key == "reduce":
        return "result", ""
    path = survey.touched.common(before.index, after.index)
    if path is not None:
        return "path", path or "."
    found = survey.state.keys.common(before.index, after.index)
    return ("order", "") if found is None else ("key", found or "everything")
