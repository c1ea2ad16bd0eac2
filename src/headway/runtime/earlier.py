"""What tasks touched before: in the last run of the same plan, as its journal has it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from headway.core.detect import Done
from headway.core.engine.access import decode
from headway.core.engine.record import Header, Row
from headway.errors import JournalError
from headway.runtime.journal_reader import JournalReader, latest
from headway.runtime.runs import RunPlace
from headway.runtime.work import Work

ROWS_MAX: Final = 20_000
"""Tasks of an earlier run that are compared: as many as are read in a moment."""


def earlier(places: Iterable[RunPlace], header: Header) -> list[Done]:
    """What the tasks of the last run of this plan touched before this one; none if there is none.

    A journal that cannot be read is as good as none: `doctor` tells.
    """
    place = latest(
        places,
        lambda one: (
            one.run != header.run
            and (one.kind, one.name, one.folder) == (header.kind, header.name, header.folder)
        ),
    )
    if place is None:
        return []
    try:
        with JournalReader(place.folder) as reader:
            return list(touched(reader, islice(reader.rows("finished"), ROWS_MAX)))
    except JournalError:
        return []


def recalled(reader: JournalReader, works: Sequence[Work], tasks: Sequence[int]) -> list[Done]:
    """What tasks of this run touched whose results are from another process; `tasks` are counts.

    Whether they asked for the time was not kept.
    """
    places = {
        works[group].key(member): (group, member)
        for group, count in enumerate(tasks)
        for member in range(count)
    }
    return [
        replace(done, group=places[done.key][0], member=places[done.key][1], is_timed=True)
        for done in touched(reader, reader.rows("finished"))
        if done.key in places
    ]


def touched(reader: JournalReader, rows: Iterable[Row]) -> Iterator[Done]:
    """What these tasks touched of the shared state, by their content keys."""
    by_access: dict[bytes, list[Row]] = {}
    for row in rows:
        if row.ending.access:
            by_access.setdefault(row.ending.access, []).append(row)
    for digest, data in reader.bodies(by_access.keys()):
        access = decode(data)
        for row in by_access[digest]:
            yield Done(
                -1, -1, row.name, access, key=row.key, inputs=row.ending.inputs,
                calls=row.ending.calls,
            )  # fmt: skip
