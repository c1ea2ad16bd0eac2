"""A task that hangs delays those that overlap with it, and nobody else."""

from __future__ import annotations

import random

import pytest

from headway.plans.graph import TaskGroup
from headway.plans.resources import Prefixes, Touches, covers
from headway.state.coherence import Coherence, Early, TaskPositions, Verdict
from headway.state.shared import Access
from tests.coherence.programs import Programs, drawn, serial
from tests.coherence.test_random_programs import Stage

SEEDS = 1000


def delayed_by(hung: int, programs: Programs) -> set[int]:
    """Who has to wait for a task that hangs, by what is declared alone."""
    groups, place = programs.graph.groups, TaskPositions(programs.graph).group
    delayed = {hung}
    after = (task for task in range(len(groups)) if place(task) > place(hung))
    for task in sorted(after, key=place):
        own = groups[task]
        needed = {need.group for need in own.needs}
        for other in sorted(delayed):
            before = groups[other]
            in_line = own.queue != "" and own.queue == before.queue
            if other in needed or in_line or meet(touches(own).reads, touches(before).writes):
                delayed.add(task)
    return delayed


def touches(group: TaskGroup) -> Touches:
    assert group.touches is not None
    return group.touches


def meet(ones: Prefixes, others: Prefixes) -> bool:
    assert ones is not None
    assert others is not None
    return any(covers((one,), other) or covers((other,), one) for one in ones for other in others)


def unaffected(seed: int) -> int:
    """A program one of whose tasks hangs; how many after it ended as if it had not."""
    rng = random.Random(seed)
    programs = drawn(rng, is_declared=True, tasks_max=9, share=1.0)
    hung = rng.randrange(len(programs.graph))
    delayed = delayed_by(hung, programs)
    left, wanted = Stage(programs, rng, hung=hung).play(), serial(programs)
    if hung in left.ends:  # It was skipped: somebody whom it needs had failed.
        assert left == wanted, f"seed {seed}"
        return 0
    free = {task: end for task, end in wanted.ends.items() if task not in delayed}
    assert {task: left.ends.get(task) for task in free} == free, f"seed {seed}"
    if not any(touches(programs.graph.groups[task]).acts for task in delayed):
        asked = {one for one in wanted.effects if one[0] in free}
        assert asked <= set(left.effects), f"seed {seed}"
    place = TaskPositions(programs.graph).group
    return sum(place(task) > place(hung) for task in free)


def test_a_hung_task_delays_only_those_that_overlap_with_it() -> None:
    assert sum(map(unaffected, range(SEEDS))) > SEEDS


def test_whoever_waited_for_everybody_before_him_would_be_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def strict(coherence: Coherence, task: int, access: Access) -> Verdict:
        del access
        first = min(member.position for member in coherence._members.values())
        return Early(first) if first < coherence._members[task].position else None

    monkeypatch.setattr(Coherence, "judge", strict)
    with pytest.raises(AssertionError, match="seed"):
        sum(map(unaffected, range(50)))
