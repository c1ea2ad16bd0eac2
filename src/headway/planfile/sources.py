"""What a plan's patterns and paths lead to: names of files, lines, and texts, all within bounds.

What cannot be used is told together, each with its place in the plan.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from json import dumps, loads
from pathlib import Path
from typing import Final

from headway.core.plan.expand import (
    MEMBERS_MAX,
    Expanded,
    GroupPlan,
    Sources,
    paths_of,
    prompt_paths,
)
from headway.core.plan.links import nearest
from headway.core.plan.paths import fixed_part, inside, led_back
from headway.core.plan.scope import Text, check_text, scopes_of
from headway.core.plan.section import Faults, shown
from headway.core.plan.spec import PlanSpec, TaskSpec
from headway.errors import Fix, Place, PlanError, SourceError
from headway.planfile.folder import Folder, UnusableError

TEXT_BYTES_MAX: Final = 2_000_000
"""Of a prompt or a schema: more than any context."""

TEXTS_BYTES_MAX: Final = 64_000_000
"""Of all of them together."""

TEXTS_MAX: Final = 10_000
LINES_BYTES_MAX: Final = 64_000_000


@dataclass(frozen=True, slots=True)
class LibraryStatistics:
    """How much was read."""

    texts: int
    text_bytes: int


class Library:
    """The folder that a plan is in, as far as the plan looks at it."""

    __slots__ = ("_bytes", "_folder", "_may_leave", "_texts")

    def __init__(self, folder: Path, may_leave: bool = False) -> None:
        self._folder = Folder(folder, may_leave)
        self._may_leave = may_leave
        self._texts: dict[str, str] = {}
        self._bytes = 0

    def __repr__(self) -> str:
        return f"<Library of {self._folder!r}: {len(self._texts)} texts>"

    def statistics(self) -> LibraryStatistics:
        """Counts so far."""
        return LibraryStatistics(len(self._texts), self._bytes)

    def items(self, spec: PlanSpec) -> Sources:
        """What the plan's patterns and files of lines give."""
        faults = Faults(spec.file)
        globs: dict[str, tuple[str, ...]] = {}
        lines: dict[str, tuple[str, ...]] = {}
        names = {task.name: task for task in spec.tasks}
        for task in spec.tasks:
            each = task.each
            if each is None or each.kind not in ("glob", "lines"):
                continue
            found, read = (
                (globs, self._folder.glob) if each.kind == "glob" else (lines, self._lines)
            )
            if each.source not in found:
                near = nearest(each.source, names) if each.kind == "glob" else ""
                found[each.source] = self._tried(task, "each", each.source, read, faults, near)
        faults.check()
        return Sources(globs, lines)

    def texts(self, expanded: Expanded) -> Expanded:
        """The plan with the texts of its prompts and schemas; their templates are checked."""
        spec = expanded.spec
        faults = Faults(spec.file)
        inner: list[PlanError] = []
        scopes = scopes_of(spec)
        for group in expanded.groups:
            task = group.task
            for path in prompt_paths(group):
                self._text(group, "prompt_file", path, faults)
                there = Faults(path)
                text = Text(
                    self._texts.get(path, ""),
                    Place(1, 1),
                    "prompt_file",
                    file=path,
                    owner=task.name,
                )
                check_text(spec.tasks, task, scopes[task.name].text, text, there)
                if there.statistics().faults:
                    inner.append(there.error())
            for path in paths_of(group, task.schema) if task.schema else ():
                if self._text(group, "schema", path, faults):
                    self._check_schema(task, path, faults)
        if faults.statistics().faults:
            inner.insert(0, faults.error())
        if inner:
            raise PlanError.together(inner)
        sources = replace(expanded.sources, files=dict(self._texts))
        return replace(expanded, sources=sources)

    def check_outputs(self, expanded: Expanded) -> None:
        """Refuse outputs that a link leads out of the folder, as far as they are known."""
        faults = Faults(expanded.spec.file)
        known: dict[str, str] = {}
        for group in expanded.groups:
            task = group.task
            for text in paths_of(group, task.output) if task.output else ():
                path = inside(fixed_part(text, "{"))
                if path and self._folder.leaves(path, known):
                    message = f"a link leads `{shown(text)}` in `output` of `{task.name}` out of "
                    message += "the plan's folder"
                    hint = "pass --outside if that is meant"
                    faults.add(SourceError, task.spot("output").value, message, hint)
                    break
        faults.check()

    def _text(self, group: GroupPlan, key: str, path: str, faults: Faults) -> bool:
        if path not in self._texts:
            read = self._tried(group.task, key, path, self._read_text, faults)
            if not read:
                return False
            self._texts[path] = read[0]
        return True

    def _tried(
        self,
        task: TaskSpec,
        key: str,
        path: str,
        read: Callable[[str], tuple[str, ...]],
        faults: Faults,
        near: str = "",
    ) -> tuple[str, ...]:
        """What `read` gives, or a note of why it does not."""
        place = task.spot(key).value
        try:
            return read(path)
        except UnusableError as fault:
            message = f"`{shown(path)}` in `{key}` of `{task.name}` {fault}"
        better = near
        if inside(path) is None and not self._may_leave:
            better = led_back(path)
        elif not better:
            better = self._folder.neighbour(path)
        if not better or "{{" in better or better == path:
            faults.add(SourceError, place, message)
        else:
            inner = task.each is not None and task.each.kind == "lines" and key == "each"
            value = dumps({"lines": better}) if inner else better
            fix = Fix("source" if inner else "replace", place, value=value)
            faults.add(SourceError, place, message, f"did you mean `{shown(better)}`?", fix)
        return ()

    def _read_text(self, path: str) -> tuple[str, ...]:
        text = self._folder.text(path, TEXT_BYTES_MAX)
        self._bytes += len(text)
        if self._bytes > TEXTS_BYTES_MAX or len(self._texts) >= TEXTS_MAX:
            raise UnusableError(f"is one too many: {TEXTS_MAX:,} files, {TEXTS_BYTES_MAX:,} bytes")
        return (text,)

    def _lines(self, path: str) -> tuple[str, ...]:
        text = self._folder.text(path, LINES_BYTES_MAX)
        lines = tuple(line.strip() for line in text.splitlines() if line.strip())
        if "\0" in text:
            number = 1 + len(text[: text.index("\0")].splitlines()[:-1])
            raise UnusableError(f"has a zero byte in line {number:,}, which no item can hold")
        if not 0 < len(lines) <= MEMBERS_MAX:
            raise UnusableError(f"has {len(lines):,} lines: it takes 1 to {MEMBERS_MAX:,}")
        return lines

    def _check_schema(self, task: TaskSpec, path: str, faults: Faults) -> None:
        why = "it is not a JSON Schema"
        try:
            if isinstance(loads(self._texts[path]), dict | bool):
                return
        except RecursionError:
            why = "headway cannot use this schema: it is nested too deep"
        except ValueError:
            pass
        message = f"`{shown(path)}` in `schema` of `{task.name}`: {why}"
        faults.add(SourceError, task.spot("schema").value, message)
