"""Shows results in declared order: JSON Lines, table, files.

Laws:
- A cell of a table that a spreadsheet would take for a formula is not one: it begins with a quote.
- A file's name is made of harmless characters, and two tasks never share one.
- A line of JSON holds no character that a terminal obeys: those are escaped.
"""

from __future__ import annotations

import csv
import json
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TextIO

from headway.base.clock import wall_s
from headway.engine.record import TaskRow
from headway.errors import BadValueError, StateFileError, did_you_mean
from headway.journal.reader import JournalReader
from headway.plans.expand import Members
from headway.plans.rows import SEPARATORS, Rows, suffix_of
from headway.plans.spec import Prompt, Value, text_of
from headway.report.history import WORDS, AttemptUsage
from headway.report.text.agents import agents_as_json
from headway.report.text.run_view import RunView, unknown_task
from headway.report.text.runs import usage_json
from headway.report.text.words import aligned, fault_line, json_line, one_line

if TYPE_CHECKING:
    from rich.console import Console

    from headway.agents.programs import AgentUsage
    from headway.plans.expand import GroupPlan

FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")

COLUMNS: Final = (
    "task", "state", "output", "attempts", "input_tokens", "output_tokens", "usd", "seconds",
    "reason", "cache_read_tokens", "cache_write_tokens", "cache_rewrite_tokens",
)  # fmt: skip

NAME_MAX: Final = 120
"""Bytes of a task's name in a file's: file systems allow 255, and a number and a suffix follow."""


Gave = tuple[TaskRow, bytes | None, AttemptUsage]
"""A task that ended, its result, None if it has none or results are not kept, and what all of its
attempts took."""


def harvest(
    reader: JournalReader, names: Collection[str] = (), *, is_final: bool = False
) -> Iterator[Gave]:
    """The tasks that have ended, or those in `names`, in declared order; if asked, without names,
    only those that no other task needs."""
    run = RunView(reader, is_whole=True)
    inner = run.inner()
    groups = final_groups(run) if is_final and not names else None
    rows = [
        row
        for row in reader.rows()
        if run.has(row.key)
        and run.group_of(row.key) not in inner
        and (names or "@" not in run.group_of(row.key))
        and (not names or row.name in names or row.name.partition("[")[0] in names)
        and (groups is None or run.group_of(row.key) in groups)
    ]
    rows.sort(key=lambda row: run.place(row.key))
    there = {row.name for row in rows} | {row.name.partition("[")[0] for row in rows}
    for name in names:
        if name not in there:
            raise unknown_task(reader, name)
    for row in rows:
        task = run.history.tasks.get(row.key)
        taken = AttemptUsage() if task is None else task.taken
        if row.state == "finished":
            yield row, reader.body(row.ending.body) if row.ending.body else None, taken
        elif row.state in ("failed", "skipped"):
            yield row, None, taken


def as_json(gave: Gave, *, is_parsed: bool) -> dict[str, object]:
    row, body, taken = gave
    output: object = None if body is None else body.decode("utf-8", "replace")
    if is_parsed and isinstance(output, str):
        with suppress(ValueError):
            output = json.loads(output)
    shown: dict[str, object] = {
        "task": row.name,
        "state": WORDS[row.state],
        "output": output,
        "attempts": row.attempt,
        **usage_json(taken),
        "seconds": round(max(0.0, row.ended_s - row.started_s), 3) if row.started_s else 0.0,
    }
    if row.ending.exit_code is not None:
        shown["exit_code"] = row.ending.exit_code
    if row.state != "finished":
        shown["reason"] = row.fault or "something that it needs has failed"
    return shown


def final_groups(run: RunView) -> list[str] | None:
    """The groups that no other one needs: what a plan is for. None if that is unknown."""
    if run.shape is None:
        return None
    graph = run.shape.graph
    return [one.name for index, one in enumerate(graph.groups) if not graph.dependents[index]]


def prompt_of(reader: JournalReader, name: str) -> str:
    """A task's prompt with the values and results that the journal has for it."""
    return prompts_of(reader)(name)


def prompts_of(reader: JournalReader) -> Callable[[str], str]:
    """Gives the prompt of a task, by its name."""
    from headway.run.filling import filled, given_text
    from headway.run.plan_run import PlanSource
    from headway.run.resume import plans_of
    from headway.run.revise import sent_back, with_reason
    from headway.work import Needed

    if reader.header.kind != "plan":
        raise BadValueError("only tasks of a plan have prompts", hint="headway logs RUN TASK")
    plans = plans_of(reader, PlanSource.kept(reader))
    groups = plans.expanded.groups
    prompts = {
        group.label(member): (group, member, group.task.work)
        for group in groups
        if isinstance(group.task.work, Prompt)
        for member in range(group.known.count)
    }

    def given(group: GroupPlan, member: int, task: str) -> list[Needed]:
        every = [groups[edge.group] for edge in group.edges]
        # Of a task that has rounds, the one that this task belongs to.
        needed = next(one for one in every if task in (one.name, one.round and one.round.name))
        is_own = any(edge.group == needed.index and edge.memberwise for edge in group.edges)
        keys, found = plans.keys[needed.index], list[Needed]()
        for one in [member] if is_own else range(needed.known.count):
            row = None if keys is None else reader.row(keys.key(one))
            body = reader.body(row.ending.body) if row is not None and row.ending.body else None
            if body is None:
                raise BadValueError(f"{needed.label(one)}, which it needs, has no result yet")
            found.append(Needed(task, one, needed.label(one), body))
        return found

    def prompt(name: str) -> str:
        if name not in prompts:
            raise BadValueError(f"no task `{name}` has a prompt", hint=did_you_mean(name, prompts))
        group, member, work = prompts[name]
        source = plans.expanded.sources.files.get(work.file, "") if work.file else work.text
        state = "{{{{ state{} }}}}".format  # What it saw of the shared state is not kept as text.
        group = sent_back(group, partial(given, group, member))
        source = with_reason(group, source)

        def give(task: str) -> str:
            return given_text(given(group, member, task), member)

        return filled(group, source, group.known.member(member), give, state)

    return prompt


TABLE_CELLS: Final = 30


def draw_results(console: Console, found: Iterator[Gave]) -> None:
    """A table for people: the beginning of each result."""
    from rich.text import Text

    rows = [("task", "state", "result")]
    for row, body, _ in found:
        text = fault_line(row.fault) if body is None else body.decode("utf-8", "replace")
        name = one_line(row.name, TABLE_CELLS)
        rows.append((name, WORDS[row.state], one_line(text, console.width)))
    for number, cells in enumerate(aligned(rows, width=console.width, shortened=(2,))):
        console.print(Text("  ".join(cells).rstrip(), "" if number else "dim"), soft_wrap=True)


def write_lines(
    stream: TextIO,
    found: Iterator[Gave],
    *,
    is_parsed: bool,
    agents: Mapping[str, list[AgentUsage]],
) -> None:
    """JSON Lines. `agents` are those of tasks, by their keys."""
    for gave in found:
        shown = as_json(gave, is_parsed=is_parsed)
        if accounts := agents.get(gave[0].key.hex()):
            shown["agent"] = agents_as_json(accounts)
        stream.write(json_line(shown) + "\n")


def write_table(stream: TextIO, found: Iterator[Gave]) -> None:
    writer = csv.writer(stream)
    writer.writerow(COLUMNS)
    for gave in found:
        shown = as_json(gave, is_parsed=False)
        writer.writerow([guarded(shown.get(column)) for column in COLUMNS])


def write_folder(folder: str, found: Iterator[Gave]) -> int:
    done = 0
    taken: set[str] = set()
    try:
        os.makedirs(folder, exist_ok=True)
        for row, body, _ in found:
            if body is not None:
                name = safe_name(row.name, taken)
                with open(os.path.join(folder, name), "wb") as file:
                    file.write(body)
                done += 1
    except OSError as fault:
        raise StateFileError(
            f"{folder} cannot be written to: {fault.strerror}", hint="choose another --folder"
        ) from None
    return done


def guarded(value: object) -> object:
    if isinstance(value, str) and value.startswith(FORMULA):
        return f"'{value}"
    return value


def safe_name(name: str, taken: set[str]) -> str:
    """A file name that shells take as it is and that no case-insensitive file system mixes up."""
    plain = re.sub(r"[^\w.,=@+-]+", "_", name, flags=re.UNICODE).strip("._ ")
    plain = plain.encode()[:NAME_MAX].decode("utf-8", "ignore") or "task"
    chosen, number = f"{plain}.txt", 1
    while chosen.lower() in taken:
        number += 1
        chosen = f"{plain}-{number}.txt"
    taken.add(chosen.lower())
    return chosen


# The rows of a run with their results, in their order, while it runs. What is written is a
# beginning of all rows: each waits for those before it. A resumed run writes them anew from its
# journal, so that a line which a kill cut off is whole.

STDOUT: Final = "-"
REASON: Final = "error"
LINE: Final = "row"
"""The column of a row that is a line of a plain list."""


class RowWriter:
    def __init__(
        self, path: str, column: str, members: Members, key: Callable[[int], bytes],
        reader: JournalReader,
    ) -> None:  # fmt: skip
        """`key` gives the key of a member's task; results that the journal has are written now."""
        self._path, self._column, self._reader = path, column, reader
        self._members, self._key = members, key
        self._next, self._began_s = 0, wall_s()
        columns = members.items.every_column if isinstance(members.items, Rows) else ()
        if taken := {column, REASON}.intersection(columns):
            raise BadValueError(
                f"the rows have a column `{min(taken)}` already",
                hint="name the column of results with --column, or rename yours",
            )
        self._columns = [*(columns or (LINE,)), column, REASON]
        separator = SEPARATORS.get(suffix_of(path), "")
        try:
            is_stdout = path == STDOUT
            self._file: TextIO = (
                sys.stdout if is_stdout else open(path, "w", encoding="utf-8", newline="")  # noqa: SIM115
            )
            self._table = csv.writer(self._file, delimiter=separator) if separator else None
            if self._table is not None:
                self._table.writerow(self._columns)
        except OSError as fault:
            raise self._unwritable(fault) from None
        self.advance()

    @property
    def words(self) -> str:
        """How many rows were written where."""
        name = "stdout" if self._path == STDOUT else os.path.relpath(self._path)
        return f"{name}: {self._next:,} of {self._members.count:,} rows"

    def advance(self) -> None:
        """Write the rows that have ended, up to the first that has not."""
        first = self._next
        try:
            while self._next < self._members.count:
                found = self._reader.row(self._key(self._next))
                if found is None or not self._has_ended(found):
                    break
                self._put(self._shown(self._next, found))
                self._next += 1
            if self._next > first:
                self._file.flush()
        except OSError as fault:
            raise self._unwritable(fault) from None

    def _has_ended(self, row: TaskRow) -> bool:
        """Whether it has ended for good: one that failed before a resume is tried again."""
        return row.state == "finished" or (row.state == "failed" and row.ended_s >= self._began_s)

    def close(self) -> None:
        """Write what the journal has by now: failures are not waited for to be durable."""
        self.advance()
        with suppress(OSError, ValueError):
            self._file.flush()
            if self._path != STDOUT:
                self._file.close()

    def _shown(self, member: int, found: TaskRow) -> Mapping[str, Value]:
        item = self._members.member(member).item
        shown = dict(item) if isinstance(item, dict) else {LINE: item}
        data = self._reader.body(found.ending.body) if found.ending.body else None
        shown[self._column] = None if data is None else data.decode("utf-8", "replace")
        if found.state == "failed":
            shown |= {self._column: None, REASON: fault_line(found.fault)}
        return shown

    def _put(self, row: Mapping[str, Value]) -> None:
        if self._table is None:
            self._file.write(json_line(row) + "\n")
        else:
            cells = (row.get(name) for name in self._columns)
            texts = ["" if cell is None else guarded(text_of(cell)) for cell in cells]
            self._table.writerow(texts)

    def _unwritable(self, fault: OSError) -> StateFileError:
        return StateFileError(f"{self._path} cannot be written: {fault.strerror}")
