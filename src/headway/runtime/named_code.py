"""Whether the schemas and functions that a plan names can be used, without importing anything.

Law: a function is refused only if its module's source shows that it is not there. What cannot be
told from sources (compiled modules, `from x import *`, names that are made at run time) is remarked
on, and never refused.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from typing import Final

from headway.core.plan.expand import Expanded, paths_of
from headway.core.plan.grammar import TARGET
from headway.core.plan.remark import Remark, where
from headway.core.plan.section import shown
from headway.core.plan.spec import Python
from headway.errors import BadValueError, Place, PlanError, SourceError, did_you_mean

UNJUDGED: Final = "cannot be judged without importing"

SOURCE_BYTES_MAX: Final = 16_000_000
"""Of a module: no one writes more."""
IMPORTS_MAX: Final = 20
"""How many modules a name is followed through."""

DYNAMIC: Final = frozenset(("globals", "exec", "eval", "vars", "setattr", "locals", "__dict__"))
"""Names by which a module can get others that its source does not show."""
NOT_CALLED: Final = (
    ast.Constant, ast.List, ast.Dict, ast.Set, ast.Tuple, ast.JoinedStr, ast.ListComp, ast.DictComp,
    ast.SetComp, ast.GeneratorExp,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Doubt:
    """What a source shows of a function that was not found for certain."""

    reason: str
    is_missing: bool
    hint: str = ""


def check_named(expanded: Expanded, folder: str) -> tuple[Remark, ...]:
    """Refuse schemas that are none and functions that are not there, each with its place.

    The remarks name functions that cannot be judged.
    """
    spec, errors, remarks = expanded.spec, [*_bad_schemas(expanded)], list[Remark]()
    judged: dict[str, Doubt | None] = {}
    for owner, key, target, place in _functions(expanded):
        doubt = judged[target] if target in judged else doubt_of(target, folder)
        judged[target] = doubt
        if doubt is None:
            continue
        message = f"`{shown(target)}` in `{key}`{f' of `{owner}`' if owner else ''}: {doubt.reason}"
        at = where(spec.file, place)
        if doubt.is_missing:
            errors.append(SourceError(message, where=at, hint=doubt.hint or None))
        else:
            remarks.append(Remark("note", "not judged", owner, message, where=at, what=target))
    if errors:
        raise PlanError.together(errors)
    return tuple(remarks)


def _bad_schemas(expanded: Expanded) -> Iterator[PlanError]:
    for group in expanded.groups:
        task = group.task
        for path in paths_of(group, task.schema) if task.schema else ():
            from headway.runtime.schemas import read_schema

            try:
                read_schema(expanded.sources.files[path], path)
            except BadValueError as error:
                at = where(expanded.spec.file, task.spot("schema").value)
                message = f"`{shown(path)}` in `schema` of `{task.name}` is not a JSON Schema"
                yield SourceError(message, where=at, detail=error.detail, hint=error.hint)


def _functions(expanded: Expanded) -> Iterator[tuple[str, str, str, Place]]:
    """Every function that a plan names: whose, under which key, what, and where."""
    for task in expanded.spec.tasks:
        if isinstance(task.work, Python):
            yield task.name, "python", task.work.target, task.spot("python").value
    for one in expanded.spec.state or ():
        if TARGET.fullmatch(one.channel.target):
            yield "", "state", one.channel.target, one.spot.value


def doubt_of(target: str, folder: str, imports: int = 0) -> Doubt | None:
    """Why `module:name` may not be a function, as seen from a plan's folder; None if it is one."""
    module, _, name = target.partition(":")
    found = _spec_of(module, [os.path.abspath(folder), *sys.path])
    if found is None:
        return Doubt(f"there is no module `{module}`", True, "name it as the plan's folder sees it")
    if not found.has_location and found.submodule_search_locations is not None:
        return Doubt(f"`{module}` is a folder without an __init__.py, and has no `{name}`", True)
    if imports == IMPORTS_MAX:
        return Doubt(f"{UNJUDGED}: it comes through too many modules", False)
    origin = found.origin or ""
    tree = _parsed(origin, folder)
    if isinstance(tree, Doubt):
        return tree
    bindings = [value for bound, value in _bindings(tree.body) if bound == name]
    if not bindings:
        return _absent(tree, name, _short(origin, folder))
    if all(isinstance(value, NOT_CALLED) for value in bindings):
        return Doubt(f"`{name}` in {_short(origin, folder)} is no function", True)
    only = bindings[0]
    if len(bindings) == 1 and isinstance(only, ast.ImportFrom) and only in tree.body:
        return _imported(only, found, name, folder, imports)
    return None


def _parsed(origin: str, folder: str) -> ast.Module | Doubt:
    if not origin.endswith(".py"):
        return Doubt(f"{UNJUDGED}: its module has no source here", False)
    try:
        with open(origin, "rb") as file:
            return ast.parse(file.read(SOURCE_BYTES_MAX), origin)
    except SyntaxError as error:
        return Doubt(f"line {error.lineno} of {_short(origin, folder)} is not Python", True)
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        return Doubt(f"{UNJUDGED}: {error}", False)


def _imported(
    statement: ast.ImportFrom, found: ModuleSpec, name: str, folder: str, imports: int
) -> Doubt | None:
    """The same for a name that a module has from another one."""
    package = found.name if found.submodule_search_locations is not None else found.parent or ""
    parts = package.split(".")[: 1 - statement.level or None] if statement.level else []
    module = ".".join([*parts, *([statement.module] if statement.module else [])])
    real = next(one.name for one in statement.names if (one.asname or one.name) == name)
    if not package and statement.level:
        return None
    if not module or _spec_of(f"{module}.{real}", [os.path.abspath(folder), *sys.path]) is not None:
        return None  # A module, or what only an import can resolve.
    return doubt_of(f"{module}:{real}", folder, imports + 1)


def _absent(tree: ast.Module, name: str, origin: str) -> Doubt:
    names = [bound for bound, _ in _bindings(tree.body)]
    mentioned = {one.id for one in ast.walk(tree) if isinstance(one, ast.Name)}
    mentioned |= {one.attr for one in ast.walk(tree) if isinstance(one, ast.Attribute)}
    made = {name for one in ast.walk(tree) if isinstance(one, ast.Global) for name in one.names}
    if "*" in names or "__getattr__" in names or name in made or mentioned & DYNAMIC:
        return Doubt(f"{UNJUDGED}: {origin} makes names at run time", False)
    public = [one for one in names if not one.startswith("_")]
    return Doubt(f"there is no `{name}` in {origin}", True, did_you_mean(name, public))


def _bindings(body: Sequence[ast.stmt]) -> Iterator[tuple[str, ast.AST]]:
    """The names that statements of a module give something to, with what gives it."""
    for statement in body:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield statement.name, statement
                continue
            case ast.Import() | ast.ImportFrom():
                for alias in statement.names:
                    yield alias.asname or alias.name.partition(".")[0], statement
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value
                continue
        for one in ast.iter_child_nodes(statement):
            if not isinstance(one, ast.stmt | ast.excepthandler | ast.match_case):
                for inner in ast.walk(one):
                    if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                        yield inner.id, statement
        for field in ("body", "orelse", "finalbody"):
            yield from _bindings(getattr(statement, field, ()))
        for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
            yield from _bindings(part.body)


def _spec_of(module: str, path: Sequence[str]) -> ModuleSpec | None:
    """Where a module is. Only finders are asked: nothing of it is executed."""
    found: ModuleSpec | None = None
    at: Sequence[str] | None = None
    name = ""
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        found = PathFinder.find_spec(name, path if at is None else at)
        if found is None and at is None:
            specs = (one.find_spec(name, None) for one in sys.meta_path if one is not PathFinder)
            found = next((one for one in specs if one is not None), None)
        if found is None:
            return None
        at = found.submodule_search_locations or ()
    return found


def _short(origin: str, folder: str) -> str:
    """A path as it is seen from the plan's folder, if it is in there."""
    near = os.path.relpath(origin, folder)
    return origin if near.startswith("..") else near
