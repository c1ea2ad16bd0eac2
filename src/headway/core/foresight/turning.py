"""Turns pairs of tasks around, one after another, and judges what came of it.

Laws:
- A difference is told of the pair that makes it: of two tasks that touch something of each other's,
  or that are code which nobody can look into, and not of those whom the second one passed too.
- What was declared first is A: the fix that is offered keeps that order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import comb
from typing import TYPE_CHECKING, Final, Literal

from headway.core.foresight.pairs import (
    Node,
    PairOf,
    edge_between,
    every_pair,
    pairs_of,
    sharing_pairs,
)
from headway.core.foresight.played import Difference
from headway.core.foresight.schedules import Line, Way, written
from headway.core.foresight.stage import PROCESS, Touch, overlap

if TYPE_CHECKING:
    from headway.core.foresight.explore import Explorer

PAIRS_MAX: Final = 2_000
"""Pairs that are really turned around; of more, those that share something."""
WAYS: Final = 4
"""Schedules for one pair, about."""
INNER_MAX: Final = 6
"""Places within a task's steps at which the other one of a pair runs."""

Verdict = Literal["blocked", "commutes", "re-ran", "differs", "untried"]


@dataclass(frozen=True, slots=True)
class PairVerdict:
    """What happens if the second task of a pair runs before the first one completes."""

    first: str
    second: str
    verdict: Verdict
    count: int = 1
    """Pairs of members that this one stands for."""
    edge: str = ""
    """Why it cannot happen."""
    reran: int = 0
    """Attempts that were done again."""
    shares: tuple[str, ...] = ()
    """What both touch and one of them changes."""
    difference: Difference | None = None
    replay: str = ""
    fix: str = ""
    """What to add to the plan so that the order is always the declared one."""
    other_fix: str = ""
    """The same for the other order, where the first task reads what the second one writes."""


def turned_pairs(explorer: Explorer) -> Iterator[PairVerdict]:
    """Every pair, turned around; of very many, those that share something."""
    expanded, serial = explorer.subject.expanded, explorer.serial
    order = sorted(range(len(expanded.groups)), key=explorer.places.group)
    groups = every_pair(order)
    if comb(len(order) + 1, 2) > PAIRS_MAX:
        sharing = sharing_pairs(order, _touched_by_group(explorer))
        explorer.apart = comb(len(order) + 1, 2) - len(sharing)
        groups = iter(sharing)
    every = list(pairs_of(expanded, groups, serial.counts, explorer.subject.original))
    most, tried = explorer.most(PAIRS_MAX, WAYS), 0
    for number, pair in enumerate(every):
        explorer.tell("pairs", number, len(every))
        first, second = (explorer.places.task(*node) for node in (pair.first, pair.second))
        known = PairVerdict(serial.labels[first], serial.labels[second], "untried", pair.count)
        edge = edge_between(expanded, explorer.subject.cast.graph, pair.first, pair.second)
        if edge:
            yield replace(known, verdict="blocked", edge=edge)
        elif tried < most:
            tried += 1
            yield _turned(explorer, pair, (first, second), known)
        else:
            yield known


def _touched_by_group(explorer: Explorer) -> dict[int, list[Touch]]:
    touched: dict[int, list[Touch]] = {}
    for place, touch in explorer.serial.trace:
        if touch.kind != "task":
            touched.setdefault(explorer.places.who(place)[0], []).append(touch)
    return touched


def _turned(
    explorer: Explorer, pair: PairOf, both: tuple[int, int], known: PairVerdict
) -> PairVerdict:
    """What comes of it if the second one runs before the first one completes."""
    reran = 0
    for way, steps in _ways(explorer, both):
        line = Line("pair", both, way, steps)
        played = explorer.player.play(line, is_traced=True)
        changed = explorer.difference(played)
        late = replace(line, is_late=True)
        if played.reran and both[::-1] not in played.reran:
            # Others made it run again, whom it has passed too.
            played = explorer.player.play(late, is_traced=True)
        reran = max(reran, played.reran.get((both[1], both[0]), 0))
        if changed is None:
            continue
        shared = shared_by(played.touches(both[0]), played.touches(both[1]))
        if not shared and not hidden_by(played.touches(both[0]), played.touches(both[1])):
            continue  # The second one has passed others too, and it was one of them.
        if not shared or changed.where not in (known.first, known.second):
            again = explorer.difference(explorer.player.play(late))
            if again is None:
                continue
            line, changed = late, again
        return replace(
            known, verdict="differs", reran=reran, difference=changed, shares=shared,
            replay=written(line, explorer.places), fix=_fix(explorer, pair.first, pair.second),
            other_fix=_other_fix(explorer, pair, played.touches(both[0]), played.touches(both[1])),
        )  # fmt: skip
    return replace(known, verdict="re-ran" if reran else "commutes", reran=reran)


def _ways(explorer: Explorer, both: tuple[int, int]) -> Iterator[tuple[Way, int]]:
    """Before it, within it, and around it, at each of its steps."""
    yield "before", 1
    first, second = (explorer.serial.path.count(one) for one in both)
    for steps in range(1, min(first, INNER_MAX)):
        yield "inside", steps
    for steps in range(1, min(second, INNER_MAX)):
        yield "around", steps


def _fix(explorer: Explorer, first: Node, second: Node) -> str:
    """What to add to the plan, as it is written there."""
    groups = explorer.subject.expanded.groups
    task, needed = groups[second[0]].task, groups[first[0]].name
    if first[0] == second[0]:
        return f"{task.name}:\n  queue: {task.name}"
    needs = ", ".join((*task.needs, needed))
    return f"{task.name}:\n  needs: {f'[{needs}]' if task.needs else needs}"


def _other_fix(explorer: Explorer, pair: PairOf, first: list[Touch], second: list[Touch]) -> str:
    """Perhaps the first one was to see what the second one does."""
    reads = [touch for touch in first if touch.kind != PROCESS and not touch.is_write]
    writes = [touch for touch in first if touch.kind != PROCESS and touch.is_write]
    is_reader = overlap(reads, second) and not overlap(writes, second)
    is_other = pair.first[0] != pair.second[0]
    return _fix(explorer, pair.second, pair.first) if is_reader and is_other else ""


def shared_by(first: list[Touch], second: list[Touch]) -> tuple[str, ...]:
    """What two tasks both touch and one of them changes, in words."""
    known = [touch for touch in first if touch.kind != PROCESS]
    found = overlap(known, second)
    return tuple(dict.fromkeys(f"{one.kind} `{one.what}`" for one in found))


def hidden_by(first: list[Touch], second: list[Touch]) -> bool:
    """Whether both are code that may share what nobody sees."""
    return all(any(touch.kind == PROCESS for touch in one) for one in (first, second))
