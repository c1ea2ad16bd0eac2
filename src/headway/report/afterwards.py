"""Compares a finished run with its forecast, and names what limited it.

Laws:
- Amdahl: with a share `s` of the work on the critical path, no width is more than 1/s times as
  fast as one task after another; from where a run was, twice the width halves what is not on it.
- A truth that lies within the ends of a spread was foreseen, however far it is from the middle.
- What bound a run is what most of its time went to; a task on the critical path that took far
  longer than its like comes before that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import nlargest
from math import sqrt
from typing import Final

from msgspec import Struct, field

from headway.base.numbers import median, percentile
from headway.report.forecast import Foreseen, SpreadNumber
from headway.report.history import AttemptUsage, Kind, Passage
from headway.report.tables import P95
from headway.report.time_use import WORK, Cause, CauseShare, Lineage, Spent

STRAGGLER_TIMES: Final = 3.0
"""A task that took so many times as long as the middle one of its group is a straggler..."""

STRAGGLER_SHARE: Final = 0.2
"""...if what it took beyond that is such a share of the run's time."""

ALIKE_MIN: Final = 3
"""With fewer tasks nobody can tell what is usual in a group."""


class ForecastComparison(Struct, frozen=True):
    """One amount, as foreseen and as it was."""

    name: str
    foreseen: SpreadNumber
    real: float

    @property
    def is_within(self) -> bool:
        return self.foreseen.low <= self.real <= self.foreseen.high

    @property
    def error(self) -> float | None:
        """How much more it was than the middle, as a share of that."""
        return self.real / self.foreseen.mid - 1.0 if self.foreseen.mid else None


def compared(
    foreseen: Foreseen, elapsed_s: float, taken: AttemptUsage
) -> tuple[ForecastComparison, ...]:
    """Time, cost, calls, tokens; the cost only where somebody knew the prices."""
    found = [ForecastComparison("time", foreseen.time_s, elapsed_s)]
    if foreseen.microusd is not None:
        found.append(ForecastComparison("cost", foreseen.microusd, float(taken.microusd)))
    found.append(ForecastComparison("calls", foreseen.calls, float(taken.calls)))
    found.append(ForecastComparison("tokens", foreseen.tokens, taken.tokens))
    return tuple(found)


class SerialShare(Struct, frozen=True):
    """What of the work could not overlap, and what Amdahl's law makes of it."""

    work_s: float
    """All that was worked on to some end: one after another it would have taken so long."""
    critical_path_s: float
    elapsed_s: float

    @property
    def share(self) -> float:
        return self.critical_path_s / self.work_s if self.work_s else 1.0

    @property
    def speed_up(self) -> float:
        """Times as fast as one task after another."""
        return self.work_s / self.elapsed_s if self.elapsed_s else 1.0

    @property
    def speed_up_max(self) -> float:
        """With any width."""
        return self.work_s / self.critical_path_s if self.critical_path_s else 1.0

    @property
    def doubled_s(self) -> float:
        """What it would have taken with twice the width, if nothing but the width bound it."""
        return (self.elapsed_s + min(self.critical_path_s, self.elapsed_s)) / 2.0


class GroupAfter(Struct):
    """One group: what it took, and how alike its tasks were."""

    name: str
    tasks: int = 0
    finished: int = 0
    taken: AttemptUsage = field(default_factory=AttemptUsage)
    lost: AttemptUsage = field(default_factory=AttemptUsage)
    times_s: list[float] = field(default_factory=list)
    """Of the tasks that finished, since each first reached whoever worked on it."""

    @property
    def p50_s(self) -> float:
        return median(self.times_s) if self.times_s else 0.0

    @property
    def p95_s(self) -> float:
        return percentile(self.times_s, P95) if self.times_s else 0.0


def groups_after(
    passages: Iterable[Passage], group_of: Callable[[bytes], str]
) -> dict[str, GroupAfter]:
    """Every group by name, in declared order."""
    found: dict[str, GroupAfter] = {}
    for one in sorted(passages, key=lambda one: one.number):
        name = group_of(one.key)
        group = found.setdefault(name, GroupAfter(name))
        group.tasks += 1
        group.taken.add(one.taken)
        group.lost.add(one.lost)
        if one.state == "finished":
            group.finished += 1
            if one.ended_s is not None and one.reached_s <= one.ended_s:
                group.times_s.append(one.ended_s - one.reached_s)
    return found


class Slow(Struct, frozen=True):
    """A task that took long, and what for."""

    key: bytes
    took_s: float
    """From its first start to its end."""
    kind: Kind
    """What most of that was."""
    what: str
    kind_s: float


def slowest(passages: Iterable[Passage], many: int) -> list[Slow]:
    """The tasks that took longest once they had started."""
    found = []
    for one in passages:
        begun = [piece for piece in one.pieces if piece.kind != "idle"]
        if begun and one.ended_s is not None:
            found.append((one.ended_s - begun[0].from_s, one))
    slow = []
    for took_s, one in nlargest(many, found, key=lambda pair: pair[0]):
        sums: dict[tuple[Kind, str], float] = {}
        for kind, from_s, to_s, what in one.pieces:
            sums[kind, what] = sums.get((kind, what), 0.0) + to_s - from_s
        sums.pop(("idle", ""), None)
        (kind, what), kind_s = max(sums.items(), key=lambda item: item[1])
        slow.append(Slow(one.key, took_s, kind, what, kind_s))
    return slow


class Binding(Struct, frozen=True):
    """What most of a run's time went to."""

    cause: Cause
    what: str
    share: float
    straggler: bytes = b""
    """The one task that the run waited for, if there was one."""
    straggler_s: float = 0.0
    usual_s: float = 0.0
    """What the middle one of its group took."""


def binding(
    spent: Spent,
    chain: Lineage,
    tasks: Mapping[bytes, Passage],
    groups: Mapping[str, GroupAfter],
    group_of: Callable[[bytes], str],
) -> Binding | None:
    """What bound the run; None if it took no time."""
    if spent.wall_s <= 0.0:
        return None
    # One limit may be named in several ways, as may work: causes are added up first.
    sums: dict[tuple[Cause, str], float] = {}
    for share in spent.shares:
        key: tuple[Cause, str] = _bound_as(share)
        sums[key] = sums.get(key, 0.0) + share.wall_s
    (cause, what), wall_s = max(sums.items(), key=lambda item: item[1])
    found = Binding(cause, what, wall_s / spent.wall_s)
    worst = max(chain.chain, key=lambda key: tasks[key].served_s, default=b"")
    if worst:
        group = groups[group_of(worst)]
        took_s, usual_s = tasks[worst].served_s, group.p50_s
        is_beyond = took_s - usual_s >= STRAGGLER_SHARE * spent.wall_s
        is_alone = len(group.times_s) >= ALIKE_MIN and took_s >= STRAGGLER_TIMES * usual_s
        if is_beyond and is_alone:
            return Binding(cause, what, found.share, worst, took_s, usual_s)
    return found


def _bound_as(share: CauseShare) -> tuple[Cause, str]:
    return ("provider", "") if share.cause in WORK else (share.cause, share.what)


def variation(values: Sequence[float]) -> float | None:
    """The coefficient of variation: how far values are from their mean, as a share of that."""
    if len(values) < 2:
        return None
    mean = sum(values) / len(values)
    if mean <= 0.0:
        return None
    return sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1)) / mean
