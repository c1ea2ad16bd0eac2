"""In which order results become part of the shared state, and which tasks must run again.

Laws:
- A task is committed when no task before it is left that may write what it has read, and what it
  has read is still what it would read. So what is committed is what a serial run in declared order
  would give; tasks that touch different things do not wait for each other.
- A task that has read what has changed since runs again, at once, and it alone. The second time it
  waits for those before it that were seen to write there, the third time for all who may: so no
  task runs more than four times for this, and one that keeps to its declarations three times.
- A failure counts as a result: one that came of a stale read is not one.
- Effects are released when their task is committed, each channel in the order of the tasks.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache, partial
from itertools import pairwise
from typing import Final

from msgspec import Struct, field

from headway.plans import resources
from headway.plans.graph import Graph
from headway.plans.links import reversed_edges, serial
from headway.state.shared import UNTOUCHED, Access, Change, Shared, Snapshot

# Tasks that have not ended and may write something, by what that is, and who waits for them.

EVERYTHING: Final = ""
STANDS_MAX: Final = 4096
"""Sets of things written, or read, whose fronts are remembered."""
NO_TASK: Final = 1 << 62
"""Behind the place of every task."""


class _Front(Struct):
    """Those who may write one thing, and those who wait until all before them have ended."""

    _heap: list[int] = field(default_factory=list)
    _writers: set[int] = field(default_factory=set)
    first: int = NO_TASK
    waiting: list[tuple[int, int]] = field(default_factory=list)

    def add(self, position: int) -> None:
        if position not in self._writers:
            self._writers.add(position)
            heapq.heappush(self._heap, position)
            self.first = self._heap[0]

    def extend(self, positions: range) -> None:
        """All of these may, none of whom is there: a group is known."""
        self._writers.update(positions)
        self._heap += positions
        heapq.heapify(self._heap)
        self.first = self._heap[0]

    def discard(self, position: int) -> None:
        self._writers.discard(position)
        heap = self._heap
        while heap and heap[0] not in self._writers:
            heapq.heappop(heap)
        self.first = heap[0] if heap else NO_TASK


class Frontier:
    """Fronts by key. A task waits at one front at a time; tickets are numbers of tasks."""

    __slots__ = ("_fronts", "_wanted")

    def __init__(self) -> None:
        self._fronts: dict[str, _Front] = {}
        """Under a key: who may write it, or everything in it. Under a folder's name and a slash:
        who may write something within that folder."""
        self._wanted: dict[int, tuple[int, resources.Prefixes]] = {}
        """Of every ticket that waits: its position and what it looks at."""

    def join(self, position: int, writes: resources.Prefixes) -> None:
        for name in stands(writes):
            self._own(name).add(position)

    def join_all(self, positions: range, writes: resources.Prefixes) -> None:
        """Tasks that may write this have not ended; there is at least one, and all are new."""
        for name in stands(writes):
            self._own(name).extend(positions)

    def end(self, position: int, writes: resources.Prefixes) -> list[int]:
        """It has ended: the tickets that go on."""
        free: list[int] = []
        for name in stands(writes):
            front = self._own(name)
            is_first = front.first == position
            front.discard(position)
            if not is_first:
                continue
            waiting = front.waiting
            while waiting and waiting[0][0] <= front.first:
                _, ticket = heapq.heappop(waiting)
                if self._goes_on(ticket):
                    free.append(ticket)
        return free

    def blocker(self, position: int, reads: resources.Prefixes) -> int | None:
        """The lowest position before this one that may write what it looks at."""
        first = position
        fronts = self._fronts
        for name in watches(reads):
            front = fronts.get(name)
            if front is not None and front.first < first:
                first = front.first
        return first if first < position else None

    def awaited(self, ticket: int) -> tuple[int, resources.Prefixes] | None:
        """The lowest position that a ticket waits for, and what it looks at; None if it does not
        wait."""
        wanted = self._wanted.get(ticket)
        first = None if wanted is None else self.blocker(*wanted)
        return None if wanted is None or first is None else (first, wanted[1])

    def wait(self, ticket: int, position: int, reads: resources.Prefixes) -> bool:
        """Whether it may go on; if not, `end` gives its ticket later."""
        self._wanted[ticket] = (position, reads)
        return self._goes_on(ticket)

    def forget(self, ticket: int) -> None:
        self._wanted.pop(ticket, None)

    def _goes_on(self, ticket: int) -> bool:
        wanted = self._wanted.get(ticket)
        if wanted is None:
            return False  # It was forgotten.
        position, reads = wanted
        fronts = self._fronts
        for name in watches(reads):
            front = fronts.get(name)
            if front is not None and front.first < position:
                heapq.heappush(self._own(name).waiting, (position, ticket))
                return False
        del self._wanted[ticket]
        return True

    def _own(self, name: str) -> _Front:
        front = self._fronts.get(name)
        if front is None:
            front = self._fronts[name] = _Front()
        return front


@lru_cache(maxsize=STANDS_MAX)
def stands(writes: resources.Prefixes) -> tuple[str, ...]:
    """Where a writer stands: at what it writes, and in every folder around that."""
    names = (EVERYTHING,) if writes is None else writes
    folders = (f"{folder}/" for name in names for folder in resources.above(name))
    return tuple(dict.fromkeys((*names, *folders)))


@lru_cache(maxsize=STANDS_MAX)
def watches(reads: resources.Prefixes) -> tuple[str, ...]:
    """The fronts that a reader looks at: of what it reads, around it, and within."""
    return tuple(dict.fromkeys(_watched((EVERYTHING,) if reads is None else reads)))


def _watched(names: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        yield name
        yield f"{name}/"
        yield from resources.above(name)


# Who has looked at what of the shared state: those whom a change may concern.


class Readers:
    __slots__ = ("_looked", "_patterns", "_readers")

    def __init__(self) -> None:
        self._readers: dict[str, dict[int, None]] = {}
        self._looked: dict[int, dict[str, None]] = {}
        self._patterns: dict[str, None] = {}

    def add(self, task: int, what: str) -> None:
        readers = self._readers.get(what)
        if readers is None:
            readers = self._readers[what] = {}
            if resources.is_pattern(what):
                self._patterns[what] = None
        readers[task] = None
        self._looked.setdefault(task, {})[what] = None

    def forget(self, task: int) -> None:
        for what in self._looked.pop(task, ()):
            readers = self._readers[what]
            del readers[task]
            if not readers:
                del self._readers[what]
                self._patterns.pop(what, None)

    def of(self, keys: Iterable[str]) -> list[int]:
        """The tasks that have looked at one of these keys, each once."""
        found: dict[int, None] = {}
        for key in keys:
            if (readers := self._readers.get(key)) is not None:
                found.update(readers)
            for pattern in self._patterns:
                if resources.matches(pattern, key):
                    found.update(self._readers[pattern])
        return list(found)


MEMBER_BITS: Final = 32
CAREFUL: Final = 2
"""After so many stale attempts a task waits for all who may write what it may read."""
ALONE: Final = 3
"""After so many it waits for all tasks before it."""
PREFIXES_MAX: Final = 4096
"""Keys and patterns of which it is remembered where they lie."""


class Breach(Struct, frozen=True):
    """Something that was not declared and comes too late: a later task has read or done it."""

    what: str
    """As it is declared: `state:KEY` or `effect:CHANNEL`."""
    position: int
    """Of that task, which is committed."""


class Early(Struct, frozen=True):
    """Tasks before it, of which this position is the first, may still write what it has read."""

    position: int


class Awaited(Struct, frozen=True):
    position: int
    reads: resources.Prefixes
    """What it looks at, that the other one may write."""
    is_likely: bool
    """The other one was seen to write there, or may write there."""


Verdict = Change | Breach | Early | None
"""Why the result of an attempt may not be committed now; None if it may."""


class Hints(Struct, frozen=True):
    """What earlier runs have shown, by group: what its tasks read and write."""

    reads: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    writes: Mapping[int, tuple[str, ...]] = field(default_factory=dict)


class TaskPositions:
    """The places of tasks in the serial run: one number each, in declared order."""

    __slots__ = ("_groups", "_places")

    def __init__(self, graph: Graph) -> None:
        self._groups = _serial(graph)
        self._places = [0] * len(graph)
        for place, group in enumerate(self._groups):
            self._places[group] = place

    def __len__(self) -> int:
        return len(self._groups)

    def group(self, group: int) -> int:
        """Before the first member of a group, and behind all that comes before."""
        return self._places[group] << MEMBER_BITS

    def task(self, group: int, member: int) -> int:
        return (self._places[group] << MEMBER_BITS) + member + 1

    def who(self, position: int) -> tuple[int, int]:
        """The group and the member that has a place; -1 is the group as a whole."""
        place = position >> MEMBER_BITS
        return self._groups[place], position - (place << MEMBER_BITS) - 1


class _Member(Struct):
    position: int
    touches: resources.Touches
    group: int
    snapshot: Snapshot | None = None
    access: Access = UNTOUCHED
    likely: tuple[str, ...] = ()
    stale: int = 0
    is_proposed: bool = False
    is_parked: bool = False
    is_patient: bool = False
    """It is judged when all before it have ended: its result is from an earlier process, or it
    works in a workspace."""
    reruns: int | None = None
    """Of a task in a workspace, how often it runs again."""

    @property
    def waits_for_all(self) -> bool:
        """Whether it starts again only when all tasks before it have ended."""
        return self.stale >= (ALONE if self.reruns is None else self.reruns)


class Coherence:
    """The commit order of one run. Tasks are named by their numbers."""

    def __init__(self, graph: Graph, shared: Shared, hints: Hints | None = None) -> None:
        self.shared = shared
        self.places = TaskPositions(graph)
        self.ripe: list[int] = []
        """Proposed tasks to be judged again."""
        self.opened: list[int] = []
        """Parked tasks that may start."""
        self.doomed: list[int] = []
        """Tasks whose attempt goes on although what it has read has changed."""
        self.released: list[tuple[int, Access]] = []
        """Committed tasks whose effects may be performed, in order."""
        self.learned: dict[tuple[int, int], dict[str, None]] = {}
        """By the groups of a writer and a reader: through what the one made the other stale."""
        self.reruns = 0
        self._graph = graph
        self._hints = hints or Hints()
        self._may, self._likely, self._acting = Frontier(), Frontier(), Frontier()
        self._readers = Readers()
        self._members: dict[int, _Member] = {}
        self._read_by: dict[str, int] = {}
        """The highest position of a task that has read it and has ended."""
        self._acts: dict[int, Access] = {}
        """Of committed tasks whose effects wait for others'."""
        self._acted: dict[str, int] = {}
        """The highest position of a committed task that has asked for an effect of a channel."""
        self._is_wary = bool(self._hints.reads or self._hints.writes)
        """Whether tasks wait for likely writers: from the first stale attempt on, or with hints."""
        self._awaited: set[int] = set()
        """Groups whose members are still to be found out."""
        for group, declared in enumerate(graph.groups):
            if declared.touches is not None:
                self._awaited.add(group)
                self._may.join(self.places.group(group), declared.touches.writes)
                self._acting.join(self.places.group(group), declared.touches.acts)

    def has(self, task: int) -> bool:
        return task in self._members

    def expand(self, group: int, tasks: range) -> None:
        """The members of a group are known; there are none, if it is lost."""
        touches = self._graph.groups[group].touches
        if touches is None or group not in self._awaited:
            return
        self._awaited.discard(group)
        hinted = self._hints.writes.get(group, ())
        first = self.places.task(group, 0)
        positions = range(first, first + len(tasks))
        for member, (task, position) in enumerate(zip(tasks, positions, strict=True)):
            own = touches.of(member)
            self._members[task] = _Member(
                position, own, group, likely=hinted, reruns=self._graph.groups[group].reruns
            )
            if touches.by_member is not None:
                self._may.join(position, own.writes)
                self._acting.join(position, own.acts)
        if tasks:
            self._likely.join_all(positions, hinted)
        if tasks and touches.by_member is None:
            self._may.join_all(positions, touches.writes)
            self._acting.join_all(positions, touches.acts)
        self._leave(self.places.group(group), touches)

    def is_open(self, task: int) -> bool:
        """Whether a ready task may start now; if not, it is parked, and `opened` names it later."""
        member = self._members.get(task)
        if member is None:
            return True
        if member.stale >= CAREFUL or member.waits_for_all:
            reads = None if member.waits_for_all else member.touches.reads
            is_open = self._may.wait(task, member.position, reads)
        elif member.stale:
            is_open = self._likely.wait(task, member.position, _prefixes(member.access))
        else:
            hinted = self._hints.reads.get(member.group)
            is_open = not hinted or self._likely.wait(task, member.position, hinted)
        member.is_parked = not is_open
        return is_open

    def snapshot(self, task: int) -> Snapshot | None:
        """The state as a new attempt of a task sees it; None if it has nothing to do with it."""
        member = self._members.get(task)
        if member is None:
            return None
        self._readers.forget(task)
        member.snapshot = Snapshot(self.shared, member.position, partial(self._readers.add, task))
        return member.snapshot

    def judge(self, task: int, access: Access) -> Verdict:
        member = self._members[task]
        blocker = self._may.blocker(member.position, _prefixes(access))
        if blocker is not None and member.is_patient:
            return Early(blocker)
        for seen in access.reads:
            change = self.shared.changed(seen, member.position)
            if change is not None:
                return change
        if (breach := _breach(self._read_by, self._acted, member, access)) is not None:
            return breach
        return None if blocker is None else Early(blocker)

    def note(self, task: int, access: Access, *, is_patient: bool = False) -> None:
        """An attempt has ended and touched this; a patient one did in an earlier process."""
        member = self._members[task]
        member.access, member.snapshot = access, None
        # Its last attempt has to be: whatever changes later, it cannot run again.
        member.is_patient = is_patient or (
            member.reruns is not None and member.stale + 1 >= member.reruns
        )

    def access_of(self, task: int) -> Access:
        return self._members[task].access

    def propose(self, task: int) -> None:
        """What its last attempt gave waits until it may be committed: `ripe` names it then."""
        member = self._members[task]
        member.is_proposed = True
        for seen in member.access.reads:
            self._readers.add(task, seen.what)
        if self._is_wary:
            _foresee(self._likely, member)
        if self._may.wait(task, member.position, _prefixes(member.access)):
            self.ripe.append(task)

    def stale(self, task: int, what: str, position: int) -> None:
        """Its last attempt read what the task of this position has changed: it runs again."""
        member = self._members[task]
        self.reruns += 1
        member.stale += 1
        member.is_proposed, member.snapshot = False, None
        self._may.forget(task)
        self._readers.forget(task)
        _beware(self, member)
        if position >= 0:
            pair = self.places.who(position)[0], member.group
            self.learned.setdefault(pair, {})[what] = None

    def commit(self, task: int) -> None:
        member = self._members.get(task)
        if member is None:
            return
        access = member.access
        self.shared.commit(member.position, access.writes)
        if channels := tuple({act.channel for act in access.acts if not act.is_now}):
            self._acts[task] = access
            for channel in channels:
                self._acted[channel] = max(self._acted.get(channel, -1), member.position)
            if self._acting.wait(task, member.position, channels):
                self.released.append((task, self._acts.pop(task)))
        self.end(task)  # Only now those behind it may release theirs.
        for reader in self._readers.of(dict.fromkeys(put.key for put in access.writes)):
            if self._members[reader].position > member.position:
                _suspect(self, reader, self._members[reader])

    def end(self, task: int) -> None:
        """A task has ended, and whatever it did not commit never was."""
        member = self._members.pop(task, None)
        if member is None:
            return
        for seen in member.access.reads:  # A failure depends on what was read as a result does.
            self._read_by[seen.what] = max(self._read_by.get(seen.what, -1), member.position)
        self._readers.forget(task)
        self._may.forget(task)
        self._likely.forget(task)
        if member.likely:
            self.opened += self._likely.end(member.position, member.likely)
        self._leave(member.position, member.touches)

    def _leave(self, position: int, touches: resources.Touches) -> None:
        for task in self._may.end(position, touches.writes):
            is_proposed = self._members[task].is_proposed
            (self.ripe if is_proposed else self.opened).append(task)
        for task in self._acting.end(position, touches.acts):
            self.released.append((task, self._acts.pop(task)))


def awaited(coherence: Coherence, task: int) -> Awaited | None:
    """The first of those that a proposed or parked task waits for; None if it does not wait."""
    for front, is_likely in ((coherence._may, False), (coherence._likely, True)):
        if found := front.awaited(task):
            return Awaited(*found, is_likely)
    return None


def _suspect(coherence: Coherence, task: int, member: _Member) -> None:
    """A task has read what a task before it has changed: judge it again, or end its attempt."""
    if member.is_proposed and not member.is_patient:
        coherence.ripe.append(task)
    elif member.snapshot is not None:
        look, position = coherence.shared.look, member.position
        if any(look(what, position) != name for what, name in member.snapshot.seen.items()):
            coherence.doomed.append(task)


def _beware(coherence: Coherence, member: _Member) -> None:
    if not coherence._is_wary:
        coherence._is_wary = True
        for other in coherence._members.values():
            if other.is_proposed:
                _foresee(coherence._likely, other)
    _foresee(coherence._likely, member)


def _foresee(likely: Frontier, member: _Member) -> None:
    """What a task has written once it will probably write again."""
    before = member.likely
    member.likely = tuple(dict.fromkeys((*before, *(put.key for put in member.access.writes))))
    likely.join(member.position, member.likely[len(before) :])


def _breach(
    read_by: Mapping[str, int], acted: Mapping[str, int], member: _Member, access: Access
) -> Breach | None:
    """What was not declared, and what a later task that is committed did not reckon with."""
    declared = member.touches
    for put in access.writes if declared.writes is not None else ():
        if not resources.covers(declared.writes, put.key):
            found = [read_by.get(put.key, -1)]
            patterns = ((one, at) for one, at in read_by.items() if resources.is_pattern(one))
            found += (at for pattern, at in patterns if resources.matches(pattern, put.key))
            if max(found) > member.position:
                return Breach(resources.SCHEME + put.key, max(found))
    for act in access.acts:
        if not (act.is_now or resources.covers(declared.acts, act.channel)):
            last = acted.get(act.channel, -1)
            if last > member.position:
                return Breach(resources.ACTS + act.channel, last)
    return None


def _prefixes(access: Access) -> tuple[str, ...]:
    if len(access.reads) == 1:  # The usual case, several times for every attempt.
        return (_prefix(access.reads[0].what),)
    return tuple(dict.fromkeys([_prefix(seen.what) for seen in access.reads]))


_prefix: Final = lru_cache(maxsize=PREFIXES_MAX)(resources.prefix_of)


def _serial(graph: Graph) -> tuple[int, ...]:
    """Groups in the order of one who works alone: queues too keep their order."""
    before = [set(needs) for needs in graph.needs]
    for queue in graph.queues.values():
        for earlier, later in pairwise(queue):
            before[later].add(earlier)
    edges = tuple(tuple(sorted(groups)) for groups in before)
    return serial(edges, reversed_edges(edges))
