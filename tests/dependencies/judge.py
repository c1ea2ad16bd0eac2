"""The truth about pairs of tasks: both orders, really run by a plain shell, without headway.

A pair is broken if B, begun before A, ends otherwise, prints something else, or if anything else
that is left behind differs. `python -m tests.dependencies.judge` prints what was found.
"""

from __future__ import annotations

import glob
import hashlib
import itertools
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml
from msgspec import Struct

HERE: Final = Path(__file__).parent


class Subject(Struct, frozen=True):
    """A plan of the collection, and the pair that it is about."""

    way: str
    name: str
    files: dict[str, str]
    plan: dict[str, Any]
    pair: tuple[str, str]

    def __str__(self) -> str:
        return f"{self.way}: {self.name}"

    def put(self, folder: Path) -> Path:
        """Writes files and plan; gives the plan's path."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in self.files.items():
            place = folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
            if text.startswith("#!") and name != "hook":
                place.chmod(0o755)
        plan = folder / "plan.yaml"
        plan.write_text(self.text)
        return plan

    @property
    def text(self) -> str:
        return yaml.safe_dump(self.plan, sort_keys=False, default_flow_style=False)


class Unit(Struct, frozen=True):
    """One task as a plain script sees it."""

    name: str
    group: str
    task: dict[str, Any]
    values: dict[str, str]
    after: frozenset[str]
    """The names of tasks and groups that come before it by a key of the plan."""


def subjects(kind: str) -> list[Subject]:
    """Those of `broken.yaml` or `good.yaml`."""
    found = []
    for way, entries in yaml.safe_load((HERE / f"{kind}.yaml").read_text()).items():
        for entry in entries:
            names = list(entry["tasks"])
            first, second = entry.get("pair", names[:2])
            plan = {"headway": 1, "model": "openai/gpt-5-mini"}
            plan |= {key: entry[key] for key in ("vars", "tasks") if key in entry}
            found.append(Subject(way, entry["name"], entry.get("files", {}), plan, (first, second)))
    return found


def units_of(subject: Subject) -> list[Unit]:
    """The tasks in declared order; members are known from the files that the plan begins with."""
    found: list[Unit] = []
    plain = {key: str(value) for key, value in subject.plan.get("vars", {}).items()}
    for name, task in subject.plan["tasks"].items():
        after = {*_names(task.get("needs")), *_names(task.get("reduce"))}
        after |= {u.name for u in found if _conflicts(u.task, task)}
        followed = [u for u in found if u.group == task.get("each")]
        values = plain | {k: str(v) for k, v in task.get("vars", {}).items() if "{{" not in str(v)}
        if followed:
            for unit in followed:
                item = {"item": unit.values["item"]}
                member = f"{name}[{unit.values['item']}]"
                found.append(
                    Unit(member, name, task, values | item, frozenset(after | {unit.name}))
                )
            continue
        for chosen in _members(subject, task):
            member = f"{name}[{','.join(chosen.values())}]" if chosen else name
            found.append(Unit(member, name, task, values | chosen, frozenset(after)))
    return found


def _names(value: str | list[str] | None) -> list[str]:
    return [value] if isinstance(value, str) else value or []


def _conflicts(earlier: dict[str, Any], later: dict[str, Any]) -> bool:
    written = {*_names(earlier.get("writes")), *_names(earlier.get("output"))}
    is_read = bool(written & {*_names(later.get("reads")), *_names(later.get("writes"))})
    return is_read or ("queue" in earlier and earlier["queue"] == later.get("queue"))


def _members(subject: Subject, task: dict[str, Any]) -> list[dict[str, str]]:
    if "matrix" in task:
        axes = [[(key, str(value)) for value in task["matrix"][key]] for key in task["matrix"]]
        return [dict(chosen) for chosen in itertools.product(*axes)]
    items = task.get("each")
    if items is None:
        return [{}]
    if isinstance(items, dict):
        items = subject.files[items["lines"]].split()
    elif isinstance(items, str):
        with tempfile.TemporaryDirectory() as folder:
            subject.put(Path(folder))
            items = sorted(glob.glob(items, root_dir=folder))
    return [{"item": item} for item in items]


def is_ordered(units: list[Unit], first: Unit, second: Unit) -> bool:
    """Whether keys of the plan put `first` before `second`, also by way of others."""
    before = {first.name}
    for unit in units[units.index(first) + 1 :]:
        if any(u.name in before and (u.name in unit.after or u.group in unit.after) for u in units):
            before.add(unit.name)
    return second.name in before


def swapped(units: list[Unit], first: set[str], second: set[str]) -> list[Unit]:
    """The declared order, but `second`, with what it needs, comes before `first`."""
    moved = [unit for unit in units if unit.name in second or unit.group in second]
    needed = {name for unit in moved for name in unit.after}
    start = next(n for n, unit in enumerate(units) if unit.name in first or unit.group in first)
    needs = [u for u in units[start:] if (u.name in needed or u.group in needed) and u not in moved]
    rest = [unit for unit in units[start:] if unit not in needs and unit not in moved]
    return [*units[:start], *needs, *moved, *rest]


def perform(subject: Subject, order: list[Unit]) -> dict[str, object]:
    """What each task printed and how it ended, and the files that there are afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        subject.put(Path(folder))
        said: dict[str, object] = {}
        results: dict[str, str] = {}
        for unit in order:
            code, text = _perform(Path(folder), unit, results)
            results[unit.name] = text
            said[unit.name] = (code, text)
        for place in sorted(Path(folder).rglob("*")):
            if place.is_dir() or place.suffix == ".pyc":
                continue
            content = os.readlink(place) if place.is_symlink() else place.read_bytes()
            said[str(place.relative_to(folder))] = (content, place.lstat().st_mode & 0o100)
    return said


def _perform(folder: Path, unit: Unit, results: dict[str, str]) -> tuple[int, str]:
    task = unit.task
    stdin = ""
    if "reduce" in task:
        group = task["reduce"]
        stdin = "".join(f"{t}\n" for n, t in results.items() if n.partition("[")[0] == group)
    values = dict(unit.values)
    for key, value in task.get("vars", {}).items():
        if found := re.fullmatch(r"\{\{ tasks\.(.*)\.output \}\}", str(value)):
            place = Path(tempfile.mkstemp()[1])
            place.write_text(results[found[1]])
            values[f"{key}_file"] = str(place)
    if "prompt" in task or "prompt_file" in task:
        place = folder / task.get("prompt_file", "")
        prompt = task.get("prompt") or (place.read_text() if place.is_file() else "")
        code, text = 0, hashlib.sha256(f"{prompt}{sorted(values.items())}".encode()).hexdigest()
    else:
        command = task.get("run")
        if command is None:
            module, _, name = task["python"].partition(":")
            command = (
                f"PYTHONPATH=. {sys.executable} -c 'import {module}; print({module}.{name}())'"
            )
        environ = {**os.environ, **values, "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            ["sh", "-c", command], cwd=folder, env=environ, input=stdin, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        code, text = done.returncode, done.stdout
    if "output" in task and not code:
        (folder / task["output"]).parent.mkdir(parents=True, exist_ok=True)
        (folder / task["output"]).write_text(text)
    return code, text


def verdicts(subject: Subject) -> Iterator[tuple[str, str, bool]]:
    """Every pair that no key orders, and whether both orders give the same."""
    units = units_of(subject)
    declared = perform(subject, units)
    for first, second in itertools.combinations(units, 2):
        if not is_ordered(units, first, second):
            other = perform(subject, swapped(units, {first.name}, {second.name}))
            yield first.name, second.name, other == declared


def commutes(subject: Subject) -> bool:
    """Whether the pair that the subject is about gives the same in both orders."""
    units = units_of(subject)
    first, second = subject.pair
    return perform(subject, units) == perform(subject, swapped(units, {first}, {second}))


def main() -> None:
    for kind in ("broken", "good"):
        for subject in subjects(kind):
            found = {f"{a}, {b}": same for a, b, same in verdicts(subject)}
            print(kind, subject, subject.pair, commutes(subject), found, flush=True)


if __name__ == "__main__":
    main()
