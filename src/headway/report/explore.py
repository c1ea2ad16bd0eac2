"""What happens if B runs before A completes? Decides which pairs are tried, and what came of it.

Laws:
- Everything is compared with the run of one task after another, in declared order.
- A pair is independent if B does without A's effects what it did with them, A does after B what it
  did before, and the files end the same. Dates of files count as read, and are not compared.
- A pair need not be tried if neither used what the other one changed. What was not observed counts
  as everything.
- Tasks that depend on each other by way of a third one, which was found, are not tried again.
- What was not judged is named, and no all-clear covers it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from headway.plans.command_files import pattern_of
from headway.plans.expand import ExpandedPlan, Members, prompt_paths
from headway.plans.resources import above, matches
from headway.plans.spec import Prompt

EXCERPT_CHARS: Final = 200


class FileEntry(Struct, frozen=True):
    """What stands at a path: a file, a link or a folder."""

    mode: int
    content: str = ""
    """The digest of a file, where a link leads; empty for a folder."""
    mtime_ns: int = 0
    """Of files, which tools like make go by."""


Changes = Mapping[str, FileEntry | None]
"""By path within the plan's folder, what stands there since; None for what is gone."""


class Performance(Struct, frozen=True):
    """What one performance of a task did."""

    fault: str = ""
    """Why it failed; empty if it did not."""
    body: bytes = b""
    changes: Changes = field(default_factory=dict)
    used: frozenset[str] | None = None
    """Paths that it opened, looked for or wrote, with the folders above them; None is any."""
    listed: frozenset[str] = frozenset()
    """Folders whose names it read."""
    puts: tuple[str, ...] = ()
    """What it put into the shared state, and effects that it asked for."""
    looks: tuple[str, ...] = ()
    """Keys of the shared state that it read."""
    outside: tuple[str, ...] = ()
    """Paths that it wrote outside of the plan's folder."""
    took_s: float = 0.0


def uses(done: Performance, changes: Changes) -> bool:
    """Whether a task may do something else if these changes are not there."""
    if done.used is None:
        return bool(changes)
    return any(path in done.used or path.rpartition("/")[0] in done.listed for path in changes)


def with_above(paths: Collection[str]) -> frozenset[str]:
    return frozenset(folder for path in paths for folder in (path, *above(path)) if folder)


def common_key(one: Performance, other: Performance) -> str:
    """A key of the shared state, or an effect channel, that both touch and one of them changes."""
    for looks, puts in ((one.looks, other.puts), (other.looks, one.puts), (one.puts, other.puts)):
        for put in puts:
            key = put.partition(": ")[0]
            if any(look.partition(": ")[0] == key or matches(look, key) for look in looks):
                return key
    return ""


Kind = Literal["fails", "result", "file", "state", "early"]
"""`early`: a file is read before the run begins, and is written in it."""


class Difference(Struct, frozen=True):
    """The first thing that is not as in declared order."""

    kind: Kind
    where: str
    """The task, or the path."""
    serial: str
    got: str


def compare(label: str, serial: Performance, got: Performance) -> Difference | None:
    """How a task ends otherwise, prints or puts something else; files apart."""
    if got.fault:
        return Difference("fails", label, "a result", got.fault)
    if got.body != serial.body:
        bodies = (body.decode("utf-8", "replace") for body in (serial.body, got.body))
        return Difference("result", label, *_apart(*bodies))
    if got.puts != serial.puts:
        return Difference("state", label, *_apart("\n".join(serial.puts), "\n".join(got.puts)))
    return None


def is_same(one: Performance, other: Performance) -> bool:
    """Whether a task did the same twice, to its files too."""
    if compare("", one, other) is not None or one.changes.keys() != other.changes.keys():
        return False
    return all(_plain(one.changes[path]) == _plain(other.changes[path]) for path in one.changes)


def are_apart(every: Sequence[Changes]) -> bool:
    """Whether no two of some tasks changed the same path: then none hides what another did."""
    paths = [path for changes in every for path in changes]
    return len(paths) == len(set(paths))


def compare_files(
    serial: Changes, got: Changes, base: Callable[[str], FileEntry | None],
    text: Callable[[FileEntry | None], str],
) -> Difference | None:  # fmt: skip
    """The first path, in order, that ends as something else."""
    for path in sorted({*serial, *got}):
        one, other = (here[path] if path in here else base(path) for here in (serial, got))
        if _plain(one) != _plain(other):
            if one is None or other is None or one.content != other.content:
                return Difference("file", path, *_apart(text(one), text(other)))
            return Difference("file", path, oct(one.mode), oct(other.mode))
    return None


def _plain(entry: FileEntry | None) -> tuple[int, str] | None:
    return None if entry is None else (entry.mode, entry.content)


def _apart(one: str, other: str) -> tuple[str, str]:
    """The first lines in which two texts differ."""
    lines, others = one.split("\n"), other.split("\n")
    at = next((n for n, (a, b) in enumerate(zip(lines, others, strict=False)) if a != b),
              min(len(lines), len(others)))  # fmt: skip
    one, other = (
        (some[at] if at < len(some) else "").strip()[:EXCERPT_CHARS] for some in (lines, others)
    )
    return one or "(nothing)", other or "(nothing)"


Verdict = Literal["ordered", "kept", "independent", "fails", "differs", "implied", "unjudged"]


class PairVerdict(Struct, frozen=True):
    """What happens if the second task of a pair runs before the first one completes."""

    first: str
    second: str
    verdict: Verdict
    why: str = ""
    """The key that orders them; what was tried; why they are not judged."""
    difference: Difference | None = None
    fix: str = ""
    """What to add to the plan, so that the order is always the declared one."""


class Explored(Struct):
    """What was found out about a plan."""

    plan: str
    tasks: int
    pairs: list[PairVerdict] = field(default_factory=list)
    tries: int = 0
    """Tasks that were performed again for pairs."""
    cropped: tuple[str, ...] = ()
    """Groups of which only the first members were tried."""
    notes: tuple[str, ...] = ()

    @property
    def counts(self) -> Counter[str]:
        return Counter(pair.verdict for pair in self.pairs)

    @property
    def depends(self) -> int:
        """Pairs with a dependency that no key of the plan says."""
        counts = self.counts
        return counts["fails"] + counts["differs"] + counts["implied"]

    @property
    def is_clear(self) -> bool:
        """Whether every pair was judged, and none has to be put in order."""
        return not self.depends and not self.counts["unjudged"]


# The plan as it is tried.

MEMBERS_MAX: Final = 3
"""Members of a group that are tried: two meet each other, and a third shows whether it matters."""


def cropped(expanded: ExpandedPlan, members_max: int) -> tuple[ExpandedPlan, tuple[str, ...]]:
    """The plan with at most this number of members in each group, and the groups that had more."""
    groups = tuple(
        replace(group, members=group.members and _some(group.members, members_max))
        for group in expanded.groups
    )
    less = tuple(
        before.name
        for before, after in zip(expanded.groups, groups, strict=True)
        if before.members is not None and before.members.count != (after.members or before).count
    )
    return replace(expanded, groups=groups), less


def _some(members: Members, most: int) -> Members:
    if members.count <= most:
        return members
    if members.items is not None:
        matrix = tuple((name, values[:1]) for name, values in members.matrix)
        return Members.of(members.items[:most], matrix)
    (name, values), *others = members.matrix
    return Members.of(None, ((name, values[:most]), *((one, few[:1]) for one, few in others)))


def read_early(expanded: ExpandedPlan, group: int, changes: Changes) -> str:
    """The path that is read for a task before the run begins, and was changed; empty if none is."""
    plan = expanded.groups[group]
    task, each = plan.task, plan.task.each
    if isinstance(task.work, Prompt):
        for path in prompt_paths(plan):
            if path in changes:
                return path
    if each is not None and each.kind in ("lines", "rows", "glob"):
        pattern = pattern_of(each.source) if each.kind == "glob" else re.compile("")
        for path in changes:
            if path == each.source or (each.kind == "glob" and pattern.fullmatch(path)):
                return path
    return ""


# Which tasks come before which, by keys of the plan and by what was found.


class KnownOrder:
    """Who comes before whom. Tasks are numbers in declared order."""

    def __init__(self, count: int, is_ordered: Callable[[int, int], bool]) -> None:
        self._declared = [
            {one for one in range(other) if is_ordered(one, other)} for other in range(count)
        ]
        self._found: list[set[int]] = [set() for _ in range(count)]

    def declares(self, one: int, other: int) -> bool:
        return one in self._declared[other]

    def behind(self, one: int, other: int) -> list[int]:
        """Those between two tasks that come after the first one, by keys of the plan."""
        return [number for number in range(one + 1, other) if self.declares(one, number)]

    def add(self, one: int, other: int) -> None:
        """The second one depends on the first one, which no key says."""
        self._found[other].add(one)

    def between(self, one: int, other: int) -> int | None:
        """A task by way of which these two depend on each other, as was found."""
        for middle in sorted(self._found[other] | self._declared[other], reverse=True):
            if middle > one and (self.declares(one, middle) or self._has(one, middle)):
                return middle
        return None

    def _has(self, one: int, other: int) -> bool:
        return one in self._found[other] or self.between(one, other) is not None


def files_before(
    done: Sequence[Performance], before: int, left_out: set[int]
) -> dict[str, FileEntry | None]:
    """The files as all tasks before one have left them, but some."""
    files: dict[str, FileEntry | None] = {}
    for number in range(before):
        if number not in left_out:
            files.update(done[number].changes)
    return files


def fix_of(first: str, second: str, needs: Sequence[str]) -> str:
    """What puts two tasks in order; members of one group take turns."""
    one, other = (label.partition("[")[0] for label in (first, second))
    if one == other:
        return f"{other}:\n  queue: {other}"
    every = ", ".join((*needs, one))
    return f"{other}:\n  needs: {f'[{every}]' if needs else every}"


def is_named(label: str, name: str) -> bool:
    """Whether a name means a task: by itself, or by its group."""
    return name in (label, label.partition("[")[0])
