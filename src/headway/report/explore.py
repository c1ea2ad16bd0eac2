"""What happens if B runs before A completes? Tries every pair, and whole schedules.

Laws:
- The serial run in declared order is what everything is compared with. It is done twice first: a
  task that does not give the same on the same is told as such, and nothing else is concluded.
- A difference comes with the line that gives it again, the first prompt that is not as in the
  serial run, what both tasks touch, and a fix.
- What was not tried is said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import combinations_with_replacement, zip_longest
from math import ceil, comb
from typing import Final, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from headway.base.digest import digest
from headway.errors import UsageError
from headway.plans.expand import ExpandedPlan, Members, graph_of
from headway.plans.sharing import targets_of
from headway.report.schedules import (
    Node,
    PairOf,
    Schedule,
    ScheduleText,
    Way,
    ancestors,
    edge_between,
    interleavings,
    pair_schedule,
    pairs_of,
    pct_schedule,
    random_schedule,
    read_line,
    serial_schedule,
    sharing_pairs,
    steps_schedule,
    written,
)
from headway.report.stage import HASH_CHARS, PROCESS, HashedStage, Play, TrialTouch, overlap
from headway.report.trial import Trial, TrialCast, TrialOutcome, resumed
from headway.state.shared import Channels, canonical

# A plan as it is tried: a few members of every group, and a hash for every answer.

MEMBERS_MAX: Final = 3
"""Members of a group that are tried: two meet each other, and a third shows whether it matters."""


class ExploreSubject(Struct, frozen=True):
    """A plan to be tried."""

    expanded: ExpandedPlan
    cast: TrialCast
    play: Play
    original: Mapping[int, int] = field(default_factory=dict)
    """By group, how many members it has in the plan."""


def subject_of(expanded: ExpandedPlan, members_max: int = MEMBERS_MAX) -> ExploreSubject:
    """A plan whose tasks are not performed: they answer with a hash of what they are given."""
    original = {
        group.index: group.members.count for group in expanded.groups if group.members is not None
    }
    expanded = cropped(expanded, members_max)
    play = Play(expanded)
    reducers = targets_of(expanded.spec, "reduce")
    cast = TrialCast(
        graph_of(expanded),
        lambda: HashedStage(play),
        Channels(expanded.spec.channels, dict.fromkeys(reducers, joined)),
        spread=spread_of(expanded),
    )
    return ExploreSubject(expanded, cast, play, original)


def cropped(expanded: ExpandedPlan, members_max: int) -> ExpandedPlan:
    """The plan with so many members of every group at most, if their items are known."""
    return replace(expanded, groups=tuple(
        replace(group, members=group.members and _some(group.members, members_max))
        for group in expanded.groups
    ))  # fmt: skip


def _some(members: Members, most: int) -> Members:
    if members.count <= most:
        return members
    if members.items is not None:
        matrix = tuple((name, values[:1]) for name, values in members.matrix)
        return Members.of(members.items[:most], matrix)
    (name, values), *others = members.matrix
    return Members.of(None, ((name, values[:most]), *((one, few[:1]) for one, few in others)))


def spread_of(expanded: ExpandedPlan) -> dict[int, tuple[int, ...]]:
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


# Plays one schedule from its first step to its last, and tells how its end differs from another.

EXCERPT_CHARS: Final = 200

Kind = Literal["prompt", "result", "failure", "missing", "state", "file", "effects"]


class Difference(Struct, frozen=True):
    """The first thing that is not as in the serial run."""

    kind: Kind
    where: str
    serial: str
    """The first line that differs, as it is in the serial run."""
    got: str
    line: int = 0
    """Of a prompt: which line that is, from 1."""
    before: str = ""


def play(
    cast: TrialCast, line: ScheduleText, serial: Trial | None = None, is_traced: bool = False
) -> Trial:
    """Take all steps of a schedule; `serial` is the serial run, which other schedules refer to."""
    schedule = _schedule(cast, line, serial)
    trial = Trial(cast, kill_at=line.crash)
    trial.trace = [] if is_traced else None
    trial.open()
    while True:
        while trial.ready and not trial.is_over:
            trial.take(schedule(trial.ready, len(trial.path)))
        if not trial.is_killed:
            break
        trial = resumed(trial)
    try:
        trial.outcome()
    finally:
        trial.close()
    return trial


def _schedule(cast: TrialCast, line: ScheduleText, serial: Trial | None) -> Schedule:
    if line.kind == "steps":
        return steps_schedule(line.places)
    if line.kind == "random":
        return random_schedule(line.seed)
    if line.kind == "serial" or serial is None:
        return serial_schedule
    if line.kind == "pct":
        return pct_schedule(line.seed, line.depth, len(serial.path))
    places, counts = cast.places(), serial.counts()
    first, second = (ancestors(cast.graph, places, one, counts) for one in line.places)
    return pair_schedule(line, (first, second))


def difference(
    serial: TrialOutcome, got: TrialOutcome, label: Callable[[int], str]
) -> Difference | None:
    """What differs first: prompts in serial order, then results, state, files and effects."""
    places = sorted(serial.results.keys() | got.results.keys())
    pairs = [(label(place), serial.results.get(place), got.results.get(place)) for place in places]
    for name, one, other in pairs:
        if one is not None and other is not None:
            for text, changed in zip_longest(one.prompts, other.prompts, fillvalue=""):
                if text != changed:
                    return _lines(name, text, changed)
    for name, one, other in pairs:
        if one is None or other is None:
            there = "it has no result"
            return Difference("missing", name, "" if one else there, "" if other else there)
        if one.fault != other.fault:
            return Difference("failure", name, one.fault or "a result", other.fault or "a result")
        if one.body != other.body:
            bodies = (body.decode("utf-8", "replace") for body in (one.body, other.body))
            return _parted("result", name, *bodies)
    return (
        _entries("state", {key: name.hex() for key, name in serial.state},
                 {key: name.hex() for key, name in got.state})
        or _entries("file", serial.world, got.world)
        or _entries("effects", _told(serial.effects), _told(got.effects))
    )  # fmt: skip


def _told(effects: Mapping[str, tuple[bytes, ...]]) -> dict[str, str]:
    return {name: ", ".join(one.decode() for one in data) for name, data in effects.items()}


def _lines(label: str, serial: str, got: str) -> Difference:
    both = list(zip_longest(serial.split("\n"), got.split("\n"), fillvalue=""))
    number = next(number for number, (one, other) in enumerate(both) if one != other)
    before = both[number - 1][0] if number else ""
    return replace(_parted("prompt", label, *both[number]), line=number + 1, before=_cut(before, 0))


def _entries(kind: Kind, serial: Mapping[str, str], got: Mapping[str, str]) -> Difference | None:
    for name in sorted(serial.keys() | got.keys()):
        one, other = serial.get(name, "nothing"), got.get(name, "nothing")
        if one != other:
            return _parted(kind, name, one, other)
    return None


def _parted(kind: Kind, where: str, one: str, other: str) -> Difference:
    """Two texts, cut around where they part."""
    pairs = enumerate(zip(one, other, strict=False))
    start = next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
    return Difference(kind, where, _cut(one, start), _cut(other, start))


def _cut(text: str, start: int) -> str:
    if len(text) <= EXCERPT_CHARS:
        return text
    first = max(0, min(start - EXCERPT_CHARS // 4, len(text) - EXCERPT_CHARS))
    last = first + EXCERPT_CHARS
    return f"{'…' if first else ''}{text[first:last]}{'…' if last < len(text) else ''}"


# Turns pairs of tasks around, one after another, and judges what came of it.

PAIRS_MAX: Final = 2_000
"""Pairs that are really turned around; of more, those that share something."""
WAYS: Final = 4
"""Schedules for one pair, about."""
INNER_MAX: Final = 6
"""Places within a task's steps at which the other one of a pair runs."""

Verdict = Literal["blocked", "commutes", "re-ran", "differs", "untried"]


class PairVerdict(Struct, frozen=True):
    """What happens if the second task of a pair runs before the first one completes."""

    first: str
    second: str
    verdict: Verdict
    count: int = 1
    """Pairs of members that this one stands for."""
    edge: str = ""
    reran: int = 0
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
    expanded, labels = explorer.subject.expanded, explorer.labels
    order = sorted(range(len(expanded.groups)), key=explorer.places.group)
    groups: Iterable[tuple[int, int]] = combinations_with_replacement(order, 2)
    if comb(len(order) + 1, 2) > PAIRS_MAX:
        touched: dict[int, list[TrialTouch]] = {}
        for place, touch in explorer.serial.trace or ():
            if touch.kind != "task":
                touched.setdefault(explorer.places.who(place)[0], []).append(touch)
        sharing = sharing_pairs(order, touched)
        explorer.found.apart = comb(len(order) + 1, 2) - len(sharing)
        groups = sharing
    every = list(pairs_of(expanded, groups, explorer.counts, explorer.subject.original))
    most, tried = explorer.most(PAIRS_MAX, WAYS), 0
    for number, pair in enumerate(every):
        explorer.tell("pairs", number, len(every))
        one, other, members = pair
        first, second = explorer.places.task(*one), explorer.places.task(*other)
        known = PairVerdict(labels[first], labels[second], "untried", members)
        edge = edge_between(expanded, explorer.subject.cast.graph, one, other)
        if edge:
            yield replace(known, verdict="blocked", edge=edge)
        elif tried < most:
            tried += 1
            yield _turned(explorer, pair, (first, second), known)
        else:
            yield known


def _turned(
    explorer: Explorer, pair: PairOf, both: tuple[int, int], known: PairVerdict
) -> PairVerdict:
    reran = 0
    for way, steps in _ways(explorer, both):
        line = ScheduleText("pair", both, way, steps)
        played = explorer.play(line, is_traced=True)
        changed = explorer.difference(played)
        late = replace(line, is_late=True)
        if played.reran and both[::-1] not in played.reran:
            # Others made it run again, whom it has passed too.
            played = explorer.play(late, is_traced=True)
        reran = max(reran, played.reran.get((both[1], both[0]), 0))
        if changed is None:
            continue
        first, second = (played.touches(at) for at in both)
        known_touches = [touch for touch in first if touch.kind != PROCESS]
        meets = overlap(known_touches, second)
        shared = tuple(dict.fromkeys(f"{one.kind} `{one.what}`" for one in meets))
        are_opaque = all(any(one.kind == PROCESS for one in own) for own in (first, second))
        if not shared and not are_opaque:
            continue  # The second one has passed others too, and it was one of them.
        if not shared or changed.where not in (known.first, known.second):
            again = explorer.difference(explorer.play(late))
            if again is None:
                continue
            line, changed = late, again
        return replace(
            known, verdict="differs", reran=reran, difference=changed, shares=shared,
            replay=written(line, explorer.places), fix=_fix(explorer, *pair[:2]),
            other_fix=_other_fix(explorer, pair, known_touches, second),
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
    groups = explorer.subject.expanded.groups
    task, needed = groups[second[0]].task, groups[first[0]].name
    if first[0] == second[0]:
        return f"{task.name}:\n  queue: {task.name}"
    needs = ", ".join((*task.needs, needed))
    return f"{task.name}:\n  needs: {f'[{needs}]' if task.needs else needs}"


def _other_fix(
    explorer: Explorer, pair: PairOf, first: list[TrialTouch], second: list[TrialTouch]
) -> str:
    """Perhaps the first one was to see what the second one does."""
    reads = [touch for touch in first if not touch.is_write]
    writes = [touch for touch in first if touch.is_write]
    is_reader = overlap(reads, second) and not overlap(writes, second)
    one, other, _ = pair
    return _fix(explorer, other, one) if is_reader and one[0] != other[0] else ""


ALL_TASKS_MAX: Final = 5
ALL_MAX: Final = 150_000
"""Schedules that are all tried, without reduction: five tasks of two steps have 113,400."""
REDUCED_MAX: Final = 5_000
DRAWN_MAX: Final = 2_000
SLOW: Final = 20
"""Where functions are really called, so many times fewer schedules are tried."""
WORK_MAX: Final = 200_000
"""Steps for pairs, for drawn schedules and for crashes each: some ten seconds."""
REDUCED_TASKS_MAX: Final = 100
PRIORITIES_MAX: Final = 500
"""Of more tasks these take too long to find out who is next: chance does not."""
CRASHES_MAX: Final = 300
DIFFERENCES_MAX: Final = 20

Search = Literal["none", "all", "reduced", "drawn"]


class ExploreOptions(Struct, frozen=True):
    """How much is tried."""

    schedules: int | None = None
    """Beside pairs; None is as many as fits."""
    seed: int = 1
    depth: int = 3
    is_pairs_only: bool = False


class FailedSchedule(Struct, frozen=True):
    """A schedule that ends differently."""

    replay: str
    difference: Difference


class Explored(Struct):
    """What was tried, and what came of it."""

    plan: str
    tasks: int
    pairs: tuple[PairVerdict, ...] = ()
    apart: int = 0
    """Pairs of groups that touch nothing of each other's, where there are too many to try all."""
    search: Search = "none"
    schedules: int = 0
    is_complete: bool = False
    """Whether no order is left that could give anything else."""
    reran: int = 0
    """Schedules in which an attempt was done again."""
    crashes: int = 0
    differing: int = 0
    """Schedules and crashes that end differently."""
    failures: list[FailedSchedule] = field(default_factory=list)
    nondeterministic: Difference | None = None
    failed: tuple[str, ...] = ()
    """Tasks that fail in the serial run too, and why."""

    @property
    def differs(self) -> bool:
        return (
            self.differing > 0
            or self.nondeterministic is not None
            or any(pair.verdict == "differs" for pair in self.pairs)
        )


Tell = Callable[[str, int, int], None]
"""Takes what is being tried, how much of it is done, and of how much (0 if unknown)."""


def explore(subject: ExploreSubject, options: ExploreOptions, tell: Tell) -> Explored:
    explorer = Explorer(subject, options, tell)
    found = explorer.found
    found.failed = tuple(
        f"{explorer.labels[place]}: {done.fault}"
        for place, done in sorted(explorer.serial.results.items())
        if done.fault
    )
    found.nondeterministic = explorer.difference(explorer.play(ScheduleText("serial")))
    if found.nondeterministic is None:
        found.pairs = tuple(turned_pairs(explorer))
        if not options.is_pairs_only:
            explorer.search()
            explorer.crash()
    return found


class Explorer:
    """Tries one plan in many ways."""

    def __init__(self, subject: ExploreSubject, options: ExploreOptions, tell: Tell) -> None:
        self.subject = subject
        self._options = options
        self.tell = tell
        self._slow = 1 if subject.cast.is_copied else SLOW
        self.places = subject.cast.places()
        self.serial = play(subject.cast, ScheduleText("serial"), is_traced=True)
        self.labels = self.serial.labels()
        self.counts = self.serial.counts()
        self.found = Explored(subject.expanded.spec.name, len(self.labels))

    def play(self, line: ScheduleText, is_traced: bool = False) -> Trial:
        return play(self.subject.cast, line, self.serial, is_traced)

    def difference(self, trial: Trial) -> Difference | None:
        serial, got = self.serial.outcome(), trial.outcome()
        if got == serial:
            return None
        return difference(serial, got, {**self.labels, **trial.labels()}.__getitem__)

    def replay(self, text: str) -> Explored:
        line = read_line(text, self.places)
        played = self.play(line)
        if line.crash > played.durable:
            raise UsageError(
                f"`{text}` kills nothing: only {played.durable} facts are durable in this schedule",
                hint=f"pass crash=1 to crash={played.durable}",
            )
        self.found = Explored(self.found.plan, self.found.tasks, schedules=1)
        self._judge(played, line)
        return self.found

    def most(self, wanted: int, plays: int = 1) -> int:
        """So many that it takes no longer than people wait."""
        steps = self._slow * plays * (len(self.serial.path) + 1)
        return max(1, min(wanted // self._slow, WORK_MAX // steps))

    def search(self) -> None:
        """Whole schedules: all, one of each kind, or some that are drawn."""
        options = self._options
        counts = list(Counter(self.serial.path).values())
        if len(counts) <= ALL_TASKS_MAX and orders(counts) <= ALL_MAX // self._slow:
            self._every("all", options.schedules or ALL_MAX, orders(counts))
            return
        if len(counts) <= REDUCED_TASKS_MAX:
            most = options.schedules or self.most(REDUCED_MAX)
            self._every("reduced", most, orders(counts))
        if not self.found.is_complete:
            self._drawn(options.schedules or self.most(DRAWN_MAX))

    def crash(self) -> None:
        """Killed after every durable fact of some schedules, and resumed."""
        lines = [ScheduleText("serial")]
        lines += (ScheduleText("random", seed=self._options.seed + number) for number in range(3))
        points: list[ScheduleText] = []
        for line in lines:
            # So many facts are never durable: they are only counted.
            played = self.play(replace(line, crash=1 << 40))
            if self.difference(played) is None:
                points += (replace(line, crash=at) for at in range(1, played.durable + 1))
        chosen = points[:: ceil(len(points) / self.most(CRASHES_MAX))]
        for number, line in enumerate(chosen):
            self.tell("crashes", number, len(chosen))
            self._judge(self.play(line), line)
        self.found.crashes = len(chosen)

    def _every(self, search: Search, most: int, total: int) -> None:
        found = self.found
        found.search = search
        for trial in interleavings(self.subject.cast, is_reduced=search == "reduced"):
            if found.schedules == most:
                break
            found.schedules += 1
            found.reran += bool(trial.reran)
            self._judge(trial)
            if found.schedules % 64 == 0:
                self.tell("schedules", found.schedules, min(most, total))
        else:
            found.is_complete = True

    def _drawn(self, most: int) -> None:
        options, found = self._options, self.found
        found.search = "drawn"
        for number in range(most):
            seed = options.seed + number // 2
            line = ScheduleText("random", seed=seed)
            if number % 2 == 0 and len(self.labels) <= PRIORITIES_MAX:
                line = ScheduleText("pct", seed=seed, depth=options.depth)
            trial = self.play(line)
            found.schedules += 1
            found.reran += bool(trial.reran)
            self._judge(trial, line)
            self.tell("schedules", number + 1, most)

    def _judge(self, trial: Trial, line: ScheduleText | None = None) -> None:
        """Keep how a schedule differs, if it does; without a line it is its steps."""
        changed = self.difference(trial)
        if changed is None:
            return
        self.found.differing += 1
        if len(self.found.failures) < DIFFERENCES_MAX:
            text = written(line or ScheduleText("steps", tuple(trial.path)), self.places)
            self.found.failures.append(FailedSchedule(text, changed))


def orders(counts: list[int]) -> int:
    """In how many orders tasks with so many steps each can take them, if nothing keeps them."""
    total, ways = 0, 1
    for count in counts:
        total += count
        ways *= comb(total, count)
    return ways
