"""Schedules of steps for `explore`, each with a text that reproduces it.

    serial                    one task after another, as declared
    steps:0.0.2-1             these tasks, by number (2-1 is the second member of the third), then
                              serially
    pair:a=0:b=2:before       B runs before A starts
    pair:a=0:b=2:inside=1     A takes so many steps, then B runs, then A goes on
    pair:a=0:b=2:around=1     B takes so many steps, then A runs, then B goes on
    pair:...:late             the same, but A waits for all before B, and B passes no other
    random:seed=7             any task that can take one
    pct:seed=7:d=3            by priorities drawn at first, which change at d - 1 steps
    ...:crash=4               the same, killed after so many durable facts, and resumed

Law: a schedule chooses among those who can take a step; the same text chooses the same again.

PCT (Burckhardt et al., ASPLOS 2010) finds, of n tasks and k steps, an error that d orderings make
with a probability of at least 1 / (n k^(d-1)).
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, Literal

from msgspec import Struct, convert

from headway.errors import UsageError
from headway.plans.expand import ExpandedPlan
from headway.plans.graph import Graph
from headway.plans.resources import above
from headway.report.stage import TrialTouch, overlap
from headway.report.trial import Trial, TrialCast, copied
from headway.sim.draw import uniform
from headway.state.coherence import TaskPositions

# Pairs of tasks to be turned around: A is declared before B, and B is to run before A completes.

ALL: Final = -1

SHARING_MAX: Final = 100_000
"""Pairs of groups that are looked at, in a plan in which everything touches everything."""

Node = tuple[int, int]
"""A group and a member of it, or all."""

PairOf = tuple[Node, Node, int]
"""Two tasks, and how many pairs they stand for."""


def pairs_of(
    expanded: ExpandedPlan, groups: Iterable[tuple[int, int]], counts: Mapping[int, int],
    original: Mapping[int, int],
) -> Iterator[PairOf]:  # fmt: skip
    """Pairs of tasks for pairs of groups; `original` are the sizes that stand in the plan."""
    leader = [group.leader for group in expanded.groups]
    for one, other in groups:
        size, last = counts.get(one, 0), counts.get(other, 0) - 1
        whole = original.get(one, size)
        pairs = whole * original.get(other, last + 1)
        if one == other:
            if size > 1:
                yield ((one, last - 1), (one, last), whole * (whole - 1) // 2)
        elif leader[one] == leader[other] and size > 1:
            yield ((one, last), (other, last), whole)
            yield ((one, last), (other, 0), pairs - whole)
        elif size and last >= 0:
            yield ((one, size - 1), (other, last), pairs)


def sharing_pairs(
    order: Sequence[int], touched: Mapping[int, Iterable[TrialTouch]]
) -> list[tuple[int, int]]:
    """Pairs of groups that may touch something of each other's, in serial order."""
    at: dict[tuple[str, str], dict[int, bool]] = {}
    for group, touches in touched.items():
        for touch in touches:
            groups = at.setdefault((touch.kind, touch.what), {})
            groups[group] = groups.get(group, False) or touch.is_write
    place = {group: number for number, group in enumerate(order)}
    found: set[tuple[int, int]] = set()
    for (kind, what), groups in at.items():
        for around in (what, *above(what)):
            for one, is_write in groups.items():
                for other, is_other in at.get((kind, around), {}).items():
                    if is_write or is_other:
                        found.add((one, other) if place[one] <= place[other] else (other, one))
        if len(found) > SHARING_MAX:
            break
    return sorted(found, key=lambda pair: (place[pair[0]], place[pair[1]]))


def before(graph: Graph, node: Node) -> dict[Node, Node]:
    """All that ends before a task starts, in any case; each with the one because of whom."""
    reached: dict[Node, Node] = {}
    todo = [node]
    for one in todo:
        for other in _needs(graph, one):
            if other not in reached and other != one:
                reached[other] = one
                todo.append(other)
    return reached


def _needs(graph: Graph, node: Node) -> Iterator[Node]:
    group, member = node
    for other in graph.needs[group]:
        is_one = other in graph.memberwise[group]
        yield other, member if is_one else ALL
    queue = graph.queues.get(graph.groups[group].queue, ())
    for other in queue[: queue.index(group)] if queue else ():
        yield other, ALL
    if queue and member != ALL:
        yield from ((group, earlier) for earlier in range(member))


def ancestors(
    graph: Graph, places: TaskPositions, place: int, counts: Mapping[int, int]
) -> frozenset[int]:
    found: set[int] = set()
    for group, member in before(graph, places.who(place)):
        members = range(counts.get(group, 0)) if member == ALL else (member,)
        found.update(places.task(group, one) for one in members)
    return frozenset(found)


def edge_between(expanded: ExpandedPlan, graph: Graph, first: Node, second: Node) -> str:
    """Why the second of two tasks cannot start before the first one has ended; empty if it can."""
    reached = before(graph, second)
    node = first if first in reached else (first[0], ALL)
    if node not in reached:
        return ""
    steps = [node]
    while steps[-1] != second:
        steps.append(reached[steps[-1]])
    words = [_word(expanded, graph, later[0], earlier[0]) for earlier, later in pairwise(steps)]
    return ", ".join(reversed(words))


def _word(expanded: ExpandedPlan, graph: Graph, later: int, earlier: int) -> str:
    names = graph.groups[later].name, graph.groups[earlier].name
    keys = [edge.key for edge in expanded.groups[later].edges if edge.group == earlier]
    if not keys:
        return f"`{names[0]}` is behind `{names[1]}` in queue `{graph.groups[later].queue}`"
    key = next((one for one in keys if one != "reads"), "reads")
    verb = {"needs": "needs", "each": "has a member for each of", "reduce": "reduces",
            "reads": "reads what is written by"}[key]  # fmt: skip
    return f"`{names[0]}` {verb} `{names[1]}`"


STEPS_TEXT_MAX: Final = 100_000
DEPTH_MAX: Final = 100

HINT: Final = "copy the whole text between the quotes: pct:seed=7:d=3, random:seed=7, steps:0.0.1"

Way = Literal["before", "inside", "around"]
ScheduleKind = Literal["serial", "steps", "random", "pct", "pair"]

_TASK: Final = r"\d{1,9}(?:-\d{1,9})?"
_FORMS: Final[dict[ScheduleKind, str]] = {
    "serial": "serial",
    "steps": rf"steps:(?P<tasks>{_TASK}(?:\.{_TASK})*)",
    "random": r"random:seed=(?P<seed>\d{1,18})",
    "pct": r"pct:seed=(?P<seed>\d{1,18}):d=(?P<depth>\d{1,18})",
    "pair": (
        rf"pair:a=(?P<a>{_TASK}):b=(?P<b>{_TASK})"
        r":(?P<way>before|inside|around)(?:=(?P<steps>\d{1,18}))?(?P<late>:late)?"
    ),
}
_CRASH: Final = r"(?::crash=(?P<crash>\d{1,18}))?"


Schedule = Callable[[Sequence[int], int], int]
"""Chooses one of the places that can take a step, in serial order; so many steps were taken."""


def serial_schedule(ready: Sequence[int], number: int) -> int:  # noqa: ARG001
    return ready[0]


def steps_schedule(places: tuple[int, ...]) -> Schedule:

    def choose(ready: Sequence[int], number: int) -> int:
        if number >= len(places):
            return ready[0]
        if places[number] not in ready:
            raise UsageError(
                f"step {number + 1} of the schedule cannot be taken: it is of another plan",
                hint=HINT,
            )
        return places[number]

    return choose


def random_schedule(seed: int) -> Schedule:
    return lambda ready, number: ready[int(uniform(seed, 1, number) * len(ready))]


def pct_schedule(seed: int, depth: int, length: int) -> Schedule:
    """By priorities; at depth - 1 of so many steps, the first task becomes the last."""
    changes = [int(uniform(seed, 2, one) * length) for one in range(min(depth, DEPTH_MAX) - 1)]
    lowered: dict[int, int] = {}

    def priority(place: int) -> float:
        return -float(lowered[place]) if place in lowered else uniform(seed, 3, place)

    def choose(ready: Sequence[int], number: int) -> int:
        for _ in range(changes.count(number)):
            lowered[max(ready, key=priority)] = len(lowered) + 1
        return max(ready, key=priority)

    return choose


class ScheduleText(Struct, frozen=True):
    """A schedule as text, read."""

    kind: ScheduleKind
    places: tuple[int, ...] = ()
    way: Way = "before"
    steps: int = 1
    is_late: bool = False
    seed: int = 0
    depth: int = 3
    crash: int = 0


def pair_schedule(line: ScheduleText, ancestors: tuple[frozenset[int], frozenset[int]]) -> Schedule:
    """B runs, and ends if it can, before A completes; `ancestors` come before A and before B.

    The one task gets on until it has taken its steps, then the other one to its end.
    """
    last = int(line.way != "around")
    phase, taken = int(line.way == "before"), 0

    def towards(which: int, ready: Sequence[int]) -> int | None:
        """The task itself, or one that it waits for; None if it cannot go on without others."""
        target, held = line.places[which], line.places[1 - which]
        if line.is_late:  # All others keep their places in the serial run.
            return next((one for one in ready if one <= target and one != held), None)
        if target in ready:
            return target
        return next((one for one in ready if one in ancestors[which] and one != held), None)

    def choose(ready: Sequence[int], number: int) -> int:  # noqa: ARG001
        nonlocal phase, taken
        if phase == 0:
            found = towards(1 - last, ready)
            if found == line.places[1 - last]:
                taken += 1
                phase = int(taken >= line.steps)
            if found is not None:
                return found
        if phase < 2:
            phase = 1
            found = towards(last, ready)
            if found is not None:
                return found
        phase = 2
        return ready[0]

    return choose


def read_line(text: str, places: TaskPositions) -> ScheduleText:
    """The schedule that a text stands for; UsageError if it is none."""
    for kind, form in _FORMS.items():
        found = re.fullmatch(form + _CRASH, text.strip()) if len(text) <= STEPS_TEXT_MAX else None
        if found is not None:
            named = {name: value for name, value in found.groupdict().items() if value}
            names = ".".join(named.pop(name) for name in ("tasks", "a", "b") if name in named)
            tasks = [one.partition("-")[::2] for one in names.split(".") if one]
            if all(int(group) < len(places) for group, _ in tasks):
                chosen = tuple(places.task(int(group), int(one or 0)) for group, one in tasks)
                is_late = named.pop("late", "") != ""
                fields = {"kind": kind, "places": chosen, "is_late": is_late, **named}
                return convert(fields, ScheduleText, strict=False)
    raise UsageError(f"`{text:.80}` is no schedule of this plan", hint=HINT)


def written(line: ScheduleText, places: TaskPositions) -> str:
    match line.kind:
        case "steps":
            text = f"steps:{'.'.join(name_of(one, places) for one in line.places)}"
        case "random":
            text = f"random:seed={line.seed}"
        case "pct":
            text = f"pct:seed={line.seed}:d={line.depth}"
        case "pair":
            first, second = (name_of(one, places) for one in line.places)
            way = line.way if line.way == "before" else f"{line.way}={line.steps}"
            text = f"pair:a={first}:b={second}:{way}{':late' if line.is_late else ''}"
        case _:
            text = line.kind
    return f"{text}:crash={line.crash}" if line.crash else text


def name_of(place: int, places: TaskPositions) -> str:
    """A task in a schedule's text: the number of its group, and of its member if not the first."""
    group, member = places.who(place)
    return f"{group}-{member}" if member else str(group)


# Every order in which tasks can take their steps, or one of each kind.

Footprint = list[TrialTouch]

COPIES_COLLECTED: Final = 500_000
"""Objects after which the collector looks once all the same."""


class _Fork(Struct):
    """A point where orders part."""

    path: list[int]
    frozen: Trial | None
    rest: list[int]
    """Who is still to go first from here, the next one last."""
    slept: dict[int, Footprint]
    """Who need not: what he would do from here was done from here, or before."""


def interleavings(cast: TrialCast, is_reduced: bool = False) -> Iterator[Trial]:
    """A trial for every order of one plan. It is closed when the next one is taken."""
    # Copies are many and refer to nothing that refers to them: a collector looks at them in vain,
    # which is a fifth of the time.
    threshold = gc.get_threshold()
    gc.set_threshold(COPIES_COLLECTED if cast.is_copied else threshold[0], *threshold[1:])
    try:
        trial = Trial(cast).open()
        forks: list[_Fork] = []
        slept: dict[int, Footprint] = {}
        while True:
            while not trial.is_over:
                choices = [place for place in trial.ready if place not in slept]
                if not choices:
                    break  # Everything that could follow was seen before in another order.
                if len(choices) > 1:
                    frozen = copied(trial) if cast.is_copied else None
                    forks.append(_Fork(trial.path[:], frozen, choices[:0:-1], slept))
                slept = _step(trial, choices[0], slept, is_reduced)
            else:
                yield trial
            trial.close()
            while forks and not forks[-1].rest:
                forks.pop()
            if not forks:
                return
            fork = forks[-1]
            place = fork.rest.pop()
            if fork.frozen is None:
                trial = Trial(cast).open()
                for earlier in fork.path:
                    trial.take(earlier)
            else:
                trial = copied(fork.frozen) if fork.rest else fork.frozen  # The last needs no copy.
            slept = _step(trial, place, fork.slept, is_reduced)
    finally:
        gc.set_threshold(*threshold)


def _step(
    trial: Trial, place: int, slept: dict[int, Footprint], is_reduced: bool
) -> dict[int, Footprint]:
    """Take a step; the tasks that sleep after it. The one that took it sleeps at the fork."""
    if not is_reduced:
        trial.take(place)
        return slept
    trial.trace = []
    trial.take(place)
    footprint = [touch for _, touch in trial.trace]
    after = {other: theirs for other, theirs in slept.items() if not overlap(footprint, theirs)}
    slept[place] = footprint
    return after
