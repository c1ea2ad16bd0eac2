"""What a campaign of kills proves, from the effects that really happened.

Laws that are judged:
- No task whose result was durable before a kill starts again after it.
- A kill repeats at most the attempts that were in flight.
- Without a kill or a failure, nothing starts twice.
- In the end every result is there, and no process is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from tests.chaos.effect import result_of


class Kill(Struct, frozen=True):
    """One kill, and what was on disk when everything was quiet after it."""

    where: str
    """A crash point, or how far the run was."""
    durable: frozenset[str]
    kept_outside: frozenset[str] = frozenset()
    """Tasks that ended under a process that outlived the engine, and whose end is on disk."""
    orphans: int = 0


class Verdict(Struct, frozen=True):
    kills: int = 0
    tasks: int = 0
    starts: int = 0
    repeats: int = 0
    """Attempts that started although the task had started before and had not failed."""
    repeats_most: int = 0
    ended_repeats: int = 0
    """Of those: the task had ended, and was paid for again."""
    durable_repeats: int = 0
    """Of those: its result was durable before the kill."""
    outside_repeats: int = 0
    """Of those: its end was kept by somebody who outlived the engine."""
    doubles: int = 0
    """Started twice without a kill or a failure between."""
    lost: int = 0
    """Results that were durable and are gone, or that are not there in the end."""
    orphans: int = 0

    def __add__(self, other: Verdict) -> Verdict:
        mine, theirs = self.counts(), other.counts()
        most = max(self.repeats_most, other.repeats_most)
        both = {name: mine[name] + theirs[name] for name in mine}
        return replace(Verdict(**both), repeats_most=most)

    def counts(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.__struct_fields__}


class _Story(Struct):
    """What is known of one task while its lines are read."""

    last: str = ""
    segment: int = 0


def judge(lines: Iterable[str], kills: Sequence[Kill], results: dict[str, str]) -> Verdict:
    """Read the effects in order; a line `kill` stands between what two processes did."""
    stories: dict[str, _Story] = {name: _Story() for name in results}
    by_kill = [0] * (len(kills) + 1)
    segment = starts = ended = durable = outside = doubles = 0
    for line in lines:
        said, _, name = line.strip().partition(" ")
        if said == "kill":
            segment += 1
            continue
        story = stories.setdefault(name, _Story())
        if said == "start":
            starts += 1
            if story.last in ("start", "end"):
                between = kills[story.segment : segment]
                doubles += not between
                by_kill[story.segment] += bool(between)
                ended += story.last == "end"
                durable += any(name in kill.durable for kill in between)
                outside += any(name in kill.kept_outside for kill in between)
            story.segment = segment
        story.last = said
    return Verdict(
        len(kills), len(results), starts, sum(by_kill), max(by_kill), ended, durable, outside,
        doubles, _lost(kills, results, stories), sum(kill.orphans for kill in kills),
    )  # fmt: skip


def _lost(kills: Sequence[Kill], results: dict[str, str], stories: dict[str, _Story]) -> int:
    lost = {name for name, found in results.items() if found != result_of(name)}
    lost |= {name for name, story in stories.items() if story.last != "end"}
    for earlier, later in pairwise(kills):
        lost |= earlier.durable - later.durable
    return len(lost)
