"""What the members of a group touch, said once for all: `records/7` is `records/{{ item }}`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

ITEM: Final = "{{ item }}"
APART_MAX: Final = 3
"""Things of one folder that are named one by one."""


def general(what: str, item: str) -> str:
    """A key or path with the member's item in place of its text: whole segments, or their stems."""
    if not item:
        return what
    scheme, colon, rest = what.rpartition(":")
    if "/" in item and item in rest:
        return scheme + colon + rest.replace(item, ITEM, 1)
    parts = rest.split("/")
    for place in range(len(parts) - 1, -1, -1):
        stem, dot, suffix = parts[place].partition(".")
        if parts[place] == item:
            parts[place] = ITEM
        elif stem == item:
            parts[place] = ITEM + dot + suffix
        else:
            continue
        return scheme + colon + "/".join(parts)
    return what


def folder_of(what: str) -> str:
    """What a key or path lies in, with the slash; of one at the top its scheme, or nothing."""
    folder, slash, _ = what.rpartition("/")
    if slash:
        return folder + slash
    scheme, colon, _ = what.rpartition(":")
    return scheme + colon


def condensed(things: Iterable[str]) -> tuple[str, ...]:
    """A short list that stands for all of them: what is many in one folder is `folder/*`.

    Many folders in one are `folder/**`. What lies at the top stays as it is: `*` alone would be
    everything.
    """
    every = set(things)
    while True:
        shorter = _shorter(every)
        if shorter == every:
            return tuple(sorted(every))
        every = shorter


def _shorter(every: set[str]) -> set[str]:
    """One step: each folder that has too many entries becomes one; what it covers goes."""
    inside: dict[str, set[str]] = {}
    for one in every:
        deep = one.endswith(("/*", "/**"))
        folder = folder_of(one.rpartition("/")[0]) if deep else folder_of(one)
        if folder.endswith("/"):
            inside.setdefault(folder, set()).add(one)
    found = set(every)
    for folder, entries in inside.items():
        if len(entries) > APART_MAX:
            is_flat = not any(one.endswith(("/*", "/**")) for one in entries)
            found -= entries
            found.add(folder + ("*" if is_flat else "**"))
    covers = [one.rstrip("*") for one in found if one.endswith("/**")]
    flat = {one[:-1] for one in found if one.endswith("/*")}
    return {
        one
        for one in found
        if not any(one.startswith(folder) and one != folder + "**" for folder in covers)
        and (folder_of(one) not in flat or one.endswith("*"))
    }
