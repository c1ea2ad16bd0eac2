"""Reducers without a model, for `python:` tasks in plans and for Python.

`python: headway.reducers:vote` beside `reduce: TASK` is given the values of all results in declared
order. With a `quorum` it is told as `missing` who has none; each of them states that in what it
gives, so that a part is not taken for the whole.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

CONFLICTS: Final = "_conflicts"
MISSING: Final = "_missing"
"""Keys that `json_merge` adds to an object where there is something to state."""

VOTE: Final = "vote"
"""The field that is counted where a result is an object."""


def concat(results: Sequence[object], missing: Sequence[str] = ()) -> str:
    """All results as text, one after another with an empty line between them; values as JSON."""
    texts = [_text(result) for result in results]
    if missing:
        texts.append(f"Missing: {', '.join(missing)}")
    return "\n\n".join(text for text in texts if text)


def json_merge(results: Sequence[object], missing: Sequence[str] = ()) -> object:
    """One object of all: objects are merged at every depth, lists are appended.

    Where two results have different values in one place, the later one in declared order wins, and
    `_conflicts` says where that was and what was given up. Lists only give one list.
    """
    if results and all(isinstance(result, list) for result in results):
        every = [element for result in results if isinstance(result, list) for element in result]
        return [*every, {MISSING: list(missing)}] if missing else every
    merged: dict[str, object] = {}
    conflicts: dict[str, list[object]] = {}
    for number, result in enumerate(results, 1):
        if not isinstance(result, Mapping):
            kind = "text" if isinstance(result, str) else type(result).__name__
            raise ValueError(f"result {number} is {kind}: only objects and lists can be merged")
        _merge(merged, result, "$", conflicts)
    if conflicts:
        told = [{"path": path, "given_up": lost} for path, lost in conflicts.items()]
        merged[CONFLICTS] = [*_listed(merged.get(CONFLICTS)), *told]
    if missing:
        merged[MISSING] = [*_listed(merged.get(MISSING)), *missing]
    return merged


def vote(results: Sequence[object], missing: Sequence[str] = ()) -> dict[str, object]:
    """What most results say, and how many said what.

    A result that is nothing (null, or empty text) abstains. Of an object its field `vote` counts,
    if it has one. With a tie there is no winner: `tied` has those who lead.
    """
    counts: dict[str, int] = {}
    values: dict[str, object] = {}
    abstained = 0
    for result in results:
        value = result.get(VOTE) if isinstance(result, Mapping) and VOTE in result else result
        value = value.strip() if isinstance(value, str) else value
        if value is None or value == "":
            abstained += 1
            continue
        name = json.dumps(value, sort_keys=True, ensure_ascii=False)
        values.setdefault(name, value)
        counts[name] = counts.get(name, 0) + 1
    # Sorting keeps the order of first mention among equals.
    ranked = sorted(counts, key=lambda name: -counts[name])
    leading = [name for name in ranked if counts[name] == counts[ranked[0]]]
    is_clear = len(leading) == 1
    return {
        "winner": values[leading[0]] if is_clear else None,
        "is_majority": is_clear and 2 * counts[leading[0]] > sum(counts.values()),
        "tied": [] if is_clear else [values[name] for name in leading],
        "votes": [{"value": values[name], "count": counts[name]} for name in ranked],
        "abstained": abstained,
        "missing": list(missing),
    }


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _listed(value: object) -> list[object]:
    return list(value) if isinstance(value, list) else []


def _merge(
    into: dict[str, object],
    more: Mapping[str, object],
    path: str,
    conflicts: dict[str, list[object]],
) -> None:
    for key, value in more.items():
        here = f"{path}.{key}"
        old = into.get(key)
        if key not in into:
            into[key] = _copied(value)
        elif isinstance(old, dict) and isinstance(value, Mapping):
            _merge(old, value, here, conflicts)
        elif isinstance(old, list) and isinstance(value, list):
            old.extend(_copied(element) for element in value)
        elif old != value or type(old) is not type(value):
            conflicts.setdefault(here, []).append(old)
            into[key] = _copied(value)


def _copied(value: object) -> object:
    """A copy, because it is merged into later."""
    if isinstance(value, Mapping):
        return {key: _copied(inner) for key, inner in value.items()}
    return [_copied(inner) for inner in value] if isinstance(value, list) else value
