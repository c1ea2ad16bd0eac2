"""Whose turn it is in each queue: its tasks start one at a time, in declared order.

Laws:
- Only the first task of a queue that has not ended may start, whether it is ready or not: order
  is what a queue is for. One that waits for its next attempt keeps its turn.
- A task that failed or was skipped lets the next one go.
- A group whose members are not known yet keeps the turn until they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from headway.core.plan.graph import Graph
from headway.core.plan.ready import DONE, ReadySet


@dataclass(frozen=True, slots=True)
class SequencerStatistics:
    """How many queues there are, and how many of them have come to their end."""

    queues: int
    ended: int


class Sequencer:
    """The turn of every queue."""

    __slots__ = ("_members", "_queues", "_ready_set", "_turns")

    def __init__(self, graph: Graph, ready_set: ReadySet) -> None:
        self._queues = graph.queues
        self._ready_set = ready_set
        self._turns = dict.fromkeys(graph.queues, 0)
        self._members = dict.fromkeys(graph.queues, 0)

    def __repr__(self) -> str:
        return f"<Sequencer of {len(self._queues)} queues>"

    def copied(self, ready_set: ReadySet) -> Sequencer:
        """Another one like this, for a copy of its ready set."""
        twin: Sequencer = object.__new__(Sequencer)
        twin._queues, twin._ready_set = self._queues, ready_set
        twin._turns, twin._members = self._turns.copy(), self._members.copy()
        return twin

    def turn(self, queue: str) -> tuple[int, int] | None:
        """The group and the member whose turn it is, past all that has ended; none at the end."""
        groups, ready_set = self._queues[queue], self._ready_set
        states, numbers = ready_set.states, ready_set.numbers
        while (place := self._turns[queue]) < len(groups):
            group, member = groups[place], self._members[queue]
            members = numbers.members(group)
            while member < len(members) and states[members[member]] >= DONE:
                member += 1
            self._members[queue] = member
            if member < len(members) or not (numbers.is_known(group) or ready_set.is_lost[group]):
                return group, member
            self._turns[queue], self._members[queue] = place + 1, 0
        return None

    def statistics(self) -> SequencerStatistics:
        ended = sum(self.turn(queue) is None for queue in self._queues)
        return SequencerStatistics(len(self._queues), ended)
