"""Loads a plan: reads its file, checks it, reads what it names, expands and orders it.

Executes and imports nothing that a plan names.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import translate
from functools import partial
from json import dumps, loads
from pathlib import Path
from re import compile as compile_pattern
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from headway.errors import Fix, Place, PlanError, SourceError, nearest
from headway.plans.document import UnusableError, parse_document, read_document, read_text
from headway.plans.expand import (
    MEMBERS_MAX,
    ExpandedPlan,
    GroupPlan,
    Sources,
    expand,
    paths_of,
    prompt_paths,
)
from headway.plans.fan_in import check_contexts
from headway.plans.hazards import Survey, examined, tried
from headway.plans.resources import fixed_part, inside, led_back
from headway.plans.rows import RowError, Rows, rows_in, suffix_of
from headway.plans.schema import plan_of
from headway.plans.section import PlanFaults, shown
from headway.plans.spec import Document, PlanSpec, TaskSpec
from headway.plans.template import Text, check_templates, check_text, scopes_of
from headway.plans.untrusted import Disk, PlanPermissions, check_foreign, check_members

# The folder that a plan is in: what may be opened and listed there, and what matches a pattern.

VISITS_MAX: Final = 1_000_000
"""Entries of folders that one pattern may look at."""

PATTERN_PARTS_MAX: Final = 30

TEXT_BYTES_MAX: Final = 2_000_000
"""Of a prompt or a schema: more than any context."""

TEXTS_BYTES_MAX: Final = 64_000_000
"""Of all of them together."""

TEXTS_MAX: Final = 10_000
LINES_BYTES_MAX: Final = 64_000_000


class Folder:
    """The folder that a plan is in, as far as it may look at it, and the texts that it names."""

    def __init__(
        self, path: Path, may_leave: bool = False, known: Mapping[str, str] | None = None
    ) -> None:
        """`known` are texts by path that are not read again."""
        self._root = os.path.realpath(path)
        self._may_leave = may_leave
        self._texts = dict(known or {})
        self._bytes = 0

    def opened(self, path: str) -> str:
        """Where a path really leads, if it may lead there."""
        if "\0" in path:
            raise UnusableError("cannot be the name of a file")
        real = os.path.realpath(os.path.join(self._root, path))
        is_inside = real == self._root or real.startswith(self._root.rstrip("/") + "/")
        if not self._may_leave and not (is_inside and inside(path) is not None):
            raise UnusableError("leads out of the plan's folder")
        return real

    def leaves(self, path: str, known: dict[str, str]) -> bool:
        """Whether a link leads a path out; `known` are real paths of folders."""
        above, _, name = path.rpartition("/")
        if above not in known:
            known[above] = os.path.realpath(os.path.join(self._root, above))
        real = os.path.join(known[above], name)
        if os.path.islink(real):
            real = os.path.realpath(real)
        return not self._may_leave and not f"{real}/".startswith(self._root.rstrip("/") + "/")

    def text(self, path: str, most: int) -> str:
        real = self.opened(path)
        if not os.path.isfile(real):
            raise UnusableError("is not a file" if os.path.exists(real) else "is not there")
        return read_text(real, most)

    def glob(self, pattern: str) -> tuple[str, ...]:
        parts = [part for part in pattern.split("/") if part not in ("", ".")]
        if ".." in parts or len(parts) > PATTERN_PARTS_MAX or inside(pattern) is None:
            raise UnusableError("leads out of the plan's folder")
        found = sorted(set(self._matches(parts)))
        if not found:
            raise UnusableError("is no task, and matches no file")
        return tuple(found)

    def _matches(self, parts: list[str]) -> Iterator[str]:
        """Every file that a pattern matches; hidden ones only where the pattern says so."""
        parts = [*parts, "*"] if parts[-1:] == ["**"] else parts
        rules = [compile_pattern(translate(part)) for part in parts]
        stack, seen, visits = [("", 0)], {("", 0)}, 0
        while stack:
            folder, place = stack.pop()
            if place >= len(parts):
                continue
            if parts[place] == "**" and (folder, place + 1) not in seen:
                seen.add((folder, place + 1))
                stack.append((folder, place + 1))
            for entry in self._entries(folder):
                visits += 1
                if visits > VISITS_MAX:
                    raise UnusableError(f"looks at more than {VISITS_MAX:,} files")
                path = f"{folder}/{entry.name}" if folder else entry.name
                is_folder = entry.is_dir(follow_symlinks=False)
                if entry.name.startswith(".") and not parts[place].startswith("."):
                    continue
                if parts[place] == "**":
                    after = place
                elif rules[place].match(entry.name):
                    after = place + 1
                else:
                    continue
                if is_folder and (path, after) not in seen:
                    seen.add((path, after))
                    stack.append((path, after))
                elif after == len(parts) and self._is_file(entry, path):
                    yield path

    def _entries(self, folder: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(os.path.join(self._root, folder)) as entries:
                return list(entries)
        except OSError:
            # A folder that cannot be read has nothing for a plan.
            return []

    def _is_file(self, entry: os.DirEntry[str], path: str) -> bool:
        try:
            if entry.is_symlink():
                self.opened(path)
            is_file = entry.is_file()
        except (OSError, UnusableError):
            return False
        if is_file and not path.isascii():
            # A file that a pattern matches is never left out in silence.
            name = path.encode(errors="backslashreplace").decode()
            if name != path:
                raise UnusableError(f"matches {name}, whose name is not UTF-8")
        return is_file

    def neighbour(self, path: str) -> str:
        """The file in the same folder whose name is nearest."""
        folder, _, name = path.rpartition("/")
        if inside(path) is None or "\0" in path:
            return ""
        names = [one.name for one in self._entries(folder) if one.name.isprintable()]
        near = nearest(name, names)
        return f"{folder}/{near}" if folder and near else near

    def items(self, spec: PlanSpec) -> Sources:
        """What the plan's patterns and files of lines give."""
        faults = PlanFaults(spec.file)
        globs: dict[str, tuple[str, ...]] = {}
        lines: dict[str, tuple[str, ...]] = {}
        rows: dict[str, str] = {}
        names = {task.name: task for task in spec.tasks}
        for task in spec.tasks:
            each = task.each
            if each is None or each.kind not in ("glob", "lines", "rows"):
                continue
            source = each.source
            if each.kind == "glob" and source not in globs:
                near = nearest(source, names)
                globs[source] = self._tried(task, "each", source, self.glob, faults, near)
            elif each.kind == "lines" and source not in lines:
                lines[source] = self._tried(task, "each", source, self._lines, faults)
            elif each.kind == "rows":
                read = self._tried(task, "each", source, partial(self._rows, key=each.key), faults)
                rows[source] = "".join(read)
        faults.check()
        return Sources(globs, lines, rows=rows)

    def texts(self, expanded: ExpandedPlan) -> ExpandedPlan:
        """The plan with the texts of its prompts and schemas; their templates are checked."""
        spec = expanded.spec
        faults = PlanFaults(spec.file)
        inner: list[PlanError] = []
        scopes = scopes_of(spec)
        for group in expanded.groups:
            task = group.task
            for path in prompt_paths(group):
                self._text(group, "prompt_file", path, faults)
                there = PlanFaults(path)
                content = self._texts.get(path, "")
                text = Text(content, Place(1, 1), "prompt_file", file=path, owner=task.name)
                check_text(spec.tasks, task, scopes[task.name][0], text, there)
                if there.found:
                    inner.append(there.error())
            for path in paths_of(group, task.schema) if task.schema else ():
                if self._text(group, "schema", path, faults):
                    self._check_schema(task, path, faults)
        if faults.found:
            inner.insert(0, faults.error())
        if inner:
            raise PlanError.together(inner)
        sources = replace(expanded.sources, files=dict(self._texts))
        return replace(expanded, sources=sources)

    def check_outputs(self, expanded: ExpandedPlan) -> None:
        """Refuse outputs that a link leads out of the folder, as far as they are known."""
        faults = PlanFaults(expanded.spec.file)
        known: dict[str, str] = {}
        for group in expanded.groups:
            task = group.task
            for text in paths_of(group, task.output) if task.output else ():
                path = inside(fixed_part(text, "{"))
                if path and self.leaves(path, known):
                    message = f"a link leads `{shown(text)}` in `output` of `{task.name}` out of "
                    message += "the plan's folder"
                    hint = "pass --outside if that is meant"
                    faults.add(SourceError, task.spot("output").value, message, hint)
                    break
        faults.check()

    def _text(self, group: GroupPlan, key: str, path: str, faults: PlanFaults) -> bool:
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
        faults: PlanFaults,
        near: str = "",
    ) -> tuple[str, ...]:
        place = task.spot(key).value
        try:
            return read(path)
        except UnusableError as fault:
            message = f"`{shown(path)}` in `{key}` of `{task.name}` {fault}"
        better = near
        if inside(path) is None and not self._may_leave:
            better = led_back(path)
        elif not better:
            better = self.neighbour(path)
        if not better or "{{" in better or better == path:
            faults.add(SourceError, place, message)
        else:
            each = task.each
            inner = each is not None and each.kind in ("lines", "rows") and key == "each"
            value = better
            if inner and each is not None:
                value = dumps({each.kind: better} | ({"key": each.key} if each.key else {}))
            fix = Fix("source" if inner else "replace", place, value=value)
            faults.add(SourceError, place, message, f"did you mean `{shown(better)}`?", fix)
        return ()

    def _read_text(self, path: str) -> tuple[str, ...]:
        text = self.text(path, TEXT_BYTES_MAX)
        self._bytes += len(text)
        if self._bytes > TEXTS_BYTES_MAX or len(self._texts) >= TEXTS_MAX:
            raise UnusableError(f"is one too many: {TEXTS_MAX:,} files, {TEXTS_BYTES_MAX:,} bytes")
        return (text,)

    def _lines(self, path: str) -> tuple[str, ...]:
        text = self.text(path, LINES_BYTES_MAX)
        lines = tuple(line.strip() for line in text.splitlines() if line.strip())
        if "\0" in text:
            number = 1 + len(text[: text.index("\0")].splitlines()[:-1])
            raise UnusableError(f"has a zero byte in line {number:,}, which no item can hold")
        if not 0 < len(lines) <= MEMBERS_MAX:
            raise UnusableError(f"has {len(lines):,} lines: it takes 1 to {MEMBERS_MAX:,}")
        return lines

    def _rows(self, path: str, key: str) -> tuple[str, ...]:
        text = self.text(path, LINES_BYTES_MAX)
        rows_of(text, path, key)
        return (text,)

    def _check_schema(self, task: TaskSpec, path: str, faults: PlanFaults) -> None:
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


def rows_of(text: str, path: str, key: str) -> Rows:
    """The rows in the text of a file; `UnusableError` says why there are none."""
    try:
        rows = rows_in(text, suffix_of(path), key)
    except RowError as fault:
        raise UnusableError(str(fault)) from fault
    if not 0 < len(rows) <= MEMBERS_MAX:
        raise UnusableError(f"has {len(rows):,} rows: it takes 1 to {MEMBERS_MAX:,}")
    return rows


class Loaded(Struct, frozen=True):
    """A plan that can be run."""

    survey: Survey
    """Who touches what in it, and who comes before whom."""
    text: str
    """Of its file: all that a resume needs."""
    folder: Path
    """Its paths are relative to it."""

    @property
    def expanded(self) -> ExpandedPlan:
        return self.survey.expanded

    def with_spec(self, spec: PlanSpec) -> Loaded:
        """The same plan with other settings of how to run."""
        return self.with_expanded(replace(self.expanded, spec=spec))

    def with_expanded(self, expanded: ExpandedPlan) -> Loaded:
        """The same plan with fewer members: its order and hazards are the same."""
        return replace(self, survey=replace(self.survey, expanded=expanded))


@contextmanager
def in_one_go() -> Iterator[None]:
    """Reads or judges a plan without a pause for the collection of garbage.

    A plan becomes some dozens of records for every task, which stay and have no circles. Each
    collection would look at all that are there already, to find none that can go: with 10,000
    tasks that took as long as the work itself.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@in_one_go()
def load_plan(path: Path, name: str = "", may_leave: bool = False) -> Loaded:
    """The plan in a file. Raises `PlanError` and nothing else.

    `name` is how messages call the file; `may_leave` allows paths outside of the plan's folder.
    """
    document, text = read_document(path, name)
    expanded = _expanded(document, path.parent, may_leave)
    # Of a run that has begun, its tasks may have made such links: those tasks fail, and no others.
    Folder(path.parent, may_leave).check_outputs(expanded)
    return Loaded(examined(expanded), text, path.parent)


@in_one_go()
def load_unrefused(
    path: Path, name: str = "", may_leave: bool = False
) -> tuple[Loaded, PlanError | None]:
    """The same for a plan to be tried: what would be refused for its hazards alone is not."""
    document, text = read_document(path, name)
    survey, refusal = tried(_expanded(document, path.parent, may_leave))
    return Loaded(survey, text, path.parent), refusal


@in_one_go()
def plan_from(
    text: str, folder: Path, name: str = "plan.yaml", may_leave: bool = False,
    included: Sources | None = None,
) -> Loaded:  # fmt: skip
    """The plan in a text, as it was when a run began; `included` is what it named then."""
    document = parse_document(text, name, is_json=name.endswith(".json"))
    return Loaded(examined(_expanded(document, folder, may_leave, included)), text, folder)


def _expanded(
    document: Document, folder: Path, may_leave: bool, included: Sources | None = None
) -> ExpandedPlan:
    spec = plan_of(document)
    library = Folder(folder, may_leave, None if included is None else included.files)
    sources = included or library.items(spec)
    expanded = library.texts(expand(_with_columns(spec, sources), sources))
    check_contexts(expanded)
    return expanded


def _with_columns(spec: PlanSpec, sources: Sources) -> PlanSpec:
    """The plan with the columns of its rows; templates that name others are refused."""
    if not sources.rows:
        return spec
    tasks = list(spec.tasks)
    for place, task in enumerate(tasks):
        each = task.each
        if each is not None and each.kind == "rows":
            rows = rows_in(sources.rows[each.source], suffix_of(each.source), each.key)
            tasks[place] = replace(task, each=replace(each, columns=rows.columns))
    spec, faults = replace(spec, tasks=tuple(tasks)), PlanFaults(spec.file)
    check_templates(spec, None, faults)
    faults.check()
    return spec


# Loads a plan by an agent: judged before any file that it names is opened.


def load_foreign(
    text: str,
    folder: Path,
    allowance: PlanPermissions = PlanPermissions(),
    name: str = "plan.yaml",
    has_begun: bool = False,
    included: Sources | None = None,
) -> Loaded:
    """The plan in a text by an agent; of a run that `has_begun`, its files may be there."""
    spec = plan_of(parse_document(text, name, is_json=name.endswith(".json")))
    root = os.path.realpath(folder)
    disk = Disk(partial(is_behind if has_begun else is_taken, root), partial(leads, root))
    check_foreign(spec, allowance, disk)
    # The names that patterns give and the lines of files; prompts and schemas are opened after.
    check_members(expand(spec, included or Folder(folder).items(spec)), disk)
    return plan_from(text, folder, name, included=included)


def is_taken(root: str, path: str) -> bool:
    """Whether something is at a path already, or it cannot be put there."""
    return os.path.lexists(os.path.join(root, path)) or is_behind(root, path)


def is_behind(root: str, path: str) -> bool:
    """Whether a link on the way leads elsewhere, or a file is where a folder would have to be."""
    above = os.path.dirname(os.path.normpath(os.path.join(root, path)))
    if os.path.realpath(above) != above:
        return True
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    return not os.path.isdir(above)


def leads(root: str, path: str) -> str:
    """Where a path leads when all links are followed, seen from the project's folder."""
    return os.path.relpath(os.path.realpath(os.path.join(root, path)), root)
