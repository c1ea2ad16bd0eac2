"""A plan as it is tried: a few members of every group, and a hash for every answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from headway.core.digest import digest
from headway.core.engine.channels import Channels, canonical
from headway.core.foresight.oracle import HASH_CHARS, HashedStage, Play
from headway.core.foresight.trial import Cast
from headway.core.plan.expand import Expanded, Members, graph_of
from headway.core.plan.sharing import channels_of

MEMBERS_MAX: Final = 3
"""Members of a group that are tried: two meet each other, and a third shows whether it matters."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A plan to be tried."""

    expanded: Expanded
    cast: Cast
    play: Play
    original: Mapping[int, int] = field(default_factory=dict)
    """By group, how many members it has in the plan."""
    is_slow: bool = False
    """Whether functions are really called."""


def subject_of(expanded: Expanded, members_max: int = MEMBERS_MAX) -> Subject:
    """A plan whose tasks are not performed: they answer with a hash of what they are given."""
    original = {
        group.index: group.members.count for group in expanded.groups if group.members is not None
    }
    expanded = cropped(expanded, members_max)
    play = Play.of(expanded)
    channels = channels_of(expanded.spec)
    cast = Cast(
        graph_of(expanded),
        lambda: HashedStage(play),
        Channels(channels.declared, dict.fromkeys(channels.reducers, joined)),
        spread=spread_of(expanded),
    )
    return Subject(expanded, cast, play, original)


def cropped(expanded: Expanded, members_max: int) -> Expanded:
    """The plan with so many members of every group at most, if their items are known."""
    groups = tuple(
        group
        if group.members is None
        else replace(group, members=_some(group.members, members_max))
        for group in expanded.groups
    )
    return replace(expanded, groups=groups)


def _some(members: Members, most: int) -> Members:
    if members.count <= most:
        return members
    if members.items is None:
        matrix = members.matrix
    else:
        matrix = tuple((name, values[:1]) for name, values in members.matrix)
        return Members.of(members.items[:most], matrix)
    (name, values), *others = matrix
    return Members.of(None, ((name, values[:most]), *((one, few[:1]) for one, few in others)))


def spread_of(expanded: Expanded) -> dict[int, tuple[int, ...]]:
    """Of groups whose result tells the members of others: those."""
    index = {group.name: group.index for group in expanded.groups}
    spread: dict[int, tuple[int, ...]] = {}
    for group in expanded.groups:
        each = group.task.each
        if group.members is None and group.leader == group.index and each is not None:
            source = index[each.source]
            spread[source] = (*spread.get(source, ()), group.index)
    return spread


def joined(one: object, other: object) -> object:
    """What stands for the user's function that combines two values: their order matters."""
    return digest(canonical([one, other])).hex()[:HASH_CHARS]
