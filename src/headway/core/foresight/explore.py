"""What happens if B runs before A completes? Tries it, for every pair, and for whole schedules.

Laws:
- The serial run in declared order is what everything is compared with. It is done twice first: a
  task that does not give the same on the same is told as such, and nothing else is concluded.
- A difference comes with the line that gives it again, the first prompt that is not as in the
  serial run, what both tasks touch, and a fix.
- What was not tried is said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, comb
from typing import Final, Literal

from headway.core.foresight.interleave import Tried, interleavings
from headway.core.foresight.played import Difference, Played, Player, difference
from headway.core.foresight.schedules import Line, read_line, written
from headway.core.foresight.subject import Subject
from headway.core.foresight.turning import PairVerdict, turned_pairs
from headway.errors import UsageError

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
"""Differences that are kept: whoever has more starts with these."""

Search = Literal["none", "all", "reduced", "drawn"]


@dataclass(frozen=True, slots=True)
class Options:
    """How much is tried."""

    schedules: int | None = None
    """Beside pairs; None is as many as fits."""
    seed: int = 1
    depth: int = 3
    is_pairs_only: bool = False
    tasks_max: int = 5
    """So many tasks at most are tried in every order."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A schedule that ends differently."""

    replay: str
    difference: Difference


@dataclass(frozen=True, slots=True)
class Explored:
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
    failures: tuple[Failure, ...] = ()
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
"""Told what is being tried, how much of it is done, and of how much (0 if nobody knows)."""


def explore(subject: Subject, options: Options, tell: Tell) -> Explored:
    """Try a plan."""
    explorer = Explorer(subject, options, tell)
    serial = explorer.serial
    found = Explored(
        subject.expanded.spec.name, len(serial.labels),
        failed=tuple(
            f"{serial.labels[place]}: {done.fault}"
            for place, done in sorted(serial.outcome.results.items())
            if done.fault
        ),
    )  # fmt: skip
    changed = explorer.difference(explorer.player.play(Line("serial")))
    if changed is not None:
        return replace(found, nondeterministic=changed)
    pairs = tuple(turned_pairs(explorer))
    found = replace(found, pairs=pairs, apart=explorer.apart)
    if options.is_pairs_only:
        return found
    return explorer.crash(explorer.search(found))


@dataclass(frozen=True, slots=True)
class ExplorerStatistics:
    """Steps of the serial run, and schedules that were played."""

    steps: int
    played: int


class Explorer:
    """Tries one plan in many ways."""

    def __init__(self, subject: Subject, options: Options, tell: Tell) -> None:
        self.subject = subject
        self._options = options
        self.tell = tell
        self._played = 0
        self._slow = SLOW if subject.is_slow else 1
        self.apart = 0
        """Pairs of groups that share nothing, where not all are tried."""
        self.player = Player(subject.cast)
        self.places = subject.cast.places()
        self.serial = self.player.play(Line("serial"), is_traced=True)
        self.player.length = len(self.serial.path)
        self.player.counts = self.serial.counts

    def __repr__(self) -> str:
        return f"<Explorer {self.statistics()}>"

    def statistics(self) -> ExplorerStatistics:
        return ExplorerStatistics(len(self.serial.path), self._played)

    def difference(self, played: Played) -> Difference | None:
        """How a schedule ended differently from the serial run."""
        self._played += 1
        if played.outcome == self.serial.outcome:
            return None
        labels = {**self.serial.labels, **played.labels}
        return difference(self.serial.outcome, played.outcome, labels.__getitem__)

    def replay(self, text: str) -> Explored:
        """One schedule again."""
        line = read_line(text, self.places)
        found = Explored(self.subject.expanded.spec.name, len(self.serial.labels), schedules=1)
        played = self.player.play(line)
        if line.crash > played.facts:
            raise UsageError(
                f"`{text}` kills nothing: only {played.facts} facts are durable in this schedule",
                hint=f"pass crash=1 to crash={played.facts}",
            )
        changed = self.difference(played)
        if changed is None:
            return found
        again = written(line, self.places)
        return replace(found, differing=1, failures=(Failure(again, changed),))

    def most(self, wanted: int, plays: int = 1) -> int:
        """So many that it takes no longer than people wait."""
        steps = self._slow * plays * (len(self.serial.path) + 1)
        return max(1, min(wanted // self._slow, WORK_MAX // steps))

    def search(self, found: Explored) -> Explored:
        """Whole schedules: all, one of each kind, or some that are drawn."""
        options = self._options
        counts = list(Counter(self.serial.path).values())
        if len(counts) <= options.tasks_max and orders(counts) <= ALL_MAX // self._slow:
            return self._every(found, "all", options.schedules or ALL_MAX)
        if len(counts) <= REDUCED_TASKS_MAX:
            found = self._every(found, "reduced", options.schedules or self.most(REDUCED_MAX))
        if found.is_complete:
            return found
        return self._drawn(found, options.schedules or self.most(DRAWN_MAX))

    def _every(self, found: Explored, search: Search, most: int) -> Explored:
        """Depth first, up to so many."""
        count = reran = differing = 0
        failures = list(found.failures)
        total = min(most, orders(list(Counter(self.serial.path).values())))
        for tried in interleavings(self.subject.cast, is_reduced=search == "reduced"):
            if count == most:
                break
            count += 1
            reran += bool(tried.trial.reran)
            changed = self._changed(tried)
            if changed is not None:
                differing += 1
                if len(failures) < DIFFERENCES_MAX:
                    line = written(Line("steps", tuple(tried.path)), self.places)
                    failures.append(Failure(line, changed))
            if count % 64 == 0:
                self.tell("schedules", count, total)
        else:
            found = replace(found, is_complete=True)
        return replace(
            found, search=search, schedules=count, reran=reran,
            differing=found.differing + differing, failures=tuple(failures),
        )  # fmt: skip

    def _changed(self, tried: Tried) -> Difference | None:
        outcome = tried.trial.outcome()
        self._played += 1
        if outcome == self.serial.outcome:
            return None
        labels = {**self.serial.labels, **tried.trial.labels()}
        return difference(self.serial.outcome, outcome, labels.__getitem__)

    def _drawn(self, found: Explored, most: int) -> Explored:
        """By priorities, and by chance."""
        options = self._options
        for number in range(most):
            seed = options.seed + number // 2
            line = Line("random", seed=seed)
            if number % 2 == 0 and len(self.serial.labels) <= PRIORITIES_MAX:
                line = Line("pct", seed=seed, depth=options.depth)
            found = self._one(found, line)
            found = replace(found, search="drawn", schedules=found.schedules + 1)
            self.tell("schedules", number + 1, most)
        return found

    def crash(self, found: Explored) -> Explored:
        """Killed after every durable fact of some schedules, and resumed."""
        lines = [Line("serial")]
        lines += (Line("random", seed=self._options.seed + number) for number in range(3))
        points: list[Line] = []
        for line in lines:
            # So many facts are never durable: they are only counted.
            played = self.player.play(replace(line, crash=1 << 40))
            if self.difference(played) is None:
                points += (replace(line, crash=at) for at in range(1, played.facts + 1))
        chosen = points[:: ceil(len(points) / self.most(CRASHES_MAX))]
        for number, line in enumerate(chosen):
            self.tell("crashes", number, len(chosen))
            found = self._one(found, line)
        return replace(found, crashes=len(chosen))

    def _one(self, found: Explored, line: Line) -> Explored:
        played = self.player.play(line)
        changed = self.difference(played)
        found = replace(found, reran=found.reran + bool(played.reran and not line.crash))
        if changed is None:
            return found
        failures = (*found.failures, Failure(written(line, self.places), changed))
        return replace(found, differing=found.differing + 1, failures=failures[:DIFFERENCES_MAX])


def orders(counts: list[int]) -> int:
    """In how many orders tasks with so many steps each can take them, if nothing keeps them."""
    total, ways = 0, 1
    for count in counts:
        total += count
        ways *= comb(total, count)
    return ways
