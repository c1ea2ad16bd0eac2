"""What users see is what was recorded: commands, Python names, errors, plan keys, JSON, figures."""

from __future__ import annotations

from typing import Any

import pytest

from tests.doors import surface

RECORDED = surface.recorded()
AGAIN = "python -m tests.doors.surface records what is meant to change"


@pytest.mark.parametrize("part", ["commands", "python", "errors", "plan", "figures", "refusals"])
def test_what_users_see_is_what_was_recorded(part: str) -> None:
    assert surface.PARTS[part]() == RECORDED[part], AGAIN


def test_every_verb_prints_the_recorded_shape_of_json() -> None:
    now = surface.shapes()
    assert now.keys() == RECORDED["json"].keys(), AGAIN
    faults = [
        fault for verb in now for fault in differences(RECORDED["json"][verb], now[verb], verb)
    ]
    assert not faults, "\n".join([AGAIN, *faults])


def differences(known: Any, now: Any, where: str) -> list[str]:
    """Keys that came or went, and types that a value never had before."""
    kept, found = _alternatives(known), _alternatives(now)
    faults = [f"{where}: {kind} is new" for kind in found.keys() - kept.keys()]
    if "object" in kept and "object" in found:
        before, after = kept["object"], found["object"]
        faults += [f"{where}.{key} is gone" for key in before.keys() - after.keys()]
        faults += [f"{where}.{key} is new" for key in after.keys() - before.keys()]
        for key in before.keys() & after.keys():
            faults += differences(before[key], after[key], f"{where}.{key}")
    if kept.get("list") and found.get("list"):
        faults += differences(kept["list"][0], found["list"][0], f"{where}[]")
    return faults


def _alternatives(shape: Any) -> dict[str, Any]:
    """A shape by kind: `{"number": None, "object": {...}, "list": [...]}`."""
    is_several = isinstance(shape, list) and len(shape) > 1
    found: dict[str, Any] = {}
    for one in shape if is_several else [shape]:
        match one:
            case str():
                found[one] = None
            case dict():
                found["object"] = one
            case _:
                found["list"] = one
    return found
