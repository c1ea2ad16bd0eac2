"""The folders of runs: create, find, list, remove.

Laws:
- An id begins with the time, so that ids sort as runs began; making the folder is what takes it.
- A run that a process owns is never removed.
"""

from __future__ import annotations

import os
import shutil
import time
from calendar import timegm
from typing import Final

from msgspec import Struct

from headway.base import locks as owner
from headway.errors import JournalError, UsageError, did_you_mean
from headway.journal.file import path_of

FOLDER: Final = "runs"
LAST: Final = "last"
LETTERS: Final = "23456789abcdefghjkmnpqrstuvwxyz"
"""In rising order, without those that are taken for one another."""
SLOTS: Final = len(LETTERS) ** 3
"""Of a minute, two milliseconds each: three letters say which one."""
TRIES_MAX: Final = 1000
"""Neighbouring slots that are looked at when one is taken."""
LISTED_MAX: Final = 1000


class RunPlace(Struct, frozen=True):
    id: str
    """`20261116-0423-a7k`: when it began (UTC)."""
    folder: str
    created_s: float


def new_run(state: str, now_s: float) -> RunPlace:
    """Make the folder of a new run, for its user alone; `state` is the folder of all state."""
    parent = os.path.join(state, FOLDER)
    slot = int(now_s % 60.0 / 60.0 * SLOTS)
    try:
        os.makedirs(parent, mode=0o700, exist_ok=True)
        for taken in range(TRIES_MAX):
            id = _id(now_s, min(slot, SLOTS - TRIES_MAX) + taken)
            folder = os.path.join(parent, id)
            try:
                os.mkdir(folder, mode=0o700)
            except FileExistsError:
                continue
            os.chmod(folder, 0o700)
            return RunPlace(id, folder, _created_s(id))
    except OSError as fault:
        raise JournalError(
            f"no folder for a run can be made in {parent}: {fault.strerror}",
            hint="set HEADWAY_STATE_DIR to a folder that can be written to",
        ) from None
    raise JournalError(f"{parent} has no room for another run of this minute")


def list_runs(state: str, limit: int = LISTED_MAX) -> list[RunPlace]:
    found = [place for place in _places(state) if os.path.exists(path_of(place.folder))]
    return found[:limit]


def find_run(state: str, word: str) -> RunPlace:
    """By its id, a piece of it that no other has, or `last`; UsageError if there is no one run."""
    places = list_runs(state)
    if not places:
        raise UsageError(f"there is no run `{word}`: there are no runs yet")
    if word == LAST:
        return places[0]
    exact = [place for place in places if place.id == word]
    near = exact or [place for place in places if place.id.startswith(word)]
    near = near or [place for place in places if place.id.endswith(f"-{word}")]
    if len(near) == 1:
        return near[0]
    if near:
        several = ", ".join(place.id for place in near[:5])
        raise UsageError(f"`{word}` may be any of {len(near)} runs", detail=several, hint=(
            f"say which one, for instance `{near[0].id}`"
        ))  # fmt: skip
    raise UsageError(
        f"there is no run `{word}`", hint=did_you_mean(word, [place.id for place in places[:20]])
    )


def prune(state: str, before_s: float) -> list[RunPlace]:
    """Remove runs that began before then and have no process."""
    removed = []
    for place in _places(state):
        found = owner.look(place.folder)
        if place.created_s < before_s and not (found and found.is_alive):
            try:
                shutil.rmtree(place.folder)
            except OSError as fault:
                raise JournalError(f"{place.folder} cannot be removed: {fault.strerror}") from None
            removed.append(place)
    return removed


def _places(state: str) -> list[RunPlace]:
    try:
        names = os.listdir(os.path.join(state, FOLDER))
    except FileNotFoundError:
        return []
    except OSError as fault:
        raise JournalError(f"{state} cannot be read: {fault.strerror}") from None
    places = [
        RunPlace(name, os.path.join(state, FOLDER, name), created_s)
        for name in names
        if (created_s := _created_s(name)) >= 0
    ]
    return sorted(places, key=lambda place: place.id, reverse=True)


def _id(now_s: float, slot: int) -> str:
    high, low = divmod(slot, len(LETTERS))
    high, middle = divmod(high, len(LETTERS))
    stamp = time.strftime("%Y%m%d-%H%M", time.gmtime(now_s))
    return f"{stamp}-{LETTERS[high]}{LETTERS[middle]}{LETTERS[low]}"


def _created_s(id: str) -> float:
    """When a run of this id began; -1 if it is not an id."""
    if len(id) != len("20261116-0423-a7k") or not set(id[14:]) <= set(LETTERS):
        return -1.0
    try:
        minute_s = timegm(time.strptime(id[:14], "%Y%m%d-%H%M-"))
    except ValueError:
        return -1.0
    high, middle, low = map(LETTERS.index, id[14:])
    slot = (high * len(LETTERS) + middle) * len(LETTERS) + low
    return minute_s + slot / SLOTS * 60.0
