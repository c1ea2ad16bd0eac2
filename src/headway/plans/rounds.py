"""The rounds of tasks whose work another task judges: `revise: TASK`, unrolled into the graph.

Laws:
- A loop is the task that is judged, the one that judges it, and all that lie between. Each of them
  is one task for each round, `enrich@1`, `enrich@2`; the last round has the declared names.
- A round after one that was accepted does nothing: its tasks have the results of the round before.
- Rounds come in declared order, one after another, where the task that judges stands. Whatever else
  needs a task of the loop waits for its last round and for what is said of that: nothing is done
  for work that is sent back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from headway.errors import Fix, PlanShapeError, PlanTooLargeError
from headway.plans.expand import MEMBERS_MAX, ExpandedPlan, GroupPlan, NeedEdge, Round
from headway.plans.grammar import OF_REVISE
from headway.plans.links import reversed_edges, serial
from headway.plans.section import where

REASON_CHARS_MAX: Final = 16_000
"""Of what a task is given as a reason: it is an environment variable, and part of a prompt."""


class Loop(Struct, frozen=True):
    """The groups of a loop, in declared order, the one that judges last."""

    judge: int
    body: tuple[int, ...]
    last: int
    """How many rounds there are: the first one, and as many as may be sent back."""
    is_memberwise: bool
    """Whether each member is judged and sent back by itself."""


class Verdict(Struct, frozen=True):
    """What a task says of another one's work."""

    is_accepted: bool
    reason: str
    output: str
    """Its own result."""


def round_name(task: str, number: int, last: int) -> str:
    """`enrich@1`; of the last round as declared. No declared task has this sign in its name."""
    return task if number == last else f"{task}@{number}"


def loops_of(expanded: ExpandedPlan) -> tuple[Loop, ...]:
    """The loops of a plan. Raises PlanShapeError if two of them have a task in common."""
    groups = expanded.groups
    judges = [group for group in groups if group.task.revise is not None]
    if not judges:
        return ()
    index = {group.name: group.index for group in groups}
    edges = tuple(tuple(sorted({edge.group for edge in group.edges})) for group in groups)
    after = reversed_edges(edges)
    found: list[Loop] = []
    owners: dict[int, GroupPlan] = {}
    for judge in judges:
        revise = judge.task.revise
        assert revise is not None
        behind = _reached(index[revise.task], after)
        between = sorted(behind & _reached(judge.index, edges) - {judge.index})
        body = (*between, judge.index)
        for one in body:
            if (other := owners.setdefault(one, judge)) is not judge:
                raise _overlap(expanded, judge, other, groups[one].name)
        found.append(
            Loop(judge.index, body, revise.at_most + 1, _is_memberwise(groups, judge, body))
        )
    count = expanded.count + sum(
        (loop.last - 1) * (groups[one].count or 0) for loop in found for one in loop.body
    )
    if count > MEMBERS_MAX:
        judge = judges[-1]
        raise PlanTooLargeError(
            f"the plan has {count:,} tasks with all rounds of `revise`",
            where=where(expanded.spec.file, judge.task.spot("revise").key),
            hint=f"remove `revise` from `{judge.name}`: there can be {MEMBERS_MAX:,}",
            fixes=_without(judge),
        )
    return tuple(found)


def with_rounds(expanded: ExpandedPlan) -> ExpandedPlan:
    """The plan that is run: with a group for each round of each task of a loop."""
    loops = loops_of(expanded)
    if not loops:
        return expanded
    groups = expanded.groups
    loop_of = {one: loop for loop in loops for one in loop.body}
    ends = {loop.judge: loop for loop in loops}
    parts: list[tuple[int, int]] = []
    """Group and round, in declared order."""
    for index in range(len(groups)):
        parts.append((index, 1))
        if loop := ends.get(index):
            parts += ((one, n) for n in range(2, loop.last + 1) for one in loop.body)
    edges = [_edges(groups, loop_of, *part) for part in parts]
    place = {part: n for n, part in enumerate(parts)}
    # No task stands before one that it needs, so that a queue never waits for itself.
    needs = tuple(tuple(sorted({place[part] for part, _, _ in some})) for some in edges)
    order = serial(needs, reversed_edges(needs))
    place = {parts[n]: new for new, n in enumerate(order)}
    made: list[GroupPlan] = []
    for new, n in enumerate(order):
        index, number = parts[n]
        group, loop = groups[index], loop_of.get(index)
        group = replace(
            group,
            index=new,
            leader=place[group.leader, _leading(groups, loop_of, group, number)],
            edges=tuple(NeedEdge(place[part], one, key) for part, one, key in edges[n]),
        )
        if loop is not None:
            name = round_name(group.name, number, loop.last)
            part = _round(groups, loop, index, number)
            group = replace(group, task=replace(group.task, name=name), round=part)
        made.append(group)
    return replace(expanded, groups=tuple(made))


def verdict_of(body: bytes, field: str) -> Verdict | None:
    """What a result says of the work; None if it does not say it.

    Of a command without such a field, it is the verdict that was made of its exit code.
    """
    text = body.decode("utf-8", "replace")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not field:
        return Verdict(value["accepted"], value["reason"], value["output"])
    for name in field.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return Verdict(value, text, text) if isinstance(value, bool) else None


def verdict_body(verdict: Verdict) -> bytes:
    """What the next round is given of a command that judges by its exit code."""
    told = {"accepted": verdict.is_accepted, "reason": verdict.reason, "output": verdict.output}
    return json.dumps(told, ensure_ascii=False).encode("utf-8", "replace")


def reason_of(rejections: Sequence[tuple[str, str]]) -> str:
    """Why work is sent back; of several that judge it, each with its name."""
    if len(rejections) == 1:
        text = rejections[0][1]
    else:
        text = "\n\n".join(f"{name}:\n{reason}" for name, reason in rejections)
    text = text.strip().replace("\0", " ")
    if len(text) <= REASON_CHARS_MAX:
        return text
    return f"{text[:REASON_CHARS_MAX]}\n({len(text) - REASON_CHARS_MAX:,} characters more)"


Part = tuple[tuple[int, int], bool, str]
"""An edge of a part: group and round that it needs, whether member by member, and why."""


def _edges(
    groups: Sequence[GroupPlan], loop_of: Mapping[int, Loop], index: int, number: int
) -> list[Part]:
    group, loop = groups[index], loop_of.get(index)
    found: list[Part] = []
    for edge in group.edges:
        other = loop_of.get(edge.group)
        round_needed = 1 if other is None else number if other is loop else other.last
        found.append(((edge.group, round_needed), edge.memberwise, edge.key))
        if other is not None and other is not loop and edge.group != other.judge:
            is_own = edge.memberwise and other.is_memberwise
            found.append(((other.judge, other.last), is_own, "revise"))
    if loop is not None and number > 1:
        found.append(((loop.judge, number - 1), loop.is_memberwise, "revise"))
        if index != loop.judge:
            is_own = group.task.is_group and not _is_found_within(groups, loop, group)
            found.append(((index, number - 1), is_own, "revise"))
    named = {one[:2] for one in found if one[2] != "revise"}
    more = [one for one in dict.fromkeys(found) if one[2] == "revise" and one[:2] not in named]
    # What is declared stands first: by it a task is given results.
    return [one for one in found if one[2] != "revise"] + more


def _leading(
    groups: Sequence[GroupPlan], loop_of: Mapping[int, Loop], group: GroupPlan, number: int
) -> int:
    """The round of the group whose members a group has: the first, unless each round finds its
    own."""
    loop = loop_of.get(group.leader)
    if loop is None or not _is_found_within(groups, loop, groups[group.leader]):
        return 1
    return number if loop_of.get(group.index) is loop else loop.last


def _is_found_within(groups: Sequence[GroupPlan], loop: Loop, group: GroupPlan) -> bool:
    """Whether its members are found in a result of the same loop: they differ from round to
    round."""
    each = groups[group.leader].task.each
    return (
        each is not None
        and each.kind == "task"
        and any(groups[one].name == each.source for one in loop.body if one != group.leader)
    )


def _is_memberwise(groups: Sequence[GroupPlan], judge: GroupPlan, body: Sequence[int]) -> bool:
    edges = [edge for one in body for edge in groups[one].edges if edge.group in body]
    has_members = all(groups[one].leader == judge.leader for one in body)
    return judge.task.is_group and has_members and all(edge.memberwise for edge in edges)


def _round(groups: Sequence[GroupPlan], loop: Loop, index: int, number: int) -> Round:
    revise = groups[loop.judge].task.revise
    assert revise is not None
    name = groups[index].name
    before = number - 1
    return Round(
        number,
        loop.last,
        name,
        revise,
        is_judge=index == loop.judge,
        is_judged=name == revise.task,
        own=round_name(name, before, loop.last),
        judge=round_name(groups[loop.judge].name, before, loop.last),
    )


def _reached(start: int, edges: Sequence[Sequence[int]]) -> set[int]:
    reached, waiting = {start}, [start]
    while waiting:
        for other in edges[waiting.pop()]:
            if other not in reached:
                reached.add(other)
                waiting.append(other)
    return reached


def _overlap(
    expanded: ExpandedPlan, judge: GroupPlan, other: GroupPlan, shared: str
) -> PlanShapeError:
    return PlanShapeError(
        f"`{judge.name}` and `{other.name}` would both send back `{shared}`",
        where=where(expanded.spec.file, judge.task.spot("revise").key),
        detail="a task is judged by one other: what lies between a task and the one that judges it "
        "runs again with it",
        hint=f"remove `revise` from `{judge.name}`, or let one task judge both",
        fixes=_without(judge),
    )


def _without(judge: GroupPlan) -> tuple[Fix, ...]:
    """The edits that take a loop away."""
    spots = judge.task.spots
    return tuple(Fix("remove", spots[key].key) for key in OF_REVISE if key in spots)
