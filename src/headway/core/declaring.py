"""The `reads` and `writes` that a plan should have, by what its tasks were seen to touch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from headway.core.detect import Done, Ground, Touch, said_of, touches_of
from headway.core.general import condensed, general
from headway.core.plan.resources import is_pattern, matches


@dataclass(frozen=True, slots=True)
class Learned:
    """What one declared task was seen to touch, for all of its members."""

    task: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    def lines(self) -> list[str]:
        """As a plan has it."""
        told = [f"  {self.task}:"]
        for key, entries in (("reads", self.reads), ("writes", self.writes)):
            quoted = [f'"{one}"' if "{{" in one or "*" in one else one for one in entries]
            told.append(f"    {key}: [{', '.join(quoted)}]")
        return told


def declarations(dones: Sequence[Done], ground: Ground) -> tuple[Learned, ...]:
    """What to declare, task by task in declared order.

    Of the files that a task reads those that another one writes, and those that it lists already:
    others are there before the run and after it, and order nothing. An `output` declares itself.
    """
    touches = [touch for done in dones for touch in touches_of(done, ground.channels)]
    written = {touch.what for touch in touches if touch.room == "path" and touch.is_write}
    by_group: dict[int, list[Touch]] = {done.group: [] for done in dones}
    names = {done.group: done.name.partition("[")[0] for done in dones}
    for touch in touches:
        declared = ground.declared(touch.group, touch.member)
        is_listed = bool(said_of(declared, touch)) and not touch.is_loose
        is_input = touch.room == "path" and not touch.is_write and not _has(written, touch.what)
        is_output = touch.is_write and touch.shown in declared.outputs
        if (is_listed or not is_input) and not is_output:
            by_group[touch.group].append(touch)
    return tuple(
        Learned(
            names[group],
            _entries((one for one in by_group[group] if not one.is_write), ground),
            _entries((one for one in by_group[group] if one.is_write), ground),
        )
        for group in sorted(by_group)
    )


def _has(written: Collection[str], what: str) -> bool:
    """Whether a path was written, or with a pattern one of its paths."""
    return what in written or (is_pattern(what) and any(matches(what, one) for one in written))


def _entries(touches: Iterable[Touch], ground: Ground) -> tuple[str, ...]:
    """A list that has everything, with the item in place of what differs from member to member."""
    return condensed(
        general(touch.shown, ground.item(touch.group, touch.member)) for touch in touches
    )
