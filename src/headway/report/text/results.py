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
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TextIO

from headway.base.values import CacheTokens
from headway.engine.events import GroupExpanded, RunBegan
from headway.engine.record import TaskRow
from headway.errors import StateFileError
from headway.journal.documents import is_edited, kept_shape
from headway.journal.reader import JournalReader
from headway.plans.graph import Numbering
from headway.report.text.runs import agents_as_json, unknown_task
from headway.report.text.words import known_usd

if TYPE_CHECKING:
    from headway.agents.programs import AgentUsage

FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")

OBEYED: Final = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Beyond those below a space, which JSON escapes anyway."""

COLUMNS: Final = (
    "task", "state", "output", "attempts", "input_tokens", "output_tokens", "usd", "seconds",
    "reason", "cache_read_tokens", "cache_write_tokens", "cache_rewrite_tokens",
)  # fmt: skip

NAME_MAX: Final = 120
"""Bytes of a task's name in a file's: file systems allow 255, and a number and a suffix follow."""


Gave = tuple[TaskRow, bytes | None]
"""A task that ended, and its result; None if it has none, or results are not kept."""


def harvest(reader: JournalReader, names: Collection[str] = ()) -> Iterator[Gave]:
    """The tasks that have ended, or those in `names`, in declared order."""
    inner, order = _order(reader)
    rows = [
        row
        for row in reader.rows()
        if not names or row.name in names or row.name.partition("[")[0] in names
    ]
    if inner is None:
        rows = [row for row in rows if row.key in order]
    else:
        rows = [row for row in rows if row.name.partition("[")[0] not in inner]
    rows.sort(key=lambda row: order.get(row.key, (len(order), 0)))
    there = {row.name for row in rows} | {row.name.partition("[")[0] for row in rows}
    for name in names:
        if name not in there:
            raise unknown_task(reader, name)
    for row in rows:
        if row.state == "finished":
            yield row, reader.body(row.ending.body) if row.ending.body else None
        elif row.state in ("failed", "skipped"):
            yield row, None


def _order(reader: JournalReader) -> tuple[Collection[str] | None, dict[bytes, tuple[int, int]]]:
    """The places of tasks, and names of groups that are no results of their own: levels of
    reductions. Of an edited plan, the places of all tasks that it still has, and None.

    Of any other run they follow from its shape and the numbers of its tasks, without its plan.
    """
    if is_edited(reader):
        from headway.run.resume import declared

        if (plan := declared(reader)) is not None:
            return None, {key: (place, 0) for key, place in plan[0].items()}
    shape = kept_shape(reader)
    groups = () if shape is None else shape.graph.groups
    numbers, places = Numbering(groups), dict[bytes, tuple[int, int]]()
    for recorded in reader.events():
        match recorded.event:
            case RunBegan():
                numbers = Numbering(groups)
            case GroupExpanded(group=group, count=count) if groups and not numbers.is_known(group):
                numbers.expand(group, count)
            case event if isinstance(task := getattr(event, "task", None), int):
                places[recorded.key] = numbers.place(task) if groups else (task, 0)
    return {group.name for group in groups if "/" in group.name}, places


def cache_json(cache: CacheTokens) -> dict[str, object]:
    return {
        "cache_read_tokens": round(cache.read), "cache_write_tokens": round(cache.written),
        "cache_rewrite_tokens": round(cache.rewritten),
    }  # fmt: skip


def as_json(gave: Gave, *, is_parsed: bool) -> dict[str, object]:
    row, body = gave
    output: object = None if body is None else body.decode("utf-8", "replace")
    if is_parsed and isinstance(output, str):
        with suppress(ValueError):
            output = json.loads(output)
    shown: dict[str, object] = {
        "task": row.name,
        "state": row.state,
        "output": output,
        "attempts": row.attempt,
        "input_tokens": round(row.ending.input_tokens),
        "output_tokens": round(row.ending.output_tokens),
        "usd": known_usd(row.spent_microusd, row.unpriced),
        **cache_json(row.ending.cache),
        "seconds": round(max(0.0, row.ended_s - row.started_s), 3) if row.started_s else 0.0,
    }
    if row.ending.exit_code is not None:
        shown["exit_code"] = row.ending.exit_code
    if row.state != "finished":
        shown["reason"] = row.fault or "something that it needs has failed"
    return shown


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


def json_line(shown: object) -> str:
    """JSON that people can read in every script and no terminal obeys."""
    line = json.dumps(shown, ensure_ascii=False, allow_nan=False)
    return OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", line)


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
        for row, body in found:
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
