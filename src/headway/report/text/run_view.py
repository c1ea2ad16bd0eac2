"""One run as its journal has it now: what every view of it reads.

Laws:
- Every number is of the run's history; here tasks that have not started are added, by the plan.
- A view that stays open reads only what was written since it last looked.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Final

from msgspec import Struct, convert
from msgspec.structs import replace

from headway.base.folders import folders
from headway.base.locks import look as look_owner
from headway.base.values import Budget
from headway.engine.record import Header, TaskRow, TaskState
from headway.errors import BadValueError, HeadwayError, nearest
from headway.journal.documents import (
    CAST,
    FORECAST,
    RunOutline,
    is_edited,
    kept,
    kept_shape,
    source_of,
)
from headway.journal.folder import RunPlace, find_run
from headway.journal.reader import JournalReader
from headway.report.history import WORDS, RunHistory, RunVerdict, TaskHistory, verdict
from headway.report.progress import TimeLeft, time_left
from headway.report.text.words import one_line

if TYPE_CHECKING:
    from headway.pacing.view import AccountView

WHOLE_MAX: Final = 20_000
"""Tasks of a run whose histories are all kept; of a larger one, only of those that have not ended:
half a kilobyte for each."""

NAMES_HINTED_MAX: Final = 1000
MATCHES_MAX: Final = 5
NEAR: Final = 0.4
"""How alike a name is that is proposed for a word: names of tasks are long, and words short."""


def state_folder() -> str:
    return folders(os.environ).state


@contextmanager
def opened(word: str) -> Iterator[tuple[RunPlace, JournalReader]]:
    """The run that a word names, and its journal to read."""
    place = find_run(state_folder(), word)
    with JournalReader(place.folder) as reader:
        yield place, reader


def is_owned(folder: str) -> bool:
    """Whether a live process performs the run of a folder."""
    owner = look_owner(folder)
    return owner is not None and owner.is_alive


class GroupCount(Struct, frozen=True):
    """How far one group is; `total` is None until its size is known."""

    name: str
    total: int | None
    words: Mapping[str, int]
    waits_for: str = ""
    """The group that its tasks wait for, those that wait for a task."""

    def of(self, *words: str) -> int:
        return sum(self.words.get(word, 0) for word in words)

    @property
    def ended(self) -> int:
        return self.of("done", "reused", "failed", "skipped")


class RunView:
    """A journal, folded; `refresh` reads on."""

    def __init__(self, reader: JournalReader, *, is_whole: bool = False) -> None:
        """`is_whole` keeps the history of every task, however many there are."""
        self.reader: Final = reader
        self.header: Final[Header] = reader.header
        self.shape: RunOutline | None = None
        self.source: Mapping[str, object] = {}
        self.verdict = RunVerdict("new")
        self.pid: int | None = None
        self.now_s = 0.0
        self._group_of: dict[bytes, str] = {}
        self._row = self._shape_of = 0
        self.seq = 0
        """The last event that was read."""
        self.touched: set[bytes] = set()
        """The tasks of which the last look has read something."""
        self._saved: dict[bytes, TaskState] = {}
        self._declared: Mapping[bytes, int] | None = None
        """The tasks of a run whose plan was edited since it began; None is the usual case."""
        keeps = is_whole or self.header.tasks <= WHOLE_MAX
        self.history = RunHistory(self.group_of, self._works_alone, keeps_ended=keeps)
        self.refresh()

    def refresh(self) -> None:
        reader, history = self.reader, self.history
        if not self._shape_of or self._shape_of != history.parts:
            self.shape, self.source = kept_shape(reader), self._source()
        # The owner first: a run that has none has written its last fact.
        owner = look_owner(reader.folder)
        self._learn_names()
        self.touched = set()
        for recorded in reader.events(self.seq):
            self.seq = recorded.seq
            self.touched.add(recorded.key)
            history.apply(recorded.key, recorded.event)
        self._shape_of = history.parts
        self.now_s = time.time()
        alive = owner is not None and owner.is_alive
        self.pid = owner.pid if owner is not None and alive else None
        self.verdict = verdict(history.standing, alive, self.now_s)
        if self.header.kind == "plan" and is_edited(reader):
            from headway.run.resume import declared_places

            self._declared = declared_places(reader)
        if not self.is_live:
            history.cut_off()
        self._saved = {} if self.is_live else self._differing()

    @property
    def is_live(self) -> bool:
        return self.verdict.is_live

    @property
    def elapsed_s(self) -> float:
        """Time of the run, without that between two of its processes."""
        return self.history.at(self.now_s) if self.is_live else self.history.elapsed_s

    @property
    def strategy(self) -> str:
        """`adaptive, at most 3 at once`; empty before the run has begun."""
        words, most = (
            self.history.standing.strategy,
            inf if self.shape is None else self.shape.ceiling,
        )
        return f"{words}, at most {most:g} at once" if words and most < inf else words

    @property
    def total(self) -> int:
        if self._declared is not None:
            return len(self._declared)
        groups = self.groups()
        known = sum(one.total or 0 for one in groups)
        return max(known or self.header.tasks, sum(one.of(*one.words) for one in groups))

    @property
    def is_total_known(self) -> bool:
        return all(one.total is not None for one in self.groups())

    @property
    def left(self) -> int:
        words = self.words()
        return self.total - sum(words[word] for word in ("done", "reused", "failed", "skipped"))

    def words(self) -> Counter[str]:
        """How many tasks are where, all of them counted."""
        found: Counter[str] = Counter()
        for group in self.groups():
            found.update(group.words)
        return +found

    def groups(self) -> list[GroupCount]:
        """Every group in declared order."""
        seen = self._seen()
        if self.shape is None:
            words = sum(seen.values(), Counter[str]())
            return [self._counted("tasks", self.header.tasks, words, "", None)]
        counts, expanded = [], self.history.expanded
        totals = [
            expanded.get(index) if group.count is None else group.count
            for index, group in enumerate(self.shape.graph.groups)
        ]
        for index, group in enumerate(self.shape.graph.groups):
            words = seen.get(group.name, Counter())
            waits = self._waits(index, totals, seen)
            counts.append(self._counted(group.name, totals[index], words, *waits))
        return counts

    def inner(self) -> dict[str, tuple[int, int]]:
        """Of each level of a reduction, how many tasks are done, and how many there are."""
        return {
            one.name: (one.of("done", "reused"), one.total or 0)
            for one in self.groups()
            if "/" in one.name and one.total
        }

    def sent_back(self) -> dict[str, int]:
        """How many tasks ran again because another one rejected their work, by their group."""
        groups = self.history.groups
        looped = {name.partition("@")[0] for name in groups if "@" in name}
        found: Counter[str] = Counter()
        for name, group in groups.items():
            base, _, number = name.partition("@")
            if base in looped and number != "1":
                found[base] += group.finished - group.passed
        return dict(+found)

    def time_left(self, lanes: Sequence[AccountView]) -> TimeLeft:
        found = time_left(
            self.history, self.left, [lane.limits for lane in lanes], self.history.at(self.now_s),
            is_whole=self.is_total_known, foreseen_s=self._foreseen_s(),
        )  # fmt: skip
        if self.verdict.until_s is None or found.eta_s is None:
            return found
        # Nothing starts before the run goes on.
        waits_s = self.verdict.until_s - self.now_s
        return replace(found, eta_s=max(found.eta_s, waits_s + (found.bound_s or 0.0)))

    def _foreseen_s(self) -> float | None:
        """The time that was foreseen for the whole run, where nothing about it is unknown. A run
        that was resumed takes another one."""
        if self.history.parts > 1 or self.reader.document(FORECAST) is None:
            return None
        from headway.report.forecast import Foreseen

        found = kept(self.reader, FORECAST, Foreseen)
        return None if found is None or found.unknown else found.time_s.mid

    def lanes(self) -> list[AccountView]:
        """The accounts that the run's process calls now, whose models its prompts ask, or of whose
        windows it has taken a share; without a broker none, and then no bound is shown."""
        if self.source.get("sim") is not None:
            return []  # The simulated provider is in the run's own process.
        from headway.client.overview import overview

        try:
            seen = overview(os.environ)
        except HeadwayError:
            return []
        if seen.about is None:
            return []
        view = seen.view
        ids = {client for client, name in seen.about.clients if name.endswith(f"[{self.pid}]")}
        run, asked = self.header.run, self._asked(dict(view.keys))
        return [
            lane
            for lane in view.accounts
            if (lane.account, lane.group) in asked
            or any(one.client in ids for one in lane.clients)
            or any(run in dict(window.runs) for window in lane.windows)
        ]

    def _asked(self, names: Mapping[str, str]) -> set[tuple[str, str]]:
        """The accounts and model groups of a plan's prompts; `names` are of keys."""
        from headway.pacing.memory import model_group

        found = (kept(self.reader, CAST, dict[str, object]) or {}).get("accounts")
        keys = found.items() if isinstance(found, dict) else ()
        return {(names.get(key, key), model_group(model)) for model, key in keys}

    def windows(self, lanes: Sequence[AccountView]) -> Iterator[str]:
        """The usage windows of these accounts, and the run's share of each."""
        from headway.report.text.accounts import window_lines

        each = self.history.taken.tokens / max(1, self.history.performed)
        return window_lines(lanes, self.header.run, each * self.left)

    def again_s(self, task: TaskHistory) -> float:
        """When a task is tried again, by the clock: not while the run is held."""
        return max(task.again_s, self.history.standing.held_until_s or 0.0)

    def _source(self) -> Mapping[str, object]:
        """What is kept of a plan and its options, as it was last performed; empty of others."""
        header = self.header
        if header.kind == "plan":
            with suppress(ValueError):
                found = json.loads(source_of(self.reader))
                return found if isinstance(found, dict) else {}
        return {}

    def budget(self) -> Budget | None:
        """What it may spend; until its process has begun, as far as its options say it."""
        if self.shape is not None:
            return self.shape.budget
        found = self.source.get("budget")
        return None if found is None else convert(found, Budget)

    def name(self, key: bytes) -> str:
        row = self.reader.row(key)
        return key.hex()[:8] if row is None else row.name

    def rows(self, state: TaskState) -> Iterator[TaskRow]:
        """Rows of tasks that the plan still has."""
        rows = self.reader.rows(state)
        return (row for row in rows if self.has(row.key))

    def has(self, key: bytes) -> bool:
        """Whether the plan still has a task."""
        return self._declared is None or key in self._declared

    def place(self, key: bytes) -> tuple[int, int]:
        """Where a task stands in declared order: its group's place, and its own."""
        if self._declared is not None:
            return self._declared.get(key, 0), 0
        task = self.history.tasks.get(key)
        if task is None:
            return len(self.history.tasks), 0
        index = -1 if self.shape is None else self.shape.graph.index.get(task.group.name, -1)
        return index, task.number

    def group_of(self, key: bytes) -> str:
        """The group of a task, by its name: `review` of `review[security]`; an `each` is one."""
        if self.header.kind == "each":
            return "each"
        name = self._group_of.get(key)
        if name is None:
            row = self.reader.row(key)
            name = "" if row is None else _group_in(row.name)
        return name

    def _learn_names(self) -> None:
        if self.header.kind == "each":
            return
        for number, key, name in self.reader.names(self._row):
            self._row = number
            self._group_of[key] = _group_in(name)

    def _works_alone(self, group: str) -> bool:
        """Whether a task works before its first call: programs and functions do, prompts do not."""
        if self.header.kind != "plan":
            return True
        shape = self.shape
        if shape is None:
            return False
        if shape.models is not None:
            return group not in shape.models
        index = shape.graph.index.get(group)
        return index is not None and shape.graph.groups[index].is_local

    def _seen(self) -> dict[str, Counter[str]]:
        """By group: the words of all tasks that have a history, as far as the plan has them."""
        history, declared, saved = self.history, self._declared, self._saved
        found: dict[str, Counter[str]] = {}
        for key, state in saved.items():
            if declared is None or key in declared:
                word = "not started" if state in ("delayed", "stale") else str(WORDS[state])
                found.setdefault(self.group_of(key), Counter())[word] += 1
        if declared is None:
            for group in history.groups.values():
                words = found.setdefault(group.name, Counter())
                words["done"] += group.finished - group.reused
                words["reused"] += group.reused
                words["failed"] += group.states["failed"]
                words["skipped"] += group.states["skipped"]
            for key in saved:
                if (task := history.tasks.get(key)) is not None and task.ended_s is not None:
                    found[task.group.name][task.word] -= 1
        for task in history.tasks.values():
            if (declared is None and task.ended_s is not None) or task.key in saved:
                continue
            if declared is None or task.key in declared:
                found.setdefault(task.group.name, Counter())[self.word_of(task)] += 1
        if declared is not None:
            for key, word in history.ended.items():
                if key in declared and key not in saved:
                    found.setdefault(self.group_of(key), Counter())[word] += 1
        return found

    def word_of(self, task: TaskHistory) -> str:
        """Where a task is; without a process nothing goes on."""
        if self.is_live or task.word in ("done", "reused", "failed", "skipped", "held"):
            return "not started" if task.state is None else task.word
        return "cut off" if task.state in ("started", None) else "not started"

    def _waits(
        self, index: int, totals: Sequence[int | None], seen: Mapping[str, Counter[str]]
    ) -> tuple[str, int | None]:
        """The group that tasks wait for that have not started, and how many do; None is all."""
        if self.shape is None:
            return "", None
        graph = self.shape.graph
        blocks = {need.group: need.block for need in graph.blocks[index]}
        worst: tuple[str, int | None] = ("", 0)
        for other in graph.needs[index]:
            name, total = graph.groups[other].name, totals[other]
            words = seen.get(name, Counter())
            ended = sum(words[word] for word in ("done", "reused", "failed", "skipped"))
            if total is not None and ended >= total:
                continue
            if other not in blocks or totals[index] is None:
                return name, None
            waiting = (totals[index] or 0) - ended // blocks[other]
            if waiting > (worst[1] or 0):
                worst = name, waiting
        return worst

    def _counted(
        self, name: str, total: int | None, words: Counter[str], waits_for: str,
        waiting: int | None,
    ) -> GroupCount:  # fmt: skip
        rest = max(0, (total or 0) - words.total())
        words = Counter(words)
        if not self.is_live:
            words["not started"] += rest
        else:
            again = words.pop("not started", 0)
            blocked = rest if waiting is None and waits_for else min(rest, waiting or 0)
            words["waiting for a task"] += blocked
            words["queued"] += rest - blocked + again
        return GroupCount(name, total, +words, waits_for)

    def _differing(self) -> dict[bytes, TaskState]:
        """Tasks whose rows differ from their events, in a journal that was saved or has lost
        results: a resume goes by rows."""
        history = self.history
        counts = sum((group.states for group in history.groups.values()), Counter[TaskState]())
        counts["started"] += sum(task.state is None for task in history.tasks.values())
        if dict(+counts) == self.reader.states() or not history.tasks:
            return {}
        found: dict[bytes, TaskState] = {}
        for row in self.reader.rows():
            task = history.tasks.get(row.key)
            if task is None or row.state != (task.state or "started"):
                found[row.key] = row.state
        return found


def _group_in(name: str) -> str:
    return name.partition("[")[0]


def find_row(reader: JournalReader, word: str) -> TaskRow | None:
    """The task that a word means among those that have started."""
    # No name in a journal has what UTF-8 does not, and its database would refuse to look for it.
    word = word.encode(errors="replace").decode()
    same = list(reader.rows(name=word))
    if not same and (name := match_name(word, (row.name for row in reader.rows()))):
        same = list(reader.rows(name=name))
    return same[-1] if same else None  # After an edit the last of several is what counts.


def match_name(word: str, names: Iterable[str]) -> str | None:
    """The name that a word is, or the only one that has the word in it, as it is or as shown.
    BadValueError lists the names if several have it."""
    near: dict[str, None] = {}
    shown = " ".join(word.split())
    for name in names:
        if name == word:
            return name
        if word in name or shown in " ".join(name.split()):
            near[name] = None
    if len(near) > 1:
        listed = [one_line(name) for name in islice(near, MATCHES_MAX)]
        more = f" and {len(near) - MATCHES_MAX:,} more" if len(near) > MATCHES_MAX else ""
        raise BadValueError(
            f"`{one_line(word)}` may be any of {len(near):,} tasks",
            detail=f"{', '.join(listed)}{more}",
            hint=f"say which one, for instance '{listed[0]}'",
        )
    return next(iter(near), None)


def unknown_task(reader: JournalReader, name: str) -> BadValueError:
    known = [row.name for row in islice(reader.rows(), NAMES_HINTED_MAX)]
    if not known:
        return BadValueError("no task has started in this run yet", hint="headway status")
    message = f"no task `{one_line(name)}` has started in this run"
    return BadValueError(message, hint=task_hint(name, known))


def task_hint(word: str, names: Sequence[str]) -> str:
    """The task that was probably meant; else some names of tasks."""
    if near := nearest(word, names, NEAR):
        return f"did you mean `{one_line(near)}`?"
    more = f" and {len(names) - MATCHES_MAX:,} more" if len(names) > MATCHES_MAX else ""
    return f"its tasks: {', '.join(one_line(name) for name in names[:MATCHES_MAX])}{more}"
