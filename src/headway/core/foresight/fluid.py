"""How long work takes if calls were a fluid: the model that names what binds, and costs nothing.

    T(n) = max{ critical path, W s(n) / n, (D - B) / rate of each limit + the last call, here }

W is the work of all calls alone, s(n) what company does to them, D what they take of a limit, B
what is free of it. Amdahl's law is the critical path. Whatever a fluid does not have (bursts that
must be spent, calls that do not split, a queue that has to fill) a rehearsal adds.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final

from headway.core.foresight.outline import Drawn
from headway.core.foresight.provider import Latency
from headway.core.values import Limit, Resource

WIDTH_MAX: Final = 4096
"""The widest that is looked at."""

PATH: Final = "critical path"
WIDTH: Final = "width"
HERE: Final = "this machine"
FREE: Final = (PATH, WIDTH, HERE)
"""Terms that are no limits."""

LAST_SHARE: Final = 0.5
"""The last call is one of ordinary length: the middle one."""


@dataclass(frozen=True, slots=True)
class Room:
    """A limit, and what may be had of it."""

    limit: Limit
    free: float
    """Now."""
    rate_per_s: float
    """What flows in for us: less than all of it if the user set a ceiling."""


@dataclass(frozen=True, slots=True)
class Rooms:
    """All that may be had."""

    limits: tuple[Room, ...] = ()
    width_max: float = inf
    """Calls in flight at once."""
    places: float = inf
    """Tasks that this machine takes at once."""
    keeps: bool = False
    """Whether all of `max_tokens` counts, used or not."""


@dataclass(frozen=True, slots=True)
class Flow:
    """How long the work takes, and what each of its terms says."""

    time_s: float
    binding: str
    terms: tuple[tuple[str, float], ...]
    width: float
    """Calls in flight on average, if it takes that long."""
    least_s: float
    """The same with the shortest call as the last one: nothing is faster."""


def flow_of(
    one: Drawn,
    latency: Latency,
    room: Rooms,
    times: float = 1.0,
) -> Flow:
    """The model, for one draw.

    A draw of a part of the work stands for so many `times` as much; its chains are no longer.
    """
    calls = [call for made in one.calls for call in made]
    works = sorted(latency.work_s(call.output_tokens) for call in calls)
    work_s = times * sum(works)
    width = best_width(latency, min(room.width_max, max(1.0, times * len(calls))))
    terms = [(PATH, path_s(one, latency)), (HERE, times * sum(one.seconds) / room.places)]
    if calls:
        terms.append((WIDTH, work_s * latency.slowdown(width) / width))
    last_s = works[int(LAST_SHARE * len(works))] if works else 0.0
    given, gave = times * one.amounts.input_tokens, times * one.amounts.output_tokens
    if room.keeps:
        gave = times * sum(call.max_tokens for call in calls)
    taken: dict[Resource, float] = {
        "requests": times * len(calls),
        "input": given,
        "output": gave,
        "tokens": given + gave,
        "spend": times * one.amounts.spend_microusd,
    }
    for one_limit in room.limits:
        need = max(0.0, taken.get(one_limit.limit.resource, 0.0) - one_limit.free)
        if need > 0.0 and one_limit.rate_per_s > 0.0:
            terms.append((one_limit.limit.name, need / one_limit.rate_per_s + last_s))
    binding, time_s = max(terms, key=lambda term: term[1])
    least_s = time_s - (last_s - works[0]) if binding not in FREE else time_s
    width = min(width, work_s / max(time_s, 1e-9))
    return Flow(time_s, binding, tuple(terms), width * latency.slowdown(width), least_s)


def best_width(latency: Latency, most: float) -> float:
    """The width with the highest throughput, of those that are allowed."""
    widest = max(1, int(min(most, WIDTH_MAX)))
    if latency.sigma == 0.0 and latency.kappa == 0.0:
        return float(widest)
    return float(max(range(1, widest + 1), key=lambda n: n / latency.slowdown(n)))


def path_s(one: Drawn, latency: Latency) -> float:
    """The longest chain of tasks that need one another, each alone on the account."""
    ends: list[float] = []
    number = 0
    for part in one.outline.parts:
        for _ in range(part.count):
            begins_s = max((ends[other] for other in one.needs[number]), default=0.0)
            takes_s = one.seconds[number] + sum(
                latency.work_s(call.output_tokens) for call in one.calls[number]
            )
            ends.append(begins_s + takes_s)
            number += 1
    return max(ends, default=0.0)
